/* ancestors: the ancestors' files as tensors, and what is refused with which words. */
#include "support/test.h"

#include "checkpoint/ancestors.h"
#include "support/failing_allocator.h"
#include "support/failing_files.h"
#include "support/memory_files.h"

#include <stdio.h>

/* H = 128, I = 64, E = 3: by hand, not by the code under test. */
enum {
    HIDDEN = 128,
    EXPERTS = 3,
    WEIGHT_4 = 64 * 128 / 2,
    WEIGHT_2 = 64 * 128 / 4,
    SCALES = 64 * 2 * 2,
    BLOB_4 = 3 * (WEIGHT_4 + 2 * SCALES),
    BLOB_2 = 3 * (WEIGHT_2 + 2 * SCALES),
};

#define NORM                                                                                       \
    "\"model.layers.1.input_layernorm.weight\":{\"offset\":0,\"size\":256,"                        \
    "\"shape\":[128],\"dtype\":\"BF16\"}"
#define ROUTER(layer, offset)                                                                      \
    "\"model.layers." layer ".mlp.gate.weight\":{\"offset\":" offset ",\"size\":384,"              \
    "\"shape\":[3,32],\"dtype\":\"U32\",\"bits\":8}"
#define MANIFEST(tensors) "{\"model\":\"m\",\"num_tensors\":9,\"tensors\":{" tensors "}}"

static const char manifest[] = MANIFEST(NORM "," ROUTER("1", "256") "," ROUTER("2", "640"));

static uint8_t weights[1024], experts[EXPERTS * BLOB_4];

static void put_model(struct memory_files *files)
{
    memory_files_init(files);
    for (size_t i = 0; i < sizeof experts; i++) experts[i] = (uint8_t)(i / 256);
    memory_files_put(files, "p/artifacts/model_weights.bin", weights, sizeof weights);
    memory_files_put(files, "p/artifacts/model_weights.json", manifest, strlen(manifest));
    memory_files_put(files, "p/root/packed_experts/layer_01.bin", experts, sizeof experts);
    memory_files_put(files, "p/root/packed_experts/layer_02.bin", experts, sizeof experts);
}

static void expect(struct memory_files *files, bool two_bit, mf_status status, const char *words)
{
    struct tensor_directory directory;
    mf_error why = { 0 };
    tensor_directory_init(&directory, &allocator_heap);
    mf_status got = ancestors_open_parent(&directory, &files->files, "p", two_bit, &why);
    tensor_directory_free(&directory);
    if (got != status || !strstr(why.text, words))
        fail_msg("expected '%s' (%d), got '%s' (%d)", words, status, why.text, got);
    assert_int_equal(files->open_count, 0);
}

static void check_part(const struct tensor_directory *directory, const char *name, uint64_t offset,
                       uint64_t rows, uint64_t cols)
{
    const struct tensor *tensor = tensor_find(directory, name);
    assert_non_null(tensor);
    assert_int_equal(tensor->offset, offset);
    assert_int_equal(tensor->shape[0], rows);
    assert_int_equal(tensor->shape[1], cols);
    bool scales = strstr(name, "weight") == NULL;
    assert_int_equal(tensor->format, scales ? FORMAT_BF16 : FORMAT_U32);
    assert_int_equal(tensor->bytes, rows * cols * (scales ? 2 : 4));
}

