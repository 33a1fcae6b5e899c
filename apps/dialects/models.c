/* models.c: GET /health, /v1/models; and embeddings, which this server does not make. */
#include "serve/failure.h"
#include "serve/handlers.h"
#include "serve/reply.h"
#include "serve/routes.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

void health(struct serve *serve, struct exchange *exchange)
{
    size_t active = registry_active(serve->registry);
    enum serve_phase phase = atomic_load(&serve->phase);
    const char *state = phase == SERVE_LOADING              ? "loading"
                        : phase == SERVE_CLOSING            ? "closing"
                        : active >= serve->options.parallel ? "busy"
                                                            : "ready";

    reply_json(exchange, phase == SERVE_READY ? 200 : 503,
               json_pack("{s:s, s:I, s:s}", "status", state, "requests", (json_int_t)active,
                         "version", mf_version()));
}

/* One object that the clients of both APIs read. */
static json_t *model_new(const struct serve *serve)
{
    const char *name = mf_model_name(serve->model);
    time_t now = time(NULL);
    struct tm parts;
    char date[32];

    gmtime_r(&now, &parts);
    strftime(date, sizeof date, "%Y-%m-%dT00:00:00Z", &parts);
    return json_pack("{s:s, s:s, s:I, s:s, s:s, s:s, s:s, s:i, s:i, s:i, s:i, s:s, s:n}", "id",
                     name, "object", "model", "created", (json_int_t)now, "owned_by", "moeflux",
                     "type", "model", "display_name", name, "created_at", date, "max_input_tokens",
                     (int)serve->context, "max_tokens", (int)serve->context, "max_model_len",
                     (int)serve->context, "context_length", (int)serve->context, "lifecycle",
                     "active", "capabilities");
}

void models_list(struct serve *serve, struct exchange *exchange)
{
    const char *name = mf_model_name(serve->model);

    reply_json(exchange, 200,
               json_pack("{s:s, s:[o], s:b, s:s, s:s}", "object", "list", "data", model_new(serve),
                         "has_more", 0, "first_id", name, "last_id", name));
}

void models_one(struct serve *serve, struct exchange *exchange)
{
    const char *name = route_path(exchange_path(exchange)) + strlen("/models/");
    struct failure failure;

    if (strcmp(name, mf_model_name(serve->model)) == 0) {
        reply_json(exchange, 200, model_new(serve));
        return;
    }
    refuse(&failure, FAILURE_NOT_FOUND, "model",
           "The model `%.100s` does not exist: this server has %s", name,
           mf_model_name(serve->model));
    failure.code = "model_not_found";
    bool anthropic = exchange_header(exchange, "anthropic-version") != NULL;
    failure_reply(exchange, anthropic ? DIALECT_ANTHROPIC : DIALECT_OPENAI, &failure);
}

void embeddings(struct serve *serve, struct exchange *exchange)
{
    struct failure failure;

    (void)serve;
    refuse(&failure, FAILURE_IMPOSSIBLE, NULL,
           "this server generates text and makes no embeddings");
    failure_reply(exchange, DIALECT_OPENAI, &failure);
}
