/* load_tiktoken.c: Kimi's tiktoken.model.
 *
 *     IQ== 0        a line per token: its bytes in base64, its rank, which is its id
 *
 * There are no merges: any two tokens merge whose bytes together are a token, and the rank
 * of that token is the rank of the merge.  So every way to cut a token into two tokens
 * becomes an entry of the merge table.  The pattern is not in the file; it is Kimi's. */
#include "tokenizer/internal.h"

#include "base/file.h"
#include "base/json.h"
#include "base/status.h"

#include <stdio.h>
#include <stdlib.h>

/* Ids behind the last rank that the format keeps for added tokens. */
enum { RESERVED_COUNT = 256 };

static int base64_value(char c)
{
    if (c >= 'A' && c <= 'Z') return c - 'A';
    if (c >= 'a' && c <= 'z') return c - 'a' + 26;
    if (c >= '0' && c <= '9') return c - '0' + 52;
    if (c == '+') return 62;
    return c == '/' ? 63 : -1;
}

/* Decodes up to the first character that is none of base64's, and the padding after it. */
static const char *decode_base64(struct byte_buffer *out, const char *at)
{
    uint32_t bits = 0;
    unsigned count = 0;
    out->count = 0;
    for (int value; (value = base64_value(*at)) >= 0; at++) {
        bits = bits << 6 | (uint32_t)value;
        count += 6;
        if (count < 8) continue;
        count -= 8;
        char byte = (char)(bits >> count);
        byte_buffer_append(out, &byte, 1);
    }
    while (*at == '=') at++;
    return at;
}

/* "base64 rank\n" at *at. */
static mf_status read_line(struct tokenizer *tokenizer, struct byte_buffer scratch[2],
                           const char **at, const char *path, mf_error *why)
{
    char *end;
    const char *rest = decode_base64(&scratch[0], *at);
    if (scratch[0].failed) return byte_buffer_status(&scratch[0], why);
    bool good = *rest == ' ' && rest[1] >= '0' && rest[1] <= '9' && scratch[0].count > 0;
    unsigned long long rank = good ? strtoull(rest + 1, &end, 10) : 0;
    if (!good || (*end != '\n' && *end != '\0'))
        return fail(why, MF_ERR_FORMAT, "%s: after %zu tokens, \"base64 rank\" was expected", path,
                    tokenizer->vocabulary.size);
    *at = end + (*end == '\n');
    scratch[1].count = 0;
    mf_status status = byte_level_append(
        &scratch[1], (struct text_span){ scratch[0].data, scratch[0].count }, why);
    if (status != MF_OK) return status;
    struct text_span text = { scratch[1].data, scratch[1].count };
    return vocabulary_add(&tokenizer->vocabulary, rank, text, false, path, why);
}

static mf_status read_lines(struct tokenizer *tokenizer, const char *text, const char *path,
                            mf_error *why)
{
    struct byte_buffer scratch[2] = { { 0 } };
    mf_status status = MF_OK;
    while (status == MF_OK && *text) status = read_line(tokenizer, scratch, &text, path, why);
    byte_buffer_free(&scratch[0]);
    byte_buffer_free(&scratch[1]);
    return status;
}

/* Added token `id`: as tokenizer_config.json names it, else "<|reserved_token_ID|>". */
static mf_status add_reserved(struct tokenizer *tokenizer, const json_t *config, size_t id,
                              const char *path, mf_error *why)
{
    char key[32], name[64];
    snprintf(key, sizeof key, "%zu", id);
    snprintf(name, sizeof name, "<|reserved_token_%zu|>", id);
    const json_t *entry = json_object_get(json_object_get(config, "added_tokens_decoder"), key);
    const char *content = json_string_value(json_object_get(entry, "content"));
    struct added_token token = { .special = true };
    mf_status status = json_maybe_flag(&token.special, entry, "special", path, why);
    if (status != MF_OK) return status;
    token.text.text = content ? content : name;
    token.text.length = strlen(token.text.text);
    return tokenizer_add_token(tokenizer, &token, id, path, why);
}

static mf_status add_cuts(struct tokenizer *tokenizer, size_t id, mf_error *why)
{
    const struct vocabulary *vocabulary = &tokenizer->vocabulary;
    const struct token_entry *entry = &vocabulary->entries[id];
    const char *bytes = vocabulary->blob.data + entry->bytes;
    mf_status status = MF_OK;
    for (size_t cut = 1; status == MF_OK && cut < entry->bytes_length; cut++) {
        int32_t left = vocabulary_find(vocabulary, bytes, cut);
        if (left < 0) continue;
        int32_t right = vocabulary_find(vocabulary, bytes + cut, entry->bytes_length - cut);
        if (right < 0) continue;
        struct merge merge = { (uint32_t)left, (uint32_t)right, (uint32_t)id, (uint32_t)id };
        status = merge_table_put(&tokenizer->merges, merge, why);
    }
    return status;
}

static mf_status fill(struct tokenizer *tokenizer, const char *text, const json_t *config,
                      const char *path, mf_error *why)
{
    tokenizer->ignore_merges = true; /* tiktoken looks for the whole piece first */
    mf_status status =
        splitter_add(&tokenizer->splitter, split_kimi, SPLIT_KEEP_ALL, true, path, why);
    if (status == MF_OK) status = read_lines(tokenizer, text, path, why);
    size_t count = tokenizer->vocabulary.size;
    for (size_t i = 0; status == MF_OK && i < RESERVED_COUNT; i++)
        status = add_reserved(tokenizer, config, count + i, path, why);
    if (status == MF_OK) status = tokenizer_index(tokenizer, true, path, why);
    for (size_t id = 0; status == MF_OK && id < count; id++) status = add_cuts(tokenizer, id, why);
    if (status == MF_OK) tokenizer_bind_bytes(tokenizer, false);
    return status;
}

mf_status tokenizer_open_tiktoken_new(struct tokenizer **out, const mf_files *files,
                                      const char *path, const json_t *config, mf_error *why)
{
    char *text;
    size_t length;
    struct tokenizer *tokenizer = NULL;
    *out = NULL;
    mf_status status = file_read_whole_new(&text, &length, files, path, TOKENIZER_FILE_LIMIT, why);
    if (status == MF_OK) status = tokenizer_blank_new(&tokenizer, why);
    if (status == MF_OK) tokenizer->vocabulary.id_limit = vocabulary_id_limit(length);
    if (status == MF_OK) status = fill(tokenizer, text, config, path, why);
    if (status == MF_OK) {
        *out = tokenizer;
        tokenizer = NULL; /* the caller's now */
    }
    tokenizer_free(tokenizer);
    free(text);
    return status;
}
