/* checkpoints: whatever read or allocation fails while a checkpoint is opened, the
 * reader says so, leaks nothing, and opens it the next time; files that come in
 * pieces give the same; and no file makes the reader allocate more than it holds. */
#include "support/test.h"

#include "checkpoint/gguf.h"
#include "checkpoint/safetensors.h"
#include "support/byte_writer.h"
#include "support/failing_allocator.h"
#include "support/failing_files.h"
#include "support/memory_files.h"

#include <errno.h>
#include <stdio.h>

/* ------------------------------------------------------ checkpoints in memory */

static struct memory_files files;
static struct byte_writer writers[8];

static void put_safetensors(struct byte_writer *w, const char *tensor, size_t bytes)
{
    char header[256];
    snprintf(header, sizeof header,
             "{\"%s\":{\"dtype\":\"U8\",\"shape\":[%zu],\"data_offsets\":[0,%zu]}}", tensor, bytes,
             bytes);
    put_u64(w, strlen(header));
    put_bytes(w, header, strlen(header));
    put_zeros(w, bytes);
}

static void put_gguf(struct byte_writer *w, unsigned part, const char *tensor)
{
    put_bytes(w, "GGUF", 4);
    put_u32(w, 3);
    put_u64(w, 1);
    put_u64(w, 4);
    const char *const keys[] = { "split.no", "split.count", "split.tensors.count" };
    const uint32_t numbers[] = { part, 2, 2 };
    for (size_t i = 0; i < 3; i++) {
        put_text(w, keys[i]);
        put_u32(w, METADATA_U32);
        put_u32(w, numbers[i]);
    }
    put_text(w, "tokens");
    put_u32(w, METADATA_ARRAY);
    put_u32(w, METADATA_TEXT);
    put_u64(w, 5000);
    for (size_t i = 0; i < 5000; i++) put_text(w, "a token of the vocabulary");
    put_text(w, tensor);
    put_u32(w, 1);
    put_u64(w, 4);
    put_u32(w, 0);
    put_u64(w, 0);
    put_padding(w, 32);
    put_zeros(w, 16);
}

static int make_files(void **state)
{
    (void)state;
    static const char index[] = "{\"weight_map\":{\"a\":\"model-1.safetensors\",\"b\":\"model-2."
                                "safetensors\"}}";
    memory_files_init(&files);
    put_safetensors(&writers[0], "a", 100);
    put_safetensors(&writers[1], "b", 3);
    put_gguf(&writers[2], 0, "a");
    put_gguf(&writers[3], 1, "b");
    memory_files_put(&files, "indexed/model.safetensors.index.json", index, strlen(index));
    memory_files_put(&files, "indexed/model-1.safetensors", writers[0].bytes, writers[0].count);
    memory_files_put(&files, "indexed/model-2.safetensors", writers[1].bytes, writers[1].count);
    memory_files_put(&files, "listed/model-1.safetensors", writers[0].bytes, writers[0].count);
    memory_files_put(&files, "listed/model-2.safetensors", writers[1].bytes, writers[1].count);
    memory_files_put(&files, "single/model.safetensors", writers[0].bytes, writers[0].count);
    memory_files_put(&files, "a-00001-of-00002.gguf", writers[2].bytes, writers[2].count);
    memory_files_put(&files, "a-00002-of-00002.gguf", writers[3].bytes, writers[3].count);
    return 0;
}

static int free_files(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(writers); i++) byte_writer_free(&writers[i]);
    return 0;
}

static const struct {
    const char *path;
    bool gguf;
    size_t tensor_count;
} checkpoints[] = {
    { "indexed", false, 2 },
    { "listed", false, 2 },
    { "single", false, 1 },
    { "a-00001-of-00002.gguf", true, 2 },
};

