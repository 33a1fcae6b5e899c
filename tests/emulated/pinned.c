/* pinned.c: an expert's memory may be written again when run_experts returns, pinned or not.
 *
 * The emulated device reads pinned memory as late as it may. */
#include "support/test.h"

#include "support/failing_allocator.h"

#include "backend/cuda/cuda.h"

#include <stdio.h>

enum { WIDTH = 32, EXPERT_WIDTH = 16, MATRICES = 3, NUMBERS = WIDTH * EXPERT_WIDTH };

static struct backend *device;

static struct weight matrix(const float *numbers, uint64_t rows, uint64_t cols)
{
    return (struct weight){ .format = FORMAT_F32,
                            .rows = rows,
                            .cols = cols,
                            .values = (const void *)numbers,
                            .row_bytes = cols * sizeof(float) };
}

static void *device_new(size_t bytes)
{
    void *memory = device->functions->allocate(device, bytes);
    assert_non_null(memory);
    return memory;
}

static void copy(void *to, const void *from, size_t bytes)
{
    mf_error why = { 0 };
    assert_int_equal(device->functions->copy(device, to, from, bytes, &why), MF_OK);
}

/* One row's answer of one expert, whose numbers are gone when the device is waited for. */
static void answer(float *out, float *numbers)
{
    float x[WIDTH];
    uint32_t pair = 0;
    mf_error why = { 0 };
    for (size_t i = 0; i < MATRICES * NUMBERS; i++) numbers[i] = (float)(i % 11) / 16.0f - 0.25f;
    for (size_t i = 0; i < WIDTH; i++) x[i] = (float)(i % 5) / 4.0f;
    struct expert_view view = { .gate = matrix(numbers, EXPERT_WIDTH, WIDTH),
                                .up = matrix(numbers + NUMBERS, EXPERT_WIDTH, WIDTH),
                                .down = matrix(numbers + 2 * NUMBERS, WIDTH, EXPERT_WIDTH) };
    struct expert_work work = { .view = &view, .expert = 0, .pairs = &pair, .pair_count = 1 };
    struct span span = { .row_count = 1, .decode = true };
    struct row row = { 0 };
    float *routed = device_new(sizeof x), *answers = device_new(WIDTH * sizeof *answers);
    float *hidden = device_new(EXPERT_WIDTH * sizeof *hidden);
    copy(routed, x, sizeof x);
    struct expert_batch batch = { .works = &work,
                                  .work_count = 1,
                                  .row_count = 1,
                                  .rows = &row,
                                  .spans = &span,
                                  .per_row = 1,
                                  .routed = routed,
                                  .hidden = hidden,
                                  .answers = answers };
    assert_int_equal(device->functions->run_experts(device, &batch, &why), MF_OK);
    memset(numbers, 0xff, MATRICES * NUMBERS * sizeof *numbers);
    copy(out, answers, WIDTH * sizeof *out);
    device->functions->release(device, routed, sizeof x);
    device->functions->release(device, answers, WIDTH * sizeof *answers);
    device->functions->release(device, hidden, EXPERT_WIDTH * sizeof *hidden);
}

static void experts_are_read_before_the_call_returns(void **state)
{
    (void)state;
    static float plain[MATRICES * NUMBERS], pinned[MATRICES * NUMBERS];
    float expected[WIDTH], found[WIDTH];
    answer(expected, plain);
    assert_true(expected[0] > 0.0f);
    assert_true(device->functions->pin(device, pinned, sizeof pinned));
    answer(found, pinned);
    device->functions->unpin(device, pinned);
    assert_memory_equal(found, expected, sizeof expected);
}

int main(void)
{
    static struct failing_allocator heap;
    failing_allocator_init(&heap);
    const struct cuda_options options = { .allocator = &heap.allocator };
    mf_error why = { 0 };
    if (backend_cuda_new(&device, &options, &why) != MF_OK) {
        fprintf(stderr, "SKIPPED: %s\n", why.text);
        return 77;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(experts_are_read_before_the_call_returns),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    device->functions->free(device);
    return failed;
}
