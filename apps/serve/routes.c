#include "serve/routes.h"

#include "common/basics.h"
#include "serve/handlers.h"

static const struct route routes[] = {
    { "GET", "/", page_reply, DIALECT_OPENAI, ROUTE_PLAIN },
    { "GET", "/assets/", page_reply, DIALECT_OPENAI, ROUTE_PLAIN | ROUTE_PREFIX },
    { "POST", "/chat/completions", openai_chat, DIALECT_OPENAI, 0 },
    { "GET", "/batches", batches_list, DIALECT_OPENAI, 0 },
    { "POST", "/batches", batches_create, DIALECT_OPENAI, 0 },
    { "GET", "/batches/", batches_one, DIALECT_OPENAI, ROUTE_PREFIX },
    { "POST", "/batches/", batches_cancel, DIALECT_OPENAI, ROUTE_PREFIX },
    { "POST", "/completions", openai_completions, DIALECT_OPENAI, 0 },
    { "POST", "/embeddings", embeddings, DIALECT_OPENAI, 0 },
    { "GET", "/files", files_list, DIALECT_OPENAI, 0 },
    { "POST", "/files", files_upload, DIALECT_OPENAI, ROUTE_UPLOAD },
    { "GET", "/files/", files_one, DIALECT_OPENAI, ROUTE_PREFIX },
    { "DELETE", "/files/", files_delete, DIALECT_OPENAI, ROUTE_PREFIX },
    { "GET", "/health", health, DIALECT_OPENAI, ROUTE_OPEN },
    { "POST", "/messages", anthropic_messages, DIALECT_ANTHROPIC, 0 },
    { "POST", "/messages/count_tokens", anthropic_count, DIALECT_ANTHROPIC, 0 },
    { "GET", "/metrics", metrics_reply, DIALECT_OPENAI, ROUTE_PLAIN },
    { "GET", "/models", models_list, DIALECT_OPENAI, 0 },
    { "GET", "/models/", models_one, DIALECT_OPENAI, ROUTE_PREFIX },
    { "GET", "/moeflux/experts", experts_reply, DIALECT_OPENAI, 0 },
    { "GET", "/moeflux/info", info_reply, DIALECT_OPENAI, 0 },
    { "GET", "/moeflux/requests", registry_reply, DIALECT_OPENAI, 0 },
    { "GET", "/moeflux/whatif", whatif_reply, DIALECT_OPENAI, 0 },
    { "POST", "/responses", openai_responses, DIALECT_OPENAI, 0 },
    { "POST", "/responses/input_tokens", openai_responses_count, DIALECT_OPENAI, 0 },
    { "POST", "/responses/", openai_responses_absent, DIALECT_OPENAI, ROUTE_PREFIX },
    { "GET", "/responses/", openai_responses_absent, DIALECT_OPENAI, ROUTE_PREFIX },
    { "DELETE", "/responses/", openai_responses_absent, DIALECT_OPENAI, ROUTE_PREFIX },
    { "POST", "/api/blobs/", ollama_absent, DIALECT_OLLAMA, ROUTE_PLAIN | ROUTE_PREFIX },
    { "POST", "/api/chat", ollama_chat, DIALECT_OLLAMA, ROUTE_PLAIN },
    { "POST", "/api/copy", ollama_absent, DIALECT_OLLAMA, ROUTE_PLAIN },
    { "POST", "/api/create", ollama_absent, DIALECT_OLLAMA, ROUTE_PLAIN },
    { "DELETE", "/api/delete", ollama_absent, DIALECT_OLLAMA, ROUTE_PLAIN },
    { "POST", "/api/embed", ollama_embed, DIALECT_OLLAMA, ROUTE_PLAIN },
    { "POST", "/api/embeddings", ollama_embed, DIALECT_OLLAMA, ROUTE_PLAIN },
    { "POST", "/api/generate", ollama_generate, DIALECT_OLLAMA, ROUTE_PLAIN },
    { "GET", "/api/ps", ollama_ps, DIALECT_OLLAMA, ROUTE_PLAIN },
    { "POST", "/api/pull", ollama_absent, DIALECT_OLLAMA, ROUTE_PLAIN },
    { "POST", "/api/push", ollama_absent, DIALECT_OLLAMA, ROUTE_PLAIN },
    { "POST", "/api/show", ollama_show, DIALECT_OLLAMA, ROUTE_PLAIN },
    { "GET", "/api/tags", ollama_tags, DIALECT_OLLAMA, ROUTE_PLAIN },
    { "GET", "/api/version", ollama_version, DIALECT_OLLAMA, ROUTE_PLAIN },
    { "POST", "/apply-template", tokens_template, DIALECT_OPENAI, 0 },
    { "POST", "/detokenize", tokens_detokenize, DIALECT_OPENAI, 0 },
    { "POST", "/tokenize", tokens_tokenize, DIALECT_OPENAI, 0 },
};

const char *route_path(const char *path)
{
    return strncmp(path, "/v1/", 4) == 0 ? path + 3 : path;
}

static bool path_fits(const struct route *route, const char *path)
{
    const char *own = route->flags & ROUTE_PLAIN ? path : route_path(path);

    if (route->flags & ROUTE_PREFIX) return strncmp(own, route->path, strlen(route->path)) == 0;
    return strcmp(own, route->path) == 0;
}

const struct route *route_find(const char *method, const char *path, struct failure *failure)
{
    bool known = false;

    if (strcmp(method, "HEAD") == 0) method = "GET";
    for (size_t i = 0; i < COUNT_OF(routes); i++) {
        if (!path_fits(&routes[i], path)) continue;
        if (strcmp(routes[i].method, method) == 0) return &routes[i];
        known = true;
    }
    if (known)
        refuse(failure, FAILURE_METHOD, NULL, "%.20s is not possible for %.200s", method, path);
    else
        refuse(failure, FAILURE_NOT_FOUND, NULL, "there is nothing at %.20s %.200s", method, path);
    return NULL;
}

enum dialect route_dialect(const struct route *route, const struct exchange *exchange)
{
    if (!route && strncmp(exchange_path(exchange), "/api/", 5) == 0) return DIALECT_OLLAMA;
    if (!route)
        return exchange_header(exchange, "anthropic-version") ? DIALECT_ANTHROPIC : DIALECT_OPENAI;
    /* One list of models serves both APIs; its errors have the shape of the one that asks. */
    if (route->dialect == DIALECT_OPENAI && strncmp(route->path, "/models", 7) == 0 &&
        exchange_header(exchange, "anthropic-version"))
        return DIALECT_ANTHROPIC;
    return route->dialect;
}
