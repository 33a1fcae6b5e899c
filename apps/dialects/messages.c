#include "dialects/messages.h"

#include "common/basics.h"
#include "serve/reply.h"

#include <stdio.h>

static bool no_memory(struct failure *failure)
{
    return refuse(failure, FAILURE_ENGINE, NULL, "out of memory");
}

/* ------------------------------------------------------------------ building */

static json_t *last_message(const struct ask *ask)
{
    size_t count = json_array_size(ask->messages);

    return count > 0 ? json_array_get(ask->messages, count - 1) : NULL;
}

static bool has_role(const json_t *message, const char *role)
{
    const char *own = json_string_value(json_object_get(message, "role"));

    return own && strcmp(own, role) == 0;
}

static bool join(json_t *message, const char *key, const char *between, const char *text,
                 size_t length)
{
    json_t *old = json_object_get(message, key);
    struct byte_list joined = { 0 };
    bool done = true;

    if (json_string_length(old) > 0) {
        mf_status status =
            byte_list_append(&joined, json_string_value(old), json_string_length(old), NULL);
        done = status == MF_OK && text_add(&joined, between);
    }
    done = done && byte_list_append(&joined, text, length, NULL) == MF_OK;
    done = done &&
           json_object_set_new(message, key,
                               json_text_new(joined.bytes ? joined.bytes : "", joined.count)) == 0;
    byte_list_free(&joined);
    return done;
}

bool messages_add(struct ask *ask, const char *role, const json_t *text, struct failure *failure)
{
    const char *bytes = json_string_value(text);
    size_t length = json_string_length(text);

    if (!ask->messages) ask->messages = json_array();
    if (strcmp(role, "developer") == 0) role = "system";
    json_t *last = last_message(ask);
    if (strcmp(role, "system") == 0 && last) {
        if (json_array_size(ask->messages) == 1 && has_role(last, "system"))
            return join(last, "content", "\n\n", bytes, length) || no_memory(failure);
        role = "user";
    }
    json_t *message = json_pack("{s:s, s:o}", "role", role, "content",
                                bytes ? json_stringn(bytes, length) : json_string(""));
    return json_array_append_new(ask->messages, message) == 0 || no_memory(failure);
}

bool messages_add_text(struct ask *ask, const char *role, const char *text, struct failure *failure)
{
    json_t *value = json_string(text);
    bool done = messages_add(ask, role, value, failure);

    json_decref(value);
    return done;
}

json_t *messages_assistant(struct ask *ask)
{
    struct failure failure;
    json_t *last = last_message(ask);

    if (last && has_role(last, "assistant")) return last;
    return messages_add_text(ask, "assistant", "", &failure) ? last_message(ask) : NULL;
}

bool messages_add_reasoning(json_t *message, const char *text, size_t length)
{
    return length == 0 || join(message, "reasoning_content", "\n", text, length);
}

bool messages_add_content(json_t *message, const char *text, size_t length)
{
    return length == 0 || join(message, "content", "", text, length);
}

/* Templates want an object; what is none stays text, so that nothing is lost. */
static json_t *arguments_new(const json_t *arguments)
{
    const char *text = json_string_value(arguments);

    if (json_is_object(arguments)) return json_deep_copy(arguments);
    if (!text || text[strspn(text, " \t\r\n")] == '\0') return json_object();
    json_t *parsed = json_loadb(text, json_string_length(arguments), 0, NULL);
    if (json_is_object(parsed)) return parsed;
    json_decref(parsed);
    return json_string(text);
}

bool messages_add_call(json_t *message, const char *id, const char *name, const json_t *arguments)
{
    json_t *calls = json_object_get(message, "tool_calls");

    if (!calls) {
        calls = json_array();
        if (json_object_set_new(message, "tool_calls", calls) != 0) return false;
    }
    json_t *call = json_pack("{s:s, s:s, s:{s:s, s:o}}", "id", id ? id : "", "type", "function",
                             "function", "name", name, "arguments", arguments_new(arguments));
    return json_array_append_new(calls, call) == 0;
}

bool messages_add_result(struct ask *ask, const char *call_id, const char *text,
                         struct failure *failure)
{
    json_t *message = json_pack("{s:s, s:s, s:s}", "role", "tool", "content", text, "tool_call_id",
                                call_id ? call_id : "");

    if (!ask->messages) ask->messages = json_array();
    return json_array_append_new(ask->messages, message) == 0 || no_memory(failure);
}

/* ------------------------------------------------------------------- reading */

static bool add_part(struct byte_list *out, const json_t *part, const char *where,
                     struct failure *failure)
{
    const char *type = json_string_value(json_object_get(part, "type"));
    const json_t *text = json_object_get(part, "text");

