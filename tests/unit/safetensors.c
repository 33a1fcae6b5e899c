/* safetensors: what is accepted, and what is refused with which words. */
#include "support/test.h"

#include "checkpoint/safetensors.h"
#include "support/memory_files.h"

#include <stdio.h>
#include <stdlib.h>

/* A file: the length of `header`, the header, and `data_bytes` bytes 0, 1, 2 … */
struct made_file {
    uint8_t bytes[4096];
    size_t size;
};

static struct made_file make_file(const char *header, size_t data_bytes)
{
    struct made_file file = { .size = 8 + strlen(header) + data_bytes };
    assert_true(file.size <= sizeof file.bytes);
    uint64_t length = strlen(header);
    memcpy(file.bytes, &length, 8);
    memcpy(file.bytes + 8, header, strlen(header));
    for (size_t i = 0; i < data_bytes; i++) file.bytes[8 + length + i] = (uint8_t)i;
    return file;
}

static mf_status open_files(struct tensor_directory *directory, struct memory_files *files,
                            mf_error *why)
{
    tensor_directory_init(directory, &allocator_heap);
    return safetensors_open(directory, &files->files, "model", why);
}

/* Opening `files` fails with `status`, and the message has `words`. */
static void expect_refusal(struct memory_files *files, mf_status status, const char *words)
{
    struct tensor_directory directory;
    mf_error why = { 0 };
    mf_status got = open_files(&directory, files, &why);
    tensor_directory_free(&directory);
    if (got != status || !strstr(why.text, words))
        print_error("expected '%s' (%d), got '%s' (%d)\n", words, status, why.text, got);
    assert_int_equal(got, status);
    assert_non_null(strstr(why.text, words));
    assert_int_equal(files->open_count, 0);
}

static void expect_header_refused(const char *header, size_t data_bytes, const char *words)
{
    struct memory_files files;
    struct made_file file = make_file(header, data_bytes);
    memory_files_init(&files);
    memory_files_put(&files, "model/model.safetensors", file.bytes, file.size);
    expect_refusal(&files, MF_ERR_FORMAT, words);
}

#define TENSOR(name, dtype, shape, begin, end)                                                     \
    "\"" name "\":{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":[" #begin "," #end \
    "]}"

static void tensors_are_found_with_their_extents(void **state)
{
    (void)state;
    const char *header =
        "{\"__metadata__\":{\"format\":\"pt\"}," TENSOR("b", "F32", "[2,1]", 0, 8) "," TENSOR(
            "empty", "F16", "[0,5]", 8,
            8) ","
               "\"a\":{\"shape\":[3],\"later\":[{}],\"data_offsets\":[8,14],\"dtype\":\"BF16\"}"
               "," TENSOR("scalar", "U8", "[]", 14, 15) "," TENSOR(
                   "odd", "F9", "[7]", 15, 18) "," TENSOR("six", "F6_E2M3", "[4]", 18, 21) "}   ";
    struct memory_files files;
    struct made_file file = make_file(header, 21);
    memory_files_init(&files);
    memory_files_put(&files, "model/model.safetensors", file.bytes, file.size);
    struct tensor_directory directory;
    mf_error why = { 0 };
    assert_int_equal(open_files(&directory, &files, &why), MF_OK);
    assert_int_equal(directory.count, 6);

    const struct tensor *a = tensor_find(&directory, "a");
    assert_int_equal(a->format, FORMAT_BF16);
    assert_int_equal(a->bytes, 6);
    uint8_t bytes[6];
    assert_int_equal(tensor_read(&directory, a, bytes, &why), MF_OK);
    assert_int_equal(bytes[0], 8);
    const struct tensor *scalar = tensor_find(&directory, "scalar");
    assert_int_equal(scalar->rank, 0);
    char text[32];
    assert_string_equal(tensor_shape_text(scalar, text, sizeof text), "[]");
    assert_string_equal(tensor_shape_text(tensor_find(&directory, "empty"), text, sizeof text),
                        "[0, 5]");
    assert_int_equal(tensor_find(&directory, "odd")->format, FORMAT_COUNT);
    assert_null(tensor_find(&directory, "none"));
    assert_null(tensor_find(&directory, "__metadata__"));
    tensor_directory_free(&directory);
    assert_int_equal(files.open_count, 0);
}

