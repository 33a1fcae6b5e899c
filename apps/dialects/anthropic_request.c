/* anthropic_request.c: the fields of a request to /v1/messages but its messages. */
#include "dialects/anthropic.h"
#include "dialects/openai.h"
#include "view/info.h"

#include "common/basics.h"

#include <stdio.h>
#include <stdlib.h>

static const struct field_rule rules[] = {
    { "cache_control", FIELD_HONOURED, NULL },
    { "chat_template_kwargs", FIELD_HONOURED, NULL },
    { "container", FIELD_REFUSED, "there are no containers here" },
    { "context_management", FIELD_HONOURED, NULL },
    { "diagnostics", FIELD_HONOURED, NULL },
    { "frequency_penalty", FIELD_HONOURED, NULL },
    { "inference_geo", FIELD_NOTED, NULL },
    { "logit_bias", FIELD_HONOURED, NULL },
    { "max_tokens", FIELD_HONOURED, NULL },
    { "mcp_servers", FIELD_REFUSED, "this server calls no tools itself" },
    { "messages", FIELD_HONOURED, NULL },
    { "metadata", FIELD_HONOURED, NULL },
    { "min_p", FIELD_HONOURED, NULL },
    { "model", FIELD_HONOURED, NULL },
    { "output_config", FIELD_HONOURED, NULL },
    { "output_format", FIELD_HONOURED, NULL },
    { "presence_penalty", FIELD_HONOURED, NULL },
    { "repetition_penalty", FIELD_HONOURED, NULL },
    { "seed", FIELD_HONOURED, NULL },
    { "service_tier", FIELD_NOTED, NULL },
    { "speed", FIELD_NOTED, NULL },
    { "stop_sequences", FIELD_HONOURED, NULL },
    { "stream", FIELD_HONOURED, NULL },
    { "system", FIELD_HONOURED, NULL },
    { "temperature", FIELD_HONOURED, NULL },
    { "thinking", FIELD_HONOURED, NULL },
    { "tool_choice", FIELD_HONOURED, NULL },
    { "tools", FIELD_HONOURED, NULL },
    { "top_k", FIELD_HONOURED, NULL },
    { "top_p", FIELD_HONOURED, NULL },
    { "typical_p", FIELD_HONOURED, NULL },
    { "user_profile_id", FIELD_NOTED, NULL },
};

static const char *text_of(const json_t *object, const char *name)
{
    return json_string_value(json_object_get(object, name));
}

static bool is_given(const json_t *value)
{
    return value && !json_is_null(value);
}

/* A client that is told so sends the whole conversation again. */
static bool check_thread(const struct ask *ask, struct failure *failure)
{
    if (!is_given(json_object_get(ask->body, "thread"))) return true;
    refuse_code(failure, "unsupported_parameter", "thread",
                "\"thread\" is not supported: no conversations are stored here; send all messages");
    failure->detail = "thread_unsupported_request";
    return false;
}

static bool read_limit(struct ask *ask, struct anthropic *state, bool counting,
                       struct failure *failure)
{
    const json_t *limit = json_object_get(ask->body, "max_tokens");

    if (!is_given(limit) && !counting)
        return refuse_code(failure, "invalid_value", "max_tokens",
                           "\"max_tokens\" is missing: the most tokens that the answer may have");
    if (!read_count(&ask->limit, ask->body, "max_tokens", 0, INT32_MAX, failure)) return false;
    state->fill_only = is_given(limit) && ask->limit == 0;
    if (state->fill_only) ask->limit = 1;
    return true;
}

/* -------------------------------------------------------------------- thinking */

