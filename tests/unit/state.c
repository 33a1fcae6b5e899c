/* state: pages, recurrent copies and the sequence that commits, abandons, clears and cuts. */
#include "support/test.h"

#include "base/status.h"
#include "state/sequence.h"
#include "support/failing_allocator.h"
#include "support/tiny_model.h"

/* -------------------------------------------------------------------- pages */

static void pages_are_counted_up(void **state)
{
    (void)state;
    assert_int_equal(kv_pages_for(0), 0);
    assert_int_equal(kv_pages_for(1), 1);
    assert_int_equal(kv_pages_for(KV_PAGE_TOKENS), 1);
    assert_int_equal(kv_pages_for(KV_PAGE_TOKENS + 1), 2);
    assert_int_equal(kv_pages_for(UINT32_MAX), UINT32_MAX / KV_PAGE_TOKENS + 1);
}

static void every_page_is_given_once(void **state)
{
    (void)state;
    struct failing_allocator heap;
    struct kv_pool pool;
    mf_error why;
    bool seen[5] = { 0 };
    uint32_t page;
    failing_allocator_init(&heap);
    assert_int_equal(
        kv_pool_init(
            &pool, &heap.allocator,
            &(struct kv_pool){ .layer_count = 2, .page_count = 5, .page_numbers = 10, .parts = 2 },
            &why),
        MF_OK);
    for (int i = 0; i < 5; i++) {
        assert_true(kv_pool_take(&pool, &page));
        assert_true(page < 5 && !seen[page]);
        seen[page] = true;
    }
    assert_false(kv_pool_take(&pool, &page));
    kv_pool_give(&pool, 3);
    assert_true(kv_pool_take(&pool, &page));
    assert_int_equal(page, 3);
    kv_pool_free(&pool);
    kv_pool_free(&pool); /* twice is legal */
    assert_int_equal(heap.live_bytes, 0);
}

/* Layers, keys and values, and pages: none overlaps another. */
static void check_views(enum kv_format format, size_t number_bytes)
{
    enum { LAYERS = 3, PAGES = 4, NUMBERS = 7 };
    struct kv_pool pool;
    mf_error why;
    struct kv_pool shape = { .layer_count = LAYERS,
                             .page_count = PAGES,
                             .page_numbers = NUMBERS,
                             .format = format,
                             .parts = 2 };
    assert_int_equal(kv_pool_init(&pool, &allocator_heap, &shape, &why), MF_OK);
    assert_int_equal(pool.memory_bytes, 2 * LAYERS * PAGES * NUMBERS * number_bytes);
    for (int write = 1; write >= 0; write--) {
        for (uint32_t i = 0; i < LAYERS * PAGES * NUMBERS; i++) {
            struct kv_view view = kv_pool_view(&pool, i / (PAGES * NUMBERS), NULL);
            size_t offset = i % (PAGES * NUMBERS) * number_bytes;
            assert_int_equal(view.page_bytes, NUMBERS * number_bytes);
            assert_int_equal(view.format, format);
            for (size_t b = 0; b < number_bytes; b++) {
                if (write) {
                    view.keys[offset + b] = (uint8_t)i;
                    view.values[offset + b] = (uint8_t)(255 - i);
                }
                assert_int_equal(view.keys[offset + b], (uint8_t)i);
                assert_int_equal(view.values[offset + b], (uint8_t)(255 - i));
            }
        }
    }
    kv_pool_free(&pool);
}

static void views_of_a_pool_lie_apart(void **state)
{
    (void)state;
    check_views(KV_F32, 4);
    check_views(KV_F16, 2);
}

static void a_pool_beyond_memory_is_refused(void **state)
{
    (void)state;
    struct kv_pool pool;
    mf_error why;
    assert_int_equal(kv_pool_init(&pool, &allocator_heap,
                                  &(struct kv_pool){ .layer_count = UINT32_MAX,
                                                     .page_count = UINT32_MAX,
                                                     .page_numbers = SIZE_MAX / 8,
                                                     .parts = 2 },
                                  &why),
                     MF_ERR_MEMORY);
    kv_pool_free(&pool);
    for (uint64_t nth = 1; nth <= 2; nth++) {
        struct failing_allocator heap;
        failing_allocator_init(&heap);
        failing_allocator_arm(&heap, nth);
        assert_int_equal(
            kv_pool_init(&pool, &heap.allocator,
                         &(struct kv_pool){
                             .layer_count = 1, .page_count = 1, .page_numbers = 8, .parts = 2 },
                         &why),
            MF_ERR_MEMORY);
        assert_true(failing_allocator_disarm(&heap));
        kv_pool_free(&pool);
        assert_int_equal(heap.live_bytes, 0);
    }
}

