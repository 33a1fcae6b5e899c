/* Costs are found as Knuth generalised Dijkstra: nodes become final in ascending cost, a
 * SPLIT with the first of its ways, a CALL when the rule and what follows are both final.
 * Because a node is final only after what it goes on to, following `a` always ends. */
#include "grammar/analysis.h"

#include "base/status.h"

struct heap_entry {
    uint32_t cost, node;
};

struct analysis {
    struct grammar *grammar;
    const struct grammar_origin *origin;
    /* The nodes that wait for node n: waiting[waiting_first[n] .. waiting_first[n + 1]). */
    uint32_t *waiting_first, *waiting;
    struct heap_entry *heap; /* [heap_count] */
    size_t heap_count;
    bool *final;
};

/* --------------------------------------------------------------- dependents */

/* Calls visit(a, dependency, node) for every node that `node` goes on to. */
static void each_dependency(struct analysis *a, uint32_t node,
                            void (*visit)(struct analysis *, uint32_t dependency, uint32_t node))
{
    const struct grammar_node *n = &a->grammar->nodes[node];
    if (n->kind == NODE_END) return;
    visit(a, n->b, node);
    if (n->kind == NODE_SPLIT) visit(a, n->a, node);
    if (n->kind == NODE_CALL) visit(a, a->grammar->rule_starts[n->a], node);
}

static void count_waiting(struct analysis *a, uint32_t dependency, uint32_t node)
{
    (void)node;
    a->waiting_first[dependency + 1]++;
}

/* waiting_first[d] is the next free place here, so that it ends where d + 1 begins. */
static void note_waiting(struct analysis *a, uint32_t dependency, uint32_t node)
{
    a->waiting[a->waiting_first[dependency]++] = node;
}

static mf_status find_dependents(struct analysis *a, struct arena *scratch, mf_error *why)
{
    uint32_t count = a->grammar->node_count;
    a->waiting_first = ARENA_NEW(scratch, uint32_t, count + 2);
    if (!a->waiting_first) return fail_memory(why, count * sizeof(uint32_t));
    for (uint32_t node = 0; node < count; node++) each_dependency(a, node, count_waiting);
    for (uint32_t i = 0; i <= count; i++) a->waiting_first[i + 1] += a->waiting_first[i];
    uint32_t total = a->waiting_first[count];
    a->waiting = ARENA_NEW(scratch, uint32_t, total);
    a->heap = ARENA_NEW(scratch, struct heap_entry, (size_t)total + count + 1);
    a->final = ARENA_NEW(scratch, bool, count);
    if (!a->waiting || !a->heap || !a->final) return fail_memory(why, total * 12);
    for (uint32_t node = 0; node < count; node++) each_dependency(a, node, note_waiting);
    /* note_waiting moved every start to its end: move them back by one. */
    memmove(a->waiting_first + 1, a->waiting_first, count * sizeof(uint32_t));
    a->waiting_first[0] = 0;
    return MF_OK;
}

/* -------------------------------------------------------------------- heap */

static void heap_push(struct analysis *a, struct heap_entry entry)
{
    size_t at = a->heap_count++;
    while (at > 0 && a->heap[(at - 1) / 2].cost > entry.cost) {
        a->heap[at] = a->heap[(at - 1) / 2];
        at = (at - 1) / 2;
    }
    a->heap[at] = entry;
}

static struct heap_entry heap_pop(struct analysis *a)
{
    struct heap_entry top = a->heap[0], last = a->heap[--a->heap_count];
    size_t at = 0;
    for (;;) {
        size_t child = 2 * at + 1;
        if (child >= a->heap_count) break;
        if (child + 1 < a->heap_count && a->heap[child + 1].cost < a->heap[child].cost) child++;
        if (a->heap[child].cost >= last.cost) break;
        a->heap[at] = a->heap[child];
        at = child;
    }
    a->heap[at] = last;
    return top;
}

/* ------------------------------------------------------------------- costs */

static uint16_t cap_height(uint32_t height)
{
    return height < UINT16_MAX ? (uint16_t)height : UINT16_MAX;
}

/* The cost of a node all of whose needs are final; false when they are not. */
static bool cost_of(const struct analysis *a, uint32_t node, uint64_t *cost)
{
    const struct grammar *g = a->grammar;
    const struct grammar_node *n = &g->nodes[node];
    switch (n->kind) {
    case NODE_BYTES:
        *cost = 1 + (uint64_t)g->nodes[n->b].cost;
        return a->final[n->b];
    case NODE_CALL: {
        uint32_t start = g->rule_starts[n->a];
        *cost = (uint64_t)g->nodes[start].cost + g->nodes[n->b].cost;
        return a->final[start] && a->final[n->b];
    }
    case NODE_SPLIT: {
        uint32_t x = a->final[n->a] ? g->nodes[n->a].cost : GRAMMAR_COST_NEVER;
        uint32_t y = a->final[n->b] ? g->nodes[n->b].cost : GRAMMAR_COST_NEVER;
        *cost = x < y ? x : y;
        return a->final[n->a] || a->final[n->b];
    }
    default:
        *cost = 0;
        return true;
    }
}

