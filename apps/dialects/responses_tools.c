/* responses_tools.c: tools of the Responses API.
 *
 * Chat templates know functions with one name each.  A function of a namespace gets a flat name,
 * and a custom tool, whose input is any text, becomes a function with the argument "input". */
#include "dialects/openai.h"
#include "dialects/responses.h"

#include <stdio.h>
#include <string.h>

static bool no_memory(struct failure *failure)
{
    return refuse(failure, FAILURE_ENGINE, NULL, "out of memory");
}

static const char *text_of(const json_t *object, const char *name)
{
    return json_string_value(json_object_get(object, name));
}

/* --------------------------------------------------------------------- names */

/* "space" and "name" → "space__name". */
static void join_names(char *out, size_t capacity, const char *space, const char *name)
{
    size_t length = space ? strlen(space) : 0;
    bool separated = length == 0 || (length > 1 && strcmp(space + length - 2, "__") == 0);

    snprintf(out, capacity, "%s%s%s", space ? space : "", separated ? "" : "__", name);
}

void responses_flat_name(char *out, size_t capacity, const struct responses *state,
                         const char *space, const char *name)
{
    const char *flat;
    json_t *own;

    join_names(out, capacity, space, name);
    if (space || json_object_get(state->names, out)) return;
    /* A client that leaves the namespace out means the tool of that name. */
    json_object_foreach(state->names, flat, own)
    {
        if (strcmp(text_of(own, "name"), name) == 0) snprintf(out, capacity, "%s", flat);
    }
}

static bool add_name(struct ask *ask, struct responses *state, const char *flat, json_t *own,
                     struct failure *failure)
{
    if (json_object_get(state->names, flat)) {
        json_decref(own);
        return refuse_code(failure, "invalid_value", "tools",
                           "tools[%zu] has the name \"%.100s\", which another tool has already",
                           json_array_size(ask->tools), flat);
    }
    return json_object_set_new(state->names, flat, own) == 0 || no_memory(failure);
}

/* --------------------------------------------------------------------- tools */

/* What a namespace says of itself stands before the description of its first function. */
static json_t *description_new(const json_t *tool, const json_t *space, size_t index)
{
    const char *own = text_of(tool, "description"), *common = text_of(space, "description");

    if (index > 0 || !common || !*common) return own ? json_string(own) : NULL;
    return json_sprintf("%s%s%s", common, own ? "\n\n" : "", own ? own : "");
}

/* `space` is the namespace that the function is number `index` of, or NULL. */
static bool add_function(struct ask *ask, struct responses *state, const json_t *tool,
                         const json_t *space, size_t index, struct failure *failure)
{
    const char *name = text_of(tool, "name");
    char flat[160] = "";

    if (name) join_names(flat, sizeof flat, text_of(space, "name"), name);
    json_t *description = description_new(tool, space, index);
    bool done = ask_add_tool(ask, flat, json_string_value(description),
                             json_object_get(tool, "parameters"), failure) &&
                add_name(ask, state, flat,
                         json_pack("{s:s, s:s*}", "name", name ? name : "", "namespace",
                                   text_of(space, "name")),
                         failure);
    json_decref(description);
    return done;
}

static bool add_custom(struct ask *ask, struct responses *state, const json_t *tool,
                       struct failure *failure)
{
    const char *name = text_of(tool, "name");
    json_t *schema =
        json_pack("{s:s, s:{s:{s:s}}, s:[s], s:b}", "type", "object", "properties", "input", "type",
                  "string", "required", "input", "additionalProperties", 0);
    bool done =
        ask_add_tool(ask, name, text_of(tool, "description"), schema, failure) &&
        add_name(ask, state, name, json_pack("{s:s, s:b}", "name", name, "custom", 1), failure);

    json_decref(schema);
    return done;
}

static bool add_space(struct ask *ask, struct responses *state, const json_t *space, size_t at,
                      struct failure *failure)
{
    size_t i;
    json_t *tool;

