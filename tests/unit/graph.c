/* graph: builders, and the plan that lets buffers share memory: on random graphs no two
 * buffers that live together overlap, and sharing never costs memory. */
#include "support/test.h"

#include "backend/buffers.h"

#include <stdlib.h>

static const uint32_t widths[SHARED_COUNT] = { [SHARED_X] = 32,
                                               [SHARED_ROUTED] = 32,
                                               [SHARED_ANGLES] = 4,
                                               [SHARED_EXPERTS] = 64,
                                               [SHARED_LOGITS] = 50 };

static uint32_t below(uint64_t *random, uint32_t limit)
{
    *random = *random * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)((*random >> 33) % limit);
}

/* ------------------------------------------------------------- random graphs */

/* A buffer that has been written: the residual stream or one of the graph's own. */
static buffer some_buffer(const struct graph *g, uint64_t *random)
{
    uint32_t own = (uint32_t)g->buffer_count - SHARED_COUNT;
    uint32_t pick = below(random, own + 1);
    return pick == own ? graph_shared(SHARED_X) : (buffer){ (uint16_t)(SHARED_COUNT + pick) };
}

static void add_random_op(struct graph *g, uint64_t *random)
{
    buffer a = some_buffer(g, random), b = some_buffer(g, random);
    switch (below(random, 6)) {
    case 0:
        op_rms_norm(g, a, WEIGHT_FFN_NORM, 1e-6f);
        break;
    case 1:
        op_activate(g, a, b, ACTIVATION_SILU);
        break;
    case 2:
        op_add_project(g, graph_shared(SHARED_X), a, WEIGHT_ATTENTION_OUT);
        break;
    case 3:
        op_head_norm(g, a, WEIGHT_Q_NORM, 1e-6f, 1, 1); /* in place: a lives on */
        break;
    default:
        op_project(g, a, WEIGHT_Q, 1 + below(random, 200));
    }
}

static uint64_t rounded(uint64_t width)
{
    return (width + 15) / 16 * 16;
}

static bool is_used(const struct graph *g, int i)
{
    return g->buffers[i].first >= 0;
}

static void check_plan(const struct graph *g, const struct buffer_plan *plan)
{
    uint64_t sum = 0, at_once = 0;
    for (int i = SHARED_COUNT; i < g->buffer_count; i++) {
        if (!is_used(g, i)) continue;
        const struct graph_buffer *a = &g->buffers[i];
        sum += rounded(a->width);
        assert_int_equal(plan->offsets[i] % 16, 0);
        assert_true(plan->offsets[i] + a->width <= plan->total_width);
        for (int j = i + 1; j < g->buffer_count; j++) {
            const struct graph_buffer *b = &g->buffers[j];
            if (!is_used(g, j) || a->last < b->first || b->last < a->first) continue;
            bool apart = plan->offsets[i] + a->width <= plan->offsets[j] ||
                         plan->offsets[j] + b->width <= plan->offsets[i];
            if (!apart)
                fail_msg("buffers %d and %d live together (ops %d-%d and %d-%d) and overlap", i, j,
                         a->first, a->last, b->first, b->last);
        }
    }
    for (int op = 0; op < g->op_count; op++) {
        uint64_t alive = 0;
        for (int i = SHARED_COUNT; i < g->buffer_count; i++)
            if (is_used(g, i) && g->buffers[i].first <= op && op <= g->buffers[i].last)
                alive += g->buffers[i].width;
        if (alive > at_once) at_once = alive;
    }
    assert_true(plan->total_width <= sum);
    assert_true(plan->total_width >= at_once);
}

