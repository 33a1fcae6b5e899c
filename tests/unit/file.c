/* base/file: POSIX files as they are, and every way a file layer may misbehave. */
#include "support/test.h"

#include "base/file.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static const char content[] = "0123456789abcdef";
enum { CONTENT_BYTES = sizeof content - 1 };

/* A file layer in memory that gives `step` bytes at a time and then misbehaves. */
struct memory_files {
    size_t step;
    int64_t after; /* what read returns once `reads` calls were served */
    unsigned reads, opened, closed;
};

static int memory_open(void *user, const char *path, void **handle, uint64_t *size)
{
    struct memory_files *memory = user;
    if (strcmp(path, "m") != 0) return -ENOENT;
    memory->opened++;
    *handle = memory;
    *size = CONTENT_BYTES;
    return 0;
}

static int64_t memory_read(void *user, void *handle, uint64_t offset, void *out, size_t count)
{
    struct memory_files *memory = user;
    assert_ptr_equal(handle, memory);
    if (memory->reads == 0) return memory->after;
    memory->reads--;
    count = min_size(min_size(count, memory->step), CONTENT_BYTES - offset);
    memcpy(out, content + offset, count);
    return (int64_t)count;
}

static void memory_close(void *user, void *handle)
{
    (void)handle;
    ((struct memory_files *)user)->closed++;
}

static mf_files files_of(struct memory_files *memory)
{
    return (mf_files){
        .user = memory, .open = memory_open, .read = memory_read, .close = memory_close
    };
}

static void short_reads_are_continued(void **state)
{
    (void)state;
    for (size_t step = 1; step <= CONTENT_BYTES; step++) {
        struct memory_files memory = { .step = step, .reads = 1000 };
        mf_files files = files_of(&memory);
        struct file file;
        char out[8] = { 0 };
        assert_int_equal(file_open(&file, &files, "m", NULL), MF_OK);
        assert_int_equal(file.size, CONTENT_BYTES);
        assert_int_equal(file_read(&file, out, 3, 7, NULL), MF_OK);
        assert_string_equal(out, "3456789");
        file_close(&file);
        file_close(&file);
        assert_int_equal(memory.closed, 1);
    }
}

static void every_failing_read_is_reported_and_closed(void **state)
{
    (void)state;
    for (unsigned reads = 0; reads < CONTENT_BYTES; reads++) {
        struct memory_files memory = { .step = 1, .reads = reads, .after = -EIO };
        mf_files files = files_of(&memory);
        char *text = (char *)&text, expected[100];
        size_t length = 1;
        mf_error why;
        mf_status status = file_read_whole_new(&text, &length, &files, "m", 100, &why);
        snprintf(expected, sizeof expected, "m cannot be read at byte %u: Input/output error",
                 reads);
        assert_int_equal(status, MF_ERR_IO);
        assert_string_equal(why.text, expected);
        assert_null(text);
        assert_int_equal(length, 0);
        assert_int_equal(memory.opened, memory.closed);
    }
}

static void a_file_that_shrank_is_reported(void **state)
{
    (void)state;
    struct memory_files memory = { .step = 5, .reads = 2, .after = 0 };
    mf_files files = files_of(&memory);
    char *text;
    size_t length;
    mf_error why;
    assert_int_equal(file_read_whole_new(&text, &length, &files, "m", 100, &why), MF_ERR_IO);
    assert_string_equal(why.text, "m ends at byte 10, 6 more were expected");
}

static void a_whole_file_is_terminated_and_bounded(void **state)
{
    (void)state;
    struct memory_files memory = { .step = 100, .reads = 1000 };
    mf_files files = files_of(&memory);
    char *text;
    size_t length;
    mf_error why;
    assert_int_equal(file_read_whole_new(&text, &length, &files, "m", CONTENT_BYTES, &why), MF_OK);
    assert_int_equal(length, CONTENT_BYTES);
    assert_string_equal(text, content);
    free(text);
    assert_int_equal(file_read_whole_new(&text, &length, &files, "m", CONTENT_BYTES - 1, &why),
                     MF_ERR_FORMAT);
    assert_string_equal(why.text, "m has 16 bytes, at most 15 are accepted");
    assert_int_equal(memory.opened, memory.closed);
}

