/* math.h: functions of whole vectors, made of the vocabulary of simd.h: the same source and the
 * same bits for all instruction sets. */
#ifndef KERNELS_SIMD_MATH_H
#define KERNELS_SIMD_MATH_H

/* lanes_stream for any address. */
LANES_INLINE void lanes_stream_any(float *out, lanes x)
{
    if ((uintptr_t)out % sizeof x == 0)
        lanes_stream(out, x);
    else
        lanes_store(out, x);
}

/* ------------------------------------------------------------------ exponentials */

/* e^r for x = n·ln 2 + r, |r| ≤ ½ ln 2: a polynomial. */
LANES_INLINE lanes exp_of_rest(lanes x, lanes *n)
{
    const float log2e = 1.44269504f, ln2_high = 0.693359375f, ln2_low = -2.12194440e-4f;
    /* Adding and subtracting 1.5·2^23 rounds to the nearest whole number. */
    const lanes magic = lanes_all(12582912.0f);
    *n = (x * log2e + magic) - magic;
    lanes r = (x - *n * ln2_high) - *n * ln2_low;
    lanes p = lanes_all(1.9875691500e-4f);
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    return (p * r) * r + r + 1.0f;
}

/* e^x to about one unit in the last place.  Below -87.3 the result is 0, above 88.7 it is
 * infinite; NaN stays NaN. */
LANES_INLINE lanes lanes_exp(lanes x)
{
    const lanes lowest = lanes_all(-87.33654f), highest = lanes_all(88.72283f);
    lanes n;
    if (lanes_within(x, 87.0f)) { /* the same bits with half the instructions */
        lanes p = exp_of_rest(x, &n);
        return lanes_times_power(p, n);
    }
    lanes clamped = lanes_choose(x < lowest, lowest, x);
    clamped = lanes_choose(x > highest, highest, clamped);
    lanes p = exp_of_rest(clamped, &n);
    lanes result = lanes_times_power(p, n);
    result = lanes_choose(x < lowest, (lanes){ 0 }, result);
    result = lanes_choose(x > highest, lanes_all(__builtin_inff()), result);
    return lanes_choose(x == x, result, x);
}

/* 1 / (1 + e^-x) */
LANES_INLINE lanes lanes_sigmoid(lanes x)
{
    return 1.0f / (1.0f + lanes_exp(-x));
}

/* Near 0, where 1 - 2 / (1 + e^2x) would lose digits, a series. */
LANES_INLINE lanes lanes_tanh(lanes x)
{
    lanes square = x * x, p = lanes_all(-1382.0f / 155925.0f);
    p = p * square + 62.0f / 2835.0f;
    p = p * square - 17.0f / 315.0f;
    p = p * square + 2.0f / 15.0f;
    p = p * square - 1.0f / 3.0f;
    lanes near = x + x * square * p;
    lanes far = 1.0f - 2.0f / (1.0f + lanes_exp(x + x));
    return lanes_choose(square < 0.0625f, near, far);
}

/* GELU by its tanh: ½ (1 + tanh(u)) is sigmoid(2u). */
LANES_INLINE lanes lanes_gelu(lanes x)
{
    const float linear = 1.59576912f, cubic = 0.0713548163f; /* 2√(2/π), and 0.044715 of it */
    return x * lanes_sigmoid(x * (x * x * cubic + linear));
}

LANES_INLINE lanes lanes_activate(enum activation activation, lanes x)
{
    return activation == ACTIVATION_GELU ? lanes_gelu(x) : x * lanes_sigmoid(x);
}

/* What the activation makes of a gate and the other half. */
LANES_INLINE lanes lanes_gate(enum activation activation, lanes gate, lanes up)
{
    const float slope = 1.702f, limit = 7.0f;
    if (activation != ACTIVATION_CLAMPED) return lanes_activate(activation, gate) * up;
    lanes g = lanes_least(lanes_all(limit), gate); /* NaN stays NaN */
    lanes u = lanes_greater(lanes_all(-limit), lanes_least(lanes_all(limit), up));
    return g * lanes_sigmoid(g * slope) * (u + 1.0f);
}

