/* Which tokens fit, without trying a quarter of a million of them each time.
 *
 * Inside a JSON string nearly every token is allowed, whatever lies around the string: the
 * surroundings matter only to tokens in which the string ends.  So a state is cut into the
 * upper part of its stacks, up to the first rule that repeats something (a string, a number,
 * a list), and the stack below:
 *
 *     places   string loop | return to pair | return to object …
 *              ─────────────   ────────────────────────────────
 *                 piece                    below
 *
 * A piece is a state of its own whose stacks end at the cut.  Walking the vocabulary tree
 * with it gives, once and for all, the tokens that stay inside (or end with it exactly) and
 * the exits: the nodes of the tree at which the piece is complete.  From an exit on, only
 * the part of the tree below that node is walked, with the state that the stack below gives.
 *
 * Where a piece can end anywhere (free text), exits are too many to be worth it; then the
 * cut moves down to the next rule that repeats, and at last to the end of the stack, where
 * there is nothing to exit to.
 *
 * A counted repetition would be another piece for every number that is left.  So the copies that
 * are followed by at least as many others as a token has bytes are taken for one. */
#include "grammar/mask.h"

#include "base/status.h"
#include "sampling/sampler.h"

#include <stdlib.h>

/* Tables begin with 1/16 of their sizes, and grow by the factor 4. */
enum {
    ENTRIES_MAX = 1 << 14,
    REDUCTION_FIRST = 4,
    REDUCTION_STEP = 2,
    EXIT_LIMIT = 1 << 16,
    CUT_FRAMES = 32, /* a piece has at most this many returns */
};

#define TOKENS_BITMAP UINT32_MAX

/* A place, cut: `below` is the stack under the piece. */
struct cut_place {
    uint32_t below;
    struct grammar_place place;
};

struct mask_scratch {
    uint32_t path[GRAMMAR_TOKEN_BYTES_LIMIT + 1];
    uint32_t exits[EXIT_LIMIT];
    struct cut_place cut[PLACE_LIMIT];
    struct grammar_place piece[PLACE_LIMIT];
    size_t words;
    uint64_t bitmap[]; /* [words] */
};

/* ------------------------------------------------------------------- memory */

static size_t scratch_bytes(size_t words)
{
    return sizeof(struct mask_scratch) + words * sizeof(uint64_t);
}

static size_t alike_bytes(const struct grammar *grammar)
{
    return grammar->node_count * sizeof(uint32_t);
}

static size_t entry_capacity(const struct grammar_masks *masks)
{
    return ENTRIES_MAX >> masks->reduction;
}

/* At most room for 256 bitmaps, or 8 MB where the vocabulary is small. */
static size_t pool_capacity(const struct grammar_masks *masks)
{
    size_t words = masks->vocabulary->mask_words;
    return max_size(256 * words * 2, 2 << 20) >> masks->reduction;
}

static size_t entry_bytes(const struct grammar_masks *masks)
{
    return entry_capacity(masks) * sizeof *masks->entries;
}

static size_t pool_bytes(const struct grammar_masks *masks)
{
    return pool_capacity(masks) * sizeof *masks->pool;
}

static bool take_tables(struct grammar_masks *masks)
{
    const mf_allocator *allocator = masks->allocator;
    masks->entries = allocator->allocate(allocator->user, entry_bytes(masks), CACHE_LINE);
    masks->pool = allocator->allocate(allocator->user, pool_bytes(masks), CACHE_LINE);
    return masks->entries && masks->pool;
}

static void release_tables(struct grammar_masks *masks)
{
    const mf_allocator *allocator = masks->allocator;
    if (masks->entries) allocator->release(allocator->user, masks->entries, entry_bytes(masks));
    if (masks->pool) allocator->release(allocator->user, masks->pool, pool_bytes(masks));
}

/* Every node stands for itself, but in a long repetition one copy does for all before it. */
static void find_alike(uint32_t *alike, const struct grammar *grammar, uint32_t longest)
{
    for (uint32_t i = 0; i < grammar->node_count; i++) alike[i] = i;
    for (uint32_t i = 0; i < grammar->copies_count; i++) {
        const struct grammar_copies *copies = &grammar->copies[i];
        uint64_t kept = (uint64_t)max_size(longest, 2) * copies->stride;
        uint64_t total = (uint64_t)copies->count * copies->stride;
        uint32_t *nodes = alike + copies->first;
        for (uint64_t at = kept + copies->stride; at < total; at++)
            nodes[at] = nodes[kept + at % copies->stride];
    }
}

