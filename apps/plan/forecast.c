#include "plan/forecast.h"

#include "common/basics.h"

#include <math.h>

/* Attention reaches about this share of the fastest products: an estimate from one measurement. */
#define ATTENTION_SHARE 0.35

/* Products slower than this share of the memory's rate wait for arithmetic rather than for it. */
#define MEMORY_BOUND_SHARE 0.6

const char *forecast_bound_name(enum forecast_bound bound)
{
    static const char *const names[] = { [BOUND_MEMORY] = "memory bandwidth",
                                         [BOUND_ARITHMETIC] = "arithmetic",
                                         [BOUND_DISK] = "disk",
                                         [BOUND_LAYERS] = "work beside the products" };
    return names[bound];
}

static double in_memory_share(const struct placement *placement)
{
    if (!placement->streamed || placement->count <= 0) return 1;
    return fmin(placement->in_memory / placement->count, 1);
}

double forecast_least_hits(const struct placement *placement)
{
    return in_memory_share(placement);
}

double forecast_usual_hits(const struct placement *placement)
{
    return pow(in_memory_share(placement), 0.7);
}

double forecast_narrow_share(const struct weight_share *share)
{
    const double wide = (2.0 * MF_RATE_HIDDEN + MF_RATE_WIDTH) /
                        (3.0 * MF_RATE_WIDTH * MF_RATE_HIDDEN); /* rows for each number */
    const double narrow = 1.0 / MF_RATE_NARROW;
    if (share->parameters <= 0) return 0;
    return fmax((share->rows / share->parameters - wide) / (narrow - wide), 0);
}

/* `flops` at the measured numbers of rows, between them by the logarithm. */
static double flops_at(const double *at, const double *flops, double rows)
{
    size_t i = 0;
    if (rows <= at[0]) return flops[0];
    while (i + 2 < MF_RATE_POINTS && rows > at[i + 1]) i++;
    double share = log(rows / at[i]) / log(at[i + 1] / at[i]);
    return flops[i] + fmin(share, 1) * (flops[i + 1] - flops[i]);
}

double forecast_prompt_flops(const mf_format_rates *rates, double rows)
{
    return flops_at(rates->prompt_rows, rates->prompt_flops, rows);
}

double forecast_narrow_flops(const mf_format_rates *rates, double rows)
{
    return flops_at(rates->prompt_rows, rates->narrow_prompt_flops, rows);
}

/* `work` at a rate, of which wide matrices have one and narrow ones another; 0: not measured. */
static double seconds_at(double work, double wide_rate, double narrow_rate, double narrow_share)
{
    double wide = work / wide_rate;
    if (narrow_rate <= 0) return wide;
    return wide + narrow_share * fmax(work / narrow_rate - wide, 0);
}

double forecast_experts_used(const struct model_costs *model, double rows)
{
    double missed = 1 - model->experts_per_token / model->experts_per_layer;
    return model->experts_per_layer * (1 - pow(missed, rows));
}

/* Seconds of one row; rates that were not measured are those of the memory. */
static double read_seconds(const struct weight_share *shares, const struct machine_rates *rates)
{
    double seconds = 0;
    for (size_t f = 0; f < FORECAST_FORMATS; f++) {
        const mf_format_rates *format = &rates->formats[f];
        double rate = format->decode_bytes > 0 ? format->decode_bytes : rates->memory_bytes;
        seconds += seconds_at(shares[f].bytes, rate, format->narrow_decode_bytes,
                              forecast_narrow_share(&shares[f]));
    }
    return seconds;
}

/* Seconds of `tokens` rows, `rows` of which are multiplied together with a matrix. */
static double multiply_seconds(const struct weight_share *shares, const struct machine_rates *rates,
                               double tokens, double rows)
{
    double seconds = 0;
    for (size_t f = 0; f < FORECAST_FORMATS; f++) {
        const mf_format_rates *format = &rates->formats[f];
        bool known = format->prompt_flops[0] > 0;
        double rate = known ? forecast_prompt_flops(format, rows) : rates->matrix_flops;
        double narrow = known ? forecast_narrow_flops(format, rows) : 0;
        seconds += seconds_at(2 * shares[f].parameters * tokens, rate, narrow,
                              forecast_narrow_share(&shares[f]));
    }
    return seconds;
}

