/* convert: stopped at any call, by a kill or a power cut, on a full disk, with reads or
 * allocations that fail: nothing appears under the target's name before it is whole, and the
 * next run goes on and makes the same bytes. */
#include "support/test.h"

#include "base/checksum.h"
#include "base/status.h"
#include "convert/convert.h"
#include "model/model.h"
#include "support/failing_allocator.h"
#include "support/failing_files.h"
#include "support/memory_disk.h"
#include "support/tiny_model.h"

#include <stdio.h>

#define TARGET "out/packed"

static struct tiny_model tiny;
static struct memory_disk whole; /* what a conversion without trouble makes */

/* A disk with the checkpoint on it. */
static void new_disk(struct memory_disk *disk)
{
    memory_disk_init(disk);
    for (size_t i = 0; i < tiny.files.count; i++)
        memory_disk_put(disk, tiny.files.list[i].path, tiny.files.list[i].data,
                        tiny.files.list[i].size);
    memory_disk_put(disk, TINY_PATH "/tokenizer_config.json", "{}", 2);
    memory_disk_put(disk, "out/other", "x", 1);
}

static struct convert_options usual(struct memory_disk *disk)
{
    return (struct convert_options){ .files = &disk->files,
                                     .disk = &disk->disk,
                                     .allocator = &allocator_heap,
                                     .source = TINY_PATH,
                                     .target = TARGET,
                                     .experts = QUANTISE_Q4,
                                     .rest = QUANTISE_Q8,
                                     .sync_bytes = 4000 }; /* a few units */
}

static mf_status convert(struct memory_disk *disk, struct convert_result *result, mf_error *why)
{
    struct convert_options options = usual(disk);
    struct convert_result none;
    return convert_run(result ? result : &none, &options, why);
}

static void must_convert(struct memory_disk *disk, struct convert_result *result)
{
    mf_error why = { 0 };
    if (convert(disk, result, &why) != MF_OK) fail_msg("%s (%s)", why.text, why.origin);
    assert_int_equal(disk->open_count, 0);
    if (!memory_disk_same(disk, TARGET, &whole, TARGET)) fail_msg("other bytes");
    assert_false(memory_disk_has(disk, TARGET ".partial"));
}

/* A disk on which a conversion was stopped before call `nth`. */
static void interrupted_disk(struct memory_disk *disk, uint64_t nth)
{
    new_disk(disk);
    memory_disk_stop(disk, nth, STOP_BEFORE);
    assert_int_not_equal(convert(disk, NULL, NULL), MF_OK);
    memory_disk_restart(disk, false);
}

static uint64_t calls_of_a_conversion(void)
{
    struct memory_disk disk;
    new_disk(&disk);
    memory_disk_stop(&disk, 0, STOP_BEFORE);
    must_convert(&disk, NULL);
    uint64_t calls = disk.calls;
    memory_disk_free(&disk);
    return calls;
}

static int set_up(void **state)
{
    (void)state;
    mf_error why = { 0 };
    struct tiny_shape shape = tiny_standard;
    shape.expert_width = 32;
    tiny_model_init(&tiny, &shape);
    tiny_model_write(&tiny);
    new_disk(&whole);
    if (convert(&whole, NULL, &why) != MF_OK) fail_msg("%s", why.text);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    memory_disk_free(&whole);
    tiny_model_free(&tiny);
    return 0;
}

/* ------------------------------------------------------------------ stopped */

static void converted_model_runs(void **state)
{
    (void)state;
    struct model model;
    mf_error why = { 0 };
    struct model_source source = { .files = &whole.files,
                                   .allocator = &allocator_heap,
                                   .path = TARGET };
    if (model_open(&model, &source, &why) != MF_OK) fail_msg("%s", why.text);
    assert_string_equal(model.kind, "packed");
    assert_int_equal(model.weights.layers[0].experts[0].shape.format, FORMAT_AFFINE4);
    assert_int_equal(model.weights.weights[WEIGHT_EMBEDDING].format, FORMAT_Q8_0);
    assert_int_equal(model.weights.layers[0].weights[WEIGHT_ROUTER].format, FORMAT_F32);
    model_close(&model);
    assert_int_equal(whole.open_count, 0);
}

