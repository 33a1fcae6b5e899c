/* pieces.c: the bytes of tensors and experts as the packed model has them. */
#include "base/checksum.h"
#include "base/status.h"
#include "convert/internal.h"

/* Size of the pieces in which tensors are read, about. */
enum { PIECE_BYTES = 4 << 20 };

/* Rows of a requantised tensor in one piece: rows that share scales stay together. */
static uint64_t piece_rows(const struct weight *from)
{
    uint64_t shared = max_size(from->group_rows, 1);
    uint64_t rows = PIECE_BYTES / (from->row_bytes + 1) / shared * shared;
    return min_size(from->rows, max_size(rows, shared));
}

static uint64_t scale_rows(const struct weight *w, uint64_t rows)
{
    uint64_t shared = max_size(w->group_rows, 1);
    return (rows + shared - 1) / shared;
}

/* Bytes of `rows` rows with what belongs to them. */
static uint64_t bytes_of(const struct weight *w, uint64_t rows)
{
    return rows * w->row_bytes + 2 * scale_rows(w, rows) * w->scale_row_bytes;
}

/* ------------------------------------------------------------------ memory */

static void need(struct conversion *c, uint64_t blob, uint64_t raw)
{
    c->blob_capacity = max_size(c->blob_capacity, blob);
    c->raw_capacity = max_size(c->raw_capacity, raw);
}

/* Whether the arrays of the source are those of the target. */
static bool takes_as_it_is(const struct expert_matrix *from, const struct packed_matrix *to)
{
    return requantise_is_same(&from->shape, &to->shape) &&
           from->shape.row_bytes == to->shape.row_bytes &&
           from->addend_shape.row_bytes == (to->has_addends ? to->bytes[3] / to->shape.rows : 0);
}

/* What the largest unit takes; the longest row of those that are requantised. */
static uint64_t measure(struct conversion *c)
{
    uint64_t cols = 0;
    need(c, PIECE_BYTES, 0);
    for (size_t i = 0; i < c->manifest.tensor_count; i++) {
        const struct weight_origin *origin = c->tensors[i].origin;
        if (!origin) continue;
        uint64_t rows = piece_rows(&origin->shape);
        need(c, rows * (c->manifest.tensors[i].bytes / origin->shape.rows),
             bytes_of(&origin->shape, rows));
        cols = max_size(cols, origin->shape.cols);
    }
    for (size_t i = 0; i < c->manifest.layer_count; i++) {
        const struct packed_layer *layer = &c->manifest.layers[i];
        need(c, layer->stride, 0);
        for (size_t part = 0; part < PACKED_PARTS; part++) {
            const struct expert_matrix *from =
                &c->source.weights.layers[layer->number].experts[part];
            if (takes_as_it_is(from, &layer->parts[part])) continue;
            need(c, 0, expert_matrix_bytes(from));
            cols = max_size(cols, from->shape.cols);
        }
    }
    return cols;
}

mf_status conversion_take_memory(struct conversion *c, mf_error *why)
{
    const mf_allocator *allocator = c->options->allocator;
    uint64_t cols = measure(c);
    c->blob = allocator->allocate(allocator->user, c->blob_capacity, PACKED_BLOB_ALIGNMENT);
    c->raw = arena_take_raw(&c->arena, c->raw_capacity, 1);
    if (c->options->verify) c->found = arena_take_raw(&c->arena, c->blob_capacity, 1);
    if (!c->blob || !c->raw || (c->options->verify && !c->found))
        return fail_memory(why, 2 * c->blob_capacity + c->raw_capacity);
    if (cols == 0) return MF_OK;
    unsigned threads = c->options->threads ? c->options->threads : 1;
    c->numbers = ARENA_NEW(&c->arena, float, threads *cols);
    if (!c->numbers) return fail_memory(why, threads * cols * sizeof *c->numbers);
    return thread_pool_new(&c->pool, c->options->allocator, threads, why);
}

void conversion_release_memory(struct conversion *c)
{
    const mf_allocator *allocator = c->options->allocator;
    if (c->blob) allocator->release(allocator->user, c->blob, c->blob_capacity);
    thread_pool_free(c->pool);
}

/* ----------------------------------------------------------------- tensors */

/* A source that is packed itself says what its bytes were. */
static mf_status compare_tensor(const struct conversion *c, const struct tensor *tensor,
                                const struct checksum *sum, mf_error *why)
{
    if (!tensor || !tensor->checksummed || checksum_end(sum) == tensor->checksum) return MF_OK;
    return fail(why, MF_ERR_IO,
                "%s: the bytes of tensor %s are not those that were written: the checksum differs",
                c->source.directory.files[tensor->file].path, tensor->name);
}

