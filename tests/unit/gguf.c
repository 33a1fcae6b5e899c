/* gguf_file: what is accepted, and what is refused with which words. */
#include "support/test.h"

#include "checkpoint/gguf.h"
#include "support/byte_writer.h"
#include "support/memory_files.h"

#include <stdio.h>

struct opened {
    struct tensor_directory directory;
    struct metadata metadata;
    mf_error why;
    mf_status status;
};

static void open_path(struct opened *o, struct memory_files *files, const char *path)
{
    o->why = (mf_error){ 0 };
    tensor_directory_init(&o->directory, &allocator_heap);
    metadata_init(&o->metadata, &allocator_heap);
    o->status = checkpoint_gguf_open(&o->directory, &o->metadata, &files->files, path, &o->why);
}

static void close_opened(struct opened *o)
{
    metadata_free(&o->metadata);
    tensor_directory_free(&o->directory);
}

static void open_bytes(struct opened *o, const struct byte_writer *w)
{
    static struct memory_files files;
    memory_files_init(&files);
    memory_files_put(&files, "a.gguf", w->bytes, w->count);
    open_path(o, &files, "a.gguf");
}

/* Opening fails with `status`, and the message has `words`. */
static void expect_refusal(const struct byte_writer *w, mf_status status, const char *words)
{
    struct opened o;
    open_bytes(&o, w);
    if (o.status != status || !strstr(o.why.text, words))
        fail_msg("expected '%s' (%d), got '%s' (%d)", words, status, o.why.text, o.status);
    close_opened(&o);
}

static void put_header(struct byte_writer *w, uint32_t version, uint64_t tensors, uint64_t values)
{
    put_bytes(w, "GGUF", 4);
    put_u32(w, version);
    put_u64(w, tensors);
    put_u64(w, values);
}

static void put_key(struct byte_writer *w, const char *key, enum metadata_type type)
{
    put_text(w, key);
    put_u32(w, type);
}

static void put_tensor(struct byte_writer *w, const char *name, uint32_t rank, const uint64_t *dims,
                       uint32_t type, uint64_t offset)
{
    put_text(w, name);
    put_u32(w, rank);
    for (uint32_t i = 0; i < rank; i++) put_u64(w, dims[i]);
    put_u32(w, type);
    put_u64(w, offset);
}

/* ---------------------------------------------------------------- accepted */

static void tensors_are_found_with_their_extents(void **state)
{
    (void)state;
    for (uint32_t version = 2; version <= 3; version++) {
        struct byte_writer w = { 0 };
        put_header(&w, version, 5, 1);
        put_key(&w, "general.alignment", METADATA_U32);
        put_u32(&w, 64);
        put_tensor(&w, "a", 3, (const uint64_t[]){ 256, 3, 2 }, 12, 0);   /* Q4_K */
        put_tensor(&w, "b", 2, (const uint64_t[]){ 3, 1 }, 0, 896);       /* 864 padded */
        put_tensor(&w, "empty", 2, (const uint64_t[]){ 0, 7 }, 1, 960);   /* F16 */
        put_tensor(&w, "foreign", 1, (const uint64_t[]){ 256 }, 16, 960); /* IQ2_XXS */
        put_tensor(&w, "scalar", 0, NULL, 30, 1088);                      /* BF16 */
        put_padding(&w, 64);
        size_t data = w.count;
        put_zeros(&w, 1088);
        put_u16(&w, 0x3f80);

        struct opened o;
        open_bytes(&o, &w);
        assert_int_equal(o.status, MF_OK);
        const struct tensor *a = tensor_find(&o.directory, "a");
        char text[64];
        assert_string_equal(tensor_shape_text(a, text, sizeof text), "[2, 3, 256]");
        assert_int_equal(a->format, FORMAT_Q4_K);
        assert_int_equal(a->bytes, 6 * 144);
        assert_int_equal(a->offset, data);
        assert_int_equal(tensor_find(&o.directory, "b")->offset, data + 896);
        assert_int_equal(tensor_find(&o.directory, "empty")->bytes, 0);
        assert_int_equal(tensor_find(&o.directory, "foreign")->format, FORMAT_COUNT);
        uint16_t number;
        assert_int_equal(
            tensor_read(&o.directory, tensor_find(&o.directory, "scalar"), &number, NULL), MF_OK);
        assert_int_equal(number, 0x3f80);
        close_opened(&o);
        byte_writer_free(&w);
    }
}

