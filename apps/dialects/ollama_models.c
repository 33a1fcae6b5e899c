/* ollama_models.c: what Ollama's API says of models: there is one, and it is loaded. */
#include "serve/handlers.h"
#include "view/info.h"
#include "dialects/ollama.h"
#include "serve/reply.h"

#include "common/basics.h"
#include "common/clock.h"

#include <stdio.h>
#include <time.h>

/* "name" of "name:latest". */
static bool is_own(const struct serve *serve, const char *name)
{
    const char *own = mf_model_name(serve->model);
    size_t length = strlen(own);

    return strncmp(name, own, length) == 0 &&
           (name[length] == '\0' || strcmp(name + length, ":latest") == 0);
}

/* Older clients say "name". */
static const json_t *asked_name(const json_t *body)
{
    const json_t *model = json_object_get(body, "model");

    return model ? model : json_object_get(body, "name");
}

bool ollama_read_model(const struct serve *serve, const json_t *body, struct failure *failure)
{
    const json_t *asked = asked_name(body);
    const char *name = json_string_value(asked);

    if (asked && !name && !json_is_null(asked))
        return refuse_code(failure, "invalid_value", "model", "\"model\" is not a string");
    if (!name || !serve->options.strict_model || is_own(serve, name)) return true;
    return refuse(failure, FAILURE_NOT_FOUND, "model",
                  "model '%.100s' not found: this server has %s", name,
                  mf_model_name(serve->model));
}

const char *ollama_name(const struct serve *serve, const json_t *body)
{
    const char *name = json_string_value(asked_name(body));

    return name && is_own(serve, name) ? name : mf_model_name(serve->model);
}

/* 64 digits that stay the same as long as the model does, for clients that compare them.  They are
 * no sum of its files. */
static void digest_of(char out[65], const struct serve *serve, uint64_t bytes)
{
    char text[512];

    int length = snprintf(text, sizeof text, "%s %s %u %llu", mf_model_name(serve->model),
                          mf_model_family(serve->model), mf_model_vocab_size(serve->model),
                          (unsigned long long)bytes);
    for (unsigned part = 0; part < 4; part++) {
        uint64_t hash = 14695981039346656037u + part;
        for (size_t i = 0; i < min_size((size_t)length, sizeof text - 1); i++)
            hash = (hash ^ (unsigned char)text[i]) * 1099511628211u;
        snprintf(out + 16 * part, 17, "%016llx", (unsigned long long)hash);
    }
}

static uint64_t model_bytes(const struct serve *serve)
{
    mf_model_statistics statistics = MF_MODEL_STATISTICS_INIT;
    mf_experts experts = MF_EXPERTS_INIT;

    mf_model_stats(serve->model, &statistics, NULL);
    mf_model_experts(serve->model, &experts, NULL);
    return statistics.weight_bytes +
           experts.expert_bytes * experts.expert_count * experts.row_count;
}

/* As Ollama writes it: "30.53M", "30.5B"; "": not known. */
static void write_parameters(char *out, size_t capacity, uint64_t count)
{
    double number = (double)count;

    out[0] = '\0';
    if (number >= 1e9)
        snprintf(out, capacity, "%.1fB", number / 1e9);
    else if (count > 0)
        snprintf(out, capacity, "%.2fM", number / 1e6);
}

static json_t *details_new(const struct serve *serve)
{
    const char *family = mf_model_family(serve->model), *format = serve->facts.format;
    char parameters[32];

    write_parameters(parameters, sizeof parameters, serve->facts.parameters);
    return json_pack("{s:s, s:s, s:s, s:[s], s:s, s:s}", "parent_model", "", "format", "", "family",
                     family, "families", family, "parameter_size", parameters, "quantization_level",
                     format ? format : "");
}

/* When the server was started: the model has not changed since. */
static void start_time(char *out, size_t capacity, const struct serve *serve)
{
    time_t then = time(NULL) - (time_t)(clock_seconds() - serve->started);
    struct tm parts;

    gmtime_r(&then, &parts);
    strftime(out, capacity, "%Y-%m-%dT%H:%M:%SZ", &parts);
}

static json_t *model_new(const struct serve *serve)
{
    uint64_t bytes = model_bytes(serve);
    char digest[65], date[40], name[300];

    digest_of(digest, serve, bytes);
    start_time(date, sizeof date, serve);
    snprintf(name, sizeof name, "%s:latest", mf_model_name(serve->model));
    return json_pack("{s:s, s:s, s:s, s:o, s:s, s:o}", "name", name, "model", name, "modified_at",
                     date, "size", json_count_new(bytes), "digest", digest, "details",
                     details_new(serve));
}