static void plans_of_random_graphs_hold(void **state)
{
    (void)state;
    uint64_t random = 1, shared = 0;
    for (int round = 0; round < 3000; round++) {
        struct graph g;
        struct buffer_plan plan;
        graph_begin(&g, "random", widths);
        uint32_t count = below(&random, GRAPH_BUFFERS_MAX - SHARED_COUNT);
        for (uint32_t i = 0; i < count; i++) add_random_op(&g, &random);
        assert_true(graph_check(&g));
        buffers_plan(&plan, &g);
        check_plan(&g, &plan);
        uint16_t own = (uint16_t)(g.buffer_count - SHARED_COUNT);
        assert_true(plan.physical_count <= own);
        shared += own - plan.physical_count;
    }
    assert_true(shared > 3000); /* memory is really shared */
}

static void a_chain_needs_two_buffers(void **state)
{
    (void)state;
    struct graph g;
    struct buffer_plan plan;
    graph_begin(&g, "chain", widths);
    buffer a = graph_shared(SHARED_X);
    for (int i = 0; i < 20; i++) a = op_rms_norm(&g, a, WEIGHT_FFN_NORM, 1e-6f);
    buffers_plan(&plan, &g);
    check_plan(&g, &plan);
    assert_int_equal(plan.physical_count, 2);
    assert_int_equal(plan.total_width, 2 * 32);
}

/* An op's result never takes the place of what the same op reads. */
static void results_do_not_overlap_inputs(void **state)
{
    (void)state;
    struct graph g;
    struct buffer_plan plan;
    graph_begin(&g, "pair", widths);
    buffer a = op_project(&g, graph_shared(SHARED_X), WEIGHT_Q, 48);
    buffer b = op_project(&g, a, WEIGHT_K, 48);
    buffers_plan(&plan, &g);
    assert_int_not_equal(plan.offsets[a.id], plan.offsets[b.id]);
}

static void an_empty_graph_needs_nothing(void **state)
{
    (void)state;
    struct graph g;
    struct buffer_plan plan;
    graph_begin(&g, "empty", widths);
    buffers_plan(&plan, &g);
    assert_int_equal(plan.total_width, 0);
    assert_int_equal(plan.physical_count, 0);
}

/* With the addresses of a step of `rows` rows, whole buffers do not overlap either. */
static void places_follow_the_plan(void **state)
{
    (void)state;
    enum { ROWS = 7 };
    struct graph g;
    struct buffer_plan plan;
    float *buffers[GRAPH_BUFFERS_MAX], *shared[SHARED_COUNT], memory[SHARED_COUNT];
    graph_begin(&g, "places", widths);
    buffer a = op_project(&g, graph_shared(SHARED_X), WEIGHT_Q, 33);
    buffer b = op_project(&g, graph_shared(SHARED_X), WEIGHT_K, 5);
    op_add_project(&g, graph_shared(SHARED_X), op_activate(&g, a, a, ACTIVATION_SILU), WEIGHT_V);
    op_add_project(&g, graph_shared(SHARED_X), b, WEIGHT_V);
    buffers_plan(&plan, &g);
    float *scratch = malloc(ROWS * plan.total_width * sizeof *scratch);
    assert_non_null(scratch);
    for (int i = 0; i < SHARED_COUNT; i++) shared[i] = &memory[i];
    buffers_place(buffers, &plan, &g, shared, scratch, ROWS);
    for (int i = 0; i < SHARED_COUNT; i++) assert_ptr_equal(buffers[i], shared[i]);
    for (int i = SHARED_COUNT; i < g.buffer_count; i++)
        for (uint32_t j = 0; j < ROWS * g.buffers[i].width; j++) buffers[i][j] = (float)i;
    assert_true(buffers[a.id] + 33 * ROWS <= buffers[b.id] ||
                buffers[b.id] + 5 * ROWS <= buffers[a.id]);
    free(scratch);
}

/* ------------------------------------------------------------------- builders */

