#include "serve/api.h"

#include "common/basics.h"

#include <stdlib.h>

static const struct api *const apis[] = { &anthropic_messages_api, &openai_chat_api,
                                          &openai_completions_api, &openai_responses_api };

const struct api *api_find(const char *path)
{
    for (size_t i = 0; i < COUNT_OF(apis); i++)
        if (strcmp(apis[i]->path, path) == 0) return apis[i];
    return NULL;
}

static bool read_ask(const struct api *api, struct ask *ask, void **state, struct failure *failure)
{
    return api->read_state ? api->read_state(ask, state, failure) : api->read(ask, failure);
}

static void drop(const struct api *api, struct ask *ask, void *state)
{
    if (api->writer->free_state) api->writer->free_state(state);
    ask_close(ask);
    free(ask);
}

void api_serve(const struct api *api, struct serve *serve, struct exchange *exchange)
{
    struct ask *ask = malloc(sizeof *ask);
    struct failure failure;
    void *state = NULL;

    if (!ask) return; /* the reply is "no memory" */
    if (ask_open(ask, serve, exchange, api->dialect, &failure) &&
        read_ask(api, ask, &state, &failure)) {
        deliver(serve, exchange, ask, api->writer, state);
        return;
    }
    failure_reply(exchange, api->dialect, &failure);
    drop(api, ask, state);
}

json_t *api_call_new(unsigned *status, const struct api *api, struct serve *serve,
                     const struct api_call *call)
{
    struct ask *ask = malloc(sizeof *ask);
    struct failure failure;
    void *state = NULL;

    *status = 500;
    if (!ask) {
        json_decref(call->body);
        return NULL;
    }
    bool done = ask_open_body(ask, serve, call->body, api->dialect, &failure);
    if (done && call->seed) ask->sampling.seed = call->seed;
    ask->background = call->background;
    ask->owner = call->owner;
    ask->client = call->owner;
    ask->stop = call->stop;
    done = done && read_ask(api, ask, &state, &failure);
    if (done && ask->stream)
        done = refuse_code(&failure, "invalid_value", "stream",
                           "\"stream\" is not possible in a batch");
    if (done) return deliver_now(status, serve, ask, api->writer, state);
    *status = failure_status(&failure);
    json_t *body = failure_json_new(&failure, api->dialect, NULL);
    drop(api, ask, state);
    return body;
}