/* A model without full attention has an empty pool, and works. */
static void a_pool_may_be_empty(void **state)
{
    (void)state;
    struct kv_pool pool;
    mf_error why;
    uint32_t page;
    assert_int_equal(kv_pool_init(&pool, &allocator_heap,
                                  &(struct kv_pool){ .page_numbers = 8, .parts = 2 }, &why),
                     MF_OK);
    assert_false(kv_pool_take(&pool, &page));
    kv_pool_free(&pool);
    struct kv_pool zeroed = { 0 };
    kv_pool_free(&zeroed);
}

/* ---------------------------------------------------------------- recurrent */

static void write_state(const struct recurrent *r, float number)
{
    struct recurrent_view view = recurrent_view(r, 1);
    view.conv_out[0] = number;
    view.delta_out[2] = number + 0.5f;
}

static void check_state(const struct recurrent *r, float number)
{
    struct recurrent_view view = recurrent_view(r, 1);
    assert_true(view.conv_in[0] == number);
    assert_true(view.delta_in[2] == (number == 0.0f ? 0.0f : number + 0.5f));
}

static void recurrent_state_moves_on_at_commit(void **state)
{
    (void)state;
    struct arena arena;
    struct recurrent r;
    mf_error why;
    arena_init(&arena, &allocator_heap);
    assert_int_equal(recurrent_init(&r, &arena, 2, (struct recurrent_sizes){ 4, 3, 0 }, &why),
                     MF_OK);
    check_state(&r, 0.0f); /* zero at first */
    write_state(&r, 1.0f);
    check_state(&r, 0.0f); /* what is written is not yet read */
    recurrent_step_done(&r);
    check_state(&r, 1.0f); /* the feed's second step reads its first */
    write_state(&r, 2.0f);
    recurrent_commit(&r);
    check_state(&r, 2.0f);

    write_state(&r, 3.0f);
    recurrent_step_done(&r);
    recurrent_abandon(&r);
    check_state(&r, 2.0f);
    recurrent_commit(&r); /* nothing was done: nothing changes */
    check_state(&r, 2.0f);

    write_state(&r, 4.0f);
    recurrent_step_done(&r);
    recurrent_clear(&r);
    check_state(&r, 0.0f);
    write_state(&r, 5.0f);
    recurrent_step_done(&r);
    recurrent_commit(&r);
    check_state(&r, 5.0f);
    arena_free(&arena);
}

static void layers_of_recurrent_state_lie_apart(void **state)
{
    (void)state;
    struct arena arena;
    struct recurrent r;
    mf_error why;
    arena_init(&arena, &allocator_heap);
    assert_int_equal(recurrent_init(&r, &arena, 3, (struct recurrent_sizes){ 4, 5, 20 }, &why),
                     MF_OK);
    float *addresses[18];
    for (uint32_t i = 0; i < 3; i++) {
        struct recurrent_view view = recurrent_view(&r, i);
        addresses[6 * i] = view.conv_out;
        addresses[6 * i + 1] = view.delta_out;
        addresses[6 * i + 2] = view.open_out;
        addresses[6 * i + 3] = (float *)(uintptr_t)view.conv_in;
        addresses[6 * i + 4] = (float *)(uintptr_t)view.delta_in;
        addresses[6 * i + 5] = (float *)(uintptr_t)view.open_in;
    }
    for (int i = 0; i < 18; i++) {
        static const size_t lengths[] = { 4, 5, 20 };
        size_t length = lengths[i % 3];
        for (int j = 0; j < 18; j++)
            if (j != i)
                assert_true(addresses[j] < addresses[i] || addresses[j] >= addresses[i] + length);
    }
    arena_free(&arena);
}

/* ----------------------------------------------------------------- sequence */

enum { CAPACITY = 200 };

struct bench {
    struct arena arena;
    struct model_config config;
    struct kv_pool pool;
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
    arena_init(&b->arena, &allocator_heap);
    assert_int_equal(config_parse(&b->config, tiny.config, &b->arena, "tiny", &why), MF_OK);
    assert_int_equal(
        sequence_pool_init(&b->pool, &allocator_heap, &b->config, CAPACITY, KV_F32, &why), MF_OK);
    assert_int_equal(sequence_init(&b->sequence, &b->config, &b->pool, &b->arena, CAPACITY, &why),
                     MF_OK);
    tiny_model_free(&tiny);
}

static void bench_close(struct bench *b)
{
    kv_pool_free(&b->pool);
    arena_free(&b->arena);
}