static bool read_thinking(struct ask *ask, struct anthropic *state, struct failure *failure)
{
    static const char *const on[] = { "enabled", "adaptive", "between_tools" };
    const json_t *thinking = json_object_get(ask->body, "thinking");
    const char *type = text_of(thinking, "type"), *display = text_of(thinking, "display");

    if (!is_given(thinking)) return true;
    state->omit_thinking = display && strcmp(display, "omitted") == 0;
    if (display && !state->omit_thinking && strcmp(display, "summarized") != 0 &&
        strcmp(display, "full") != 0)
        return refuse_code(failure, "invalid_value", "thinking",
                           "thinking.display is \"%.32s\": summarized and omitted are known",
                           display);
    if (type && strcmp(type, "disabled") == 0) {
        ask_set_thinking(ask, false);
        return true;
    }
    for (size_t i = 0; type && i < COUNT_OF(on); i++) {
        if (strcmp(type, on[i]) != 0) continue;
        ask_set_thinking(ask, true);
        if (!is_given(json_object_get(thinking, "budget_tokens"))) return true;
        return ask_note(ask, failure, "thinking.budget_tokens");
    }
    return refuse_code(
        failure, "invalid_value", "thinking",
        "\"thinking\" is of type \"%.32s\": enabled, disabled and adaptive are known",
        type ? type : "");
}

/* Says how much the model thinks where it does, and does not switch thinking on. */
static bool read_effort(struct ask *ask, const char *effort, struct failure *failure)
{
    static const char *const levels[] = { "low", "medium", "high", "xhigh", "max" };

    if (!effort) return true;
    for (size_t i = 0; i < COUNT_OF(levels); i++) {
        if (strcmp(effort, levels[i]) != 0) continue;
        if (!info_knows_effort(ask->serve->text))
            return ask_note(ask, failure, "output_config.effort");
        ask_set_variable(ask, "reasoning_effort", json_string(openai_effort_level(effort)));
        return true;
    }
    return refuse_code(failure, "invalid_value", "output_config",
                       "output_config.effort is \"%.32s\": low, medium, high, xhigh and max are "
                       "known",
                       effort);
}

static bool read_output(struct ask *ask, struct failure *failure)
{
    const json_t *config = json_object_get(ask->body, "output_config");
    const json_t *form = json_object_get(config, "format");
    const char *effort = NULL;

    if (!is_given(form)) form = json_object_get(ask->body, "output_format");
    return read_text(&effort, config, "effort", failure) && read_effort(ask, effort, failure) &&
           ask_read_form(ask, form, form, failure);
}

/* Thinking of earlier turns is the template's to keep; other edits would drop what was sent. */
static bool read_management(struct ask *ask, struct failure *failure)
{
    const json_t *management = json_object_get(ask->body, "context_management");
    size_t i;
    json_t *edit;

    if (!is_given(management)) return true;
    json_array_foreach(json_object_get(management, "edits"), i, edit)
    {
        const json_t *keep = json_object_get(edit, "keep");
        const char *word = json_is_object(keep) ? text_of(keep, "type") : json_string_value(keep);
        if (word && strcmp(word, "all") == 0) continue;
        return refuse_code(failure, "unsupported_parameter", "context_management",
                           "context_management.edits[%zu], of type \"%.64s\", does not keep "
                           "\"all\": this server drops nothing of a conversation",
                           i, text_of(edit, "type") ? text_of(edit, "type") : "");
    }
    return ask_note(ask, failure, "context_management");
}

/* ----------------------------------------------------------------------- tools */

static bool read_tool(struct ask *ask, struct anthropic *state, const json_t *tool, size_t index,
                      struct failure *failure)
{
    const char *type = text_of(tool, "type");
    bool marked = false, deferred = false;
    char where[32];

    snprintf(where, sizeof where, "tools[%zu]", index);
    if (!json_is_object(tool))
        return refuse_code(failure, "invalid_value", "tools", "%s is not an object", where);
    if (!anthropic_read_mark(state, &marked, tool, where, failure)) return false;
    if (type && strcmp(type, "custom") != 0) return ask_note(ask, failure, "%s", where);
    if (!read_flag(&deferred, tool, "defer_loading", failure)) return false;
    if (deferred && !ask_note(ask, failure, "%s.defer_loading", where)) return false;
    if (is_given(json_object_get(tool, "input_examples")) &&
        !ask_note(ask, failure, "%s.input_examples", where))
        return false;
    return ask_add_tool(ask, text_of(tool, "name"), text_of(tool, "description"),
                        json_object_get(tool, "input_schema"), failure);
}

