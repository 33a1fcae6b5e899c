#include "conversation.h"

#include "generation.h"
#include "json_lines.h"

#include "common/basics.h"
#include "common/error.h"

#include <stdlib.h>

mf_status conversation_open(struct conversation *out, const struct opened *opened, mf_error *why)
{
    const mf_template *chat = NULL;
    mf_status status = mf_text_template(&chat, mf_model_text(opened->model), why);

    if (status != MF_OK) return status;
    *out = (struct conversation){ .opened = opened,
                                  .has_template = chat != NULL,
                                  .messages = json_array() };
    return out->messages ? MF_OK : fail_memory(why, sizeof *out);
}

void conversation_close(struct conversation *conversation)
{
    json_decref(conversation->messages);
    free(conversation->tools);
    id_list_free(&conversation->held);
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
    mf_status status = tools_text_new(&conversation->tools, path, why);

    if (status == MF_OK && !conversation->has_template) {
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

size_t conversation_first(const struct conversation *conversation)
{
    return has_system(conversation) ? 1 : 0;
}

void conversation_clear(struct conversation *conversation)
{
    size_t kept = conversation_first(conversation);

    while (json_array_size(conversation->messages) > kept) {
        json_array_remove(conversation->messages, kept);
    }
}

/* Without a template the last message is the prompt, as it is. */
static mf_status last_text_new(mf_prompt **out, const struct conversation *conversation,
                               mf_error *why)
{
    size_t count = json_array_size(conversation->messages);
    const json_t *content =
        json_object_get(json_array_get(conversation->messages, count - 1), "content");

    if (!json_is_string(content)) {
        return fail(why, MF_ERR_FORMAT, "the last message has no text to continue");
    }
    return mf_prompt_from_text(out, mf_model_text(conversation->opened->model),
                               json_string_value(content), json_string_length(content), why);
}

mf_status conversation_render_new(mf_prompt **out, const struct conversation *conversation,
                                  mf_error *why)
{
    static const char *const thinking[] = {
        [THINKING_DEFAULT] = NULL,
        [THINKING_ON] = "{\"enable_thinking\":true}",
        [THINKING_OFF] = "{\"enable_thinking\":false}",
    };
    mf_chat_options options = MF_CHAT_OPTIONS_INIT;
    char *messages;
    mf_status status;

    *out = NULL;
    if (!conversation->has_template) return last_text_new(out, conversation, why);
    messages = json_dumps(conversation->messages, JSON_COMPACT | JSON_REAL_PRECISION(17));
    if (!messages) return fail_memory(why, 1);
    options.messages = messages;
    options.tools = conversation->tools;
    options.variables = thinking[conversation->thinking];
    status = mf_chat_render(out, mf_model_text(conversation->opened->model), &options, why);
    free(messages);
    return status;
}

/* How many ids both begin with. */
static size_t common_length(const struct id_list *a, const int32_t *ids, size_t id_count)
{
    size_t count = min_size(a->count, id_count), i = 0;

    while (i < count && a->ids[i] == ids[i]) i++;
    return i;
}

/* Brings the sequence to a beginning of the ids; returns its length.  At least one id is
 * left to be read, because the logits must be those of the last one. */
static size_t rewind_sequence(struct conversation *conversation, const int32_t *ids, size_t count)
{
    mf_sequence *sequence = conversation->opened->sequence;
    size_t kept = common_length(&conversation->held, ids, count);

    if (kept == count && kept > 0) kept--;
    kept =
        min_size(kept, mf_sequence_position(sequence)); /* the last token may not have been fed */
    if (mf_sequence_truncate(sequence, (uint32_t)kept, NULL, NULL) == MF_OK) return kept;
    mf_sequence_clear(sequence);
    return 0;
}

static mf_status hold_all(struct conversation *conversation, const int32_t *ids, size_t count,
                          mf_error *why)
{
    mf_status status = MF_OK;

    id_list_free(&conversation->held);
    for (size_t i = 0; i < count && status == MF_OK; i++) {
        status = id_list_append(&conversation->held, ids[i], why);
    }
    return status;
}

mf_status conversation_read(struct conversation *conversation, const mf_prompt *prompt,
                            const struct terminal *terminal, mf_error *why)
{
    size_t count, kept;
    const int32_t *ids = mf_prompt_tokens(prompt, &count);
    mf_status status;

    if (count == 0) return fail(why, MF_ERR_ARGUMENT, "the prompt is empty");
    kept = rewind_sequence(conversation, ids, count);
    id_list_free(&conversation->held);
    status = prompt_feed(conversation->opened->sequence, ids + kept, count - kept, terminal, why);
    if (status == MF_OK) status = hold_all(conversation, ids, count, why);
    if (status != MF_OK) mf_sequence_clear(conversation->opened->sequence);
    return status;
}

void conversation_hold(struct conversation *conversation, int32_t token)
{
    /* A list that could not grow no longer matches the position: the next turn starts afresh. */
    (void)id_list_append(&conversation->held, token, NULL);
}