/* Opens and closes checkpoint `i`; a success has found all its tensors. */
static mf_status open_once(size_t i, const mf_allocator *allocator, const mf_files *through,
                           mf_error *why)
{
    struct tensor_directory directory;
    struct metadata metadata;
    tensor_directory_init(&directory, allocator);
    metadata_init(&metadata, allocator);
    mf_status status =
        checkpoints[i].gguf
            ? checkpoint_gguf_open(&directory, &metadata, through, checkpoints[i].path, why)
            : safetensors_open(&directory, through, checkpoints[i].path, why);
    if (status == MF_OK) {
        assert_int_equal(directory.count, checkpoints[i].tensor_count);
        assert_non_null(tensor_find(&directory, "a"));
    }
    metadata_free(&metadata);
    tensor_directory_free(&directory);
    assert_int_equal(files.open_count, 0);
    return status;
}

/* ----------------------------------------------------------------- failures */

static void every_failing_read_is_reported(void **state)
{
    (void)state;
    struct failing_files failing;
    failing_files_init(&failing, &files.files);
    for (size_t i = 0; i < COUNT_OF(checkpoints); i++) {
        uint64_t nth = 1;
        for (bool fired = true; fired; nth++) {
            mf_error why = { 0 };
            failing_files_arm(&failing, nth);
            mf_status status = open_once(i, &allocator_heap, &failing.files, &why);
            fired = failing_files_disarm(&failing);
            if (status != (fired ? MF_ERR_IO : MF_OK))
                fail_msg("%s: call %u gave status %d: %s", checkpoints[i].path, (unsigned)nth,
                         status, why.text);
            if (fired) assert_non_null(strstr(why.text, "Input/output error"));
        }
        assert_true(nth > 3);
    }
}

static void every_failing_allocation_is_reported(void **state)
{
    (void)state;
    struct failing_allocator heap;
    failing_allocator_init(&heap);
    for (size_t i = 0; i < COUNT_OF(checkpoints); i++) {
        uint64_t nth = 1;
        for (bool fired = true; fired; nth++) {
            mf_error why = { 0 };
            failing_allocator_arm(&heap, nth);
            mf_status status = open_once(i, &heap.allocator, &files.files, &why);
            fired = failing_allocator_disarm(&heap);
            if (status != (fired ? MF_ERR_MEMORY : MF_OK))
                fail_msg("%s: allocation %u gave status %d: %s", checkpoints[i].path, (unsigned)nth,
                         status, why.text);
            assert_int_equal(heap.live_bytes, 0);
        }
        assert_true(nth > 4);
    }
}

static void files_that_come_in_pieces_are_read_whole(void **state)
{
    (void)state;
    struct failing_files failing;
    failing_files_init(&failing, &files.files);
    const size_t pieces[] = { 1, 7, 4096 };
    for (size_t p = 0; p < COUNT_OF(pieces); p++) {
        failing.piece_bytes = pieces[p];
        for (size_t i = 0; i < COUNT_OF(checkpoints); i++)
            assert_int_equal(open_once(i, &allocator_heap, &failing.files, NULL), MF_OK);
    }
}

/* A file that is shorter than it was when it was opened. */
static void files_that_shrink_are_reported(void **state)
{
    (void)state;
    struct failing_files failing;
    failing_files_init(&failing, &files.files);
    for (size_t i = 0; i < COUNT_OF(checkpoints); i++) {
        for (uint64_t end = 1; end < 40; end += 3) {
            mf_error why = { 0 };
            failing.end_at = end;
            assert_int_equal(open_once(i, &allocator_heap, &failing.files, &why), MF_ERR_IO);
            assert_non_null(strstr(why.text, "ends at byte"));
        }
    }
}

/* ------------------------------------------------------------- lies of sizes */

/* A file of a tebibyte of zeros behind `bytes`. */
struct vast_file {
    mf_files files;
    const uint8_t *bytes;
    size_t count;
};

#define VAST_BYTES ((uint64_t)1 << 40)

static int vast_open(void *user, const char *path, void **handle, uint64_t *size)
{
    if (strstr(path, "index.json")) return -ENOENT;
    *handle = user;
    *size = VAST_BYTES;
    return 0;
}

static int64_t vast_read(void *user, void *handle, uint64_t offset, void *out, size_t count)
{
    const struct vast_file *file = user;
    (void)handle;
    memset(out, 0, count);
    if (offset < file->count)
        memcpy(out, file->bytes + offset, min_size(count, file->count - (size_t)offset));
    return (int64_t)count;
}

