/* state: the pool and its counted blocks; sequences that commit, abandon, fork, cut and clear. */
#include "support/test.h"

#include "base/status.h"
#include "state/sequence.h"
#include "support/failing_allocator.h"
#include "support/tiny_model.h"

/* ---------------------------------------------------------------------- bench */

enum { CAPACITY = 200 };

struct bench {
    struct failing_allocator heap;
    struct arena arena;
    struct model_config config;
    struct state_pool pool;
    struct sequence sequence;
};

/* `interval`: 1, every layer is full attention; 2, every second. */
static void bench_open(struct bench *b, uint32_t interval)
{
    struct tiny_model tiny;
    struct tiny_shape shape = tiny_standard;
    mf_error why;
    shape.interval = interval;
    tiny_model_init(&tiny, &shape);
    failing_allocator_init(&b->heap);
    arena_init(&b->arena, &allocator_heap);
    assert_int_equal(config_parse(&b->config, tiny.config, &b->arena, "tiny", &why), MF_OK);
    assert_int_equal(
        state_pool_init(&b->pool, &b->heap.allocator, NULL, &b->config, KV_F32, UINT64_MAX, &why),
        MF_OK);
    sequence_init(&b->sequence, &b->pool, CAPACITY);
    tiny_model_free(&tiny);
}

static void bench_close(struct bench *b)
{
    sequence_free(&b->sequence);
    for (int kind = 0; kind < BLOCK_KINDS; kind++)
        assert_int_equal(state_pool_sizes(&b->pool).held[kind], 0);
    state_pool_free(&b->pool);
    assert_int_equal(b->heap.live_bytes, 0);
    arena_free(&b->arena);
}

/* ----------------------------------------------------------------------- pool */

static void pages_are_counted_up(void **state)
{
    (void)state;
    assert_int_equal(state_pages_for(0), 0);
    assert_int_equal(state_pages_for(1), 1);
    assert_int_equal(state_pages_for(KV_PAGE_TOKENS), 1);
    assert_int_equal(state_pages_for(KV_PAGE_TOKENS + 1), 2);
    assert_int_equal(state_pages_for(UINT32_MAX), UINT32_MAX / KV_PAGE_TOKENS + 1);
}

static void a_block_is_free_after_its_last_holder(void **state)
{
    (void)state;
    struct bench b;
    mf_error why;
    void *first, *second, *again;
    bench_open(&b, 2);
    assert_int_equal(state_pool_take(&first, &b.pool, BLOCK_PAGE, &why), MF_OK);
    assert_int_equal(state_pool_take(&second, &b.pool, BLOCK_PAGE, &why), MF_OK);
    assert_ptr_not_equal(first, second);
    assert_false(state_pool_is_shared(&b.pool, BLOCK_PAGE, first));
    assert_ptr_equal(state_pool_share(&b.pool, BLOCK_PAGE, first), first);
    assert_true(state_pool_is_shared(&b.pool, BLOCK_PAGE, first));
    state_pool_drop(&b.pool, BLOCK_PAGE, first);
    assert_false(state_pool_is_shared(&b.pool, BLOCK_PAGE, first));
    assert_int_equal(state_pool_sizes(&b.pool).held[BLOCK_PAGE], 2);
    state_pool_drop(&b.pool, BLOCK_PAGE, first);
    assert_int_equal(state_pool_sizes(&b.pool).held[BLOCK_PAGE], 1);
    assert_int_equal(state_pool_take(&again, &b.pool, BLOCK_PAGE, &why), MF_OK);
    assert_ptr_equal(again, first); /* kept for the next holder */
    state_pool_drop(&b.pool, BLOCK_PAGE, again);
    state_pool_drop(&b.pool, BLOCK_PAGE, second);
    assert_null(state_pool_share(&b.pool, BLOCK_PAGE, NULL));
    state_pool_drop(&b.pool, BLOCK_PAGE, NULL);
    uint64_t taken = b.heap.live_bytes;
    state_pool_trim(&b.pool);
    assert_int_equal(taken - b.heap.live_bytes, 2 * state_block_bytes(&b.pool.shape, BLOCK_PAGE));
    bench_close(&b);
    struct state_pool zeroed = { 0 };
    state_pool_free(&zeroed);
}

