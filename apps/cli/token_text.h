/* token_text.h: token ids as people and scripts write them, "1,2,3". */
#ifndef CLI_TOKEN_TEXT_H
#define CLI_TOKEN_TEXT_H

#include "common/lists.h"

#include <stdio.h>

/* The ids of `text`: whole numbers of 0 or more, separated by commas (spaces around
 * them are allowed); an empty list is MF_ERR_ARGUMENT, as is anything else. */
mf_status tokens_parse(struct id_list *out, const char *text, mf_error *why);

/* MF_ERR_ARGUMENT naming the first id that is not below `vocab_size`. */
mf_status tokens_check(const struct id_list *list, size_t vocab_size, mf_error *why);

/* "1,2,3" and a newline. */
void tokens_print(FILE *out, const int32_t *ids, size_t count);

#endif