mf_status masks_init(struct grammar_masks *masks, struct grammar_states *states,
                     const struct grammar_vocabulary *vocabulary, const mf_allocator *allocator,
                     mf_error *why)
{
    size_t words = vocabulary->mask_words;
    *masks = (struct grammar_masks){ .vocabulary = vocabulary,
                                     .states = states,
                                     .allocator = allocator,
                                     .reduction = REDUCTION_FIRST };
    void *user = allocator->user;
    bool complete = take_tables(masks);
    masks->scratch = allocator->allocate(user, scratch_bytes(words), CACHE_LINE);
    masks->alike = allocator->allocate(user, alike_bytes(states->grammar), CACHE_LINE);
    if (!complete || !masks->scratch || !masks->alike) {
        size_t bytes = pool_bytes(masks);
        masks_release(masks);
        return fail_memory(why, bytes);
    }
    find_alike(masks->alike, states->grammar, vocabulary->longest);
    masks->scratch->words = words;
    masks_forget(masks);
    return MF_OK;
}

void masks_release(struct grammar_masks *masks)
{
    const mf_allocator *allocator = masks->allocator;
    if (!allocator) return;
    size_t words = masks->vocabulary->mask_words;
    void *user = allocator->user;
    release_tables(masks);
    if (masks->scratch) allocator->release(user, masks->scratch, scratch_bytes(words));
    if (masks->alike) allocator->release(user, masks->alike, alike_bytes(masks->states->grammar));
    *masks = (struct grammar_masks){ 0 };
}

bool masks_grow(struct grammar_masks *masks)
{
    struct grammar_masks old = *masks;
    if (masks->reduction == 0) return false;
    masks->reduction -= REDUCTION_STEP;
    if (!take_tables(masks)) {
        release_tables(masks);
        *masks = old;
        return false;
    }
    memcpy(masks->entries, old.entries, masks->entry_count * sizeof *masks->entries);
    memcpy(masks->pool, old.pool, masks->pool_used * sizeof *masks->pool);
    release_tables(&old);
    return true;
}

void masks_forget(struct grammar_masks *masks)
{
    masks->entry_count = 1;
    masks->pool_used = 0;
}

/* -------------------------------------------------------------------- walks */

static void mask_set(uint64_t *mask, uint32_t token)
{
    mask[token / 64] |= 1ull << (token % 64);
}

/* Notes in mask what `state` allows below node `from` of the tree.  With exits, those nodes
 * with something below them at which the state is complete; their number grows past EXIT_LIMIT
 * when there are more.  False when the table of states is full. */
static bool walk(struct grammar_masks *masks, uint64_t *mask, uint32_t from, uint32_t state,
                 uint32_t *exit_count)
{
    const struct grammar_vocabulary *v = masks->vocabulary;
    const struct vocabulary_node *nodes = v->nodes;
    struct grammar_states *states = masks->states;
    uint32_t *path = masks->scratch->path;
    uint32_t end = nodes[from].skip, base = nodes[from].depth;
    path[0] = state;
    for (uint32_t at = from + 1; at < end;) {
        uint32_t depth = nodes[at].depth - base;
        uint32_t next = states_step(states, path[depth - 1], nodes[at].byte);
        if (next == STATE_DEAD) {
            at = nodes[at].skip;
            continue;
        }
        if (next == STATE_FULL) return false;
        path[depth] = next;
        for (uint32_t i = nodes[at].first_token; i < nodes[at + 1].first_token; i++)
            mask_set(mask, v->sorted[i]);
        if (exit_count && states->states[next].complete && nodes[at].skip > at + 1) {
            if (*exit_count < EXIT_LIMIT) masks->scratch->exits[*exit_count] = at;
            (*exit_count)++;
        }
        at++;
    }
    return true;
}

/* ------------------------------------------------------------------- pieces */

static uint32_t count_bits(const uint64_t *mask, size_t words)
{
    uint32_t count = 0;
    for (size_t i = 0; i < words; i++) count += (uint32_t)__builtin_popcountll(mask[i]);
    return count;
}

