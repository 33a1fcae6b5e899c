/* output_parser: outputs of every family against what they mean, fed whole, in bytes and in
 * random pieces.  The data is described in the README of the fixtures' toolcalls directory. */
#include "support/test.h"

#include "base/file.h"
#include "base/json.h"
#include "chat/output_parser.h"
#include "support/fixture_files.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static json_t *tools;
static mf_error why;

static void must(mf_status status)
{
    if (status != MF_OK) fail_msg("%s (%s)", why.text, why.origin);
}

/* ------------------------------------------------------------------ comparing */

static bool is_white(char c)
{
    return c == ' ' || c == '\n' || c == '\t' || c == '\r';
}

static bool same_trimmed(const json_t *a, const json_t *b)
{
    const char *text[2] = { json_string_value(a), json_string_value(b) };
    size_t length[2] = { json_string_length(a), json_string_length(b) };
    for (int i = 0; i < 2; i++) {
        while (length[i] && is_white(*text[i])) {
            text[i]++;
            length[i]--;
        }
        while (length[i] && is_white(text[i][length[i] - 1])) length[i]--;
    }
    return length[0] == length[1] && memcmp(text[0], text[1], length[0]) == 0;
}

/* As JSON values; numbers by value. */
static bool same_value(const json_t *a, const json_t *b)
{
    if (json_is_number(a) && json_is_number(b)) return json_number_value(a) == json_number_value(b);
    if (json_is_array(a) && json_is_array(b) && json_array_size(a) == json_array_size(b)) {
        for (size_t i = 0; i < json_array_size(a); i++)
            if (!same_value(json_array_get(a, i), json_array_get(b, i))) return false;
        return true;
    }
    if (json_is_object(a) && json_is_object(b) && json_object_size(a) == json_object_size(b)) {
        const char *key;
        json_t *value;
        json_object_foreach((json_t *)(uintptr_t)a, key, value)
        {
            const json_t *other = json_object_get(b, key);
            if (!other || !same_value(value, other)) return false;
        }
        return true;
    }
    return json_equal(a, b);
}

static bool same_calls(const json_t *found, const json_t *expected)
{
    if (json_array_size(found) != json_array_size(expected)) return false;
    for (size_t i = 0; i < json_array_size(expected); i++) {
        const json_t *a = json_array_get(found, i), *b = json_array_get(expected, i);
        const json_t *id = json_object_get(b, "id");
        if (!json_equal(json_object_get(a, "name"), json_object_get(b, "name")) ||
            !same_value(json_object_get(a, "arguments"), json_object_get(b, "arguments")) ||
            (id && !json_equal(json_object_get(a, "id"), id)))
            return false;
    }
    return true;
}

static bool same_message(const json_t *found, const json_t *expected)
{
    return same_trimmed(json_object_get(found, "reasoning"),
                        json_object_get(expected, "reasoning")) &&
           same_trimmed(json_object_get(found, "content"), json_object_get(expected, "content")) &&
           same_calls(json_object_get(found, "tool_calls"),
                      json_object_get(expected, "tool_calls"));
}

/* ------------------------------------------------------------------ parsing */

/* Pieces of `chunk` bytes; 0: of random sizes. */
static json_t *parse(const json_t *test, size_t chunk, bool stream)
{
    struct output_message message = { 0 };
    struct output_options options = {
        .family = output_family_find(json_string_value(json_object_get(test, "family"))),
        .tools = tools,
        .prompt_opens_reasoning = json_is_true(json_object_get(test, "prompt_opens_think")),
        .stream_calls = stream,
        .sink = output_message_sink,
        .user = &message,
    };
    assert_non_null(options.family);
    const json_t *output = json_object_get(test, "output");
    const char *text = json_string_value(output);
    size_t left = json_string_length(output);
    struct output_parser *parser;
    must(output_parser_new(&parser, &options, &why));
    while (left) {
        size_t size = min_size(left, chunk ? chunk : 1 + (size_t)rand() % 9);
        must(output_parser_feed(parser, text, size, &why));
        text += size;
        left -= size;
    }
    if (json_is_true(json_object_get(test, "final"))) must(output_parser_finish(parser, &why));
    output_parser_free(parser);
    char *line;
    must(output_message_json_new(&line, &message, &why));
    json_t *found = json_loads(line, JSON_ALLOW_NUL, NULL);
    assert_non_null(found);
    free(line);
    output_message_clear(&message);
    return found;
}

