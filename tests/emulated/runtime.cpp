/* runtime.cpp: CUDA's runtime on the emulated device.
 *
 * What is queued on a stream runs as late as it may: when the host waits for it, for one of its events,
 * or for another stream that does.  So memory of the host that is written again before it has been read
 * gives wrong results here.  Copies from memory that is not pinned read it at once, as CUDA does.
 *
 * Every allocation ends at a page that cannot be touched, and begins with bytes that make NaN. */
#include "threads.h"

#include "backend/cuda/ptx.cuh"

#include <cstdio>
#include <cstdlib>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <sys/mman.h>
#include <unistd.h>
#include <vector>

typedef std::function<void()> work;

struct CUevent_st {
    cudaStream_t stream;
    unsigned long recorded, reached;
};

struct CUstream_st {
    std::deque<work> queue;
    bool captures;
    std::vector<work> captured;
};

struct CUgraph_st {
    std::vector<work> works;
};

struct CUgraphExec_st {
    std::shared_ptr<std::vector<work>> works;
};

namespace
{
std::recursive_mutex mutex;
typedef std::lock_guard<std::recursive_mutex> locked;

struct allocation {
    size_t bytes, mapped;
    uint8_t *base;
    cudaMemoryType type;
};
std::map<uintptr_t, allocation> allocations; /* by their first byte */
size_t device_taken;

cudaError_t last_error;

struct {
    emulated_kind kind;
    unsigned left; /* calls of the kind until one fails; 0: none will */
    bool fired;
} failure;

const size_t TOTAL_BYTES = (size_t)4 << 30, CONTEXT_BYTES = (size_t)500 << 20;

bool fails(emulated_kind kind)
{
    if (failure.left == 0 || failure.kind != kind) return false;
    if (--failure.left > 0) return false;
    failure.fired = true;
    return true;
}

cudaError_t failed(cudaError_t error)
{
    if (error != cudaSuccess) last_error = error;
    return error;
}

/* -------------------------------------------------------------------------------------- streams */

void drain(cudaStream_t stream)
{
    while (!stream->queue.empty()) {
        work next = std::move(stream->queue.front());
        stream->queue.pop_front();
        next();
    }
}

void enqueue(cudaStream_t stream, work next)
{
    if (stream->captures)
        stream->captured.push_back(std::move(next));
    else
        stream->queue.push_back(std::move(next));
}

/* --------------------------------------------------------------------------------------- memory */

size_t page_bytes(void)
{
    return (size_t)sysconf(_SC_PAGESIZE);
}

cudaError_t allocate(void **out, size_t bytes, cudaMemoryType type)
{
    const size_t page = page_bytes(), used = (bytes + 15) / 16 * 16;
    const size_t mapped = (used + page - 1) / page * page + page;
    *out = nullptr;
    if (fails(EMULATED_ALLOCATION)) return failed(cudaErrorMemoryAllocation);
    if (type == cudaMemoryTypeDevice && device_taken + bytes > TOTAL_BYTES - CONTEXT_BYTES)
        return failed(cudaErrorMemoryAllocation);
    uint8_t *base = (uint8_t *)mmap(nullptr, mapped, PROT_READ | PROT_WRITE,
                                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base == MAP_FAILED) return failed(cudaErrorMemoryAllocation);
    mprotect(base + mapped - page, page, PROT_NONE);
    uint8_t *memory = base + mapped - page - used;
    memset(memory, 0xff, std::min(used, (size_t)1 << 20));
    allocations[(uintptr_t)memory] = { bytes, mapped, base, type };
    if (type == cudaMemoryTypeDevice) device_taken += bytes;
    *out = memory;
    return cudaSuccess;
}

void release(void *memory)
{
    auto found = allocations.find((uintptr_t)memory);
    if (found == allocations.end()) emulated::stop("memory is freed that was not allocated");
    if (found->second.type == cudaMemoryTypeDevice) device_taken -= found->second.bytes;
    munmap(found->second.base, found->second.mapped);
    allocations.erase(found);
}

const allocation *find(const void *memory, size_t *left)
{
    auto after = allocations.upper_bound((uintptr_t)memory);
    if (after == allocations.begin()) return nullptr;
    auto found = std::prev(after);
    const size_t at = (uintptr_t)memory - found->first;
    if (at >= found->second.bytes) return nullptr;
    if (left) *left = found->second.bytes - at;
    return &found->second;
}

cudaMemoryType type_of(const void *memory)
{
    const allocation *found = find(memory, nullptr);
    return found ? found->type : cudaMemoryTypeUnregistered;
}

/* A copy must stay within the memory that it begins in, and go the way that it says. */
void check_range(const void *memory, size_t bytes, bool device)
{
    size_t left = 0;
    const allocation *found = find(memory, &left);
    if (found && bytes > left)
        emulated::stop("a copy of %zu bytes where %zu are left", bytes, left);
    if (device != (found && found->type == cudaMemoryTypeDevice))
        emulated::stop("a copy takes memory of the %s for the other's", device ? "host" : "device");
}
} // namespace

