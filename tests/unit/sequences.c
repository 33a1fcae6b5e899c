/* sequences: many at once.  Four threads open, fork, feed, cut, keep, save, cancel, pass on and close
 * sequences of one hybrid model at random, in a pool that is too small for all; and what one
 * sequence costs. */
#include "support/test.h"

#include "support/tiny_engine.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

enum {
    THREADS = 4,
    OPENED = 1000 / THREADS, /* sequences that each thread opens; forks come on top */
    TEXTS = 40,              /* of a thread at a time */
    CONTEXT = 150,
    FEED_MAX = 20,
    PARTS = 5,
    POOL_SEQUENCES = 120 /* that the pool has room for, if each has one page */
};

/* What the blocks of a sequence take that has neither forks nor checkpoints. */
static uint64_t bytes_of_blocks(const struct state_pool *pool, uint32_t positions)
{
    return state_pages_for(positions) * state_block_bytes(&pool->shape, BLOCK_PAGE) +
           state_block_bytes(&pool->shape, BLOCK_RECURRENT) +
           state_block_bytes(&pool->shape, BLOCK_LOGITS);
}

/* ----------------------------------------------------------- texts and checks */

/* A sequence and what it must hold. */
struct text {
    mf_sequence *sequence;
    uint32_t count;
    uint32_t tokens[CONTEXT]; /* ids with TOKEN_GENERATED */
};

struct exchange {
    pthread_mutex_t lock;
    struct text text; /* for the next thread that wants it */
};

struct player {
    struct tiny_engine *t;
    struct player *players; /* [THREADS] */
    struct exchange *exchange;
    struct text *texts; /* [TEXTS]; the first is never closed or passed on: others cancel it */
    uint64_t random;
    uint32_t opened, fed, full, cancelled, cut, not_cut, loaded, passed_on;
    pthread_t thread;
    char problem[160]; /* the first one; empty: none */
};

/* CMocka's assertions are for the main thread. */
#define CHECK(player, condition)                                                                   \
    do {                                                                                           \
        if (!(condition) && !(player)->problem[0])                                                 \
            snprintf((player)->problem, sizeof(player)->problem, "line %d: %s", __LINE__,          \
                     #condition);                                                                  \
    } while (0)

static uint32_t random_below(struct player *p, uint32_t limit)
{
    p->random = p->random * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)((p->random >> 33) % limit);
}

static void check_text(struct player *p, const struct text *text)
{
    int32_t ids[CONTEXT];
    mf_phase phases[CONTEXT];
    if (!text->sequence) return;
    CHECK(p, engine_sequence_check_invariants(&text->sequence->sequence));
    CHECK(p, mf_sequence_position(text->sequence) == text->count);
    CHECK(p, mf_sequence_tokens(text->sequence, 0, text->count, ids, phases, NULL) == MF_OK);
    for (uint32_t i = 0; i < text->count; i++)
        CHECK(p, text->tokens[i] ==
                     ((uint32_t)ids[i] | (phases[i] == MF_PHASE_GENERATED ? TOKEN_GENERATED : 0)));
}

static struct text *any_text(struct player *p)
{
    return &p->texts[random_below(p, TEXTS)];
}

static void close_text(struct text *text)
{
    mf_sequence_close(text->sequence);
    *text = (struct text){ 0 };
}

/* ---------------------------------------------------------------- operations */

static void open_text(struct player *p, struct text *text)
{
    mf_sequence_options options = { .struct_size = sizeof options,
                                    .context_length = CONTEXT - random_below(p, 50),
                                    .chunk_rows = 1 + random_below(p, 32) };
    if (text->sequence) return;
    CHECK(p, mf_sequence_open(&text->sequence, p->t->model, &options, NULL) == MF_OK);
    p->opened++;
}

static void fork_text(struct player *p, struct text *text)
{
    struct text *to = &p->texts[1 + random_below(p, TEXTS - 1)];
    if (!text->sequence || to == text) return;
    close_text(to);
    *to = *text;
    CHECK(p, mf_sequence_fork(&to->sequence, text->sequence, NULL) == MF_OK);
    CHECK(p, (mf_sequence_logits(to->sequence) == NULL) ==
                 (mf_sequence_logits(text->sequence) == NULL));
    check_text(p, to);
}

struct tokens {
    mf_phase phase;
    int32_t ids[FEED_MAX];
    uint32_t count;
};

