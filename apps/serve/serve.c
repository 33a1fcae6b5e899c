#include "serve/serve.h"

#include "common/clock.h"
#include "moeflux_tools.h"
#include "view/experts.h"
#include "batch/batches.h"
#include "batch/files.h"
#include "serve/guard.h"
#include "serve/metrics.h"
#include "dialects/reasoning_token.h"
#include "dialects/recall.h"
#include "view/registry.h"
#include "serve/routes.h"
#include "records/state_store.h"

#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

enum { BODY_LIMIT = 32 << 20, CONNECTION_LIMIT = 1024 };

/* ------------------------------------------------------------------ requests */

static bool is_ready(const struct serve *serve, struct failure *failure)
{
    enum serve_phase phase = atomic_load(&serve->phase);

    if (phase == SERVE_READY) return true;
    return refuse(failure, FAILURE_CLOSING, NULL,
                  phase == SERVE_LOADING ? "the model is being loaded"
                                         : "the server is shutting down");
}

/* An upload goes to a file of the store. */
static bool prepare_body(const struct serve *serve, struct exchange *exchange,
                         const struct route *route, struct failure *failure)
{
    const char *length = exchange_header(exchange, "Content-Length");
    mf_error why = { .text = "" };

    if (!(route->flags & ROUTE_UPLOAD)) return true;
    if (!serve->store) return refuse_no_store(failure);
    if (length && state_has_room(serve->store, strtoull(length, NULL, 10), &why) != MF_OK)
        return refuse(failure, FAILURE_TOO_LARGE, NULL, "%s", why.text);
    int spool = state_spool(serve->store);
    if (spool < 0)
        return refuse(failure, FAILURE_ENGINE, NULL, "no file can be made in --state-dir");
    exchange_spool_body(exchange, spool, serve->options.state_limit_bytes);
    return true;
}

bool serve_admit(void *user, struct exchange *exchange)
{
    const struct serve *serve = user;
    struct failure failure;
    const struct route *route =
        route_find(exchange_method(exchange), exchange_path(exchange), &failure);
    bool done = route && guard_origin(serve, exchange, &failure) &&
                (route->flags & ROUTE_OPEN || guard_key(serve, exchange, &failure)) &&
                (route->flags & ROUTE_OPEN || is_ready(serve, &failure)) &&
                guard_type(exchange, route->flags & ROUTE_UPLOAD, &failure) &&
                prepare_body(serve, exchange, route, &failure);

    if (!done) failure_reply(exchange, route_dialect(route, exchange), &failure);
    exchange_set_user(exchange, (void *)(uintptr_t)route);
    return done;
}

void serve_handle(void *user, struct exchange *exchange)
{
    struct serve *serve = user;
    const struct route *route = exchange_user(exchange);

    exchange_set_user(exchange, NULL);
    route->handle(serve, exchange);
}

void serve_oversize(void *user, struct exchange *exchange)
{
    const struct serve *serve = user;
    const struct route *route = exchange_user(exchange);
    struct failure failure;

    if (route->flags & ROUTE_UPLOAD)
        refuse(&failure, FAILURE_TOO_LARGE, NULL,
               "the file is larger than --state-limit, %llu MiB, or its disk is full",
               (unsigned long long)serve->options.state_limit_bytes >> 20);
    else
        refuse(&failure, FAILURE_TOO_LARGE, NULL, "the body is larger than %d MiB",
               BODY_LIMIT >> 20);
    failure_reply(exchange, route_dialect(route, exchange), &failure);
}

/* ---------------------------------------------------------------------- life */

static void count_step(void *user, const mf_step_report *step)
{
    const struct serve *serve = user;

    metrics_add_step(serve->metrics, step, serve->expert_layers);
}

static mf_status open_scheduler(struct serve *serve, mf_error *why)
{
    mf_scheduler_options options = MF_SCHEDULER_OPTIONS_INIT;
    mf_experts experts = MF_EXPERTS_INIT;
    mf_status status = mf_model_experts(serve->model, &experts, why);

    if (status != MF_OK) return status;
    serve->expert_layers = experts.row_count;
    options.step = count_step;
    options.step_user = serve;
    options.parallel = serve->options.parallel;
    options.waiting = serve->options.queue;
    options.max_gap_seconds = serve->options.max_gap_seconds;
    return mf_scheduler_open(&serve->scheduler, serve->model, &options, why);
}

/* Descriptors that `limit` connections may take: one each, and another one for the request that is
 * under way on it. */
static rlim_t files_of(uint32_t limit)
{
    return 2 * (rlim_t)limit + http_spare_connections(limit);
}

/* The connections that the process may have the descriptors for, beside those of the model and the
 * caches. */
