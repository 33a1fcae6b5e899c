#include "experts/route_trace.h"

#include "base/status.h"
#include "base/utf8.h"
#include "quant/format.h"

#include <math.h>

enum {
    AT_VERSION = 8,
    AT_HEAD_BYTES = 12,
    AT_LAYERS = 16,
    AT_EXPERTS = 20,
    AT_PER_TOKEN = 24,
    AT_ID_BYTES = 28,
    AT_RESIDENT = 32,
    AT_WORKING = 40,
    AT_NAME = 48,
    HEAD_BYTES = AT_NAME + ROUTE_NAME_BYTES, /* before what each layer has */
    LAYER_BYTES = 16,
    END_BYTES = 32,
    VERSION = 1,
    LAYERS_MAX = 4096,
    EXPERTS_MAX = 65536,
    ID_BYTE_EXPERTS = 256, /* ids of more need two bytes */
    WEIGHT_BYTES = 2,
    TOKEN_BYTES = 4,
};

_Static_assert(HEAD_BYTES == 112, "as route_trace.h says");

static const char magic[AT_VERSION + 1] = "mfroutes";

static uint32_t id_bytes_of(const struct route_shape *shape)
{
    return shape->experts <= ID_BYTE_EXPERTS ? 1 : 2;
}

/* Bytes of one layer of a step; false on overflow. */
static bool layer_bytes_of(uint64_t *out, const struct route_shape *shape, uint64_t rows)
{
    return checked_multiply(out, rows, shape->per_token) &&
           checked_multiply(out, *out, id_bytes_of(shape) + WEIGHT_BYTES);
}

static uint32_t layers_with_experts(const struct route_shape *shape)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < shape->layers; i++) count += shape->expert_bytes[i] > 0;
    return count;
}

/* Bytes of a step after its number of rows; false on overflow. */
static bool step_bytes_of(uint64_t *out, const struct route_shape *shape, uint64_t rows)
{
    uint64_t tokens;
    return layer_bytes_of(out, shape, rows) &&
           checked_multiply(out, *out, layers_with_experts(shape)) &&
           checked_multiply(&tokens, rows, TOKEN_BYTES) && checked_add(out, *out, tokens);
}

/* Copies the printable characters of `name`, cut to fit and padded with NUL.  False: some were left
 * out. */
static bool copy_name(char out[ROUTE_NAME_BYTES], const char *name)
{
    size_t length = strnlen(name, ROUTE_NAME_BYTES - 1), used = 0;
    bool printable = true;
    memset(out, 0, ROUTE_NAME_BYTES);
    for (size_t at = 0, step; at < length; at += step) {
        uint32_t character;
        step = utf8_decode(&character, name + at, length - at);
        if (character != UTF8_INVALID && character >= ' ' && character != 0x7F) {
            memcpy(out + used, name + at, step);
            used += step;
        } else {
            printable = false;
        }
    }
    return printable;
}

/* ----------------------------------------------------------------- reading */

static mf_status read_shape(struct route_shape *shape, const uint8_t *bytes, size_t count,
                            mf_error *why)
{
    if (count < HEAD_BYTES + END_BYTES || memcmp(bytes, magic, AT_VERSION) != 0)
        return fail(why, MF_ERR_FORMAT, "this is not a trace of routes");
    if (load_u32(bytes + AT_VERSION) != VERSION)
        return fail(why, MF_ERR_UNSUPPORTED, "the trace has version %u, known is %d",
                    load_u32(bytes + AT_VERSION), VERSION);
    *shape = (struct route_shape){ .layers = load_u32(bytes + AT_LAYERS),
                                   .experts = load_u32(bytes + AT_EXPERTS),
                                   .per_token = load_u32(bytes + AT_PER_TOKEN),
                                   .resident_bytes = load_u64(bytes + AT_RESIDENT),
                                   .working_bytes = load_u64(bytes + AT_WORKING) };
    if (shape->layers == 0 || shape->layers > LAYERS_MAX || shape->experts == 0 ||
        shape->experts > EXPERTS_MAX || shape->per_token == 0 || shape->per_token > shape->experts)
        return fail(why, MF_ERR_FORMAT,
                    "the trace is of %u layers with %u experts, %u of them per token",
                    shape->layers, shape->experts, shape->per_token);
    if (load_u32(bytes + AT_HEAD_BYTES) != HEAD_BYTES + shape->layers * LAYER_BYTES ||
        load_u32(bytes + AT_ID_BYTES) != id_bytes_of(shape))
        return fail(why, MF_ERR_FORMAT, "the head of the trace contradicts itself");
    if (count < (size_t)load_u32(bytes + AT_HEAD_BYTES) + END_BYTES)
        return fail(why, MF_ERR_FORMAT, "the trace ends within its head");
    if (bytes[HEAD_BYTES - 1] != 0 || !copy_name(shape->name, (const char *)bytes + AT_NAME))
        return fail(why, MF_ERR_FORMAT, "the trace's model has a name that cannot be printed");
    return MF_OK;
}