static void vast_close(void *user, void *handle)
{
    (void)user;
    (void)handle;
}

/* Refuses what would bring the sum above a limit. */
struct budget {
    mf_allocator allocator;
    size_t left;
};

static void *budget_allocate(void *user, size_t bytes, size_t alignment)
{
    struct budget *budget = user;
    if (bytes > budget->left) return NULL;
    budget->left -= bytes;
    return allocator_heap.allocate(allocator_heap.user, bytes, alignment);
}

static void budget_release(void *user, void *pointer, size_t bytes)
{
    struct budget *budget = user;
    budget->left += bytes;
    allocator_heap.release(allocator_heap.user, pointer, bytes);
}

/* Opens the GGUF `w` as the head of a vast file with a budget of 1 MiB. */
static void expect_refused_cheaply(struct byte_writer *w)
{
    struct vast_file vast = { .bytes = w->bytes, .count = w->count };
    vast.files =
        (mf_files){ .user = &vast, .open = vast_open, .read = vast_read, .close = vast_close };
    struct budget budget = { .left = 1 << 20 };
    budget.allocator = (mf_allocator){ &budget, budget_allocate, budget_release };
    struct tensor_directory directory;
    struct metadata metadata;
    mf_error why = { 0 };
    tensor_directory_init(&directory, &budget.allocator);
    metadata_init(&metadata, &budget.allocator);
    mf_status status = checkpoint_gguf_open(&directory, &metadata, &vast.files, "vast.gguf", &why);
    if (status != MF_ERR_FORMAT) fail_msg("status %d: %s", status, why.text);
    metadata_free(&metadata);
    tensor_directory_free(&directory);
    assert_int_equal(budget.left, 1 << 20);
    byte_writer_free(w);
}

static void put_head(struct byte_writer *w, uint64_t tensors, uint64_t values)
{
    put_bytes(w, "GGUF", 4);
    put_u32(w, 3);
    put_u64(w, tensors);
    put_u64(w, values);
}

static void claimed_counts_are_not_trusted(void **state)
{
    (void)state;
    struct byte_writer w = { 0 };
    put_head(&w, 0, VAST_BYTES / 16); /* the first key is empty */
    expect_refused_cheaply(&w);

    put_head(&w, VAST_BYTES / 32, 0); /* all tensors are called "" */
    expect_refused_cheaply(&w);

    put_head(&w, 0, 1);
    put_text(&w, "k");
    put_u32(&w, METADATA_TEXT);
    put_u64(&w, VAST_BYTES / 2);
    expect_refused_cheaply(&w);

    put_head(&w, 0, 1);
    put_text(&w, "k");
    put_u32(&w, METADATA_ARRAY);
    put_u32(&w, METADATA_U64);
    put_u64(&w, VAST_BYTES / 16);
    expect_refused_cheaply(&w);
}

static void a_header_of_safetensors_is_bounded(void **state)
{
    (void)state;
    uint8_t length[8] = { 0, 0, 0, 0, 1, 0, 0, 0 }; /* 4 GiB */
    struct vast_file vast = { .bytes = length, .count = 8 };
    vast.files =
        (mf_files){ .user = &vast, .open = vast_open, .read = vast_read, .close = vast_close };
    struct budget budget = { .left = 1 << 20 };
    budget.allocator = (mf_allocator){ &budget, budget_allocate, budget_release };
    struct tensor_directory directory;
    tensor_directory_init(&directory, &budget.allocator);
    assert_int_equal(safetensors_open(&directory, &vast.files, "vast", NULL), MF_ERR_FORMAT);
    tensor_directory_free(&directory);
    assert_int_equal(budget.left, 1 << 20);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_failing_read_is_reported),
        cmocka_unit_test(every_failing_allocation_is_reported),
        cmocka_unit_test(files_that_come_in_pieces_are_read_whole),
        cmocka_unit_test(files_that_shrink_are_reported),
        cmocka_unit_test(claimed_counts_are_not_trusted),
        cmocka_unit_test(a_header_of_safetensors_is_bounded),
    };
    return cmocka_run_group_tests(tests, make_files, free_files);
}
