/* context_state.c: mf_context_state_* and the checkpoints of a context. */
#include "compat/handles.h"

#include "base/status.h"

/* --------------------------------------------------------------- as bytes */

size_t mf_context_state_size(const mf_context *context, int32_t seq_id)
{
    const struct context_sequence *found = context_find(context, seq_id);
    return found ? (size_t)mf_sequence_snapshot_bytes(found->live) : 0;
}

mf_status mf_context_state_save(const mf_context *context, int32_t seq_id, void *out,
                                size_t capacity, size_t *written, mf_error *why)
{
    if (!context) return api_missing(why, "context");
    const struct context_sequence *found = context_find(context, seq_id);
    if (!found)
        return fail(why, MF_ERR_ARGUMENT, "seq_id is %d, no such sequence was begun", seq_id);
    return mf_sequence_save(found->live, out, capacity, written, why);
}

mf_status mf_context_state_load(mf_context *context, int32_t seq_id, const void *bytes,
                                size_t count, mf_error *why)
{
    struct context_sequence *found;
    mf_status status = context_find_or_add(&found, context, seq_id, why);
    return status == MF_OK ? mf_sequence_load(found->live, bytes, count, why) : status;
}

/* ------------------------------------------------------------ checkpoints */

mf_status mf_context_checkpoint_pos(mf_context *context, int32_t seq_id, int32_t pos, mf_error *why)
{
    struct context_sequence *found;
    if (pos < 0) return fail(why, MF_ERR_ARGUMENT, "the position of a checkpoint is %d", pos);
    mf_status status = context_find_or_add(&found, context, seq_id, why);
    if (status != MF_OK) return status;
    return checkpoints_keep(&found->checkpoints, pos, found->live, context->max_checkpoints, why);
}

mf_status mf_context_restore_to(mf_context *context, int32_t seq_id, int32_t pos, mf_error *why)
{
    if (!context) return api_missing(why, "context");
    struct context_sequence *found = context_find(context, seq_id);
    const mf_sequence *kept = found ? checkpoints_at(&found->checkpoints, pos) : NULL;
    if (!kept)
        return fail(why, MF_ERR_NO_CHECKPOINT, "sequence %d has no checkpoint at position %d",
                    seq_id, pos);
    mf_status status = context_go_to(context, found, kept, why);
    if (status == MF_OK) checkpoints_forget_above(&found->checkpoints, pos);
    return status;
}

void mf_context_forget_pos(mf_context *context, int32_t seq_id, int32_t pos)
{
    struct context_sequence *found = context_find(context, seq_id);
    if (found) checkpoints_forget(&found->checkpoints, pos);
}

void mf_context_set_max_checkpoints(mf_context *context, size_t count)
{
    if (context) context->max_checkpoints = count;
}

size_t mf_context_checkpoint_count(const mf_context *context, int32_t seq_id)
{
    const struct context_sequence *found = context_find(context, seq_id);
    return found ? found->checkpoints.count : 0;
}
