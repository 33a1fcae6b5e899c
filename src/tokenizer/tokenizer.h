/* tokenizer.h: text to token ids and back; BPE of bytes, or of characters with bytes to fall back on
 * (Gemma 4, in which U+2581 is a space).
 *
 *     text ─ added tokens cut out ─ normalised ─ split into pieces ─ merged ─ ids
 *            "<|im_start|>"          NFC or not   " quick", "'ll"     BPE
 *
 * Every byte string has an encoding, which decodes to the same bytes (or their NFC form if the
 * tokenizer normalises).  A byte that is not UTF-8 counts as a character of no class and is kept.
 *
 * Lifetime: a tokenizer copies what it needs from its source.
 * Threads:  immutable to callers after opening; may be shared. */
#ifndef TOKENIZER_TOKENIZER_H
#define TOKENIZER_TOKENIZER_H

#include "base/common.h"
#include "moeflux.h"

#include <jansson.h>

struct tokenizer;

/* Which added tokens ("<think>", "<|im_end|>") are recognised in a text. */
enum special_mode {
    SPECIAL_PARSE,   /* all */
    SPECIAL_AS_TEXT, /* those marked special are plain text: for untrusted text */
    SPECIAL_NONE     /* none */
};

/* A growing list; all zeros is an empty one. */
struct token_list {
    int32_t *ids;
    size_t count, capacity;
};
void token_list_free(struct token_list *list);
mf_status token_list_append(struct token_list *list, int32_t id, mf_error *why);

/* ---------------------------------------------------------------- opening */

/* From `directory`/tokenizer.json, or tiktoken.model where there is none; the BOS rule comes from
 * `config`, the parsed tokenizer_config.json (NULL: there is none).  *out is NULL after a
 * failure. */
mf_status tokenizer_open_configured_new(struct tokenizer **out, const mf_files *files,
                                        const char *directory, const json_t *config, mf_error *why);

/* Parses `directory`/tokenizer_config.json; NULL in *out where there is no such file. */
mf_status tokenizer_config_read_new(json_t **out, const mf_files *files, const char *directory,
                                    mf_error *why);

/* The ancestors' files: `directory` with tokenizer.bin or, for decoding only, vocab.bin. */
struct ancestors_tokenizer {
    const char *directory;
    const json_t *config;      /* tokenizer_config.json, which has the BOS rule; may be NULL */
    const char *pre_tokenizer; /* how texts are split, as in struct tokenizer_tables: the
                                   * files do not say it */
};

/* If neither file exists: MF_OK and *out == NULL. */
mf_status tokenizer_open_ancestors_new(struct tokenizer **out, const mf_files *files,
                                       const struct ancestors_tokenizer *packed, mf_error *why);

/* Whether `directory` has a file that tokenizer_open_configured_new can read. */
mf_status tokenizer_probe(bool *present, const mf_files *files, const char *directory,
                          mf_error *why);

/* From the text of a tokenizer.json; `where` names it in messages. */
mf_status tokenizer_parse_new(struct tokenizer **out, const char *json, size_t length,
                              const char *where, mf_error *why);

/* Bytes that need not be terminated. */
struct text_span {
    const char *text;
    size_t length;
};

/* The numbers are those of tokenizer.ggml.token_type. */
enum token_type {
    TOKEN_NORMAL = 1,
    TOKEN_UNKNOWN = 2,
    TOKEN_CONTROL = 3,      /* added, special; the text is literal */
    TOKEN_USER_DEFINED = 4, /* added, visible; the text is literal */
    TOKEN_UNUSED = 5,       /* filler: never produced */
    TOKEN_BYTE = 6          /* "<0x0A>" */
};

/* A vocabulary as in GGUF metadata or the ancestors' tokenizer.bin and vocab.bin.  Borrowed for the
 * call. */
