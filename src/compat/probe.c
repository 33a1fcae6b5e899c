#include "compat/probe.h"

#include "base/status.h"

struct probe {
    const mf_allocator *allocator;
    struct arena arena;
    struct state_pool pool;
    struct sequence sequence; /* holds all pages; positions are counted for each layer below */
    struct forward forward;
    uint32_t *positions; /* [layers] where the layer's own sequence ends */
};

mf_status probe_new(struct probe **out, const mf_allocator *allocator,
                    const struct forward_parts *parts, struct probe_sizes sizes, mf_error *why)
{
    *out = NULL;
    const struct model_config *config = parts->config;
    if (sizes.rows == 0 || sizes.context == 0)
        return fail(why, MF_ERR_ARGUMENT, "a probe needs at least one row and one position");
    struct probe *p = allocator->allocate(allocator->user, sizeof *p, CACHE_LINE);
    if (!p) return fail_memory(why, sizeof *p);
    *p = (struct probe){ .allocator = allocator };
    arena_init(&p->arena, allocator);
    mf_status status = state_pool_init(&p->pool, allocator, NULL, config, forward_kv_format(parts),
                                       UINT64_MAX, why);
    if (status == MF_OK) {
        sequence_init(&p->sequence, &p->pool, sizes.context);
        status = sequence_reserve(&p->sequence, sizes.context, why);
    }
    if (status == MF_OK)
        status = forward_init(&p->forward, parts, &p->arena, sizes.rows, sizes.context, why);
    if (status == MF_OK) {
        p->positions = ARENA_NEW(&p->arena, uint32_t, config->layer_count);
        if (!p->positions) status = fail_memory(why, config->layer_count * sizeof(uint32_t));
    }
    if (status == MF_OK)
        *out = p;
    else
        probe_free(p);
    return status;
}

void probe_free(struct probe *probe)
{
    if (!probe) return;
    sequence_free(&probe->sequence);
    state_pool_free(&probe->pool);
    arena_free(&probe->arena);
    probe->allocator->release(probe->allocator->user, probe, sizeof *probe);
}

/* ------------------------------------------------- operations in the recipes */

/* An operation, the recipe that it stands in, and the weights that it runs with. */
struct place {
    const struct recipe *recipe;
    const struct op *op;
    const struct weight *weights;
};

enum { ANY_WEIGHT = WEIGHT_COUNT };

/* Operation number `nth` of this kind and, unless any will do, this weight. */
static const struct op *find_in(const struct recipe *recipe, enum op_kind kind, int id,
                                unsigned nth)
{
    for (size_t i = 0; i < recipe->graph.op_count; i++) {
        const struct op *op = &recipe->graph.ops[i];
        bool wanted = op->kind == kind && (id == ANY_WEIGHT || op->weight == (enum weight_id)id);
        if (wanted && nth-- == 0) return op;
    }
    return NULL;
}

static const char *mixer_name(enum mixer_kind kind)
{
    static const char *const names[MIXER_KINDS] = { [MIXER_ATTENTION] = "full attention",
                                                    [MIXER_LATENT] = "latent attention",
                                                    [MIXER_DELTA] = "a gated delta net",
                                                    [MIXER_WINDOW] = "attention in a window" };
    return kind < MIXER_KINDS ? names[kind] : "unknown";
}

static mf_status check_layer(const struct probe *p, uint32_t layer, mf_error *why)
{
    uint32_t count = p->forward.config->layer_count;
    if (layer < count) return MF_OK;
    return fail(why, MF_ERR_ARGUMENT, "there is no layer %u, the model has %u", layer, count);
}

static mf_status check_experts(const struct probe *p, uint32_t layer, mf_error *why)
{
    mf_status status = check_layer(p, layer, why);
    if (status != MF_OK || p->forward.config->ffns[layer] == FFN_EXPERTS) return status;
    return fail(why, MF_ERR_ARGUMENT, "layer %u has no experts", layer);
}

static mf_status find_op(struct place *out, const struct probe *p, uint32_t layer,
                         enum op_kind kind, int id, mf_error *why)
{
    mf_status status = check_layer(p, layer, why);
    if (status != MF_OK) return status;
    const struct forward *f = &p->forward;
    enum mixer_kind mixer = f->config->mixers[layer];
    enum ffn_kind ffn = f->config->ffns[layer];
    const struct recipe *recipes[] = { &f->recipes.before[mixer][ffn], &f->recipes.after[ffn] };
    out->weights = f->weights->layers[layer].weights;
    for (size_t i = 0; i < COUNT_OF(recipes); i++) {
        out->recipe = recipes[i];
        out->op = find_in(recipes[i], kind, id, 0);
        if (out->op) return MF_OK;
    }
    return fail(why, MF_ERR_ARGUMENT, "layer %u is %s and has no such operation: %s", layer,
                mixer_name(mixer), op_name(kind));
}

