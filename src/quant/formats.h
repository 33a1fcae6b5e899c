/* formats.h: the functions behind the table of format.c; nobody else needs them. */
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

/* fp8.c */
void dequantise_f8(float *out, const struct weight *weight, uint64_t row);

#endif
