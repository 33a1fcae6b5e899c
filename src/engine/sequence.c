#include "engine/sequence.h"

#include "base/status.h"

uint64_t engine_sequence_bytes(const struct model_config *config, enum kv_format format,
                               uint32_t positions, uint32_t chunk_rows)
{
    struct state_shape shape = state_shape_of(config, format);
    shape.step_rows = chunk_rows;
    return sequence_pool_bytes(&shape, positions) + sequence_table_bytes(positions);
}

void engine_sequence_init(struct engine_sequence *sequence, struct engine_room *room,
                          struct engine_room_sizes sizes)
{
    *sequence = (struct engine_sequence){ .room = room, .chunk_rows = sizes.chunk_rows };
    sequence_init(&sequence->state, &room->pool, sizes.context_length);
}

void engine_sequence_release(struct engine_sequence *sequence)
{
    state_pool_drop(&sequence->room->pool, BLOCK_LOGITS, sequence->logits);
    sequence->logits = NULL;
    engine_sequence_clear(sequence);
}

void engine_sequence_free(struct engine_sequence *sequence)
{
    if (!sequence->room) return;
    engine_sequence_release(sequence);
    sequence_free(&sequence->state);
    *sequence = (struct engine_sequence){ 0 };
}

mf_status engine_sequence_fork(struct engine_sequence *out, const struct engine_sequence *sequence,
                               mf_error *why)
{
    *out = (struct engine_sequence){ .chunk_rows = sequence->chunk_rows };
    mf_status status = sequence_fork(&out->state, &sequence->state, why);
    if (status != MF_OK) return status;
    out->room = sequence->room;
    if (sequence->has_logits)
        out->logits = state_pool_share(&out->room->pool, BLOCK_LOGITS, sequence->logits);
    out->has_logits = sequence->has_logits;
    return MF_OK;
}

void engine_sequence_clear(struct engine_sequence *sequence)
{
    sequence_clear(&sequence->state);
    sequence->has_logits = false;
}

mf_status engine_sequence_truncate(struct engine_sequence *sequence, uint32_t position,
                                   uint32_t *reached, mf_error *why)
{
    uint32_t before = sequence->state.position;
    if (reached && position <= before)
        position = *reached = sequence_cut_before(&sequence->state, position);
    mf_status status = sequence_truncate(&sequence->state, position, why);
    if (status == MF_OK && position < before) sequence->has_logits = false;
    return status;
}

void engine_sequence_cancel(struct engine_sequence *sequence)
{
    atomic_store(&sequence->cancelled, true);
}

bool engine_sequence_check_invariants(const struct engine_sequence *sequence)
{
    const struct sequence *state = &sequence->state;
    bool cached = state->pool->shape.cached_layers > 0;
    bool recurrent = state->pool->shape.recurrent_layers > 0;
    bool settled = state->pending == 0 && state->pending_run_start == state->run_start &&
                   !state->started && !state->next;
    bool fits = state->position <= state->capacity && state->run_start <= state->position &&
                state->position <= state->token_room &&
                state->page_count == (cached ? state_pages_for(state->position) : 0) &&
                (state->recurrent != NULL) == (recurrent && state->position > 0);
    if (state->pool->shape.window_layers > 0)
        fits &= state->window.end == state_pages_for(state->position) &&
                window_reaches(&state->window, &state->pool->shape, state->position);
    for (size_t i = 0; i < state->checkpoint_count; i++)
        fits &= state->checkpoints[i].position <= state->position &&
                (i == 0 || state->checkpoints[i - 1].position < state->checkpoints[i].position);
    return settled && fits &&
           (!sequence->has_logits || (sequence->logits && state->position > 0)) &&
           sequence->chunk_rows <= sequence->room->sizes.chunk_rows;
}