/* One limit for all kinds: a free block of one kind makes way for another. */
static void a_full_pool_says_what_holds_it(void **state)
{
    (void)state;
    struct bench b;
    mf_error why;
    void *page, *recurrent, *more;
    bench_open(&b, 2);
    uint64_t page_bytes = state_block_bytes(&b.pool.shape, BLOCK_PAGE);
    uint64_t recurrent_bytes = state_block_bytes(&b.pool.shape, BLOCK_RECURRENT);
    state_pool_set_limit(&b.pool, page_bytes + recurrent_bytes);
    assert_int_equal(state_pool_take(&page, &b.pool, BLOCK_PAGE, &why), MF_OK);
    assert_int_equal(state_pool_take(&recurrent, &b.pool, BLOCK_RECURRENT, &why), MF_OK);
    assert_int_equal(state_pool_take(&more, &b.pool, BLOCK_RECURRENT, &why), MF_ERR_POOL_FULL);
    assert_null(more);
    assert_non_null(strstr(why.text, "1 pages, 1 recurrent states and 0 rows of logits"));
    state_pool_drop(&b.pool, BLOCK_PAGE, page);
    state_pool_drop(&b.pool, BLOCK_RECURRENT, recurrent);
    state_pool_set_limit(&b.pool, page_bytes);
    assert_int_equal(state_pool_take(&page, &b.pool, BLOCK_PAGE, &why), MF_OK);
    assert_int_equal(state_pool_sizes(&b.pool).taken_bytes, page_bytes + recurrent_bytes);
    state_pool_drop(&b.pool, BLOCK_PAGE, page);
    failing_allocator_arm(&b.heap, 1);
    state_pool_trim(&b.pool);
    assert_int_equal(state_pool_take(&page, &b.pool, BLOCK_PAGE, &why), MF_ERR_MEMORY);
    assert_true(failing_allocator_disarm(&b.heap));
    bench_close(&b);
}

/* Layers, keys and values, and the three parts of a recurrent state: none overlaps another. */
static void layers_of_a_block_do_not_overlap(void **state)
{
    (void)state;
    struct bench b;
    bench_open(&b, 2);
    const struct state_shape *shape = &b.pool.shape;
    struct kv_view first = state_kv_view(shape, MIXER_ATTENTION, 0, NULL);
    struct kv_view second = state_kv_view(shape, MIXER_ATTENTION, 1, NULL);
    assert_int_equal(first.keys, 0);
    assert_int_equal(first.values, shape->half_bytes);
    assert_int_equal(second.keys, 2 * shape->half_bytes);
    assert_int_equal(second.values + shape->half_bytes, shape->page_bytes);
    assert_int_equal(state_shape_of(&b.config, KV_F16).page_bytes * 2, shape->page_bytes);

    float *at = NULL;
    struct recurrent_view one = state_recurrent_view(shape, 0, at, at);
    struct recurrent_view two = state_recurrent_view(shape, 1, at, at);
    assert_int_equal((uint8_t *)one.open_out - (uint8_t *)one.delta_out,
                     shape->delta_floats * sizeof(float));
    assert_int_equal((uint8_t *)one.conv_out - (uint8_t *)one.open_out,
                     shape->open_floats * sizeof(float));
    assert_int_equal((uint8_t *)two.delta_out - (uint8_t *)one.conv_out,
                     shape->conv_floats * sizeof(float));
    assert_int_equal((uint8_t *)two.delta_out - (uint8_t *)one.delta_out,
                     shape->recurrent_bytes / 2);
    bench_close(&b);
}

/* ----------------------------------------------------------------- sequence */

/* A feed of `count` tokens in two steps, not yet committed. */
static const int32_t zeros[CAPACITY];

static void feed(struct sequence *s, uint32_t count)
{
    mf_error why;
    assert_int_equal(sequence_reserve(s, count, &why), MF_OK);
    assert_int_equal(sequence_next_position(s), s->position);
    sequence_step_done(s, zeros, count / 2, false);
    assert_int_equal(sequence_next_position(s), s->position + count / 2);
    sequence_step_done(s, zeros, count - count / 2, false);
}

/* The pages that are not free are the sequence's. */
static void check_pages(struct bench *b)
{
    assert_int_equal(b->sequence.page_count, state_pages_for(b->sequence.position));
    assert_int_equal(state_pool_sizes(&b->pool).held[BLOCK_PAGE], b->sequence.page_count);
}