static struct tokens choose_tokens(struct player *p)
{
    struct tokens chosen = { .phase = random_below(p, 3) ? MF_PHASE_PROMPT : MF_PHASE_GENERATED };
    chosen.count = chosen.phase == MF_PHASE_PROMPT ? 1 + random_below(p, FEED_MAX) : 1;
    for (uint32_t i = 0; i < chosen.count; i++)
        chosen.ids[i] = (int32_t)random_below(p, p->t->tiny.shape.vocab_size);
    return chosen;
}

/* What a feed with this status has left behind. */
static void note_feed(struct player *p, struct text *text, const struct tokens *fed,
                      mf_status status)
{
    uint32_t limit = mf_sequence_context_length(text->sequence);
    switch (status) {
    case MF_OK:
        for (uint32_t i = 0; i < fed->count; i++)
            text->tokens[text->count++] =
                (uint32_t)fed->ids[i] | (fed->phase == MF_PHASE_GENERATED ? TOKEN_GENERATED : 0);
        CHECK(p, mf_sequence_logits(text->sequence) != NULL);
        p->fed++;
        break;
    case MF_ERR_CONTEXT_FULL:
        CHECK(p, text->count + fed->count > limit);
        break;
    case MF_ERR_POOL_FULL:
        p->full++;
        break;
    case MF_ERR_CANCELLED:
        p->cancelled++;
        break;
    default: /* a feed ends in no other way */
        CHECK(p, status == MF_OK);
    }
    check_text(p, text);
}

static void feed_text(struct player *p, struct text *text)
{
    if (!text->sequence) return;
    struct tokens chosen = choose_tokens(p);
    note_feed(p, text, &chosen,
              mf_sequence_feed(text->sequence, chosen.phase, chosen.ids, chosen.count, NULL));
}

static void step_texts(struct player *p)
{
    struct tokens chosen[PARTS];
    struct text *texts[PARTS];
    mf_part parts[PARTS];
    size_t count = 0;
    uint32_t at = random_below(p, TEXTS);
    for (uint32_t i = 0; i < 2 * PARTS && count < PARTS; i++) {
        struct text *text = &p->texts[(at + i) % TEXTS];
        if (!text->sequence) continue;
        texts[count] = text;
        chosen[count] = choose_tokens(p);
        parts[count] = (mf_part){ .sequence = text->sequence,
                                  .phase = chosen[count].phase,
                                  .tokens = chosen[count].ids,
                                  .count = chosen[count].count };
        count++;
    }
    mf_status first = MF_OK, status = mf_model_step(p->t->model, parts, count, NULL);
    for (size_t i = 0; i < count; i++) {
        if (first == MF_OK) first = parts[i].status;
        note_feed(p, texts[i], &chosen[i], parts[i].status);
    }
    CHECK(p, status == first);
}

static void cut_text(struct player *p, struct text *text)
{
    if (!text->sequence) return;
    uint32_t position = random_below(p, text->count + 1), reached = position;
    bool near = random_below(p, 2);
    mf_status status = mf_sequence_truncate(text->sequence, position, near ? &reached : NULL, NULL);
    CHECK(p, status == MF_OK || (!near && status == MF_ERR_CANNOT_TRUNCATE));
    CHECK(p, reached <= position);
    if (status == MF_OK)
        text->count = reached, p->cut++;
    else
        p->not_cut++;
}

static void save_and_load(struct player *p, struct text *text)
{
    struct text *to = any_text(p);
    if (!text->sequence || !to->sequence) return;
    size_t bytes = (size_t)mf_sequence_snapshot_bytes(text->sequence), written;
    void *saved = malloc(bytes);
    CHECK(p, saved && mf_sequence_save(text->sequence, saved, bytes, &written, NULL) == MF_OK);
    mf_status status = mf_sequence_load(to->sequence, saved, bytes, NULL);
    free(saved);
    switch (status) {
    case MF_OK:
        memcpy(to->tokens, text->tokens, sizeof to->tokens);
        to->count = text->count;
        p->loaded++;
        break;
    case MF_ERR_POOL_FULL:
        p->full++;
        break;
    default:
        CHECK(p, status == MF_ERR_CONTEXT_FULL &&
                     text->count > mf_sequence_context_length(to->sequence));
    }
    check_text(p, to);
}

static void cancel_text(struct player *p, struct text *text)
{
    if (random_below(p, 2)) text = &p->players[random_below(p, THREADS)].texts[0];
    mf_sequence_cancel(text->sequence);
}

