/* chunk.c: the gated delta rule in chunks, and its convolution; the equations are
 * in kernels/delta/delta.h.  Value channels are lanes, so that all products with the state are sums
 * of rows of the transposed state, each row once for all keys and queries of a chunk. */
#include "kernels/set.h"
#include "kernels/simd/simd.h"

/* Rows and lanes of one pass: as many sums as registers. */
enum { ROWS = PARTS == 1 ? 8 : 4, SIDE = PARTS == 1 ? 2 : 1 };

void NAMED(delta_load_state)(float *out, const float *state, size_t keys, size_t values)
{
    size_t padded = delta_padded(values);
    transpose_floats(out, padded, state, keys, values, keys);
    for (size_t k = 0; k < keys; k++)
        for (size_t v = values; v < padded; v++) out[k * padded + v] = 0.0f;
}

void NAMED(delta_store_state)(float *state, const float *in, size_t keys, size_t values)
{
    transpose_floats(state, keys, in, delta_padded(values), keys, values);
}

/* ------------------------------------------------------------ between the rows */

/* out[t][s] = x_t · k_s for t from `first` on, the 16 s in lanes. */
LANES_INLINE void multiply_rows(float *out, const float *x, const struct delta_keys *d)
{
    for (size_t t = d->first; t < d->end; t += ROWS) {
        size_t count = min_size(ROWS, d->end - t);
        part sums[ROWS][PARTS] = { 0 };
        const float *rows[ROWS];
        for (size_t i = 0; i < ROWS; i++) rows[i] = x + (t + (i < count ? i : 0)) * d->keys;
        for (size_t c = 0; c < d->keys; c++) {
            for (int j = 0; j < PARTS; j++) {
                part k = part_load(d->transposed + c * DELTA_CHUNK + j * PART);
                for (int i = 0; i < ROWS; i++)
                    sums[i][j] = part_fma(part_all(rows[i][c]), k, sums[i][j]);
            }
        }
        for (size_t i = 0; i < count; i++)
            for (int j = 0; j < PARTS; j++)
                part_store(out + (t + i) * DELTA_CHUNK + j * PART, sums[i][j]);
    }
}

void NAMED(delta_multiply_keys)(const struct delta_keys *d)
{
    memset(d->transposed, 0, d->keys * DELTA_CHUNK * sizeof(float));
    transpose_floats(d->transposed, DELTA_CHUNK, d->k, d->keys, d->end, d->keys);
    multiply_rows(d->kk, d->k, d);
    multiply_rows(d->qk, d->q, d);
}

/* ------------------------------------------------------------- with the state */

/* out[t] = x_t · state for up to ROWS rows and `side` lanes of value channels. */
LANES_INLINE void multiply_state(float *out, const float *x, size_t count, const float *state,
                                 const struct delta_chunk *c, int side)
{
    size_t keys = c->keys->keys, padded = c->padded;
    part sums[ROWS][SIDE * PARTS] = { 0 };
    const float *rows[ROWS];
    for (size_t i = 0; i < ROWS; i++) rows[i] = x + (i < count ? i : 0) * keys;
    for (size_t k = 0; k < keys; k++) {
        part s[SIDE * PARTS];
        for (int j = 0; j < side * PARTS; j++) s[j] = part_load(state + k * padded + j * PART);
        for (int i = 0; i < ROWS; i++)
            for (int j = 0; j < side * PARTS; j++)
                sums[i][j] = part_fma(part_all(rows[i][k]), s[j], sums[i][j]);
    }
    for (size_t i = 0; i < count; i++)
        for (int j = 0; j < side * PARTS; j++) part_store(out + i * padded + j * PART, sums[i][j]);
}

