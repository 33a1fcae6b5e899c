/* async_read: each engine reads what it is asked for, whatever the order, and the
 * file's troubles: short reads, errors that pass and errors that stay, early ends. */
#include "support/test.h"

#include "base/arena.h"
#include "io/async_read.h"
#include "support/failing_allocator.h"
#include "support/failing_files.h"
#include "support/thread_signals.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

enum { FILE_BYTES = 300 * 1024 + 77, READS = 200, READ_MAX = 20000 };

static char path[] = "/tmp/moeflux-read-XXXXXX";
static uint8_t content[FILE_BYTES];
static struct failing_files failing;
static bool engine_was_left_out;

static int make_file(void **state)
{
    (void)state;
    int descriptor = mkstemp(path);
    srand(1);
    for (size_t i = 0; i < FILE_BYTES; i++) content[i] = (uint8_t)rand();
    bool written = write(descriptor, content, FILE_BYTES) == FILE_BYTES;
    fsync(descriptor);
    close(descriptor);
    return written ? 0 : -1;
}

static int remove_file(void **state)
{
    (void)state;
    unlink(path);
    return 0;
}

/* ------------------------------------------------------------------ a case */

struct trial {
    const char *label;
    enum read_engine_kind engine;
    bool direct, uncached;
    bool through_functions; /* files that only have functions, with faults */
    bool staged;            /* some of the reads: it is tried whether that is faster */
};

static const struct trial trials[] = {
    { "threads over functions", READ_ENGINE_THREADS, false, false, true, false },
    { "threads over functions, staged", READ_ENGINE_THREADS, false, false, true, true },
    { "threads", READ_ENGINE_THREADS, false, false, false, false },
    { "threads, uncached", READ_ENGINE_THREADS, false, true, false, false },
    { "threads, direct", READ_ENGINE_THREADS, true, true, false, false },
    { "threads, direct, staged", READ_ENGINE_THREADS, true, true, false, true },
    { "io_uring", READ_ENGINE_URING, false, false, false, false },
    { "io_uring, uncached", READ_ENGINE_URING, false, true, false, false },
    { "io_uring, direct", READ_ENGINE_URING, true, true, false, false },
    { "io_uring, direct, staged", READ_ENGINE_URING, true, true, false, true },
};

enum { BUFFER_BYTES = 32768 };

static struct file file;
static struct async_reader *reader;

/* False: this machine has no such engine, which is said. */
static bool begin(const struct trial *trial)
{
    mf_error why = { 0 };
    failing_files_init(&failing, &files_posix);
    assert_int_equal(
        file_open(&file, trial->through_functions ? &failing.files : &files_posix, path, &why),
        MF_OK);
    struct async_reader_options options = { .allocator = &allocator_heap,
                                            .files = &file,
                                            .file_count = 1,
                                            .engine = trial->engine,
                                            .direct = trial->direct,
                                            .uncached = trial->uncached };
    mf_status status = async_reader_new(&reader, &options, &why);
    if (status == MF_ERR_UNSUPPORTED) {
        engine_was_left_out = true;
        print_message("    %s is left out: %s\n", trial->label, why.text);
        file_close(&file);
        return false;
    }
    assert_int_equal(status, MF_OK);
    if (trial->staged) async_reader_stage(reader, BUFFER_BYTES, 5);
    return true;
}

static void end(void)
{
    async_reader_free(reader);
    file_close(&file);
}

static uint8_t *buffers; /* [READS][READ_MAX rounded out twice] */

static int take_buffers(void **state)
{
    buffers = aligned_alloc(4096, (size_t)READS * BUFFER_BYTES);
    return buffers ? make_file(state) : -1;
}

static int drop_buffers(void **state)
{
    free(buffers);
    return remove_file(state);
}

