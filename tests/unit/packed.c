/* The packed layout: its manifest there and back, and everything about it that can be wrong. */
#include "support/test.h"

#include "base/checksum.h"
#include "base/status.h"
#include "checkpoint/packed.h"
#include "support/failing_allocator.h"
#include "support/memory_files.h"

#include <stdio.h>
#include <stdlib.h>

enum { EXPERTS = 3 };

static struct weight plain(enum format format, uint64_t rows, uint64_t cols)
{
    return (struct weight){ .format = format, .rows = rows, .cols = cols };
}

static struct weight affine(enum format format, uint64_t rows, uint64_t cols)
{
    return (struct weight){ .format = format,
                            .scale_format = FORMAT_BF16,
                            .group_rows = 1,
                            .group_cols = 32,
                            .rows = rows,
                            .cols = cols };
}

/* Two layers of experts, of all kinds of formats, and three tensors. */
static void make_manifest(struct packed_manifest *m)
{
    static const struct packed_tensor tensors[] = {
        { .name = "a", .format = FORMAT_F32, .rank = 1, .shape = { 5 }, .checksum = 1 },
        { .name = "b", .format = FORMAT_Q8_0, .rank = 2, .shape = { 3, 64 }, .checksum = 2 },
        { .name = "c", .format = FORMAT_BF16, .rank = 3, .shape = { 2, 2, 2 }, .checksum = 3 },
    };
    packed_manifest_init(m, &allocator_heap);
    m->origin = (struct packed_origin){ "x", "GGUF", "0123", "as they were", "q8" };
    m->convention = PACKED_MLX;
    m->experts = EXPERTS;
    m->tensors = ARENA_NEW(&m->arena, struct packed_tensor, COUNT_OF(tensors));
    for (size_t i = 0; i < COUNT_OF(tensors); i++) {
        struct packed_tensor *t = &m->tensors[i];
        uint64_t offset = align_up(packed_resident_bytes(m), PACKED_TENSOR_ALIGNMENT);
        *t = tensors[i];
        t->offset = offset;
        assert_true(packed_tensor_size(&t->bytes, t->format, t->shape, t->rank));
        m->tensor_count++;
    }
    m->layer_count = 2;
    m->layers = ARENA_NEW(&m->arena, struct packed_layer, m->layer_count);
    struct weight scaled = plain(FORMAT_F8_E4M3, 40, 32);
    scaled.scale_format = FORMAT_F32;
    scaled.group_rows = scaled.group_cols = 16;
    for (size_t i = 0; i < m->layer_count; i++) {
        struct packed_layer *layer = &m->layers[i];
        layer->number = (uint32_t)(3 * i + 1);
        layer->parts[0].shape = i ? scaled : affine(FORMAT_AFFINE3, 40, 32);
        layer->parts[1].shape = affine(FORMAT_AFFINE4, 40, 32);
        layer->parts[2].shape = i ? plain(FORMAT_BF16, 32, 40) : plain(FORMAT_F8_E5M2, 32, 40);
        layer->parts[0].has_addends = i > 0;
        layer->parts[0].addend_format = FORMAT_BF16;
        layer->checksums = ARENA_NEW(&m->arena, uint64_t, EXPERTS);
        for (uint64_t e = 0; e < EXPERTS; e++) layer->checksums[e] = 0xabc0 + e;
        assert_true(packed_layer_arrange(layer));
    }
    m->file_count = 1;
    m->files = ARENA_NEW(&m->arena, struct packed_side_file, 1);
    m->files[0] = (struct packed_side_file){ "config.json", 2, 7 };
}

static json_t *manifest_json(void)
{
    struct packed_manifest m;
    mf_error why = { 0 };
    json_t *json = NULL;
    make_manifest(&m);
    char *text = packed_manifest_text_new(&m, true);
    assert_non_null(text);
    assert_int_equal(json_parse_new(&json, text, strlen(text), "m", &why), MF_OK);
    free(text);
    packed_manifest_free(&m);
    return json;
}

