#include "backend/graph.h"

static const char *const names[OP_KINDS] = {
    [OP_EMBED] = "embed",
    [OP_ROPE_ANGLES] = "rope angles",
    [OP_RMS_NORM] = "rms norm",
    [OP_ADD_RMS_NORM] = "add rms norm",
    [OP_HEAD_NORM] = "head norm",
    [OP_COPY] = "copy",
    [OP_SCALE] = "scale",
    [OP_SOFT_CAP] = "soft cap",
    [OP_PROJECT] = "project",
    [OP_ADD_PROJECT] = "add project",
    [OP_ADD_BIAS] = "add bias",
    [OP_SPLIT_GATE] = "split gate",
    [OP_ROPE] = "rope",
    [OP_KV_APPEND] = "kv append",
    [OP_ATTEND] = "attend",
    [OP_LATENT_APPEND] = "latent append",
    [OP_LATENT_ATTEND] = "latent attend",
    [OP_SIGMOID_MULTIPLY] = "sigmoid multiply",
    [OP_ACTIVATE] = "activate",
    [OP_CONV] = "conv",
    [OP_UNIT_NORM] = "unit norm",
    [OP_DELTA] = "delta",
    [OP_GATED_NORM] = "gated norm",
    [OP_ROUTE] = "route",
    [OP_SUM_EXPERTS] = "sum experts",
    [OP_COMBINE] = "combine",
};

const char *op_name(enum op_kind kind)
{
    return kind < OP_KINDS ? names[kind] : "?";
}

const char *op_label(const struct op *op)
{
#define PROJECT_LABEL(id)     [WEIGHT_##id] = "project " #id,
#define ADD_PROJECT_LABEL(id) [WEIGHT_##id] = "add project " #id,
    static const char *const project[] = { WEIGHT_LIST(PROJECT_LABEL) };
    static const char *const add_project[] = { WEIGHT_LIST(ADD_PROJECT_LABEL) };
#undef PROJECT_LABEL
#undef ADD_PROJECT_LABEL
    if (op->kind == OP_PROJECT) return project[op->weight];
    if (op->kind == OP_ADD_PROJECT) return add_project[op->weight];
    return op_name(op->kind);
}

void graph_begin(struct graph *graph, const char *label, const uint32_t widths[SHARED_COUNT])
{
    *graph = (struct graph){ .label = label, .buffer_count = SHARED_COUNT };
    for (int i = 0; i < SHARED_COUNT; i++)
        graph->buffers[i] = (struct graph_buffer){ .width = widths[i], .first = -1, .last = -1 };
}

bool graph_check(const struct graph *graph)
{
    return !graph->full;
}

static buffer new_buffer(struct graph *g, uint32_t width)
{
    if (g->buffer_count == GRAPH_BUFFERS_MAX) {
        g->full = true;
        return graph_shared(SHARED_X);
    }
    g->buffers[g->buffer_count] = (struct graph_buffer){ .width = width, .first = -1, .last = -1 };
    return (buffer){ g->buffer_count++ };
}

static uint32_t width_of(const struct graph *g, buffer b)
{
    return g->buffers[b.id].width;
}

static void touch(struct graph *g, buffer b, int16_t op)
{
    if (b.id == NO_BUFFER.id) return;
    struct graph_buffer *entry = &g->buffers[b.id];
    if (entry->first < 0) entry->first = op;
    entry->last = op;
}

/* A new operation with no buffers; the builders fill it and call finish. */
static struct op start(enum op_kind kind)
{
    return (struct op){
        .kind = kind, .out = NO_BUFFER, .a = NO_BUFFER, .b = NO_BUFFER, .c = NO_BUFFER
    };
}

static void finish(struct graph *g, const struct op *op)
{
    if (g->op_count == GRAPH_OPS_MAX) {
        g->full = true;
        return;
    }
    int16_t index = (int16_t)g->op_count;
    touch(g, op->out, index);
    touch(g, op->a, index);
    touch(g, op->b, index);
    touch(g, op->c, index);
    g->ops[g->op_count] = *op;
    g->ops[g->op_count++].stage = g->stage;
}

