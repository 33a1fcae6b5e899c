/* device_memory.h: memory of a device, for tests of kernels.  What fails ends the test. */
#ifndef CUDA_DEVICE_MEMORY_H
#define CUDA_DEVICE_MEMORY_H

#include "support/test.h"

#include <cuda_runtime_api.h>
#include <stdbool.h>
#include <stdio.h>

static cudaStream_t stream;

static void must_run(cudaError_t error)
{
    if (error != cudaSuccess) fail_msg("%s", cudaGetErrorString(error));
}

static void finish(void)
{
    must_run(cudaStreamSynchronize(stream));
    must_run(cudaGetLastError());
}

/* Memory of the device with a copy of `bytes` at `offset`, or nothing in it; kernels may load the 16
 * bytes behind. */
static void *device_new(const void *from, size_t bytes, size_t offset)
{
    void *memory = NULL;
    must_run(cudaMallocAsync(&memory, offset + bytes + 16, stream));
    if (from)
        must_run(cudaMemcpyAsync((uint8_t *)memory + offset, from, bytes, cudaMemcpyHostToDevice,
                                 stream));
    return memory;
}

static void device_free(void *memory)
{
    if (memory) must_run(cudaFreeAsync(memory, stream));
}

static void copy_back(void *to, const void *from, size_t bytes)
{
    must_run(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, stream));
    finish();
}

/* Numbers between -1 and 1, the same every time. */
static void fill(float *out, size_t count, uint32_t seed)
{
    for (size_t i = 0; i < count; i++) {
        seed = seed * 1664525u + 1013904223u;
        out[i] = (float)(int32_t)seed / 2147483648.0f;
    }
}

/* False: there is no device, which is said. */
static bool open_device(void)
{
    int count = 0;
    if (cudaGetDeviceCount(&count) == cudaSuccess && count > 0)
        return cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) == cudaSuccess;
    fprintf(stderr, "SKIPPED: there is no CUDA device\n");
    return false;
}

#endif