/* ---------------------------------------------------------------- manifest */

static void written_model_reads_back(void **state)
{
    (void)state;
    struct packed_manifest made, read;
    mf_error why = { 0 };
    make_manifest(&made);
    packed_manifest_init(&read, &allocator_heap);
    json_t *json = manifest_json();
    if (packed_manifest_parse(&read, json, "m", &why) != MF_OK) fail_msg("%s", why.text);
    for (int checksums = 0; checksums < 2; checksums++) {
        char *before = packed_manifest_text_new(&made, checksums);
        char *after = packed_manifest_text_new(&read, checksums);
        assert_string_equal(before, after);
        assert_int_equal(strstr(after, "xxh3") != NULL, checksums);
        free(before);
        free(after);
    }
    assert_int_equal(read.layers[1].checksums[2], 0xabc2);
    json_decref(json);
    packed_manifest_free(&made);
    packed_manifest_free(&read);
}

static void arrays_are_aligned_and_do_not_overlap(void **state)
{
    (void)state;
    struct packed_manifest m;
    make_manifest(&m);
    for (size_t l = 0; l < m.layer_count; l++) {
        const struct packed_layer *layer = &m.layers[l];
        uint64_t end = 0;
        for (size_t i = 0; i < PACKED_PARTS * PACKED_ARRAYS; i++) {
            const struct packed_matrix *part = &layer->parts[i / PACKED_ARRAYS];
            if (part->bytes[i % PACKED_ARRAYS] == 0) continue;
            assert_int_equal(part->offsets[i % PACKED_ARRAYS] % PACKED_TENSOR_ALIGNMENT, 0);
            assert_true(part->offsets[i % PACKED_ARRAYS] >= end);
            assert_true(part->offsets[i % PACKED_ARRAYS] < end + PACKED_TENSOR_ALIGNMENT);
            end = part->offsets[i % PACKED_ARRAYS] + part->bytes[i % PACKED_ARRAYS];
        }
        assert_int_equal(layer->blob_bytes, end);
        assert_int_equal(layer->stride % PACKED_BLOB_ALIGNMENT, 0);
    }
    /* 40 rows of 32 numbers: 3 bits each, a BF16 scale and a bias for every 32. */
    const struct packed_matrix *gate = &m.layers[0].parts[0];
    assert_int_equal(gate->bytes[0], 40 * 32 * 3 / 8);
    assert_int_equal(gate->bytes[1], 40 * 2);
    assert_int_equal(gate->bytes[2], 40 * 2);
    /* Tiles of 16 x 16: three rows of two scales. */
    assert_int_equal(m.layers[1].parts[0].bytes[1], 3 * 2 * 4);
    assert_int_equal(m.layers[1].parts[0].bytes[2], 0);
    /* And a number in BF16 for each of the 40 rows. */
    assert_int_equal(m.layers[1].parts[0].bytes[3], 40 * 2);
    assert_int_equal(gate->bytes[3], 0);
    packed_manifest_free(&m);
}

/* Replaces (or with NULL removes) what stands at "layers/0/gate/rows". */
static void damage(json_t *json, const char *path, json_t *value)
{
    char part[64];
    for (;;) {
        size_t length = strcspn(path, "/");
        snprintf(part, sizeof part, "%.*s", (int)length, path);
        bool last = path[length] == '\0';
        if (json_is_array(json)) {
            size_t index = strtoul(part, NULL, 10);
            if (last && value) json_array_set_new(json, index, value);
            if (last && !value) json_array_remove(json, index);
            json = json_array_get(json, index);
        } else {
            if (last && value) json_object_set_new(json, part, value);
            if (last && !value) json_object_del(json, part);
            json = json_object_get(json, part);
        }
        if (last) return;
        path += length + 1;
    }
}

