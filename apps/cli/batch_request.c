#include "batch_request.h"

#include "common/basics.h"
#include "common/error.h"

#include <stdlib.h>
#include <time.h>

enum { STOPS_MAX = 4, BIASES_MAX = 1024, DEFAULT_TOKENS_RAW = 16 };

static const struct terminal nothing_shown;

static const json_t *body_of(const struct batch_request *request)
{
    return json_object_get(request->line, "body");
}

void batch_request_init(struct batch_request *request, const struct opened *opened, json_t *line)
{
    *request = (struct batch_request){ .opened = opened, .line = line };
    request->custom_id = json_string_value(json_object_get(line, "custom_id"));
}

static void close_parts(struct batch_request *request)
{
    mf_sequence_close(request->sequence);
    mf_sampler_close(request->sampler);
    mf_constraint_close(request->constraint);
    mf_stops_close(request->stops);
    request->sequence = NULL;
    request->sampler = NULL;
    request->constraint = NULL;
    request->stops = NULL;
}

void batch_request_free(struct batch_request *request)
{
    close_parts(request);
    mf_prompt_close(request->prompt);
    answer_free(&request->answer);
    free(request->tools);
    free(request->schema);
    json_decref(request->line);
    *request = (struct batch_request){ 0 };
}

static void end_request(struct batch_request *request, const char *finish)
{
    answer_end(&request->answer);
    request->finish = finish;
    request->state = REQUEST_DONE;
    close_parts(request);
}

/* ----------------------------------------------------------------- reading */

/* What is asked for and would be left out silently is refused by name. */
static mf_status check_fields(const json_t *body, mf_error *why)
{
    static const char *const unknown[] = { "logprobs", "top_logprobs", "audio", "prediction" };
    const json_t *n = json_object_get(body, "n");

    for (size_t i = 0; i < COUNT_OF(unknown); i++) {
        const json_t *value = json_object_get(body, unknown[i]);
        if (value && !json_is_null(value) && !json_is_false(value))
            return fail(why, MF_ERR_UNSUPPORTED, "\"%s\" is not supported", unknown[i]);
    }
    if (n && !(json_is_integer(n) && json_integer_value(n) == 1))
        return fail(why, MF_ERR_UNSUPPORTED, "\"n\" is not supported other than as 1");
    if (json_is_true(json_object_get(body, "stream")))
        return fail(why, MF_ERR_UNSUPPORTED, "\"stream\" is not possible in a batch");
    return MF_OK;
}

static mf_status read_number(double *out, const json_t *body, const char *name, double low,
                             double high, mf_error *why)
{
    const json_t *value = json_object_get(body, name);

    if (!value || json_is_null(value)) return MF_OK;
    if (!json_is_number(value) || json_number_value(value) < low || json_number_value(value) > high)
        return fail(why, MF_ERR_ARGUMENT, "\"%s\" is not a number from %g to %g", name, low, high);
    *out = json_number_value(value);
    return MF_OK;
}

static mf_status read_float(float *out, const json_t *body, const char *name, double low,
                            double high, mf_error *why)
{
    double value = (double)*out;
    mf_status status = read_number(&value, body, name, low, high, why);

    *out = (float)value;
    return status;
}

static mf_status read_biases(mf_logit_bias *biases, mf_sampler_options *options, const json_t *body,
                             mf_error *why)
{
    json_t *map = json_object_get(body, "logit_bias"), *value;
    const char *key;

    options->biases = biases;
    if (!map || json_is_null(map)) return MF_OK;
    if (!json_is_object(map) || json_object_size(map) > BIASES_MAX)
        return fail(why, MF_ERR_ARGUMENT, "\"logit_bias\" is not an object of at most %d members",
                    BIASES_MAX);
    json_object_foreach(map, key, value)
    {
        char *end;
        long token = strtol(key, &end, 10);
        if (*key == '\0' || *end != '\0' || token < 0 || token > INT32_MAX ||
            !json_is_number(value))
            return fail(why, MF_ERR_ARGUMENT,
                        "\"logit_bias\" has the member \"%.32s\", which is no "
                        "token id with a number",
                        key);
        biases[options->bias_count++] =
            (mf_logit_bias){ (int32_t)token, (float)json_number_value(value) };
    }
    return MF_OK;
}