/* A call that is the last thing in its rule remembers no return: it costs no depth. */
static void finish_node(struct analysis *a, uint32_t node)
{
    struct grammar *g = a->grammar;
    struct grammar_node *n = &g->nodes[node];
    if (n->kind == NODE_BYTES) n->height = g->nodes[n->b].height;
    if (n->kind == NODE_CALL) {
        bool last = g->nodes[n->b].kind == NODE_END;
        uint16_t inside = g->nodes[g->rule_starts[n->a]].height;
        uint16_t after = g->nodes[n->b].height;
        inside = cap_height((uint32_t)inside + !last);
        n->height = inside > after ? inside : after;
    }
    if (n->kind == NODE_SPLIT) {
        bool turn =
            !a->final[n->a] || (a->final[n->b] && g->nodes[n->b].cost < g->nodes[n->a].cost);
        if (turn) {
            uint32_t other = n->a;
            n->a = n->b;
            n->b = other;
        }
        n->height = g->nodes[n->a].height;
    }
    a->final[node] = true; /* last: a SPLIT that goes on to itself must not choose that way */
}

static void find_costs(struct analysis *a)
{
    struct grammar *g = a->grammar;
    for (uint32_t node = 0; node < g->node_count; node++)
        if (g->nodes[node].kind == NODE_END) heap_push(a, (struct heap_entry){ 0, node });
    while (a->heap_count) {
        struct heap_entry entry = heap_pop(a);
        if (a->final[entry.node]) continue;
        g->nodes[entry.node].cost = entry.cost;
        finish_node(a, entry.node);
        uint32_t end = a->waiting_first[entry.node + 1];
        for (uint32_t i = a->waiting_first[entry.node]; i < end; i++) {
            uint64_t cost;
            uint32_t node = a->waiting[i];
            if (a->final[node] || !cost_of(a, node, &cost)) continue;
            if (cost >= GRAMMAR_COST_NEVER) continue; /* 4 GB of text: as good as never */
            heap_push(a, (struct heap_entry){ (uint32_t)cost, node });
        }
    }
}

/* ---------------------------------------------------------- left recursion */

struct left_search {
    struct analysis *analysis;
    uint32_t *stamp;    /* [node_count]: the rule + 1 that last looked at the node */
    uint32_t *pending;  /* nodes still to look at; [node_count] */
    uint32_t *called;   /* [node_count]: rules that the current rule may begin with */
    uint8_t *colour;    /* [rule_count]: 0 new, 1 on the path, 2 done */
    uint32_t *path;     /* [rule_count] */
    uint32_t *next_at;  /* [rule_count]: where in called_list a rule on the path is */
    uint32_t *list_end; /* [rule_count] */
};

/* The rules that `rule` may begin with, appended at called[from..]; the new end. */
static uint32_t list_first_calls(struct left_search *s, uint32_t rule, uint32_t from)
{
    const struct grammar *g = s->analysis->grammar;
    uint32_t pending = 0, end = from;
    s->pending[pending++] = g->rule_starts[rule];
    s->stamp[g->rule_starts[rule]] = rule + 1;
    while (pending) {
        const struct grammar_node *n = &g->nodes[s->pending[--pending]];
        uint32_t follow[2];
        size_t follow_count = 0;
        if (n->kind == NODE_SPLIT) {
            follow[follow_count++] = n->a;
            follow[follow_count++] = n->b;
        }
        if (n->kind == NODE_CALL) {
            s->called[end++] = n->a;
            bool may_be_empty = g->nodes[g->rule_starts[n->a]].cost == 0;
            if (may_be_empty) follow[follow_count++] = n->b;
        }
        for (size_t i = 0; i < follow_count; i++) {
            if (s->stamp[follow[i]] == rule + 1) continue;
            s->stamp[follow[i]] = rule + 1;
            s->pending[pending++] = follow[i];
        }
    }
    return end;
}

static const char *rule_name(const struct analysis *a, uint32_t rule)
{
    const char *name = a->origin->rules[a->origin->emitted[rule]].name;
    return name ? name : "(a part of a rule)";
}

/* Depth first over "may begin with", without recursion: rules come by the ten thousand. */
static mf_status search_from(struct left_search *s, uint32_t first, mf_error *why)
{
    uint32_t depth = 0, list_end = 0;
    s->path[depth++] = first;
    s->colour[first] = 1;
    s->next_at[first] = 0;
    s->list_end[first] = list_end = list_first_calls(s, first, 0);
    while (depth) {
        uint32_t rule = s->path[depth - 1];
        if (s->next_at[rule] == s->list_end[rule]) {
            s->colour[rule] = 2;
            depth--;
            list_end = depth ? s->list_end[s->path[depth - 1]] : 0;
            continue;
        }
        uint32_t callee = s->called[s->next_at[rule]++];
        if (s->colour[callee] == 1)
            return fail(why, MF_ERR_GRAMMAR, "grammar: rule %s begins with itself",
                        rule_name(s->analysis, callee));
        if (s->colour[callee] == 2) continue;
        s->colour[callee] = 1;
        s->path[depth++] = callee;
        s->next_at[callee] = list_end;
        s->list_end[callee] = list_end = list_first_calls(s, callee, list_end);
    }
    return MF_OK;
}

