/* kv_cache.cuh: pages of a key/value cache on the device.
 *
 * The layouts are those of backend.h (struct kv_view) and kernels/attention/attention.h (struct
 * q8_tile), headers that are C only; so their constants are repeated here.
 *
 *     f32                    [64][width]
 *     f16                    [64][width], or by channel [width][64]
 *     q8                     the same in bytes, then f16 scales [ceil(width / 32)][64]
 *
 * Full attention stores keys in f16 and q8 by channel, everything else by position.  Pages and the
 * layers' offsets in them are multiples of 64 bytes.
 *
 * A position is written by warps, each with a group of 32 channels.  A page is read in chunks of 64
 * positions x 32 channels by blocks of 256 threads, 8 numbers per thread: a fragment, which a
 * thread keeps as stored in registers while the chunk before is computed. */
#ifndef BACKEND_CUDA_KV_CACHE_CUH
#define BACKEND_CUDA_KV_CACHE_CUH

#include "backend/cuda/launch.h"

#include <cuda_fp16.h>
#include <math_constants.h>

enum { KV_F32 = 1, KV_F16 = 2, KV_Q8 = 3 }; /* enum kv_format */
enum { KV_PAGE_TOKENS = 64, Q8_GROUP = 32 };
enum { KV_CHUNK = 32, KV_FRAGMENT = 8, KV_THREADS = KV_PAGE_TOKENS * KV_CHUNK / KV_FRAGMENT };

static_assert((int)KV_CHUNK == (int)Q8_GROUP,
              "the numbers of a position in a chunk have one scale");

/* One head's keys, or values, in a page. */
struct kv_part {
    uint32_t width; /* numbers of a position */
    uint32_t used;  /* of these the first ones, which are read */
    bool by_channel;
};

__host__ __device__ inline size_t kv_number_bytes(int format)
{
    return format == KV_F32 ? 4 : format == KV_F16 ? 2 : 1;
}

/* Bytes of one head's keys, or values, in a page. */
__host__ __device__ inline size_t kv_head_bytes(int format, uint32_t width)
{
    size_t scales = format == KV_Q8 ? (width + Q8_GROUP - 1) / Q8_GROUP * sizeof(__half) : 0;
    return KV_PAGE_TOKENS * (width * kv_number_bytes(format) + scales);
}

__device__ inline size_t kv_number_index(const kv_part &part, uint32_t position, uint32_t channel)
{
    return part.by_channel ? (size_t)channel * KV_PAGE_TOKENS + position
                           : (size_t)position * part.width + channel;
}

/* The scale of `position` for the group of `channel`. */
__device__ inline __half *kv_scale(uint8_t *head, const kv_part &part, uint32_t position,
                                   uint32_t channel)
{
    __half *scales = (__half *)(head + (size_t)part.width * KV_PAGE_TOKENS);
    return scales + (size_t)(channel / Q8_GROUP) * KV_PAGE_TOKENS + position;
}

/* ------------------------------------------------------------------------------------ writing */

/* The scale of a warp's group of numbers, as store_q8 of the CPU makes it: rounded up, so that the
 * greatest number fits; NaN if a number is not finite. */
__device__ inline __half kv_group_scale(float x)
{
    float greatest = fabsf(x);
    for (int distance = 16; distance > 0; distance /= 2)
        greatest = fmaxf(greatest, __shfl_xor_sync(~0u, greatest, distance));
    bool spoilt = __any_sync(~0u, !isfinite(x));
    float scale = spoilt ? CUDART_NAN_F : greatest / 127.0f;
    __half stored = __float2half_rn(scale);
    if (__half2float(stored) < scale) stored = __ushort_as_half(__half_as_ushort(stored) + 1);
    return stored;
}

/* A whole warp stores 32 channels of a position, of which a lane has `channel`: `x` is its number,
 * or 0 past the width. */
__device__ inline void kv_store(uint8_t *head, const kv_part &part, int format, uint32_t position,
                                uint32_t channel, float x)
{
    bool inside = channel < part.width;
    size_t at = kv_number_index(part, position, channel);
    if (format == KV_F32) {
        if (inside) ((float *)head)[at] = x;
        return;
    }
    if (format == KV_F16) {
        if (inside) ((__half *)head)[at] = __float2half_rn(x);
        return;
    }
    __half stored = kv_group_scale(x);
    float scale = __half2float(stored), inverse = scale > 0.0f ? 1.0f / scale : 0.0f;
    float scaled = fminf(fmaxf(x * inverse, -127.0f), 127.0f);
    if (inside) ((int8_t *)head)[at] = (int8_t)__float2int_rn(scaled);
    if (channel % Q8_GROUP == 0) *kv_scale(head, part, position, channel) = stored;
}

