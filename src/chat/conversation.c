#include "chat/conversation.h"

#include "base/array.h"
#include "base/status.h"
#include "chat/output_family.h"

#include <stdlib.h>

static bool has_role(const json_t *message, const char *role)
{
    const char *own = json_string_value(json_object_get(message, "role"));
    return own && strcmp(own, role) == 0;
}

static size_t call_count(const json_t *message)
{
    return has_role(message, "assistant") ? json_array_size(json_object_get(message, "tool_calls"))
                                          : 0;
}

/* How many messages from `index` on are results of tools. */
static size_t result_count(const json_t *messages, size_t index)
{
    size_t end = index;
    while (end < json_array_size(messages) && has_role(json_array_get(messages, end), "tool"))
        end++;
    return end - index;
}

/* The results of a message's calls: `count` messages from `begin` on. */
struct results {
    const json_t *messages, *calls;
    size_t begin, count;
    size_t *call_of; /* [count] numbers of the calls they belong to; NULL where there are none */
};

/* Clients that know no ids send empty ones. */
static bool is_id(const json_t *id)
{
    return id && !json_is_null(id) && (!json_is_string(id) || json_string_length(id) > 0);
}

/* The first call with this id that has no result yet, else one that has; `total`: there is none. */
static size_t find_call(const struct results *results, const bool *answered, size_t total,
                        const json_t *id)
{
    size_t found = total;
    for (size_t i = 0; is_id(id) && i < total; i++) {
        if (!json_equal(json_object_get(json_array_get(results->calls, i), "id"), id)) continue;
        found = i;
        if (!answered[i]) break;
    }
    return found;
}

/* By their ids; then results without a call go to the calls without a result, both in order, and
 * those that are too many to the last call. */
static void match_results(struct results *results, bool *answered, size_t total)
{
    size_t next = 0;
    for (size_t i = 0; i < results->count; i++) {
        const json_t *result = json_array_get(results->messages, results->begin + i);
        size_t call = find_call(results, answered, total, json_object_get(result, "tool_call_id"));
        if (call < total) answered[call] = true;
        results->call_of[i] = call;
    }
    for (size_t i = 0; i < results->count; i++) {
        if (results->call_of[i] < total) continue;
        while (next < total && answered[next]) next++;
        results->call_of[i] = next < total ? next++ : total - 1;
    }
}

/* Those behind message `index`; free(call_of). */
static mf_status find_results(struct results *out, const json_t *messages, size_t index,
                              mf_error *why)
{
    const json_t *message = json_array_get(messages, index);
    size_t total = call_count(message);
    *out = (struct results){ messages, json_object_get(message, "tool_calls"), index + 1, 0, NULL };
    if (total > 0) out->count = result_count(messages, index + 1);
    if (out->count == 0) return MF_OK;
    bool *answered = calloc(total, sizeof *answered);
    out->call_of = calloc(out->count, sizeof *out->call_of);
    mf_status status = MF_OK;
    if (answered && out->call_of)
        match_results(out, answered, total);
    else
        status = fail_memory(why, out->count * sizeof *out->call_of);
    free(answered);
    return status;
}

/* ------------------------------------------------------------------ Harmony */

/* A string, or an array of strings and parts with text.  False: something that has no text. */
static bool add_text(struct byte_buffer *out, const json_t *value)
{
    const char *between = "";
    size_t i;
    json_t *part;
    if (!value || json_is_null(value)) return true;
    if (json_is_string(value)) {
        byte_buffer_append(out, json_string_value(value), json_string_length(value));
        return true;
    }
    json_array_foreach(value, i, part)
    {
        const json_t *text = json_is_string(part) ? part : json_object_get(part, "text");
        if (!json_is_string(text)) return false;
        byte_buffer_append_text(out, between);
        byte_buffer_append(out, json_string_value(text), json_string_length(text));
        between = "\n";
    }
    return json_is_array(value);
}

static bool is_empty(const json_t *value)
{
    return !value || json_is_null(value) ||
           (json_is_string(value) && json_string_length(value) == 0) ||
           (json_is_array(value) && json_array_size(value) == 0);
}

/* Under the template's own name, or under that of most others; NULL: none. */
static const json_t *reasoning_of(const json_t *message)
{
    const json_t *own = json_object_get(message, "thinking");
    const json_t *other = json_object_get(message, "reasoning_content");
    return !is_empty(own) ? own : !is_empty(other) ? other : NULL;
}

/* Reasoning and content of a message with a call, as reasoning.  Where one of them is no text both
 * stay what they are, and the template refuses them. */
static void set_thinking(json_t *copy, const json_t *message)
{
    const json_t *reasoning = reasoning_of(message), *content = json_object_get(message, "content");
    struct byte_buffer text = { 0 }, second = { 0 };
    bool readable = add_text(&text, reasoning) && add_text(&second, content);
    if (text.count > 0 && second.count > 0) byte_buffer_append_text(&text, "\n\n");
    byte_buffer_append(&text, second.data ? second.data : "", second.count);
    if (readable && !text.failed && !second.failed) {
        json_object_set_new(copy, "content", json_string(""));
        json_object_set_new(copy, "thinking", json_stringn(text.data, text.count));
    } else if (reasoning) {
        json_object_set(copy, "thinking", (json_t *)(uintptr_t)reasoning);
    }
    byte_buffer_free(&second);
    byte_buffer_free(&text);
}

