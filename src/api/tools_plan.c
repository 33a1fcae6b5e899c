/* tools_plan.c: what would live where, computed from sizes: those of the checkpoint's tensors, and
 * the functions that say what engine room, sequences and expert store take. */
#include "api/tools.h"

#include "api/handles.h"
#include "base/status.h"
#include "tools/description.h"

/* As an expert store does when its budget changes. */
static mf_status limit_experts(struct expert_placement *placement, const mf_model *model,
                               mf_error *why)
{
    uint64_t budget = api_expert_budget(model);
    mf_status status = expert_placement_limit(placement, budget, why);
    if (status != MF_OK || !expert_placement_must_stream(placement)) return status;
    return expert_placement_stream(placement, budget, why);
}

/* Experts as a model opens with them: the tables of the cache policy exist where experts can be
 * evicted, and take slots. */
static mf_status place_experts(struct expert_placement *placement, mf_model *model,
                               const mf_plan_options *options, struct arena *arena, mf_error *why)
{
    struct expert_needs needs = { .directory = &model->model.directory,
                                  .layers = model->model.weights.layers,
                                  .config = &model->model.config,
                                  .budget_bytes = api_expert_budget(model),
                                  .hard_limit = options->memory_bytes != 0 };
    mf_status status = api_admit_weights(model, why);
    if (status != MF_OK) return status;
    status = expert_placement_make(placement, &needs, arena, why);
    if (status == MF_ERR_MEMORY) return api_explain_memory(model, why);
    if (status != MF_OK) return status;
    model->policy_bytes = expert_placement_policy_bytes(placement);
    return model->policy_bytes ? limit_experts(placement, model, why) : MF_OK;
}

static void note_experts(mf_plan *out, const struct expert_placement *placement)
{
    const struct slot_plan *plan = &placement->plan;
    out->expert_count = 0;
    for (size_t c = 0; c < plan->class_count; c++) out->expert_count += plan->classes[c].experts;
    out->experts_in_memory = plan->slot_count;
    out->expert_bytes = plan->used_bytes;
    snprintf(out->expert_mode, sizeof out->expert_mode, "%s",
             expert_placement_mode_name(placement));
}

/* `model` holds sizes only. */
static mf_status plan(mf_plan *out, mf_model *model, const mf_plan_options *options, mf_error *why)
{
    const struct mf_engine *engine = model->engine;
    mf_model_options model_options = { .memory_bytes = options->memory_bytes,
                                       .context_length = options->context_length,
                                       .chunk_rows = options->chunk_rows };
    struct forward_parts parts = { .allocator = &engine->allocator,
                                   .config = &model->model.config,
                                   .weights = &model->model.weights,
                                   .backend = engine->backend,
                                   .kv_format = model->kv_format };
    struct engine_room_sizes *sizes = &model->room.sizes;
    struct expert_placement placement;
    struct arena arena;
    mf_status status = api_check_context(parts.config, options->context_length, why);
    if (status == MF_OK)
        status = api_choose_room(sizes, &parts, model->memory_bytes, &model_options, why);
    if (status == MF_OK) status = engine_room_bytes(&model->room.bytes, &parts, *sizes, why);
    if (status != MF_OK) return status;
    out->context_length = sizes->context_length;
    out->chunk_rows = sizes->chunk_rows;
    out->engine_bytes = model->room.bytes;
    out->sequence_bytes = api_pool_bytes(model); /* of one */
    arena_init(&arena, &engine->allocator);
    status = place_experts(&placement, model, options, &arena, why);
    if (status == MF_OK) {
        out->table_bytes = model->policy_bytes;
        note_experts(out, &placement);
    }
    arena_free(&arena);
    return status;
}

/* A plan that is refused is the answer, not a failure. */
static mf_status plan_described(mf_plan *out, const struct description *description,
                                const mf_plan_options *options, mf_error *why)
{
    mf_engine *engine;
    mf_engine_options engine_options = { .struct_size = sizeof engine_options,
                                         .thread_count = options->thread_count };
    mf_status status = mf_engine_open(&engine, &engine_options, why);
    if (status != MF_OK) return status;
    mf_model model = { .engine = engine,
                       .model = description->model,
                       .memory_bytes = api_memory_limit(engine, options->memory_bytes) };
    status = api_choose_kv_format(&model.kv_format, engine, options->kv_type, why);
    if (status != MF_OK) {
        mf_engine_close(engine);
        return status;
    }
    *out =
        (mf_plan){ .memory_bytes = model.memory_bytes,
                   .context_length = options->context_length,
                   .weight_bytes = model.model.weights.resident_bytes,
                   .position_bytes = state_position_bytes(&model.model.config, model.kv_format) };
    mf_error problem = { .text = "" };
    out->fits = plan(out, &model, options, &problem) == MF_OK;
    snprintf(out->problem, sizeof out->problem, "%s", out->fits ? "" : problem.text);
    mf_engine_close(engine);
    return MF_OK;
}

mf_status mf_model_plan(mf_plan *out, const char *path, const mf_plan_options *given, mf_error *why)
{
    mf_plan_options options = { 0 };
    struct description description;
    mf_plan whole = { 0 };
    if (!out) return api_missing(why, "out");
    if (!path) return api_missing(why, "path");
    mf_status status = api_options_in(&options, sizeof options, given, "MF_PLAN_OPTIONS_INIT", why);
    if (status == MF_OK) status = description_open(&description, path, why);
    if (status != MF_OK) return status;
    if (!description.supported)
        status = fail(why, MF_ERR_UNSUPPORTED, "%s", description.problem);
    else
        status = plan_described(&whole, &description, &options, why);
    description_close(&description);
    if (status != MF_OK) return status;
    return api_statistics_out(out, &whole, sizeof whole, "MF_PLAN_INIT", why);
}
