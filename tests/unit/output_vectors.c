/* Outputs of the families whose vectors are committed: what they mean, for every prefix and however
 * they are cut into pieces; and whatever a model writes, no marker is ever shown. */
#include "support/test.h"

#include "base/file.h"
#include "base/json.h"
#include "chat/output_family.h"
#include "sampling/random.h"
#include "support/call_vectors.h"

#include <stdio.h>
#include <stdlib.h>

static struct call_vectors vectors;

static void path_of(char out[PATH_CAPACITY], const char *name)
{
    snprintf(out, PATH_CAPACITY, "%s/tests/fixtures/toolcalls/%s", getenv("MOEFLUX_SOURCE"), name);
}

/* ------------------------------------------------------------------ markers */

/* A special token's text in what is shown, or NULL. */
static const char *shown_marker(const struct output_family *family, const json_t *message)
{
    static const char *const parts[] = { "reasoning", "content" };
    const json_t *calls = json_object_get(message, "tool_calls");
    for (const char *const *marker = family->markers; marker && *marker; marker++) {
        for (size_t i = 0; i < COUNT_OF(parts); i++)
            if (strstr(json_string_value(json_object_get(message, parts[i])), *marker))
                return *marker;
        for (size_t i = 0; i < json_array_size(calls); i++) {
            char *call = json_dumps(json_array_get(calls, i), JSON_ENCODE_ANY);
            const char *found = strstr(call, *marker);
            free(call);
            if (found) return *marker;
        }
    }
    return NULL;
}

static void check_markers(const json_t *line, const json_t *message)
{
    const char *name = json_string_value(json_object_get(line, "family"));
    const char *marker = shown_marker(output_family_find(name), message);
    if (marker)
        fail_msg("%s shows %s: %s", json_string_value(json_object_get(line, "output")), marker,
                 json_dumps(message, 0));
}

/* ------------------------------------------------------------------ vectors */

static bool begins(const json_t *longer, const json_t *shorter, const char *key)
{
    const char *a = json_string_value(json_object_get(longer, key));
    const char *b = json_string_value(json_object_get(shorter, key));
    return strncmp(a, b, strlen(b)) == 0;
}

/* A prefix means the same in bytes as in one piece; what it shows before its end is the beginning of
 * what all of the output shows. */
static void check_prefix(const struct call_vectors *with, json_t *line, size_t length,
                         const json_t *whole)
{
    for (int kind = 0; kind < 3; kind++) { /* goes on, over, cut */
        struct call_feeding how = { .chunk = SIZE_MAX, .length = length, .cut = kind == 2 };
        json_object_set_new(line, "final", json_boolean(kind == 1));
        json_t *once = call_vector_parse(with, line, how);
        for (size_t chunk = 1; chunk < 3; chunk++) {
            how.chunk = chunk;
            how.stream = chunk == 2;
            json_t *pieces = call_vector_parse(with, line, how);
            if (!json_equal(once, pieces))
                fail_msg("%.*s\n in pieces of %zu: %s\n whole: %s", (int)length,
                         json_string_value(json_object_get(line, "output")), chunk,
                         json_dumps(pieces, 0), json_dumps(once, 0));
            json_decref(pieces);
        }
        check_markers(line, once);
        if (kind == 0 && (!begins(whole, once, "reasoning") || !begins(whole, once, "content")))
            fail_msg("%.*s\n shows %s\n but in the end %s", (int)length,
                     json_string_value(json_object_get(line, "output")), json_dumps(once, 0),
                     json_dumps(whole, 0));
        json_decref(once);
    }
}

static void check_prefixes(const struct call_vectors *with, const json_t *line)
{
    json_t *copy = json_deep_copy(line);
    size_t length = json_string_length(json_object_get(line, "output"));
    json_object_set_new(copy, "final", json_true());
    json_t *whole =
        call_vector_parse(with, copy, (struct call_feeding){ .chunk = SIZE_MAX, .length = length });
    for (size_t i = 0; i <= length; i++) check_prefix(with, copy, i, whole);
    json_decref(whole);
    json_decref(copy);
}