static void experts_are_found_in_their_blobs(void **state)
{
    (void)state;
    struct memory_files files;
    struct tensor_directory directory;
    put_model(&files);
    bool present;
    assert_int_equal(ancestors_probe(&present, &files.files, "p", NULL), MF_OK);
    assert_true(present);
    tensor_directory_init(&directory, &allocator_heap);
    assert_int_equal(ancestors_open_parent(&directory, &files.files, "p", false, NULL), MF_OK);
    assert_int_equal(directory.count, 3 + 2 * EXPERTS * 9);

#define EXPERT "model.layers.2.mlp.experts.1."
    const uint64_t block = WEIGHT_4 + 2 * SCALES;
    check_part(&directory, EXPERT "gate_proj.weight", BLOB_4, 64, 16);
    check_part(&directory, EXPERT "gate_proj.scales", BLOB_4 + WEIGHT_4, 64, 2);
    check_part(&directory, EXPERT "gate_proj.biases", BLOB_4 + WEIGHT_4 + SCALES, 64, 2);
    check_part(&directory, EXPERT "up_proj.weight", BLOB_4 + block, 64, 16);
    check_part(&directory, EXPERT "up_proj.biases", BLOB_4 + block + WEIGHT_4 + SCALES, 64, 2);
    check_part(&directory, EXPERT "down_proj.weight", BLOB_4 + 2 * block, 128, 8);
    check_part(&directory, EXPERT "down_proj.scales", BLOB_4 + 2 * block + WEIGHT_4, 128, 1);
    check_part(&directory, EXPERT "down_proj.biases", 2 * BLOB_4 - SCALES, 128, 1);
    uint8_t bytes[WEIGHT_4];
    const struct tensor *last =
        tensor_find(&directory, "model.layers.1.mlp.experts.2.up_proj.weight");
    assert_int_equal(tensor_read(&directory, last, bytes, NULL), MF_OK);
    assert_memory_equal(bytes, experts + last->offset, sizeof bytes);
    tensor_directory_free(&directory);
    assert_int_equal(files.open_count, 0);
}

static void two_bits_are_taken_when_asked_for_or_alone(void **state)
{
    (void)state;
    struct memory_files files;
    for (unsigned i = 0; i < 2; i++) {
        bool asked = i == 0;
        put_model(&files);
        if (!asked) files.count = 2; /* no 4-bit files */
        memory_files_put(&files, "p/root/packed_experts_2bit/layer_01.bin", experts,
                         EXPERTS * BLOB_2);
        struct tensor_directory directory;
        tensor_directory_init(&directory, &allocator_heap);
        mf_status status = ancestors_open_parent(&directory, &files.files, "p", asked, NULL);
        assert_int_equal(status, MF_OK);
        check_part(&directory, "model.layers.1.mlp.experts.1.down_proj.weight",
                   BLOB_2 + 2 * (WEIGHT_2 + 2 * SCALES), 128, 4);
        tensor_directory_free(&directory);
    }
    put_model(&files);
    expect(&files, true, MF_ERR_IO, "no packed_experts_2bit");
}

static void a_missing_layer_is_an_error_when_it_is_read(void **state)
{
    (void)state;
    struct memory_files files;
    struct tensor_directory directory;
    uint8_t bytes[WEIGHT_4];
    mf_error why;
    put_model(&files);
    files.count--; /* layer 2 */
    tensor_directory_init(&directory, &allocator_heap);
    assert_int_equal(ancestors_open_parent(&directory, &files.files, "p", false, NULL), MF_OK);
    const struct tensor *there =
        tensor_find(&directory, "model.layers.1.mlp.experts.0.up_proj.weight");
    const struct tensor *gone =
        tensor_find(&directory, "model.layers.2.mlp.experts.0.up_proj.weight");
    assert_int_equal(tensor_read(&directory, there, bytes, &why), MF_OK);
    assert_int_equal(tensor_read(&directory, gone, bytes, &why), MF_ERR_IO);
    assert_string_equal(why.text, "p/root/packed_experts/layer_02.bin is missing");
    tensor_directory_free(&directory);
}

