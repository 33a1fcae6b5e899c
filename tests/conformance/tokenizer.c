/* tokenizer: published vocabularies against what other tokenizers make of the same strings.
 * The data is described in the README of the fixtures' tokenizers directory. */
#include "support/test.h"
#include "support/token_vectors.h"

#include "base/file.h"
#include "base/json.h"
#include "checkpoint/gguf.h"
#include "tokenizer/json_scan.h"
#include "tokenizer/split.h"
#include "tokenizer/tokenizer.h"
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

static size_t for_each_line(const char *name, void (*check)(const json_t *line, const void *with),
                            const void *with)
{
    char path[PATH_CAPACITY];
    fixture_path(path, name);
    return vectors_for_each(path, check, with);
}

/* What a gzip -d of the file gives. */
static char *read_compressed(const char *name, size_t *length)
{
    char path[PATH_CAPACITY], command[PATH_CAPACITY + 16];
    fixture_path(path, name);
    snprintf(command, sizeof command, "gzip -dc '%s'", path);
    FILE *pipe = popen(command, "r");
    assert_non_null(pipe);
    size_t capacity = 32 << 20;
    char *text = malloc(capacity);
    assert_non_null(text);
    *length = fread(text, 1, capacity, pipe);
    assert_int_equal(pclose(pipe), 0);
    assert_true(*length > 0 && *length < capacity);
    return text;
}

static struct tokenizer *open_fixture(const char *name)
{
    char path[PATH_CAPACITY];
    struct tokenizer *tokenizer;
    fixture_path(path, name);
    must(tokenizer_open_new(&tokenizer, &files_posix, path, &why));
    return tokenizer;
}

/* The tokenizer.json `name` with `field` of its outermost object replaced. */
static struct tokenizer *open_changed(const char *name, const char *field, const char *value)
{
    size_t length;
    char *json = read_fixture(name, &length);
    struct text_span old = { 0 }, name_of_field;
    struct json_cursor cursor = { json, json + length };
    assert_true(json_take(&cursor, '{'));
    do assert_true(json_next_field(&name_of_field, &cursor) && json_skip_value(&old, &cursor));
    while (!json_is_name(name_of_field, field));
    size_t head = (size_t)(old.text - json), tail = length - head - old.length;
    char *changed = malloc(length + strlen(value));
    assert_non_null(changed);
    memcpy(changed, json, head);
    memcpy(changed + head, value, strlen(value));
    memcpy(changed + head + strlen(value), old.text + old.length, tail);
    struct tokenizer *tokenizer;
    must(tokenizer_parse_new(&tokenizer, changed, head + strlen(value) + tail, name, &why));
    free(changed);
    free(json);
    return tokenizer;
}

/* ------------------------------------------------------------- vectors.jsonl */

static void check_vectors(const char *directory, const struct tokenizer *tokenizer)
{
    char name[128], path[PATH_CAPACITY];
    snprintf(name, sizeof name, "%s/vectors.jsonl", directory);
    fixture_path(path, name);
    vectors_check(path, tokenizer);
}

static void ids_of_tokenizer_json_are_the_reference_s(void **state)
{
    (void)state;
    static const char *const directories[] = { "qwen2", "qwen2-mini" };
    for (size_t i = 0; i < COUNT_OF(directories); i++) {
        struct tokenizer *tokenizer = open_fixture(directories[i]);
        check_vectors(directories[i], tokenizer);
        tokenizer_free(tokenizer);
    }
}

static void ids_without_nfc_are_the_reference_s(void **state)
{
    (void)state;
    struct tokenizer *tokenizer = open_changed("qwen2/tokenizer.json", "normalizer", "null");
    struct vector_case c = { tokenizer, SPECIAL_PARSE, "ids_no_nfc", "ids" };
    assert_true(for_each_line("qwen2/vectors.jsonl", vectors_check_line, &c) > 0);
    tokenizer_free(tokenizer);
}

/* ------------------------------------------------------------------ .inp/.out */