/* However often and wherever it is stopped. */
static void stop_everywhere(bool power_cut, enum stop_kind kind)
{
    size_t stops = 0, resumed = 0;
    for (uint64_t nth = 1;; nth++) {
        struct memory_disk disk;
        struct convert_result result;
        mf_error why = { 0 };
        new_disk(&disk);
        memory_disk_stop(&disk, nth, kind);
        mf_status status = convert(&disk, &result, &why);
        bool stopped = memory_disk_restart(&disk, power_cut);
        assert_int_equal(status, stopped ? MF_ERR_IO : MF_OK);
        assert_int_equal(disk.open_count, 0);
        /* Either the name is not there, or all that belongs to it is. */
        bool named = memory_disk_has(&disk, TARGET);
        if (named && !memory_disk_same(&disk, TARGET, &whole, TARGET)) fail_msg("half of it");
        must_convert(&disk, &result);
        assert_int_equal(result.already, named);
        resumed += result.resumed;
        memory_disk_free(&disk);
        if (!stopped) break;
        stops++;
    }
    print_message("    stopped at %zu calls, %zu runs went on\n", stops, resumed);
    assert_true(stops > 100 && resumed > stops / 2);
}

static void conversion_resumes_after_a_kill(void **state)
{
    (void)state;
    stop_everywhere(false, STOP_BEFORE);
    stop_everywhere(false, STOP_AFTER);
}

static void conversion_resumes_after_a_power_cut(void **state)
{
    (void)state;
    stop_everywhere(true, STOP_BEFORE);
    stop_everywhere(true, STOP_AFTER);
}

static void repeatedly_stopped_conversion_completes(void **state)
{
    (void)state;
    struct memory_disk disk;
    new_disk(&disk);
    unsigned runs = 0;
    for (;; runs++) { /* 30 calls a run: what was noted is not done again */
        memory_disk_stop(&disk, 30 + runs % 7, runs % 2 ? STOP_AFTER : STOP_BEFORE);
        mf_status status = convert(&disk, NULL, NULL);
        bool stopped = memory_disk_restart(&disk, runs % 3 == 0);
        if (!stopped && status == MF_OK) break;
        assert_true(runs < 100);
    }
    assert_true(runs > 3);
    must_convert(&disk, NULL);
    memory_disk_free(&disk);
}

static void finished_units_are_not_written_again(void **state)
{
    (void)state;
    struct memory_disk disk;
    uint64_t all = calls_of_a_conversion();
    interrupted_disk(&disk, all * 3 / 4);
    must_convert(&disk, NULL);
    assert_true(disk.calls < all / 2);
    memory_disk_free(&disk);
}

/* ---------------------------------------------------------------- full disk */

/* Other processes may fill the disk after the start, so free space is only an estimate then. */
static int plenty(void *user, const char *path, uint64_t *bytes)
{
    (void)user;
    (void)path;
    *bytes = (uint64_t)1 << 40;
    return 0;
}

static void conversion_resumes_after_a_full_disk(void **state)
{
    (void)state;
    struct memory_disk disk;
    struct convert_result result;
    mf_error why = { 0 };
    new_disk(&disk);
    uint64_t before = memory_disk_used(&disk);
    assert_int_equal(convert(&disk, NULL, &why), MF_OK);
    uint64_t after = memory_disk_used(&disk); /* with a journal that is only unlinked */
    memory_disk_free(&disk);
    for (uint64_t capacity = before; capacity < after; capacity += 5 * MEMORY_DISK_BLOCK) {
        new_disk(&disk);
        disk.capacity = capacity;
        disk.piece = 1000;
        disk.disk.free_bytes = plenty;
        mf_status status = convert(&disk, &result, &why);
        if (status == MF_OK) fail_msg("%llu bytes were enough", (unsigned long long)capacity);
        assert_int_equal(status, MF_ERR_IO);
        assert_false(memory_disk_has(&disk, TARGET));
        if (!strstr(why.text, "No space left on device")) fail_msg("%s", why.text);
        disk.capacity = 0;
        must_convert(&disk, &result);
        memory_disk_free(&disk);
    }
}

static void too_little_space_is_known_at_once(void **state)
{
    (void)state;
    struct memory_disk disk;
    mf_error why = { 0 };
    new_disk(&disk);
    disk.capacity = memory_disk_used(&disk) + 5000;
    assert_int_equal(convert(&disk, NULL, &why), MF_ERR_IO);
    assert_non_null(strstr(why.text, TARGET ".partial needs "));
    assert_non_null(strstr(why.text, "bytes more, and "));
    assert_null(memory_disk_find(&disk, TARGET ".partial/resident.bin"));
    memory_disk_free(&disk);
}

