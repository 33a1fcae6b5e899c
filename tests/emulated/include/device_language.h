/* device_language.h: what nvcc adds to C++, for kernels that the host's compiler translates.
 *
 * It is included before every .cu file.  A block's threads are fibers of one thread (threads.cpp): a
 * fiber runs until it waits for others of its warp or its block. */
#ifndef EMULATED_DEVICE_LANGUAGE_H
#define EMULATED_DEVICE_LANGUAGE_H

#include <cuda_runtime_api.h>

/* Headers of C++ come before the words below, one of which they have, too. */
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <type_traits>
#include <vector>

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __noinline__    __attribute__((noinline))
#define __grid_constant__
#define __launch_bounds__(...)
#define __restrict__
#define __align__(n)                alignas(n)
#define __shared__                  static /* blocks run one after the other */
#define __constant__                static
#define __builtin_assume(condition) ((void)0)
#define __CUDA_ARCH__               900

/* Shared memory that launches of a kernel may ask for, which it has to be told before. */
namespace emulated
{
size_t *block_bytes_of(const void *kernel);
}
template <typename KERNEL>
cudaError_t cudaFuncSetAttribute(KERNEL kernel, enum cudaFuncAttribute, int bytes)
{
    *emulated::block_bytes_of((const void *)kernel) = (size_t)bytes;
    return cudaSuccess;
}
template <typename KERNEL>
cudaError_t cudaFuncGetAttributes(struct cudaFuncAttributes *out, KERNEL kernel)
{
    *out = { 90, 90, (int)*emulated::block_bytes_of((const void *)kernel) };
    return cudaSuccess;
}

/* ------------------------------------------------------------------------------------- vectors */

struct dim3 {
    unsigned x, y, z;
    dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z)
    {
    }
};
struct alignas(16) float4 {
    float x, y, z, w;
};
struct alignas(8) float2 {
    float x, y;
};
struct alignas(16) uint4 {
    unsigned x, y, z, w;
};
struct alignas(8) uint2 {
    unsigned x, y;
};
struct alignas(4) char4 {
    signed char x, y, z, w;
};

inline float4 make_float4(float x, float y, float z, float w)
{
    return { x, y, z, w };
}
inline float2 make_float2(float x, float y)
{
    return { x, y };
}
inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w)
{
    return { x, y, z, w };
}
inline uint2 make_uint2(unsigned x, unsigned y)
{
    return { x, y };
}

/* ------------------------------------------------------------------------------------- threads */

namespace emulated
{
struct indices {
    dim3 thread, block, block_size, grid_size;
};
extern indices here; /* of the fiber that runs */

/* What the lanes of a warp do together: all that have not ended must do the same. */
enum meeting { MEET_SYNC, MEET_SHUFFLE, MEET_VOTE, MEET_LOAD, MEET_MULTIPLY };
enum { LANES = 32, LANE_BYTES = 64 };

/* Waits for the other lanes of the warp.  Every lane brings `bytes`, at most LANE_BYTES; returns what
 * all have brought, lane after lane, good until the lane's next meeting. */
const uint8_t (*meet(meeting kind, const void *brought, size_t bytes))[LANE_BYTES];
bool lane_lives(unsigned lane);
void meet_block(void);
unsigned this_lane(void);

template <typename T> T from_lane(T x, unsigned lane)
{
    static_assert(sizeof(T) <= LANE_BYTES, "a lane's room");
    const uint8_t(*all)[LANE_BYTES] = meet(MEET_SHUFFLE, &x, sizeof x);
    T out;
    memcpy(&out, all[lane], sizeof out);
    return out;
}

template <typename T> unsigned vote(T x)
{
    int yes = x ? 1 : 0;
    const uint8_t(*all)[LANE_BYTES] = meet(MEET_VOTE, &yes, sizeof yes);
    unsigned bits = 0;
    for (unsigned lane = 0; lane < LANES; lane++) {
        memcpy(&yes, all[lane], sizeof yes);
        if (yes && lane_lives(lane)) bits |= 1u << lane;
    }
    return bits;
}
} // namespace emulated

#define threadIdx emulated::here.thread
#define blockIdx  emulated::here.block
#define blockDim  emulated::here.block_size
#define gridDim   emulated::here.grid_size