/* The block sizes in the reader's list are those of the table of formats. */
static void every_format_of_the_list_has_its_size(void **state)
{
    (void)state;
    static const struct {
        uint32_t type;
        enum format format;
    } cases[] = {
        { 0, FORMAT_F32 },    { 1, FORMAT_F16 },   { 2, FORMAT_Q4_0 },    { 3, FORMAT_Q4_1 },
        { 6, FORMAT_Q5_0 },   { 7, FORMAT_Q5_1 },  { 8, FORMAT_Q8_0 },    { 10, FORMAT_Q2_K },
        { 11, FORMAT_Q3_K },  { 12, FORMAT_Q4_K }, { 13, FORMAT_Q5_K },   { 14, FORMAT_Q6_K },
        { 24, FORMAT_I8 },    { 25, FORMAT_I16 },  { 26, FORMAT_I32 },    { 27, FORMAT_I64 },
        { 28, FORMAT_F64 },   { 30, FORMAT_BF16 }, { 20, FORMAT_IQ4_NL }, { 23, FORMAT_IQ4_XS },
        { 39, FORMAT_MXFP4 },
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct byte_writer w = { 0 };
        put_header(&w, 3, 1, 0);
        put_tensor(&w, "a", 1, (const uint64_t[]){ 512 }, cases[i].type, 0);
        put_padding(&w, 32);
        uint64_t bytes;
        assert_true(format_row_bytes(&bytes, cases[i].format, 512));
        put_zeros(&w, bytes);
        struct opened o;
        open_bytes(&o, &w);
        assert_int_equal(o.status, MF_OK);
        assert_int_equal(o.directory.tensors[0].format, cases[i].format);
        assert_int_equal(o.directory.tensors[0].bytes, bytes);
        close_opened(&o);
        w.count--;
        expect_refusal(&w, MF_ERR_FORMAT, "tensor a has");
        byte_writer_free(&w);
    }
}

static void put_values(struct byte_writer *w)
{
    put_header(w, 3, 0, 12);
    put_key(w, "text", METADATA_TEXT);
    put_text(w, "qwen3moe");
    put_key(w, "u8", METADATA_U8);
    put_u8(w, 200);
    put_key(w, "i16", METADATA_I16);
    put_u16(w, (uint16_t)-5);
    put_key(w, "u64", METADATA_U64);
    put_u64(w, UINT64_MAX);
    put_key(w, "f32", METADATA_F32);
    put_u32(w, 0x3fc00000); /* 1.5 */
    put_key(w, "flag", METADATA_FLAG);
    put_u8(w, 1);
    put_key(w, "texts", METADATA_ARRAY);
    put_u32(w, METADATA_TEXT);
    put_u64(w, 3);
    put_text(w, "one");
    put_text(w, "");
    put_text(w, "three");
    put_key(w, "ints", METADATA_ARRAY);
    put_u32(w, METADATA_I32);
    put_u64(w, 2);
    put_u32(w, 7);
    put_u32(w, (uint32_t)-7);
    put_key(w, "none", METADATA_ARRAY);
    put_u32(w, METADATA_TEXT);
    put_u64(w, 0);
    put_key(w, "reals", METADATA_ARRAY);
    put_u32(w, METADATA_F32);
    put_u64(w, 1);
    put_u32(w, 0xbf000000); /* -0.5 */
    put_key(w, "nul", METADATA_TEXT);
    put_u64(w, 3);
    put_bytes(w, "a\0b", 3);
    put_key(w, "more texts", METADATA_ARRAY);
    put_u32(w, METADATA_TEXT);
    put_u64(w, 1);
    put_text(w, "four");
}

