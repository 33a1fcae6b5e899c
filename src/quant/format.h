/* format.h: the table of weight formats.
 *
 * A row of a matrix is a sequence of blocks: `block_elements` numbers in `block_bytes` bytes.  A
 * matrix (struct weight) is its bytes as stored in the file and, for formats that keep them
 * separately, its scales and biases:
 *
 *     self-contained   F32 F16 BF16, every GGUF type      values
 *     affine           MLX: w = q·scale + bias            values, scales, biases
 *     scaled           FP8 with a scale per tile          values, scales
 *                      E2M1, MXFP4's numbers beside the   values, scales
 *                      scales, two neighbours in a byte
 *     by column        a number of each row, then the     values
 *                      next of each
 *
 * `dequantise` is the reference: plain C, one row; every kernel is tested against it.  Data may
 * start at any address. */
#ifndef QUANT_FORMAT_H
#define QUANT_FORMAT_H

#include "base/common.h"

/* enum suffix, displayed name, elements and bytes of a block, reference dequantise, quantise.
 * Integers are storage only; an affine block is 8 numbers of b bits in b bytes; for the blocks of
 * GGUF see quant/blocks.h. */
#define FORMAT_LIST(X)                                                                             \
    X(F64, "F64", 1, 8, dequantise_f64, NULL)                                                      \
    X(F32, "F32", 1, 4, dequantise_f32, quantise_plain)                                            \
    X(F16, "F16", 1, 2, dequantise_f16, quantise_plain)                                            \
    X(BF16, "BF16", 1, 2, dequantise_bf16, quantise_plain)                                         \
    X(F8_E4M3, "F8_E4M3", 1, 1, dequantise_f8, NULL)                                               \
    X(F8_E5M2, "F8_E5M2", 1, 1, dequantise_f8, NULL)                                               \
    X(F8_E8M0, "F8_E8M0", 1, 1, NULL, NULL)                                                        \
    X(BOOL, "BOOL", 1, 1, NULL, NULL)                                                              \
    X(I8, "I8", 1, 1, NULL, NULL)                                                                  \
    X(U8, "U8", 1, 1, NULL, NULL)                                                                  \
    X(I16, "I16", 1, 2, NULL, NULL)                                                                \
    X(U16, "U16", 1, 2, NULL, NULL)                                                                \
    X(I32, "I32", 1, 4, NULL, NULL)                                                                \
    X(U32, "U32", 1, 4, NULL, NULL)                                                                \
    X(I64, "I64", 1, 8, NULL, NULL)                                                                \
    X(U64, "U64", 1, 8, NULL, NULL)                                                                \
    X(AFFINE2, "affine 2-bit", 8, 2, dequantise_affine2, quantise_affine)                          \
    X(AFFINE3, "affine 3-bit", 8, 3, dequantise_affine3, quantise_affine)                          \
    X(AFFINE4, "affine 4-bit", 8, 4, dequantise_affine4, quantise_affine)                          \
    X(AFFINE5, "affine 5-bit", 8, 5, dequantise_affine5, quantise_affine)                          \
    X(AFFINE6, "affine 6-bit", 8, 6, dequantise_affine6, quantise_affine)                          \
    X(AFFINE8, "affine 8-bit", 8, 8, dequantise_affine8, quantise_affine)                          \
    X(Q4_0, "Q4_0", 32, 18, dequantise_q4_0, NULL)                                                 \
    X(Q4_1, "Q4_1", 32, 20, dequantise_q4_1, NULL)                                                 \
    X(Q5_0, "Q5_0", 32, 22, dequantise_q5_0, NULL)                                                 \
    X(Q5_1, "Q5_1", 32, 24, dequantise_q5_1, NULL)                                                 \
    X(Q8_0, "Q8_0", 32, 34, dequantise_q8_0, quantise_q8_0)                                        \
    X(IQ4_NL, "IQ4_NL", 32, 18, dequantise_iq4_nl, NULL)                                           \
    X(MXFP4, "MXFP4", 32, 17, dequantise_mxfp4, NULL)                                              \
    X(E2M1, "E2M1", 32, 16, dequantise_e2m1, NULL)                                                 \
    X(F32_COLUMNS, "F32 by column", 1, 4, dequantise_columns, NULL)                                \
    X(F16_COLUMNS, "F16 by column", 1, 2, dequantise_columns, NULL)                                \
    X(BF16_COLUMNS, "BF16 by column", 1, 2, dequantise_columns, NULL)                              \
    X(Q2_K, "Q2_K", 256, 84, dequantise_q2_k, NULL)                                                \
    X(Q3_K, "Q3_K", 256, 110, dequantise_q3_k, NULL)                                               \
    X(Q4_K, "Q4_K", 256, 144, dequantise_q4_k, NULL)                                               \
    X(Q5_K, "Q5_K", 256, 176, dequantise_q5_k, NULL)                                               \
    X(Q6_K, "Q6_K", 256, 210, dequantise_q6_k, NULL)                                               \
    X(IQ4_XS, "IQ4_XS", 256, 136, dequantise_iq4_xs, NULL)

