/* responses_items.c: the items of an answer and the Response object. */
#include "dialects/openai.h"
#include "dialects/reasoning_token.h"
#include "dialects/recall.h"
#include "serve/reply.h"
#include "dialects/responses.h"

#include "common/basics.h"

#include <math.h>
#include <stdlib.h>
#include <time.h>

struct responses *responses_new(void)
{
    struct responses *state = calloc(1, sizeof *state);

    if (!state) return NULL;
    state->names = json_object();
    if (state->names) return state;
    free(state);
    return NULL;
}

void responses_free(void *user)
{
    struct responses *state = user;

    if (!state) return;
    for (size_t i = 0; i < state->item_count; i++) {
        byte_list_free(&state->items[i].text);
        json_decref(state->items[i].logprobs);
    }
    free(state->items);
    json_decref(state->names);
    free(state);
}

/* ----------------------------------------------------------------- collecting */

static struct responses_item *add_item(struct responses *state, enum responses_kind kind,
                                       const char *prefix)
{
    struct responses_item *item;

    if (list_reserve((void **)&state->items, &state->item_capacity, sizeof *state->items,
                     state->item_count + 1, NULL) != MF_OK)
        return NULL;
    item = &state->items[state->item_count++];
    *item = (struct responses_item){ .kind = kind };
    ask_new_id(item->id, sizeof item->id, prefix);
    return item;
}

/* The last item, if it is of this kind, or a new one. */
static struct responses_item *item_of(struct responses *state, enum responses_kind kind)
{
    struct responses_item *last =
        state->item_count > 0 ? &state->items[state->item_count - 1] : NULL;

    if (last && last->kind == kind) return last;
    return add_item(state, kind, kind == RESPONSES_REASONING ? "rs_" : "msg_");
}

static void take_text(struct responses *state, enum responses_kind kind,
                      const struct job_event *event, json_t *logprobs)
{
    if (event->text.count == 0) return;
    struct responses_item *item = item_of(state, kind);

    if (!item) return;
    byte_list_append(&item->text, event->text.bytes, event->text.count, NULL);
    if (!logprobs) return;
    if (!item->logprobs) item->logprobs = json_array();
    json_array_extend(item->logprobs, logprobs);
}

static void take_call(struct responses *state, const struct job_event *event,
                      const struct collected *answer)
{
    if (event->call >= answer->call_count) return;
    const json_t *tool = json_object_get(state->names, answer->calls[event->call].name);
    struct responses_item *item =
        add_item(state, RESPONSES_CALL, json_object_get(tool, "custom") ? "ctc_" : "fc_");

    if (item) item->call = event->call;
}

/* A client that looks for a message finds one, unless the answer is a call or was cut off. */
static void take_end(struct responses *state, const struct collected *answer)
{
    bool whole = answer->result.finish == MF_FINISH_END || answer->result.finish == MF_FINISH_STOP;

    for (size_t i = 0; i < state->item_count; i++)
        if (state->items[i].kind != RESPONSES_REASONING) return;
    if (whole) add_item(state, RESPONSES_MESSAGE, "msg_");
}

void responses_collect(struct delivery *delivery, const struct job_event *event,
                       struct collected *answer)
{
    struct responses *state = delivery->state;

    if (state->prewarm) return;
    if (event->kind == JOB_REASONING) take_text(state, RESPONSES_REASONING, event, NULL);
    if (event->kind == JOB_CONTENT)
        take_text(state, RESPONSES_MESSAGE, event, answer->fresh_logprobs);
    if (event->kind == JOB_CALL_BEGIN) take_call(state, event, answer);
    if (event->kind == JOB_ENDED) take_end(state, answer);
}

/* ---------------------------------------------------------------------- items */

const json_t *responses_tool(const struct delivery *delivery, const struct responses_item *item)
{
    const struct responses *state = delivery->state;

    return json_object_get(state->names, delivery->answers[0].calls[item->call].name);
}

bool responses_is_custom(const struct delivery *delivery, const struct responses_item *item)
{
    return item->kind == RESPONSES_CALL &&
           json_object_get(responses_tool(delivery, item), "custom") != NULL;
}

