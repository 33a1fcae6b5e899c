/* Gemma 4's tokenizer: characters are merged, bytes stand in for those that are no token, U+2581 is a
 * space.  A vocabulary made at random against a reference that works on texts, not ids. */
#include "support/byte_writer.h"
#include "support/small_tokenizer.h"
#include "support/test.h"

#include "base/array.h"
#include "base/utf8.h"
#include "checkpoint/gguf.h"
#include "checkpoint/metadata.h"
#include "sampling/random.h"
#include "support/memory_files.h"
#include "tokenizer/tokenizer.h"

#include <stdio.h>
#include <stdlib.h>

#define SIGN "\xE2\x96\x81"

static mf_error why;

/* ------------------------------------------------------------------ a vocabulary */

enum { MERGES = 160, TOKENS_MAX = 800, TEXT_MAX = 64 };

/* Tokens 0 to 4 are special, then 256 bytes, then characters, then what merges make. */
static char tokens[TOKENS_MAX][TEXT_MAX];
static size_t token_count;
static struct {
    char left[TEXT_MAX], right[TEXT_MAX], both[2 * TEXT_MAX];
} merges[MERGES];
static size_t merge_count;

static const char *const specials[] = { "<pad>", "<eos>", "<bos>", "<unk>", "<|turn>" };
static const char *const characters[] = { SIGN, "a", "b", "e", "t", "\n", "é", "中", ".", "1" };
static const char *const outside[] = { "z", "ß", "文", "🎉", "\t", "\xFF", "\xE4\xB8" };

static int find(const char *text)
{
    for (size_t i = 0; i < token_count; i++)
        if (strcmp(tokens[i], text) == 0) return (int)i;
    return -1;
}

static void add(const char *text)
{
    assert_true(token_count < TOKENS_MAX && strlen(text) < TEXT_MAX);
    strcpy(tokens[token_count++], text);
}

static void make_vocabulary(void)
{
    struct random random;
    random_seed(&random, 3);
    for (size_t i = 0; i < COUNT_OF(specials); i++) add(specials[i]);
    for (unsigned byte = 0; byte < 256; byte++) {
        char text[8];
        snprintf(text, sizeof text, "<0x%02X>", byte);
        add(text);
    }
    size_t first = token_count;
    for (size_t i = 0; i < COUNT_OF(characters); i++) add(characters[i]);
    while (merge_count < MERGES) {
        const char *left = tokens[first + random_next(&random) % (token_count - first)];
        const char *right = tokens[first + random_next(&random) % (token_count - first)];
        if (strlen(left) + strlen(right) > 16) continue;
        char both[2 * TEXT_MAX];
        snprintf(both, sizeof both, "%s%s", left, right);
        bool known = false, lines = strspn(both, "\n") > 0 || strchr(both, '\n');
        for (size_t i = 0; i < merge_count; i++)
            known =
                known || (strcmp(merges[i].left, left) == 0 && strcmp(merges[i].right, right) == 0);
        if (known || lines) continue;
        strcpy(merges[merge_count].left, left);
        strcpy(merges[merge_count].right, right);
        strcpy(merges[merge_count++].both, both);
        if (find(both) < 0) add(both);
    }
    add("\n\n"); /* tokens that no merge makes */
    add("\n\n\n");
}

/* ------------------------------------------------------------------ the reference */

struct parts {
    char text[256][TEXT_MAX];
    size_t count;
};

static size_t character_size(const char *text)
{
    uint32_t character;
    return utf8_decode(&character, text, strlen(text));
}

static void merge_parts(struct parts *parts)
{
    for (size_t rank = 0; rank < merge_count;) {
        size_t at = 0;
        while (at + 1 < parts->count && (strcmp(parts->text[at], merges[rank].left) != 0 ||
                                         strcmp(parts->text[at + 1], merges[rank].right) != 0))
            at++;
        if (at + 1 >= parts->count) {
            rank++;
            continue;
        }
        strcpy(parts->text[at], merges[rank].both);
        for (size_t i = at + 1; i + 1 < parts->count; i++)
            strcpy(parts->text[i], parts->text[i + 1]);
        parts->count--;
        rank = 0; /* what was made may be part of a better one */
    }
}

