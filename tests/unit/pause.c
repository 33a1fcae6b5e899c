/* pause: steps of other sequences while a step stands between two layers: each is counted, observed
 * and cancelled by itself.  (That no bit changes is tests/golden/batched.) */
#include "support/test.h"

#include "support/tiny_engine.h"

#include <stdlib.h>

enum { PROMPT = 40, TOKENS = 60 };

struct fixture {
    struct tiny_engine t;
    mf_model *model;
    mf_sequence *prompt, *decoder;
    int32_t tokens[TOKENS];
    float *expected; /* [TOKENS][vocabulary] of the tokens as a prompt */
    int pauses, stop_at;
    double pause_seconds; /* that a pause takes, at least */
};

static void begin(struct fixture *f, uint32_t sequences)
{
    mf_error why = { 0 };
    mf_model_options options = { .struct_size = sizeof options,
                                 .context_length = 128,
                                 .chunk_rows = 64,
                                 .sequences = sequences };
    *f = (struct fixture){ .stop_at = -1 };
    tiny_engine_open(&f->t, &tiny_standard,
                     &(mf_engine_options){ .struct_size = sizeof(mf_engine_options),
                                           .thread_count = 2,
                                           .profile = true });
    tiny_tokens(f->tokens, &f->t, TOKENS);
    f->expected = tiny_all_logits(&f->t, f->tokens, TOKENS, 0);
    tiny_must(mf_model_open(&f->model, f->t.engine, TINY_PATH, &options, &why), &why);
    tiny_must(mf_sequence_open(&f->prompt, f->model, NULL, &why), &why);
    tiny_must(mf_sequence_open(&f->decoder, f->model, NULL, &why), &why);
    tiny_feed(f->decoder, f->tokens, 10);
}

static void end(struct fixture *f)
{
    mf_sequence_close(f->prompt);
    mf_sequence_close(f->decoder);
    mf_model_close(f->model);
    free(f->expected);
    tiny_engine_close(&f->t);
}

static void decode_in_pause(void *user)
{
    struct fixture *f = user;
    struct feed feed = { .sequence = &f->decoder->sequence,
                         .phase = MF_PHASE_GENERATED,
                         .tokens = &f->tokens[f->pauses],
                         .count = 1 };
    engine_feed_in_pause(&feed, 1);
    assert_int_equal(feed.status, MF_OK);
    if (f->pauses++ == f->stop_at) mf_sequence_cancel(f->prompt);
    for (double until = clock_seconds() + f->pause_seconds; clock_seconds() < until;)
        ;
}

static mf_status feed_prompt(struct fixture *f)
{
    struct feed feed = { .sequence = &f->prompt->sequence,
                         .phase = MF_PHASE_PROMPT,
                         .tokens = f->tokens,
                         .count = PROMPT };
    const struct feed_pause pause = { decode_in_pause, f };
    engine_feed_pausable(&feed, 1, &pause);
    return feed.status;
}

static void check_logits(const struct fixture *f, const mf_sequence *sequence, size_t token)
{
    assert_memory_equal(mf_sequence_logits(sequence),
                        f->expected + token * tiny_standard.vocab_size,
                        tiny_standard.vocab_size * sizeof(float));
    assert_true(engine_sequence_check_invariants(&sequence->sequence));
}

static void a_step_pauses_before_every_layer(void **state)
{
    (void)state;
    struct fixture f;
    begin(&f, 2);
    assert_int_equal(feed_prompt(&f), MF_OK);
    assert_int_equal(f.pauses, tiny_standard.layers);
    assert_int_equal(mf_sequence_position(f.decoder), 10 + tiny_standard.layers);
    assert_int_equal(mf_sequence_position(f.prompt), PROMPT);
    check_logits(&f, f.prompt, PROMPT - 1);
    end(&f);
}

static void a_room_for_one_sequence_has_no_pauses(void **state)
{
    (void)state;
    struct fixture f;
    begin(&f, 1);
    assert_null(f.model->room.nested);
    assert_int_equal(feed_prompt(&f), MF_OK);
    assert_int_equal(f.pauses, 0);
    check_logits(&f, f.prompt, PROMPT - 1);
    end(&f);
}

