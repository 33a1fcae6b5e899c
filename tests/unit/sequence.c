/* sequence: clearing, cutting, sharing a model, refusals, memory, counts. */
#include "moeflux_tools.h"
#include "support/test.h"

#include "support/heap_guard.h"
#include "support/tiny_engine.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>

enum { TOKENS = 150 }; /* over two page edges */

static const struct tiny_shape *const shapes[] = { &tiny_standard, &tiny_odd, &tiny_affine };

/* ---------------------------------------------------------------- sequences */

static void cleared_sequence_equals_a_new_one(void **state)
{
    (void)state;
    for (size_t s = 0; s < COUNT_OF(shapes); s++) {
        struct tiny_engine t;
        int32_t tokens[TOKENS];
        tiny_engine_open(&t, shapes[s], NULL);
        tiny_tokens(tokens, &t, TOKENS);
        mf_sequence *sequence = tiny_sequence(&t, 0);
        assert_null(mf_sequence_logits(sequence));
        tiny_feed(sequence, tokens, 0); /* `count` may be 0 */
        assert_null(mf_sequence_logits(sequence));
        tiny_feed(sequence, tokens, 100);
        float *expected = tiny_copy_logits(sequence);
        tiny_feed(sequence, tokens + 100, 50);
        mf_sequence_clear(sequence);
        assert_int_equal(mf_sequence_position(sequence), 0);
        assert_null(mf_sequence_logits(sequence));
        tiny_feed(sequence, tokens, 100);
        assert_memory_equal(mf_sequence_logits(sequence), expected,
                            shapes[s]->vocab_size * sizeof(float));
        free(expected);
        mf_sequence_close(sequence);
        tiny_engine_close(&t);
    }
}

static void attention_only_model_can_be_truncated(void **state)
{
    (void)state;
    struct tiny_engine t;
    int32_t tokens[TOKENS];
    mf_error why = { 0 };
    struct tiny_shape shape = tiny_standard;
    shape.interval = 1;
    tiny_engine_open(&t, &shape, NULL);
    tiny_tokens(tokens, &t, TOKENS);
    float *expected = tiny_all_logits(&t, tokens, TOKENS, 0);
    mf_sequence *sequence = tiny_sequence(&t, 0);
    tiny_feed(sequence, tokens, TOKENS);
    for (uint32_t keep = 140; keep > 0; keep -= 35) {
        tiny_must(mf_sequence_truncate(sequence, keep, NULL, &why), &why);
        assert_int_equal(mf_sequence_position(sequence), keep);
        assert_null(mf_sequence_logits(sequence));
        tiny_feed(sequence, tokens + keep, 5);
        assert_memory_equal(mf_sequence_logits(sequence), expected + (keep + 4) * shape.vocab_size,
                            shape.vocab_size * sizeof(float));
    }
    free(expected);
    mf_sequence_close(sequence);
    tiny_engine_close(&t);
}

static void hybrids_can_only_be_cleared(void **state)
{
    (void)state;
    struct tiny_engine t;
    int32_t tokens[TOKENS];
    mf_error why = { 0 };
    tiny_engine_open(&t, &tiny_standard, NULL);
    tiny_tokens(tokens, &t, TOKENS);
    mf_sequence *sequence = tiny_sequence(&t, 0);
    tiny_feed(sequence, tokens, 10);
    float *logits = tiny_copy_logits(sequence);
    assert_int_equal(mf_sequence_truncate(sequence, 5, NULL, &why), MF_ERR_CANNOT_TRUNCATE);
    assert_int_equal(mf_sequence_truncate(sequence, 11, NULL, &why), MF_ERR_ARGUMENT);
    assert_int_equal(mf_sequence_truncate(sequence, 10, NULL, &why), MF_OK);
    assert_int_equal(mf_sequence_position(sequence), 10);
    assert_memory_equal(mf_sequence_logits(sequence), logits, 50 * sizeof(float));
    assert_int_equal(mf_sequence_truncate(sequence, 0, NULL, &why), MF_OK);
    assert_int_equal(mf_sequence_position(sequence), 0);
    assert_null(mf_sequence_logits(sequence));
    assert_int_equal(mf_sequence_truncate(NULL, 0, NULL, &why), MF_ERR_ARGUMENT);
    free(logits);
    mf_sequence_close(sequence);
    tiny_engine_close(&t);
}