static void a_wrong_manifest_is_refused(void **state)
{
    (void)state;
#define ONE(fields) MANIFEST(NORM "," ROUTER("1", "256") ",\"t\":{" fields "}")
    const struct {
        const char *text;
        mf_status status;
        const char *words;
    } cases[] = {
        { "{}", MF_ERR_FORMAT, "tensors is nothing" },
        { "[]", MF_ERR_FORMAT, "an object was expected" },
        { "{\"tensors\":", MF_ERR_FORMAT, "not valid JSON" },
        { "{\"tensors\":{\"t\":1}}", MF_ERR_FORMAT, "tensor t is a whole number" },
        { ONE("\"offset\":640,\"size\":4,\"shape\":[4]"), MF_ERR_FORMAT, "dtype is nothing" },
        { ONE("\"offset\":640,\"size\":4,\"shape\":[-4],\"dtype\":\"U8\""), MF_ERR_FORMAT,
          "tensor t: shape" },
        { ONE("\"size\":4,\"shape\":[4],\"dtype\":\"U8\""), MF_ERR_FORMAT, "offset is missing" },
        { ONE("\"offset\":640,\"size\":5,\"shape\":[4],\"dtype\":\"U8\""), MF_ERR_FORMAT,
          "of shape [4] and 8 bits has 5 bytes" },
        { ONE("\"offset\":1024,\"size\":4,\"shape\":[4],\"dtype\":\"U8\""), MF_ERR_FORMAT,
          "4 bytes from byte 1024 of the weights, which have 1024" },
        { ONE("\"offset\":9223372036854775807,\"size\":4,\"shape\":[4],\"dtype\":\"U8\""),
          MF_ERR_FORMAT, "of the weights" },
        { ONE("\"offset\":642,\"size\":4,\"shape\":[4],\"dtype\":\"U8\""), MF_ERR_FORMAT,
          "not a multiple of 4" },
        { ONE("\"offset\":640,\"size\":4,\"shape\":[1],\"dtype\":\"U32\",\"bits\":7"),
          MF_ERR_UNSUPPORTED, "tensor t has 7 bits" },
        { ONE("\"offset\":128,\"size\":4,\"shape\":[4],\"dtype\":\"U8\""), MF_ERR_FORMAT,
          "tensor t begins inside tensor model.layers.1.input_layernorm.weight" },
        { MANIFEST(ROUTER("1", "256")), MF_ERR_MISMATCH, "input_layernorm.weight has 0 numbers" },
        { MANIFEST(NORM), MF_ERR_MISMATCH, "no router" },
        { MANIFEST(NORM ",\"model.layers.1.mlp.gate.weight\":{\"offset\":256,\"size\":0,"
                        "\"shape\":[4096,0],\"dtype\":\"U32\"}"),
          MF_ERR_MISMATCH, "no router of 4096 experts" },
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct memory_files files;
        put_model(&files);
        memory_files_put(&files, "p/artifacts/model_weights.json", cases[i].text,
                         strlen(cases[i].text));
        expect(&files, false, cases[i].status, cases[i].words);
    }
}

static void layer_files_of_another_size_are_refused(void **state)
{
    (void)state;
    struct memory_files files;
    put_model(&files);
    memory_files_put(&files, "p/root/packed_experts/layer_02.bin", experts, sizeof experts - 1);
    expect(&files, false, MF_ERR_MISMATCH, "layer_02.bin has 41471 bytes, 41472 were expected");
    put_model(&files);
    memory_files_put(&files, "p/root/packed_experts/layer_01.bin", experts, sizeof experts - 3);
    expect(&files, false, MF_ERR_MISMATCH, "which is not 3 experts of 4 bits");
    memory_files_put(&files, "p/root/packed_experts/layer_01.bin", experts, 0);
    expect(&files, false, MF_ERR_MISMATCH, "which is not 3 experts of 4 bits");
}

