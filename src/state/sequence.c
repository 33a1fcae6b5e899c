#include "state/sequence.h"

#include "base/status.h"

static uint32_t count_mixers(const struct model_config *config, enum mixer_kind kind)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < config->layer_count; i++) count += config->mixers[i] == kind;
    return count;
}

static size_t conv_floats(const struct model_config *c)
{
    return (size_t)(c->delta_taps - 1) * config_delta_channels(c);
}

static size_t delta_floats(const struct model_config *c)
{
    return (size_t)c->delta_value_heads * c->delta_value_width * c->delta_key_width;
}

size_t sequence_bytes_per_token(const struct model_config *config)
{
    return 2 * sizeof(float) * count_mixers(config, MIXER_ATTENTION) * config->kv_heads *
           config->head_width;
}

size_t sequence_fixed_bytes(const struct model_config *config)
{
    return sizeof(float) * count_mixers(config, MIXER_DELTA) *
           (conv_floats(config) + delta_floats(config));
}

mf_status sequence_pool_init(struct kv_pool *pool, const mf_allocator *allocator,
                             const struct model_config *config, uint32_t sequences,
                             uint32_t capacity, mf_error *why)
{
    size_t page_floats = (size_t)config->kv_heads * KV_PAGE_TOKENS * config->head_width;
    return kv_pool_init(pool, allocator, count_mixers(config, MIXER_ATTENTION),
                        sequences * kv_pages_for(capacity), page_floats, why);
}

mf_status sequence_init(struct sequence *sequence, const struct model_config *config,
                        struct kv_pool *pool, struct arena *arena, uint32_t capacity, mf_error *why)
{
    *sequence = (struct sequence){ .config = config, .pool = pool, .capacity = capacity };
    uint32_t table = kv_pages_for(capacity);
    sequence->pages = ARENA_NEW(arena, uint32_t, table);
    if (!sequence->pages) return fail_memory(why, table * sizeof(uint32_t));
    sequence->layer_index = ARENA_NEW(arena, uint32_t, config->layer_count);
    if (!sequence->layer_index) return fail_memory(why, config->layer_count * sizeof(uint32_t));
    uint32_t seen[2] = { 0 };
    for (uint32_t i = 0; i < config->layer_count; i++)
        sequence->layer_index[i] = seen[config->mixers[i]]++;
    return recurrent_init(&sequence->recurrent, arena, seen[MIXER_DELTA], conv_floats(config),
                          delta_floats(config), why);
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
    if (sequence->config->mixers[layer] == MIXER_ATTENTION)
        span->kv = kv_pool_view(sequence->pool, index, sequence->pages);
    else
        span->recurrent = recurrent_view(&sequence->recurrent, index);
}

void sequence_step_done(struct sequence *sequence, uint32_t rows)
{
    sequence->pending += rows;
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
    recurrent_commit(&sequence->recurrent);
}

void sequence_abandon(struct sequence *sequence)
{
    sequence->pending = 0;
    recurrent_abandon(&sequence->recurrent);
    trim_pages(sequence);
}

void sequence_clear(struct sequence *sequence)
{
    sequence->position = 0;
    sequence->pending = 0;
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
        trim_pages(sequence);
    }
    return MF_OK;
}
