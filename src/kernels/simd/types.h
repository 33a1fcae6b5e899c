/* types.h: the vector types that all instruction sets have in common, and what needs no
 * instruction set to be written down: loads, stores, choosing.
 *
 * The types are compiler vectors.  Where a register is narrower than the type, the compiler
 * splits it. */
#ifndef KERNELS_SIMD_TYPES_H
#define KERNELS_SIMD_TYPES_H

#include "kernels/kernels.h"

/* The files of a kernel set are compiled once for each set; a function that is visible outside
 * its file is called NAMED(x), which becomes x_avx2 and so on. */
#define NAMED_AGAIN(name, set) name##_##set
#define NAMED_WITH(name, set)  NAMED_AGAIN(name, set)
#define NAMED(name)            NAMED_WITH(name, KERNEL_SET)

/* Vectors wider than a register may not cross a call. */
#define LANES_INLINE static inline __attribute__((always_inline))

/* ---------------------------------------------------------------- sixteen floats */

enum { LANES = 16 };

typedef float lanes __attribute__((vector_size(LANES * sizeof(float))));
typedef float half_lanes __attribute__((vector_size(LANES / 2 * sizeof(float))));
typedef float quarter_lanes __attribute__((vector_size(LANES / 4 * sizeof(float))));
typedef int32_t int_lanes __attribute__((vector_size(LANES * sizeof(int32_t))));

typedef uint8_t byte_lanes __attribute__((vector_size(LANES)));
typedef int8_t signed_bytes __attribute__((vector_size(LANES)));
typedef uint16_t word_half __attribute__((vector_size(LANES)));
typedef int16_t word_lanes __attribute__((vector_size(LANES * sizeof(int16_t))));

LANES_INLINE lanes lanes_all(float value)
{
    return value - (lanes){ 0 };
}

LANES_INLINE lanes lanes_load(const float *p)
{
    lanes v;
    memcpy(&v, p, sizeof v);
    return v;
}

LANES_INLINE void lanes_store(float *p, lanes v)
{
    memcpy(p, &v, sizeof v);
}

/* The first `count` (< LANES) numbers of a row; the other lanes are 0. */
LANES_INLINE lanes lanes_load_some(const float *p, size_t count)
{
    lanes v = { 0 };
    memcpy(&v, p, count * sizeof(float));
    return v;
}

LANES_INLINE void lanes_store_some(float *p, lanes v, size_t count)
{
    memcpy(p, &v, count * sizeof(float));
}

/* Each lane of `yes` where the condition's lane is all ones, else of `no`. */
LANES_INLINE lanes lanes_choose(int_lanes condition, lanes yes, lanes no)
{
    int_lanes a, b;
    memcpy(&a, &yes, sizeof a);
    memcpy(&b, &no, sizeof b);
    int_lanes chosen = (a & condition) | (b & ~condition);
    lanes result;
    memcpy(&result, &chosen, sizeof result);
    return result;
}

/* v, but 0 where the condition's lane is all ones. */
LANES_INLINE lanes lanes_zero_where(int_lanes condition, lanes v)
{
    int_lanes bits;
    memcpy(&bits, &v, sizeof bits);
    bits &= ~condition;
    memcpy(&v, &bits, sizeof v);
    return v;
}

/* The greater one; b where either is NaN. */
LANES_INLINE lanes lanes_max(lanes a, lanes b)
{
    return lanes_choose(a > b, a, b);
}

/* The lower eight lanes; the others are 0. */
LANES_INLINE lanes lanes_lower(lanes v)
{
    const int_lanes lower = { -1, -1, -1, -1, -1, -1, -1, -1 };
    return lanes_choose(lower, v, (lanes){ 0 });
}

LANES_INLINE quarter_lanes quarter_all(float value)
{
    return (quarter_lanes){ value, value, value, value };
}

/* ---------------------------------------------------------------- sixty-four bytes */

enum { BYTES = 64 };

typedef uint8_t bytes __attribute__((vector_size(BYTES)));
typedef uint8_t half_bytes __attribute__((vector_size(BYTES / 2)));

LANES_INLINE bytes bytes_load(const void *p)
{
    bytes v;
    memcpy(&v, p, sizeof v);
    return v;
}

/* ------------------------------------------------------------ small integer vectors
 * Put together in registers: a load that spans several stores just made would wait until these
 * reach the cache. */

typedef uint64_t two_quads __attribute__((vector_size(16)));
typedef uint16_t eight_words __attribute__((vector_size(16)));
typedef uint32_t eight_integers __attribute__((vector_size(32)));

/* Two arrays of 16-bit floats, one number of each for `group_cols` (32, 64 or 128) columns: what
 * belongs to the 256 columns `index`. */
struct group_numbers {
    const uint8_t *first, *second;
    size_t index, group_cols;
    bool is_bf16; /* else f16 */
};

#endif
