/* manifest.c: what the packed model will hold. */
#include "base/status.h"
#include "convert/internal.h"

#include <stdio.h>

/* Matrices whose product with the stream is large and forgiving.  Routers, gates and the
 * rates of delta nets are small, and every digit of them counts. */
static bool may_change(enum weight_id id)
{
    switch (id) {
    case WEIGHT_EMBEDDING:
    case WEIGHT_HEAD:
    case WEIGHT_Q:
    case WEIGHT_K:
    case WEIGHT_V:
    case WEIGHT_ATTENTION_OUT:
    case WEIGHT_Q_A:
    case WEIGHT_Q_B:
    case WEIGHT_KV_A:
    case WEIGHT_KV_B:
    case WEIGHT_K_B:
    case WEIGHT_V_B:
    case WEIGHT_DELTA_QKV:
    case WEIGHT_DELTA_Z:
    case WEIGHT_DELTA_OUT:
    case WEIGHT_SHARED_GATE:
    case WEIGHT_SHARED_UP:
    case WEIGHT_SHARED_DOWN:
    case WEIGHT_DENSE_GATE:
    case WEIGHT_DENSE_UP:
    case WEIGHT_DENSE_DOWN:
        return true;
    default:
        return false;
    }
}

/* ----------------------------------------------------------------- tensors */

static mf_status append(struct conversion *c, const struct packed_tensor *like,
                        struct tensor_source from, mf_error *why)
{
    struct packed_manifest *m = &c->manifest;
    struct packed_tensor *out = &m->tensors[m->tensor_count];
    uint64_t end = packed_resident_bytes(m), bytes;
    if (!packed_tensor_size(&bytes, like->format, like->shape, like->rank))
        return fail(why, MF_ERR_UNSUPPORTED, "%s: tensor %s of type %s cannot be packed",
                    c->options->source, like->name, format_info(like->format)->name);
    *out = *like;
    out->offset = align_up(end, PACKED_TENSOR_ALIGNMENT);
    out->bytes = bytes;
    c->tensors[m->tensor_count++] = from;
    return MF_OK;
}

static struct packed_tensor same_tensor(const struct tensor *t)
{
    struct packed_tensor out = { .name = t->name, .format = t->format, .rank = t->rank };
    memcpy(out.shape, t->shape, sizeof out.shape);
    return out;
}

static mf_status plan_kept(struct conversion *c, const struct weight_origin *origin, mf_error *why)
{
    const struct tensor *tensors[] = { origin->values, origin->scales, origin->biases };
    mf_status status = MF_OK;
    for (size_t i = 0; i < COUNT_OF(tensors) && status == MF_OK; i++) {
        if (!tensors[i]) continue;
        struct packed_tensor same = same_tensor(tensors[i]);
        status = append(c, &same, (struct tensor_source){ .tensor = tensors[i] }, why);
        c->result->source_bytes += tensors[i]->bytes;
    }
    return status;
}

static mf_status plan_origin(struct conversion *c, const struct weight_origin *origin,
                             mf_error *why)
{
    struct weight to;
    enum quantisation rest = c->options->rest;
    if (rest == QUANTISE_KEEP || origin->vector || !may_change(origin->id))
        return plan_kept(c, origin, why);
    /* A stack of matrices with scales that rows share is cut at no row that we know of. */
    bool stack = origin->values->rank > 2 && origin->shape.group_rows > 1;
    if (stack || requantise_plan(&to, &origin->shape, rest) != REQUANTISE_CHANGE) {
        c->result->kept++;
        return plan_kept(c, origin, why);
    }
    c->result->requantised++;
    struct packed_tensor changed = same_tensor(origin->values);
    changed.format = to.format;
    changed.shape[changed.rank - 1] = to.cols; /* in numbers, not in packed words */
    c->result->source_bytes += origin->values->bytes;
    if (origin->scales) c->result->source_bytes += origin->scales->bytes;
    if (origin->biases) c->result->source_bytes += origin->biases->bytes;
    return append(c, &changed, (struct tensor_source){ .origin = origin }, why);
}

static mf_status plan_tensors(struct conversion *c, mf_error *why)
{
    const struct weights *weights = &c->source.weights;
    size_t most = 3 * weights->origin_count;
    c->manifest.tensors = ARENA_NEW(&c->manifest.arena, struct packed_tensor, most);
    c->tensors = ARENA_NEW(&c->arena, struct tensor_source, most);
    if (!c->manifest.tensors || !c->tensors)
        return fail_memory(why, most * sizeof *c->manifest.tensors);
    mf_status status = MF_OK;
    for (size_t i = 0; i < weights->origin_count && status == MF_OK; i++)
        status = plan_origin(c, &weights->origins[i], why);
    return status;
}

