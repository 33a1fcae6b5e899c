/* weight_units.h: every integer format as the same thing, 256 numbers at a time.
 *
 *     w = q · scale + min      q below 256; scale and min for 16 or 32 numbers
 *
 * A unit is the part of a row that one superblock of GGUF covers, eight of its
 * small blocks, or some groups of MLX.  Formats differ only in how a unit is
 * loaded; products and panels (kernels/decode/dot.c, kernels/prefill/panels.c) are written once.
 * All scales and mins are the exact ones of the reference (src/quant), up to the
 * product of a 16-bit scale with a small whole number, which f32 holds. */
#ifndef KERNELS_WEIGHT_UNITS_H
#define KERNELS_WEIGHT_UNITS_H

#include "kernels/simd/simd.h"
#include "kernels/unit_formats.h"
#include "quant/blocks.h"

struct unit {
    bytes q[4];
    lanes both;       /* groups of 32: eight scales, then eight mins */
    lanes scale, min; /* groups of 16 */
};

/* Where a loader is: unit `index` of a row. */
struct unit_place {
    const struct weight *weight;
    const uint8_t *values;          /* of the row */
    const uint8_t *scales, *biases; /* of the row, where the format has them */
    size_t index;
    size_t count; /* numbers of the row in this unit: 256, less at the end of some rows */
};

typedef void (*unit_loader)(struct unit *u, const struct unit_place *at);

/* What is constant for a format. */
struct unit_kind {
    bool wide; /* numbers above 127 occur */
    int group; /* numbers that share a scale: 16 or 32 */
    int bytes; /* of a unit's values */
    enum unit_order order;
    enum format format;
    bool usual; /* an affine format whose units are all whole, with 16-bit scales */
};

/* The first unit of a row; `count` is the caller's to set. */
LANES_INLINE struct unit_place unit_row(const struct weight *w, uint64_t row)
{
    struct unit_place at = { .weight = w, .values = w->values + row * w->row_bytes };
    if (w->biases) at.biases = w->biases + row * w->scale_row_bytes;
    if (w->scales && w->group_rows == 1) at.scales = w->scales + row * w->scale_row_bytes;
    return at;
}

/* Eight scales, and `factor` times the same as mins. */
LANES_INLINE lanes lanes_scales_and_mins(half_lanes scales, float factor)
{
    const lanes factors = { 1,      1,      1,      1,      1,      1,      1,      1,
                            factor, factor, factor, factor, factor, factor, factor, factor };
    return lanes_join(scales, scales) * factors;
}

/* ---------------------------------------------------------- blocks of 256 */

/* Scales and mins of Q4_K and Q5_K; d and dmin are the block's first four bytes.  The scales of
 * odd groups are multiplied with `odd`, a power of two. */
LANES_INLINE lanes k_scales(const uint8_t *d, const uint8_t *scales, float odd)
{
    const uint32_t six = 0x3f3f3f3f, four = 0x0f0f0f0f, two = 0x03030303;
    uint32_t a = load_u32(scales), b = load_u32(scales + 4), c = load_u32(scales + 8);
    uint64_t s = (a & six) | (uint64_t)((c & four) | (a >> 6 & two) << 4) << 32;
    uint64_t m = (b & six) | (uint64_t)((c >> 4 & four) | (b >> 6 & two) << 4) << 32;
    /* In general registers: those for vectors are what products are short of. */
    __asm__("" : "+r"(s), "+r"(m));
    return lanes_from_bytes((byte_lanes)(two_quads){ s, m }) * lanes_scale_and_min(d, odd);
}

LANES_INLINE void load_q4_k(struct unit *u, const struct unit_place *at)
{
    const struct block_q4_k *b = (const struct block_q4_k *)at->values + at->index;
    u->both = k_scales(b->d, b->scales, 1.0f);
    for (int v = 0; v < 4; v++) u->q[v] = bytes_fields(b->qs + 32 * v, 0, 4, 15);
}

LANES_INLINE void load_q5_k(struct unit *u, const struct unit_place *at)
{
    const struct block_q5_k *b = (const struct block_q5_k *)at->values + at->index;
    u->both = k_scales(b->d, b->scales, 1.0f);
    for (unsigned v = 0; v < 4; v++)
        u->q[v] = bytes_fields(b->qs + 32 * v, 0, 4, 15) | bytes_fields(b->qh, 2 * v, 2 * v + 1, 1)
                                                               << 4;
}

