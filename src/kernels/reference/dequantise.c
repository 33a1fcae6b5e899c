/* dequantise.c: the formats that matter most, sixteen numbers at a time.
 * The same roundings as the reference in src/quant: q·scale, then + bias. */
#include "kernels/set.h"
#include "kernels/simd/simd.h"

struct affine_row {
    const uint8_t *values, *scales, *biases;
};

LANES_INLINE struct affine_row affine_row(const struct weight *weight, uint64_t row)
{
    return (struct affine_row){ weight->values + row * weight->row_bytes,
                                weight->scales + row * weight->scale_row_bytes,
                                weight->biases + row * weight->scale_row_bytes };
}

/* 32 numbers from 16 bytes, low nibble first. */
LANES_INLINE void unpack_nibbles(float *out, const uint8_t *values, float scale, float bias)
{
    byte_lanes packed, low, high;
    memcpy(&packed, values, sizeof packed);
    low = packed & 15;
    high = packed >> 4;
    byte_lanes first =
        __builtin_shufflevector(low, high, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
    byte_lanes second = __builtin_shufflevector(low, high, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13,
                                                29, 14, 30, 15, 31);
    lanes_store(out, lanes_from_bytes(first) * scale + bias);
    lanes_store(out + LANES, lanes_from_bytes(second) * scale + bias);
}

void NAMED(dequantise_affine4)(float *out, const struct weight *weight, uint64_t row)
{
    size_t group_cols = weight->group_cols;
    if (group_cols % 32 != 0 || weight->group_rows != 1) {
        weight_dequantise_row(out, weight, row);
        return;
    }
    struct affine_row r = affine_row(weight, row);
    for (size_t g = 0; g < weight->cols / group_cols; g++) {
        float scale = load_scale(weight->scale_format, r.scales, g);
        float bias = load_scale(weight->scale_format, r.biases, g);
        const uint8_t *values = r.values + g * group_cols / 2;
        for (size_t i = 0; i < group_cols; i += 32)
            unpack_nibbles(out + g * group_cols + i, values + i / 2, scale, bias);
    }
}

void NAMED(dequantise_affine8)(float *out, const struct weight *weight, uint64_t row)
{
    size_t group_cols = weight->group_cols;
    if (group_cols % LANES != 0 || weight->group_rows != 1) {
        weight_dequantise_row(out, weight, row);
        return;
    }
    struct affine_row r = affine_row(weight, row);
    for (size_t g = 0; g < weight->cols / group_cols; g++) {
        float scale = load_scale(weight->scale_format, r.scales, g);
        float bias = load_scale(weight->scale_format, r.biases, g);
        for (size_t i = g * group_cols; i < (g + 1) * group_cols; i += LANES) {
            byte_lanes q;
            memcpy(&q, r.values + i, sizeof q);
            lanes_store(out + i, lanes_from_bytes(q) * scale + bias);
        }
    }
}

void NAMED(dequantise_bf16)(float *out, const struct weight *weight, uint64_t row)
{
    const uint8_t *values = weight->values + row * weight->row_bytes;
    size_t i = 0;
    for (; i + LANES <= weight->cols; i += LANES)
        lanes_store(out + i, lanes_from_bf16(values + 2 * i));
    for (; i < weight->cols; i++) out[i] = f32_from_bf16(load_u16(values + 2 * i));
}

void NAMED(dequantise_f16)(float *out, const struct weight *weight, uint64_t row)
{
    const uint8_t *values = weight->values + row * weight->row_bytes;
    size_t i = 0;
    for (; i + LANES <= weight->cols; i += LANES)
        lanes_store(out + i, lanes_from_f16(values + 2 * i));
    for (; i < weight->cols; i++) out[i] = f32_from_f16(load_u16(values + 2 * i));
}

/* ---------------------------------------------------------------- 8-bit floats */

/* Numbers that are `factor` times what `load` gives, with the scales of their tiles. */
LANES_INLINE void dequantise_f8(float *out, const struct weight *w, uint64_t row,
                                load_function load, float factor)
{
    const uint8_t *values = w->values + row * w->row_bytes;
    const uint8_t *scales = w->scales ? w->scales + row / w->group_rows * w->scale_row_bytes : NULL;
    size_t width = scales ? w->group_cols : w->cols;
    for (size_t begin = 0, tile = 0; begin < w->cols; begin += width, tile++) {
        float scale = scales ? load_scale(w->scale_format, scales, tile) : 1.0f;
        size_t i = begin, end = min_size(begin + width, w->cols);
        for (; i + LANES <= end; i += LANES)
            lanes_store(out + i, load(values + i) * factor * scale);
        for (; i < end; i++) out[i] = format_load(w->format, values, i) * scale;
    }
}

void NAMED(dequantise_e4m3)(float *out, const struct weight *weight, uint64_t row)
{
    if (e4m3_has_nan(weight->values + row * weight->row_bytes, weight->cols))
        weight_dequantise_row(out, weight, row);
    else
        dequantise_f8(out, weight, row, lanes_from_e4m3, 0x1p8f);
}

void NAMED(dequantise_e5m2)(float *out, const struct weight *weight, uint64_t row)
{
    dequantise_f8(out, weight, row, lanes_from_e5m2, 1.0f);
}
