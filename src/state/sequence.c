#include "state/sequence.h"

#include "base/status.h"
#include "model/families.h"

/* Layers with a cache, of one kind in a model. */
static uint32_t cached_layers(const struct model_config *config)
{
    return config->layer_count - config_count_mixers(config, MIXER_DELTA);
}

/* Numbers that a position adds to one layer's cache of keys (and, in full attention, values). */
static size_t position_numbers(const struct model_config *c)
{
    if (c->family->mixer == MIXER_LATENT) return (size_t)c->latent_width + c->rope.rotary_width;
    return (size_t)c->kv_heads * c->head_width;
}

static uint32_t cache_parts(const struct model_config *config)
{
    return config->family->mixer == MIXER_LATENT ? 1 : 2;
}

static size_t conv_floats(const struct model_config *c)
{
    return c->family->hybrid ? (size_t)(c->delta_taps - 1) * config_delta_channels(c) : 0;
}

static size_t delta_floats(const struct model_config *c)
{
    return (size_t)c->delta_value_heads * c->delta_value_width * c->delta_key_width;
}

static size_t open_floats(const struct model_config *c)
{
    return c->family->hybrid ? delta_open_floats(c->delta_key_heads, c->delta_key_width,
                                                 c->delta_value_heads, c->delta_value_width)
                             : 0;
}

size_t sequence_bytes_per_token(const struct model_config *config, enum kv_format format)
{
    return kv_number_bytes(format) * cached_layers(config) * cache_parts(config) *
           position_numbers(config);
}

size_t sequence_fixed_bytes(const struct model_config *config)
{
    return sizeof(float) * config_count_mixers(config, MIXER_DELTA) *
           (conv_floats(config) + delta_floats(config));
}

mf_status sequence_pool_init(struct kv_pool *pool, const mf_allocator *allocator,
                             const struct model_config *config, uint32_t positions,
                             enum kv_format format, mf_error *why)
{
    struct kv_pool shape = { .layer_count = cached_layers(config),
                             .page_count = kv_pages_for(positions),
                             .page_numbers = KV_PAGE_TOKENS * position_numbers(config),
                             .format = format,
                             .parts = cache_parts(config) };
    return kv_pool_init(pool, allocator, &shape, why);
}

uint64_t sequence_pool_bytes(const struct model_config *config, uint32_t positions,
                             enum kv_format format)
{
    uint64_t bytes = (uint64_t)kv_pages_for(positions) * KV_PAGE_TOKENS *
                     sequence_bytes_per_token(config, format);
    return max_size(bytes, sizeof(float));
}

static struct recurrent_sizes recurrent_sizes(const struct model_config *config)
{
    return (struct recurrent_sizes){ conv_floats(config), delta_floats(config),
                                     open_floats(config) };
}

size_t sequence_arena_bytes(const struct model_config *config, uint32_t capacity)
{
    return align_up(kv_pages_for(capacity) * sizeof(uint32_t), CACHE_LINE) +
           align_up(capacity / 8 + 1, CACHE_LINE) +
           align_up(config->layer_count * sizeof(uint32_t), CACHE_LINE) +
           recurrent_bytes(config_count_mixers(config, MIXER_DELTA), recurrent_sizes(config));
}

mf_status sequence_init(struct sequence *sequence, const struct model_config *config,
                        struct kv_pool *pool, struct arena *arena, uint32_t capacity, mf_error *why)
{
    *sequence = (struct sequence){ .config = config, .pool = pool, .capacity = capacity };
    uint32_t table = kv_pages_for(capacity);
    sequence->pages = ARENA_NEW(arena, uint32_t, table);
    if (!sequence->pages) return fail_memory(why, table * sizeof(uint32_t));
    sequence->generated = ARENA_NEW(arena, uint8_t, capacity / 8 + 1);
    if (!sequence->generated) return fail_memory(why, capacity / 8 + 1);
    sequence->layer_index = ARENA_NEW(arena, uint32_t, config->layer_count);
    if (!sequence->layer_index) return fail_memory(why, config->layer_count * sizeof(uint32_t));
    uint32_t seen[MIXER_KINDS] = { 0 };
    for (uint32_t i = 0; i < config->layer_count; i++)
        sequence->layer_index[i] = seen[config->mixers[i]]++;
    return recurrent_init(&sequence->recurrent, arena, seen[MIXER_DELTA], recurrent_sizes(config),
                          why);
}

