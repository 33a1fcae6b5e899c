/* sequence_bits: what a sequence computes (against the same model in double), and that its bits
 * depend on nothing but the tokens and their phases. */
#include "support/test.h"

#include "support/plain_model.h"
#include "support/tiny_engine.h"

#include <math.h>
#include <stdlib.h>

enum { TOKENS = 150 }; /* over two page edges */

/* ------------------------------------------------------------ right numbers */

/* Of the largest logit.  The tuned arithmetic is tried token by token, as generated: caches
 * are f16 there, quantised products have 15 bits.  (bf16, as in prompts, says nothing here:
 * these random models enlarge a rounding error a thousand times, as the reference's own
 * error shows; conformance/products.c and golden/drift.c judge it.)  All experts, so that no
 * router's decision can turn. */
#define REFERENCE_TOLERANCE 2e-4
#define TUNED_TOLERANCE     0.01

static void check_with(const struct tiny_shape *shape, const char *backend, bool decode,
                       double tolerance)
{
    struct tiny_engine t;
    struct plain_model plain;
    int32_t tokens[TOKENS];
    size_t vocab = shape->vocab_size;
    double *expected = malloc(vocab * sizeof *expected), worst = 0, gap = 1;
    assert_non_null(expected);
    tiny_engine_open(&t, shape,
                     &(mf_engine_options){ .struct_size = sizeof(mf_engine_options),
                                           .thread_count = 1,
                                           .backend = backend });
    tiny_tokens(tokens, &t, TOKENS);
    float *found =
        decode ? tiny_decoded_logits(&t, tokens, TOKENS) : tiny_all_logits(&t, tokens, TOKENS, 64);
    plain_model_init(&plain, &t.tiny);
    for (size_t i = 0; i < TOKENS; i++) {
        double most = 0, error = 0;
        plain_model_step(&plain, tokens[i], expected);
        gap = fmin(gap, plain.trace.gap);
        for (size_t v = 0; v < vocab; v++) {
            most = fmax(most, fabs(expected[v]));
            error = fmax(error, fabs((double)found[i * vocab + v] - expected[v]));
        }
        worst = fmax(worst, error / most);
    }
    print_message("    %-9s width %u, %u of %u experts, taps %u: %.1e\n", backend, shape->width,
                  shape->experts_per_token, shape->experts, shape->taps, worst);
    if (!(worst <= tolerance))
        fail_msg("logits are off by %g (smallest router gap %g)", worst, gap);
    plain_model_free(&plain);
    free(found);
    free(expected);
    tiny_engine_close(&t);
}

static void check_against_double(const struct tiny_shape *shape)
{
    struct tiny_shape all = *shape;
    all.experts_per_token = all.experts;
    check_with(shape, "reference", false, REFERENCE_TOLERANCE);
    check_with(&all, "cpu", true, TUNED_TOLERANCE);
}

static void logits_agree_with_double(void **state)
{
    (void)state;
    check_against_double(&tiny_standard);
    check_against_double(&tiny_odd);
    check_against_double(&tiny_affine);
}

static void odd_shapes_work(void **state)
{
    (void)state;
    struct tiny_shape shape = tiny_odd;
    shape.taps = 1; /* a convolution without a past */
    check_against_double(&shape);
    shape = tiny_odd;
    shape.experts = shape.experts_per_token = 1;
    check_against_double(&shape);
    shape = tiny_standard;
    shape.interval = 1; /* full attention alone */
    check_against_double(&shape);
    shape = tiny_standard;
    shape.interval = 5; /* delta nets alone */
    check_against_double(&shape);
    shape = tiny_standard;
    shape.layers = 1;
    shape.width = 8;
    shape.expert_width = 8;
    shape.vocab_size = 2;
    check_against_double(&shape);
    shape = tiny_affine;
    shape.format = FORMAT_AFFINE8;
    shape.group = 8;
    shape.expert_width = 24;
    shape.key_width = 9;
    shape.tied = true;
    check_against_double(&shape);
    shape = tiny_affine;
    shape.format = FORMAT_AFFINE3; /* no kernel of its own */
    check_against_double(&shape);
}

/* --------------------------------------------------------------- same bits */

static const char *const backends[] = { "reference", "cpu" };