/* One line of an .out file: ids with spaces between. */
static void check_out_line(const struct token_list *ids, char *line)
{
    size_t count = 0;
    char *rest = NULL;
    for (char *word = strtok_r(line, " ", &rest); word; word = strtok_r(NULL, " ", &rest)) {
        assert_true(count < ids->count);
        assert_int_equal(ids->ids[count++], strtol(word, NULL, 10));
    }
    assert_int_equal(count, ids->count);
}

static size_t check_inp_out(const struct tokenizer *tokenizer, const char *name)
{
    static const char separator[] = "\n__ggml_vocab_test__\n";
    char file[128];
    size_t length, count = 0;
    snprintf(file, sizeof file, "%s.inp", name);
    char *inputs = read_fixture(file, &length);
    snprintf(file, sizeof file, "%s.out", name);
    char *outputs = read_fixture(file, &length), *line = outputs;
    for (char *at = inputs, *end; (end = strstr(at, separator)); at = end + strlen(separator)) {
        char *line_end = strchr(line, '\n');
        assert_non_null(line_end);
        *line_end = '\0';
        struct token_list ids = vectors_encode(tokenizer, at, (size_t)(end - at), SPECIAL_PARSE);
        check_out_line(&ids, line);
        token_list_free(&ids);
        line = line_end + 1;
        count++;
    }
    free(inputs);
    free(outputs);
    print_message("%s: %zu\n", name, count);
    return count;
}

static void inputs_of_llama_cpp_give_its_ids(void **state)
{
    (void)state;
    struct tokenizer *tokenizer = open_fixture("qwen2");
    assert_int_equal(check_inp_out(tokenizer, "qwen2/ggml-vocab-qwen2.gguf"), 46);
    tokenizer_free(tokenizer);
}

/* That file is the Qwen2 vocabulary with Qwen3.5's pattern and no normalisation. */
static void inputs_of_llama_cpp_for_qwen35_give_its_ids(void **state)
{
    (void)state;
    json_t *split = json_pack("{s:s, s:[{s:s, s:{s:s}, s:s, s:b}, {s:s, s:b, s:b}]}", "type",
                              "Sequence", "pretokenizers", "type", "Split", "pattern", "Regex",
                              split_qwen35, "behavior", "Isolated", "invert", 0, "type",
                              "ByteLevel", "use_regex", 0, "add_prefix_space", 0);
    char *text = json_dumps(split, JSON_COMPACT);
    assert_non_null(text);
    struct tokenizer *tokenizer = open_changed("qwen2/tokenizer.json", "pre_tokenizer", text);
    tokenizer->nfc = false;
    assert_int_equal(check_inp_out(tokenizer, "qwen2/ggml-vocab-qwen35.gguf"), 50);
    tokenizer_free(tokenizer);
    json_decref(split);
    free(text);
}

/* ------------------------------------------------------- bytes and their tokens */

static char *bytes_from_hex(const json_t *hex, size_t *length)
{
    const char *text = json_string_value(hex);
    *length = strlen(text) / 2;
    char *bytes = malloc(*length + 1);
    assert_non_null(bytes);
    for (size_t i = 0; i < *length; i++) {
        unsigned byte;
        assert_int_equal(sscanf(text + 2 * i, "%2x", &byte), 1);
        bytes[i] = (char)byte;
    }
    return bytes;
}

static void check_invalid(const json_t *line, const void *with)
{
    size_t length, at = 0;
    char *bytes = bytes_from_hex(json_object_get(line, "hex"), &length);
    struct token_list ids = vectors_encode(with, bytes, length, SPECIAL_PARSE);
    vectors_assert_ids(&ids, json_object_get(line, "ids_raw"), "invalid UTF-8");
    struct byte_buffer normal = { 0 }; /* one of them has U+2000, which is U+2002 in NFC */
    must(text_append_nfc(&normal, bytes, length, &why));
    for (size_t i = 0; i < ids.count; i++) {
        size_t count;
        const char *token = tokenizer_token_bytes(with, ids.ids[i], &count);
        assert_true(at + count <= normal.count);
        assert_memory_equal(token, normal.data + at, count);
        at += count;
    }
    assert_int_equal(at, normal.count);
    token_list_free(&ids);
    free(normal.data);
    free(bytes);
}

