/* store: pages and checkpoints of a cache directory: kept, found again, evicted, and never served
 * damaged.  The disk is in memory. */
#include "support/test.h"

#include "support/cache_texts.h"
#include "support/failing_allocator.h"
#include "support/memory_disk.h"

#include <stdio.h>
#include <stdlib.h>

enum { PAGE = CACHE_TOKENS_MAX, BYTES = 3000 };

/* -------------------------------------------------------------------- bench */

struct bench {
    struct memory_disk disk;
    struct failing_allocator heap;
    struct clock clock;
    double now;
    struct cache_store *store;
    struct cache_key root;
};

static double read_clock(void *user)
{
    return ((struct bench *)user)->now;
}

static struct bench *bench_new(void)
{
    struct bench *b = calloc(1, sizeof *b);
    assert_non_null(b);
    memory_disk_init(&b->disk);
    failing_allocator_init(&b->heap);
    b->clock = (struct clock){ read_clock, b };
    b->now = 1e9;
    return b;
}

static mf_status try_open(struct bench *b, uint64_t limit_bytes, bool look_only, mf_error *why)
{
    bool held;
    struct cache_store_options options = { .directory = "cache",
                                           .limit_bytes = limit_bytes,
                                           .allocator = &b->heap.allocator,
                                           .disk = &b->disk.disk,
                                           .files = &b->disk.files,
                                           .clock = &b->clock,
                                           .look_only = look_only };
    mf_status status = cache_store_open(&b->store, &held, &options, why);
    if (status == MF_OK)
        status = cache_store_root(&b->root, b->store, "a model", 7, "a label", why);
    return status;
}

static void bench_open(struct bench *b, uint64_t limit_bytes)
{
    mf_error why;
    if (try_open(b, limit_bytes, false, &why) != MF_OK) fail_msg("%s", why.text);
}

static void bench_shut(struct bench *b)
{
    if (b->store) assert_true(cache_store_check_invariants(b->store));
    cache_store_close(b->store);
    b->store = NULL;
    assert_int_equal(b->disk.open_count, 0);
    assert_int_equal(b->heap.live_bytes, 0);
}

static void bench_free(struct bench *b)
{
    bench_shut(b);
    memory_disk_free(&b->disk);
    free(b);
}

static void reopen(struct bench *b, uint64_t limit_bytes)
{
    bench_shut(b);
    bench_open(b, limit_bytes);
}

