#include "grammar/matcher.h"

#include "base/status.h"
#include "grammar/mask.h"
#include "sampling/sampler.h"

/* A longer way to the end is spelt to this length; the rest is counted a token per byte. */
enum { CLOSING_LIMIT = 1 << 13 };

/* Tokens that close the text.  A plan is followed token by token and not made anew: another
 * text of as few bytes may take more tokens to spell. */
struct closing_plan {
    int32_t *tokens; /* [CLOSING_LIMIT]: those still to come are [at..count) */
    size_t count, at;
    uint32_t length; /* of the whole way, counting a token per byte beyond the limit */
    bool valid;
};

struct grammar_matcher {
    struct arena arena;
    const struct grammar_vocabulary *vocabulary;
    struct grammar_states states;
    struct grammar_masks masks;
    uint32_t start, state; /* of `states` */
    bool ended;            /* an end token was accepted */
    bool mask_valid;       /* mask is that of `state` */
    bool all_bytes;        /* every byte is a token by itself */
    uint64_t *mask;        /* [mask_words] */

    char *closing;           /* [CLOSING_LIMIT] */
    uint32_t *closing_count; /* [CLOSING_LIMIT + 1]: tokens from here to the end */
    int32_t *closing_token;  /* [CLOSING_LIMIT]: the first of them */
    struct closing_plan plan, proposed;
    int32_t proposed_for;      /* `proposed` becomes the plan when this token is accepted; or -1 */
    uint32_t first_child[256]; /* of the vocabulary's root; 0: none */
};

/* Makes room in the tables; the current state and *other stay. */
static void compact(struct grammar_matcher *m, uint32_t *other)
{
    states_compact(&m->states, &m->state, other);
    m->start = STATE_FULL; /* found again when it is asked for */
    masks_forget(&m->masks);
}

/* The same, in larger tables if there may be some.  False: another call would make no more room. */
static bool make_room(struct grammar_matcher *m, uint32_t *other)
{
    bool states = states_grow(&m->states), masks = masks_grow(&m->masks);
    if (states || masks) return true;
    compact(m, other);
    return false;
}

static void find_start(struct grammar_matcher *m)
{
    uint32_t none = STATE_DEAD;
    m->state = STATE_DEAD;
    m->start = states_start(&m->states);
    for (bool more = true; m->start == STATE_FULL && more;) {
        more = make_room(m, &none);
        m->start = states_start(&m->states);
    }
    m->state = m->start;
}

/* ----------------------------------------------------------------- opening */

static mf_status take_memory(struct grammar_matcher *m, mf_error *why)
{
    m->mask = ARENA_NEW(&m->arena, uint64_t, m->vocabulary->mask_words);
    m->closing = ARENA_NEW(&m->arena, char, CLOSING_LIMIT);
    m->closing_count = ARENA_NEW(&m->arena, uint32_t, CLOSING_LIMIT + 1);
    m->closing_token = ARENA_NEW(&m->arena, int32_t, CLOSING_LIMIT);
    m->plan.tokens = ARENA_NEW(&m->arena, int32_t, CLOSING_LIMIT);
    m->proposed.tokens = ARENA_NEW(&m->arena, int32_t, CLOSING_LIMIT);
    m->proposed_for = -1;
    bool complete = m->mask && m->closing && m->closing_count && m->closing_token &&
                    m->plan.tokens && m->proposed.tokens;
    if (!complete) return fail_memory(why, m->vocabulary->mask_words * sizeof *m->mask);
    return MF_OK;
}

static bool has_tokens(const struct grammar_vocabulary *v, uint32_t node)
{
    return v->nodes[node].first_token < v->nodes[node + 1].first_token;
}

static void note_first_children(struct grammar_matcher *m)
{
    m->all_bytes = true;
    for (unsigned byte = 0; byte < 256; byte++) {
        uint32_t child = vocabulary_child(m->vocabulary, 0, (uint8_t)byte);
        m->first_child[byte] = child;
        if (!child || !has_tokens(m->vocabulary, child)) m->all_bytes = false;
    }
}

