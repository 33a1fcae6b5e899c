/* prompt.h: what a rendered prompt is. */
#ifndef API_PROMPT_H
#define API_PROMPT_H

#include "api/handles.h"

enum { PROMPT_PLACES = 3 };

struct mf_prompt {
    struct chat_rendering rendering;
    struct token_list tokens;
    bool bos_before_text; /* the first token is no part of the text */
    mf_reasoning reasoning;
    mf_prompt_place places[PROMPT_PLACES]; /* in ascending order */
    size_t place_count;
};

/* What a prompt is rendered from. */
struct prompt_source {
    const struct chat_template *chat;
    const json_t *context;
    int64_t seconds; /* the time, since 1970 */
};

/* Fills in `places`: see mf_chat_options.find_places.  What cannot be rendered has no place. */
void api_find_places(mf_prompt *prompt, const struct tokenizer *tokenizer,
                     const struct prompt_source *source);

#endif