void ollama_tags(struct serve *serve, struct exchange *exchange)
{
    reply_json(exchange, 200, json_pack("{s:[o]}", "models", model_new(serve)));
}

void ollama_ps(struct serve *serve, struct exchange *exchange)
{
    json_t *model = model_new(serve);

    json_object_del(model, "modified_at");
    json_object_set_new(model, "expires_at", json_string("9999-12-31T23:59:59Z"));
    json_object_set_new(model, "size_vram", json_integer(0));
    json_object_set_new(model, "context_length", json_count_new(serve->context));
    reply_json(exchange, 200, json_pack("{s:[o]}", "models", model));
}

/* ------------------------------------------------------------------------ show */

static json_t *parameters_new(const struct serve *serve)
{
    mf_sampler_options sampling = MF_SAMPLER_OPTIONS_INIT;
    char text[160];

    mf_text_sampling(serve->text, &sampling, NULL);
    snprintf(text, sizeof text, "temperature %g\ntop_k %u\ntop_p %g", (double)sampling.temperature,
             sampling.top_k, (double)sampling.top_p);
    return json_string(text);
}

static json_t *info_new(const struct serve *serve)
{
    const char *family = mf_model_family(serve->model);
    mf_experts experts = MF_EXPERTS_INIT;
    json_t *info = json_pack("{s:s, s:s}", "general.architecture", family, "general.basename",
                             mf_model_name(serve->model));
    char name[128];

    if (serve->facts.parameters > 0)
        json_object_set_new(info, "general.parameter_count",
                            json_count_new(serve->facts.parameters));
    mf_model_experts(serve->model, &experts, NULL);
    const struct {
        const char *name;
        uint32_t value;
    } facts[] = {
        { "block_count", experts.layer_count },
        { "context_length", serve->context },
        { "expert_count", experts.expert_count },
        { "expert_used_count", experts.experts_per_token },
        { "vocab_size", mf_model_vocab_size(serve->model) },
    };
    for (size_t i = 0; i < COUNT_OF(facts); i++) {
        snprintf(name, sizeof name, "%s.%s", family, facts[i].name);
        json_object_set_new(info, name, json_count_new(facts[i].value));
    }
    return info;
}

static json_t *capabilities_new(const struct serve *serve)
{
    json_t *list = json_pack("[s]", "completion");

    if (info_knows_tools(serve->text)) json_array_append_new(list, json_string("tools"));
    if (info_knows_thinking(serve->text) || info_knows_effort(serve->text))
        json_array_append_new(list, json_string("thinking"));
    return list;
}

static json_t *show_new(const struct serve *serve)
{
    const mf_template *chat = NULL;
    char date[40], file[320];

    mf_text_template(&chat, serve->text, NULL);
    start_time(date, sizeof date, serve);
    snprintf(file, sizeof file, "FROM %s\n", mf_model_name(serve->model));
    const char *source = mf_template_source(chat);
    return json_pack("{s:s, s:o, s:o, s:o, s:o, s:s, s:o}", "modelfile", file, "parameters",
                     parameters_new(serve), "template",
                     json_text_new(source ? source : "", source ? strlen(source) : 0), "details",
                     details_new(serve), "model_info", info_new(serve), "modified_at", date,
                     "capabilities", capabilities_new(serve));
}

void ollama_show(struct serve *serve, struct exchange *exchange)
{
    struct failure failure;
    struct ask ask;
    bool done = ask_open(&ask, serve, exchange, DIALECT_OLLAMA, &failure) &&
                ollama_read_model(serve, ask.body, &failure);

    if (done)
        reply_json(exchange, 200, show_new(serve));
    else
        failure_reply(exchange, DIALECT_OLLAMA, &failure);
    ask_close(&ask);
}

/* ------------------------------------------------------------------------ others */

/* Clients look here for what they may send: this is the version of the API that the server speaks. */
void ollama_version(struct serve *serve, struct exchange *exchange)
{
    (void)serve;
    reply_json(exchange, 200,
               json_pack("{s:s, s:s}", "version", "0.13.0", "moeflux", mf_version()));
}

void ollama_embed(struct serve *serve, struct exchange *exchange)
{
    struct failure failure;

    (void)serve;
    refuse(&failure, FAILURE_IMPOSSIBLE, NULL,
           "this server generates text and makes no embeddings");
    failure_reply(exchange, DIALECT_OLLAMA, &failure);
}

void ollama_absent(struct serve *serve, struct exchange *exchange)
{
    struct failure failure;

    refuse(&failure, FAILURE_IMPOSSIBLE, NULL,
           "%.100s is not possible: this server has one model, %s, which was given at its start",
           exchange_path(exchange), mf_model_name(serve->model));
    failure_reply(exchange, DIALECT_OLLAMA, &failure);
}