/* A feed of `count` tokens in two steps, not yet committed. */
static void feed(struct sequence *s, uint32_t count)
{
    mf_error why;
    assert_int_equal(sequence_reserve(s, count, &why), MF_OK);
    assert_int_equal(sequence_next_position(s), s->position);
    sequence_step_done(s, count / 2, false);
    assert_int_equal(sequence_next_position(s), s->position + count / 2);
    sequence_step_done(s, count - count / 2, false);
}

/* The pages that are not free are the sequence's. */
static void check_pages(const struct bench *b)
{
    assert_int_equal(b->sequence.page_count, kv_pages_for(b->sequence.position));
    assert_int_equal(b->pool.free_count + b->sequence.page_count, b->pool.page_count);
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
        uint32_t first_page = b.sequence.pages[0];
        assert_int_equal(sequence_truncate(&b.sequence, keep, &why), MF_OK);
        assert_int_equal(b.sequence.position, keep);
        if (keep > 0) assert_int_equal(b.sequence.pages[0], first_page);
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
    bench_open(&b, 2);
    assert_int_equal(sequence_init(&second, &b.config, &b.pool, &b.arena, CAPACITY, &why), MF_OK);
    feed(&b.sequence, 100); /* 2 of 4 pages */
    sequence_commit(&b.sequence);
    assert_int_equal(sequence_reserve(&second, 190, &why), MF_ERR_CONTEXT_FULL);
    assert_non_null(strstr(why.text, "no free page"));
    sequence_abandon(&second);
    check_pages(&b);
    assert_int_equal(sequence_reserve(&second, 128, &why), MF_OK);
    for (uint32_t i = 0; i < second.page_count; i++)
        for (uint32_t j = 0; j < b.sequence.page_count; j++)
            assert_int_not_equal(second.pages[i], b.sequence.pages[j]);
    bench_close(&b);
}

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
    sequence_step_done(s, 1, true);
    assert_int_equal(s->pending_run_start, 21);
    sequence_abandon(s);
    assert_int_equal(s->pending_run_start, 0);
    sequence_step_done(s, 1, true);
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
    sequence_step_done(s, 1, true);
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

static void each_layer_sees_its_own_state(void **state)
{
    (void)state;
    struct bench b;
    bench_open(&b, 2);
    struct span spans[4] = { { 0 } };
    for (uint32_t i = 0; i < 4; i++) sequence_view(&b.sequence, i, &spans[i]);
    assert_non_null(spans[1].kv.keys);
    assert_non_null(spans[0].recurrent.delta_out);
    assert_ptr_not_equal(spans[1].kv.keys, spans[3].kv.keys);
    assert_ptr_not_equal(spans[0].recurrent.delta_out, spans[2].recurrent.delta_out);
    assert_null(spans[0].kv.keys);
    assert_null(spans[1].recurrent.delta_out);
    bench_close(&b);
}

static void sizes_are_those_of_the_layers(void **state)
{
    (void)state;
    struct bench b;
    bench_open(&b, 2);
    const struct tiny_shape *s = &tiny_standard;
    size_t channels = 2 * s->key_heads * s->key_width + s->value_heads * s->value_width;
    assert_int_equal(sequence_bytes_per_token(&b.config, KV_F32),
                     2 * 2 * s->kv_heads * s->head_width * 4);
    assert_int_equal(sequence_bytes_per_token(&b.config, KV_F16),
                     2 * 2 * s->kv_heads * s->head_width * 2);
    assert_int_equal(sequence_fixed_bytes(&b.config),
                     2 * 4 * (3 * channels + s->value_heads * s->value_width * s->key_width));
    bench_close(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pages_are_counted_up),
        cmocka_unit_test(every_page_is_given_once),
        cmocka_unit_test(views_of_a_pool_lie_apart),
        cmocka_unit_test(a_pool_beyond_memory_is_refused),
        cmocka_unit_test(a_pool_may_be_empty),
        cmocka_unit_test(recurrent_state_moves_on_at_commit),
        cmocka_unit_test(layers_of_recurrent_state_lie_apart),
        cmocka_unit_test(a_feed_counts_when_it_is_committed),
        cmocka_unit_test(too_many_tokens_are_refused_before_anything_happens),
        cmocka_unit_test(a_sequence_with_recurrent_layers_can_only_be_cleared),
        cmocka_unit_test(a_sequence_of_attention_alone_can_be_cut_anywhere),
        cmocka_unit_test(a_pool_serves_several_sequences),
        cmocka_unit_test(runs_of_prompt_rows_are_known),
        cmocka_unit_test(cutting_back_finds_the_run_again),
        cmocka_unit_test(each_layer_sees_its_own_state),
        cmocka_unit_test(sizes_are_those_of_the_layers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
