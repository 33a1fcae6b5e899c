/* conversation.h: the messages of a chat, and their tokens in the sequence.
 *
 *     messages ── chat template ── text ── ids ── the part that is new ── sequence
 *
 * Every turn renders the whole conversation, because a template may treat older turns
 * differently (most drop earlier reasoning).  Where the new ids are not a continuation of what the
 * sequence holds, it resumes from the prefix cache of the model, and only the rest is read.  Models
 * with recurrent layers leave checkpoints there, at the places that the prompt names. */
#ifndef CLI_CONVERSATION_H
#define CLI_CONVERSATION_H

#include "common/json.h"
#include "opened.h"
#include "terminal.h"

enum cache { CACHE_OFF, CACHE_REUSE, CACHE_EXACT };            /* --cache */
enum thinking { THINKING_DEFAULT, THINKING_ON, THINKING_OFF }; /* enable_thinking */

struct conversation {
    const struct opened *opened;
    bool has_template; /* false: texts are continued without a template */
    json_t *messages;  /* array of {"role":…,"content":…} */
    char *tools;       /* JSON array of what the model may call, or NULL */
    enum thinking thinking;
    enum cache cache;       /* what earlier turns may be taken from */
    bool needs_checkpoints; /* there is a cache, and the model has recurrent layers */
};

/* A chat template that cannot be parsed is an error. */
mf_status conversation_open(struct conversation *out, const struct opened *opened, mf_error *why);
void conversation_close(struct conversation *conversation);

/* Appends a message; false: `text` is not UTF-8. */
bool conversation_add(struct conversation *conversation, const char *role, const char *text,
                      size_t length);

/* The JSON array in the file `path`. */
mf_status conversation_read_tools(struct conversation *conversation, const char *path,
                                  mf_error *why);

/* Replaces the system message, which is the first one; an empty `text` removes it. */
bool conversation_set_system(struct conversation *conversation, const char *text);

/* Index of the first message after the system message: 0 or 1. */
size_t conversation_first(const struct conversation *conversation);

/* Removes all messages except the system message. */
void conversation_clear(struct conversation *conversation);

/* Prompts resume from the cache that the model was opened with (NULL: none), and leave in it what
 * later ones share with them.  For its checkpoints a prompt is read in parts. */
void conversation_use_cache(struct conversation *conversation, const char *cache);

/* The prompt for the assistant's next turn; closed with mf_prompt_close. */
mf_status conversation_render_new(mf_prompt **out, const struct conversation *conversation,
                                  mf_error *why);

/* Makes the sequence hold exactly the ids of the prompt, and reads what is new of them. */
mf_status conversation_read(struct conversation *conversation, const mf_prompt *prompt,
                            const struct terminal *terminal, mf_error *why);

#endif
