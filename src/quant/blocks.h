/* blocks.h: the blocks of GGUF, byte for byte.
 *
 * Members are bytes, so that a block may lie at any address; 16-bit and 32-bit
 * fields are little-endian.  d, m and dmin are f16.  In what follows e is the
 * number of an element in its block, and
 *
 *     nib(qs, e) = e < 16 ? qs[e] & 15 : qs[e - 16] >> 4
 *
 * is the 4-bit number e of 32 in 16 bytes.  In blocks of 256:
 * n = e / 128 (half), j = e % 128 / 32 (quarter of the half), l = e % 32. */
#ifndef QUANT_BLOCKS_H
#define QUANT_BLOCKS_H

#include <stdint.h>

/* ------------------------------------------------------------ 32 numbers */

/* Q4_0   0 d   2 qs[16]                  w = d · (nib - 8) */
struct block_q4_0 {
    uint8_t d[2];
    uint8_t qs[16];
};
_Static_assert(sizeof(struct block_q4_0) == 18, "Q4_0");

/* Q4_1   0 d   2 m   4 qs[16]            w = d · nib + m */
struct block_q4_1 {
    uint8_t d[2];
    uint8_t m[2];
    uint8_t qs[16];
};
_Static_assert(sizeof(struct block_q4_1) == 20, "Q4_1");

/* Q5_0   0 d   2 qh u32   6 qs[16]       w = d · ((nib | bit e of qh << 4) - 16) */
struct block_q5_0 {
    uint8_t d[2];
    uint8_t qh[4];
    uint8_t qs[16];
};
_Static_assert(sizeof(struct block_q5_0) == 22, "Q5_0");

/* Q5_1   0 d   2 m   4 qh u32   8 qs[16] w = d · (nib | bit e of qh << 4) + m */
struct block_q5_1 {
    uint8_t d[2];
    uint8_t m[2];
    uint8_t qh[4];
    uint8_t qs[16];
};
_Static_assert(sizeof(struct block_q5_1) == 24, "Q5_1");

/* Q8_0   0 d   2 qs i8[32]               w = d · qs[e] */
struct block_q8_0 {
    uint8_t d[2];
    int8_t qs[32];
};
_Static_assert(sizeof(struct block_q8_0) == 34, "Q8_0");

/* IQ4_NL 0 d   2 qs[16]                  w = d · iq4_levels[nib] */
struct block_iq4_nl {
    uint8_t d[2];
    uint8_t qs[16];
};
_Static_assert(sizeof(struct block_iq4_nl) == 18, "IQ4_NL");

/* MXFP4  0 e   1 qs[16]                  w = 2^(e - 127) · mxfp4_halves[nib] / 2
 * e = 255 is NaN, as the standard of the format (OCP MX) has it. */
struct block_mxfp4 {
    uint8_t e;
    uint8_t qs[16];
};
_Static_assert(sizeof(struct block_mxfp4) == 17, "MXFP4");

/* ----------------------------------------------------------- 256 numbers */

/* Q2_K   16 groups of 16, each with a 4-bit scale and a 4-bit min
 *
 *       0  scales[16]   s = scales[e / 16]
 *      16  qs[64]       q = qs[32n + l] >> 2j & 3
 *      80  d            w = d · (s & 15) · q - dmin · (s >> 4)
 *      82  dmin */
struct block_q2_k {
    uint8_t scales[16];
    uint8_t qs[64];
    uint8_t d[2];
    uint8_t dmin[2];
};
_Static_assert(sizeof(struct block_q2_k) == 84, "Q2_K");

/* Q3_K   16 groups of 16, each with a signed 6-bit scale; t = e / 16
 *
 *       0  hmask[32]    clear bit 4n + j of hmask[l]: subtract 4
 *      32  qs[64]       q = (qs[32n + l] >> 2j & 3) - (0 or 4)
 *      96  scales[12]   low 4 bits: t < 8 ? scales[t] & 15 : scales[t - 8] >> 4
 *                       high 2:     scales[8 + t % 4] >> 2 · (t / 4) & 3
 *     108  d            w = d · (s - 32) · q */
struct block_q3_k {
    uint8_t hmask[32];
    uint8_t qs[64];
    uint8_t scales[12];
    uint8_t d[2];
};
_Static_assert(sizeof(struct block_q3_k) == 110, "Q3_K");

