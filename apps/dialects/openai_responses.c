/* openai_responses.c: POST /v1/responses and what belongs to it. */
#include "serve/api.h"
#include "serve/handlers.h"
#include "dialects/openai.h"
#include "serve/reply.h"
#include "dialects/responses.h"

#include "common/basics.h"

/* ------------------------------------------------------------------ the request */

static const char stateless[] = "this server keeps no responses; replay the full input instead";

static const struct field_rule rules[] = {
    { "access_programs", FIELD_NOTED, NULL },
    { "background", FIELD_REFUSED, stateless },
    { "cache_salt", FIELD_NOTED, NULL },
    { "chat_template_kwargs", FIELD_HONOURED, NULL },
    { "client_metadata", FIELD_NOTED, NULL },
    { "context_management", FIELD_NOTED, NULL },
    { "conversation", FIELD_REFUSED, stateless },
    { "frequency_penalty", FIELD_HONOURED, NULL },
    { "ignore_eos", FIELD_HONOURED, NULL },
    { "image", FIELD_REFUSED, "this server writes text only" },
    { "include", FIELD_HONOURED, NULL },
    { "input", FIELD_HONOURED, NULL },
    { "instructions", FIELD_HONOURED, NULL },
    { "logit_bias", FIELD_HONOURED, NULL },
    { "max_output_tokens", FIELD_HONOURED, NULL },
    { "max_tool_calls", FIELD_NOTED, NULL },
    { "metadata", FIELD_HONOURED, NULL },
    { "min_p", FIELD_HONOURED, NULL },
    { "model", FIELD_HONOURED, NULL },
    { "moderation", FIELD_NOTED, NULL },
    { "parallel_tool_calls", FIELD_HONOURED, NULL },
    { "presence_penalty", FIELD_HONOURED, NULL },
    { "previous_response_id", FIELD_REFUSED, stateless },
    { "prompt", FIELD_REFUSED, "this server keeps no prompts" },
    { "prompt_cache_key", FIELD_HONOURED, NULL },
    { "prompt_cache_options", FIELD_HONOURED, NULL },
    { "prompt_cache_retention", FIELD_NOTED, NULL },
    { "reasoning", FIELD_HONOURED, NULL },
    { "repeat_penalty", FIELD_HONOURED, NULL },
    { "repetition_penalty", FIELD_HONOURED, NULL },
    { "safety_identifier", FIELD_NOTED, NULL },
    { "seed", FIELD_HONOURED, NULL },
    { "service_tier", FIELD_NOTED, NULL },
    { "store", FIELD_NOTED, NULL },
    { "stream", FIELD_HONOURED, NULL },
    { "stream_options", FIELD_HONOURED, NULL },
    { "temperature", FIELD_HONOURED, NULL },
    { "text", FIELD_HONOURED, NULL },
    { "tool_choice", FIELD_HONOURED, NULL },
    { "tools", FIELD_HONOURED, NULL },
    { "top_k", FIELD_HONOURED, NULL },
    { "top_logprobs", FIELD_HONOURED, NULL },
    { "top_p", FIELD_HONOURED, NULL },
    { "truncation", FIELD_HONOURED, NULL },
    { "typical_p", FIELD_HONOURED, NULL },
    { "user", FIELD_HONOURED, NULL },
};

static const json_t *field(const struct ask *ask, const char *name)
{
    const json_t *value = json_object_get(ask->body, name);

    return json_is_null(value) ? NULL : value;
}

static bool is_object(const struct ask *ask, const char *name, struct failure *failure)
{
    const json_t *value = field(ask, name);

    if (!value || json_is_object(value)) return true;
    return refuse_code(failure, "invalid_value", name, "\"%s\" is not an object", name);
}

static bool read_truncation(const struct ask *ask, struct failure *failure)
{
    const char *word = NULL;

    if (!read_text(&word, ask->body, "truncation", failure)) return false;
    if (!word || strcmp(word, "disabled") == 0) return true;
    if (strcmp(word, "auto") != 0)
        return refuse_code(failure, "invalid_value", "truncation",
                           "\"truncation\" is neither \"disabled\" nor \"auto\"");
    return refuse_code(failure, "unsupported_parameter", "truncation",
                       "\"truncation\" is \"auto\": this server drops no items of the input; only "
                       "\"disabled\" is supported");
}

/* What can be added to an answer on demand; of hosted tools there is nothing to add. */
static bool read_include(struct ask *ask, struct responses *state, struct failure *failure)
{
    const json_t *include = field(ask, "include");
    size_t i;
    json_t *entry;

    if (include && !json_is_array(include))
        return refuse_code(failure, "invalid_value", "include", "\"include\" is not an array");
    json_array_foreach(include, i, entry)
    {
        const char *name = json_string_value(entry);
        if (!name)
            return refuse_code(failure, "invalid_value", "include", "include[%zu] is not a string",
                               i);
        bool encrypted = strcmp(name, "reasoning.encrypted_content") == 0;
        bool logprobs = strcmp(name, "message.output_text.logprobs") == 0;
        state->encrypted |= encrypted;
        ask->logprobs |= logprobs;
        if (!encrypted && !logprobs && !ask_note(ask, failure, "include[%zu]", i)) return false;
    }
    return true;
}

static bool read_logprobs(struct ask *ask, struct failure *failure)
{
    if (!read_count(&ask->top_logprobs, ask->body, "top_logprobs", 0, 20, failure)) return false;
    ask->logprobs |= ask->top_logprobs > 0;
    return true;
}

