/* constraint_internal.h: what the files of the answer's grammar share.
 *
 *     constraint.c   reasoning, text, where calls stand
 *     constraint_call.c      one call: name and arguments, by the family's syntax
 *     constraint_channels.c  answers that are lists of messages */
#ifndef CHAT_CONSTRAINT_INTERNAL_H
#define CHAT_CONSTRAINT_INTERNAL_H

#include "chat/constraint.h"
#include "grammar/builder.h"
#include "chat/output_family.h"

struct answer {
    struct grammar_builder *builder;
    const struct answer_form *form;
    const struct output_family *family;
    /* NULL where there are no calls */
    const struct expression *calls;         /* one or more, with their markup */
    const struct expression *after_section; /* the same behind section_begin */
    const struct expression *after_call;    /* and behind call_begin */
};

/* White space between tags: up to two newlines or blanks. */
const struct expression *answer_gap(struct grammar_builder *builder);

/* A call of any tool that may be called, behind call_begin, with call_end.  NULL after an error.
 * Of a family with channels: behind the recipient's "functions.", to the end of the answer. */
const struct expression *answer_call_rest(struct answer *answer);

/* A rule of its own, so that an expression that stands in several places is made once. */
const struct expression *answer_rule(struct grammar_builder *builder,
                                     const struct expression *body);

/* Whether an answer may end before it has content or a call. */
bool answer_is_free(const struct answer_form *form);

/* The answer of a family with channels.  `calls`: whether there are tools; `given`: what the content
 * must be, NULL: it is free. */
const struct expression *answer_of_channels(struct answer *answer, bool calls,
                                            const struct expression *given);

#endif
