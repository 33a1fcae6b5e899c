/* Expressions to nodes.
 *
 * An expression is emitted *before* what follows it is known to the reader, but after it
 * is known to the compiler: emit(expression, next) returns the node that reads the
 * expression and goes on at `next`.  Sequences are therefore emitted from their end. */
#include "grammar/analysis.h"

#include "base/array.h"
#include "base/status.h"

#include <stdlib.h>

enum {
    SET_LIMIT = 8192,
    INLINE_NODES = 40, /* rules up to this size are copied into their callers */
    INLINE_DEPTH = 8,  /* and only so deep */
    SUFFIX_CACHE = 64,
    COPIES_LIMIT = 4096, /* repetitions remembered, … */
    COPIES_LEAST = 16,   /* … of at least this many copies */
};

#define NODE_NONE UINT32_MAX

/* What is known about copying a rule into its callers. */
enum inline_state { INLINE_UNKNOWN, INLINE_BEING_MEASURED, INLINE_NO, INLINE_YES };

struct compiler {
    struct grammar_builder *builder;
    const mf_allocator *allocator;
    struct grammar_node *nodes; /* from the allocator while they grow */
    uint32_t node_count;
    size_t node_capacity;
    uint64_t (*sets)[4]; /* [set_count] bytes as bits; moved to the grammar as classes */
    uint32_t set_count;
    uint32_t set_index[2 * SET_LIMIT]; /* hash of a set → index + 1 */
    uint32_t *rule_number; /* [builder rules]: place among the emitted ones, or RULE_NONE */
    uint32_t *emitted;     /* [rule_count]: builder rule */
    uint32_t *first_node;  /* [rule_count + 1]: a rule's nodes lie together */
    uint32_t rule_count;
    uint8_t *inline_state; /* [builder rules] */
    uint32_t *inline_size;
    uint32_t end; /* the one END node */
    unsigned inline_depth;
    bool loop;                     /* the rule being emitted repeats something */
    struct grammar_copies *copies; /* [COPIES_LIMIT] */
    uint32_t copies_count;
};

/* ------------------------------------------------------------------- nodes */

static uint32_t node_new(struct compiler *c, enum grammar_node_kind kind, uint32_t a, uint32_t b)
{
    if (builder_failed(c->builder)) return NODE_NONE;
    if (c->node_count == GRAMMAR_NODE_LIMIT) {
        builder_fail(c->builder, MF_ERR_GRAMMAR, "the grammar is too large: more than %d nodes",
                     GRAMMAR_NODE_LIMIT);
        return NODE_NONE;
    }
    if (ARRAY_RESERVE(c->nodes, c->node_capacity, c->node_count + 1, c->allocator, NULL) != MF_OK) {
        builder_fail(c->builder, MF_ERR_MEMORY, "out of memory for the grammar");
        return NODE_NONE;
    }
    c->nodes[c->node_count] =
        (struct grammar_node){ .kind = (uint8_t)kind, .a = a, .b = b, .cost = GRAMMAR_COST_NEVER };
    return c->node_count++;
}

static uint32_t set_find(struct compiler *c, const uint64_t set[4])
{
    uint64_t hash = 0;
    for (size_t i = 0; i < 4; i++) hash = (hash ^ set[i]) * 0x9e3779b97f4a7c15u;
    size_t bucket = hash >> 32;
    for (;; bucket++) {
        bucket %= COUNT_OF(c->set_index);
        if (c->set_index[bucket] == 0) break;
        uint32_t found = c->set_index[bucket] - 1;
        if (memcmp(c->sets[found], set, sizeof c->sets[0]) == 0) return found;
    }
    if (c->set_count == SET_LIMIT) {
        builder_fail(c->builder, MF_ERR_GRAMMAR, "the grammar has more than %d sets of bytes",
                     SET_LIMIT);
        return 0;
    }
    memcpy(c->sets[c->set_count], set, sizeof c->sets[0]);
    c->set_index[bucket] = ++c->set_count;
    return c->set_count - 1;
}

static uint32_t node_bytes(struct compiler *c, const uint64_t set[4], uint32_t next)
{
    return node_new(c, NODE_BYTES, set_find(c, set), next);
}

static void set_add(uint64_t set[4], uint8_t first, uint8_t last)
{
    for (unsigned byte = first; byte <= last; byte++) set[byte / 64] |= 1ull << (byte % 64);
}

/* ----------------------------------------------------------------- classes */

/* A character class becomes one BYTES node per distinct way to go on after the first byte.
 * Continuation bytes are shared: [80-BF]→next is one node for the whole class. */
