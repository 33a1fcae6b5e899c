/* chat.c: mf_template_*, mf_chat_render, mf_prompt_*: from a conversation to a prompt. */
#include "api/prompt.h"

#include "base/clock.h"
#include "base/json.h"
#include "base/status.h"
#include "base/unicode.h"
#include "chat/conversation.h"
#include "chat/output_family.h"

#include <stdlib.h>

/* ------------------------------------------------------------------ templates */

mf_status mf_text_template(const mf_template **out, const mf_text *text, mf_error *why)
{
    if (!out) return api_missing(why, "out");
    *out = NULL;
    if (!text) return api_missing(why, "text");
    if (text->parts.chat_error.status != MF_OK) {
        if (why) *why = text->parts.chat_error;
        return text->parts.chat_error.status;
    }
    if (text->chat.chat) *out = &text->chat;
    return MF_OK;
}

mf_status mf_template_open(mf_template **out, const char *source, size_t length, const char *name,
                           mf_error *why)
{
    if (!out) return api_missing(why, "out");
    *out = NULL;
    if (!source) return api_missing(why, "source");
    mf_template *chat = calloc(1, sizeof *chat);
    if (!chat) return fail_memory(why, sizeof *chat);
    chat->bare = true;
    mf_status status =
        chat_template_parse_new(&chat->chat, source, length, name ? name : "template", why);
    if (status == MF_OK)
        *out = chat;
    else
        free(chat);
    return status;
}

void mf_template_close(mf_template *chat)
{
    if (!chat) return;
    chat_template_free(chat->chat);
    free(chat);
}

const char *mf_template_source(const mf_template *chat)
{
    return chat ? chat_template_source(chat->chat) : NULL;
}

/* ------------------------------------------------------------------ prompts */

void mf_prompt_close(mf_prompt *prompt)
{
    if (!prompt) return;
    chat_rendering_clear(&prompt->rendering);
    token_list_free(&prompt->tokens);
    free(prompt);
}

const char *mf_prompt_text(const mf_prompt *prompt, size_t *length)
{
    if (length) *length = prompt ? prompt->rendering.length : 0;
    return prompt ? prompt->rendering.text : NULL;
}

const mf_range *mf_prompt_content(const mf_prompt *prompt, size_t *count)
{
    if (count) *count = prompt ? prompt->rendering.content_count : 0;
    return prompt ? prompt->rendering.content : NULL;
}

const int32_t *mf_prompt_tokens(const mf_prompt *prompt, size_t *count)
{
    if (count) *count = prompt ? prompt->tokens.count : 0;
    return prompt ? prompt->tokens.ids : NULL;
}

const mf_prompt_place *mf_prompt_places(const mf_prompt *prompt, size_t *count)
{
    if (count) *count = prompt ? prompt->place_count : 0;
    return prompt ? prompt->places : NULL;
}

mf_reasoning mf_prompt_reasoning(const mf_prompt *prompt)
{
    return prompt ? prompt->reasoning : MF_REASONING_NONE;
}

/* The id that stands before every prompt of this model, where the text has not brought it. */
static mf_status prepend_bos(mf_prompt *prompt, const struct tokenizer *tokenizer, mf_error *why)
{
    struct token_list *list = &prompt->tokens;
    int32_t bos = tokenizer_bos(tokenizer);
    if (bos < 0 || (list->count > 0 && list->ids[0] == bos)) return MF_OK;
    mf_status status = token_list_append(list, bos, why);
    if (status != MF_OK) return status;
    memmove(list->ids + 1, list->ids, (list->count - 1) * sizeof *list->ids);
    list->ids[0] = bos;
    prompt->bos_before_text = true;
    return MF_OK;
}

static mf_status tokenize(mf_prompt *prompt, const mf_text *text, mf_error *why)
{
    const struct tokenizer *tokenizer = text->parts.tokenizer;
    const struct chat_rendering *rendering = &prompt->rendering;
    struct text_span whole = { rendering->text, rendering->length };
    mf_status status = tokenizer_encode_marked(&prompt->tokens, tokenizer, whole,
                                               rendering->content, rendering->content_count, why);
    return status == MF_OK ? prepend_bos(prompt, tokenizer, why) : status;
}

mf_status mf_prompt_from_text(mf_prompt **out, const mf_text *text, const char *bytes,
                              size_t length, mf_error *why)
{
    if (!out) return api_missing(why, "out");
    *out = NULL;
    if (!bytes) return api_missing(why, "bytes");
    mf_status status = api_need_tokenizer(text, why);
    if (status != MF_OK) return status;
    mf_prompt *prompt = calloc(1, sizeof *prompt);
    if (prompt) prompt->rendering.text = malloc(length + 1);
    if (!prompt || !prompt->rendering.text) {
        free(prompt);
        return fail_memory(why, length + 1);
    }
    memcpy(prompt->rendering.text, bytes, length);
    prompt->rendering.text[length] = '\0';
    prompt->rendering.length = length;
    status = tokenize(prompt, text, why);
    if (status == MF_OK)
        *out = prompt;
    else
        mf_prompt_close(prompt);
    return status;
}