/* ------------------------------------------------------ a graph of one operation */

/* The arrays that stand for an operation's buffers; those it does not use are empty.
 * Backends take all buffers as writable and write only results. */
struct ports {
    mf_floats out, a, b, c;
};

static mf_floats unconst(mf_numbers n)
{
    return (mf_floats){ (float *)(uintptr_t)n.values, n.count };
}

static uint32_t port_width(const struct place *place, buffer b)
{
    return b.id == NO_BUFFER.id ? 0 : place->recipe->graph.buffers[b.id].width;
}

static mf_status check_port(mf_floats port, uint32_t width, size_t rows, const char *what,
                            mf_error *why)
{
    if (!width || (port.values && port.count == rows * width)) return MF_OK;
    return fail(why, MF_ERR_BUFFER_SIZE, "%s has %zu numbers, %zu rows of %u were expected", what,
                port.values ? port.count : 0, rows, width);
}

/* Rows in an array of rows of `width`, from the port that decides. */
static mf_status count_rows(size_t *out, const struct probe *p, size_t count, uint32_t width,
                            mf_error *why)
{
    *out = width ? count / width : 0;
    if (*out == 0 || *out * width != count)
        return fail(why, MF_ERR_BUFFER_SIZE, "%zu numbers are not whole rows of %u", count, width);
    if (*out > p->forward.row_capacity)
        return fail(why, MF_ERR_BUFFER_SIZE, "%zu rows were given, the probe takes up to %zu", *out,
                    p->forward.row_capacity);
    return MF_OK;
}

/* One span of rows at consecutive positions from `position`. */
static void lay_out_rows(struct probe *p, size_t rows, uint32_t position)
{
    p->forward.spans[0] = (struct span){ .row_count = (uint32_t)rows, .position = position };
    for (size_t r = 0; r < rows; r++)
        p->forward.rows[r] = (struct row){ .span = 0, .position = position + (uint32_t)r };
}

static buffer put_port(struct graph *g, float *buffers[], buffer from, const struct place *place,
                       mf_floats port)
{
    if (from.id == NO_BUFFER.id) return NO_BUFFER;
    buffer to = { g->buffer_count++ };
    g->buffers[to.id] = (struct graph_buffer){ .width = port_width(place, from), .last = 0 };
    buffers[to.id] = port.values;
    return to;
}

/* Runs the operation on `rows` rows, laid out before, with the ports as its buffers. */
static mf_status run_op(struct probe *p, const struct place *place, const struct ports *ports,
                        size_t rows, struct routes *routes, mf_error *why)
{
    struct op op = *place->op;
    mf_status status = check_port(ports->out, port_width(place, op.out), rows, "the result", why);
    if (status == MF_OK)
        status = check_port(ports->a, port_width(place, op.a), rows, "the first input", why);
    if (status == MF_OK)
        status = check_port(ports->b, port_width(place, op.b), rows, "the second input", why);
    if (status == MF_OK)
        status = check_port(ports->c, port_width(place, op.c), rows, "the third input", why);
    if (status != MF_OK) return status;

    struct graph graph = { .label = "probe", .op_count = 1 };
    float *buffers[GRAPH_BUFFERS_MAX] = { 0 };
    op.out = put_port(&graph, buffers, op.out, place, ports->out);
    op.a = put_port(&graph, buffers, op.a, place, ports->a);
    op.b = put_port(&graph, buffers, op.b, place, ports->b);
    op.c = put_port(&graph, buffers, op.c, place, ports->c);
    graph.ops[0] = op;
    struct forward *f = &p->forward;
    bool head = place->recipe == &f->recipes.head; /* its rows are of no sequence in a step, too */
    struct frame frame = { .row_count = rows,
                           .tokens = f->tokens,
                           .rows = head ? NULL : f->rows,
                           .spans = head ? NULL : f->spans,
                           .span_count = head ? 0 : 1,
                           .weights = place->weights,
                           .buffers = buffers,
                           .routes = routes };
    return f->backend->functions->execute(f->backend, &graph, &frame, why);
}

/* The usual case: rows from position 0, as many as the first input (or, without one,
 * the result) has. */