/* ------------------------------------------------------- reads, allocations */

static void conversion_resumes_after_any_failing_read(void **state)
{
    (void)state;
    for (uint64_t nth = 1;; nth++) {
        struct memory_disk disk;
        struct failing_files files;
        mf_error why = { 0 };
        struct convert_result result;
        new_disk(&disk);
        failing_files_init(&files, &disk.files);
        struct convert_options options = usual(&disk);
        options.files = &files.files;
        options.verify = true;
        failing_files_arm(&files, nth);
        mf_status status = convert_run(&result, &options, &why);
        bool fired = failing_files_disarm(&files);
        assert_int_equal(disk.open_count, 0);
        if (status != MF_OK) { /* else: what an earlier run left could not be read, and was not */
            assert_true(fired);
            assert_false(memory_disk_has(&disk, TARGET));
            must_convert(&disk, &result);
        }
        assert_true(memory_disk_same(&disk, TARGET, &whole, TARGET));
        memory_disk_free(&disk);
        if (!fired) break;
    }
}

static void every_failing_allocation_is_reported(void **state)
{
    (void)state;
    for (uint64_t nth = 1;; nth++) {
        struct memory_disk disk;
        struct failing_allocator heap;
        struct convert_result result;
        mf_error why = { 0 };
        new_disk(&disk);
        failing_allocator_init(&heap);
        struct convert_options options = usual(&disk);
        options.allocator = &heap.allocator;
        options.threads = 2;
        failing_allocator_arm(&heap, nth);
        mf_status status = convert_run(&result, &options, &why);
        bool fired = failing_allocator_disarm(&heap);
        assert_int_equal(heap.live_bytes, 0);
        assert_int_equal(disk.open_count, 0);
        assert_int_equal(status, fired ? MF_ERR_MEMORY : MF_OK);
        if (fired) assert_false(memory_disk_has(&disk, TARGET));
        memory_disk_free(&disk);
        if (!fired) break;
    }
}

/* ------------------------------------------------------------ in the way */

static void existing_target_is_not_overwritten(void **state)
{
    (void)state;
    struct memory_disk disk;
    mf_error why = { 0 };
    new_disk(&disk);
    memory_disk_put(&disk, TARGET "/mine", "x", 1);
    assert_int_equal(convert(&disk, NULL, &why), MF_ERR_ARGUMENT);
    assert_non_null(strstr(why.text, TARGET " exists already and is not this model"));
    assert_false(memory_disk_has(&disk, TARGET ".partial"));
    memory_disk_free(&disk);

    new_disk(&disk);
    memory_disk_put(&disk, TARGET, "a file", 6);
    assert_int_equal(convert(&disk, NULL, &why), MF_ERR_ARGUMENT);
    assert_non_null(strstr(why.text, TARGET " exists already"));
    memory_disk_free(&disk);

    new_disk(&disk);
    memory_disk_put(&disk, TARGET ".partial/mine", "x", 1);
    assert_int_equal(convert(&disk, NULL, &why), MF_ERR_ARGUMENT);
    assert_non_null(strstr(why.text, TARGET ".partial is in the way: it is not an unfinished"));
    assert_non_null(memory_disk_find(&disk, TARGET ".partial/mine"));
    memory_disk_free(&disk);
}

static void another_conversion_is_left_alone(void **state)
{
    (void)state;
    struct memory_disk disk;
    mf_error why = { 0 };
    struct convert_result result;
    for (uint64_t nth = 60; nth; nth = nth == 60 ? 100000 : 0) {
        new_disk(&disk);
        memory_disk_stop(&disk, nth, STOP_BEFORE);
        mf_status status = convert(&disk, NULL, NULL);
        bool stopped = memory_disk_restart(&disk, false);
        assert_int_equal(status == MF_OK, !stopped);
        struct convert_options options = usual(&disk);
        options.experts = QUANTISE_Q3;
        assert_int_not_equal(convert_run(&result, &options, &why), MF_OK);
        assert_non_null(strstr(why.text, stopped ? "is an unfinished conversion of another"
                                                 : "is not this model with these options"));
        must_convert(&disk, NULL);
        memory_disk_free(&disk);
    }
}

