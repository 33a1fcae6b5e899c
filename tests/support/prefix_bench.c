#include "support/prefix_bench.h"

#include "support/test.h"

#include "support/tiny_model.h"

static double show(void *user)
{
    return *(const double *)user;
}

void prefix_bench_open(struct prefix_bench *bench, const struct prefix_bench_options *options)
{
    struct tiny_model tiny;
    struct tiny_shape shape = tiny_standard;
    uint64_t pool_bytes = options->pool_bytes ? options->pool_bytes : UINT64_MAX;
    mf_error why;
    shape.interval = options->recurrent ? 2 : 1;
    tiny_model_init(&tiny, &shape);
    bench->seconds = 1000;
    bench->clock = (struct clock){ show, &bench->seconds };
    bench->tree = NULL;
    failing_allocator_init(&bench->heap);
    arena_init(&bench->arena, &allocator_heap);
    assert_int_equal(config_parse(&bench->config, tiny.config, &bench->arena, "tiny", &why), MF_OK);
    assert_int_equal(state_pool_init(&bench->pool, &bench->heap.allocator, &bench->config, KV_F32,
                                     pool_bytes, &why),
                     MF_OK);
    if (!options->no_tree) {
        struct prefix_options own = { .exact = options->exact,
                                      .limit_bytes = options->limit_bytes,
                                      .clock = &bench->clock };
        assert_int_equal(prefix_tree_new(&bench->tree, &bench->pool, &own, &why), MF_OK);
    }
    tiny_model_free(&tiny);
}

void prefix_bench_close(struct prefix_bench *bench)
{
    if (bench->tree) assert_true(prefix_tree_check_invariants(bench->tree));
    prefix_tree_free(bench->tree);
    for (int kind = 0; kind < BLOCK_KINDS; kind++)
        assert_int_equal(state_pool_sizes(&bench->pool).held[kind], 0);
    state_pool_free(&bench->pool);
    assert_int_equal(bench->heap.live_bytes, 0);
    arena_free(&bench->arena);
}

uint64_t prefix_bench_page(const struct prefix_bench *bench)
{
    return state_block_bytes(&bench->pool.shape, BLOCK_PAGE);
}

uint64_t prefix_bench_state(const struct prefix_bench *bench)
{
    return state_block_bytes(&bench->pool.shape, BLOCK_RECURRENT);
}

/* ---------------------------------------------------------------------- tags */

static uint64_t next_tag(uint64_t tag, uint32_t token)
{
    tag = (tag ^ token) * UINT64_C(0x9e3779b97f4a7c15);
    return tag ^ (tag >> 29);
}

/* Of the tokens up to and including `index`; each page has room for 64 tags at its beginning. */
static uint8_t *tag_of(const struct sequence *sequence, uint32_t index)
{
    return sequence->pages[index / KV_PAGE_TOKENS] + index % KV_PAGE_TOKENS * sizeof(uint64_t);
}

mf_status prefix_bench_feed(struct sequence *sequence, const int32_t *tokens, uint32_t count,
                            bool generated)
{
    mf_status status = sequence_reserve(sequence, count, NULL);
    if (status != MF_OK || count == 0) {
        sequence_abandon(sequence);
        return status;
    }
    uint32_t first = sequence->position;
    uint64_t tag = first > 0 ? load_u64(tag_of(sequence, first - 1)) : 0;
    sequence_step_done(sequence, tokens, count, generated);
    for (uint32_t i = first; i < first + count; i++) {
        tag = next_tag(tag, sequence->tokens[i]);
        memcpy(tag_of(sequence, i), &tag, sizeof tag);
    }
    if (sequence->next) memcpy(sequence->next, &tag, sizeof tag);
    sequence_commit(sequence);
    return MF_OK;
}

bool prefix_bench_verify(const struct sequence *sequence)
{
    uint64_t tag = 0;
    bool recurrent = sequence->pool->shape.recurrent_layers > 0;
    if (sequence->page_count != state_pages_for(sequence->position)) return false;
    for (uint32_t i = 0; i < sequence->position; i++) {
        tag = next_tag(tag, sequence->tokens[i]);
        if (load_u64(tag_of(sequence, i)) != tag) return false;
    }
    if (!recurrent || sequence->position == 0) return !sequence->recurrent;
    return sequence->recurrent && load_u64(sequence->recurrent) == tag;
}