static mf_status open_sampler(struct batch_request *request, uint64_t seed, mf_error *why)
{
    const json_t *body = body_of(request);
    const mf_text *text = mf_model_text(request->opened->model);
    mf_logit_bias *biases = calloc(BIASES_MAX, sizeof *biases);
    mf_sampler_options options = MF_SAMPLER_OPTIONS_INIT;
    double own_seed = (double)seed, top_k;
    mf_status status = biases ? mf_text_sampling(text, &options, why)
                              : fail_memory(why, BIASES_MAX * sizeof *biases);

    top_k = options.top_k;
    if (status == MF_OK) status = read_float(&options.temperature, body, "temperature", 0, 2, why);
    if (status == MF_OK) status = read_float(&options.top_p, body, "top_p", 0, 1, why);
    if (status == MF_OK) status = read_float(&options.min_p, body, "min_p", 0, 1, why);
    if (status == MF_OK) status = read_number(&top_k, body, "top_k", 0, 1 << 24, why);
    if (status == MF_OK)
        status = read_float(&options.frequency_penalty, body, "frequency_penalty", -2, 2, why);
    if (status == MF_OK)
        status = read_float(&options.presence_penalty, body, "presence_penalty", -2, 2, why);
    if (status == MF_OK) status = read_number(&own_seed, body, "seed", -9e15, 9e15, why);
    if (status == MF_OK) status = read_biases(biases, &options, body, why);
    options.top_k = (uint32_t)top_k;
    options.seed = (uint64_t)(int64_t)own_seed;
    if (status == MF_OK)
        status = mf_sampler_open(&request->sampler, request->opened->model, &options, why);
    free(biases);
    return status;
}

static mf_status open_stops(struct batch_request *request, mf_error *why)
{
    const json_t *stop = json_object_get(body_of(request), "stop");
    const char *strings[STOPS_MAX];
    size_t count = 0;

    if (!stop || json_is_null(stop)) return MF_OK;
    if (json_is_string(stop)) strings[count++] = json_string_value(stop);
    for (size_t i = 0; i < json_array_size(stop); i++) {
        const char *text = json_string_value(json_array_get(stop, i));
        if (!text || count == STOPS_MAX) {
            count = 0;
            break;
        }
        strings[count++] = text;
    }
    if (count == 0)
        return fail(why, MF_ERR_ARGUMENT, "\"stop\" is neither a string nor 1 to %d strings",
                    STOPS_MAX);
    return mf_stops_open(&request->stops, strings, count, why);
}

/* Tokens of the answer: what the request allows, and what the context leaves. */
static mf_status read_limit(struct batch_request *request, mf_error *why)
{
    const json_t *body = body_of(request);
    double limit = request->raw ? DEFAULT_TOKENS_RAW : INT32_MAX;
    size_t prompt;
    mf_status status = read_number(&limit, body, "max_tokens", 1, INT32_MAX, why);

    if (status == MF_OK)
        status = read_number(&limit, body, "max_completion_tokens", 1, INT32_MAX, why);
    if (status != MF_OK) return status;
    mf_prompt_tokens(request->prompt, &prompt);
    size_t room = mf_sequence_context_length(request->sequence);
    if (prompt == 0) return fail(why, MF_ERR_ARGUMENT, "the prompt is empty");
    if (prompt > room)
        return fail(
            why, MF_ERR_CONTEXT_FULL,
            "the prompt has %zu tokens, and the context has room for %zu (-c sets its size)",
            prompt, room);
    /* The last token need not be fed. */
    request->limit = min_size((size_t)limit, room - prompt + 1);
    return MF_OK;
}

/* ----------------------------------------------------------- prompt and form */

static char *text_of(const json_t *value)
{
    return json_dumps(value, JSON_COMPACT | JSON_REAL_PRECISION(17) | JSON_ENCODE_ANY);
}

static mf_status render_chat(struct batch_request *request, mf_error *why)
{
    const json_t *body = body_of(request);
    const json_t *variables = json_object_get(body, "chat_template_kwargs");
    mf_chat_options options = MF_CHAT_OPTIONS_INIT;
    char *messages = text_of(json_object_get(body, "messages"));
    char *further = json_is_object(variables) ? text_of(variables) : NULL;
    mf_status status = MF_OK;

    if (!messages) status = fail(why, MF_ERR_ARGUMENT, "\"messages\" is missing");
    options.messages = messages;
    options.tools = request->tools;
    options.variables = further;
    if (status == MF_OK)
        status =
            mf_chat_render(&request->prompt, mf_model_text(request->opened->model), &options, why);
    free(messages);
    free(further);
    return status;
}

