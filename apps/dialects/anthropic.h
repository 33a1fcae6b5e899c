/* anthropic.h: the messages API of Anthropic: how its requests are read, and what is known of one
 * besides its ask: ask.extra. */
#ifndef DIALECTS_ANTHROPIC_H
#define DIALECTS_ANTHROPIC_H

#include "serve/deliver.h"

/* A block of the answer, in the order in which the model wrote them. */
struct answer_block {
    enum { BLOCK_THINKING, BLOCK_TEXT, BLOCK_CALL } kind;
    struct byte_list text; /* or the arguments of the call, as JSON */
    uint32_t call;         /* its number in the answer */
};

struct anthropic {
    bool omit_thinking;   /* thinking blocks show no text, their signature alone has it */
    bool fill_only;       /* max_tokens is 0: the prompt is read into the cache, and no more */
    bool hour;            /* the last cache_control asks for an hour */
    size_t marks;         /* blocks with cache_control */
    const char *previous; /* the answer whose prompt this one is compared with, or NULL */
    struct answer_block *blocks;
    size_t block_count, block_capacity;
    /* A stream: */
    bool begun;
    size_t open; /* blocks that were begun; the last of them is not closed … */
    bool is_open;
    uint32_t resumed; /* tokens of the prompt that came from the cache */
};

/* Reads the body; the ask gets its `extra`.  `counting`: for count_tokens, where max_tokens is not
 * needed. */
bool anthropic_read(struct ask *ask, bool counting, struct failure *failure);

/* "system" and "messages", after the tools. */
bool anthropic_read_messages(struct ask *ask, struct anthropic *state, struct failure *failure);

/* *marked: the object has a cache_control. */
bool anthropic_read_mark(struct anthropic *state, bool *marked, const json_t *object,
                         const char *where, struct failure *failure);

/* A checkpoint after the messages so far. */
void anthropic_add_breakpoint(struct ask *ask);

#endif
