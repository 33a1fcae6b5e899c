#include "serve/api.h"

#include "common/basics.h"

#include <stdlib.h>

static const struct api *const apis[] = { &openai_chat_api };

const struct api *api_find(const char *path)
{
    for (size_t i = 0; i < COUNT_OF(apis); i++)
        if (strcmp(apis[i]->path, path) == 0) return apis[i];
    return NULL;
}

static void drop(struct ask *ask)
{
    ask_close(ask);
    free(ask);
}

void api_serve(const struct api *api, struct serve *serve, struct exchange *exchange)
{
    struct ask *ask = malloc(sizeof *ask);
    struct failure failure;

    if (!ask) return; /* the reply is "no memory" */
    if (ask_open(ask, serve, exchange, api->dialect, &failure) && api->read(ask, &failure)) {
        deliver(serve, exchange, ask, api->writer, NULL);
        return;
    }
    failure_reply(exchange, api->dialect, &failure);
    drop(ask);
}

json_t *api_call_new(unsigned *status, const struct api *api, struct serve *serve,
                     const struct api_call *call)
{
    struct ask *ask = malloc(sizeof *ask);
    struct failure failure;

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
    done = done && api->read(ask, &failure);
    if (done && ask->stream)
        done = refuse_code(&failure, "invalid_value", "stream",
                           "\"stream\" is not possible in a batch");
    if (done) return deliver_now(status, serve, ask, api->writer, NULL);
    *status = failure_status(&failure);
    json_t *body = failure_json_new(&failure, api->dialect, NULL);
    drop(ask);
    return body;
}
