/* forecast.h: how fast a model will run, from its sizes and what the machine has been measured to do.
 *
 *     generated token = dense + state + layers + max(experts, disk + last)
 *     prompt          = dense + state + layers + max(experts, disk) + head
 *
 *     dense     weights of every token, at the rate of their format
 *     experts   those that the router chooses, likewise
 *     disk      chosen experts that are not in memory; the others are computed meanwhile
 *     last      of the experts of a layer that are read, the last is computed after all reads
 *     state     the context that is read; of a prompt, its attention
 *     layers    what a layer takes beside its products
 *
 * Pure functions of their arguments: nothing is measured or read here. */
#ifndef PLAN_FORECAST_H
#define PLAN_FORECAST_H

#include "moeflux_tools.h"

enum { FORECAST_FORMATS = 64 };

/* What one token is multiplied with, by format. */
struct weight_share {
    double bytes, parameters;
    double rows; /* of the matrices */
};

struct model_costs {
    struct weight_share dense[FORECAST_FORMATS]; /* all of a layer but its experts */
    struct weight_share head[FORECAST_FORMATS];
    struct weight_share experts[FORECAST_FORMATS]; /* the chosen ones, of all layers */
    double layers, expert_layers, experts_per_layer, experts_per_token;
    double position_bytes, state_bytes; /* of the context: for each position, at any */
    double pair_flops;                  /* of attention */
    double other_flops;                 /* of recurrent states, for a token */
};

struct machine_rates {
    double memory_bytes, disk_bytes; /* per second; disk 0: not known */
    double matrix_flops;             /* per second at most */
    double layer_seconds;
    mf_format_rates formats[FORECAST_FORMATS]; /* by mf_format_name's index; 0: not measured */
};

/* Where the experts are. */
struct placement {
    bool streamed;
    double in_memory, count; /* experts */
    double chunk_rows;       /* of a prompt in one step, at most */
};

enum forecast_bound { BOUND_MEMORY, BOUND_ARITHMETIC, BOUND_DISK, BOUND_LAYERS };
const char *forecast_bound_name(enum forecast_bound bound);

struct forecast {
    double seconds, tokens_per_second;
    double dense, experts, disk, state, layers; /* seconds of each; disk and experts overlap … */
    double last;                                /* … but for this part of experts */
    double hits;                                /* share of the chosen experts in memory */
    double disk_bytes;                          /* read from disk */
    double weight_bytes;                        /* of one token; of a prompt: of a step */
    enum forecast_bound bound;
};

/* Where every expert is as likely as any other, the share that is in memory is hit: the least that
 * a cache does. */
double forecast_least_hits(const struct placement *placement);

/* Trained routers prefer some experts: share^0.7, which is within two points of what the cache
 * policy has on the recorded routes of Pebble, with room for 12 to 75 % of the experts. */
double forecast_usual_hits(const struct placement *placement);

/* One token after `position` others; `hits` 0 … 1, not used where nothing is streamed. */
struct forecast forecast_token(const struct model_costs *model, const struct machine_rates *rates,
                               const struct placement *placement, double position, double hits);

/* A prompt of `rows` tokens in an empty context. */
struct forecast forecast_prompt(const struct model_costs *model, const struct machine_rates *rates,
                                const struct placement *placement, double rows);

/* Experts of a layer that some of `rows` tokens choose, where each chooses evenly. */
double forecast_experts_used(const struct model_costs *model, double rows);

/* Seconds of a product with these weights are those of wide matrices and, by this share, of narrow
 * ones: each row takes time of its own, and short rows are more.  0: rows of MF_RATE_WIDTH and
 * MF_RATE_HIDDEN or longer; 1: rows of MF_RATE_NARROW; above 1: shorter ones. */
double forecast_narrow_share(const struct weight_share *share);

/* Operations per second with `rows` rows for each matrix: between the measured points by the
 * logarithm of the rows, beyond them as at the last one. */
double forecast_prompt_flops(const mf_format_rates *rates, double rows);
double forecast_narrow_flops(const mf_format_rates *rates, double rows);

#endif