/* What a prompt must give: one thread, one chunk. */
static float *expected_logits(const struct tiny_shape *shape, const char *backend,
                              int32_t tokens[TOKENS])
{
    struct tiny_engine t;
    tiny_engine_open(&t, shape,
                     &(mf_engine_options){ .struct_size = sizeof(mf_engine_options),
                                           .thread_count = 1,
                                           .backend = backend });
    tiny_tokens(tokens, &t, TOKENS);
    float *logits = tiny_all_logits(&t, tokens, TOKENS, 512);
    tiny_engine_close(&t);
    return logits;
}

static const struct tiny_shape *const shapes[] = { &tiny_standard, &tiny_odd, &tiny_affine };

static void check_chunks_and_threads(const struct tiny_shape *shape, const char *backend)
{
    static const uint32_t chunks[] = { 512, 64, 7, 1 }, threads[] = { 1, 2, 4 };
    int32_t tokens[TOKENS];
    float *expected = expected_logits(shape, backend, tokens);
    for (size_t i = 0; i < COUNT_OF(threads); i++) {
        struct tiny_engine t;
        tiny_engine_open(&t, shape,
                         &(mf_engine_options){ .struct_size = sizeof(mf_engine_options),
                                               .thread_count = threads[i],
                                               .backend = backend });
        for (size_t c = 0; c < COUNT_OF(chunks); c++) {
            float *found = tiny_all_logits(&t, tokens, TOKENS, chunks[c]);
            if (memcmp(found, expected, TOKENS * shape->vocab_size * sizeof *found) != 0)
                fail_msg("%s, %u threads, chunks of %u: other bits", backend, threads[i],
                         chunks[c]);
            free(found);
        }
        tiny_engine_close(&t);
    }
    free(expected);
}

static void chunks_and_threads_change_no_bit(void **state)
{
    (void)state;
    for (size_t s = 0; s < COUNT_OF(shapes); s++)
        for (size_t b = 0; b < COUNT_OF(backends); b++)
            check_chunks_and_threads(shapes[s], backends[b]);
}

/* A prompt at once, and the same tokens in feeds of 1 to `largest`. */
static void check_feeds(const struct tiny_shape *shape, const char *backend, size_t largest)
{
    struct tiny_engine t;
    int32_t tokens[TOKENS];
    float *expected = expected_logits(shape, backend, tokens);
    size_t vocab = shape->vocab_size;
    tiny_engine_open(&t, shape,
                     &(mf_engine_options){ .struct_size = sizeof(mf_engine_options),
                                           .thread_count = 2,
                                           .backend = backend });
    mf_sequence *sequence = tiny_sequence(&t, 16);
    for (size_t at = 0, count = 0; at < TOKENS; at += count) {
        count = min_size(1 + at % largest, TOKENS - at);
        tiny_feed(sequence, tokens + at, count);
        assert_int_equal(mf_sequence_position(sequence), at + count);
        assert_memory_equal(mf_sequence_logits(sequence), expected + (at + count - 1) * vocab,
                            vocab * sizeof(float));
    }
    mf_sequence_close(sequence);
    tiny_engine_close(&t);
    free(expected);
}

static void feeds_of_any_size_give_the_same_bits(void **state)
{
    (void)state;
    for (size_t s = 0; s < COUNT_OF(shapes); s++)
        for (size_t b = 0; b < COUNT_OF(backends); b++) {
            check_feeds(shapes[s], backends[b], 1);
            check_feeds(shapes[s], backends[b], 23);
        }
}

/* Wide enough for the first rows of a prompt to be multiplied as generated ones, in the same steps
 * as others: matrices and experts have 256 columns. */
static const struct tiny_shape wide = {
    .width = 256,
    .vocab_size = 70,
    .context_length = 512,
    .layers = 2,
    .interval = 2,
    .heads = 4,
    .kv_heads = 1,
    .head_width = 64,
    .rotary_factor = 0.25,
    .key_heads = 2,
    .value_heads = 4,
    .key_width = 32,
    .value_width = 64,
    .taps = 4,
    .experts = 8,
    .experts_per_token = 2,
    .expert_width = 256,
    .shared_width = 256,
    .format = FORMAT_AFFINE4,
    .group = 64,
    .layout = TINY_STACKED,
    .seed = 4,
};

static void the_first_rows_of_a_prompt_may_be_cut(void **state)
{
    (void)state;
    check_chunks_and_threads(&wide, "cpu");
    check_feeds(&wide, "cpu", 23);
}

