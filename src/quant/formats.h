/* formats.h: the functions in the table of format.c; included only there and where they are
 * defined. */
#ifndef QUANT_FORMATS_H
#define QUANT_FORMATS_H

#include "quant/format.h"

/* affine.c */
void dequantise_affine2(float *out, const struct weight *weight, uint64_t row);
void dequantise_affine3(float *out, const struct weight *weight, uint64_t row);
void dequantise_affine4(float *out, const struct weight *weight, uint64_t row);
void dequantise_affine5(float *out, const struct weight *weight, uint64_t row);
void dequantise_affine6(float *out, const struct weight *weight, uint64_t row);
void dequantise_affine8(float *out, const struct weight *weight, uint64_t row);
void quantise_affine(struct quantised_row out, const struct weight *like, const float *in);

/* blocks32.c */
void dequantise_q4_0(float *out, const struct weight *weight, uint64_t row);
void dequantise_q4_1(float *out, const struct weight *weight, uint64_t row);
void dequantise_q5_0(float *out, const struct weight *weight, uint64_t row);
void dequantise_q5_1(float *out, const struct weight *weight, uint64_t row);
void dequantise_q8_0(float *out, const struct weight *weight, uint64_t row);
void dequantise_iq4_nl(float *out, const struct weight *weight, uint64_t row);
void dequantise_mxfp4(float *out, const struct weight *weight, uint64_t row);
void dequantise_e2m1(float *out, const struct weight *weight, uint64_t row);
void dequantise_columns(float *out, const struct weight *weight, uint64_t row);
void quantise_q8_0(struct quantised_row out, const struct weight *like, const float *in);

/* blocks256.c */
void dequantise_q2_k(float *out, const struct weight *weight, uint64_t row);
void dequantise_q3_k(float *out, const struct weight *weight, uint64_t row);
void dequantise_q4_k(float *out, const struct weight *weight, uint64_t row);
void dequantise_q5_k(float *out, const struct weight *weight, uint64_t row);
void dequantise_q6_k(float *out, const struct weight *weight, uint64_t row);
void dequantise_iq4_xs(float *out, const struct weight *weight, uint64_t row);

/* fp8.c */
void dequantise_f8(float *out, const struct weight *weight, uint64_t row);

#endif
