/* engine.c: mf_engine_*: threads, kernels, allocator, files. */
#include "api/handles.h"

#include "backend/cuda/cuda.h"
#include "base/status.h"
#include "kernels/select.h"

const char *mf_version(void)
{
    return MOEFLUX_VERSION;
}

/* "reference" is the plain f32 arithmetic, "cpu" the tuned one, "cuda" a device's.  Without a name the
 * reference uses the generic set and the tuned arithmetic the best set for this machine. */
static mf_status choose_kernels(mf_engine *engine, const mf_engine_options *options, mf_error *why)
{
    const char *backend = options->backend ? options->backend : "cpu";
    engine->exact = strcmp(backend, "reference") == 0;
    engine->cuda = strcmp(backend, "cuda") == 0;
    if (!engine->exact && !engine->cuda && strcmp(backend, "cpu") != 0)
        return fail(why, MF_ERR_ARGUMENT,
                    "the backend \"%.32s\" is not known; there are reference, cpu and cuda",
                    backend);
    const char *name = options->kernels;
    if (!name && engine->exact) name = "generic";
    if (engine->cuda && name) {
        if (strcmp(name, "f32") != 0)
            return fail(why, MF_ERR_ARGUMENT,
                        "the backend cuda has no kernels \"%.32s\"; there are f32, which computes "
                        "prompts without tensor cores",
                        name);
        engine->exact = true;
        name = NULL;
    }
    return kernels_choose(&engine->kernels, &engine->machine, name, why);
}

static mf_status open_backend(mf_engine *engine, const mf_engine_options *options, mf_error *why)
{
    struct cuda_options cuda = { .allocator = &engine->allocator,
                                 .exact = engine->exact,
                                 .device_bytes = options->device_bytes };
    if (engine->cuda) return backend_cuda_new(&engine->backend, &cuda, why);
    return backend_cpu_new(&engine->backend, &engine->allocator, engine->pool, engine->kernels,
                           engine->exact, why);
}

/* More threads than CPUs only wait for each other.  A count that no pool takes is left to it to
 * refuse. */
static unsigned choose_threads(const mf_engine *engine, unsigned wanted)
{
    unsigned cpus = engine->machine.core_count;
    if (wanted == 0) return cpus;
    if (wanted <= cpus || wanted > THREADS_MAX) return wanted;
    log_note(&engine->logger, MF_LOG_WARNING,
             "%u threads were asked for and %u %s used: that many CPUs are free to this process",
             wanted, cpus, cpus == 1 ? "is" : "are");
    return cpus;
}

mf_status mf_engine_open(mf_engine **out, const mf_engine_options *options, mf_error *why)
{
    if (!out) return api_missing(why, "out");
    *out = NULL;
    mf_engine_options own;
    mf_status status = api_options_in(&own, sizeof own, options, "MF_ENGINE_OPTIONS_INIT", why);
    if (status != MF_OK) return status;
    options = &own;
    mf_allocator allocator = options->allocator ? *options->allocator : allocator_heap;
    mf_engine *engine = api_new_handle(&allocator, sizeof *engine);
    if (!engine) return fail_memory(why, sizeof *engine);
    engine->allocator = allocator;
    engine->files = options->files ? *options->files : files_posix;
    engine->logger = (struct logger){ options->log, options->log_user };
    pthread_mutex_init(&engine->lock, NULL);
    machine_probe(&engine->machine);

    unsigned threads = choose_threads(engine, options->thread_count);
    status = choose_kernels(engine, options, why);
    if (status == MF_OK) status = thread_pool_new(&engine->pool, &engine->allocator, threads, why);
    if (status == MF_OK) status = open_backend(engine, options, why);
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

uint32_t mf_engine_thread_count(const mf_engine *engine)
{
    return engine ? thread_pool_size(engine->pool) : 0;
}

const char *mf_engine_kernels(const mf_engine *engine)
{
    if (!engine) return NULL;
    return engine->cuda ? engine->exact ? "cuda f32" : "cuda" : engine->kernels->name;
}

void mf_engine_flush_trace(mf_engine *engine)
{
    if (!engine) return;
    pthread_mutex_lock(&engine->lock);
    tracer_flush(engine->tracer);
    pthread_mutex_unlock(&engine->lock);
}

const char *mf_stage_name(mf_stage stage)
{
    return stage_name(stage);
}
