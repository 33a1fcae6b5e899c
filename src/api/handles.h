/* handles.h: what the public opaque types are. */
#ifndef API_HANDLES_H
#define API_HANDLES_H

#include "base/machine.h"
#include "engine/sampler.h"
#include "engine/session.h"
#include "model/families.h"
#include "model/model.h"

#include <pthread.h>

struct mf_engine {
    mf_allocator allocator;
    mf_files files;
    struct logger logger;
    struct machine machine;
    struct thread_pool *pool;
    struct backend *backend;
    const struct kernels *kernels;
    /* Held while a session computes: pool, backend scratch and expert store have one
     * user at a time.  The only lock of the library. */
    pthread_mutex_t lock;
};

struct mf_model {
    mf_engine *engine;
    struct model model;
    struct expert_store *experts;
};

struct mf_session {
    mf_model *model;
    struct session session;
};

/* mf_model_open for any source. */
mf_status api_model_open(mf_model **out, mf_engine *engine, const char *path,
                         const struct seeds_paths *seeds, const mf_model_options *options,
                         mf_error *why);

struct mf_sampler {
    const mf_allocator *allocator;
    struct sampler *sampler;
};

#endif