inline void __syncthreads(void)
{
    emulated::meet_block();
}
inline void __syncwarp(unsigned = ~0u)
{
    (void)emulated::meet(emulated::MEET_SYNC, nullptr, 0);
}
template <typename T> T __shfl_sync(unsigned, T x, unsigned lane)
{
    return emulated::from_lane(x, lane % emulated::LANES);
}
template <typename T> T __shfl_xor_sync(unsigned, T x, unsigned distance)
{
    return emulated::from_lane(x, emulated::this_lane() ^ distance);
}
template <typename T> T __shfl_up_sync(unsigned, T x, unsigned distance)
{
    unsigned lane = emulated::this_lane();
    return emulated::from_lane(x, lane >= distance ? lane - distance : lane);
}
template <typename T> T __shfl_down_sync(unsigned, T x, unsigned distance)
{
    unsigned lane = emulated::this_lane();
    return emulated::from_lane(x, lane + distance < emulated::LANES ? lane + distance : lane);
}
inline unsigned __ballot_sync(unsigned, int x)
{
    return emulated::vote(x);
}
inline int __any_sync(unsigned, int x)
{
    return emulated::vote(x) != 0;
}
inline void __threadfence(void)
{
}

template <typename T> T atomicAdd(T *to, T x)
{
    T before = *to;
    *to = before + x;
    return before;
}
inline unsigned atomicAdd(unsigned *to, int x)
{
    return atomicAdd(to, (unsigned)x);
}
template <typename T> T atomicOr(T *to, T x)
{
    T before = *to;
    *to = before | x;
    return before;
}
inline unsigned atomicInc(unsigned *to, unsigned most)
{
    unsigned before = *to;
    *to = before >= most ? 0 : before + 1;
    return before;
}

/* ------------------------------------------------------------------------------------- numbers */

using std::isfinite;
using std::isnan;

template <typename A, typename B> typename std::common_type<A, B>::type min(A a, B b)
{
    typedef typename std::common_type<A, B>::type T;
    return (T)a < (T)b ? (T)a : (T)b;
}
template <typename A, typename B> typename std::common_type<A, B>::type max(A a, B b)
{
    typedef typename std::common_type<A, B>::type T;
    return (T)a < (T)b ? (T)b : (T)a;
}

template <typename TO, typename FROM> TO emulated_bits(FROM x)
{
    static_assert(sizeof(TO) == sizeof(FROM), "bits stay bits");
    TO out;
    memcpy(&out, &x, sizeof out);
    return out;
}
inline float __uint_as_float(unsigned x)
{
    return emulated_bits<float>(x);
}
inline unsigned __float_as_uint(float x)
{
    return emulated_bits<unsigned>(x);
}
inline double __longlong_as_double(long long x)
{
    return emulated_bits<double>(x);
}
inline float __double2float_rn(double x)
{
    return (float)x;
}
inline int __float2int_rn(float x)
{
    return (int)nearbyintf(x);
}
inline float __fmaf_rn(float a, float b, float c)
{
    return __builtin_fmaf(a, b, c);
}
inline float __fmul_rn(float a, float b)
{
    return a * b;
}
inline float __fadd_rn(float a, float b)
{
    return a + b;
}
inline float __fsub_rn(float a, float b)
{
    return a - b;
}
inline int __popcll(unsigned long long x)
{
    return __builtin_popcountll(x);
}
inline int __popc(unsigned x)
{
    return __builtin_popcount(x);
}
inline int __ffs(int x)
{
    return __builtin_ffs(x);
}
inline int __clz(int x)
{
    return x == 0 ? 32 : __builtin_clz((unsigned)x);
}
inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned shift)
{
    return (unsigned)(((uint64_t)high << 32 | low) >> (shift & 31));
}
/* Byte i of the result is the one of the eight bytes of a and b that four bits of `which` name; the
 * highest of these bits would repeat its sign. */
inline unsigned __byte_perm(unsigned a, unsigned b, unsigned which)
{
    uint64_t bytes = (uint64_t)b << 32 | a;
    unsigned out = 0;
    for (unsigned i = 0; i < 4; i++)
        out |= (unsigned)(bytes >> (which >> 4 * i & 7) * 8 & 0xff) << 8 * i;
    return out;
}
inline int __dp4a(int a, int b, int sum)
{
    for (int i = 0; i < 4; i++) sum += (int8_t)(a >> 8 * i) * (int8_t)(b >> 8 * i);
    return sum;
}

template <typename T> T __ldg(const T *p)
{
    return *p;
}
template <typename T> T __ldcg(const T *p)
{
    return *p;
}

#endif