/* scratch = S0·k, then S0·q, of the new rows. */
static void read_state(const struct delta_chunk *c)
{
    const struct delta_keys *d = c->keys;
    float *recalled = c->scratch, *asked = recalled + DELTA_CHUNK * c->padded;
    for (size_t v = 0, width; v < c->padded; v += width) {
        bool wide = v + SIDE * LANES <= c->padded;
        width = (wide ? SIDE : 1) * LANES;
        for (size_t t = d->first; t < d->end; t += ROWS) {
            size_t count = min_size(ROWS, d->end - t), at = t * c->padded + v;
            for (int query = 0; query < 2; query++) {
                const float *x = (query ? d->q : d->k) + t * d->keys;
                float *out = (query ? asked : recalled) + at;
                if (wide)
                    multiply_state(out, x, count, c->state + v, c, SIDE);
                else
                    multiply_state(out, x, count, c->state + v, c, 1);
            }
        }
    }
}

/* out = base·scale + Σ weights[s]·u[s] over `count` rows, all value channels. */
LANES_INLINE void combine_rows(float *out, const float *base, float scale, const float *weights,
                               size_t count, const struct delta_chunk *c)
{
    for (size_t v = 0; v < c->padded; v += LANES) {
        lanes sum = lanes_load(base + v) * scale;
        for (size_t s = 0; s < count; s++)
            sum = lanes_fma(lanes_all(weights[s]), lanes_load(c->u + s * c->padded + v), sum);
        lanes_store(out + v, sum);
    }
}

/* D(t, s) of a row from that of the row before, and Γt. */
struct decays {
    float all; /* Γ */
    lanes from;
};

LANES_INLINE void decay(struct decays *d, float gamma, size_t row)
{
    d->all *= gamma;
    d->from = d->from * gamma;
    d->from[row] = 1.0f;
}

void NAMED(delta_rows)(const struct delta_chunk *c)
{
    const struct delta_keys *keys = c->keys;
    const float *recalled = c->scratch, *asked = recalled + DELTA_CHUNK * c->padded;
    struct decays d = { .all = 1.0f };
    read_state(c);
    for (size_t t = 0; t < keys->first; t++) decay(&d, c->decay[t], t);
    for (size_t t = keys->first; t < keys->end; t++) {
        float weights[DELTA_CHUNK], *u = c->u + t * c->padded;
        const float *v = c->v + t * c->padded;
        decay(&d, c->decay[t], t);
        lanes_store(weights, d.from * lanes_load(keys->kk + t * DELTA_CHUNK));
        combine_rows(u, recalled + t * c->padded, d.all, weights, t, c);
        for (size_t i = 0; i < c->padded; i += LANES)
            lanes_store(u + i, (lanes_load(v + i) - lanes_load(u + i)) * c->strength[t]);
        lanes_store(weights, d.from * lanes_load(keys->qk + t * DELTA_CHUNK));
        combine_rows(c->out + t * c->padded, asked + t * c->padded, d.all, weights, t + 1, c);
    }
}

/* ROWS rows of the state: S ← Γ·S + Σ k_s·u_s, the u already weighted. */
LANES_INLINE void change_state(float *state, const float *k, const float *u, float gamma,
                               const struct delta_chunk *c, size_t count, int side)
{
    size_t keys = c->keys->keys, padded = c->padded;
    part sums[ROWS][SIDE * PARTS];
    for (size_t i = 0; i < ROWS; i++)
        for (int j = 0; j < side * PARTS; j++)
            sums[i][j] = part_load(state + (i < count ? i : 0) * padded + j * PART) * gamma;
    for (size_t s = 0; s < c->keys->end; s++) {
        part us[SIDE * PARTS];
        for (int j = 0; j < side * PARTS; j++) us[j] = part_load(u + s * padded + j * PART);
        for (size_t i = 0; i < ROWS; i++)
            for (int j = 0; j < side * PARTS; j++)
                sums[i][j] =
                    part_fma(part_all(k[s * keys + (i < count ? i : 0)]), us[j], sums[i][j]);
    }
    for (size_t i = 0; i < count; i++)
        for (int j = 0; j < side * PARTS; j++)
            part_store(state + i * padded + j * PART, sums[i][j]);
}

