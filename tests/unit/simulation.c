/* simulation: hits are counted as by hand, Belady's choice is the best there is, and on a
 * recorded text every policy finds what it found before. */
#include "support/test.h"

#include "base/file.h"
#include "experts/simulation.h"
#include "support/byte_writer.h"
#include "support/failing_allocator.h"

#include <stdio.h>
#include <stdlib.h>

enum { EXPERTS = 5 };

static struct failing_allocator heap;
static struct byte_writer file;
static struct route_trace trace;

static bool take_bytes(void *user, const void *bytes, size_t count)
{
    (void)user;
    put_bytes(&file, bytes, count);
    return true;
}

/* Of layers whose tokens choose one expert each: choices[token x layers + layer]. */
static void make_trace(const uint32_t *choices, uint32_t layers, uint32_t tokens,
                       const uint64_t *slot_bytes)
{
    struct route_writer writer;
    struct route_shape shape = { .layers = layers,
                                 .experts = EXPERTS,
                                 .per_token = 1,
                                 .name = "made",
                                 .expert_bytes = slot_bytes,
                                 .slot_bytes = slot_bytes };
    byte_writer_free(&file);
    assert_int_equal(route_writer_open(&writer, &heap.allocator, &shape, take_bytes, NULL, NULL),
                     MF_OK);
    for (uint32_t t = 0; t < tokens; t++)
        for (uint32_t layer = 0; layer < layers; layer++) {
            float weight = 1.0f;
            int32_t token = (int32_t)t;
            struct route_choice choice = { layer, 1, &token, &choices[t * layers + layer],
                                           &weight };
            route_writer_add(&writer, &choice);
        }
    assert_int_equal(route_writer_end(&writer, 0, NULL), MF_OK);
    route_writer_free(&writer);
    assert_int_equal(route_trace_open(&trace, &heap.allocator, file.bytes, file.count, NULL),
                     MF_OK);
}

static struct simulation_result run(enum cache_policy policy, uint64_t budget, uint32_t rows)
{
    struct simulation_result result;
    struct simulation_setting setting = { policy, budget, rows };
    mf_error why = { 0 };
    mf_status status = simulation_run(&result, &trace, &setting, &heap.allocator, &why);
    if (status != MF_OK) fail_msg("%s", why.text);
    assert_true(result.hits <= result.uses);
    return result;
}

static int set_up(void **state)
{
    (void)state;
    failing_allocator_init(&heap);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    route_trace_free(&trace);
    byte_writer_free(&file);
    return heap.live_bytes == 0 ? 0 : -1;
}

/* Four experts in turn, slots for three: LRU always evicts the expert that is needed next. */
static void cyclic_use_is_the_worst_case_of_lru(void **state)
{
    (void)state;
    static const uint64_t bytes[] = { 10 };
    uint32_t choices[40];
    for (uint32_t i = 0; i < 40; i++) choices[i] = i % 4;
    make_trace(choices, 1, 40, bytes);
    struct simulation_result lru = run(CACHE_LRU, 30, 1), best = run(CACHE_BELADY, 30, 1);
    assert_int_equal(lru.slots, 3);
    assert_int_equal(lru.experts, EXPERTS);
    assert_int_equal(lru.uses, 40);
    assert_int_equal(lru.hits, 0);
    assert_int_equal(lru.bytes_read, 400);
    assert_int_equal(best.hits, 24); /* of 36 that could be hits, two in three */
}

static void with_room_for_all_each_is_read_once(void **state)
{
    (void)state;
    static const uint64_t bytes[] = { 10, 30 };
    uint32_t choices[200], seen[2 * EXPERTS] = { 0 };
    uint64_t expected = 0;
    srand(3);
    for (uint32_t i = 0; i < 200; i++) {
        choices[i] = (uint32_t)rand() % EXPERTS;
        seen[i % 2 * EXPERTS + choices[i]] = 1;
    }
    for (uint32_t i = 0; i < 2 * EXPERTS; i++) expected += seen[i] * bytes[i / EXPERTS];
    make_trace(choices, 2, 100, bytes);
    assert_int_equal(simulation_full_bytes(&trace), EXPERTS * 40);
    for (int policy = 0; policy < CACHE_POLICIES; policy++) {
        struct simulation_result result = run((enum cache_policy)policy, EXPERTS * 40, 1);
        assert_true(result.resident);
        assert_int_equal(result.tokens, 100);
        assert_int_equal(result.bytes_read, expected);
    }
}

/* The hits of the best choice of victims, by trying all of them. */
static uint32_t most_hits(const uint32_t *choices, uint32_t count, uint32_t held, uint32_t slots)
{
    if (count == 0) return 0;
    uint32_t one = 1u << choices[0], best = 0;
    if (held & one) return 1 + most_hits(choices + 1, count - 1, held, slots);
    if ((uint32_t)__builtin_popcount(held) < slots)
        return most_hits(choices + 1, count - 1, held | one, slots);
    for (uint32_t e = 0; e < EXPERTS; e++) {
        if (!(held & 1u << e)) continue;
        uint32_t hits = most_hits(choices + 1, count - 1, (held & ~(1u << e)) | one, slots);
        if (hits > best) best = hits;
    }
    return best;
}