static mf_status refuse_left_recursion(struct analysis *a, struct arena *scratch, mf_error *why)
{
    uint32_t nodes = a->grammar->node_count, rules = a->grammar->rule_count;
    struct left_search s = {
        .analysis = a,
        .stamp = ARENA_NEW(scratch, uint32_t, nodes),
        .pending = ARENA_NEW(scratch, uint32_t, nodes),
        .called = ARENA_NEW(scratch, uint32_t, nodes),
        .colour = ARENA_NEW(scratch, uint8_t, rules),
        .path = ARENA_NEW(scratch, uint32_t, rules),
        .next_at = ARENA_NEW(scratch, uint32_t, rules),
        .list_end = ARENA_NEW(scratch, uint32_t, rules),
    };
    if (!s.stamp || !s.pending || !s.called || !s.colour || !s.path || !s.next_at || !s.list_end)
        return fail_memory(why, nodes * 12 + rules * 13);
    mf_status status = MF_OK;
    for (uint32_t rule = 0; rule < rules && status == MF_OK; rule++)
        if (s.colour[rule] == 0) status = search_from(&s, rule, why);
    return status;
}

/* ------------------------------------------------------------------- loops */

/* Marks the nodes of rules that reach themselves (or a rule that does): takes away, one after
 * the other, the rules that call only what was taken away before. */
static mf_status mark_recursion(struct analysis *a, struct arena *scratch, mf_error *why)
{
    struct grammar *g = a->grammar;
    uint32_t rules = g->rule_count;
    uint32_t *first_caller = ARENA_NEW(scratch, uint32_t, rules + 2);
    uint32_t *callers = ARENA_NEW(scratch, uint32_t, g->node_count);
    uint32_t *calls = ARENA_NEW(scratch, uint32_t, rules);
    uint32_t *ready = ARENA_NEW(scratch, uint32_t, rules);
    if (!first_caller || !callers || !calls || !ready)
        return fail_memory(why, g->node_count * sizeof(uint32_t));
    const uint32_t *first_node = a->origin->first_node;
    for (uint32_t rule = 0; rule < rules; rule++)
        for (uint32_t n = first_node[rule]; n < first_node[rule + 1]; n++)
            if (g->nodes[n].kind == NODE_CALL) {
                calls[rule]++;
                first_caller[g->nodes[n].a + 2]++;
            }
    for (uint32_t i = 2; i <= rules + 1; i++) first_caller[i] += first_caller[i - 1];
    for (uint32_t rule = 0; rule < rules; rule++)
        for (uint32_t n = first_node[rule]; n < first_node[rule + 1]; n++)
            if (g->nodes[n].kind == NODE_CALL) callers[first_caller[g->nodes[n].a + 1]++] = rule;

    uint32_t ready_count = 0;
    for (uint32_t rule = 0; rule < rules; rule++)
        if (calls[rule] == 0) ready[ready_count++] = rule;
    for (uint32_t i = 0; i < ready_count; i++)
        for (uint32_t c = first_caller[ready[i]]; c < first_caller[ready[i] + 1]; c++)
            if (--calls[callers[c]] == 0) ready[ready_count++] = callers[c];
    for (uint32_t rule = 0; rule < rules; rule++)
        for (uint32_t n = first_node[rule]; calls[rule] && n < first_node[rule + 1]; n++)
            g->nodes[n].in_loop = true;
    return MF_OK;
}

mf_status grammar_analyse(struct grammar *grammar, struct arena *scratch,
                          const struct grammar_origin *origin, mf_error *why)
{
    struct analysis a = { .grammar = grammar, .origin = origin };
    mf_status status = find_dependents(&a, scratch, why);
    if (status != MF_OK) return status;
    find_costs(&a);
    status = refuse_left_recursion(&a, scratch, why);
    if (status != MF_OK) return status;
    const struct grammar_node *start = &grammar->nodes[grammar->start];
    if (start->cost == GRAMMAR_COST_NEVER)
        return fail(why, MF_ERR_GRAMMAR, "grammar: no text that begins with rule %s ever ends",
                    rule_name(&a, 0));
    if (start->height > GRAMMAR_DEPTH_LIMIT / 2)
        return fail(why, MF_ERR_GRAMMAR,
                    "grammar: the shortest text calls rules %u deep, at most %d", start->height,
                    GRAMMAR_DEPTH_LIMIT / 2);
    return mark_recursion(&a, scratch, why);
}