static void values_are_found_by_their_keys(void **state)
{
    (void)state;
    struct byte_writer w = { 0 };
    struct opened o;
    put_values(&w);
    open_bytes(&o, &w);
    byte_writer_free(&w); /* the metadata keeps its own */
    assert_int_equal(o.status, MF_OK);
    const struct metadata *m = &o.metadata;
    const char *text = NULL;
    uint64_t count = 99;
    double real = 0;
    bool flag = false;
    assert_int_equal(metadata_need_text(&text, m, "text", NULL), MF_OK);
    assert_string_equal(text, "qwen3moe");
    assert_int_equal(metadata_need_count(&count, m, "u8", 1, 200, NULL), MF_OK);
    assert_int_equal(count, 200);
    assert_int_equal(metadata_maybe_count(&count, m, "absent", 1, 2, NULL), MF_OK);
    assert_int_equal(count, 200);
    assert_int_equal(metadata_need_count(&count, m, "u64", 0, UINT64_MAX, NULL), MF_OK);
    assert_true(count == UINT64_MAX);
    assert_int_equal(metadata_maybe_real(&real, m, "f32", NULL), MF_OK);
    assert_true(real == 1.5);
    assert_int_equal(metadata_maybe_real(&real, m, "i16", NULL), MF_OK);
    assert_true(real == -5.0);
    assert_int_equal(metadata_maybe_flag(&flag, m, "flag", NULL), MF_OK);
    assert_true(flag);

    struct metadata_array array;
    assert_int_equal(metadata_need_array(&array, m, "texts", METADATA_TEXT, NULL), MF_OK);
    assert_int_equal(array.count, 3);
    struct metadata_text third = metadata_array_text(&array, 2);
    assert_int_equal(third.length, 5);
    assert_memory_equal(third.bytes, "three", 5);
    assert_int_equal(metadata_array_text(&array, 1).length, 0);
    assert_int_equal(metadata_need_array(&array, m, "more texts", METADATA_TEXT, NULL), MF_OK);
    assert_memory_equal(metadata_array_text(&array, 0).bytes, "four", 4);
    assert_int_equal(metadata_need_array(&array, m, "ints", METADATA_I64, NULL), MF_OK);
    assert_int_equal(metadata_array_int(&array, 1), -7);
    assert_int_equal(metadata_need_array(&array, m, "reals", METADATA_I64, NULL), MF_ERR_FORMAT);
    assert_int_equal(metadata_maybe_array(&array, m, "absent", METADATA_I64, NULL), MF_OK);
    assert_int_equal(array.count, 0);
    assert_int_equal(metadata_need_array(&array, m, "none", METADATA_TEXT, NULL), MF_OK);
    assert_int_equal(array.count, 0);
    close_opened(&o);
}

static void a_value_of_another_type_is_named(void **state)
{
    (void)state;
    struct byte_writer w = { 0 };
    struct opened o;
    mf_error why;
    put_values(&w);
    open_bytes(&o, &w);
    const struct metadata *m = &o.metadata;
    const char *text;
    uint64_t count;
    double real;
    bool flag;
    struct metadata_array array;
    assert_int_equal(metadata_need_count(&count, m, "text", 0, 9, &why), MF_ERR_FORMAT);
    assert_string_equal(why.text, "a.gguf: text is a text, a whole number was expected");
    assert_int_equal(metadata_need_count(&count, m, "absent", 0, 9, &why), MF_ERR_FORMAT);
    assert_string_equal(why.text, "a.gguf: absent is missing");
    assert_int_equal(metadata_need_count(&count, m, "i16", 0, 9, &why), MF_ERR_FORMAT);
    assert_string_equal(why.text, "a.gguf: i16 is -5, from 0 to 9 was expected");
    assert_int_equal(metadata_need_count(&count, m, "u8", 0, 9, &why), MF_ERR_FORMAT);
    assert_int_equal(metadata_need_count(&count, m, "ints", 0, 9, &why), MF_ERR_FORMAT);
    assert_int_equal(metadata_need_count(&count, m, "flag", 0, 9, &why), MF_ERR_FORMAT);
    assert_int_equal(metadata_maybe_real(&real, m, "text", &why), MF_ERR_FORMAT);
    assert_int_equal(metadata_maybe_flag(&flag, m, "u8", &why), MF_ERR_FORMAT);
    assert_int_equal(metadata_need_text(&text, m, "texts", &why), MF_ERR_FORMAT);
    assert_string_equal(why.text, "a.gguf: texts is an array, a text was expected");
    assert_int_equal(metadata_need_text(&text, m, "nul", &why), MF_ERR_FORMAT);
    assert_int_equal(metadata_need_array(&array, m, "text", METADATA_TEXT, &why), MF_ERR_FORMAT);
    assert_int_equal(metadata_need_array(&array, m, "ints", METADATA_TEXT, &why), MF_ERR_FORMAT);
    assert_int_equal(metadata_need_array(&array, m, "reals", METADATA_I64, &why), MF_ERR_FORMAT);
    assert_int_equal(metadata_need_array(&array, m, "absent", METADATA_I64, &why), MF_ERR_FORMAT);
    close_opened(&o);
    byte_writer_free(&w);
}

