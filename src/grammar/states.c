#include "grammar/states.h"

#include "base/status.h"

#include <stdlib.h>

/* Tables begin with 1/16 of these sizes, and grow by the factor 4. */
enum {
    STACKS_MAX = 1 << 16,
    STATES_MAX = 1 << 15,
    PLACES_MAX = 1 << 20,
    STEPS_MAX = 1 << 21, /* entries of all rows together */
    REDUCTION_FIRST = 4,
    REDUCTION_STEP = 2,
    VISIT_LIMIT = 1 << 13, /* nodes looked at for one state */
    VISIT_BUCKETS = 4 * VISIT_LIMIT,
};

/* A state while the tables are emptied. */
struct kept_state {
    uint32_t count, nearest;
    struct grammar_place places[PLACE_LIMIT];
};

/* Used within one call. */
struct state_scratch {
    struct grammar_place found[PLACE_LIMIT];
    uint32_t found_count;
    bool full;        /* no room for a stack */
    bool on_shortest; /* following `a` from the best start: it ends, and no bound cuts it off */
    struct grammar_place starts[PLACE_LIMIT];
    struct grammar_place pending[VISIT_LIMIT];   /* ways not yet followed */
    struct grammar_place visited[VISIT_BUCKETS]; /* valid where visit_stamp is `stamp` */
    uint32_t visit_stamp[VISIT_BUCKETS];
    uint32_t stamp, visit_count;
    struct kept_state kept[2];
};

/* ------------------------------------------------------------------- memory */

/* Cuts aligned pieces from one block; with block NULL it only counts. */
struct cutter {
    uint8_t *block;
    size_t used;
};

static void *cut(struct cutter *cutter, size_t count, size_t size)
{
    size_t at = cutter->used;
    cutter->used = align_up(at + count * size, CACHE_LINE);
    return cutter->block ? cutter->block + at : NULL;
}

static size_t stack_buckets(const struct grammar_states *s)
{
    return 2 * (size_t)s->stack_capacity;
}

static size_t state_buckets(const struct grammar_states *s)
{
    return 2 * ((size_t)STATES_MAX >> s->reduction);
}

static void cut_all(struct grammar_states *s, struct cutter *cutter)
{
    s->stacks = cut(cutter, s->stack_capacity, sizeof *s->stacks);
    s->states = cut(cutter, s->state_capacity, sizeof *s->states);
    s->places = cut(cutter, s->place_capacity, sizeof *s->places);
    s->steps = cut(cutter, (size_t)s->state_capacity * s->grammar->class_count, sizeof *s->steps);
    s->stack_index = cut(cutter, stack_buckets(s), sizeof *s->stack_index);
    s->state_index = cut(cutter, state_buckets(s), sizeof *s->state_index);
    s->renamed = cut(cutter, s->stack_capacity, sizeof *s->renamed);
    s->scratch = cut(cutter, 1, sizeof *s->scratch);
}

/* Tables of the sizes that `reduction` says, with empty indexes. */
static bool take_tables(struct grammar_states *s)
{
    uint32_t most = (uint32_t)min_size(STATES_MAX, STEPS_MAX / s->grammar->class_count);
    struct cutter cutter = { 0 };
    s->stack_capacity = STACKS_MAX >> s->reduction;
    s->state_capacity = most >> s->reduction;
    s->place_capacity = PLACES_MAX >> s->reduction;
    cut_all(s, &cutter);
    s->memory_bytes = cutter.used;
    s->memory = s->allocator->allocate(s->allocator->user, s->memory_bytes, CACHE_LINE);
    if (!s->memory) return false;
    cutter = (struct cutter){ .block = s->memory };
    cut_all(s, &cutter);
    memset(s->stack_index, 0, stack_buckets(s) * sizeof *s->stack_index);
    memset(s->state_index, 0, state_buckets(s) * sizeof *s->state_index);
    memset(s->scratch->visit_stamp, 0, sizeof s->scratch->visit_stamp);
    s->scratch->stamp = 0;
    return true;
}

static void forget_all(struct grammar_states *s)
{
    memset(s->stack_index, 0, stack_buckets(s) * sizeof *s->stack_index);
    memset(s->state_index, 0, state_buckets(s) * sizeof *s->state_index);
    s->stacks[STACK_EMPTY] = (struct grammar_stack){ 0 };
    s->states[STATE_DEAD] = (struct grammar_state){ .cost = GRAMMAR_COST_NEVER };
    for (uint32_t i = 0; i < s->grammar->class_count; i++) s->steps[i] = STATE_DEAD;
    s->stack_count = s->state_count = 1;
    s->place_count = 0;
}