uint32_t sequence_next_position(const struct sequence *sequence)
{
    return sequence->position + sequence->pending;
}

mf_status sequence_reserve(struct sequence *sequence, uint32_t count, mf_error *why)
{
    uint32_t next = sequence_next_position(sequence);
    if (count > sequence->capacity - next)
        return fail(why, MF_ERR_CONTEXT_FULL,
                    "%u tokens do not fit: the context holds %u and %u are taken", count,
                    sequence->capacity, next);
    uint32_t needed = kv_pages_for(next + count);
    while (sequence->page_count < needed) {
        if (!kv_pool_take(sequence->pool, &sequence->pages[sequence->page_count]))
            return fail(why, MF_ERR_CONTEXT_FULL, "the cache has no free page left");
        sequence->page_count++;
    }
    return MF_OK;
}

void sequence_view(const struct sequence *sequence, uint32_t layer, struct span *span)
{
    uint32_t index = sequence->layer_index[layer];
    if (sequence->config->mixers[layer] == MIXER_DELTA)
        span->recurrent = recurrent_view(&sequence->recurrent, index);
    else
        span->kv = kv_pool_view(sequence->pool, index, sequence->pages);
}

static bool was_generated(const struct sequence *sequence, uint32_t position)
{
    return sequence->generated[position / 8] >> position % 8 & 1;
}

static void note_phase(struct sequence *sequence, uint32_t rows, bool decode)
{
    uint32_t first = sequence_next_position(sequence);
    for (uint32_t i = first; i < first + rows; i++) {
        uint8_t *byte = &sequence->generated[i / 8];
        *byte = (uint8_t)((*byte & ~(1u << i % 8)) | (unsigned)decode << i % 8);
    }
}

/* Where the prompt rows begin that end before `position`. */
static uint32_t find_run(const struct sequence *sequence, uint32_t position)
{
    while (position > 0 && !was_generated(sequence, position - 1)) position--;
    return position;
}

void sequence_step_done(struct sequence *sequence, uint32_t rows, bool decode)
{
    note_phase(sequence, rows, decode);
    sequence->pending += rows;
    if (decode) sequence->pending_run_start = sequence_next_position(sequence);
    recurrent_step_done(&sequence->recurrent);
}

/* Pages beyond the committed position go back to the pool. */
static void trim_pages(struct sequence *sequence)
{
    uint32_t needed = kv_pages_for(sequence->position);
    while (sequence->page_count > needed)
        kv_pool_give(sequence->pool, sequence->pages[--sequence->page_count]);
}

void sequence_commit(struct sequence *sequence)
{
    sequence->position += sequence->pending;
    sequence->pending = 0;
    sequence->run_start = sequence->pending_run_start;
    recurrent_commit(&sequence->recurrent);
}

void sequence_abandon(struct sequence *sequence)
{
    sequence->pending = 0;
    sequence->pending_run_start = sequence->run_start;
    recurrent_abandon(&sequence->recurrent);
    trim_pages(sequence);
}

void sequence_clear(struct sequence *sequence)
{
    sequence->position = 0;
    sequence->pending = 0;
    sequence->run_start = sequence->pending_run_start = 0;
    recurrent_clear(&sequence->recurrent);
    trim_pages(sequence);
}

mf_status sequence_truncate(struct sequence *sequence, uint32_t position, mf_error *why)
{
    if (position > sequence->position)
        return fail(why, MF_ERR_ARGUMENT, "position %u is beyond the end of the sequence, %u",
                    position, sequence->position);
    if (position == sequence->position) return MF_OK;
    if (position > 0 && sequence->recurrent.layer_count > 0)
        return fail(why, MF_ERR_CANNOT_TRUNCATE,
                    "recurrent layers hold no history: the sequence of %u tokens can be cleared, "
                    "but not cut back to %u",
                    sequence->position, position);
    if (position == 0) {
        sequence_clear(sequence);
    } else {
        sequence->position = position;
        sequence->run_start = sequence->pending_run_start = find_run(sequence, position);
        trim_pages(sequence);
    }
    return MF_OK;
}