/* ----------------------------------------------------------------- refused */

static void a_wrong_header_is_refused(void **state)
{
    (void)state;
    const struct {
        const char *magic;
        uint32_t version;
        uint64_t tensors, values;
        mf_status status;
        const char *words;
    } cases[] = {
        { "GGML", 3, 0, 0, MF_ERR_FORMAT, "does not begin with GGUF" },
        { "GGUF", 0, 0, 0, MF_ERR_UNSUPPORTED, "version 0" },
        { "GGUF", 1, 0, 0, MF_ERR_UNSUPPORTED, "version 1" },
        { "GGUF", 4, 0, 0, MF_ERR_UNSUPPORTED, "version 4" },
        { "GGUF", 0x03000000, 0, 0, MF_ERR_UNSUPPORTED, "big-endian" },
        { "GGUF", 3, 1, 0, MF_ERR_FORMAT, "too many" },
        { "GGUF", 3, 0, 1, MF_ERR_FORMAT, "too many" },
        { "GGUF", 3, UINT64_MAX, 0, MF_ERR_FORMAT, "too many" },
        { "GGUF", 3, 0, (uint64_t)1 << 63, MF_ERR_FORMAT, "too many" },
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct byte_writer w = { 0 };
        put_bytes(&w, cases[i].magic, 4);
        put_u32(&w, cases[i].version);
        put_u64(&w, cases[i].tensors);
        put_u64(&w, cases[i].values);
        expect_refusal(&w, cases[i].status, cases[i].words);
        byte_writer_free(&w);
    }
}

static void wrong_values_are_refused(void **state)
{
    (void)state;
    enum { UNKNOWN = 13 };
    const struct {
        const char *key;
        uint32_t type, element_type;
        uint64_t number; /* of the text's length, or of elements */
        const char *words;
    } cases[] = {
        { "", METADATA_U32, 0, 0, "is empty" },
        { "k", UNKNOWN, 0, 0, "k has type 13" },
        { "k", 0xffffffff, 0, 0, "k has type" },
        { "k", METADATA_TEXT, 0, 1000, "a text needs 1000 bytes" },
        { "k", METADATA_TEXT, 0, UINT64_MAX, "a text needs" },
        { "k", METADATA_ARRAY, METADATA_ARRAY, 1, "elements of type 9" },
        { "k", METADATA_ARRAY, UNKNOWN, 1, "elements of type 13" },
        { "k", METADATA_ARRAY, METADATA_U8, 1000, "should have 1000 elements" },
        { "k", METADATA_ARRAY, METADATA_U64, UINT64_MAX / 8 + 1, "elements" },
        { "k", METADATA_ARRAY, METADATA_TEXT, (uint64_t)1 << 61, "elements" },
        { "k", METADATA_ARRAY, METADATA_TEXT, 4, "k needs" },
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct byte_writer w = { 0 };
        put_header(&w, 3, 0, 1);
        put_text(&w, cases[i].key);
        put_u32(&w, cases[i].type);
        if (cases[i].type == METADATA_ARRAY) put_u32(&w, cases[i].element_type);
        put_u64(&w, cases[i].number);
        for (int n = 0; n < 4; n++) put_u64(&w, 0x7fffffffffffffff);
        expect_refusal(&w, MF_ERR_FORMAT, cases[i].words);
        byte_writer_free(&w);
    }
}