mf_status grammar_matcher_new(struct grammar_matcher **out, const mf_allocator *allocator,
                              const struct grammar *grammar,
                              const struct grammar_vocabulary *vocabulary, mf_error *why)
{
    *out = NULL;
    struct arena arena;
    arena_init(&arena, allocator);
    struct grammar_matcher *m = ARENA_NEW(&arena, struct grammar_matcher, 1);
    if (!m) return fail_memory(why, sizeof *m);
    m->arena = arena;
    m->vocabulary = vocabulary;
    mf_status status = take_memory(m, why);
    if (status == MF_OK) status = states_init(&m->states, grammar, allocator, why);
    if (status == MF_OK) status = masks_init(&m->masks, &m->states, vocabulary, allocator, why);
    if (status != MF_OK) {
        grammar_matcher_free(m);
        return status;
    }
    note_first_children(m);
    find_start(m);
    if (m->start == STATE_FULL || m->start == STATE_DEAD) {
        grammar_matcher_free(m);
        return fail(why, MF_ERR_GRAMMAR, "grammar: it begins in more ways than can be followed");
    }
    *out = m;
    return MF_OK;
}

void grammar_matcher_free(struct grammar_matcher *matcher)
{
    if (!matcher) return;
    masks_release(&matcher->masks);
    states_release(&matcher->states);
    struct arena arena = matcher->arena; /* it holds the matcher itself */
    arena_free(&arena);
}

void matcher_reset(struct grammar_matcher *matcher)
{
    if (matcher->start == STATE_FULL) find_start(matcher);
    matcher->state = matcher->start;
    matcher->ended = matcher->mask_valid = false;
    matcher->plan.valid = false;
    matcher->proposed_for = -1;
}

/* ------------------------------------------------------------------- moving */

bool matcher_is_complete(const struct grammar_matcher *matcher)
{
    return matcher->ended || matcher->states.states[matcher->state].complete;
}

bool matcher_is_finished(const struct grammar_matcher *matcher)
{
    const struct grammar_state *state = &matcher->states.states[matcher->state];
    return matcher->ended || (state->complete && state->place_count == 1);
}

/* The state after some bytes, STATE_DEAD when they are not allowed.  Makes room when it must; then
 * m->state may have another number. */
static uint32_t advance(struct grammar_matcher *m, const uint8_t *bytes, size_t length)
{
    uint32_t state = m->state;
    for (size_t i = 0; i < length && state != STATE_DEAD; i++) {
        uint32_t next = states_step(&m->states, state, bytes[i]);
        for (bool more = true; next == STATE_FULL && more;) {
            more = make_room(m, &state);
            next = states_step(&m->states, state, bytes[i]);
        }
        state = next == STATE_FULL ? STATE_DEAD : next;
    }
    return state;
}

/* The state after a token that has bytes. */
static uint32_t state_after(struct grammar_matcher *m, int32_t token)
{
    uint8_t bytes[GRAMMAR_TOKEN_BYTES_LIMIT];
    if (m->ended || token < 0 || (size_t)token >= m->vocabulary->token_count ||
        m->vocabulary->token_node[token] == 0)
        return STATE_DEAD;
    return advance(m, bytes, vocabulary_spell(m->vocabulary, bytes, token));
}

static bool is_end_token(const struct grammar_matcher *m, int32_t token)
{
    for (size_t i = 0; i < m->vocabulary->end_count; i++)
        if (m->vocabulary->end_tokens[i] == token) return true;
    return false;
}

bool matcher_allows(struct grammar_matcher *matcher, int32_t token)
{
    if (is_end_token(matcher, token)) return !matcher->ended && matcher_is_complete(matcher);
    return state_after(matcher, token) != STATE_DEAD;
}

/* The plan after `token`: the proposed one, the rest of the current one, or none. */
static void move_plan(struct grammar_matcher *m, int32_t token)
{
    if (m->proposed_for == token) {
        struct closing_plan old = m->plan;
        m->plan = m->proposed;
        m->proposed = old;
    } else if (m->plan.valid && m->plan.at < m->plan.count && m->plan.tokens[m->plan.at] == token) {
        m->plan.at++;
        m->plan.length--;
    } else {
        m->plan.valid = false;
    }
    m->proposed_for = -1;
}