static double bytes_of(const struct weight_share *shares)
{
    double bytes = 0;
    for (size_t f = 0; f < FORECAST_FORMATS; f++) bytes += shares[f].bytes;
    return bytes;
}

static double disk_seconds(const struct machine_rates *rates, double bytes)
{
    return bytes > 0 && rates->disk_bytes > 0 ? bytes / rates->disk_bytes : 0;
}

static void add_up(struct forecast *f, double tokens)
{
    f->seconds = f->dense + f->state + f->layers + fmax(f->experts, f->disk + f->last);
    f->tokens_per_second = f->seconds > 0 ? tokens / f->seconds : 0;
}

struct forecast forecast_token(const struct model_costs *model, const struct machine_rates *rates,
                               const struct placement *placement, double position, double hits)
{
    double expert_bytes = bytes_of(model->experts);
    struct forecast f = { .hits = placement->streamed ? hits : 1 };
    f.weight_bytes = bytes_of(model->dense) + bytes_of(model->head) + expert_bytes;
    f.dense = read_seconds(model->dense, rates) + read_seconds(model->head, rates);
    f.experts = read_seconds(model->experts, rates);
    f.state = (model->state_bytes + position * model->position_bytes) / rates->memory_bytes;
    f.layers = model->layers * rates->layer_seconds;
    f.disk_bytes = (1 - f.hits) * expert_bytes;
    f.disk = disk_seconds(rates, f.disk_bytes);
    /* One of those chosen in each layer, or fewer where not even one is read. */
    if (f.disk > 0) f.last = f.experts * fmin(1 / model->experts_per_token, 1 - f.hits);
    add_up(&f, 1);
    double products = f.dense + f.experts;
    bool at_memory = f.weight_bytes >= MEMORY_BOUND_SHARE * rates->memory_bytes * products;
    if (f.disk + f.last > fmax(f.experts, f.seconds / 2))
        f.bound = BOUND_DISK;
    else if (f.layers > products + f.state)
        f.bound = BOUND_LAYERS;
    else
        f.bound = at_memory ? BOUND_MEMORY : BOUND_ARITHMETIC;
    return f;
}

/* Of one step that begins after `position` rows. */
static void add_step(struct forecast *sum, const struct model_costs *model,
                     const struct machine_rates *rates, const struct placement *placement,
                     double position, double rows)
{
    double used = forecast_experts_used(model, rows), chosen = model->experts_per_token;
    double per_expert = rows * chosen / used;
    double missed = (1 - forecast_least_hits(placement)) * used / chosen;
    double bytes = missed * bytes_of(model->experts);
    double experts = multiply_seconds(model->experts, rates, rows, per_expert);
    double disk = disk_seconds(rates, bytes);
    double pairs = rows * (position + (rows + 1) / 2);
    sum->dense += multiply_seconds(model->dense, rates, rows, rows);
    sum->state += (pairs * model->pair_flops + rows * model->other_flops) /
                  (ATTENTION_SHARE * rates->matrix_flops);
    sum->layers += model->layers * rates->layer_seconds;
    sum->experts += experts;
    sum->disk += disk;
    sum->disk_bytes += bytes;
    sum->seconds += fmax(experts, disk);
}

struct forecast forecast_prompt(const struct model_costs *model, const struct machine_rates *rates,
                                const struct placement *placement, double rows)
{
    struct forecast f = { .hits = forecast_least_hits(placement) };
    double chunk = placement->chunk_rows > 0 ? placement->chunk_rows : rows;
    size_t steps = (size_t)ceil(rows / chunk);
    for (size_t i = 0; i < steps; i++) {
        double position = (double)i * chunk;
        add_step(&f, model, rates, placement, position, fmin(chunk, rows - position));
    }
    f.dense += read_seconds(model->head, rates);
    f.weight_bytes = bytes_of(model->dense) + bytes_of(model->head) +
                     bytes_of(model->experts) / model->experts_per_token *
                         forecast_experts_used(model, fmin(chunk, rows));
    f.seconds += f.dense + f.state + f.layers; /* experts and disk are in it, step by step */
    f.tokens_per_second = f.seconds > 0 ? rows / f.seconds : 0;
    bool reads = f.disk > fmax(f.experts, f.seconds / 2);
    f.bound = reads ? BOUND_DISK : f.layers > f.seconds / 2 ? BOUND_LAYERS : BOUND_ARITHMETIC;
    return f;
}