static void keys_are_names_and_unique(void **state)
{
    (void)state;
    struct byte_writer w = { 0 };
    put_header(&w, 3, 0, 2);
    for (int i = 0; i < 2; i++) {
        put_key(&w, "twice", METADATA_U32);
        put_u32(&w, 1);
    }
    expect_refusal(&w, MF_ERR_FORMAT, "the key twice stands twice");
    byte_writer_free(&w);
    put_header(&w, 3, 0, 1);
    put_u64(&w, 3);
    put_bytes(&w, "a\0b", 3);
    put_u32(&w, METADATA_U32);
    put_u32(&w, 1);
    expect_refusal(&w, MF_ERR_FORMAT, "NUL");
    byte_writer_free(&w);
}

static void a_wrong_alignment_is_refused(void **state)
{
    (void)state;
    const struct {
        enum metadata_type type;
        uint64_t value;
        const char *words;
    } cases[] = {
        { METADATA_U32, 0, "general.alignment is 0" },
        { METADATA_U32, 48, "a power of two was expected" },
        { METADATA_U64, 32, "general.alignment is a 64-bit number" },
        { METADATA_I32, 32, "general.alignment is a signed 32-bit number" },
        /* The data would begin at 2 GiB. */
        { METADATA_U32, 0x80000000, "tensor a has 4 bytes from byte 0 of the data, which has 0" },
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct byte_writer w = { 0 };
        put_header(&w, 3, 1, 1);
        put_key(&w, "general.alignment", cases[i].type);
        put_bytes(&w, &cases[i].value, cases[i].type == METADATA_U64 ? 8 : 4);
        put_tensor(&w, "a", 1, (const uint64_t[]){ 1 }, 0, 0);
        put_padding(&w, 64);
        put_u32(&w, 0);
        expect_refusal(&w, MF_ERR_FORMAT, cases[i].words);
        byte_writer_free(&w);
    }
}

static void wrong_tensors_are_refused(void **state)
{
    (void)state;
    const uint64_t big = (uint64_t)1 << 32;
    const struct {
        const char *name;
        uint32_t rank;
        uint64_t dims[4];
        uint32_t type;
        uint64_t offset;
        mf_status status;
        const char *words;
    } cases[] = {
        { "a", 5, { 1, 1, 1, 1 }, 0, 0, MF_ERR_FORMAT, "tensor a has 5 dimensions" },
        { "a", 0xffffffff, { 1 }, 0, 0, MF_ERR_FORMAT, "tensor a has 4294967295 dimensions" },
        { "a", 1, { UINT64_MAX }, 0, 0, MF_ERR_FORMAT, "tensor a has the shape" },
        { "a", 2, { big, big }, 0, 0, MF_ERR_FORMAT, "too large" },
        { "a", 4, { big, big, 0, 1 }, 0, 1, MF_ERR_FORMAT, "begins at byte 1" },
        { "a", 2, { big, big / 4 }, 28, 0, MF_ERR_FORMAT, "too large" },
        { "a", 1, { 33 }, 2, 0, MF_ERR_FORMAT, "rows of 33, not a multiple of 32" },
        { "a", 2, { 128, 2 }, 12, 0, MF_ERR_FORMAT, "rows of 128, not a multiple of 256" },
        { "a", 1, { 4 }, 4, 0, MF_ERR_UNSUPPORTED, "tensor a has type 4" },
        { "a", 1, { 4 }, 43, 0, MF_ERR_UNSUPPORTED, "tensor a has type 43" },
        { "a", 1, { 4 }, 0xffffffff, 0, MF_ERR_UNSUPPORTED, "tensor a has type" },
        { "a", 1, { 4 }, 0, 32, MF_ERR_FORMAT, "begins at byte 32 of the data, 0 was" },
        { "a", 1, { 4 }, 0, UINT64_MAX - 3, MF_ERR_FORMAT, "begins at byte" },
        { "a", 1, { 5 }, 0, 0, MF_ERR_FORMAT, "tensor a has 20 bytes from byte 0 of the data" },
        { "a", 2, { big, 1024 }, 0, 0, MF_ERR_FORMAT, "the file has 112" },
        { "0123456789012345678901234567890123456789012345678901234567890123",
          1,
          { 4 },
          0,
          0,
          MF_ERR_FORMAT,
          "64 bytes, at most 63" },
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct byte_writer w = { 0 };
        put_header(&w, 3, 1, 0);
        put_tensor(&w, cases[i].name, cases[i].rank < 5 ? cases[i].rank : 4, cases[i].dims,
                   cases[i].type, cases[i].offset);
        if (cases[i].rank > 4) memcpy(w.bytes + 24 + 9, &cases[i].rank, 4);
        put_padding(&w, 32);
        put_zeros(&w, 16);
        expect_refusal(&w, cases[i].status, cases[i].words);
        byte_writer_free(&w);
    }
}