static mf_status choose_limit(uint32_t *out, mf_error *why)
{
    enum { OTHERS = 384, OTHERS_LEAST = 96, LIMIT_LEAST = 16 };
    rlim_t wanted = OTHERS + files_of(CONNECTION_LIMIT);
    struct rlimit files;

    *out = CONNECTION_LIMIT;
    if (getrlimit(RLIMIT_NOFILE, &files) != 0 || files.rlim_cur >= wanted) return MF_OK;
    struct rlimit raised = { files.rlim_max < wanted ? files.rlim_max : wanted, files.rlim_max };
    if (setrlimit(RLIMIT_NOFILE, &raised) == 0) files = raised;
    while (*out > LIMIT_LEAST && OTHERS + files_of(*out) > files.rlim_cur) --*out;
    if (OTHERS_LEAST + files_of(*out) <= files.rlim_cur) return MF_OK;
    return fail(why, MF_ERR_ARGUMENT,
                "the process may have %llu files open (ulimit -n): the server needs at least %llu",
                (unsigned long long)files.rlim_cur,
                (unsigned long long)(OTHERS_LEAST + files_of(LIMIT_LEAST)));
}

static mf_status open_http(struct serve *serve, mf_error *why)
{
    struct http_options options = { .host = serve->options.host,
                                    .port = serve->options.port,
                                    .body_limit = BODY_LIMIT,
                                    .body_seconds = 120,
                                    .idle_seconds = 75,
                                    .send_seconds = 60,
                                    .admit = serve_admit,
                                    .handle = serve_handle,
                                    .oversize = serve_oversize,
                                    .user = serve };
    mf_status status = choose_limit(&options.connection_limit, why);

    if (status != MF_OK) return status;
    return http_server_open(&serve->http, &options, why);
}

static mf_status learn_context(struct serve *serve, mf_error *why)
{
    mf_sequence *sequence = NULL;
    mf_model_shape shape = MF_MODEL_SHAPE_INIT;
    mf_status status = mf_model_get_shape(&shape, serve->model, why);

    serve->has_checkpoints = shape.delta_layers + shape.window_layers > 0;
    if (status == MF_OK) status = mf_sequence_open(&sequence, serve->model, NULL, why);
    if (status == MF_OK) serve->context = mf_sequence_context_length(sequence);
    mf_sequence_close(sequence);
    return status;
}

mf_status serve_open(struct serve **out, const struct serve_options *options, mf_error *why)
{
    struct serve *serve = calloc(1, sizeof *serve);
    mf_status status;

    *out = NULL;
    if (!serve) return fail_memory(why, sizeof *serve);
    serve->options = *options;
    serve->started = clock_seconds();
    status = metrics_new(&serve->metrics, why);
    if (status == MF_OK) status = registry_new(&serve->registry, why);
    if (status == MF_OK) status = recall_new(&serve->recall, why);
    if (status == MF_OK && options->state_directory)
        status = state_store_open(&serve->store, options->state_directory,
                                  options->state_limit_bytes, why);
    if (status == MF_OK) status = reasoning_key_load(serve->secret, options->state_directory, why);
    if (status == MF_OK && options->host) status = open_http(serve, why);
    if (status == MF_OK)
        *out = serve;
    else
        serve_close(serve, 0);
    return status;
}

/* The model has been opened: if it cannot be described now, that is no reason to end. */
static struct model_facts describe_model(const char *path)
{
    struct model_facts facts = { 0 };
    mf_description *description = NULL;
    mf_description_info info = MF_DESCRIPTION_INFO_INIT;
    uint64_t most = 0;

    if (mf_description_open(&description, path, NULL) != MF_OK) return facts;
    if (mf_description_get(&info, description, NULL) == MF_OK) facts.parameters = info.parameters;
    for (uint32_t format = 0; format < mf_format_count(); format++) {
        uint64_t bytes = mf_description_sum(description, -1, (int)format).bytes;
        if (bytes <= most) continue;
        most = bytes;
        facts.format = mf_format_name(format);
    }
    mf_description_close(description);
    return facts;
}

mf_status serve_begin(struct serve *serve, mf_model *model, const char *path, mf_error *why)
{
    mf_status status;

    serve->model = model;
    serve->text = mf_model_text(model);
    serve->facts = describe_model(path);
    status = learn_context(serve, why);
    if (status == MF_OK) status = experts_new(&serve->experts, serve, why);
    if (status == MF_OK) status = open_scheduler(serve, why);
    if (status == MF_OK && serve->store) status = batches_start(&serve->batches, serve, why);
    if (status != MF_OK) return status;
    atomic_store(&serve->phase, SERVE_READY);
    batches_wake(serve->batches);
    return MF_OK;
}

void serve_close(struct serve *serve, double seconds)
{
    double until = clock_seconds() + seconds;

    if (!serve) return;
    batches_stop(serve->batches); /* before requests are refused: theirs would be failures */
    atomic_store(&serve->phase, SERVE_CLOSING);
    if (serve->http) http_server_quiesce(serve->http);
    while (serve->registry && registry_active(serve->registry) > 0 && clock_seconds() < until)
        usleep(20000);
    http_server_close(serve->http); /* handlers end, and their jobs with them */
    batches_free(serve->batches);
    mf_scheduler_close(serve->scheduler);
    experts_free(serve->experts);
    state_store_close(serve->store);
    recall_free(serve->recall);
    registry_free(serve->registry);
    metrics_free(serve->metrics);
    free(serve);
}