/* A read of [offset, offset + count), rounded out as the file wants it. */
static struct async_read read_at(size_t index, uint64_t offset, size_t count, bool ahead)
{
    size_t alignment = async_reader_alignment(reader, 0);
    uint64_t from = offset - offset % alignment;
    size_t needed = (size_t)(offset + count - from);
    return (struct async_read){ .tag = (uint32_t)index,
                                .offset = from,
                                .count = align_up(needed, alignment),
                                .needed = needed,
                                .out = buffers + index * BUFFER_BYTES,
                                .ahead = ahead };
}

static void link_all(struct async_read *reads, size_t count)
{
    for (size_t i = 0; i < count; i++) reads[i].next = i + 1 < count ? &reads[i + 1] : NULL;
}

/* Waits for `count` reads; checks the bytes of those without error, returns how many those are. */
static size_t finish(size_t count)
{
    size_t good = 0;
    while (count > 0) {
        struct async_read *read = async_reader_wait(reader, true);
        assert_non_null(read);
        for (; read; read = read->next, count--) {
            if (read->error) continue;
            assert_memory_equal(read->out, content + read->offset, read->needed);
            good++;
        }
    }
    assert_null(async_reader_wait(reader, true));
    return good;
}

/* ------------------------------------------------------------------- tests */

static void random_reads_arrive(void **state)
{
    (void)state;
    static struct async_read reads[READS];
    for (size_t t = 0; t < COUNT_OF(trials); t++) {
        bool staged = false;
        struct read_activity activity;
        if (!begin(&trials[t])) continue;
        for (int round = 0; round < 5; round++) {
            memset(buffers, 0, (size_t)READS * BUFFER_BYTES);
            if (trials[t].through_functions) failing.piece_bytes = round ? (size_t)round * 777 : 0;
            for (size_t i = 0; i < READS; i++) {
                uint64_t offset = (uint64_t)rand() % FILE_BYTES;
                size_t count = min_size(1 + (size_t)rand() % READ_MAX, FILE_BYTES - offset);
                reads[i] = read_at(i, offset, count, rand() % 2);
            }
            link_all(reads, READS);
            async_reader_submit(reader, reads);
            for (int i = 0; i < 10; i++) async_reader_promote(reader, (uint32_t)(rand() % READS));
            assert_int_equal(finish(READS), READS);
            async_reader_activity(reader, &activity);
            staged |= activity.staged;
        }
        assert_true(staged == trials[t].staged);
        end();
    }
}

/* The end of the file is no multiple of anything. */
static void the_last_byte_can_be_read(void **state)
{
    (void)state;
    for (size_t t = 0; t < COUNT_OF(trials); t++) {
        if (!begin(&trials[t])) continue;
        struct async_read read = read_at(0, FILE_BYTES - 1, 1, false);
        async_reader_submit(reader, &read);
        assert_int_equal(finish(1), 1);
        end();
    }
}

static void truncated_file_is_reported(void **state)
{
    (void)state;
    for (size_t t = 0; t < COUNT_OF(trials); t++) {
        if (!begin(&trials[t])) continue;
        assert_int_equal(truncate(path, 100000), 0);
        struct async_read reads[2] = { read_at(0, 99000, 5000, false), read_at(1, 50, 700, false) };
        link_all(reads, 2);
        async_reader_submit(reader, reads);
        assert_int_equal(finish(2), 1);
        assert_int_equal(reads[0].error, ENODATA);
        assert_true(reads[0].offset + reads[0].done == 100000);
        end();
        int descriptor = open(path, O_WRONLY);
        assert_int_equal(pwrite(descriptor, content, FILE_BYTES, 0), FILE_BYTES);
        close(descriptor);
    }
}

static void an_unlinked_file_is_still_read(void **state)
{
    (void)state;
    for (size_t t = 0; t < COUNT_OF(trials); t++) {
        char other[sizeof path + 8];
        snprintf(other, sizeof other, "%s.moved", path);
        if (!begin(&trials[t])) continue;
        assert_int_equal(link(path, other), 0);
        assert_int_equal(unlink(path), 0);
        struct async_read read = read_at(0, 4000, 9000, false);
        async_reader_submit(reader, &read);
        assert_int_equal(finish(1), 1);
        end();
        assert_int_equal(rename(other, path), 0);
    }
}