static void bytes_that_are_no_text_are_kept(void **state)
{
    (void)state;
    struct tokenizer *tokenizer = open_fixture("qwen2");
    assert_true(for_each_line("qwen2/invalid-utf8.jsonl", check_invalid, tokenizer) > 0);
    tokenizer_free(tokenizer);
}

static void check_decode(const json_t *line, const void *with)
{
    const json_t *ids = json_object_get(line, "ids"), *hex = json_object_get(line, "hex");
    for (size_t i = 0; i < json_array_size(ids); i++) {
        size_t length, wanted_length;
        char *wanted = bytes_from_hex(json_array_get(hex, i), &wanted_length);
        json_int_t id = json_integer_value(json_array_get(ids, i));
        const char *bytes = tokenizer_token_bytes(with, (int32_t)id, &length);
        assert_int_equal(length, wanted_length);
        assert_memory_equal(bytes, wanted, length);
        free(wanted);
    }
}

static void tokens_have_their_bytes(void **state)
{
    (void)state;
    struct tokenizer *tokenizer = open_fixture("qwen2");
    assert_true(for_each_line("qwen2/decode.jsonl", check_decode, tokenizer) > 0);
    tokenizer_free(tokenizer);
}

/* ---------------------------------------------------------------------- pieces */

struct piece_check {
    const json_t *lengths;
    size_t count;
    const char *id;
};

static mf_status check_piece(void *context, const char *piece, size_t length, mf_error *error)
{
    struct piece_check *check = context;
    (void)piece;
    (void)error;
    json_int_t wanted = json_integer_value(json_array_get(check->lengths, check->count++));
    if ((json_int_t)length != wanted)
        fail_msg("%s: piece %zu has %zu bytes, %lld wanted", check->id, check->count, length,
                 (long long)wanted);
    return MF_OK;
}

static void check_pieces(const json_t *line, const void *with)
{
    const json_t *text = json_object_get(line, "text");
    struct piece_check check = { json_object_get(line, "byte_lens"), 0,
                                 json_string_value(json_object_get(line, "id")) };
    must(splitter_run(with, json_string_value(text), json_string_length(text), check_piece, &check,
                      &why));
    assert_int_equal(check.count, json_array_size(check.lengths));
}

static void check_family(const char *family, const json_t *patterns, bool by_hand)
{
    struct splitter splitter = { 0 };
    char name[128];
    const json_t *pattern;
    size_t i;
    json_array_foreach(patterns, i, pattern)
    {
        must(splitter_add(&splitter, json_string_value(pattern), SPLIT_KEEP_ALL, by_hand, family,
                          &why));
    }
    /* The two old DeepSeek families have no functions for all of their patterns. */
    if (by_hand && strcmp(family, "deepseek-llm") != 0 && strcmp(family, "deepseek-coder") != 0)
        assert_false(splitter.has_regex);
    snprintf(name, sizeof name, "pretok/%s.jsonl", family);
    assert_true(for_each_line(name, check_pieces, &splitter) > 0);
    splitter_free(&splitter);
}

/* Every family by PCRE2, and again by hand where that exists. */
static void texts_are_split_as_every_family_defines(void **state)
{
    (void)state;
    char path[PATH_CAPACITY];
    json_t *families;
    const char *family;
    json_t *entry;
    fixture_path(path, "pretokenizers.json");
    must(json_read_file_new(&families, &files_posix, path, 1 << 20, &why));
    assert_int_equal(json_object_size(families), 9);
    json_object_foreach(families, family, entry)
    {
        check_family(family, json_object_get(entry, "split_isolated_regexes"), false);
        check_family(family, json_object_get(entry, "split_isolated_regexes"), true);
    }
    json_decref(families);
}

/* -------------------------------------------------------------------- Qwen3.5 */

/* Its merges alone are there.  The 256 bytes are numbered as in Qwen2, merge i makes token
 * 256 + i: "ids_synthetic" of the vectors. */
struct qwen35 {
    struct text_span *tokens, *merges;
    int32_t *types;
    size_t token_count, merge_count;
    char *text, *results; /* what the spans point into */
    json_t *added;
};

enum { QWEN35_TOKENS = 248320 };

