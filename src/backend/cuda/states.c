/* states.c: pages and recurrent states.
 *
 * They lie in the device's memory, up to a share of its limit; what is beyond that is pinned memory of
 * the host, which kernels reach over the bus.  The bits are the same.
 *
 * Copies have a stream of their own.  They need not wait for steps: a step has finished with the states
 * of its sequences when it ends, and a block that another holds is not written. */
#include "backend/cuda/device.h"

/* Of the device's limit: the states' part is 1 / STATE_SHARE. */
enum { STATE_SHARE = 4 };

/* False: the limits do not allow it. */
static bool count_bytes(struct cuda_backend *b, size_t bytes)
{
    uint64_t most = b->device_bytes / STATE_SHARE;
    if (atomic_fetch_add(&b->state_bytes, bytes) + bytes > most) {
        atomic_fetch_sub(&b->state_bytes, bytes);
        return false;
    }
    if (cuda_count_bytes(b, bytes)) return true;
    atomic_fetch_sub(&b->state_bytes, bytes);
    return false;
}

static void *allocate_on_device(struct cuda_backend *b, size_t bytes)
{
    void *memory = NULL;
    if (!count_bytes(b, bytes)) return NULL;
    cudaError_t error = cudaMallocAsync(&memory, bytes, b->state_stream);
    if (error == cudaSuccess) error = cudaStreamSynchronize(b->state_stream);
    if (error == cudaSuccess) return memory;
    (void)cudaGetLastError();
    atomic_fetch_sub(&b->state_bytes, bytes);
    atomic_fetch_sub(&b->taken_bytes, bytes);
    return NULL;
}

static void *allocate(void *user, size_t bytes)
{
    void *memory = allocate_on_device(user, bytes);
    if (memory) return memory;
    if (cudaHostAlloc(&memory, bytes, cudaHostAllocDefault) == cudaSuccess) return memory;
    (void)cudaGetLastError();
    return NULL;
}

static void release(void *user, void *memory, size_t bytes)
{
    struct cuda_backend *b = user;
    struct cudaPointerAttributes attributes = { .type = cudaMemoryTypeHost };
    (void)cudaPointerGetAttributes(&attributes, memory);
    if (attributes.type == cudaMemoryTypeHost) {
        (void)cudaFreeHost(memory);
        return;
    }
    (void)cudaFreeAsync(memory, b->state_stream);
    atomic_fetch_sub(&b->state_bytes, bytes);
    atomic_fetch_sub(&b->taken_bytes, bytes);
}

/* What the caller is told is not for the next step to report. */
static bool is_done(const struct cuda_backend *b, cudaError_t error)
{
    if (error == cudaSuccess) error = cudaStreamSynchronize(b->state_stream);
    if (error != cudaSuccess) (void)cudaGetLastError();
    return error == cudaSuccess;
}

static bool copy(void *user, void *to, const void *from, size_t bytes)
{
    const struct cuda_backend *b = user;
    return is_done(b, cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, b->state_stream));
}

static bool clear(void *user, void *memory, size_t bytes)
{
    const struct cuda_backend *b = user;
    return is_done(b, cudaMemsetAsync(memory, 0, bytes, b->state_stream));
}

void cuda_begin_states(struct cuda_backend *b)
{
    cuda_note(b, cudaStreamCreateWithFlags(&b->state_stream, cudaStreamNonBlocking));
    b->states = (struct state_memory){
        .allocate = allocate, .release = release, .copy = copy, .clear = clear, .user = b
    };
    b->base.state_memory = &b->states;
}

void cuda_end_states(struct cuda_backend *b)
{
    if (!b->state_stream) return;
    cuda_note(b, cudaStreamSynchronize(b->state_stream));
    cuda_note(b, cudaStreamDestroy(b->state_stream));
}