/* It takes effect before the next layer, and what ran in the pause stays. */
static void a_feed_is_cancelled_in_its_pause(void **state)
{
    (void)state;
    struct fixture f;
    begin(&f, 2);
    tiny_feed(f.prompt, f.tokens, 5);
    for (int at = 0; at < (int)tiny_standard.layers; at++) {
        f.pauses = 0;
        f.stop_at = at;
        uint32_t before = mf_sequence_position(f.decoder);
        assert_int_equal(feed_prompt(&f), MF_ERR_CANCELLED);
        assert_int_equal(f.pauses, at + 1);
        assert_int_equal(mf_sequence_position(f.decoder), before + (uint32_t)at + 1);
        assert_int_equal(mf_sequence_position(f.prompt), 5);
        check_logits(&f, f.prompt, 4);
    }
    end(&f);
}

static void pauses_do_not_count_for_the_prompt(void **state)
{
    (void)state;
    struct fixture f;
    begin(&f, 2);
    f.pause_seconds = 0.05;
    double begins = clock_seconds();
    assert_int_equal(feed_prompt(&f), MF_OK);
    double seconds = clock_seconds() - begins;
    const struct sequence_times *times = &f.prompt->sequence.times;
    const struct sequence_times *other = &f.decoder->sequence.times;
    assert_true(times->prompt_seconds > 0);
    assert_true(times->prompt_seconds <= seconds - f.pauses * f.pause_seconds);
    assert_int_equal(times->decode_tokens, 0);
    assert_int_equal(other->decode_tokens, f.pauses);
    double ticks = 0, counted[2] = { 0, 0 };
    for (int i = 0; i < MF_STAGE_COUNT; i++) {
        ticks += times->stage_ticks[true][i];
        counted[0] += times->stage_ticks[false][i];
        counted[1] += other->stage_ticks[true][i];
    }
    double tick = tracer_tick_seconds(f.t.engine->tracer);
    assert_true(ticks == 0);
    assert_true(counted[0] > 0 && counted[1] > 0);
    assert_true(counted[0] * tick <= 1.1 * times->prompt_seconds);
    end(&f);
}

static void see_hidden(void *user, int layer, const float *x, size_t rows)
{
    size_t *seen = user;
    (void)layer;
    (void)x;
    *seen += rows;
}

static void each_is_observed_by_itself(void **state)
{
    (void)state;
    struct fixture f;
    size_t rows[2] = { 0, 0 };
    const struct observer observers[] = { { .user = &rows[0], .hidden = see_hidden },
                                          { .user = &rows[1], .hidden = see_hidden } };
    begin(&f, 2);
    f.prompt->sequence.observer = &observers[0];
    f.decoder->sequence.observer = &observers[1];
    assert_int_equal(feed_prompt(&f), MF_OK);
    assert_int_equal(rows[0], PROMPT * (tiny_standard.layers + 1));
    assert_int_equal(rows[1], tiny_standard.layers * (tiny_standard.layers + 1));
    end(&f);
}

/* The bytes of a room are those that it takes. */
static void the_room_counts_its_memory_for_pauses(void **state)
{
    (void)state;
    struct fixture f;
    begin(&f, 2);
    struct forward_parts parts = tiny_parts(&f.t);
    struct engine_room_sizes sizes = f.model->room.sizes;
    uint64_t two, one;
    assert_int_equal(engine_room_bytes(&two, &parts, sizes, NULL), MF_OK);
    assert_int_equal(two, f.model->room.bytes);
    sizes.sequences = 1;
    assert_int_equal(engine_room_bytes(&one, &parts, sizes, NULL), MF_OK);
    assert_true(two > one);
    end(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_step_pauses_before_every_layer),
        cmocka_unit_test(a_room_for_one_sequence_has_no_pauses),
        cmocka_unit_test(a_feed_is_cancelled_in_its_pause),
        cmocka_unit_test(pauses_do_not_count_for_the_prompt),
        cmocka_unit_test(each_is_observed_by_itself),
        cmocka_unit_test(the_room_counts_its_memory_for_pauses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
