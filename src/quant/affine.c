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

/* Inlined with a constant `bits`, so that each width gets its own unrolled loop. */
static inline __attribute__((always_inline)) void
dequantise_affine(float *out, const struct weight *weight, uint64_t row, unsigned bits)
{
    const uint8_t *values = weight->values + row * weight->row_bytes;
    size_t scale_row = weight->group_rows > 1 ? row / weight->group_rows : row;
    const uint8_t *scales = weight->scales + scale_row * weight->scale_row_bytes;
    const uint8_t *biases = weight->biases + scale_row * weight->scale_row_bytes;
    const uint64_t mask = (1u << bits) - 1;
    size_t group = 0, left_in_group = 0;
    float scale = 0.0f, bias = 0.0f;

    for (size_t i = 0; i < weight->cols; i += 8, values += bits) {
        uint64_t stream = 0;
        memcpy(&stream, values, bits);
        for (size_t j = 0; j < 8; j++, stream >>= bits) {
            if (left_in_group == 0) {
                scale = format_load(weight->scale_format, scales, group);
                bias = format_load(weight->scale_format, biases, group);
                left_in_group = weight->group_cols;
                group++;
            }
            out[i + j] = (float)(stream & mask) * scale + bias;
            left_in_group--;
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
