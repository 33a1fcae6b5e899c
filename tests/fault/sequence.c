/* sequence: whatever read or allocation fails, at open or while tokens are fed, there is a typed
 * error that says where, nothing leaks, and what was open is usable and as it was before. */
#include "support/test.h"

#include "support/tiny_engine.h"

#include <stdio.h>

enum { TOKENS = 40 };

static const struct tiny_shape *const shapes[] = { &tiny_standard, &tiny_odd, &tiny_affine };

/* The whole way from nothing to a sequence's logits, through `t`'s files and allocator. */
static mf_status open_and_feed(struct tiny_engine *t, float *logits, mf_error *why)
{
    int32_t tokens[TOKENS];
    mf_sequence *sequence = NULL;
    mf_engine_options options = { .struct_size = sizeof options,
                                  .thread_count = 2,
                                  .allocator = &t->heap.allocator,
                                  .files = &t->files.files };
    tiny_tokens(tokens, t, TOKENS);
    t->engine = NULL;
    t->model = NULL;
    mf_status status = mf_engine_open(&t->engine, &options, why);
    if (status == MF_OK) status = mf_model_open(&t->model, t->engine, TINY_PATH, NULL, why);
    if (status == MF_OK) status = mf_sequence_open(&sequence, t->model, NULL, why);
    if (status == MF_OK) status = mf_sequence_feed(sequence, MF_PHASE_PROMPT, tokens, TOKENS, why);
    if (status == MF_OK)
        memcpy(logits, mf_sequence_logits(sequence), t->tiny.shape.vocab_size * sizeof *logits);
    mf_sequence_close(sequence);
    mf_model_close(t->model);
    mf_engine_close(t->engine);
    assert_int_equal(t->heap.live_bytes, 0);
    assert_int_equal(t->tiny.files.open_count, 0);
    return status;
}

static void prepare(struct tiny_engine *t, const struct tiny_shape *shape)
{
    tiny_model_init(&t->tiny, shape);
    tiny_model_write(&t->tiny);
    failing_allocator_init(&t->heap);
    failing_files_init(&t->files, &t->tiny.files.files);
}

static void every_failing_allocation_is_survived(void **state)
{
    (void)state;
    for (size_t s = 0; s < COUNT_OF(shapes); s++) {
        struct tiny_engine t;
        float expected[128], logits[128];
        mf_error why = { 0 };
        prepare(&t, shapes[s]);
        tiny_must(open_and_feed(&t, expected, &why), &why);
        uint64_t nth = 1;
        for (bool fired = true; fired; nth++) {
            why = (mf_error){ 0 };
            failing_allocator_arm(&t.heap, nth);
            mf_status status = open_and_feed(&t, logits, &why);
            fired = failing_allocator_disarm(&t.heap);
            if (status != MF_OK) {
                assert_true(fired && why.text[0] != '\0');
                assert_int_equal(status, MF_ERR_MEMORY);
            } else { /* what can be done without, like the best reader, is done without */
                assert_memory_equal(logits, expected, shapes[s]->vocab_size * sizeof(float));
            }
        }
        assert_true(nth > 20); /* it was not one allocation */
        tiny_model_free(&t.tiny);
    }
}

static void every_failing_read_is_survived(void **state)
{
    (void)state;
    for (size_t s = 0; s < COUNT_OF(shapes); s++) {
        struct tiny_engine t;
        float expected[128], logits[128];
        mf_error why = { 0 };
        prepare(&t, shapes[s]);
        tiny_must(open_and_feed(&t, expected, &why), &why);
        uint64_t nth = 1;
        for (bool fired = true; fired; nth++) {
            why = (mf_error){ 0 };
            failing_files_arm(&t.files, nth);
            mf_status status = open_and_feed(&t, logits, &why);
            fired = failing_files_disarm(&t.files);
            /* experts are read again, and a file that may be absent is looked for by opening
             * it: then there is no error, and no other result */
            if (status != MF_OK) {
                assert_int_equal(status, MF_ERR_IO);
                assert_non_null(strstr(why.text, TINY_PATH));
            } else {
                assert_memory_equal(logits, expected, shapes[s]->vocab_size * sizeof(float));
            }
        }
        assert_true(nth > 20);
        tiny_model_free(&t.tiny);
    }
}

