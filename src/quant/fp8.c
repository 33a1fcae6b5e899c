/* fp8.c: 8-bit floats with a scale per tile of the matrix.
 *
 *     scales [ceil(rows / group_rows)][ceil(cols / group_cols)]
 *     w[r][c] = value[r][c] · scale[r / group_rows][c / group_cols]
 *
 * Published files call the scales `weight_scale_inv`; they are multiplied with
 * all the same.  Tiles at the right and lower edge may be partial.  Without
 * scales the values stand for themselves. */
#include "quant/formats.h"

void dequantise_f8(float *out, const struct weight *weight, uint64_t row)
{
    const uint8_t *values = weight->values + row * weight->row_bytes;
    if (!weight->scales) {
        for (size_t c = 0; c < weight->cols; c++) out[c] = format_load(weight->format, values, c);
        return;
    }
    const uint8_t *scales = weight->scales + row / weight->group_rows * weight->scale_row_bytes;
    for (size_t begin = 0, tile = 0; begin < weight->cols; begin += weight->group_cols, tile++) {
        float scale = format_load(weight->scale_format, scales, tile);
        size_t end = min_size(begin + weight->group_cols, weight->cols);
        for (size_t c = begin; c < end; c++)
            out[c] = format_load(weight->format, values, c) * scale;
    }
}