/* The source has other bytes than when it began. */
static void a_changed_source_is_noticed(void **state)
{
    (void)state;
    struct memory_disk disk;
    mf_error why = { 0 };
    interrupted_disk(&disk, 60);
    struct memory_bytes *weights = memory_disk_find(&disk, TINY_PATH "/model.safetensors");
    weights->bytes[weights->count - 5] ^= 1;
    assert_int_equal(convert(&disk, NULL, &why), MF_ERR_MISMATCH);
    assert_non_null(strstr(why.text, "is an unfinished conversion of another checkpoint"));
    memory_disk_free(&disk);
}

static void files_that_vanished_are_written_again(void **state)
{
    (void)state;
    static const char *const names[] = { "resident.bin", "layer-000.bin", "layer-002.bin" };
    for (size_t i = 0; i < COUNT_OF(names); i++) {
        struct memory_disk disk;
        char path[128];
        interrupted_disk(&disk, calls_of_a_conversion() - 12);
        snprintf(path, sizeof path, TARGET ".partial/%s", names[i]);
        assert_int_equal(disk.disk.remove(disk.disk.user, path), 0);
        must_convert(&disk, NULL);
        memory_disk_free(&disk);
    }
}

static void second_writer_is_refused(void **state)
{
    (void)state;
    struct memory_disk disk;
    mf_error why = { 0 };
    void *handle;
    uint64_t size;
    interrupted_disk(&disk, 60);
    assert_int_equal(disk.disk.open(&disk, TARGET ".partial/journal", &handle, &size), 0);
    assert_int_equal(disk.disk.lock(&disk, handle), 0);
    assert_int_equal(convert(&disk, NULL, &why), MF_ERR_IO);
    assert_non_null(strstr(why.text, "is being written by another process"));
    disk.disk.close(&disk, handle);
    must_convert(&disk, NULL);
    memory_disk_free(&disk);
}

/* ------------------------------------------------------------------- verify */

static void every_changed_byte_fails_the_verification(void **state)
{
    (void)state;
    static const char *const names[] = { "resident.bin", "layer-000.bin", "layer-003.bin",
                                         "config.json", "tokenizer_config.json" };
    struct memory_disk disk;
    struct convert_result result;
    mf_error why = { 0 };
    new_disk(&disk);
    must_convert(&disk, NULL);
    struct convert_options options = usual(&disk);
    options.verify = true;
    assert_int_equal(convert_run(&result, &options, &why), MF_OK);
    assert_true(result.already);
    for (size_t i = 0; i < COUNT_OF(names); i++) {
        char path[128];
        snprintf(path, sizeof path, TARGET "/%s", names[i]);
        struct memory_bytes *file = memory_disk_find(&disk, path);
        uint64_t at[] = { 0, 1 };
        for (size_t k = 0; k < COUNT_OF(at); k++) {
            file->bytes[at[k]] ^= 0x10;
            assert_int_equal(convert_run(&result, &options, &why), MF_ERR_MISMATCH);
            assert_non_null(strstr(why.text, names[i]));
            file->bytes[at[k]] ^= 0x10;
        }
    }
    assert_int_equal(convert_run(&result, &options, &why), MF_OK);
    memory_disk_free(&disk);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(converted_model_runs),
        cmocka_unit_test(conversion_resumes_after_a_kill),
        cmocka_unit_test(conversion_resumes_after_a_power_cut),
        cmocka_unit_test(repeatedly_stopped_conversion_completes),
        cmocka_unit_test(finished_units_are_not_written_again),
        cmocka_unit_test(conversion_resumes_after_a_full_disk),
        cmocka_unit_test(too_little_space_is_known_at_once),
        cmocka_unit_test(conversion_resumes_after_any_failing_read),
        cmocka_unit_test(every_failing_allocation_is_reported),
        cmocka_unit_test(existing_target_is_not_overwritten),
        cmocka_unit_test(another_conversion_is_left_alone),
        cmocka_unit_test(a_changed_source_is_noticed),
        cmocka_unit_test(files_that_vanished_are_written_again),
        cmocka_unit_test(second_writer_is_refused),
        cmocka_unit_test(every_changed_byte_fails_the_verification),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