mf_status states_init(struct grammar_states *s, const struct grammar *grammar,
                      const mf_allocator *allocator, mf_error *why)
{
    *s = (struct grammar_states){ .grammar = grammar,
                                  .allocator = allocator,
                                  .work_left = WORK_UNLIMITED,
                                  .reduction = REDUCTION_FIRST };
    if (!take_tables(s)) return fail_memory(why, s->memory_bytes);
    forget_all(s);
    return MF_OK;
}

void states_release(struct grammar_states *s)
{
    if (s->memory) s->allocator->release(s->allocator->user, s->memory, s->memory_bytes);
    s->memory = NULL;
}

/* ------------------------------------------------------------------- stacks */

static uint64_t mix(uint64_t hash, uint64_t value)
{
    hash = (hash ^ value) * 0x9e3779b97f4a7c15u;
    return hash ^ (hash >> 29);
}

static uint32_t add_costs(uint32_t a, uint32_t b)
{
    return a > UINT32_MAX - 1 - b ? UINT32_MAX - 1 : a + b;
}

uint32_t states_push(struct grammar_states *s, uint32_t node, uint32_t parent)
{
    size_t bucket = mix(mix(1, node), parent) % stack_buckets(s);
    for (; s->stack_index[bucket]; bucket = (bucket + 1) % stack_buckets(s)) {
        const struct grammar_stack *stack = &s->stacks[s->stack_index[bucket]];
        if (stack->node == node && stack->parent == parent) return s->stack_index[bucket];
    }
    if (s->stack_count == s->stack_capacity) return STATE_FULL;
    const struct grammar_stack *below = &s->stacks[parent];
    s->stacks[s->stack_count] = (struct grammar_stack){
        .node = node,
        .parent = parent,
        .cost = add_costs(s->grammar->nodes[node].cost, below->cost),
        .depth = below->depth + 1,
    };
    s->stack_index[bucket] = s->stack_count;
    return s->stack_count++;
}

static uint32_t place_cost(const struct grammar_states *s, struct grammar_place place)
{
    return add_costs(s->grammar->nodes[place.node].cost, s->stacks[place.stack].cost);
}

/* ------------------------------------------------------------------- states */

static int by_place(const void *a, const void *b)
{
    const struct grammar_place *x = a, *y = b;
    if (x->node != y->node) return x->node < y->node ? -1 : 1;
    return (x->stack > y->stack) - (x->stack < y->stack);
}

uint32_t states_find_nearest(const struct grammar_states *s, const struct grammar_place *places,
                             uint32_t count)
{
    uint32_t nearest = 0;
    for (uint32_t i = 1; i < count; i++)
        if (place_cost(s, places[i]) < place_cost(s, places[nearest])) nearest = i;
    return nearest;
}

static uint32_t state_new(struct grammar_states *s, const struct grammar_place *places,
                          uint32_t count, uint32_t nearest)
{
    if (s->state_count == s->state_capacity || s->place_capacity - s->place_count < count)
        return STATE_FULL;
    struct grammar_state state = {
        .first_place = s->place_count,
        .place_count = count,
        .nearest = nearest,
        .cost = place_cost(s, places[nearest]),
    };
    memcpy(s->places + s->place_count, places, count * sizeof *places);
    s->place_count += count;
    for (uint32_t i = 0; i < count; i++)
        if (s->grammar->nodes[places[i].node].kind == NODE_END) state.complete = true;
    uint32_t *row = s->steps + (size_t)s->state_count * s->grammar->class_count;
    for (uint32_t i = 0; i < s->grammar->class_count; i++) row[i] = STEP_UNKNOWN;
    s->states[s->state_count] = state;
    return s->state_count++;
}

static uint64_t hash_places(const struct grammar_place *places, uint32_t count, uint32_t nearest)
{
    uint64_t hash = mix(count, nearest);
    for (uint32_t i = 0; i < count; i++) hash = mix(mix(hash, places[i].node), places[i].stack);
    return hash;
}

uint32_t states_intern(struct grammar_states *s, const struct grammar_place *places, uint32_t count,
                       uint32_t nearest)
{
    if (count == 0) return STATE_DEAD;
    size_t bucket = hash_places(places, count, nearest) % state_buckets(s);
    for (; s->state_index[bucket]; bucket = (bucket + 1) % state_buckets(s)) {
        uint32_t found = s->state_index[bucket];
        if (s->states[found].place_count == count && s->states[found].nearest == nearest &&
            memcmp(state_places(s, found), places, count * sizeof *places) == 0)
            return found;
    }
    uint32_t made = state_new(s, places, count, nearest);
    if (made != STATE_FULL) s->state_index[bucket] = made;
    return made;
}

/* ------------------------------------------------- following what reads nothing */