static mf_status run_found(struct probe *p, const struct place *place, const struct ports *ports,
                           mf_error *why)
{
    size_t rows;
    bool has_input = place->op->a.id != NO_BUFFER.id;
    uint32_t width = port_width(place, has_input ? place->op->a : place->op->out);
    size_t count = has_input ? ports->a.count : ports->out.count;
    mf_status status = count_rows(&rows, p, count, width, why);
    if (status != MF_OK) return status;
    lay_out_rows(p, rows, 0);
    return run_op(p, place, ports, rows, NULL, why);
}

/* ------------------------------------------------------- norms and projections */

static mf_status check_tokens(const struct probe *p, const int32_t *tokens, size_t count,
                              mf_error *why)
{
    uint32_t vocab_size = p->forward.config->vocab_size;
    if (count > p->forward.row_capacity || !tokens)
        return fail(why, MF_ERR_BUFFER_SIZE, "%zu tokens were given, the probe takes up to %zu",
                    tokens ? count : 0, p->forward.row_capacity);
    for (size_t i = 0; i < count; i++) {
        if (tokens[i] < 0 || (uint32_t)tokens[i] >= vocab_size)
            return fail(why, MF_ERR_ARGUMENT, "token %zu has the id %d, the vocabulary ends at %u",
                        i, tokens[i], vocab_size - 1);
    }
    return MF_OK;
}

mf_status probe_embed(mf_floats out, struct probe *p, const int32_t *tokens, size_t count,
                      mf_error *why)
{
    struct forward *f = &p->forward;
    mf_status status = check_tokens(p, tokens, count, why);
    if (status != MF_OK) return status;
    if (out.count != count * f->config->width)
        return fail(why, MF_ERR_BUFFER_SIZE, "the result has %zu numbers, %zu were expected",
                    out.count, count * f->config->width);
    memcpy(f->tokens, tokens, count * sizeof *tokens);
    struct place place = { &f->recipes.start, find_in(&f->recipes.start, OP_EMBED, ANY_WEIGHT, 0),
                           f->weights->weights };
    struct ports ports = { .out = out };
    return run_found(p, &place, &ports, why);
}

/* An operation on a weight that belongs to the model (head) or to a layer. */
static mf_status find_weight_op(struct place *out, const struct probe *p, uint32_t layer,
                                enum op_kind kind, enum weight_id id, mf_error *why)
{
    const struct forward *f = &p->forward;
    if (id != WEIGHT_FINAL_NORM && id != WEIGHT_HEAD)
        return find_op(out, p, layer, kind, (int)id, why);
    *out = (struct place){ &f->recipes.head, find_in(&f->recipes.head, kind, (int)id, 0),
                           f->weights->weights };
    return out->op ? MF_OK : fail(why, MF_ERR_ARGUMENT, "the head has no such operation");
}

mf_status probe_norm(mf_floats out, struct probe *p, uint32_t layer, enum weight_id id,
                     mf_numbers x, mf_error *why)
{
    struct place place;
    struct ports ports = { .out = out, .a = unconst(x) };
    mf_status status = find_weight_op(&place, p, layer, OP_RMS_NORM, id, why);
    return status == MF_OK ? run_found(p, &place, &ports, why) : status;
}

mf_status probe_head_norm(mf_floats in_out, struct probe *p, uint32_t layer, enum weight_id id,
                          mf_error *why)
{
    struct place place;
    struct ports ports = { .a = in_out };
    mf_status status = find_op(&place, p, layer, OP_HEAD_NORM, (int)id, why);
    return status == MF_OK ? run_found(p, &place, &ports, why) : status;
}

mf_status probe_project(mf_floats out, struct probe *p, uint32_t layer, enum weight_id id,
                        mf_numbers x, mf_error *why)
{
    struct place place;
    struct ports ports = { .out = out, .a = unconst(x) };
    mf_status status = find_weight_op(&place, p, layer, OP_PROJECT, id, why);
    if (status != MF_OK) { /* the last matrix of a mixer adds to the residual stream */
        status = find_weight_op(&place, p, layer, OP_ADD_PROJECT, id, why);
        if (status != MF_OK) return status;
    }
    struct op op = *place.op;
    op.kind = OP_PROJECT;
    place.op = &op;
    return run_found(p, &place, &ports, why);
}

mf_status probe_lm_head(mf_floats out, struct probe *p, mf_numbers x, mf_error *why)
{
    return probe_project(out, p, 0, WEIGHT_HEAD, x, why);
}

