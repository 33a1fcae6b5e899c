/* route_trace: a written trace reads back unchanged; any other bytes are refused with a message
 * that names the fault. */
#include "support/test.h"

#include "experts/route_trace.h"
#include "support/byte_writer.h"
#include "support/failing_allocator.h"

#include <math.h>
#include <stdlib.h>

enum { LAYERS = 3, PER_TOKEN = 2 }; /* the layer in the middle is dense */

static const uint64_t expert_bytes[LAYERS] = { 1000, 0, 2000 };
static const uint64_t slot_bytes[LAYERS] = { 1024, 0, 2048 };

static struct failing_allocator heap;
static struct byte_writer file;
static size_t sink_limit; /* take_bytes fails past this many bytes, like a full disk */

static bool take_bytes(void *user, const void *bytes, size_t count)
{
    struct byte_writer *out = user;
    if (out->count + count > sink_limit) return false;
    put_bytes(out, bytes, count);
    return true;
}

static struct route_shape shape_of(uint32_t experts)
{
    return (struct route_shape){ .layers = LAYERS,
                                 .experts = experts,
                                 .per_token = PER_TOKEN,
                                 .resident_bytes = 12345,
                                 .working_bytes = 678,
                                 .name = "peb\nble",
                                 .expert_bytes = expert_bytes,
                                 .slot_bytes = slot_bytes };
}

/* The content of the traces: row r of step s in layer l chooses experts x and x + 1, where x is
 * first_expert(…), with weights 0.25 and 0.75. */
static uint32_t first_expert(uint32_t experts, uint32_t step, uint32_t layer, uint32_t row)
{
    return (step * 7 + layer * 3 + row) % (experts - 1);
}

static void add_layer(struct route_writer *writer, uint32_t step, uint32_t layer, uint32_t rows)
{
    int32_t tokens[8];
    uint32_t experts[8 * PER_TOKEN];
    float weights[8 * PER_TOKEN];
    for (uint32_t r = 0; r < rows; r++) {
        tokens[r] = (int32_t)(step * 100 + r);
        experts[2 * r] = first_expert(writer->shape.experts, step, layer, r);
        experts[2 * r + 1] = experts[2 * r] + 1;
        weights[2 * r] = 0.25f;
        weights[2 * r + 1] = 0.75f;
    }
    struct route_choice choice = { layer, rows, tokens, experts, weights };
    route_writer_add(writer, &choice);
}

/* Writes steps of 1, 2, … rows.  Before each, a step is abandoned after its first layer (a feed
 * that failed); the file must not contain it. */
static mf_status write_trace(uint32_t experts, uint32_t steps, mf_error *why)
{
    struct route_writer writer;
    struct route_shape shape = shape_of(experts);
    byte_writer_free(&file);
    mf_status status = route_writer_open(&writer, &heap.allocator, &shape, take_bytes, &file, why);
    for (uint32_t s = 0; s < steps && status == MF_OK; s++) {
        add_layer(&writer, 99, 0, 5);
        add_layer(&writer, s, 0, s + 1);
        add_layer(&writer, s, 2, s + 1);
    }
    if (status == MF_OK) status = route_writer_end(&writer, 0.0125, why);
    route_writer_free(&writer);
    return status;
}

static mf_status open_file(struct route_trace *trace, mf_error *why)
{
    return route_trace_open(trace, &heap.allocator, file.bytes, file.count, why);
}

static int set_up(void **state)
{
    (void)state;
    failing_allocator_init(&heap);
    sink_limit = SIZE_MAX;
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    byte_writer_free(&file);
    return heap.live_bytes == 0 ? 0 : -1;
}

