/* step: parts of many sequences in one call: each fails alone, is cancelled alone, and an expert is
 * read once for all of them. */
#include "support/test.h"

#include "support/tiny_engine.h"

#include <stdlib.h>

enum { TOKENS = 150, PARTS = 4 };

static void open_engine(struct tiny_engine *t, const struct tiny_shape *shape)
{
    tiny_engine_open(
        t, shape,
        &(mf_engine_options){ .struct_size = sizeof(mf_engine_options), .thread_count = 2 });
}

static mf_part part_of(mf_sequence *sequence, mf_phase phase, const int32_t *tokens, size_t count)
{
    return (mf_part){ .sequence = sequence, .phase = phase, .tokens = tokens, .count = count };
}

static void check_logits(const mf_sequence *sequence, const float *expected)
{
    size_t bytes = mf_model_vocab_size(mf_sequence_model(sequence)) * sizeof(float);
    assert_memory_equal(mf_sequence_logits(sequence), expected, bytes);
    assert_true(engine_sequence_check_invariants(&sequence->sequence));
}

static void a_part_that_fails_fails_alone(void **state)
{
    (void)state;
    struct tiny_engine t;
    int32_t tokens[TOKENS];
    mf_error why[PARTS] = { { 0 } }, call = { 0 };
    open_engine(&t, &tiny_standard);
    tiny_tokens(tokens, &t, TOKENS);
    float *expected = tiny_all_logits(&t, tokens, 40, 0);
    mf_sequence *s[PARTS];
    mf_sequence_options small = { .struct_size = sizeof small, .context_length = 30 };
    for (int i = 0; i < PARTS; i++) {
        tiny_must(mf_sequence_open(&s[i], t.model, i == 1 ? &small : NULL, &call), &call);
        tiny_feed(s[i], tokens, 20);
    }
    int32_t wrong[] = { tokens[20], -1 };
    mf_part parts[PARTS] = { part_of(s[0], MF_PHASE_PROMPT, tokens + 20, 20),
                             part_of(s[1], MF_PHASE_PROMPT, tokens + 20, 20),
                             part_of(s[2], MF_PHASE_PROMPT, wrong, 2),
                             part_of(s[3], MF_PHASE_PROMPT, tokens + 20, 0) };
    for (int i = 0; i < PARTS; i++) parts[i].why = &why[i];
    assert_int_equal(mf_model_step(t.model, parts, PARTS, &call), MF_ERR_CONTEXT_FULL);
    static const mf_status statuses[] = { MF_OK, MF_ERR_CONTEXT_FULL, MF_ERR_ARGUMENT, MF_OK };
    for (int i = 0; i < PARTS; i++) {
        assert_int_equal(parts[i].status, statuses[i]);
        assert_true((why[i].text[0] != '\0') == (statuses[i] != MF_OK));
        check_logits(s[i], expected + (i == 0 ? 39 : 19) * tiny_standard.vocab_size);
    }
    for (int i = 0; i < PARTS; i++) mf_sequence_close(s[i]);
    free(expected);
    tiny_engine_close(&t);
}

/* Keys and values that are no numbers spoil the sequence that has them, and no other one. */
static void a_part_whose_logits_are_not_finite_fails_alone(void **state)
{
    (void)state;
    struct tiny_engine t;
    int32_t tokens[TOKENS];
    mf_error why[PARTS] = { { 0 } }, call = { 0 };
    open_engine(&t, &tiny_standard);
    tiny_tokens(tokens, &t, TOKENS);
    float *expected = tiny_all_logits(&t, tokens, 40, 0);
    mf_sequence *s[PARTS];
    mf_part parts[PARTS];
    for (int i = 0; i < PARTS; i++) {
        s[i] = tiny_sequence(&t, 0);
        tiny_feed(s[i], tokens, 20);
        parts[i] = part_of(s[i], MF_PHASE_PROMPT, tokens + 20, 20);
        parts[i].why = &why[i];
    }
    memset(s[1]->sequence.state.pages[0], 0xff, t.model->room.pool.shape.page_bytes); /* NaN */
    assert_int_equal(mf_model_step(t.model, parts, PARTS, &call), MF_ERR_NOT_FINITE);
    for (int i = 0; i < PARTS; i++) {
        assert_int_equal(parts[i].status, i == 1 ? MF_ERR_NOT_FINITE : MF_OK);
        assert_int_equal(mf_sequence_position(s[i]), i == 1 ? 20 : 40);
        check_logits(s[i], expected + (i == 1 ? 19 : 39) * tiny_standard.vocab_size);
        mf_sequence_close(s[i]);
    }
    free(expected);
    tiny_engine_close(&t);
}

