#include "view/experts_internal.h"

#include "common/basics.h"
#include "moeflux_tools.h"

#include <stdlib.h>

/* ----------------------------------------------------------------- recording */

bool route_log_new(struct route_log *log, uint32_t choice_count)
{
    log->rows = calloc(ROUTE_ROWS, sizeof *log->rows);
    log->experts = calloc((size_t)ROUTE_ROWS * choice_count, sizeof *log->experts);
    if (log->rows && log->experts) return true;
    route_log_free(log);
    return false;
}

void route_log_free(struct route_log *log)
{
    free(log->rows);
    free(log->experts);
    *log = (struct route_log){ 0 };
}

/* Places for the rows of a step, of which only the last ROUTE_ROWS are kept. */
static void begin_rows(struct experts *experts, struct expert_trail *trail, const mf_routes *routes)
{
    struct route_log *log = &experts->log;

    if (log->fresh) log->step++;
    log->fresh = false;
    trail->session = experts->session;
    trail->first = log->next;
    trail->count = (uint32_t)min_size(routes->row_count, ROUTE_ROWS);
    for (uint32_t i = 0; i < trail->count; i++, log->next++)
        log->rows[log->next % ROUTE_ROWS] = (struct route_row){
            .number = log->next,
            .step = log->step,
            .token = routes->tokens[routes->row_count - trail->count + i],
        };
}

bool route_log_add(struct experts *experts, struct expert_trail *trail, const mf_routes *routes,
                   uint32_t row)
{
    struct route_log *log = &experts->log;
    uint32_t choices = experts->choice_count, per_row = experts->layout.experts_per_token;
    bool is_last = row + 1 == experts->layout.row_count;

    if (row == 0) begin_rows(experts, trail, routes);
    log->fresh |= row > 0 || is_last;
    if (trail->session != experts->session || trail->count == 0) return false;
    uint32_t skipped = routes->row_count - trail->count;
    for (uint32_t i = 0; i < trail->count; i++) {
        size_t at = (trail->first + i) % ROUTE_ROWS;
        if (log->rows[at].number != trail->first + i) continue; /* others have taken its place */
        uint16_t *out = log->experts + at * choices + (size_t)row * per_row;
        const uint32_t *chosen = routes->experts + (size_t)(skipped + i) * per_row;
        for (uint32_t k = 0; k < per_row; k++) out[k] = (uint16_t)chosen[k];
        log->rows[at].complete = is_last;
    }
    if (!is_last) return false;
    trail->count = 0;
    return true;
}

/* ------------------------------------------------------------------- a trace */

/* Copies of the rows that are complete, in the order of their numbers. */
struct rows {
    struct route_row *rows;
    uint16_t *experts;
    size_t count;
};

static bool copy_rows(struct rows *out, struct experts *experts)
{
    const struct route_log *log = &experts->log;
    size_t choices = experts->choice_count;

    *out = (struct rows){ .rows = calloc(ROUTE_ROWS, sizeof *out->rows),
                          .experts = calloc(ROUTE_ROWS * choices, sizeof *out->experts) };
    if (!out->rows || !out->experts) return false;
    pthread_mutex_lock(&experts->lock);
    uint64_t first = log->next > ROUTE_ROWS ? log->next - ROUTE_ROWS : 0;
    for (uint64_t number = first; log->rows && number < log->next; number++) {
        size_t at = number % ROUTE_ROWS;
        if (!log->rows[at].complete) continue;
        memcpy(out->experts + out->count * choices, log->experts + at * choices,
               choices * sizeof *out->experts);
        out->rows[out->count++] = log->rows[at];
    }
    pthread_mutex_unlock(&experts->lock);
    return true;
}

/* The arrays of mf_routes for as many rows. */
struct layer_routes {
    int32_t *tokens;
    uint32_t *experts;
    float *weights; /* zeros: what is replayed does not depend on them */
};

static void add_step(mf_route_recorder *recorder, const struct experts *experts,
                     const struct rows *rows, struct layer_routes *arrays, size_t from, size_t to)
{
    uint32_t per_row = experts->layout.experts_per_token;

    for (size_t i = from; i < to; i++) arrays->tokens[i - from] = rows->rows[i].token;
    for (uint32_t row = 0; row < experts->layout.row_count; row++) {
        for (size_t i = from; i < to; i++) {
            const uint16_t *chosen =
                rows->experts + i * experts->choice_count + (size_t)row * per_row;
            uint32_t *out = arrays->experts + (i - from) * per_row;
            for (uint32_t k = 0; k < per_row; k++) out[k] = chosen[k];
        }
        mf_routes routes = { .layer = experts->layout.rows[row],
                             .row_count = (uint32_t)(to - from),
                             .per_row = per_row,
                             .tokens = arrays->tokens,
                             .experts = arrays->experts,
                             .weights = arrays->weights };
        mf_route_recorder_add(recorder, &routes);
    }
}

static bool append_bytes(void *user, const void *bytes, size_t count)
{
    return byte_list_append(user, bytes, count, NULL) == MF_OK;
}

static mf_status write_rows(struct byte_list *out, const struct experts *experts,
                            const struct rows *rows, struct layer_routes *arrays, mf_error *why)
{
    mf_route_recorder *recorder;
    mf_status status =
        mf_route_recorder_open_for(&recorder, experts->serve->model, append_bytes, out, why);

    if (status != MF_OK) return status;
    for (size_t from = 0, to; from < rows->count; from = to) {
        for (to = from + 1; to < rows->count && rows->rows[to].step == rows->rows[from].step; to++)
            continue;
        add_step(recorder, experts, rows, arrays, from, to);
    }
    status = mf_route_recorder_finish(recorder, why);
    mf_route_recorder_close(recorder);
    return status;
}

mf_status route_log_trace(struct byte_list *out, size_t *count, struct experts *experts,
                          mf_error *why)
{
    size_t choices = (size_t)ROUTE_ROWS * experts->layout.experts_per_token;
    struct rows rows;
    struct layer_routes arrays = { .tokens = calloc(ROUTE_ROWS, sizeof *arrays.tokens),
                                   .experts = calloc(choices, sizeof *arrays.experts),
                                   .weights = calloc(choices, sizeof *arrays.weights) };
    mf_status status = MF_OK;

    if (!copy_rows(&rows, experts) || !arrays.tokens || !arrays.experts || !arrays.weights)
        status = fail_memory(why, choices * sizeof *arrays.experts);
    *count = rows.count;
    if (status == MF_OK && rows.count > 0) status = write_rows(out, experts, &rows, &arrays, why);
    free(rows.rows);
    free(rows.experts);
    free(arrays.tokens);
    free(arrays.experts);
    free(arrays.weights);
    return status;
}