void op_embed(struct graph *g, buffer x, float factor)
{
    struct op op = start(OP_EMBED);
    op.out = x;
    op.factor = factor;
    op.weight = WEIGHT_EMBEDDING;
    finish(g, &op);
}

void op_rope_angles(struct graph *g, buffer angles, const struct rope_shape *shape)
{
    struct op op = start(OP_ROPE_ANGLES);
    op.out = angles;
    op.rope = *shape;
    finish(g, &op);
}

static void rms_norm(struct graph *g, enum op_kind kind, buffer out, buffer a,
                     enum weight_id weight, float epsilon)
{
    struct op op = start(kind);
    op.out = out;
    op.a = a;
    op.weight = weight;
    op.epsilon = epsilon;
    finish(g, &op);
}

void op_rms_norm_into(struct graph *g, buffer out, buffer a, enum weight_id weight, float epsilon)
{
    rms_norm(g, OP_RMS_NORM, out, a, weight, epsilon);
}

void op_add_rms_norm(struct graph *g, buffer out, buffer a, enum weight_id weight, float epsilon)
{
    rms_norm(g, OP_ADD_RMS_NORM, out, a, weight, epsilon);
}

buffer op_rms_norm(struct graph *g, buffer a, enum weight_id weight, float epsilon)
{
    buffer out = new_buffer(g, width_of(g, a));
    op_rms_norm_into(g, out, a, weight, epsilon);
    return out;
}

void op_head_norm(struct graph *g, buffer a, enum weight_id weight, float epsilon, uint32_t heads,
                  uint32_t head_width)
{
    struct op op = start(OP_HEAD_NORM);
    op.a = a;
    op.weight = weight;
    op.epsilon = epsilon;
    op.heads = heads;
    op.head_width = head_width;
    finish(g, &op);
}

buffer op_copy(struct graph *g, buffer a)
{
    struct op op = start(OP_COPY);
    op.a = a;
    op.out = new_buffer(g, width_of(g, a));
    finish(g, &op);
    return op.out;
}

void op_scale(struct graph *g, buffer a, enum weight_id weight)
{
    struct op op = start(OP_SCALE);
    op.a = a;
    op.weight = weight;
    finish(g, &op);
}

void op_soft_cap(struct graph *g, buffer a, float cap)
{
    struct op op = start(OP_SOFT_CAP);
    op.a = a;
    op.factor = cap;
    finish(g, &op);
}

static void project(struct graph *g, enum op_kind kind, buffer out, buffer a, enum weight_id weight)
{
    struct op op = start(kind);
    op.out = out;
    op.a = a;
    op.weight = weight;
    finish(g, &op);
}

void op_project_into(struct graph *g, buffer out, buffer a, enum weight_id weight)
{
    project(g, OP_PROJECT, out, a, weight);
}

buffer op_project(struct graph *g, buffer a, enum weight_id weight, uint32_t width)
{
    buffer out = new_buffer(g, width);
    project(g, OP_PROJECT, out, a, weight);
    return out;
}

void op_add_project(struct graph *g, buffer out, buffer a, enum weight_id weight)
{
    project(g, OP_ADD_PROJECT, out, a, weight);
}

void op_add_bias(struct graph *g, buffer a, enum weight_id weight)
{
    struct op op = start(OP_ADD_BIAS);
    op.a = a;
    op.weight = weight;
    finish(g, &op);
}

void op_split_gate(struct graph *g, buffer *q, buffer *gate, buffer a,
                   const struct attention_shape *shape)
{
    struct op op = start(OP_SPLIT_GATE);
    op.attention = *shape;
    op.a = a;
    op.out = *q = new_buffer(g, width_of(g, a) / 2);
    op.b = *gate = new_buffer(g, width_of(g, a) / 2);
    finish(g, &op);
}

void op_rope(struct graph *g, buffer a, buffer angles, uint32_t heads, uint32_t head_width,
             const struct rope_shape *shape)
{
    struct op op = start(OP_ROPE);
    op.a = a;
    op.b = angles;
    op.heads = heads;
    op.head_width = head_width;
    op.rope = *shape;
    finish(g, &op);
}