static void expect_refusal(json_t *json, const char *what, const char *sentence, mf_status expected)
{
    struct packed_manifest read;
    struct failing_allocator heap;
    mf_error why = { 0 };
    failing_allocator_init(&heap);
    packed_manifest_init(&read, &heap.allocator);
    mf_status status = packed_manifest_parse(&read, json, "m", &why);
    packed_manifest_free(&read);
    assert_int_equal(heap.live_bytes, 0);
    if (status != expected || !strstr(why.text, sentence))
        fail_msg("%s: status %d, \"%s\"; expected %d, \"%s\"", what, status, why.text, expected,
                 sentence);
}

static void every_wrong_field_is_named(void **state)
{
    (void)state;
    const struct {
        const char *path, *value, *sentence;
        mf_status status;
    } cases[] = {
        { "format", NULL, "is not the manifest of a packed model", MF_ERR_FORMAT },
        { "format", "\"gguf\"", "is not the manifest of a packed model", MF_ERR_FORMAT },
        { "version", NULL, "version is missing", MF_ERR_FORMAT },
        { "version", "2", "has version 2 of the packed layout, this program reads version 1",
          MF_ERR_UNSUPPORTED },
        { "layout", "\"panels16\"",
          "the layout \"panels16\" is not known, this program reads \"rows\"", MF_ERR_UNSUPPORTED },
        { "layout", "5", "the layout \"a whole number\" is not known", MF_ERR_UNSUPPORTED },
        { "origin", NULL, "origin: name is nothing", MF_ERR_FORMAT },
        { "origin/rest", "1", "origin: rest is a whole number", MF_ERR_FORMAT },
        { "origin/name", "\"a\\u0000b\"", "has a NUL inside", MF_ERR_FORMAT },
        { "convention", "\"onnx\"", "the convention \"onnx\" is not known", MF_ERR_UNSUPPORTED },
        { "experts", "65537", "experts is 65537", MF_ERR_FORMAT },
        { "experts", "0", "layers is not a list", MF_ERR_FORMAT },
        { "experts", "4", "xxh3 has 3 entries, one for each of 4 experts", MF_ERR_FORMAT },
        { "tensors", "{}", "tensors is an object", MF_ERR_FORMAT },
        { "tensors/0/name", NULL, "name is nothing", MF_ERR_FORMAT },
        { "tensors/0/type", "\"Q9_9\"", "tensor a: the type \"Q9_9\" is not known",
          MF_ERR_UNSUPPORTED },
        { "tensors/0/shape", "[]", "tensor a: shape is not that", MF_ERR_FORMAT },
        { "tensors/0/shape", "[0]", "tensor a: shape is not that", MF_ERR_FORMAT },
        { "tensors/0/shape", "[4294967296, 4294967296]", "tensor a: shape is not", MF_ERR_FORMAT },
        { "tensors/1/shape", "[3, 63]", "tensor b: shape is not that", MF_ERR_FORMAT },
        { "tensors/1/shape", "[4, 64]", "tensor b: bytes is 204", MF_ERR_FORMAT },
        { "tensors/1/offset", "65", "tensor b: offset is 65", MF_ERR_FORMAT },
        { "tensors/1/offset", "128", "tensor b: offset is 128", MF_ERR_FORMAT },
        { "tensors/1/offset", "-1", "tensor b: offset is -1", MF_ERR_FORMAT },
        { "tensors/2/xxh3", "\"123\"", "tensor c: xxh3 is not 16", MF_ERR_FORMAT },
        { "tensors/2/xxh3", "\"00000000000000000\"", "tensor c: xxh3 is not 16", MF_ERR_FORMAT },
        { "tensors/2/xxh3", "\"000000000000000G\"", "tensor c: xxh3 is not 16", MF_ERR_FORMAT },
        { "tensors/1", NULL, "tensor c: offset is", MF_ERR_FORMAT },
        { "layers", "[]", "layers is not a list", MF_ERR_FORMAT },
        { "layers/0", "null", "layer is missing", MF_ERR_FORMAT },
        { "layers/0/layer", "4", "layer is 4, from 5", MF_ERR_FORMAT },
        { "layers/1/layer", "4096", "layer is 4096", MF_ERR_FORMAT },
        { "layers/0/up", NULL, "layer 1: up: the type", MF_ERR_UNSUPPORTED },
        { "layers/0/up/type", "\"U32\"", "layer 1: rows, cols and groups do not fit",
          MF_ERR_FORMAT },
        { "layers/0/up/rows", "0", "layer 1: up: rows is 0", MF_ERR_FORMAT },
        { "layers/0/up/rows", "4294967295", "layer 1: scales is", MF_ERR_FORMAT },
        { "layers/0/up/cols", "33", "layer 1: rows, cols and groups do not fit", MF_ERR_FORMAT },
        { "layers/0/up/group", NULL, "layer 1: rows, cols and groups do not fit", MF_ERR_FORMAT },
        { "layers/0/up/group", "[1]", "layer 1: up: group is not two sizes", MF_ERR_FORMAT },
        { "layers/0/up/group", "[1, 0]", "layer 1: up: group is not two sizes", MF_ERR_FORMAT },
        { "layers/0/up/group", "[2, 32]", "layer 1: rows, cols and groups", MF_ERR_FORMAT },
        { "layers/0/up/group", "[1, 12]", "layer 1: rows, cols and groups", MF_ERR_FORMAT },
        { "layers/0/up/scale_type", "\"F8_E8M0\"", "layer 1: rows, cols and", MF_ERR_FORMAT },
        { "layers/0/up/scale_type", NULL, "up: the scale_type", MF_ERR_UNSUPPORTED },
        { "layers/1/gate/group", NULL, "layer 4: rows, cols and groups", MF_ERR_FORMAT },
        { "layers/1/gate/biases", "64", "layer 4: biases stands there", MF_ERR_FORMAT },
        { "layers/1/gate/addend_type", "\"Q8_0\"", "layer 4: rows, cols and groups",
          MF_ERR_FORMAT },
        { "layers/1/gate/addend_type", "\"F8_E8M0\"", "layer 4: rows, cols", MF_ERR_FORMAT },
        { "layers/1/gate/addend_type", "3", "layer 4: gate: the addend_type", MF_ERR_UNSUPPORTED },
        { "layers/1/gate/addend_type", "\"F32\"", "layer 4: values is", MF_ERR_FORMAT },
        { "layers/1/gate/addend_type", NULL, "layer 4: addends stands there", MF_ERR_FORMAT },
        { "layers/1/gate/addends", NULL, "layer 4: addends is missing", MF_ERR_FORMAT },
        { "layers/1/down/group", "[1, 8]", "down: the scale_type", MF_ERR_UNSUPPORTED },
        { "layers/0/up/values", "1", "layer 1: values is 1", MF_ERR_FORMAT },
        { "layers/0/up/scales", NULL, "layer 1: scales is missing", MF_ERR_FORMAT },
        { "layers/0/bytes", "1", "layer 1: bytes is 1", MF_ERR_FORMAT },
        { "layers/0/stride", "8192", "layer 1: stride is 8192", MF_ERR_FORMAT },
        { "layers/0/xxh3", NULL, "layer 1: xxh3 has 0 entries", MF_ERR_FORMAT },
        { "layers/0/xxh3/1", "17", "layer 1: xxh3 is not 16", MF_ERR_FORMAT },
        { "files", NULL, "files is nothing", MF_ERR_FORMAT },
        { "files/0/name", "\"../x\"", "'../x' is not a plain file name", MF_ERR_FORMAT },
        { "files/0/bytes", "-5", "bytes is -5", MF_ERR_FORMAT },
        { "files/0/xxh3", NULL, "xxh3 is not 16", MF_ERR_FORMAT },
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        json_t *json = manifest_json();
        json_t *value = cases[i].value
                            ? json_loads(cases[i].value, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL)
                            : NULL;
        damage(json, cases[i].path, value);
        expect_refusal(json, cases[i].path, cases[i].sentence, cases[i].status);
        json_decref(json);
    }
    json_t *list = json_array();
    expect_refusal(list, "an array", "is not the manifest", MF_ERR_FORMAT);
    json_decref(list);
}