mf_status probe_gate(mf_floats out, struct probe *p, uint32_t layer, mf_numbers x, mf_numbers gate,
                     mf_error *why)
{
    struct place place;
    struct ports ports = { .out = out, .a = unconst(x), .b = unconst(gate) };
    mf_status status = find_op(&place, p, layer, OP_SIGMOID_MULTIPLY, ANY_WEIGHT, why);
    return status == MF_OK ? run_found(p, &place, &ports, why) : status;
}

/* ----------------------------------------------------------------- attention */

mf_status probe_rope(mf_floats in_out, struct probe *p, uint32_t layer,
                     mf_probe_positions positions, mf_error *why)
{
    struct forward *f = &p->forward;
    struct place place, angles = { &f->recipes.start, NULL, f->weights->weights };
    mf_status status = find_op(&place, p, layer, OP_ROPE, ANY_WEIGHT, why);
    if (status != MF_OK) return status;
    place.op = find_in(place.recipe, OP_ROPE, ANY_WEIGHT, positions.keys ? 1 : 0);
    angles.op = find_in(&f->recipes.start, OP_ROPE_ANGLES, ANY_WEIGHT, 0);
    size_t rows;
    status = count_rows(&rows, p, in_out.count, port_width(&place, place.op->a), why);
    if (status != MF_OK) return status;
    if (!positions.values || positions.count != rows)
        return fail(why, MF_ERR_BUFFER_SIZE, "%zu positions were given for %zu rows",
                    positions.values ? positions.count : 0, rows);
    lay_out_rows(p, rows, 0);
    for (size_t r = 0; r < rows; r++) f->rows[r].position = positions.values[r];
    mf_floats turns = { f->shared[SHARED_ANGLES], rows * port_width(&angles, angles.op->out) };
    struct ports compute = { .out = turns }, turn = { .a = in_out, .b = turns };
    status = run_op(p, &angles, &compute, rows, NULL, why);
    return status == MF_OK ? run_op(p, &place, &turn, rows, NULL, why) : status;
}

/* Fills the layer's cache from position 0: what a sequence of the layer held is gone. */
static mf_status fill_cache(struct probe *p, uint32_t layer, const mf_probe_attention *in,
                            size_t *positions, mf_error *why)
{
    struct place place;
    struct ports ports = { .a = unconst(in->keys), .b = unconst(in->values) };
    mf_status status = find_op(&place, p, layer, OP_KV_APPEND, ANY_WEIGHT, why);
    if (status == MF_OK)
        status = count_rows(positions, p, in->keys.count, port_width(&place, place.op->a), why);
    if (status != MF_OK) return status;
    if (*positions > p->sequence.capacity)
        return fail(why, MF_ERR_CONTEXT_FULL, "%zu positions were given, the probe's context is %u",
                    *positions, p->sequence.capacity);
    p->positions[layer] = 0;
    lay_out_rows(p, *positions, 0);
    sequence_view(&p->sequence, layer, &p->forward.spans[0]);
    return run_op(p, &place, &ports, *positions, NULL, why);
}

mf_status probe_attend(mf_floats out, struct probe *p, uint32_t layer, const mf_probe_attention *in,
                       mf_error *why)
{
    struct place place;
    size_t positions, rows;
    mf_status status = find_op(&place, p, layer, OP_ATTEND, ANY_WEIGHT, why);
    if (status == MF_OK)
        status = count_rows(&rows, p, in->queries.count, port_width(&place, place.op->a), why);
    if (status == MF_OK) status = fill_cache(p, layer, in, &positions, why);
    if (status != MF_OK) return status;
    if (rows > positions)
        return fail(why, MF_ERR_BUFFER_SIZE, "%zu rows of queries were given for %zu positions",
                    rows, positions);
    struct ports ports = { .out = out, .a = unconst(in->queries) };
    lay_out_rows(p, rows, (uint32_t)(positions - rows));
    sequence_view(&p->sequence, layer, &p->forward.spans[0]);
    return run_op(p, &place, &ports, rows, NULL, why);
}

/* ----------------------------------------------------------------- delta net */

mf_status probe_unit_norm(mf_floats in_out, struct probe *p, uint32_t layer, mf_error *why)
{
    struct place place;
    struct ports ports = { .a = in_out };
    mf_status status = find_op(&place, p, layer, OP_UNIT_NORM, ANY_WEIGHT, why);
    return status == MF_OK ? run_found(p, &place, &ports, why) : status;
}