static mf_status make_prompt(struct batch_request *request, mf_error *why)
{
    const char *url = json_string_value(json_object_get(request->line, "url"));
    const json_t *text = json_object_get(body_of(request), "prompt");

    if (!json_is_object(body_of(request)))
        return fail(why, MF_ERR_ARGUMENT, "the line has no object \"body\"");
    if (url && strcmp(url, "/v1/chat/completions") == 0) return render_chat(request, why);
    if (!url || strcmp(url, "/v1/completions") != 0)
        return fail(why, MF_ERR_UNSUPPORTED,
                    "\"url\" is neither /v1/chat/completions nor /v1/completions");
    if (!json_is_string(text)) return fail(why, MF_ERR_ARGUMENT, "\"prompt\" is not a string");
    request->raw = true;
    return mf_prompt_from_text(&request->prompt, mf_model_text(request->opened->model),
                               json_string_value(text), json_string_length(text), why);
}

/* The schema of response_format; NULL: none. */
static mf_status read_form(struct batch_request *request, mf_error *why)
{
    const json_t *form = json_object_get(body_of(request), "response_format");
    const char *type = json_string_value(json_object_get(form, "type"));
    const json_t *tools = json_object_get(body_of(request), "tools");

    if (json_array_size(tools) > 0) request->tools = text_of(tools);
    if (!type || strcmp(type, "text") == 0) return MF_OK;
    if (strcmp(type, "json_object") == 0) {
        request->schema = strdup("{\"type\":\"object\"}");
    } else if (strcmp(type, "json_schema") == 0) {
        const json_t *schema = json_object_get(json_object_get(form, "json_schema"), "schema");
        if (!schema)
            return fail(why, MF_ERR_ARGUMENT, "\"response_format\" has no json_schema.schema");
        request->schema = text_of(schema);
    } else {
        return fail(why, MF_ERR_UNSUPPORTED, "\"response_format\" of type \"%.32s\" is not known",
                    type);
    }
    return request->schema ? MF_OK : fail_memory(why, 1);
}

/* "auto", "none", "required", or {"type":"function","function":{"name":…}}. */
static const char *tool_choice(const json_t *body)
{
    const json_t *choice = json_object_get(body, "tool_choice");
    const json_t *function = json_object_get(choice, "function");

    if (json_is_string(choice)) return json_string_value(choice);
    return json_string_value(json_object_get(function, "name"));
}

static mf_status open_constraint(struct batch_request *request, mf_error *why)
{
    const json_t *body = body_of(request);
    mf_constraint_options options = MF_CONSTRAINT_OPTIONS_INIT;

    if (!request->schema && !request->tools) return MF_OK;
    options.json_schema = request->schema;
    options.tools = request->tools;
    options.tool_choice = request->tools ? tool_choice(body) : NULL;
    options.one_call = json_is_false(json_object_get(body, "parallel_tool_calls"));
    options.reasoning = mf_prompt_reasoning(request->prompt);
    return mf_constraint_open(&request->constraint, request->opened->model, &options, why);
}

static mf_status begin(struct batch_request *request, uint64_t seed, mf_error *why)
{
    const mf_text *text = mf_model_text(request->opened->model);
    mf_status status = check_fields(body_of(request), why);
    size_t count;

    if (status == MF_OK) status = read_form(request, why);
    if (status == MF_OK) status = make_prompt(request, why);
    if (status == MF_OK)
        status = mf_sequence_open(&request->sequence, request->opened->model, NULL, why);
    if (status == MF_OK) status = read_limit(request, why);
    if (status == MF_OK) status = open_constraint(request, why);
    if (status == MF_OK) status = open_stops(request, why);
    if (status == MF_OK) status = open_sampler(request, seed, why);
    if (status != MF_OK) return status;
    const int32_t *ids = mf_prompt_tokens(request->prompt, &count);
    mf_sampler_accept_prompt(request->sampler, ids, count);
    struct answer_options options = { .terminal = &nothing_shown,
                                      .text = text,
                                      .family = request->raw ? NULL : mf_text_family(text),
                                      .tools = request->tools,
                                      .reasoning = mf_prompt_reasoning(request->prompt),
                                      .view = REASONING_HIDE,
                                      .stops = request->stops,
                                      .silent = true };
    return answer_begin(&request->answer, &options, why);
}

void batch_request_begin(struct batch_request *request, uint64_t seed)
{
    mf_error why = { .text = "" };
    mf_status status = begin(request, seed, &why);

    request->state = status == MF_OK ? REQUEST_READING : REQUEST_DONE;
    if (status == MF_OK) return;
    request->problem = why;
    request->problem.status = status;
    close_parts(request);
}

/* ------------------------------------------------------------------ answering */

mf_part batch_request_part(struct batch_request *request)
{
    mf_part part = { .sequence = request->sequence,
                     .phase = MF_PHASE_GENERATED,
                     .tokens = &request->token,
                     .count = 1,
                     .why = &request->problem };

    if (request->state == REQUEST_READING) {
        part.phase = MF_PHASE_PROMPT;
        part.tokens = mf_prompt_tokens(request->prompt, &part.count);
    }
    return part;
}