static void a_feed_counts_when_it_is_committed(void **state)
{
    (void)state;
    struct bench b;
    bench_open(&b, 2);
    feed(&b.sequence, 70);
    assert_int_equal(b.sequence.position, 0);
    sequence_commit(&b.sequence);
    assert_int_equal(b.sequence.position, 70);
    assert_int_equal(sequence_next_position(&b.sequence), 70);
    check_pages(&b);
    feed(&b.sequence, 100);
    sequence_abandon(&b.sequence);
    assert_int_equal(b.sequence.position, 70);
    assert_int_equal(sequence_next_position(&b.sequence), 70);
    check_pages(&b); /* the pages of the abandoned feed are free again */
    sequence_clear(&b.sequence);
    assert_int_equal(b.sequence.position, 0);
    check_pages(&b);
    bench_close(&b);
}

static void too_many_tokens_are_refused_before_anything_happens(void **state)
{
    (void)state;
    struct bench b;
    mf_error why;
    bench_open(&b, 2);
    feed(&b.sequence, 150);
    sequence_commit(&b.sequence);
    assert_int_equal(sequence_reserve(&b.sequence, 51, &why), MF_ERR_CONTEXT_FULL);
    assert_string_equal(why.text, "51 tokens do not fit: the context holds 200 and 150 are taken");
    check_pages(&b);
    assert_int_equal(sequence_reserve(&b.sequence, UINT32_MAX, &why), MF_ERR_CONTEXT_FULL);
    feed(&b.sequence, 50);
    sequence_commit(&b.sequence);
    assert_int_equal(b.sequence.position, CAPACITY);
    assert_int_equal(sequence_reserve(&b.sequence, 1, &why), MF_ERR_CONTEXT_FULL);
    assert_int_equal(sequence_reserve(&b.sequence, 0, &why), MF_OK);
    bench_close(&b);
}

static void a_sequence_with_recurrent_layers_can_only_be_cleared(void **state)
{
    (void)state;
    struct bench b;
    mf_error why;
    bench_open(&b, 2);
    feed(&b.sequence, 100);
    sequence_commit(&b.sequence);
    assert_int_equal(sequence_truncate(&b.sequence, 101, &why), MF_ERR_ARGUMENT);
    assert_int_equal(sequence_truncate(&b.sequence, 99, &why), MF_ERR_CANNOT_TRUNCATE);
    assert_int_equal(sequence_truncate(&b.sequence, 1, &why), MF_ERR_CANNOT_TRUNCATE);
    assert_int_equal(b.sequence.position, 100);
    assert_int_equal(sequence_truncate(&b.sequence, 100, &why), MF_OK);
    assert_int_equal(b.sequence.position, 100);
    assert_int_equal(sequence_truncate(&b.sequence, 0, &why), MF_OK);
    assert_int_equal(b.sequence.position, 0);
    check_pages(&b);
    bench_close(&b);
}

static void a_sequence_of_attention_alone_can_be_cut_anywhere(void **state)
{
    (void)state;
    struct bench b;
    mf_error why;
    bench_open(&b, 1);
    for (uint32_t keep = 0; keep <= 150; keep += 7) {
        sequence_clear(&b.sequence);
        feed(&b.sequence, 150);
        sequence_commit(&b.sequence);
        const uint8_t *first_page = b.sequence.pages[0];
        assert_int_equal(sequence_truncate(&b.sequence, keep, &why), MF_OK);
        assert_int_equal(b.sequence.position, keep);
        if (keep > 0) assert_ptr_equal(b.sequence.pages[0], first_page);
        check_pages(&b);
    }
    assert_int_equal(sequence_truncate(&b.sequence, 151, &why), MF_ERR_ARGUMENT);
    bench_close(&b);
}

/* Two sequences of one pool: what one gives back the other may take. */
static void a_pool_serves_several_sequences(void **state)
{
    (void)state;
    struct bench b;
    struct sequence second;
    mf_error why;
    bench_open(&b, 1);
    state_pool_set_limit(&b.pool, 4 * state_block_bytes(&b.pool.shape, BLOCK_PAGE));
    sequence_init(&second, &b.pool, CAPACITY);
    feed(&b.sequence, 100); /* 2 of 4 pages */
    sequence_commit(&b.sequence);
    assert_int_equal(sequence_reserve(&second, 190, &why), MF_ERR_POOL_FULL);
    sequence_abandon(&second);
    check_pages(&b);
    assert_int_equal(sequence_reserve(&second, 128, &why), MF_OK);
    for (uint32_t i = 0; i < second.page_count; i++)
        for (uint32_t j = 0; j < b.sequence.page_count; j++)
            assert_ptr_not_equal(second.pages[i], b.sequence.pages[j]);
    sequence_free(&second);
    bench_close(&b);
}

