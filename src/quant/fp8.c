/* fp8.c: 8-bit floats with a scale per tile of the matrix.
 *
 *     scales [ceil(rows / group_rows)][ceil(cols / group_cols)]
 *     w[r][c] = value[r][c] · scale[r / group_rows][c / group_cols]
 *
 * Published files call the scales `weight_scale_inv`; they are multiplied with
 * all the same.  Tiles at the right and lower edge may be partial.  Without
 * scales the values stand for themselves. */
#include "quant/formats.h"

/* `scale` times the values of a tile's row. */
static void scale_values(float *out, enum format format, const uint8_t *values, size_t count,
                         float scale)
{
    if (format == FORMAT_F8_E4M3) {
        for (size_t i = 0; i < count; i++) out[i] = f32_from_e4m3(values[i]) * scale;
    } else {
        for (size_t i = 0; i < count; i++) out[i] = format_load(format, values, i) * scale;
    }
}

void dequantise_f8(float *out, const struct weight *weight, uint64_t row)
{
    const uint8_t *values = weight->values + row * weight->row_bytes;
    if (!weight->scales) {
        scale_values(out, weight->format, values, weight->cols, 1.0f);
        return;
    }
    const uint8_t *scales = weight->scales + row / weight->group_rows * weight->scale_row_bytes;
    for (size_t begin = 0, tile = 0; begin < weight->cols; begin += weight->group_cols, tile++) {
        float scale = format_load(weight->scale_format, scales, tile);
        size_t count = min_size(weight->group_cols, weight->cols - begin);
        scale_values(out + begin, weight->format, values + begin, count, scale);
    }
}