struct class_emission {
    struct compiler *compiler;
    uint32_t next;
    struct {
        uint8_t first, last;
        uint32_t next, node;
    } suffixes[SUFFIX_CACHE];
    size_t suffix_count;
    struct {
        uint64_t set[4];
        uint32_t next;
    } heads[SUFFIX_CACHE];
    size_t head_count;
    uint32_t entry; /* of the heads that had to be emitted early */
};

static uint32_t class_suffix(struct class_emission *e, uint8_t first, uint8_t last, uint32_t next)
{
    for (size_t i = 0; i < e->suffix_count; i++)
        if (e->suffixes[i].first == first && e->suffixes[i].last == last &&
            e->suffixes[i].next == next)
            return e->suffixes[i].node;
    uint64_t set[4] = { 0 };
    set_add(set, first, last);
    uint32_t node = node_bytes(e->compiler, set, next);
    if (e->suffix_count < SUFFIX_CACHE) {
        e->suffixes[e->suffix_count].first = first;
        e->suffixes[e->suffix_count].last = last;
        e->suffixes[e->suffix_count].next = next;
        e->suffixes[e->suffix_count++].node = node;
    }
    return node;
}

static void emit_heads(struct class_emission *e)
{
    for (size_t i = 0; i < e->head_count; i++) {
        uint32_t node = node_bytes(e->compiler, e->heads[i].set, e->heads[i].next);
        e->entry = e->entry == NODE_NONE ? node : node_new(e->compiler, NODE_SPLIT, node, e->entry);
    }
    e->head_count = 0;
}

static void class_run(void *user, const struct utf8_run *run)
{
    struct class_emission *e = user;
    if (builder_failed(e->compiler->builder)) return;
    uint32_t next = e->next;
    for (size_t i = run->length - 1; i > 0; i--)
        next = class_suffix(e, run->first[i], run->last[i], next);
    size_t head = 0;
    while (head < e->head_count && e->heads[head].next != next) head++;
    if (head == SUFFIX_CACHE) {
        emit_heads(e);
        head = 0;
    }
    if (head == e->head_count) {
        e->head_count++;
        memset(e->heads[head].set, 0, sizeof e->heads[head].set);
        e->heads[head].next = next;
    }
    set_add(e->heads[head].set, run->first[0], run->last[0]);
}

static uint32_t emit_class(struct compiler *c, const struct expression *expression, uint32_t next)
{
    struct class_emission e = { .compiler = c, .next = next, .entry = NODE_NONE };
    for (size_t i = 0; i < expression->set.count; i++)
        code_range_utf8_runs(expression->set.ranges[i], class_run, &e);
    emit_heads(&e);
    return e.entry;
}

/* ---------------------------------------------------------- copying of rules */

static uint32_t add_sizes(uint32_t a, uint32_t b)
{
    return a > INLINE_NODES || b > INLINE_NODES ? INLINE_NODES + 1 : a + b;
}

static uint32_t rule_inline_size(struct compiler *c, uint32_t rule, unsigned depth);

/* Nodes after copying, or more than INLINE_NODES. */
static uint32_t measure(struct compiler *c, const struct expression *e, unsigned depth)
{
    if (e->size > INLINE_NODES) return INLINE_NODES + 1;
    uint32_t size = e->kind == EXPRESSION_CHOICE ? (uint32_t)e->list.count : 0;
    switch (e->kind) {
    case EXPRESSION_LITERAL:
    case EXPRESSION_CLASS:
        return e->size;
    case EXPRESSION_SEQUENCE:
    case EXPRESSION_CHOICE:
        for (size_t i = 0; i < e->list.count; i++)
            size = add_sizes(size, measure(c, e->list.items[i], depth));
        return size;
    case EXPRESSION_REPEAT: {
        uint32_t item = measure(c, e->repeat.item, depth);
        uint32_t copies = e->repeat.most == REPEAT_ANY ? e->repeat.least + 1 : e->repeat.most;
        return item > INLINE_NODES ? item
                                   : (uint32_t)min_size((item + 1) * copies, INLINE_NODES + 1);
    }
    case EXPRESSION_RULE:
        return rule_inline_size(c, e->rule, depth + 1);
    }
    return INLINE_NODES + 1;
}

