/* far_state: pages and recurrent states in the memory of a device, which the host cannot address:
 * forks, snapshots, windows and the cache on disk work as with memory of the host. */
#include "support/test.h"

#include "state/prefix_disk.h"
#include "state/snapshot.h"
#include "support/prefix_bench.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { CAPACITY = 1024, KINDS = 3, WINDOW = 100 };

static const struct snapshot_identity identity = { "model", "arithmetic" };

/* Attention alone, recurrent layers, windows. */
static void open_bench(struct prefix_bench *bench, int kind, bool far)
{
    prefix_bench_open(bench, &(struct prefix_bench_options){ .recurrent = kind == 1,
                                                             .window = kind == 2 ? WINDOW : 0,
                                                             .no_tree = true,
                                                             .far = far });
}

static void feed(struct sequence *sequence, uint32_t count, int32_t first)
{
    int32_t tokens[CAPACITY];
    for (uint32_t i = 0; i < count; i++) tokens[i] = (first + (int32_t)i) % 50;
    assert_int_equal(prefix_bench_feed(sequence, tokens, count, false), MF_OK);
}

static void forks_have_pages_of_their_own(void **state)
{
    (void)state;
    for (int kind = 0; kind < KINDS; kind++) {
        struct prefix_bench b;
        struct sequence one, two;
        open_bench(&b, kind, true);
        sequence_init(&one, &b.pool, CAPACITY);
        feed(&one, 150, 1);
        assert_int_equal(sequence_fork(&two, &one, NULL), MF_OK);
        feed(&one, 100, 7);
        feed(&two, 30, 9);
        assert_true(prefix_bench_verify(&one) && prefix_bench_verify(&two));
        sequence_free(&one);
        sequence_free(&two);
        prefix_bench_close(&b);
    }
}

/* The bytes of a snapshot of `count` tokens. */
static uint8_t *snapshot_of(size_t *bytes, struct prefix_bench *bench, uint32_t count)
{
    struct sequence sequence;
    sequence_init(&sequence, &bench->pool, CAPACITY);
    feed(&sequence, count, 3);
    *bytes = snapshot_bytes(&sequence, NULL);
    uint8_t *out = malloc(*bytes);
    assert_non_null(out);
    assert_int_equal(snapshot_write(out, &sequence, NULL, &identity, NULL), MF_OK);
    sequence_free(&sequence);
    return out;
}

static void check_loaded(struct prefix_bench *bench, const uint8_t *snapshot, size_t bytes)
{
    struct sequence loaded;
    float *logits;
    sequence_init(&loaded, &bench->pool, CAPACITY);
    assert_int_equal(snapshot_read(&loaded, &logits, snapshot, bytes, &identity, NULL), MF_OK);
    assert_true(prefix_bench_verify(&loaded));
    feed(&loaded, 80, 5);
    assert_true(prefix_bench_verify(&loaded));
    sequence_free(&loaded);
}

static void snapshots_travel_between_host_and_device(void **state)
{
    (void)state;
    for (int kind = 0; kind < KINDS; kind++) {
        struct prefix_bench near, far;
        size_t near_bytes, far_bytes;
        open_bench(&near, kind, false);
        open_bench(&far, kind, true);
        uint8_t *from_near = snapshot_of(&near_bytes, &near, 300);
        uint8_t *from_far = snapshot_of(&far_bytes, &far, 300);
        assert_int_equal(near_bytes, far_bytes);
        check_loaded(&near, from_far, far_bytes);
        check_loaded(&far, from_near, near_bytes);
        free(from_near);
        free(from_far);
        prefix_bench_close(&near);
        prefix_bench_close(&far);
    }
}

