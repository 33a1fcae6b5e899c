/* memory.c: how the memory that the caller allowed is divided.
 *
 *     limit = weights + what is not counted + engine room + sequences + slots for experts
 *
 * Sequences have a pool for as many as the options ask for; slots take what the others leave.
 * Where all experts fit, what they leave is added to the pool. */
#include "api/handles.h"

#include "base/status.h"

#include <stdio.h>

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

uint64_t api_pool_bytes(const mf_model *model)
{
    return engine_room_pool_bytes(&model->model.config, model->kv_format, model->room.sizes) +
           model->cache_bytes;
}

uint64_t api_expert_budget(const mf_model *model)
{
    return api_budget_within(model->memory_bytes, model->model.weights.resident_bytes,
                             model->room.bytes + api_pool_bytes(model) + model->policy_bytes);
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

mf_status api_explain_memory(const mf_model *model, mf_error *why)
{
    double mebibyte = 1 << 20;
    char problem[256];
    if (!why) return MF_ERR_MEMORY;
    snprintf(problem, sizeof problem, "%.240s", why->text);
    return fail(
        why, MF_ERR_MEMORY,
        "of %.2f MiB weights take %.2f, the engine room %.2f (less with smaller chunks) and "
        "%u %s of %u positions %.2f (less with a shorter context); %s",
        (double)model->memory_bytes / mebibyte,
        (double)model->model.weights.resident_bytes / mebibyte,
        (double)model->room.bytes / mebibyte, model->room.sizes.sequences,
        model->room.sizes.sequences == 1 ? "sequence" : "sequences",
        model->room.sizes.context_length, (double)api_pool_bytes(model) / mebibyte, problem);
}

void api_widen_pool(mf_model *model)
{
    struct expert_store_sizes sizes = expert_store_sizes(model->experts);
    struct state_pool *pool = &model->room.pool;
    if (sizes.slots < sizes.total) return;
    uint64_t budget = api_expert_budget(model);
    if (budget > sizes.slot_bytes)
        state_pool_set_limit(pool, pool->limit_bytes + (budget - sizes.slot_bytes));
}
