/* probe_calls.c: mf_probe_*: checks of pointers, weights by name, the engine's lock, and then
 * probe.c. */
#include "compat/handles.h"
#include "compat/probe.h"

#include "base/status.h"

#include <strings.h>

struct mf_probe {
    mf_context *context;
    struct probe *probe;
};

enum { ROWS_STANDARD = 64 };

static mf_status choose_sizes(struct probe_sizes *out, const mf_context *context,
                              const mf_probe_options *options, mf_error *why)
{
    mf_probe_options own;
    mf_status status = api_options_in(&own, sizeof own, options, "MF_PROBE_OPTIONS_INIT", why);
    if (status != MF_OK) return status;
    uint32_t limit = (uint32_t)mf_context_n_ctx(context);
    *out = (struct probe_sizes){ .rows = own.row_capacity ? own.row_capacity : ROWS_STANDARD,
                                 .context = own.context_length ? own.context_length : limit };
    if (out->context <= limit) return MF_OK;
    return fail(why, MF_ERR_ARGUMENT, "a probe of %u positions was asked for, the context has %u",
                out->context, limit);
}

mf_status mf_probe_open(mf_probe **out, mf_context *context, const mf_probe_options *options,
                        mf_error *why)
{
    if (!out) return api_missing(why, "out");
    *out = NULL;
    if (!context) return api_missing(why, "context");
    if (backend_is_device(context->engine->backend))
        return fail(why, MF_ERR_UNSUPPORTED, "probes look into the backends reference and cpu");
    struct probe_sizes sizes;
    mf_status status = choose_sizes(&sizes, context, options, why);
    if (status != MF_OK) return status;
    mf_engine *engine = context->engine;
    mf_probe *probe = api_new_handle(&engine->allocator, sizeof *probe);
    if (!probe) return fail_memory(why, sizeof *probe);
    probe->context = context;
    struct forward_parts parts = { .allocator = &engine->allocator,
                                   .config = &context->model->model.config,
                                   .weights = &context->model->model.weights,
                                   .experts = context->model->experts,
                                   .backend = engine->backend,
                                   .kv_format = context->model->kv_format };
    pthread_mutex_lock(&engine->lock); /* the backend's scratch may grow */
    status = probe_new(&probe->probe, &engine->allocator, &parts, sizes, why);
    pthread_mutex_unlock(&engine->lock);
    if (status == MF_OK)
        *out = probe;
    else
        mf_probe_close(probe);
    return status;
}

void mf_probe_close(mf_probe *probe)
{
    if (!probe) return;
    const mf_allocator *allocator = &probe->context->engine->allocator;
    probe_free(probe->probe);
    allocator->release(allocator->user, probe, sizeof *probe);
}

/* ------------------------------------------------------- around every call */

/* MF_OK: the engine's lock is held, and leave gives it back. */
static mf_status enter(mf_probe *probe, mf_error *why)
{
    if (!probe) return api_missing(why, "probe");
    pthread_mutex_lock(&probe->context->engine->lock);
    return MF_OK;
}

static mf_status leave(mf_probe *probe, mf_status status)
{
    pthread_mutex_unlock(&probe->context->engine->lock);
    return status;
}

static mf_status enter_with(mf_probe *probe, const void *in, mf_error *why)
{
    return in ? enter(probe, why) : api_missing(why, "in");
}

static mf_status enter_weight(enum weight_id *out, mf_probe *probe, const char *weight,
                              mf_error *why)
{
    static const char *const names[] = {
#define WEIGHT_NAME(name) #name,
        WEIGHT_LIST(WEIGHT_NAME)
#undef WEIGHT_NAME
    };
    if (!weight) return api_missing(why, "weight");
    for (int id = 0; id < WEIGHT_COUNT; id++) {
        if (strcasecmp(names[id], weight) != 0) continue;
        *out = (enum weight_id)id;
        return enter(probe, why);
    }
    return fail(why, MF_ERR_ARGUMENT, "no weight is called \"%.32s\"", weight);
}

/* ------------------------------------------------------------------- calls */

mf_status mf_probe_embed(mf_floats out, mf_probe *probe, const int32_t *tokens, size_t count,
                         mf_error *why)
{
    mf_status status = enter(probe, why);
    if (status != MF_OK) return status;
    return leave(probe, probe_embed(out, probe->probe, tokens, count, why));
}

mf_status mf_probe_norm(mf_floats out, mf_probe *probe, uint32_t layer, const char *weight,
                        mf_numbers x, mf_error *why)
{
    enum weight_id id = WEIGHT_COUNT;
    mf_status status = enter_weight(&id, probe, weight, why);
    if (status != MF_OK) return status;
    return leave(probe, probe_norm(out, probe->probe, layer, id, x, why));
}

mf_status mf_probe_head_norm(mf_floats in_out, mf_probe *probe, uint32_t layer, const char *weight,
                             mf_error *why)
{
    enum weight_id id = WEIGHT_COUNT;
    mf_status status = enter_weight(&id, probe, weight, why);
    if (status != MF_OK) return status;
    return leave(probe, probe_head_norm(in_out, probe->probe, layer, id, why));
}

