/* handlers.h: the handlers that routes.c names, by file.  Each replies to its exchange. */
#ifndef SERVE_HANDLERS_H
#define SERVE_HANDLERS_H

#include "batch/batches.h"
#include "batch/files.h"
#include "serve/metrics.h"
#include "view/registry.h"
#include "serve/serve.h"

void anthropic_messages(struct serve *serve, struct exchange *exchange); /* anthropic_messages.c */
void anthropic_count(struct serve *serve, struct exchange *exchange);

void ollama_chat(struct serve *serve, struct exchange *exchange); /* ollama.c */
void ollama_generate(struct serve *serve, struct exchange *exchange);

void ollama_tags(struct serve *serve, struct exchange *exchange); /* ollama_models.c */
void ollama_ps(struct serve *serve, struct exchange *exchange);
void ollama_show(struct serve *serve, struct exchange *exchange);
void ollama_version(struct serve *serve, struct exchange *exchange);
void ollama_embed(struct serve *serve, struct exchange *exchange);
void ollama_absent(struct serve *serve, struct exchange *exchange);

void openai_chat(struct serve *serve, struct exchange *exchange);        /* openai_chat.c */
void openai_completions(struct serve *serve, struct exchange *exchange); /* openai_completions.c */

void experts_reply(struct serve *serve, struct exchange *exchange); /* experts_view.c */
void whatif_reply(struct serve *serve, struct exchange *exchange);  /* experts_whatif.c */

void info_reply(struct serve *serve, struct exchange *exchange); /* info.c */

void openai_responses(struct serve *serve, struct exchange *exchange); /* openai_responses.c */
void openai_responses_count(struct serve *serve, struct exchange *exchange);
void openai_responses_absent(struct serve *serve, struct exchange *exchange);

void health(struct serve *serve, struct exchange *exchange); /* models.c */
void models_list(struct serve *serve, struct exchange *exchange);
void models_one(struct serve *serve, struct exchange *exchange);
void embeddings(struct serve *serve, struct exchange *exchange);

void page_reply(struct serve *serve, struct exchange *exchange); /* page_reply.c */

void tokens_tokenize(struct serve *serve, struct exchange *exchange); /* tokens.c */
void tokens_detokenize(struct serve *serve, struct exchange *exchange);
void tokens_template(struct serve *serve, struct exchange *exchange);

#endif
