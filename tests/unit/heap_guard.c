/* support/heap_guard: it sees what the library takes, and nothing when it takes nothing. */
#include "support/test.h"

#include "base/arena.h"
#include "support/heap_guard.h"

#include <stdlib.h>

static void the_library_s_allocations_are_seen(void **state)
{
    (void)state;
    struct arena arena;
    arena_init(&arena, &allocator_heap);
    heap_guard_begin();
    void *first = arena_take(&arena, 1, 100);
    assert_int_equal(heap_guard_end(), 1);

    heap_guard_begin();
    void *second = arena_take(&arena, 1, 100); /* from the same block */
    assert_int_equal(heap_guard_end(), 0);
    assert_true(first && second);

    heap_guard_begin();
    assert_non_null(arena_take(&arena, 1, 1 << 20));
    assert_int_equal(heap_guard_end(), 1);
    arena_free(&arena);
}

static void every_way_to_allocate_is_seen(void **state)
{
    (void)state;
    /* volatile: an allocation whose result is not used may be left out */
    void *volatile pieces[7];
    void *aligned = NULL;
    heap_guard_begin();
    pieces[0] = malloc(1);
    pieces[1] = calloc(1, 1);
    pieces[2] = realloc(NULL, 1);
    pieces[3] = aligned_alloc(64, 64);
    pieces[4] = strdup("a");
    pieces[5] = strndup("ab", 1);
    assert_int_equal(posix_memalign(&aligned, 64, 64), 0);
    pieces[6] = aligned;
    assert_int_equal(heap_guard_end(), 7);
    for (size_t i = 0; i < COUNT_OF(pieces); i++) free(pieces[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_library_s_allocations_are_seen),
        cmocka_unit_test(every_way_to_allocate_is_seen),
    };
    return cmocka_run_group_tests_name("heap_guard", tests, NULL, NULL);
}