static void a_wrong_length_is_refused(void **state)
{
    (void)state;
    struct memory_files files;
    struct made_file file = make_file("{}", 0);
    memory_files_init(&files);
    for (size_t size = 0; size < 10; size++) {
        memory_files_put(&files, "model/model.safetensors", file.bytes, size);
        expect_refusal(&files, MF_ERR_FORMAT, "model/model.safetensors");
    }
    const uint64_t lies[] = { 0, 3, 100000001, UINT64_MAX, UINT64_MAX - 7, (uint64_t)1 << 63 };
    memory_files_put(&files, "model/model.safetensors", file.bytes, file.size);
    for (size_t i = 0; i < COUNT_OF(lies); i++) {
        memcpy(file.bytes, &lies[i], 8);
        expect_refusal(&files, MF_ERR_FORMAT, "the header should have");
    }
}

static void malformed_json_is_refused(void **state)
{
    (void)state;
    expect_header_refused("[]", 0, "does not begin with '{'");
    expect_header_refused(" {}", 0, "does not begin with '{'");
    expect_header_refused("{", 0, "not valid JSON");
    expect_header_refused("{} x", 0, "not valid JSON");
    expect_header_refused("{\"a\xff\":1}", 0, "not valid JSON");
    expect_header_refused("{\"a\\u0000\":1}", 0, "not valid JSON");
    expect_header_refused("{" TENSOR("a", "U8", "[1]", 0, 1) "," TENSOR("a", "U8", "[1]", 1, 2) "}",
                          2, "duplicate");
    expect_header_refused(
        "{\"a\":{\"dtype\":\"U8\",\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", 1,
        "duplicate");
}

static void deep_nesting_is_refused(void **state)
{
    (void)state;
    static char header[4000];
    memset(header, '[', sizeof header - 1);
    memcpy(header, "{\"a\":", 5);
    expect_header_refused(header, 0, "not valid JSON");
}

static void malformed_fields_are_refused(void **state)
{
    (void)state;
    const struct {
        const char *header, *words;
    } cases[] = {
        { "{\"a\":3}", "tensor a is a whole number" },
        { "{\"__metadata__\":{\"a\":1}}", "__metadata__ a is" },
        { "{\"__metadata__\":[]}", "__metadata__ is an array" },
        { "{\"a\":{\"shape\":[1],\"data_offsets\":[0,1]}}", "dtype is nothing" },
        { "{\"a\":{\"dtype\":1,\"shape\":[1],\"data_offsets\":[0,1]}}", "dtype is a whole" },
        { "{\"a\":{\"dtype\":\"U8\",\"data_offsets\":[0,1]}}", "tensor a: shape" },
        { "{" TENSOR("a", "U8", "[-1]", 0, 1) "}", "tensor a: shape" },
        { "{" TENSOR("a", "U8", "[1.0]", 0, 1) "}", "tensor a: shape" },
        { "{" TENSOR("a", "U8", "[1e0]", 0, 1) "}", "tensor a: shape" },
        { "{" TENSOR("a", "U8", "[[1]]", 0, 1) "}", "tensor a: shape" },
        { "{" TENSOR("a", "U8", "[1,1,1,1,1,1,1,1,1]", 0, 1) "}", "tensor a: shape" },
        { "{" TENSOR("a", "U8", "[9007199254740993]", 0, 1) "}", "tensor a: shape" },
        { "{" TENSOR("a", "U8", "[99999999999999999999]", 0, 1) "}", "not valid JSON" },
        { "{\"a\":{\"dtype\":\"U8\",\"shape\":[1]}}", "data_offsets" },
        { "{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0]}}", "data_offsets" },
        { "{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1,1]}}", "data_offsets" },
        { "{" TENSOR("a", "U8", "[1]", 1, 0) "}", "before its begin" },
        { "{" TENSOR("a", "F32", "[1]", 0, 1) "}", "of shape [1] and 32 bits has 1 bytes" },
        { "{" TENSOR("a", "F4", "[3]", 0, 1) "}", "of shape [3] and 4 bits has 1 bytes" },
        /* 2^53 x 2^53 x 2^53 overflows; without the check it would wrap to a small number. */
        { "{" TENSOR("a", "U8", "[9007199254740992,9007199254740992,9007199254740992]", 0, 0) "}",
          "has 0 bytes" },
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++)
        expect_header_refused(cases[i].header, 1, cases[i].words);
}