static size_t main_results; /* cases that give the first choice, not one that is also right */

static void check_line(const json_t *test)
{
    const char *id = json_string_value(json_object_get(test, "id"));
    const json_t *others = json_object_get(test, "also_ok");
    json_t *whole = parse(test, SIZE_MAX, false);
    bool first = same_message(whole, json_object_get(test, "expected")), good = first;
    for (size_t i = 0; i < json_array_size(others); i++)
        good = good || same_message(whole, json_array_get(others, i));
    if (!good) fail_msg("%s gives %s", id, json_dumps(whole, 0));
    main_results += first;
    for (int i = 0; i < 40; i++) {
        json_t *pieces = parse(test, i < 8 ? (size_t)i / 2 + 1 : 0, i % 2 == 0);
        if (!json_equal(whole, pieces))
            fail_msg("%s in pieces gives %s, whole %s", id, json_dumps(pieces, 0),
                     json_dumps(whole, 0));
        json_decref(pieces);
    }
    json_decref(whole);
}

static void every_output_means_what_it_should(void **state)
{
    (void)state;
    size_t count = 0, length;
    srand(1);
    for (size_t i = 0; output_family_at(i); i++) {
        char name[128], path[PATH_CAPACITY];
        snprintf(name, sizeof name, "%s.jsonl", output_family_name(output_family_at(i)));
        fixture_path(path, name);
        if (access(path, R_OK) != 0) continue;
        char *text = read_fixture(name, &length);
        for (char *at = text, *end; (end = strchr(at, '\n')); at = end + 1, count++) {
            json_t *line;
            must(json_parse_new(&line, at, (size_t)(end - at), name, &why));
            check_line(line);
            json_decref(line);
        }
        free(text);
    }
    print_message("%zu outputs, %zu with the first choice\n", count, main_results);
    assert_true(count >= 101);
}

static void published_templates_name_their_family(void **state)
{
    (void)state;
    static const char *const families[][2] = {
        { "Qwen-Qwen2.5-7B-Instruct.jinja", "hermes" },
        { "Qwen-QwQ-32B.jinja", "hermes" },
        { "Qwen-Qwen3-0.6B.jinja", "hermes" },
        { "Qwen3-Coder.jinja", "qwen3_coder" },
        { "Qwen3.5-4B.jinja", "qwen3_5" },
        { "deepseek-ai-DeepSeek-V3.1.jinja", "deepseek_v3_1" },
        { "deepseek-ai-DeepSeek-V3.2.jinja", "deepseek_v3_2" },
        { "Kimi-K2-Instruct.jinja", "kimi_k2" },
        { "Kimi-K2-Thinking.jinja", "kimi_k2" },
        { "moonshotai-Kimi-K2.jinja", "kimi_k2" },
        { "GLM-4.6.jinja", "glm_4_6" },
        { "MiniMax-M2.jinja", "minimax_m2" },
    };
    for (size_t i = 0; i < COUNT_OF(families); i++) {
        char name[256];
        size_t length;
        snprintf(name, sizeof name, "../templates/%s", families[i][0]);
        char *source = read_fixture(name, &length);
        assert_string_equal(output_family_name(output_family_detect(source)), families[i][1]);
        free(source);
    }
}

int main(void)
{
    if (!fixtures_choose("toolcalls")) return EXIT_SKIPPED;
    size_t length;
    char *text = read_fixture("tools.json", &length);
    must(json_parse_new(&tools, text, length, "tools.json", &why));
    free(text);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_output_means_what_it_should),
        cmocka_unit_test(published_templates_name_their_family),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    json_decref(tools);
    return failed;
}