static mf_status copy_tensor(struct checksum *sum, struct conversion *c, uint64_t unit,
                             unit_sink sink, void *user, mf_error *why)
{
    const struct tensor *tensor = c->tensors[unit].tensor;
    const struct file *file = &c->source.directory.files[tensor->file];
    mf_status status = MF_OK;
    for (uint64_t at = 0; at < tensor->bytes && status == MF_OK; at += PIECE_BYTES) {
        size_t count = min_size(PIECE_BYTES, tensor->bytes - at);
        status = file_read(file, c->blob, tensor->offset + at, count, why);
        if (status != MF_OK) return status;
        checksum_add(sum, c->blob, count);
        status = sink(user, unit, at, c->blob, count, why);
    }
    return status == MF_OK ? compare_tensor(c, tensor, sum, why) : status;
}

/* Rows [first, first + rows) of a matrix into `raw`; `read` are the checksums of values,
 * scales and biases as far as they were read. */
static mf_status read_rows(struct weight *out, struct checksum read[3], const struct conversion *c,
                           const struct weight_origin *origin, uint64_t first, uint64_t rows,
                           mf_error *why)
{
    const struct weight *shape = &origin->shape;
    const struct {
        const struct tensor *tensor;
        const uint8_t **place;
        uint64_t first, bytes;
    } arrays[] = {
        { origin->values, &out->values, first * shape->row_bytes, rows * shape->row_bytes },
        { origin->scales, &out->scales, scale_rows(shape, first) * shape->scale_row_bytes,
          scale_rows(shape, rows) * shape->scale_row_bytes },
        { origin->biases, &out->biases, scale_rows(shape, first) * shape->scale_row_bytes,
          scale_rows(shape, rows) * shape->scale_row_bytes },
    };
    uint8_t *at = c->raw;
    *out = *shape;
    out->rows = rows;
    mf_status status = MF_OK;
    for (size_t i = 0; i < COUNT_OF(arrays) && status == MF_OK; i++) {
        const struct tensor *t = arrays[i].tensor;
        if (!t) continue;
        status = file_read(&c->source.directory.files[t->file], at, t->offset + arrays[i].first,
                           arrays[i].bytes, why);
        if (status == MF_OK && t->checksummed) checksum_add(&read[i], at, arrays[i].bytes);
        *arrays[i].place = at;
        at += arrays[i].bytes;
    }
    return status;
}

static mf_status change_tensor(struct checksum *sum, struct conversion *c, uint64_t unit,
                               unit_sink sink, void *user, mf_error *why)
{
    const struct weight_origin *origin = c->tensors[unit].origin;
    uint64_t all = origin->shape.rows, step = piece_rows(&origin->shape);
    struct weight from, to;
    requantise_plan(&to, &origin->shape, c->options->rest);
    to.values = c->blob; /* formats of the rest keep their scales with the values */
    struct checksum read[3];
    for (size_t i = 0; i < COUNT_OF(read); i++) checksum_begin(&read[i]);
    mf_status status = MF_OK;
    for (uint64_t first = 0; first < all && status == MF_OK; first += step) {
        to.rows = min_size(step, all - first);
        status = read_rows(&from, read, c, origin, first, to.rows, why);
        if (status != MF_OK) return status;
        requantise_rows(&to, &from, c->numbers, c->pool);
        size_t count = to.rows * to.row_bytes;
        checksum_add(sum, c->blob, count);
        status = sink(user, unit, first * to.row_bytes, c->blob, count, why);
    }
    if (status == MF_OK) status = compare_tensor(c, origin->values, &read[0], why);
    if (status == MF_OK) status = compare_tensor(c, origin->scales, &read[1], why);
    if (status == MF_OK) status = compare_tensor(c, origin->biases, &read[2], why);
    return status;
}

/* ----------------------------------------------------------------- experts */

/* An expert on its way. */
struct expert_job {
    struct conversion *c;
    uint32_t expert;
    bool checksummed;     /* the source is packed, */
    struct checksum read; /* and this must come out */
};

static mf_status read_array(uint8_t *out, struct expert_job *job, const struct extent *extents,
                            uint64_t bytes, mf_error *why)
{
    if (!extents) return MF_OK;
    const struct extent *extent = &extents[job->expert];
    mf_status status =
        file_read(&job->c->source.directory.files[extent->file], out, extent->offset, bytes, why);
    if (status == MF_OK && job->checksummed) checksum_add(&job->read, out, bytes);
    return status;
}