/* ------------------------------------------------------------------------------------ reading */

/* Eight numbers of a chunk: of one position, or by channel of eight positions. */
struct kv_fragment {
    uint32_t words[8];  /* f32: all, f16: 4, q8: 2 */
    uint32_t scales[4]; /* q8: of each position, two in a word */
};

/* Where a thread's fragment begins in its chunk. */
__device__ inline uint32_t fragment_channel(bool by_channel)
{
    return by_channel ? threadIdx.x / 8 : threadIdx.x % 4 * KV_FRAGMENT;
}

__device__ inline uint32_t fragment_position(bool by_channel)
{
    return by_channel ? threadIdx.x % 8 * KV_FRAGMENT : threadIdx.x / 4;
}

/* Eight neighbours that are aligned to their size. */
template <int FORMAT> __device__ inline void fragment_load(kv_fragment &f, const uint8_t *from)
{
    if (FORMAT == KV_Q8) {
        uint2 v = *(const uint2 *)from;
        f.words[0] = v.x, f.words[1] = v.y;
        return;
    }
    uint4 v = *(const uint4 *)from;
    f.words[0] = v.x, f.words[1] = v.y, f.words[2] = v.z, f.words[3] = v.w;
    if (FORMAT == KV_F16) return;
    v = *((const uint4 *)from + 1);
    f.words[4] = v.x, f.words[5] = v.y, f.words[6] = v.z, f.words[7] = v.w;
}

/* The first `count` of eight neighbours, aligned to a number. */
template <int FORMAT>
__device__ inline void fragment_load_some(kv_fragment &f, const uint8_t *from, uint32_t count)
{
#pragma unroll
    for (uint32_t i = 0; i < KV_FRAGMENT; i++) {
        if (i >= count) continue;
        if (FORMAT == KV_F32) f.words[i] = ((const uint32_t *)from)[i];
        if (FORMAT == KV_F16)
            f.words[i / 2] |= (uint32_t)((const uint16_t *)from)[i] << (i % 2 * 16);
        if (FORMAT == KV_Q8) f.words[i / 4] |= (uint32_t)from[i] << (i % 4 * 8);
    }
}

/* This thread's fragment of the chunk that begins at channel `first`; channels that are not used
 * read as 0. */
template <int FORMAT>
__device__ inline kv_fragment kv_fetch(uint8_t *head, const kv_part &part, uint32_t first)
{
    kv_fragment f = {};
    uint32_t channel = first + fragment_channel(part.by_channel);
    uint32_t position = fragment_position(part.by_channel);
    if (channel >= part.used) return f;
    size_t at = kv_number_index(part, position, channel);
    const uint8_t *from = head + at * kv_number_bytes(FORMAT);
    if (part.by_channel || (part.width % KV_FRAGMENT == 0 && part.used % KV_FRAGMENT == 0))
        fragment_load<FORMAT>(f, from);
    else
        fragment_load_some<FORMAT>(f, from, min(part.used - channel, (uint32_t)KV_FRAGMENT));
    if (FORMAT != KV_Q8) return f;
    const __half *scales = kv_scale(head, part, position, channel);
    if (!part.by_channel) {
        f.scales[0] = __half_as_ushort(*scales);
        return f;
    }
    uint4 v = *(const uint4 *)scales;
    f.scales[0] = v.x, f.scales[1] = v.y, f.scales[2] = v.z, f.scales[3] = v.w;
    return f;
}

__device__ inline float half_in_word(uint32_t word, int index)
{
    return __half2float(__ushort_as_half((unsigned short)(word >> (index * 16))));
}

/* Number i of a fragment. */
template <int FORMAT>
__device__ inline float fragment_number(const kv_fragment &f, int i, bool by_channel)
{
    if (FORMAT == KV_F32) return __uint_as_float(f.words[i]);
    if (FORMAT == KV_F16) return half_in_word(f.words[i / 2], i % 2);
    float scale = by_channel ? half_in_word(f.scales[i / 2], i % 2) : half_in_word(f.scales[0], 0);
    return (float)(int8_t)(f.words[i / 4] >> (i % 4 * 8)) * scale;
}

#endif