static void belady_is_the_best(void **state)
{
    (void)state;
    static const uint64_t bytes[] = { 1 };
    uint32_t choices[14];
    srand(11);
    for (int round = 0; round < 100; round++) {
        for (uint32_t i = 0; i < 14; i++) choices[i] = (uint32_t)rand() % EXPERTS;
        make_trace(choices, 1, 14, bytes);
        assert_int_equal(run(CACHE_BELADY, 3, 1).hits, most_hits(choices, 14, 0, 3));
        route_trace_free(&trace);
    }
}

static void no_policy_beats_belady(void **state)
{
    (void)state;
    static const uint64_t bytes[] = { 10, 20, 10 };
    uint32_t choices[3 * 400];
    srand(5);
    for (uint32_t i = 0; i < 3 * 400; i++) /* small ones more often */
        choices[i] = (uint32_t)(rand() % EXPERTS * (rand() % EXPERTS)) / EXPERTS;
    make_trace(choices, 3, 400, bytes);
    for (uint64_t budget = 90; budget <= 200; budget += 10)
        for (uint32_t rows = 0; rows < 4; rows++) {
            uint64_t best = run(CACHE_BELADY, budget, rows).hits;
            for (int policy = 0; policy < CACHE_POLICIES; policy++)
                assert_true(run((enum cache_policy)policy, budget, rows).hits <= best);
        }
}

/* Tokens that are computed together ask once for what they share. */
static void rows_are_joined(void **state)
{
    (void)state;
    static const uint64_t bytes[] = { 10 };
    static const uint32_t choices[] = { 0, 0, 1, 2, 0, 3, 3 };
    make_trace(choices, 1, 7, bytes);
    struct simulation_result pairs = run(CACHE_LRU, 50, 2);
    assert_int_equal(pairs.uses, 1 + 2 + 2 + 1);
    assert_int_equal(pairs.hits, 0 + 0 + 1 + 1);
    assert_int_equal(pairs.tokens, 7);
    struct simulation_result all = run(CACHE_S3_FIFO, 30, 7); /* four experts, three slots */
    assert_int_equal(all.uses, 4);
    assert_int_equal(all.bytes_read, 40);
}

static void too_little_is_refused(void **state)
{
    (void)state;
    static const uint64_t bytes[] = { 10 };
    static const uint32_t choices[] = { 0, 1 };
    struct simulation_result result;
    struct simulation_setting setting = { CACHE_LRU, 29, 1 };
    mf_error why = { 0 };
    make_trace(choices, 1, 2, bytes);
    assert_int_equal(simulation_run(&result, &trace, &setting, &heap.allocator, &why),
                     MF_ERR_MEMORY);
    assert_non_null(strstr(why.text, "3 of them"));
    for (int policy = 0; policy < CACHE_POLICIES; policy++)
        for (uint64_t nth = 1;; nth++) {
            setting = (struct simulation_setting){ (enum cache_policy)policy, 30, 1 };
            failing_allocator_arm(&heap, nth);
            mf_status status = simulation_run(&result, &trace, &setting, &heap.allocator, NULL);
            bool fired = failing_allocator_disarm(&heap);
            assert_int_equal(status, fired ? MF_ERR_MEMORY : MF_OK);
            if (!fired) break;
        }
}

/* 552 tokens of Pebble's held-out text, one at a time and in pieces of 64, with room for a
 * quarter of the experts.  A change of the policy changes its line. */
static void a_recorded_text_gives_the_same_hits(void **state)
{
    (void)state;
    static const struct {
        uint32_t rows, uses;
        uint32_t hits[CACHE_POLICIES]; /* belady, moeflux, lfu, lru, s3-fifo */
    } known[] = { { 1, 35328, { 21907, 13028, 12202, 11204, 10644 } },
                  { 64, 4570, { 641, 620, 241, 0, 0 } } };
    const char *source = getenv("MOEFLUX_SOURCE");
    char path[PATH_CAPACITY], *bytes;
    size_t length;
    mf_error why = { 0 };
    snprintf(path, sizeof path, "%s/tests/fixtures/pebble/heldout.routes", source ? source : ".");
    mf_status status = file_read_whole_new(&bytes, &length, &files_posix, path, 1 << 20, &why);
    if (status == MF_OK) status = route_trace_open(&trace, &heap.allocator, bytes, length, &why);
    if (status != MF_OK) fail_msg("%s", why.text);
    for (size_t i = 0; i < COUNT_OF(known); i++)
        for (int policy = 0; policy < CACHE_POLICIES; policy++) {
            struct simulation_result result =
                run((enum cache_policy)policy, simulation_full_bytes(&trace) / 4, known[i].rows);
            assert_int_equal(result.slots, 128);
            assert_int_equal(result.uses, known[i].uses);
            assert_int_equal(result.hits, known[i].hits[policy]);
        }
    route_trace_free(&trace);
    free(bytes);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(cyclic_use_is_the_worst_case_of_lru),
        TEST(with_room_for_all_each_is_read_once),
        TEST(belady_is_the_best),
        TEST(no_policy_beats_belady),
        TEST(rows_are_joined),
        TEST(too_little_is_refused),
        TEST(a_recorded_text_gives_the_same_hits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
