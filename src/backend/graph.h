/* graph.h: the computation of a layer as a list of typed operations.
 *
 * A recipe (engine/layer.c) builds one graph for each kind of layer, once.  An operation refers to
 * weights by id and to activations by buffer, so the same graph runs for every layer of that kind,
 * any number of rows and any backend.  Backends are compared by running the same graph.
 *
 *     buffers   [rows][width] f32.  Shared ones are valid across graphs; others only from their
 *               first to their last use, and share memory where these do not overlap
 *               (backend/buffers.h).
 *
 * Overflow of a graph is sticky: builders go on, and graph_check reports it. */
#ifndef BACKEND_GRAPH_H
#define BACKEND_GRAPH_H

#include "base/activation.h"
#include "base/common.h"
#include "model/weight_names.h"
#include "moeflux.h"

/* An index in a struct, so that passing another integer does not compile. */
typedef struct {
    uint16_t id;
} buffer;

/* Buffers that outlive one graph.  Their ids are the same in all graphs. */
enum shared_buffer {
    SHARED_X,             /* [width] the residual stream */
    SHARED_ROUTED,        /* [width] what router, experts and shared expert read */
    SHARED_ANGLES,        /* [rotary] cosines, then sines, of each row's position */
    SHARED_WINDOW_ANGLES, /* the same for layers with a window, which turn otherwise */
    SHARED_EXPERTS,       /* [experts per token][width] the output of each expert */
    SHARED_LOGITS,        /* [vocabulary] */
    SHARED_COUNT
};

enum op_kind {
    OP_EMBED,            /* out = embedding[token], times a factor */
    OP_ROPE_ANGLES,      /* out = angles of each row's position */
    OP_RMS_NORM,         /* out = rms(a, weight) */
    OP_ADD_RMS_NORM,     /* out += rms(a, weight) */
    OP_HEAD_NORM,        /* a ← rms over each head, weight shared by heads or absent */
    OP_COPY,             /* out = a */
    OP_SCALE,            /* a ← a times weight, a single number */
    OP_SOFT_CAP,         /* a ← factor·tanh(a / factor) */
    OP_PROJECT,          /* out = weight · a */
    OP_ADD_PROJECT,      /* out += weight · a */
    OP_ADD_BIAS,         /* a += weight, a vector, in every row */
    OP_SPLIT_GATE,       /* per head [q | gate] in a: out = q, b = gate */
    OP_ROPE,             /* heads in a ← rotated by angles b */
    OP_KV_APPEND,        /* keys a and values b go to the cache */
    OP_ATTEND,           /* out = attention of queries a over the cache */
    OP_LATENT_APPEND,    /* latent and key in a, normalised and rotated by b, go to the cache */
    OP_LATENT_ATTEND,    /* out = latent attention of queries a over the cache */
    OP_SIGMOID_MULTIPLY, /* out = a ⊙ sigmoid(b) */
    OP_ACTIVATE,         /* out = act(a) ⊙ b */
    OP_CONV,             /* out = silu(causal convolution of a), with state */
    OP_UNIT_NORM,        /* queries and keys in a ← length 1, queries scaled */
    OP_DELTA,            /* out = gated delta rule over a, strengths b, decays c, with state */
    OP_GATED_NORM,       /* out = rms over each head of a, weight shared, ⊙ silu(b) */
    OP_ROUTE,            /* routes = the best experts by logits a */
    OP_SUM_EXPERTS,      /* out = Σ weight·expert (in a) */
    OP_COMBINE, /* out += Σ weight·expert (in c) + sigmoid(b)·a; a and b may be absent */
    OP_KINDS
};

/* Rotary position embedding: the rotated channels of a head and how they pair. */
struct rope_shape {
    uint32_t offset;           /* first rotary channel of a head */
    uint32_t width;            /* how many */
    bool interleaved;          /* pairs (2i, 2i+1); else (i, i + width / 2) */
    const double *frequencies; /* [width / 2], borrowed */
    double multiplier;         /* on cosines and sines */
};

/* Sizes of a full-attention layer. */
struct attention_shape {
    uint32_t heads, kv_heads, head_width;
    uint32_t window; /* positions that a query sees, its own included; 0: all */
    bool sinks;      /* every head has a score without a key and a value, in SINKS */
    float scale;     /* of the scores */
};

/* The first position that a query at `position` sees. */
static inline uint32_t attention_first(const struct attention_shape *shape, uint32_t position)
{
    return shape->window > 0 && position >= shape->window ? position + 1 - shape->window : 0;
}

/* Sizes of a latent-attention layer.  A query head is [nope | rope], the cache holds
 * [latent | rope] for all heads together. */
struct latent_shape {
    uint32_t heads, latent_width, nope_width, rope_width, value_width;
    float scale; /* of the scores */
};

/* Sizes of a gated delta net. */
struct delta_shape {
    uint32_t key_heads, value_heads;
    uint32_t key_width, value_width;
    uint32_t taps;
    bool tiled; /* value head h reads key head h mod key_heads; else h / (value / key heads) */
};

/* How experts are chosen and weighted. */
struct router_shape {
    bool sigmoid;     /* independent scores with a bias (in ROUTER_BIAS); else a softmax */
    bool renormalise; /* the chosen weights add up to 1 */
    float scale;      /* then times this */
    bool scaled;      /* then times the expert's number in EXPERT_SCALE */
    uint32_t groups, top_groups; /* only experts of the best groups are candidates */
};