/* A rehearsal may run over page edges and many chunks: nothing of it is seen afterwards. */
static void a_rehearsal_leaves_no_trace(void **state)
{
    (void)state;
    for (size_t s = 0; s < COUNT_OF(shapes); s++) {
        struct tiny_engine t;
        int32_t tokens[TOKENS];
        mf_error why = { 0 };
        tiny_engine_open(&t, shapes[s], NULL);
        tiny_tokens(tokens, &t, TOKENS);
        float *expected = tiny_all_logits(&t, tokens, TOKENS, 0);
        mf_sequence *sequence = tiny_sequence(&t, 16);
        for (uint32_t at = 0; at < 60; at += 20) {
            tiny_must(mf_sequence_rehearse(sequence, tokens + at + 30, 80, &why), &why);
            assert_int_equal(mf_sequence_position(sequence), at);
            assert_null(mf_sequence_logits(sequence));
            tiny_feed(sequence, tokens + at, 20);
            assert_memory_equal(mf_sequence_logits(sequence),
                                expected + (at + 19) * shapes[s]->vocab_size,
                                shapes[s]->vocab_size * sizeof(float));
        }
        int32_t wrong = (int32_t)shapes[s]->vocab_size;
        assert_int_equal(mf_sequence_rehearse(sequence, &wrong, 1, &why), MF_ERR_ARGUMENT);
        assert_int_equal(mf_sequence_rehearse(sequence, tokens, 0, &why), MF_OK);
        assert_int_equal(mf_sequence_position(sequence), 60);
        assert_non_null(mf_sequence_logits(sequence)); /* neither of the two touched anything */
        free(expected);
        mf_sequence_close(sequence);
        tiny_engine_close(&t);
    }
}

/* Two sequences of one model, two models of two engines, all fed in turns: each is alone. */
static void sequences_are_independent(void **state)
{
    (void)state;
    enum { COUNT = 4, STEPS = 40 };
    struct tiny_engine engines[2];
    mf_sequence *sequences[COUNT];
    int32_t tokens[TOKENS];
    float *expected[2];
    for (int i = 0; i < 2; i++) {
        tiny_engine_open(&engines[i], i ? &tiny_affine : &tiny_standard,
                         &(mf_engine_options){ .struct_size = sizeof(mf_engine_options),
                                               .thread_count = 1,
                                               .backend = "reference" });
        if (i == 0) tiny_tokens(tokens, &engines[i], TOKENS);
        expected[i] = tiny_all_logits(&engines[i], tokens, TOKENS, 0);
    }
    for (int i = 0; i < COUNT; i++) sequences[i] = tiny_sequence(&engines[i % 2], 0);
    for (size_t step = 0; step < STEPS; step++) {
        for (size_t i = 0; i < COUNT; i++) {
            /* sequence i is i tokens ahead, so that positions differ */
            size_t count = step == 0 ? i + 1 : 1, at = step == 0 ? 0 : step + i;
            size_t vocab = mf_model_vocab_size(engines[i % 2].model);
            tiny_feed(sequences[i], tokens + at, count);
            assert_memory_equal(mf_sequence_logits(sequences[i]),
                                expected[i % 2] + (at + count - 1) * vocab, vocab * sizeof(float));
        }
    }
    for (int i = 0; i < COUNT; i++) mf_sequence_close(sequences[i]);
    for (int i = 0; i < 2; i++) {
        free(expected[i]);
        tiny_engine_close(&engines[i]);
    }
}

/* What a thread of the program does with a model that others use at the same time. */
struct visitor {
    struct tiny_engine *t;
    const int32_t *tokens;
    const float *expected; /* [TOKENS][vocabulary] */
    pthread_t thread;
    bool good;
};

static bool visit(const struct visitor *v, size_t prompt)
{
    size_t vocab = mf_model_vocab_size(v->t->model), at = prompt;
    mf_sequence *sequence;
    mf_sequence_statistics stats = MF_SEQUENCE_STATISTICS_INIT;
    if (mf_sequence_open(&sequence, v->t->model, NULL, NULL) != MF_OK) return false;
    bool good = mf_sequence_feed(sequence, MF_PHASE_PROMPT, v->tokens, prompt, NULL) == MF_OK;
    for (; at < prompt + 10 && good; at++) {
        mf_sequence_stats(sequence, &stats, NULL);
        good = stats.decode_tokens == at - prompt &&
               mf_sequence_feed(sequence, MF_PHASE_GENERATED, v->tokens + at, 1, NULL) == MF_OK &&
               memcmp(mf_sequence_logits(sequence), v->expected + at * vocab,
                      vocab * sizeof(float)) == 0;
    }
    mf_sequence_close(sequence);
    return good;
}