static void begin_search(struct state_scratch *x)
{
    x->found_count = x->visit_count = 0;
    x->full = false;
    x->on_shortest = true;
    if (++x->stamp == 0) { /* every 4 billion searches */
        memset(x->visit_stamp, 0, sizeof x->visit_stamp);
        x->stamp = 1;
    }
}

/* True the first time a place is seen in this search, as long as there is room. */
static bool visit(struct state_scratch *x, struct grammar_place place)
{
    size_t bucket = mix(mix(2, place.node), place.stack) % VISIT_BUCKETS;
    for (; x->visit_stamp[bucket] == x->stamp; bucket = (bucket + 1) % VISIT_BUCKETS)
        if (x->visited[bucket].node == place.node && x->visited[bucket].stack == place.stack)
            return false;
    if (x->visit_count == VISIT_LIMIT) return false;
    x->visit_count++;
    x->visit_stamp[bucket] = x->stamp;
    x->visited[bucket] = place;
    return true;
}

/* One step along a way that reads nothing; false at its end: a place was found, or none. */
static bool follow(struct grammar_states *s, struct grammar_place *at, uint32_t *pending)
{
    struct state_scratch *x = s->scratch;
    const struct grammar_node *nodes = s->grammar->nodes, *n = &nodes[at->node];
    bool too_deep = s->stacks[at->stack].depth + n->height > GRAMMAR_DEPTH_LIMIT;
    if (n->cost == GRAMMAR_COST_NEVER || too_deep) return false;
    if (s->work_left == 0) x->full = true;
    if (x->full) return false;
    if (s->work_left != WORK_UNLIMITED) s->work_left--;
    if (!visit(x, *at) && !x->on_shortest) return false;
    switch (n->kind) {
    case NODE_SPLIT: /* `a` first: the shortest way is never the one that is dropped */
        if (*pending < VISIT_LIMIT)
            x->pending[(*pending)++] = (struct grammar_place){ n->b, at->stack };
        at->node = n->a;
        return true;
    case NODE_CALL:
        if (nodes[n->b].kind != NODE_END) {
            at->stack = states_push(s, n->b, at->stack);
            if (at->stack == STATE_FULL) x->full = true;
        }
        at->node = s->grammar->rule_starts[n->a];
        return !x->full;
    case NODE_END:
        if (at->stack != STACK_EMPTY) {
            *at = (struct grammar_place){ s->stacks[at->stack].node, s->stacks[at->stack].parent };
            return true;
        }
        break;
    default:
        break;
    }
    if (x->found_count < PLACE_LIMIT) x->found[x->found_count++] = *at;
    return false;
}

static void search_from(struct grammar_states *s, struct grammar_place start)
{
    struct state_scratch *x = s->scratch;
    uint32_t pending = 0;
    x->pending[pending++] = start;
    while (pending && !x->full) {
        struct grammar_place at = x->pending[--pending];
        while (follow(s, &at, &pending)) continue;
        x->on_shortest = false;
    }
}

/* Where `place` is in places[count], which are sorted and hold it. */
static uint32_t index_of(const struct grammar_place *places, uint32_t count,
                         struct grammar_place place)
{
    const struct grammar_place *found = bsearch(&place, places, count, sizeof place, by_place);
    return found ? (uint32_t)(found - places) : 0;
}

static uint32_t finish_search(struct grammar_states *s)
{
    struct state_scratch *x = s->scratch;
    if (x->full) return STATE_FULL;
    if (x->found_count == 0) return STATE_DEAD;
    struct grammar_place nearest = x->found[0]; /* the end of the shortest way of the best start */
    qsort(x->found, x->found_count, sizeof x->found[0], by_place);
    uint32_t at = index_of(x->found, x->found_count, nearest);
    return states_intern(s, x->found, x->found_count, at);
}

uint32_t states_start(struct grammar_states *s)
{
    begin_search(s->scratch);
    search_from(s, (struct grammar_place){ s->grammar->start, STACK_EMPTY });
    return finish_search(s);
}

uint32_t states_return(struct grammar_states *s, uint32_t stack)
{
    begin_search(s->scratch);
    search_from(s, (struct grammar_place){ s->stacks[stack].node, s->stacks[stack].parent });
    return finish_search(s);
}

static uint32_t find_step(struct grammar_states *s, uint32_t state, uint32_t class)
{
    struct state_scratch *x = s->scratch;
    const struct grammar_place *places = state_places(s, state);
    uint32_t count = 0, best = 0;
    bool on_way = false; /* the byte is one of the shortest way: its next place stays nearest */
    for (uint32_t i = 0; i < s->states[state].place_count; i++) {
        const struct grammar_node *n = &s->grammar->nodes[places[i].node];
        if (n->kind != NODE_BYTES || !grammar_set_has(s->grammar, n->a, class)) continue;
        x->starts[count] = (struct grammar_place){ n->b, places[i].stack };
        bool nearest = i == s->states[state].nearest;
        bool nearer = place_cost(s, x->starts[count]) < place_cost(s, x->starts[best]);
        if (nearest || (nearer && !on_way)) best = count;
        on_way = on_way || nearest;
        count++;
    }
    begin_search(x);
    if (count) search_from(s, x->starts[best]);
    for (uint32_t i = 0; i < count; i++) search_from(s, x->starts[i]);
    return finish_search(s);
}

