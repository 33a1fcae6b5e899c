#include "dialects/openai.h"

#include "common/basics.h"
#include "serve/reply.h"

#include <stdio.h>

json_t *openai_usage_new(const struct delivery *delivery)
{
    int prompt = (int)job_prompt_tokens(delivery->job);
    int answer = (int)delivery_answer_tokens(delivery);

    return json_pack("{s:i, s:i, s:i, s:{s:i}, s:{s:i}}", "prompt_tokens", prompt,
                     "completion_tokens", answer, "total_tokens", prompt + answer,
                     "prompt_tokens_details", "cached_tokens",
                     (int)delivery_cached_tokens(delivery), "completion_tokens_details",
                     "reasoning_tokens", (int)delivery_reasoning_tokens(delivery));
}

json_t *openai_extra_new(const struct delivery *delivery)
{
    const mf_request_result *result = &delivery->answers[0].result;
    char why[256] = "";

    mf_resumed_explain(why, sizeof why, &result->cached);
    return json_pack("{s:f, s:f, s:f, s:{s:i, s:i, s:i, s:s}}", "wait_seconds",
                     result->wait_seconds, "prompt_seconds", result->prompt_seconds,
                     "answer_seconds", result->answer_seconds, "cached", "matched",
                     (int)result->cached.matched, "resumed", (int)result->cached.resumed,
                     "replayed", (int)result->cached.replayed, "why", why);
}

static bool read_tool(struct ask *ask, const json_t *tool, size_t index, struct failure *failure)
{
    const char *type = json_string_value(json_object_get(tool, "type"));
    const json_t *function = json_object_get(tool, "function");

    if (!json_is_object(tool))
        return refuse_code(failure, "invalid_value", "tools", "tools[%zu] is not an object", index);
    if (type && strcmp(type, "function") != 0) return ask_note(ask, failure, "tools[%zu]", index);
    return ask_add_tool(ask, json_string_value(json_object_get(function, "name")),
                        json_string_value(json_object_get(function, "description")),
                        json_object_get(function, "parameters"), failure);
}

bool openai_read_stream(struct ask *ask, struct failure *failure)
{
    const json_t *options = json_object_get(ask->body, "stream_options");

    return read_flag(&ask->stream, ask->body, "stream", failure) &&
           read_flag(&ask->wants_usage, options, "include_usage", failure) &&
           read_flag(&ask->wants_tokens, options, "include_tokens", failure) &&
           read_flag(&ask->wants_progress, ask->body, "return_progress", failure);
}

bool openai_read_tools(struct ask *ask, const json_t *tools, struct failure *failure)
{
    size_t i;
    json_t *tool;

    if (!tools || json_is_null(tools)) return true;
    if (!json_is_array(tools))
        return refuse_code(failure, "invalid_value", "tools", "\"tools\" is not an array");
    json_array_foreach(tools, i, tool)
    {
        if (!read_tool(ask, tool, i, failure)) return false;
    }
    return true;
}

static bool choose(struct ask *ask, const char *name, struct failure *failure)
{
    bool word = strcmp(name, "auto") == 0 || strcmp(name, "none") == 0;

    if (strcmp(name, "required") == 0 && !ask->tools)
        return refuse_code(failure, "invalid_value", "tool_choice",
                           "\"tool_choice\" is \"required\", but there are no tools");
    if (!word && strcmp(name, "required") != 0 && !ask_has_tool(ask, name))
        return refuse_code(failure, "invalid_value", "tool_choice",
                           "\"tool_choice\" names \"%.100s\", which is none of the tools", name);
    snprintf(ask->tool_choice, sizeof ask->tool_choice, "%s", name);
    return true;
}

/* Only the named tools remain, so that a constraint allows no others. */
static bool allow_tools(struct ask *ask, const json_t *allowed, struct failure *failure)
{
    const char *mode = json_string_value(json_object_get(allowed, "mode"));
    json_t *kept = json_array(), *entry;
    size_t i, t;

    json_array_foreach(json_object_get(allowed, "tools"), i, entry)
    {
        const json_t *function = json_object_get(entry, "function");
        const char *name = json_string_value(json_object_get(function ? function : entry, "name"));
        json_t *tool;
        json_array_foreach(ask->tools, t, tool)
        {
            const json_t *own = json_object_get(json_object_get(tool, "function"), "name");
            if (name && strcmp(json_string_value(own), name) == 0) json_array_append(kept, tool);
        }
    }
    if (json_array_size(kept) == 0) {
        json_decref(kept);
        return refuse_code(failure, "invalid_value", "tool_choice",
                           "\"tool_choice\" allows none of the tools");
    }
    json_decref(ask->tools);
    ask->tools = kept;
    return choose(ask, mode ? mode : "auto", failure);
}

bool openai_read_tool_choice(struct ask *ask, const json_t *choice, struct failure *failure)
{
    const char *type = json_string_value(json_object_get(choice, "type"));
    const json_t *function = json_object_get(choice, "function");
    const json_t *allowed = json_object_get(choice, "allowed_tools");
    const char *name = json_string_value(json_object_get(function ? function : choice, "name"));

    if (!choice || json_is_null(choice)) return true;
    if (json_is_string(choice)) return choose(ask, json_string_value(choice), failure);
    if (type && strcmp(type, "allowed_tools") == 0)
        return allow_tools(ask, allowed ? allowed : choice, failure);
    if (name) return choose(ask, name, failure);
    return refuse_code(
        failure, "invalid_value", "tool_choice",
        "\"tool_choice\" is neither \"auto\", \"none\" or \"required\" nor an object "
        "that names a tool");
}

const char *openai_effort_level(const char *effort)
{
    static const char *const levels[][2] = {
        { "none", "low" },  { "minimal", "low" }, { "low", "low" },  { "medium", "medium" },
        { "high", "high" }, { "xhigh", "high" },  { "max", "high" },
    };

    for (size_t i = 0; i < COUNT_OF(levels); i++)
        if (strcmp(effort, levels[i][0]) == 0) return levels[i][1];
    return NULL;
}

bool openai_read_effort(struct ask *ask, const char *effort, struct failure *failure)
{
    const char *level = effort ? openai_effort_level(effort) : NULL;

    if (!effort) return true;
    if (level) {
        ask_set_thinking(ask, strcmp(effort, "none") != 0);
        ask_set_variable(ask, "reasoning_effort", json_string(level));
        return true;
    }
    return refuse_code(failure, "invalid_value", "reasoning_effort",
                       "\"reasoning_effort\" is \"%.32s\": none, minimal, low, medium, high, xhigh "
                       "and max are known",
                       effort);
}

void openai_write_failure(struct delivery *delivery, const struct failure *failure,
                          struct byte_list *out)
{
    sse_add(out, NULL, failure_json_new(failure, DIALECT_OPENAI, exchange_id(delivery->exchange)));
}
