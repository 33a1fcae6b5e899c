/* constraint_internal.h: what the files of the answer's grammar share.
 *
 *     constraint.c   reasoning, text, where calls stand
 *     constraint_call.c      one call: name and arguments, by the family's syntax */
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

/* A call of any tool that may be called, behind call_begin, with call_end.  NULL after an error. */
const struct expression *answer_call_rest(struct answer *answer);

#endif
