/* openai_chat.c: POST /v1/chat/completions. */
#include "serve/api.h"
#include "serve/handlers.h"
#include "dialects/messages.h"
#include "dialects/openai.h"
#include "serve/reply.h"

#include "common/basics.h"

/* ------------------------------------------------------------------ the request */

static const struct field_rule rules[] = {
    { "audio", FIELD_REFUSED, "this server writes text only" },
    { "cache_salt", FIELD_NOTED, NULL },
    { "chat_template_kwargs", FIELD_HONOURED, NULL },
    { "client_metadata", FIELD_NOTED, NULL },
    { "frequency_penalty", FIELD_HONOURED, NULL },
    { "function_call", FIELD_REFUSED, "use tool_choice" },
    { "functions", FIELD_REFUSED, "use tools" },
    { "ignore_eos", FIELD_HONOURED, NULL },
    { "logit_bias", FIELD_HONOURED, NULL },
    { "logprobs", FIELD_HONOURED, NULL },
    { "max_completion_tokens", FIELD_HONOURED, NULL },
    { "max_tokens", FIELD_HONOURED, NULL },
    { "messages", FIELD_HONOURED, NULL },
    { "metadata", FIELD_NOTED, NULL },
    { "min_p", FIELD_HONOURED, NULL },
    { "modalities", FIELD_HONOURED, NULL },
    { "model", FIELD_HONOURED, NULL },
    { "moderation", FIELD_NOTED, NULL },
    { "n", FIELD_HONOURED, NULL },
    { "parallel_tool_calls", FIELD_HONOURED, NULL },
    { "prediction", FIELD_REFUSED, NULL },
    { "presence_penalty", FIELD_HONOURED, NULL },
    { "prompt_cache_key", FIELD_HONOURED, NULL },
    { "prompt_cache_options", FIELD_NOTED, NULL },
    { "prompt_cache_retention", FIELD_NOTED, NULL },
    { "reasoning_effort", FIELD_HONOURED, NULL },
    { "repeat_penalty", FIELD_HONOURED, NULL },
    { "repetition_penalty", FIELD_HONOURED, NULL },
    { "response_format", FIELD_HONOURED, NULL },
    { "return_progress", FIELD_HONOURED, NULL },
    { "safety_identifier", FIELD_NOTED, NULL },
    { "seed", FIELD_HONOURED, NULL },
    { "service_tier", FIELD_NOTED, NULL },
    { "stop", FIELD_HONOURED, NULL },
    { "store", FIELD_NOTED, NULL },
    { "stream", FIELD_HONOURED, NULL },
    { "stream_options", FIELD_HONOURED, NULL },
    { "temperature", FIELD_HONOURED, NULL },
    { "think", FIELD_HONOURED, NULL },
    { "tool_choice", FIELD_HONOURED, NULL },
    { "tools", FIELD_HONOURED, NULL },
    { "top_k", FIELD_HONOURED, NULL },
    { "top_logprobs", FIELD_HONOURED, NULL },
    { "top_p", FIELD_HONOURED, NULL },
    { "typical_p", FIELD_HONOURED, NULL },
    { "user", FIELD_HONOURED, NULL },
    { "verbosity", FIELD_NOTED, NULL },
    { "web_search_options", FIELD_REFUSED, NULL },
};

static bool read_modalities(const json_t *modalities, struct failure *failure)
{
    size_t i;
    json_t *one;

    json_array_foreach(modalities, i, one)
    {
        const char *name = json_string_value(one);
        if (!name || strcmp(name, "text") != 0)
            return refuse_code(failure, "unsupported_parameter", "modalities",
                               "\"modalities\" has other members than \"text\"");
    }
    return true;
}

static bool read_logprobs(struct ask *ask, struct failure *failure)
{
    if (!read_flag(&ask->logprobs, ask->body, "logprobs", failure) ||
        !read_count(&ask->top_logprobs, ask->body, "top_logprobs", 0, 20, failure))
        return false;
    if (ask->top_logprobs > 0 && !ask->logprobs)
        return refuse_code(failure, "invalid_value", "top_logprobs",
                           "\"top_logprobs\" needs \"logprobs\": true");
    return true;
}

static bool read_thinking(struct ask *ask, struct failure *failure)
{
    const char *effort = NULL;
    bool think = false;

    if (!read_text(&effort, ask->body, "reasoning_effort", failure) ||
        !read_flag(&think, ask->body, "think", failure))
        return false;
    if (json_is_boolean(json_object_get(ask->body, "think"))) ask_set_thinking(ask, think);
    return openai_read_effort(ask, effort, failure);
}