static mf_status read_layers(struct route_trace *trace, mf_error *why)
{
    struct route_shape *shape = &trace->shape;
    uint64_t *expert_bytes = ARENA_NEW(&trace->arena, uint64_t, shape->layers);
    uint64_t *slot_bytes = ARENA_NEW(&trace->arena, uint64_t, shape->layers);
    trace->order = ARENA_NEW(&trace->arena, uint32_t, shape->layers);
    if (!expert_bytes || !slot_bytes || !trace->order)
        return fail_memory(why, shape->layers * LAYER_BYTES);
    uint32_t found = 0;
    for (uint32_t i = 0; i < shape->layers; i++) {
        const uint8_t *at = trace->bytes + HEAD_BYTES + (size_t)i * LAYER_BYTES;
        expert_bytes[i] = load_u64(at);
        slot_bytes[i] = load_u64(at + 8);
        if (slot_bytes[i] < expert_bytes[i] || (expert_bytes[i] == 0 && slot_bytes[i] > 0))
            return fail(why, MF_ERR_FORMAT, "layer %u: an expert does not fit in its slot", i);
        trace->order[i] = expert_bytes[i] > 0 ? found++ : NO_ORDER;
    }
    shape->expert_bytes = expert_bytes;
    shape->slot_bytes = slot_bytes;
    return found > 0 ? MF_OK : fail(why, MF_ERR_FORMAT, "the trace is of a model without experts");
}

/* Counts the steps, and records them if trace->steps is allocated.  *end: offset after the last. */
static mf_status walk_steps(struct route_trace *trace, size_t count, size_t *end, mf_error *why)
{
    size_t at = load_u32(trace->bytes + AT_HEAD_BYTES), last = count - END_BYTES;
    trace->step_count = trace->row_count = 0;
    for (;;) {
        uint32_t rows = load_u32(trace->bytes + at); /* at ≤ last: 32 bytes are there */
        uint64_t bytes;
        *end = at;
        if (rows == 0) return MF_OK;
        at += 4;
        if (!step_bytes_of(&bytes, &trace->shape, rows) || at > last || bytes > last - at)
            return fail(why, MF_ERR_FORMAT, "the trace ends within step %zu", trace->step_count);
        if (trace->steps)
            trace->steps[trace->step_count] =
                (struct route_step){ .rows = rows, .first_row = trace->row_count, .at = at };
        trace->step_count++;
        trace->row_count += rows;
        at += bytes;
    }
}

static mf_status find_steps(struct route_trace *trace, size_t count, mf_error *why)
{
    size_t end;
    mf_status status = walk_steps(trace, count, &end, why);
    if (status != MF_OK) return status;
    const uint8_t *tail = trace->bytes + end;
    if (end + END_BYTES != count || load_u32(tail + 4) != 0 ||
        load_u64(tail + 8) != trace->row_count)
        return fail(why, MF_ERR_FORMAT, "the end of the trace does not fit its %zu rows",
                    trace->row_count);
    trace->step_seconds = 1e-9 * (double)load_u64(tail + 16);
    trace->steps = ARENA_NEW(&trace->arena, struct route_step, trace->step_count);
    if (!trace->steps) return fail_memory(why, trace->step_count * sizeof *trace->steps);
    return walk_steps(trace, count, &end, why);
}

/* What a row of the trace chose in a layer; seen[e]: the number of the row and layer that
 * chose expert e last. */
struct row_check {
    const struct route_step *step;
    uint32_t layer, row;
    uint64_t *seen, number;
};

static mf_status check_row(const struct route_trace *trace, const struct row_check *check,
                           mf_error *why)
{
    const struct route_step *step = check->step;
    for (uint32_t k = 0; k < trace->shape.per_token; k++) {
        uint32_t expert = route_trace_expert(trace, step, check->layer, check->row, k);
        if (expert >= trace->shape.experts || check->seen[expert] == check->number)
            return fail(why, MF_ERR_FORMAT, "token %zu, layer %u: expert %u is %s",
                        step->first_row + check->row, check->layer, expert,
                        expert >= trace->shape.experts ? "none of the layer" : "there twice");
        if (!isfinite(route_trace_weight(trace, step, check->layer, check->row, k)))
            return fail(why, MF_ERR_FORMAT, "token %zu, layer %u: a weight is not finite",
                        step->first_row + check->row, check->layer);
        check->seen[expert] = check->number;
    }
    return MF_OK;
}

