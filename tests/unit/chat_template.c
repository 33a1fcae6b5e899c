/* model/chat_template: what templates render to, what they may not do, where they are found. */
#include "support/memory_files.h"
#include "support/one_call.h"
#include "support/test.h"

#include "base/file.h"
#include "base/json.h"
#include "base/status.h"
#include "chat/template.h"
#include "tokenizer/tokenizer.h"

#include <stdio.h>
#include <stdlib.h>

static mf_error why;

/* 4 July 2025, 13:05, a Friday: the clock that tools/make_template_vectors.py has. */
static void fixed_clock(void *user, struct tm *out)
{
    (void)user;
    *out = (struct tm){ .tm_year = 125,
                        .tm_mon = 6,
                        .tm_mday = 4,
                        .tm_hour = 13,
                        .tm_min = 5,
                        .tm_wday = 5,
                        .tm_yday = 184 };
}

static const struct jinja_options with_clock = { .now = fixed_clock };

static json_t *json_of(const char *text)
{
    json_t *value = NULL;
    if (json_parse_new(&value, text, strlen(text), "context", &why) != MF_OK)
        fail_msg("%s", why.text);
    return value;
}

/* Renders; the text (NULL after an error, which is in *detail). */
static char *render(const char *source, size_t length, const json_t *context,
                    const struct jinja_options *options, struct jinja_error *detail)
{
    struct chat_template *chat;
    char *text = NULL;
    size_t text_length;
    *detail = (struct jinja_error){ 0 };
    if (chat_template_parse_new(&chat, source, length, "t.jinja", &why) != MF_OK) {
        assert_null(chat);
        assert_int_equal(why.status, MF_ERR_TEMPLATE);
        detail->kind = JINJA_ERROR_SYNTAX;
        return NULL;
    }
    mf_status status =
        chat_template_render_with_new(&text, &text_length, chat, context, options, detail, &why);
    assert_int_equal(status == MF_OK, text != NULL);
    if (text) assert_int_equal(strlen(text), text_length);
    assert_int_equal(status == MF_OK, detail->kind == JINJA_ERROR_NONE);
    chat_template_free(chat);
    return text;
}

static void assert_renders(const char *source, const char *context, const char *expected)
{
    struct jinja_error detail;
    json_t *json = json_of(context);
    char *text = render(source, strlen(source), json, &with_clock, &detail);
    if (!text) fail_msg("%s: %s", source, why.text);
    assert_string_equal(text, expected);
    free(text);
    json_decref(json);
}

/* Fails with the kind and, if it is given, the text in the whole message. */
static void assert_fails(const char *source, const char *context,
                         const struct jinja_options *options, enum jinja_error_kind kind,
                         const char *message)
{
    struct jinja_error detail;
    json_t *json = json_of(context);
    char *text = render(source, strlen(source), json, options, &detail);
    if (text) fail_msg("%s gives %s, a failure was expected", source, text);
    if (detail.kind != kind)
        fail_msg("%s fails with %s: %s", source, jinja_error_kind_name(detail.kind), why.text);
    if (!strstr(why.text, message)) fail_msg("%s: %s", source, why.text);
    jinja_error_clear(&detail);
    json_decref(json);
}

/* ------------------------------------------------------------------ against Jinja itself */

static void check_vector(const json_t *line, const json_t *context)
{
    const json_t *source = json_object_get(line, "template");
    const char *expected = json_string_value(json_object_get(line, "expected"));
    const char *kind = json_string_value(json_object_get(line, "error"));
    struct jinja_error detail;
    char *text = render(json_string_value(source), json_string_length(source), context, &with_clock,
                        &detail);
    if (expected && (!text || strcmp(text, expected) != 0))
        fail_msg("%s\n  gives    %s\n  expected %s", json_string_value(source),
                 text ? text : why.text, expected);
    if (!expected && text)
        fail_msg("%s\n  gives    %s\n  expected %s", json_string_value(source), text, kind);
    bool exact = kind && strcmp(kind, "other") != 0 && strcmp(kind, "syntax_error") != 0;
    if (exact && strcmp(kind, jinja_error_kind_name(detail.kind)) != 0)
        fail_msg("%s\n  gives    %s\n  expected %s", json_string_value(source), why.text, kind);
    if (kind && strcmp(kind, "raise_exception") == 0)
        assert_string_equal(detail.message, json_string_value(json_object_get(line, "message")));
    free(text);
    jinja_error_clear(&detail);
}