/* Of a text without added tokens. */
static void encode_plainly(struct token_list *out, const char *text)
{
    struct parts parts = { 0 };
    for (const char *at = text; *at;) {
        size_t size = *at == ' ' ? 1 : character_size(at);
        snprintf(parts.text[parts.count++], TEXT_MAX, "%.*s", *at == ' ' ? 3 : (int)size,
                 *at == ' ' ? SIGN : at);
        at += size;
    }
    merge_parts(&parts);
    for (size_t i = 0; i < parts.count; i++) {
        int id = find(parts.text[i]);
        for (const char *byte = parts.text[i]; id < 0 && *byte; byte++)
            assert_int_equal(token_list_append(out, 5 + (uint8_t)*byte, NULL), MF_OK);
        if (id >= 0) assert_int_equal(token_list_append(out, id, NULL), MF_OK);
    }
}

/* Runs of lines are added tokens, the longest first. */
static struct token_list encode_reference(const char *text)
{
    struct token_list out = { 0 };
    char piece[512];
    while (*text) {
        size_t length = strcspn(text, "\n"), lines = strspn(text, "\n");
        while (text[length] == '\n' && strspn(text + length, "\n") == 1)
            length += 1 + strcspn(text + length + 1, "\n"); /* a single one is a character */
        if (lines > 1) {
            size_t taken = lines > 3 ? 3 : lines;
            snprintf(piece, sizeof piece, "%.*s", (int)taken, text);
            token_list_append(&out, find(piece), NULL);
            text += taken;
            continue;
        }
        if (length > 0 && lines == 1 && length < 1) length = 1;
        snprintf(piece, sizeof piece, "%.*s", (int)length, text);
        encode_plainly(&out, piece);
        text += length;
    }
    return out;
}

/* ------------------------------------------------------------------ the tokenizers */

static void add_json(struct byte_buffer *out, const char *text)
{
    json_t *value = json_string(text);
    char *quoted = json_dumps(value, JSON_ENCODE_ANY);
    byte_buffer_append_text(out, quoted);
    free(quoted);
    json_decref(value);
}

static struct tokenizer *from_json(void)
{
    struct byte_buffer json = { 0 };
    struct tokenizer *tokenizer;
    char id[64];
    byte_buffer_append_text(
        &json, "{\"normalizer\":{\"type\":\"Replace\",\"pattern\":{\"String\":\" \"},\"content\":"
               "\"" SIGN "\"},\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"String\":\" \"},"
               "\"behavior\":\"MergedWithPrevious\",\"invert\":false},\"post_processor\":{\"type\":"
               "\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{\"id\":\"<bos>\"}},"
               "{\"Sequence\":{\"id\":\"A\"}}]},\"added_tokens\":[");
    for (int i = 0; i < (int)token_count; i++) {
        bool special = i < (int)COUNT_OF(specials);
        if (!special && strspn(tokens[i], "\n") < 2) continue;
        snprintf(id, sizeof id, "%s{\"id\":%d,\"special\":%s,\"content\":", i ? "," : "", i,
                 special ? "true" : "false");
        byte_buffer_append_text(&json, id);
        add_json(&json, tokens[i]);
        byte_buffer_append_text(&json, "}");
    }
    byte_buffer_append_text(
        &json, "],\"model\":{\"type\":\"BPE\",\"unk_token\":\"<unk>\",\"fuse_unk\":true,"
               "\"byte_fallback\":true,\"ignore_merges\":false,\"vocab\":{");
    for (size_t i = 0; i < token_count; i++) {
        byte_buffer_append_text(&json, i ? "," : "");
        add_json(&json, tokens[i]);
        snprintf(id, sizeof id, ":%zu", i);
        byte_buffer_append_text(&json, id);
    }
    byte_buffer_append_text(&json, "},\"merges\":[");
    for (size_t i = 0; i < merge_count; i++) {
        byte_buffer_append_text(&json, i ? ",[" : "[");
        add_json(&json, merges[i].left);
        byte_buffer_append_text(&json, ",");
        add_json(&json, merges[i].right);
        byte_buffer_append_text(&json, "]");
    }
    byte_buffer_append_text(&json, "]}}");
    if (tokenizer_parse_new(&tokenizer, json.data, json.count, "the file", &why) != MF_OK)
        fail_msg("%s", why.text);
    byte_buffer_free(&json);
    return tokenizer;
}

static void put_key(struct byte_writer *w, const char *key, uint32_t type)
{
    put_text(w, key);
    put_u32(w, type);
}

static void put_array(struct byte_writer *w, const char *key, uint32_t type, size_t count)
{
    put_key(w, key, 9);
    put_u32(w, type);
    put_u64(w, count);
}

