/* context: the ancestors' call set, on a tiny checkpoint on disk. */
#include "support/test.h"

#include "moeflux_compat.h"
#include "support/tiny_directory.h"

#include <math.h>

enum { VOCAB = 50 }; /* of tiny_standard */

static struct tiny_directory directory;
static const int32_t tokens[] = { 3, 14, 15, 9, 26, 5, 35, 8, 9, 7, 9, 32, 38, 4, 6 };

static int make_directory(void **state)
{
    (void)state;
    tiny_directory_make(&directory);
    tiny_directory_write(&directory, &tiny_standard);
    return 0;
}

static int remove_directory(void **state)
{
    (void)state;
    tiny_directory_remove(&directory);
    return 0;
}

static mf_context *open_context(uint32_t experts)
{
    mf_context *context;
    mf_error why = { 0 };
    if (mf_context_open(&context, directory.path, NULL, NULL, NULL, experts, false, &why) != MF_OK)
        fail_msg("%s", why.text);
    return context;
}

static void must(mf_status status, const mf_error *why)
{
    if (status != MF_OK) fail_msg("%s", why->text);
}

static void queries_answer(void **state)
{
    (void)state;
    mf_context *context = open_context(0);
    assert_int_equal(mf_context_n_vocab(context), VOCAB);
    assert_int_equal(mf_context_n_ctx(context), 512);
    assert_int_equal(mf_context_eos(context), 1);
    assert_string_equal(mf_context_model_name(context), strrchr(directory.path, '/') + 1);
    assert_int_equal(mf_context_memory_seq_pos_max(context, 0), -1);
    mf_context_close(context);
    mf_context_close(NULL);
}

/* A prompt, and then tokens one by one, give nearly what a prompt of all gives: generated
 * tokens have an arithmetic of their own. */
static void prompts_in_parts_agree(void **state)
{
    (void)state;
    mf_error why = { 0 };
    const int32_t count = (int32_t)COUNT_OF(tokens);
    float whole[VOCAB], parts[VOCAB];
    mf_context *context = open_context(0), *other = open_context(0);
    must(mf_context_eval_prompt(context, tokens, COUNT_OF(tokens), 0, 0, whole, VOCAB, &why), &why);
    assert_int_equal(mf_context_memory_seq_pos_max(context, 0), count - 1);
    must(mf_context_eval_prompt(other, tokens, 4, 0, 0, parts, VOCAB, &why), &why);
    assert_int_equal(mf_context_memory_seq_pos_max(other, 0), 3);
    must(mf_context_eval_prompt(other, tokens + 4, COUNT_OF(tokens) - 4, 4, 0, parts, VOCAB, &why),
         &why);
    assert_memory_equal(parts, whole, sizeof whole);
    mf_context_close(context);
    mf_context_close(other);
}

static void tokens_follow_each_other(void **state)
{
    (void)state;
    mf_error why = { 0 };
    float first[VOCAB], again[VOCAB];
    mf_context *context = open_context(0), *other = open_context(0);
    for (int32_t i = 0; i < (int32_t)COUNT_OF(tokens); i++) {
        assert_int_equal(mf_context_memory_seq_pos_max(other, 0), i - 1);
        must(mf_context_eval_token(context, tokens[i], i, 0, first, VOCAB, &why), &why);
        must(mf_context_eval_token(other, tokens[i], i, 0, again, VOCAB, &why), &why);
        assert_memory_equal(first, again, sizeof first);
        for (size_t v = 0; v < VOCAB; v++) assert_true(isfinite(first[v]));
    }
    mf_context_close(context);
    mf_context_close(other);
}