static void wrong_parts_are_refused_together(void **state)
{
    (void)state;
    struct tiny_engine t, other;
    int32_t tokens[TOKENS];
    mf_error why = { 0 };
    open_engine(&t, &tiny_standard);
    open_engine(&other, &tiny_standard);
    tiny_tokens(tokens, &t, TOKENS);
    mf_sequence *mine = tiny_sequence(&t, 0), *foreign = tiny_sequence(&other, 0);
    mf_part parts[2] = { part_of(mine, MF_PHASE_PROMPT, tokens, 5), { 0 } };
    assert_int_equal(mf_model_step(t.model, parts, 2, &why), MF_ERR_ARGUMENT); /* no sequence */
    parts[1] = parts[0];
    assert_int_equal(mf_model_step(t.model, parts, 2, &why), MF_ERR_ARGUMENT);
    assert_non_null(strstr(why.text, "parts 0 and 1 are of the same sequence"));
    parts[1].sequence = foreign;
    assert_int_equal(mf_model_step(t.model, parts, 2, &why), MF_ERR_ARGUMENT);
    assert_non_null(strstr(why.text, "the sequence of part 1 is another model's"));
    parts[0].phase = (mf_phase)7;
    assert_int_equal(mf_model_step(t.model, parts, 1, &why), MF_ERR_ARGUMENT);
    parts[0] = part_of(mine, MF_PHASE_PROMPT, NULL, 5);
    assert_int_equal(mf_model_step(t.model, parts, 1, &why), MF_ERR_ARGUMENT);
    assert_int_equal(mf_model_step(t.model, NULL, 0, &why), MF_OK);
    assert_int_equal(mf_model_step(t.model, NULL, 1, &why), MF_ERR_ARGUMENT);
    assert_int_equal(mf_model_step(NULL, parts, 1, &why), MF_ERR_ARGUMENT);
    assert_int_equal(mf_sequence_position(mine), 0);
    mf_sequence_close(mine);
    mf_sequence_close(foreign);
    tiny_engine_close(&t);
    tiny_engine_close(&other);
}

struct canceller {
    mf_sequence *target;
    int layers, at;
};

static void cancel_later(void *user, uint32_t layer, struct routes *routes, size_t rows)
{
    struct canceller *c = user;
    (void)layer;
    (void)routes;
    (void)rows;
    if (++c->layers == c->at) mf_sequence_cancel(c->target);
}

static void a_part_is_cancelled_alone(void **state)
{
    (void)state;
    struct tiny_engine t;
    int32_t tokens[TOKENS];
    mf_error why = { 0 };
    open_engine(&t, &tiny_standard);
    tiny_tokens(tokens, &t, TOKENS);
    float *expected = tiny_all_logits(&t, tokens, 60, 0);
    for (int at = 1; at <= 3; at++) { /* of four layers; behind the last none is asked for */
        mf_sequence *goes = tiny_sequence(&t, 0), *stops = tiny_sequence(&t, 0);
        struct canceller c = { .target = stops, .at = at };
        struct observer observer = { .user = &c, .routes = cancel_later };
        tiny_feed(stops, tokens, 30);
        goes->sequence.observer = &observer;
        mf_part parts[] = { part_of(stops, MF_PHASE_PROMPT, tokens + 30, 30),
                            part_of(goes, MF_PHASE_PROMPT, tokens, 60) };
        assert_int_equal(mf_model_step(t.model, parts, 2, &why), MF_ERR_CANCELLED);
        assert_int_equal(parts[0].status, MF_ERR_CANCELLED);
        assert_int_equal(parts[1].status, MF_OK);
        check_logits(stops, expected + 29 * tiny_standard.vocab_size);
        check_logits(goes, expected + 59 * tiny_standard.vocab_size);
        tiny_feed(stops, tokens + 30, 30); /* the request was cleared */
        check_logits(stops, expected + 59 * tiny_standard.vocab_size);
        mf_sequence_close(goes);
        mf_sequence_close(stops);
    }
    free(expected);
    tiny_engine_close(&t);
}

/* The part for which there is no memory fails with numbers; it goes through once another sequence
 * has made room. */