static void data_that_is_not_tiled_is_refused(void **state)
{
    (void)state;
    expect_header_refused("{" TENSOR("a", "U8", "[2]", 0, 2) "," TENSOR("b", "U8", "[2]", 3, 5) "}",
                          5, "tensor b begins at byte 3 of the data, after a hole");
    expect_header_refused("{" TENSOR("a", "U8", "[2]", 0, 2) "," TENSOR("b", "U8", "[2]", 1, 3) "}",
                          3, "tensor b begins at byte 1 of the data, inside");
    expect_header_refused("{" TENSOR("a", "U8", "[2]", 1, 3) "}", 3, "after a hole");
    expect_header_refused("{" TENSOR("a", "U8", "[2]", 0, 2) "}", 3, "the tensors end at byte 2");
    expect_header_refused("{" TENSOR("a", "U8", "[2]", 0, 2) "}", 1, "ends at byte 2");
    expect_header_refused("{}", 1, "the tensors end at byte 0");
}

/* Cut off anywhere, a file is refused: none of its prefixes is a file. */
static void every_prefix_is_refused(void **state)
{
    (void)state;
    struct memory_files files;
    struct made_file file =
        make_file("{" TENSOR("a", "U8", "[2]", 0, 2) "," TENSOR("b", "F32", "[3]", 2, 14) "}", 14);
    memory_files_init(&files);
    for (size_t size = 0; size < file.size; size++) {
        memory_files_put(&files, "model/model.safetensors", file.bytes, size);
        expect_refusal(&files, MF_ERR_FORMAT, "model/model.safetensors");
    }
}

static const char index_path[] = "model/model.safetensors.index.json";

static void put_two_shards(struct memory_files *files, const char *index)
{
    static struct made_file one, two;
    one = make_file("{" TENSOR("a", "U8", "[2]", 0, 2) "}", 2);
    two = make_file("{" TENSOR("b", "U8", "[3]", 0, 3) "}", 3);
    memory_files_init(files);
    memory_files_put(files, "model/model-00002-of-00002.safetensors", two.bytes, two.size);
    memory_files_put(files, "model/model-00001-of-00002.safetensors", one.bytes, one.size);
    if (index) memory_files_put(files, index_path, index, strlen(index));
}

#define SHARD_1 "model-00001-of-00002.safetensors"
#define SHARD_2 "model-00002-of-00002.safetensors"

static void shards_are_read_with_and_without_an_index(void **state)
{
    (void)state;
    const char *indices[] = {
        NULL,
        "{\"metadata\":{\"total_size\":5},\"weight_map\":{\"b\":\"" SHARD_2 "\",\"a\":\"" SHARD_1
        "\"}}",
    };
    for (size_t i = 0; i < COUNT_OF(indices); i++) {
        struct memory_files files;
        struct tensor_directory directory;
        put_two_shards(&files, indices[i]);
        assert_int_equal(open_files(&directory, &files, NULL), MF_OK);
        assert_int_equal(directory.count, 2);
        assert_int_equal(tensor_find(&directory, "a")->file, 0);
        assert_int_equal(tensor_find(&directory, "b")->file, 1);
        assert_string_equal(directory.files[1].path, "model/" SHARD_2);
        tensor_directory_free(&directory);
    }
}