static mf_status check_state(mf_floats state, size_t expected, mf_error *why)
{
    if (state.count == expected && (state.values || expected == 0)) return MF_OK;
    return fail(why, MF_ERR_BUFFER_SIZE, "the state has %zu numbers, %zu were expected",
                state.count, expected);
}

mf_status probe_conv(mf_floats out, mf_floats state_in_out, struct probe *p, uint32_t layer,
                     mf_numbers x, mf_error *why)
{
    struct place place;
    struct ports ports = { .out = out, .a = unconst(x) };
    mf_status status = find_op(&place, p, layer, OP_CONV, ANY_WEIGHT, why);
    if (status != MF_OK) return status;
    size_t rows, width = port_width(&place, place.op->a);
    status = count_rows(&rows, p, x.count, (uint32_t)width, why);
    if (status == MF_OK)
        status = check_state(state_in_out, (place.op->delta.taps - 1) * width, why);
    if (status != MF_OK) return status;
    lay_out_rows(p, rows, 0);
    p->forward.spans[0].recurrent =
        (struct recurrent_view){ .conv_in = state_in_out.values, .conv_out = state_in_out.values };
    return run_op(p, &place, &ports, rows, NULL, why);
}

mf_status probe_delta(mf_floats out, mf_floats state_in_out, struct probe *p, uint32_t layer,
                      const mf_probe_recurrence *in, mf_error *why)
{
    struct place place;
    struct ports ports = { out, unconst(in->mixed), unconst(in->strength), unconst(in->decay) };
    mf_status status = find_op(&place, p, layer, OP_DELTA, ANY_WEIGHT, why);
    if (status != MF_OK) return status;
    const struct delta_shape *shape = &place.op->delta;
    size_t rows, state = (size_t)shape->value_heads * shape->value_width * shape->key_width;
    status = count_rows(&rows, p, in->mixed.count, port_width(&place, place.op->a), why);
    if (status == MF_OK) status = check_state(state_in_out, state, why);
    if (status != MF_OK) return status;
    lay_out_rows(p, rows, 0);
    p->forward.spans[0].recurrent = (struct recurrent_view){ .delta_in = state_in_out.values,
                                                             .delta_out = state_in_out.values };
    return run_op(p, &place, &ports, rows, NULL, why);
}

mf_status probe_gated_norm(mf_floats out, struct probe *p, uint32_t layer, mf_numbers x,
                           mf_numbers gate, mf_error *why)
{
    struct place place;
    struct ports ports = { .out = out, .a = unconst(x), .b = unconst(gate) };
    mf_status status = find_op(&place, p, layer, OP_GATED_NORM, ANY_WEIGHT, why);
    return status == MF_OK ? run_found(p, &place, &ports, why) : status;
}

/* ------------------------------------------------------------------- experts */

static mf_status check_routes(const struct probe *p, const mf_probe_routes *routes, size_t rows,
                              mf_error *why)
{
    size_t expected = rows * p->forward.routes.per_row;
    if (routes->experts && routes->weights && routes->count == expected) return MF_OK;
    return fail(why, MF_ERR_BUFFER_SIZE, "there is room for %zu routes, %zu were expected",
                routes->experts && routes->weights ? routes->count : 0, expected);
}

mf_status probe_route(mf_probe_routes out, struct probe *p, uint32_t layer, mf_numbers x,
                      mf_error *why)
{
    struct place project, route;
    size_t rows = 0;
    mf_status status = find_op(&project, p, layer, OP_PROJECT, WEIGHT_ROUTER, why);
    if (status == MF_OK) status = find_op(&route, p, layer, OP_ROUTE, ANY_WEIGHT, why);
    if (status == MF_OK)
        status = count_rows(&rows, p, x.count, port_width(&project, project.op->a), why);
    if (status == MF_OK) status = check_routes(p, &out, rows, why);
    if (status != MF_OK) return status;
    mf_floats logits = { .count = rows * port_width(&route, route.op->a) };
    struct arena arena;
    arena_init(&arena, p->allocator);
    logits.values = ARENA_NEW(&arena, float, logits.count);
    if (!logits.values) return fail_memory(why, logits.count * sizeof(float));
    struct routes routes = { out.experts, out.weights, p->forward.routes.per_row };
    lay_out_rows(p, rows, 0);
    status =
        run_op(p, &project, &(struct ports){ .out = logits, .a = unconst(x) }, rows, NULL, why);
    if (status == MF_OK)
        status = run_op(p, &route, &(struct ports){ .a = logits }, rows, &routes, why);
    arena_free(&arena);
    return status;
}

