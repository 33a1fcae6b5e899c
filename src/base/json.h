/* json.h: reading untrusted JSON.
 *
 * jansson parses; these helpers refuse duplicate keys, bound sizes and name the file and the field
 * in messages.  `where` is the name of the file or text that a value came from. */
#ifndef BASE_JSON_H
#define BASE_JSON_H

#include "base/common.h"
#include "moeflux.h"

#include <jansson.h>

/* The parsed value; the caller owns it (json_decref). */
mf_status json_parse_new(json_t **out, const char *text, size_t length, const char *where,
                         mf_error *why);
mf_status json_read_file_new(json_t **out, const mf_files *files, const char *path, size_t limit,
                             mf_error *why);

/* The object in the file `directory`/`name`; a missing file gives MF_OK and *out == NULL. */
mf_status json_read_maybe_new(json_t **out, const mf_files *files, const char *directory,
                              const char *name, size_t limit, mf_error *why);

/* A required field: a whole number from `low` to `high`. */
mf_status json_need_count(uint64_t *out, const json_t *object, const char *key, uint64_t low,
                          uint64_t high, const char *where, mf_error *why);

/* Optional fields: *out is unchanged if the field is absent or null. */
mf_status json_maybe_count(uint64_t *out, const json_t *object, const char *key, uint64_t low,
                           uint64_t high, const char *where, mf_error *why);
mf_status json_maybe_real(double *out, const json_t *object, const char *key, const char *where,
                          mf_error *why);
mf_status json_maybe_flag(bool *out, const json_t *object, const char *key, const char *where,
                          mf_error *why);
/* *out is borrowed from `object`. */
mf_status json_maybe_text(const char **out, const json_t *object, const char *key,
                          const char *where, mf_error *why);

/* Reads an array of whole numbers into out[limit].  False if `value` is no such array, is longer,
 * or has a number above 2^53, which a writer that uses doubles cannot represent exactly. */
bool json_whole_numbers(uint64_t *out, uint32_t *count, uint32_t limit, const json_t *value);

/* "a string", "an object", … for messages. */
const char *json_kind(const json_t *value);

#endif