void NAMED(delta_close)(const struct delta_chunk *c)
{
    const struct delta_keys *keys = c->keys;
    struct decays d = { .all = 1.0f };
    for (size_t t = 0; t < keys->end; t++) decay(&d, c->decay[t], t);
    for (size_t s = 0; s < keys->end; s++)
        for (size_t v = 0; v < c->padded; v += LANES)
            lanes_store(c->scratch + s * c->padded + v,
                        lanes_load(c->u + s * c->padded + v) * d.from[s]);
    for (size_t k = 0; k < keys->keys; k += ROWS) {
        size_t count = min_size(ROWS, keys->keys - k), v = 0;
        float *state = c->state + k * c->padded;
        for (; v + SIDE * LANES <= c->padded; v += SIDE * LANES)
            change_state(state + v, keys->k + k, c->scratch + v, d.all, c, count, SIDE);
        for (; v < c->padded; v += LANES)
            change_state(state + v, keys->k + k, c->scratch + v, d.all, c, count, 1);
    }
}

/* ---------------------------------------------------------------- one position */

/* `past`: the new state goes to other memory than the old one's, and is not read soon. */
LANES_INLINE void store_state(float *p, lanes v, bool past)
{
    if (past)
        lanes_stream(p, v);
    else
        lanes_store(p, v);
}

/* Some rows of the state: first what they give for k and q, then their change. */
LANES_INLINE void step_rows(const struct delta_step *d, size_t row, int count, float kq, bool past)
{
    enum { MOST = 4 };
    lanes recalled[MOST] = { 0 }, asked[MOST] = { 0 };
    const float *in = d->state_in + row * d->keys;
    float *out = d->state_out + row * d->keys, change[MOST];
    for (size_t c = 0; c < d->keys; c += LANES) {
        lanes k = lanes_load(d->k + c), q = lanes_load(d->q + c);
        for (int i = 0; i < count; i++) {
            lanes s = lanes_load(in + i * d->keys + c);
            recalled[i] = lanes_fma(s, k, recalled[i]);
            asked[i] = lanes_fma(s, q, asked[i]);
        }
    }
    for (int i = 0; i < count; i++) {
        change[i] = d->strength * (d->v[row + i] - d->decay * lanes_sum(recalled[i]));
        d->out[row + i] = d->decay * lanes_sum(asked[i]) + change[i] * kq;
    }
    for (int i = 0; i < count; i++)
        for (size_t c = 0; c < d->keys; c += LANES) {
            lanes s = lanes_load(in + i * d->keys + c) * d->decay;
            store_state(out + i * d->keys + c,
                        lanes_fma(lanes_load(d->k + c), lanes_all(change[i]), s), past);
        }
}

void NAMED(delta_fast_step)(const struct delta_step *d)
{
    if (d->keys % LANES != 0) {
        NAMED(delta_step)(d);
        return;
    }
    bool past = d->state_in != d->state_out && (uintptr_t)d->state_out % CACHE_LINE == 0;
    lanes sum = { 0 };
    for (size_t c = 0; c < d->keys; c += LANES)
        sum = lanes_fma(lanes_load(d->k + c), lanes_load(d->q + c), sum);
    float kq = lanes_sum(sum);
    size_t row = 0;
    for (; row + 4 <= d->values; row += 4) step_rows(d, row, 4, kq, past);
    for (; row < d->values; row++) step_rows(d, row, 1, kq, past);
    if (past) lanes_streamed();
}

/* ------------------------------------------------------------------ convolution */

/* x / (1 + e^-x) to a few units in the last place. */
LANES_INLINE lanes silu(lanes x)
{
    lanes power = lanes_least(x * -1.44269504f, lanes_all(126.0f));
    return x / (lanes_exp2(power) + 1.0f);
}

/* w[j] = tap j of 16 channels, from [16][4]. */
LANES_INLINE void load_four_taps(lanes w[4], const float *from)
{
#define EVEN 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30
#define ODD  1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31
    lanes a = lanes_load(from), b = lanes_load(from + 16);
    lanes c = lanes_load(from + 32), d = lanes_load(from + 48);
    lanes low_even = __builtin_shufflevector(a, b, EVEN);
    lanes low_odd = __builtin_shufflevector(a, b, ODD);
    lanes high_even = __builtin_shufflevector(c, d, EVEN);
    lanes high_odd = __builtin_shufflevector(c, d, ODD);
    w[0] = __builtin_shufflevector(low_even, high_even, EVEN);
    w[1] = __builtin_shufflevector(low_odd, high_odd, EVEN);
    w[2] = __builtin_shufflevector(low_even, high_even, ODD);
    w[3] = __builtin_shufflevector(low_odd, high_odd, ODD);
#undef EVEN
#undef ODD
}

