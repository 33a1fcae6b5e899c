/* vocabulary.h: the tokens of a tokenizer, ordered for masking.
 *
 * All tokens are in one prefix tree of their bytes.  The nodes are in depth-first order: a walk that
 * does not descend below a node continues at `skip`, otherwise at the next node:
 *
 *     node   byte depth skip  tokens        the tokens "a", "ab", "ac", "b"
 *      0      -    0     5                  tokens of node i: sorted[first_token of i] up to
 *      1      a    1     4    a             sorted[first_token of i + 1]
 *      2      b    2     3    ab
 *      3      c    2     4    ac
 *      4      b    1     5    b
 *      5     (end)
 *
 * Built once per tokenizer.  The caller gives no bytes for tokens that must never be chosen, such as
 * special tokens and padding.
 *
 * Lifetimes: immutable once made.  Threads: shared freely. */
#ifndef GRAMMAR_VOCABULARY_H
#define GRAMMAR_VOCABULARY_H

#include "base/arena.h"

enum { GRAMMAR_TOKEN_BYTES_LIMIT = 1024 }; /* longer tokens are never allowed */

struct vocabulary_node {
    uint32_t skip;        /* the first node that is not below this one */
    uint32_t first_token; /* in `sorted` */
    uint16_t depth;       /* bytes from the root */
    uint8_t byte;         /* that leads here */
};

struct grammar_vocabulary {
    struct arena arena;
    size_t token_count; /* ids are below */
    size_t mask_words;
    struct vocabulary_node *nodes; /* [node_count + 1], the last one closes the ranges */
    size_t node_count;
    uint32_t *sorted;     /* [sorted_count]: token ids in the order of their bytes */
    uint32_t *token_node; /* [token_count]: where a token ends; 0: it has no bytes */
    size_t sorted_count;
    int32_t *end_tokens; /* [end_count]: allowed when the text may end */
    size_t end_count;
    uint16_t longest; /* bytes of the longest token */
};

struct vocabulary_source {
    size_t token_count; /* ids 0 … token_count-1 are asked for their bytes */
    /* Borrowed until the next call; NULL or no bytes: never allowed. */
    const char *(*bytes)(void *user, int32_t id, size_t *length);
    void *user;
    const int32_t *end_tokens; /* allowed exactly when the text is complete, bytes or not */
    size_t end_count;
};

/* `source` is used during the call only.  On failure *out is NULL. */
mf_status grammar_vocabulary_new(struct grammar_vocabulary **out, const mf_allocator *allocator,
                                 const struct vocabulary_source *source, mf_error *why);
void grammar_vocabulary_free(struct grammar_vocabulary *vocabulary);

/* The child of `node` for `byte`, or 0. */
uint32_t vocabulary_child(const struct grammar_vocabulary *vocabulary, uint32_t node, uint8_t byte);

/* The bytes of a token that has some, into out[GRAMMAR_TOKEN_BYTES_LIMIT]; their count. */
size_t vocabulary_spell(const struct grammar_vocabulary *vocabulary, uint8_t *out, int32_t token);

#endif
