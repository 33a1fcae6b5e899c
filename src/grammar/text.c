/* Text up to one of several literals, by the automaton of Aho and Corasick: a state is the
 * longest beginning of a literal that the text so far ends with.
 *
 *     ends "</a>"        state 0   any character but <  → 0      <  → 1
 *                        state 1   /  → 2    <  → 1    others → 0
 *                        state 2   a  → 3    <  → 1    others → 0
 *                        state 3   >  → what follows the literal    <  → 1    others → 0
 *
 * States are rules that end by calling the next one, which takes no room on the stack: the
 * text may be as long as it likes.  It is read by characters, so that it stays UTF-8. */
#include "grammar/builder.h"

#include <stdlib.h>

enum { STATE_LIMIT = 512, END_NONE = -1 };

struct text_state {
    uint32_t code;   /* that leads here from the parent */
    uint32_t parent; /* a lower number */
    uint32_t suffix; /* the state of the longest other beginning that ends like this one */
    uint32_t depth;  /* characters from state 0 */
    int end;         /* the literal that is complete here, or END_NONE */
    uint32_t rule;
};

struct text_automaton {
    struct grammar_builder *builder;
    const struct text_end *ends;
    bool may_stop;
    struct text_state *states; /* [state_count]; 0: no beginning of any literal */
    uint32_t state_count;
    uint32_t *codes; /* [code_count]: the characters of the literals, ascending */
    size_t code_count;
};

/* ---------------------------------------------------------------- automaton */

static uint32_t find_child(const struct text_automaton *a, uint32_t parent, uint32_t code)
{
    for (uint32_t i = 1; i < a->state_count; i++)
        if (a->states[i].parent == parent && a->states[i].code == code) return i;
    return 0;
}

/* The state after one more character. */
static uint32_t next_state(const struct text_automaton *a, uint32_t state, uint32_t code)
{
    for (;;) {
        uint32_t child = find_child(a, state, code);
        if (child || state == 0) return child;
        state = a->states[state].suffix;
    }
}

static bool add_literal(struct text_automaton *a, int index)
{
    const char *text = a->ends[index].literal;
    size_t length = strlen(text);
    uint32_t state = 0;
    for (size_t at = 0; at < length;) {
        uint32_t code, child;
        size_t bytes = code_decode(&code, text + at, length - at);
        if (bytes == 0 || a->state_count == STATE_LIMIT)
            return builder_fail(a->builder, MF_ERR_GRAMMAR, "\"%.40s\" cannot end a text", text) !=
                   NULL;
        child = find_child(a, state, code);
        if (!child) {
            child = a->state_count++;
            a->states[child] = (struct text_state){
                .code = code,
                .parent = state,
                .depth = a->states[state].depth + 1,
                .end = END_NONE,
            };
            a->codes[a->code_count++] = code;
        }
        state = child;
        at += bytes;
    }
    if (a->states[state].end == END_NONE) a->states[state].end = index;
    return true;
}

/* Shorter beginnings first: a suffix is known when it is asked for. */
static void find_suffixes(struct text_automaton *a)
{
    for (uint32_t depth = 2, done = 0; done < a->state_count; depth++) {
        done = 0;
        for (uint32_t i = 0; i < a->state_count; i++) {
            struct text_state *state = &a->states[i];
            if (state->depth <= depth) done++;
            if (state->depth != depth) continue;
            state->suffix = next_state(a, a->states[state->parent].suffix, state->code);
            if (state->end == END_NONE) state->end = a->states[state->suffix].end;
        }
    }
}

static int ascending(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

/* Each character once. */
static void sort_codes(struct text_automaton *a)
{
    size_t kept = 0;
    qsort(a->codes, a->code_count, sizeof *a->codes, ascending);
    for (size_t i = 0; i < a->code_count; i++)
        if (i == 0 || a->codes[i] != a->codes[kept - 1]) a->codes[kept++] = a->codes[i];
    a->code_count = kept;
}

/* -------------------------------------------------------------------- rules */

/* What may come in a state. */
static const struct expression *state_body(struct text_automaton *a, uint32_t state)
{
    struct grammar_builder *b = a->builder;
    size_t room = a->code_count + 3, count = 0, special_count = 0, other_count;
    const struct expression **items = arena_take(&b->arena, room, sizeof *items);
    struct code_range *special = arena_take(&b->arena, 2 * room, sizeof *special);
    if (!items || !special) return builder_fail(b, MF_ERR_MEMORY, "out of memory for the grammar");
    struct code_range *others = special + room;
    for (size_t i = 0; i < a->code_count; i++) {
        uint32_t code = a->codes[i], next = next_state(a, state, code);
        uint8_t bytes[4];
        if (next == 0) continue;
        special[special_count++] = (struct code_range){ code, code };
        int end = a->states[next].end;
        const struct expression *then =
            end == END_NONE ? expression_rule(b, a->states[next].rule) : a->ends[end].then;
        if (end != END_NONE && !then) continue; /* it must not occur */
        items[count++] = SEQUENCE(b, expression_literal(b, bytes, code_encode(bytes, code)), then);
    }
    special_count = code_ranges_normalise(special, special_count);
    other_count = code_ranges_invert(others, special, special_count);
    items[count++] = SEQUENCE(b, expression_class(b, others, other_count),
                              expression_rule(b, a->states[0].rule));
    if (a->may_stop) items[count++] = expression_empty(b);
    return expression_choice(b, items, count);
}

const struct expression *expression_text_until(struct grammar_builder *builder,
                                               const struct text_end *ends, size_t count,
                                               bool may_stop)
{
    struct text_automaton a = { builder, ends, may_stop, NULL, 1, NULL, 0 };
    if (builder_failed(builder)) return NULL;
    a.states = arena_take(&builder->arena, STATE_LIMIT, sizeof *a.states);
    a.codes = arena_take(&builder->arena, STATE_LIMIT + 1, sizeof *a.codes);
    if (!a.states || !a.codes)
        return builder_fail(builder, MF_ERR_MEMORY, "out of memory for the grammar");
    a.states[0] = (struct text_state){ .end = END_NONE };
    for (size_t i = 0; i < count; i++)
        if (!add_literal(&a, (int)i)) return NULL;
    find_suffixes(&a);
    sort_codes(&a);
    for (uint32_t i = 0; i < a.state_count; i++) {
        a.states[i].rule = builder_add_rule(builder, NULL);
        if (a.states[i].rule == RULE_NONE) return NULL;
        builder->rules[a.states[i].rule].keep = true;
    }
    for (uint32_t i = 0; i < a.state_count; i++)
        if (a.states[i].end == END_NONE)
            builder_define(builder, a.states[i].rule, state_body(&a, i));
    return expression_rule(builder, a.states[0].rule);
}
