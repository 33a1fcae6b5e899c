/* anthropic_input.c: system and messages of Anthropic's API as a conversation for chat templates. */
#include "dialects/anthropic.h"
#include "dialects/messages.h"
#include "dialects/reasoning_token.h"
#include "serve/reply.h"

#include "common/basics.h"

#include <ctype.h>
#include <stdio.h>

enum { WHERE_CAPACITY = 96 };

static bool no_memory(struct failure *failure)
{
    return refuse(failure, FAILURE_ENGINE, NULL, "out of memory");
}

static const char *text_of(const json_t *object, const char *name)
{
    return json_string_value(json_object_get(object, name));
}

static bool has_type(const json_t *block, const char *type)
{
    const char *own = text_of(block, "type");

    return own && strcmp(own, type) == 0;
}

/* --------------------------------------------------------------- cache_control */

bool anthropic_read_mark(struct anthropic *state, bool *marked, const json_t *object,
                         const char *where, struct failure *failure)
{
    const json_t *mark = json_object_get(object, "cache_control");
    const char *ttl = text_of(mark, "ttl");

    if (!mark || json_is_null(mark)) return true;
    if (!has_type(mark, "ephemeral"))
        return refuse_code(failure, "invalid_value", where,
                           "%s has a cache_control that is not of type \"ephemeral\"", where);
    if (ttl && strcmp(ttl, "5m") != 0 && strcmp(ttl, "1h") != 0)
        return refuse_code(failure, "invalid_value", where,
                           "%s has a cache_control with the ttl \"%.32s\": 5m and 1h are known",
                           where, ttl);
    if (++state->marks > ASK_BREAKPOINTS_MAX)
        return refuse_code(failure, "invalid_value", where,
                           "there are more than %d blocks with cache_control", ASK_BREAKPOINTS_MAX);
    state->hour = ttl && strcmp(ttl, "1h") == 0;
    *marked = true;
    return true;
}

void anthropic_add_breakpoint(struct ask *ask)
{
    size_t count = json_array_size(ask->messages), known = ask->breakpoint_count;

    if (count == 0 || known == ASK_BREAKPOINTS_MAX) return;
    if (known > 0 && ask->breakpoints[known - 1] == count) return;
    ask->breakpoints[ask->breakpoint_count++] = count;
}

/* ----------------------------------------------------------------------- text */

static bool add_text(struct byte_list *out, const char *between, const json_t *text,
                     const char *where, struct failure *failure)
{
    if (!json_is_string(text))
        return refuse_code(failure, "invalid_value", where, "%s is a text block without text",
                           where);
    if (out->count > 0 && !text_add(out, between)) return no_memory(failure);
    return byte_list_append(out, json_string_value(text), json_string_length(text), NULL) ==
               MF_OK ||
           no_memory(failure);
}

/* A string, or blocks of type text alone. */
static bool add_texts(struct byte_list *out, const json_t *content, const char *where,
                      struct failure *failure)
{
    size_t i;
    json_t *block;

    if (json_is_string(content)) return add_text(out, "\n", content, where, failure);
    json_array_foreach(content, i, block)
    {
        if (!has_type(block, "text"))
            return refuse_code(failure, "unsupported_parameter", where,
                               "%s holds a block of type \"%.32s\": this server reads text only",
                               where, text_of(block, "type") ? text_of(block, "type") : "");
        if (!add_text(out, "\n", json_object_get(block, "text"), where, failure)) return false;
    }
    return true;
}

static bool add_document(struct byte_list *out, const json_t *block, const char *where,
                         struct failure *failure)
{
    static const char *const heads[] = { "title", "context" };
    const json_t *source = json_object_get(block, "source");

    for (size_t i = 0; i < COUNT_OF(heads); i++) {
        const json_t *head = json_object_get(block, heads[i]);
        if (json_is_string(head) && !add_text(out, "\n", head, where, failure)) return false;
    }
    if (has_type(source, "text"))
        return add_text(out, "\n", json_object_get(source, "data"), where, failure);
    if (has_type(source, "content"))
        return add_texts(out, json_object_get(source, "content"), where, failure);
    return refuse_code(failure, "unsupported_parameter", where,
                       "%s is a document whose source is of type \"%.32s\": text and content are "
                       "read",
                       where, text_of(source, "type") ? text_of(source, "type") : "");
}

