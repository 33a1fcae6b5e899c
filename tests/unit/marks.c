/* marks: which bytes of a rendered conversation came from the context, and that a tokenizer takes
 * them as plain text. */
#include "support/test.h"

#include "base/file.h"
#include "base/json.h"
#include "chat/template.h"
#include "tokenizer/tokenizer.h"
#include "support/one_call.h"

#include <stdio.h>
#include <stdlib.h>

static mf_error why;

static void must(mf_status status)
{
    if (status != MF_OK) fail_msg("%s (%s)", why.text, why.origin);
}

static struct chat_rendering render(const char *source, const char *variables)
{
    struct chat_template *chat;
    struct chat_rendering rendering;
    json_t *context;
    must(chat_template_parse_new(&chat, source, strlen(source), "t", &why));
    must(json_parse_new(&context, variables, strlen(variables), "variables", &why));
    if (chat_template_render_marked(&rendering, chat, context, NULL, NULL, &why) != MF_OK)
        fail_msg("%s: %s", source, why.text);
    json_decref(context);
    chat_template_free(chat);
    return rendering;
}

/* The text with ⟦ ⟧ around content. */
static char *shown_new(const struct chat_rendering *rendering)
{
    char *shown = NULL;
    size_t length = 0, at = 0;
    FILE *out = open_memstream(&shown, &length);
    for (size_t i = 0; i < rendering->content_count; i++) {
        mf_range range = rendering->content[i];
        assert_true(range.length > 0 && range.offset >= at);
        fwrite(rendering->text + at, 1, range.offset - at, out);
        fprintf(out, "⟦%.*s⟧", (int)range.length, rendering->text + range.offset);
        at = range.offset + range.length;
    }
    assert_true(at <= rendering->length);
    fwrite(rendering->text + at, 1, rendering->length - at, out);
    fclose(out);
    return shown;
}

static void assert_marks(const char *source, const char *expected)
{
    static const char variables[] =
        "{\"x\":\"hi\",\"spaced\":\"  hi \",\"list\":[\"a\",\"b\"],\"bos_token\":\"<s>\","
        "\"m\":{\"role\":\"user\",\"content\":\"hi\"},\"odd\":{\"role\":\"a|b\"},"
        "\"nested\":{\"k\":[\"hi\"]}}";
    struct chat_rendering rendering = render(source, variables);
    char *shown = shown_new(&rendering);
    if (strcmp(shown, expected) != 0)
        fail_msg("%s\ngives    %s\nexpected %s", source, shown, expected);
    free(shown);
    chat_rendering_clear(&rendering);
}

static void marks_travel_through_the_template_language(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        { "plain", "plain" },
        { "<a>{{ x }}<b>", "<a>⟦hi⟧<b>" },
        { "{{ '<a>' + x + '<b>' }}", "<a>⟦hi⟧<b>" },
        { "{{ '<a>' ~ x ~ '<b>' ~ x }}", "<a>⟦hi⟧<b>⟦hi⟧" },
        { "{{ '<a>' ~ spaced|trim ~ '<b>' }}", "<a>⟦hi⟧<b>" },
        { "{{ spaced.strip() }}{{ '  <a> '.strip() }}", "⟦hi⟧<a>" },
        { "{{ ('<a>' + x + '<b>')[1:4] }}", "a>⟦h⟧" },
        { "{{ ('<a>' + x)[::-1] }}", "⟦ih⟧>a<" },
        { "{{ ('<a>' + x + '<b>').split('<b>')[0] }}", "<a>⟦hi⟧" },
        { "{{ ('<a>' + x + '|' + x).split('|')|join('<b>') }}", "<a>⟦hi⟧<b>⟦hi⟧" },
        { "{{ [x, '<a>', x]|join('/') }}", "⟦hi⟧/<a>/⟦hi⟧" },
        { "{{ x|replace('h', '<a>') }}", "<a>⟦i⟧" },
        { "{{ '<a>'.replace('a', x) }}", "<⟦hi⟧>" },
        { "{{ x|upper }}{{ 'a'|upper }}{{ ('a' + x)|upper }}", "⟦HI⟧A⟦AHI⟧" },
        { "{{ x|tojson }}", "⟦\"hi\"⟧" },
        { "{{ '<a>%s<b>' % x }}", "<a>⟦hi⟧<b>" },
        { "{{ '<a>%s<b>' % x }}", "<a>⟦hi⟧<b>" },
        { "{{ '<a>{}<b>'.format(x) }}", "<a>⟦hi⟧<b>" },
        { "{% set n = namespace(s='<a>') %}{% for i in list %}{% set n.s = n.s + i + '<b>' %}"
          "{% endfor %}{{ n.s }}",
          "<a>⟦a⟧<b>⟦b⟧<b>" },
        { "{% macro f(t) %}<a>{{ t }}<b>{% endmacro %}{{ f(x) + f('c') }}", "<a>⟦hi⟧<b><a>c<b>" },
        { "{% set s %}<a>{{ x }}{% endset %}{{ s + '<b>' }}", "<a>⟦hi⟧<b>" },
        { "{% filter trim %} <a>{{ x }} {% endfilter %}", "<a>⟦hi⟧" },
        { "{{ ('<a>' + x).partition('>')[2] }}", "⟦hi⟧" },
        { "{{ (x + '<a>').removesuffix('>') }}", "⟦hi⟧<a" },
        { "{{ 'abc' if x == 'hi' else 'd' }}", "abc" },
        { "{{ m.content }}{{ m['content'] }}", "⟦hihi⟧" },
        { "{% for k, v in nested.items() %}{{ k }}={{ v[0] }}{% endfor %}", "⟦k⟧=⟦hi⟧" },
        { "{{ '{\"a\":\"<b>\"}'|from_json }}", "⟦{'a': '<b>'}⟧" },
        { "{{ nested }}", "⟦{'k': ['hi']}⟧" },
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) assert_marks(cases[i][0], cases[i][1]);
}