/* Reads that come in pieces change nothing. */
static void short_reads_are_continued(void **state)
{
    (void)state;
    struct tiny_engine t;
    float expected[128], logits[128];
    mf_error why = { 0 };
    prepare(&t, &tiny_affine);
    tiny_must(open_and_feed(&t, expected, &why), &why);
    t.files.piece_bytes = 7;
    tiny_must(open_and_feed(&t, logits, &why), &why);
    assert_memory_equal(logits, expected, 70 * sizeof(float));
    tiny_model_free(&t.tiny);
}

/* What a feed of `second` tokens behind `first` gives, undisturbed. */
struct course {
    size_t first, second, bytes; /* of the logits */
    int32_t tokens[TOKENS];
    float before[128], after[128];
};

static void undisturbed(struct course *c, struct tiny_engine *t)
{
    mf_error why = { 0 };
    mf_sequence *sequence = tiny_sequence(t, 8);
    tiny_tokens(c->tokens, t, TOKENS);
    tiny_must(mf_sequence_feed(sequence, MF_PHASE_PROMPT, c->tokens, c->first, &why), &why);
    memcpy(c->before, mf_sequence_logits(sequence), c->bytes);
    tiny_must(mf_sequence_feed(sequence, MF_PHASE_PROMPT, c->tokens + c->first, c->second, &why),
              &why);
    memcpy(c->after, mf_sequence_logits(sequence), c->bytes);
    mf_sequence_close(sequence);
}

/* The same with one byte of one expert that cannot be read; true if the feed needed it. */
static bool disturbed(const struct course *c, struct tiny_engine *t, uint32_t layer,
                      uint32_t expert)
{
    mf_error why = { 0 };
    mf_sequence *sequence = tiny_sequence(t, 8);
    tiny_must(mf_sequence_feed(sequence, MF_PHASE_PROMPT, c->tokens, c->first, &why), &why);
    expert_store_drop_all(t->model->experts); /* so that there is something to read */
    t->files.bad_from = t->model->model.weights.layers[layer].experts[1].values[expert].offset;
    t->files.bad_to = t->files.bad_from + 1;
    mf_status status =
        mf_sequence_feed(sequence, MF_PHASE_PROMPT, c->tokens + c->first, c->second, &why);
    assert_true(expert_store_check_invariants(t->model->experts));
    expert_store_drop_all(t->model->experts); /* reads that are under way may fail, too */
    t->files.bad_from = t->files.bad_to = 0;
    bool failed = status != MF_OK;
    if (failed) {
        char named[64];
        assert_int_equal(status, MF_ERR_IO);
        snprintf(named, sizeof named, "layer %u, expert %u", layer, expert);
        if (!strstr(why.text, named)) fail_msg("%s: not named in \"%s\"", named, why.text);
        assert_int_equal(mf_sequence_position(sequence), c->first);
        assert_memory_equal(mf_sequence_logits(sequence), c->before, c->bytes);
        tiny_must(
            mf_sequence_feed(sequence, MF_PHASE_PROMPT, c->tokens + c->first, c->second, &why),
            &why);
    }
    assert_int_equal(mf_sequence_position(sequence), c->first + c->second);
    assert_memory_equal(mf_sequence_logits(sequence), c->after, c->bytes);
    mf_sequence_close(sequence);
    return failed;
}

static void check_failing_feed(const struct tiny_shape *shape, size_t first, size_t second)
{
    struct tiny_engine t;
    struct course c = { .first = first,
                        .second = second,
                        .bytes = shape->vocab_size * sizeof(float) };
    unsigned failed = 0;
    tiny_engine_open(
        &t, shape,
        &(mf_engine_options){ .struct_size = sizeof(mf_engine_options), .thread_count = 2 });
    undisturbed(&c, &t);
    for (uint32_t layer = 0; layer < shape->layers; layer++)
        for (uint32_t expert = 0; expert < shape->experts; expert++)
            failed += disturbed(&c, &t, layer, expert);
    assert_true(failed >= shape->layers * shape->experts_per_token);
    tiny_engine_close(&t);
}

static void a_feed_that_fails_changes_nothing(void **state)
{
    (void)state;
    for (size_t s = 0; s < COUNT_OF(shapes); s++) {
        check_failing_feed(shapes[s], 20, 20); /* a prompt in chunks of 8 */
        check_failing_feed(shapes[s], 20, 1);  /* a token */
    }
}