json_t *responses_input_new(const struct byte_list *arguments)
{
    enum { ESCAPE_MAX = 12 }; /* bytes of two \uXXXX */
    json_t *parsed = json_loadb(arguments->bytes ? arguments->bytes : "", arguments->count,
                                JSON_ALLOW_NUL, NULL);

    /* What was cut off ends in the string, or in an escape of it. */
    for (size_t cut = 0; !parsed && cut <= ESCAPE_MAX && cut < arguments->count; cut++) {
        struct byte_list text = { 0 };
        byte_list_append(&text, arguments->bytes, arguments->count - cut, NULL);
        if (text_add(&text, "\"}"))
            parsed = json_loadb(text.bytes, text.count, JSON_ALLOW_NUL, NULL);
        byte_list_free(&text);
    }
    json_t *input = json_object_get(parsed, "input");
    json_t *found = json_is_string(input) ? json_incref(input) : json_string("");
    json_decref(parsed);
    return found;
}

json_t *responses_part_new(const struct responses_item *item, bool empty)
{
    json_t *text = empty ? json_string("") : list_json_new(&item->text);
    json_t *logprobs = !empty && item->logprobs ? json_incref(item->logprobs) : json_array();

    if (item->kind == RESPONSES_MESSAGE)
        return json_pack("{s:s, s:o, s:[], s:o}", "type", "output_text", "text", text,
                         "annotations", "logprobs", logprobs);
    json_decref(logprobs);
    return json_pack("{s:s, s:o}", "type", "reasoning_text", "text", text);
}

static json_t *call_new(const struct delivery *delivery, const struct responses_item *item,
                        const char *status, bool empty)
{
    const struct collected_call *call = &delivery->answers[0].calls[item->call];
    const json_t *tool = responses_tool(delivery, item);
    const char *name = json_string_value(json_object_get(tool, "name"));
    const char *space = json_string_value(json_object_get(tool, "namespace"));
    bool custom = responses_is_custom(delivery, item);
    json_t *given = empty    ? json_string("")
                    : custom ? responses_input_new(&call->arguments)
                             : list_json_new(&call->arguments);

    return json_pack("{s:s, s:s, s:s, s:s, s:s, s:s*, s:o}", "id", item->id, "type",
                     custom ? "custom_tool_call" : "function_call", "status", status, "call_id",
                     call->id, "name", name ? name : call->name, "namespace", space,
                     custom ? "input" : "arguments", given);
}

static json_t *message_new(const struct responses_item *item, const char *status, bool empty)
{
    return json_pack("{s:s, s:s, s:s, s:s, s:o}", "id", item->id, "type", "message", "status",
                     status, "role", "assistant", "content",
                     empty ? json_array() : json_pack("[o]", responses_part_new(item, false)));
}

static json_t *reasoning_new(const struct delivery *delivery, const struct responses_item *item,
                             const char *status, bool empty)
{
    const struct responses *state = delivery->state;
    json_t *made =
        json_pack("{s:s, s:s, s:s, s:[], s:o}", "id", item->id, "type", "reasoning", "status",
                  status, "summary", "content",
                  empty ? json_array() : json_pack("[o]", responses_part_new(item, false)));

    if (!state->encrypted || empty) return made;
    char *token = reasoning_token_new(delivery->serve, item->text.bytes, item->text.count);
    if (token && *token) json_object_set_new(made, "encrypted_content", json_string(token));
    free(token);
    return made;
}

static json_t *item_new(const struct delivery *delivery, const struct responses_item *item,
                        const char *status, bool empty)
{
    switch (item->kind) {
    case RESPONSES_REASONING:
        return reasoning_new(delivery, item, status, empty);
    case RESPONSES_MESSAGE:
        return message_new(item, status, empty);
    default:
        return call_new(delivery, item, status, empty);
    }
}

json_t *responses_item_begin_new(const struct delivery *delivery, const struct responses_item *item)
{
    return item_new(delivery, item, "in_progress", true);
}

/* Only the last item can be cut off.  That holds for a call too: where a limit is near, the
 * constraint closes its arguments, which says nothing about what the model would have written. */