/* Q4_K   8 groups of 32, each with a 6-bit scale and a 6-bit min; t = e / 32
 *
 *       0  d            w = d · s · q - dmin · m
 *       2  dmin
 *       4  scales[12]   t < 4: s = scales[t] & 63, m = scales[t + 4] & 63
 *                       else:  s = scales[t + 4] & 15 | scales[t - 4] >> 6 << 4
 *                              m = scales[t + 4] >> 4 | scales[t] >> 6 << 4
 *      16  qs[128]      q = nibble of qs[32 · (e / 64) + l], low for even t */
struct block_q4_k {
    uint8_t d[2];
    uint8_t dmin[2];
    uint8_t scales[12];
    uint8_t qs[128];
};
_Static_assert(sizeof(struct block_q4_k) == 144, "Q4_K");

/* Q5_K   as Q4_K, with a fifth bit for each number
 *
 *       0  d
 *       2  dmin
 *       4  scales[12]
 *      16  qh[32]       q += 16 · bit t of qh[l]
 *      48  qs[128] */
struct block_q5_k {
    uint8_t d[2];
    uint8_t dmin[2];
    uint8_t scales[12];
    uint8_t qh[32];
    uint8_t qs[128];
};
_Static_assert(sizeof(struct block_q5_k) == 176, "Q5_K");

/* Q6_K   16 groups of 16, each with a signed 8-bit scale
 *
 *       0  ql[128]      low 4 bits: nibble of ql[64n + 32 · (j & 1) + l], low for j < 2
 *     128  qh[64]       high 2:     qh[32n + l] >> 2j & 3
 *     192  scales i8[16]
 *     208  d            w = d · scales[e / 16] · (q - 32) */
struct block_q6_k {
    uint8_t ql[128];
    uint8_t qh[64];
    int8_t scales[16];
    uint8_t d[2];
};
_Static_assert(sizeof(struct block_q6_k) == 210, "Q6_K");

/* IQ4_XS 8 groups of 32, each with a signed 6-bit scale; t = e / 32
 *
 *       0  d            w = d · (s - 32) · iq4_levels[nib]
 *       2  scales_h u16 high 2 bits of s: scales_h >> 2t & 3
 *       4  scales_l[4]  low 4:            nibble t % 2 of scales_l[t / 2]
 *       8  qs[128]      nib within qs[16t .. 16t + 16) */
struct block_iq4_xs {
    uint8_t d[2];
    uint8_t scales_h[2];
    uint8_t scales_l[4];
    uint8_t qs[128];
};
_Static_assert(sizeof(struct block_iq4_xs) == 136, "IQ4_XS");

/* The 16 levels of IQ4_NL and IQ4_XS: denser around zero, where weights are. */
extern const int8_t iq4_levels[16];

/* The 16 values of an FP4 number (E2M1), doubled so that they are whole. */
extern const int8_t mxfp4_halves[16];

/* Scale and min of group t (0 to 7) from the 12 bytes of Q4_K and Q5_K. */
static inline void k_scale_min(unsigned *scale, unsigned *min, const uint8_t *scales, unsigned t)
{
    if (t < 4) {
        *scale = scales[t] & 63u;
        *min = scales[t + 4] & 63u;
    } else {
        *scale = (scales[t + 4] & 15u) | (unsigned)(scales[t - 4] >> 6) << 4;
        *min = (unsigned)(scales[t + 4] >> 4) | (unsigned)(scales[t] >> 6) << 4;
    }
}

/* Scale of group t (0 to 15) from the 12 bytes of Q3_K, -32 to 31. */
static inline int q3_k_scale(const uint8_t *scales, unsigned t)
{
    unsigned low = t < 8 ? scales[t] & 15u : (unsigned)scales[t - 8] >> 4;
    unsigned high = (unsigned)scales[8 + t % 4] >> (2 * (t / 4)) & 3u;
    return (int)(low | high << 4) - 32;
}

/* Scale of group t (0 to 7) of IQ4_XS, -32 to 31. */
static inline int iq4_xs_scale(const struct block_iq4_xs *block, unsigned t)
{
    unsigned high_bits = block->scales_h[0] | (unsigned)block->scales_h[1] << 8;
    unsigned low = (unsigned)block->scales_l[t / 2] >> (4 * (t % 2)) & 15u;
    return (int)(low | (high_bits >> (2 * t) & 3u) << 4) - 32;
}

#endif