/* ----------------------------------------------------------- forks, checkpoints */

/* What a layer would read and write, at a place that all states have. */
static float *delta_of(const struct sequence *s, bool out)
{
    struct span span;
    sequence_view(s, 0, &span);
    return out ? span.recurrent.delta_out : (float *)(uintptr_t)span.recurrent.delta_in;
}

/* A feed of one token that leaves `number` in the recurrent state and in its place of a page. */
static void write_token(struct sequence *s, float number)
{
    mf_error why;
    struct span span;
    assert_int_equal(sequence_reserve(s, 1, &why), MF_OK);
    sequence_view(s, 1, &span);
    float *keys = kv_page(&span.kv, span.kv.keys, s->position);
    keys[s->position % KV_PAGE_TOKENS] = number;
    *delta_of(s, true) = number;
    sequence_step_done(s, &(int32_t){ (int32_t)number }, 1, false);
    sequence_commit(s);
}

static float key_at(const struct sequence *s, uint32_t position)
{
    struct span span;
    sequence_view(s, 1, &span);
    return ((float *)kv_page(&span.kv, span.kv.keys, position))[position % KV_PAGE_TOKENS];
}

static float state_now(const struct sequence *s)
{
    return *(const float *)s->recurrent;
}

static void a_fork_and_its_origin_go_their_own_ways(void **state)
{
    (void)state;
    for (uint32_t length = 63; length <= 65; length++) { /* the last page: begun, full, begun */
        struct bench b;
        struct sequence fork;
        mf_error why;
        bench_open(&b, 2);
        for (uint32_t i = 0; i < length; i++) write_token(&b.sequence, (float)i);
        assert_int_equal(sequence_fork(&fork, &b.sequence, &why), MF_OK);
        assert_int_equal(fork.position, length);
        assert_int_equal(state_pool_sizes(&b.pool).held[BLOCK_PAGE], b.sequence.page_count);
        write_token(&fork, 1000);
        write_token(&b.sequence, 2000);
        write_token(&fork, 1001);
        for (uint32_t i = 0; i < length; i++) {
            assert_true(key_at(&fork, i) == (float)i && key_at(&b.sequence, i) == (float)i);
            assert_int_equal(fork.tokens[i], i);
        }
        assert_true(key_at(&fork, length) == 1000 && key_at(&b.sequence, length) == 2000);
        assert_true(state_now(&fork) == 1001 && state_now(&b.sequence) == 2000);
        sequence_free(&b.sequence);
        assert_true(key_at(&fork, 0) == 0 && key_at(&fork, length) == 1000);
        sequence_free(&fork);
        bench_close(&b);
    }
}

static void a_checkpoint_brings_recurrent_state_back(void **state)
{
    (void)state;
    struct bench b;
    struct sequence *s = &b.sequence;
    mf_error why;
    bench_open(&b, 2);
    for (uint32_t i = 0; i < 150; i++) {
        if (i == 20 || i == 100) assert_int_equal(sequence_keep_checkpoint(s, &why), MF_OK);
        write_token(s, (float)i);
    }
    assert_int_equal(sequence_cut_before(s, 150), 150);
    assert_int_equal(sequence_cut_before(s, 149), 100);
    assert_int_equal(sequence_cut_before(s, 100), 100);
    assert_int_equal(sequence_cut_before(s, 99), 20);
    assert_int_equal(sequence_cut_before(s, 19), 0);
    assert_int_equal(sequence_truncate(s, 101, &why), MF_ERR_CANNOT_TRUNCATE);
    assert_non_null(strstr(why.text, "the nearest checkpoint before is at 100"));
    assert_int_equal(sequence_truncate(s, 100, &why), MF_OK);
    assert_true(state_now(s) == 99 && s->position == 100);
    check_pages(&b);
    write_token(s, 500);
    assert_int_equal(sequence_keep_checkpoint(s, &why), MF_OK);
    assert_int_equal(sequence_keep_checkpoint(s, &why), MF_OK); /* in place of the first */
    assert_int_equal(s->checkpoint_count, 3);
    sequence_forget_checkpoint(s, 100);
    sequence_forget_checkpoint(s, 100);
    assert_int_equal(sequence_cut_before(s, 100), 20);
    assert_int_equal(sequence_truncate(s, 20, &why), MF_OK); /* drops that of 101 */
    assert_int_equal(s->checkpoint_count, 1);
    assert_true(state_now(s) == 19);
    write_token(s, 600);
    assert_int_equal(sequence_truncate(s, 0, &why), MF_OK);
    assert_null(s->recurrent);
    write_token(s, 700);
    assert_true(state_now(s) == 700);
    bench_close(&b);
}