/* Whichever copy fails, the call says so, and the sequence is as it was. */
static void failing_copies_are_reported(void **state)
{
    struct prefix_bench b;
    struct sequence sequence, fork, loaded;
    float *logits;
    size_t bytes, failed = 0;
    (void)state;
    open_bench(&b, 1, true);
    uint8_t *snapshot = snapshot_of(&bytes, &b, 200), *again = malloc(bytes);
    assert_non_null(again);
    sequence_init(&sequence, &b.pool, CAPACITY);
    feed(&sequence, 200, 3);
    for (size_t nth = 1;; nth++) {
        mf_error why = { .text = "" };
        b.far.fails_after = nth;
        mf_status status = snapshot_write(again, &sequence, NULL, &identity, &why);
        sequence_init(&loaded, &b.pool, CAPACITY);
        if (status == MF_OK)
            status = snapshot_read(&loaded, &logits, snapshot, bytes, &identity, &why);
        assert_int_equal(sequence_fork(&fork, &sequence, NULL), MF_OK);
        if (status == MF_OK) status = sequence_reserve(&fork, 1, &why);
        bool fired = b.far.fails_after == 0;
        b.far.fails_after = 0;
        sequence_free(&loaded);
        sequence_free(&fork);
        assert_int_equal(status, fired ? MF_ERR_DEVICE : MF_OK);
        assert_true(prefix_bench_verify(&sequence));
        if (!fired) break;
        assert_non_null(strstr(why.text, "device"));
        failed++;
    }
    assert_true(failed >= 8);
    sequence_free(&sequence);
    free(snapshot);
    free(again);
    prefix_bench_close(&b);
}

/* ------------------------------------------------------------------------------------ on disk */

static struct prefix_disk open_disk(struct state_pool *pool, const char *directory)
{
    struct prefix_disk disk = { .pool = pool };
    struct cache_store_options options = { .directory = directory, .limit_bytes = 1 << 24 };
    bool held;
    assert_int_equal(cache_store_open(&disk.store, &held, &options, NULL), MF_OK);
    assert_false(held);
    assert_int_equal(cache_store_root(&disk.root, disk.store, "far", 3, "far", NULL), MF_OK);
    return disk;
}

static void *state_of(const struct sequence *sequence)
{
    void *kept = NULL;
    if (state_is_kept(&sequence->pool->shape))
        assert_int_equal(sequence_state(&kept, sequence, NULL), MF_OK);
    return kept;
}

static void states_are_found_on_disk(void **state)
{
    (void)state;
    for (int kind = 0; kind < KINDS; kind++) {
        char directory[] = "/tmp/moeflux_far.XXXXXX", command[64];
        struct prefix_bench b;
        struct sequence sequence, loaded;
        enum prefix_place place;
        int32_t tokens[200];
        assert_non_null(mkdtemp(directory));
        open_bench(&b, kind, true);
        struct prefix_disk disk = open_disk(&b.pool, directory);
        sequence_init(&sequence, &b.pool, CAPACITY);
        sequence_init(&loaded, &b.pool, CAPACITY);
        feed(&sequence, 200, 3);
        for (uint32_t i = 0; i < 200; i++) tokens[i] = (int32_t)sequence.tokens[i];

        void *kept = state_of(&sequence);
        prefix_disk_keep(&disk, &sequence, 200, kept, PREFIX_HEAD);
        if (kept) state_pool_drop(&b.pool, BLOCK_RECURRENT, kept);
        sequence_free(&sequence);
        while (prefix_disk_wait(&disk)) continue;
        cache_store_close(disk.store);

        disk = open_disk(&b.pool, directory);
        assert_true(prefix_disk_load(&loaded, &place, &disk, tokens, 200, 0, false));
        assert_int_equal(loaded.position, 200);
        assert_true(prefix_bench_verify(&loaded));
        sequence_free(&loaded);
        cache_store_close(disk.store);
        prefix_bench_close(&b);
        snprintf(command, sizeof command, "rm -r '%s'", directory);
        assert_int_equal(system(command), 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(forks_have_pages_of_their_own),
        cmocka_unit_test(snapshots_travel_between_host_and_device),
        cmocka_unit_test(failing_copies_are_reported),
        cmocka_unit_test(states_are_found_on_disk),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