static void pass_on(struct player *p)
{
    struct text *text = &p->texts[1 + random_below(p, TEXTS - 1)], mine = *text;
    pthread_mutex_lock(&p->exchange->lock);
    *text = p->exchange->text;
    p->exchange->text = mine;
    pthread_mutex_unlock(&p->exchange->lock);
    p->passed_on++;
    check_text(p, text);
}

static void play_once(struct player *p)
{
    struct text *text = any_text(p);
    uint32_t choice = random_below(p, 100);
    if (choice < 15)
        open_text(p, text);
    else if (choice < 25)
        fork_text(p, text);
    else if (choice < 50)
        feed_text(p, text);
    else if (choice < 58)
        step_texts(p);
    else if (choice < 66)
        cut_text(p, text);
    else if (choice < 74 && text->sequence)
        CHECK(p, mf_sequence_checkpoint(text->sequence, NULL) == MF_OK);
    else if (choice < 77 && text->count > 0)
        mf_sequence_forget(text->sequence, random_below(p, text->count));
    else if (choice < 82)
        save_and_load(p, text);
    else if (choice < 87)
        cancel_text(p, text);
    else if (choice < 92)
        pass_on(p);
    else if (text != &p->texts[0])
        close_text(text);
    check_text(p, text);
}

static void *play(void *argument)
{
    struct player *p = argument;
    while (p->opened < OPENED && !p->problem[0]) play_once(p);
    return NULL;
}

/* -------------------------------------------------------------------- tests */

/* The logits are those of a sequence that was fed once, without a break. */
static void check_bits(struct tiny_engine *t, const struct text *text)
{
    mf_sequence *whole = tiny_sequence(t, 0);
    for (uint32_t i = 0, end; i < text->count; i = end) {
        int32_t ids[CONTEXT];
        uint32_t phase = text->tokens[i] & TOKEN_GENERATED;
        for (end = i; end < text->count && (text->tokens[end] & TOKEN_GENERATED) == phase; end++)
            ids[end] = (int32_t)(text->tokens[end] & ~TOKEN_GENERATED);
        tiny_feed_as(whole, phase ? MF_PHASE_GENERATED : MF_PHASE_PROMPT, ids + i, end - i);
    }
    assert_memory_equal(mf_sequence_logits(text->sequence), mf_sequence_logits(whole),
                        t->tiny.shape.vocab_size * sizeof(float));
    mf_sequence_close(whole);
}

static void check_and_close(struct player *p, struct exchange *exchange)
{
    size_t checked = 0;
    struct state_pool *pool = &p->t->model->room.pool;
    state_pool_set_limit(pool, UINT64_MAX);
    for (size_t i = 0; i < THREADS; i++)
        for (size_t k = 0; k < TEXTS; k++) {
            struct text *text = &p[i].texts[k];
            if (checked < 40 && mf_sequence_logits(text->sequence)) {
                check_bits(p->t, text);
                checked++;
            }
            close_text(text);
        }
    close_text(&exchange->text);
    assert_true(checked > 10);
    for (int kind = 0; kind < BLOCK_KINDS; kind++)
        assert_int_equal(state_pool_sizes(pool).held[kind], 0);
    assert_int_equal(state_pool_sizes(pool).held_bytes, 0);
}

/* The first texts of all threads are forks of one: their blocks are shared from the beginning. */
static void open_first_texts(struct player *players, struct tiny_engine *t)
{
    mf_error why = { 0 };
    struct text first = { .sequence = NULL };
    int32_t ids[10];
    mf_sequence_options options = { .struct_size = sizeof options, .context_length = CONTEXT };
    tiny_must(mf_sequence_open(&first.sequence, t->model, &options, &why), &why);
    tiny_tokens(ids, t, COUNT_OF(ids));
    tiny_feed(first.sequence, ids, COUNT_OF(ids));
    for (; first.count < COUNT_OF(ids); first.count++)
        first.tokens[first.count] = (uint32_t)ids[first.count];
    for (size_t i = 0; i < THREADS; i++) {
        players[i].texts[0] = first;
        tiny_must(mf_sequence_fork(&players[i].texts[0].sequence, first.sequence, &why), &why);
    }
    mf_sequence_close(first.sequence);
}