struct tokenizer_tables {
    const struct text_span *tokens; /* [token_count], index = id; length 0: no such token */
    size_t token_count;
    const int32_t *types; /* [token_count] enum token_type; NULL: all normal */
    /* In order of rank.  With merge_rights a merge is merges[i] + merge_rights[i]; without,
     * merges[i] is "left right", cut at the first space after its first byte. */
    const struct text_span *merges;       /* [merge_count] */
    const struct text_span *merge_rights; /* [merge_count] or NULL */
    size_t merge_count;
    const char *pre_tokenizer; /* tokenizer.ggml.pre: "qwen2", "deepseek-v3", … */
    bool add_bos;
    int32_t bos_id;  /* -1: none */
    bool bytes_only; /* tokens are plain bytes, not byte-level strings (vocab.bin): decoding
                        * only, merges and pre_tokenizer are not looked at */
};
mf_status tokenizer_from_tables_new(struct tokenizer **out, const struct tokenizer_tables *tables,
                                    const char *where, mf_error *why);

/* From the metadata of a GGUF file (checkpoint/gguf.h): tokenizer.ggml.*. */
struct metadata;
mf_status tokenizer_from_metadata_new(struct tokenizer **out, const struct metadata *metadata,
                                      mf_error *why);

void tokenizer_free(struct tokenizer *tokenizer);

/* --------------------------------------------------------------- encoding */

/* Appends the ids of `text`, without BOS.  After a failure `out` is unchanged.  Takes
 * O(length · log length) for any text. */
mf_status tokenizer_encode(struct token_list *out, const struct tokenizer *tokenizer,
                           const char *text, size_t length, enum special_mode mode, mf_error *why);

/* The same for text that is partly markup: added tokens are recognised only outside the ranges
 * `content`, which are ascending and disjoint.  If no range contains the text of an added token, the
 * ids are those of SPECIAL_PARSE. */
mf_status tokenizer_encode_marked(struct token_list *out, const struct tokenizer *tokenizer,
                                  struct text_span text, const mf_range *content,
                                  size_t content_count, mf_error *why);

/* The id to put before every prompt (BOS), or -1. */
int32_t tokenizer_bos(const struct tokenizer *tokenizer);

/* ----------------------------------------------------------------- tokens */

/* The bytes of a token, borrowed, not terminated; NULL for an id without a token. */
const char *tokenizer_token_bytes(const struct tokenizer *tokenizer, int32_t id, size_t *length);

/* As written in the file ("Ġthe"), borrowed, terminated; NULL for an id without a token. */
const char *tokenizer_token_text(const struct tokenizer *tokenizer, int32_t id);

/* Whether the token is marked special (control): not part of displayed text. */
bool tokenizer_is_special(const struct tokenizer *tokenizer, int32_t id);

/* The id of a token as written in the file; -1: there is none. */
int32_t tokenizer_find(const struct tokenizer *tokenizer, const char *token);

/* Highest id + 1.  A model's embedding may have more rows; these have no token. */
size_t tokenizer_size(const struct tokenizer *tokenizer);

/* -------------------------------------------------------------- streaming */

/* Streaming detokeniser: tokens in, whole characters out.  The first bytes of a character that a
 * token leaves incomplete are held back until the next token.  Bytes that cannot become a character
 * pass at once, so the output is exactly the tokens' bytes.  Initialise with zeroes. */
struct token_stream {
    uint8_t held[4];
    uint8_t held_count;
};

/* Bytes for the longest token and what a stream can hold back. */
size_t token_stream_capacity(const struct tokenizer *tokenizer);

/* Writes the bytes that are complete after token `id`; returns their number.  A `capacity` of
 * token_stream_capacity always suffices; with less, a token that does not fit is dropped.  An id
 * without a token gives 0 bytes. */
size_t token_stream_push(struct token_stream *stream, const struct tokenizer *tokenizer, int32_t id,
                         char *out, size_t capacity);

/* At the end: writes the bytes still held, at most 3, of an incomplete character. */
size_t token_stream_flush(struct token_stream *stream, char *out, size_t capacity);

#endif