static bool read_reasoning(struct ask *ask, struct failure *failure)
{
    static const char *const noted[] = { "summary", "generate_summary", "context", "mode" };
    const json_t *reasoning = field(ask, "reasoning");
    const char *effort = NULL;

    if (!is_object(ask, "reasoning", failure) ||
        !read_text(&effort, reasoning, "effort", failure) ||
        !openai_read_effort(ask, effort, failure))
        return false;
    for (size_t i = 0; i < COUNT_OF(noted); i++) {
        const json_t *value = json_object_get(reasoning, noted[i]);
        if (value && !json_is_null(value) && !ask_note(ask, failure, "reasoning.%s", noted[i]))
            return false;
    }
    return true;
}

static bool read_form(struct ask *ask, struct failure *failure)
{
    const json_t *text = field(ask, "text"), *form = json_object_get(text, "format");

    if (!is_object(ask, "text", failure)) return false;
    if (json_object_get(text, "verbosity") && !ask_note(ask, failure, "text.verbosity"))
        return false;
    if (ask_read_form(ask, form, form, failure)) return true;
    snprintf(failure->param, sizeof failure->param, "text.format");
    return false;
}

/* A prompt that is only to be read asks for a token, which is dropped. */
static bool read_cache_options(struct ask *ask, struct responses *state, struct failure *failure)
{
    const json_t *options = field(ask, "prompt_cache_options");
    static const char *const noted[] = { "mode", "ttl" };

    if (!is_object(ask, "prompt_cache_options", failure) ||
        !read_flag(&state->prewarm, options, "prewarm", failure) ||
        !read_text(&state->compared, options, "comparison_response_id", failure))
        return false;
    for (size_t i = 0; i < COUNT_OF(noted); i++) {
        const json_t *value = json_object_get(options, noted[i]);
        if (value && !json_is_null(value) &&
            !ask_note(ask, failure, "prompt_cache_options.%s", noted[i]))
            return false;
    }
    if (state->prewarm) ask->limit = 1;
    return true;
}

static bool read_stream(struct ask *ask, struct failure *failure)
{
    bool obfuscation = false;

    if (!read_flag(&ask->stream, ask->body, "stream", failure) ||
        !read_flag(&obfuscation, field(ask, "stream_options"), "include_obfuscation", failure))
        return false;
    return !obfuscation || ask_note(ask, failure, "stream_options.include_obfuscation");
}

static bool read_ask(struct ask *ask, struct responses *state, struct failure *failure)
{
    const json_t *body = ask->body;

    ask_new_id(ask->id, sizeof ask->id, "resp_");
    ask->api = "responses";
    return ask_check_fields(ask, rules, COUNT_OF(rules), failure) && ask_read_model(ask, failure) &&
           read_stream(ask, failure) &&
           read_count(&ask->limit, body, "max_output_tokens", 1, INT32_MAX, failure) &&
           read_flag(&ask->ignore_end, body, "ignore_eos", failure) &&
           is_object(ask, "metadata", failure) && read_truncation(ask, failure) &&
           read_include(ask, state, failure) && read_logprobs(ask, failure) &&
           ask_read_sampling(ask, body, failure) && ask_read_variables(ask, failure) &&
           read_reasoning(ask, failure) && read_form(ask, failure) &&
           read_cache_options(ask, state, failure) && responses_read_tools(ask, state, failure) &&
           responses_read_input(ask, state, failure);
}

/* -------------------------------------------------------------------- the reply */

static json_t *whole(struct delivery *delivery)
{
    return responses_object_new(delivery, RESPONSES_ENDED, NULL);
}

static const struct writer writer = {
    .stream_type = "text/event-stream",
    .call_prefix = "call_",
    .collect = responses_collect,
    .begin = responses_begin,
    .event = responses_event,
    .finish = responses_finish,
    .break_off = responses_break_off,
    .tells_too_long = true,
    .whole = whole,
    .free_state = responses_free,
};

static bool read_state(struct ask *ask, void **state, struct failure *failure)
{
    *state = responses_new();
    if (!*state) return refuse(failure, FAILURE_ENGINE, NULL, "out of memory");
    return read_ask(ask, *state, failure);
}

const struct api openai_responses_api = {
    .path = "/v1/responses", .dialect = DIALECT_OPENAI, .writer = &writer, .read_state = read_state
};

void openai_responses(struct serve *serve, struct exchange *exchange)
{
    api_serve(&openai_responses_api, serve, exchange);
}

/* What the prompt of the same body has; NULL with *failure filled. */
static json_t *count_new(struct ask *ask, struct responses *state, struct failure *failure)
{
    mf_prompt *prompt;
    size_t count;

    if (!read_ask(ask, state, failure) || !job_render(&prompt, ask, failure)) return NULL;
    mf_prompt_tokens(prompt, &count);
    mf_prompt_close(prompt);
    return json_pack("{s:s, s:I}", "object", "response.input_tokens", "input_tokens",
                     (json_int_t)count);
}

void openai_responses_count(struct serve *serve, struct exchange *exchange)
{
    struct responses *state = responses_new();
    struct failure failure;
    struct ask ask;

    if (!state) return;
    json_t *count = ask_open(&ask, serve, exchange, DIALECT_OPENAI, &failure)
                        ? count_new(&ask, state, &failure)
                        : NULL;
    if (count)
        reply_json(exchange, 200, count);
    else
        failure_reply(exchange, DIALECT_OPENAI, &failure);
    responses_free(state);
    ask_close(&ask);
}

void openai_responses_absent(struct serve *serve, struct exchange *exchange)
{
    struct failure failure;

    (void)serve;
    refuse(&failure, FAILURE_NOT_FOUND, NULL, "there is nothing at %.200s: %s",
           exchange_path(exchange), stateless);
    failure_reply(exchange, DIALECT_OPENAI, &failure);
}
