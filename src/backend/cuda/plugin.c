/* plugin.c: what the library finds in the plugin: a device, its memory, the table of the backend. */
#include "backend/cuda/device.h"

#include <stdio.h>

/* --------------------------------------------------------------------------------------- errors */

bool cuda_note(struct cuda_backend *b, cudaError_t error)
{
    if (error != cudaSuccess && b->failed == cudaSuccess) b->failed = error;
    return error == cudaSuccess;
}

mf_status cuda_check(struct cuda_backend *b, mf_error *why)
{
    cuda_note(b, cudaGetLastError());
    cudaError_t failed = b->failed;
    b->failed = cudaSuccess;
    if (failed == cudaSuccess) return MF_OK;
    if (failed == cudaErrorMemoryAllocation)
        return fail(why, MF_ERR_MEMORY,
                    "the CUDA device has no more memory, or the host none to pin");
    return fail(why, MF_ERR_DEVICE, "the CUDA device failed: %s (%s)", cudaGetErrorString(failed),
                cudaGetErrorName(failed));
}

/* --------------------------------------------------------------------------------------- memory */

bool cuda_count_bytes(struct cuda_backend *b, size_t bytes)
{
    if (atomic_fetch_add(&b->taken_bytes, bytes) + bytes <= b->device_bytes) return true;
    atomic_fetch_sub(&b->taken_bytes, bytes);
    return false;
}

void *cuda_take(struct cuda_backend *b, size_t bytes)
{
    const size_t behind = 16; /* kernels load whole words, the last of which may end behind */
    void *memory = NULL;
    if (!cuda_count_bytes(b, bytes)) return NULL;
    cudaError_t error = cudaMallocAsync(&memory, bytes + behind, b->stream);
    if (error == cudaErrorMemoryAllocation)
        (void)cudaGetLastError(); /* which is no failure: others may make room */
    else if (cuda_note(b, error))
        return memory;
    atomic_fetch_sub(&b->taken_bytes, bytes);
    return NULL;
}

void cuda_give(struct cuda_backend *b, void *memory, size_t bytes)
{
    if (!memory) return;
    cuda_note(b, cudaFreeAsync(memory, b->stream));
    atomic_fetch_sub(&b->taken_bytes, bytes);
}

bool cuda_grow(struct cuda_backend *b, void **memory, size_t *capacity, size_t bytes)
{
    if (*capacity >= bytes) return true;
    cuda_drop_replays(b);
    cuda_give(b, *memory, *capacity);
    *memory = cuda_take(b, bytes);
    *capacity = *memory ? bytes : 0;
    return *memory != NULL;
}

static void *allocate(struct backend *backend, size_t bytes)
{
    return cuda_take((struct cuda_backend *)backend, bytes);
}

static void release(struct backend *backend, void *memory, size_t bytes)
{
    cuda_give((struct cuda_backend *)backend, memory, bytes);
}

static mf_status copy(struct backend *backend, void *to, const void *from, size_t bytes,
                      mf_error *why)
{
    struct cuda_backend *b = (struct cuda_backend *)backend;
    cuda_note(b, cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, b->stream));
    cuda_note(b, cudaStreamSynchronize(b->stream));
    return cuda_check(b, why);
}

static mf_status finish(struct backend *backend, bool whole, mf_error *why)
{
    struct cuda_backend *b = (struct cuda_backend *)backend;
    cuda_end_step(b, whole);
    /* What a step that failed has not copied must not be copied in a recording. */
    if (!whole) cuda_drop_replays(b);
    cuda_note(b, cudaStreamSynchronize(b->stream));
    return cuda_check(b, why);
}

static uint64_t free_bytes(const struct backend *backend)
{
    const struct cuda_backend *b = (const struct cuda_backend *)backend;
    return b->device_bytes - atomic_load(&b->taken_bytes);
}

static void forget(struct backend *backend)
{
    cuda_forget((struct cuda_backend *)backend);
}