LANES_INLINE void load_q6_k_scales(struct unit *u, const struct block_q6_k *b)
{
    byte_lanes scales;
    memcpy(&scales, b->scales, sizeof scales);
    /* Signed bytes: 128 more as unsigned ones. */
    u->scale = (lanes_from_bytes(scales ^ 128) - 128.0f) * float_from_f16(b->d);
    u->min = u->scale * -32.0f;
}

LANES_INLINE void load_q6_k(struct unit *u, const struct unit_place *at)
{
    const struct block_q6_k *b = (const struct block_q6_k *)at->values + at->index;
    load_q6_k_scales(u, b);
    for (unsigned n = 0; n < 2; n++) {
        bytes low = bytes_load(b->ql + 64 * n);
        u->q[2 * n] = bytes_six_bits(low, b->qh + 32 * n, false);
        u->q[2 * n + 1] = bytes_six_bits(low, b->qh + 32 * n, true);
    }
}

LANES_INLINE void load_q2_k(struct unit *u, const struct unit_place *at)
{
    const struct block_q2_k *b = (const struct block_q2_k *)at->values + at->index;
    byte_lanes both;
    memcpy(&both, b->scales, sizeof both);
    u->scale = lanes_from_bytes(both & 15) * float_from_f16(b->d);
    u->min = lanes_from_bytes(both >> 4) * -float_from_f16(b->dmin);
    for (unsigned v = 0; v < 4; v++)
        u->q[v] = bytes_fields(b->qs + 32 * (v / 2), 4 * (v % 2), 4 * (v % 2) + 2, 3);
}

LANES_INLINE void load_q3_k(struct unit *u, const struct unit_place *at)
{
    const struct block_q3_k *b = (const struct block_q3_k *)at->values + at->index;
    const uint64_t four = 0x0f0f0f0f0f0f0f0f, two = 0x0303030303030303;
    uint64_t low, high = load_u32(b->scales + 8);
    memcpy(&low, b->scales, sizeof low);
    high |= high >> 2 << 32; /* the bits of groups 4 to 7 above those of 0 to 3 */
    two_quads joined = { (low & four) | (high & two) << 4, (low >> 4 & four) | (high >> 4 & two)
                                                                                   << 4 };
    byte_lanes scales = (byte_lanes)joined;
    u->scale = (lanes_from_bytes(scales) - 32.0f) * float_from_f16(b->d);
    u->min = u->scale * -4.0f;
    for (unsigned v = 0; v < 4; v++)
        u->q[v] = bytes_fields(b->qs + 32 * (v / 2), 4 * (v % 2), 4 * (v % 2) + 2, 3) |
                  bytes_fields(b->hmask, 2 * v, 2 * v + 1, 1) << 2;
}

/* The levels of IQ4, 128 higher; those of MXFP4, doubled, 12 higher. */
static const uint8_t iq4_raised[16] = { 1,   24,  45,  63,  79,  93,  106, 118,
                                        129, 141, 153, 166, 181, 197, 217, 241 };
static const uint8_t mxfp4_raised[16] = {
    12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0
};

LANES_INLINE void load_iq4_xs(struct unit *u, const struct unit_place *at)
{
    const struct block_iq4_xs *b = (const struct block_iq4_xs *)at->values + at->index;
    uint64_t scales = 0;
    for (unsigned t = 0; t < 8; t++)
        scales |= (uint64_t)(uint8_t)(iq4_xs_scale(b, t) + 32) << (8 * t);
    lanes twice = lanes_from_bytes((byte_lanes)(two_quads){ scales, scales }) - 32.0f;
    const lanes factors = {
        1, 1, 1, 1, 1, 1, 1, 1, -128, -128, -128, -128, -128, -128, -128, -128
    };
    u->both = twice * (factors * float_from_f16(b->d));
    for (int v = 0; v < 4; v++)
        u->q[v] =
            bytes_look_up(iq4_raised, bytes_nibbles_of_16s(b->qs + 32 * v, b->qs + 32 * v + 16));
}

/* ----------------------------------------------------------- blocks of 32 */

/* Block i of the unit; behind the row's end a block of zeroes. */
LANES_INLINE const uint8_t *block32(const struct unit_place *at, size_t i, size_t block_bytes)
{
    static const uint8_t nothing[sizeof(struct block_q8_0)] = { 0 };
    if (32 * i >= at->count) return nothing;
    return at->values + (8 * at->index + i) * block_bytes;
}

