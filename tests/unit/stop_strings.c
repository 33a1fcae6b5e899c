/* Stop strings: the same answer however the text is cut, and nothing held longer than needed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "base/arena.h"
#include "sampling/random.h"
#include "chat/stop_strings.h"
#include "support/failing_allocator.h"

#include <stdio.h>

struct output {
    char text[4096];
    size_t length;
};

static void collect(void *user, const char *text, size_t length)
{
    struct output *output = user;
    assert_true(output->length + length < sizeof output->text);
    assert_true(length > 0);
    memcpy(output->text + output->length, text, length);
    output->length += length;
    output->text[output->length] = '\0';
}

static struct stop_strings *open_stops(const char *const *strings, size_t count)
{
    struct stop_strings *stops;
    mf_error why;
    if (stop_strings_new(&stops, &allocator_heap, strings, count, &why) != MF_OK)
        fail_msg("%s", why.text);
    return stops;
}

static void text_is_emitted_as_soon_as_it_is_certain(void **state)
{
    (void)state;
    const char *strings[] = { "\nUser:" };
    static const struct {
        const char *in, *out;
    } steps[] = {
        { "Hi", "Hi" }, { "\n", "Hi" },           { "Us", "Hi" },
        { "", "Hi" },   { "age\n", "Hi\nUsage" }, { "\nUse", "Hi\nUsage\n" },
    };
    struct stop_strings *stops = open_stops(strings, 1);
    struct output output = { 0 };
    for (size_t i = 0; i < COUNT_OF(steps); i++) {
        assert_false(stop_strings_feed(stops, steps[i].in, strlen(steps[i].in), collect, &output));
        assert_string_equal(output.text, steps[i].out);
    }
    assert_null(stop_strings_found(stops));
    assert_true(stop_strings_feed(stops, "r: more", 7, collect, &output));
    assert_string_equal(output.text, "Hi\nUsage\n");
    assert_string_equal(stop_strings_found(stops), "\nUser:");
    assert_true(stop_strings_feed(stops, "x", 1, collect, &output)); /* dropped */
    stop_strings_finish(stops, collect, &output);
    assert_string_equal(output.text, "Hi\nUsage\n");

    output = (struct output){ 0 }; /* finish has reset it */
    assert_false(stop_strings_feed(stops, "a\nUse", 5, collect, &output));
    assert_string_equal(output.text, "a");
    stop_strings_finish(stops, collect, &output);
    assert_string_equal(output.text, "a\nUse");
    stop_strings_free(stops);
}

/* The text before the first completed stop string; false when there is none. */
static bool reference(char *out, const char *text, const char *const *strings, size_t count)
{
    for (size_t end = 1; end <= strlen(text); end++) {
        size_t longest = 0;
        for (size_t i = 0; i < count; i++) {
            size_t n = strlen(strings[i]);
            if (n <= end && n > longest && memcmp(text + end - n, strings[i], n) == 0) longest = n;
        }
        if (longest) {
            memcpy(out, text, end - longest);
            out[end - longest] = '\0';
            return true;
        }
    }
    strcpy(out, text);
    return false;
}

static void random_word(char *out, size_t length, struct random *random)
{
    for (size_t i = 0; i < length; i++) out[i] = "aab"[random_next(random) % 3];
    out[length] = '\0';
}

static void every_cut_gives_the_same_answer(void **state)
{
    (void)state;
    struct random random;
    random_seed(&random, 8);
    for (size_t round = 0; round < 5000; round++) {
        char words[3][8], text[64], expected[64];
        const char *strings[3];
        size_t count = 1 + random_next(&random) % 3;
        for (size_t i = 0; i < count; i++) {
            random_word(words[i], 2 + random_next(&random) % 6, &random);
            strings[i] = words[i];
        }
        random_word(text, random_next(&random) % 60, &random);
        bool expect_found = reference(expected, text, strings, count);

        struct stop_strings *stops = open_stops(strings, count);
        struct output output = { 0 };
        bool found = false;
        for (size_t at = 0; at < strlen(text) && !found;) {
            size_t n = 1 + random_next(&random) % 5;
            n = min_size(n, strlen(text) - at);
            found = stop_strings_feed(stops, text + at, n, collect, &output);
            at += n;
        }
        if (!found) stop_strings_finish(stops, collect, &output);
        assert_int_equal(found, expect_found);
        assert_string_equal(output.text, expected);
        stop_strings_free(stops);
    }
}

static void without_stop_strings_text_is_not_held_back(void **state)
{
    (void)state;
    struct stop_strings *stops = open_stops(NULL, 0);
    struct output output = { 0 };
    assert_false(stop_strings_feed(stops, "anything\0at all", 15, collect, &output));
    assert_int_equal(output.length, 15);
    stop_strings_free(stops);
}

static void wrong_strings_and_failing_allocations_are_reported(void **state)
{
    (void)state;
    struct stop_strings *stops;
    mf_error why;
    const char *empty[] = { "a", "" };
    assert_int_equal(stop_strings_new(&stops, &allocator_heap, empty, 2, &why), MF_ERR_ARGUMENT);
    assert_non_null(strstr(why.text, "empty"));
    static char text[STOP_STRING_BYTES_LIMIT + 2];
    memset(text, 'x', sizeof text - 1);
    const char *longer[] = { text };
    assert_int_equal(stop_strings_new(&stops, &allocator_heap, longer, 1, &why), MF_ERR_ARGUMENT);
    assert_null(stops);
    assert_int_equal(stop_strings_new(&stops, &allocator_heap, empty, 65, &why), MF_ERR_ARGUMENT);

    text[STOP_STRING_BYTES_LIMIT] = '\0';
    struct failing_allocator heap;
    failing_allocator_init(&heap);
    for (uint64_t nth = 1;; nth++) {
        failing_allocator_arm(&heap, nth);
        mf_status status = stop_strings_new(&stops, &heap.allocator, longer, 1, NULL);
        bool fired = failing_allocator_disarm(&heap);
        assert_int_equal(status, fired ? MF_ERR_MEMORY : MF_OK);
        stop_strings_free(stops);
        assert_int_equal(heap.live_bytes, 0);
        if (!fired) break;
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(text_is_emitted_as_soon_as_it_is_certain),
        cmocka_unit_test(every_cut_gives_the_same_answer),
        cmocka_unit_test(without_stop_strings_text_is_not_held_back),
        cmocka_unit_test(wrong_strings_and_failing_allocations_are_reported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
