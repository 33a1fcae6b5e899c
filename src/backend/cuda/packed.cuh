/* packed.cuh: what a lane of a decode kernel multiplies in one step.
 *
 * The step of a lane is a span: one or two chunks of 16 numbers from the same bytes.  The numbers of
 * a chunk have one scale and one min, so that the sum of a chunk needs them once:
 *
 *     Σ w·x  =  scale · Σ q·x  -  min · Σ x           q: whole numbers, exact as floats
 *
 * Formats without a struct of their own here are dequantised exactly, and have no scale.
 *
 *     format                  bytes of a span    columns of its chunks
 *     Q4_K, Q5_K              16 of qs           64q + 16h of a block of 256, and 32 more
 *     Q6_K                    16 of ql           128n + 32j + 16h of a block,  and 64 more
 *     Q4_0, MXFP4, IQ4_NL     16, the block      0 of a block of 32,           and 16 more
 *     Q8_0                    16                 0 or 16 of a block of 32
 *     others                                     16
 */
#ifndef BACKEND_CUDA_PACKED_CUH
#define BACKEND_CUDA_PACKED_CUH

#include "backend/cuda/formats.cuh"

#define DEVICE_MEMBER __device__ __forceinline__

enum { CHUNK = 16 };

/* Sixteen bytes of any address in five aligned loads, without a branch that lanes could take apart;
 * or one load where the address allows it. */
DEVICE uint4 load_chunk(const uint8_t *p)
{
    const uint32_t skew = (uint32_t)((uintptr_t)p & 3);
    const uint32_t *words = (const uint32_t *)(p - skew);
    uint32_t w[5];
#pragma unroll
    for (int i = 0; i < 4; i++) w[i] = __ldg(words + i);
    w[4] = skew ? __ldg(words + 4) : 0;
#pragma unroll
    for (int i = 0; i < 4; i++) w[i] = __funnelshift_r(w[i], w[i + 1], 8 * skew);
    return make_uint4(w[0], w[1], w[2], w[3]);
}

/* Blocks whose size is a multiple of 16 bytes usually lie at one. */
DEVICE uint4 load_aligned_chunk(const uint8_t *p)
{
    return ((uintptr_t)p & 15) == 0 ? __ldg((const uint4 *)p) : load_chunk(p);
}

DEVICE uint32_t word_of(const uint4 &four, int i)
{
    return i == 0 ? four.x : i == 1 ? four.y : i == 2 ? four.z : four.w;
}

/* w = the four bytes of n - offset; HALVES as in floats_from_bytes. */
template <bool HALVES = false> DEVICE void floats_from_word(float *w, uint32_t n, int offset)
{
    const uint32_t bits = HALVES ? 0x4a800000u : 0x4b000000u;
    const float base = HALVES ? 4194304.0f : 8388608.0f;
    const float zero = base + (float)offset * (HALVES ? 0.5f : 1.0f);
#pragma unroll
    for (int j = 0; j < 4; j++)
        w[j] = __fsub_rn(__uint_as_float(__byte_perm(n, bits, 0x7640u + j)), zero);
}

/* Byte `i` as a float. */
DEVICE float float_of_byte(uint32_t word, uint32_t i)
{
    return __fsub_rn(__uint_as_float(__byte_perm(word, 0x4b000000u, 0x7440u + i)), 8388608.0f);
}

/* ------------------------------------------------------------------------------- any format
 *
 * PAD: floats between eight chunks of activations in shared memory, for which eight neighbouring
 * lanes read from different banks.  MANY: a lane computes several channels of several rows. */

template <int FORMAT> struct packed {
    enum { CHUNKS = 1, PAD = 0, SCALED = 0, HAS_MIN = 0, MANY = 0 };
    float w[CHUNK];

    static DEVICE_MEMBER uint32_t column(uint32_t span, int)
    {
        return span * CHUNK;
    }
    DEVICE_MEMBER void load(const struct cuda_weight &weight, const struct weight_row &row,
                            uint32_t span)
    {
        const uint32_t k = span * CHUNK;
        dequantise_unit<FORMAT>(w, weight, row, k);
        if (k + UNIT < (uint32_t)weight.cols) {
            dequantise_unit<FORMAT>(w + UNIT, weight, row, k + UNIT);
        } else {
#pragma unroll
            for (int j = UNIT; j < CHUNK; j++) w[j] = 0.0f;
        }
    }
    DEVICE_MEMBER void quad(float *to, int, int i) const
    {
#pragma unroll
        for (int j = 0; j < 4; j++) to[j] = w[4 * i + j];
    }
    DEVICE_MEMBER float scale(int) const
    {
        return 1.0f;
    }
    DEVICE_MEMBER float least(int) const
    {
        return 0.0f;
    }
};