/* ----------------------------------------------------------------- opening */

/* The files of the manifest above; contents are zero but for checksums that fit. */
struct directory {
    struct memory_files files;
    char *text;
    uint8_t *resident, *layers[2];
    uint64_t resident_bytes, layer_bytes[2];
};

static void directory_make(struct directory *d)
{
    struct packed_manifest m;
    make_manifest(&m);
    memory_files_init(&d->files);
    d->resident_bytes = packed_resident_bytes(&m);
    d->resident = calloc(1, d->resident_bytes);
    for (size_t i = 0; i < m.tensor_count; i++)
        m.tensors[i].checksum = checksum_of(d->resident, m.tensors[i].bytes);
    for (size_t i = 0; i < 2; i++) {
        d->layer_bytes[i] = m.layers[i].stride * EXPERTS;
        d->layers[i] = calloc(1, d->layer_bytes[i]);
    }
    d->text = packed_manifest_text_new(&m, true);
    memory_files_put(&d->files, "p/moeflux.json", d->text, strlen(d->text));
    memory_files_put(&d->files, "p/resident.bin", d->resident, d->resident_bytes);
    memory_files_put(&d->files, "p/layer-001.bin", d->layers[0], d->layer_bytes[0]);
    memory_files_put(&d->files, "p/layer-004.bin", d->layers[1], d->layer_bytes[1]);
    packed_manifest_free(&m);
}