static void qwen35_add_merges(struct qwen35 *q, size_t length)
{
    q->results = malloc(2 * length);
    assert_non_null(q->results);
    char *result = q->results;
    for (char *at = q->text, *end; at < q->text + length; at = end + 1) {
        end = memchr(at, '\n', (size_t)(q->text + length - at));
        if (!end) end = q->text + length;
        struct text_span left, right, line = { at, (size_t)(end - at) };
        assert_true(tokenizer_cut_merge(&left, &right, line));
        q->merges[q->merge_count++] = line;
        memcpy(result, left.text, left.length);
        memcpy(result + left.length, right.text, right.length);
        q->tokens[q->token_count++] = (struct text_span){ result, left.length + right.length };
        result += left.length + right.length;
    }
}

static void qwen35_add_bytes(struct qwen35 *q, const struct tokenizer *qwen2)
{
    for (int32_t id = 0; id < 256; id++) {
        const char *text = tokenizer_token_text(qwen2, id);
        q->tokens[q->token_count++] = (struct text_span){ text, strlen(text) };
    }
}

static void qwen35_add_special(struct qwen35 *q)
{
    char path[PATH_CAPACITY];
    size_t i, length;
    json_t *entry;
    fixture_path(path, "qwen35/added_tokens.json");
    char *text;
    must(file_read_whole_new(&text, &length, &files_posix, path, 1 << 20, &why));
    must(json_parse_new(&q->added, text, length, path, &why));
    free(text);
    json_array_foreach(q->added, i, entry)
    {
        size_t id = (size_t)json_integer_value(json_object_get(entry, "id"));
        const char *content = json_string_value(json_object_get(entry, "content"));
        bool special = json_is_true(json_object_get(entry, "special"));
        assert_true(id < QWEN35_TOKENS);
        q->tokens[id] = (struct text_span){ content, strlen(content) };
        q->types[id] = special ? TOKEN_CONTROL : TOKEN_USER_DEFINED;
    }
}

static struct tokenizer *open_qwen35(void)
{
    struct qwen35 q = { .tokens = calloc(QWEN35_TOKENS, sizeof *q.tokens),
                        .merges = calloc(QWEN35_TOKENS, sizeof *q.merges),
                        .types = calloc(QWEN35_TOKENS, sizeof *q.types) };
    assert_true(q.tokens && q.merges && q.types);
    for (size_t i = 0; i < QWEN35_TOKENS; i++) q.types[i] = TOKEN_NORMAL;
    struct tokenizer *qwen2 = open_fixture("qwen2"), *tokenizer;
    size_t length;
    q.text = read_compressed("qwen35/merges.txt.gz", &length);
    qwen35_add_bytes(&q, qwen2);
    qwen35_add_merges(&q, length);
    assert_int_equal(q.merge_count, 247587);
    qwen35_add_special(&q);
    struct tokenizer_tables tables = { .tokens = q.tokens,
                                       .token_count = QWEN35_TOKENS,
                                       .types = q.types,
                                       .merges = q.merges,
                                       .merge_count = q.merge_count,
                                       .pre_tokenizer = "qwen35",
                                       .bos_id = -1 };
    must(tokenizer_from_tables_new(&tokenizer, &tables, "qwen35", &why));
    tokenizer_free(qwen2);
    json_decref(q.added);
    free(q.tokens);
    free(q.merges);
    free(q.types);
    free(q.text);
    free(q.results);
    return tokenizer;
}

static void check_token_texts(const json_t *line, const void *with)
{
    const struct vector_case *c = with;
    const json_t *text = json_object_get(line, "text"), *wanted = json_object_get(line, c->key);
    if (!wanted) wanted = json_object_get(line, c->usual);
    struct token_list ids =
        vectors_encode(c->tokenizer, json_string_value(text), json_string_length(text), c->mode);
    assert_int_equal(ids.count, json_array_size(wanted));
    for (size_t i = 0; i < ids.count; i++)
        assert_string_equal(tokenizer_token_text(c->tokenizer, ids.ids[i]),
                            json_string_value(json_array_get(wanted, i)));
    token_list_free(&ids);
}