static void *visit_often(void *argument)
{
    struct visitor *v = argument;
    v->good = true;
    for (size_t i = 0; i < 12 && v->good; i++) v->good = visit(v, 2 + 7 * i);
    return NULL;
}

/* A model is shared by threads that open, feed, ask and close as they like. */
static void sequences_are_fed_from_several_threads(void **state)
{
    (void)state;
    struct tiny_engine t;
    struct visitor visitors[3];
    int32_t tokens[TOKENS];
    tiny_engine_open(&t, &tiny_standard,
                     &(mf_engine_options){ .struct_size = sizeof(mf_engine_options),
                                           .thread_count = 2,
                                           .backend = "reference",
                                           .profile = true });
    tiny_tokens(tokens, &t, TOKENS);
    float *expected = tiny_all_logits(&t, tokens, TOKENS, 0);
    for (size_t i = 0; i < COUNT_OF(visitors); i++) {
        visitors[i] = (struct visitor){ .t = &t, .tokens = tokens, .expected = expected };
        assert_int_equal(pthread_create(&visitors[i].thread, NULL, visit_often, &visitors[i]), 0);
    }
    for (size_t i = 0; i < COUNT_OF(visitors); i++) pthread_join(visitors[i].thread, NULL);
    for (size_t i = 0; i < COUNT_OF(visitors); i++) assert_true(visitors[i].good);
    free(expected);
    tiny_engine_close(&t);
}

/* ----------------------------------------------------------------- refusals */

static void wrong_tokens_are_refused_and_change_nothing(void **state)
{
    (void)state;
    struct tiny_engine t;
    int32_t tokens[TOKENS];
    mf_error why = { 0 };
    tiny_engine_open(&t, &tiny_standard, NULL);
    tiny_tokens(tokens, &t, TOKENS);
    float *expected = tiny_all_logits(&t, tokens, 60, 0);
    mf_sequence *sequence;
    mf_sequence_options options = { .struct_size = sizeof options,
                                    .context_length = 60,
                                    .chunk_rows = 8 };
    tiny_must(mf_sequence_open(&sequence, t.model, &options, &why), &why);
    tiny_feed(sequence, tokens, 40);

    int32_t bad[100];
    memcpy(bad, tokens + 40, sizeof bad);
    bad[19] = 50;
    assert_int_equal(mf_sequence_feed(sequence, MF_PHASE_PROMPT, bad, 20, &why), MF_ERR_ARGUMENT);
    assert_string_equal(why.text, "token 19 has the id 50, the model's vocabulary ends at 49");
    bad[19] = -1;
    assert_int_equal(mf_sequence_feed(sequence, MF_PHASE_PROMPT, bad, 20, &why), MF_ERR_ARGUMENT);
    bad[19] = tokens[59];
    assert_int_equal(mf_sequence_feed(sequence, MF_PHASE_PROMPT, bad, 21, &why),
                     MF_ERR_CONTEXT_FULL);
    assert_non_null(strstr(why.text, "the context holds 60 and 40 are taken"));
    assert_int_equal(mf_sequence_feed(sequence, MF_PHASE_PROMPT, bad, 61, &why),
                     MF_ERR_CONTEXT_FULL);
    assert_int_equal(mf_sequence_feed(sequence, MF_PHASE_GENERATED, NULL, 1, &why),
                     MF_ERR_ARGUMENT);
    assert_int_equal(mf_sequence_feed(NULL, MF_PHASE_GENERATED, bad, 1, &why), MF_ERR_ARGUMENT);
    assert_int_equal(mf_sequence_feed_each(sequence, MF_PHASE_GENERATED, bad, 1, NULL, NULL, &why),
                     MF_ERR_ARGUMENT);
    assert_int_equal(mf_sequence_feed(sequence, MF_PHASE_PROMPT, bad, 61, NULL),
                     MF_ERR_CONTEXT_FULL);

    assert_int_equal(mf_sequence_position(sequence), 40);
    assert_memory_equal(mf_sequence_logits(sequence), expected + 39 * 50, 50 * sizeof(float));
    tiny_feed(sequence, tokens + 40, 20);
    assert_memory_equal(mf_sequence_logits(sequence), expected + 59 * 50, 50 * sizeof(float));
    assert_int_equal(mf_sequence_feed(sequence, MF_PHASE_GENERATED, tokens, 1, &why),
                     MF_ERR_CONTEXT_FULL);
    assert_int_equal(mf_sequence_position(sequence), 60);
    mf_sequence_close(sequence);
    free(expected);
    tiny_engine_close(&t);
}