mf_status mf_probe_project(mf_floats out, mf_probe *probe, uint32_t layer, const char *weight,
                           mf_numbers x, mf_error *why)
{
    enum weight_id id = WEIGHT_COUNT;
    mf_status status = enter_weight(&id, probe, weight, why);
    if (status != MF_OK) return status;
    return leave(probe, probe_project(out, probe->probe, layer, id, x, why));
}

mf_status mf_probe_lm_head(mf_floats out, mf_probe *probe, mf_numbers x, mf_error *why)
{
    mf_status status = enter(probe, why);
    if (status != MF_OK) return status;
    return leave(probe, probe_lm_head(out, probe->probe, x, why));
}

mf_status mf_probe_rope(mf_floats in_out, mf_probe *probe, uint32_t layer,
                        mf_probe_positions positions, mf_error *why)
{
    mf_status status = enter(probe, why);
    if (status != MF_OK) return status;
    return leave(probe, probe_rope(in_out, probe->probe, layer, positions, why));
}

mf_status mf_probe_attend(mf_floats out, mf_probe *probe, uint32_t layer,
                          const mf_probe_attention *in, mf_error *why)
{
    mf_status status = enter_with(probe, in, why);
    if (status != MF_OK) return status;
    return leave(probe, probe_attend(out, probe->probe, layer, in, why));
}

mf_status mf_probe_gate(mf_floats out, mf_probe *probe, uint32_t layer, mf_numbers x,
                        mf_numbers gate, mf_error *why)
{
    mf_status status = enter(probe, why);
    if (status != MF_OK) return status;
    return leave(probe, probe_gate(out, probe->probe, layer, x, gate, why));
}

mf_status mf_probe_conv(mf_floats out, mf_floats state_in_out, mf_probe *probe, uint32_t layer,
                        mf_numbers x, mf_error *why)
{
    mf_status status = enter(probe, why);
    if (status != MF_OK) return status;
    return leave(probe, probe_conv(out, state_in_out, probe->probe, layer, x, why));
}

mf_status mf_probe_unit_norm(mf_floats in_out, mf_probe *probe, uint32_t layer, mf_error *why)
{
    mf_status status = enter(probe, why);
    if (status != MF_OK) return status;
    return leave(probe, probe_unit_norm(in_out, probe->probe, layer, why));
}

mf_status mf_probe_delta(mf_floats out, mf_floats state_in_out, mf_probe *probe, uint32_t layer,
                         const mf_probe_recurrence *in, mf_error *why)
{
    mf_status status = enter_with(probe, in, why);
    if (status != MF_OK) return status;
    return leave(probe, probe_delta(out, state_in_out, probe->probe, layer, in, why));
}

mf_status mf_probe_gated_norm(mf_floats out, mf_probe *probe, uint32_t layer, mf_numbers x,
                              mf_numbers gate, mf_error *why)
{
    mf_status status = enter(probe, why);
    if (status != MF_OK) return status;
    return leave(probe, probe_gated_norm(out, probe->probe, layer, x, gate, why));
}

mf_status mf_probe_route(mf_probe_routes out, mf_probe *probe, uint32_t layer, mf_numbers x,
                         mf_error *why)
{
    mf_status status = enter(probe, why);
    if (status != MF_OK) return status;
    return leave(probe, probe_route(out, probe->probe, layer, x, why));
}

mf_status mf_probe_expert(mf_floats out, mf_probe *probe, uint32_t layer, uint32_t expert,
                          mf_numbers x, mf_error *why)
{
    mf_status status = enter(probe, why);
    if (status != MF_OK) return status;
    return leave(probe, probe_expert(out, probe->probe, layer, expert, x, why));
}

mf_status mf_probe_experts(mf_floats x_in_out, mf_probe *probe, uint32_t layer,
                           const mf_probe_combination *in, mf_error *why)
{
    mf_status status = enter_with(probe, in, why);
    if (status != MF_OK) return status;
    return leave(probe, probe_experts(x_in_out, probe->probe, layer, in, why));
}

mf_status mf_probe_expert_bytes(uint8_t *out, size_t capacity, mf_probe *probe, uint32_t layer,
                                uint32_t expert, mf_error *why)
{
    mf_status status = enter(probe, why);
    if (status != MF_OK) return status;
    return leave(probe, probe_expert_bytes(out, capacity, probe->probe, layer, expert, why));
}

size_t mf_probe_expert_size(const mf_probe *probe, uint32_t layer)
{
    return probe ? probe_expert_size(probe->probe, layer) : 0;
}

mf_status mf_probe_layer(const mf_probe_step *step, mf_probe *probe, mf_error *why)
{
    mf_probe_step own;
    if (!step) return api_missing(why, "step");
    mf_status status = api_options_in(&own, sizeof own, step, "MF_PROBE_STEP_INIT", why);
    if (status == MF_OK) status = enter(probe, why);
    return status == MF_OK ? leave(probe, probe_layer(&own, probe->probe, why)) : status;
}
