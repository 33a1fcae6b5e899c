/* set.c: the table of one kernel set. */
#include "kernels/set.h"

#define TEXT_OF_AGAIN(x) #x
#define TEXT_OF(x)       TEXT_OF_AGAIN(x)

/* What the set has of each kind is said in meson.build. */
#define PREFILL_NONE  NULL
#define PREFILL_F32   &NAMED(prefill_f32)
#define PREFILL_INT16 &NAMED(prefill_int16)
#define PREFILL_BF16  &NAMED(prefill_bf16)
#define PREFILL_AMX   &NAMED(prefill_amx)

#define ATTEND_F32(name)  NAMED(attend_##name)
#define ATTEND_BF16(name) NAMED(bf16_attend_##name)
#define ATTEND_AMX(name)  ATTEND_BF16(name)

static const struct attend_kernels attend = {
    .begin = SET_ATTEND(begin),
    .tile = SET_ATTEND(tile),
    .end = SET_ATTEND(end),
    .stretch = NAMED(attend_stretch),
    .join = NAMED(attend_join),
    .store_f16 = NAMED(store_f16),
    .load_f16 = NAMED(load_f16),
    .store_q8 = NAMED(store_q8),
    .widen_q8 = NAMED(widen_q8),
    .turn_rows = NAMED(turn_rows),
    .turn_words = NAMED(turn_words),
};

static const struct delta_kernels delta = {
    .load_state = NAMED(delta_load_state),
    .store_state = NAMED(delta_store_state),
    .multiply_keys = NAMED(delta_multiply_keys),
    .rows = NAMED(delta_rows),
    .close = NAMED(delta_close),
    .step = NAMED(delta_fast_step),
    .conv = NAMED(delta_conv),
    .gates = NAMED(delta_gates),
};

const struct kernels NAMED(kernels) = {
    .name = TEXT_OF(KERNEL_SET),
    .dequantise = { [FORMAT_AFFINE4] = NAMED(dequantise_affine4),
                    [FORMAT_AFFINE8] = NAMED(dequantise_affine8),
                    [FORMAT_BF16] = NAMED(dequantise_bf16),
                    [FORMAT_F16] = NAMED(dequantise_f16),
                    [FORMAT_F8_E4M3] = NAMED(dequantise_e4m3),
                    [FORMAT_F8_E5M2] = NAMED(dequantise_e5m2) },
#define INTEGER_DOT(id, name, below, group, bytes) [FORMAT_##id] = NAMED(integer_dot_##name),
    .integer_dot = { UNIT_FORMATS(INTEGER_DOT) },
    .unit_orders = NAMED(unit_orders),
    .make_units = NAMED(make_units),
    .float_dot = { [FORMAT_F32] = NAMED(float_dot_f32),
                   [FORMAT_F16] = NAMED(float_dot_f16),
                   [FORMAT_BF16] = NAMED(float_dot_bf16),
                   [FORMAT_F8_E4M3] = NAMED(float_dot_e4m3),
                   [FORMAT_F8_E5M2] = NAMED(float_dot_e5m2) },
    .matrix = SET_PREFILL,
    .integer_matrix = SET_PREFILL_INTEGERS,
    .dot_block = NAMED(dot_block),
    .dot = NAMED(dot),
    .add_scaled = NAMED(add_scaled),
    .rms_norm = NAMED(rms_norm),
    .unit_norm = NAMED(unit_norm),
    .exp_shifted = NAMED(exp_shifted),
    .softmax = NAMED(softmax),
    .gate_multiply = { [ACTIVATION_SILU] = NAMED(silu_multiply),
                       [ACTIVATION_GELU] = NAMED(gelu_multiply),
                       [ACTIVATION_CLAMPED] = NAMED(clamped_multiply) },
    .sigmoid_multiply = NAMED(sigmoid_multiply),
    .soft_cap = NAMED(soft_cap),
    .silu = NAMED(silu),
    .delta_step = NAMED(delta_step),
    .attend = &attend,
    .delta = &delta,
};
