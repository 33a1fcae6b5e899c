/* experts_whatif.c: GET /v1/moeflux/whatif: the hit rates that other sizes of memory would have had. */
#include "view/experts_internal.h"

#include "common/basics.h"
#include "common/clock.h"
#include "moeflux_tools.h"
#include "serve/failure.h"
#include "serve/handlers.h"
#include "serve/reply.h"

#include <stdlib.h>

/* How long a reply is given again. */
static const double kept_seconds = 3;

/* False: the size is too small for one token, or there is no memory. */
static bool hit_rate(double *out, const mf_route_trace *trace, mf_cache_policy policy,
                     uint64_t slot_bytes)
{
    mf_simulation_options options = MF_SIMULATION_OPTIONS_INIT;
    mf_simulation_result result = MF_SIMULATION_RESULT_INIT;

    options.policy = policy;
    options.slot_bytes = slot_bytes;
    if (mf_simulate(&result, trace, &options, NULL) != MF_OK) return false;
    *out = result.uses > 0 ? (double)result.hits / (double)result.uses : 0;
    return true;
}

static json_t *rates_new(const struct experts *experts, const mf_route_trace *trace, size_t tokens)
{
    static const double shares[] = { 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1 };
    json_t *memory = json_array(), *hit = json_array(), *belady = json_array();
    mf_route_trace_info info = MF_ROUTE_TRACE_INFO_INIT;
    mf_model_statistics model = MF_MODEL_STATISTICS_INIT;
    double ours, best;

    mf_route_trace_get(&info, trace, NULL);
    mf_model_stats(experts->serve->model, &model, NULL);
    for (size_t i = 0; i < COUNT_OF(shares); i++) {
        uint64_t bytes = (uint64_t)(shares[i] * (double)info.all_slots_bytes);
        if (!hit_rate(&ours, trace, MF_CACHE_MOEFLUX, bytes) ||
            !hit_rate(&best, trace, MF_CACHE_BELADY, bytes))
            continue;
        json_array_append_new(memory, json_count_new(bytes));
        json_array_append_new(hit, json_real(ours));
        json_array_append_new(belady, json_real(best));
    }
    return json_pack("{s:o, s:o, s:o, s:o, s:o}", "memory", memory, "hit", hit, "belady", belady,
                     "now", json_count_new(model.expert_slot_bytes), "tokens",
                     json_count_new(tokens));
}

/* NULL with *failure filled. */
static char *whatif_new(struct experts *experts, struct failure *failure)
{
    struct byte_list bytes = { 0 };
    mf_route_trace *trace = NULL;
    mf_error why = { .text = "" };
    size_t tokens = 0;
    char *text = NULL;
    mf_status status = route_log_trace(&bytes, &tokens, experts, &why);

    if (status == MF_OK && tokens == 0) {
        refuse(failure, FAILURE_CONFLICT, NULL,
               "no routes are recorded: tokens count that are computed while "
               "/v1/moeflux/experts is being watched");
        return NULL;
    }
    if (status == MF_OK) status = mf_route_trace_open(&trace, bytes.bytes, bytes.count, &why);
    if (status == MF_OK) {
        json_t *rates = rates_new(experts, trace, tokens);
        text = rates ? json_dumps(rates, JSON_COMPACT) : NULL;
        json_decref(rates);
        if (!text) status = fail_memory(&why, bytes.count);
    }
    mf_route_trace_close(trace);
    byte_list_free(&bytes);
    if (status != MF_OK) refuse_error(failure, &why);
    return text;
}

void whatif_reply(struct serve *serve, struct exchange *exchange)
{
    struct experts *experts = serve->experts;
    struct failure failure;

    pthread_mutex_lock(&experts->whatif_lock); /* one at a time; the others get its reply */
    if (!experts->whatif || clock_seconds() - experts->whatif_at > kept_seconds) {
        free(experts->whatif);
        experts->whatif = whatif_new(experts, &failure);
        experts->whatif_at = clock_seconds();
    }
    if (experts->whatif)
        exchange_reply_copy(exchange, 200, "application/json", experts->whatif,
                            strlen(experts->whatif));
    else
        failure_reply(exchange, DIALECT_OPENAI, &failure);
    pthread_mutex_unlock(&experts->whatif_lock);
}