static bool read_tools(struct ask *ask, struct failure *failure)
{
    bool parallel = true;

    if (!openai_read_tools(ask, json_object_get(ask->body, "tools"), failure) ||
        !openai_read_tool_choice(ask, json_object_get(ask->body, "tool_choice"), failure) ||
        !read_flag(&parallel, ask->body, "parallel_tool_calls", failure))
        return false;
    ask->one_call = !parallel;
    return true;
}

static bool read_ask(struct ask *ask, struct failure *failure)
{
    const json_t *body = ask->body, *form = json_object_get(body, "response_format");

    ask_new_id(ask->id, sizeof ask->id, "chatcmpl-");
    ask->api = "chat";
    return ask_check_fields(ask, rules, COUNT_OF(rules), failure) && ask_read_model(ask, failure) &&
           openai_read_stream(ask, failure) &&
           read_count(&ask->choices, body, "n", 1, ASK_CHOICES_MAX, failure) &&
           read_count(&ask->limit, body, "max_tokens", 1, INT32_MAX, failure) &&
           read_count(&ask->limit, body, "max_completion_tokens", 1, INT32_MAX, failure) &&
           read_flag(&ask->ignore_end, body, "ignore_eos", failure) &&
           read_modalities(json_object_get(body, "modalities"), failure) &&
           read_logprobs(ask, failure) && ask_read_sampling(ask, body, failure) &&
           ask_read_stops(ask, "stop", 4, failure) && ask_read_variables(ask, failure) &&
           read_thinking(ask, failure) && read_tools(ask, failure) &&
           ask_read_form(ask, form, json_object_get(form, "json_schema"), failure) &&
           messages_read_openai(ask, json_object_get(body, "messages"), failure);
}

/* -------------------------------------------------------------------- the reply */

static json_t *frame_new(const struct delivery *delivery, const char *object, json_t *choices)
{
    return json_pack("{s:s, s:s, s:I, s:s, s:s, s:o}", "id", delivery->ask->id, "object", object,
                     "created", (json_int_t)delivery->ask->created, "model",
                     mf_model_name(delivery->serve->model), "system_fingerprint", mf_version(),
                     "choices", choices);
}

static json_t *logprobs_new(json_t *list)
{
    return list ? json_pack("{s:O, s:n}", "content", list, "refusal") : json_null();
}

static json_t *calls_new(const struct collected *answer)
{
    json_t *calls = json_array();

    for (size_t i = 0; i < answer->call_count; i++) {
        const struct collected_call *call = &answer->calls[i];
        json_array_append_new(calls, json_pack("{s:s, s:s, s:{s:s, s:o}}", "id", call->id, "type",
                                               "function", "function", "name", call->name,
                                               "arguments", list_json_new(&call->arguments)));
    }
    return calls;
}

static json_t *choice_new(const struct collected *answer)
{
    bool has_text = answer->content.count > 0 || answer->call_count == 0;
    json_t *message =
        json_pack("{s:s, s:o, s:n}", "role", "assistant", "content",
                  has_text ? list_json_new(&answer->content) : json_null(), "refusal");

    if (answer->reasoning.count > 0)
        json_object_set_new(message, "reasoning_content", list_json_new(&answer->reasoning));
    if (answer->call_count > 0) json_object_set_new(message, "tool_calls", calls_new(answer));
    return json_pack("{s:i, s:o, s:o, s:s}", "index", (int)answer->index, "message", message,
                     "logprobs", logprobs_new(answer->logprobs), "finish_reason",
                     finish_reason(answer));
}

static json_t *whole(struct delivery *delivery)
{
    json_t *choices = json_array();

    for (uint32_t i = 0; i < delivery->ask->choices; i++)
        json_array_append_new(choices, choice_new(&delivery->answers[i]));
    json_t *reply = frame_new(delivery, "chat.completion", choices);
    json_object_set_new(reply, "usage", openai_usage_new(delivery));
    json_object_set_new(reply, "moeflux", openai_extra_new(delivery));
    return reply;
}

/* Takes `choices` over.  `event` NULL: the chunk is not of one. */
static void write_chunk(struct delivery *delivery, const struct job_event *event, json_t *choices,
                        struct byte_list *out)
{
    json_t *chunk = frame_new(delivery, "chat.completion.chunk", choices);