namespace emulated
{
size_t *block_bytes_of(const void *kernel)
{
    static std::map<const void *, size_t> known;
    locked lock(mutex);
    return &known.insert({ kernel, 48 * 1024 }).first->second;
}

void launch(const void *kernel, const std::function<void()> &call, dim3 grid, dim3 block,
            size_t bytes, cuda_stream stream)
{
    locked lock(mutex);
    const bool possible = grid.x > 0 && grid.y > 0 && grid.z > 0 && grid.y <= 65535 &&
                          grid.z <= 65535 && block.x > 0 && block.x <= BLOCK_THREADS_MAX &&
                          block.y == 1 && block.z == 1 && bytes <= *block_bytes_of(kernel) &&
                          bytes <= BLOCK_BYTES_MAX;
    if (!possible) {
        (void)failed(cudaErrorInvalidValue);
        return;
    }
    if (fails(EMULATED_LAUNCH)) {
        (void)failed(cudaErrorLaunchFailure);
        return;
    }
    enqueue(stream, [=] { run_grid(call, grid, block); });
}
} // namespace emulated

extern "C" {

/* ---------------------------------------------------------------------------------------- device */

cudaError_t cudaDriverGetVersion(int *version)
{
    *version = 13000;
    return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int *version)
{
    *version = 13000;
    return cudaSuccess;
}

/* The kernels are compiled for x86-64-v3, without which a fused multiply would take a function. */
cudaError_t cudaGetDeviceCount(int *count)
{
    *count = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    return *count > 0 ? cudaSuccess : cudaErrorNoDevice;
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *properties, int)
{
    *properties = {};
    snprintf(properties->name, sizeof properties->name, "emulated device");
    properties->major = 9;
    properties->multiProcessorCount = 2;
    return cudaSuccess;
}

cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *total_bytes)
{
    locked lock(mutex);
    *total_bytes = TOTAL_BYTES;
    *free_bytes = TOTAL_BYTES - CONTEXT_BYTES - device_taken;
    return cudaSuccess;
}

const char *cudaGetErrorString(cudaError_t error)
{
    switch (error) {
    case cudaSuccess:
        return "no error";
    case cudaErrorInvalidValue:
        return "invalid argument";
    case cudaErrorMemoryAllocation:
        return "out of memory";
    case cudaErrorNoDevice:
        return "no CUDA-capable device is detected";
    case cudaErrorLaunchFailure:
        return "unspecified launch failure";
    }
    return "unknown error";
}

const char *cudaGetErrorName(cudaError_t error)
{
    switch (error) {
    case cudaSuccess:
        return "cudaSuccess";
    case cudaErrorInvalidValue:
        return "cudaErrorInvalidValue";
    case cudaErrorMemoryAllocation:
        return "cudaErrorMemoryAllocation";
    case cudaErrorNoDevice:
        return "cudaErrorNoDevice";
    case cudaErrorLaunchFailure:
        return "cudaErrorLaunchFailure";
    }
    return "unknown";
}

cudaError_t cudaGetLastError(void)
{
    locked lock(mutex);
    const cudaError_t error = last_error;
    last_error = cudaSuccess;
    return error;
}

cudaError_t cudaPeekAtLastError(void)
{
    locked lock(mutex);
    return last_error;
}

/* --------------------------------------------------------------------------- streams and events */

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned)
{
    *stream = new CUstream_st();
    return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
    locked lock(mutex);
    drain(stream);
    delete stream;
    return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
    locked lock(mutex);
    if (stream->captures) return failed(cudaErrorInvalidValue);
    drain(stream);
    return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned)
{
    *event = new CUevent_st();
    return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
    locked lock(mutex);
    const unsigned long number = ++event->recorded;
    event->stream = stream;
    enqueue(stream, [=] { event->reached = number; });
    return cudaSuccess;
}

static void wait_for(cudaEvent_t event, unsigned long number)
{
    while (event->reached < number && !event->stream->queue.empty()) {
        work next = std::move(event->stream->queue.front());
        event->stream->queue.pop_front();
        next();
    }
}

cudaError_t cudaEventSynchronize(cudaEvent_t event)
{
    locked lock(mutex);
    wait_for(event, event->recorded);
    return cudaSuccess;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned)
{
    locked lock(mutex);
    const unsigned long number = event->recorded;
    if (number > event->reached) enqueue(stream, [=] { wait_for(event, number); });
    return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    locked lock(mutex);
    wait_for(event, event->recorded);
    delete event;
    return cudaSuccess;
}

/* ---------------------------------------------------------------------------------------- memory */

cudaError_t cudaMallocAsync(void **memory, size_t bytes, cudaStream_t)
{
    locked lock(mutex);
    return allocate(memory, bytes, cudaMemoryTypeDevice);
}

cudaError_t cudaFreeAsync(void *memory, cudaStream_t stream)
{
    locked lock(mutex);
    if (type_of(memory) != cudaMemoryTypeDevice)
        emulated::stop("what is freed is not the device's");
    enqueue(stream, [=] { release(memory); });
    return cudaSuccess;
}