static void many_sequences_of_several_threads_stay_whole(void **state)
{
    (void)state;
    struct tiny_engine t;
    struct player players[THREADS], sum = { 0 };
    struct exchange exchange = { .lock = PTHREAD_MUTEX_INITIALIZER };
    tiny_engine_open(&t, &tiny_standard, NULL);
    struct state_pool *pool = &t.model->room.pool;
    state_pool_set_limit(pool, POOL_SEQUENCES * bytes_of_blocks(pool, 1));
    for (size_t i = 0; i < THREADS; i++) {
        players[i] =
            (struct player){ .t = &t, .players = players, .exchange = &exchange, .random = i + 1 };
        players[i].texts = calloc(TEXTS, sizeof *players[i].texts);
        assert_non_null(players[i].texts);
    }
    open_first_texts(players, &t);
    for (size_t i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&players[i].thread, NULL, play, &players[i]), 0);
    for (size_t i = 0; i < THREADS; i++) pthread_join(players[i].thread, NULL);
    for (size_t i = 0; i < THREADS; i++) {
        if (players[i].problem[0]) fail_msg("thread %zu: %s", i, players[i].problem);
        sum.fed += players[i].fed;
        sum.full += players[i].full;
        sum.cancelled += players[i].cancelled;
        sum.cut += players[i].cut;
        sum.not_cut += players[i].not_cut;
        sum.loaded += players[i].loaded;
        sum.passed_on += players[i].passed_on;
    }
    print_message("%u feeds, %u found the pool full, %u were cancelled; %u cuts, %u refused; "
                  "%u loads, %u passed on\n",
                  sum.fed, sum.full, sum.cancelled, sum.cut, sum.not_cut, sum.loaded,
                  sum.passed_on);
    assert_true(sum.fed > 500 && sum.full > 50 && sum.cancelled > 10);
    assert_true(sum.cut > 50 && sum.not_cut > 10 && sum.loaded > 20 && sum.passed_on > 50);
    check_and_close(players, &exchange);
    for (size_t i = 0; i < THREADS; i++) free(players[i].texts);
    tiny_engine_close(&t); /* nothing leaked */
}

/* 5 bytes for each token, and what is fixed. */
static uint64_t beside_the_pool(uint32_t positions)
{
    return 5 * (uint64_t)positions + (64 << 10);
}

static void a_sequence_costs_what_it_holds(void **state)
{
    (void)state;
    static const uint32_t lengths[] = { 1, 64, 65, 300, 512 };
    struct tiny_engine t;
    int32_t tokens[512];
    mf_error why = { 0 };
    tiny_engine_open(&t, &tiny_standard, NULL);
    tiny_tokens(tokens, &t, COUNT_OF(tokens));
    struct state_pool *pool = &t.model->room.pool;
    uint64_t logits = state_block_bytes(&pool->shape, BLOCK_LOGITS);
    for (size_t i = 0; i < COUNT_OF(lengths); i++) {
        uint64_t blocks = bytes_of_blocks(pool, lengths[i]);
        uint64_t before = t.heap.live_bytes;
        mf_sequence *sequence = tiny_sequence(&t, 0), *fork;
        assert_true(t.heap.live_bytes - before <= beside_the_pool(0));
        tiny_feed(sequence, tokens, lengths[i]);
        state_pool_trim(pool);
        uint64_t one = t.heap.live_bytes - before;
        assert_true(one >= blocks);
        assert_true(one <= blocks + beside_the_pool(lengths[i]));
        tiny_must(mf_sequence_fork(&fork, sequence, &why), &why);
        assert_true(t.heap.live_bytes - before - one <= beside_the_pool(lengths[i]));
        tiny_must(mf_sequence_checkpoint(sequence, &why), &why);
        tiny_feed_as(fork, MF_PHASE_GENERATED, tokens, lengths[i] < 512);
        state_pool_trim(pool); /* the fork has a page, a state and logits of its own */
        assert_true(t.heap.live_bytes - before - one <=
                    state_block_bytes(&pool->shape, BLOCK_PAGE) +
                        state_block_bytes(&pool->shape, BLOCK_RECURRENT) + logits +
                        beside_the_pool(lengths[i]));
        mf_sequence_close(fork);
        mf_sequence_close(sequence);
        state_pool_trim(pool);
        assert_int_equal(t.heap.live_bytes, before);
    }
    tiny_engine_close(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(many_sequences_of_several_threads_stay_whole),
        cmocka_unit_test(a_sequence_costs_what_it_holds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
