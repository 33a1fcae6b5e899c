/* slot_plan: a plan keeps to its budget, gives every class what a token needs, and is
 * resident exactly when everything fits. */
#include "support/test.h"

#include "experts/slot_plan.h"

#include <stdio.h>
#include <stdlib.h>

enum { LAYERS = 6, EXPERTS = 10, PER_TOKEN = 3 };

static struct slot_class classes[LAYERS];
static uint32_t class_of[LAYERS];

static mf_status make(struct slot_plan *plan, const uint64_t *bytes, uint64_t budget, mf_error *why)
{
    *plan = (struct slot_plan){ .classes = classes, .class_of = class_of };
    struct slot_needs needs = { .bytes = bytes,
                                .layers = LAYERS,
                                .experts = EXPERTS,
                                .per_token = PER_TOKEN,
                                .budget_bytes = budget };
    return slot_plan_make(plan, &needs, why);
}

static void with_room_for_all_the_plan_is_resident(void **state)
{
    (void)state;
    static const uint64_t bytes[LAYERS] = { 0, 100, 200, 100, 100, 200 };
    struct slot_plan plan;
    assert_int_equal(make(&plan, bytes, 7000, NULL), MF_OK);
    assert_true(plan.resident);
    assert_int_equal(plan.class_count, 2);
    assert_int_equal(plan.slot_count, 50);
    assert_int_equal(plan.memory_bytes, 7000);
    assert_int_equal(plan.class_of[0], NO_CLASS);
    assert_int_equal(plan.class_of[1], plan.class_of[4]);
    assert_int_not_equal(plan.class_of[1], plan.class_of[2]);
    assert_int_equal(make(&plan, bytes, 6999, NULL), MF_OK);
    assert_false(plan.resident);
}

/* Tight budgets put all layers into one class of the largest size. */
static void smallest_plan_has_one_class(void **state)
{
    (void)state;
    static const uint64_t bytes[LAYERS] = { 100, 100, 300, 100, 200, 200 };
    struct slot_plan plan;
    mf_error why = { 0 };
    assert_int_equal(make(&plan, bytes, 300 * (PER_TOKEN + 2), &why), MF_OK);
    assert_int_equal(plan.class_count, 1);
    assert_int_equal(plan.slot_count, PER_TOKEN + 2);
    assert_int_equal(plan.classes[0].experts, LAYERS * EXPERTS);
    assert_int_equal(make(&plan, bytes, 300 * (PER_TOKEN + 2) - 1, &why), MF_ERR_MEMORY);
    assert_non_null(strstr(why.text, "5 of them"));
    assert_int_equal(make(&plan, bytes, 600 * (PER_TOKEN + 2), &why), MF_OK);
    assert_int_equal(plan.class_count, 3);
    for (size_t c = 0; c < 3; c++) assert_int_equal(plan.classes[c].count, PER_TOKEN + 2);
}

static void no_budget_is_exceeded(void **state)
{
    (void)state;
    srand(1);
    for (int round = 0; round < 20000; round++) {
        uint64_t bytes[LAYERS], all = 0, largest = 0;
        for (int i = 0; i < LAYERS; i++) {
            bytes[i] = (uint64_t)(rand() % 4) * (uint64_t)(1 + rand() % 3 * 1000003);
            all += bytes[i] * EXPERTS;
            if (bytes[i] > largest) largest = bytes[i];
        }
        uint64_t budget = all ? ((uint64_t)rand() << 16 ^ (uint64_t)rand()) % (all + all / 8) : 0;
        struct slot_plan plan;
        mf_status status = make(&plan, bytes, budget, NULL);
        assert_int_equal(status, budget < largest * (PER_TOKEN + 2) ? MF_ERR_MEMORY : MF_OK);
        if (status != MF_OK) continue;
        assert_true(plan.memory_bytes <= budget);
        assert_int_equal(plan.resident, budget >= all);
        size_t slots = 0;
        for (size_t c = 0; c < plan.class_count; c++) {
            assert_true(plan.classes[c].count >= PER_TOKEN + 2);
            assert_true(plan.classes[c].count <= plan.classes[c].experts);
            assert_int_equal(plan.classes[c].first_slot, slots);
            slots += plan.classes[c].count;
        }
        assert_int_equal(slots, plan.slot_count);
        for (int i = 0; i < LAYERS; i++)
            assert_true(bytes[i] == 0 || plan.classes[plan.class_of[i]].bytes >= bytes[i]);
    }
}

static void sizes_beyond_64_bits_are_refused(void **state)
{
    (void)state;
    static const uint64_t bytes[LAYERS] = { 1ull << 63, 1ull << 62, 0, 0, 0, 0 };
    struct slot_plan plan;
    assert_int_equal(make(&plan, bytes, UINT64_MAX, NULL), MF_ERR_MEMORY);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(with_room_for_all_the_plan_is_resident),
        cmocka_unit_test(smallest_plan_has_one_class),
        cmocka_unit_test(no_budget_is_exceeded),
        cmocka_unit_test(sizes_beyond_64_bits_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