static void wrong_options_are_refused(void **state)
{
    (void)state;
    struct tiny_engine t;
    mf_error why = { 0 };
    mf_sequence *sequence = (mf_sequence *)&t;
    mf_engine *engine;
    mf_model *model;
    tiny_engine_open(&t, &tiny_standard, NULL);
    mf_sequence_options options = { .struct_size = sizeof options, .context_length = 513 };
    assert_int_equal(mf_sequence_open(&sequence, t.model, &options, &why), MF_ERR_ARGUMENT);
    assert_null(sequence);
    assert_non_null(strstr(why.text, "513"));
    assert_int_equal(mf_sequence_open(NULL, t.model, NULL, &why), MF_ERR_ARGUMENT);
    assert_int_equal(mf_sequence_open(&sequence, NULL, NULL, &why), MF_ERR_ARGUMENT);
    mf_engine_options unknown = { .struct_size = sizeof unknown, .backend = "tpu" };
    assert_int_equal(mf_engine_open(&engine, &unknown, &why), MF_ERR_ARGUMENT);
    assert_null(engine);
    assert_non_null(strstr(why.text, "\"tpu\""));
    assert_int_equal(mf_model_open(&model, t.engine, "nowhere", NULL, &why), MF_ERR_IO);
    assert_non_null(strstr(why.text, "nowhere"));
    assert_int_equal(mf_model_open(&model, t.engine, NULL, NULL, &why), MF_ERR_ARGUMENT);
    assert_int_equal(mf_model_open(&model, NULL, TINY_PATH, NULL, &why), MF_ERR_ARGUMENT);
    size_t count;
    int32_t token;
    assert_int_equal(
        mf_text_tokenize(mf_model_text(t.model), NULL, 1, &count, "a", 1, MF_SPECIAL_PARSE, &why),
        MF_ERR_ARGUMENT);
    assert_int_equal(
        mf_text_tokenize(mf_model_text(t.model), &token, 1, &count, "a", 1, MF_SPECIAL_PARSE, &why),
        MF_ERR_UNSUPPORTED); /* it has no tokenizer */
    mf_sampler *sampler;
    tiny_must(mf_sampler_open(&sampler, t.model, NULL, &why), &why);
    assert_int_equal(mf_sampler_pick(sampler, NULL), -1); /* the logits of an empty sequence */
    mf_sampler_close(sampler);
    mf_sampler_close(NULL);
    mf_sequence_close(NULL);
    mf_model_close(NULL);
    mf_engine_close(NULL);
    tiny_engine_close(&t);
}

static void fewer_experts_may_be_used(void **state)
{
    (void)state;
    struct tiny_engine t, one;
    mf_error why = { 0 };
    int32_t tokens[TOKENS];
    tiny_engine_open(&t, &tiny_standard, NULL);
    tiny_tokens(tokens, &t, TOKENS);
    /* a model whose config asks for one expert is what the option makes of ours */
    struct tiny_shape shape = tiny_standard;
    shape.experts_per_token = 1;
    tiny_engine_open(&one, &shape, NULL);
    float *expected = tiny_all_logits(&one, tokens, 20, 0);
    mf_model *full = t.model, *reduced;
    mf_model_options options = { .struct_size = sizeof options, .experts_per_token = 1 };
    tiny_must(mf_model_open(&reduced, t.engine, TINY_PATH, &options, &why), &why);
    t.model = reduced;
    float *found = tiny_all_logits(&t, tokens, 20, 0);
    assert_memory_equal(found, expected, 20 * 50 * sizeof(float));
    free(found);
    mf_model_close(reduced);
    options.experts_per_token = 100; /* more than there are: as the model says */
    tiny_must(mf_model_open(&reduced, t.engine, TINY_PATH, &options, &why), &why);
    t.model = reduced;
    found = tiny_all_logits(&t, tokens, 20, 0);
    t.model = full;
    float *standard = tiny_all_logits(&t, tokens, 20, 0);
    assert_memory_equal(found, standard, 20 * 50 * sizeof(float));
    mf_model_close(reduced);
    free(found);
    free(standard);
    free(expected);
    tiny_engine_close(&one);
    tiny_engine_close(&t);
}

