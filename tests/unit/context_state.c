/* context_state: what a context keeps: several sequences, checkpoints as a session of turns uses
 * them, states as bytes.  On a hybrid model, on attention alone and on models/pebble; results are
 * compared bit for bit with runs that were not interrupted. */
#include "support/test.h"

#include "compat/handles.h"
#include "support/tiny_directory.h"

#include <stdlib.h>

enum { TOKENS = 160, REFERENCE_ID = 1000, MODELS = 3 };

static struct tiny_directory hybrid, attention;
static const char *models[MODELS];
static int32_t tokens[TOKENS], branch[TOKENS];

static int make_models(void **state)
{
    (void)state;
    static char pebble[512];
    struct tiny_shape shape = tiny_standard;
    tiny_directory_make(&hybrid);
    tiny_directory_write(&hybrid, &shape);
    shape.interval = 1;
    tiny_directory_make(&attention);
    tiny_directory_write(&attention, &shape);
    snprintf(pebble, sizeof pebble, "%s/models/pebble", getenv("MOEFLUX_SOURCE"));
    models[0] = hybrid.path;
    models[1] = attention.path;
    models[2] = pebble;
    uint32_t x = 7;
    for (size_t i = 0; i < TOKENS; i++) {
        x = x * 1664525u + 1013904223u;
        tokens[i] = (int32_t)(x >> 8) % 50;
        branch[i] = (tokens[i] + 1) % 50;
    }
    return 0;
}

static int remove_models(void **state)
{
    (void)state;
    tiny_directory_remove(&hybrid);
    tiny_directory_remove(&attention);
    return 0;
}

/* ----------------------------------------------------------------- sessions */

struct session {
    mf_context *context;
    size_t vocab;
    float *logits, *expected; /* [vocab] of the last evaluation, of one to compare with */
};

static void must(mf_status status, const mf_error *why)
{
    if (status != MF_OK) fail_msg("%s: %s", mf_status_name(status), why->text);
}

static struct session open_session(const char *model)
{
    mf_error why = { 0 };
    struct session s = { 0 };
    mf_context_options options = {
        .struct_size = sizeof options, .thread_count = 1, .context_length = 256, .sequences = 4
    };
    must(mf_context_open_with(&s.context, model, &options, &why), &why);
    s.vocab = mf_context_n_vocab(s.context);
    s.logits = calloc(s.vocab, sizeof(float));
    s.expected = calloc(s.vocab, sizeof(float));
    assert_true(s.logits && s.expected);
    return s;
}

static void close_session(struct session *s)
{
    mf_context_memory_clear(s->context);
    struct state_pool_sizes sizes = state_pool_sizes(&s->context->model->room.pool);
    assert_int_equal(sizes.held[BLOCK_PAGE], 0);
    assert_int_equal(sizes.held[BLOCK_RECURRENT], 0);
    mf_context_close(s->context);
    free(s->logits);
    free(s->expected);
}

static void prompt(struct session *s, int32_t id, const int32_t *text, int32_t from, int32_t to)
{
    mf_error why = { 0 };
    must(mf_context_eval_prompt(s->context, text + from, (size_t)(to - from), from, id, s->logits,
                                s->vocab, &why),
         &why);
    assert_int_equal(mf_context_memory_seq_pos_max(s->context, id), to - 1);
}

static void keep(struct session *s, int32_t id, int32_t pos)
{
    mf_error why = { 0 };
    must(mf_context_checkpoint_pos(s->context, id, pos, &why), &why);
}

static void restore(struct session *s, int32_t id, int32_t pos)
{
    mf_error why = { 0 };
    must(mf_context_restore_to(s->context, id, pos, &why), &why);
}

static void is_not_kept(struct session *s, int32_t id, int32_t pos)
{
    mf_error why = { 0 };
    int32_t before = mf_context_memory_seq_pos_max(s->context, id);
    size_t count = mf_context_checkpoint_count(s->context, id);
    assert_int_equal(mf_context_restore_to(s->context, id, pos, &why), MF_ERR_NO_CHECKPOINT);
    assert_non_null(strstr(why.text, "no checkpoint at position"));
    assert_int_equal(mf_context_memory_seq_pos_max(s->context, id), before);
    assert_int_equal(mf_context_checkpoint_count(s->context, id), count);
}