/* The f16 at `offset` of each block. */
LANES_INLINE half_lanes block32_f16(const struct unit_place *at, size_t block_bytes, size_t offset)
{
    two_quads quads = { 0 };
    for (size_t i = 0; i < 8; i++)
        quads[i / 4] |= (uint64_t)load_u16(block32(at, i, block_bytes) + offset) << (16 * (i % 4));
    return half_from_f16((eight_words)quads);
}

LANES_INLINE void block32_nibbles(struct unit *u, const struct unit_place *at, size_t block_bytes,
                                  size_t offset)
{
    for (size_t v = 0; v < 4; v++)
        u->q[v] = bytes_nibbles_of_16s(block32(at, 2 * v, block_bytes) + offset,
                                       block32(at, 2 * v + 1, block_bytes) + offset);
}

/* Adds bit e of each block's 32 bits at `offset` to number e, as its fifth bit. */
LANES_INLINE void block32_fifth_bits(struct unit *u, const struct unit_place *at,
                                     size_t block_bytes, size_t offset)
{
    for (size_t v = 0; v < 4; v++) {
        uint64_t low = load_u32(block32(at, 2 * v, block_bytes) + offset);
        uint64_t high = load_u32(block32(at, 2 * v + 1, block_bytes) + offset);
        u->q[v] |= bytes_where(low | high << 32, 16);
    }
}

LANES_INLINE void load_q4_0(struct unit *u, const struct unit_place *at)
{
    u->both = lanes_scales_and_mins(block32_f16(at, sizeof(struct block_q4_0), 0), -8.0f);
    block32_nibbles(u, at, sizeof(struct block_q4_0), 2);
}

LANES_INLINE void load_q4_1(struct unit *u, const struct unit_place *at)
{
    u->both = lanes_join(block32_f16(at, sizeof(struct block_q4_1), 0),
                         block32_f16(at, sizeof(struct block_q4_1), 2));
    block32_nibbles(u, at, sizeof(struct block_q4_1), 4);
}

LANES_INLINE void load_q5_0(struct unit *u, const struct unit_place *at)
{
    u->both = lanes_scales_and_mins(block32_f16(at, sizeof(struct block_q5_0), 0), -16.0f);
    block32_nibbles(u, at, sizeof(struct block_q5_0), 6);
    block32_fifth_bits(u, at, sizeof(struct block_q5_0), 2);
}

LANES_INLINE void load_q5_1(struct unit *u, const struct unit_place *at)
{
    u->both = lanes_join(block32_f16(at, sizeof(struct block_q5_1), 0),
                         block32_f16(at, sizeof(struct block_q5_1), 2));
    block32_nibbles(u, at, sizeof(struct block_q5_1), 8);
    block32_fifth_bits(u, at, sizeof(struct block_q5_1), 4);
}

LANES_INLINE void load_q8_0(struct unit *u, const struct unit_place *at)
{
    enum { BLOCK = sizeof(struct block_q8_0) };
    u->both = lanes_scales_and_mins(block32_f16(at, BLOCK, 0), -128.0f);
    for (size_t v = 0; v < 4; v++)
        u->q[v] =
            bytes_join(block32(at, 2 * v, BLOCK) + 2, block32(at, 2 * v + 1, BLOCK) + 2) ^ 128;
}

LANES_INLINE void load_iq4_nl(struct unit *u, const struct unit_place *at)
{
    u->both = lanes_scales_and_mins(block32_f16(at, sizeof(struct block_iq4_nl), 0), -128.0f);
    block32_nibbles(u, at, sizeof(struct block_iq4_nl), 2);
    for (int v = 0; v < 4; v++) u->q[v] = bytes_look_up(iq4_raised, u->q[v]);
}

/* Halves of 2^(e - 127), e in a byte each; the two smallest are not normal numbers, the largest e is
 * NaN.  Behind a row's end e is 0: its numbers are 12 - 12 there, whatever the scale. */
LANES_INLINE half_lanes halves_of_e8m0(uint64_t exponents)
{
    typedef uint8_t eight_bytes __attribute__((vector_size(8)));
    typedef uint32_t half_bits __attribute__((vector_size(32)));
    eight_bytes stored;
    memcpy(&stored, &exponents, sizeof stored);
    half_bits e = __builtin_convertvector(stored, half_bits);
    half_bits small = (half_bits)(e < 2), nan = (half_bits)(e == 255) & 0x00c00000;
    return (half_lanes)(((e + 1) << 21 & small) | ((e - 1) << 23 & ~small) | nan);
}