/* INLINE_NODES + 1 for a rule that is not copied: large, recursive or deep. */
static uint32_t rule_inline_size(struct compiler *c, uint32_t rule, unsigned depth)
{
    uint8_t *state = &c->inline_state[rule];
    if (*state == INLINE_YES) return c->inline_size[rule];
    if (*state != INLINE_UNKNOWN || depth > INLINE_DEPTH) return INLINE_NODES + 1;
    const struct builder_rule *definition = &c->builder->rules[rule];
    if (!definition->body || definition->keep) return INLINE_NODES + 1;
    *state = INLINE_BEING_MEASURED;
    c->inline_size[rule] = measure(c, definition->body, depth);
    *state = c->inline_size[rule] > INLINE_NODES ? INLINE_NO : INLINE_YES;
    return c->inline_size[rule];
}

/* ---------------------------------------------------------------- emission */

static uint32_t emit(struct compiler *c, const struct expression *e, uint32_t next);

static uint32_t emit_literal(struct compiler *c, const struct expression *e, uint32_t next)
{
    for (size_t i = e->literal.length; i-- > 0;) {
        uint64_t set[4] = { 0 };
        set_add(set, e->literal.bytes[i], e->literal.bytes[i]);
        next = node_bytes(c, set, next);
    }
    return next;
}

static uint32_t emit_choice(struct compiler *c, const struct expression *e, uint32_t next)
{
    uint32_t node = emit(c, e->list.items[e->list.count - 1], next);
    for (size_t i = e->list.count - 1; i-- > 0;)
        node = node_new(c, NODE_SPLIT, emit(c, e->list.items[i], next), node);
    return node;
}

/* Whether a node of one copy does what the same node of the copy before it does. */
static bool is_alike(const struct compiler *c, uint32_t node, uint32_t stride)
{
    const struct grammar_node *n = &c->nodes[node], *before = &c->nodes[node - stride];
    bool same_a = n->a == before->a, same_b = n->b == before->b || n->b == before->b + stride;
    if (n->kind == NODE_SPLIT) same_a = same_a || n->a == before->a + stride;
    return n->kind == before->kind && same_a && same_b;
}

/* Remembers that the nodes from `first` on are `count` copies of something. */
static void note_copies(struct compiler *c, uint32_t first, uint32_t count)
{
    uint32_t total = c->node_count - first;
    if (count < COPIES_LEAST || c->copies_count == COPIES_LIMIT || total % count != 0) return;
    uint32_t stride = total / count;
    /* The last copy is followed by something else. */
    for (uint32_t node = first + 2 * stride; node < c->node_count; node++)
        if (!is_alike(c, node, stride)) return;
    c->copies[c->copies_count++] = (struct grammar_copies){ first, stride, count };
}

/* x{2,4} is x x (x (x)?)?: every optional copy can leave at once for `next`, so that however
 * many there are, only two ways are open at a time. */
static uint32_t emit_repeat(struct compiler *c, const struct expression *e, uint32_t next)
{
    enum { SHORT_REPETITION = 4 };
    const struct expression *item = e->repeat.item;
    uint32_t node = next;
    if (e->repeat.most == REPEAT_ANY) {
        c->loop = true;
        node = node_new(c, NODE_SPLIT, NODE_NONE, next);
        uint32_t body = emit(c, item, node);
        if (!builder_failed(c->builder)) c->nodes[node].a = body;
    } else {
        if (e->repeat.most > SHORT_REPETITION) c->loop = true;
        uint32_t first = c->node_count;
        for (uint32_t i = e->repeat.least; i < e->repeat.most; i++)
            node = node_new(c, NODE_SPLIT, emit(c, item, node), next);
        if (!builder_failed(c->builder)) note_copies(c, first, e->repeat.most - e->repeat.least);
    }
    uint32_t first = c->node_count, i = 0;
    for (; i < e->repeat.least && !builder_failed(c->builder); i++) {
        uint32_t entry = emit(c, item, node);
        if (entry == node) break; /* a rule without text: the rest adds nothing either */
        node = entry;
    }
    if (!builder_failed(c->builder)) note_copies(c, first, i);
    return node;
}

static uint32_t emit_rule_reference(struct compiler *c, const struct expression *e, uint32_t next)
{
    const struct builder_rule *definition = &c->builder->rules[e->rule];
    if (!definition->body) {
        builder_fail(c->builder, MF_ERR_GRAMMAR, "rule %s is not defined",
                     definition->name ? definition->name : "(unnamed)");
        return NODE_NONE;
    }
    if (c->inline_depth < INLINE_DEPTH && rule_inline_size(c, e->rule, 0) <= INLINE_NODES) {
        c->inline_depth++;
        uint32_t node = emit(c, definition->body, next);
        c->inline_depth--;
        return node;
    }
    if (c->rule_number[e->rule] == RULE_NONE) {
        c->emitted[c->rule_count] = e->rule;
        c->rule_number[e->rule] = c->rule_count++;
    }
    return node_new(c, NODE_CALL, c->rule_number[e->rule], next);
}