static char *read_fixture(const char *name, size_t *length)
{
    char path[PATH_CAPACITY], *text;
    const char *source = getenv("MOEFLUX_SOURCE");
    assert_non_null(source);
    snprintf(path, sizeof path, "%s/tests/fixtures/templates/%s", source, name);
    if (file_read_whole_new(&text, length, &files_posix, path, 1 << 24, &why) != MF_OK)
        fail_msg("%s", why.text);
    return text;
}

static void templates_render_as_jinja_renders_them(void **state)
{
    (void)state;
    size_t length, count = 0;
    char *context_text = read_fixture("context.json", &length);
    char *text = read_fixture("jinja.jsonl", &length);
    for (char *at = text, *end; (end = strchr(at, '\n')); at = end + 1, count++) {
        json_t *line = NULL;
        *end = '\0';
        line = json_of(at);
        json_t *context = json_of(context_text); /* fresh: templates append to its lists */
        check_vector(line, context);
        json_decref(context);
        json_decref(line);
    }
    assert_true(count > 800);
    free(context_text);
    free(text);
}

/* ------------------------------------------------------------------ what Jinja has no word on */

/* Builtins of Jinja that no published chat template uses. */
static void refusal_names_the_unsupported_feature(void **state)
{
    (void)state;
    static const struct {
        const char *source, *message;
        enum jinja_error_kind kind;
    } cases[] = {
        { "{{ [1]|batch(2) }}", "No filter named 'batch'", JINJA_ERROR_SYNTAX },
        { "{{ 1 is callable }}", "No test named 'callable'", JINJA_ERROR_SYNTAX },
        { "{{ cycler(1).next() }}", "'cycler' is undefined", JINJA_ERROR_UNDEFINED },
        { "{{ 'a'.zfill(3) }}", "'str object' has no attribute 'zfill'", JINJA_ERROR_UNDEFINED },
        { "{{ '%e' % 1.5 }}", "the format '%e' is not supported", JINJA_ERROR_VALUE },
        { "{{ '{0.a:>4}'.format(1) }}", "the format '0.a:>4' is not supported", JINJA_ERROR_VALUE },
        { "{{ '%d' % 'a' }}", "the format 'd' takes no 'str'", JINJA_ERROR_TYPE },
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++)
        assert_fails(cases[i].source, "{}", NULL, cases[i].kind, cases[i].message);
}

static void generation_blocks_render_their_body(void **state)
{
    (void)state;
    assert_renders("a{% generation %}b{% set x = 1 %}{% endgeneration %}{{ x }}", "{}", "ab");
}

static void a_rendering_leaves_the_context_as_it_was(void **state)
{
    (void)state;
    struct jinja_error detail;
    json_t *context = json_of("{\"l\":[1]}");
    const char *source = "{% set _ = l.append(2) %}{{ l }}";
    for (int i = 0; i < 2; i++) {
        char *text = render(source, strlen(source), context, NULL, &detail);
        assert_string_equal(text, "[1, 2]");
        free(text);
    }
    assert_int_equal(json_array_size(json_object_get(context, "l")), 1);
    json_decref(context);
}

static void text_built_up_piece_by_piece_stays_what_it_was(void **state)
{
    (void)state;
    /* Concatenation extends a string in place: the shorter one must not change. */
    assert_renders("{% set a = 'x' + s %}{% set b = a + '1' %}{% set c = a + '2' %}"
                   "{% set d = b + '3' %}{{ a }} {{ b }} {{ c }} {{ d }}",
                   "{\"s\":\"y\"}", "xy xy1 xy2 xy13");
    assert_renders("{% set ns = namespace(s='') %}{% for i in range(1000) %}"
                   "{% set ns.s = ns.s + 'ab' %}{% endfor %}{{ ns.s|length }}{{ ns.s[-3:] }}",
                   "{}", "2000bab");
}

static void without_a_clock_there_is_no_time(void **state)
{
    (void)state;
    const char *source = "{{ strftime_now('%Y') if strftime_now is defined else 'none' }}";
    struct jinja_error detail;
    json_t *context = json_of("{}");
    char *text = render(source, strlen(source), context, NULL, &detail);
    assert_string_equal(text, "none");
    free(text);
    json_decref(context);
    assert_renders(source, "{}", "2025");
}

