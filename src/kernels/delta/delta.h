/* delta.h: interface of the gated delta rule kernels.
 *
 *     S ← γ·S;  u = β·(v - S·k);  S ← S + u kᵀ;  o = S·q          one position
 *
 * Prompt: chunks of up to 16 positions, which end at multiples of 16.  With the state S0 before a
 * chunk, Γt = γ1⋯γt and D(t, s) = γ(s+1)⋯γt,
 *
 *     u_t = βt·(v_t - Γt·S0·k_t - Σ s<t  D(t, s)·(k_t·k_s)·u_s)
 *     o_t = Γt·S0·q_t + Σ s≤t  D(t, s)·(q_t·k_s)·u_s
 *     S   = Γn·S0 + Σ D(n, s)·u_s k_sᵀ                              when the chunk is full
 *
 * S0 is multiplied with all keys and queries of a chunk at once and updated once per chunk.  A row
 * does not depend on later ones: a chunk that a step leaves incomplete is stored as S0 and its rows
 * (k, u, γ), and a later step continues it with the same bits.
 *
 * All arithmetic is f32.  16 rows instead of 64: the products between rows grow with the length of a
 * chunk, those with the state do not shrink, and fewer rows have to be stored
 * (docs/notebook/experiments.md).
 *
 * Lanes hold value channels: rows of values are padded with zeroes to a multiple of 16. */
#ifndef KERNELS_DELTA_DELTA_H
#define KERNELS_DELTA_DELTA_H

#include "base/common.h"

enum { DELTA_CHUNK = 16 };

/* One position of the gated delta rule for one head; state is [values][keys].
 *     S ← decay·S;  S ← S + strength·(v - S·k) kᵀ;  out = S·q
 * state_out may be state_in. */
struct delta_step {
    float *out;             /* [values] */
    float *state_out;       /* [values][keys] */
    const float *state_in;  /* [values][keys] */
    const float *q, *k, *v; /* [keys], [keys], [values] */
    float decay, strength;
    size_t keys, values;
};

/* The keys of a chunk in one key head.  Rows [first, end) are new; earlier ones were stored. */
struct delta_keys {
    const float *k, *q; /* [16][keys] */
    size_t keys, first, end;
    float *transposed; /* scratch: [keys][16] */
    float *kk, *qk;    /* [16][16] k_t·k_s and q_t·k_s: rows [first, end) are written */
};

/* The same rows in one value head. */
struct delta_chunk {
    const struct delta_keys *keys;
    size_t padded;                 /* value channels */
    const float *decay, *strength; /* [16] γ and β; decay of all rows, strength of the new ones */
    const float *v;                /* [16][padded] */
    float *u;                      /* [16][padded]: rows before `first` are read */
    float *out;                    /* [16][padded] */
    float *state;                  /* [keys][padded] at the chunk's beginning */
    float *scratch;                /* [2][16][padded] */
};

/* γ = e^(log_decay·ln(1 + e^(a + bias))) and β = 1 / (1 + e^-b), n of each. */
struct delta_gates {
    float *decay, *strength;
    const float *a, *b, *log_decay, *bias;
    size_t n;
};

/* out[t][c] = silu(Σ w[c][j]·x[t + j][c]) for channels [begin, end) */
struct delta_conv {
    float *const *out;     /* [rows] */
    const float *const *x; /* [rows + taps - 1], the oldest first */
    const float *w;        /* [channels][taps] */
    size_t rows, taps, begin, end;
};

struct delta_kernels {
    /* state [values][keys] to or from [keys][padded] */
    void (*load_state)(float *out, const float *state, size_t keys, size_t values);
    void (*store_state)(float *state, const float *in, size_t keys, size_t values);
    void (*multiply_keys)(const struct delta_keys *keys);
    /* Computes u and out of the new rows; does not change the state. */
    void (*rows)(const struct delta_chunk *chunk);
    /* Updates the state to that after the last row of a full chunk. */
    void (*close)(const struct delta_chunk *chunk);
    /* One position, to state_out [values][keys]: see struct delta_step. */
    void (*step)(const struct delta_step *step);
    void (*conv)(const struct delta_conv *conv);
    void (*gates)(const struct delta_gates *gates);
};

static inline size_t delta_padded(size_t values)
{
    return align_up(values, 16);
}

/* Rows of the chunk that `position` lies in, before it, of a run of prompt rows. */
static inline size_t delta_open_rows(uint32_t position, uint32_t run_start)
{
    uint32_t aligned = position - position % DELTA_CHUNK;
    return position - (run_start > aligned ? run_start : aligned);
}

/* Floats that an incomplete chunk of one layer stores: k, u and γ of its rows. */
static inline size_t delta_open_floats(size_t key_heads, size_t keys, size_t value_heads,
                                       size_t values)
{
    return DELTA_CHUNK * (key_heads * keys + value_heads * (delta_padded(values) + 1));
}

#endif
