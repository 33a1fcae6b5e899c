#include "batch_request.h"

#include "common/basics.h"
#include "common/error.h"

#include <stdlib.h>
#include <time.h>

enum { STOPS_MAX = 4, BIASES_MAX = 1024, DEFAULT_TOKENS_RAW = 16 };

static const json_t *body_of(const struct batch_request *request)
{
    return json_object_get(request->line, "body");
}

void batch_request_init(struct batch_request *request, const struct opened *opened, json_t *line)
{
    *request = (struct batch_request){ .opened = opened, .line = line };
    request->custom_id = json_string_value(json_object_get(line, "custom_id"));
}

void batch_request_free(struct batch_request *request)
{
    mf_request_close(request->request);
    mf_prompt_close(request->prompt);
    free(request->tools);
    free(request->schema);
    json_decref(request->message);
    json_decref(request->line);
    *request = (struct batch_request){ 0 };
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

/* `biases` has room for BIASES_MAX, and is borrowed by `out`. */
static mf_status read_sampling(mf_sampler_options *out, mf_logit_bias *biases,
                               const struct batch_request *request, uint64_t seed, mf_error *why)
{
    const json_t *body = body_of(request);
    double own_seed = (double)seed, top_k;
    mf_status status = mf_text_sampling(mf_model_text(request->opened->model), out, why);

    top_k = out->top_k;
    if (status == MF_OK) status = read_float(&out->temperature, body, "temperature", 0, 2, why);
    if (status == MF_OK) status = read_float(&out->top_p, body, "top_p", 0, 1, why);
    if (status == MF_OK) status = read_float(&out->min_p, body, "min_p", 0, 1, why);
    if (status == MF_OK) status = read_number(&top_k, body, "top_k", 0, 1 << 24, why);
    if (status == MF_OK)
        status = read_float(&out->frequency_penalty, body, "frequency_penalty", -2, 2, why);
    if (status == MF_OK)
        status = read_float(&out->presence_penalty, body, "presence_penalty", -2, 2, why);
    if (status == MF_OK) status = read_number(&own_seed, body, "seed", -9e15, 9e15, why);
    if (status == MF_OK) status = read_biases(biases, out, body, why);
    out->top_k = (uint32_t)top_k;
    out->seed = (uint64_t)(int64_t)own_seed;
    return status;
}

static mf_status read_stops(mf_request_options *out, const char *strings[STOPS_MAX],
                            const json_t *body, mf_error *why)
{
    const json_t *stop = json_object_get(body, "stop");
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
    out->stops = strings;
    out->stop_count = count;
    if (count == 0)
        return fail(why, MF_ERR_ARGUMENT, "\"stop\" is neither a string nor 1 to %d strings",
                    STOPS_MAX);
    return MF_OK;
}

static mf_status read_limit(mf_request_options *out, const struct batch_request *request,
                            mf_error *why)
{
    const json_t *body = body_of(request);
    double limit = request->raw ? DEFAULT_TOKENS_RAW : 0;
    mf_status status = read_number(&limit, body, "max_tokens", 1, INT32_MAX, why);

    if (status == MF_OK)
        status = read_number(&limit, body, "max_completion_tokens", 1, INT32_MAX, why);
    out->max_tokens = (uint32_t)limit;
    return status;
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
    options.find_places = true;
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

static void read_constraint(mf_constraint_options *out, const struct batch_request *request)
{
    const json_t *body = body_of(request);

    out->json_schema = request->schema;
    out->tools = request->tools;
    out->tool_choice = request->tools ? tool_choice(body) : NULL;
    out->one_call = json_is_false(json_object_get(body, "parallel_tool_calls"));
    out->reasoning = mf_prompt_reasoning(request->prompt);
}

/* All options of a request, with what they borrow. */
struct all_options {
    mf_request_options request;
    mf_sampler_options sampling;
    mf_constraint_options constraint;
    const char *stops[STOPS_MAX];
    mf_logit_bias biases[BIASES_MAX];
};

static mf_status read_options(struct all_options *all, struct batch_request *request, uint64_t seed,
                              mf_error *why)
{
    mf_request_options *options = &all->request;
    mf_status status = check_fields(body_of(request), why);

    if (status == MF_OK) status = read_form(request, why);
    if (status == MF_OK) status = make_prompt(request, why);
    if (status == MF_OK) status = read_limit(options, request, why);
    if (status == MF_OK) status = read_stops(options, all->stops, body_of(request), why);
    if (status == MF_OK) status = read_sampling(&all->sampling, all->biases, request, seed, why);
    if (status != MF_OK) return status;
    options->prompt = request->prompt;
    options->sampling = &all->sampling;
    options->family = request->raw ? NULL : mf_text_family(mf_model_text(request->opened->model));
    options->tools = request->tools;
    if (!request->schema && !request->tools) return MF_OK;
    read_constraint(&all->constraint, request);
    options->constraint = &all->constraint;
    return MF_OK;
}

bool batch_request_submit(struct batch_request *request, mf_scheduler *scheduler, uint64_t seed,
                          struct batch_end end)
{
    mf_error *why = &request->problem;
    struct all_options *all = calloc(1, sizeof *all);
    mf_status status = all ? MF_OK : fail_memory(why, sizeof *all);

    if (status == MF_OK) {
        all->request = (mf_request_options)MF_REQUEST_OPTIONS_INIT;
        all->sampling = (mf_sampler_options)MF_SAMPLER_OPTIONS_INIT;
        all->constraint = (mf_constraint_options)MF_CONSTRAINT_OPTIONS_INIT;
        status = read_options(all, request, seed, why);
    }
    if (status == MF_OK) {
        all->request.ended = end.ended;
        all->request.user = end.user;
        status = mf_request_submit(&request->request, scheduler, &all->request, why);
    }
    free(all);
    return status == MF_OK;
}

/* -------------------------------------------------------------------- results */

/* As the API has them: arguments are text. */
static json_t *calls_new(const json_t *calls, size_t number)
{
    json_t *list = json_array(), *call;
    size_t index;

    json_array_foreach((json_t *)calls, index, call)
    {
        const char *own_id = json_string_value(json_object_get(call, "id"));
        char *arguments = text_of(json_object_get(call, "arguments")), id[48];
        snprintf(id, sizeof id, "call_%zu_%zu", number, index);
        json_array_append_new(list, json_pack("{s:s,s:s,s:{s:O,s:s}}", "id", own_id ? own_id : id,
                                              "type", "function", "function", "name",
                                              json_object_get(call, "name"), "arguments",
                                              arguments ? arguments : "{}"));
        free(arguments);
    }
    return list;
}

static const char *finish_name(const struct batch_request *request, bool called)
{
    if (request->result.finish == MF_FINISH_LENGTH) return "length";
    return called ? "tool_calls" : "stop";
}

static json_t *choice_new(const struct batch_request *request, size_t number)
{
    json_t *content = json_object_get(request->message, "content");
    const json_t *reasoning = json_object_get(request->message, "reasoning");
    const json_t *calls = json_object_get(request->message, "tool_calls");
    bool called = json_array_size(calls) > 0;
    const char *finish = finish_name(request, called);

    if (request->raw)
        return json_pack("{s:i,s:O,s:n,s:s}", "index", 0, "text", content, "logprobs",
                         "finish_reason", finish);
    bool silent = called && json_string_length(content) == 0;
    json_t *message = json_pack("{s:s,s:o,s:n}", "role", "assistant", "content",
                                silent ? json_null() : json_incref(content), "refusal");
    if (message && json_string_length(reasoning) > 0)
        json_object_set(message, "reasoning_content", (json_t *)reasoning);
    if (message && called) json_object_set_new(message, "tool_calls", calls_new(calls, number));
    return json_pack("{s:i,s:o,s:n,s:s}", "index", 0, "message", message, "logprobs",
                     "finish_reason", finish);
}

static json_t *completion_new(const struct batch_request *request, size_t number)
{
    json_int_t prompt = request->result.prompt_tokens, answer = request->result.answer_tokens;
    char id[48];

    snprintf(id, sizeof id, "%s-%zu", request->raw ? "cmpl" : "chatcmpl", number);
    return json_pack("{s:s,s:s,s:I,s:s,s:[o],s:{s:I,s:I,s:I,s:{s:I}}}", "id", id, "object",
                     request->raw ? "text_completion" : "chat.completion", "created",
                     (json_int_t)time(NULL), "model", mf_model_name(request->opened->model),
                     "choices", choice_new(request, number), "usage", "prompt_tokens", prompt,
                     "completion_tokens", answer, "total_tokens", prompt + answer,
                     "prompt_tokens_details", "cached_tokens",
                     (json_int_t)request->result.cached.resumed);
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

/* What the request came to. */
static mf_status read_answer(struct batch_request *request, mf_error *why)
{
    const char *text;
    mf_status status;

    request->result = (mf_request_result)MF_REQUEST_RESULT_INIT;
    status = mf_request_wait(request->request, &request->result, why);
    if (status == MF_OK) status = mf_request_message(&text, request->request, why);
    if (status != MF_OK) return status;
    request->message = json_loads(text, 0, NULL);
    return request->message ? MF_OK : fail_memory(why, strlen(text));
}

json_t *batch_request_result_new(struct batch_request *request, size_t number)
{
    char id[32];
    json_t *body;

    if (request->request) request->problem.status = read_answer(request, &request->problem);
    int code = status_code(&request->problem);
    snprintf(id, sizeof id, "batch_req_%zu", number);
    if (code == 200)
        body = completion_new(request, number);
    else
        body = json_pack("{s:{s:s,s:s,s:n,s:s}}", "error", "message", request->problem.text, "type",
                         code == 400 ? "invalid_request_error" : "server_error", "param", "code",
                         mf_status_name(request->problem.status));
    return json_pack("{s:s,s:s,s:{s:i,s:s,s:o},s:n}", "id", id, "custom_id", request->custom_id,
                     "response", "status_code", code, "request_id", id, "body", body, "error");
}