static void wide_integers_are_refused_not_wrapped(void **state)
{
    (void)state;
    static const char *const overflows[] = {
        "{{ i + 1 }}",
        "{{ i * 2 }}",
        "{{ -i - 2 }}",
        "{{ 2 ** 63 }}",
        "{{ 7 ** 50 }}",
        "{{ -(0 - i - 1) }}",
        "{{ (0 - i - 1) // -1 }}",
    };
    for (size_t i = 0; i < COUNT_OF(overflows); i++)
        assert_fails(overflows[i], "{\"i\":9223372036854775807}", NULL, JINJA_ERROR_VALUE,
                     "64 bits");
    assert_renders("{{ i }} {{ (0 - i - 1) % -1 }}", "{\"i\":9223372036854775807}",
                   "9223372036854775807 0");
}

/* ------------------------------------------------------------------ errors */

static void errors_carry_line_and_column(void **state)
{
    (void)state;
    assert_fails("a\n  {% if %}", "{}", NULL, JINJA_ERROR_SYNTAX, "t.jinja: line 2, column 9: ");
    assert_fails("日本 {{ 'a }}", "{}", NULL, JINJA_ERROR_SYNTAX, "line 1, column 7: ");
    assert_fails("\n\n{{ x.y }}", "{}", NULL, JINJA_ERROR_UNDEFINED,
                 "line 3, column 5: 'x' is undefined");
    assert_fails("{{ 'a' }}\n{{ 1 +\n 'b' }}", "{}", NULL, JINJA_ERROR_TYPE, "line 2, column 6: ");
    assert_fails("{% for x in [1] %}\n{{ raise_exception('No: ' ~ x) }}{% endfor %}", "{}", NULL,
                 JINJA_ERROR_RAISED, "line 2, column 19: No: 1");
}

static void long_refusals_are_not_cut(void **state)
{
    (void)state;
    struct jinja_error detail;
    json_t *context = json_of("{}");
    const char *source = "{{ raise_exception('x' * 5000) }}";
    assert_null(render(source, strlen(source), context, NULL, &detail));
    assert_int_equal(detail.kind, JINJA_ERROR_RAISED);
    assert_non_null(detail.message);
    if (detail.message) assert_int_equal(strlen(detail.message), 5000);
    assert_int_equal(detail.line, 1);
    assert_string_equal(jinja_error_kind_name(detail.kind), "raise_exception");
    jinja_error_clear(&detail);
    json_decref(context);
}

static void messages_are_whole_characters(void **state)
{
    (void)state;
    struct jinja_error detail;
    json_t *context = json_of("{}");
    char source[600] = "{{ d";
    for (size_t i = 4; i + 8 < sizeof source; i += 2) {
        source[i] = (char)0xC3;
        source[i + 1] = (char)0xA9;
    }
    memcpy(source + sizeof source - 8, ".x }}", 6);
    assert_null(render(source, strlen(source), context, NULL, &detail));
    assert_int_equal(detail.kind, JINJA_ERROR_UNDEFINED);
    json_t *text = json_string(detail.message); /* NULL when it is not UTF-8 */
    assert_non_null(text);
    json_decref(text);
    jinja_error_clear(&detail);
    json_decref(context);
}

static void broken_sources_are_refused(void **state)
{
    (void)state;
    static const char *const broken[] = {
        "{% if x %}",
        "{% endif %}",
        "{% for x in %}{% endfor %}",
        "{{ x",
        "{# x",
        "{% raw %}",
        "{% break %}",
        "{% include 'x' %}",
        "{{ x| }}",
        "{{ (x }}",
        "{{ x) }}",
        "\xff",
        "{{ 1 2 }}",
        "{% set 1 = 2 %}",
        "{% macro %}{% endmacro %}",
        "{{ '\\u12' }}",
        "{{ 99999999999999999999 }}",
        "{% for x in l %}{% macro m() %}{% break %}{% endmacro %}{% endfor %}",
    };
    for (size_t i = 0; i < COUNT_OF(broken); i++)
        assert_fails(broken[i], "{}", NULL, JINJA_ERROR_SYNTAX, "t.jinja: ");
}

/* ------------------------------------------------------------------ limits */

