/* conversation.h: the messages of a conversation as a family's templates want them.
 *
 * Callers say everything in one form: reasoning in `reasoning_content`, any number of `tool_calls` in
 * a message, results in messages of the role `tool`.  Most templates read that; for some it is put
 * into other words.
 *
 *     Harmony   reasoning is `thinking`; a message has one call, and its content then belongs to the
 *               reasoning: calls made together become one after the other, each with its result;
 *               arguments in a string become the object that it holds
 *     Gemma 4   templates that know no role `tool` have results in `tool_responses` of the message
 *               with the calls
 *
 * A result belongs to the call with its id.  Empty ids are none: such results go to the calls that have
 * none yet, in order.
 *
 * Lifetimes: borrows what it is given, returns a new list.  Threads: no shared state. */
#ifndef CHAT_CONVERSATION_H
#define CHAT_CONVERSATION_H

#include "chat/output_parser.h"

/* A new reference to `messages`, an array, or to a list in its place. */
mf_status conversation_adapt_new(json_t **out, const json_t *messages, const char *template_source,
                                 mf_error *why);

#endif