struct op {
    enum op_kind kind;
    mf_stage stage;      /* for profiles */
    buffer out, a, b, c; /* as the list above says; unused ones are NO_BUFFER */
    enum weight_id weight, weight2;
    float epsilon;
    float factor;               /* OP_EMBED, OP_SOFT_CAP */
    uint32_t heads, head_width; /* of norms and rotations over heads */
    enum activation activation; /* OP_ACTIVATE */
    union {
        struct rope_shape rope;           /* OP_ROPE_ANGLES, OP_ROPE, OP_LATENT_APPEND */
        struct attention_shape attention; /* OP_SPLIT_GATE, OP_KV_APPEND, OP_ATTEND */
        struct latent_shape latent;       /* OP_LATENT_ATTEND */
        struct delta_shape delta;         /* OP_CONV, OP_UNIT_NORM, OP_DELTA */
        struct router_shape router;       /* OP_ROUTE */
    };
};

#define NO_BUFFER ((buffer){ UINT16_MAX })
#define NO_WEIGHT WEIGHT_COUNT

enum { GRAPH_OPS_MAX = 40, GRAPH_BUFFERS_MAX = 40 };

struct graph_buffer {
    uint32_t width;      /* floats per row */
    int16_t first, last; /* ops that touch it first and last; -1: never */
};

struct graph {
    const char *label; /* "attention", "delta", … for profiles and messages */
    struct op ops[GRAPH_OPS_MAX];
    uint16_t op_count;
    struct graph_buffer buffers[GRAPH_BUFFERS_MAX];
    uint16_t buffer_count; /* the shared ones included */
    bool full;             /* an op or a buffer did not fit */
    mf_stage stage;        /* of the ops that are added from here on */
};

/* An empty graph; `widths` are those of the shared buffers. */
void graph_begin(struct graph *graph, const char *label, const uint32_t widths[SHARED_COUNT]);

/* False if the recipe did not fit into a graph, which is a bug. */
bool graph_check(const struct graph *graph);

static inline buffer graph_shared(enum shared_buffer which)
{
    return (buffer){ (uint16_t)which };
}

/* One function per operation; those with a result of their own return its buffer. */
void op_embed(struct graph *g, buffer x, float factor);
void op_rope_angles(struct graph *g, buffer angles, const struct rope_shape *shape);
buffer op_rms_norm(struct graph *g, buffer a, enum weight_id weight, float epsilon);
void op_rms_norm_into(struct graph *g, buffer out, buffer a, enum weight_id weight, float epsilon);
void op_add_rms_norm(struct graph *g, buffer out, buffer a, enum weight_id weight, float epsilon);
/* `weight` may be NO_WEIGHT. */
void op_head_norm(struct graph *g, buffer a, enum weight_id weight, float epsilon, uint32_t heads,
                  uint32_t head_width);
buffer op_copy(struct graph *g, buffer a);
void op_scale(struct graph *g, buffer a, enum weight_id weight);
void op_soft_cap(struct graph *g, buffer a, float cap);
buffer op_project(struct graph *g, buffer a, enum weight_id weight, uint32_t width);
void op_project_into(struct graph *g, buffer out, buffer a, enum weight_id weight);
void op_add_project(struct graph *g, buffer out, buffer a, enum weight_id weight);
void op_add_bias(struct graph *g, buffer a, enum weight_id weight);
void op_split_gate(struct graph *g, buffer *q, buffer *gate, buffer a,
                   const struct attention_shape *shape);
void op_rope(struct graph *g, buffer a, buffer angles, uint32_t heads, uint32_t head_width,
             const struct rope_shape *shape);
void op_kv_append(struct graph *g, buffer keys, buffer values, const struct attention_shape *shape);
buffer op_attend(struct graph *g, buffer queries, const struct attention_shape *shape);
/* `a` is [latent | rope]: the latent is normalised with `weight`, the rest rotated. */
void op_latent_append(struct graph *g, buffer a, buffer angles, enum weight_id weight,
                      float epsilon, const struct rope_shape *shape);
buffer op_latent_attend(struct graph *g, buffer queries, const struct latent_shape *shape);
buffer op_sigmoid_multiply(struct graph *g, buffer a, buffer gate);
buffer op_activate(struct graph *g, buffer gate, buffer up, enum activation activation);
buffer op_conv(struct graph *g, buffer a, enum weight_id weight, const struct delta_shape *shape);
void op_unit_norm(struct graph *g, buffer a, float epsilon, const struct delta_shape *shape);
buffer op_delta(struct graph *g, buffer mixed, buffer strength, buffer decay,
                const struct delta_shape *shape);
buffer op_gated_norm(struct graph *g, buffer a, buffer gate, enum weight_id weight, float epsilon,
                     const struct delta_shape *shape);
void op_route(struct graph *g, buffer logits, const struct router_shape *shape);
buffer op_sum_experts(struct graph *g, uint32_t width);
/* `shared` and `scale` may be NO_BUFFER. */
void op_combine(struct graph *g, buffer out, buffer shared, buffer scale);

const char *op_name(enum op_kind kind);

/* Name of an op for profiles, with the weight of a product: "project DELTA_QKV". */
const char *op_label(const struct op *op);

#endif