cudaError_t cudaHostAlloc(void **memory, size_t bytes, unsigned)
{
    locked lock(mutex);
    return allocate(memory, bytes, cudaMemoryTypeHost);
}

cudaError_t cudaFreeHost(void *memory)
{
    locked lock(mutex);
    release(memory);
    return cudaSuccess;
}

cudaError_t cudaHostRegister(void *memory, size_t bytes, unsigned)
{
    locked lock(mutex);
    if (fails(EMULATED_ALLOCATION)) return failed(cudaErrorMemoryAllocation);
    allocations[(uintptr_t)memory] = { bytes, 0, nullptr, cudaMemoryTypeHost };
    return cudaSuccess;
}

cudaError_t cudaHostUnregister(void *memory)
{
    locked lock(mutex);
    auto found = allocations.find((uintptr_t)memory);
    if (found == allocations.end() || found->second.base)
        emulated::stop("memory is unregistered that was not registered");
    allocations.erase(found);
    return cudaSuccess;
}

static void check_kind(void *to, const void *from, size_t bytes, cudaMemcpyKind kind)
{
    if (bytes == 0 || kind == cudaMemcpyDefault) return;
    check_range(to, bytes, kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice);
    check_range(from, bytes, kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice);
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream)
{
    locked lock(mutex);
    if (fails(EMULATED_COPY)) return failed(cudaErrorInvalidValue);
    check_kind(to, from, bytes, kind);
    if (type_of(from) == cudaMemoryTypeUnregistered) { /* read now */
        if (stream->captures) emulated::stop("a recorded copy of memory that is not pinned");
        auto content = std::make_shared<std::vector<uint8_t>>((const uint8_t *)from,
                                                              (const uint8_t *)from + bytes);
        enqueue(stream, [=] { memcpy(to, content->data(), bytes); });
    } else {
        enqueue(stream, [=] { memcpy(to, from, bytes); });
    }
    return cudaSuccess;
}

cudaError_t cudaMemcpy2DAsync(void *to, size_t to_pitch, const void *from, size_t from_pitch,
                              size_t width, size_t height, cudaMemcpyKind kind, cudaStream_t stream)
{
    locked lock(mutex);
    if (fails(EMULATED_COPY)) return failed(cudaErrorInvalidValue);
    if (height > 0) {
        check_kind(to, from, width, kind);
        check_kind((uint8_t *)to + (height - 1) * to_pitch,
                   (const uint8_t *)from + (height - 1) * from_pitch, width, kind);
    }
    if (type_of(from) == cudaMemoryTypeUnregistered) drain(stream);
    enqueue(stream, [=] {
        for (size_t y = 0; y < height; y++)
            memcpy((uint8_t *)to + y * to_pitch, (const uint8_t *)from + y * from_pitch, width);
    });
    if (type_of(from) == cudaMemoryTypeUnregistered) drain(stream);
    return cudaSuccess;
}

cudaError_t cudaMemsetAsync(void *memory, int value, size_t bytes, cudaStream_t stream)
{
    locked lock(mutex);
    if (fails(EMULATED_COPY)) return failed(cudaErrorInvalidValue);
    enqueue(stream, [=] { memset(memory, value, bytes); });
    return cudaSuccess;
}

cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *out, const void *memory)
{
    locked lock(mutex);
    out->type = type_of(memory);
    return cudaSuccess;
}

cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t *pool, int)
{
    *pool = nullptr;
    return cudaSuccess;
}

cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t, enum cudaMemPoolAttr, void *)
{
    return cudaSuccess;
}

/* ------------------------------------------------------------------------------------ recordings */

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, enum cudaStreamCaptureMode)
{
    locked lock(mutex);
    stream->captures = true;
    stream->captured.clear();
    return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph)
{
    locked lock(mutex);
    *graph = new CUgraph_st{ std::move(stream->captured) };
    stream->captures = false;
    stream->captured.clear();
    return cudaSuccess;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t *recording, cudaGraph_t graph, unsigned long long)
{
    *recording = new CUgraphExec_st{ std::make_shared<std::vector<work>>(graph->works) };
    return cudaSuccess;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t recording, cudaStream_t stream)
{
    locked lock(mutex);
    if (fails(EMULATED_LAUNCH)) return failed(cudaErrorLaunchFailure);
    std::shared_ptr<std::vector<work>> works = recording->works;
    enqueue(stream, [=] {
        for (const work &next : *works) next();
    });
    return cudaSuccess;
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t recording)
{
    delete recording;
    return cudaSuccess;
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph)
{
    delete graph;
    return cudaSuccess;
}

/* -------------------------------------------------------------------------------------- failures */

void emulated_fail(enum emulated_kind kind, unsigned nth)
{
    locked lock(mutex);
    failure = { kind, nth, false };
}

int emulated_disarm(void)
{
    locked lock(mutex);
    failure.left = 0;
    return failure.fired;
}

} /* extern "C" */