static bool pin(struct backend *backend, void *memory, size_t bytes)
{
    (void)backend;
    if (cudaHostRegister(memory, bytes, cudaHostRegisterDefault) == cudaSuccess) return true;
    (void)cudaGetLastError(); /* which is no failure */
    return false;
}

static void unpin(struct backend *backend, void *memory)
{
    cuda_note((struct cuda_backend *)backend, cudaHostUnregister(memory));
}

/* -------------------------------------------------------------------------------------- reserve */

/* Scratch of latent attention, the only op with any. */
static size_t scratch_floats(const struct backend_sizes *sizes)
{
    struct cuda_latent shape = { .heads = (uint32_t)sizes->latent.heads,
                                 .latent_width = (uint32_t)sizes->latent.latent,
                                 .nope_width = (uint32_t)sizes->latent.nope,
                                 .rope_width = (uint32_t)sizes->latent.rope,
                                 .value_width = (uint32_t)sizes->latent.values };
    return shape.heads > 0 ? cuda_latent_scratch(&shape, (uint32_t)sizes->row_count) : 0;
}

/* Of the host; what a device keeps is its own business. */
static size_t reserve_bytes(const struct backend *backend, const struct backend_sizes *sizes)
{
    (void)backend;
    (void)sizes;
    return 0;
}

static mf_status reserve(struct backend *backend, const struct backend_sizes *sizes, mf_error *why)
{
    struct cuda_backend *b = (struct cuda_backend *)backend;
    if (sizes->delta_keys > CUDA_DELTA_KEYS_MAX || sizes->experts > CUDA_EXPERTS_MAX)
        return fail(why, MF_ERR_UNSUPPORTED,
                    "the backend cuda runs models with up to %d experts in a layer and delta nets "
                    "with keys of up to %d numbers",
                    CUDA_EXPERTS_MAX, CUDA_DELTA_KEYS_MAX);
    size_t floats = scratch_floats(sizes), bytes = b->scratch_floats * sizeof(float);
    void *scratch = b->scratch;
    bool grown = cuda_grow(b, &scratch, &bytes, floats * sizeof(float));
    b->scratch = scratch;
    b->scratch_floats = bytes / sizeof(float);
    mf_status status = cuda_check(b, why);
    if (status == MF_OK && !grown)
        status = fail(why, MF_ERR_MEMORY, "the device has no memory for steps of %zu rows",
                      sizes->row_count);
    return status;
}

/* ---------------------------------------------------------------------------------- new and free */

static void free_backend(struct backend *backend)
{
    struct cuda_backend *b = (struct cuda_backend *)backend;
    cuda_note(b, cudaStreamSynchronize(b->stream));
    cuda_forget(b);
    cuda_free_steps(b);
    cuda_free_staged(b);
    cuda_give(b, b->attend_scratch, b->attend_bytes);
    cuda_give(b, b->buckets, b->buckets_bytes);
    cuda_give(b, b->scratch, b->scratch_floats * sizeof(float));
    cuda_give(b, b->routes, b->routes_bytes);
    if (b->host_routes) cuda_note(b, cudaFreeHost(b->host_routes));
    if (b->copied) cuda_note(b, cudaEventDestroy(b->copied));
    if (b->stream) cuda_note(b, cudaStreamDestroy(b->stream));
    cuda_end_states(b);
    b->allocator->release(b->allocator->user, b, sizeof *b);
}

static const struct backend_functions functions = {
    .name = "cuda",
    .free = free_backend,
    .reserve_bytes = reserve_bytes,
    .reserve = reserve,
    .execute = cuda_execute,
    .run_experts = cuda_run_expert_batch,
    .allocate = allocate,
    .release = release,
    .copy = copy,
    .finish = finish,
    .begin_step = cuda_begin_step,
    .free_bytes = free_bytes,
    .hold_experts = cuda_hold_experts,
    .run_held_experts = cuda_run_held_experts,
    .forget = forget,
    .pin = pin,
    .unpin = unpin,
};

