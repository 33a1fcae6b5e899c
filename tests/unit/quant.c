/* quant: number conversions and the reference dequantise of every format. */
#include "quant/format.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static uint32_t bits_of(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static float float_of(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* The value by the definition of a float with `mantissa_bits`, in double arithmetic. */
static double small_float(unsigned exponent, unsigned mantissa, unsigned mantissa_bits, int bias)
{
    double fraction = (double)mantissa / (double)(1u << mantissa_bits);
    return exponent == 0 ? ldexp(fraction, 1 - bias) : ldexp(1.0 + fraction, (int)exponent - bias);
}

static void every_f16_is_read_by_definition(void **state)
{
    (void)state;
    for (unsigned bits = 0; bits < 0x10000u; bits++) {
        unsigned exponent = bits >> 10 & 31u, mantissa = bits & 1023u;
        float got = f32_from_f16((uint16_t)bits);
        assert_int_equal(signbit(got) != 0, bits >> 15);
        if (exponent == 31u) {
            assert_true(mantissa ? isnan(got) : isinf(got));
        } else {
            assert_true(fabs((double)got) == small_float(exponent, mantissa, 10, 15));
        }
    }
}

static void every_f16_survives_the_way_to_f32_and_back(void **state)
{
    (void)state;
    for (unsigned bits = 0; bits < 0x10000u; bits++) {
        float value = f32_from_f16((uint16_t)bits);
        if (isnan(value)) {
            assert_true(isnan(f32_from_f16(f16_from_f32(value))));
        } else {
            assert_int_equal(f16_from_f32(value), bits);
        }
    }
}

/* Between two neighbours: below the middle down, above it up, on it to the even one. */
static void f32_is_rounded_to_the_nearest_f16(void **state)
{
    (void)state;
    for (unsigned bits = 0; bits < 0x7bffu; bits++) {
        float low = f32_from_f16((uint16_t)bits), high = f32_from_f16((uint16_t)(bits + 1));
        float middle = (low + high) / 2.0f; /* exact */
        assert_int_equal(f16_from_f32(middle), bits % 2 ? bits + 1 : bits);
        assert_int_equal(f16_from_f32(nextafterf(middle, low)), bits);
        assert_int_equal(f16_from_f32(nextafterf(middle, high)), bits + 1);
        assert_int_equal(f16_from_f32(-middle), 0x8000u | (bits % 2 ? bits + 1 : bits));
    }
    assert_int_equal(f16_from_f32(65519.996f), 0x7bff);
    assert_int_equal(f16_from_f32(65520.0f), 0x7c00);
    assert_int_equal(f16_from_f32(1e30f), 0x7c00);
    assert_int_equal(f16_from_f32(-INFINITY), 0xfc00);
    assert_int_equal(f16_from_f32(1e-30f), 0);
}

static void bf16_is_the_upper_half_rounded(void **state)
{
    (void)state;
    for (unsigned bits = 0; bits < 0x10000u; bits++) {
        float value = f32_from_bf16((uint16_t)bits);
        assert_int_equal(bits_of(value), bits << 16);
        if (isnan(value)) {
            assert_true(isnan(f32_from_bf16(bf16_from_f32(value))));
            continue;
        }
        assert_int_equal(bf16_from_f32(value), bits);
        if ((bits & 0x7f80u) == 0x7f80u) continue; /* infinity has no neighbour above */
        assert_int_equal(bf16_from_f32(float_of(bits << 16 | 0x7fffu)), bits);
        assert_int_equal(bf16_from_f32(float_of(bits << 16 | 0x8000u)), bits + bits % 2);
        assert_int_equal(bf16_from_f32(float_of(bits << 16 | 0x8001u)), bits + 1);
    }
    assert_true(isnan(f32_from_bf16(bf16_from_f32(float_of(0x7f800001u)))));
}

