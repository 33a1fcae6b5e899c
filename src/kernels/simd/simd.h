/* simd.h: the vocabulary that kernels are written in.  The only place that asks for an
 * instruction set; ops include this and name none.
 *
 *     lanes       16 floats                bytes    64 bytes
 *     half_lanes   8 floats                part     the floats that one register holds
 *
 *     types.h     the types, loads and stores: the same everywhere
 *     <isa>.h     the operations below, by instruction set
 *     math.h      functions made of them: exponentials, 8-bit floats, transposes
 *
 * The order of every sum is written down, not left to the compiler, and conversions are exact or
 * round once: the instruction set decides the speed and nothing else.  Each set defines
 *
 *   lanes
 *     lanes_sum           Σ of the lanes: halves folded onto each other until one is left
 *     lanes_fma           a·b + c, rounded once; part_fma the same
 *     lanes_add_upper     a, plus b in the upper eight lanes
 *     lanes_greater       the greater one, b where either is NaN; lanes_least the lesser one
 *     lanes_within        every |x| is at most the limit; a set may say false instead
 *     lanes_times_power   p·2^n for 0.5 < p < 2 and whole n from -126 to 128
 *     lanes_stream        a store past the caches where the set can, for what is not read again
 *                         soon; `out` is aligned to CACHE_LINE.  lanes_streamed: other threads
 *                         may see it from here on
 *   conversions
 *     lanes_from_bytes, lanes_from_bf16, lanes_from_f16, part_from_f16, half_from_f16,
 *     float_from_f16, lanes_to_f16 (nearest, ties to even), words_from_bytes (signed),
 *     lanes_to_bytes (the lowest byte of each integer)
 *     lanes_from_e4m3     2^-8 times the numbers; NaNs are lost (e4m3_has_nan)
 *   spreading
 *     lanes_join          two halves
 *     lanes_twice         numbers 0 0 1 1 … 7 7
 *     lanes_scale_and_min f16 numbers d and m: d, odd·d, d, odd·d, … (8), then -m (8)
 *     lanes_16_bit_groups see struct group_numbers: 8 of the first array, 8 of the second
 *   bytes
 *     bytes_join          32 bytes, then 32 others
 *     bytes_fields        32 bytes >> first & mask, then the same bytes >> second & mask
 *     bytes_six_bits      four bits of `low` (upper: the upper four), two bits of `high` above
 *                         them: bits 0-1 for the first 32 numbers, 2-3 for the others (upper:
 *                         4-5 and 6-7)
 *     bytes_nibbles_of_16s  the lower nibbles of 16 bytes, their upper ones, and so for 16 others
 *     bytes_where         `value` in number i where bit i is set, else 0
 *     bytes_look_up       table[index] for indices below 16
 *     bytes_from_stream   64 numbers of `bits` (a constant below 8) bits, the lowest bit first
 *   integer products
 *     dot4_planes         128·Σ u·high + Σ u·low over four neighbours in each lane; u is unsigned,
 *                         and above 127 only if `wide`
 *     part_add_pairs      16-bit products of neighbours, added to sums (sets with prefill/int16.c)
 *   transposes
 *     transpose_16_rows, transpose_words   as many columns as the set has a quick way for, from
 *                         the first on; returns how many
 *
 * and DECODE_DOT_HEADER, its part of decode/dot.c. */
#ifndef KERNELS_SIMD_SIMD_H
#define KERNELS_SIMD_SIMD_H

#if defined(__AVX512VNNI__)
#include "kernels/simd/avx512_vnni.h"
#elif defined(__AVX512F__)
#include "kernels/simd/avx512_maddubs.h"
#elif defined(__AVXVNNI__)
#include "kernels/simd/avx2_vnni.h"
#elif defined(__AVX2__)
#include "kernels/simd/avx2_maddubs.h"
#elif defined(__ARM_FEATURE_MATMUL_INT8)
#include "kernels/simd/neon_i8mm.h"
#elif defined(__ARM_FEATURE_DOTPROD)
#include "kernels/simd/neon_dotprod.h"
#elif defined(__ARM_NEON)
#include "kernels/simd/neon_f16.h"
#include "kernels/simd/generic.h"
#else
#include "kernels/simd/generic_f16.h"
#include "kernels/simd/generic.h"
#endif

#include "kernels/simd/math.h"

#endif
