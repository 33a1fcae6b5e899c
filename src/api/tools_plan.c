/* tools_plan.c: what would live where, by opening all of a run but its weights. */
#include "api/tools.h"

#include "api/handles.h"
#include "base/status.h"
#include "tools/description.h"

#include <sys/mman.h>

/* Memory that is planned with and never touched: address space, so that the plan for a
 * larger machine than this one can be made too. */
enum { RESERVED_FROM = 1 << 20 };

static void *take(void *user, size_t bytes, size_t alignment)
{
    if (bytes < RESERVED_FROM) return allocator_heap.allocate(user, bytes, alignment);
    size_t whole = bytes + alignment;
    char *pages = mmap(NULL, whole, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (pages == MAP_FAILED) return NULL;
    char *out = (char *)align_up((uintptr_t)pages, alignment);
    /* Only whole pages are given back later: what is not wanted goes now. */
    if (out > pages) munmap(pages, (size_t)(out - pages));
    return out;
}

static void release(void *user, void *memory, size_t bytes)
{
    if (bytes < RESERVED_FROM) {
        allocator_heap.release(user, memory, bytes);
    } else {
        munmap(memory, bytes);
    }
}

static const mf_allocator reserving = { .allocate = take, .release = release };

static void take_origin(struct arena *arena, const struct weight_origin *origin)
{
    const struct tensor *const parts[] = { origin->values, origin->scales, origin->biases };

    for (size_t p = 0; p < COUNT_OF(parts); p++) {
        if (parts[p]) arena_take_raw(arena, parts[p]->bytes, 1);
    }
    if (origin->vector) arena_take_raw(arena, origin->shape.cols, sizeof(float));
}

static void take_extents(struct arena *arena, const struct description *i, uint32_t layer)
{
    for (int p = 0; p < EXPERT_PARTS; p++) {
        const struct expert_matrix *m = &i->model.weights.layers[layer].experts[p];
        int arrays = (m->values != NULL) + (m->scales != NULL) + (m->biases != NULL);
        while (arrays-- > 0) {
            arena_take_raw(arena, i->model.config.experts, sizeof(struct extent));
        }
    }
}

/* What the resident weights take in memory: the same arena is filled as at a run's open, in the
 * same order and with nothing.  Matrices stay as they are, vectors become f32. */
static uint64_t resident_bytes(const struct description *i)
{
    const struct weights *weights = &i->model.weights;
    struct arena arena;
    uint64_t before, bytes;
    uint32_t begun = 0; /* layers: each begins with its first norm */

    arena_init(&arena, &reserving);
    arena_take_raw(&arena, 1, 1); /* something is in it before the weights */
    arena_start_block(&arena);
    before = arena.total_bytes;
    arena_take_raw(&arena, i->model.config.layer_count, sizeof *weights->layers);
    for (size_t o = 0; o < weights->origin_count; o++) {
        if (weights->origins[o].id == WEIGHT_MIXER_NORM && begun++ > 0) {
            take_extents(&arena, i, begun - 2);
        }
        take_origin(&arena, &weights->origins[o]);
    }
    if (begun > 0) take_extents(&arena, i, begun - 1);
    bytes = arena.total_bytes - before;
    arena_free(&arena);
    return bytes;
}

static void note_experts(mf_plan *out, const mf_model *model)
{
    struct expert_store_sizes sizes = expert_store_sizes(model->experts);

    out->expert_count = sizes.total;
    out->experts_in_memory = sizes.slots;
    out->expert_bytes = sizes.slot_bytes;
    snprintf(out->expert_mode, sizeof out->expert_mode, "%s", sizes.mode);
}

/* What is refused is the answer, not a failure. */
static void plan(mf_plan *out, mf_model *model, const mf_plan_options *options)
{
    mf_error problem = { .text = "" };
    mf_model_options model_options = { .memory_bytes = options->memory_bytes,
                                       .context_length = options->context_length,
                                       .chunk_rows = options->chunk_rows };
    mf_status status = api_check_context(&model->model.config, options->context_length, &problem);
    if (status == MF_OK) status = api_open_room(model, &model_options, &problem);
    if (status == MF_OK) status = api_open_experts(model, &model_options, &problem);
    out->fits = status == MF_OK;
    if (out->fits) {
        out->context_length = model->room.sizes.context_length;
        out->engine_bytes = model->room.bytes;
        out->sequence_bytes =
            engine_sequence_bytes(&model->model.config, model->engine->backend->kv_format,
                                  model->room.sizes.context_length);
        out->table_bytes = model->policy_bytes;
        note_experts(out, model);
    } else {
        snprintf(out->problem, sizeof out->problem, "%s", problem.text);
    }
    expert_store_free(model->experts);
    engine_room_free(&model->room);
}

static mf_status plan_described(mf_plan *out, const struct description *description,
                                const mf_plan_options *options, mf_error *why)
{
    const struct model_config *config = &description->model.config;
    mf_engine *engine;
    mf_engine_options engine_options = { .struct_size = sizeof engine_options,
                                         .allocator = &reserving };
    mf_model model = { .model = description->model };
    mf_status status = mf_engine_open(&engine, &engine_options, why);

    if (status != MF_OK) return status;
    *out = (mf_plan){ .weight_bytes = resident_bytes(description) };
    model.engine = engine;
    model.memory_bytes = out->memory_bytes = api_memory_limit(engine, options->memory_bytes);
    model.model.weights.resident_bytes = out->weight_bytes;
    out->context_length = options->context_length
                              ? options->context_length
                              : (uint32_t)min_size(config->context_length, 4096);
    out->sequence_bytes =
        engine_sequence_bytes(config, engine->backend->kv_format, out->context_length);
    plan(out, &model, options);
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