/* A block of a user's message or of a tool's result that is text, or can be read as such. */
static bool add_block(struct byte_list *out, const json_t *block, const char *where,
                      struct failure *failure)
{
    const char *type = text_of(block, "type");

    if (has_type(block, "text"))
        return add_text(out, "\n", json_object_get(block, "text"), where, failure);
    if (has_type(block, "document")) return add_document(out, block, where, failure);
    if (has_type(block, "search_result"))
        return add_text(out, "\n", json_object_get(block, "title"), where, failure) &&
               add_text(out, "\n", json_object_get(block, "source"), where, failure) &&
               add_texts(out, json_object_get(block, "content"), where, failure);
    if (has_type(block, "tool_reference"))
        return add_text(out, "\n", json_object_get(block, "tool_name"), where, failure);
    if (has_type(block, "image"))
        return refuse_code(failure, "unsupported_parameter", where,
                           "%s is an image: this server reads text only", where);
    return refuse_code(failure, "unsupported_parameter", where,
                       "%s is of type \"%.64s\", which is not supported here", where,
                       type ? type : "");
}

/* ------------------------------------------------------------- tools' results */

/* Templates have no place for is_error: the text says it. */
static bool begin_result(struct byte_list *text, const json_t *block, struct failure *failure)
{
    bool wrong = false;

    if (!read_flag(&wrong, block, "is_error", failure)) return false;
    return !wrong || text_add(text, "Error:") || no_memory(failure);
}

static bool read_result(struct ask *ask, struct anthropic *state, const json_t *block,
                        const char *where, struct failure *failure)
{
    const json_t *content = json_object_get(block, "content");
    struct byte_list text = { 0 };
    bool marked = false, done = begin_result(&text, block, failure);
    char inner[WHERE_CAPACITY];
    size_t i;
    json_t *part;

    if (done && json_is_string(content)) done = add_text(&text, " ", content, where, failure);
    json_array_foreach(content, i, part)
    {
        if (!done) break;
        snprintf(inner, sizeof inner, "%.64s.content[%zu]", where, i);
        done = add_block(&text, part, inner, failure) &&
               anthropic_read_mark(state, &marked, part, inner, failure);
    }
    done = done && messages_add_result(ask, text_of(block, "tool_use_id"),
                                       text.bytes ? text.bytes : "", failure);
    byte_list_free(&text);
    if (done && marked) anthropic_add_breakpoint(ask);
    return done;
}

/* ------------------------------------------------------------------- messages */

static bool flush_user(struct ask *ask, struct byte_list *text, struct failure *failure)
{
    json_t *value = json_text_new(text->bytes ? text->bytes : "", text->count);
    bool done = value ? messages_add(ask, "user", value, failure) : no_memory(failure);

    json_decref(value);
    byte_list_free(text);
    return done;
}

/* Results become messages of their own; the text between them, messages of the user.  A mark asks
 * for a checkpoint after the message that the block has gone into. */
static bool read_user_blocks(struct ask *ask, struct anthropic *state, const json_t *content,
                             const char *where, struct failure *failure)
{
    size_t i, before = json_array_size(ask->messages);
    struct byte_list text = { 0 };
    bool done = true, marked = false;
    char inner[WHERE_CAPACITY];
    json_t *block;

    json_array_foreach(content, i, block)
    {
        bool is_result = has_type(block, "tool_result"), own = false;
        snprintf(inner, sizeof inner, "%.48s.content[%zu]", where, i);
        done = anthropic_read_mark(state, &own, block, inner, failure);
        if (done && is_result && text.count > 0) {
            done = flush_user(ask, &text, failure);
            if (done && marked) anthropic_add_breakpoint(ask);
            marked = false;
        }
        if (done && is_result) {
            done = read_result(ask, state, block, inner, failure);
            if (done && own) anthropic_add_breakpoint(ask);
        } else if (done) {
            done = add_block(&text, block, inner, failure);
            marked |= own;
        }
        if (!done) break;
    }
    if (done && (text.count > 0 || json_array_size(ask->messages) == before))
        done = flush_user(ask, &text, failure);
    if (done && marked) anthropic_add_breakpoint(ask);
    byte_list_free(&text);
    return done;
}

