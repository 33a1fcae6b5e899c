/* internal.h: declarations shared by the files of the tokenizer.
 *
 *     tokenizer.c        encoding, queries, free
 *     vocabulary.c       tokens: id to text and bytes, bytes to id
 *     bpe.c              merges
 *     added.c            finds added tokens in a text
 *     normalise.c        NFC; SentencePiece's sign for a space
 *     stream.c           streaming detokeniser
 *     split.c            cuts text into pieces, with PCRE2 …
 *     split_pattern.c    … after rewriting patterns to its syntax
 *     split_known.c      … or with functions for the patterns of known models
 *     open.c             chooses the file of a directory
 *     load_json.c, load_tiktoken.c, load_ancestors.c   read it
 *     tables.c, load_gguf.c                            from arrays, from GGUF metadata */
#ifndef TOKENIZER_INTERNAL_H
#define TOKENIZER_INTERNAL_H

#include "base/array.h"
#include "base/json.h"
#include "tokenizer/split.h"
#include "tokenizer/tokenizer.h"

enum {
    TOKEN_ID_LIMIT = 1 << 22,        /* no vocabulary is near it; bounds memory */
    TOKEN_TEXT_LIMIT = 1 << 16,      /* bytes of one token */
    TEXT_LIMIT = 1 << 30,            /* bytes of one text to encode */
    ADDED_TEXT_LIMIT = 512,          /* bytes of an added token: bounds the scan per position */
    TOKENIZER_FILE_LIMIT = 256 << 20 /* bytes of a tokenizer.json */
};

/* ------------------------------------------------------------------- vocabulary */

enum token_flag {
    TOKEN_PRESENT = 1,
    TOKEN_SPECIAL = 2, /* not shown */
    TOKEN_ADDED = 4,   /* found in a text before it is split; its text is literal */
    TOKEN_HIDDEN = 8   /* has no part in encoding (GGUF filler) */
};

/* Offsets into the vocabulary's blob. */
struct token_entry {
    uint32_t text, text_length;
    uint32_t bytes, bytes_length;
    uint8_t flags;
};

struct vocabulary {
    struct token_entry *entries; /* [size], by id */
    size_t size, capacity;
    struct byte_buffer blob;
    struct token_bucket *buckets; /* open addressing over the bytes of entries */
    size_t bucket_mask;
    size_t longest;    /* bytes of a token */
    bool spaces;       /* texts are no byte-level strings: U+2581 in them is a space */
    uint64_t id_limit; /* ids are below it; 0: TOKEN_ID_LIMIT */
};

/* Upper bound of the ids in a file of `bytes`: ids may have gaps, but a short file must not cause a
 * large allocation. */
static inline uint64_t vocabulary_id_limit(size_t bytes)
{
    return min_size(bytes + 4096, TOKEN_ID_LIMIT);
}

/* Adds a token whose text is a byte-level string, or literal.  A second one with the same
 * id is an error that names `where`. */
mf_status vocabulary_add(struct vocabulary *vocabulary, uint64_t id, struct text_span text,
                         bool literal, const char *where, mf_error *why);
/* Builds the index by bytes, without special and hidden tokens.  `unique`: two tokens with the same
 * text are an error; otherwise the lowest id is found. */
mf_status vocabulary_index(struct vocabulary *vocabulary, bool unique, const char *where,
                           mf_error *why);
void vocabulary_free(struct vocabulary *vocabulary);
/* Makes token `id` decode to one byte, regardless of its text. */
void vocabulary_make_byte(struct vocabulary *vocabulary, int32_t id, uint8_t byte);

/* -1: there is none. */
int32_t vocabulary_find(const struct vocabulary *vocabulary, const char *bytes, size_t length);
const struct token_entry *vocabulary_entry(const struct vocabulary *vocabulary, int64_t id);

/* The bytes that a byte-level string stands for; false when a character of it stands for
 * none.  `out` has room for `text.length` bytes. */
bool byte_level_decode(char *out, size_t *length, struct text_span text);
/* The bytes that a token's text stands for in this vocabulary; the same room. */
void vocabulary_decode(const struct vocabulary *vocabulary, char *out, size_t *length,
                       struct text_span text);
/* The other way: appends the string of `bytes`. */
mf_status byte_level_append(struct byte_buffer *out, struct text_span bytes, mf_error *why);

/* ----------------------------------------------------------------------- merges */

#define RANK_NONE UINT32_MAX

struct merge {
    uint32_t left, right; /* ids; left RANK_NONE: an empty bucket */
    uint32_t rank, result;
};

struct merge_table {
    struct merge *buckets; /* open addressing over (left, right) */
    uint8_t *filter;       /* most pairs are not merged, and this says so from a nearer cache */
    size_t mask, count;
};

/* Room for `count` in all, so that there is always an empty bucket. */
mf_status merge_table_reserve(struct merge_table *table, size_t count, mf_error *why);
/* The last of equal pairs counts. */
mf_status merge_table_put(struct merge_table *table, struct merge merge, mf_error *why);
void merge_table_free(struct merge_table *table);
/* NULL: the two are not merged. */
const struct merge *merge_table_find(const struct merge_table *table, uint32_t left,
                                     uint32_t right);

/* ----------------------------------------------------------------- added tokens */

struct added_token {
    struct text_span text; /* borrowed from the vocabulary once indexed */
    int32_t id;
    bool special, normalised, single_word, strip_left, strip_right;
};