static void tensors_that_overlap_or_leave_holes_are_refused(void **state)
{
    (void)state;
    const uint64_t offsets[] = { 0, 16, 64, UINT64_MAX }; /* 32 is right */
    for (size_t i = 0; i < COUNT_OF(offsets); i++) {
        struct byte_writer w = { 0 };
        put_header(&w, 3, 2, 0);
        put_tensor(&w, "a", 1, (const uint64_t[]){ 8 }, 0, 0);
        put_tensor(&w, "b", 1, (const uint64_t[]){ 8 }, 0, offsets[i]);
        put_padding(&w, 32);
        put_zeros(&w, 256);
        expect_refusal(&w, MF_ERR_FORMAT, "tensor b begins at byte");
        byte_writer_free(&w);
    }
    struct byte_writer w = { 0 };
    put_header(&w, 3, 2, 0);
    put_tensor(&w, "a", 1, (const uint64_t[]){ 8 }, 0, 0);
    put_tensor(&w, "a", 1, (const uint64_t[]){ 8 }, 0, 32);
    put_padding(&w, 32);
    put_zeros(&w, 64);
    expect_refusal(&w, MF_ERR_FORMAT, "tensor a stands twice");
    byte_writer_free(&w);
}

/* Cut off anywhere, a file is refused: none of its prefixes is a file. */
static void every_prefix_is_refused(void **state)
{
    (void)state;
    struct byte_writer w = { 0 };
    put_values(&w);
    uint64_t tensors = 1;
    memcpy(w.bytes + 8, &tensors, 8);
    put_tensor(&w, "a", 1, (const uint64_t[]){ 8 }, 0, 0);
    put_padding(&w, 32);
    put_zeros(&w, 32);
    struct opened o;
    open_bytes(&o, &w);
    assert_int_equal(o.status, MF_OK);
    close_opened(&o);
    for (size_t whole = w.count; w.count > 0; w.count--) {
        if (w.count == whole) continue;
        expect_refusal(&w, MF_ERR_FORMAT, "a.gguf");
    }
    byte_writer_free(&w);
}

/* ------------------------------------------------------------- split files */

static void put_part(struct byte_writer *w, unsigned number, unsigned count, unsigned total,
                     const char *tensor)
{
    byte_writer_free(w);
    put_header(w, 3, tensor ? 1 : 0, 3);
    put_key(w, "split.no", METADATA_U16);
    put_u16(w, (uint16_t)number);
    put_key(w, "split.count", METADATA_U16);
    put_u16(w, (uint16_t)count);
    put_key(w, "split.tensors.count", METADATA_I32);
    put_u32(w, total);
    if (tensor) put_tensor(w, tensor, 1, (const uint64_t[]){ 1 }, 0, 0);
    put_padding(w, 32);
    put_u32(w, 0);
}

struct parts {
    struct memory_files files;
    struct byte_writer writers[3];
};

#define PART_1 "m/x-00001-of-00003.gguf"
#define PART_2 "m/x-00002-of-00003.gguf"
#define PART_3 "m/x-00003-of-00003.gguf"