uint32_t states_find_step(struct grammar_states *s, uint32_t state, uint32_t byte_class)
{
    uint32_t next = find_step(s, state, byte_class);
    if (next != STATE_FULL) s->steps[(size_t)state * s->grammar->class_count + byte_class] = next;
    return next;
}

/* ------------------------------------------------------------------ growing */

static void index_stacks(struct grammar_states *s)
{
    for (uint32_t i = 1; i < s->stack_count; i++) {
        const struct grammar_stack *stack = &s->stacks[i];
        size_t bucket = mix(mix(1, stack->node), stack->parent) % stack_buckets(s);
        while (s->stack_index[bucket]) bucket = (bucket + 1) % stack_buckets(s);
        s->stack_index[bucket] = i;
    }
}

static void index_states(struct grammar_states *s)
{
    for (uint32_t i = 1; i < s->state_count; i++) {
        const struct grammar_state *state = &s->states[i];
        uint64_t hash = hash_places(state_places(s, i), state->place_count, state->nearest);
        size_t bucket = hash % state_buckets(s);
        while (s->state_index[bucket]) bucket = (bucket + 1) % state_buckets(s);
        s->state_index[bucket] = i;
    }
}

bool states_grow(struct grammar_states *s)
{
    struct grammar_states old = *s;
    if (s->reduction == 0) return false;
    s->reduction -= REDUCTION_STEP;
    if (!take_tables(s)) {
        *s = old;
        return false;
    }
    size_t steps = (size_t)s->state_count * s->grammar->class_count;
    memcpy(s->stacks, old.stacks, s->stack_count * sizeof *s->stacks);
    memcpy(s->states, old.states, s->state_count * sizeof *s->states);
    memcpy(s->places, old.places, s->place_count * sizeof *s->places);
    memcpy(s->steps, old.steps, steps * sizeof *s->steps);
    index_stacks(s);
    index_states(s);
    states_release(&old);
    return true;
}

/* --------------------------------------------------------------- compaction */

static void mark_stacks(uint32_t *renamed, const struct kept_state *kept)
{
    for (uint32_t i = 0; i < kept->count; i++) renamed[kept->places[i].stack] = 1;
}

/* renamed[stack] = its new number, for the marked stacks and those below them. */
static void keep_stacks(struct grammar_states *s, uint32_t old_count)
{
    uint32_t *renamed = s->renamed, kept = 1;
    for (uint32_t i = old_count; i-- > 1;)
        if (renamed[i]) renamed[s->stacks[i].parent] = 1;
    /* Parents come first, so every one is renamed when it is asked for; and a stack moves only
     * down, so that nothing is overwritten before it is read. */
    renamed[STACK_EMPTY] = STACK_EMPTY;
    for (uint32_t i = 1; i < old_count; i++) {
        if (!renamed[i]) continue;
        struct grammar_stack stack = s->stacks[i];
        stack.parent = renamed[stack.parent];
        s->stacks[kept] = stack;
        renamed[i] = kept++;
    }
    s->stack_count = kept;
    index_stacks(s);
}

static void take_out(struct kept_state *kept, const struct grammar_states *s, uint32_t state)
{
    kept->count = s->states[state].place_count;
    kept->nearest = s->states[state].nearest;
    memcpy(kept->places, state_places(s, state), kept->count * sizeof kept->places[0]);
}

static uint32_t put_back(struct grammar_states *s, struct kept_state *kept)
{
    const uint32_t *renamed = s->renamed; /* it keeps their order */
    for (uint32_t i = 0; i < kept->count; i++)
        kept->places[i].stack = renamed[kept->places[i].stack];
    return states_intern(s, kept->places, kept->count, kept->nearest);
}

void states_compact(struct grammar_states *s, uint32_t *a, uint32_t *b)
{
    struct kept_state *kept = s->scratch->kept;
    uint32_t stack_count = s->stack_count, *renamed = s->renamed;
    take_out(&kept[0], s, *a);
    take_out(&kept[1], s, *b);
    memset(renamed, 0, stack_count * sizeof *renamed);
    mark_stacks(renamed, &kept[0]);
    mark_stacks(renamed, &kept[1]);
    forget_all(s);
    keep_stacks(s, stack_count);
    *a = put_back(s, &kept[0]);
    *b = put_back(s, &kept[1]);
}