/* ---------------------------------------------------------------------------- blocks of 256 */

/* Q4_K, and what Q5_K has in common with it. */
struct packed_k {
    enum { CHUNKS = 2, PAD = 8, SCALED = 1, HAS_MIN = 1, MANY = 1 };
    uint4 qs;
    float scales[2], mins[2];

    static DEVICE_MEMBER uint32_t column(uint32_t span, int chunk)
    {
        return span / 8 * 256 + span % 8 / 2 * 64 + span % 2 * 16 + (uint32_t)chunk * 32;
    }
    /* Of groups t and t + 1, t even: a, b and c have two bytes of the three words of scales. */
    DEVICE_MEMBER void load_scales(const uint8_t *block, uint32_t t)
    {
        const uint4 head = load_aligned_chunk(block);
        const uint32_t shift = t % 4 * 8;
        const uint32_t a = head.y >> shift, b = head.z >> shift, c = head.w >> shift;
        const uint32_t s = t < 4 ? a & 0x3f3fu : (c & 0x0f0fu) | (a >> 2 & 0x3030u);
        const uint32_t m = t < 4 ? b & 0x3f3fu : (c >> 4 & 0x0f0fu) | (b >> 2 & 0x3030u);
        const float d = float_from_f16(head.x & 0xffffu), dmin = float_from_f16(head.x >> 16);
#pragma unroll
        for (int i = 0; i < 2; i++) {
            scales[i] = __fmul_rn(d, float_of_byte(s, i));
            mins[i] = __fmul_rn(dmin, float_of_byte(m, i));
        }
    }
    DEVICE_MEMBER float scale(int chunk) const
    {
        return scales[chunk];
    }
    DEVICE_MEMBER float least(int chunk) const
    {
        return mins[chunk];
    }
};

template <> struct packed<FORMAT_Q4_K> : packed_k {
    DEVICE_MEMBER void load(const struct cuda_weight &, const struct weight_row &row, uint32_t span)
    {
        const uint8_t *b = row.values + (size_t)(span / 8) * sizeof(struct block_q4_k);
        qs = load_aligned_chunk(b + offsetof(struct block_q4_k, qs) + span % 8 * 16);
        load_scales(b, span % 8 / 2 * 2);
    }
    DEVICE_MEMBER void quad(float *to, int chunk, int i) const
    {
        floats_from_word(to, word_of(qs, i) >> 4 * chunk & 0x0f0f0f0fu, 0);
    }
};

template <> struct packed<FORMAT_Q5_K> : packed_k {
    uint4 fifths; /* the fifth bits of both chunks in the lowest two bits of a byte */

    DEVICE_MEMBER void load(const struct cuda_weight &, const struct weight_row &row, uint32_t span)
    {
        const uint8_t *b = row.values + (size_t)(span / 8) * sizeof(struct block_q5_k);
        const uint32_t t = span % 8 / 2 * 2;
        qs = load_aligned_chunk(b + offsetof(struct block_q5_k, qs) + span % 8 * 16);
        fifths = load_aligned_chunk(b + offsetof(struct block_q5_k, qh) + span % 2 * 16);
        fifths = make_uint4(fifths.x >> t, fifths.y >> t, fifths.z >> t, fifths.w >> t);
        load_scales(b, t);
    }
    DEVICE_MEMBER void quad(float *to, int chunk, int i) const
    {
        const uint32_t high = word_of(fifths, i) << (4 - chunk) & 0x10101010u;
        floats_from_word(to, (word_of(qs, i) >> 4 * chunk & 0x0f0f0f0fu) | high, 0);
    }
};