/* A token that this server wrote holds the reasoning; of others the visible text counts. */
static bool add_thinking(struct ask *ask, json_t *message, const json_t *visible, const char *token)
{
    struct byte_list text = { 0 };
    bool done = true;

    if (token && reasoning_token_read(ask->serve, token, &text))
        done = messages_add_reasoning(message, text.bytes ? text.bytes : "", text.count);
    else if (json_is_string(visible))
        done = messages_add_reasoning(message, json_string_value(visible),
                                      json_string_length(visible));
    byte_list_free(&text);
    return done;
}

static bool add_call(json_t *message, const json_t *block, const char *where,
                     struct failure *failure)
{
    const json_t *input = json_object_get(block, "input");
    const char *name = text_of(block, "name");

    if (!name)
        return refuse_code(failure, "invalid_value", where, "%s is a tool_use without a name",
                           where);
    if (input && !json_is_null(input) && !json_is_object(input))
        return refuse_code(failure, "invalid_value", where,
                           "%s is a tool_use whose input is not an object", where);
    return messages_add_call(message, text_of(block, "id"), name, input) || no_memory(failure);
}

static bool read_assistant_block(struct ask *ask, json_t *message, const json_t *block,
                                 const char *where, struct failure *failure)
{
    const char *type = text_of(block, "type");
    const json_t *text = json_object_get(block, "text");

    if (has_type(block, "text") && json_is_string(text))
        return messages_add_content(message, json_string_value(text), json_string_length(text)) ||
               no_memory(failure);
    if (has_type(block, "thinking"))
        return add_thinking(ask, message, json_object_get(block, "thinking"),
                            text_of(block, "signature")) ||
               no_memory(failure);
    if (has_type(block, "redacted_thinking"))
        return add_thinking(ask, message, NULL, text_of(block, "data")) || no_memory(failure);
    if (has_type(block, "tool_use")) return add_call(message, block, where, failure);
    if (has_type(block, "text"))
        return refuse_code(failure, "invalid_value", where, "%s is a text block without text",
                           where);
    return refuse_code(failure, "unsupported_parameter", where,
                       "%s is of type \"%.64s\", which is not supported here", where,
                       type ? type : "");
}

/* Turns of the assistant that follow each other are one. */
static bool read_assistant(struct ask *ask, struct anthropic *state, const json_t *content,
                           const char *where, struct failure *failure)
{
    json_t *message = messages_assistant(ask), *block;
    bool marked = false;
    char inner[WHERE_CAPACITY];
    size_t i;

    if (!message) return no_memory(failure);
    if (json_is_string(content))
        return messages_add_content(message, json_string_value(content),
                                    json_string_length(content)) ||
               no_memory(failure);
    json_array_foreach(content, i, block)
    {
        snprintf(inner, sizeof inner, "%.48s.content[%zu]", where, i);
        if (!anthropic_read_mark(state, &marked, block, inner, failure) ||
            !read_assistant_block(ask, message, block, inner, failure))
            return false;
    }
    if (marked) anthropic_add_breakpoint(ask);
    return true;
}

/* The first line of some agents' system text is for accounts, and changes with each request. */
static bool is_billing_line(const json_t *block)
{
    static const char start[] = "x-anthropic-billing-header:";
    const char *text = text_of(block, "text");

    return text && strncmp(text, start, sizeof start - 1) == 0;
}

/* Blocks are joined as system messages are. */
static bool read_system(struct ask *ask, struct anthropic *state, const json_t *content,
                        const char *where, struct failure *failure)
{
    struct byte_list text = { 0 };
    bool marked = false, done = true;
    char inner[WHERE_CAPACITY];
    size_t i;
    json_t *block, *value;

    if (json_is_string(content)) done = add_text(&text, "", content, where, failure);
    json_array_foreach(content, i, block)
    {
        snprintf(inner, sizeof inner, "%.48s[%zu]", where, i);
        if (i == 0 && is_billing_line(block)) continue;
        if (!has_type(block, "text"))
            done = refuse_code(failure, "invalid_value", inner, "%s is not a text block", inner);
        done = done && anthropic_read_mark(state, &marked, block, inner, failure) &&
               add_text(&text, "\n\n", json_object_get(block, "text"), inner, failure);
        if (!done) break;
    }
    if (done && text.count > 0) {
        value = json_text_new(text.bytes, text.count);
        done = value ? messages_add(ask, "system", value, failure) : no_memory(failure);
        json_decref(value);
    }
    byte_list_free(&text);
    if (done && marked) anthropic_add_breakpoint(ask);
    return done;
}