static void every_f8_is_read_by_definition(void **state)
{
    (void)state;
    for (unsigned bits = 0; bits < 256; bits++) {
        uint8_t byte = (uint8_t)bits;
        float got = f32_from_e4m3(byte);
        assert_int_equal(signbit(got) != 0, bits >> 7);
        if ((bits & 0x7fu) == 0x7fu) {
            assert_true(isnan(got));
        } else {
            assert_true(fabs((double)got) == small_float(bits >> 3 & 15u, bits & 7u, 3, 7));
        }
        float power = format_load(FORMAT_F8_E8M0, &byte, 0);
        assert_true(bits == 255 ? isnan(power) : (double)power == ldexp(1.0, (int)bits - 127));
        float e5m2 = format_load(FORMAT_F8_E5M2, &byte, 0);
        if ((bits & 0x7cu) != 0x7cu)
            assert_true(fabs((double)e5m2) == small_float(bits >> 2 & 31u, bits & 3u, 2, 15));
    }
    assert_true(f32_from_e4m3(0x7e) == 448.0f);
}

static void plain_rows_are_loaded_at_any_address(void **state)
{
    (void)state;
    const double doubles[2] = { -1.5, 0.1 };
    uint8_t bytes[1 + sizeof doubles];
    memcpy(bytes + 1, doubles, sizeof doubles);
    struct weight weight = {
        .format = FORMAT_F64, .rows = 2, .cols = 1, .values = bytes + 1, .row_bytes = 8
    };
    float out;
    weight_dequantise_row(&out, &weight, 1);
    assert_true(out == 0.1f);
    weight.format = FORMAT_BF16;
    weight.row_bytes = 2;
    weight_dequantise_row(&out, &weight, 3);
    assert_int_equal(bits_of(out), (uint32_t)load_u16(bytes + 7) << 16);
}

/* Tiles of 2 x 3 over a matrix of 3 x 4: the right and lower ones are partial. */
static void f8_tiles_may_be_partial(void **state)
{
    (void)state;
    const uint8_t one = 0x38,
                  values[12] = { one, one, one, one, one, one, one, one, one, one, one, 0xb8 };
    const float f32_scales[4] = { 2.0f, 3.0f, 5.0f, 7.0f };
    const uint16_t bf16_scales[4] = { 0x4000, 0x4040, 0x40a0, 0x40e0 };
    const uint8_t e8m0_scales[4] = { 128, 129, 130, 131 };
    struct weight weight = { .format = FORMAT_F8_E4M3,
                             .rows = 3,
                             .cols = 4,
                             .values = values,
                             .row_bytes = 4,
                             .group_rows = 2,
                             .group_cols = 3 };
    const struct {
        enum format format;
        const void *data;
        float expected[4];
    } cases[] = {
        { FORMAT_F32, f32_scales, { 2.0f, 3.0f, 5.0f, -7.0f } },
        { FORMAT_BF16, bf16_scales, { 2.0f, 3.0f, 5.0f, -7.0f } },
        { FORMAT_F8_E8M0, e8m0_scales, { 2.0f, 4.0f, 8.0f, -16.0f } },
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        weight.scale_format = cases[i].format;
        weight.scales = cases[i].data;
        weight.scale_row_bytes = 2 * format_info(cases[i].format)->block_bytes;
        float out[4];
        weight_dequantise_row(out, &weight, 1);
        assert_true(out[0] == cases[i].expected[0] && out[2] == cases[i].expected[0]);
        assert_true(out[3] == cases[i].expected[1]);
        weight_dequantise_row(out, &weight, 2);
        assert_true(out[2] == cases[i].expected[2] && out[3] == cases[i].expected[3]);
    }
}

/* Reads number `index` of a bit stream one bit at a time: slow, and plainly right. */
static unsigned stream_number(const uint8_t *stream, size_t index, unsigned bits)
{
    unsigned number = 0;
    for (unsigned b = 0; b < bits; b++) {
        size_t at = index * bits + b;
        number |= (unsigned)(stream[at / 8] >> (at % 8) & 1u) << b;
    }
    return number;
}