/* ------------------------------------------------------------- cancellation */

struct canceller {
    mf_sequence *sequence;
    uint32_t cancel_at; /* layers that begin before the cancel */
    uint32_t layers;    /* that began in all */
    size_t done, total; /* of the last progress */
};

static void cancel_at_layer(void *user, uint32_t layer, struct routes *routes, size_t rows)
{
    struct canceller *c = user;
    (void)layer, (void)routes, (void)rows;
    if (++c->layers == c->cancel_at) mf_sequence_cancel(c->sequence);
}

static void note_progress(void *user, size_t done, size_t total)
{
    struct canceller *c = user;
    assert_true(done >= c->done && done <= total);
    c->done = done;
    c->total = total;
}

/* At most the layer under way ends, whichever it is, and the sequence is as it was before. */
static void a_cancel_ends_the_feed_before_the_next_layer(void **state)
{
    (void)state;
    struct tiny_engine t;
    int32_t tokens[TOKENS];
    mf_error why = { 0 };
    tiny_engine_open(&t, &tiny_standard, NULL);
    tiny_tokens(tokens, &t, TOKENS);
    float *expected = tiny_all_logits(&t, tokens, 60, 0);
    mf_sequence *sequence = tiny_sequence(&t, 8);
    struct canceller c = { .sequence = sequence };
    struct observer observer = { .user = &c, .routes = cancel_at_layer };
    tiny_feed(sequence, tokens, 20);
    sequence->sequence.observer = &observer;
    for (uint32_t at = 1; at < 20; at++) { /* 40 tokens in chunks of 8: 20 layers */
        c.layers = 0;
        c.cancel_at = at;
        assert_int_equal(mf_sequence_feed(sequence, MF_PHASE_PROMPT, tokens + 20, 40, &why),
                         MF_ERR_CANCELLED);
        assert_int_equal(c.layers, at);
        assert_int_equal(mf_sequence_position(sequence), 20);
        assert_memory_equal(mf_sequence_logits(sequence), expected + 19 * 50, 50 * sizeof(float));
        assert_true(engine_sequence_check_invariants(&sequence->sequence));
    }
    c.layers = 0;
    mf_sequence_cancel(sequence); /* none under way: the next one */
    assert_int_equal(mf_sequence_feed(sequence, MF_PHASE_PROMPT, tokens + 20, 40, &why),
                     MF_ERR_CANCELLED);
    assert_int_equal(c.layers, 0);
    c.cancel_at = UINT32_MAX;
    c.done = 0;
    mf_sequence_watch_progress(sequence, note_progress, &c);
    tiny_feed(sequence, tokens + 20, 40); /* the wish was cleared */
    assert_int_equal(c.layers, 20);
    assert_int_equal(c.done, 40);
    assert_int_equal(c.total, 40);
    assert_memory_equal(mf_sequence_logits(sequence), expected + 59 * 50, 50 * sizeof(float));
    mf_sequence_close(sequence);
    free(expected);
    tiny_engine_close(&t);
}

/* ------------------------------------------------------------------- memory */

/* What is computed from sizes is what is taken. */
static void engine_room_and_sequences_take_what_was_computed(void **state)
{
    (void)state;
    static const char *const backends[] = { "reference", "cpu" };
    for (size_t s = 0; s < COUNT_OF(shapes) * COUNT_OF(backends); s++) {
        struct tiny_engine t;
        mf_error why = { 0 };
        tiny_engine_open(&t, shapes[s / 2],
                         &(mf_engine_options){ .struct_size = sizeof(mf_engine_options),
                                               .thread_count = 2,
                                               .backend = backends[s % 2] });
        const struct engine_room *room = &t.model->room;
        struct forward_parts parts = tiny_parts(&t);
        uint64_t bytes = 0;
        tiny_must(engine_room_bytes(&bytes, &parts, room->sizes, &why), &why);
        assert_int_equal(bytes, room->bytes);
        assert_true(room->arena.total_bytes < bytes); /* the rest is the backend's */
        int32_t tokens[TOKENS];
        tiny_tokens(tokens, &t, TOKENS);
        mf_sequence *first = tiny_sequence(&t, 0); /* threads that read experts have begun */
        tiny_feed(first, tokens, TOKENS);
        mf_sequence_close(first);
        state_pool_trim(&t.model->room.pool);
        uint64_t before = t.heap.live_bytes;
        mf_sequence *sequence = tiny_sequence(&t, 0);
        for (size_t at = 0; at < TOKENS; at += 50) {
            tiny_feed(sequence, tokens + at, 50);
            if (at < 100) tiny_must(mf_sequence_checkpoint(sequence, &why), &why);
        }
        uint64_t expected =
            engine_sequence_bytes(&t.model->model.config, t.engine->backend->kv_format, TOKENS,
                                  t.model->room.sizes.chunk_rows);
        state_pool_trim(&t.model->room.pool);
        uint64_t taken = t.heap.live_bytes - before;
        assert_true(taken <= expected + 4096); /* the handle */
        assert_true(taken + sequence_table_bytes(TOKENS) >= expected);
        mf_sequence_close(sequence);
        state_pool_trim(&t.model->room.pool);
        assert_int_equal(t.heap.live_bytes, before);
        tiny_engine_close(&t);
    }
}