LANES_INLINE void load_mxfp4(struct unit *u, const struct unit_place *at)
{
    uint64_t exponents = 0;
    for (size_t i = 0; i < 8; i++)
        exponents |= (uint64_t)*block32(at, i, sizeof(struct block_mxfp4)) << (8 * i);
    u->both = lanes_scales_and_mins(halves_of_e8m0(exponents), -12.0f);
    block32_nibbles(u, at, sizeof(struct block_mxfp4), 1);
    for (int v = 0; v < 4; v++) u->q[v] = bytes_look_up(mxfp4_raised, u->q[v]);
}

/* Neighbours share a byte, scales lie apart. */
LANES_INLINE void load_e2m1(struct unit *u, const struct unit_place *at)
{
    uint64_t exponents = 0;
    memcpy(&exponents, at->scales + 8 * at->index, at->count < UNIT ? at->count / 32 : 8);
    u->both = lanes_scales_and_mins(halves_of_e8m0(exponents), -12.0f);
    const uint8_t *p = at->values + UNIT / 2 * at->index;
    for (size_t v = 0; v < 4; v++, p += 32)
        u->q[v] = 64 * v >= at->count ? bytes_look_up(mxfp4_raised, (bytes){ 0 })
                                      : bytes_look_up(mxfp4_raised, bytes_from_stream(p, 4));
}

/* ------------------------------------------------------------------ affine */

/* Scales and biases of a whole unit's 2, 4 or 8 groups, 16-bit numbers. */
LANES_INLINE struct group_numbers affine_groups(const struct unit_place *at)
{
    return (struct group_numbers){ .first = at->scales,
                                   .second = at->biases,
                                   .index = at->index,
                                   .group_cols = at->weight->group_cols,
                                   .is_bf16 = at->weight->scale_format == FORMAT_BF16 };
}

/* Whether that is so for all units of all rows. */
LANES_INLINE bool affine_is_usual(const struct weight *w)
{
    bool usual = w->group_cols == 32 || w->group_cols == 64 || w->group_cols == 128;
    return usual && w->scale_format != FORMAT_F32 && w->cols % UNIT == 0;
}

/* Scales or biases of a unit's groups, for 32 numbers each. */
LANES_INLINE half_lanes affine_scales(const struct unit_place *at, const uint8_t *array)
{
    const struct weight *w = at->weight;
    half_lanes scales = { 0 };
    for (size_t i = 0; 32 * i < at->count; i++)
        scales[i] =
            format_load(w->scale_format, array, (UNIT * at->index + 32 * i) / w->group_cols);
    return scales;
}

LANES_INLINE void load_affine_numbers(struct unit *u, const struct unit_place *at, unsigned bits)
{
    const uint8_t *p = at->values + 32 * at->index * bits;
    for (size_t v = 0; v < 4; v++, p += (size_t)8 * bits) {
        if (64 * v >= at->count)
            u->q[v] = (bytes){ 0 };
        else
            u->q[v] = bits == 8 ? bytes_load(p) : bytes_from_stream(p, bits);
    }
}

LANES_INLINE void load_affine(struct unit *u, const struct unit_place *at, unsigned bits)
{
    u->both = lanes_join(affine_scales(at, at->scales), affine_scales(at, at->biases));
    load_affine_numbers(u, at, bits);
}

LANES_INLINE void load_usual_affine(struct unit *u, const struct unit_place *at, unsigned bits)
{
    u->both = lanes_16_bit_groups(affine_groups(at));
    struct unit_place whole = *at;
    whole.count = UNIT;
    load_affine_numbers(u, &whole, bits);
}

#define DEFINE_AFFINE_LOADERS(id, name, below, group, bytes)                                       \
    LANES_INLINE void load_##name(struct unit *u, const struct unit_place *at)                     \
    {                                                                                              \
        load_affine(u, at, (bytes) / 32);                                                          \
    }                                                                                              \
    LANES_INLINE void load_usual_##name(struct unit *u, const struct unit_place *at)               \
    {                                                                                              \
        load_usual_affine(u, at, (bytes) / 32);                                                    \
    }
AFFINE_FORMATS(DEFINE_AFFINE_LOADERS)
#undef DEFINE_AFFINE_LOADERS

#endif