static bool is_complete(const struct delivery *delivery, const struct responses_item *item)
{
    const struct responses *state = delivery->state;
    const struct collected *answer = &delivery->answers[0];
    mf_finish finish = answer->result.finish;

    if (item->kind == RESPONSES_CALL && !answer->calls[item->call].complete) return false;
    if (item != &state->items[state->item_count - 1]) return true;
    return answer->ended && (finish == MF_FINISH_END || finish == MF_FINISH_STOP);
}

json_t *responses_item_new(const struct delivery *delivery, const struct responses_item *item)
{
    return item_new(delivery, item, is_complete(delivery, item) ? "completed" : "incomplete",
                    false);
}

/* ------------------------------------------------------------------- response */

bool responses_is_cut(const struct delivery *delivery)
{
    const struct responses *state = delivery->state;

    return !state->prewarm && delivery->answers[0].result.finish == MF_FINISH_LENGTH;
}

static json_t *usage_new(const struct delivery *delivery)
{
    const struct responses *state = delivery->state;
    const mf_resumed *cached = &delivery->answers[0].result.cached;
    int prompt = (int)job_prompt_tokens(delivery->job);
    int answer = state->prewarm ? 0 : (int)delivery_answer_tokens(delivery);
    int reasoning = state->prewarm ? 0 : (int)delivery_reasoning_tokens(delivery);
    int written = cached->reason == MF_RESUME_OFF ? 0 : prompt - (int)cached->resumed;

    return json_pack("{s:i, s:{s:i, s:i}, s:i, s:{s:i}, s:i}", "input_tokens", prompt,
                     "input_tokens_details", "cached_tokens", (int)cached->resumed,
                     "cache_write_tokens", written, "output_tokens", answer,
                     "output_tokens_details", "reasoning_tokens", reasoning, "total_tokens",
                     prompt + answer);
}

static json_t *output_new(const struct delivery *delivery)
{
    const struct responses *state = delivery->state;
    json_t *output = json_array();

    for (size_t i = 0; i < state->item_count; i++)
        json_array_append_new(output, responses_item_new(delivery, &state->items[i]));
    return output;
}

/* What the request gave, or `otherwise`, which is taken over. */
static void echo(json_t *out, const struct delivery *delivery, const char *name, json_t *otherwise)
{
    json_t *given = json_object_get(delivery->ask->body, name);

    if (!given || json_is_null(given)) {
        json_object_set_new(out, name, otherwise);
        return;
    }
    json_object_set(out, name, given);
    json_decref(otherwise);
}

static json_t *rounded_new(float value)
{
    return json_real(round((double)value * 1e6) / 1e6);
}

static void add_request(json_t *out, const struct delivery *delivery)
{
    const mf_sampler_options *sampling = &delivery->ask->sampling;
    const json_t *reasoning = json_object_get(delivery->ask->body, "reasoning");
    json_t *text = json_copy(json_object_get(delivery->ask->body, "text"));
    json_t *format = json_object_get(text, "format");

    if (!json_is_object(text)) text = json_object();
    if (!format || json_is_null(format))
        json_object_set_new(text, "format", json_pack("{s:s}", "type", "text"));
    echo(out, delivery, "instructions", json_null());
    echo(out, delivery, "max_output_tokens", json_null());
    echo(out, delivery, "max_tool_calls", json_null());
    echo(out, delivery, "metadata", json_object());
    echo(out, delivery, "parallel_tool_calls", json_true());
    echo(out, delivery, "prompt_cache_key", json_null());
    echo(out, delivery, "safety_identifier", json_null());
    echo(out, delivery, "temperature", rounded_new(sampling->temperature));
    echo(out, delivery, "tool_choice", json_string("auto"));
    echo(out, delivery, "tools", json_array());
    echo(out, delivery, "top_logprobs", json_integer(0));
    echo(out, delivery, "top_p", rounded_new(sampling->top_p));
    echo(out, delivery, "user", json_null());
    json_object_set_new(
        out, "reasoning",
        json_pack("{s:O?, s:n}", "effort", json_object_get(reasoning, "effort"), "summary"));
    json_object_set_new(out, "text", text);
}