/* Prompts and generated tokens in turn, to be freed: the logits behind each of both. */
static float *turns(const struct tiny_shape *shape, const char *backend, unsigned threads,
                    uint32_t chunk)
{
    struct tiny_engine t;
    int32_t tokens[TOKENS];
    size_t vocab = shape->vocab_size, feeds = 0;
    float *logits = calloc(TOKENS * vocab, sizeof *logits);
    assert_non_null(logits);
    tiny_engine_open(&t, shape,
                     &(mf_engine_options){ .struct_size = sizeof(mf_engine_options),
                                           .thread_count = threads,
                                           .backend = backend });
    tiny_tokens(tokens, &t, TOKENS);
    mf_sequence *sequence = tiny_sequence(&t, chunk);
    for (size_t at = 0; at < TOKENS; feeds++) {
        bool prompt = feeds % 5 == 0;
        size_t count = prompt ? 21 : 1;
        tiny_feed_as(sequence, prompt ? MF_PHASE_PROMPT : MF_PHASE_GENERATED, tokens + at,
                     min_size(count, TOKENS - at));
        memcpy(logits + at * vocab, mf_sequence_logits(sequence), vocab * sizeof *logits);
        at += count;
    }
    mf_sequence_close(sequence);
    tiny_engine_close(&t);
    return logits;
}

static void turns_give_the_same_bits(void **state)
{
    (void)state;
    static const unsigned threads[] = { 2, 3, 4 };
    for (size_t s = 0; s < COUNT_OF(shapes); s++)
        for (size_t b = 0; b < COUNT_OF(backends); b++) {
            float *expected = turns(shapes[s], backends[b], 1, 512);
            for (size_t i = 0; i < COUNT_OF(threads); i++) {
                float *found = turns(shapes[s], backends[b], threads[i], 5);
                assert_memory_equal(found, expected,
                                    TOKENS * shapes[s]->vocab_size * sizeof *found);
                free(found);
            }
            free(expected);
        }
}

/* An allocator whose memory is full of NaN: nothing that was not written is ever read. */
static void *allocate_dirty(void *user, size_t bytes, size_t alignment)
{
    mf_allocator *inner = user;
    void *memory = inner->allocate(inner->user, bytes, alignment);
    return memory ? memset(memory, 0xff, bytes) : NULL;
}

static void release_dirty(void *user, void *pointer, size_t bytes)
{
    mf_allocator *inner = user;
    inner->release(inner->user, pointer, bytes);
}

static void old_memory_is_never_read(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(shapes) * COUNT_OF(backends); i++) {
        const struct tiny_shape *shape = shapes[i / COUNT_OF(backends)];
        const char *backend = backends[i % COUNT_OF(backends)];
        int32_t tokens[TOKENS];
        mf_error why = { 0 };
        float *expected = expected_logits(shape, backend, tokens);
        mf_allocator heap = allocator_heap;
        const mf_allocator dirty = { &heap, allocate_dirty, release_dirty };
        struct tiny_engine t = { 0 };
        tiny_model_init(&t.tiny, shape);
        tiny_model_write(&t.tiny);
        mf_engine_options options = { .struct_size = sizeof options,
                                      .thread_count = 2,
                                      .backend = backend,
                                      .allocator = &dirty,
                                      .files = &t.tiny.files.files };
        tiny_must(mf_engine_open(&t.engine, &options, &why), &why);
        tiny_must(mf_model_open(&t.model, t.engine, TINY_PATH, NULL, &why), &why);
        float *found = tiny_all_logits(&t, tokens, TOKENS, 33);
        assert_memory_equal(found, expected, TOKENS * shape->vocab_size * sizeof *found);
        free(found);
        free(expected);
        mf_model_close(t.model);
        mf_engine_close(t.engine);
        tiny_model_free(&t.tiny);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(logits_agree_with_double),
        cmocka_unit_test(odd_shapes_work),
        cmocka_unit_test(chunks_and_threads_change_no_bit),
        cmocka_unit_test(feeds_of_any_size_give_the_same_bits),
        cmocka_unit_test(the_first_rows_of_a_prompt_may_be_cut),
        cmocka_unit_test(turns_give_the_same_bits),
        cmocka_unit_test(old_memory_is_never_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
