/* responses_input.c: the input items of the Responses API as messages of a chat template.
 *
 * What the model wrote comes back as several items: reasoning, a message, calls.  Items in a row
 * that one answer can have had become one message of the assistant, so that the prompt repeats what
 * the model wrote. */
#include "dialects/messages.h"
#include "dialects/reasoning_token.h"
#include "serve/reply.h"
#include "dialects/responses.h"

#include "common/basics.h"

#include <stdio.h>

struct reader {
    struct ask *ask;
    const struct responses *state;
    struct failure *failure;
    char where[48]; /* "input[3]" */
};

static bool no_memory(struct failure *failure)
{
    return refuse(failure, FAILURE_ENGINE, NULL, "out of memory");
}

static bool wrong(const struct reader *reader, const char *what)
{
    return refuse_code(reader->failure, "invalid_value", reader->where, "%s %s", reader->where,
                       what);
}

static const char *text_of(const json_t *object, const char *name)
{
    return json_string_value(json_object_get(object, name));
}

/* ------------------------------------------------- messages of the assistant */

/* The last message, if it is the assistant's. */
static json_t *last_answer(const struct ask *ask)
{
    size_t count = json_array_size(ask->messages);
    json_t *last = count > 0 ? json_array_get(ask->messages, count - 1) : NULL;
    const char *role = text_of(last, "role");

    return role && strcmp(role, "assistant") == 0 ? last : NULL;
}

/* The message that reasoning or content goes into: neither follows content or calls. */
static json_t *open_answer(struct reader *reader)
{
    struct ask *ask = reader->ask;
    json_t *last = last_answer(ask);

    if (last && json_string_length(json_object_get(last, "content")) == 0 &&
        !json_object_get(last, "tool_calls"))
        return last;
    if (!messages_add_text(ask, "assistant", "", reader->failure)) return NULL;
    return last_answer(ask);
}

static bool add_answer(struct reader *reader, const json_t *text)
{
    json_t *message = open_answer(reader);

    if (!message) return false;
    return messages_add_content(message, json_string_value(text), json_string_length(text)) ||
           no_memory(reader->failure);
}

/* --------------------------------------------------------------------- items */

static bool read_message(struct reader *reader, const json_t *item)
{
    const char *role = text_of(item, "role");
    const json_t *content = json_object_get(item, "content");
    json_t *text;
    bool done;

    if (!role) return wrong(reader, "is a message without a role");
    bool answer = strcmp(role, "assistant") == 0;
    if (!answer && strcmp(role, "user") != 0 && strcmp(role, "system") != 0 &&
        strcmp(role, "developer") != 0)
        return wrong(reader, "has a role other than developer, system, user and assistant");
    if (!content_text_new(&text, content, reader->where, reader->failure)) return false;
    done =
        answer ? add_answer(reader, text) : messages_add(reader->ask, role, text, reader->failure);
    json_decref(text);
    if (done) messages_note_breakpoint(reader->ask, content);
    return done;
}

/* `arguments` is the text of an object, or an object. */
static bool add_call(struct reader *reader, const json_t *item, const json_t *arguments)
{
    const char *name = text_of(item, "name"), *id = text_of(item, "call_id");
    char flat[160];

    if (!name || !id) return wrong(reader, "is a call without name or call_id");
    responses_flat_name(flat, sizeof flat, reader->state, text_of(item, "namespace"), name);
    json_t *message = messages_assistant(reader->ask);
    return (message && messages_add_call(message, id, flat, arguments)) ||
           no_memory(reader->failure);
}

static bool read_call(struct reader *reader, const json_t *item)
{
    return add_call(reader, item, json_object_get(item, "arguments"));
}

static bool read_custom_call(struct reader *reader, const json_t *item)
{
    const char *input = text_of(item, "input");
    json_t *arguments = json_pack("{s:s}", "input", input ? input : "");
    bool done = add_call(reader, item, arguments);

    json_decref(arguments);
    return done;
}

static bool read_result(struct reader *reader, const json_t *item)
{
    const char *id = text_of(item, "call_id");
    const json_t *output = json_object_get(item, "output");
    json_t *text;

    if (!id) return wrong(reader, "is the output of a call without call_id");
    if (!content_text_new(&text, output, reader->where, reader->failure)) return false;
    bool done = messages_add_result(reader->ask, id, json_string_value(text), reader->failure);
    json_decref(text);
    if (done) messages_note_breakpoint(reader->ask, output);
    return done;
}

/* What "encrypted_content" holds if this server wrote it, else the parts of "content", or where
 * there are none those of "summary". */
static bool reasoning_text_new(struct reader *reader, const json_t *item, json_t **out)
{
    const json_t *content = json_object_get(item, "content");
    const char *token = text_of(item, "encrypted_content");
    struct byte_list text = { 0 };

    if (token && reasoning_token_read(reader->ask->serve, token, &text)) {
        *out = json_text_new(text.bytes, text.count);
        byte_list_free(&text);
        return *out || no_memory(reader->failure);
    }
    if (json_array_size(content) == 0) content = json_object_get(item, "summary");
    return content_text_new(out, content, reader->where, reader->failure);
}

static bool read_reasoning(struct reader *reader, const json_t *item)
{
    json_t *text;

    if (!reasoning_text_new(reader, item, &text)) return false;
    json_t *message = json_string_length(text) > 0 ? open_answer(reader) : NULL;
    bool done = !message ||
                messages_add_reasoning(message, json_string_value(text), json_string_length(text));
    json_decref(text);
    return done || no_memory(reader->failure);
}

static const struct {
    const char *type;
    bool (*read)(struct reader *reader, const json_t *item);
} kinds[] = {
    { "message", read_message },
    { "function_call", read_call },
    { "function_call_output", read_result },
    { "custom_tool_call", read_custom_call },
    { "custom_tool_call_output", read_result },
    { "reasoning", read_reasoning },
};

static bool read_item(struct reader *reader, const json_t *item)
{
    const char *type = text_of(item, "type");

    if (!json_is_object(item)) return wrong(reader, "is not an object");
    if (!type) type = json_object_get(item, "role") ? "message" : "item_reference";
    for (size_t i = 0; i < COUNT_OF(kinds); i++)
        if (strcmp(kinds[i].type, type) == 0) return kinds[i].read(reader, item);
    if (strcmp(type, "item_reference") == 0)
        return refuse_code(reader->failure, "unsupported_parameter", reader->where,
                           "%s refers to a stored item, and this server stores none: replay the "
                           "full input instead",
                           reader->where);
    return refuse_code(reader->failure, "unsupported_parameter", reader->where,
                       "%s is of type \"%.40s\", which this server cannot read", reader->where,
                       type);
}

bool responses_read_input(struct ask *ask, const struct responses *state, struct failure *failure)
{
    struct reader reader = { .ask = ask, .state = state, .failure = failure };
    const json_t *input = json_object_get(ask->body, "input");
    const char *instructions = NULL;
    size_t i;
    json_t *item;

    if (!read_text(&instructions, ask->body, "instructions", failure)) return false;
    if (instructions && *instructions && !messages_add_text(ask, "system", instructions, failure))
        return false;
    if (json_is_string(input)) return messages_add(ask, "user", input, failure);
    if (json_array_size(input) == 0)
        return refuse_code(failure, "invalid_value", "input",
                           "\"input\" is neither a string nor an array with at least one item");
    json_array_foreach(input, i, item)
    {
        snprintf(reader.where, sizeof reader.where, "input[%zu]", i);
        if (!read_item(&reader, item)) return false;
    }
    return true;
}
