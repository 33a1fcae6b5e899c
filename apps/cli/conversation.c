#include "conversation.h"

#include "generation.h"
#include "json_lines.h"

#include "common/basics.h"
#include "common/error.h"
#include "moeflux_tools.h"

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

static mf_status render_new(mf_prompt **out, const struct conversation *conversation, bool closed,
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
    options.no_generation_prompt = closed;
    status = mf_chat_render(out, mf_model_text(conversation->opened->model), &options, why);
    free(messages);
    return status;
}

mf_status conversation_render_new(mf_prompt **out, const struct conversation *conversation,
                                  mf_error *why)
{
    return render_new(out, conversation, false, why);
}

/* How many ids of the prompt the next turn will begin with, too: not those that only open the
 * answer, because most templates write an old answer in another way. */
static size_t lasting_length(const struct conversation *conversation, const int32_t *ids,
                             size_t count)
{
    mf_prompt *closed = NULL;
    size_t closed_count = 0, i = 0;

    if (!conversation->has_template || render_new(&closed, conversation, true, NULL) != MF_OK) {
        return count;
    }
    const int32_t *others = mf_prompt_tokens(closed, &closed_count);
    while (i < count && i < closed_count && ids[i] == others[i]) i++;
    mf_prompt_close(closed);
    return i;
}

/* How many tokens the sequence and the ids both begin with. */
static uint32_t common_length(const mf_sequence *sequence, const int32_t *ids, size_t count)
{
    uint32_t most = (uint32_t)min_size(mf_sequence_position(sequence), count), i;

    for (i = 0; i < most; i++) {
        int32_t held;
        if (mf_sequence_tokens(sequence, i, 1, &held, NULL, NULL) != MF_OK || held != ids[i]) break;
    }
    return i;
}

/* Brings the sequence to a beginning of the ids; returns its length.  At least one id is
 * left to be read, because the logits must be those of the last one. */
static size_t rewind_sequence(mf_sequence *sequence, const int32_t *ids, size_t count)
{
    uint32_t kept = common_length(sequence, ids, count);

    if (kept == count && kept > 0) kept--;
    mf_sequence_truncate(sequence, kept, &kept, NULL);
    return kept;
}

/* A place to come back to.  Two are kept, this one and that of the turn before. */
static mf_status keep_place(struct conversation *conversation, mf_error *why)
{
    mf_sequence *sequence = conversation->opened->sequence;
    uint32_t position = mf_sequence_position(sequence), *places = conversation->places;

    if (position == places[1]) return mf_sequence_checkpoint(sequence, why);
    if (places[0] != position) mf_sequence_forget(sequence, places[0]);
    places[0] = places[1];
    places[1] = position;
    return mf_sequence_checkpoint(sequence, why);
}

void conversation_expect_turns(struct conversation *conversation)
{
    mf_model_shape shape = MF_MODEL_SHAPE_INIT;

    mf_model_get_shape(&shape, conversation->opened->model, NULL);
    conversation->keeps_places = shape.delta_layers > 0;
}

mf_status conversation_read(struct conversation *conversation, const mf_prompt *prompt,
                            const struct terminal *terminal, mf_error *why)
{
    mf_sequence *sequence = conversation->opened->sequence;
    size_t count, kept, lasting;
    const int32_t *ids = mf_prompt_tokens(prompt, &count);
    mf_status status = MF_OK;

    if (count == 0) return fail(why, MF_ERR_ARGUMENT, "the prompt is empty");
    kept = rewind_sequence(sequence, ids, count);
    lasting = conversation->keeps_places ? lasting_length(conversation, ids, count) : count;
    bool fits = count <= mf_sequence_context_length(sequence);
    if (kept < lasting && lasting < count && fits) {
        status = prompt_feed(sequence, ids + kept, lasting - kept, terminal, why);
        if (status == MF_OK) status = keep_place(conversation, why);
        kept = lasting;
    }
    if (status != MF_OK) return status;
    return prompt_feed(sequence, ids + kept, count - kept, terminal, why);
}
