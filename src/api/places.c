/* places.c: where other prompts are likely to leave the text of this one.
 *
 * Templates do not say which part of their output belongs to which message.  So a conversation that
 * differs from a place on is rendered, too: the place is where the two texts part. */
#include "api/prompt.h"

/* A user message that differs from all others. */
#define OTHER_TEXT "\u00a7"

/* How many bytes the prompt's text has in common with another rendering; 0: that fails. */
static size_t common_bytes(const mf_prompt *prompt, const struct prompt_source *source,
                           const json_t *context)
{
    int64_t seconds = source->seconds;
    const struct jinja_options options = { .now = jinja_clock_local, .user = &seconds };
    struct jinja_error detail = { 0 };
    struct chat_rendering other = { 0 };
    size_t i = 0;
    if (context && chat_template_render_marked(&other, source->chat, context, &options, &detail,
                                               NULL) == MF_OK) {
        size_t most = min_size(prompt->rendering.length, other.length);
        while (i < most && prompt->rendering.text[i] == other.text[i]) i++;
    }
    jinja_error_clear(&detail);
    chat_rendering_clear(&other);
    return i;
}

/* How many tokens lie within the first `bytes` of the text. */
static uint32_t tokens_within(const mf_prompt *prompt, const struct tokenizer *tokenizer,
                              size_t bytes)
{
    uint32_t count = prompt->bos_before_text ? 1 : 0;
    size_t end = 0, length = 0;
    while (count < prompt->tokens.count) {
        if (!tokenizer_token_bytes(tokenizer, prompt->tokens.ids[count], &length)) break;
        end += length;
        if (end > bytes) break;
        count++;
    }
    return count;
}

static void add_place(mf_prompt *prompt, uint32_t position, mf_place place)
{
    size_t count = prompt->place_count;
    if (position == 0 || position >= prompt->tokens.count) return;
    if (count > 0 && position <= prompt->places[count - 1].position) return;
    prompt->places[prompt->place_count++] = (mf_prompt_place){ position, place };
}

static bool has_role(const json_t *message, const char *role)
{
    const char *own = json_string_value(json_object_get(message, "role"));
    return own && strcmp(own, role) == 0;
}

/* The conversation with another user message in place of the one at `index` and all that follow. */
static json_t *other_user_new(const json_t *context, size_t index)
{
    json_t *copy = json_copy((json_t *)context);
    const json_t *messages = json_object_get(context, "messages");
    json_t *shorter = json_array();
    for (size_t i = 0; shorter && i < index; i++)
        json_array_append(shorter, json_array_get(messages, i));
    json_array_append_new(shorter, json_pack("{s:s,s:s}", "role", "user", "content", OTHER_TEXT));
    if (copy) json_object_set(copy, "messages", shorter);
    json_decref(shorter);
    return copy;
}

static json_t *without_opening_new(const json_t *context)
{
    json_t *copy = json_copy((json_t *)context);
    if (copy) json_object_set_new(copy, "add_generation_prompt", json_false());
    return copy;
}

void api_find_places(mf_prompt *prompt, const struct tokenizer *tokenizer,
                     const struct prompt_source *source)
{
    const json_t *context = source->context;
    const json_t *messages = json_object_get(context, "messages");
    size_t count = json_array_size(messages), head = 0, last = count;
    while (head < count && (has_role(json_array_get(messages, head), "system") ||
                            has_role(json_array_get(messages, head), "developer")))
        head++;
    bool has_head = head > 0 || json_array_size(json_object_get(context, "tools")) > 0;
    while (last > head && !has_role(json_array_get(messages, last - 1), "user")) last--;
    struct {
        json_t *context;
        mf_place place;
    } others[PROMPT_PLACES] = {
        { has_head ? other_user_new(context, head) : NULL, MF_PLACE_HEAD },
        { last > head + 1 ? other_user_new(context, last - 1) : NULL, MF_PLACE_LAST_USER },
        { without_opening_new(context), MF_PLACE_PROMPT_END },
    };
    for (size_t i = 0; i < PROMPT_PLACES; i++) {
        size_t bytes = common_bytes(prompt, source, others[i].context);
        add_place(prompt, tokens_within(prompt, tokenizer, bytes), others[i].place);
        json_decref(others[i].context);
    }
}