bool matcher_accept(struct grammar_matcher *matcher, int32_t token)
{
    if (is_end_token(matcher, token)) {
        if (matcher->ended || !matcher_is_complete(matcher)) return false;
        matcher->ended = true;
        matcher->mask_valid = false;
        return true;
    }
    uint32_t state = state_after(matcher, token);
    if (state == STATE_DEAD) return false;
    matcher->state = state;
    matcher->mask_valid = false;
    move_plan(matcher, token);
    return true;
}

bool matcher_accept_bytes(struct grammar_matcher *matcher, const char *bytes, size_t length)
{
    if (matcher->ended) return length == 0;
    uint32_t state = advance(matcher, (const uint8_t *)bytes, length);
    if (state == STATE_DEAD) return false;
    matcher->state = state;
    matcher->mask_valid = matcher->plan.valid = false;
    matcher->proposed_for = -1;
    return true;
}

/* ------------------------------------------------------------------ closing */

/* The shortest way to the end from `state`: up to `capacity` bytes of it; how many in all. */
static size_t closing_text(const struct grammar_matcher *m, uint32_t state, char *out,
                           size_t capacity)
{
    const struct grammar_states *states = &m->states;
    const struct grammar *g = states->grammar;
    if (state == STATE_DEAD) return 0;
    struct grammar_place at = state_nearest_end(states, state);
    /* Returns to rules that were called on the way; heights bound their number. */
    uint32_t calls[GRAMMAR_DEPTH_LIMIT + 1];
    size_t call_count = 0, length = 0;
    while (length < capacity) {
        const struct grammar_node *n = &g->nodes[at.node];
        if (n->kind == NODE_BYTES) {
            out[length++] = (char)g->set_example[n->a];
            at.node = n->b;
        } else if (n->kind == NODE_SPLIT) {
            at.node = n->a;
        } else if (n->kind == NODE_CALL) {
            if (g->nodes[n->b].kind != NODE_END) calls[call_count++] = n->b;
            at.node = g->rule_starts[n->a];
        } else if (call_count > 0) {
            at.node = calls[--call_count];
        } else if (at.stack != STACK_EMPTY) {
            at = (struct grammar_place){ states->stacks[at.stack].node,
                                         states->stacks[at.stack].parent };
        } else {
            break;
        }
    }
    return states->states[state].cost;
}

/* The fewest tokens that spell closing[at..length), from those further on; *token the first. */
static uint32_t best_spelling(const struct grammar_matcher *m, size_t at, size_t length,
                              int32_t *token)
{
    const struct grammar_vocabulary *v = m->vocabulary;
    uint32_t best = UINT32_MAX;
    uint32_t node = m->first_child[(uint8_t)m->closing[at]];
    for (size_t end = at + 1; node; end++) {
        if (has_tokens(v, node) && m->closing_count[end] < best) {
            best = m->closing_count[end];
            *token = (int32_t)v->sorted[v->nodes[node].first_token];
        }
        if (end == length) break;
        node = vocabulary_child(v, node, (uint8_t)m->closing[end]);
    }
    return best == UINT32_MAX ? best : best + 1;
}

/* How many tokens close the text from `state`; UINT32_MAX when the vocabulary cannot. */
static uint32_t closing_tokens(struct grammar_matcher *m, uint32_t state)
{
    size_t total = closing_text(m, state, m->closing, CLOSING_LIMIT);
    size_t length = min_size(total, CLOSING_LIMIT);
    m->closing_count[length] = (uint32_t)(total - length);
    for (size_t at = length; at-- > 0;)
        m->closing_count[at] = best_spelling(m, at, length, &m->closing_token[at]);
    return m->closing_count[0];
}

/* What closing_tokens found, as a plan. */
static void keep_plan(const struct grammar_matcher *m, struct closing_plan *plan, uint32_t state)
{
    size_t length = min_size(m->states.states[state].cost, CLOSING_LIMIT);
    plan->count = plan->at = 0;
    for (size_t at = 0; at < length;) {
        int32_t token = m->closing_token[at];
        plan->tokens[plan->count++] = token;
        at += m->vocabulary->nodes[m->vocabulary->token_node[token]].depth;
    }
    plan->length = m->closing_count[0];
    plan->valid = true;
}

