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
    if (conversation->cache != CACHE_OFF) /* the last answer, for later processes */
        mf_sequence_keep(conversation->opened->sequence, MF_PLACE_ANSWER_END, NULL);
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
    options.find_places = conversation->needs_checkpoints;
    status = mf_chat_render(out, mf_model_text(conversation->opened->model), &options, why);
    free(messages);
    return status;
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

/* Brings the sequence to a beginning of the ids.  At least one id is left to be read, because the
 * logits must be those of the last one.  `junction`: as mf_sequence_resume says; 0: none. */
static mf_status rewind_sequence(const struct conversation *conversation, const int32_t *ids,
                                 size_t count, uint32_t *junction, mf_error *why)
{
    mf_sequence *sequence = conversation->opened->sequence;
    uint32_t kept = common_length(sequence, ids, count);
    bool continued = kept > 0 && kept == mf_sequence_position(sequence) && kept < count;
    mf_resumed resumed = MF_RESUMED_INIT;
    mf_status status;

    *junction = 0;
    if (conversation->cache == CACHE_OFF) {
        if (kept == count && kept > 0) kept--;
        return mf_sequence_truncate(sequence, kept, &kept, why);
    }
    if (continued && conversation->cache == CACHE_REUSE) return MF_OK;
    status = mf_sequence_keep(sequence, MF_PLACE_ANSWER_END, why);
    if (status == MF_OK) status = mf_sequence_resume(sequence, ids, count, &resumed, why);
    *junction = resumed.junction;
    return status;
}

/* Reads up to `end`, and leaves a checkpoint there. */
static mf_status read_to(const struct conversation *conversation, const int32_t *ids, size_t end,
                         mf_place place, const struct terminal *terminal, mf_error *why)
{
    mf_sequence *sequence = conversation->opened->sequence;
    size_t at = mf_sequence_position(sequence);
    mf_status status;

    if (end <= at) return MF_OK;
    status = prompt_feed(sequence, ids + at, end - at, terminal, why);
    return status == MF_OK ? mf_sequence_keep(sequence, place, why) : status;
}

void conversation_use_cache(struct conversation *conversation, const char *cache)
{
    mf_model_shape shape = MF_MODEL_SHAPE_INIT;

    mf_model_get_shape(&shape, conversation->opened->model, NULL);
    conversation->cache = !cache || strcmp(cache, "off") == 0 ? CACHE_OFF
                          : strcmp(cache, "exact") == 0       ? CACHE_EXACT
                                                              : CACHE_REUSE;
    conversation->needs_checkpoints =
        conversation->cache != CACHE_OFF && (shape.delta_layers > 0 || shape.window_layers > 0);
}

/* Up to the last place of the prompt: the next turn leaves its text at one of them, because most
 * templates write an old answer in another way. */
static mf_status read_places(const struct conversation *conversation, const mf_prompt *prompt,
                             uint32_t junction, const struct terminal *terminal, mf_error *why)
{
    size_t count;
    const int32_t *ids = mf_prompt_tokens(prompt, NULL);
    const mf_prompt_place *places = mf_prompt_places(prompt, &count);
    mf_status status = MF_OK;

    for (size_t i = 0; i < count && status == MF_OK; i++) {
        if (junction < places[i].position)
            status = read_to(conversation, ids, junction, MF_PLACE_JUNCTION, terminal, why);
        if (status == MF_OK)
            status = read_to(conversation, ids, places[i].position, places[i].place, terminal, why);
    }
    return status;
}

mf_status conversation_read(struct conversation *conversation, const mf_prompt *prompt,
                            const struct terminal *terminal, mf_error *why)
{
    mf_sequence *sequence = conversation->opened->sequence;
    size_t count, at;
    uint32_t junction;
    const int32_t *ids = mf_prompt_tokens(prompt, &count);
    mf_status status;

    if (count == 0) return fail(why, MF_ERR_ARGUMENT, "the prompt is empty");
    status = rewind_sequence(conversation, ids, count, &junction, why);
    bool fits = count <= mf_sequence_context_length(sequence);
    if (status == MF_OK && fits)
        status = read_places(conversation, prompt, junction, terminal, why);
    if (status != MF_OK) return status;
    at = mf_sequence_position(sequence);
    return prompt_feed(sequence, ids + at, count - at, terminal, why);
}