static void endless_templates_end(void **state)
{
    (void)state;
    static const char *const endless[] = {
        "{% set l = [1] %}{% for x in l %}{% set _ = l.append(x) %}{% endfor %}",
        "{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}",
        "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
        "{% for x in [1] recursive %}{{ loop([1]) }}{% endfor %}",
        "{{ 'ab' * 1000000000 }}",
        "{{ [1, 2] * 1000000000 }}",
        "{% set l = [] %}{% set _ = l.append(l) %}{{ l }}",
        "{% set l = [] %}{% set _ = l.append(l) %}{{ l|tojson }}",
        "{% set a = [] %}{% set b = [] %}{{ a.append(a) }}{{ b.append(b) }}{{ a == b }}",
        "{% set n = namespace(s='x') %}{% for i in range(64) %}{% set n.s = n.s * 2 %}{% endfor %}",
        "{{ range(1000000000) }}",
        "{{ '%99999999999999d' % 1 }}{{ '%s' % ('x' * 1000000000) }}",
        "{% set n = namespace(t=1) %}{% for i in l %}{% set n.t=(n.t,) %}{% endfor %}{{ {n.t:1} }}",
        "{{ 'a'|map(*(['map'] * 10000))|list }}",
    };
    const struct jinja_options small = { .step_limit = 1000000, .memory_limit_bytes = 16 << 20 };
    char digits[1201] = { 0 }, many[1300]; /* a text of 1200 characters to loop over */
    memset(digits, '1', 1200);
    snprintf(many, sizeof many, "{\"l\":\"%s\"}", digits);
    for (size_t i = 0; i < COUNT_OF(endless); i++)
        assert_fails(endless[i], many, &small, JINJA_ERROR_LIMIT, "");
}

static void output_is_bounded(void **state)
{
    (void)state;
    const struct jinja_options small = { .output_limit_bytes = 100 };
    assert_fails("{% for i in range(101) %}x{% endfor %}", "{}", &small, JINJA_ERROR_LIMIT,
                 "longer than 100 bytes");
}

static void deep_values_are_refused_not_followed(void **state)
{
    (void)state;
    enum { DEPTH = 1900 }; /* jansson itself stops at 2048 */
    char open[DEPTH + 1] = { 0 }, close[DEPTH + 1] = { 0 }, context[2 * DEPTH + 16];
    memset(open, '[', DEPTH);
    memset(close, ']', DEPTH);
    snprintf(context, sizeof context, "{\"x\":%s%s}", open, close);
    assert_fails("{{ x }}", context, NULL, JINJA_ERROR_LIMIT, "nested too deeply");

    char source[4096];
    memset(source, '(', sizeof source);
    memcpy(source, "{{ ", 3);
    source[sizeof source - 1] = '\0';
    assert_fails(source, "{}", NULL, JINJA_ERROR_SYNTAX, "nested too deeply");
    for (size_t i = 3; i + 1 < sizeof source; i++) source[i] = '-';
    assert_fails(source, "{}", NULL, JINJA_ERROR_SYNTAX, "nested too deeply");
}

/* ------------------------------------------------------------------ model directories */

static mf_status open_status(struct chat_template **out, struct memory_files *files)
{
    json_t *config = NULL;
    *out = NULL;
    mf_status status = tokenizer_config_read_new(&config, &files->files, "model", &why);
    if (status == MF_OK) status = chat_template_open_new(out, &files->files, "model", config, &why);
    json_decref(config);
    return status;
}

static struct chat_template *open_in(struct memory_files *files)
{
    struct chat_template *chat;
    if (open_status(&chat, files) != MF_OK) fail_msg("%s", why.text);
    assert_int_equal(files->open_count, 0);
    return chat;
}

static void put(struct memory_files *files, const char *path, const char *text)
{
    memory_files_put(files, path, text, strlen(text));
}