static void wrong_calls_are_refused_and_change_nothing(void **state)
{
    (void)state;
    mf_error why = { 0 };
    float logits[VOCAB + 1], untouched[VOCAB + 1];
    memset(logits, 0x5a, sizeof logits);
    memcpy(untouched, logits, sizeof logits);
    mf_context *context = open_context(0);
#define REFUSED(status, call)                                                                      \
    assert_int_equal((call), status);                                                              \
    assert_memory_equal(logits, untouched, sizeof logits)
    REFUSED(MF_ERR_BUFFER_SIZE,
            mf_context_eval_prompt(context, tokens, 3, 0, 0, logits, VOCAB - 1, &why));
    REFUSED(MF_ERR_BUFFER_SIZE,
            mf_context_eval_prompt(context, tokens, 3, 0, 0, logits, VOCAB + 1, &why));
    assert_non_null(strstr(why.text, "51"));
    REFUSED(MF_ERR_BUFFER_SIZE,
            mf_context_eval_prompt(context, tokens, 3, 0, 0, NULL, VOCAB, &why));
    REFUSED(MF_ERR_BUFFER_SIZE,
            mf_context_eval_prompt(context, tokens, 0, 0, 0, logits, VOCAB - 1, &why));
    REFUSED(MF_OK, mf_context_eval_prompt(context, tokens, 0, 0, 0, logits, VOCAB, &why));
    REFUSED(MF_ERR_ARGUMENT,
            mf_context_eval_prompt(context, tokens, 3, -1, 0, logits, VOCAB, &why));
    REFUSED(MF_ERR_ARGUMENT, mf_context_eval_prompt(context, tokens, 3, 1, 0, logits, VOCAB, &why));
    REFUSED(MF_ERR_ARGUMENT, mf_context_eval_token(context, -1, 0, 0, logits, VOCAB, &why));
    REFUSED(MF_ERR_ARGUMENT, mf_context_eval_token(context, VOCAB, 0, 0, logits, VOCAB, &why));
    REFUSED(MF_ERR_ARGUMENT, mf_context_eval_token(NULL, 0, 0, 0, logits, VOCAB, &why));
#undef REFUSED
    assert_int_equal(mf_context_memory_seq_pos_max(context, 0), -1);
    must(mf_context_eval_token(context, 3, 0, 0, logits, VOCAB, &why), &why);
    assert_int_equal(mf_context_eval_token(context, 3, 0, 0, logits, VOCAB, &why), MF_ERR_ARGUMENT);
    assert_non_null(strstr(why.text, "the start position is 0, the sequence goes on at 1"));
    mf_context_close(context);
}

static void more_tokens_than_the_context_has_are_refused(void **state)
{
    (void)state;
    mf_error why = { 0 };
    float logits[VOCAB];
    int32_t many[513];
    for (size_t i = 0; i < COUNT_OF(many); i++) many[i] = (int32_t)(i % VOCAB);
    mf_context *context = open_context(0);
    assert_int_equal(mf_context_eval_prompt(context, many, 513, 0, 0, logits, VOCAB, &why),
                     MF_ERR_CONTEXT_FULL);
    assert_int_equal(mf_context_memory_seq_pos_max(context, 0), -1);
    must(mf_context_eval_prompt(context, many, 512, 0, 0, logits, VOCAB, &why), &why);
    assert_int_equal(mf_context_eval_token(context, 1, 512, 0, logits, VOCAB, &why),
                     MF_ERR_CONTEXT_FULL);
    assert_int_equal(mf_context_memory_seq_pos_max(context, 0), 511);
    mf_context_close(context);
}

static void cleared_memory_is_empty(void **state)
{
    (void)state;
    mf_error why = { 0 };
    float first[VOCAB], again[VOCAB];
    mf_context *context = open_context(0);
    must(mf_context_eval_prompt(context, tokens, 9, 0, 0, first, VOCAB, &why), &why);
    mf_context_memory_clear(context);
    assert_int_equal(mf_context_memory_seq_pos_max(context, 0), -1);
    must(mf_context_eval_prompt(context, tokens, 9, 0, 0, again, VOCAB, &why), &why);
    assert_memory_equal(first, again, sizeof first);
    mf_context_close(context);
}

/* Recurrent layers hold no history: all or nothing. */
static void hybrid_is_truncated_to_zero_only(void **state)
{
    (void)state;
    mf_error why = { 0 };
    float logits[VOCAB];
    mf_context *context = open_context(0);
    must(mf_context_memory_seq_rm(context, 0, 0, -1, &why), &why); /* empty: nothing to forget */
    must(mf_context_eval_prompt(context, tokens, 9, 0, 0, logits, VOCAB, &why), &why);
    assert_int_equal(mf_context_memory_seq_rm(context, 0, 5, -1, &why), MF_ERR_CANNOT_TRUNCATE);
    assert_int_equal(mf_context_memory_seq_rm(context, 0, 0, 4, &why), MF_ERR_CANNOT_TRUNCATE);
    assert_int_equal(mf_context_memory_seq_rm(NULL, 0, 0, 4, &why), MF_ERR_ARGUMENT);
    assert_int_equal(mf_context_memory_seq_pos_max(context, 0), 8);
    must(mf_context_memory_seq_rm(context, 0, 9, -1, &why), &why);
    must(mf_context_memory_seq_rm(context, 0, 100, 200, &why), &why);
    assert_int_equal(mf_context_memory_seq_pos_max(context, 0), 8);
    must(mf_context_memory_seq_rm(context, 0, -1, -1, &why), &why);
    assert_int_equal(mf_context_memory_seq_pos_max(context, 0), -1);
    must(mf_context_eval_prompt(context, tokens, 9, 0, 0, logits, VOCAB, &why), &why);
    must(mf_context_memory_seq_rm(context, 0, 0, 9, &why), &why); /* p1 at the end is the end */
    assert_int_equal(mf_context_memory_seq_pos_max(context, 0), -1);
    mf_context_close(context);
}

