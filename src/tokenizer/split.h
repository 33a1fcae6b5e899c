/* split.h: cutting text into the pieces that BPE works on.
 *
 * A splitter is a list of steps; each cuts the pieces of the step before.  Text that a step does
 * not match becomes a piece of its own ("isolated").  A step is a pattern run by PCRE2, or, for the
 * patterns of known models, a function with the same result in linear time.
 *
 *     steps   \p{N}{1,3}        [一-龥…]+         …\s+(?!\S)|\s+
 *     "上海 2024"  →  "上海 " "202" "4"  →  "上海" " " "202" "4"  →  "上海" " " "202" "4"
 *
 * Threads: immutable once made; a split_run belongs to one call. */
#ifndef TOKENIZER_SPLIT_H
#define TOKENIZER_SPLIT_H

#include "base/common.h"
#include "moeflux.h"

struct split_regex; /* a compiled pattern */

/* The end of the piece that begins at `at` < `end`.  The text may hold any bytes. */
typedef const char *(*split_function)(const char *at, const char *end);

enum split_keep { SPLIT_KEEP_ALL, SPLIT_DROP_MATCHES, SPLIT_DROP_GAPS };

struct split_step {
    split_function next;       /* NULL: by `regex` */
    struct split_regex *regex; /* owned */
    enum split_keep keep;
};

enum { SPLIT_STEPS_MAX = 16 };

struct splitter {
    struct split_step steps[SPLIT_STEPS_MAX];
    size_t count;
    bool has_regex;
};

/* Appends a step for `pattern` in the syntax of tokenizer.json.  `by_hand` false: PCRE2 even
 * for a known pattern (tests compare the two). */
mf_status splitter_add(struct splitter *splitter, const char *pattern, enum split_keep keep,
                       bool by_hand, const char *where, mf_error *why);
void splitter_free(struct splitter *splitter);

/* Receives one piece; a status other than MF_OK stops the split and is returned. */
typedef mf_status (*piece_function)(void *context, const char *piece, size_t length, mf_error *why);

/* Calls `piece` for every piece of `text`, in order.  A byte that is not UTF-8 counts as a character
 * without properties and is passed on unchanged. */
mf_status splitter_run(const struct splitter *splitter, const char *text, size_t length,
                       piece_function piece, void *context, mf_error *why);

/* The function for a known pattern, or NULL (split_known.c). */
split_function split_known_find(const char *pattern, enum split_keep keep);

/* The known patterns by index; NULL after the last. */
const char *split_known_pattern(size_t index);

/* The pattern in the syntax of PCRE2; release with free() (split_pattern.c). */
mf_status split_pattern_rewrite_new(char **out, const char *pattern, const char *where,
                                    mf_error *why);

/* Patterns of published tokenizers. */
extern const char split_gpt2[], split_qwen2[], split_qwen35[], split_llama3[], split_kimi[],
    split_gpt4o[], split_deepseek_v3[], split_cjk[], split_number[], split_number3[],
    split_punctuation[];

/* Unicode White_Space, and letters, marks, digits, connectors (Rust's \w). */
bool character_is_space(uint32_t character);
bool character_is_word(uint32_t character);

#endif