static void affine_rows_of_every_width_and_group(void **state)
{
    (void)state;
    const unsigned widths[] = { 2, 3, 4, 5, 6, 8 }, groups[] = { 32, 64, 128, 12 };
    uint8_t values[2 * 384];
    for (size_t i = 0; i < sizeof values; i++) values[i] = (uint8_t)(i * 167 + i / 7);
    float scales[64], biases[64], out[384];
    for (size_t i = 0; i < 64; i++) {
        scales[i] = ((float)i - 20.0f) * 0.013f;
        biases[i] = 1.0f / ((float)i + 0.7f);
    }
    for (size_t w = 0; w < COUNT_OF(widths); w++) {
        for (size_t g = 0; g < COUNT_OF(groups); g++) {
            struct weight weight = { .format = format_affine(widths[w]),
                                     .scale_format = FORMAT_F32,
                                     .group_rows = 1,
                                     .group_cols = groups[g],
                                     .rows = 2,
                                     .cols = 384,
                                     .values = values,
                                     .row_bytes = 384 / 8 * widths[w],
                                     .scales = (const uint8_t *)scales,
                                     .biases = (const uint8_t *)biases,
                                     .scale_row_bytes = 384 / groups[g] * sizeof(float) };
            weight_dequantise_row(out, &weight, 1);
            for (size_t i = 0; i < 384; i++) {
                size_t group = 384 / groups[g] + i / groups[g];
                unsigned q = stream_number(values + weight.row_bytes, i, widths[w]);
                assert_int_equal(bits_of(out[i]),
                                 bits_of((float)q * scales[group] + biases[group]));
            }
        }
    }
}

static void a_nan_scale_stays_in_its_group(void **state)
{
    (void)state;
    const uint8_t values[16] = { 0 };
    const uint16_t scales[2] = { 0x7fc0, 0x3f80 }, biases[2] = { 0x3f80, 0x4000 };
    struct weight weight = { .format = FORMAT_AFFINE4,
                             .scale_format = FORMAT_BF16,
                             .group_rows = 1,
                             .group_cols = 16,
                             .rows = 1,
                             .cols = 32,
                             .values = values,
                             .row_bytes = 16,
                             .scales = (const uint8_t *)scales,
                             .biases = (const uint8_t *)biases,
                             .scale_row_bytes = 4 };
    float out[32];
    weight_dequantise_row(out, &weight, 0);
    for (size_t i = 0; i < 32; i++) assert_true(i < 16 ? isnan(out[i]) : out[i] == 2.0f);
}

static void row_bytes_are_whole_blocks_or_refused(void **state)
{
    (void)state;
    uint64_t bytes;
    assert_true(format_row_bytes(&bytes, FORMAT_F16, 7) && bytes == 14);
    assert_true(format_row_bytes(&bytes, FORMAT_AFFINE3, 64) && bytes == 24);
    assert_false(format_row_bytes(&bytes, FORMAT_AFFINE3, 65));
    assert_false(format_row_bytes(&bytes, FORMAT_F64, UINT64_MAX / 4));
    assert_false(format_row_bytes(&bytes, FORMAT_COUNT, 8));
    assert_string_equal(format_info(FORMAT_COUNT)->name, "unknown");
    for (unsigned bits = 0; bits < 16; bits++) {
        enum format format = format_affine(bits);
        if (format != FORMAT_COUNT) assert_int_equal(format_info(format)->block_bytes, bits);
    }
    assert_int_equal(format_affine(7), FORMAT_COUNT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_f16_is_read_by_definition),
        cmocka_unit_test(every_f16_survives_the_way_to_f32_and_back),
        cmocka_unit_test(f32_is_rounded_to_the_nearest_f16),
        cmocka_unit_test(bf16_is_the_upper_half_rounded),
        cmocka_unit_test(every_f8_is_read_by_definition),
        cmocka_unit_test(plain_rows_are_loaded_at_any_address),
        cmocka_unit_test(f8_tiles_may_be_partial),
        cmocka_unit_test(affine_rows_of_every_width_and_group),
        cmocka_unit_test(a_nan_scale_stays_in_its_group),
        cmocka_unit_test(row_bytes_are_whole_blocks_or_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
