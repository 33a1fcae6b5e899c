/* states.h: the states of a grammar after a text, computed on demand and cached.
 *
 * A place is a node that reads a byte and a stack of calls to return to when its rule ends.  After
 * some text a grammar may be at several places at once; that set is a state.
 *
 *     object ::= "{" (pair ("," pair)*)? "}"       after  {"a":1
 *     places  [0-9] in number, returning to pair's end, returning to object after pair
 *             ","   in object
 *             "}"   in object
 *
 * Stacks and states are interned (a stack is a return node and the stack below it), so that a state
 * is a number and a repeated step is a table lookup: the grammar becomes a deterministic automaton
 * as it is used.
 *
 * The tables begin small: most grammars have few states.  When one is full, a call returns STATE_FULL
 * and the owner calls states_grow, or, where they are as large as they may get, states_compact, which
 * keeps two states and drops the others.
 *
 * Bounds: a state has at most PLACE_LIMIT places, a stack GRAMMAR_DEPTH_LIMIT calls.  Beyond them
 * places are dropped, never the one with the shortest completion: fewer texts are then allowed, and
 * each is still a text of the grammar.
 *
 * Threads: one owner. */
#ifndef GRAMMAR_STATES_H
#define GRAMMAR_STATES_H

#include "grammar/grammar.h"

#define STATE_DEAD  0u         /* no place: the text is not allowed */
#define STATE_FULL  UINT32_MAX /* the table has no room: grow or compact it */
#define STACK_EMPTY 0u

enum { PLACE_LIMIT = 1024 };

struct grammar_stack {
    uint32_t node;   /* where to go on */
    uint32_t parent; /* a lower number */
    uint32_t cost;   /* fewest bytes from `node` down to the end of everything; saturates */
    uint32_t depth;
};

/* A BYTES node, or END with the empty stack: the text may end here. */
struct grammar_place {
    uint32_t node, stack;
};

struct grammar_state {
    uint32_t first_place, place_count; /* sorted by node, then stack */
    uint32_t nearest;                  /* the place whose shortest way is *the* shortest way */
    uint32_t cost;                     /* fewest bytes to the end: from that place */
    uint32_t mask;                     /* for mask.c: 0 at first */
    bool complete;                     /* the text may end here */
};

struct state_scratch;

#define WORK_UNLIMITED UINT32_MAX

struct grammar_states {
    const struct grammar *grammar;
    const mf_allocator *allocator;
    void *memory; /* all of the following, in one piece */
    size_t memory_bytes;

    struct grammar_stack *stacks; /* [stack_count]; 0: the empty one */
    struct grammar_state *states; /* [state_count]; 0: STATE_DEAD */
    struct grammar_place *places; /* [place_count] */
    uint32_t *steps;              /* [state_count][class_count]: state, or unknown */
    uint32_t *stack_index, *state_index;
    uint32_t stack_count, state_count, place_count;
    uint32_t stack_capacity, state_capacity, place_capacity;
    uint32_t *renamed;  /* [stack_capacity]: in compaction */
    unsigned reduction; /* capacities are the largest ones shifted right by so much */
    uint32_t work_left; /* looks at a node before a new step is refused as if the table were full;
                         * the owner sets it and can tell by 0.  Steps that were made stay. */
    struct state_scratch *scratch;
};

/* A zeroed struct may be released. */
mf_status states_init(struct grammar_states *states, const struct grammar *grammar,
                      const mf_allocator *allocator, mf_error *why);
void states_release(struct grammar_states *states);

/* The state before the first byte. */
uint32_t states_start(struct grammar_states *states);

/* After one more byte, whose class is given; STATE_DEAD when it is not allowed. */
uint32_t states_find_step(struct grammar_states *states, uint32_t state, uint32_t byte_class);

/* The state after the end of a rule that was called with `stack`. */
uint32_t states_return(struct grammar_states *states, uint32_t stack);

/* The stack `parent` with one more return; STATE_FULL when there is no room. */
uint32_t states_push(struct grammar_states *states, uint32_t node, uint32_t parent);

/* The state of exactly these places (sorted, each once; none: STATE_DEAD) with places[nearest]
 * the nearest to the end. */
uint32_t states_intern(struct grammar_states *states, const struct grammar_place *places,
                       uint32_t count, uint32_t nearest);

/* Larger tables with the same states.  False: they are as large as they may get, or there is no
 * memory for that, and nothing has changed. */
bool states_grow(struct grammar_states *states);

/* Drops all states except *a and *b, which are set to their new numbers. */
void states_compact(struct grammar_states *states, uint32_t *a, uint32_t *b);

#define STEP_UNKNOWN UINT32_MAX

/* The same, looked up: the vocabulary is walked with this. */
static inline uint32_t states_step(struct grammar_states *states, uint32_t state, uint8_t byte)
{
    uint32_t byte_class = states->grammar->byte_class[byte];
    uint32_t next = states->steps[(size_t)state * states->grammar->class_count + byte_class];
    return next != STEP_UNKNOWN ? next : states_find_step(states, state, byte_class);
}

static inline const struct grammar_place *state_places(const struct grammar_states *states,
                                                       uint32_t state)
{
    return states->places + states->states[state].first_place;
}

/* The place from which the shortest way to the end begins.  Along that way the nearest place of
 * the next state is the next place of the way: it never leaves a text that was found once. */
static inline struct grammar_place state_nearest_end(const struct grammar_states *states,
                                                     uint32_t state)
{
    return state_places(states, state)[states->states[state].nearest];
}

/* The first of the places from which the fewest bytes lead to the end. */
uint32_t states_find_nearest(const struct grammar_states *states,
                             const struct grammar_place *places, uint32_t count);

#endif
