/* token_vectors.h: strings and the ids they must become, from .jsonl files.
 *
 * Every function fails the running test when something is wrong. */
#ifndef SUPPORT_TOKEN_VECTORS_H
#define SUPPORT_TOKEN_VECTORS_H

#include "base/json.h"
#include "tokenizer/tokenizer.h"

/* The whole file, to be freed. */
char *vectors_read(const char *path, size_t *length);

/* Calls `check` with every line of the file; how many there were. */
size_t vectors_for_each(const char *path, void (*check)(const json_t *line, const void *with),
                        const void *with);

/* Encodes and compares; the ids of `text`, to be freed. */
struct token_list vectors_encode(const struct tokenizer *tokenizer, const char *text, size_t length,
                                 enum special_mode mode);
void vectors_assert_ids(const struct token_list *ids, const json_t *wanted, const char *name);

/* The ids under `key` of every line, or under `usual` where it is absent, for its "text". */
struct vector_case {
    const struct tokenizer *tokenizer;
    enum special_mode mode;
    const char *key, *usual;
};
void vectors_check_line(const json_t *line, const void *vector_case);

/* All three modes of a vectors.jsonl. */
void vectors_check(const char *path, const struct tokenizer *tokenizer);

#endif
