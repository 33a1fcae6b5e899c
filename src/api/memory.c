/* memory.c: who may have how much of what the caller allowed.
 *
 *     limit = weights + what is not counted + engine room + sequences + slots for experts
 *
 * Slots take what the others leave: a sequence that opens makes the store smaller,
 * one that closes gives the slots back. */
#include "api/handles.h"

#include "base/status.h"

/* Tokenizer, code, stacks, tables: a 64th of the limit, at most so much. */
enum { UNCOUNTED_SHARE = 64, UNCOUNTED_MAX = 128 << 20 };

/* Without a limit from the caller, the system keeps a 16th of what is free now. */
enum { SYSTEM_SHARE = 16 };

uint64_t api_memory_limit(const mf_engine *engine, uint64_t memory_bytes)
{
    uint64_t available = engine->machine.available_bytes;
    return memory_bytes ? memory_bytes : available - available / SYSTEM_SHARE;
}

uint64_t api_budget_within(uint64_t limit, uint64_t resident_bytes, uint64_t other_bytes)
{
    uint64_t taken = min_size(limit / UNCOUNTED_SHARE, UNCOUNTED_MAX);
    if (!checked_add(&taken, taken, resident_bytes) || !checked_add(&taken, taken, other_bytes))
        return 0;
    return limit > taken ? limit - taken : 0;
}

uint64_t api_expert_budget(const mf_model *model)
{
    return api_budget_within(model->memory_bytes, model->model.weights.resident_bytes,
                             model->room.bytes + model->sequence_bytes + model->policy_bytes);
}

/* The store's tables exist once experts can be evicted, and take slots then. */
static mf_status share_out(mf_model *model, mf_error *why)
{
    mf_status status = expert_store_set_budget(model->experts, api_expert_budget(model), why);
    uint64_t tables = expert_store_sizes(model->experts).policy_bytes;
    if (status != MF_OK || tables == model->policy_bytes) return status;
    model->policy_bytes = tables;
    return expert_store_set_budget(model->experts, api_expert_budget(model), why);
}

mf_status api_count_tables(mf_model *model, mf_error *why)
{
    return expert_store_sizes(model->experts).policy_bytes ? share_out(model, why) : MF_OK;
}

mf_status api_admit_weights(const mf_model *model, mf_error *why)
{
    uint64_t bytes = model->model.weights.resident_bytes;
    double mebibyte = 1 << 20;
    if (api_budget_within(model->memory_bytes, bytes, 0) > 0) return MF_OK;
    return fail(
        why, MF_ERR_MEMORY,
        "the weights that every token uses take %.2f MiB, which is too much for %.2f MiB of "
        "memory",
        (double)bytes / mebibyte, (double)model->memory_bytes / mebibyte);
}

static uint64_t bytes_of(const struct engine_sequence *sequence)
{
    return sequence->arena.total_bytes + sequence->pool.memory_bytes;
}

mf_status api_admit_sequence(mf_sequence *sequence, mf_error *why)
{
    mf_model *model = sequence->model;
    uint64_t bytes = bytes_of(&sequence->sequence);
    mf_error problem;
    model->sequence_bytes += bytes;
    mf_status status = share_out(model, &problem);
    if (status == MF_OK) return MF_OK;
    model->sequence_bytes -= bytes;
    double mebibyte = 1 << 20;
    return fail(
        why, status,
        "of %.2f MiB weights take %.2f, the engine room %.2f (less with smaller chunks) and "
        "a sequence %.2f (less with a shorter context); %.240s",
        (double)model->memory_bytes / mebibyte,
        (double)model->model.weights.resident_bytes / mebibyte,
        (double)model->room.bytes / mebibyte, (double)bytes / mebibyte, problem.text);
}

void api_dismiss_sequence(mf_sequence *sequence)
{
    mf_model *model = sequence->model;
    model->sequence_bytes -= bytes_of(&sequence->sequence);
    expert_store_set_budget(model->experts, api_expert_budget(model),
                            NULL); /* more: never refused */
}