static void put_parts(struct parts *p)
{
    const char *names[] = { PART_1, PART_2, PART_3 }, *tensors[] = { NULL, "b", "c" };
    memory_files_init(&p->files);
    for (unsigned i = 0; i < 3; i++) {
        put_part(&p->writers[i], i, 3, 2, tensors[i]);
        memory_files_put(&p->files, names[i], p->writers[i].bytes, p->writers[i].count);
    }
}

static void expect_parts(struct parts *p, const char *path, mf_status status, const char *words)
{
    struct opened o;
    open_path(&o, &p->files, path);
    if (o.status != status || !strstr(o.why.text, words))
        fail_msg("expected '%s' (%d), got '%s' (%d)", words, status, o.why.text, o.status);
    if (status == MF_OK) {
        assert_int_equal(o.directory.file_count, 3);
        assert_int_equal(tensor_find(&o.directory, "b")->file, 1);
        assert_int_equal(tensor_find(&o.directory, "c")->file, 2);
        assert_string_equal(o.metadata.path, PART_1);
    }
    close_opened(&o);
    assert_int_equal(p->files.open_count, 0);
    for (unsigned i = 0; i < 3; i++) byte_writer_free(&p->writers[i]);
}

static void replace_part(struct parts *p, const char *path, unsigned at, struct byte_writer w)
{
    byte_writer_free(&p->writers[at]);
    p->writers[at] = w;
    memory_files_put(&p->files, path, w.bytes, w.count);
}

static void split_files_are_joined(void **state)
{
    (void)state;
    static struct parts p;
    struct byte_writer w = { 0 };
    put_parts(&p);
    expect_parts(&p, PART_1, MF_OK, "");

    put_parts(&p);
    expect_parts(&p, PART_2, MF_ERR_MISMATCH, "is part 2 of 3, part 1 of 3 was expected");

    put_parts(&p);
    put_part(&w, 2, 3, 2, "b");
    replace_part(&p, PART_2, 1, w);
    expect_parts(&p, PART_1, MF_ERR_MISMATCH, "is part 3 of 3, part 2 of 3 was expected");

    put_parts(&p);
    w = (struct byte_writer){ 0 };
    put_part(&w, 1, 4, 2, "b");
    replace_part(&p, PART_2, 1, w);
    expect_parts(&p, PART_1, MF_ERR_MISMATCH, "is part 2 of 4");

    put_parts(&p);
    w = (struct byte_writer){ 0 };
    put_part(&w, 1, 3, 2, "c");
    replace_part(&p, PART_2, 1, w);
    expect_parts(&p, PART_1, MF_ERR_FORMAT, "tensor c stands twice");

    put_parts(&p);
    w = (struct byte_writer){ 0 };
    put_part(&w, 0, 3, 7, NULL);
    replace_part(&p, PART_1, 0, w);
    expect_parts(&p, PART_1, MF_ERR_MISMATCH, "should have 7 tensors, have 2");

    put_parts(&p);
    memory_files_put(&p.files, "m/renamed.gguf", p.writers[0].bytes, p.writers[0].count);
    expect_parts(&p, "m/renamed.gguf", MF_ERR_MISMATCH, "does not end in -00001-of-00003.gguf");

    put_parts(&p);
    p.files.count = 2; /* the third is gone */
    expect_parts(&p, PART_1, MF_ERR_IO, PART_3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tensors_are_found_with_their_extents),
        cmocka_unit_test(every_format_of_the_list_has_its_size),
        cmocka_unit_test(values_are_found_by_their_keys),
        cmocka_unit_test(a_value_of_another_type_is_named),
        cmocka_unit_test(a_wrong_header_is_refused),
        cmocka_unit_test(wrong_values_are_refused),
        cmocka_unit_test(keys_are_names_and_unique),
        cmocka_unit_test(a_wrong_alignment_is_refused),
        cmocka_unit_test(wrong_tensors_are_refused),
        cmocka_unit_test(tensors_that_overlap_or_leave_holes_are_refused),
        cmocka_unit_test(every_prefix_is_refused),
        cmocka_unit_test(split_files_are_joined),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
