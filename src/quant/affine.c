/* affine.c: MLX's integers with a scale and a bias per group, w = q·scale + bias.
 *
 * A row is one bit stream, lowest bit first: number i of b bits lies at bits
 * [i·b, (i+1)·b).  Eight numbers fill b whole bytes, so they are taken eight at
 * a time, whatever the width:
 *
 *     b = 3    byte 0   1 1 0 0 0 | 2 2        number of the bit, highest bit left;
 *     ...      byte 1   5 4 4 4 3 3 3 2        only 2, 4 and 8 bits never cross a byte
 *
 * Scales and biases, one of each per group_cols numbers, lie in arrays of their
 * own.  A scale may be negative.  The product and the sum are each rounded to
 * f32: for 16-bit scales the product is exact. */
#include "quant/formats.h"

#include <math.h>

/* Inlined with a constant `bits`, so that each width gets its own unrolled loop. */
static inline __attribute__((always_inline)) void
dequantise_affine(float *out, const struct weight *weight, uint64_t row, unsigned bits)
{
    const uint8_t *values = weight->values + row * weight->row_bytes;
    size_t scale_row = weight->group_rows > 1 ? row / weight->group_rows : row;
    const uint8_t *scales = weight->scales + scale_row * weight->scale_row_bytes;
    const uint8_t *biases = weight->biases + scale_row * weight->scale_row_bytes;
    const uint64_t mask = (1u << bits) - 1;
    const size_t group_cols = weight->group_cols;
    float scale = 0.0f, bias = 0.0f;

    for (size_t i = 0, group_end = 0, group = 0; i < weight->cols; i += 8, values += bits) {
        uint64_t stream = 0;
        memcpy(&stream, values, bits);
        for (size_t j = 0; j < 8; j++) {
            /* Groups are multiples of 8 in all files; others are legal, and slow. */
            if ((j == 0 || group_cols % 8 != 0) && i + j == group_end) {
                scale = format_load(weight->scale_format, scales, group);
                bias = format_load(weight->scale_format, biases, group);
                group_end += group_cols;
                group++;
            }
            out[i + j] = (float)(int32_t)(stream >> (j * bits) & mask) * scale + bias;
        }
    }
}

#define DEFINE_DEQUANTISE(bits)                                                                    \
    void dequantise_affine##bits(float *out, const struct weight *weight, uint64_t row)            \
    {                                                                                              \
        dequantise_affine(out, weight, row, bits);                                                 \
    }
DEFINE_DEQUANTISE(2)
DEFINE_DEQUANTISE(3)
DEFINE_DEQUANTISE(4)
DEFINE_DEQUANTISE(5)
DEFINE_DEQUANTISE(6)
DEFINE_DEQUANTISE(8)

/* One group by MLX's rule: the end of the range that is farther from zero is met
 * exactly, and the scale is bent a little so that zero is met as well. */
struct affine_group {
    float scale, bias;
};

static struct affine_group fit_group(const float *in, size_t count, unsigned bits)
{
    const float smallest = 1e-7f; /* a flat group still has a scale to divide by */
    const float steps = (float)((1u << bits) - 1);
    float low = in[0], high = in[0];
    for (size_t i = 1; i < count; i++) {
        low = fminf(low, in[i]);
        high = fmaxf(high, in[i]);
    }
    float scale = fmaxf((high - low) / steps, smallest);
    bool low_is_far = fabsf(low) > fabsf(high);
    float edge = low_is_far ? low : high;
    if (!low_is_far) scale = -scale;
    float zero_at = rintf(edge / scale);
    if (zero_at == 0.0f) return (struct affine_group){ scale, 0.0f };
    return (struct affine_group){ edge / zero_at, edge };
}

static uint64_t quantise_number(float value, struct affine_group group, unsigned bits)
{
    const float top = (float)((1u << bits) - 1);
    float q = rintf((value - group.bias) / group.scale);
    if (!(q > 0.0f)) return 0; /* NaN too */
    return (uint64_t)(q < top ? q : top);
}

void quantise_affine(struct quantised_row out, const struct weight *like, const float *in)
{
    const unsigned bits = format_info(like->format)->block_bytes; /* 8 numbers in `bits` bytes */
    struct affine_group group = { 1.0f, 0.0f };
    size_t left_in_group = 0, number = 0;
    for (size_t i = 0; i < like->cols; i += 8) {
        uint64_t stream = 0;
        for (size_t j = 0; j < 8; j++) {
            if (left_in_group == 0) {
                left_in_group = min_size(like->group_cols, like->cols - (i + j));
                group = fit_group(in + i + j, left_in_group, bits);
                format_store(like->scale_format, out.scales, number, group.scale);
                format_store(like->scale_format, out.biases, number, group.bias);
                number++;
            }
            stream |= quantise_number(in[i + j], group, bits) << (j * bits);
            left_in_group--;
        }
        memcpy(out.values + i / 8 * bits, &stream, bits);
    }
}