/* One failure is nothing; a place that always fails is an error of that read alone. */
static void transient_errors_are_retried_permanent_ones_reported(void **state)
{
    (void)state;
    static struct async_read reads[50];
    assert_true(begin(&trials[0]));
    for (uint64_t nth = 1; nth <= COUNT_OF(reads); nth++) {
        for (size_t i = 0; i < COUNT_OF(reads); i++) reads[i] = read_at(i, i * 5000, 5000, i % 3);
        link_all(reads, COUNT_OF(reads));
        failing_files_arm(&failing, nth);
        async_reader_submit(reader, reads);
        assert_int_equal(finish(COUNT_OF(reads)), COUNT_OF(reads));
        assert_true(failing_files_disarm(&failing));
    }
    failing.bad_from = 12345;
    failing.bad_to = 12346;
    failing.delay_us = 50;
    for (size_t i = 0; i < COUNT_OF(reads); i++) reads[i] = read_at(i, i * 5000, 5000, false);
    link_all(reads, COUNT_OF(reads));
    async_reader_submit(reader, reads);
    assert_int_equal(finish(COUNT_OF(reads)), COUNT_OF(reads) - 1);
    assert_int_equal(reads[2].error, EIO);
    end();
}

static void missing_file_is_reported(void **state)
{
    (void)state;
    static const enum read_engine_kind engines[] = { READ_ENGINE_THREADS, READ_ENGINE_URING };
    struct file absent = { .files = &files_posix, .path = "nowhere" };
    for (size_t i = 0; i < COUNT_OF(engines); i++) {
        struct async_reader_options options = { .allocator = &allocator_heap,
                                                .files = &absent,
                                                .file_count = 1,
                                                .engine = engines[i],
                                                .direct = true };
        mf_error why = { 0 };
        mf_status status = async_reader_new(&reader, &options, &why);
        if (status == MF_ERR_UNSUPPORTED && engines[i] == READ_ENGINE_URING) {
            print_message("    not tried with io_uring: %s\n", why.text);
            engine_was_left_out = true;
            continue;
        }
        assert_int_equal(status, MF_OK);
        struct async_read read = read_at(0, 0, 10, false);
        async_reader_submit(reader, &read);
        assert_int_equal(finish(1), 0);
        assert_int_equal(read.error, ENOENT);
        async_reader_free(reader);
    }
}

/* A demand read does not wait for read-aheads that have not started. */
static void demand_goes_first(void **state)
{
    (void)state;
    static struct async_read reads[READS], last;
    assert_true(begin(&trials[0]));
    failing.delay_us = 2000;
    for (size_t i = 0; i + 1 < READS; i++) reads[i] = read_at(i, 0, 100, true);
    link_all(reads, READS - 1);
    async_reader_submit(reader, reads);
    last = read_at(READS - 1, 500, 100, false);
    async_reader_submit(reader, &last);
    size_t before = 0;
    for (bool seen = false; !seen;)
        for (struct async_read *read = async_reader_wait(reader, true); read; read = read->next) {
            seen |= read == &last;
            before += !seen;
        }
    print_message("    %zu of %d came before it\n", before, READS - 1);
    assert_true(before <= 24); /* 8 were under way; threads may each finish another */
    end();
}

static void *submit_and_end(void *reads)
{
    async_reader_submit(reader, reads);
    return NULL;
}

/* The kernel takes care of what a thread has begun, and may give it up with the thread. */
static void a_read_outlives_the_thread_that_began_it(void **state)
{
    (void)state;
    static struct async_read reads[READS];
    for (size_t t = 0; t < COUNT_OF(trials); t++) {
        if (!begin(&trials[t])) continue;
        for (int round = 0; round < 20; round++) {
            pthread_t asker;
            memset(buffers, 0, (size_t)READS * BUFFER_BYTES);
            for (size_t i = 0; i < READS; i++)
                reads[i] = read_at(i, (uint64_t)rand() % (FILE_BYTES - READ_MAX), READ_MAX, i % 2);
            link_all(reads, READS);
            assert_int_equal(pthread_create(&asker, NULL, submit_and_end, reads), 0);
            assert_int_equal(pthread_join(asker, NULL), 0);
            assert_int_equal(finish(READS), READS);
        }
        end();
    }
}