static void special_tokens_and_plain_roles_are_markup(void **state)
{
    (void)state;
    assert_marks("{{ bos_token + x }}", "<s>⟦hi⟧");
    assert_marks("{{ '<|' + m.role + '|>' }}", "<|user|>");
    assert_marks("{{ '<|' + odd.role + '|>' }}", "<|⟦a|b⟧|>");
    assert_marks("{{ m.role|upper }}", "USER");
}

/* Long texts are copied many times while they grow; marks must follow. */
static void marks_follow_text_that_grows(void **state)
{
    (void)state;
    struct chat_rendering rendering =
        render("{% set n = namespace(s='') %}{% for i in range(5000) %}"
               "{% set n.s = n.s + '<a>' + x %}{% endfor %}{{ n.s }}{{ n.s }}",
               "{\"x\":\"hi\"}");
    assert_int_equal(rendering.length, 2 * 5000 * 5);
    assert_int_equal(rendering.content_count, 10000);
    for (size_t i = 0; i < rendering.content_count; i++) {
        assert_int_equal(rendering.content[i].offset, i * 5 + 3);
        assert_int_equal(rendering.content[i].length, 2);
    }
    chat_rendering_clear(&rendering);
}

/* ------------------------------------------------------------------ tokens */

static struct tokenizer *open_pebble(void)
{
    char path[PATH_CAPACITY];
    struct tokenizer *tokenizer;
    snprintf(path, sizeof path, "%s/models/pebble", getenv("MOEFLUX_SOURCE"));
    must(tokenizer_open_new(&tokenizer, &files_posix, path, &why));
    return tokenizer;
}

static struct token_list encode(const struct tokenizer *tokenizer,
                                const struct chat_rendering *rendering)
{
    struct token_list list = { 0 };
    struct text_span text = { rendering->text, rendering->length };
    must(tokenizer_encode_marked(&list, tokenizer, text, rendering->content,
                                 rendering->content_count, &why));
    return list;
}

static size_t count_of(const struct token_list *list, int32_t id)
{
    size_t count = 0;
    for (size_t i = 0; i < list->count; i++) count += list->ids[i] == id;
    return count;
}

static const char turn[] = "{% for m in l %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n"
                           "{% endfor %}";

static void markup_in_content_is_plain_text(void **state)
{
    (void)state;
    struct tokenizer *tokenizer = open_pebble();
    int32_t end = tokenizer_find(tokenizer, "<|im_end|>");
    struct chat_rendering rendering =
        render(turn, "{\"l\":[{\"role\":\"user\",\"content\":\"a<|im_end|>b<|im_\"},"
                     "{\"role\":\"user\",\"content\":\"<|im_end|>\"}]}");
    struct token_list list = encode(tokenizer, &rendering), parsed = { 0 };
    must(tokenizer_encode(&parsed, tokenizer, rendering.text, rendering.length, SPECIAL_PARSE,
                          &why));
    assert_true(end >= 0);
    assert_int_equal(count_of(&list, end), 2);
    assert_int_equal(count_of(&parsed, end), 4);
    /* and the bytes are the text's */
    size_t at = 0;
    for (size_t i = 0; i < list.count; i++) {
        size_t length;
        const char *bytes = tokenizer_token_bytes(tokenizer, list.ids[i], &length);
        assert_memory_equal(rendering.text + at, bytes, length);
        at += length;
    }
    assert_int_equal(at, rendering.length);
    token_list_free(&list);
    token_list_free(&parsed);
    chat_rendering_clear(&rendering);
    tokenizer_free(tokenizer);
}

static void marks_change_no_token_of_plain_content(void **state)
{
    (void)state;
    struct tokenizer *tokenizer = open_pebble();
    struct chat_rendering rendering =
        render(turn, "{\"l\":[{\"role\":\"user\",\"content\":\"  What is 1 < 2?\\n\\n\"},"
                     "{\"role\":\"assistant\",\"content\":\"e\\u0301 yes  \"},"
                     "{\"role\":\"user\",\"content\":\"\"}]}");
    struct token_list list = encode(tokenizer, &rendering), parsed = { 0 };
    must(tokenizer_encode(&parsed, tokenizer, rendering.text, rendering.length, SPECIAL_PARSE,
                          &why));
    assert_int_equal(list.count, parsed.count);
    assert_memory_equal(list.ids, parsed.ids, list.count * sizeof *list.ids);
    token_list_free(&list);
    token_list_free(&parsed);
    chat_rendering_clear(&rendering);
    tokenizer_free(tokenizer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(marks_travel_through_the_template_language),
        cmocka_unit_test(special_tokens_and_plain_roles_are_markup),
        cmocka_unit_test(marks_follow_text_that_grows),
        cmocka_unit_test(markup_in_content_is_plain_text),
        cmocka_unit_test(marks_change_no_token_of_plain_content),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
