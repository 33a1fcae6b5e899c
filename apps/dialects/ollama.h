/* ollama.h: what the files of Ollama's API share.
 *
 * Replies are objects, or lines of them; `stream` is true unless a request says otherwise. */
#ifndef DIALECTS_OLLAMA_H
#define DIALECTS_OLLAMA_H

#include "serve/deliver.h"

/* The loaded model is "NAME" or "NAME:latest"; other names are refused with --strict-model. */
bool ollama_read_model(const struct serve *serve, const json_t *body, struct failure *failure);

/* The name in a reply: the request's where it is that of the model, else the model's own. */
const char *ollama_name(const struct serve *serve, const json_t *body);

/* The present time, as in "2026-11-18T20:00:00.123456789Z". */
json_t *ollama_time_new(void);

/* How answers are written (ollama_reply.c). */
extern const struct writer ollama_chat_writer, ollama_generate_writer;

/* The reply to a request without a prompt, which asks for the model to be loaded. */
json_t *ollama_loaded_new(const struct ask *ask, const struct writer *writer);

#endif