static void list_bits(uint32_t *out, const uint64_t *mask, size_t words)
{
    for (size_t i = 0; i < words; i++)
        for (uint64_t bits = mask[i]; bits; bits &= bits - 1)
            *out++ = (uint32_t)(i * 64 + (size_t)__builtin_ctzll(bits));
}

/* Puts the bitmap and exits of the scratch into the pool; 0 when there is no room. */
static uint32_t entry_store(struct grammar_masks *masks, uint32_t exit_count)
{
    struct mask_scratch *x = masks->scratch;
    struct mask_entry entry = { .too_many_exits = exit_count > EXIT_LIMIT };
    uint32_t count = count_bits(x->bitmap, x->words);
    bool as_list = count <= x->words / 2;
    size_t room = as_list ? count : 2 * x->words;
    if (entry.too_many_exits) exit_count = 0;
    if (masks->entry_count == entry_capacity(masks)) return 0;
    if (masks->pool_used + room + exit_count > pool_capacity(masks)) return 0;

    entry.tokens = masks->pool_used;
    entry.token_count = as_list ? count : TOKENS_BITMAP;
    if (as_list)
        list_bits(masks->pool + entry.tokens, x->bitmap, x->words);
    else
        memcpy(masks->pool + entry.tokens, x->bitmap, x->words * sizeof x->bitmap[0]);
    entry.exits = entry.tokens + (uint32_t)room;
    entry.exit_count = exit_count;
    memcpy(masks->pool + entry.exits, x->exits, exit_count * sizeof x->exits[0]);
    masks->pool_used = entry.exits + exit_count;
    masks->entries[masks->entry_count] = entry;
    return masks->entry_count++;
}

/* The remembered walk of a piece; NULL when a table is full. */
static const struct mask_entry *entry_of(struct grammar_masks *masks, uint32_t piece)
{
    struct grammar_state *state = &masks->states->states[piece];
    if (state->mask) return &masks->entries[state->mask];
    struct mask_scratch *x = masks->scratch;
    uint32_t exit_count = 0;
    memset(x->bitmap, 0, x->words * sizeof x->bitmap[0]);
    if (!walk(masks, x->bitmap, 0, piece, &exit_count)) return NULL;
    state->mask = entry_store(masks, exit_count);
    return state->mask ? &masks->entries[state->mask] : NULL;
}

static void add_entry(const struct grammar_masks *masks, uint64_t *mask,
                      const struct mask_entry *entry)
{
    const uint32_t *tokens = masks->pool + entry->tokens;
    if (entry->token_count != TOKENS_BITMAP) {
        for (uint32_t i = 0; i < entry->token_count; i++) mask_set(mask, tokens[i]);
        return;
    }
    for (size_t i = 0; i < masks->scratch->words; i++) {
        uint64_t bits; /* the pool is aligned to 4 bytes here, not to 8 */
        memcpy(&bits, tokens + 2 * i, sizeof bits);
        mask[i] |= bits;
    }
}

/* ------------------------------------------------------------------ cutting */

/* Cuts a place after its `loops`-th rule that repeats something; false when a table is full. */
static bool cut_at(struct grammar_masks *masks, struct cut_place *out, struct grammar_place place,
                   unsigned loops)
{
    struct grammar_states *states = masks->states;
    const struct grammar_node *nodes = states->grammar->nodes;
    uint32_t frames[CUT_FRAMES], below = place.stack;
    size_t count = 0;
    place.node = masks->alike[place.node];
    bool in_loop = nodes[place.node].in_loop;
    /* A piece does not know how deep it lies: near the limit stacks are left whole. */
    bool whole = states->stacks[below].depth > GRAMMAR_DEPTH_LIMIT / 2;
    while (below != STACK_EMPTY && (!in_loop || --loops > 0)) {
        if (whole || count == CUT_FRAMES) {
            *out = (struct cut_place){ STACK_EMPTY, place };
            return true;
        }
        frames[count++] = masks->alike[states->stacks[below].node];
        in_loop = nodes[states->stacks[below].node].in_loop;
        below = states->stacks[below].parent;
    }
    uint32_t stack = STACK_EMPTY;
    while (count > 0 && stack != STATE_FULL) stack = states_push(states, frames[--count], stack);
    *out = (struct cut_place){ below, { place.node, stack } };
    return stack != STATE_FULL;
}

