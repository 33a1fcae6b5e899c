/* staging.c: small arrays of a step on their way to the device. */
#include "backend/cuda/device.h"

enum { ALIGNMENT = 256 };

static void release(struct cuda_backend *b, struct staged *staged)
{
    if (staged->host) cuda_note(b, cudaFreeHost(staged->host));
    if (staged->device) cuda_give(b, staged->device, staged->capacity);
    staged->host = staged->device = NULL;
    staged->capacity = 0;
}

static bool enlarge(struct cuda_backend *b, struct staged *staged, size_t bytes)
{
    if (staged->capacity >= bytes) return true;
    release(b, staged);
    bytes = max_size(2 * bytes, 1 << 16);
    void *host = NULL, *device = cuda_take(b, bytes);
    if (!device) return cuda_note(b, cudaErrorMemoryAllocation);
    staged->device = device;
    staged->capacity = bytes;
    if (cuda_note(b, cudaHostAlloc(&host, bytes, cudaHostAllocDefault))) {
        staged->host = host;
        return true;
    }
    release(b, staged);
    return false;
}

struct staged *cuda_stage(struct cuda_backend *b, size_t bytes, size_t count)
{
    struct staged *staged = &b->staged[b->next_staged];
    b->next_staged = (b->next_staged + 1) % STAGED_COUNT;
    if (!staged->sent &&
        !cuda_note(b, cudaEventCreateWithFlags(&staged->sent, cudaEventDisableTiming)))
        return NULL;
    if (!cuda_note(b, cudaEventSynchronize(staged->sent))) return NULL;
    if (!enlarge(b, staged, bytes + count * ALIGNMENT)) return NULL;
    staged->bytes = 0;
    return staged;
}

void *staged_room(struct staged *staged, size_t bytes, void **device)
{
    void *host = staged->host + staged->bytes;
    *device = staged->device + staged->bytes;
    staged->bytes += align_up(bytes, ALIGNMENT);
    return host;
}

void *staged_add(struct staged *staged, const void *array, size_t bytes)
{
    void *device;
    void *host = staged_room(staged, bytes, &device);
    if (bytes > 0) memcpy(host, array, bytes);
    return device;
}

void cuda_send(struct cuda_backend *b, struct staged *staged)
{
    if (staged->bytes > 0)
        cuda_note(b, cudaMemcpyAsync(staged->device, staged->host, staged->bytes,
                                     cudaMemcpyHostToDevice, b->stream));
    cuda_note(b, cudaEventRecord(staged->sent, b->stream));
}

void cuda_free_staged(struct cuda_backend *b)
{
    for (size_t i = 0; i < STAGED_COUNT; i++) {
        release(b, &b->staged[i]);
        if (b->staged[i].sent) cuda_note(b, cudaEventDestroy(b->staged[i].sent));
    }
}
