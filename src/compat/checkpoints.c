#include "compat/checkpoints.h"

#include "base/array.h"
#include "base/status.h"

static void remove_at(struct checkpoints *checkpoints, size_t index)
{
    struct kept *gone = &checkpoints->kept[index];
    mf_sequence_close(gone->state);
    memmove(gone, gone + 1, (--checkpoints->count - index) * sizeof *gone);
}

void checkpoints_clear(struct checkpoints *checkpoints)
{
    while (checkpoints->count > 0) remove_at(checkpoints, checkpoints->count - 1);
}

void checkpoints_free(struct checkpoints *checkpoints)
{
    checkpoints_clear(checkpoints);
    array_free(checkpoints->kept, checkpoints->room, sizeof *checkpoints->kept, &allocator_heap);
    *checkpoints = (struct checkpoints){ 0 };
}

mf_status checkpoints_keep(struct checkpoints *checkpoints, int32_t pos, const mf_sequence *live,
                           size_t max, mf_error *why)
{
    mf_sequence *fork;
    mf_status status = ARRAY_RESERVE(checkpoints->kept, checkpoints->room, checkpoints->count + 1,
                                     &allocator_heap, why);
    if (status == MF_OK) status = mf_sequence_fork(&fork, live, why);
    if (status != MF_OK) return status;
    checkpoints_forget(checkpoints, pos);
    checkpoints->kept[checkpoints->count++] = (struct kept){ pos, fork };
    while (checkpoints->count > max && checkpoints_evict(checkpoints)) continue;
    return MF_OK;
}

bool checkpoints_evict(struct checkpoints *checkpoints)
{
    for (size_t i = 0; i + 1 < checkpoints->count; i++) {
        if (checkpoints->kept[i].pos == 0) continue;
        remove_at(checkpoints, i);
        return true;
    }
    return false;
}

const mf_sequence *checkpoints_at(const struct checkpoints *checkpoints, int32_t pos)
{
    for (size_t i = 0; i < checkpoints->count; i++)
        if (checkpoints->kept[i].pos == pos) return checkpoints->kept[i].state;
    return NULL;
}

const mf_sequence *checkpoints_beginning_of(const struct checkpoints *checkpoints,
                                            const mf_sequence *live, uint32_t position)
{
    const uint32_t *tokens = live->sequence.state.tokens; /* with their phases */
    for (size_t i = 0; i < checkpoints->count; i++) {
        const struct sequence *state = &checkpoints->kept[i].state->sequence.state;
        if (state->position == position &&
            memcmp(state->tokens, tokens, position * sizeof *tokens) == 0)
            return checkpoints->kept[i].state;
    }
    return NULL;
}

void checkpoints_forget(struct checkpoints *checkpoints, int32_t pos)
{
    for (size_t i = checkpoints->count; i-- > 0;)
        if (checkpoints->kept[i].pos == pos) remove_at(checkpoints, i);
}

void checkpoints_forget_above(struct checkpoints *checkpoints, int32_t pos)
{
    for (size_t i = checkpoints->count; i-- > 0;)
        if (checkpoints->kept[i].pos > pos) remove_at(checkpoints, i);
}
