/* delta.c: one position of the gated delta rule, row by row of the state:
 * a row is one value channel, and its keys stay in the first-level cache. */
#include "kernels/set.h"

/* s ← decay·s (from `in` to `out`) and the product of the new row with k. */
LANES_INLINE float decay_row(float *out, const float *in, const float *k, float decay, size_t n)
{
    lanes sum = { 0 };
    size_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        lanes s = lanes_load(in + i) * decay;
        lanes_store(out + i, s);
        sum += s * lanes_load(k + i);
    }
    if (i < n) {
        lanes s = lanes_load_some(in + i, n - i) * decay;
        lanes_store_some(out + i, s, n - i);
        sum += s * lanes_load_some(k + i, n - i);
    }
    return lanes_sum(sum);
}

/* s ← s + change·k and the product of the new row with q. */
LANES_INLINE float update_row(float *s, const float *k, const float *q, float change, size_t n)
{
    lanes sum = { 0 };
    size_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        lanes v = lanes_load(s + i) + lanes_load(k + i) * change;
        lanes_store(s + i, v);
        sum += v * lanes_load(q + i);
    }
    if (i < n) {
        lanes v = lanes_load_some(s + i, n - i) + lanes_load_some(k + i, n - i) * change;
        lanes_store_some(s + i, v, n - i);
        sum += v * lanes_load_some(q + i, n - i);
    }
    return lanes_sum(sum);
}

void NAMED(delta_step)(const struct delta_step *d)
{
    for (size_t i = 0; i < d->values; i++) {
        float *row = d->state_out + i * d->keys;
        float remembered = decay_row(row, d->state_in + i * d->keys, d->k, d->decay, d->keys);
        float change = d->strength * (d->v[i] - remembered);
        d->out[i] = update_row(row, d->k, d->q, change, d->keys);
    }
}
