/* json.h: reading JSON in the programs: messages, tools, lines of --jsonl. */
#ifndef COMMON_JSON_H
#define COMMON_JSON_H

#include "common/error.h"

#include <jansson.h>

/* The value of a text; `where` names it in messages.  The caller owns it; NULL after a failure. */
mf_status json_text_read_new(json_t **out, const char *text, size_t length, const char *where,
                             mf_error *why);

/* "nothing", "null", "a number", …: for messages. */
const char *json_type_name(const json_t *value);

/* A key that may be absent, then *out stays as it is; any other type is MF_ERR_FORMAT. */
mf_status json_field_text(const char **out, const json_t *object, const char *key,
                          const char *where, mf_error *why);
mf_status json_field_flag(bool *out, const json_t *object, const char *key, const char *where,
                          mf_error *why);

#endif
