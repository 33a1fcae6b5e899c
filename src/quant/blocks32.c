/* blocks32.c: GGUF formats in blocks of 32.  The products are exact in f32 (at most
 * 11 + 8 bits), so each number is rounded once at most, where a min is added. */
#include "quant/blocks.h"
#include "quant/formats.h"

#include <math.h>

const int8_t iq4_levels[16] = { -127, -104, -83, -65, -49, -35, -22, -10,
                                1,    13,   25,  38,  53,  69,  89,  113 };

const int8_t mxfp4_halves[16] = { 0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12 };

static float scale(const uint8_t bytes[2])
{
    return f32_from_f16(load_u16(bytes));
}

static void expand_q4_0(float *out, const struct block_q4_0 *b)
{
    float d = scale(b->d);
    for (unsigned l = 0; l < 16; l++) {
        out[l] = d * (float)((b->qs[l] & 15) - 8);
        out[l + 16] = d * (float)((b->qs[l] >> 4) - 8);
    }
}

static void expand_q4_1(float *out, const struct block_q4_1 *b)
{
    float d = scale(b->d), m = scale(b->m);
    for (unsigned l = 0; l < 16; l++) {
        out[l] = d * (float)(b->qs[l] & 15) + m;
        out[l + 16] = d * (float)(b->qs[l] >> 4) + m;
    }
}

/* Bit e of `high` as the fifth bit of a number. */
static int fifth_bit(uint32_t high, unsigned e)
{
    return (int)(high >> e & 1u) << 4;
}

static void expand_q5_0(float *out, const struct block_q5_0 *b)
{
    float d = scale(b->d);
    uint32_t high = load_u32(b->qh);
    for (unsigned l = 0; l < 16; l++) {
        out[l] = d * (float)(((b->qs[l] & 15) | fifth_bit(high, l)) - 16);
        out[l + 16] = d * (float)(((b->qs[l] >> 4) | fifth_bit(high, l + 16)) - 16);
    }
}

static void expand_q5_1(float *out, const struct block_q5_1 *b)
{
    float d = scale(b->d), m = scale(b->m);
    uint32_t high = load_u32(b->qh);
    for (unsigned l = 0; l < 16; l++) {
        out[l] = d * (float)((b->qs[l] & 15) | fifth_bit(high, l)) + m;
        out[l + 16] = d * (float)((b->qs[l] >> 4) | fifth_bit(high, l + 16)) + m;
    }
}

static void expand_q8_0(float *out, const struct block_q8_0 *b)
{
    float d = scale(b->d);
    for (unsigned e = 0; e < 32; e++) out[e] = d * (float)b->qs[e];
}

static void expand_iq4_nl(float *out, const struct block_iq4_nl *b)
{
    float d = scale(b->d);
    for (unsigned l = 0; l < 16; l++) {
        out[l] = d * (float)iq4_levels[b->qs[l] & 15];
        out[l + 16] = d * (float)iq4_levels[b->qs[l] >> 4];
    }
}

static void expand_mxfp4(float *out, const struct block_mxfp4 *b)
{
    float d = format_load(FORMAT_F8_E8M0, &b->e, 0);
    for (unsigned l = 0; l < 16; l++) {
        out[l] = d * (0.5f * (float)mxfp4_halves[b->qs[l] & 15]);
        out[l + 16] = d * (0.5f * (float)mxfp4_halves[b->qs[l] >> 4]);
    }
}

#define DEFINE_DEQUANTISE(type)                                                                    \
    void dequantise_##type(float *out, const struct weight *weight, uint64_t row)                  \
    {                                                                                              \
        const struct block_##type *blocks =                                                        \
            (const struct block_##type *)(weight->values + row * weight->row_bytes);               \
        for (size_t i = 0; i < weight->cols / 32; i++) expand_##type(out + i * 32, &blocks[i]);    \
    }
DEFINE_DEQUANTISE(q4_0)
DEFINE_DEQUANTISE(q4_1)
DEFINE_DEQUANTISE(q5_0)
DEFINE_DEQUANTISE(q5_1)
DEFINE_DEQUANTISE(q8_0)
DEFINE_DEQUANTISE(iq4_nl)
DEFINE_DEQUANTISE(mxfp4)

/* Without scales they are 1. */
void dequantise_e2m1(float *out, const struct weight *weight, uint64_t row)
{
    const uint8_t *values = weight->values + row * weight->row_bytes;
    const uint8_t *scales = weight->scales ? weight->scales + row * weight->scale_row_bytes : NULL;
    for (size_t i = 0; i < weight->cols; i++) {
        float d = scales ? format_load(weight->scale_format, scales, i / 32) : 1.0f;
        out[i] = d * (0.5f * (float)mxfp4_halves[values[i / 2] >> 4 * (i % 2) & 15]);
    }
}

void dequantise_columns(float *out, const struct weight *weight, uint64_t row)
{
    const uint8_t *values = weight->values + row * weight->row_bytes;
    enum format format = format_by_row(weight->format);
    for (size_t i = 0; i < weight->cols; i++)
        out[i] = format_load(format, values + i * weight->col_bytes, 0);
}

/* The largest number of a block becomes 127 or -127. */
void quantise_q8_0(struct quantised_row out, const struct weight *like, const float *in)
{
    struct block_q8_0 *blocks = (struct block_q8_0 *)out.values;
    for (size_t i = 0; i < like->cols / 32; i++, in += 32) {
        float largest = 0.0f;
        for (size_t e = 0; e < 32; e++) largest = fmaxf(largest, fabsf(in[e]));
        float d = largest / 127.0f;
        float inverse = d > 0.0f ? 1.0f / d : 0.0f;
        uint16_t half = f16_from_f32(d);
        memcpy(blocks[i].d, &half, sizeof half);
        for (size_t e = 0; e < 32; e++) {
            float q = roundf(in[e] * inverse);
            blocks[i].qs[e] = (int8_t)(q >= -127.0f && q <= 127.0f ? q : 0.0f); /* NaN: 0 */
        }
    }
}
