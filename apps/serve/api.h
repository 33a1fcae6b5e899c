/* api.h: an API as a table entry: how a body is read, and how the answer is written.  Handlers of
 * connections and of the lines of a batch are the same for all of them. */
#ifndef SERVE_API_H
#define SERVE_API_H

#include "serve/deliver.h"

struct api {
    const char *path; /* "/v1/chat/completions" */
    enum dialect dialect;
    bool (*read)(struct ask *ask, struct failure *failure);
    const struct writer *writer;
    /* In place of `read`, of an API whose deliveries have a state: makes it, too. */
    bool (*read_state)(struct ask *ask, void **state, struct failure *failure);
};

extern const struct api anthropic_messages_api; /* anthropic_messages.c */
extern const struct api ollama_chat_api;        /* ollama.c */
extern const struct api ollama_generate_api;
extern const struct api openai_chat_api;        /* openai_chat.c */
extern const struct api openai_completions_api; /* openai_completions.c */
extern const struct api openai_responses_api;   /* openai_responses.c */

/* NULL: there is none whose requests can be lines of a batch. */
const struct api *api_find(const char *path);

/* Answers an exchange. */
void api_serve(const struct api *api, struct serve *serve, struct exchange *exchange);

/* A request without a connection. */
struct api_call {
    json_t *body;    /* taken over */
    uint64_t seed;   /* unless the body has one; 0: a random one */
    bool background; /* after interactive requests */
    int stop;        /* readable when it is given up; -1: never */
    uint32_t owner;  /* guard_owner */
};

/* The body of the reply, and its status: 429 where the queue is full.  NULL: no memory. */
json_t *api_call_new(unsigned *status, const struct api *api, struct serve *serve,
                     const struct api_call *call);

#endif