/* A file that ends too early is refused at open, with its name. */
static void a_file_that_was_cut_is_refused(void **state)
{
    (void)state;
    struct tiny_engine t;
    prepare(&t, &tiny_standard);
    for (size_t left = 0; left < t.tiny.weights.count; left += 1 + t.tiny.weights.count / 97) {
        float logits[128];
        mf_error why = { 0 };
        memory_files_put(&t.tiny.files, TINY_PATH "/model.safetensors", t.tiny.weights.bytes, left);
        mf_status status = open_and_feed(&t, logits, &why);
        assert_true(status == MF_ERR_FORMAT || status == MF_ERR_IO);
        assert_non_null(strstr(why.text, "model.safetensors"));
    }
    tiny_model_free(&t.tiny);
}

/* A config.json of other things than JSON. */
static void a_config_that_is_no_json_is_refused(void **state)
{
    (void)state;
    static const char *const texts[] = { "", "{", "{\"model_type\": \"qwen3_5_moe\",}", "\xff\xfe",
                                         "{\"hidden_size\": 1, \"hidden_size\": 2}" };
    struct tiny_engine t;
    prepare(&t, &tiny_standard);
    for (size_t i = 0; i < COUNT_OF(texts); i++) {
        float logits[128];
        mf_error why = { 0 };
        memory_files_put(&t.tiny.files, TINY_PATH "/config.json", texts[i], strlen(texts[i]));
        assert_int_equal(open_and_feed(&t, logits, &why), MF_ERR_FORMAT);
        assert_non_null(strstr(why.text, "config.json"));
    }
    tiny_model_free(&t.tiny);
}

/* A second engine does not notice what happens to the first. */
static void a_failure_stays_with_its_engine(void **state)
{
    (void)state;
    struct tiny_engine bad, good;
    int32_t tokens[TOKENS];
    mf_error why = { 0 };
    tiny_engine_open(&bad, &tiny_standard, NULL);
    tiny_engine_open(&good, &tiny_standard, NULL);
    tiny_tokens(tokens, &good, TOKENS);
    mf_sequence *failing = tiny_sequence(&bad, 0), *working = tiny_sequence(&good, 0);
    bad.files.fail_every = 1;
    assert_int_equal(mf_sequence_feed(failing, MF_PHASE_PROMPT, tokens, TOKENS, &why), MF_ERR_IO);
    tiny_must(mf_sequence_feed(working, MF_PHASE_PROMPT, tokens, TOKENS, &why), &why);
    expert_store_drop_all(bad.model->experts); /* reads that are under way fail, too */
    bad.files.fail_every = 0;
    tiny_must(mf_sequence_feed(failing, MF_PHASE_PROMPT, tokens, TOKENS, &why), &why);
    assert_memory_equal(mf_sequence_logits(failing), mf_sequence_logits(working),
                        50 * sizeof(float));
    mf_sequence_close(failing);
    mf_sequence_close(working);
    tiny_engine_close(&bad);
    tiny_engine_close(&good);
}

/* What weights and experts need is checked against what they may take, before any is read. */
static void too_little_memory_is_refused(void **state)
{
    (void)state;
    struct tiny_engine t;
    mf_model *model;
    mf_error why = { 0 };
    tiny_engine_open(&t, &tiny_standard, NULL);
    uint64_t live = t.heap.live_bytes;
    mf_model_options options = { .struct_size = sizeof options, .memory_bytes = 1 };
    assert_int_equal(mf_model_open(&model, t.engine, TINY_PATH, &options, &why), MF_ERR_MEMORY);
    assert_null(model);
    assert_int_equal(t.heap.live_bytes, live);
    tiny_engine_close(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_failing_allocation_is_survived),
        cmocka_unit_test(every_failing_read_is_survived),
        cmocka_unit_test(short_reads_are_continued),
        cmocka_unit_test(a_feed_that_fails_changes_nothing),
        cmocka_unit_test(a_file_that_was_cut_is_refused),
        cmocka_unit_test(a_config_that_is_no_json_is_refused),
        cmocka_unit_test(a_failure_stays_with_its_engine),
        cmocka_unit_test(too_little_memory_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
