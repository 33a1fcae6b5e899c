/* info.c: GET /v1/moeflux/info: what the page must know of model and server. */
#include "common/basics.h"
#include "serve/handlers.h"
#include "view/info.h"
#include "serve/reply.h"

#include <stdlib.h>

static const char question[] = "[{\"role\":\"user\",\"content\":\"Hello\"}]";

/* The text of a short conversation; NULL: it cannot be rendered. */
static char *rendered_new(const mf_text *text, const char *tools, const char *variables)
{
    mf_chat_options options = MF_CHAT_OPTIONS_INIT;
    mf_prompt *prompt = NULL;
    size_t length;

    options.messages = question;
    options.tools = tools;
    options.variables = variables;
    if (mf_chat_render(&prompt, text, &options, NULL) != MF_OK) return NULL;
    char *copy = strdup(mf_prompt_text(prompt, &length));
    mf_prompt_close(prompt);
    return copy;
}

/* Whether the template makes something else of one object of variables than of the other. */
static bool tells_apart(const mf_text *text, const char *variables, const char *others)
{
    char *one = rendered_new(text, NULL, variables);
    char *other = rendered_new(text, NULL, others);
    bool differ = one && other && strcmp(one, other) != 0;

    free(one);
    free(other);
    return differ;
}

bool info_knows_thinking(const mf_text *text)
{
    return tells_apart(text, "{\"enable_thinking\":true}", "{\"enable_thinking\":false}");
}

bool info_knows_effort(const mf_text *text)
{
    return tells_apart(text, "{\"reasoning_effort\":\"low\"}", "{\"reasoning_effort\":\"high\"}");
}

/* It shows them to the model. */
bool info_knows_tools(const mf_text *text)
{
    static const char tools[] =
        "[{\"type\":\"function\",\"function\":{\"name\":\"probe_of_tools\",\"description\":\"\","
        "\"parameters\":{\"type\":\"object\",\"properties\":{}}}}]";
    char *shown = rendered_new(text, tools, NULL);
    bool found = shown && strstr(shown, "probe_of_tools");

    free(shown);
    return found;
}

static json_t *model_new(const struct serve *serve)
{
    return json_pack("{s:s, s:s, s:o, s:o, s:o}", "name", mf_model_name(serve->model), "family",
                     mf_model_family(serve->model), "vocab",
                     json_count_new(mf_model_vocab_size(serve->model)), "context",
                     json_count_new(serve->context), "trained_context",
                     json_count_new(mf_model_context_length(serve->model)));
}

static json_t *sampling_new(const struct serve *serve)
{
    mf_sampler_options sampling = MF_SAMPLER_OPTIONS_INIT;

    mf_text_sampling(serve->text, &sampling, NULL);
    return json_pack("{s:f, s:i, s:f}", "temperature", (double)sampling.temperature, "top_k",
                     (int)sampling.top_k, "top_p", (double)sampling.top_p);
}

static json_t *layers_new(const mf_experts *experts)
{
    json_t *layers = json_array();

    for (uint32_t i = 0; i < experts->row_count; i++)
        json_array_append_new(layers, json_count_new(experts->rows[i]));
    return layers;
}

void info_reply(struct serve *serve, struct exchange *exchange)
{
    mf_experts experts = MF_EXPERTS_INIT;
    mf_model_statistics model = MF_MODEL_STATISTICS_INIT;
    mf_engine *engine = mf_model_engine(serve->model);

    mf_model_experts(serve->model, &experts, NULL);
    mf_model_stats(serve->model, &model, NULL);
    json_t *info = json_pack(
        "{s:s, s:o, s:i, s:o, s:i, s:i, s:o, s:s, s:i, s:s, s:i, s:i, s:s, s:o, s:b, s:b}",
        "version", mf_version(), "model", model_new(serve), "layers", (int)experts.layer_count,
        "moe_layers", layers_new(&experts), "experts", (int)experts.expert_count,
        "experts_per_token", (int)experts.experts_per_token, "expert_bytes",
        json_count_new(experts.expert_bytes), "mode", model.expert_mode, "threads",
        (int)mf_engine_thread_count(engine), "kernels", mf_engine_kernels(engine), "parallel",
        (int)serve->options.parallel, "queue", (int)serve->options.queue, "cache",
        serve->options.cache, "sampling", sampling_new(serve), "reasoning",
        info_knows_thinking(serve->text), "tools", info_knows_tools(serve->text));
    reply_json(exchange, 200, info);
}
