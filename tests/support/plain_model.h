/* plain_model.h: a tiny model computed in double, one number after the other, from
 * the equations of the architecture and the checkpoint's own numbers.  It shares
 * nothing with the library: what both agree on is right.
 *
 *     plain_model_init(&plain, &tiny);
 *     plain_model_step(&plain, token, logits);      one token after the other
 *     plain_model_free(&plain);
 *
 * The functions of single operations stand alone.  Vectors are double, weights f32. */
#ifndef SUPPORT_PLAIN_MODEL_H
#define SUPPORT_PLAIN_MODEL_H

#include "support/tiny_model.h"

enum { PLAIN_EXPERTS_MAX = 64 };

/* out[i] = Σ w[i][j] x[j] */
void plain_matrix(double *out, const float *w, size_t rows, size_t cols, const double *x);
void plain_rms_norm(double *out, const double *x, const float *w, double eps, size_t n);
double plain_silu(double x);
double plain_sigmoid(double x);
void plain_softmax(double *x, size_t n);

/* The first `rotary` channels turn: i with i + rotary / 2. */
void plain_rope(double *head, size_t rotary, double base, uint32_t position);

/* One query over `count` keys and values that lie `stride` apart. */
void plain_attend(double *out, const double *q, const double *keys, const double *values,
                  size_t stride, size_t count, size_t width);

/* The k greatest, ascending ids, weights renormalised to 1. */
void plain_route(uint32_t *ids, double *weights, const double *logits, size_t experts, size_t k);

/* S ← decay·S;  S ← S + strength·(v - S·k) kᵀ;  out = S·q;  S: [values][keys] */
struct plain_delta {
    double *out, *state;
    const double *q, *k, *v;
    double decay, strength;
    size_t keys, values;
};
void plain_delta_step(const struct plain_delta *d);

/* down · (silu(gate·x) ⊙ up·x) */
struct plain_ffn {
    const float *gate, *up, *down;
    size_t width, hidden;
};
void plain_ffn_run(double *out, const struct plain_ffn *ffn, const double *x);

/* What happened in a layer; all [width] but the routes and the score. */
struct plain_trace {
    double *after_mixer, *routed, *shared, *out;
    double shared_score;
    uint32_t ids[PLAIN_EXPERTS_MAX];
    double weights[PLAIN_EXPERTS_MAX];
    double gap; /* between the last expert taken and the first left out, in logits */
};

struct plain_layer_state {
    double *keys, *values; /* [context][kv heads x head width] */
    double *conv;          /* [taps - 1][channels], oldest first */
    double *delta;         /* [value heads][value width][key width] */
};

struct plain_model {
    struct tiny_model *tiny;
    struct plain_layer_state *layers;
    uint32_t position;
    struct plain_trace trace; /* of the last layer run */
};

void plain_model_init(struct plain_model *plain, struct tiny_model *tiny);
void plain_model_free(struct plain_model *plain);

/* x: [width], in place, at plain->position. */
void plain_model_layer(struct plain_model *plain, uint32_t layer, double *x);

/* A whole token; logits [vocabulary].  Advances the position. */
void plain_model_step(struct plain_model *plain, int32_t token, double *logits);

#endif