static void missing_files_and_directories_are_refused(void **state)
{
    (void)state;
    struct file file;
    mf_error why;
    assert_int_equal(file_open(&file, &files_posix, "/nowhere/at/all", &why), MF_ERR_IO);
    assert_string_equal(why.text, "/nowhere/at/all cannot be opened: No such file or directory");
    file_close(&file);
    assert_int_equal(file_open(&file, &files_posix, "/tmp", &why), MF_ERR_IO);
    assert_string_equal(why.text, "/tmp cannot be opened: Is a directory");
    assert_int_equal(file_open(&file, &files_posix, "/dev/zero", &why), MF_ERR_IO);

    bool present = true; /* absence is an answer; anything else is not */
    assert_int_equal(file_probe(&present, &files_posix, "/tmp/no such file", &why), MF_OK);
    assert_false(present);
    assert_int_equal(file_probe(&present, &files_posix, "/tmp", &why), MF_ERR_IO);
    assert_int_equal(file_probe(&present, &files_posix, "/dev/null/x", &why), MF_ERR_IO);
}

struct listing {
    unsigned count;
    bool found;
};

static void note_entry(void *context, const char *name)
{
    struct listing *listing = context;
    listing->count++;
    if (strcmp(name, "a.bin") == 0) listing->found = true;
}

static void posix_files_are_read_and_listed(void **state)
{
    (void)state;
    char directory[] = "/tmp/moeflux-file-XXXXXX", path[PATH_CAPACITY], out[4] = { 0 };
    assert_non_null(mkdtemp(directory));
    assert_int_equal(path_join(path, sizeof path, directory, "a.bin", NULL), MF_OK);
    FILE *stream = fopen(path, "w");
    assert_non_null(stream);
    fputs(content, stream);
    fclose(stream);

    struct file file;
    mf_error why;
    bool present = false;
    assert_int_equal(file_probe(&present, &files_posix, path, &why), MF_OK);
    assert_true(present);
    assert_int_equal(file_open(&file, &files_posix, path, &why), MF_OK);
    assert_int_equal(file.size, CONTENT_BYTES);
    assert_int_equal(file_read(&file, out, CONTENT_BYTES - 3, 3, &why), MF_OK);
    assert_string_equal(out, "def");
    assert_int_equal(file_read(&file, out, CONTENT_BYTES - 2, 3, &why), MF_ERR_IO);
    assert_int_equal(file_read(&file, out, CONTENT_BYTES + 5, 1, &why), MF_ERR_IO);
    assert_int_equal(file_read(&file, out, UINT64_MAX - 1, 1, &why), MF_ERR_IO);
    assert_int_equal(file_read(&file, out, CONTENT_BYTES, 0, &why), MF_OK);
    file_close(&file);

    struct listing listing = { 0 };
    assert_int_equal(files_posix.list(NULL, directory, note_entry, &listing), 0);
    assert_true(listing.found);
    assert_int_equal(files_posix.list(NULL, path, note_entry, &listing), -ENOTDIR);
    unlink(path);
    rmdir(directory);
}

static void paths_are_joined_or_refused(void **state)
{
    (void)state;
    char out[8];
    mf_error why;
    assert_int_equal(path_join(out, sizeof out, "a", "b.c", &why), MF_OK);
    assert_string_equal(out, "a/b.c");
    assert_int_equal(path_join(out, sizeof out, "a/", "b", &why), MF_OK);
    assert_string_equal(out, "a/b");
    assert_int_equal(path_join(out, sizeof out, "abc", "def", &why), MF_OK);
    assert_int_equal(path_join(out, sizeof out, "abcd", "def", &why), MF_ERR_ARGUMENT);
}

static void names_from_files_cannot_leave_the_directory(void **state)
{
    (void)state;
    const char *const bad[] = { "", ".", "..", "a/b", "/a", "../a", "a\\b", "a/" };
    for (size_t i = 0; i < COUNT_OF(bad); i++) assert_false(path_is_base_name(bad[i]));
    assert_true(path_is_base_name("model-00001-of-00002.safetensors"));
    assert_true(path_is_base_name("..a"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(short_reads_are_continued),
        cmocka_unit_test(every_failing_read_is_reported_and_closed),
        cmocka_unit_test(a_file_that_shrank_is_reported),
        cmocka_unit_test(a_whole_file_is_terminated_and_bounded),
        cmocka_unit_test(missing_files_and_directories_are_refused),
        cmocka_unit_test(posix_files_are_read_and_listed),
        cmocka_unit_test(paths_are_joined_or_refused),
        cmocka_unit_test(names_from_files_cannot_leave_the_directory),
    };
    return cmocka_run_group_tests_name("file", tests, NULL, NULL);
}
