/* vector.c: norms, softmax and gates over one row. */
#include "kernels/set.h"

#include <math.h>

static float sum_of_squares(const float *x, size_t n)
{
    return NAMED(dot)(x, x, n);
}

void NAMED(rms_norm)(float *out, const float *x, const float *w, float epsilon, size_t n)
{
    float scale = 1.0f / sqrtf(sum_of_squares(x, n) / (float)n + epsilon);
    for (size_t i = 0; i < n; i++) out[i] = x[i] * scale * w[i];
}

void NAMED(unit_norm)(float *x, float scale, float epsilon, size_t n)
{
    float factor = scale / sqrtf(sum_of_squares(x, n) + epsilon);
    for (size_t i = 0; i < n; i++) x[i] *= factor;
}

static float greatest(const float *x, size_t n)
{
    float most = x[0];
    size_t i = 0;
    if (n >= LANES) {
        lanes best = lanes_load(x);
        for (i = LANES; i + LANES <= n; i += LANES) best = lanes_max(lanes_load(x + i), best);
        float values[LANES];
        lanes_store(values, best);
        for (size_t j = 0; j < LANES; j++) most = values[j] > most ? values[j] : most;
    }
    for (; i < n; i++) most = x[i] > most ? x[i] : most;
    return most;
}

void NAMED(exp_shifted)(float *x, float shift, size_t n)
{
    size_t i = 0;
    for (; i + LANES <= n; i += LANES) lanes_store(x + i, lanes_exp(lanes_load(x + i) - shift));
    if (i < n) lanes_store_some(x + i, lanes_exp(lanes_load_some(x + i, n - i) - shift), n - i);
}

void NAMED(softmax)(float *x, size_t n)
{
    if (n == 0) return;
    float most = greatest(x, n);
    lanes sums = { 0 };
    size_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        lanes e = lanes_exp(lanes_load(x + i) - most);
        lanes_store(x + i, e);
        sums += e;
    }
    if (i < n) {
        lanes e = lanes_exp(lanes_load_some(x + i, n - i) - most);
        lanes_store_some(x + i, e, n - i);
        sums += lanes_load_some(x + i, n - i); /* without the lanes behind the end */
    }
    float scale = 1.0f / lanes_sum(sums);
    for (i = 0; i < n; i++) x[i] *= scale;
}

LANES_INLINE void gate_multiply(float *out, const float *gate, const float *up, size_t n,
                                enum activation activation)
{
    size_t i = 0;
    for (; i + LANES <= n; i += LANES)
        lanes_store(out + i, lanes_gate(activation, lanes_load(gate + i), lanes_load(up + i)));
    if (i == n) return;
    lanes g = lanes_load_some(gate + i, n - i), u = lanes_load_some(up + i, n - i);
    lanes_store_some(out + i, lanes_gate(activation, g, u), n - i);
}

void NAMED(silu_multiply)(float *out, const float *gate, const float *up, size_t n)
{
    gate_multiply(out, gate, up, n, ACTIVATION_SILU);
}

void NAMED(gelu_multiply)(float *out, const float *gate, const float *up, size_t n)
{
    gate_multiply(out, gate, up, n, ACTIVATION_GELU);
}

void NAMED(clamped_multiply)(float *out, const float *gate, const float *up, size_t n)
{
    gate_multiply(out, gate, up, n, ACTIVATION_CLAMPED);
}

void NAMED(sigmoid_multiply)(float *out, const float *x, const float *gate, size_t n)
{
    size_t i = 0;
    for (; i + LANES <= n; i += LANES)
        lanes_store(out + i, lanes_load(x + i) * lanes_sigmoid(lanes_load(gate + i)));
    if (i < n) {
        lanes g = lanes_load_some(gate + i, n - i);
        lanes_store_some(out + i, lanes_load_some(x + i, n - i) * lanes_sigmoid(g), n - i);
    }
}

void NAMED(silu)(float *x, size_t n)
{
    size_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        lanes v = lanes_load(x + i);
        lanes_store(x + i, v * lanes_sigmoid(v));
    }
    if (i < n) {
        lanes v = lanes_load_some(x + i, n - i);
        lanes_store_some(x + i, v * lanes_sigmoid(v), n - i);
    }
}

void NAMED(soft_cap)(float *x, float cap, size_t n)
{
    size_t i = 0;
    for (; i + LANES <= n; i += LANES)
        lanes_store(x + i, lanes_tanh(lanes_load(x + i) / cap) * cap);
    if (i < n)
        lanes_store_some(x + i, lanes_tanh(lanes_load_some(x + i, n - i) / cap) * cap, n - i);
}