/* 16 channels of all rows with 4 taps: every input is loaded once. */
static void convolve_four(const struct delta_conv *d, size_t c)
{
    lanes w[4], x[4];
    load_four_taps(w, d->w + 4 * c);
    for (int j = 0; j < 3; j++) x[j] = lanes_load(d->x[j] + c);
    for (size_t t = 0; t < d->rows; t++) {
        x[3] = lanes_load(d->x[t + 3] + c);
        lanes sum = w[0] * x[0];
        for (int j = 1; j < 4; j++) sum = lanes_fma(w[j], x[j], sum);
        lanes_store(d->out[t] + c, silu(sum));
        for (int j = 0; j < 3; j++) x[j] = x[j + 1];
    }
}

/* Any other number of taps, and the last channels. */
static void convolve_some(const struct delta_conv *d, size_t c, size_t count)
{
    for (size_t t = 0; t < d->rows; t++) {
        lanes sum = { 0 };
        for (size_t j = 0; j < d->taps; j++)
            for (size_t i = 0; i < count; i++)
                sum[i] += d->w[(c + i) * d->taps + j] * d->x[t + j][c + i];
        lanes_store_some(d->out[t] + c, silu(sum), count);
    }
}

void NAMED(delta_conv)(const struct delta_conv *d)
{
    for (size_t c = d->begin; c < d->end; c += LANES) {
        size_t count = min_size(LANES, d->end - c);
        if (d->taps == 4 && count == LANES)
            convolve_four(d, c);
        else
            convolve_some(d, c, count);
    }
}

/* ----------------------------------------------------------------------- gates */

/* e^x for x ≤ 0, and a little less than f32 allows below -87. */
LANES_INLINE lanes exp_negative(lanes x)
{
    return lanes_exp2(x * 1.44269504f);
}

/* ln(1 + e^x) = max(x, 0) + ln(1 + y) with y = e^-|x|, and ln(1 + y) = 2·artanh(y / (2 + y)) by
 * its series: the argument is at most 1/3. */
LANES_INLINE lanes softplus(lanes x)
{
    lanes y = exp_negative(lanes_least(x, -x)), s = y / (y + 2.0f), square = s * s;
    lanes sum = lanes_all(1.0f / 15);
    for (int i = 13; i > 0; i -= 2) sum = lanes_fma(sum, square, lanes_all(1.0f / (float)i));
    return lanes_fma(s * 2.0f, sum, lanes_greater((lanes){ 0 }, x));
}

LANES_INLINE lanes load_up_to(const float *p, size_t count)
{
    return count >= LANES ? lanes_load(p) : lanes_load_some(p, count);
}

void NAMED(delta_gates)(const struct delta_gates *g)
{
    for (size_t i = 0; i < g->n; i += LANES) {
        size_t count = min_size(LANES, g->n - i);
        lanes step = softplus(load_up_to(g->a + i, count) + load_up_to(g->bias + i, count));
        lanes decay = exp_negative(load_up_to(g->log_decay + i, count) * step);
        lanes b = load_up_to(g->b + i, count), y = exp_negative(lanes_least(b, -b));
        /* e^-|b| / (1 + e^-|b|) for negative b, without an infinity on the way */
        lanes strength = lanes_choose(b < 0.0f, y, lanes_all(1.0f)) / (y + 1.0f);
        if (count == LANES) {
            lanes_store(g->decay + i, decay);
            lanes_store(g->strength + i, strength);
        } else {
            lanes_store_some(g->decay + i, decay, count);
            lanes_store_some(g->strength + i, strength, count);
        }
    }
}