/* ----------------------------------------------------------------- experts */

static mf_status plan_matrix(struct packed_matrix *out, struct conversion *c,
                             const struct expert_matrix *from, uint32_t layer, mf_error *why)
{
    out->shape = from->shape;
    out->shape.col_bytes = 0;
    out->has_addends = from->addends != NULL;
    out->addend_format = from->addend_shape.format;
    /* The numbers of a row are put side by side, which rounds nothing. */
    enum format by_row = format_by_row(from->shape.format);
    if (by_row != FORMAT_COUNT) out->shape.format = by_row;
    if (c->options->experts == QUANTISE_KEEP) return MF_OK;
    struct weight to;
    switch (requantise_plan(&to, &from->shape, c->options->experts)) {
    case REQUANTISE_CHANGE:
        out->shape = to;
        c->result->requantised++;
        return MF_OK;
    case REQUANTISE_SMALL:
        c->result->kept++;
        return MF_OK;
    default:
        return fail(why, MF_ERR_UNSUPPORTED,
                    "%s: the experts of layer %u have rows of %llu numbers, for %s they must be a "
                    "multiple of 32",
                    c->options->source, layer, (unsigned long long)from->shape.cols,
                    quantisation_name(c->options->experts));
    }
}

static mf_status plan_layer(struct conversion *c, uint32_t number, mf_error *why)
{
    struct packed_manifest *m = &c->manifest;
    struct packed_layer *layer = &m->layers[m->layer_count];
    const struct layer_weights *weights = &c->source.weights.layers[number];
    layer->number = number;
    layer->checksums = ARENA_NEW(&m->arena, uint64_t, m->experts);
    if (!layer->checksums) return fail_memory(why, m->experts * sizeof *layer->checksums);
    for (size_t i = 0; i < PACKED_PARTS; i++) {
        const struct expert_matrix *from = &weights->experts[i];
        mf_status status = plan_matrix(&layer->parts[i], c, from, number, why);
        if (status != MF_OK) return status;
        c->result->source_bytes += m->experts * expert_matrix_bytes(from);
    }
    if (!packed_layer_arrange(layer))
        return fail(why, MF_ERR_UNSUPPORTED,
                    "%s: the experts of layer %u, of type %s, cannot be packed", c->options->source,
                    number, format_info(layer->parts[0].shape.format)->name);
    m->layer_count++;
    c->result->expert_bytes += m->experts * layer->stride;
    return MF_OK;
}

static mf_status plan_layers(struct conversion *c, mf_error *why)
{
    const struct model_config *config = &c->source.config;
    struct packed_manifest *m = &c->manifest;
    m->layers = ARENA_NEW(&m->arena, struct packed_layer, config->layer_count);
    if (!m->layers) return fail_memory(why, config->layer_count * sizeof *m->layers);
    m->experts = config->experts;
    mf_status status = MF_OK;
    for (uint32_t i = 0; i < config->layer_count && status == MF_OK; i++)
        if (config->ffns[i] == FFN_EXPERTS) status = plan_layer(c, i, why);
    if (m->layer_count == 0) m->experts = 0;
    return status;
}

/* ------------------------------------------------------------------- whole */

/* The model's name as JSON can hold it, whatever bytes its path has. */
static mf_status name_origin(struct conversion *c, mf_error *why)
{
    const char *name = c->source.name;
    char *copy = arena_text(&c->manifest.arena, name, strlen(name));
    if (!copy) return fail_memory(why, strlen(name) + 1);
    for (char *at = copy; *at; at++)
        if (*at < ' ' || *at > '~') *at = '?';
    c->manifest.origin.name = copy;
    return MF_OK;
}

mf_status conversion_plan(struct conversion *c, mf_error *why)
{
    const struct weights *weights = &c->source.weights;
    struct packed_manifest *m = &c->manifest;
    m->convention = weights->gguf          ? PACKED_GGUF
                    : weights->keeps_norms ? PACKED_MLX
                                           : PACKED_HUGGING_FACE;
    m->origin.kind = c->source.kind;
    m->origin.experts = quantisation_name(c->options->experts);
    m->origin.rest = quantisation_name(c->options->rest);
    mf_status status = name_origin(c, why);
    if (status == MF_OK) status = plan_tensors(c, why);
    if (status == MF_OK) status = plan_layers(c, why);
    if (status != MF_OK) return status;
    c->result->resident_bytes = packed_resident_bytes(m);
    c->result->layers = m->layer_count;
    c->result->experts = m->layer_count * (uint64_t)m->experts;
    c->result->exact = c->result->requantised == 0;
    return MF_OK;
}