static void a_full_pool_refuses_one_part(void **state)
{
    (void)state;
    struct tiny_engine t;
    int32_t tokens[TOKENS];
    mf_error why = { 0 };
    open_engine(&t, &tiny_standard);
    tiny_tokens(tokens, &t, TOKENS);
    float *expected = tiny_all_logits(&t, tokens, TOKENS, 0);
    struct state_pool *pool = &t.model->room.pool;
    state_pool_trim(pool);
    uint64_t page = state_block_bytes(&pool->shape, BLOCK_PAGE);
    state_pool_set_limit(pool, 5 * page + state_block_bytes(&pool->shape, BLOCK_LOGITS) +
                                   2 * state_block_bytes(&pool->shape, BLOCK_RECURRENT));
    mf_sequence *first = tiny_sequence(&t, 0), *second = tiny_sequence(&t, 0);
    mf_part parts[] = { part_of(first, MF_PHASE_PROMPT, tokens, TOKENS),
                        part_of(second, MF_PHASE_PROMPT, tokens, TOKENS) };
    parts[1].why = &why;
    assert_int_equal(mf_model_step(t.model, parts, 2, NULL), MF_ERR_POOL_FULL);
    assert_int_equal(parts[0].status, MF_OK);
    assert_int_equal(parts[1].status, MF_ERR_POOL_FULL);
    assert_non_null(strstr(why.text, "the memory for sequences is full"));
    check_logits(first, expected + (TOKENS - 1) * tiny_standard.vocab_size);
    assert_int_equal(mf_sequence_position(second), 0);
    mf_sequence_close(first);
    tiny_feed(second, tokens, TOKENS);
    check_logits(second, expected + (TOKENS - 1) * tiny_standard.vocab_size);
    mf_sequence_close(second);
    free(expected);
    tiny_engine_close(&t);
}

/* ------------------------------------------------------------------- sharing */

struct seen {
    bool chosen[64][64]; /* layer, expert */
    uint64_t experts;    /* different ones */
};

static void see_routes(void *user, const mf_routes *routes)
{
    struct seen *seen = user;
    for (size_t i = 0; i < (size_t)routes->row_count * routes->per_row; i++) {
        bool *chosen = &seen->chosen[routes->layer][routes->experts[i]];
        seen->experts += !*chosen;
        *chosen = true;
    }
}

/* With the least memory every expert of a step is missed, and still read once. */
static void an_expert_is_read_once_for_all_sequences(void **state)
{
    (void)state;
    struct tiny_engine t;
    int32_t tokens[TOKENS];
    mf_error why = { 0 };
    struct tiny_shape shape = tiny_standard;
    shape.experts = 32;
    shape.experts_per_token = 4;
    open_engine(&t, &shape);
    tiny_tokens(tokens, &t, TOKENS);
    mf_model *model = NULL;
    mf_model_options options = { .struct_size = sizeof options,
                                 .context_length = 64,
                                 .chunk_rows = 64,
                                 .sequences = 32,
                                 .read_ahead = "never",
                                 .memory_bytes = t.model->model.weights.resident_bytes };
    do options.memory_bytes += 16 << 10;
    while (mf_model_open(&model, t.engine, TINY_PATH, &options, &why) == MF_ERR_MEMORY);
    tiny_must(model ? MF_OK : MF_ERR_MEMORY, &why);
    for (uint32_t count = 1; count <= 32; count *= 2) {
        mf_sequence *sequences[32];
        mf_part parts[32];
        struct seen seen = { 0 };
        mf_model_statistics before = MF_MODEL_STATISTICS_INIT, after = before;
        for (uint32_t i = 0; i < count; i++) {
            tiny_must(mf_sequence_open(&sequences[i], model, NULL, &why), &why);
            tiny_feed(sequences[i], tokens + i, 3);
            mf_sequence_watch_routes(sequences[i], see_routes, &seen);
            parts[i] = part_of(sequences[i], MF_PHASE_GENERATED, tokens + 40 + i, 1);
        }
        mf_model_stats(model, &before, NULL);
        assert_string_equal(before.expert_mode, "streamed");
        tiny_must(mf_model_step(model, parts, count, &why), &why);
        mf_model_stats(model, &after, NULL);
        uint64_t read = after.expert_misses - before.expert_misses;
        assert_true(read > 0 && read <= seen.experts);
        assert_int_equal(after.expert_hits - before.expert_hits + read, seen.experts);
        for (uint32_t i = 0; i < count; i++) mf_sequence_close(sequences[i]);
    }
    mf_model_close(model);
    tiny_engine_close(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_part_that_fails_fails_alone),
        cmocka_unit_test(a_part_whose_logits_are_not_finite_fails_alone),
        cmocka_unit_test(wrong_parts_are_refused_together),
        cmocka_unit_test(a_part_is_cancelled_alone),
        cmocka_unit_test(a_full_pool_refuses_one_part),
        cmocka_unit_test(an_expert_is_read_once_for_all_sequences),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
