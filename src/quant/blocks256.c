/* blocks256.c: GGUF formats in blocks of 256 with scales for groups of 16 or 32.
 *
 * Scale of the block times scale of the group times number has at most 24
 * significant bits, so every product is exact in f32 and each number is rounded
 * once at most, where a min is subtracted. */
#include "quant/blocks.h"
#include "quant/formats.h"

static float scale(const uint8_t bytes[2])
{
    return f32_from_f16(load_u16(bytes));
}

/* In formats with groups of 16, t counts those: element e = 16t + i lies in quarter j of half
 * n, at l = 16 · (t % 2) + i there. */

static void expand_q2_k(float *out, const struct block_q2_k *b)
{
    float d = scale(b->d), dmin = scale(b->dmin);
    for (unsigned t = 0; t < 16; t++, out += 16) {
        unsigned n = t / 8, j = t % 8 / 2;
        const uint8_t *qs = b->qs + 32 * n + 16 * (t % 2);
        float group_scale = d * (float)(b->scales[t] & 15);
        float group_min = dmin * (float)(b->scales[t] >> 4);
        for (unsigned i = 0; i < 16; i++)
            out[i] = group_scale * (float)(qs[i] >> (2 * j) & 3) - group_min;
    }
}

static void expand_q3_k(float *out, const struct block_q3_k *b)
{
    float d = scale(b->d);
    for (unsigned t = 0; t < 16; t++, out += 16) {
        unsigned n = t / 8, j = t % 8 / 2;
        const uint8_t *qs = b->qs + 32 * n + 16 * (t % 2);
        const uint8_t *hmask = b->hmask + 16 * (t % 2);
        float group_scale = d * (float)q3_k_scale(b->scales, t);
        for (unsigned i = 0; i < 16; i++) {
            int third_bit = hmask[i] >> (4 * n + j) & 1; /* clear: subtract 4 */
            int q = (qs[i] >> (2 * j) & 3) + 4 * third_bit - 4;
            out[i] = group_scale * (float)q;
        }
    }
}

static void expand_q4_k(float *out, const struct block_q4_k *b)
{
    float d = scale(b->d), dmin = scale(b->dmin);
    for (unsigned t = 0; t < 8; t++) {
        unsigned s, m;
        k_scale_min(&s, &m, b->scales, t);
        float group_scale = d * (float)s, group_min = dmin * (float)m;
        for (unsigned l = 0; l < 32; l++) {
            unsigned q = (unsigned)b->qs[32 * (t / 2) + l] >> (4 * (t % 2)) & 15u;
            out[32 * t + l] = group_scale * (float)q - group_min;
        }
    }
}

static void expand_q5_k(float *out, const struct block_q5_k *b)
{
    float d = scale(b->d), dmin = scale(b->dmin);
    for (unsigned t = 0; t < 8; t++) {
        unsigned s, m;
        k_scale_min(&s, &m, b->scales, t);
        float group_scale = d * (float)s, group_min = dmin * (float)m;
        for (unsigned l = 0; l < 32; l++) {
            unsigned q = (unsigned)b->qs[32 * (t / 2) + l] >> (4 * (t % 2)) & 15u;
            q |= ((unsigned)b->qh[l] >> t & 1u) << 4;
            out[32 * t + l] = group_scale * (float)q - group_min;
        }
    }
}

static void expand_q6_k(float *out, const struct block_q6_k *b)
{
    float d = scale(b->d);
    for (unsigned t = 0; t < 16; t++, out += 16) {
        unsigned n = t / 8, j = t % 8 / 2;
        const uint8_t *ql = b->ql + 64 * n + 32 * (j % 2) + 16 * (t % 2);
        const uint8_t *qh = b->qh + 32 * n + 16 * (t % 2);
        float group_scale = d * (float)b->scales[t];
        for (unsigned i = 0; i < 16; i++) {
            int low = ql[i] >> (4 * (j / 2)) & 15, high = qh[i] >> (2 * j) & 3;
            out[i] = group_scale * (float)((low | high << 4) - 32);
        }
    }
}

static void expand_iq4_xs(float *out, const struct block_iq4_xs *b)
{
    float d = scale(b->d);
    for (unsigned t = 0; t < 8; t++) {
        float group_scale = d * (float)iq4_xs_scale(b, t);
        const uint8_t *qs = b->qs + (size_t)16 * t;
        for (unsigned l = 0; l < 16; l++) {
            out[32 * t + l] = group_scale * (float)iq4_levels[qs[l] & 15];
            out[32 * t + 16 + l] = group_scale * (float)iq4_levels[qs[l] >> 4];
        }
    }
}

#define DEFINE_DEQUANTISE(type)                                                                    \
    void dequantise_##type(float *out, const struct weight *weight, uint64_t row)                  \
    {                                                                                              \
        const struct block_##type *blocks =                                                        \
            (const struct block_##type *)(weight->values + row * weight->row_bytes);               \
        for (size_t i = 0; i < weight->cols / 256; i++) expand_##type(out + i * 256, &blocks[i]);  \
    }
DEFINE_DEQUANTISE(q2_k)
DEFINE_DEQUANTISE(q3_k)
DEFINE_DEQUANTISE(q4_k)
DEFINE_DEQUANTISE(q5_k)
DEFINE_DEQUANTISE(q6_k)
DEFINE_DEQUANTISE(iq4_xs)