static mf_status check_step(const struct route_trace *trace, struct row_check *check, mf_error *why)
{
    mf_status status = MF_OK;
    for (check->layer = 0; check->layer < trace->shape.layers; check->layer++) {
        if (trace->order[check->layer] == NO_ORDER) continue;
        for (check->row = 0; check->row < check->step->rows && status == MF_OK; check->row++) {
            check->number++;
            status = check_row(trace, check, why);
        }
    }
    return status;
}

static mf_status check_steps(struct route_trace *trace, mf_error *why)
{
    struct row_check check = { .seen = ARENA_NEW(&trace->arena, uint64_t, trace->shape.experts) };
    mf_status status = MF_OK;
    if (!check.seen) return fail_memory(why, trace->shape.experts * sizeof *check.seen);
    for (size_t i = 0; i < trace->step_count && status == MF_OK; i++) {
        check.step = &trace->steps[i];
        status = check_step(trace, &check, why);
    }
    return status;
}

mf_status route_trace_open(struct route_trace *out, const mf_allocator *allocator,
                           const void *bytes, size_t count, mf_error *why)
{
    *out = (struct route_trace){ .bytes = bytes };
    arena_init(&out->arena, allocator);
    mf_status status = read_shape(&out->shape, bytes, count, why);
    out->id_bytes = id_bytes_of(&out->shape);
    if (status == MF_OK) status = read_layers(out, why);
    if (status == MF_OK) status = find_steps(out, count, why);
    if (status == MF_OK && checksum_of(bytes, count - 8) != load_u64(out->bytes + count - 8))
        status = fail(why, MF_ERR_FORMAT, "the trace is damaged: its checksum does not match");
    if (status == MF_OK) status = check_steps(out, why);
    if (status != MF_OK) route_trace_free(out);
    return status;
}

void route_trace_free(struct route_trace *trace)
{
    arena_free(&trace->arena);
    *trace = (struct route_trace){ 0 };
}

/* Where a layer's ids begin; its weights follow them. */
static const uint8_t *layer_at(const struct route_trace *trace, const struct route_step *step,
                               uint32_t layer)
{
    size_t choices = (size_t)step->rows * trace->shape.per_token;
    return trace->bytes + step->at + (size_t)step->rows * TOKEN_BYTES +
           trace->order[layer] * choices * (trace->id_bytes + WEIGHT_BYTES);
}

uint32_t route_trace_expert(const struct route_trace *trace, const struct route_step *step,
                            uint32_t layer, uint32_t row, uint32_t k)
{
    size_t choice = (size_t)row * trace->shape.per_token + k;
    const uint8_t *at = layer_at(trace, step, layer) + choice * trace->id_bytes;
    return trace->id_bytes == 1 ? *at : load_u16(at);
}

float route_trace_weight(const struct route_trace *trace, const struct route_step *step,
                         uint32_t layer, uint32_t row, uint32_t k)
{
    size_t choice = (size_t)row * trace->shape.per_token + k;
    size_t choices = (size_t)step->rows * trace->shape.per_token;
    const uint8_t *weights = layer_at(trace, step, layer) + choices * trace->id_bytes;
    return f32_from_bf16(load_u16(weights + choice * WEIGHT_BYTES));
}

/* ----------------------------------------------------------------- writing */

static void put(struct route_writer *writer, const void *bytes, size_t count)
{
    if (writer->status != MF_OK) return;
    checksum_add(&writer->checksum, bytes, count);
    if (!writer->sink(writer->user, bytes, count)) writer->status = MF_ERR_IO;
}

static void put_u32(struct route_writer *writer, uint32_t value)
{
    put(writer, &value, sizeof value);
}

static void put_u64(struct route_writer *writer, uint64_t value)
{
    put(writer, &value, sizeof value);
}