static void outputs_and_their_prefixes_mean_what_they_should(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        size_t least;
    } files[] = { { "glm_4_7.jsonl", 12 }, { "harmony.jsonl", 40 }, { "gemma4.jsonl", 40 } };
    srand(1);
    for (size_t i = 0; i < COUNT_OF(files); i++) {
        char path[PATH_CAPACITY];
        size_t before = vectors.count;
        path_of(path, files[i].name);
        call_vectors_check(&vectors, path, check_prefixes);
        assert_true(vectors.count - before >= files[i].least);
    }
    assert_int_equal(vectors.first, vectors.count);
}

/* ------------------------------------------------------------------ hostile outputs */

/* Markers, parts of them, what stands between them, and text, in any order. */
static size_t write_hostile(char *out, size_t room, const struct output_family *family,
                            struct random *random)
{
    static const char *const words[] = {
        "analysis",
        "final",
        "commentary",
        " to=functions.get_weather",
        "assistant",
        "user",
        "python",
        "json",
        "{\"city\": \"Oslo\"}",
        "{\"city\": \"",
        "\"}",
        "{",
        "}",
        "call:get_weather{city:",
        "call:now{}",
        "Oslo",
        ",days:3",
        "thought\n",
        "model\n",
        " ",
        "\n",
        "text",
        "<",
        "<|",
        "|>",
        "\xe4\xb8\xad",
    };
    size_t markers = 0, length = 0, pieces = 1 + random_next(random) % 24;
    while (family->markers[markers]) markers++;
    for (size_t i = 0; i < pieces; i++) {
        uint64_t pick = random_next(random);
        bool is_marker = pick % 2 == 0;
        const char *piece =
            is_marker ? family->markers[pick / 2 % markers] : words[pick / 2 % COUNT_OF(words)];
        size_t size = strlen(piece);
        if (is_marker && pick % 16 == 0) size = 1 + pick / 16 % size;
        if (length + size >= room) break;
        memcpy(out + length, piece, size);
        length += size;
    }
    return length;
}

static void no_hostile_output_shows_a_marker(void **state)
{
    (void)state;
    struct random random;
    random_seed(&random, 7);
    for (size_t f = 0; output_family_at(f); f++) {
        const struct output_family *family = output_family_at(f);
        if (!family->markers) continue;
        for (size_t round = 0; round < 20000; round++) {
            char text[1024];
            size_t length = write_hostile(text, sizeof text, family, &random);
            json_t *line =
                json_pack("{s:s,s:b,s:b,s:s%}", "family", family->name, "prompt_opens_think",
                          round % 3 == 0, "final", 1, "output", text, length);
            if (!line) continue; /* a character was cut */
            struct call_feeding how = { .chunk = SIZE_MAX,
                                        .length = SIZE_MAX,
                                        .cut = round % 2 == 0 };
            json_t *whole = call_vector_parse(&vectors, line, how);
            how.chunk = round % 4;
            how.stream = round % 5 == 0;
            json_t *pieces = call_vector_parse(&vectors, line, how);
            if (!json_equal(whole, pieces))
                fail_msg("%.*s\n in pieces %s\n whole %s", (int)length, text, json_dumps(pieces, 0),
                         json_dumps(whole, 0));
            check_markers(line, whole);
            json_decref(whole);
            json_decref(pieces);
            json_decref(line);
        }
    }
}

int main(void)
{
    char path[PATH_CAPACITY], *text;
    size_t length;
    path_of(path, "tools.json");
    if (file_read_whole_new(&text, &length, &files_posix, path, 1 << 20, NULL) != MF_OK ||
        json_parse_new(&vectors.tools, text, length, path, NULL) != MF_OK)
        return 1;
    free(text);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(outputs_and_their_prefixes_mean_what_they_should),
        cmocka_unit_test(no_hostile_output_shows_a_marker),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    json_decref(vectors.tools);
    return failed;
}