/* As a GGUF has it: types, lines as ordinary tokens, no pre-tokenizer, and a flag that is wrong. */
static struct tokenizer *from_gguf(void)
{
    enum { I32 = 5, FLAG = 7, TEXT = 8, U32 = 4 };
    struct byte_writer w = { 0 };
    struct memory_files files;
    struct tensor_directory directory;
    struct metadata metadata;
    struct tokenizer *tokenizer;
    put_bytes(&w, "GGUF", 4);
    put_u32(&w, 3);
    put_u64(&w, 0);
    put_u64(&w, 6);
    put_key(&w, "tokenizer.ggml.model", TEXT);
    put_text(&w, "gemma4");
    put_key(&w, "tokenizer.ggml.bos_token_id", U32);
    put_u32(&w, 2);
    put_key(&w, "tokenizer.ggml.add_bos_token", FLAG);
    put_u8(&w, 0);
    put_array(&w, "tokenizer.ggml.tokens", TEXT, token_count);
    for (size_t i = 0; i < token_count; i++) put_text(&w, tokens[i]);
    put_array(&w, "tokenizer.ggml.token_type", I32, token_count);
    for (size_t i = 0; i < token_count; i++) {
        bool special = i < COUNT_OF(specials), byte = !special && i < COUNT_OF(specials) + 256;
        put_u32(&w, i == 4    ? TOKEN_USER_DEFINED
                    : special ? TOKEN_CONTROL
                    : byte    ? TOKEN_BYTE
                              : TOKEN_NORMAL);
    }
    put_array(&w, "tokenizer.ggml.merges", TEXT, merge_count);
    for (size_t i = 0; i < merge_count; i++) {
        char text[2 * TEXT_MAX + 2];
        snprintf(text, sizeof text, "%.63s %.63s", merges[i].left, merges[i].right);
        put_text(&w, text);
    }
    memory_files_init(&files);
    memory_files_put(&files, "m.gguf", w.bytes, w.count);
    tensor_directory_init(&directory, &allocator_heap);
    metadata_init(&metadata, &allocator_heap);
    if (checkpoint_gguf_open(&directory, &metadata, &files.files, "m.gguf", &why) != MF_OK ||
        tokenizer_from_metadata_new(&tokenizer, &metadata, &why) != MF_OK)
        fail_msg("%s", why.text);
    metadata_free(&metadata);
    tensor_directory_free(&directory);
    byte_writer_free(&w);
    return tokenizer;
}

/* ------------------------------------------------------------------ tests */

static void write_text(char *out, size_t room, struct random *random)
{
    size_t pieces = random_next(random) % 24, length = 0;
    out[0] = '\0';
    for (size_t i = 0; i < pieces; i++) {
        uint64_t pick = random_next(random);
        const char *piece = pick % 8 == 0   ? outside[pick / 8 % COUNT_OF(outside)]
                            : pick % 8 == 1 ? " "
                                            : characters[pick / 8 % COUNT_OF(characters)];
        if (length + strlen(piece) >= room) break;
        strcpy(out + length, piece);
        length += strlen(piece);
    }
}

static void check_text(const struct tokenizer *tokenizer, const char *text)
{
    struct token_list wanted = encode_reference(text), found = { 0 };
    assert_int_equal(tokenizer_encode(&found, tokenizer, text, strlen(text), SPECIAL_AS_TEXT, &why),
                     MF_OK);
    bool same =
        found.count == wanted.count &&
        (!found.count || memcmp(found.ids, wanted.ids, found.count * sizeof *found.ids) == 0);
    if (!same) {
        for (size_t i = 0; i < found.count; i++) print_message("%d ", found.ids[i]);
        print_message("\n");
        for (size_t i = 0; i < wanted.count; i++) print_message("%d ", wanted.ids[i]);
        fail_msg("\n%s", text);
    }
    char back[1024], expected[1024];
    size_t length = 0, size = 0;
    for (size_t i = 0; i < found.count; i++) {
        const char *bytes = tokenizer_token_bytes(tokenizer, found.ids[i], &size);
        memcpy(back + length, bytes, size);
        length += size;
    }
    back[length] = '\0';
    size_t end = 0;
    for (const char *at = text; *at; at++) {
        bool sign = strncmp(at, SIGN, 3) == 0;
        expected[end++] = sign ? ' ' : *at;
        at += sign ? 2 : 0;
    }
    expected[end] = '\0';
    assert_string_equal(back, expected);
    token_list_free(&found);
    token_list_free(&wanted);
}

