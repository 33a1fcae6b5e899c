#include "plan/planned.h"

#include "common/error.h"

#include <string.h>

/* ------------------------------------------------------------------- costs */

static void add_class(struct weight_share *out, const mf_description *description,
                      mf_tensor_class tensor_class, double factor)
{
    for (uint32_t f = 0; f < mf_format_count() && f < FORECAST_FORMATS; f++) {
        mf_tensor_sum sum = mf_description_sum(description, (int)tensor_class, (int)f);
        out[f].bytes += factor * (double)sum.bytes;
        out[f].parameters += factor * (double)sum.parameters;
        out[f].rows += factor * (double)sum.rows;
    }
}

static double matrix_flops(const struct weight_share *shares)
{
    double parameters = 0;
    for (size_t f = 0; f < FORECAST_FORMATS; f++) parameters += shares[f].parameters;
    return 2 * parameters;
}

mf_status model_costs_read(struct model_costs *out, const mf_description *description,
                           const char *kv_type, mf_error *why)
{
    static const mf_tensor_class dense[] = { MF_TENSORS_ATTENTION, MF_TENSORS_DELTA,
                                             MF_TENSORS_ROUTERS,   MF_TENSORS_SHARED,
                                             MF_TENSORS_DENSE,     MF_TENSORS_NORMS };
    mf_workload work = MF_WORKLOAD_INIT;
    mf_model_shape shape = MF_MODEL_SHAPE_INIT;
    mf_status status = mf_description_workload(&work, description, kv_type, why);
    if (status == MF_OK) status = mf_description_get_shape(&shape, description, why);
    if (status != MF_OK) return status;
    *out = (struct model_costs){ .layers = shape.layer_count,
                                 .expert_layers = shape.expert_layers,
                                 .experts_per_layer = shape.experts,
                                 .experts_per_token = shape.experts_per_token,
                                 .position_bytes = (double)work.state_position_bytes,
                                 .state_bytes = (double)work.state_fixed_bytes,
                                 .pair_flops = work.pair_flops };
    for (size_t i = 0; i < sizeof dense / sizeof *dense; i++)
        add_class(out->dense, description, dense[i], 1);
    bool tied = mf_description_sum(description, MF_TENSORS_HEAD, -1).bytes == 0;
    add_class(out->head, description, tied ? MF_TENSORS_EMBEDDING : MF_TENSORS_HEAD, 1);
    add_class(out->experts, description, MF_TENSORS_EXPERTS,
              out->experts_per_token / out->experts_per_layer);
    double other = work.token_flops - matrix_flops(out->dense) - matrix_flops(out->experts);
    out->other_flops = other > 0 ? other : 0;
    return MF_OK;
}

void model_costs_formats(bool wanted[FORECAST_FORMATS], const struct model_costs *costs)
{
    for (size_t f = 0; f < FORECAST_FORMATS; f++)
        wanted[f] =
            costs->dense[f].bytes > 0 || costs->head[f].bytes > 0 || costs->experts[f].bytes > 0;
}

/* -------------------------------------------------------------------- plans */

/* The hits that the cache policy has on recorded routes; false: they cannot be replayed so. */
static bool replay(double *hits, const mf_route_trace *trace, uint64_t slot_bytes)
{
    mf_simulation_options cache = MF_SIMULATION_OPTIONS_INIT;
    mf_simulation_result result = MF_SIMULATION_RESULT_INIT;
    cache.policy = MF_CACHE_MOEFLUX;
    cache.slot_bytes = slot_bytes;
    cache.rows = 1;
    if (mf_simulate(&result, trace, &cache, NULL) != MF_OK || result.uses == 0) return false;
    *hits = (double)result.hits / (double)result.uses;
    return true;
}

static void forecast_all(struct planned *out, const struct model_costs *costs,
                         const struct machine_rates *rates, const struct plan_wishes *wishes)
{
    double hits, least = forecast_least_hits(&out->placement);
    double most = forecast_usual_hits(&out->placement);
    if (wishes->trace && out->placement.streamed &&
        replay(&hits, wishes->trace, out->plan.expert_bytes)) {
        out->replayed = true;
        least = most = hits;
    }
    out->least = forecast_token(costs, rates, &out->placement, wishes->position, least);
    out->most = forecast_token(costs, rates, &out->placement, wishes->position, most);
    out->prompt = forecast_prompt(costs, rates, &out->placement, wishes->prompt_rows);
    double read = (double)out->plan.weight_bytes;
    if (!out->placement.streamed) read += (double)out->plan.expert_bytes;
    if (rates->disk_bytes > 0) out->opening_seconds = read / rates->disk_bytes;
}

mf_status planned_make(struct planned *out, const char *path, const struct model_costs *costs,
                       const struct machine_rates *rates, const struct plan_wishes *wishes,
                       uint64_t memory_bytes, mf_error *why)
{
    mf_plan_options options = wishes->options;
    *out = (struct planned){ .plan = MF_PLAN_INIT };
    options.memory_bytes = memory_bytes;
    mf_status status = mf_model_plan(&out->plan, path, &options, why);
    if (status != MF_OK || !out->plan.fits) return status;
    out->placement = (struct placement){ .streamed = strcmp(out->plan.expert_mode, "streamed") == 0,
                                         .in_memory = (double)out->plan.experts_in_memory,
                                         .count = (double)out->plan.expert_count,
                                         .chunk_rows = out->plan.chunk_rows };
    forecast_all(out, costs, rates, wishes);
    return MF_OK;
}

/* --------------------------------------------------------------- estimates */

static void scale(struct weight_share *shares, double factor)
{
    for (size_t f = 0; f < FORECAST_FORMATS; f++) shares[f].bytes *= factor;
}

static double bytes_of(const struct weight_share *shares)
{
    double bytes = 0;
    for (size_t f = 0; f < FORECAST_FORMATS; f++) bytes += shares[f].bytes;
    return bytes;
}

void estimate_make(struct estimate *out, const struct planned *known,
                   const struct model_costs *costs, const struct machine_rates *rates,
                   const struct plan_wishes *wishes, double factor)
{
    /* As the library keeps it back: a 64th of the memory, at most 128 MiB. */
    const double spare = 128 << 20;
    const mf_plan *plan = &known->plan;
    struct model_costs scaled = *costs;
    scale(scaled.dense, factor);
    scale(scaled.head, factor);
    scale(scaled.experts, factor);
    double memory = (double)plan->memory_bytes, per_token = bytes_of(scaled.experts);
    double all = per_token / costs->experts_per_token * costs->experts_per_layer;
    double left = memory - (memory / 64 < spare ? memory / 64 : spare) -
                  factor * (double)plan->weight_bytes -
                  (double)(plan->engine_bytes + plan->sequence_bytes + plan->table_bytes);
    double expert = all / costs->expert_layers / costs->experts_per_layer;
    *out = (struct estimate){ .fits = left >= (costs->experts_per_token + 2) * expert,
                              .streamed = left < all,
                              .share = left < all ? left / all : 1 };
    if (!out->fits) return;
    struct placement placement = { .streamed = out->streamed,
                                   .in_memory = out->share,
                                   .count = 1,
                                   .chunk_rows = plan->chunk_rows };
    out->least = forecast_token(&scaled, rates, &placement, wishes->position,
                                forecast_least_hits(&placement));
    out->most = forecast_token(&scaled, rates, &placement, wishes->position,
                               forecast_usual_hits(&placement));
    out->prompt = forecast_prompt(&scaled, rates, &placement, wishes->prompt_rows);
}