    if (delivery->ask->wants_usage) json_object_set_new(chunk, "usage", json_null());
    if (delivery->ask->wants_tokens && event && event->tokens > 0)
        json_object_set_new(chunk, "moeflux", json_pack("{s:i}", "tokens", (int)event->tokens));
    sse_add(out, NULL, chunk);
}

static void write_delta(struct delivery *delivery, const struct job_event *event,
                        const struct collected *answer, json_t *delta, struct byte_list *out)
{
    bool ended = event && event->kind == JOB_ENDED;
    json_t *choice = json_pack("{s:i, s:o, s:o, s:s?}", "index", (int)answer->index, "delta", delta,
                               "logprobs", logprobs_new(answer->fresh_logprobs), "finish_reason",
                               ended ? finish_reason(answer) : NULL);

    write_chunk(delivery, event, json_pack("[o]", choice), out);
}

static void begin(struct delivery *delivery, struct byte_list *out)
{
    for (uint32_t i = 0; i < delivery->ask->choices; i++)
        write_delta(delivery, NULL, &delivery->answers[i],
                    json_pack("{s:s, s:s}", "role", "assistant", "content", ""), out);
}

static json_t *call_begin_new(const struct collected *answer, uint32_t index)
{
    const struct collected_call *call = &answer->calls[index];

    return json_pack("{s:[{s:i, s:s, s:s, s:{s:s, s:s}}]}", "tool_calls", "index", (int)index, "id",
                     call->id, "type", "function", "function", "name", call->name, "arguments", "");
}

static json_t *call_part_new(uint32_t index, const struct byte_list *text)
{
    return json_pack("{s:[{s:i, s:{s:o}}]}", "tool_calls", "index", (int)index, "function",
                     "arguments", list_json_new(text));
}

static void write_progress(struct delivery *delivery, const struct job_event *event,
                           struct byte_list *out)
{
    json_t *chunk = frame_new(delivery, "chat.completion.chunk", json_array());

    json_object_set_new(chunk, "prompt_progress",
                        json_pack("{s:I, s:I}", "processed", (json_int_t)event->done, "total",
                                  (json_int_t)event->total));
    if (delivery->ask->wants_usage) json_object_set_new(chunk, "usage", json_null());
    sse_add(out, NULL, chunk);
}

static void event(struct delivery *delivery, const struct job_event *event,
                  struct collected *answer, struct byte_list *out)
{
    switch (event->kind) {
    case JOB_REASONING:
        write_delta(delivery, event, answer,
                    json_pack("{s:o}", "reasoning_content", list_json_new(&event->text)), out);
        break;
    case JOB_CONTENT:
        write_delta(delivery, event, answer,
                    json_pack("{s:o}", "content", list_json_new(&event->text)), out);
        break;
    case JOB_CALL_BEGIN:
        if (event->call < answer->call_count)
            write_delta(delivery, event, answer, call_begin_new(answer, event->call), out);
        break;
    case JOB_CALL_ARGUMENTS:
        write_delta(delivery, event, answer, call_part_new(event->call, &event->text), out);
        break;
    case JOB_ENDED:
        write_delta(delivery, event, answer, json_object(), out);
        break;
    case JOB_PROGRESS:
        write_progress(delivery, event, out);
        break;
    default:
        break;
    }
}

static void finish(struct delivery *delivery, struct byte_list *out)
{
    if (delivery->ask->wants_usage) {
        json_t *chunk = frame_new(delivery, "chat.completion.chunk", json_array());
        json_object_set_new(chunk, "usage", openai_usage_new(delivery));
        json_object_set_new(chunk, "moeflux", openai_extra_new(delivery));
        sse_add(out, NULL, chunk);
    }
    text_add(out, "data: [DONE]\n\n");
}

static const struct writer writer = {
    .stream_type = "text/event-stream",
    .call_prefix = "call_",
    .begin = begin,
    .event = event,
    .finish = finish,
    .break_off = openai_write_failure,
    .whole = whole,
};

const struct api openai_chat_api = {
    .path = "/v1/chat/completions", .dialect = DIALECT_OPENAI, .read = read_ask, .writer = &writer
};

void openai_chat(struct serve *serve, struct exchange *exchange)
{
    api_serve(&openai_chat_api, serve, exchange);
}