/* Sorted by text, so that the tokens that begin with given bytes are a range. */
struct added_set {
    struct added_token *tokens;
    size_t count, capacity;
    uint32_t first[257]; /* tokens that begin with byte b: first[b] .. first[b + 1] */
};

mf_status added_set_add(struct added_set *set, struct added_token token, mf_error *why);
void added_set_sort(struct added_set *set);
void added_set_free(struct added_set *set);
int32_t added_set_find(const struct added_set *set, struct text_span text);

/* Parts of a text in which no added token is looked for; offsets of the list count from `origin`
 * bytes before the text. */
struct content_ranges {
    const mf_range *list; /* ascending */
    size_t count;
    size_t origin;
};

/* Where content begins at or behind `at`: `at` itself inside of a range; SIZE_MAX: nowhere. */
size_t content_begin(const struct content_ranges *content, size_t at);

struct added_search {
    struct text_span text;
    enum special_mode mode;
    struct content_ranges content;
};

/* An added token in a text: bytes [begin, end), white space that it strips included. */
struct added_match {
    size_t begin, end;
    int32_t id;
};

/* The first match in text[from..], leftmost and then longest; false: there is none.  What
 * `mode` or single_word rules out is passed over whole. */
bool added_set_next(struct added_match *out, const struct added_set *set,
                    const struct added_search *search, size_t from);

/* ---------------------------------------------------------------- normalisation */

/* True when `text` is known to be in NFC (false: it may not be). */
bool text_is_nfc(const char *text, size_t length);
/* Appends the NFC form; bytes that are not UTF-8 are kept. */
mf_status text_append_nfc(struct byte_buffer *out, const char *text, size_t length, mf_error *why);

/* SentencePiece writes a space as U+2581 and does not tell the two apart in a text.  Here both are
 * the space. */
#define SPACE_SIGN "\xE2\x96\x81"
bool text_has_space_sign(const char *text, size_t length);
/* The text with spaces in place of the signs; `out` has room for `length` bytes.  Returns its length. */
size_t text_replace_space_signs(char *out, const char *text, size_t length);

/* -------------------------------------------------------------------- the whole */

struct tokenizer {
    struct vocabulary vocabulary;
    struct merge_table merges;
    int32_t byte_ids[256]; /* -1: the vocabulary lacks it, U+FFFD is encoded instead */
    bool ignore_merges;    /* a piece that is a token is that token */
    bool decode_only;
    bool nfc;
    bool spaces; /* as in SentencePiece: characters are merged, bytes stand in for those that are
                  * no token, and U+2581 is a space */
    struct added_set added;            /* found in the raw text */
    struct added_set added_normalised; /* found after normalisation */
    struct splitter splitter;
    int32_t bos;         /* -1: none */
    int32_t last_result; /* of tokenizer_add_merge */
    /* Per token: does BPE make it from its bytes?  Answers are found when first needed and
     * never change, so that racing threads can only write the same value. */
    _Atomic uint8_t *whole; /* enum whole_state */
};

enum whole_state { WHOLE_UNKNOWN, WHOLE_YES, WHOLE_NO };

/* A tokenizer without tokens: bos -1, everything else zero. */
mf_status tokenizer_blank_new(struct tokenizer **out, mf_error *why);

/* Once all tokens, added tokens and the splitter are there, before merges: builds the index. */
mf_status tokenizer_index(struct tokenizer *tokenizer, bool unique, const char *where,
                          mf_error *why);
/* Adds merge `rank` of two byte-level strings. */
mf_status tokenizer_add_merge(struct tokenizer *tokenizer, struct text_span left,
                              struct text_span right, uint32_t rank, const char *where,
                              mf_error *why);
/* Finds the ids of the 256 bytes; `fallback` lets "<0x0A>" stand for a byte, which it always does
 * with `spaces`. */
void tokenizer_bind_bytes(struct tokenizer *tokenizer, bool fallback);

/* An added token: joins the vocabulary if it is not there, and the set that looks for it. */
mf_status tokenizer_add_token(struct tokenizer *tokenizer, const struct added_token *token,
                              uint64_t id, const char *where, mf_error *why);

/* "a b": cut at the first space that is not its first byte; false when it cannot be. */
bool tokenizer_cut_merge(struct text_span *left, struct text_span *right, struct text_span text);

/* The BOS rule of a parsed tokenizer_config.json; NULL: none. */
mf_status tokenizer_read_config(struct tokenizer *tokenizer, const json_t *config, mf_error *why);

/* Kimi's tiktoken.model: lines of "base64 rank"; added tokens from `config`, the parsed
 * tokenizer_config.json, which may be NULL. */
mf_status tokenizer_open_tiktoken_new(struct tokenizer **out, const mf_files *files,
                                      const char *path, const json_t *config, mf_error *why);

/* ------------------------------------------------------------------- BPE of a piece */

/* Scratch of one encode call; all zeros to begin with. */
struct bpe_scratch {
    struct bpe_symbol *symbols;
    size_t symbol_capacity;
    uint64_t *heap;
    size_t heap_count, heap_capacity;
};
void bpe_scratch_free(struct bpe_scratch *scratch);

mf_status bpe_encode_piece(struct token_list *out, struct bpe_scratch *scratch,
                           const struct tokenizer *tokenizer, struct text_span piece,
                           mf_error *why);

/* "%.*s" arguments of a span, cut to what a message can bear. */
#define SPAN_ARGS(span) (int)min_size((span).length, 64), (span).text

#endif