void op_kv_append(struct graph *g, buffer keys, buffer values, const struct attention_shape *shape)
{
    struct op op = start(OP_KV_APPEND);
    op.a = keys;
    op.b = values;
    op.attention = *shape;
    finish(g, &op);
}

buffer op_attend(struct graph *g, buffer queries, const struct attention_shape *shape)
{
    struct op op = start(OP_ATTEND);
    op.a = queries;
    op.weight = WEIGHT_SINKS;
    op.attention = *shape;
    op.out = new_buffer(g, width_of(g, queries));
    finish(g, &op);
    return op.out;
}

void op_latent_append(struct graph *g, buffer a, buffer angles, enum weight_id weight,
                      float epsilon, const struct rope_shape *shape)
{
    struct op op = start(OP_LATENT_APPEND);
    op.a = a;
    op.b = angles;
    op.weight = weight;
    op.epsilon = epsilon;
    op.rope = *shape;
    finish(g, &op);
}

buffer op_latent_attend(struct graph *g, buffer queries, const struct latent_shape *shape)
{
    struct op op = start(OP_LATENT_ATTEND);
    op.a = queries;
    op.latent = *shape;
    op.out = new_buffer(g, shape->heads * shape->value_width);
    finish(g, &op);
    return op.out;
}

buffer op_sigmoid_multiply(struct graph *g, buffer a, buffer gate)
{
    struct op op = start(OP_SIGMOID_MULTIPLY);
    op.a = a;
    op.b = gate;
    op.out = new_buffer(g, width_of(g, a));
    finish(g, &op);
    return op.out;
}

buffer op_activate(struct graph *g, buffer gate, buffer up, enum activation activation)
{
    struct op op = start(OP_ACTIVATE);
    op.a = gate;
    op.b = up;
    op.activation = activation;
    op.out = new_buffer(g, width_of(g, gate));
    finish(g, &op);
    return op.out;
}

buffer op_conv(struct graph *g, buffer a, enum weight_id weight, const struct delta_shape *shape)
{
    struct op op = start(OP_CONV);
    op.a = a;
    op.weight = weight;
    op.delta = *shape;
    op.out = new_buffer(g, width_of(g, a));
    finish(g, &op);
    return op.out;
}

void op_unit_norm(struct graph *g, buffer a, float epsilon, const struct delta_shape *shape)
{
    struct op op = start(OP_UNIT_NORM);
    op.a = a;
    op.epsilon = epsilon;
    op.delta = *shape;
    finish(g, &op);
}

buffer op_delta(struct graph *g, buffer mixed, buffer strength, buffer decay,
                const struct delta_shape *shape)
{
    struct op op = start(OP_DELTA);
    op.a = mixed;
    op.b = strength;
    op.c = decay;
    op.weight = WEIGHT_DELTA_DECAY;
    op.weight2 = WEIGHT_DELTA_DT_BIAS;
    op.delta = *shape;
    op.out = new_buffer(g, shape->value_heads * shape->value_width);
    finish(g, &op);
    return op.out;
}

buffer op_gated_norm(struct graph *g, buffer a, buffer gate, enum weight_id weight, float epsilon,
                     const struct delta_shape *shape)
{
    struct op op = start(OP_GATED_NORM);
    op.a = a;
    op.b = gate;
    op.weight = weight;
    op.epsilon = epsilon;
    op.heads = shape->value_heads;
    op.head_width = shape->value_width;
    op.out = new_buffer(g, width_of(g, a));
    finish(g, &op);
    return op.out;
}

void op_route(struct graph *g, buffer logits, const struct router_shape *shape)
{
    struct op op = start(OP_ROUTE);
    op.a = logits;
    op.router = *shape;
    finish(g, &op);
}

buffer op_sum_experts(struct graph *g, uint32_t width)
{
    struct op op = start(OP_SUM_EXPERTS);
    op.a = graph_shared(SHARED_EXPERTS);
    op.out = new_buffer(g, width);
    finish(g, &op);
    return op.out;
}

void op_combine(struct graph *g, buffer out, buffer shared, buffer scale)
{
    struct op op = start(OP_COMBINE);
    op.out = out;
    op.a = shared;
    op.b = scale;
    op.c = graph_shared(SHARED_EXPERTS);
    finish(g, &op);
}
