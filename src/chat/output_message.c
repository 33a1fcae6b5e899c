#include "base/status.h"
#include "base/unicode.h"
#include "base/utf8.h"
#include "chat/output_internal.h"

#include <stdlib.h>

static mf_status append(struct byte_buffer *text, const struct output_event *event, mf_error *why)
{
    byte_buffer_append(text, event->text, event->length);
    return byte_buffer_status(text, why);
}

static void clear_call(struct output_call *call)
{
    free(call->name);
    free(call->id);
    byte_buffer_free(&call->arguments);
    *call = (struct output_call){ 0 };
}

static mf_status begin_call(struct output_message *message, const struct output_event *event,
                            mf_error *why)
{
    mf_status status =
        ARRAY_RESERVE(message->calls, message->call_capacity, message->call_count + 1, NULL, why);
    if (status != MF_OK) return status;
    struct output_call *call = &message->calls[message->call_count++];
    *call = (struct output_call){ .name = strndup(event->text, event->length) };
    if (event->id) call->id = strndup(event->id, event->id_length);
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
        return append(&message->reasoning, event, why);
    case OUTPUT_CONTENT:
        return append(&message->content, event, why);
    case OUTPUT_CALL_BEGIN:
        return begin_call(message, event, why);
    default:
        break;
    }
    if (!last) return fail(why, MF_ERR_ARGUMENT, "a call goes on that did not begin");
    if (event->kind == OUTPUT_CALL_ARGUMENTS) return append(&last->arguments, event, why);
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
    byte_buffer_free(&message->reasoning);
    byte_buffer_free(&message->content);
    *message = (struct output_message){ 0 };
}

/* Bytes that are not UTF-8 become U+FFFD. */
static void add_valid(struct byte_buffer *out, const char *text, size_t length)
{
    while (length > 0) {
        size_t valid = unicode_check(text, length);
        byte_buffer_append(out, text, valid);
        if (valid < length) {
            byte_buffer_append_text(out, UTF8_REPLACEMENT);
            valid++;
        }
        text += valid;
        length -= valid;
    }
}

/* JSON without the white space between its parts. */
static void add_compact(struct byte_buffer *out, const char *json, size_t length)
{
    bool in_string = false;
    size_t start = 0;
    for (size_t i = 0; i < length; i++) {
        if (in_string && json[i] == '\\') {
            i++; /* whatever follows, it ends nothing */
        } else if (json[i] == '"') {
            in_string = !in_string;
        } else if (!in_string && json[i] && strchr(" \n\t\r", json[i])) {
            add_valid(out, json + start, i - start);
            start = i + 1;
        }
    }
    add_valid(out, json + start, length - start);
}

static void add_call(struct byte_buffer *out, const struct output_call *call)
{
    byte_buffer_append_text(out, "{\"name\":");
    output_add_quoted(out, call->name, strlen(call->name));
    byte_buffer_append_text(out, ",\"arguments\":");
    add_compact(out, call->arguments.data, call->arguments.count);
    if (call->id) {
        byte_buffer_append_text(out, ",\"id\":");
        output_add_quoted(out, call->id, strlen(call->id));
    }
    byte_buffer_append_text(out, "}");
}

mf_status output_message_json_new(char **out, const struct output_message *message, mf_error *why)
{
    struct byte_buffer text = { 0 };
    size_t count = 0;
    byte_buffer_append_text(&text, "{\"reasoning\":");
    output_add_quoted(&text, message->reasoning.data, message->reasoning.count);
    byte_buffer_append_text(&text, ",\"content\":");
    output_add_quoted(&text, message->content.data, message->content.count);
    byte_buffer_append_text(&text, ",\"tool_calls\":[");
    for (size_t i = 0; i < message->call_count; i++) {
        if (!message->calls[i].complete) continue;
        if (count++ > 0) byte_buffer_append_text(&text, ",");
        add_call(&text, &message->calls[i]);
    }
    byte_buffer_append_text(&text, "]}");
    mf_status status = byte_buffer_status(&text, why);
    if (status != MF_OK) byte_buffer_free(&text);
    *out = text.data;
    return status;
}