/* The first step of a feed reads the committed state, its second what the first has written; a
 * sequence that is new reads zeros. */
static void recurrent_state_moves_on_at_commit(void **state)
{
    (void)state;
    struct bench b;
    struct sequence *s = &b.sequence;
    mf_error why;
    bench_open(&b, 2);
    for (int fresh = 1; fresh >= 0; fresh--) {
        float before = fresh ? 0 : 7;
        assert_int_equal(sequence_reserve(s, 2, &why), MF_OK);
        assert_true(*delta_of(s, false) == before);
        *delta_of(s, true) = 5;
        sequence_step_done(s, zeros, 1, false);
        assert_true(*delta_of(s, false) == 5);
        sequence_abandon(s);
        assert_int_equal(state_pool_sizes(&b.pool).held[BLOCK_RECURRENT], !fresh);
        assert_int_equal(sequence_reserve(s, 2, &why), MF_OK);
        assert_true(*delta_of(s, false) == before);
        *delta_of(s, true) = 7;
        sequence_step_done(s, zeros, 1, false);
        sequence_commit(s);
        assert_true(state_now(s) == 7);
        assert_int_equal(state_pool_sizes(&b.pool).held[BLOCK_RECURRENT], 1);
    }
    bench_close(&b);
}

/* Every allocation of a fork, a reservation and a checkpoint fails once: nothing is lost. */
static void running_out_of_memory_loses_nothing(void **state)
{
    (void)state;
    struct bench b;
    struct sequence fork;
    mf_error why;
    bench_open(&b, 2);
    for (uint32_t i = 0; i < 70; i++) write_token(&b.sequence, (float)i);
    assert_int_equal(sequence_keep_checkpoint(&b.sequence, &why), MF_OK);
    state_pool_trim(&b.pool);
    mf_status status = MF_ERR_MEMORY;
    for (uint64_t nth = 1; status != MF_OK; nth++) {
        failing_allocator_arm(&b.heap, nth);
        status = sequence_fork(&fork, &b.sequence, &why);
        bool forked = status == MF_OK;
        if (forked) status = sequence_reserve(&fork, 80, &why);
        failing_allocator_disarm(&b.heap);
        assert_true(status == MF_OK || status == MF_ERR_MEMORY);
        if (forked) {
            sequence_abandon(&fork);
            assert_true(key_at(&fork, 69) == 69 && state_now(&fork) == 69);
            sequence_free(&fork);
        }
        assert_int_equal(state_pool_sizes(&b.pool).held[BLOCK_PAGE], 2);
        state_pool_trim(&b.pool);
    }
    bench_close(&b);
}

/* ------------------------------------------------------------------------ runs */

/* Prompt rows that follow each other are one run, whatever feeds they came in; a generated
 * row ends it. */
static void runs_of_prompt_rows_are_known(void **state)
{
    (void)state;
    struct bench b;
    bench_open(&b, 2);
    struct sequence *s = &b.sequence;
    mf_error why;
    feed(s, 10);
    sequence_commit(s);
    feed(s, 10);
    assert_int_equal(s->pending_run_start, 0);
    sequence_commit(s);
    assert_int_equal(sequence_reserve(s, 2, &why), MF_OK);
    sequence_step_done(s, zeros, 1, true);
    assert_int_equal(s->pending_run_start, 21);
    sequence_abandon(s);
    assert_int_equal(s->pending_run_start, 0);
    sequence_step_done(s, zeros, 1, true);
    sequence_commit(s);
    assert_int_equal(s->run_start, 21);
    feed(s, 5);
    sequence_commit(s);
    assert_int_equal(s->run_start, 21);
    sequence_clear(s);
    assert_int_equal(s->run_start, 0);
    assert_int_equal(s->pending_run_start, 0);
    bench_close(&b);
}