static int by_below(const void *a, const void *b)
{
    const struct cut_place *x = a, *y = b;
    if (x->below != y->below) return x->below < y->below ? -1 : 1;
    if (x->place.node != y->place.node) return x->place.node < y->place.node ? -1 : 1;
    return (x->place.stack > y->place.stack) - (x->place.stack < y->place.stack);
}

/* The stack with nodes that stand for its own; STATE_FULL when there is no room. */
static uint32_t alike_stack(struct grammar_masks *masks, uint32_t stack)
{
    struct grammar_states *states = masks->states;
    uint32_t frames[GRAMMAR_DEPTH_LIMIT + 1], at = stack;
    size_t count = 0;
    bool other = false;
    for (; at != STACK_EMPTY && count < COUNT_OF(frames); at = states->stacks[at].parent) {
        uint32_t node = states->stacks[at].node;
        frames[count++] = masks->alike[node];
        other = other || masks->alike[node] != node;
    }
    if (!other || at != STACK_EMPTY) return stack;
    while (count > 0 && at != STATE_FULL) at = states_push(states, frames[--count], at);
    return at;
}

/* A piece and what follows it.  *redo when the piece has too many exits. */
static bool add_piece(struct grammar_masks *masks, uint64_t *mask, uint32_t piece, uint32_t below,
                      bool *redo)
{
    const struct mask_entry *entry = entry_of(masks, piece);
    if (!entry) return false;
    *redo = entry->too_many_exits && below != STACK_EMPTY;
    if (*redo) return true;
    add_entry(masks, mask, entry);
    if (below == STACK_EMPTY) return true; /* the end of the text: nothing to go on to */
    below = alike_stack(masks, below);
    uint32_t after = below == STATE_FULL ? STATE_FULL : states_return(masks->states, below);
    if (after == STATE_FULL) return false;
    for (uint32_t i = 0; i < entry->exit_count; i++)
        if (!walk(masks, mask, masks->pool[entry->exits + i], after, NULL)) return false;
    return true;
}

/* The places of one `below`, as a piece. */
static uint32_t piece_of(struct grammar_masks *masks, const struct cut_place *cut, size_t count)
{
    struct grammar_place *piece = masks->scratch->piece;
    uint32_t kept = 0;
    for (size_t i = 0; i < count; i++) { /* different stacks may be equal once they are cut */
        bool repeated = kept > 0 && piece[kept - 1].node == cut[i].place.node &&
                        piece[kept - 1].stack == cut[i].place.stack;
        if (!repeated) piece[kept++] = cut[i].place;
    }
    uint32_t nearest = states_find_nearest(masks->states, piece, kept);
    return states_intern(masks->states, piece, kept, nearest);
}

/* One attempt with cuts after `loops` rules; *redo when larger pieces are needed. */
static bool add_pieces(struct grammar_masks *masks, uint64_t *mask, uint32_t state, unsigned loops,
                       bool *redo)
{
    struct grammar_states *states = masks->states;
    struct cut_place *cut = masks->scratch->cut;
    size_t count = 0;
    for (uint32_t i = 0; i < states->states[state].place_count; i++) {
        struct grammar_place place = state_places(states, state)[i];
        if (states->grammar->nodes[place.node].kind == NODE_END) continue;
        if (!cut_at(masks, &cut[count++], place, loops)) return false;
    }
    qsort(cut, count, sizeof *cut, by_below);
    *redo = false;
    for (size_t first = 0, end; first < count && !*redo; first = end) {
        end = first + 1;
        while (end < count && cut[end].below == cut[first].below) end++;
        uint32_t piece = piece_of(masks, cut + first, end - first);
        if (piece == STATE_FULL) return false;
        if (!add_piece(masks, mask, piece, cut[first].below, redo)) return false;
    }
    return true;
}

bool masks_add_allowed(struct grammar_masks *masks, uint64_t *mask, uint32_t state)
{
    enum { WHOLE_STACK = 1 << 30 };
    static const unsigned tries[] = { 1, 2, 3, WHOLE_STACK };
    bool redo = true;
    for (size_t i = 0; i < COUNT_OF(tries) && redo; i++)
        if (!add_pieces(masks, mask, state, tries[i], &redo)) return false;
    return true;
}