mf_status route_writer_open(struct route_writer *out, const mf_allocator *allocator,
                            const struct route_shape *shape, route_sink sink, void *user,
                            mf_error *why)
{
    *out = (struct route_writer){ .allocator = allocator,
                                  .shape = *shape,
                                  .sink = sink,
                                  .user = user,
                                  .id_bytes = id_bytes_of(shape),
                                  .next_layer = 0 };
    if (shape->experts == 0 || layers_with_experts(shape) == 0)
        return fail(why, MF_ERR_UNSUPPORTED, "the model has no experts, so it has no routes");
    char name[ROUTE_NAME_BYTES];
    copy_name(name, shape->name);
    checksum_begin(&out->checksum);
    put(out, magic, AT_VERSION);
    put_u32(out, VERSION);
    put_u32(out, HEAD_BYTES + shape->layers * LAYER_BYTES);
    put_u32(out, shape->layers);
    put_u32(out, shape->experts);
    put_u32(out, shape->per_token);
    put_u32(out, out->id_bytes);
    put_u64(out, shape->resident_bytes);
    put_u64(out, shape->working_bytes);
    put(out, name, sizeof name);
    for (uint32_t i = 0; i < shape->layers; i++) {
        put_u64(out, shape->expert_bytes[i]);
        put_u64(out, shape->slot_bytes[i]);
    }
    return out->status == MF_OK ? MF_OK : fail(why, MF_ERR_IO, "the trace cannot be written");
}

void route_writer_free(struct route_writer *writer)
{
    if (writer->step)
        writer->allocator->release(writer->allocator->user, writer->step, writer->step_capacity);
    *writer = (struct route_writer){ 0 };
}

/* The next layer that has experts, from this one on; the number of layers: none has. */
static uint32_t find_layer(const struct route_shape *shape, uint32_t layer)
{
    while (layer < shape->layers && shape->expert_bytes[layer] == 0) layer++;
    return layer;
}

static bool reserve_step(struct route_writer *writer, uint64_t bytes)
{
    const mf_allocator *allocator = writer->allocator;
    if (bytes <= writer->step_capacity) return true;
    if (writer->step) allocator->release(allocator->user, writer->step, writer->step_capacity);
    writer->step = allocator->allocate(allocator->user, bytes, CACHE_LINE);
    writer->step_capacity = writer->step ? bytes : 0;
    return writer->step != NULL;
}

static void begin_step(struct route_writer *writer, const struct route_choice *choice)
{
    uint64_t bytes;
    writer->step_used = 0;
    writer->rows = choice->rows;
    writer->next_layer = choice->layer;
    if (!step_bytes_of(&bytes, &writer->shape, choice->rows) ||
        !reserve_step(writer, bytes + sizeof choice->rows)) {
        writer->status = MF_ERR_MEMORY;
        return;
    }
    memcpy(writer->step, &choice->rows, sizeof choice->rows);
    writer->step_used = sizeof choice->rows;
    memcpy(writer->step + writer->step_used, choice->tokens, (size_t)choice->rows * TOKEN_BYTES);
    writer->step_used += (size_t)choice->rows * TOKEN_BYTES;
}

static void encode_choice(struct route_writer *writer, const struct route_choice *choice)
{
    size_t choices = (size_t)choice->rows * writer->shape.per_token;
    uint8_t *ids = writer->step + writer->step_used, *weights = ids + choices * writer->id_bytes;
    for (size_t i = 0; i < choices; i++) {
        uint16_t weight = bf16_from_f32(choice->weights[i]);
        memcpy(ids + i * writer->id_bytes, &choice->experts[i], writer->id_bytes);
        memcpy(weights + i * WEIGHT_BYTES, &weight, sizeof weight);
    }
    writer->step_used += choices * (writer->id_bytes + WEIGHT_BYTES);
}

void route_writer_add(struct route_writer *writer, const struct route_choice *choice)
{
    const struct route_shape *shape = &writer->shape;
    if (writer->status != MF_OK || choice->rows == 0) return;
    if (choice->layer == find_layer(shape, 0)) begin_step(writer, choice);
    bool expected = choice->layer == writer->next_layer && choice->rows == writer->rows;
    if (!expected || writer->status != MF_OK || writer->step_used == 0) return;
    encode_choice(writer, choice);
    writer->next_layer = find_layer(shape, choice->layer + 1);
    if (writer->next_layer < shape->layers) return;
    put(writer, writer->step, writer->step_used);
    writer->row_count += writer->rows;
    writer->step_used = 0;
}

mf_status route_writer_end(struct route_writer *writer, double step_seconds, mf_error *why)
{
    double nanoseconds = step_seconds > 0 && step_seconds < 1e6 ? 1e9 * step_seconds : 0;
    put_u32(writer, 0);
    put_u32(writer, 0);
    put_u64(writer, writer->row_count);
    put_u64(writer, (uint64_t)nanoseconds);
    put_u64(writer, checksum_end(&writer->checksum));
    if (writer->status == MF_OK) return MF_OK;
    return fail(why, writer->status,
                writer->status == MF_ERR_MEMORY ? "there was no memory for a step of the trace"
                                                : "the trace cannot be written");
}
