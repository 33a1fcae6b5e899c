/* messages.h: a conversation in the form that chat templates read, whatever API it came by.
 *
 *     {"role":"system|user|assistant|tool","content":"…",
 *      "reasoning_content":"…","tool_calls":[{"id","type":"function","function":{"name","arguments":{…}}}],
 *      "tool_call_id":"…"}
 *
 * A system message stands first or nowhere: most templates refuse others.  Leading system messages
 * are joined; later ones keep their place as messages of the user. */
#ifndef DIALECTS_MESSAGES_H
#define DIALECTS_MESSAGES_H

#include "serve/ask.h"

/* Appends a message; texts are borrowed.  `role` "developer" is "system". */
bool messages_add(struct ask *ask, const char *role, const json_t *text, struct failure *failure);

/* The same for bytes. */
bool messages_add_text(struct ask *ask, const char *role, const char *text,
                       struct failure *failure);

/* The last message, to which fields may be added; a new one of the assistant if the last one is of
 * another role.  NULL: no memory. */
json_t *messages_assistant(struct ask *ask);

/* To a message of the assistant: reasoning (joined to what is there), and a call whose arguments
 * are the text of a JSON object; other text is passed on as it is. */
bool messages_add_reasoning(json_t *message, const char *text, size_t length);
bool messages_add_call(json_t *message, const char *id, const char *name, const json_t *arguments);
/* Content of a message, joined to what is there. */
bool messages_add_content(json_t *message, const char *text, size_t length);

/* What a tool returned. */
bool messages_add_result(struct ask *ask, const char *call_id, const char *text,
                         struct failure *failure);

/* The text of OpenAI's content: a string, null, or parts of type text, input_text, output_text or
 * refusal.  Other parts are refused.  The caller owns *out. */
bool content_text_new(json_t **out, const json_t *content, const char *where,
                      struct failure *failure);

/* A prompt_cache_breakpoint in a part of `content` asks for a checkpoint after the last message. */
void messages_note_breakpoint(struct ask *ask, const json_t *content);

/* Fills ask->messages from OpenAI's chat messages; checks roles and types. */
bool messages_read_openai(struct ask *ask, const json_t *messages, struct failure *failure);

#endif