static uint32_t emit(struct compiler *c, const struct expression *e, uint32_t next)
{
    if (!e || builder_failed(c->builder)) return NODE_NONE;
    if (e->size == 0) return next;
    switch (e->kind) {
    case EXPRESSION_LITERAL:
        return emit_literal(c, e, next);
    case EXPRESSION_CLASS:
        return emit_class(c, e, next);
    case EXPRESSION_SEQUENCE:
        for (size_t i = e->list.count; i-- > 0;) next = emit(c, e->list.items[i], next);
        return next;
    case EXPRESSION_CHOICE:
        return emit_choice(c, e, next);
    case EXPRESSION_REPEAT:
        return emit_repeat(c, e, next);
    case EXPRESSION_RULE:
        return emit_rule_reference(c, e, next);
    }
    return NODE_NONE;
}

/* Emits the rules that are reached from the first one; fills grammar->rule_starts. */
static void emit_rules(struct compiler *c, struct grammar *grammar, uint32_t root)
{
    c->end = node_new(c, NODE_END, 0, 0);
    c->emitted[0] = root;
    c->rule_number[root] = 0;
    c->rule_count = 1;
    for (uint32_t i = 0; i < c->rule_count && !builder_failed(c->builder); i++) {
        c->first_node[i] = c->node_count;
        c->loop = false;
        const struct builder_rule *rule = &c->builder->rules[c->emitted[i]];
        if (!rule->body)
            builder_fail(c->builder, MF_ERR_GRAMMAR, "rule %s is not defined",
                         rule->name ? rule->name : "(unnamed)");
        grammar->rule_starts[i] = emit(c, rule->body, c->end);
        c->first_node[i + 1] = c->node_count;
        for (uint32_t node = c->first_node[i]; c->loop && node < c->node_count; node++)
            c->nodes[node].in_loop = true;
    }
}

/* ------------------------------------------------------------- byte classes */

static bool in_set(const uint64_t set[4], unsigned byte)
{
    return set[byte / 64] >> (byte % 64) & 1;
}

/* Splits the classes by one set: bytes of a class that are in it get a class of their own. */
static void refine_classes(struct grammar *grammar, const uint64_t set[4])
{
    uint16_t renamed[256] = { 0 }; /* old class → class of its members in the set, plus 1 */
    bool outside[256] = { false };
    for (unsigned byte = 0; byte < 256; byte++)
        if (!in_set(set, byte)) outside[grammar->byte_class[byte]] = true;
    for (unsigned byte = 0; byte < 256; byte++) {
        uint8_t old = grammar->byte_class[byte];
        if (!in_set(set, byte) || !outside[old]) continue;
        if (!renamed[old]) renamed[old] = (uint16_t)++grammar->class_count;
        grammar->byte_class[byte] = (uint8_t)(renamed[old] - 1);
    }
}

/* Something readable where the set allows it. */
static uint8_t example_of(const uint64_t set[4])
{
    static const char liked[] = "a0 \"}],:";
    for (size_t i = 0; liked[i]; i++)
        if (in_set(set, (uint8_t)liked[i])) return (uint8_t)liked[i];
    unsigned byte = 0x21;
    for (; byte < 256; byte++)
        if (in_set(set, byte)) return (uint8_t)byte;
    for (byte = 0; byte < 0x21; byte++)
        if (in_set(set, byte)) break;
    return (uint8_t)byte;
}

static mf_status take_over_sets(struct grammar *grammar, struct compiler *c, mf_error *why)
{
    grammar->set_count = c->set_count;
    grammar->set_classes = arena_take(&grammar->arena, c->set_count, sizeof *grammar->set_classes);
    grammar->set_example = ARENA_NEW(&grammar->arena, uint8_t, c->set_count);
    if (!grammar->set_classes || !grammar->set_example) return fail_memory(why, c->set_count * 33);
    grammar->class_count = 1;
    for (uint32_t i = 0; i < c->set_count; i++) refine_classes(grammar, c->sets[i]);
    for (uint32_t i = 0; i < c->set_count; i++) {
        grammar->set_example[i] = example_of(c->sets[i]);
        for (unsigned byte = 0; byte < 256; byte++) {
            uint8_t class = grammar->byte_class[byte];
            if (in_set(c->sets[i], byte))
                grammar->set_classes[i][class / 64] |= 1ull << (class % 64);
        }
    }
    return MF_OK;
}