/* The last logits are those of `text`'s first `count` tokens, evaluated in one go. */
static void is_as_uninterrupted(struct session *s, const int32_t *text, int32_t count)
{
    mf_error why = { 0 };
    must(mf_context_eval_prompt(s->context, text, (size_t)count, 0, REFERENCE_ID, s->expected,
                                s->vocab, &why),
         &why);
    must(mf_context_memory_seq_rm(s->context, REFERENCE_ID, 0, -1, &why), &why);
    assert_memory_equal(s->logits, s->expected, s->vocab * sizeof(float));
}

/* -------------------------------------------------------------------- tests */

/* Turns of an agent: system text and tools as the anchor under 0, a breakpoint after each message,
 * a tip that every turn replaces, and another agent that starts from the anchor. */
static void turns_reuse_what_they_share(void **state)
{
    (void)state;
    for (size_t m = 0; m < MODELS; m++) {
        struct session s = open_session(models[m]);
        int32_t tip = 20;
        prompt(&s, 0, tokens, 0, 20);
        keep(&s, 0, 0);
        for (int32_t turn = 0; turn < 7; turn++) {
            prompt(&s, 0, tokens, tip, tip + 11);
            keep(&s, 0, tip + 11); /* the breakpoint stays until it is evicted */
            prompt(&s, 0, tokens, tip + 11, tip + 17);
            if (turn > 0) mf_context_forget_pos(s.context, 0, tip);
            tip += 17;
            keep(&s, 0, tip);
            assert_true(mf_context_checkpoint_count(s.context, 0) <= 4);
        }
        is_as_uninterrupted(&s, tokens, tip);
        restore(&s, 0, 0); /* the anchor: the state after the system text */
        assert_int_equal(mf_context_memory_seq_pos_max(s.context, 0), 19);
        assert_int_equal(mf_context_checkpoint_count(s.context, 0), 1);
        memcpy(branch, tokens, 20 * sizeof *tokens);
        prompt(&s, 0, branch, 20, 90);
        is_as_uninterrupted(&s, branch, 90);
        close_session(&s);
    }
}

static void oldest_checkpoints_are_evicted_but_not_zero(void **state)
{
    (void)state;
    struct session s = open_session(models[0]);
    assert_int_equal(mf_context_checkpoint_count(s.context, 0), 0);
    keep(&s, 0, 0); /* of the empty sequence */
    for (int32_t pos = 10; pos <= 40; pos += 10) {
        prompt(&s, 0, tokens, pos - 10, pos);
        keep(&s, 0, pos);
    }
    assert_int_equal(mf_context_checkpoint_count(s.context, 0), 4); /* 0, 20, 30, 40 */
    is_not_kept(&s, 0, 10);
    keep(&s, 0, 20); /* now the state at position 40, and the newest */
    assert_int_equal(mf_context_checkpoint_count(s.context, 0), 4);
    prompt(&s, 0, tokens, 40, 50);
    keep(&s, 0, 50);
    is_not_kept(&s, 0, 30);
    mf_context_set_max_checkpoints(s.context, 1);
    assert_int_equal(mf_context_checkpoint_count(s.context, 0), 4); /* 0, 40, 20, 50 */
    keep(&s, 0, 50);
    assert_int_equal(mf_context_checkpoint_count(s.context, 0), 2); /* both are protected */
    is_not_kept(&s, 0, 20);
    mf_context_set_max_checkpoints(s.context, 0);
    keep(&s, 0, 51);
    assert_int_equal(mf_context_checkpoint_count(s.context, 0), 2);
    is_not_kept(&s, 0, 50);
    mf_context_forget_pos(s.context, 0, 51);
    mf_context_forget_pos(s.context, 0, 51);
    mf_context_forget_pos(s.context, 5, 51);
    assert_int_equal(mf_context_checkpoint_count(s.context, 0), 1);
    restore(&s, 0, 0);
    assert_int_equal(mf_context_memory_seq_pos_max(s.context, 0), -1);
    prompt(&s, 0, branch, 0, 30);
    is_as_uninterrupted(&s, branch, 30);
    mf_context_memory_clear(s.context);
    assert_int_equal(mf_context_checkpoint_count(s.context, 0), 0);
    is_not_kept(&s, 0, 0);
    close_session(&s);
}

static void a_replaced_checkpoint_is_of_the_newer_state(void **state)
{
    (void)state;
    struct session s = open_session(models[0]);
    prompt(&s, 0, tokens, 0, 10);
    keep(&s, 0, 5);
    prompt(&s, 0, tokens, 10, 25);
    keep(&s, 0, 5);
    prompt(&s, 0, tokens, 25, 40);
    restore(&s, 0, 5);
    assert_int_equal(mf_context_memory_seq_pos_max(s.context, 0), 24);
    assert_int_equal(mf_context_checkpoint_count(s.context, 0), 1);
    close_session(&s);
}

