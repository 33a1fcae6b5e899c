/* base/array: arrays and buffers that grow. */
#include "support/test.h"

#include "base/arena.h"
#include "base/array.h"
#include "support/failing_allocator.h"

#include <stdlib.h>

static void an_array_keeps_its_elements_while_it_grows(void **state)
{
    (void)state;
    struct failing_allocator heap;
    struct arena arena;
    failing_allocator_init(&heap);
    arena_init(&arena, &heap.allocator);
    mf_allocator of_arena = arena_allocator(&arena);
    const mf_allocator *sources[] = { NULL, &heap.allocator, &of_arena };
    for (size_t source = 0; source < COUNT_OF(sources); source++) {
        uint64_t *numbers = NULL;
        size_t capacity = 0;
        for (size_t i = 0; i < 1000; i++) {
            assert_int_equal(ARRAY_RESERVE(numbers, capacity, i + 1, sources[source], NULL), MF_OK);
            numbers[i] = i * i;
        }
        for (size_t i = 0; i < 1000; i++) assert_int_equal(numbers[i], i * i);
        if (sources[source])
            array_free(numbers, capacity, sizeof *numbers, sources[source]);
        else
            free(numbers);
    }
    arena_free(&arena);
    assert_int_equal(heap.live_bytes, 0);
}

static void a_failure_leaves_an_array_as_it_was(void **state)
{
    (void)state;
    mf_error why;
    uint64_t *numbers = NULL;
    size_t capacity = 0;
    assert_int_equal(ARRAY_RESERVE(numbers, capacity, 4, NULL, NULL), MF_OK);
    uint64_t *before = numbers;
    size_t held = capacity;
    assert_int_equal(ARRAY_RESERVE(numbers, capacity, SIZE_MAX / 4, NULL, &why), MF_ERR_MEMORY);
    assert_ptr_equal(numbers, before);
    assert_int_equal(capacity, held);
    free(numbers);
}

static void a_buffer_is_terminated_and_may_hold_any_byte(void **state)
{
    (void)state;
    struct byte_buffer text = { 0 };
    for (int i = 0; i < 100; i++) byte_buffer_append(&text, "a\0b", 3);
    byte_buffer_append_text(&text, "end");
    assert_int_equal(byte_buffer_status(&text, NULL), MF_OK);
    assert_int_equal(text.count, 303);
    assert_memory_equal(text.data + 297, "a\0bend", 7);
    byte_buffer_free(&text);
    assert_null(text.data);
    assert_true(byte_buffer_append_text(&text, ""));
    assert_string_equal(text.data, "");
    byte_buffer_free(&text);
}

static void the_first_failure_of_a_buffer_sticks(void **state)
{
    (void)state;
    mf_error why;
    struct byte_buffer text = { 0 };
    byte_buffer_append_text(&text, "kept");
    assert_false(byte_buffer_reserve(&text, SIZE_MAX / 2));
    assert_false(byte_buffer_append_text(&text, "!"));
    assert_int_equal(byte_buffer_status(&text, &why), MF_ERR_MEMORY);
    assert_string_equal(text.data, "kept");
    byte_buffer_free(&text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_array_keeps_its_elements_while_it_grows),
        cmocka_unit_test(a_failure_leaves_an_array_as_it_was),
        cmocka_unit_test(a_buffer_is_terminated_and_may_hold_any_byte),
        cmocka_unit_test(the_first_failure_of_a_buffer_sticks),
    };
    return cmocka_run_group_tests_name("array", tests, NULL, NULL);
}
