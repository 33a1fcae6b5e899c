/* responses_stream.c: the events of a streamed response.
 *
 *     created, in_progress, { output_item.added, parts and deltas, output_item.done }…,
 *     completed | incomplete | failed
 *
 * One item is open at a time.  The client's helper checks every index and id, so they all come from
 * the list of items. */
#include "serve/reply.h"
#include "dialects/responses.h"

#include <stdio.h>

/* Takes `fields` over. */
static void send(struct delivery *delivery, const char *type, json_t *fields, struct byte_list *out)
{
    struct responses *state = delivery->state;
    char name[64];

    snprintf(name, sizeof name, "response.%s", type);
    json_t *data =
        json_pack("{s:s, s:I}", "type", name, "sequence_number", (json_int_t)state->sequence++);
    json_object_update(data, fields);
    json_decref(fields);
    sse_add(out, name, data);
}

static void send_response(struct delivery *delivery, const char *type, enum responses_status status,
                          const struct failure *failure, struct byte_list *out)
{
    json_t *response = responses_object_new(delivery, status, failure);

    send(delivery, type, json_pack("{s:o}", "response", response), out);
}

void responses_begin(struct delivery *delivery, struct byte_list *out)
{
    send_response(delivery, "created", RESPONSES_RUNNING, NULL, out);
    send_response(delivery, "in_progress", RESPONSES_RUNNING, NULL, out);
}

/* ---------------------------------------------------------------------- items */

/* The item that is open, or was last. */
static const struct responses_item *current(const struct responses *state)
{
    return &state->items[state->added - 1];
}

/* Takes `fields` over, and adds to them where they belong: the item and its number, and for what
 * has parts the number of its part. */
static void send_of_item(struct delivery *delivery, const char *type, json_t *fields,
                         struct byte_list *out)
{
    const struct responses *state = delivery->state;
    const struct responses_item *item = current(state);

    json_object_set_new(fields, "item_id", json_string(item->id));
    json_object_set_new(fields, "output_index", json_integer((json_int_t)state->added - 1));
    if (item->kind != RESPONSES_CALL) json_object_set_new(fields, "content_index", json_integer(0));
    send(delivery, type, fields, out);
}

static void send_item(struct delivery *delivery, const char *type, json_t *item,
                      struct byte_list *out)
{
    const struct responses *state = delivery->state;

    send(delivery, type,
         json_pack("{s:I, s:o}", "output_index", (json_int_t)state->added - 1, "item", item), out);
}

static void open_item(struct delivery *delivery, struct byte_list *out)
{
    struct responses *state = delivery->state;
    const struct responses_item *item = &state->items[state->added++];

    state->open = true;
    send_item(delivery, "output_item.added", responses_item_begin_new(delivery, item), out);
    if (item->kind != RESPONSES_CALL)
        send_of_item(delivery, "content_part.added",
                     json_pack("{s:o}", "part", responses_part_new(item, true)), out);
}

static void close_text(struct delivery *delivery, const struct responses_item *item,
                       struct byte_list *out)
{
    json_t *part = responses_part_new(item, false), *fields = json_object();
    bool message = item->kind == RESPONSES_MESSAGE;

    json_object_set(fields, "text", json_object_get(part, "text"));
    if (message) json_object_set(fields, "logprobs", json_object_get(part, "logprobs"));
    send_of_item(delivery, message ? "output_text.done" : "reasoning_text.done", fields, out);
    send_of_item(delivery, "content_part.done", json_pack("{s:o}", "part", part), out);
}

/* The input of a custom tool is known when its arguments are, and goes out in one piece. */
static void close_call(struct delivery *delivery, const struct responses_item *item,
                       struct byte_list *out)
{
    const struct collected_call *call = &delivery->answers[0].calls[item->call];

    if (!responses_is_custom(delivery, item)) {
        send_of_item(delivery, "function_call_arguments.done",
                     json_pack("{s:o, s:O?}", "arguments", list_json_new(&call->arguments), "name",
                               json_object_get(responses_tool(delivery, item), "name")),
                     out);
        return;
    }
    json_t *input = responses_input_new(&call->arguments);
    if (json_string_length(input) > 0)
        send_of_item(delivery, "custom_tool_call_input.delta", json_pack("{s:O}", "delta", input),
                     out);
    send_of_item(delivery, "custom_tool_call_input.done", json_pack("{s:o}", "input", input), out);
}

static void close_item(struct delivery *delivery, struct byte_list *out)
{
    struct responses *state = delivery->state;

    if (!state->open) return;
    const struct responses_item *item = current(state);
    if (item->kind == RESPONSES_CALL)
        close_call(delivery, item, out);
    else
        close_text(delivery, item, out);
    state->open = false;
    send_item(delivery, "output_item.done", responses_item_new(delivery, item), out);
}

/* ------------------------------------------------------------------- the writer */

static void send_delta(struct delivery *delivery, const struct job_event *event,
                       const struct collected *answer, struct byte_list *out)
{
    json_t *delta = json_pack("{s:o}", "delta", list_json_new(&event->text));

    if (event->kind == JOB_CONTENT) {
        json_t *logprobs = answer->fresh_logprobs;
        json_object_set_new(delta, "logprobs", logprobs ? json_incref(logprobs) : json_array());
        send_of_item(delivery, "output_text.delta", delta, out);
    } else if (event->kind == JOB_REASONING) {
        send_of_item(delivery, "reasoning_text.delta", delta, out);
    } else {
        send_of_item(delivery, "function_call_arguments.delta", delta, out);
    }
}

void responses_event(struct delivery *delivery, const struct job_event *event,
                     struct collected *answer, struct byte_list *out)
{
    struct responses *state = delivery->state;
    bool text = event->kind == JOB_CONTENT || event->kind == JOB_REASONING ||
                event->kind == JOB_CALL_ARGUMENTS;

    while (state->added < state->item_count) {
        close_item(delivery, out);
        open_item(delivery, out);
    }
    if (!state->open) return;
    if (text && event->text.count > 0 && !responses_is_custom(delivery, current(state)))
        send_delta(delivery, event, answer, out);
    if (event->kind == JOB_ENDED) close_item(delivery, out);
}

void responses_finish(struct delivery *delivery, struct byte_list *out)
{
    send_response(delivery, responses_is_cut(delivery) ? "incomplete" : "completed",
                  RESPONSES_ENDED, NULL, out);
}

void responses_break_off(struct delivery *delivery, const struct failure *failure,
                         struct byte_list *out)
{
    close_item(delivery, out);
    send_response(delivery, "failed", RESPONSES_FAILED, failure, out);
}
