/* chat_template: published templates against what Python's Jinja makes of them.
 * The data is described in the README of the fixtures' templates directory. */
#include "support/test.h"

#include "base/file.h"
#include "base/json.h"
#include "chat/template.h"
#include "support/fixture_files.h"
#include "support/one_call.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static mf_error why;

static void must(mf_status status)
{
    if (status != MF_OK) fail_msg("%s (%s)", why.text, why.origin);
}

static json_t *read_json(const char *name)
{
    char path[PATH_CAPACITY];
    json_t *json;
    fixture_path(path, name);
    must(json_read_file_new(&json, &files_posix, path, 16 << 20, &why));
    return json;
}

/* ------------------------------------------------------------------ small templates */

static void check_micro(const json_t *line)
{
    const json_t *source = json_object_get(line, "template");
    const json_t *expected = json_object_get(line, "expected");
    const char *id = json_string_value(json_object_get(line, "id"));
    struct chat_template *chat;
    char *text;
    size_t length;
    must(chat_template_parse_new(&chat, json_string_value(source), json_string_length(source), id,
                                 &why));
    mf_status status =
        chat_template_render_new(&text, &length, chat, json_object_get(line, "context"), &why);
    if (!expected) {
        if (status != MF_ERR_TEMPLATE) fail_msg("%s renders, a failure was expected", id);
    } else {
        if (status != MF_OK) fail_msg("%s: %s", id, why.text);
        if (strcmp(text, json_string_value(expected)) != 0) fail_msg("%s gives %s", id, text);
    }
    free(text);
    chat_template_free(chat);
}

static void every_small_template_renders(void **state)
{
    (void)state;
    size_t length, count = 0;
    char *text = read_fixture("jinja-micro.jsonl", &length);
    for (char *at = text, *end; (end = strchr(at, '\n')); at = end + 1, count++) {
        json_t *line;
        must(json_parse_new(&line, at, (size_t)(end - at), "jinja-micro.jsonl", &why));
        check_micro(line);
        json_decref(line);
    }
    assert_true(count > 100);
    free(text);
}

/* ------------------------------------------------------------------ published templates */

struct cases {
    char *names[256]; /* without ".json" */
    size_t count;
};

static void note_case(void *context, const char *name)
{
    struct cases *cases = context;
    size_t length = strlen(name);
    if (length < 5 || strcmp(name + length - 5, ".json") != 0) return;
    assert_true(cases->count < COUNT_OF(cases->names));
    cases->names[cases->count++] = strndup(name, length - 5);
}

/* The template variables of a case: what a server would pass. */
static json_t *variables(const char *name, const json_t *about)
{
    char path[PATH_CAPACITY];
    snprintf(path, sizeof path, "cases/inputs/%s.json", name);
    json_t *input = read_json(path);
    json_t *context = json_deep_copy(json_object_get(input, "kwargs"));
    static const char *const passed[] = { "messages", "tools", "add_generation_prompt" };
    for (size_t i = 0; i < COUNT_OF(passed); i++)
        json_object_set(context, passed[i], json_object_get(input, passed[i]));
    json_object_set(context, "bos_token", json_object_get(about, "bos_token"));
    json_object_set(context, "eos_token", json_object_get(about, "eos_token"));
    json_decref(input);
    return context;
}

static void check_failure(const char *where, const struct jinja_error *found)
{
    char path[PATH_CAPACITY];
    snprintf(path, sizeof path, "%s.error.json", where);
    json_t *expected = read_json(path);
    const char *kind = json_string_value(json_object_get(expected, "kind"));
    const char *message = json_string_value(json_object_get(expected, "message"));
    if (!found->message || strcmp(kind, jinja_error_kind_name(found->kind)) != 0 ||
        strcmp(message, found->message) != 0)
        fail_msg("%s: %s, expected %s: %s", where, why.text, kind, message);
    json_decref(expected);
}

static bool overlaps_content(const struct chat_rendering *rendering, size_t begin, size_t end)
{
    for (size_t i = 0; i < rendering->content_count; i++) {
        mf_range range = rendering->content[i];
        if (range.offset < end && range.offset + range.length > begin) return true;
    }
    return false;
}