struct tally {
    struct memory_disk *disk;
    uint64_t bytes;
    size_t files;
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

/* The disk is for one thread at a time: the store's has nothing left to do. */
static struct tally files_of(struct bench *b)
{
    struct tally tally = { &b->disk, 0, 0 };
    if (b->store) cache_store_flush(b->store);
    b->disk.files.list(b->disk.files.user, "cache", count_file, &tally);
    return tally;
}

static void page(struct bench *b, struct cache_text *out, const struct cache_text *parent,
                 uint32_t seed)
{
    cache_text_make(out, b->store, CACHE_PAGE, &b->root, parent, seed, PAGE, BYTES);
}

static void put(struct bench *b, const struct cache_text *text)
{
    assert_int_equal(cache_text_put(b->store, text), MF_OK);
}

/* A text of three pages with a checkpoint in the third. */
struct story {
    struct cache_text pages[3], checkpoint;
};

static void make_story(struct bench *b, struct story *out, uint32_t seed)
{
    for (uint32_t i = 0; i < 3; i++)
        page(b, &out->pages[i], i ? &out->pages[i - 1] : NULL, seed + i);
    cache_text_make(&out->checkpoint, b->store, CACHE_CHECKPOINT, &b->root, &out->pages[1],
                    seed + 2, 40, BYTES);
}

static void put_story(struct bench *b, const struct story *story)
{
    for (uint32_t i = 0; i < 3; i++) put(b, &story->pages[i]);
    put(b, &story->checkpoint);
}

static bool has(struct bench *b, const struct cache_text *text)
{
    return cache_store_has(b->store, &text->record.key);
}

#define PLENTY UINT64_C(10000000)

/* ------------------------------------------------------------ putting, getting */

static void what_is_put_is_found_also_after_a_restart(void **state)
{
    struct bench *b = bench_new();
    struct story story;
    (void)state;
    bench_open(b, PLENTY);
    make_story(b, &story, 1);
    put_story(b, &story);
    for (int restart = 0; restart < 3; restart++) {
        assert_int_equal(cache_text_get_all(b->store, &b->root), 4);
        assert_int_equal(cache_text_get(b->store, &story.checkpoint.record), 1);
        struct cache_store_statistics s = cache_store_statistics(b->store);
        assert_int_equal(s.pages, 3);
        assert_int_equal(s.checkpoints, 1);
        assert_int_equal(s.misses + s.damaged + s.strangers + s.missing, 0);
        assert_true(files_of(b).bytes <= s.used_bytes);
        reopen(b, PLENTY);
    }
    bench_free(b);
}

struct order {
    struct cache_key keys[8];
    uint32_t place, count;
    double hits, used;
};

static void note_order(void *user, const struct cache_record *record)
{
    struct order *order = user;
    order->keys[order->count++] = record->key;
    if (record->kind == CACHE_CHECKPOINT) order->place = record->place;
    if (record->first == 0) order->hits = record->hits;
    if (record->first == 0) order->used = record->used;
}

static void records_come_parents_first_with_all_that_was_given(void **state)
{
    struct bench *b = bench_new();
    struct story story;
    (void)state;
    bench_open(b, PLENTY);
    make_story(b, &story, 1);
    story.checkpoint.record.place = 5;
    put_story(b, &story);
    b->now += 6 * 3600;
    cache_store_touch(b->store, &story.pages[0].record.key);
    b->now += 6 * 3600;
    cache_store_touch(b->store, &story.pages[0].record.key);
    for (int restart = 0; restart < 2; restart++) {
        struct order order = { 0 };
        cache_store_each(b->store, &b->root, note_order, &order);
        assert_int_equal(order.count, 4);
        assert_memory_equal(&order.keys[0], &story.pages[0].record.key, 16);
        assert_memory_equal(&order.keys[1], &story.pages[1].record.key, 16);
        assert_int_equal(order.place, 5);
        assert_true(order.hits == 1.5); /* one of them is a half-life old */
        assert_true(order.used == b->now);
        reopen(b, PLENTY);
    }
    bench_free(b);
}

static void a_put_without_its_parent_is_refused(void **state)
{
    struct bench *b = bench_new();
    struct story story, other;
    (void)state;
    bench_open(b, PLENTY);
    make_story(b, &story, 1);
    assert_int_equal(cache_text_put(b->store, &story.pages[1]), MF_ERR_ARGUMENT);
    put(b, &story.pages[0]);
    assert_int_equal(cache_text_put(b->store, &story.pages[0]), MF_ERR_ARGUMENT); /* present */
    assert_int_equal(cache_store_statistics(b->store).refused, 1);
    make_story(b, &other, 50);
    other.pages[0].record.key.bytes[0] ^= 1; /* of no tokens */
    assert_int_equal(cache_text_put(b->store, &other.pages[0]), MF_ERR_ARGUMENT);
    bench_free(b);
}

static void roots_keep_their_records_apart(void **state)
{
    struct bench *b = bench_new();
    struct cache_key other;
    struct story story;
    struct cache_text mine;
    (void)state;
    bench_open(b, PLENTY);
    make_story(b, &story, 1);
    put_story(b, &story);
    assert_int_equal(cache_store_root(&other, b->store, "another", 7, "x", NULL), MF_OK);
    assert_memory_not_equal(&other, &b->root, sizeof other);
    cache_text_make(&mine, b->store, CACHE_PAGE, &other, NULL, 1, PAGE, BYTES);
    assert_memory_not_equal(&mine.record.key, &story.pages[0].record.key, 16);
    put(b, &mine);
    assert_int_equal(cache_text_get_all(b->store, &other), 1);
    assert_int_equal(cache_text_get_all(b->store, &b->root), 4);
    bench_free(b);
}

static void a_drop_takes_what_depends_on_it(void **state)
{
    struct bench *b = bench_new();
    struct story story;
    (void)state;
    bench_open(b, PLENTY);
    make_story(b, &story, 1);
    put_story(b, &story);
    cache_store_drop(b->store, &story.pages[2].record.key);
    assert_true(has(b, &story.checkpoint)); /* it may lie in another page of the same tokens */
    cache_store_drop(b->store, &story.pages[1].record.key);
    assert_true(has(b, &story.pages[0]));
    assert_false(has(b, &story.pages[1]));
    assert_false(has(b, &story.checkpoint));
    put(b, &story.pages[1]);
    assert_int_equal(cache_text_get_all(b->store, &b->root), 2);
    reopen(b, PLENTY);
    assert_int_equal(cache_text_get_all(b->store, &b->root), 2);
    assert_int_equal(files_of(b).files, 5);
    bench_free(b);
}

/* ------------------------------------------------------------------- the limit */

static void the_least_valuable_goes_and_the_limit_holds(void **state)
{
    struct bench *b = bench_new();
    struct cache_text texts[8], newest;
    struct story story;
    uint64_t limit = 136000;
    (void)state;
    bench_open(b, limit);
    make_story(b, &story, 1);
    put_story(b, &story);
    for (uint32_t i = 0; i < 8; i++) {
        page(b, &texts[i], NULL, 100 + i);
        put(b, &texts[i]);
        b->now += 60;
        if (i == 3) cache_store_touch(b->store, &texts[0].record.key);
        assert_true(files_of(b).bytes <= limit);
        assert_true(cache_store_statistics(b->store).used_bytes <= limit);
    }
    assert_int_equal(cache_store_statistics(b->store).evicted, 0);
    for (uint32_t i = 0; i < 4; i++) {
        page(b, &newest, NULL, 200 + i);
        newest.record.saved = 1; /* of little value, and still the newest */
        put(b, &newest);
        assert_true(has(b, &newest));
        assert_true(files_of(b).bytes <= limit);
    }
    assert_true(cache_store_statistics(b->store).evicted > 0);
    assert_true(has(b, &texts[0])); /* it had a hit */
    assert_true(has(b, &story.pages[0]));
    reopen(b, 60000); /* a lower limit */
    assert_true(files_of(b).bytes <= 60000);
    assert_true(has(b, &story.checkpoint)); /* it saves most */
    bench_free(b);
}

static void parents_and_pages_of_checkpoints_go_last(void **state)
{
    struct bench *b = bench_new();
    struct story story;
    (void)state;
    bench_open(b, 200000); /* below it the room for the journal depends on nothing else */
    make_story(b, &story, 1);
    put_story(b, &story);
    uint64_t used = cache_store_statistics(b->store).used_bytes;
    b->now += 1e5;
    for (uint32_t left = 4; left > 0; left--) {
        struct tally tally = files_of(b);
        assert_int_equal(tally.files, 3 + left);
        /* The checkpoint, the page that it lies in, then the others from the end. */
        assert_true(has(b, &story.checkpoint) == (left == 4));
        assert_true(has(b, &story.pages[2]) == (left >= 3));
        assert_true(has(b, &story.pages[1]) == (left >= 2));
        assert_true(has(b, &story.pages[0]));
        used -= 4096;
        reopen(b, used);
        used = cache_store_statistics(b->store).used_bytes;
    }
    bench_free(b);
}

static void other_models_count_and_go_too(void **state)
{
    struct bench *b = bench_new();
    struct cache_key other;
    struct cache_text old[6], text;
    (void)state;
    bench_open(b, 80000);
    assert_int_equal(cache_store_root(&other, b->store, "another", 7, "x", NULL), MF_OK);
    for (uint32_t i = 0; i < 6; i++) {
        cache_text_make(&old[i], b->store, CACHE_PAGE, &other, NULL, i, PAGE, BYTES);
        put(b, &old[i]);
    }
    reopen(b, 80000); /* the other model is not asked for in this run */
    b->now += 1000;
    for (uint32_t i = 0; i < 6; i++) {
        page(b, &text, NULL, 10 + i);
        put(b, &text);
    }
    assert_int_equal(cache_text_get_all(b->store, &b->root), 6);
    assert_true(files_of(b).bytes <= 80000);
    assert_true(cache_text_get_all(b->store, &other) < 6);
    bench_free(b);
}

static void what_cannot_fit_is_refused(void **state)
{
    struct bench *b = bench_new();
    struct cache_text text;
    (void)state;
    bench_open(b, 30000);
    cache_text_make(&text, b->store, CACHE_PAGE, &b->root, NULL, 1, PAGE, 30000);
    assert_int_equal(cache_text_put(b->store, &text), MF_ERR_ARGUMENT);
    cache_text_make(&text, b->store, CACHE_PAGE, &b->root, NULL, 1, PAGE, 20000);
    assert_int_equal(cache_text_put(b->store, &text), MF_ERR_CANCELLED);
    assert_false(has(b, &text));
    reopen(b, 0);
    page(b, &text, NULL, 1);
    assert_int_equal(cache_text_put(b->store, &text), MF_ERR_ARGUMENT);
    bench_free(b);
}

/* The journal of many touches and drops stays near the size of what is live. */
static void the_journal_is_written_anew(void **state)
{
    struct bench *b = bench_new();
    struct story story;
    (void)state;
    bench_open(b, PLENTY);
    make_story(b, &story, 1);
    put_story(b, &story);
    for (int i = 0; i < 5000; i++) {
        cache_store_touch(b->store, &story.pages[i % 3].record.key);
        if (i % 8 == 0) cache_store_flush(b->store);
        assert_true(cache_store_statistics(b->store).journal_bytes < 80000);
    }
    cache_store_flush(b->store);
    reopen(b, PLENTY);
    assert_int_equal(cache_text_get_all(b->store, &b->root), 4);
    bench_free(b);
}

/* --------------------------------------------------------------- the directory */

static void a_directory_of_another_purpose_is_left_alone(void **state)
{
    struct bench *b = bench_new();
    mf_error why = { 0 };
    (void)state;
    memory_disk_put(&b->disk, "cache/letter.txt", "dear", 4);
    assert_int_equal(try_open(b, PLENTY, false, &why), MF_ERR_MISMATCH);
    assert_non_null(strstr(why.text, "no cache directory"));
    assert_int_equal(files_of(b).files, 1);
    bench_free(b);
}

static void strangers_and_leftovers_are_removed(void **state)
{
    struct bench *b = bench_new();
    struct story story;
    (void)state;
    bench_open(b, PLENTY);
    make_story(b, &story, 1);
    put_story(b, &story);
    bench_shut(b);
    memory_disk_put(&b->disk, "cache/0123456789abcdef0123456789abcdef.page", "x", 1);
    memory_disk_put(&b->disk, "cache/0123456789abcdef0123456789abcdef.state.partial", "x", 1);
    memory_disk_put(&b->disk, "cache/journal.partial", "x", 1);
    memory_disk_put(&b->disk, "cache/notes.txt", "mine", 4); /* no name of ours */
    bench_open(b, PLENTY);
    assert_int_equal(cache_store_statistics(b->store).strangers, 3);
    assert_int_equal(files_of(b).files, 8);
    assert_true(memory_disk_has(&b->disk, "cache/notes.txt"));
    assert_int_equal(cache_text_get_all(b->store, &b->root), 4);
    bench_free(b);
}

static void path_of(char out[128], const struct cache_text *text)
{
    int at = snprintf(out, 128, "cache/");
    for (int i = 0; i < 16; i++)
        at += snprintf(out + at, 128 - (size_t)at, "%02x", text->record.key.bytes[i]);
    snprintf(out + at, 128 - (size_t)at, "%s",
             text->record.kind == CACHE_PAGE ? ".page" : ".state");
}

static void records_without_files_are_dropped(void **state)
{
    struct bench *b = bench_new();
    struct story story;
    char path[128];
    (void)state;
    bench_open(b, PLENTY);
    make_story(b, &story, 1);
    put_story(b, &story);
    bench_shut(b);
    path_of(path, &story.pages[1]);
    b->disk.disk.remove(&b->disk, path);
    bench_open(b, PLENTY);
    assert_int_equal(cache_store_statistics(b->store).missing, 3);
    assert_int_equal(cache_text_get_all(b->store, &b->root), 1);
    assert_int_equal(files_of(b).files, 4);
    bench_free(b);
}

/* ---------------------------------------------------------------------- damage */

static void a_damaged_file_is_a_miss_and_is_deleted(void **state)
{
    struct bench *b = bench_new();
    struct story story;
    char path[128];
    (void)state;
    bench_open(b, PLENTY);
    make_story(b, &story, 1);
    put_story(b, &story);
    path_of(path, &story.pages[1]);
    memory_disk_find(&b->disk, path)->bytes[4096 + 77] ^= 4;
    assert_int_equal(cache_text_get(b->store, &story.pages[1].record), -1);
    cache_store_flush(b->store);
    struct cache_store_statistics s = cache_store_statistics(b->store);
    assert_int_equal(s.damaged, 1);
    assert_int_equal(s.misses, 1);
    assert_int_equal(files_of(b).files, 4); /* what was below it has gone as well */
    assert_int_equal(cache_text_get_all(b->store, &b->root), 1);
    put(b, &story.pages[1]); /* and may come again */
    assert_int_equal(cache_text_get(b->store, &story.pages[1].record), 1);
    bench_free(b);
}

static void every_flipped_bit_of_a_file_is_found(void **state)
{
    struct bench *b = bench_new();
    struct cache_text text;
    char path[128];
    (void)state;
    bench_open(b, PLENTY);
    cache_text_make(&text, b->store, CACHE_CHECKPOINT, &b->root, NULL, 1, 40, 100);
    put(b, &text);
    bench_shut(b);
    assert_int_equal(try_open(b, PLENTY, true, NULL), MF_OK); /* deletes nothing */
    path_of(path, &text);
    struct memory_bytes *file = memory_disk_find(&b->disk, path);
    assert_int_equal(file->count, 4096 + 100);
    for (uint64_t bit = 0; bit < file->count * 8; bit++) {
        file->bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
        assert_int_equal(cache_text_get(b->store, &text.record), -1);
        file->bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
    }
    for (file->count = 0; file->count < 4096 + 100; file->count++)
        assert_int_equal(cache_text_get(b->store, &text.record), -1);
    assert_int_equal(cache_text_get(b->store, &text.record), 1);
    bench_free(b);
}

/* A copy of the directory, since opening changes it. */
static void copy_file(void *context, const char *name)
{
    struct memory_disk **disks = context;
    char path[128];
    snprintf(path, sizeof path, "cache/%s", name);
    const struct memory_bytes *bytes = memory_disk_find(disks[0], path);
    memory_disk_put(disks[1], path, bytes->bytes, bytes->count);
}

static struct bench *bench_copy(struct bench *from)
{
    struct bench *b = bench_new();
    struct memory_disk *disks[] = { &from->disk, &b->disk };
    from->disk.files.list(from->disk.files.user, "cache", copy_file, disks);
    return b;
}

static void check_opened(struct bench *b, const struct story *story)
{
    bench_open(b, PLENTY);
    assert_true(cache_store_check_invariants(b->store));
    assert_true(cache_text_get_all(b->store, &b->root) >= 0);
    for (uint32_t i = 0; i < 3; i++)
        assert_int_not_equal(cache_text_get(b->store, &story->pages[i].record), 0);
    uint64_t records = cache_store_statistics(b->store).records;
    assert_int_equal(files_of(b).files, 3 + records);
    bench_free(b);
}

static void every_flipped_bit_of_the_journal_and_the_secret_is_survived(void **state)
{
    struct bench *b = bench_new();
    struct story story;
    static const char *const names[] = { "cache/journal", "cache/secret" };
    (void)state;
    bench_open(b, PLENTY);
    make_story(b, &story, 1);
    put_story(b, &story);
    cache_store_touch(b->store, &story.pages[0].record.key);
    cache_store_drop(b->store, &story.checkpoint.record.key);
    bench_shut(b);
    for (int name = 0; name < 2; name++) {
        struct memory_bytes *file = memory_disk_find(&b->disk, names[name]);
        for (uint64_t bit = 0; bit < file->count * 8; bit++) {
            file->bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
            check_opened(bench_copy(b), &story);
            file->bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
        }
    }
    check_opened(b, &story);
}

static void a_journal_cut_anywhere_is_survived(void **state)
{
    struct bench *b = bench_new();
    struct story story;
    (void)state;
    bench_open(b, PLENTY);
    make_story(b, &story, 1);
    put_story(b, &story);
    bench_shut(b);
    struct memory_bytes *file = memory_disk_find(&b->disk, "cache/journal");
    for (; file->count > 0; file->count--) check_opened(bench_copy(b), &story);
    check_opened(b, &story);
}

/* ------------------------------------------------------------------------ queue */

static void a_full_queue_refuses(void **state)
{
    struct bench *b = bench_new();
    struct cache_text texts[20];
    uint8_t *payloads[20];
    uint32_t queued = 0;
    bool held;
    (void)state;
    struct cache_store_options options = { .directory = "cache",
                                           .limit_bytes = PLENTY,
                                           .queue_bytes = 2 * BYTES,
                                           .disk = &b->disk.disk,
                                           .files = &b->disk.files };
    assert_int_equal(cache_store_open(&b->store, &held, &options, NULL), MF_OK);
    assert_int_equal(cache_store_root(&b->root, b->store, "m", 1, "", NULL), MF_OK);
    for (uint32_t i = 0; i < 20; i++) {
        page(b, &texts[i], NULL, i);
        payloads[i] = cache_text_payload_new(&texts[i].record);
        queued += cache_store_put(b->store, &texts[i].record, payloads[i], NULL, NULL) ==
                  CACHE_PUT_QUEUED;
        assert_true(cache_store_statistics(b->store).queued_bytes <= 2 * BYTES);
    }
    cache_store_flush(b->store);
    struct cache_store_statistics s = cache_store_statistics(b->store);
    assert_int_equal(s.queued_bytes, 0);
    assert_int_equal(s.refused, 20 - queued);
    assert_int_equal(s.written, queued);
    for (uint32_t i = 0; i < 20; i++) free(payloads[i]);
    bench_free(b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_put_is_found_also_after_a_restart),
        cmocka_unit_test(records_come_parents_first_with_all_that_was_given),
        cmocka_unit_test(a_put_without_its_parent_is_refused),
        cmocka_unit_test(roots_keep_their_records_apart),
        cmocka_unit_test(a_drop_takes_what_depends_on_it),
        cmocka_unit_test(the_least_valuable_goes_and_the_limit_holds),
        cmocka_unit_test(parents_and_pages_of_checkpoints_go_last),
        cmocka_unit_test(other_models_count_and_go_too),
        cmocka_unit_test(what_cannot_fit_is_refused),
        cmocka_unit_test(the_journal_is_written_anew),
        cmocka_unit_test(a_directory_of_another_purpose_is_left_alone),
        cmocka_unit_test(strangers_and_leftovers_are_removed),
        cmocka_unit_test(records_without_files_are_dropped),
        cmocka_unit_test(a_damaged_file_is_a_miss_and_is_deleted),
        cmocka_unit_test(every_flipped_bit_of_a_file_is_found),
        cmocka_unit_test(every_flipped_bit_of_the_journal_and_the_secret_is_survived),
        cmocka_unit_test(a_journal_cut_anywhere_is_survived),
        cmocka_unit_test(a_full_queue_refuses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