    if (json_is_string(part)) text = part;
    if (type && strcmp(type, "refusal") == 0) text = json_object_get(part, "refusal");
    bool readable =
        json_is_string(part) || (type && (strstr(type, "text") || strstr(type, "refusal")));
    if (!readable)
        return refuse_code(failure, "unsupported_parameter", where,
                           "%s has a part of type \"%.32s\": this server reads text only", where,
                           type ? type : "");
    if (!json_is_string(text))
        return refuse_code(failure, "invalid_value", where, "%s has a text part without text",
                           where);
    mf_status status =
        byte_list_append(out, json_string_value(text), json_string_length(text), NULL);
    return status == MF_OK || no_memory(failure);
}

bool content_text_new(json_t **out, const json_t *content, const char *where,
                      struct failure *failure)
{
    struct byte_list joined = { 0 };
    bool done = true;
    size_t i;
    json_t *part;

    *out = NULL;
    if (json_is_string(content)) {
        *out = json_copy((json_t *)(uintptr_t)content);
        return *out ? true : no_memory(failure);
    }
    if (content && !json_is_null(content) && !json_is_array(content))
        return refuse_code(failure, "invalid_value", where,
                           "%s is neither a string nor an array of parts", where);
    json_array_foreach(content, i, part)
    {
        if (i > 0 && joined.count > 0) text_add(&joined, "\n");
        done = add_part(&joined, part, where, failure);
        if (!done) break;
    }
    if (done) *out = json_stringn(joined.bytes ? joined.bytes : "", joined.count);
    byte_list_free(&joined);
    return *out ? true : done ? no_memory(failure) : false;
}

void messages_note_breakpoint(struct ask *ask, const json_t *content)
{
    size_t i;
    json_t *part;

    json_array_foreach(content, i, part)
    {
        if (!json_object_get(part, "prompt_cache_breakpoint")) continue;
        if (ask->breakpoint_count == ASK_BREAKPOINTS_MAX) return;
        ask->breakpoints[ask->breakpoint_count++] = json_array_size(ask->messages);
        return;
    }
}

static bool read_call(json_t *message, const json_t *call, const char *where,
                      struct failure *failure)
{
    const json_t *function = json_object_get(call, "function");
    const char *id = json_string_value(json_object_get(call, "id"));
    const json_t *custom = json_object_get(call, "custom");
    const char *name = json_string_value(json_object_get(custom ? custom : function, "name"));
    const json_t *arguments = custom ? NULL : json_object_get(function, "arguments");
    json_t *input = NULL;

    if (!name)
        return refuse_code(failure, "invalid_value", where, "%s has a tool call without a name",
                           where);
    if (custom) arguments = input = json_pack("{s:O?}", "input", json_object_get(custom, "input"));
    bool done = messages_add_call(message, id, name, arguments);
    json_decref(input);
    return done || no_memory(failure);
}

static bool read_assistant(struct ask *ask, const json_t *given, const json_t *text,
                           const char *where, struct failure *failure)
{
    const json_t *reasoning = json_object_get(given, "reasoning_content");
    size_t i;
    json_t *call;

    if (!messages_add(ask, "assistant", text, failure)) return false;
    json_t *message = last_message(ask);
    if (!json_is_string(reasoning)) reasoning = json_object_get(given, "reasoning");
    if (json_is_string(reasoning) && !messages_add_reasoning(message, json_string_value(reasoning),
                                                             json_string_length(reasoning)))
        return no_memory(failure);
    json_array_foreach(json_object_get(given, "tool_calls"), i, call)
    {
        if (!read_call(message, call, where, failure)) return false;
    }
    return true;
}

static bool read_message(struct ask *ask, const json_t *given, const char *where,
                         struct failure *failure)
{
    const char *role = json_string_value(json_object_get(given, "role"));
    const char *id = json_string_value(json_object_get(given, "tool_call_id"));
    const json_t *content = json_object_get(given, "content");
    json_t *text = NULL;
    bool done = false;

    if (!role)
        return refuse_code(failure, "invalid_value", where, "%s is no message: it has no role",
                           where);
    if (!content_text_new(&text, content, where, failure)) return false;
    if (strcmp(role, "assistant") == 0)
        done = read_assistant(ask, given, text, where, failure);
    else if (strcmp(role, "tool") == 0 || strcmp(role, "function") == 0)
        done = messages_add_result(ask, id, json_string_value(text), failure);
    else if (strcmp(role, "system") == 0 || strcmp(role, "developer") == 0 ||
             strcmp(role, "user") == 0)
        done = messages_add(ask, role, text, failure);
    else
        refuse_code(failure, "invalid_value", where,
                    "%s has the role \"%.32s\": developer, system, user, assistant and tool are "
                    "known",
                    where, role);
    json_decref(text);
    if (done) messages_note_breakpoint(ask, content);
    return done;
}

bool messages_read_openai(struct ask *ask, const json_t *messages, struct failure *failure)
{
    char where[48];
    size_t i;
    json_t *message;

    if (json_array_size(messages) == 0)
        return refuse_code(failure, "invalid_value", "messages",
                           "\"messages\" is not an array with at least one message");
    json_array_foreach(messages, i, message)
    {
        snprintf(where, sizeof where, "messages[%zu]", i);
        if (!read_message(ask, message, where, failure)) return false;
    }
    return true;
}
