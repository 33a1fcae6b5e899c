#include "conversation.h"

#include "generation.h"
#include "json_lines.h"

#include "api/handles.h"
#include "base/status.h"

#include <stdlib.h>

mf_status conversation_open(struct conversation *out, const struct opened *opened, mf_error *why)
{
    const struct model_text *text = &opened->model->text;

    if (text->chat_error.status != MF_OK) {
        if (why) *why = text->chat_error;
        return text->chat_error.status;
    }
    *out = (struct conversation){ .opened = opened,
                                  .chat = text->chat,
                                  .bos = text->bos,
                                  .eos = text->eos,
                                  .messages = json_array() };
    return out->messages ? MF_OK : fail_memory(why, sizeof *out);
}

void conversation_close(struct conversation *conversation)
{
    json_decref(conversation->messages);
    json_decref(conversation->tools);
    token_list_free(&conversation->held);
    *conversation = (struct conversation){ 0 };
}

static json_t *message_new(const char *role, const char *text, size_t length)
{
    json_t *content = json_stringn(text, length);

    return content ? json_pack("{s:s,s:o}", "role", role, "content", content) : NULL;
}

bool conversation_add(struct conversation *conversation, const char *role, const char *text,
                      size_t length)
{
    json_t *message = message_new(role, text, length);

    return message && json_array_append_new(conversation->messages, message) == 0;
}

mf_status conversation_read_tools(struct conversation *conversation, const char *path,
                                  mf_error *why)
{
    mf_status status = tools_read_new(&conversation->tools, path, why);

    if (status == MF_OK && !conversation->chat) {
        status = fail(why, MF_ERR_UNSUPPORTED,
                      "the model has no chat template, and tools are a part of one");
    }
    return status;
}

static bool has_system(const struct conversation *conversation)
{
    const char *role =
        json_string_value(json_object_get(json_array_get(conversation->messages, 0), "role"));

    return role && strcmp(role, "system") == 0;
}

bool conversation_set_system(struct conversation *conversation, const char *text)
{
    json_t *message = *text ? message_new("system", text, strlen(text)) : NULL;

    if (*text && !message) return false;
    if (has_system(conversation)) json_array_remove(conversation->messages, 0);
    return !message || json_array_insert_new(conversation->messages, 0, message) == 0;
}

void conversation_clear(struct conversation *conversation)
{
    size_t kept = has_system(conversation) ? 1 : 0;

    while (json_array_size(conversation->messages) > kept) {
        json_array_remove(conversation->messages, kept);
    }
}

/* Without a template the last message is the prompt, as it is. */
static mf_status last_text_new(char **out, size_t *length, const struct conversation *conversation,
                               mf_error *why)
{
    size_t count = json_array_size(conversation->messages);
    const json_t *content =
        json_object_get(json_array_get(conversation->messages, count - 1), "content");
    const char *text = json_string_value(content);

    *length = json_string_length(content);
    *out = text ? strdup(text) : NULL;
    return *out ? MF_OK : fail_memory(why, *length);
}

mf_status conversation_render_new(char **out, size_t *length,
                                  const struct conversation *conversation, mf_error *why)
{
    static const struct jinja_options options = { .now = jinja_clock_local };
    json_t *context;
    mf_status status;

    if (!conversation->chat) return last_text_new(out, length, conversation, why);
    context = json_pack("{s:O,s:n,s:b}", "messages", conversation->messages, "tools",
                        "add_generation_prompt", 1);

    if (!context) return fail_memory(why, sizeof *context);
    if (conversation->tools) json_object_set(context, "tools", conversation->tools);
    if (conversation->bos) json_object_set(context, "bos_token", conversation->bos);
    if (conversation->eos) json_object_set(context, "eos_token", conversation->eos);
    if (conversation->thinking != THINKING_DEFAULT) {
        json_object_set_new(context, "enable_thinking",
                            json_boolean(conversation->thinking == THINKING_ON));
    }
    status = chat_template_render_with_new(out, length, conversation->chat, context, &options, NULL,
                                           why);
    json_decref(context);
    return status;
}

/* How many ids both begin with. */
static size_t common_length(const struct token_list *a, const struct token_list *b)
{
    size_t count = min_size(a->count, b->count), i = 0;

    while (i < count && a->ids[i] == b->ids[i]) i++;
    return i;
}

/* Brings the session to a beginning of `wanted`; returns its length.  At least one id is
 * left to be read, because the logits must be those of the last one. */
static size_t rewind_session(struct conversation *conversation, const struct token_list *wanted)
{
    mf_sequence *session = conversation->opened->session;
    size_t kept = common_length(&conversation->held, wanted);

    if (kept == wanted->count && kept > 0) kept--;
    kept = min_size(kept, mf_sequence_position(session)); /* the last token may not have been fed */
    if (mf_sequence_truncate(session, (uint32_t)kept, NULL) == MF_OK) return kept;
    mf_sequence_clear(session);
    return 0;
}

/* The id that stands before every prompt of this model, where the text has not brought it. */
static mf_status prepend_bos(struct token_list *list, const struct opened *opened, mf_error *why)
{
    const struct tokenizer *tokenizer = opened->model->text.tokenizer;
    int32_t bos = tokenizer ? tokenizer_bos(tokenizer) : -1;
    mf_status status;

    if (bos < 0 || (list->count > 0 && list->ids[0] == bos)) return MF_OK;
    status = token_list_append(list, bos, why);
    if (status != MF_OK) {
        token_list_free(list);
        return status;
    }
    memmove(list->ids + 1, list->ids, (list->count - 1) * sizeof *list->ids);
    list->ids[0] = bos;
    return MF_OK;
}

mf_status conversation_read(struct conversation *conversation, const char *text, size_t length,
                            const struct terminal *terminal, mf_error *why)
{
    struct token_list wanted;
    size_t kept;
    mf_status status = opened_tokenize(&wanted, conversation->opened, text, length, why);

    if (status == MF_OK) status = prepend_bos(&wanted, conversation->opened, why);
    if (status != MF_OK) return status;
    if (wanted.count == 0) return fail(why, MF_ERR_ARGUMENT, "the prompt is empty");
    kept = rewind_session(conversation, &wanted);
    token_list_free(&conversation->held);
    status = prompt_feed(conversation->opened->session, wanted.ids + kept, wanted.count - kept,
                         terminal, why);
    if (status == MF_OK) {
        conversation->held = wanted;
    } else {
        mf_sequence_clear(conversation->opened->session);
        token_list_free(&wanted);
    }
    return status;
}

void conversation_hold(struct conversation *conversation, int32_t token)
{
    /* A list that could not grow no longer matches the position: the next turn starts afresh. */
    (void)token_list_append(&conversation->held, token, NULL);
}