/* The arithmetic of a row depends on where its run began: a cut must not forget that. */
static void cutting_back_finds_the_run_again(void **state)
{
    (void)state;
    struct bench b;
    bench_open(&b, 1);
    struct sequence *s = &b.sequence;
    mf_error why;
    feed(s, 20);
    sequence_commit(s);
    assert_int_equal(sequence_reserve(s, 1, &why), MF_OK);
    sequence_step_done(s, zeros, 1, true);
    sequence_commit(s);
    feed(s, 5);
    sequence_commit(s);
    assert_int_equal(s->run_start, 21);
    assert_int_equal(sequence_truncate(s, 23, &why), MF_OK);
    assert_int_equal(s->run_start, 21);
    assert_int_equal(sequence_truncate(s, 15, &why), MF_OK);
    assert_int_equal(s->run_start, 0);
    assert_int_equal(s->pending_run_start, 0);
    feed(s, 6); /* a prompt where the generated token was */
    sequence_commit(s);
    assert_int_equal(sequence_truncate(s, 18, &why), MF_OK);
    assert_int_equal(s->run_start, 0);
    bench_close(&b);
}

static void sizes_are_those_of_the_layers(void **state)
{
    (void)state;
    struct bench b;
    bench_open(&b, 2);
    const struct tiny_shape *s = &tiny_standard;
    size_t channels = 2 * s->key_heads * s->key_width + s->value_heads * s->value_width;
    assert_int_equal(state_position_bytes(&b.config, KV_F32),
                     2 * 2 * s->kv_heads * s->head_width * 4);
    assert_int_equal(state_position_bytes(&b.config, KV_F16),
                     2 * 2 * s->kv_heads * s->head_width * 2);
    assert_int_equal(state_position_bytes(&b.config, KV_Q8),
                     2 * 2 * s->kv_heads * (s->head_width + 2 * ((s->head_width + 31) / 32)));
    assert_int_equal(state_fixed_bytes(&b.config),
                     2 * 4 * (3 * channels + s->value_heads * s->value_width * s->key_width));
    bench_close(&b);
}

/* The tables of a sequence that grows token by token, feed by feed, and all at once take 5 bytes for
 * each token and 1 KiB; they grow where a page begins. */
static void tables_take_five_bytes_for_each_token(void **state)
{
    (void)state;
    static const uint32_t feeds[] = { 1, 100, 5000, 40000 };
    enum { LONG = 40000 };
    static const int32_t many[LONG];
    for (size_t i = 0; i < COUNT_OF(feeds); i++) {
        struct bench b;
        mf_error why;
        bench_open(&b, 5); /* recurrent layers alone: no pages */
        struct sequence s;
        sequence_init(&s, &b.pool, LONG);
        uint64_t states = 2 * state_block_bytes(&b.pool.shape, BLOCK_RECURRENT);
        uint64_t before = b.heap.live_bytes;
        while (s.position < LONG) {
            uint64_t live = b.heap.live_bytes;
            bool page_begins = s.position % KV_PAGE_TOKENS == 0;
            assert_int_equal(sequence_reserve(&s, feeds[i], &why), MF_OK);
            if (feeds[i] == 1 && !page_begins && s.position > 1)
                assert_int_equal(b.heap.live_bytes, live);
            sequence_step_done(&s, many, feeds[i], true);
            sequence_commit(&s);
            uint64_t tables = b.heap.live_bytes - before - min_size(states, b.pool.taken_bytes);
            assert_true(tables <= 5 * (uint64_t)s.position + 1024);
            assert_true(tables <= sequence_table_bytes(s.position));
        }
        sequence_free(&s);
        bench_close(&b);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pages_are_counted_up),
        cmocka_unit_test(a_block_is_free_after_its_last_holder),
        cmocka_unit_test(a_full_pool_says_what_holds_it),
        cmocka_unit_test(layers_of_a_block_do_not_overlap),
        cmocka_unit_test(a_feed_counts_when_it_is_committed),
        cmocka_unit_test(too_many_tokens_are_refused_before_anything_happens),
        cmocka_unit_test(a_sequence_with_recurrent_layers_can_only_be_cleared),
        cmocka_unit_test(a_sequence_of_attention_alone_can_be_cut_anywhere),
        cmocka_unit_test(a_pool_serves_several_sequences),
        cmocka_unit_test(a_fork_and_its_origin_go_their_own_ways),
        cmocka_unit_test(a_checkpoint_brings_recurrent_state_back),
        cmocka_unit_test(recurrent_state_moves_on_at_commit),
        cmocka_unit_test(running_out_of_memory_loses_nothing),
        cmocka_unit_test(runs_of_prompt_rows_are_known),
        cmocka_unit_test(cutting_back_finds_the_run_again),
        cmocka_unit_test(sizes_are_those_of_the_layers),
        cmocka_unit_test(tables_take_five_bytes_for_each_token),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