/* Pages are taken when a feed begins; a token that falls into one that is there takes nothing. */
static void generating_within_a_page_allocates_nothing(void **state)
{
    (void)state;
    for (size_t s = 0; s < COUNT_OF(shapes); s++) {
        struct tiny_engine t;
        int32_t tokens[TOKENS];
        mf_error why = { 0 };
        tiny_engine_open(
            &t, shapes[s],
            &(mf_engine_options){ .struct_size = sizeof(mf_engine_options), .thread_count = 2 });
        tiny_tokens(tokens, &t, TOKENS);
        mf_sequence *sequence = tiny_sequence(&t, 32);
        tiny_feed(sequence, tokens, 100);
        tiny_must(mf_sequence_feed(sequence, MF_PHASE_GENERATED, tokens + 100, 1, &why), &why);
        uint64_t calls = t.heap.calls;
        heap_guard_begin();
        mf_status status = MF_OK;
        for (size_t i = 101; i < 2 * KV_PAGE_TOKENS && status == MF_OK; i++)
            status = mf_sequence_feed(sequence, MF_PHASE_GENERATED, tokens + i, 1, &why);
        uint64_t allocations = heap_guard_end();
        tiny_must(status, &why);
        assert_int_equal(allocations, 0);
        assert_int_equal(t.heap.calls, calls);
        mf_sequence_close(sequence);
        tiny_engine_close(&t);
    }
}

static void work_is_counted(void **state)
{
    (void)state;
    struct tiny_engine t;
    int32_t tokens[TOKENS];
    mf_sequence_statistics stats = MF_SEQUENCE_STATISTICS_INIT;
    mf_model_statistics model = MF_MODEL_STATISTICS_INIT;
    mf_error why = { 0 };
    tiny_engine_open(&t, &tiny_standard, NULL);
    tiny_tokens(tokens, &t, TOKENS);
    mf_sequence *sequence = tiny_sequence(&t, 0), *idle = tiny_sequence(&t, 0);
    tiny_must(mf_sequence_stats(sequence, &stats, &why), &why);
    tiny_must(mf_model_stats(t.model, &model, &why), &why);
    assert_int_equal(stats.prompt_tokens + stats.decode_tokens + model.expert_hits, 0);
    assert_int_equal(model.experts_total, 4 * 6);
    tiny_feed(sequence, tokens, 30);
    for (size_t i = 30; i < 40; i++) tiny_feed_as(sequence, MF_PHASE_GENERATED, tokens + i, 1);
    tiny_must(mf_sequence_stats(sequence, &stats, &why), &why);
    assert_int_equal(stats.prompt_tokens, 30);
    assert_int_equal(stats.decode_tokens, 10);
    assert_true(stats.prompt_seconds > 0 && stats.decode_seconds > 0);
    assert_true(stats.attention_seconds > 0 && stats.expert_seconds > 0 && stats.head_seconds > 0);
    tiny_must(mf_sequence_stats(idle, &stats, &why), &why); /* each sequence counts its own */
    assert_int_equal(stats.prompt_tokens + stats.decode_tokens, 0);
    assert_true(stats.attention_seconds == 0 && stats.expert_seconds == 0);
    tiny_must(mf_model_stats(t.model, &model, &why), &why);
    assert_true(model.expert_misses + model.expert_ahead_hits >= 1 && model.expert_bytes_read > 0);
    assert_true(model.disk_reads > 0 && model.disk_seconds > 0);
    assert_true(model.disk_bytes >= model.expert_bytes_read);
    /* ten tokens, four layers, two experts each; all but the misses were there */
    assert_true(model.expert_hits + model.expert_misses >= 10 * 4 * 2);
    assert_true(model.experts_present <= model.experts_total);
    mf_model_reset_stats(t.model);
    tiny_must(mf_model_stats(t.model, &model, &why), &why);
    assert_int_equal(model.expert_hits, 0);
    assert_int_equal(model.disk_reads + model.disk_bytes + model.expert_bytes_read, 0);
    tiny_must(mf_sequence_stats(sequence, &stats, &why), &why); /* not the sequence's */
    assert_int_equal(stats.prompt_tokens, 30);
    mf_sequence_reset_stats(sequence);
    tiny_must(mf_sequence_stats(sequence, &stats, &why), &why);
    assert_int_equal(stats.prompt_tokens + stats.decode_tokens, 0);
    mf_sequence_close(sequence);
    mf_sequence_close(idle);
    tiny_engine_close(&t);
}