static mf_status check_expert(const struct probe *p, uint32_t layer, uint32_t expert, mf_error *why)
{
    uint32_t count = p->forward.config->experts;
    mf_status status = check_experts(p, layer, why);
    if (status != MF_OK || expert < count) return status;
    return fail(why, MF_ERR_ARGUMENT, "there is no expert %u, a layer has %u", expert, count);
}

static mf_status lease(struct expert_lease *out, struct probe *p, uint32_t layer, uint32_t expert,
                       mf_error *why)
{
    mf_status status = check_expert(p, layer, expert, why);
    if (status != MF_OK) return status;
    struct expert_visit visit;
    uint32_t *uses = p->forward.expert_uses;
    memset(uses, 0, p->forward.config->experts * sizeof *uses);
    uses[expert] = 1;
    struct expert_request request = {
        .layer = layer, .experts = &expert, .count = 1, .rows = 1, .uses = uses
    };
    expert_visit_begin(&visit, p->forward.experts, &request);
    if (expert_visit_next(&visit, out, 1, &status, why) == 1) return MF_OK;
    return status != MF_OK ? status : fail(why, MF_ERR_IO, "the store gave no expert %u", expert);
}

mf_status probe_expert(mf_floats out, struct probe *p, uint32_t layer, uint32_t expert,
                       mf_numbers x, mf_error *why)
{
    struct forward *f = &p->forward;
    struct expert_lease held;
    size_t rows;
    mf_status status = count_rows(&rows, p, x.count, f->config->width, why);
    if (status == MF_OK) status = check_port(out, f->config->width, rows, "the result", why);
    if (status == MF_OK) status = check_port(unconst(x), f->config->width, rows, "x", why);
    if (status == MF_OK) status = lease(&held, p, layer, expert, why);
    if (status != MF_OK) return status;
    for (size_t r = 0; r < rows; r++) f->pairs[r] = (uint32_t)r;
    struct expert_work work = { .view = &held.view, .pairs = f->pairs, .pair_count = rows };
    lay_out_rows(p, rows, 0);
    struct expert_batch batch = { .works = &work,
                                  .work_count = 1,
                                  .row_count = rows,
                                  .rows = f->rows,
                                  .spans = f->spans,
                                  .per_row = 1,
                                  .activation = f->config->activation,
                                  .routed = x.values,
                                  .hidden = f->expert_hidden,
                                  .answers = out.values };
    status = f->backend->functions->run_experts(f->backend, &batch, why);
    expert_lease_end(&held);
    return status;
}

size_t probe_expert_size(const struct probe *p, uint32_t layer)
{
    size_t bytes = 0;
    if (layer >= p->forward.config->layer_count) return 0;
    for (int part = 0; part < EXPERT_PARTS; part++) {
        const struct expert_matrix *m = &p->forward.weights->layers[layer].experts[part];
        bytes += expert_matrix_bytes(m);
    }
    return bytes;
}

mf_status probe_expert_bytes(uint8_t *out, size_t capacity, struct probe *p, uint32_t layer,
                             uint32_t expert, mf_error *why)
{
    mf_status status = check_expert(p, layer, expert, why);
    if (status != MF_OK) return status;
    if (!out || capacity != probe_expert_size(p, layer))
        return fail(why, MF_ERR_BUFFER_SIZE, "there are %zu bytes for an expert, it has %zu",
                    out ? capacity : 0, probe_expert_size(p, layer));
    return expert_store_read_files(p->forward.experts, out, layer, expert, why);
}

static mf_status check_ids(const struct probe *p, const uint32_t *experts, size_t count,
                           mf_error *why)
{
    for (size_t i = 0; i < count; i++) {
        bool first = i % p->forward.routes.per_row == 0;
        if (experts[i] >= p->forward.config->experts || (!first && experts[i] <= experts[i - 1]))
            return fail(why, MF_ERR_ARGUMENT,
                        "route %zu is expert %u: ids below %u, ascending in a row, were expected",
                        i, experts[i], p->forward.config->experts);
    }
    return MF_OK;
}