static void write_layout(char *out, size_t capacity, unsigned expert_size, unsigned expert_count,
                         unsigned last_offset, unsigned last_rows, const char *more)
{
    static const struct {
        const char *name;
        unsigned offset, size;
    } parts[] = {
        { "gate_proj.weight", 0, 4096 },    { "gate_proj.scales", 4096, 256 },
        { "gate_proj.biases", 4352, 256 },  { "up_proj.weight", 4608, 4096 },
        { "up_proj.scales", 8704, 256 },    { "up_proj.biases", 8960, 256 },
        { "down_proj.weight", 9216, 4096 }, { "down_proj.scales", 13312, 256 },
    };
    size_t used = (size_t)snprintf(
        out, capacity, "{\"expert_size\":%u,\"num_layers\":2,\"num_experts\":%u,\"components\":[",
        expert_size, expert_count);
    for (size_t i = 0; i < COUNT_OF(parts); i++)
        used += (size_t)snprintf(out + used, capacity - used,
                                 "{\"name\":\"%s\",\"offset\":%u,\"size\":%u},", parts[i].name,
                                 parts[i].offset, parts[i].size);
    snprintf(out + used, capacity - used,
             "{\"name\":\"down_proj.biases\",\"offset\":%u,\"size\":256,\"shape\":[%u,1]}%s]}",
             last_offset, last_rows, more);
}

static void a_layout_file_must_agree(void **state)
{
    (void)state;
    const struct {
        unsigned expert_size, experts, offset, rows;
        const char *more;
        mf_status status;
        const char *words;
    } cases[] = {
        { 13824, 3, 13568, 128, "", MF_OK, "" },
        { 13820, 3, 13568, 128, "", MF_ERR_FORMAT, "expert_size is 13820" },
        { 13824, 4, 13568, 128, "", MF_ERR_FORMAT, "num_experts is 4" },
        { 13824, 3, 13564, 128, "", MF_ERR_MISMATCH, "component down_proj.biases" },
        { 13824, 3, 13568, 127, "", MF_ERR_MISMATCH, "component down_proj.biases" },
        { 13824, 3, 13568, 128, ",{}", MF_ERR_FORMAT, "components has 10 entries" },
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct memory_files files;
        char layout[2048];
        write_layout(layout, sizeof layout, cases[i].expert_size, cases[i].experts, cases[i].offset,
                     cases[i].rows, cases[i].more);
        put_model(&files);
        memory_files_put(&files, "p/root/packed_experts/layout.json", layout, strlen(layout));
        expect(&files, false, cases[i].status, cases[i].words);
    }
}

static void every_failure_is_reported(void **state)
{
    (void)state;
    struct memory_files files;
    struct failing_files failing;
    struct failing_allocator heap;
    put_model(&files);
    failing_files_init(&failing, &files.files);
    failing_allocator_init(&heap);
    bool read_failed = true, allocation_failed = true;
    for (uint64_t nth = 1; read_failed || allocation_failed; nth++) {
        struct tensor_directory directory;
        failing_files_arm(&failing, nth);
        tensor_directory_init(&directory, &heap.allocator);
        mf_status status = ancestors_open_parent(&directory, &failing.files, "p", false, NULL);
        read_failed = failing_files_disarm(&failing);
        assert_int_equal(status, read_failed ? MF_ERR_IO : MF_OK);
        tensor_directory_free(&directory);

        failing_allocator_arm(&heap, nth);
        tensor_directory_init(&directory, &heap.allocator);
        status = ancestors_open_parent(&directory, &files.files, "p", false, NULL);
        allocation_failed = failing_allocator_disarm(&heap);
        assert_int_equal(status, allocation_failed ? MF_ERR_MEMORY : MF_OK);
        tensor_directory_free(&directory);
        assert_int_equal(heap.live_bytes, 0);
        assert_int_equal(files.open_count, 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(experts_are_found_in_their_blobs),
        cmocka_unit_test(two_bits_are_taken_when_asked_for_or_alone),
        cmocka_unit_test(a_missing_layer_is_an_error_when_it_is_read),
        cmocka_unit_test(a_wrong_manifest_is_refused),
        cmocka_unit_test(layer_files_of_another_size_are_refused),
        cmocka_unit_test(a_layout_file_must_agree),
        cmocka_unit_test(every_failure_is_reported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
