#include "support/prefix_bench.h"

#include "support/test.h"

#include "support/tiny_model.h"

static double show(void *user)
{
    return *(const double *)user;
}

/* Every second layer sees a window of this many positions. */
static void add_windows(struct model_config *config, uint32_t positions)
{
    config->window = (struct window_config){ .positions = positions,
                                             .kv_heads = config->kv_heads,
                                             .head_width = config->head_width,
                                             .rope = config->rope };
    for (uint32_t i = 0; i < config->layer_count; i += 2) config->mixers[i] = MIXER_WINDOW;
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
    bench->is_far = options->far;
    if (options->far) far_memory_open(&bench->far);
    arena_init(&bench->arena, &allocator_heap);
    assert_int_equal(config_parse(&bench->config, tiny.config, &bench->arena, "tiny", &why), MF_OK);
    if (options->window > 0) add_windows(&bench->config, options->window);
    assert_int_equal(state_pool_init(&bench->pool, &bench->heap.allocator,
                                     options->far ? &bench->far.memory : NULL, &bench->config,
                                     KV_F32, pool_bytes, &why),
                     MF_OK);
    bench->pool.shape.step_rows = PREFIX_BENCH_STEP;
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
    if (bench->is_far) far_memory_close(&bench->far);
    assert_int_equal(bench->heap.live_bytes, 0);
    arena_free(&bench->arena);
}

uint64_t prefix_bench_page(const struct prefix_bench *bench)
{
    return state_block_bytes(&bench->pool.shape, BLOCK_PAGE);
}

uint64_t prefix_bench_state(const struct prefix_bench *bench)
{
    const struct state_shape *shape = &bench->pool.shape;
    uint64_t windows = shape->window_layers > 0 ? shape->window_pages : 0;
    return state_block_bytes(shape, BLOCK_RECURRENT) +
           windows * state_block_bytes(shape, BLOCK_WINDOW);
}

/* ---------------------------------------------------------------------- tags */

static uint64_t next_tag(uint64_t tag, uint32_t token)
{
    tag = (tag ^ token) * UINT64_C(0x9e3779b97f4a7c15);
    return tag ^ (tag >> 29);
}

/* Of the tokens up to and including `index`; each page has room for 64 tags at its beginning. */
static uint8_t *place_of_tag(uint8_t *const *pages, uint32_t index)
{
    return pages[index / KV_PAGE_TOKENS] + index % KV_PAGE_TOKENS * sizeof(uint64_t);
}

static uint64_t read_tag(const struct state_pool *pool, const void *place)
{
    uint64_t tag;
    assert_int_equal(state_pool_read(pool, &tag, place, sizeof tag, NULL), MF_OK);
    return tag;
}

static void write_tag(const struct state_pool *pool, void *place, uint64_t tag)
{
    assert_int_equal(state_pool_write(pool, place, &tag, sizeof tag, NULL), MF_OK);
}

static bool has_window(const struct sequence *sequence)
{
    return sequence->pool->shape.window_layers > 0;
}

/* Whether the next token finds the tags of its window. */
static bool verify_window(const struct sequence *sequence)
{
    uint32_t end = sequence_next_position(sequence);
    uint32_t size = sequence->pool->shape.config->window.positions;
    uint64_t tag = 0;
    for (uint32_t i = 0; has_window(sequence) && i < end; i++) {
        tag = next_tag(tag, sequence->tokens[i]);
        bool seen = i + size > end;
        if (seen && !sequence->window.pages[i / KV_PAGE_TOKENS]) return false;
        if (seen && read_tag(sequence->pool, place_of_tag(sequence->window.pages, i)) != tag)
            return false;
    }
    return true;
}

static bool step(struct sequence *sequence, const int32_t *tokens, uint32_t count, bool generated)
{
    uint32_t first = sequence_next_position(sequence);
    uint64_t tag =
        first > 0 ? read_tag(sequence->pool, place_of_tag(sequence->pages, first - 1)) : 0;
    if (!verify_window(sequence)) return false;
    for (uint32_t i = 0; i < count; i++) {
        tag = next_tag(tag, (uint32_t)tokens[i] | (generated ? TOKEN_GENERATED : 0));
        write_tag(sequence->pool, place_of_tag(sequence->pages, first + i), tag);
        if (has_window(sequence))
            write_tag(sequence->pool, place_of_tag(sequence->window.pages, first + i), tag);
    }
    if (sequence->next) write_tag(sequence->pool, sequence->next, tag);
    sequence_step_done(sequence, tokens, count, generated);
    return true;
}

mf_status prefix_bench_feed(struct sequence *sequence, const int32_t *tokens, uint32_t count,
                            bool generated)
{
    mf_status status = sequence_reserve(sequence, count, NULL);
    if (status != MF_OK || count == 0) {
        sequence_abandon(sequence);
        return status;
    }
    for (uint32_t at = 0; at < count; at += PREFIX_BENCH_STEP)
        assert_true(step(sequence, tokens + at, (uint32_t)min_size(PREFIX_BENCH_STEP, count - at),
                         generated));
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
        if (read_tag(sequence->pool, place_of_tag(sequence->pages, i)) != tag) return false;
    }
    if (!verify_window(sequence)) return false;
    if (!recurrent || sequence->position == 0) return !sequence->recurrent;
    return sequence->recurrent && read_tag(sequence->pool, sequence->recurrent) == tag;
}
