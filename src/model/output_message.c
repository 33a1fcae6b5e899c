#include "base/status.h"
#include "model/output_internal.h"

#include <stdlib.h>

/* Appends to a terminated text that grows. */
static mf_status append(char **text, size_t *length, size_t *capacity,
                        const struct output_event *event, mf_error *why)
{
    if (*capacity - *length <= event->length) {
        size_t wanted = max_size(*capacity * 2, *length + event->length + 64);
        char *grown = realloc(*text, wanted);
        if (!grown) return fail_memory(why, wanted);
        *text = grown;
        *capacity = wanted;
    }
    memcpy(*text + *length, event->text, event->length);
    *length += event->length;
    (*text)[*length] = '\0';
    return MF_OK;
}

static void clear_call(struct output_call *call)
{
    free(call->name);
    free(call->id);
    free(call->arguments);
    *call = (struct output_call){ 0 };
}

static mf_status begin_call(struct output_message *message, const struct output_event *event,
                            mf_error *why)
{
    if (message->call_count == message->call_capacity) {
        size_t capacity = max_size(4, 2 * message->call_capacity);
        struct output_call *calls = realloc(message->calls, capacity * sizeof *calls);
        if (!calls) return fail_memory(why, capacity * sizeof *calls);
        message->calls = calls;
        message->call_capacity = capacity;
    }
    struct output_call *call = &message->calls[message->call_count++];
    *call = (struct output_call){ .name = strndup(event->text, event->length) };
    if (event->id) call->id = strndup(event->id, event->id_length);
    message->arguments_capacity = 0;
    if (!call->name || (event->id && !call->id)) return fail_memory(why, event->length);
    return MF_OK;
}

mf_status output_message_sink(void *user, const struct output_event *event, mf_error *why)
{
    struct output_message *message = user;
    struct output_call *last =
        message->call_count ? &message->calls[message->call_count - 1] : NULL;
    switch (event->kind) {
    case OUTPUT_REASONING:
        return append(&message->reasoning, &message->reasoning_length, &message->reasoning_capacity,
                      event, why);
    case OUTPUT_CONTENT:
        return append(&message->content, &message->content_length, &message->content_capacity,
                      event, why);
    case OUTPUT_CALL_BEGIN:
        return begin_call(message, event, why);
    default:
        break;
    }
    if (!last) return fail(why, MF_ERR_ARGUMENT, "a call goes on that did not begin");
    if (event->kind == OUTPUT_CALL_ARGUMENTS)
        return append(&last->arguments, &last->arguments_length, &message->arguments_capacity,
                      event, why);
    if (event->kind == OUTPUT_CALL_END) {
        last->complete = true;
    } else {
        clear_call(last);
        message->call_count--;
    }
    return MF_OK;
}

void output_message_clear(struct output_message *message)
{
    for (size_t i = 0; i < message->call_count; i++) clear_call(&message->calls[i]);
    free(message->calls);
    free(message->reasoning);
    free(message->content);
    *message = (struct output_message){ 0 };
}

/* The text as a JSON string; bytes that are not UTF-8 become U+FFFD. */
static json_t *json_text(const char *text, size_t length)
{
    struct output_text quoted = { 0 };
    json_t *value = NULL;
    if (output_text_add_quoted(&quoted, text, length))
        value = json_loadb(quoted.data, quoted.length, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
    free(quoted.data);
    return value;
}

/* Arguments are JSON by construction; what jansson cannot hold (a whole number of more than 64
 * bits) is given as the text itself. */
static json_t *json_call(const struct output_call *call)
{
    json_t *object = json_object();
    json_t *arguments = json_loadb(call->arguments, call->arguments_length, JSON_ALLOW_NUL, NULL);
    if (!arguments) arguments = json_text(call->arguments, call->arguments_length);
    json_object_set_new(object, "name", json_text(call->name, strlen(call->name)));
    json_object_set_new(object, "arguments", arguments);
    if (call->id) json_object_set_new(object, "id", json_text(call->id, strlen(call->id)));
    return object;
}

mf_status output_message_json_new(json_t **out, const struct output_message *message, mf_error *why)
{
    json_t *calls = json_array();
    *out = json_object();
    int problem = !*out || !calls;
    for (size_t i = 0; i < message->call_count; i++)
        if (message->calls[i].complete)
            problem |= json_array_append_new(calls, json_call(&message->calls[i]));
    problem |= json_object_set_new(*out, "reasoning",
                                   json_text(message->reasoning, message->reasoning_length));
    problem |=
        json_object_set_new(*out, "content", json_text(message->content, message->content_length));
    problem |= json_object_set_new(*out, "tool_calls", calls);
    if (!problem) return MF_OK;
    json_decref(*out);
    *out = NULL;
    return fail_memory(why, message->content_length);
}