/* Rows that may lie apart, side by side: `bytes` of them.  Formats in which rows share scales never
 * lie apart. */
static void copy_rows(uint8_t *out, uint64_t bytes, const uint8_t *in, const struct weight *rows)
{
    uint64_t row_bytes = bytes / max_size(rows->rows, 1);
    if (row_bytes * rows->rows != bytes || rows->row_bytes == row_bytes) {
        memcpy(out, in, bytes);
        return;
    }
    for (uint64_t row = 0; row < rows->rows; row++)
        memcpy(out + row * row_bytes, in + row * rows->row_bytes, row_bytes);
}

static mf_status make_matrix(struct expert_job *job, const struct packed_matrix *to,
                             const struct expert_matrix *from, mf_error *why)
{
    struct conversion *c = job->c;
    bool same = takes_as_it_is(from, to);
    uint8_t *places[PACKED_ARRAYS], *raw = c->raw;
    mf_status status = MF_OK;
    for (size_t i = 0; i < PACKED_ARRAYS && status == MF_OK; i++) {
        struct expert_array array = expert_array(from, i);
        places[i] = same ? c->blob + to->offsets[i] : raw;
        raw += array.bytes;
        status = read_array(places[i], job, array.extents, array.bytes, why);
    }
    if (status != MF_OK || same) return status;
    copy_rows(c->blob + to->offsets[3], to->bytes[3], places[3], &from->addend_shape);
    if (requantise_is_same(&from->shape, &to->shape)) {
        struct weight scales = { .rows = from->shape.rows,
                                 .row_bytes = from->shape.scale_row_bytes };
        copy_rows(c->blob + to->offsets[0], to->bytes[0], places[0], &from->shape);
        copy_rows(c->blob + to->offsets[1], to->bytes[1], places[1], &scales);
        copy_rows(c->blob + to->offsets[2], to->bytes[2], places[2], &scales);
        return MF_OK;
    }

    struct weight source = from->shape, target = to->shape;
    source.values = places[0];
    source.scales = from->scales ? places[1] : NULL;
    source.biases = from->biases ? places[2] : NULL;
    target.values = c->blob + to->offsets[0];
    target.scales = to->bytes[1] ? c->blob + to->offsets[1] : NULL;
    target.biases = to->bytes[2] ? c->blob + to->offsets[2] : NULL;
    requantise_rows(&target, &source, c->numbers, c->pool);
    return MF_OK;
}

static mf_status make_expert(struct checksum *sum, struct conversion *c, uint64_t unit,
                             unit_sink sink, void *user, mf_error *why)
{
    uint64_t number = unit - c->manifest.tensor_count;
    struct expert_job job = { .c = c, .expert = (uint32_t)(number % c->manifest.experts) };
    const struct packed_layer *layer = &c->manifest.layers[number / c->manifest.experts];
    const struct layer_weights *weights = &c->source.weights.layers[layer->number];
    job.checksummed = weights->expert_checksums != NULL;
    checksum_begin(&job.read);
    uint64_t end = 0;
    for (size_t part = 0; part < PACKED_PARTS; part++) {
        const struct packed_matrix *m = &layer->parts[part];
        mf_status status = make_matrix(&job, m, &weights->experts[part], why);
        if (status != MF_OK) return status;
        for (size_t i = 0; i < COUNT_OF(m->bytes); i++) {
            if (m->bytes[i] == 0) continue;
            memset(c->blob + end, 0, m->offsets[i] - end); /* padding */
            checksum_add(sum, c->blob + m->offsets[i], m->bytes[i]);
            end = m->offsets[i] + m->bytes[i];
        }
    }
    if (job.checksummed && checksum_end(&job.read) != weights->expert_checksums[job.expert])
        return fail(why, MF_ERR_IO,
                    "%s: layer %u, expert %u is not what was written: the checksum differs",
                    c->options->source, layer->number, job.expert);
    memset(c->blob + end, 0, layer->stride - end);
    return sink(user, unit, 0, c->blob, layer->stride, why);
}

mf_status conversion_make_unit(uint64_t *checksum, struct conversion *c, uint64_t unit,
                               unit_sink sink, void *user, mf_error *why)
{
    struct checksum sum;
    mf_status status;
    checksum_begin(&sum);
    if (unit >= c->manifest.tensor_count)
        status = make_expert(&sum, c, unit, sink, user, why);
    else if (c->tensors[unit].origin)
        status = change_tensor(&sum, c, unit, sink, user, why);
    else
        status = copy_tensor(&sum, c, unit, sink, user, why);
    *checksum = checksum_end(&sum);
    return status;
}