static bool read_message(struct ask *ask, struct anthropic *state, const json_t *message,
                         const char *where, struct failure *failure)
{
    const char *role = text_of(message, "role");
    const json_t *content = json_object_get(message, "content");

    if (!role)
        return refuse_code(failure, "invalid_value", where, "%s is no message: it has no role",
                           where);
    if (!json_is_string(content) && !json_is_array(content))
        return refuse_code(failure, "invalid_value", where,
                           "%s.content is neither a string nor an array of blocks", where);
    if (strcmp(role, "assistant") == 0) return read_assistant(ask, state, content, where, failure);
    if (strcmp(role, "system") == 0) return read_system(ask, state, content, where, failure);
    if (strcmp(role, "user") != 0)
        return refuse_code(failure, "invalid_value", where,
                           "%s has the role \"%.32s\": user, assistant and system are known", where,
                           role);
    if (json_is_string(content)) return messages_add(ask, "user", content, failure);
    return read_user_blocks(ask, state, content, where, failure);
}

/* A tool must be called. */
static bool must_call(const struct ask *ask)
{
    const char *choice = ask->tool_choice;

    return *choice && strcmp(choice, "auto") != 0 && strcmp(choice, "none") != 0;
}

/* A last message of the assistant is the beginning of the answer.  A constraint knows nothing of that
 * text: what follows it would be a whole object or call. */
static bool read_beginning(struct ask *ask, const json_t *last, struct failure *failure)
{
    const json_t *message = json_array_get(ask->messages, json_array_size(ask->messages) - 1);
    const json_t *content = json_object_get(message, "content");
    const char *thinking = text_of(json_object_get(ask->body, "thinking"), "type");
    size_t length = json_string_length(content);

    if (strcmp(text_of(last, "role"), "assistant") != 0) return true;
    if (length == 0 || json_object_get(message, "tool_calls"))
        return refuse_code(
            failure, "invalid_value", "messages",
            "the last message is the assistant's, and not a text that an answer could "
            "continue; end with a message of the user");
    if (isspace((unsigned char)json_string_value(content)[length - 1]))
        return refuse_code(failure, "invalid_value", "messages",
                           "final assistant content cannot end with trailing whitespace");
    if (thinking && strcmp(thinking, "disabled") != 0)
        return refuse_code(
            failure, "invalid_value", "messages",
            "the last message is the assistant's: with \"thinking\" an answer begins "
            "with that, and continues no text");
    if (ask->schema)
        return refuse_code(
            failure, "invalid_value", "messages",
            "the last message is the assistant's: with a format an answer is a whole "
            "JSON value, and continues no text");
    if (must_call(ask))
        return refuse_code(
            failure, "invalid_value", "messages",
            "the last message is the assistant's: with a \"tool_choice\" of type any "
            "or tool an answer is a call, and continues no text");
    ask->continue_last = true;
    return true;
}

bool anthropic_read_messages(struct ask *ask, struct anthropic *state, struct failure *failure)
{
    const json_t *system = json_object_get(ask->body, "system");
    const json_t *messages = json_object_get(ask->body, "messages");
    bool marked_tools = state->marks > 0;
    char where[WHERE_CAPACITY];
    json_t *message = NULL;
    size_t i;

    if (system && !json_is_null(system) && !json_is_string(system) && !json_is_array(system))
        return refuse_code(failure, "invalid_value", "system",
                           "\"system\" is neither a string nor an array of text blocks");
    if (!read_system(ask, state, system, "system", failure)) return false;
    if (marked_tools) anthropic_add_breakpoint(ask); /* tools stand in the system's turn */
    if (json_array_size(messages) == 0)
        return refuse_code(failure, "invalid_value", "messages",
                           "\"messages\" is not an array with at least one message");
    json_array_foreach(messages, i, message)
    {
        snprintf(where, sizeof where, "messages[%zu]", i);
        if (!read_message(ask, state, message, where, failure)) return false;
    }
    message = json_array_get(messages, json_array_size(messages) - 1);
    return read_beginning(ask, message, failure);
}
