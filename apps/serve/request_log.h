/* request_log.h: a line on stderr for each answer (--log), with its prompt only if that is asked for
 * (--log-prompts). */
#ifndef SERVE_REQUEST_LOG_H
#define SERVE_REQUEST_LOG_H

#include "serve/ask.h"

/* `prompt` NULL: it was given as ids. */
void request_log_begin(const struct ask *ask, const mf_prompt *prompt);
void request_log_end(const struct ask *ask, uint32_t choice, const mf_request_result *result);

#endif