/* Prompt, generated tokens and a branch: checkpoints above the restored one are gone, those up to
 * it can be restored again. */
static void a_branch_goes_on_from_its_checkpoint(void **state)
{
    (void)state;
    for (size_t m = 0; m < MODELS; m++) {
        mf_error why = { 0 };
        struct session s = open_session(models[m]);
        int32_t text[TOKENS];
        for (int32_t pos = 30; pos <= 120; pos += 30) {
            prompt(&s, 0, tokens, pos - 30, pos);
            keep(&s, 0, pos);
        }
        restore(&s, 0, 60);
        assert_int_equal(mf_context_checkpoint_count(s.context, 0), 2);
        is_not_kept(&s, 0, 90);
        for (int again = 0; again < 2; again++) {
            memcpy(text, tokens, 60 * sizeof *text);
            memcpy(text + 60, again ? tokens + 60 : branch + 60, 60 * sizeof *text);
            prompt(&s, 0, text, 60, 100);
            is_as_uninterrupted(&s, text, 100);
            restore(&s, 0, 60);
        }
        must(mf_context_eval_token(s.context, 9, 60, 0, s.logits, s.vocab, &why), &why);
        restore(&s, 0, 30);
        prompt(&s, 0, tokens, 30, 70);
        is_as_uninterrupted(&s, tokens, 70);
        close_session(&s);
    }
}

/* On a hybrid only checkpoints of the same tokens make a cut possible. */
static void memory_is_removed_back_to_a_checkpoint(void **state)
{
    (void)state;
    for (size_t m = 0; m < MODELS; m++) {
        mf_error why = { 0 };
        bool exact_anywhere = m == 1;
        struct session s = open_session(models[m]);
        prompt(&s, 0, tokens, 0, 40);
        keep(&s, 0, 40);
        prompt(&s, 0, tokens, 40, 100);
        must(mf_context_memory_seq_rm(s.context, 0, 40, -1, &why), &why);
        assert_int_equal(mf_context_memory_seq_pos_max(s.context, 0), 39);
        prompt(&s, 0, tokens, 40, 70);
        is_as_uninterrupted(&s, tokens, 70);
        mf_status status = mf_context_memory_seq_rm(s.context, 0, 41, -1, &why);
        assert_int_equal(status, exact_anywhere ? MF_OK : MF_ERR_CANNOT_TRUNCATE);
        must(mf_context_memory_seq_rm(s.context, 0, 0, -1, &why), &why);
        prompt(&s, 0, branch, 0, 80); /* another text: its first 40 tokens were not kept */
        status = mf_context_memory_seq_rm(s.context, 0, 40, -1, &why);
        assert_int_equal(status, exact_anywhere ? MF_OK : MF_ERR_CANNOT_TRUNCATE);
        if (!exact_anywhere) assert_int_equal(mf_context_memory_seq_pos_max(s.context, 0), 79);
        prompt(&s, 0, branch, exact_anywhere ? 40 : 80, 90);
        is_as_uninterrupted(&s, branch, 90);
        close_session(&s);
    }
}

static void every_id_is_a_sequence_of_its_own(void **state)
{
    (void)state;
    static const int32_t ids[] = { 0, 7, 3 };
    for (size_t m = 0; m < MODELS; m++) {
        mf_error why = { 0 };
        struct session s = open_session(models[m]);
        assert_int_equal(mf_context_memory_seq_pos_max(s.context, 7), -1);
        assert_int_equal(mf_context_state_size(s.context, 7), 0);
        must(mf_context_memory_seq_rm(s.context, 7, 0, -1, &why), &why);
        for (int32_t pos = 0; pos < 60; pos += 20)
            for (size_t i = 0; i < COUNT_OF(ids); i++)
                prompt(&s, ids[i], tokens + 10 * i, pos, pos + 20);
        for (size_t i = 0; i < COUNT_OF(ids); i++) {
            prompt(&s, ids[i], tokens + 10 * i, 60, 65);
            is_as_uninterrupted(&s, tokens + 10 * i, 65);
        }
        keep(&s, 7, 65);
        is_not_kept(&s, 0, 65);
        must(mf_context_memory_seq_rm(s.context, 7, 0, -1, &why), &why);
        assert_int_equal(mf_context_memory_seq_pos_max(s.context, 3), 64);
        restore(&s, 7, 65);
        assert_int_equal(mf_context_memory_seq_pos_max(s.context, 7), 64);
        assert_int_equal(
            mf_context_eval_prompt(s.context, tokens, 1, 0, -1, s.logits, s.vocab, &why),
            MF_ERR_ARGUMENT);
        assert_int_equal(mf_context_checkpoint_pos(s.context, -1, 0, &why), MF_ERR_ARGUMENT);
        assert_int_equal(mf_context_checkpoint_pos(s.context, 0, -1, &why), MF_ERR_ARGUMENT);
        mf_context_memory_clear(s.context);
        for (size_t i = 0; i < COUNT_OF(ids); i++)
            assert_int_equal(mf_context_memory_seq_pos_max(s.context, ids[i]), -1);
        close_session(&s);
    }
}