template <> struct packed<FORMAT_Q6_K> {
    enum { CHUNKS = 2, PAD = 16, SCALED = 1, HAS_MIN = 0, MANY = 1 };
    uint4 low, high; /* high: bits 0 and 1 of a byte for chunk 0, 4 and 5 for chunk 1 */
    float scales[2];

    static DEVICE_MEMBER uint32_t column(uint32_t span, int chunk)
    {
        return span / 8 * 256 + span % 8 / 4 * 128 + span % 4 * 16 + (uint32_t)chunk * 64;
    }
    DEVICE_MEMBER void load(const struct cuda_weight &, const struct weight_row &row, uint32_t span)
    {
        typedef struct block_q6_k block;
        const uint8_t *b = row.values + (size_t)(span / 8) * sizeof(block);
        const uint32_t n = span % 8 / 4, j = span % 4 / 2, shift = 2 * j;
        const uint8_t *s = b + offsetof(block, scales) + 8 * n + span % 4;
        low = load_chunk(b + offsetof(block, ql) + span % 8 * 16);
        high = load_chunk(b + offsetof(block, qh) + 32 * n + span % 2 * 16);
        const float d = load_f16(b + offsetof(block, d));
        scales[0] = __fmul_rn(d, (float)(int8_t)__ldg(s));
        scales[1] = __fmul_rn(d, (float)(int8_t)__ldg(s + 4));
        high = make_uint4(high.x >> shift, high.y >> shift, high.z >> shift, high.w >> shift);
    }
    DEVICE_MEMBER void quad(float *to, int chunk, int i) const
    {
        const uint32_t h = word_of(high, i);
        const uint32_t bits = (chunk ? h : h << 4) & 0x30303030u;
        floats_from_word(to, (word_of(low, i) >> 4 * chunk & 0x0f0f0f0fu) | bits, 32);
    }
    DEVICE_MEMBER float scale(int chunk) const
    {
        return scales[chunk];
    }
    DEVICE_MEMBER float least(int) const
    {
        return 0.0f;
    }
};

/* ----------------------------------------------------------------------------- blocks of 32 */

/* A block of 4-bit numbers behind a scale, BYTES in all. */
template <int BYTES> struct packed_nibbles {
    enum { CHUNKS = 2, PAD = 4, SCALED = 1, HAS_MIN = 0, MANY = 1 };
    uint4 qs;
    float factor;

    static DEVICE_MEMBER uint32_t column(uint32_t span, int chunk)
    {
        return span * 32 + (uint32_t)chunk * 16;
    }
    DEVICE_MEMBER void load(const struct cuda_weight &, const struct weight_row &row, uint32_t span)
    {
        const uint8_t *b = row.values + (size_t)span * BYTES;
        qs = load_chunk(b + BYTES - 16);
        factor = BYTES == 17 ? float_from_e8m0(__ldg(b)) : load_f16(b);
    }
    DEVICE_MEMBER uint32_t nibbles(int chunk, int i) const
    {
        return word_of(qs, i) >> 4 * chunk & 0x0f0f0f0fu;
    }
    DEVICE_MEMBER float scale(int) const
    {
        return factor;
    }
    DEVICE_MEMBER float least(int) const
    {
        return 0.0f;
    }
};

template <> struct packed<FORMAT_Q4_0> : packed_nibbles<sizeof(struct block_q4_0)> {
    DEVICE_MEMBER void quad(float *to, int chunk, int i) const
    {
        floats_from_word(to, nibbles(chunk, i), 8);
    }
};

template <> struct packed<FORMAT_IQ4_NL> : packed_nibbles<sizeof(struct block_iq4_nl)> {
    DEVICE_MEMBER void quad(float *to, int chunk, int i) const
    {
        floats_from_word(to, look_up(iq4_device_levels(), join_nibbles(nibbles(chunk, i))), 128);
    }
};

template <> struct packed<FORMAT_MXFP4> : packed_nibbles<sizeof(struct block_mxfp4)> {
    DEVICE_MEMBER void quad(float *to, int chunk, int i) const
    {
        const uint32_t n = look_up(mxfp4_device_halves(), join_nibbles(nibbles(chunk, i)));
        floats_from_word<true>(to, n, 128);
    }
};

template <> struct packed<FORMAT_Q8_0> {
    enum { CHUNKS = 1, PAD = 0, SCALED = 1, HAS_MIN = 0, MANY = 1 };
    uint4 qs;
    float factor;

    static DEVICE_MEMBER uint32_t column(uint32_t span, int)
    {
        return span * CHUNK;
    }
    DEVICE_MEMBER void load(const struct cuda_weight &, const struct weight_row &row, uint32_t span)
    {
        const uint8_t *b = row.values + (size_t)(span / 2) * sizeof(struct block_q8_0);
        qs = load_chunk(b + offsetof(struct block_q8_0, qs) + span % 2 * CHUNK);
        factor = load_f16(b);
    }
    DEVICE_MEMBER void quad(float *to, int, int i) const
    {
        floats_from_word(to, word_of(qs, i) ^ 0x80808080u, 128);
    }
    DEVICE_MEMBER float scale(int) const
    {
        return factor;
    }
    DEVICE_MEMBER float least(int) const
    {
        return 0.0f;
    }
};

#endif