static bool read_choice(struct ask *ask, struct failure *failure)
{
    json_t *choice = json_object_get(ask->body, "tool_choice"), *word = NULL;
    const char *type = text_of(choice, "type"), *name = text_of(choice, "name");
    bool done;

    if (!is_given(choice)) return true;
    if (!read_flag(&ask->one_call, choice, "disable_parallel_tool_use", failure)) return false;
    if (type && (strcmp(type, "auto") == 0 || strcmp(type, "none") == 0))
        word = json_string(type);
    else if (type && strcmp(type, "any") == 0)
        word = json_string("required");
    else if (type && strcmp(type, "tool") == 0 && name)
        word = json_string(name);
    else
        return refuse_code(failure, "invalid_value", "tool_choice",
                           "\"tool_choice\" is not an object of type auto, any, none, or tool with "
                           "a name");
    done = openai_read_tool_choice(ask, word, failure);
    json_decref(word);
    return done;
}

static bool read_tools(struct ask *ask, struct anthropic *state, struct failure *failure)
{
    const json_t *tools = json_object_get(ask->body, "tools");
    size_t i;
    json_t *tool;

    if (is_given(tools) && !json_is_array(tools))
        return refuse_code(failure, "invalid_value", "tools", "\"tools\" is not an array");
    json_array_foreach(tools, i, tool)
    {
        if (!read_tool(ask, state, tool, i, failure)) return false;
    }
    return read_choice(ask, failure);
}

/* A mark on the whole request stands for one on its last block. */
static bool read_whole_mark(struct ask *ask, struct anthropic *state, struct failure *failure)
{
    bool marked = false;

    if (!anthropic_read_mark(state, &marked, ask->body, "the request", failure)) return false;
    if (marked) anthropic_add_breakpoint(ask);
    return true;
}

static bool read_fields(struct ask *ask, struct anthropic *state, bool counting,
                        struct failure *failure)
{
    return check_thread(ask, failure) && ask_check_fields(ask, rules, COUNT_OF(rules), failure) &&
           ask_read_model(ask, failure) && read_flag(&ask->stream, ask->body, "stream", failure) &&
           read_limit(ask, state, counting, failure) &&
           ask_read_sampling(ask, ask->body, failure) &&
           ask_read_stops(ask, "stop_sequences", ASK_STOPS_MAX, failure) &&
           ask_read_variables(ask, failure) && read_thinking(ask, state, failure) &&
           read_text(&state->previous, json_object_get(ask->body, "diagnostics"),
                     "previous_message_id", failure) &&
           read_output(ask, failure) && read_management(ask, failure) &&
           read_tools(ask, state, failure) && anthropic_read_messages(ask, state, failure) &&
           read_whole_mark(ask, state, failure);
}

static void free_state(void *user)
{
    struct anthropic *state = user;

    for (size_t i = 0; i < state->block_count; i++) byte_list_free(&state->blocks[i].text);
    free(state->blocks);
    free(state);
}

bool anthropic_read(struct ask *ask, bool counting, struct failure *failure)
{
    struct anthropic *state = calloc(1, sizeof *state);

    if (!state) return refuse(failure, FAILURE_ENGINE, NULL, "out of memory");
    ask->extra = state;
    ask->free_extra = free_state;
    ask_new_id(ask->id, sizeof ask->id, "msg_");
    ask->api = "messages";
    if (!read_fields(ask, state, counting, failure)) return false;
    ask->wants_progress = ask->stream; /* the first event of a stream has the facts of the cache */
    return true;
}