static uint8_t *save(struct session *s, int32_t id, size_t *count)
{
    mf_error why = { 0 };
    size_t size = mf_context_state_size(s->context, id);
    uint8_t *bytes = malloc(size);
    assert_non_null(bytes);
    assert_int_equal(mf_context_state_save(s->context, id, bytes, size - 1, count, &why),
                     MF_ERR_BUFFER_SIZE);
    must(mf_context_state_save(s->context, id, bytes, size, count, &why), &why);
    assert_int_equal(*count, size);
    return bytes;
}

static void a_saved_state_goes_on_in_another_context(void **state)
{
    (void)state;
    for (size_t m = 0; m < MODELS; m++) {
        mf_error why = { 0 };
        size_t count;
        struct session s = open_session(models[m]), fresh = open_session(models[m]);
        size_t empty = mf_context_state_size(s.context, 0);
        prompt(&s, 0, tokens, 0, 70);
        assert_true(mf_context_state_size(s.context, 0) > empty);
        uint8_t *bytes = save(&s, 0, &count);
        must(mf_context_state_load(fresh.context, 4, bytes, count, &why), &why);
        prompt(&fresh, 4, tokens, 70, 90);
        is_as_uninterrupted(&fresh, tokens, 90);
        assert_int_equal(mf_context_state_save(s.context, 9, bytes, count, &count, &why),
                         MF_ERR_ARGUMENT);
        free(bytes);
        close_session(&s);
        close_session(&fresh);
    }
}

static void a_state_that_does_not_fit_changes_nothing(void **state)
{
    (void)state;
    for (size_t m = 0; m < MODELS; m++) {
        mf_error why = { 0 };
        size_t count, other_count;
        struct session s = open_session(models[m]), other = open_session(models[(m + 1) % MODELS]);
        prompt(&s, 0, tokens, 0, 70);
        prompt(&other, 0, tokens, 0, 70);
        uint8_t *bytes = save(&s, 0, &count), *foreign = save(&other, 0, &other_count);
        prompt(&s, 0, tokens, 70, 80);
        keep(&s, 0, 80);
#define REFUSED(expected, from, size)                                                              \
    assert_int_equal(mf_context_state_load(s.context, 0, from, size, &why), expected);             \
    assert_int_equal(mf_context_memory_seq_pos_max(s.context, 0), 79);                             \
    assert_int_equal(mf_context_checkpoint_count(s.context, 0), 1)
        REFUSED(MF_ERR_MISMATCH, foreign, other_count);
        REFUSED(MF_ERR_ARGUMENT, NULL, 0);
        for (size_t cut = 0; cut < count; cut += 1 + count / 50) {
            REFUSED(MF_ERR_FORMAT, bytes, cut);
            bytes[cut] ^= 0x10;
            assert_int_not_equal(mf_context_state_load(s.context, 0, bytes, count, &why), MF_OK);
            bytes[cut] ^= 0x10;
        }
        assert_int_equal(mf_context_memory_seq_pos_max(s.context, 0), 79);
#undef REFUSED
        prompt(&s, 0, tokens, 80, 100);
        is_as_uninterrupted(&s, tokens, 100);
        must(mf_context_state_load(s.context, 0, bytes, count, &why), &why);
        assert_int_equal(mf_context_memory_seq_pos_max(s.context, 0), 69);
        restore(&s, 0, 80); /* kept through the load */
        assert_int_equal(mf_context_memory_seq_pos_max(s.context, 0), 79);
        free(bytes);
        free(foreign);
        close_session(&s);
        close_session(&other);
    }
}

