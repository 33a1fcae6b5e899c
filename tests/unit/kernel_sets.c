/* kernel_sets: a kernel set chosen by its name, and what all sets have in common. */
#include "support/test.h"

#include "support/tiny_engine.h"

#include <math.h>
#include <stdlib.h>

enum { TOKENS = 40 };

static struct machine machine;

static float *logits_with(const char *backend, const char *kernels, const struct tiny_shape *shape)
{
    struct tiny_engine t;
    int32_t tokens[TOKENS];
    tiny_engine_open(&t, shape,
                     &(mf_engine_options){ .struct_size = sizeof(mf_engine_options),
                                           .thread_count = 1,
                                           .backend = backend,
                                           .kernels = kernels });
    assert_string_equal(mf_engine_kernels(t.engine), kernels);
    tiny_tokens(tokens, &t, TOKENS);
    float *logits = tiny_decoded_logits(&t, tokens, TOKENS);
    tiny_engine_close(&t);
    return logits;
}

/* The largest difference, as a part of the largest logit. */
static double difference(const float *found, const float *expected, size_t count)
{
    double most = 0, error = 0;
    for (size_t i = 0; i < count; i++) {
        most = fmax(most, fabs((double)expected[i]));
        error = fmax(error, fabs((double)found[i] - (double)expected[i]));
    }
    return error / most;
}

static void reference_has_the_same_bits_with_every_set(void **state)
{
    (void)state;
    size_t count = TOKENS * tiny_affine.vocab_size;
    float *expected = logits_with("reference", "generic", &tiny_affine);
    for (size_t i = 0; kernels_at(&machine, i); i++) {
        float *found = logits_with("reference", kernels_at(&machine, i)->name, &tiny_affine);
        assert_memory_equal(found, expected, count * sizeof *found);
        free(found);
    }
    free(expected);
}

/* All experts, so that no choice of a router can turn. */
static void generated_tokens_agree_between_sets(void **state)
{
    (void)state;
    struct tiny_shape all = tiny_affine;
    all.experts_per_token = all.experts;
    size_t count = TOKENS * all.vocab_size;
    float *expected = logits_with("cpu", "generic", &all);
    for (size_t i = 0; kernels_at(&machine, i); i++) {
        float *found = logits_with("cpu", kernels_at(&machine, i)->name, &all);
        double off = difference(found, expected, count);
        print_message("    %-10s %.1e\n", kernels_at(&machine, i)->name, off);
        assert_true(off <= 0.01);
        free(found);
    }
    free(expected);
}

static void unknown_set_is_refused_with_a_list(void **state)
{
    (void)state;
    mf_engine *engine;
    mf_error why = { 0 };
    mf_engine_options options = { .struct_size = sizeof options,
                                  .thread_count = 1,
                                  .kernels = "sse9" };
    assert_int_equal(mf_engine_open(&engine, &options, &why), MF_ERR_ARGUMENT);
    assert_null(engine);
    assert_non_null(strstr(why.text, "\"sse9\""));
    for (size_t i = 0; kernels_at(&machine, i); i++)
        assert_non_null(strstr(why.text, kernels_at(&machine, i)->name));
    assert_int_equal(mf_engine_open(&engine, &options, NULL), MF_ERR_ARGUMENT);
}

static void best_set_is_the_default(void **state)
{
    (void)state;
    mf_engine *engine;
    assert_int_equal(mf_engine_open(&engine,
                                    &(mf_engine_options){ .struct_size = sizeof(mf_engine_options),
                                                          .thread_count = 1 },
                                    NULL),
                     MF_OK);
    assert_string_equal(mf_engine_kernels(engine), kernels_at(&machine, 0)->name);
    mf_engine_close(engine);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reference_has_the_same_bits_with_every_set),
        cmocka_unit_test(generated_tokens_agree_between_sets),
        cmocka_unit_test(unknown_set_is_refused_with_a_list),
        cmocka_unit_test(best_set_is_the_default),
    };
    machine_probe(&machine);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