static void attention_only_model_is_truncated_anywhere(void **state)
{
    (void)state;
    mf_error why = { 0 };
    float whole[VOCAB], again[VOCAB];
    struct tiny_shape shape = tiny_standard;
    shape.interval = 1;
    tiny_directory_write(&directory, &shape);
    mf_context *context = open_context(0);
    must(mf_context_eval_prompt(context, tokens, 12, 0, 0, whole, VOCAB, &why), &why);
    must(mf_context_memory_seq_rm(context, 0, 5, -1, &why), &why);
    assert_int_equal(mf_context_memory_seq_pos_max(context, 0), 4);
    must(mf_context_eval_prompt(context, tokens + 5, 7, 5, 0, again, VOCAB, &why), &why);
    assert_memory_equal(whole, again, sizeof whole);
    mf_context_close(context);
    tiny_directory_write(&directory, &tiny_standard);
}

static void contexts_are_independent(void **state)
{
    (void)state;
    mf_error why = { 0 };
    float alone[VOCAB], first[VOCAB], second[VOCAB];
    mf_context *a = open_context(0);
    must(mf_context_eval_prompt(a, tokens, 10, 0, 0, alone, VOCAB, &why), &why);
    mf_context_memory_clear(a);
    mf_context *b = open_context(0);
    for (int32_t i = 0; i < 10; i += 2) { /* in turns, at other positions */
        must(mf_context_eval_prompt(a, tokens + i, 2, i, 0, first, VOCAB, &why), &why);
        must(mf_context_eval_prompt(b, tokens, 3, 3 * i / 2, 0, second, VOCAB, &why), &why);
    }
    assert_memory_equal(first, alone, sizeof alone);
    mf_context_close(b);
    must(mf_context_eval_token(a, tokens[10], 10, 0, first, VOCAB, &why), &why);
    mf_context_close(a);
}

/* K is clamped to [1, the model's]. */
static void experts_per_token_are_clamped(void **state)
{
    (void)state;
    mf_error why = { 0 };
    float all[VOCAB], same[VOCAB], one[VOCAB];
    float *const results[] = { all, same, one };
    static const uint32_t experts[] = { 0, 99, 1 };
    for (size_t i = 0; i < COUNT_OF(experts); i++) {
        mf_context *context = open_context(experts[i]);
        must(mf_context_eval_prompt(context, tokens, 9, 0, 0, results[i], VOCAB, &why), &why);
        mf_context_close(context);
    }
    assert_memory_equal(all, same, sizeof all);
    assert_memory_not_equal(all, one, sizeof all);
}

static void wrong_paths_are_refused(void **state)
{
    (void)state;
    mf_error why = { 0 };
    mf_context *context = (mf_context *)&directory;
    assert_int_equal(mf_context_open(&context, "/nowhere/at/all", NULL, NULL, NULL, 0, false, &why),
                     MF_ERR_IO);
    assert_null(context);
    assert_non_null(strstr(why.text, "/nowhere/at/all"));
    assert_int_equal(mf_context_open(&context, NULL, NULL, NULL, NULL, 0, false, &why),
                     MF_ERR_ARGUMENT);
    assert_int_equal(mf_context_open(NULL, directory.path, NULL, NULL, NULL, 0, false, &why),
                     MF_ERR_ARGUMENT);
    assert_int_not_equal(
        mf_context_open(&context, directory.path, "no-manifest.json", NULL, NULL, 0, false, &why),
        MF_OK);
    assert_null(context);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(queries_answer),
        cmocka_unit_test(prompts_in_parts_agree),
        cmocka_unit_test(tokens_follow_each_other),
        cmocka_unit_test(wrong_calls_are_refused_and_change_nothing),
        cmocka_unit_test(more_tokens_than_the_context_has_are_refused),
        cmocka_unit_test(cleared_memory_is_empty),
        cmocka_unit_test(hybrid_is_truncated_to_zero_only),
        cmocka_unit_test(attention_only_model_is_truncated_anywhere),
        cmocka_unit_test(contexts_are_independent),
        cmocka_unit_test(experts_per_token_are_clamped),
        cmocka_unit_test(wrong_paths_are_refused),
    };
    return cmocka_run_group_tests(tests, make_directory, remove_directory);
}