/* ------------------------------------------------------------------ rendering */

static mf_status fill_problem(mf_template_problem *out, const struct jinja_error *from,
                              mf_error *why)
{
    mf_template_problem own = { .kind = jinja_error_kind_name(from->kind),
                                .line = from->line,
                                .column = from->column };
    if (from->message) {
        size_t length = min_size(strlen(from->message), sizeof own.message - 1);
        memcpy(own.message, from->message, unicode_check(from->message, length));
    }
    return api_statistics_out(out, &own, sizeof own, "MF_TEMPLATE_PROBLEM_INIT", why);
}

static mf_reasoning reasoning_of(const struct chat_rendering *prompt,
                                 const struct prompt_source *source)
{
    const char *template_source = chat_template_source(source->chat);
    const struct output_family *family = output_family_detect(template_source);
    if (output_prompt_opens_reasoning(family, prompt->text, prompt->length))
        return MF_REASONING_OPEN;
    if (!output_family_reasons(family, template_source) ||
        output_prompt_closes_reasoning(family, prompt->text, prompt->length) ||
        json_is_false(json_object_get(source->context, "enable_thinking")))
        return MF_REASONING_NONE;
    return MF_REASONING_MAY;
}

static bool is_white(char byte)
{
    return byte == ' ' || byte == '\n' || byte == '\t' || byte == '\r';
}

/* Where the content of the last message ends in the text; 0: it is not the last that a message
 * brought. */
static size_t end_of_content(const struct chat_rendering *rendering, const json_t *message)
{
    const json_t *content = json_object_get(message, "content");
    const char *wanted = json_string_value(content);
    size_t length = json_string_length(content), count = rendering->content_count;
    if (!wanted || count == 0) return 0;
    while (length > 0 && is_white(wanted[length - 1])) length--;
    while (length > 0 && is_white(wanted[0])) { /* templates trim */
        wanted++;
        length--;
    }
    const mf_range *last = &rendering->content[count - 1];
    size_t end = last->offset + last->length;
    while (end > last->offset && is_white(rendering->text[end - 1])) end--;
    bool found = length > 0 && end - last->offset >= length &&
                 memcmp(rendering->text + end - length, wanted, length) == 0;
    return found ? end : 0;
}

/* The template has closed the last message, which is to go on. */
static mf_status open_last(mf_prompt *prompt, const json_t *context, mf_error *why)
{
    const json_t *messages = json_object_get(context, "messages");
    const json_t *message = json_array_get(messages, json_array_size(messages) - 1);
    const char *role = json_string_value(json_object_get(message, "role"));
    struct chat_rendering *rendering = &prompt->rendering;
    size_t end = role && strcmp(role, "assistant") == 0 ? end_of_content(rendering, message) : 0;
    if (end == 0)
        return fail(why, MF_ERR_UNSUPPORTED,
                    "the last message cannot be continued: it is not the assistant's, or the chat "
                    "template does not end it with its text");
    mf_range *last = &rendering->content[rendering->content_count - 1];
    last->length = end - last->offset;
    rendering->length = end;
    rendering->text[end] = '\0';
    prompt->reasoning = MF_REASONING_NONE;
    return MF_OK;
}

/* The text, and where it leaves the model. */
static mf_status render_new(mf_prompt **out, const struct prompt_source *source,
                            mf_template_problem *problem, mf_error *why)
{
    int64_t seconds = source->seconds;
    const struct jinja_options options = { .now = jinja_clock_local, .user = &seconds };
    struct jinja_error detail = { 0 };
    mf_prompt *prompt = calloc(1, sizeof *prompt);
    if (!prompt) return fail_memory(why, sizeof *prompt);
    mf_status status = chat_template_render_marked(&prompt->rendering, source->chat,
                                                   source->context, &options, &detail, why);
    if (status == MF_ERR_TEMPLATE && problem) {
        mf_status filled = fill_problem(problem, &detail, why);
        if (filled != MF_OK) status = filled;
    }
    jinja_error_clear(&detail);
    if (status != MF_OK) {
        mf_prompt_close(prompt);
        return status;
    }
    prompt->reasoning = reasoning_of(&prompt->rendering, source);
    *out = prompt;
    return MF_OK;
}

static mf_status parse_object_new(json_t **out, const char *text, const char *name, mf_error *why)
{
    mf_status status = json_parse_new(out, text, strlen(text), name, why);
    if (status != MF_OK || json_is_object(*out)) return status;
    status = fail(why, MF_ERR_FORMAT, "%s: %s, expected an object", name, json_kind(*out));
    json_decref(*out);
    *out = NULL;
    return status;
}

