/* name_table: names keep their numbers while the table grows, and no allocation is lost. */
#include "support/test.h"

#include "base/arena.h"
#include "checkpoint/name_table.h"
#include "support/failing_allocator.h"

#include <stdio.h>

enum { COUNT = 5000, NAME_BYTES = 24 };
static char names[COUNT][NAME_BYTES];

static int make_names(void **state)
{
    (void)state;
    for (unsigned i = 0; i < COUNT; i++) snprintf(names[i], NAME_BYTES, "layers.%u.weight", i);
    return 0;
}

static void names_keep_their_numbers(void **state)
{
    (void)state;
    struct name_table table;
    uint32_t holder;
    name_table_init(&table, &allocator_heap);
    assert_int_equal(name_table_find(&table, "a", 1), NAME_UNKNOWN);
    for (uint32_t i = 0; i < COUNT; i++) {
        assert_int_equal(name_table_add(&holder, &table, names[i], strlen(names[i]), i, NULL),
                         MF_OK);
        assert_int_equal(holder, i);
        assert_int_equal(name_table_find(&table, names[i / 2], strlen(names[i / 2])), i / 2);
    }
    assert_int_equal(name_table_add(&holder, &table, "layers.7.weight", 15, 99, NULL), MF_OK);
    assert_int_equal(holder, 7);
    assert_int_equal(table.count, COUNT);
    assert_int_equal(name_table_find(&table, "layers.7.weigh", 14), NAME_UNKNOWN);
    assert_int_equal(name_table_find(&table, "", 0), NAME_UNKNOWN);
    assert_int_equal(name_table_add(&holder, &table, "", 0, 5, NULL), MF_OK);
    assert_int_equal(name_table_find(&table, "", 0), 5);
    name_table_free(&table);
    assert_int_equal(name_table_find(&table, "", 0), NAME_UNKNOWN);
}

/* The tail of a name counts, byte by byte, at every length around a machine word. */
static void names_differ_by_one_byte(void **state)
{
    (void)state;
    struct name_table table;
    static char pairs[40][2][48];
    uint32_t holder;
    name_table_init(&table, &allocator_heap);
    for (unsigned length = 1; length < 40; length++) {
        for (unsigned which = 0; which < 2; which++) {
            char *name = pairs[length][which];
            memset(name, 'x', length);
            name[length - 1] = which ? 'y' : 'x';
            uint32_t number = 2 * length + which;
            assert_int_equal(name_table_add(&holder, &table, name, length, number, NULL), MF_OK);
            assert_int_equal(holder, number);
        }
    }
    for (unsigned length = 1; length < 40; length++)
        assert_int_equal(name_table_find(&table, pairs[length][1], length), 2 * length + 1);
    name_table_free(&table);
}

static void a_failing_allocation_leaves_the_table_as_it_was(void **state)
{
    (void)state;
    struct failing_allocator heap;
    struct name_table table;
    uint32_t holder, added = 0;
    failing_allocator_init(&heap);
    name_table_init(&table, &heap.allocator);
    for (uint32_t i = 0; i < 200; i++) {
        failing_allocator_arm(&heap, 1);
        mf_status status = name_table_add(&holder, &table, names[i], strlen(names[i]), i, NULL);
        bool fired = failing_allocator_disarm(&heap);
        assert_int_equal(status, fired ? MF_ERR_MEMORY : MF_OK);
        if (fired) {
            assert_int_equal(table.count, i);
            assert_int_equal(name_table_find(&table, names[i], strlen(names[i])), NAME_UNKNOWN);
            status = name_table_add(&holder, &table, names[i], strlen(names[i]), i, NULL);
            assert_int_equal(status, MF_OK);
            added++;
        }
        assert_int_equal(name_table_find(&table, names[0], strlen(names[0])), 0);
    }
    assert_true(added >= 3);
    name_table_free(&table);
    assert_int_equal(heap.live_bytes, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_keep_their_numbers),
        cmocka_unit_test(names_differ_by_one_byte),
        cmocka_unit_test(a_failing_allocation_leaves_the_table_as_it_was),
    };
    return cmocka_run_group_tests(tests, make_names, NULL);
}