static void lifetimes_are_first_and_last_use(void **state)
{
    (void)state;
    struct graph g;
    graph_begin(&g, "lives", widths);
    buffer x = graph_shared(SHARED_X);
    buffer a = op_rms_norm(&g, x, WEIGHT_MIXER_NORM, 1e-6f); /* 0 */
    buffer b = op_project(&g, a, WEIGHT_Q, 10);              /* 1 */
    op_project(&g, a, WEIGHT_K, 10);                         /* 2 */
    op_add_project(&g, x, b, WEIGHT_ATTENTION_OUT);          /* 3 */
    assert_int_equal(g.op_count, 4);
    assert_int_equal(g.buffers[a.id].first, 0);
    assert_int_equal(g.buffers[a.id].last, 2);
    assert_int_equal(g.buffers[b.id].first, 1);
    assert_int_equal(g.buffers[b.id].last, 3);
    assert_int_equal(g.buffers[x.id].first, 0);
    assert_int_equal(g.buffers[x.id].last, 3);
    assert_int_equal(g.buffers[a.id].width, 32);
    assert_int_equal(g.buffers[b.id].width, 10);
    assert_int_equal(g.buffers[SHARED_LOGITS].first, -1);
}

static void a_gate_is_split_in_halves(void **state)
{
    (void)state;
    struct graph g;
    struct attention_shape shape = { .heads = 2, .kv_heads = 1, .head_width = 8, .scale = 0.5f };
    buffer q, gate;
    graph_begin(&g, "gate", widths);
    buffer both = op_project(&g, graph_shared(SHARED_X), WEIGHT_Q, 32);
    op_split_gate(&g, &q, &gate, both, &shape);
    assert_int_equal(g.buffers[q.id].width, 16);
    assert_int_equal(g.buffers[gate.id].width, 16);
    assert_int_not_equal(q.id, gate.id);
    const struct op *op = &g.ops[1];
    assert_int_equal(op->kind, OP_SPLIT_GATE);
    assert_int_equal(op->out.id, q.id);
    assert_int_equal(op->b.id, gate.id);
    assert_int_equal(op->a.id, both.id);
}

/* A recipe that is too long is reported, not written past the end. */
static void a_full_graph_says_so(void **state)
{
    (void)state;
    struct graph g;
    graph_begin(&g, "ops", widths);
    for (int i = 0; i < GRAPH_OPS_MAX; i++)
        op_add_project(&g, graph_shared(SHARED_X), graph_shared(SHARED_ROUTED), WEIGHT_Q);
    assert_true(graph_check(&g));
    op_add_project(&g, graph_shared(SHARED_X), graph_shared(SHARED_ROUTED), WEIGHT_Q);
    assert_false(graph_check(&g));
    assert_int_equal(g.op_count, GRAPH_OPS_MAX);

    graph_begin(&g, "buffers", widths);
    for (int i = 0; i < 2 * GRAPH_BUFFERS_MAX; i++)
        op_project(&g, graph_shared(SHARED_X), WEIGHT_Q, 3);
    assert_false(graph_check(&g));
    assert_true(g.buffer_count <= GRAPH_BUFFERS_MAX && g.op_count <= GRAPH_OPS_MAX);
}

static void every_operation_has_a_name(void **state)
{
    (void)state;
    for (enum op_kind kind = 0; kind < OP_KINDS; kind++) {
        assert_non_null(op_name(kind));
        for (enum op_kind other = 0; other < kind; other++)
            assert_string_not_equal(op_name(kind), op_name(other));
    }
    assert_string_equal(op_name(OP_KINDS), "?");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plans_of_random_graphs_hold),
        cmocka_unit_test(a_chain_needs_two_buffers),
        cmocka_unit_test(results_do_not_overlap_inputs),
        cmocka_unit_test(an_empty_graph_needs_nothing),
        cmocka_unit_test(places_follow_the_plan),
        cmocka_unit_test(lifetimes_are_first_and_last_use),
        cmocka_unit_test(a_gate_is_split_in_halves),
        cmocka_unit_test(a_full_graph_says_so),
        cmocka_unit_test(every_operation_has_a_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