size_t matcher_closing_text(const struct grammar_matcher *matcher, char *out, size_t capacity)
{
    return matcher->ended ? 0 : closing_text(matcher, matcher->state, out, capacity);
}

size_t matcher_closing_tokens(struct grammar_matcher *matcher)
{
    uint32_t count = matcher->ended ? 0 : closing_tokens(matcher, matcher->state);
    return count == UINT32_MAX ? SIZE_MAX : count;
}

/* Whether the text can be closed with `tokens` tokens after `token`, which leads to `state`.  If
 * there is no room for a token per byte, the way is remembered. */
static bool closes_within(struct grammar_matcher *m, int32_t token, uint32_t state, size_t tokens)
{
    m->proposed_for = -1;
    if (tokens == SIZE_MAX) return true;
    if (m->all_bytes && m->states.states[state].cost <= tokens) return true;
    uint32_t needed = closing_tokens(m, state);
    if (needed == UINT32_MAX || needed > tokens) return false;
    keep_plan(m, &m->proposed, state);
    m->proposed_for = token;
    return true;
}

/* The first token of the way to the end; -1: the vocabulary has none. */
static int32_t next_of_plan(struct grammar_matcher *m, size_t remaining)
{
    m->proposed_for = -1;
    if (!m->plan.valid || m->plan.length > remaining || m->plan.at == m->plan.count) {
        if (closing_tokens(m, m->state) == UINT32_MAX) return -1;
        keep_plan(m, &m->plan, m->state);
    }
    if (m->plan.at < m->plan.count) return m->plan.tokens[m->plan.at];
    return m->vocabulary->end_count ? m->vocabulary->end_tokens[0] : -1;
}

/* -------------------------------------------------------------------- masks */

/* A grammar that can be read in very many ways would take seconds to follow through the whole
 * vocabulary; it gets the tokens that were found in time.  The next mask goes on from there. */
static void add_allowed(struct grammar_matcher *m)
{
    enum { MASK_WORK = 200000 }; /* a few ms; ordinary grammars need less than 10000 */
    m->states.work_left = MASK_WORK;
    bool done = masks_add_allowed(&m->masks, m->mask, m->state);
    for (bool more = true; !done && more && m->states.work_left > 0;) {
        uint32_t none = STATE_DEAD;
        more = make_room(m, &none);
        done = masks_add_allowed(&m->masks, m->mask, m->state);
    }
    m->states.work_left = WORK_UNLIMITED;
}

const uint64_t *matcher_mask(struct grammar_matcher *matcher)
{
    struct grammar_matcher *m = matcher;
    if (m->mask_valid) return m->mask;
    memset(m->mask, 0, m->vocabulary->mask_words * sizeof *m->mask);
    if (!m->ended) add_allowed(m);
    for (size_t i = 0; i < m->vocabulary->end_count; i++) {
        int32_t token = m->vocabulary->end_tokens[i];
        uint64_t bit = 1ull << (token % 64);
        if (!m->ended && matcher_is_complete(m))
            m->mask[token / 64] |= bit;
        else
            m->mask[token / 64] &= ~bit;
    }
    m->mask_valid = true;
    return m->mask;
}

int32_t matcher_pick(struct grammar_matcher *matcher, struct sampler *sampler, const float *logits,
                     size_t remaining)
{
    enum { TRIES = 8 };
    struct grammar_matcher *m = matcher;
    if (m->ended || remaining == 0) return -1;
    for (int i = 0; i < TRIES; i++) {
        int32_t token = sampler_pick_allowed(sampler, logits, matcher_mask(m));
        if (token < 0) break;
        if (is_end_token(m, token)) return token;
        uint32_t after = state_after(m, token);
        size_t left = remaining == SIZE_MAX ? SIZE_MAX : remaining - 1;
        if (after != STATE_DEAD && closes_within(m, token, after, left)) return token;
        m->mask[token / 64] &= ~(1ull << (token % 64));
    }
    m->mask_valid = false; /* tokens were taken out of it */
    return next_of_plan(m, remaining);
}