/* Scale `index` of a matrix becomes NaN or infinite. */
static void damage(struct tiny_model *tiny, const char *name, uint32_t layer, size_t index,
                   float value)
{
    struct tiny_tensor *t = tiny_model_find(tiny, name, layer);
    format_store(t->format, t->bytes, index, value);
}

/* Weights that are not numbers: named after the first step, wherever they are. */
static void malformed_numbers_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *tensor;
        uint32_t layer;
        float value;
        const char *says;
    } cases[] = {
        { "layers.%u.mlp.gate.scales", 2, NAN, "row 0 of ROUTER in layer 2" },
        { "layers.%u.self_attn.q_norm.weight", 1, INFINITY, "row 0 of Q_NORM in layer 1" },
        { "lm_head.biases", 0, -INFINITY, "row 0 of HEAD" },
        { "layers.%u.mlp.switch_mlp.down_proj.scales", 3, NAN, "one of an expert" },
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct tiny_engine t;
        struct tiny_shape shape = tiny_affine;
        mf_error why = { 0 };
        mf_model *model;
        mf_sequence *sequence;
        int32_t tokens[20];
        shape.experts = shape.experts_per_token; /* so that the damaged one is chosen */
        tiny_engine_open(&t, &shape, NULL);
        tiny_tokens(tokens, &t, COUNT_OF(tokens));
        damage(&t.tiny, cases[i].tensor, cases[i].layer, 0, cases[i].value);
        tiny_model_write(&t.tiny);
        tiny_must(mf_model_open(&model, t.engine, TINY_PATH, NULL, &why), &why);
        tiny_must(mf_sequence_open(&sequence, model, NULL, &why), &why);
        for (size_t count = 1; count <= COUNT_OF(tokens); count += 19) {
            assert_int_equal(mf_sequence_feed(sequence, MF_PHASE_PROMPT, tokens, count, &why),
                             MF_ERR_NOT_FINITE);
            if (!strstr(why.text, cases[i].says))
                fail_msg("%s: nothing of \"%s\"", why.text, cases[i].says);
            assert_int_equal(mf_sequence_position(sequence), 0); /* as it was before */
            assert_null(mf_sequence_logits(sequence));
        }
        mf_sequence_close(sequence);
        mf_model_close(model);
        tiny_engine_close(&t);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cleared_sequence_equals_a_new_one),
        cmocka_unit_test(attention_only_model_can_be_truncated),
        cmocka_unit_test(hybrids_can_only_be_cleared),
        cmocka_unit_test(a_rehearsal_leaves_no_trace),
        cmocka_unit_test(sequences_are_independent),
        cmocka_unit_test(sequences_are_fed_from_several_threads),
        cmocka_unit_test(wrong_tokens_are_refused_and_change_nothing),
        cmocka_unit_test(wrong_options_are_refused),
        cmocka_unit_test(fewer_experts_may_be_used),
        cmocka_unit_test(a_cancel_ends_the_feed_before_the_next_layer),
        cmocka_unit_test(engine_room_and_sequences_take_what_was_computed),
        cmocka_unit_test(generating_within_a_page_allocates_nothing),
        cmocka_unit_test(work_is_counted),
        cmocka_unit_test(malformed_numbers_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