mf_status probe_experts(mf_floats x_in_out, struct probe *p, uint32_t layer,
                        const mf_probe_combination *in, mf_error *why)
{
    struct forward *f = &p->forward;
    size_t rows, width = f->config->width;
    mf_status status = check_experts(p, layer, why);
    if (status == MF_OK) status = count_rows(&rows, p, in->routed.count, (uint32_t)width, why);
    if (status == MF_OK)
        status = check_port(x_in_out, (uint32_t)width, rows, "the residual stream", why);
    if (status == MF_OK)
        status = check_port(unconst(in->routed), (uint32_t)width, rows, "routed", why);
    if (status == MF_OK && (!in->experts || !in->weights))
        status = fail(why, MF_ERR_ARGUMENT, "there are no routes");
    if (status == MF_OK) status = check_ids(p, in->experts, rows * f->routes.per_row, why);
    if (status != MF_OK) return status;
    size_t pairs = rows * f->routes.per_row;
    memcpy(f->shared[SHARED_X], x_in_out.values, rows * width * sizeof(float));
    memcpy(f->shared[SHARED_ROUTED], in->routed.values, rows * width * sizeof(float));
    memcpy(f->routes.experts, in->experts, pairs * sizeof *in->experts);
    memcpy(f->routes.weights, in->weights, pairs * sizeof *in->weights);
    lay_out_rows(p, rows, 0);
    status = forward_experts(f, layer, rows, why);
    if (status == MF_OK) memcpy(x_in_out.values, f->shared[SHARED_X], rows * width * sizeof(float));
    return status;
}

/* ------------------------------------------------------------- a whole layer */

struct look {
    const mf_probe_step *io;
    struct forward *forward;
};

static void copy_out(mf_floats to, const float *from)
{
    if (to.values) memcpy(to.values, from, to.count * sizeof(float));
}

static void see_routes(void *user, uint32_t layer, struct routes *routes, size_t rows)
{
    (void)layer;
    const struct look *look = user;
    const mf_probe_routes *out = &look->io->routes;
    copy_out(look->io->after_mixer, look->forward->shared[SHARED_X]);
    copy_out(look->io->routed, look->forward->shared[SHARED_ROUTED]);
    if (!out->experts) return;
    memcpy(out->experts, routes->experts, rows * routes->per_row * sizeof *out->experts);
    memcpy(out->weights, routes->weights, rows * routes->per_row * sizeof *out->weights);
}

/* The shared expert's answer and score are what the last operation reads: still there. */
static void copy_shared(const struct probe *p, const mf_probe_step *io)
{
    const struct forward *f = &p->forward;
    const struct recipe *recipe = &f->recipes.after[FFN_EXPERTS];
    float *buffers[GRAPH_BUFFERS_MAX];
    const struct op *combine = find_in(recipe, OP_COMBINE, ANY_WEIGHT, 0);
    buffers_place(buffers, &recipe->plan, &recipe->graph, f->shared, f->scratch, f->row_capacity);
    if (combine->a.id != NO_BUFFER.id) copy_out(io->shared, buffers[combine->a.id]);
    if (combine->b.id != NO_BUFFER.id) copy_out(io->shared_score, buffers[combine->b.id]);
}

/* What a layer without experts, or a model without a shared one, cannot show. */
static mf_status check_shown(const mf_probe_step *io, const struct probe *p, uint32_t layer,
                             mf_error *why)
{
    const struct model_config *c = p->forward.config;
    bool experts = c->ffns[layer] == FFN_EXPERTS, shared = experts && c->shared_width > 0;
    const struct {
        bool asked, there;
        const char *what;
    } shown[] = {
        { io->routes.experts, experts, "routes" },
        { io->after_mixer.values || io->routed.values, experts, "input of a router" },
        { io->shared.values, shared, "shared expert" },
        { io->shared_score.values, shared && c->shared_scaled, "score of a shared expert" },
    };
    for (size_t i = 0; i < COUNT_OF(shown); i++)
        if (shown[i].asked && !shown[i].there)
            return fail(why, MF_ERR_ARGUMENT, "layer %u has no %s", layer, shown[i].what);
    return MF_OK;
}

static mf_status check_layer_io(const mf_probe_step *io, const struct probe *p, size_t rows,
                                mf_error *why)
{
    const struct {
        mf_floats array;
        const char *name;
        uint32_t width;
    } outs[] = {
        { io->after_mixer, "after_mixer", p->forward.config->width },
        { io->routed, "routed", p->forward.config->width },
        { io->shared, "shared", p->forward.config->width },
        { io->shared_score, "shared_score", 1 },
    };
    mf_status status = check_port(unconst(io->x), p->forward.config->width, rows, "x", why);
    if (status == MF_OK) status = check_port(io->out, p->forward.config->width, rows, "out", why);
    for (size_t i = 0; i < COUNT_OF(outs) && status == MF_OK; i++)
        if (outs[i].array.values)
            status = check_port(outs[i].array, outs[i].width, rows, outs[i].name, why);
    if (status == MF_OK && io->routes.experts) status = check_routes(p, &io->routes, rows, why);
    return status;
}