static json_t *error_new(const struct failure *failure)
{
    static const char *const codes[] = { [FAILURE_INVALID] = "invalid_prompt",
                                         [FAILURE_TOO_LONG] = "context_length_exceeded",
                                         [FAILURE_BUSY] = "rate_limit_exceeded" };
    const char *code = (size_t)failure->kind < COUNT_OF(codes) ? codes[failure->kind] : NULL;

    return json_pack("{s:s, s:s}", "code", code ? code : "server_error", "message",
                     failure->message);
}

static const char *status_name(const struct delivery *delivery, enum responses_status status)
{
    if (status == RESPONSES_RUNNING) return "in_progress";
    if (status == RESPONSES_FAILED) return "failed";
    return responses_is_cut(delivery) ? "incomplete" : "completed";
}

/* What the prefix cache had of the prompt, and what has changed where that is less than the prompt of
 * the response that it is compared with. */
static json_t *diagnostics_new(const struct delivery *delivery, const char *compared)
{
    static const char *const reasons[] = {
        [RECALL_NONE] = NULL,
        [RECALL_UNKNOWN] = NULL,
        [RECALL_TOOLS] = "tools_changed",
        [RECALL_SYSTEM] = "input_changed",
        [RECALL_MESSAGES] = "input_changed",
        [RECALL_OTHER] = "reasoning_effort_changed",
    };
    const mf_resumed *cached = &delivery->answers[0].result.cached;
    uint32_t then, now = job_prompt_tokens(delivery->job);
    enum recall_change change =
        recall_compare(delivery->serve->recall, &then, delivery->ask, compared);

    if (change == RECALL_UNKNOWN)
        return json_pack("{s:s}", "type", "comparison_response_not_found");
    /* The last token of a prompt is always computed. */
    if (cached->matched + 1 >= then && cached->reason != MF_RESUME_OFF)
        return json_pack("{s:s}", "type", "cache_hit");
    if (!reasons[change]) /* what the other one left is no longer there */
        return json_pack("{s:s}", "type", "unavailable");
    return json_pack("{s:s, s:s, s:i, s:i}", "type", "cache_miss", "reason", reasons[change],
                     "cache_missed_tokens", (int)(now - cached->matched),
                     "comparison_reusable_tokens", (int)cached->matched);
}

static void add_diagnostics(json_t *out, const struct delivery *delivery)
{
    const struct responses *state = delivery->state;

    if (state->compared)
        json_object_set_new(out, "prompt_cache_diagnostics",
                            diagnostics_new(delivery, state->compared));
    recall_keep(delivery->serve->recall, delivery->ask, job_prompt_tokens(delivery->job));
}

json_t *responses_object_new(const struct delivery *delivery, enum responses_status status,
                             const struct failure *failure)
{
    const struct ask *ask = delivery->ask;
    bool ended = status == RESPONSES_ENDED, cut = ended && responses_is_cut(delivery);
    json_t *out = json_pack(
        "{s:s, s:s, s:I, s:s, s:s, s:o, s:o}", "id", ask->id, "object", "response", "created_at",
        (json_int_t)ask->created, "model", mf_model_name(delivery->serve->model), "status",
        status_name(delivery, status), "error", failure ? error_new(failure) : json_null(),
        "output", status == RESPONSES_RUNNING ? json_array() : output_new(delivery));

    json_object_set_new(out, "completed_at",
                        ended && !cut ? json_integer(time(NULL)) : json_null());
    json_object_set_new(out, "incomplete_details",
                        cut ? json_pack("{s:s}", "reason", "max_output_tokens") : json_null());
    add_request(out, delivery);
    json_object_set_new(out, "background", json_false());
    json_object_set_new(out, "previous_response_id", json_null());
    json_object_set_new(out, "service_tier", json_string("default"));
    json_object_set_new(out, "store", json_false());
    json_object_set_new(out, "truncation", json_string("disabled"));
    json_object_set_new(out, "usage", ended ? usage_new(delivery) : json_null());
    if (ended) json_object_set_new(out, "moeflux", openai_extra_new(delivery));
    if (ended) add_diagnostics(out, delivery);
    return out;
}
