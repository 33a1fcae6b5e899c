#include "quant/format.h"

#include "quant/formats.h"

#include <math.h>

static float f32_of_bits(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static uint32_t bits_of_f32(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

/* ------------------------------------------------------------- conversions */

float f32_from_f16(uint16_t bits)
{
    uint32_t sign = (uint32_t)(bits & 0x8000u) << 16;
    uint32_t magnitude = bits & 0x7fffu;
    if (magnitude >= 0x7c00u) /* infinity, or NaN with its payload */
        return f32_of_bits(sign | 0x7f800000u | (magnitude & 0x3ffu) << 13);
    if (magnitude >= 0x0400u) /* normal: the exponent's bias grows from 15 to 127 */
        return f32_of_bits(sign | ((magnitude << 13) + (112u << 23)));
    /* Subnormal or zero: an integer times 2^-24, exact in f32. */
    return f32_of_bits(sign | bits_of_f32((float)magnitude * 0x1p-24f));
}

/* `value` >> `shift`, nearest, ties to even. */
static uint32_t round_shift(uint32_t value, unsigned shift)
{
    uint32_t half = 1u << (shift - 1);
    uint32_t odd = value >> shift & 1u;
    return (value + half - 1 + odd) >> shift;
}

uint16_t f16_from_f32(float value)
{
    uint32_t bits = bits_of_f32(value);
    uint32_t sign = bits >> 16 & 0x8000u;
    uint32_t magnitude = bits & 0x7fffffffu;
    uint32_t half;
    if (magnitude > 0x7f800000u) { /* NaN: quiet, the payload's top kept */
        half = 0x7e00u | (magnitude >> 13 & 0x1ffu);
    } else if (magnitude >= 0x47800000u) { /* 65536 and above */
        half = 0x7c00u;
    } else if (magnitude >= 0x38800000u) { /* normal; a carry may rightly reach infinity */
        half = round_shift(magnitude - (112u << 23), 13);
    } else if (magnitude >= 0x33000000u) { /* subnormal, from half of the smallest one */
        uint32_t mantissa = (magnitude & 0x7fffffu) | 0x800000u;
        half = round_shift(mantissa, 126 - (magnitude >> 23));
    } else {
        half = 0;
    }
    return (uint16_t)(sign | half);
}

uint16_t bf16_from_f32(float value)
{
    uint32_t bits = bits_of_f32(value);
    if ((bits & 0x7fffffffu) > 0x7f800000u) return (uint16_t)(bits >> 16 | 0x40u); /* quiet NaN */
    uint32_t odd = bits >> 16 & 1u;
    return (uint16_t)((bits + 0x7fffu + odd) >> 16);
}

float f32_from_e4m3(uint8_t bits)
{
    uint32_t sign = (uint32_t)(bits & 0x80u) << 24;
    uint32_t magnitude = bits & 0x7fu;
    if (magnitude == 0x7fu) return f32_of_bits(sign | 0x7fc00000u); /* NaN; there is no infinity */
    if (magnitude >= 0x08u) return f32_of_bits(sign | ((magnitude << 20) + (120u << 23)));
    return f32_of_bits(sign | bits_of_f32((float)magnitude * 0x1p-9f));
}

/* A power of two, 2^(bits - 127), or NaN. */
static float f32_from_e8m0(uint8_t bits)
{
    if (bits == 0xffu) return f32_of_bits(0x7fc00000u);
    return f32_of_bits(bits == 0 ? 0x00400000u : (uint32_t)bits << 23);
}

float format_load(enum format format, const uint8_t *data, size_t index)
{
    switch (format) {
    case FORMAT_F64: {
        double value;
        memcpy(&value, data + index * sizeof value, sizeof value);
        return (float)value;
    }
    case FORMAT_F32:
        return load_f32(data + index * 4);
    case FORMAT_F16:
        return f32_from_f16(load_u16(data + index * 2));
    case FORMAT_BF16:
        return f32_from_bf16(load_u16(data + index * 2));
    case FORMAT_F8_E4M3:
        return f32_from_e4m3(data[index]);
    case FORMAT_F8_E5M2: /* the upper half of an f16 */
        return f32_from_f16((uint16_t)(data[index] << 8));
    case FORMAT_F8_E8M0:
        return f32_from_e8m0(data[index]);
    default:
        return NAN; /* not an array of floats: the caller's mistake, kept visible */
    }
}

void format_store(enum format format, uint8_t *data, size_t index, float value)
{
    uint16_t half;
    switch (format) {
    case FORMAT_F32:
        memcpy(data + index * 4, &value, 4);
        return;
    case FORMAT_F16:
        half = f16_from_f32(value);
        break;
    default: /* BF16 */
        half = bf16_from_f32(value);
        break;
    }
    memcpy(data + index * 2, &half, 2);
}

/* --------------------------------------------------------------- the table */

/* A loop for each type, so that the type is not asked for at every number. */
#define DEFINE_PLAIN(name, type, convert)                                                          \
    static void dequantise_##name(float *out, const struct weight *weight, uint64_t row)           \
    {                                                                                              \
        const uint8_t *values = weight->values + row * weight->row_bytes;                          \
        for (size_t i = 0; i < weight->cols; i++) {                                                \
            type value;                                                                            \
            memcpy(&value, values + i * sizeof value, sizeof value);                               \
            out[i] = convert(value);                                                               \
        }                                                                                          \
    }
DEFINE_PLAIN(f64, double, (float))
DEFINE_PLAIN(f32, float, )
DEFINE_PLAIN(f16, uint16_t, f32_from_f16)
DEFINE_PLAIN(bf16, uint16_t, f32_from_bf16)

static void quantise_plain(struct quantised_row out, const struct weight *like, const float *in)
{
    for (size_t i = 0; i < like->cols; i++) format_store(like->format, out.values, i, in[i]);
}

static const struct format_info formats[] = {
#define FORMAT_ROW(id, text, elements, bytes, dequantise, quantise)                                \
    [FORMAT_##id] = { text, elements, bytes, dequantise, quantise },
    FORMAT_LIST(FORMAT_ROW)
#undef FORMAT_ROW
        [FORMAT_COUNT] = { .name = "unknown" },
};

const struct format_info *format_info(enum format format)
{
    return &formats[(unsigned)format < FORMAT_COUNT ? format : FORMAT_COUNT];
}

enum format format_find(const char *name)
{
    for (unsigned i = 0; i < FORMAT_COUNT; i++)
        if (strcmp(formats[i].name, name) == 0) return (enum format)i;
    return FORMAT_COUNT;
}

enum format format_affine(unsigned bits)
{
    switch (bits) {
    case 2:
        return FORMAT_AFFINE2;
    case 3:
        return FORMAT_AFFINE3;
    case 4:
        return FORMAT_AFFINE4;
    case 5:
        return FORMAT_AFFINE5;
    case 6:
        return FORMAT_AFFINE6;
    case 8:
        return FORMAT_AFFINE8;
    default:
        return FORMAT_COUNT;
    }
}

bool format_row_bytes(uint64_t *out, enum format format, uint64_t cols)
{
    const struct format_info *info = format_info(format);
    if (info->block_elements == 0 || cols % info->block_elements != 0) return false;
    return checked_multiply(out, cols / info->block_elements, info->block_bytes);
}

void weight_dequantise_row(float *out, const struct weight *weight, uint64_t row)
{
    format_info(weight->format)->dequantise(out, weight, row);
}

static const enum format by_column[][2] = { { FORMAT_F32, FORMAT_F32_COLUMNS },
                                            { FORMAT_F16, FORMAT_F16_COLUMNS },
                                            { FORMAT_BF16, FORMAT_BF16_COLUMNS } };

enum format format_by_column(enum format format)
{
    for (size_t i = 0; i < COUNT_OF(by_column); i++)
        if (by_column[i][0] == format) return by_column[i][1];
    return FORMAT_COUNT;
}

enum format format_by_row(enum format format)
{
    for (size_t i = 0; i < COUNT_OF(by_column); i++)
        if (by_column[i][1] == format) return by_column[i][0];
    return FORMAT_COUNT;
}
