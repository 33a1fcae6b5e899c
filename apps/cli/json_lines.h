/* json_lines.h: `--jsonl`, one JSON object per line in and one per line out, so that
 * thousands of cases are one process. */
#ifndef CLI_JSON_LINES_H
#define CLI_JSON_LINES_H

#include "common/json.h"

/* Answers one object: *out is a new value to print, or the line failed. */
typedef mf_status (*json_line_function)(json_t **out, const json_t *in, void *user, mf_error *why);

/* Every line of stdin through `answer`, every answer on stdout; empty lines are passed
 * over.  A line that is not an object, or whose answer fails, gives
 * {"error":{"kind":…,"message":…}} in its place, so that answers stay in step with the
 * lines.  Returns the exit status: EXIT_FAILED if any line failed in this way. */
int json_lines_run(json_line_function answer, void *user);

/* The same for answers that are JSON text already: *out is terminated and freed with free(). */
typedef mf_status (*json_text_function)(char **out, const json_t *in, void *user, mf_error *why);
int json_lines_run_text(json_text_function answer, void *user);

/* The tools that a model may call: the JSON array in a file, or in its "tools". */
mf_status tools_read_new(json_t **out, const char *path, mf_error *why);

/* The same as JSON text; freed with free(). */
mf_status tools_text_new(char **out, const char *path, mf_error *why);

/* The bytes that "48656c6c6f" spells; freed with free(). */
mf_status hex_decode_new(char **out, size_t *length, const char *hex, mf_error *why);

/* A JSON string of two hexadecimal digits per byte; NULL: no memory. */
json_t *hex_encode_new(const char *bytes, size_t length);

/* Compact, keys in their order, no character inside that any reader takes for a line break; then a
 * newline. */
void json_print_line(const json_t *value);
void json_print_text(const char *text); /* compact JSON as text; NULL: only the newline */

#endif