static mf_status adapt_messages(json_t *context, const mf_template *chat, mf_error *why)
{
    json_t *adapted, *messages = json_object_get(context, "messages");
    if (chat->bare || !json_is_array(messages)) return MF_OK;
    mf_status status =
        conversation_adapt_new(&adapted, messages, chat_template_source(chat->chat), why);
    if (status == MF_OK) json_object_set_new(context, "messages", adapted);
    return status;
}

mf_status mf_template_render(mf_prompt **out, const mf_template *chat, const char *variables,
                             mf_template_problem *problem, mf_error *why)
{
    json_t *context = NULL;
    if (!out) return api_missing(why, "out");
    *out = NULL;
    if (!chat) return api_missing(why, "chat");
    if (!variables) return api_missing(why, "variables");
    mf_status status = parse_object_new(&context, variables, "the template's variables", why);
    if (status == MF_OK) status = adapt_messages(context, chat, why);
    struct prompt_source source = { chat->chat, context, clock_calendar_seconds() };
    if (status == MF_OK) status = render_new(out, &source, problem, why);
    json_decref(context);
    return status;
}

mf_status api_parse_array_new(json_t **out, const char *text, const char *name, mf_error *why)
{
    *out = NULL;
    if (!text) return MF_OK;
    mf_status status = json_parse_new(out, text, strlen(text), name, why);
    if (status != MF_OK || json_is_array(*out)) return status;
    status = fail(why, MF_ERR_FORMAT, "%s: %s, expected an array", name, json_kind(*out));
    json_decref(*out);
    *out = NULL;
    return status;
}

static mf_status messages_new(json_t **out, const mf_text *text, const char *given, mf_error *why)
{
    json_t *messages = NULL;
    *out = NULL;
    mf_status status = api_parse_array_new(&messages, given, "messages", why);
    if (status == MF_OK)
        status = conversation_adapt_new(out, messages, chat_template_source(text->parts.chat), why);
    json_decref(messages);
    return status;
}

/* The variables of the template for a conversation. */
static mf_status context_new(json_t **out, const mf_text *text, const mf_chat_options *options,
                             mf_error *why)
{
    json_t *messages = NULL, *tools = NULL, *variables = NULL;
    mf_status status = messages_new(&messages, text, options->messages, why);
    if (status == MF_OK) status = api_parse_array_new(&tools, options->tools, "tools", why);
    if (status == MF_OK && options->variables)
        status = parse_object_new(&variables, options->variables, "variables", why);
    *out = status == MF_OK ? json_object() : NULL;
    if (status == MF_OK && !*out) status = fail_memory(why, sizeof **out);
    if (status == MF_OK) {
        /* Copies: threads render at the same time, and counts of references would be shared. */
        if (text->parts.bos)
            json_object_set_new(*out, "bos_token", json_deep_copy(text->parts.bos));
        if (text->parts.eos)
            json_object_set_new(*out, "eos_token", json_deep_copy(text->parts.eos));
        json_object_set(*out, "messages", messages);
        if (tools)
            json_object_set(*out, "tools", tools);
        else
            json_object_set_new(*out, "tools", json_null());
        json_object_set_new(
            *out, "add_generation_prompt",
            json_boolean(!options->no_generation_prompt && !options->continue_last));
        if (variables) json_object_update(*out, variables);
    }
    json_decref(messages);
    json_decref(tools);
    json_decref(variables);
    return status;
}

mf_status mf_chat_render(mf_prompt **out, const mf_text *text, const mf_chat_options *options,
                         mf_error *why)
{
    const mf_template *chat = NULL;
    mf_chat_options own;
    json_t *context = NULL;
    mf_prompt *prompt = NULL;
    if (!out) return api_missing(why, "out");
    *out = NULL;
    mf_status status = api_need_tokenizer(text, why);
    if (status == MF_OK) status = mf_text_template(&chat, text, why);
    if (status == MF_OK)
        status = api_options_in(&own, sizeof own, options, "MF_CHAT_OPTIONS_INIT", why);
    if (status != MF_OK) return status;
    if (!chat) return fail(why, MF_ERR_UNSUPPORTED, "the checkpoint has no chat template");
    if (!own.messages) return api_missing(why, "options->messages");
    status = context_new(&context, text, &own, why);
    struct prompt_source source = { chat->chat, context,
                                    own.now ? own.now : clock_calendar_seconds() };
    if (status == MF_OK) status = render_new(&prompt, &source, NULL, why);
    if (status == MF_OK && own.continue_last) status = open_last(prompt, context, why);
    if (status == MF_OK) status = tokenize(prompt, text, why);
    if (status == MF_OK && own.find_places) api_find_places(prompt, text->parts.tokenizer, &source);
    json_decref(context);
    if (status == MF_OK)
        *out = prompt;
    else
        mf_prompt_close(prompt);
    return status;
}
