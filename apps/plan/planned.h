/* planned.h: a checkpoint's headers, a memory size and the machine's rates → where things live and
 * how fast that runs. */
#ifndef PLAN_PLANNED_H
#define PLAN_PLANNED_H

#include "plan/forecast.h"

enum { PLANNED_SIZES = 16 };

/* What the plan is for. */
struct plan_wishes {
    uint64_t sizes[PLANNED_SIZES]; /* of memory; 0: what is free now */
    size_t size_count;
    mf_plan_options options; /* its memory_bytes is not used */
    double prompt_rows, position;
    const mf_route_trace *trace; /* recorded routes, for hit rates; NULL: none */
};

/* With one memory size. */
struct planned {
    mf_plan plan;
    struct placement placement;
    struct forecast least, most; /* of a generated token; the same where nothing is streamed */
    struct forecast prompt;
    double opening_seconds; /* until all that is to be in memory is read; 0: not known */
    bool replayed;          /* the hits are those of the recorded routes */
};

/* What one token is multiplied with, from the headers. */
mf_status model_costs_read(struct model_costs *out, const mf_description *description,
                           const char *kv_type, mf_error *why);

/* Formats whose rates a forecast of the model uses. */
void model_costs_formats(bool wanted[FORECAST_FORMATS], const struct model_costs *costs);

/* Another quantisation of the same model, of which only the size is known: its weights take `factor`
 * times the bytes, at the rates of the formats that the known one has. */
struct estimate {
    bool fits, streamed;
    double share; /* of the experts in memory */
    struct forecast least, most, prompt;
};
void estimate_make(struct estimate *out, const struct planned *known,
                   const struct model_costs *costs, const struct machine_rates *rates,
                   const struct plan_wishes *wishes, double factor);

mf_status planned_make(struct planned *out, const char *path, const struct model_costs *costs,
                       const struct machine_rates *rates, const struct plan_wishes *wishes,
                       uint64_t memory_bytes, mf_error *why);

#endif