/* -1: nothing can follow. */
static int32_t pick(struct batch_request *request)
{
    const float *logits = mf_sequence_logits(request->sequence);
    int32_t token;

    if (!request->constraint) return mf_sampler_pick(request->sampler, logits);
    token = mf_constraint_pick(request->constraint, request->sampler, logits,
                               request->limit - request->count);
    if (token >= 0) mf_constraint_accept(request->constraint, token);
    return token;
}

void batch_request_advance(struct batch_request *request, const mf_part *part, bool alone)
{
    int32_t token;

    if (part->status == MF_ERR_POOL_FULL && !alone) return;
    if (part->status != MF_OK) {
        request->problem.status = part->status;
        request->state = REQUEST_DONE;
        close_parts(request);
        return;
    }
    request->state = REQUEST_ANSWERING;
    request->problem.status = MF_OK;
    token = pick(request);
    if (token < 0 || mf_model_is_end(request->opened->model, token)) {
        end_request(request, "stop");
        return;
    }
    request->token = token;
    request->count++;
    mf_sampler_accept(request->sampler, token);
    if (!answer_push(&request->answer, token) || mf_constraint_is_finished(request->constraint))
        end_request(request, "stop");
    else if (request->count == request->limit)
        end_request(request, "length");
}

/* -------------------------------------------------------------------- results */

static json_t *text_json(const struct byte_list *text)
{
    return text->count ? json_stringn(text->bytes, text->count) : json_string("");
}

static json_t *choice_new(const struct batch_request *request)
{
    const struct answer *answer = &request->answer;
    const char *finish =
        answer->calls && strcmp(request->finish, "stop") == 0 ? "tool_calls" : request->finish;

    if (request->raw)
        return json_pack("{s:i,s:o,s:n,s:s}", "index", 0, "text", text_json(&answer->content),
                         "logprobs", "finish_reason", finish);
    json_t *message = json_pack(
        "{s:s,s:o,s:n}", "role", "assistant", "content",
        answer->calls && answer->content.count == 0 ? json_null() : text_json(&answer->content),
        "refusal");
    if (message && answer->reasoning.count > 0)
        json_object_set_new(message, "reasoning_content", text_json(&answer->reasoning));
    if (message && answer->calls) json_object_set(message, "tool_calls", answer->calls);
    return json_pack("{s:i,s:o,s:n,s:s}", "index", 0, "message", message, "logprobs",
                     "finish_reason", finish);
}

static json_t *completion_new(const struct batch_request *request, const char *id)
{
    size_t prompt = 0;

    if (request->prompt) mf_prompt_tokens(request->prompt, &prompt);
    return json_pack("{s:s,s:s,s:I,s:s,s:[o],s:{s:I,s:I,s:I}}", "id", id, "object",
                     request->raw ? "text_completion" : "chat.completion", "created",
                     (json_int_t)time(NULL), "model", mf_model_name(request->opened->model),
                     "choices", choice_new(request), "usage", "prompt_tokens", (json_int_t)prompt,
                     "completion_tokens", (json_int_t)request->count, "total_tokens",
                     (json_int_t)prompt + (json_int_t)request->count);
}

/* Of a failure of ours, or of a request that is wrong. */
static int status_code(const mf_error *problem)
{
    switch (problem->status) {
    case MF_OK:
        return 200;
    case MF_ERR_MEMORY:
    case MF_ERR_IO:
    case MF_ERR_NOT_FINITE:
    case MF_ERR_POOL_FULL:
        return 500;
    default:
        return 400;
    }
}

json_t *batch_request_result_new(const struct batch_request *request, size_t number)
{
    int code = status_code(&request->problem);
    char id[32], completion[48];
    json_t *body;

    snprintf(id, sizeof id, "batch_req_%zu", number);
    snprintf(completion, sizeof completion, "%s-%zu", request->raw ? "cmpl" : "chatcmpl", number);
    if (code == 200)
        body = completion_new(request, completion);
    else
        body = json_pack("{s:{s:s,s:s,s:n,s:s}}", "error", "message", request->problem.text, "type",
                         code == 400 ? "invalid_request_error" : "server_error", "param", "code",
                         mf_status_name(request->problem.status));
    return json_pack("{s:s,s:s,s:{s:i,s:s,s:o},s:n}", "id", id, "custom_id", request->custom_id,
                     "response", "status_code", code, "request_id", id, "body", body, "error");
}