static void check_content(const struct route_trace *trace, uint32_t experts, uint32_t steps)
{
    assert_int_equal(trace->step_count, steps);
    assert_int_equal(trace->row_count, steps * (steps + 1) / 2);
    for (uint32_t s = 0; s < steps; s++) {
        const struct route_step *step = &trace->steps[s];
        assert_int_equal(step->rows, s + 1);
        assert_int_equal(step->first_row, s * (s + 1) / 2);
        for (uint32_t r = 0; r < step->rows; r++) {
            assert_int_equal(load_u32(trace->bytes + step->at + r * 4), s * 100 + r);
            for (uint32_t layer = 0; layer < LAYERS; layer += 2) {
                uint32_t first = first_expert(experts, s, layer, r);
                assert_int_equal(route_trace_expert(trace, step, layer, r, 0), first);
                assert_int_equal(route_trace_expert(trace, step, layer, r, 1), first + 1);
                assert_true(route_trace_weight(trace, step, layer, r, 0) == 0.25f);
                assert_true(route_trace_weight(trace, step, layer, r, 1) == 0.75f);
            }
        }
    }
}

static void written_trace_reads_back(void **state)
{
    (void)state;
    static const uint32_t counts[] = { 2, 64, 256, 257, 65536 };
    for (size_t i = 0; i < COUNT_OF(counts); i++) {
        struct route_trace trace;
        mf_error why = { 0 };
        assert_int_equal(write_trace(counts[i], 7, &why), MF_OK);
        if (open_file(&trace, &why) != MF_OK) fail_msg("%s", why.text);
        assert_int_equal(trace.shape.experts, counts[i]);
        assert_int_equal(trace.shape.resident_bytes, 12345);
        assert_int_equal(trace.shape.working_bytes, 678);
        assert_int_equal(trace.shape.slot_bytes[2], 2048);
        assert_string_equal(trace.shape.name, "pebble"); /* without the newline */
        assert_true(fabs(trace.step_seconds - 0.0125) < 1e-9);
        assert_int_equal(trace.order[1], NO_ORDER);
        check_content(&trace, counts[i], 7);
        route_trace_free(&trace);
    }
}

static void trace_without_steps_is_accepted(void **state)
{
    (void)state;
    struct route_trace trace;
    assert_int_equal(write_trace(8, 0, NULL), MF_OK);
    assert_int_equal(open_file(&trace, NULL), MF_OK);
    assert_int_equal(trace.row_count, 0);
    route_trace_free(&trace);
}

static void truncated_or_longer_file_is_refused(void **state)
{
    (void)state;
    struct route_trace trace;
    assert_int_equal(write_trace(8, 3, NULL), MF_OK);
    size_t whole = file.count;
    for (size_t count = 0; count < whole; count++) {
        uint8_t *copy = malloc(count + 1); /* exact, for the sanitizer */
        memcpy(copy, file.bytes, count);
        assert_int_not_equal(route_trace_open(&trace, &heap.allocator, copy, count, NULL), MF_OK);
        free(copy);
    }
    put_u8(&file, 0);
    assert_int_not_equal(open_file(&trace, NULL), MF_OK);
}

static void any_changed_byte_is_refused(void **state)
{
    (void)state;
    struct route_trace trace;
    assert_int_equal(write_trace(8, 3, NULL), MF_OK);
    for (size_t i = 0; i < file.count; i++) {
        file.bytes[i] ^= 0x10;
        assert_int_not_equal(open_file(&trace, NULL), MF_OK);
        file.bytes[i] ^= 0x10;
    }
    assert_int_equal(open_file(&trace, NULL), MF_OK);
    route_trace_free(&trace);
}

/* Overwrites `count` bytes of a valid file, corrects the checksum, and expects a refusal whose
 * message contains `part`. */
static void expect_refusal(size_t at, const void *bytes, size_t count, const char *part)
{
    struct route_trace trace;
    mf_error why = { 0 };
    assert_int_equal(write_trace(8, 2, NULL), MF_OK);
    memcpy(file.bytes + at, bytes, count);
    uint64_t sum = checksum_of(file.bytes, file.count - 8);
    memcpy(file.bytes + file.count - 8, &sum, sizeof sum);
    assert_int_not_equal(open_file(&trace, &why), MF_OK);
    if (!strstr(why.text, part)) fail_msg("\"%s\" does not say \"%s\"", why.text, part);
}