static void a_wrong_index_is_refused(void **state)
{
    (void)state;
    const struct {
        const char *map;
        mf_status status;
        const char *words;
    } cases[] = {
        { "{\"a\":\"../" SHARD_1 "\"}", MF_ERR_FORMAT, "not to a plain file name" },
        { "{\"a\":\"/etc/passwd\"}", MF_ERR_FORMAT, "not to a plain file name" },
        { "{\"a\":\"..\"}", MF_ERR_FORMAT, "not to a plain file name" },
        { "{\"a\":\"x\\\\y\"}", MF_ERR_FORMAT, "not to a plain file name" },
        { "{\"a\":\"" SHARD_1 "\\u0000x\"}", MF_ERR_FORMAT, "not to a plain file name" },
        { "{\"a\":\"\"}", MF_ERR_FORMAT, "not to a plain file name" },
        { "{\"a\":7}", MF_ERR_FORMAT, "not to a file name" },
        { "{}", MF_ERR_FORMAT, "weight_map is empty" },
        { "[]", MF_ERR_FORMAT, "weight_map is an array" },
        { "{\"a\":\"gone.safetensors\"}", MF_ERR_IO, "model/gone.safetensors" },
        { "{\"a\":\"" SHARD_2 "\",\"b\":\"" SHARD_2 "\"}", MF_ERR_MISMATCH, "tensor a" },
        { "{\"a\":\"" SHARD_2 "\",\"b\":\"" SHARD_1 "\"}", MF_ERR_MISMATCH, "but it is in" },
        { "{\"c\":\"" SHARD_2 "\"}", MF_ERR_MISMATCH, "tensor c" },
        { "{\"a\":\"model.safetensors.index.json\"}", MF_ERR_FORMAT, "the header should have" },
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct memory_files files;
        char index[512];
        snprintf(index, sizeof index, "{\"weight_map\":%s}", cases[i].map);
        put_two_shards(&files, index);
        expect_refusal(&files, cases[i].status, cases[i].words);
    }
}

static void a_tensor_in_two_shards_is_refused(void **state)
{
    (void)state;
    struct memory_files files;
    struct made_file file = make_file("{" TENSOR("a", "U8", "[2]", 0, 2) "}", 2);
    memory_files_init(&files);
    memory_files_put(&files, "model/model-1.safetensors", file.bytes, file.size);
    memory_files_put(&files, "model/model-2.safetensors", file.bytes, file.size);
    expect_refusal(&files, MF_ERR_FORMAT,
                   "tensor a stands twice: in model/model-1.safetensors and in "
                   "model/model-2.safetensors");
}

static void a_directory_without_a_model_is_refused(void **state)
{
    (void)state;
    struct memory_files files;
    memory_files_init(&files);
    expect_refusal(&files, MF_ERR_IO, "model cannot be listed");
    memory_files_put(&files, "model/golden.safetensors", "", 0);
    memory_files_put(&files, "model/model.safetensors.part", "", 0);
    expect_refusal(&files, MF_ERR_IO, "model has no model*.safetensors");
}

/* Hostile names and many tensors: time stays proportional to the file. */
static void a_hundred_thousand_tensors_are_listed_at_once(void **state)
{
    (void)state;
    enum { COUNT = 100000 };
    size_t capacity = COUNT * 100, used = 8;
    char *file = malloc(capacity);
    assert_non_null(file);
    for (unsigned i = 0; i < COUNT; i++)
        used +=
            (size_t)snprintf(file + used, capacity - used,
                             "%c" TENSOR("layers.%u.weight", "U8", "[0]", 0, 0), i ? ',' : '{', i);
    file[used++] = '}';
    uint64_t length = used - 8;
    memcpy(file, &length, 8);
    struct memory_files files;
    memory_files_init(&files);
    memory_files_put(&files, "model/model.safetensors", file, used);
    struct tensor_directory directory;
    assert_int_equal(open_files(&directory, &files, NULL), MF_OK);
    assert_int_equal(directory.count, COUNT);
    for (unsigned i = 0; i < COUNT; i += 7) {
        char name[64];
        snprintf(name, sizeof name, "layers.%u.weight", i);
        assert_non_null(tensor_find(&directory, name));
    }
    tensor_directory_free(&directory);
    free(file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tensors_are_found_with_their_extents),
        cmocka_unit_test(a_wrong_length_is_refused),
        cmocka_unit_test(malformed_json_is_refused),
        cmocka_unit_test(deep_nesting_is_refused),
        cmocka_unit_test(malformed_fields_are_refused),
        cmocka_unit_test(data_that_is_not_tiled_is_refused),
        cmocka_unit_test(every_prefix_is_refused),
        cmocka_unit_test(shards_are_read_with_and_without_an_index),
        cmocka_unit_test(a_wrong_index_is_refused),
        cmocka_unit_test(a_tensor_in_two_shards_is_refused),
        cmocka_unit_test(a_directory_without_a_model_is_refused),
        cmocka_unit_test(a_hundred_thousand_tensors_are_listed_at_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