/* ------------------------------------------------------------------- whole */

static mf_status compiler_init(struct compiler *c, struct arena *scratch,
                               struct grammar_builder *builder, mf_error *why)
{
    uint32_t rules = builder->rule_count;
    *c = (struct compiler){ .builder = builder, .allocator = scratch->allocator };
    c->sets = arena_take(scratch, SET_LIMIT, sizeof *c->sets);
    c->rule_number = ARENA_NEW(scratch, uint32_t, rules);
    c->emitted = ARENA_NEW(scratch, uint32_t, rules);
    c->first_node = ARENA_NEW(scratch, uint32_t, rules + 1);
    c->inline_state = ARENA_NEW(scratch, uint8_t, rules);
    c->inline_size = ARENA_NEW(scratch, uint32_t, rules);
    c->copies = arena_take(scratch, COPIES_LIMIT, sizeof *c->copies);
    bool complete = c->sets && c->copies && c->rule_number && c->emitted && c->first_node &&
                    c->inline_state && c->inline_size;
    if (!complete) return fail_memory(why, SET_LIMIT * sizeof *c->sets + rules * 17);
    for (uint32_t i = 0; i < rules; i++) c->rule_number[i] = RULE_NONE;
    return MF_OK;
}

/* Moves what the compiler made into the grammar and looks at it as a whole. */
static mf_status finish(struct grammar *grammar, struct compiler *c, struct arena *scratch,
                        mf_error *why)
{
    grammar->node_count = c->node_count;
    grammar->rule_count = c->rule_count;
    grammar->nodes = ARENA_NEW(&grammar->arena, struct grammar_node, c->node_count);
    if (!grammar->nodes) return fail_memory(why, c->node_count * sizeof *grammar->nodes);
    grammar->copies_count = c->copies_count;
    grammar->copies = ARENA_NEW(&grammar->arena, struct grammar_copies, c->copies_count);
    if (!grammar->copies) return fail_memory(why, c->copies_count * sizeof *c->copies);
    memcpy(grammar->copies, c->copies, c->copies_count * sizeof *c->copies);
    if (c->node_count > 0) memcpy(grammar->nodes, c->nodes, c->node_count * sizeof *grammar->nodes);
    grammar->start = grammar->rule_starts[0];
    mf_status status = take_over_sets(grammar, c, why);
    if (status != MF_OK) return status;
    struct grammar_origin origin = { c->builder->rules, c->emitted, c->first_node };
    return grammar_analyse(grammar, scratch, &origin, why);
}

static mf_status compile(struct grammar *grammar, struct arena *scratch,
                         struct grammar_builder *builder, uint32_t root, mf_error *why)
{
    struct compiler *c = ARENA_NEW(scratch, struct compiler, 1);
    if (!c) return fail_memory(why, sizeof *c);
    mf_status status = compiler_init(c, scratch, builder, why);
    if (status != MF_OK) return status;
    grammar->rule_starts = ARENA_NEW(&grammar->arena, uint32_t, builder->rule_count);
    if (!grammar->rule_starts) return fail_memory(why, builder->rule_count * sizeof(uint32_t));
    emit_rules(c, grammar, root);
    if (builder_failed(builder)) {
        if (why) *why = builder->error;
        status = builder->error.status;
    } else {
        status = finish(grammar, c, scratch, why);
    }
    if (c->nodes)
        c->allocator->release(c->allocator->user, c->nodes, c->node_capacity * sizeof *c->nodes);
    return status;
}

mf_status grammar_new(struct grammar **out, struct grammar_builder *builder, uint32_t root,
                      mf_error *why)
{
    *out = NULL;
    if (builder_failed(builder)) {
        if (why) *why = builder->error;
        return builder->error.status;
    }
    if (root >= builder->rule_count)
        return fail(why, MF_ERR_GRAMMAR, "the grammar has no first rule");
    struct arena arena, scratch;
    arena_init(&arena, builder->arena.allocator);
    arena_init(&scratch, builder->arena.allocator);
    struct grammar *grammar = ARENA_NEW(&arena, struct grammar, 1);
    if (!grammar) return fail_memory(why, sizeof *grammar);
    grammar->arena = arena;
    mf_status status = compile(grammar, &scratch, builder, root, why);
    arena_free(&scratch);
    if (status != MF_OK)
        grammar_free(grammar);
    else
        *out = grammar;
    return status;
}

void grammar_free(struct grammar *grammar)
{
    if (!grammar) return;
    struct arena arena = grammar->arena; /* it holds the grammar itself */
    arena_free(&arena);
}
