/* set.h: what the files of a kernel set offer to the table in set.c. */
#ifndef KERNELS_SET_H
#define KERNELS_SET_H

#include "kernels/simd/simd.h"
#include "kernels/unit_formats.h"

void NAMED(dequantise_affine4)(float *out, const struct weight *weight, uint64_t row);
void NAMED(dequantise_affine8)(float *out, const struct weight *weight, uint64_t row);
void NAMED(dequantise_bf16)(float *out, const struct weight *weight, uint64_t row);
void NAMED(dequantise_f16)(float *out, const struct weight *weight, uint64_t row);
void NAMED(dequantise_e4m3)(float *out, const struct weight *weight, uint64_t row);
void NAMED(dequantise_e5m2)(float *out, const struct weight *weight, uint64_t row);

void NAMED(dot_block)(const struct dot_block *block);
float NAMED(dot)(const float *a, const float *b, size_t n);
void NAMED(add_scaled)(float *y, const float *x, float a, size_t n);
void NAMED(rms_norm)(float *out, const float *x, const float *w, float epsilon, size_t n);
void NAMED(unit_norm)(float *x, float scale, float epsilon, size_t n);
void NAMED(exp_shifted)(float *x, float shift, size_t n);
void NAMED(softmax)(float *x, size_t n);
void NAMED(silu_multiply)(float *out, const float *gate, const float *up, size_t n);
void NAMED(gelu_multiply)(float *out, const float *gate, const float *up, size_t n);
void NAMED(clamped_multiply)(float *out, const float *gate, const float *up, size_t n);
void NAMED(sigmoid_multiply)(float *out, const float *x, const float *gate, size_t n);
void NAMED(soft_cap)(float *x, float cap, size_t n);
void NAMED(silu)(float *x, size_t n);
void NAMED(delta_step)(const struct delta_step *d);

void NAMED(attend_begin)(const struct attend_block *b);
void NAMED(attend_begin_sinks)(const struct attend_block *b); /* of a block that has begun */
void NAMED(attend_tile)(const struct attend_block *b, const struct attend_tile *tile);
void NAMED(attend_end)(const struct attend_block *b);
void NAMED(attend_stretch)(const struct attend_stretch *s);
void NAMED(attend_join)(const struct attend_stretch *s, const struct attend_stretch *next);
void NAMED(store_f16)(uint16_t *out, size_t stride, const float *x, size_t n);
void NAMED(load_f16)(float *out, const uint16_t *x, size_t n);
void NAMED(store_q8)(const struct q8_tile *t, size_t index, const float *x);
void NAMED(widen_q8)(uint16_t *out, const struct q8_tile *t);
void NAMED(turn_rows)(uint16_t *out, const float *x, size_t stride, size_t n);
void NAMED(turn_words)(const struct turned_words *w);

void NAMED(delta_load_state)(float *out, const float *state, size_t keys, size_t values);
void NAMED(delta_store_state)(float *state, const float *in, size_t keys, size_t values);
void NAMED(delta_multiply_keys)(const struct delta_keys *d);
void NAMED(delta_rows)(const struct delta_chunk *c);
void NAMED(delta_close)(const struct delta_chunk *c);
void NAMED(delta_fast_step)(const struct delta_step *d);
void NAMED(delta_conv)(const struct delta_conv *d);
void NAMED(delta_gates)(const struct delta_gates *g);

void NAMED(float_dot_f32)(const struct float_block *block);
void NAMED(float_dot_f16)(const struct float_block *block);
void NAMED(float_dot_bf16)(const struct float_block *block);
void NAMED(float_dot_e4m3)(const struct float_block *block);
void NAMED(float_dot_e5m2)(const struct float_block *block);

extern const struct kernels NAMED(kernels);

#define DECLARE_INTEGER_DOT(id, name, below, group, bytes)                                         \
    void NAMED(integer_dot_##name)(const struct integer_block *block);
UNIT_FORMATS(DECLARE_INTEGER_DOT)
#undef DECLARE_INTEGER_DOT
void NAMED(make_units)(struct integer_unit *out, const float *x, size_t n, enum unit_order order);

/* By format, how integer_dot wants activations. */
extern const enum unit_order NAMED(unit_orders)[FORMAT_COUNT];

/* Some of these, as meson.build says. */
extern const struct matrix_unit NAMED(prefill_f32);
extern const struct matrix_unit NAMED(prefill_int16);
extern const struct matrix_unit NAMED(prefill_bf16);
extern const struct matrix_unit NAMED(prefill_amx);

/* Of the sets that multiply bf16 numbers. */
void NAMED(make_panel)(uint16_t *out, size_t stride, const struct weight *weight, uint64_t first,
                       size_t count);
void NAMED(bf16_attend_begin)(const struct attend_block *b);
void NAMED(bf16_attend_tile)(const struct attend_block *b, const struct attend_tile *tile);
void NAMED(bf16_attend_end)(const struct attend_block *b);

#endif
