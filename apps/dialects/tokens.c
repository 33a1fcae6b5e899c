/* tokens.c: POST /tokenize, /detokenize and /apply-template: the model's text layer as it is. */
#include "serve/handlers.h"
#include "dialects/messages.h"
#include "dialects/openai.h"
#include "serve/reply.h"

#include "common/basics.h"

#include <stdlib.h>

/* Closes the ask, and replies with `value`, or with the failure where that is NULL. */
static void answer(struct ask *ask, struct exchange *exchange, json_t *value,
                   const struct failure *failure)
{
    ask_close(ask);
    if (value)
        reply_json(exchange, 200, value);
    else
        failure_reply(exchange, DIALECT_OPENAI, failure);
}

static json_t *ids_json_new(const int32_t *ids, size_t count)
{
    json_t *list = json_array();

    for (size_t i = 0; i < count; i++) json_array_append_new(list, json_integer(ids[i]));
    return list;
}

/* "content" (or "prompt", or "text"); with "parse_special", added tokens are recognised. */
static json_t *tokenize_new(struct ask *ask, struct failure *failure)
{
    static const char *const names[] = { "content", "prompt", "text" };
    const json_t *text = NULL;
    bool special = false;
    size_t count = 0;
    mf_error why;

    for (size_t i = 0; i < COUNT_OF(names) && !text; i++)
        text = json_object_get(ask->body, names[i]);
    if (!read_flag(&special, ask->body, "parse_special", failure)) return NULL;
    if (!json_is_string(text)) {
        refuse_code(failure, "invalid_value", "content", "\"content\" is not a string");
        return NULL;
    }
    size_t length = json_string_length(text);
    int32_t *ids = malloc((length + 1) * sizeof *ids); /* a token has a byte at least */
    mf_status status =
        ids ? mf_text_tokenize(ask->serve->text, ids, length + 1, &count, json_string_value(text),
                               length, special ? MF_SPECIAL_PARSE : MF_SPECIAL_NONE, &why)
            : fail_memory(&why, length);
    json_t *list = status == MF_OK ? ids_json_new(ids, count) : NULL;
    free(ids);
    if (!list) {
        refuse_error(failure, &why);
        return NULL;
    }
    return json_pack("{s:o, s:I}", "tokens", list, "count", (json_int_t)count);
}

void tokens_tokenize(struct serve *serve, struct exchange *exchange)
{
    struct failure failure = { .kind = FAILURE_ENGINE };
    struct ask ask;
    json_t *value = NULL;

    if (ask_open(&ask, serve, exchange, DIALECT_OPENAI, &failure))
        value = tokenize_new(&ask, &failure);
    answer(&ask, exchange, value, &failure);
}

static json_t *detokenize_new(struct ask *ask, struct failure *failure)
{
    const json_t *tokens = json_object_get(ask->body, "tokens");
    struct byte_list text = { 0 };
    json_t *token;
    size_t i;

    if (!json_is_array(tokens)) {
        refuse_code(failure, "invalid_value", "tokens", "\"tokens\" is not an array of token ids");
        return NULL;
    }
    json_array_foreach(tokens, i, token)
    {
        size_t length = 0;
        json_int_t id = json_integer_value(token);
        const char *bytes = NULL;
        if (json_is_integer(token) && id >= 0 && id <= INT32_MAX)
            bytes = mf_text_token_bytes(ask->serve->text, (int32_t)id, &length);
        if (!bytes) {
            byte_list_free(&text);
            refuse_code(failure, "invalid_value", "tokens", "tokens[%zu] is not a token id", i);
            return NULL;
        }
        byte_list_append(&text, bytes, length, NULL);
    }
    json_t *content = list_json_new(&text);
    byte_list_free(&text);
    return json_pack("{s:o}", "content", content);
}

void tokens_detokenize(struct serve *serve, struct exchange *exchange)
{
    struct failure failure = { .kind = FAILURE_ENGINE };
    struct ask ask;
    json_t *value = NULL;

    if (ask_open(&ask, serve, exchange, DIALECT_OPENAI, &failure))
        value = detokenize_new(&ask, &failure);
    answer(&ask, exchange, value, &failure);
}

static json_t *template_new(struct ask *ask, struct failure *failure)
{
    mf_prompt *prompt = NULL;
    const char *effort = NULL;
    size_t length, count;

    if (!ask_read_variables(ask, failure) ||
        !read_text(&effort, ask->body, "reasoning_effort", failure) ||
        !openai_read_effort(ask, effort, failure) ||
        !openai_read_tools(ask, json_object_get(ask->body, "tools"), failure) ||
        !messages_read_openai(ask, json_object_get(ask->body, "messages"), failure) ||
        !job_render(&prompt, ask, failure))
        return NULL;
    const char *text = mf_prompt_text(prompt, &length);
    mf_prompt_tokens(prompt, &count);
    json_t *value =
        json_pack("{s:o, s:I}", "prompt", json_text_new(text, length), "tokens", (json_int_t)count);
    mf_prompt_close(prompt);
    return value;
}

void tokens_template(struct serve *serve, struct exchange *exchange)
{
    struct failure failure = { .kind = FAILURE_ENGINE };
    struct ask ask;
    json_t *value = NULL;

    if (ask_open(&ask, serve, exchange, DIALECT_OPENAI, &failure))
        value = template_new(&ask, &failure);
    answer(&ask, exchange, value, &failure);
}