static void signals_are_left_to_the_caller(void **state)
{
    (void)state;
    static struct async_read reads[READS];
    for (size_t t = 0; t < COUNT_OF(trials); t++) {
        if (!begin(&trials[t])) continue;
        for (size_t i = 0; i < READS; i++) reads[i] = read_at(i, i, 1, false);
        link_all(reads, READS);
        async_reader_submit(reader, reads); /* so that there are as many threads as can be */
        assert_other_threads_take_no_signals();
        assert_int_equal(finish(READS), READS);
        end();
    }
}

static void without_memory_there_is_no_reader(void **state)
{
    (void)state;
    static const enum read_engine_kind engines[] = { READ_ENGINE_THREADS, READ_ENGINE_BEST };
    struct failing_allocator heap;
    failing_allocator_init(&heap);
    assert_int_equal(file_open(&file, &files_posix, path, NULL), MF_OK);
    for (size_t i = 0; i < COUNT_OF(engines); i++) {
        struct async_reader_options options = {
            .allocator = &heap.allocator, .files = &file, .file_count = 1, .engine = engines[i]
        };
        for (uint64_t nth = 1;; nth++) {
            failing_allocator_arm(&heap, nth);
            mf_status status = async_reader_new(&reader, &options, NULL);
            bool fired = failing_allocator_disarm(&heap);
            /* without memory for io_uring, threads are tried */
            if (engines[i] == READ_ENGINE_THREADS || !fired)
                assert_int_equal(status, fired ? MF_ERR_MEMORY : MF_OK);
            async_reader_free(reader);
            assert_int_equal(heap.live_bytes, 0);
            if (!fired) break;
        }
    }
    file_close(&file);
}

/* The tests above leave out a read engine that this machine lacks: say so in the count. */
static void every_read_engine_was_tried(void **state)
{
    (void)state;
    if (!engine_was_left_out) return;
    print_message("    SKIPPED: a read engine could not be opened here\n");
    skip();
}

/* The engine follows from the way files are read, and the option overrides it. */
static void direct_reads_use_io_uring_and_others_threads(void **state)
{
    (void)state;
    static const struct {
        enum read_engine_kind kind;
        bool direct;
        const char *engine;
    } cases[] = {
        { READ_ENGINE_BEST, true, "io_uring" },
        { READ_ENGINE_BEST, false, "threads" },
        { READ_ENGINE_THREADS, true, "threads" },
        { READ_ENGINE_URING, false, "io_uring" },
    };
    if (!begin(&trials[6])) skip(); /* no io_uring here */
    end();
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        const struct trial trial = { .label = "", cases[i].kind, .direct = cases[i].direct };
        struct read_activity activity;
        assert_true(begin(&trial));
        async_reader_activity(reader, &activity);
        assert_string_equal(activity.engine, cases[i].engine);
        end();
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_reads_arrive),
        cmocka_unit_test(the_last_byte_can_be_read),
        cmocka_unit_test(truncated_file_is_reported),
        cmocka_unit_test(an_unlinked_file_is_still_read),
        cmocka_unit_test(transient_errors_are_retried_permanent_ones_reported),
        cmocka_unit_test(missing_file_is_reported),
        cmocka_unit_test(demand_goes_first),
        cmocka_unit_test(a_read_outlives_the_thread_that_began_it),
        cmocka_unit_test(signals_are_left_to_the_caller),
        cmocka_unit_test(direct_reads_use_io_uring_and_others_threads),
        cmocka_unit_test(without_memory_there_is_no_reader),
        cmocka_unit_test(every_read_engine_was_tried),
    };
    return cmocka_run_group_tests(tests, take_buffers, drop_buffers);
}