/* Kept states hold memory of the pool; an evaluation that needs it has precedence. */
static void checkpoints_give_way_to_an_evaluation(void **state)
{
    (void)state;
    mf_error why = { 0 };
    struct session s = open_session(models[0]);
    struct state_pool *pool = &s.context->model->room.pool;
    uint64_t limit = pool->limit_bytes;
    for (int32_t pos = 0; pos < 80; pos += 20) {
        keep(&s, 0, pos);
        prompt(&s, 0, tokens, pos, pos + 20);
    }
    keep(&s, 0, 80);
    assert_int_equal(mf_context_checkpoint_count(s.context, 0), 4); /* 0, 40, 60, 80 */
    state_pool_trim(pool);
    state_pool_set_limit(pool, pool->taken_bytes); /* nothing is free */
    prompt(&s, 0, tokens, 80, 81);
    assert_true(mf_context_checkpoint_count(s.context, 0) < 4);
    is_not_kept(&s, 0, 40);
    mf_context_forget_pos(s.context, 0, 60);
    state_pool_trim(pool);
    state_pool_set_limit(pool, pool->taken_bytes); /* what is kept now is protected */
    assert_int_equal(
        mf_context_eval_prompt(s.context, tokens + 81, 1, 81, 0, s.logits, s.vocab, &why),
        MF_ERR_POOL_FULL);
    assert_int_equal(mf_context_checkpoint_count(s.context, 0), 2); /* 0, 80 */
    assert_int_equal(mf_context_memory_seq_pos_max(s.context, 0), 80);
    state_pool_set_limit(pool, limit);
    prompt(&s, 0, tokens, 81, 90);
    is_as_uninterrupted(&s, tokens, 90);
    close_session(&s);
}

static void count_call(void *user, int32_t layer, const float *x, size_t row_count, size_t width)
{
    (void)layer, (void)x, (void)row_count, (void)width;
    ++*(size_t *)user;
}

static void every_sequence_is_watched_also_after_a_restore(void **state)
{
    (void)state;
    struct session s = open_session(models[0]);
    size_t calls = 0, each = tiny_standard.layers + 1;
    prompt(&s, 0, tokens, 0, 5);
    keep(&s, 0, 5);
    mf_context_watch_hidden(s.context, count_call, &calls);
    restore(&s, 0, 5);
    prompt(&s, 0, tokens, 5, 6);
    assert_int_equal(calls, each);
    prompt(&s, 2, tokens, 0, 1);
    assert_int_equal(calls, 2 * each);
    mf_context_watch_hidden(s.context, NULL, NULL);
    prompt(&s, 2, tokens, 1, 2);
    assert_int_equal(calls, 2 * each);
    close_session(&s);
}

static void calls_without_a_context_are_harmless(void **state)
{
    (void)state;
    mf_error why = { 0 };
    size_t count;
    assert_int_equal(mf_context_state_size(NULL, 0), 0);
    assert_int_equal(mf_context_checkpoint_count(NULL, 0), 0);
    mf_context_forget_pos(NULL, 0, 0);
    mf_context_set_max_checkpoints(NULL, 1);
    assert_int_equal(mf_context_state_save(NULL, 0, &count, 8, &count, &why), MF_ERR_ARGUMENT);
    assert_int_equal(mf_context_state_load(NULL, 0, &count, 8, &why), MF_ERR_ARGUMENT);
    assert_int_equal(mf_context_checkpoint_pos(NULL, 0, 0, &why), MF_ERR_ARGUMENT);
    assert_int_equal(mf_context_restore_to(NULL, 0, 0, &why), MF_ERR_ARGUMENT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(turns_reuse_what_they_share),
        cmocka_unit_test(oldest_checkpoints_are_evicted_but_not_zero),
        cmocka_unit_test(a_replaced_checkpoint_is_of_the_newer_state),
        cmocka_unit_test(a_branch_goes_on_from_its_checkpoint),
        cmocka_unit_test(memory_is_removed_back_to_a_checkpoint),
        cmocka_unit_test(every_id_is_a_sequence_of_its_own),
        cmocka_unit_test(a_saved_state_goes_on_in_another_context),
        cmocka_unit_test(a_state_that_does_not_fit_changes_nothing),
        cmocka_unit_test(checkpoints_give_way_to_an_evaluation),
        cmocka_unit_test(every_sequence_is_watched_also_after_a_restore),
        cmocka_unit_test(calls_without_a_context_are_harmless),
    };
    return cmocka_run_group_tests(tests, make_models, remove_models);
}