/* Tags that tokenizers of these models have as added tokens. */
static bool is_added_token(const char *tag)
{
    static const char *const known[] = { "<|",
                                         "<｜",
                                         "<think>",
                                         "</think>",
                                         "<tool_call>",
                                         "</tool_call>",
                                         "<tool_response>",
                                         "</tool_response>",
                                         "<minimax:tool_call>",
                                         "</minimax:tool_call>" };
    for (size_t i = 0; i < COUNT_OF(known); i++)
        if (strncmp(tag, known[i], strlen(known[i])) == 0) return true;
    return false;
}

/* Every added token of the rendering is the template's, or the conversation itself holds it: no
 * template builds one from pieces that count as content. */
static void check_marks(const char *where, const struct chat_rendering *rendering,
                        const json_t *context)
{
    enum { LONGEST = 48 };
    char *said = json_dumps(context, JSON_COMPACT);
    const char *text = rendering->text;
    for (size_t at = 0; at < rendering->length; at++) {
        if (text[at] != '<' || !is_added_token(text + at)) continue;
        size_t length = strcspn(text + at, "> \n");
        if (text[at + length] != '>' || length > LONGEST) continue;
        length++;
        if (!overlaps_content(rendering, at, at + length)) continue;
        char token[LONGEST + 2];
        snprintf(token, sizeof token, "%.*s", (int)length, text + at);
        if (!strstr(said, token)) fail_msg("%s: %s counts as content", where, token);
    }
    free(said);
}

static void check_case(const struct chat_template *chat, const char *template_name,
                       const char *name, const json_t *about)
{
    char where[PATH_CAPACITY / 2], path[PATH_CAPACITY], full[PATH_CAPACITY];
    struct chat_rendering rendering;
    struct jinja_error detail;
    json_t *context = variables(name, about);
    snprintf(where, sizeof where, "cases/expected/%s/%s", template_name, name);
    snprintf(path, sizeof path, "%s.txt", where);
    fixture_path(full, path);
    mf_status status = chat_template_render_marked(&rendering, chat, context, NULL, &detail, &why);
    if (access(full, R_OK) == 0) {
        size_t expected_length;
        char *expected = read_fixture(path, &expected_length);
        if (status != MF_OK) fail_msg("%s: %s", where, why.text);
        if (rendering.length != expected_length ||
            memcmp(rendering.text, expected, expected_length) != 0)
            fail_msg("%s differs:\n%s", where, rendering.text);
        check_marks(where, &rendering, context);
        free(expected);
    } else {
        if (status != MF_ERR_TEMPLATE) fail_msg("%s renders, a failure was expected", where);
        check_failure(where, &detail);
    }
    chat_rendering_clear(&rendering);
    jinja_error_clear(&detail);
    json_decref(context);
}

static void every_published_template_renders_every_case(void **state)
{
    (void)state;
    struct cases cases = { 0 };
    char inputs[PATH_CAPACITY];
    fixture_path(inputs, "cases/inputs");
    assert_int_equal(files_posix.list(files_posix.user, inputs, note_case, &cases), 0);
    json_t *templates = read_json("templates.json");
    const char *name;
    json_t *about;
    size_t count = 0;
    json_object_foreach(templates, name, about)
    {
        struct chat_template *chat;
        size_t length;
        const char *file = json_string_value(json_object_get(about, "file"));
        char *source = read_fixture(file, &length);
        must(chat_template_parse_new(&chat, source, length, file, &why));
        for (size_t i = 0; i < cases.count; i++, count++)
            check_case(chat, name, cases.names[i], about);
        chat_template_free(chat);
        free(source);
    }
    print_message("%zu renderings\n", count);
    assert_true(count >= 576);
    json_decref(templates);
    for (size_t i = 0; i < cases.count; i++) free(cases.names[i]);
}

int main(void)
{
    if (!fixtures_choose("templates")) return EXIT_SKIPPED;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_small_template_renders),
        cmocka_unit_test(every_published_template_renders_every_case),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
