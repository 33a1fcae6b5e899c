/* store: whichever call of the disk or of the allocator fails, once or for good, and whatever a
 * power cut leaves: the directory opens afterwards, serves nothing wrong and keeps its limit. */
#include "support/test.h"

#include "support/cache_texts.h"
#include "support/failing_allocator.h"
#include "support/memory_disk.h"

#include <stdio.h>
#include <stdlib.h>

enum { TEXTS = 9, BYTES = 5000, LIMIT = 110000 };

struct bench {
    struct memory_disk disk;
    struct failing_allocator heap;
    struct cache_store *store;
    struct cache_key root;
    struct cache_text texts[TEXTS];
};

static mf_status open_store(struct bench *b)
{
    bool held;
    struct cache_store_options options = { .directory = "cache",
                                           .limit_bytes = LIMIT,
                                           .allocator = &b->heap.allocator,
                                           .disk = &b->disk.disk,
                                           .files = &b->disk.files };
    mf_status status = cache_store_open(&b->store, &held, &options, NULL);
    assert_false(held);
    if (status == MF_OK) status = cache_store_root(&b->root, b->store, "model", 5, "label", NULL);
    if (status == MF_OK) return MF_OK;
    cache_store_close(b->store);
    b->store = NULL;
    return status;
}

static void close_store(struct bench *b)
{
    cache_store_close(b->store);
    b->store = NULL;
    assert_int_equal(b->disk.open_count, 0);
    assert_int_equal(b->heap.live_bytes, 0);
}

static void make_texts(struct bench *b)
{
    for (uint32_t i = 0; i < TEXTS; i++)
        cache_text_make(&b->texts[i], b->store, i % 3 == 2 ? CACHE_CHECKPOINT : CACHE_PAGE,
                        &b->root, i % 3 == 0 ? NULL : &b->texts[i - i % 3], i, 64, BYTES);
}

/* Everything that writes: puts, enough for evictions, touches that make the journal be
 * written anew, a drop, and a put again. */
static void use_store(struct bench *b)
{
    make_texts(b);
    for (uint32_t i = 0; i < TEXTS; i++) {
        cache_text_put(b->store, &b->texts[i]);
        assert_true(cache_store_check_invariants(b->store));
    }
    for (uint32_t i = 0; i < 240; i++) {
        cache_store_touch(b->store, &b->texts[i % TEXTS].record.key);
        if (i % 6 == 0) cache_store_flush(b->store);
    }
    cache_store_drop(b->store, &b->texts[6].record.key);
    cache_text_put(b->store, &b->texts[6]);
    cache_store_flush(b->store);
    assert_true(cache_store_check_invariants(b->store));
    assert_true(cache_text_get_all(b->store, &b->root) >= 0);
}

struct tally {
    struct memory_disk *disk;
    uint64_t bytes, files;
};

static void count_file(void *context, const char *name)
{
    struct tally *tally = context;
    char path[128];
    snprintf(path, sizeof path, "cache/%s", name);
    const struct memory_bytes *bytes = memory_disk_find(tally->disk, path);
    tally->bytes += bytes ? align_up(bytes->count, 4096) : 0;
    tally->files++;
}

static void check_limit(struct bench *b)
{
    struct tally tally = { &b->disk, 0, 0 };
    b->disk.files.list(b->disk.files.user, "cache", count_file, &tally);
    assert_true(tally.bytes <= LIMIT);
}

/* After the failure everything works again. */
static void check_directory(struct bench *b)
{
    struct tally tally = { &b->disk, 0, 0 };
    check_limit(b);
    assert_int_equal(open_store(b), MF_OK);
    assert_true(cache_store_check_invariants(b->store));
    int right = cache_text_get_all(b->store, &b->root);
    struct cache_store_statistics s = cache_store_statistics(b->store);
    assert_int_equal(right, s.records); /* nothing wrong, and nothing that cannot be read */
    b->disk.files.list(b->disk.files.user, "cache", count_file, &tally);
    assert_int_equal(tally.files, 3 + s.records);
    use_store(b);
    assert_true(cache_text_get_all(b->store, &b->root) >= 3);
    assert_true(cache_store_statistics(b->store).evicted > 0);
    check_limit(b);
    close_store(b);
}

static struct bench *bench_new(void)
{
    struct bench *b = calloc(1, sizeof *b);
    assert_non_null(b);
    memory_disk_init(&b->disk);
    failing_allocator_init(&b->heap);
    return b;
}

static void bench_free(struct bench *b)
{
    memory_disk_free(&b->disk);
    free(b);
}

/* From an empty directory, or from one that was used before.  False: there is no nth call. */
static bool fail_call(uint64_t nth, enum stop_kind kind, bool used, bool power_cut)
{
    struct bench *b = bench_new();
    if (used) {
        assert_int_equal(open_store(b), MF_OK);
        use_store(b);
        close_store(b);
    }
    memory_disk_stop(&b->disk, nth, kind);
    if (open_store(b) == MF_OK) {
        use_store(b);
        close_store(b);
    }
    bool fired = memory_disk_restart(&b->disk, power_cut);
    if (kind == FAIL_BEFORE || kind == FAIL_AFTER || !power_cut) check_limit(b);
    check_directory(b);
    bench_free(b);
    return fired;
}

static uint64_t fail_every_call(enum stop_kind kind, bool used, bool power_cut)
{
    uint64_t nth = 1;
    while (fail_call(nth, kind, used, power_cut)) nth++;
    return nth - 1;
}

static void every_call_of_the_disk_may_fail_once(void **state)
{
    (void)state;
    for (int used = 0; used < 2; used++) {
        assert_true(fail_every_call(FAIL_BEFORE, used, false) > 100);
        assert_true(fail_every_call(FAIL_AFTER, used, false) > 100);
    }
}

static void the_process_may_end_at_every_call(void **state)
{
    (void)state;
    for (int used = 0; used < 2; used++) {
        fail_every_call(STOP_BEFORE, used, false);
        fail_every_call(STOP_AFTER, used, false);
    }
}

static void the_power_may_fail_at_every_call(void **state)
{
    (void)state;
    for (int used = 0; used < 2; used++) {
        fail_every_call(STOP_BEFORE, used, true);
        fail_every_call(STOP_AFTER, used, true);
    }
}

static void writes_may_be_short_and_the_disk_full(void **state)
{
    (void)state;
    for (uint64_t capacity = 0; capacity < 120000; capacity += 700) {
        struct bench *b = bench_new();
        b->disk.piece = 1000;
        b->disk.capacity = capacity;
        if (open_store(b) == MF_OK) {
            use_store(b);
            close_store(b);
        }
        b->disk.capacity = 0;
        check_directory(b);
        bench_free(b);
    }
}

static void every_allocation_may_fail(void **state)
{
    bool fired = true;
    (void)state;
    for (uint64_t nth = 1; fired; nth++) {
        struct bench *b = bench_new();
        failing_allocator_arm(&b->heap, nth);
        if (open_store(b) == MF_OK) {
            use_store(b);
            close_store(b);
        }
        fired = failing_allocator_disarm(&b->heap);
        check_directory(b);
        bench_free(b);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_call_of_the_disk_may_fail_once),
        cmocka_unit_test(the_process_may_end_at_every_call),
        cmocka_unit_test(the_power_may_fail_at_every_call),
        cmocka_unit_test(writes_may_be_short_and_the_disk_full),
        cmocka_unit_test(every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