static void texts_are_encoded_as_the_reference_does(void **state)
{
    (void)state;
    struct tokenizer *tokenizers[] = { from_json(), from_gguf() };
    for (size_t i = 0; i < COUNT_OF(tokenizers); i++) {
        struct random random;
        random_seed(&random, 11);
        for (size_t round = 0; round < 4000; round++) {
            char text[256];
            write_text(text, sizeof text, &random);
            check_text(tokenizers[i], text);
        }
        assert_int_equal(tokenizer_bos(tokenizers[i]), 2);
        tokenizer_free(tokenizers[i]);
    }
}

static void special_tokens_and_bytes_are_what_they_say(void **state)
{
    (void)state;
    struct tokenizer *tokenizers[] = { from_json(), from_gguf() };
    size_t length;
    for (size_t i = 0; i < COUNT_OF(tokenizers); i++) {
        struct tokenizer *t = tokenizers[i];
        assert_encodes(t, "<|turn>", SPECIAL_PARSE, "4");
        assert_int_equal(tokenizer_is_special(t, 4), i == 0);
        assert_int_equal(*tokenizer_token_bytes(t, 5 + 0x41, &length), 'A');
        assert_int_equal(length, 1);
        assert_string_equal(tokenizer_token_text(t, 5 + 0x41), "<0x41>");
        assert_int_equal(tokenizer_find(t, SIGN), find(SIGN));
        assert_int_equal(tokenizer_find(t, "<0x0A>"), 5 + 0x0A);
        /* The name of a byte in a text is text: no character of it is a token but a digit. */
        struct token_list ids = { 0 };
        assert_int_equal(tokenizer_encode(&ids, t, "<0x41>", 6, SPECIAL_PARSE, &why), MF_OK);
        assert_int_equal(ids.count, 6);
        token_list_free(&ids);
        tokenizer_free(t);
    }
}

static void other_normalisers_are_refused(void **state)
{
    (void)state;
    static const char *const files[] = {
        "{'normalizer':{'type':'Replace','pattern':{'String':'a'},'content':'" SIGN "'},"
        "'pre_tokenizer':null,'model':{'vocab':{'a':0},'merges':[]}}",
        "{'normalizer':{'type':'Replace','pattern':{'String':' '},'content':'_'},"
        "'pre_tokenizer':null,'model':{'vocab':{'a':0},'merges':[]}}",
        "{'normalizer':{'type':'Replace','pattern':{'String':' '},'content':'" SIGN "'}," BYTE_LEVEL
        ",'model':{'vocab':{'a':0},'merges':[]}}",
        "{'normalizer':{'type':'Sequence','normalizers':[{'type':'NFC'},{'type':'Replace',"
        "'pattern':{'String':' '},'content':'" SIGN "'}]},'pre_tokenizer':null,"
        "'model':{'vocab':{'a':0},'merges':[]}}",
    };
    for (size_t i = 0; i < COUNT_OF(files); i++) {
        struct tokenizer *tokenizer;
        assert_int_equal(small_tokenizer_try(&tokenizer, files[i], &why), MF_ERR_UNSUPPORTED);
        assert_null(tokenizer);
    }
}

/* A piece is the whole text, so a long one must not take the square of its length. */
static void a_long_text_takes_no_square_of_time(void **state)
{
    (void)state;
    enum { LENGTH = 400 * 1000 };
    struct tokenizer *tokenizer = from_json();
    char *text = malloc(LENGTH);
    struct token_list ids = { 0 };
    assert_non_null(text);
    for (size_t i = 0; i < LENGTH; i++) text[i] = "abet .1"[(i * 2654435761u >> 7) % 7];
    assert_int_equal(tokenizer_encode(&ids, tokenizer, text, LENGTH, SPECIAL_NONE, &why), MF_OK);
    assert_true(ids.count > LENGTH / 20 && ids.count < LENGTH);
    token_list_free(&ids);
    free(text);
    tokenizer_free(tokenizer);
}

int main(void)
{
    make_vocabulary();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(texts_are_encoded_as_the_reference_does),
        cmocka_unit_test(special_tokens_and_bytes_are_what_they_say),
        cmocka_unit_test(other_normalisers_are_refused),
        cmocka_unit_test(a_long_text_takes_no_square_of_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