static void refusal_names_the_wrong_field(void **state)
{
    (void)state;
    /* Offsets as in the table of route_trace.h; the first step has one row. */
    size_t step = 112 + LAYERS * 16, ids = step + 4 + 4;
    uint32_t two = 2, none = 0, many = 5000, huge = UINT32_MAX;
    uint64_t large = 5000;
    uint16_t not_finite = 0x7F80;
    expect_refusal(0, "mfr", 4, "not a trace");
    expect_refusal(8, &two, 4, "version 2");
    expect_refusal(12, &two, 4, "contradicts itself");
    expect_refusal(16, &none, 4, "0 layers");
    expect_refusal(16, &many, 4, "5000 layers");
    expect_refusal(20, &none, 4, "0 experts");
    expect_refusal(24, &many, 4, "5000 of them per token");
    expect_refusal(28, &two, 4, "contradicts itself");
    expect_refusal(48, "\x1b", 1, "cannot be printed");
    expect_refusal(48, "\xff", 1, "cannot be printed");
    expect_refusal(112, &large, 8, "does not fit in its slot");
    expect_refusal(step, &huge, 4, "ends within step 0");
    expect_refusal(step, &none, 4, "does not fit its 0 rows");
    expect_refusal(ids, "\x08", 1, "expert 8 is none of the layer");
    expect_refusal(ids + 1, "", 1, "expert 0 is there twice");
    expect_refusal(ids + 2, &not_finite, 2, "a weight is not finite");
}

/* Wherever the sink fails, route_writer_open or route_writer_end says so. */
static void failing_sink_is_reported(void **state)
{
    (void)state;
    mf_error why = { 0 };
    assert_int_equal(write_trace(8, 3, NULL), MF_OK);
    size_t whole = file.count;
    for (sink_limit = 0; sink_limit < whole; sink_limit += 5) {
        assert_int_equal(write_trace(8, 3, &why), MF_ERR_IO);
        assert_non_null(strstr(why.text, "cannot be written"));
    }
    sink_limit = whole;
    assert_int_equal(write_trace(8, 3, NULL), MF_OK);
}

static void every_failing_allocation_is_reported(void **state)
{
    (void)state;
    for (uint64_t nth = 1;; nth++) {
        failing_allocator_arm(&heap, nth);
        mf_status status = write_trace(8, 3, NULL);
        bool fired = failing_allocator_disarm(&heap);
        assert_int_equal(status, fired ? MF_ERR_MEMORY : MF_OK);
        assert_int_equal(heap.live_bytes, 0);
        if (!fired) break;
    }
    for (uint64_t nth = 1;; nth++) {
        struct route_trace trace;
        failing_allocator_arm(&heap, nth);
        mf_status status = open_file(&trace, NULL);
        bool fired = failing_allocator_disarm(&heap);
        assert_int_equal(status, fired ? MF_ERR_MEMORY : MF_OK);
        if (!fired) route_trace_free(&trace);
        assert_int_equal(heap.live_bytes, 0);
        if (!fired) break;
    }
}

static void model_without_experts_is_unsupported(void **state)
{
    (void)state;
    static const uint64_t nothing[LAYERS];
    struct route_writer writer;
    struct route_shape shape = shape_of(8);
    shape.expert_bytes = shape.slot_bytes = nothing;
    assert_int_equal(route_writer_open(&writer, &heap.allocator, &shape, take_bytes, &file, NULL),
                     MF_ERR_UNSUPPORTED);
    route_writer_free(&writer);
    assert_int_equal(file.count, 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(written_trace_reads_back),
        TEST(trace_without_steps_is_accepted),
        TEST(truncated_or_longer_file_is_refused),
        TEST(any_changed_byte_is_refused),
        TEST(refusal_names_the_wrong_field),
        TEST(failing_sink_is_reported),
        TEST(every_failing_allocation_is_reported),
        TEST(model_without_experts_is_unsupported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