static void directory_free(struct directory *d)
{
    assert_int_equal(d->files.open_count, 0);
    free(d->text);
    free(d->resident);
    free(d->layers[0]);
    free(d->layers[1]);
}

static mf_status open_it(const struct directory *d, const mf_allocator *allocator, mf_error *why)
{
    struct packed_manifest m;
    struct tensor_directory tensors;
    packed_manifest_init(&m, allocator);
    tensor_directory_init(&tensors, allocator);
    mf_status status = packed_open(&m, &tensors, &d->files.files, "p", why);
    if (status == MF_OK) {
        assert_int_equal(tensors.count, 3);
        assert_int_equal(tensors.file_count, 3);
        assert_int_equal(m.layers[1].file, 2);
        uint8_t bytes[256];
        const struct tensor *b = tensor_find(&tensors, "b");
        assert_int_equal(b->offset, 64);
        status = tensor_read(&tensors, b, bytes, why);
    }
    tensor_directory_free(&tensors);
    packed_manifest_free(&m);
    return status;
}

static void expect_opening(const struct directory *d, const char *sentence)
{
    mf_error why = { 0 };
    mf_status status = open_it(d, &allocator_heap, &why);
    if (!sentence && status != MF_OK) fail_msg("%s", why.text);
    if (sentence && (status == MF_OK || !strstr(why.text, sentence)))
        fail_msg("\"%s\", expected \"%s\"", why.text, sentence);
}

static void files_of_another_size_are_found_at_once(void **state)
{
    (void)state;
    struct directory d;
    directory_make(&d);
    expect_opening(&d, NULL);
    memory_files_put(&d.files, "p/layer-004.bin", d.layers[1], d.layer_bytes[1] - 1);
    expect_opening(&d, "p/layer-004.bin has 24575 bytes, 24576 were expected: it was cut off");
    memory_files_put(&d.files, "p/layer-004.bin", d.layers[1], 0);
    expect_opening(&d, "p/layer-004.bin has 0 bytes");
    memory_files_put(&d.files, "p/layer-004.bin", d.layers[1], d.layer_bytes[1]);
    memory_files_put(&d.files, "p/resident.bin", d.resident, d.resident_bytes - 1);
    expect_opening(&d, "p/resident.bin has 335 bytes, 336 were expected: it was cut off");
    uint8_t longer[400] = { 0 };
    memory_files_put(&d.files, "p/resident.bin", longer, 337);
    expect_opening(&d, "p/resident.bin has 337 bytes, 336 were expected");
    memory_files_put(&d.files, "p/resident.bin", d.resident, d.resident_bytes);
    d.files.list[d.files.count - 1].path = "p/elsewhere";
    expect_opening(&d, "p/layer-004.bin cannot be opened: No such file");
    directory_free(&d);
}

