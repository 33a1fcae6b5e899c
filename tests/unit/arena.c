/* base/arena: zeroed, aligned, apart, and all given back. */
#include "support/test.h"

#include "base/arena.h"
#include "support/failing_allocator.h"

#include <stdlib.h>

enum { PIECES = 400 };

/* From nothing to several blocks, small and large mixed. */
static size_t piece_bytes(size_t i)
{
    return i % 37 == 36 ? 100 * 1000 : (i * 7919) % 900;
}

static void pieces_are_zeroed_aligned_and_apart(void **state)
{
    (void)state;
    struct failing_allocator heap;
    struct arena arena;
    uint8_t *pieces[PIECES];
    failing_allocator_init(&heap);
    arena_init(&arena, &heap.allocator);
    for (size_t i = 0; i < PIECES; i++) {
        pieces[i] = arena_take(&arena, piece_bytes(i), 1);
        assert_non_null(pieces[i]);
        assert_int_equal((uintptr_t)pieces[i] % CACHE_LINE, 0);
        for (size_t b = 0; b < piece_bytes(i); b++) assert_int_equal(pieces[i][b], 0);
        memset(pieces[i], (int)(i % 251) + 1, piece_bytes(i));
    }
    for (size_t i = 0; i < PIECES; i++) {
        for (size_t b = 0; b < piece_bytes(i); b++) assert_int_equal(pieces[i][b], i % 251 + 1);
    }
    assert_int_equal(arena.total_bytes, heap.live_bytes);
    arena_free(&arena);
    assert_int_equal(heap.live_bytes, 0);
    assert_int_equal(arena.total_bytes, 0);
}

static void small_pieces_share_blocks(void **state)
{
    (void)state;
    struct failing_allocator heap;
    struct arena arena;
    failing_allocator_init(&heap);
    arena_init(&arena, &heap.allocator);
    for (size_t i = 0; i < 1000; i++) assert_non_null(arena_take(&arena, 1, CACHE_LINE));
    assert_true(heap.live_blocks <= 2);

    /* A large piece gets a block of its own; small ones go on filling the shared one. */
    assert_non_null(arena_take(&arena, 1, 1 << 20));
    uint64_t blocks = heap.live_blocks;
    assert_non_null(arena_take(&arena, 1, CACHE_LINE));
    assert_int_equal(heap.live_blocks, blocks);
    arena_free(&arena);
}

static size_t taken_by(struct arena *arena)
{
    size_t before = arena->total_bytes;
    arena_start_block(arena);
    for (size_t i = 0; i < PIECES; i++) assert_non_null(arena_take(arena, piece_bytes(i), 1));
    return arena->total_bytes - before;
}

static void a_block_that_is_started_makes_sizes_repeatable(void **state)
{
    (void)state;
    struct arena arena;
    arena_init(&arena, &allocator_heap);
    arena_start_block(&arena); /* of nothing */
    assert_non_null(arena_take(&arena, 1, CACHE_LINE));
    size_t bytes = taken_by(&arena);
    for (size_t before = 1; before < 100 << 10; before += 10 << 10) {
        assert_non_null(arena_take(&arena, before, 1));
        assert_int_equal(taken_by(&arena), bytes);
    }
    arena_free(&arena);
}

static void a_tally_counts_what_an_arena_takes(void **state)
{
    (void)state;
    for (size_t first = 0; first < 40; first++) {
        struct arena arena;
        struct arena_tally tally = ARENA_TALLY_STARTED;
        arena_init(&arena, &allocator_heap);
        assert_non_null(arena_take(&arena, 1, 1));
        arena_start_block(&arena);
        size_t before = arena.total_bytes;
        for (size_t i = first; i < PIECES; i++) {
            assert_non_null(arena_take_raw(&arena, piece_bytes(i), 1 + i % 3));
            arena_tally_take(&tally, piece_bytes(i), 1 + i % 3);
            assert_int_equal(tally.total_bytes, arena.total_bytes - before);
        }
        arena_free(&arena);
    }
}

static void empty_piece_is_valid(void **state)
{
    (void)state;
    struct arena arena;
    arena_init(&arena, &allocator_heap);
    assert_non_null(arena_take(&arena, 0, 8));
    assert_non_null(arena_take(&arena, 8, 0));
    assert_string_equal(arena_text(&arena, NULL, 0), "");
    arena_free(&arena);
}

static void impossible_sizes_are_refused_without_asking(void **state)
{
    (void)state;
    struct failing_allocator heap;
    struct arena arena;
    failing_allocator_init(&heap);
    arena_init(&arena, &heap.allocator);
    assert_null(arena_take(&arena, SIZE_MAX, 2));
    assert_null(arena_take(&arena, SIZE_MAX / 4, 8));
    assert_null(arena_take(&arena, SIZE_MAX, 1));
    assert_null(arena_text(&arena, "x", SIZE_MAX));
    assert_int_equal(heap.calls, 0);
    arena_free(&arena);
}

static void text_is_copied_and_terminated(void **state)
{
    (void)state;
    struct arena arena;
    char source[] = "model.layers.0";
    arena_init(&arena, &allocator_heap);
    char *copy = arena_text(&arena, source, 5);
    source[0] = '?';
    assert_string_equal(copy, "model");
    arena_free(&arena);
}

static void a_failing_allocator_leaves_the_arena_usable(void **state)
{
    (void)state;
    struct failing_allocator heap;
    failing_allocator_init(&heap);
    for (uint64_t nth = 1;; nth++) {
        struct arena arena;
        unsigned refused = 0;
        arena_init(&arena, &heap.allocator);
        failing_allocator_arm(&heap, nth);
        for (size_t i = 0; i < PIECES; i++) refused += !arena_take(&arena, piece_bytes(i), 1);
        bool fired = failing_allocator_disarm(&heap);
        assert_int_equal(refused, fired ? 1 : 0);
        assert_int_equal(arena.total_bytes, heap.live_bytes);
        arena_free(&arena);
        assert_int_equal(heap.live_bytes, 0);
        if (!fired) break;
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pieces_are_zeroed_aligned_and_apart),
        cmocka_unit_test(small_pieces_share_blocks),
        cmocka_unit_test(a_block_that_is_started_makes_sizes_repeatable),
        cmocka_unit_test(a_tally_counts_what_an_arena_takes),
        cmocka_unit_test(empty_piece_is_valid),
        cmocka_unit_test(impossible_sizes_are_refused_without_asking),
        cmocka_unit_test(text_is_copied_and_terminated),
        cmocka_unit_test(a_failing_allocator_leaves_the_arena_usable),
    };
    return cmocka_run_group_tests_name("arena", tests, NULL, NULL);
}
