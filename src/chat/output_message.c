#include "base/status.h"
#include "base/unicode.h"
#include "chat/output_internal.h"

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

/* Bytes that are not UTF-8 become U+FFFD. */
static bool add_valid(struct output_text *out, const char *text, size_t length)
{
    bool good = true;
    while (good && length > 0) {
        size_t valid = unicode_check(text, length);
        good = output_text_add(out, text, valid);
        if (good && valid < length) {
            good = output_text_add(out, "\xEF\xBF\xBD", 3);
            valid++;
        }
        text += valid;
        length -= valid;
    }
    return good;
}

/* JSON without the white space between its parts. */
static bool add_compact(struct output_text *out, const char *json, size_t length)
{
    bool in_string = false, good = true;
    size_t start = 0;
    for (size_t i = 0; i < length && good; i++) {
        if (in_string && json[i] == '\\') {
            i++; /* whatever follows, it ends nothing */
        } else if (json[i] == '"') {
            in_string = !in_string;
        } else if (!in_string && json[i] && strchr(" \n\t\r", json[i])) {
            good = add_valid(out, json + start, i - start);
            start = i + 1;
        }
    }
    return good && add_valid(out, json + start, length - start);
}

static bool add(struct output_text *out, const char *text)
{
    return output_text_add(out, text, strlen(text));
}

static bool add_call(struct output_text *out, const struct output_call *call)
{
    bool good =
        add(out, "{\"name\":") && output_text_add_quoted(out, call->name, strlen(call->name));
    good = good && add(out, ",\"arguments\":") &&
           add_compact(out, call->arguments, call->arguments_length);
    if (good && call->id)
        good = add(out, ",\"id\":") && output_text_add_quoted(out, call->id, strlen(call->id));
    return good && add(out, "}");
}

mf_status output_message_json_new(char **out, const struct output_message *message, mf_error *why)
{
    struct output_text text = { 0 };
    size_t count = 0;
    bool good = add(&text, "{\"reasoning\":") &&
                output_text_add_quoted(&text, message->reasoning, message->reasoning_length) &&
                add(&text, ",\"content\":") &&
                output_text_add_quoted(&text, message->content, message->content_length) &&
                add(&text, ",\"tool_calls\":[");
    for (size_t i = 0; i < message->call_count && good; i++) {
        if (!message->calls[i].complete) continue;
        good = (count++ == 0 || add(&text, ",")) && add_call(&text, &message->calls[i]);
    }
    good = good && output_text_add(&text, "]}", 3);
    *out = good ? text.data : NULL;
    if (good) return MF_OK;
    free(text.data);
    return fail_memory(why, text.length);
}