/* 2^x for x ≤ 127 to about one unit in the last place; 2^0 is 1, below -126 it is 0. */
LANES_INLINE lanes lanes_exp2(lanes x)
{
    const lanes lowest = lanes_all(-126.0f);
    /* Adding 1.5·2^23 rounds to the nearest whole number n, which then is in the lowest bits. */
    const lanes magic = lanes_all(12582912.0f);
    lanes clamped = lanes_greater(lowest, x); /* NaN stays NaN */
    lanes rounded = clamped + magic;
    lanes r = clamped - (rounded - magic);
    lanes p = lanes_all(1.55946775e-4f);
    p = lanes_fma(p, r, lanes_all(1.34066439e-3f));
    p = lanes_fma(p, r, lanes_all(9.61769298e-3f));
    p = lanes_fma(p, r, lanes_all(5.55031055e-2f));
    p = lanes_fma(p, r, lanes_all(2.40226528e-1f));
    p = lanes_fma(p, r, lanes_all(6.93147215e-1f));
    p = lanes_fma(p, r, lanes_all(1.0f));
    int_lanes bits, n;
    memcpy(&bits, &p, sizeof bits);
    memcpy(&n, &rounded, sizeof n);
    bits += n << 23; /* the bits above the exponent overflow */
    memcpy(&p, &bits, sizeof p);
    return lanes_zero_where(x < lowest, p);
}

/* ------------------------------------------------------------- floats of fewer bits */

static inline bool e4m3_has_nan(const uint8_t *p, size_t n)
{
    uint8_t most = 0;
    for (size_t i = 0; i < n; i++) {
        uint8_t magnitude = p[i] & 0x7f;
        most = magnitude > most ? magnitude : most;
    }
    return most == 0x7f;
}

/* Sixteen e5m2 numbers: the upper halves of f16 ones. */
LANES_INLINE lanes lanes_from_e5m2(const uint8_t *p)
{
    word_lanes shifted = words_from_bytes(p) << 8;
    return lanes_from_f16(&shifted);
}

LANES_INLINE lanes lanes_from_f16_bytes(const uint8_t *p)
{
    return lanes_from_f16(p);
}

/* A conversion of 16 numbers at p. */
typedef lanes (*load_function)(const uint8_t *p);

/* The first `count` (< LANES) numbers of `size` bytes each; the other lanes are 0. */
LANES_INLINE lanes lanes_load_floats(const uint8_t *p, size_t count, size_t size,
                                     load_function load)
{
    lanes copy = { 0 }; /* large enough, and as aligned as a vector */
    memcpy(&copy, p, count * size);
    return load((const uint8_t *)&copy);
}

/* A scale or bias.  The two usual formats come first: MLX writes bf16, and 8-bit floats have f32
 * or bf16 scales. */
LANES_INLINE float load_scale(enum format format, const uint8_t *array, size_t index)
{
    if (format == FORMAT_BF16) return f32_from_bf16(load_u16(array + 2 * index));
    if (format == FORMAT_F32) return load_f32(array + 4 * index);
    return format_load(format, array, index);
}

/* --------------------------------------------------------------------- transposes */

/* out[columns][out_stride] = in[rows][in_stride] transposed, for any number of both. */
LANES_INLINE void transpose_floats(float *out, size_t out_stride, const float *in, size_t in_stride,
                                   size_t rows, size_t columns)
{
    for (size_t r = 0; r < rows; r += LANES) {
        size_t c = 0;
        if (r + LANES <= rows)
            c = transpose_16_rows(out + r, out_stride, in + r * in_stride, in_stride, columns);
        for (; c < columns; c++)
            for (size_t i = r; i < min_size(r + LANES, rows); i++)
                out[c * out_stride + i] = in[i * in_stride + c];
    }
}

#endif