static void a_template_is_found_where_models_keep_it(void **state)
{
    (void)state;
    struct memory_files files;
    memory_files_init(&files);
    put(&files, "model/config.json", "{}");
    assert_null(open_in(&files));
    put(&files, "model/tokenizer_config.json", "{\"bos_token\":null}");
    assert_null(open_in(&files));
    static const char *const texts[][2] = {
        { "model/tokenizer_config.json", "{\"chat_template\":\"one\"}" },
        { "model/chat_template.json", "{\"chat_template\":\"two\"}" },
        { "model/chat_template.jinja", "three" },
    };
    static const char *const expected[] = { "one", "two", "three" };
    for (size_t i = 0; i < COUNT_OF(texts); i++) {
        put(&files, texts[i][0], texts[i][1]);
        struct chat_template *chat = open_in(&files);
        assert_string_equal(chat_template_source(chat), expected[i]);
        chat_template_free(chat);
    }
}

static void named_templates_are_chosen_by_the_conversation(void **state)
{
    (void)state;
    struct memory_files files;
    memory_files_init(&files);
    put(&files, "model/tokenizer_config.json",
        "{\"chat_template\":[{\"name\":\"rag\",\"template\":\"R\"},"
        "{\"name\":\"tool_use\",\"template\":\"T{{ tools|length }}\"},"
        "{\"name\":\"default\",\"template\":\"D\"}]}");
    struct chat_template *chat = open_in(&files);
    static const char *const contexts[] = { "{}", "{\"tools\":[]}", "{\"tools\":[{},{}]}" };
    static const char *const expected[] = { "D", "D", "T2" };
    for (size_t i = 0; i < COUNT_OF(contexts); i++) {
        json_t *context = json_of(contexts[i]);
        char *text;
        size_t length;
        assert_int_equal(chat_template_render_new(&text, &length, chat, context, &why), MF_OK);
        assert_string_equal(text, expected[i]);
        free(text);
        json_decref(context);
    }
    chat_template_free(chat);
}

static void files_that_are_no_template_are_refused(void **state)
{
    (void)state;
    static const char *const bad[][2] = {
        { "{\"chat_template\":5}", "a string or list was expected" },
        { "{\"chat_template\":[]}", "neither default nor tool_use" },
        { "{\"chat_template\":[{\"name\":\"default\",\"template\":\"{{\"}]}", "line 1" },
        { "{\"chat_template\":[{\"name\":\"default\",\"template\":\"a\"},"
          "{\"name\":\"tool_use\",\"template\":\"{{\"}]}",
          "line 1" },
        { "{", "not valid JSON" },
    };
    for (size_t i = 0; i < COUNT_OF(bad); i++) {
        struct memory_files files;
        memory_files_init(&files);
        put(&files, "model/tokenizer_config.json", bad[i][0]);
        struct chat_template *chat;
        assert_int_not_equal(open_status(&chat, &files), MF_OK);
        assert_null(chat);
        assert_non_null(strstr(why.text, "tokenizer_config.json"));
        assert_non_null(strstr(why.text, bad[i][1]));
    }
}

static void variables_are_an_object(void **state)
{
    (void)state;
    struct chat_template *chat;
    char *text;
    size_t length;
    json_t *list = json_of("[]");
    assert_int_equal(chat_template_parse_new(&chat, "x", 1, "t", &why), MF_OK);
    assert_int_equal(chat_template_render_new(&text, &length, chat, list, &why), MF_ERR_ARGUMENT);
    assert_null(text);
    chat_template_free(chat);
    chat_template_free(NULL);
    json_decref(list);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(templates_render_as_jinja_renders_them),
        cmocka_unit_test(refusal_names_the_unsupported_feature),
        cmocka_unit_test(generation_blocks_render_their_body),
        cmocka_unit_test(a_rendering_leaves_the_context_as_it_was),
        cmocka_unit_test(text_built_up_piece_by_piece_stays_what_it_was),
        cmocka_unit_test(without_a_clock_there_is_no_time),
        cmocka_unit_test(wide_integers_are_refused_not_wrapped),
        cmocka_unit_test(errors_carry_line_and_column),
        cmocka_unit_test(long_refusals_are_not_cut),
        cmocka_unit_test(messages_are_whole_characters),
        cmocka_unit_test(broken_sources_are_refused),
        cmocka_unit_test(endless_templates_end),
        cmocka_unit_test(output_is_bounded),
        cmocka_unit_test(deep_values_are_refused_not_followed),
        cmocka_unit_test(a_template_is_found_where_models_keep_it),
        cmocka_unit_test(named_templates_are_chosen_by_the_conversation),
        cmocka_unit_test(files_that_are_no_template_are_refused),
        cmocka_unit_test(variables_are_an_object),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
