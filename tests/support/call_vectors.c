#include "support/call_vectors.h"

#include "support/test.h"

#include "base/file.h"
#include "base/json.h"
#include "chat/output_parser.h"

#include <stdlib.h>

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

json_t *call_vector_parse(const struct call_vectors *vectors, const json_t *line,
                          struct call_feeding how)
{
    struct output_message message = { 0 };
    struct output_options options = {
        .family = output_family_find(json_string_value(json_object_get(line, "family"))),
        .tools = vectors->tools,
        .prompt_opens_reasoning = json_is_true(json_object_get(line, "prompt_opens_think")),
        .stream_calls = how.stream,
        .sink = output_message_sink,
        .user = &message,
    };
    assert_non_null(options.family);
    const json_t *output = json_object_get(line, "output");
    const char *text = json_string_value(output);
    size_t left = min_size(json_string_length(output), how.length);
    struct output_parser *parser;
    must(output_parser_new(&parser, &options, &why));
    while (left) {
        size_t size = min_size(left, how.chunk ? how.chunk : 1 + (size_t)rand() % 9);
        must(output_parser_feed(parser, text, size, &why));
        text += size;
        left -= size;
    }
    if (how.cut)
        must(output_parser_cut(parser, &why));
    else if (json_is_true(json_object_get(line, "final")))
        must(output_parser_finish(parser, &why));
    output_parser_free(parser);
    char *json;
    must(output_message_json_new(&json, &message, &why));
    json_t *found = json_loads(json, JSON_ALLOW_NUL, NULL);
    assert_non_null(found);
    free(json);
    output_message_clear(&message);
    return found;
}

static void check_line(struct call_vectors *vectors, const json_t *test)
{
    const char *id = json_string_value(json_object_get(test, "id"));
    const json_t *others = json_object_get(test, "also_ok");
    struct call_feeding how = { .chunk = SIZE_MAX, .length = SIZE_MAX };
    json_t *whole = call_vector_parse(vectors, test, how);
    bool first = same_message(whole, json_object_get(test, "expected")), good = first;
    for (size_t i = 0; i < json_array_size(others); i++)
        good = good || same_message(whole, json_array_get(others, i));
    if (!good) fail_msg("%s gives %s", id, json_dumps(whole, 0));
    vectors->first += first;
    vectors->count++;
    for (size_t i = 0; i < 40; i++) {
        how.chunk = i < 8 ? i / 2 + 1 : 0;
        how.stream = i % 2 == 0;
        json_t *pieces = call_vector_parse(vectors, test, how);
        if (!json_equal(whole, pieces))
            fail_msg("%s in pieces gives %s, whole %s", id, json_dumps(pieces, 0),
                     json_dumps(whole, 0));
        json_decref(pieces);
    }
    json_decref(whole);
}

void call_vectors_check(struct call_vectors *vectors, const char *path,
                        void (*each)(const struct call_vectors *vectors, const json_t *line))
{
    char *text;
    size_t length;
    must(file_read_whole_new(&text, &length, &files_posix, path, 16 << 20, &why));
    for (char *at = text, *end; (end = strchr(at, '\n')); at = end + 1) {
        json_t *line;
        must(json_parse_new(&line, at, (size_t)(end - at), path, &why));
        check_line(vectors, line);
        if (each) each(vectors, line);
        json_decref(line);
    }
    free(text);
}