static mf_status find_device(mf_error *why)
{
    int count = 0, driver = 0;
    if (cudaDriverGetVersion(&driver) == cudaSuccess && driver == 0)
        return fail(why, MF_ERR_DEVICE, "no CUDA device can be used: there is no NVIDIA driver");
    cudaError_t error = cudaGetDeviceCount(&count);
    if (error == cudaSuccess && count > 0) return MF_OK;
    return fail(why, MF_ERR_DEVICE, "no CUDA device can be used: %s",
                error == cudaSuccess ? "there is none" : cudaGetErrorString(error));
}

static mf_status describe(struct cuda_device *out, mf_error *why)
{
    struct cudaDeviceProp properties;
    size_t free_bytes = 0, total_bytes = 0;
    *out = (struct cuda_device){ .major = 0 };
    mf_status status = find_device(why);
    if (status != MF_OK) return status;
    cudaError_t error = cudaGetDeviceProperties(&properties, 0);
    if (error == cudaSuccess) error = cudaDriverGetVersion(&out->driver);
    if (error == cudaSuccess) error = cudaRuntimeGetVersion(&out->runtime);
    if (error == cudaSuccess) error = cudaMemGetInfo(&free_bytes, &total_bytes);
    if (error != cudaSuccess)
        return fail(why, MF_ERR_DEVICE, "the CUDA device cannot be asked: %s",
                    cudaGetErrorString(error));
    snprintf(out->name, sizeof out->name, "%s", properties.name);
    out->major = properties.major;
    out->minor = properties.minor;
    out->total_bytes = total_bytes;
    out->free_bytes = free_bytes;
    return MF_OK;
}

/* Freed memory stays with the process: experts come and go in pieces of few sizes. */
static void keep_freed_memory(struct cuda_backend *b)
{
    cudaMemPool_t pool;
    uint64_t threshold = UINT64_MAX;
    if (cuda_note(b, cudaDeviceGetDefaultMemPool(&pool, 0)))
        cuda_note(b, cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &threshold));
}

/* A limit counts what the process has on the device already: its context. */
static uint64_t limit_within(uint64_t limit, const struct cuda_device *device)
{
    const uint64_t spare = UINT64_C(256) << 20; /* for what the driver needs as it runs */
    uint64_t used = device->total_bytes - device->free_bytes;
    uint64_t most = device->free_bytes > spare ? device->free_bytes - spare : 0;
    if (limit == 0) return most;
    return min_size(limit > used ? limit - used : 0, most);
}

static mf_status open_backend(struct backend **out, const struct cuda_options *options,
                              mf_error *why)
{
    const mf_allocator *allocator = options->allocator;
    struct cuda_device device;
    *out = NULL;
    mf_status status = describe(&device, why);
    if (status != MF_OK) return status;
    struct cuda_backend *b = allocator->allocate(allocator->user, sizeof *b, CACHE_LINE);
    if (!b) return fail_memory(why, sizeof *b);
    *b = (struct cuda_backend){ .base = { .functions = &functions, .kv_format = KV_F16 },
                                .allocator = allocator,
                                .exact = options->exact,
                                .device_bytes = limit_within(options->device_bytes, &device) };
    cuda_begin_states(b);
    cuda_note(b, cudaStreamCreateWithFlags(&b->stream, cudaStreamNonBlocking));
    cuda_note(b, cudaEventCreateWithFlags(&b->copied, cudaEventDisableTiming));
    keep_freed_memory(b);
    status = cuda_check(b, why);
    if (status == MF_OK)
        *out = &b->base;
    else
        free_backend(&b->base);
    return status;
}

extern const struct cuda_plugin cuda_plugin;
__attribute__((visibility("default"))) const struct cuda_plugin cuda_plugin = {
    .version = MOEFLUX_VERSION,
    .table_bytes = sizeof(struct backend_functions),
    .describe = describe,
    .open = open_backend,
};