static void ids_of_qwen35_are_the_reference_s(void **state)
{
    (void)state;
    struct tokenizer *tokenizer = open_qwen35();
    struct vector_case ids = { tokenizer, SPECIAL_PARSE, "ids_synthetic", "" };
    assert_true(for_each_line("qwen35/vectors.jsonl", vectors_check_line, &ids) > 0);
    struct vector_case texts = { tokenizer, SPECIAL_PARSE, "tokens", "" };
    assert_true(for_each_line("qwen35/vectors.jsonl", check_token_texts, &texts) > 0);
    struct vector_case plain = { tokenizer, SPECIAL_NONE, "tokens_plain", "tokens" };
    assert_true(for_each_line("qwen35/vectors.jsonl", check_token_texts, &plain) > 0);
    tokenizer->nfc = false;
    struct vector_case raw = { tokenizer, SPECIAL_PARSE, "tokens_no_nfc", "tokens" };
    assert_true(for_each_line("qwen35/vectors.jsonl", check_token_texts, &raw) > 0);
    tokenizer_free(tokenizer);
}

/* ----------------------------------------------------------------------- GGUF */

static struct tokenizer *open_gguf(const char *path)
{
    struct tensor_directory directory;
    struct metadata metadata;
    struct tokenizer *tokenizer;
    tensor_directory_init(&directory, &allocator_heap);
    metadata_init(&metadata, &allocator_heap);
    must(checkpoint_gguf_open(&directory, &metadata, &files_posix, path, &why));
    must(tokenizer_from_metadata_new(&tokenizer, &metadata, &why));
    metadata_free(&metadata);
    tensor_directory_free(&directory);
    return tokenizer;
}

/* The vocabulary `name`, which some directories hold compressed. */
static struct tokenizer *open_gguf_vocabulary(const char *name)
{
    char file[128], path[PATH_CAPACITY], unpacked[] = "/tmp/moeflux-vocabulary-XXXXXX";
    size_t length;
    snprintf(file, sizeof file, "%s/ggml-vocab-%s.gguf", name, name);
    fixture_path(path, file);
    if (access(path, R_OK) == 0) return open_gguf(path);
    snprintf(file, sizeof file, "%s/ggml-vocab-%s.gguf.gz", name, name);
    char *bytes = read_compressed(file, &length);
    int descriptor = mkstemp(unpacked);
    assert_true(descriptor >= 0);
    assert_int_equal(write(descriptor, bytes, length), length);
    close(descriptor);
    free(bytes);
    struct tokenizer *tokenizer = open_gguf(unpacked);
    unlink(unpacked);
    return tokenizer;
}

static void vocabularies_of_gguf_give_the_same_ids(void **state)
{
    (void)state;
    static const char *const names[] = { "gpt-2",  "deepseek-llm", "deepseek-coder", "starcoder",
                                         "refact", "mpt",          "falcon" };
    for (size_t i = 0; i < COUNT_OF(names); i++) {
        struct tokenizer *tokenizer = open_gguf_vocabulary(names[i]);
        char name[128];
        snprintf(name, sizeof name, "%s/ggml-vocab-%s.gguf", names[i], names[i]);
        assert_int_equal(check_inp_out(tokenizer, name), 46);
        if (strcmp(names[i], "falcon") != 0) check_vectors(names[i], tokenizer);
        tokenizer_free(tokenizer);
    }
}

int main(void)
{
    if (!fixtures_choose("tokenizers")) return EXIT_SKIPPED;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ids_of_tokenizer_json_are_the_reference_s),
        cmocka_unit_test(ids_without_nfc_are_the_reference_s),
        cmocka_unit_test(inputs_of_llama_cpp_give_its_ids),
        cmocka_unit_test(inputs_of_llama_cpp_for_qwen35_give_its_ids),
        cmocka_unit_test(bytes_that_are_no_text_are_kept),
        cmocka_unit_test(tokens_have_their_bytes),
        cmocka_unit_test(texts_are_split_as_every_family_defines),
        cmocka_unit_test(ids_of_qwen35_are_the_reference_s),
        cmocka_unit_test(vocabularies_of_gguf_give_the_same_ids),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