    if (!text_of(space, "name"))
        return refuse_code(failure, "invalid_value", "tools",
                           "tools[%zu] is a namespace without a name", at);
    json_array_foreach(json_object_get(space, "tools"), i, tool)
    {
        const char *type = text_of(tool, "type");
        bool done = !type || strcmp(type, "function") == 0
                        ? add_function(ask, state, tool, space, i, failure)
                        : ask_note(ask, failure, "tools[%zu].tools[%zu]", at, i);
        if (!done) return false;
    }
    return true;
}

static bool add_tool(struct ask *ask, struct responses *state, const json_t *tool, size_t at,
                     struct failure *failure)
{
    const char *type = text_of(tool, "type");
    const char *format = text_of(json_object_get(tool, "format"), "type");

    if (!json_is_object(tool))
        return refuse_code(failure, "invalid_value", "tools", "tools[%zu] is not an object", at);
    if (json_is_true(json_object_get(tool, "defer_loading")) &&
        !ask_note(ask, failure, "tools[%zu].defer_loading", at))
        return false;
    if (!type || strcmp(type, "function") == 0)
        return add_function(ask, state, tool, NULL, 0, failure);
    if (strcmp(type, "namespace") == 0) return add_space(ask, state, tool, at, failure);
    if (strcmp(type, "custom") != 0) return ask_note(ask, failure, "tools[%zu]", at);
    /* The grammar of an input does not bind text inside a JSON string. */
    if (format && strcmp(format, "grammar") == 0 &&
        !ask_note(ask, failure, "tools[%zu].format", at))
        return false;
    return add_custom(ask, state, tool, failure);
}

/* -------------------------------------------------------------------- choice */

static void flatten(const struct responses *state, json_t *entry)
{
    const char *name = text_of(entry, "name");
    char flat[160];

    if (!name) return;
    responses_flat_name(flat, sizeof flat, state, text_of(entry, "namespace"), name);
    json_object_set_new(entry, "name", json_string(flat));
}

static bool read_choice(struct ask *ask, const struct responses *state, struct failure *failure)
{
    static const char *const known = " function custom allowed_tools ";
    json_t *choice = json_deep_copy(json_object_get(ask->body, "tool_choice")), *entry;
    const char *type = text_of(choice, "type");
    char word[48];
    size_t i;

    snprintf(word, sizeof word, " %.40s ", type ? type : "function");
    if (!strstr(known, word)) {
        refuse_code(failure, "unsupported_parameter", "tool_choice",
                    "\"tool_choice\" names a tool of type \"%.40s\", which this server does not "
                    "run",
                    type);
        json_decref(choice);
        return false;
    }
    if (json_is_object(choice)) flatten(state, choice);
    json_array_foreach(json_object_get(choice, "tools"), i, entry)
    {
        flatten(state, entry);
    }
    bool done = openai_read_tool_choice(ask, choice, failure);
    json_decref(choice);
    return done;
}

bool responses_read_tools(struct ask *ask, struct responses *state, struct failure *failure)
{
    const json_t *tools = json_object_get(ask->body, "tools");
    bool parallel = true;
    size_t i;
    json_t *tool;

    if (tools && !json_is_null(tools) && !json_is_array(tools))
        return refuse_code(failure, "invalid_value", "tools", "\"tools\" is not an array");
    json_array_foreach(tools, i, tool)
    {
        if (!add_tool(ask, state, tool, i, failure)) return false;
    }
    if (json_array_size(tools) > 0 && !ask->tools)
        return refuse_code(failure, "unsupported_parameter", "tools",
                           "\"tools\" has no function: tools that the service itself runs are not "
                           "supported");
    if (!read_flag(&parallel, ask->body, "parallel_tool_calls", failure)) return false;
    ask->one_call = !parallel;
    return read_choice(ask, state, failure);
}
