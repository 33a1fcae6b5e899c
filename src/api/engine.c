/* engine.c: mf_engine_*: threads, kernels, allocator, files. */
#include "api/handles.h"

#include "base/status.h"

const char *mf_version(void)
{
    return MOEFLUX_VERSION;
}

/* "reference" is the plain arithmetic with the plain set of kernels, "cpu" the tuned one with
 * the best set for this machine. */
static mf_status choose_kernels(mf_engine *engine, const char *backend, mf_error *why)
{
    if (!backend || strcmp(backend, "cpu") == 0)
        engine->kernels = kernels_select(&engine->machine, NULL);
    else if (strcmp(backend, "reference") == 0)
        engine->kernels = kernels_select(&engine->machine, "generic");
    else
        return fail(why, MF_ERR_ARGUMENT,
                    "the backend \"%.32s\" is not known; there are reference and cpu", backend);
    engine->exact = backend && strcmp(backend, "reference") == 0;
    return MF_OK;
}

mf_status mf_engine_open(mf_engine **out, const mf_engine_options *options, mf_error *why)
{
    if (!out) return api_missing(why, "out");
    *out = NULL;
    mf_engine_options none = { 0 };
    if (!options) options = &none;
    mf_allocator allocator = options->allocator ? *options->allocator : allocator_heap;
    mf_engine *engine = api_new_handle(&allocator, sizeof *engine);
    if (!engine) return fail_memory(why, sizeof *engine);
    engine->allocator = allocator;
    engine->files = options->files ? *options->files : files_posix;
    engine->logger = (struct logger){ options->log, options->log_user };
    pthread_mutex_init(&engine->lock, NULL);
    machine_probe(&engine->machine);

    unsigned threads = options->thread_count ? options->thread_count : engine->machine.core_count;
    mf_status status = choose_kernels(engine, options->backend, why);
    if (status == MF_OK) status = thread_pool_new(&engine->pool, &engine->allocator, threads, why);
    if (status == MF_OK)
        status = backend_cpu_new(&engine->backend, &engine->allocator, engine->pool,
                                 engine->kernels, engine->exact, why);
    if (status == MF_OK && (options->profile || options->trace))
        status = tracer_new(&engine->tracer,
                            &(struct tracer_options){ .allocator = &engine->allocator,
                                                      .machine = &engine->machine,
                                                      .worker_count = threads,
                                                      .function = options->trace,
                                                      .user = options->trace_user },
                            why);
    if (status == MF_OK) engine->backend->tracer = engine->tracer;
    if (status == MF_OK)
        *out = engine;
    else
        mf_engine_close(engine);
    return status;
}

void mf_engine_close(mf_engine *engine)
{
    if (!engine) return;
    if (engine->backend) engine->backend->functions->free(engine->backend);
    tracer_free(engine->tracer);
    thread_pool_free(engine->pool);
    pthread_mutex_destroy(&engine->lock);
    mf_allocator allocator = engine->allocator;
    allocator.release(allocator.user, engine, sizeof *engine);
}

void mf_engine_flush_trace(mf_engine *engine)
{
    pthread_mutex_lock(&engine->lock);
    tracer_flush(engine->tracer);
    pthread_mutex_unlock(&engine->lock);
}

const char *mf_stage_name(mf_stage stage)
{
    return stage_name(stage);
}