/* OpenAI's form of arguments, JSON in a string, as the object that it holds; NULL: it holds none, as
 * where a key stands twice. */
static json_t *arguments_new(const json_t *arguments)
{
    const char *text = json_string_value(arguments);
    size_t length = json_string_length(arguments);
    if (!text) return NULL;
    if (strspn(text, " \t\r\n") == length) return json_object();
    json_t *parsed = json_loadb(text, length, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, NULL);
    if (json_is_object(parsed)) return parsed;
    json_decref(parsed);
    return NULL;
}

/* The template writes arguments as JSON: a string would be quoted once more. */
static json_t *call_new(json_t *call)
{
    json_t *function = json_object_get(call, "function");
    json_t *of = function ? function : call;
    json_t *arguments = arguments_new(json_object_get(of, "arguments"));
    if (!arguments) return json_incref(call);
    json_t *copy = json_copy(of);
    json_object_set_new(copy, "arguments", arguments);
    if (!function) return copy;
    json_t *whole = json_copy(call);
    json_object_set_new(whole, "function", copy);
    return whole;
}

/* The message with call number `index` alone; the first has what was thought before it. */
static json_t *one_call_new(const json_t *message, size_t index)
{
    json_t *copy = json_copy((json_t *)(uintptr_t)message), *calls = json_array();
    json_t *call = json_array_get(json_object_get(message, "tool_calls"), index);
    json_array_append_new(calls, call_new(call));
    json_object_set_new(copy, "tool_calls", calls);
    json_object_del(copy, "reasoning_content");
    json_object_set_new(copy, "thinking", json_string(""));
    if (index == 0)
        set_thinking(copy, message);
    else
        json_object_set_new(copy, "content", json_string(""));
    return copy;
}

/* Calls and their results, one after the other. */
static void add_calls(json_t *out, const json_t *message, const struct results *results)
{
    for (size_t i = 0; i < json_array_size(results->calls); i++) {
        json_array_append_new(out, one_call_new(message, i));
        for (size_t j = 0; j < results->count; j++)
            if (results->call_of[j] == i)
                json_array_append(out, json_array_get(results->messages, results->begin + j));
    }
}

static json_t *without_calls_new(const json_t *message)
{
    json_t *copy = json_copy((json_t *)(uintptr_t)message);
    if (!has_role(message, "assistant")) return copy;
    json_object_del(copy, "tool_calls"); /* an empty list, or null */
    if (json_is_null(json_object_get(copy, "content")))
        json_object_set_new(copy, "content", json_string(""));
    const json_t *reasoning = reasoning_of(message);
    if (reasoning) json_object_set(copy, "thinking", (json_t *)(uintptr_t)reasoning);
    return copy;
}

/* ------------------------------------------------------------------ Gemma 4 */

static json_t *with_results_new(const json_t *message, const struct results *results)
{
    json_t *copy = json_copy((json_t *)(uintptr_t)message), *list = json_array();
    for (size_t i = 0; i < results->count; i++) {
        const json_t *result = json_array_get(results->messages, results->begin + i);
        const json_t *call = json_array_get(results->calls, results->call_of[i]);
        const json_t *name = json_object_get(json_object_get(call, "function"), "name");
        json_array_append_new(list, json_pack("{s:O?,s:O?}", "name", name, "response",
                                              json_object_get(result, "content")));
    }
    json_object_set_new(copy, "tool_responses", list);
    return copy;
}

/* Does the template ask for messages of the role `tool`? */
static bool knows_results(const char *source)
{
    return strstr(source, "== 'tool'") || strstr(source, "!= 'tool'") ||
           strstr(source, "== \"tool\"") || strstr(source, "!= \"tool\"");
}

/* ------------------------------------------------------------------ all messages */

/* The message `index` with its results. */
static void add_message(json_t *out, const json_t *messages, size_t index,
                        const struct results *results, bool harmony)
{
    json_t *message = json_array_get(messages, index);
    if (call_count(message) > 0 && harmony)
        add_calls(out, message, results);
    else if (harmony)
        json_array_append_new(out, without_calls_new(message));
    else if (results->count > 0)
        json_array_append_new(out, with_results_new(message, results));
    else
        json_array_append(out, message);
}

mf_status conversation_adapt_new(json_t **out, const json_t *messages, const char *template_source,
                                 mf_error *why)
{
    const struct output_family *family = output_family_detect(template_source);
    bool harmony = family->channels;
    bool embedded = family->result_begin && !knows_results(template_source);
    if (!harmony && !embedded) {
        *out = json_incref((json_t *)(uintptr_t)messages);
        return MF_OK;
    }
    mf_status status = MF_OK;
    *out = json_array();
    if (!*out) return fail_memory(why, sizeof **out);
    for (size_t i = 0; i < json_array_size(messages) && status == MF_OK; i++) {
        struct results results;
        status = find_results(&results, messages, i, why);
        if (status == MF_OK) add_message(*out, messages, i, &results, harmony);
        i += results.count;
        free(results.call_of);
    }
    if (status == MF_OK) return MF_OK;
    json_decref(*out);
    *out = NULL;
    return status;
}