static void a_changed_bit_of_a_tensor_is_found_when_it_is_read(void **state)
{
    (void)state;
    struct directory d;
    directory_make(&d);
    d.resident[64 + 17] ^= 4;
    expect_opening(&d, "p/resident.bin: the 204 bytes of tensor b from byte 64 are not those that "
                       "were written: the checksum differs");
    d.resident[64 + 17] ^= 4;
    d.resident[20] ^= 1; /* padding */
    expect_opening(&d, NULL);
    directory_free(&d);
}

static void failing_allocation_leaves_nothing(void **state)
{
    (void)state;
    struct directory d;
    directory_make(&d);
    for (uint64_t nth = 1;; nth++) {
        struct failing_allocator heap;
        mf_error why = { 0 };
        failing_allocator_init(&heap);
        failing_allocator_arm(&heap, nth);
        mf_status status = open_it(&d, &heap.allocator, &why);
        bool fired = failing_allocator_disarm(&heap);
        assert_int_equal(status, fired ? MF_ERR_MEMORY : MF_OK);
        assert_int_equal(heap.live_bytes, 0);
        assert_int_equal(d.files.open_count, 0);
        if (!fired) break;
    }
    directory_free(&d);
}

static void two_tensors_of_a_name_are_refused(void **state)
{
    (void)state;
    struct directory d;
    directory_make(&d);
    char *at = strstr(d.text, "\"name\": \"b\"");
    at[9] = 'a';
    expect_opening(&d, "tensor a stands twice");
    directory_free(&d);
}

/* --------------------------------------------------------------- checksums */

static void checksums_are_xxh3(void **state)
{
    (void)state;
    char text[CHECKSUM_TEXT], wide[CHECKSUM_WIDE_TEXT];
    uint64_t back = 0;
    /* The library's own numbers for nothing at all. */
    checksum_print(checksum_of("", 0), text);
    assert_string_equal(text, "2d06800538d394c2");
    struct checksum sum;
    checksum_begin(&sum);
    checksum_end_wide(&sum, wide);
    assert_string_equal(wide, "99aa06d3014798d86001c324468d497f");
    assert_true(checksum_parse(&back, text));
    assert_int_equal(back, checksum_of("", 0));
    uint8_t bytes[5000];
    for (size_t i = 0; i < sizeof bytes; i++) bytes[i] = (uint8_t)(i * i >> 3);
    for (size_t step = 1; step < sizeof bytes; step = 3 * step + 1) {
        checksum_begin(&sum);
        for (size_t at = 0; at < sizeof bytes; at += step)
            checksum_add(&sum, bytes + at, min_size(step, sizeof bytes - at));
        assert_int_equal(checksum_end(&sum), checksum_of(bytes, sizeof bytes));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(written_model_reads_back),
        cmocka_unit_test(arrays_are_aligned_and_do_not_overlap),
        cmocka_unit_test(every_wrong_field_is_named),
        cmocka_unit_test(files_of_another_size_are_found_at_once),
        cmocka_unit_test(a_changed_bit_of_a_tensor_is_found_when_it_is_read),
        cmocka_unit_test(failing_allocation_leaves_nothing),
        cmocka_unit_test(two_tensors_of_a_name_are_refused),
        cmocka_unit_test(checksums_are_xxh3),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
