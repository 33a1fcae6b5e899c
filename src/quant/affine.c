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

/* ----------------------------------------------------------------- closest
 *
 * MLX's rule meets the ends of a group's range, where few numbers are.  With 2 or 3 bits
 * most numbers are closer to their levels if the ends are given up a little:
 *
 *     for ranges from the whole one to half of it:
 *         levels at equal steps in the range; each number to the nearest of them;
 *         the line of least squares through (level, number) gives new levels; a few times
 *     keep what had the smallest sum of squares, with scale and bias as they are stored */

enum { LANES = 4, RANGES = 5, LOOKS = 4 };

static const float shrink = 0.06f; /* of the range, at both ends, from one trial to the next */

/* What a look at a group finds: how far off the numbers are, and the line that is nearer. */
struct look {
    float error;
    struct affine_group line;
};

/* Sums go in lanes, which a compiler keeps in vectors: their order is written here, and the
 * same everywhere. */
typedef float lanes __attribute__((vector_size(LANES * sizeof(float))));
typedef int32_t lane_masks __attribute__((vector_size(LANES * sizeof(int32_t))));

static float sum(lanes x)
{
    return (x[0] + x[1]) + (x[2] + x[3]);
}

/* `yes` where the mask is set, `no` elsewhere. */
static inline lanes choose(lane_masks mask, lanes yes, lanes no)
{
    return (lanes)(((lane_masks)yes & mask) | ((lane_masks)no & ~mask));
}

static struct look look_at(const float *in, size_t count, struct affine_group group, float top)
{
    const float round = 0x1.8p23f, inverse = 1.0f / group.scale;
    const lanes none = { 0 }, most = none + top;
    lanes error = none, q1 = none, qq = none, x1 = none, qx = none;
    for (size_t i = 0; i < count; i += LANES) {
        lanes x;
        memcpy(&x, in + i, sizeof x);
        lanes q = (x - group.bias) * inverse;
        q = choose(q > 0.0f, q, none); /* NaN: none */
        q = choose(q < top, q, most);
        q = (q + round) - round; /* to the nearest whole number */
        lanes off = x - (q * group.scale + group.bias);
        error += off * off;
        q1 += q;
        qq += q * q;
        x1 += x;
        qx += q * x;
    }
    float n = (float)count, q = sum(q1), x = sum(x1);
    float spread = n * sum(qq) - q * q;
    struct look out = { sum(error), { 0.0f, 0.0f } };
    if (spread > 0.0f) {
        out.line.scale = (n * sum(qx) - q * x) / spread;
        out.line.bias = (x - out.line.scale * q) / n;
    }
    return out;
}

static struct affine_group as_stored(struct affine_group group, enum format format)
{
    uint8_t bytes[2][8];
    format_store(format, bytes[0], 0, group.scale);
    format_store(format, bytes[1], 0, group.bias);
    return (struct affine_group){ format_load(format, bytes[0], 0),
                                  format_load(format, bytes[1], 0) };
}

struct trial {
    struct affine_group group;
    float error;
};

/* From levels in `line` on to better ones, a few times; *best keeps the best. */
static void refine(struct trial *best, struct affine_group line, const float *in, size_t count,
                   float top, enum format format)
{
    struct affine_group before = { 0 };
    for (int i = 0; i < LOOKS; i++) {
        struct affine_group group = as_stored(line, format);
        bool settled = group.scale == before.scale && group.bias == before.bias;
        if (!(fabsf(group.scale) > 0.0f) || settled) return;
        struct look look = look_at(in, count, group, top);
        if (look.error < best->error) *best = (struct trial){ group, look.error };
        line = look.line;
        before = group;
    }
}

static struct affine_group fit_closest(const float *in, size_t count, unsigned bits,
                                       enum format format)
{
    const float top = (float)((1u << bits) - 1);
    struct trial best = { .group = as_stored(fit_group(in, count, bits), format) };
    if (count % LANES != 0) return best.group;
    best.error = look_at(in, count, best.group, top).error;
    float low = in[0], high = in[0];
    for (size_t i = 1; i < count; i++) {
        low = fminf(low, in[i]);
        high = fmaxf(high, in[i]);
    }
    for (int r = 0; r < RANGES; r++) {
        float cut = (high - low) * shrink * (float)r;
        struct affine_group line = { (high - low - 2.0f * cut) / top, low + cut };
        refine(&best, line, in, count, top, format);
    }
    return best.group;
}

/* -------------------------------------------------------------------- rows */

typedef struct affine_group (*fit_function)(const float *in, size_t count, unsigned bits,
                                            enum format format);

static struct affine_group fit_ends(const float *in, size_t count, unsigned bits,
                                    enum format format)
{
    (void)format; /* MLX rounds to it when the numbers are made */
    return fit_group(in, count, bits);
}

static void quantise(struct quantised_row out, const struct weight *like, const float *in,
                     fit_function fit)
{
    const unsigned bits = format_info(like->format)->block_bytes; /* 8 numbers in `bits` bytes */
    struct affine_group group = { 1.0f, 0.0f };
    size_t left_in_group = 0, number = 0;
    for (size_t i = 0; i < like->cols; i += 8) {
        uint64_t stream = 0;
        for (size_t j = 0; j < 8; j++) {
            if (left_in_group == 0) {
                left_in_group = min_size(like->group_cols, like->cols - (i + j));
                group = fit(in + i + j, left_in_group, bits, like->scale_format);
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

void quantise_affine(struct quantised_row out, const struct weight *like, const float *in)
{
    quantise(out, like, in, fit_ends);
}

void quantise_affine_closest(struct quantised_row out, const struct weight *like, const float *in)
{
    quantise(out, like, in, fit_closest);
}
