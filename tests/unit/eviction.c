/* eviction: experts used often, used recently, or of the layers that come next are near; every
 * distance is positive and finite. */
#include "support/test.h"

#include "experts/eviction.h"

#include <math.h>
#include <stdlib.h>

enum { LAYERS = 4, EXPERTS = 8 };

static struct arena arena;
static struct eviction eviction;

static int set_up(void **state)
{
    (void)state;
    arena_init(&arena, &allocator_heap);
    return eviction_init(&eviction, &arena, LAYERS, EXPERTS) ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    arena_free(&arena);
    return 0;
}

/* One token that chooses a and b. */
static void visit_two(uint32_t layer, uint32_t a, uint32_t b)
{
    uint32_t uses[EXPERTS] = { 0 };
    uses[a] = uses[b] = 1;
    eviction_visit(&eviction, layer, uses, 1);
}

static float distance(uint32_t layer, uint32_t expert)
{
    return eviction_distance(&eviction, layer, expert);
}

static void frequently_used_experts_have_small_distances(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 2000; i++) visit_two(2, 0, 1 + i % 3);
    assert_true(distance(2, 0) < distance(2, 1));
    assert_true(distance(2, 1) < distance(2, 5));
    assert_true(distance(2, 0) < LAYERS + 1.0f); /* it comes every time */
}

static void recently_used_experts_have_small_distances(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 100; i++) visit_two(0, i % 4, 4 + i % 4);
    assert_true(distance(0, 3) < distance(0, 0)); /* the last and the oldest of four */
    assert_true(distance(0, 7) < distance(0, 4));
}

/* A long prompt wants everything of every layer: the layer just left comes last. */
static void prompts_evict_by_order_of_layers(void **state)
{
    (void)state;
    uint32_t uses[EXPERTS] = { 256, 1, 100, 50, 20, 10, 30, 45 };
    for (uint32_t round = 0; round < 3; round++)
        for (uint32_t layer = 0; layer < LAYERS; layer++)
            eviction_visit(&eviction, layer, uses, 256);
    uses[1] = 8;
    eviction_visit(&eviction, 0, uses, 256);
    for (uint32_t e = 2; e < EXPERTS; e++) {
        assert_true(distance(1, e) < distance(2, e));
        assert_true(distance(2, e) < distance(3, e));
        assert_true(distance(3, e) < distance(0, 0));
    }
}

static void layers_are_independent(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 50; i++) visit_two(1, 2, 3);
    float before = distance(3, 2);
    visit_two(1, 2, 3);
    assert_true(distance(3, 2) == before);
    assert_true(before > 1000.0f); /* never used, in a layer never seen */
}

static void any_history_gives_distances(void **state)
{
    (void)state;
    srand(7);
    for (uint32_t i = 0; i < 200000; i++) {
        uint32_t uses[EXPERTS], rows = rand() % 3 ? 1u : 1u + (uint32_t)rand() % 600;
        for (uint32_t e = 0; e < EXPERTS; e++) {
            uint32_t kind = (uint32_t)rand() % 4; /* all rows, none, or some */
            uses[e] = kind == 0 ? rows : kind == 1 ? (uint32_t)rand() % (rows + 1) : 0;
        }
        eviction_visit(&eviction, i % LAYERS, uses, rows);
        float found = distance((uint32_t)rand() % LAYERS, (uint32_t)rand() % EXPERTS);
        assert_true(isfinite(found) && found >= 1.0f);
    }
}

static void the_table_bytes_are_what_is_allocated(void **state)
{
    (void)state;
    assert_int_equal(eviction_table_bytes(LAYERS, EXPERTS), LAYERS * EXPERTS * 4 * sizeof(float));
    assert_int_equal(eviction_table_bytes(48, 512), 48 * 512 * 16);
    assert_true(eviction_table_bytes(UINT32_MAX, UINT32_MAX) == SIZE_MAX);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(frequently_used_experts_have_small_distances, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(recently_used_experts_have_small_distances, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(prompts_evict_by_order_of_layers, set_up, tear_down),
        cmocka_unit_test_setup_teardown(layers_are_independent, set_up, tear_down),
        cmocka_unit_test(the_table_bytes_are_what_is_allocated),
        cmocka_unit_test_setup_teardown(any_history_gives_distances, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