enum format {
#define FORMAT_ENUM(id, name, elements, bytes, dequantise, quantise) FORMAT_##id,
    FORMAT_LIST(FORMAT_ENUM)
#undef FORMAT_ENUM
        FORMAT_COUNT
};

/* A matrix [rows][cols] in some format.  All pointers are borrowed. */
struct weight {
    enum format format;
    enum format scale_format; /* of scales and biases */
    uint32_t group_rows;      /* scales: one for group_rows x group_cols numbers */
    uint32_t group_cols;
    uint64_t rows, cols;
    const uint8_t *values; /* [rows][row_bytes]; a row may take less of these than all */
    const uint8_t *scales; /* [ceil(rows / group_rows)][scale_row_bytes], or NULL */
    const uint8_t *biases; /* as scales, or NULL */
    size_t row_bytes;
    size_t scale_row_bytes;
    size_t col_bytes; /* by column: from a number of a row to its next */
};

/* Writes row `row` of `weight` as cols floats. */
typedef void (*dequantise_function)(float *out, const struct weight *weight, uint64_t row);

/* Destination of one row; scales and biases are NULL if the format has none. */
struct quantised_row {
    uint8_t *values;
    uint8_t *scales;
    uint8_t *biases;
};

/* Quantises the cols floats of `in` into one row.  Of `like` only formats, cols and group_cols are
 * used.  NaN gives an unspecified number. */
typedef void (*quantise_function)(struct quantised_row out, const struct weight *like,
                                  const float *in);

struct format_info {
    const char *name;
    uint32_t block_elements;
    uint32_t block_bytes;
    dequantise_function dequantise; /* NULL: storage only, not a weight */
    quantise_function quantise;     /* NULL: nothing here writes this format */
};

/* A second quantiser of the affine formats.  The table's is MLX's algorithm, with the same bits;
 * this one searches for the scales and biases of least squared error and is never worse. */
void quantise_affine_closest(struct quantised_row out, const struct weight *like, const float *in);

/* For FORMAT_COUNT an entry called "unknown" with blocks of 0 bytes. */
const struct format_info *format_info(enum format format);

/* The format of that name, or FORMAT_COUNT. */
enum format format_find(const char *name);

/* Numbers of F32, F16 or BF16 by column; else FORMAT_COUNT.  And back. */
enum format format_by_column(enum format format);
enum format format_by_row(enum format format);

/* The affine format of `bits` (2, 3, 4, 5, 6, 8), or FORMAT_COUNT. */
enum format format_affine(unsigned bits);

/* Bytes of a row of `cols` numbers; false when they do not fill whole blocks. */
bool format_row_bytes(uint64_t *out, enum format format, uint64_t cols);

void weight_dequantise_row(float *out, const struct weight *weight, uint64_t row);

/* Number `index` of an F64, F32, F16, BF16 or F8 array, as f32. */
float format_load(enum format format, const uint8_t *data, size_t index);

/* Stores `value` as number `index` of an F32, F16 or BF16 array, rounding to nearest. */
void format_store(enum format format, uint8_t *data, size_t index, float value);

float f32_from_f16(uint16_t bits);
uint16_t f16_from_f32(float value); /* nearest, ties to even */
static inline float f32_from_bf16(uint16_t bits)
{
    uint32_t wide = (uint32_t)bits << 16;
    return load_f32(&wide);
}
uint16_t bf16_from_f32(float value); /* nearest, ties to even */
float f32_from_e4m3(uint8_t bits);

#endif