static mf_status check_position(const struct probe *p, uint32_t layer, int64_t position,
                                size_t rows, mf_error *why)
{
    if (position != 0 && position != (int64_t)p->positions[layer])
        return fail(why, MF_ERR_ARGUMENT, "position %lld was given, layer %u goes on at %u",
                    (long long)position, layer, p->positions[layer]);
    if ((uint64_t)position + rows > p->sequence.capacity)
        return fail(why, MF_ERR_CONTEXT_FULL, "%zu rows from %lld do not fit: the context holds %u",
                    rows, (long long)position, p->sequence.capacity);
    return MF_OK;
}

/* The state of the layer for rows from `position`: changed in place, empty at 0. */
static void open_state(struct probe *p, uint32_t layer, uint32_t position)
{
    struct span *span = &p->forward.spans[0];
    sequence_view(&p->sequence, layer, span);
    if (p->forward.config->mixers[layer] != MIXER_DELTA || position > 0) return;
    memset(span->recurrent.conv_out, 0, p->pool.shape.conv_floats * sizeof(float));
    memset(span->recurrent.delta_out, 0, p->pool.shape.delta_floats * sizeof(float));
}

static mf_status compute_angles(struct probe *p, size_t rows, mf_error *why)
{
    struct forward *f = &p->forward;
    struct place place = { &f->recipes.start, NULL, f->weights->weights };
    place.op = find_in(&f->recipes.start, OP_ROPE_ANGLES, ANY_WEIGHT, 0);
    struct ports ports = { .out = { f->shared[SHARED_ANGLES], 0 } };
    ports.out.count = rows * port_width(&place, place.op->out);
    return run_op(p, &place, &ports, rows, NULL, why);
}

static mf_status check_step(size_t *rows, const mf_probe_step *io, const struct probe *p,
                            mf_error *why)
{
    const struct model_config *c = p->forward.config;
    mf_status status = check_layer(p, io->layer, why);
    if (status != MF_OK) return status;
    if ((int)io->mixer != (int)c->mixers[io->layer])
        return fail(why, MF_ERR_ARGUMENT, "layer %u is %s, not %s", io->layer,
                    mixer_name(c->mixers[io->layer]), mixer_name((enum mixer_kind)io->mixer));
    status = count_rows(rows, p, io->x.count, c->width, why);
    if (status == MF_OK) status = check_shown(io, p, io->layer, why);
    if (status == MF_OK) status = check_layer_io(io, p, *rows, why);
    return status == MF_OK ? check_position(p, io->layer, io->position, *rows, why) : status;
}

_Static_assert((int)MF_MIXER_ATTENTION == (int)MIXER_ATTENTION &&
                   (int)MF_MIXER_LATENT == (int)MIXER_LATENT &&
                   (int)MF_MIXER_DELTA == (int)MIXER_DELTA &&
                   (int)MF_MIXER_WINDOW == (int)MIXER_WINDOW,
               "the public names are the model's");

mf_status probe_layer(const mf_probe_step *io, struct probe *p, mf_error *why)
{
    struct forward *f = &p->forward;
    size_t rows = 0, bytes = io->x.count * sizeof(float);
    uint32_t layer = io->layer;
    int64_t position = io->position;
    mf_status status = check_step(&rows, io, p, why);
    if (status != MF_OK) return status;

    lay_out_rows(p, rows, (uint32_t)position);
    open_state(p, layer, (uint32_t)position);
    status = compute_angles(p, rows, why);
    if (status != MF_OK) return status;
    memcpy(f->shared[SHARED_X], io->x.values, bytes);
    struct look look = { io, f };
    const struct observer observer = { .user = &look, .routes = see_routes };
    f->observer = &observer;
    status = forward_layer(f, layer, rows, 1, why);
    f->observer = NULL;
    /* After a failure the state may be half written: the layer starts anew. */
    p->positions[layer] = status == MF_OK ? (uint32_t)position + (uint32_t)rows : 0;
    if (status != MF_OK) return status;
    memcpy(io->out.values, f->shared[SHARED_X], bytes);
    if (f->config->ffns[layer] == FFN_EXPERTS) copy_shared(p, io);
    return MF_OK;
}
