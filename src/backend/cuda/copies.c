/* copies.c: what lies on the device of the host's weights and experts. */
#include "backend/cuda/device.h"

/* --------------------------------------------------------------------------------------- table */

static size_t place_of(const struct copies *copies, struct copy_key key)
{
    uint64_t hash = (uint64_t)(uintptr_t)key.owner * UINT64_C(0x9e3779b97f4a7c15);
    hash = (hash ^ hash >> 29 ^ key.number) * UINT64_C(0xbf58476d1ce4e5b9);
    size_t at = (size_t)(hash >> 20) & (copies->room - 1);
    for (; copies->places[at]; at = (at + 1) & (copies->room - 1)) {
        struct copy_key *other = &copies->places[at]->key;
        if (other->owner == key.owner && other->number == key.number) break;
    }
    return at;
}

static struct copy *find(const struct copies *copies, struct copy_key key)
{
    return copies->room > 0 ? copies->places[place_of(copies, key)] : NULL;
}

static bool widen(struct cuda_backend *b, struct copies *copies)
{
    struct copies wider = { .room = copies->room > 0 ? 2 * copies->room : 1024 };
    size_t bytes = wider.room * sizeof *wider.places;
    wider.places = b->allocator->allocate(b->allocator->user, bytes, CACHE_LINE);
    if (!wider.places) return false;
    memset(wider.places, 0, bytes);
    for (size_t i = 0; i < copies->room; i++) {
        struct copy *copy = copies->places[i];
        if (!copy) continue;
        wider.places[place_of(&wider, copy->key)] = copy;
        wider.count++;
    }
    if (copies->places)
        b->allocator->release(b->allocator->user, copies->places,
                              copies->room * sizeof *copies->places);
    *copies = wider;
    return true;
}

/* A new entry without memory; NULL: the host has none left. */
static struct copy *add(struct cuda_backend *b, struct copies *copies, struct copy_key key)
{
    if (2 * (copies->count + 1) > copies->room && !widen(b, copies)) return NULL;
    struct copy *copy = b->allocator->allocate(b->allocator->user, sizeof *copy, CACHE_LINE);
    if (!copy) return NULL;
    *copy = (struct copy){ .key = key };
    copies->places[place_of(copies, key)] = copy;
    copies->count++;
    return copy;
}

/* Entries behind the one that goes move up, so that a search never ends at a gap before them. */
static void drop(struct cuda_backend *b, struct copies *copies, struct copy *copy)
{
    size_t at = place_of(copies, copy->key);
    copies->places[at] = NULL;
    copies->count--;
    for (size_t next = (at + 1) & (copies->room - 1); copies->places[next];
         next = (next + 1) & (copies->room - 1)) {
        struct copy *moved = copies->places[next];
        copies->places[next] = NULL;
        copies->places[place_of(copies, moved->key)] = moved;
    }
    cuda_give(b, copy->memory, copy->bytes);
    b->allocator->release(b->allocator->user, copy, sizeof *copy);
}

static void drop_all(struct cuda_backend *b, struct copies *copies)
{
    for (size_t i = 0; i < copies->room; i++) {
        if (!copies->places[i]) continue;
        cuda_give(b, copies->places[i]->memory, copies->places[i]->bytes);
        b->allocator->release(b->allocator->user, copies->places[i], sizeof(struct copy));
    }
    if (copies->places)
        b->allocator->release(b->allocator->user, copies->places,
                              copies->room * sizeof *copies->places);
    *copies = (struct copies){ 0 };
}

/* Pinned memory is read when its copy's turn comes: until then its lease must not end. */
void cuda_wait_for_copies(struct cuda_backend *b)
{
    if (b->copies) cuda_note(b, cudaEventSynchronize(b->copied));
    b->copies = false;
}

void cuda_forget(struct cuda_backend *b)
{
    cuda_drop_replays(b);
    drop_all(b, &b->tables);
    drop_all(b, &b->weights);
    drop_all(b, &b->experts);
    b->newest = b->oldest = NULL;
}

/* --------------------------------------------------------------------------------- expert order */

static void unlink_expert(struct cuda_backend *b, struct copy *copy)
{
    *(copy->newer ? &copy->newer->older : &b->newest) = copy->older;
    *(copy->older ? &copy->older->newer : &b->oldest) = copy->newer;
}

static void use_expert(struct cuda_backend *b, struct copy *copy)
{
    copy->launch = b->launch;
    copy->newer = NULL;
    copy->older = b->newest;
    *(b->newest ? &b->newest->newer : &b->oldest) = copy;
    b->newest = copy;
}

/* Memory for which experts of earlier launches make room.  The stream has them behind it, so what
 * they leave may be written by what is queued from here on. */
static void *take_evicting(struct cuda_backend *b, size_t bytes)
{
    void *memory = cuda_take(b, bytes);
    while (!memory && b->oldest && b->oldest->launch != b->launch && b->failed == cudaSuccess) {
        struct copy *oldest = b->oldest;
        unlink_expert(b, oldest);
        drop(b, &b->experts, oldest);
        memory = cuda_take(b, bytes);
    }
    return memory;
}

/* ------------------------------------------------------------------------------------- weights */

mf_status cuda_fail_memory(mf_error *why, struct cuda_backend *b, size_t bytes)
{
    mf_status status = cuda_check(b, why);
    if (status != MF_OK) return status;
    return fail(why, MF_ERR_MEMORY,
                "the device has no room for another %.1f MiB: %.1f of %.1f MiB are taken",
                (double)bytes / (1 << 20), (double)atomic_load(&b->taken_bytes) / (1 << 20),
                (double)b->device_bytes / (1 << 20));
}

mf_status cuda_array_on_device(const void **out, struct cuda_backend *b, const void *array,
                               size_t bytes, mf_error *why)
{
    struct copy_key key = { array, 0 };
    struct copy *copy = find(&b->weights, key);
    *out = NULL;
    if (!array || bytes == 0) return MF_OK;
    if (copy && copy->bytes < bytes) { /* a longer array at the same address */
        cuda_drop_replays(b);
        drop(b, &b->weights, copy);
        copy = NULL;
    }
    if (!copy) {
        void *memory = take_evicting(b, bytes);
        if (!memory) return cuda_fail_memory(why, b, bytes);
        copy = add(b, &b->weights, key);
        if (!copy) {
            cuda_give(b, memory, bytes);
            return fail_memory(why, sizeof *copy);
        }
        copy->memory = memory;
        copy->bytes = bytes;
        if (!cuda_note(b,
                       cudaMemcpyAsync(memory, array, bytes, cudaMemcpyHostToDevice, b->stream))) {
            drop(b, &b->weights, copy);
            return cuda_check(b, why);
        }
    }
    *out = copy->memory;
    return cuda_check(b, why);
}

/* Bytes from the first of an array to the last that a weight uses. */
static size_t value_bytes(const struct weight *w)
{
    uint64_t row = w->row_bytes;
    if (w->rows == 0 || w->cols == 0) return 0;
    if (w->col_bytes > 0) {
        const struct format_info *info = format_info(w->format);
        return (w->cols - 1) * w->col_bytes + (w->rows - 1) * w->row_bytes + info->block_bytes;
    }
    if (!format_row_bytes(&row, w->format, w->cols)) row = w->row_bytes;
    return (w->rows - 1) * w->row_bytes + row;
}

static size_t scale_bytes(const struct weight *w)
{
    uint64_t groups = w->group_cols > 0 ? (w->cols + w->group_cols - 1) / w->group_cols : 0;
    uint64_t rows = w->group_rows > 0 ? (w->rows + w->group_rows - 1) / w->group_rows : 0;
    if (rows == 0 || groups == 0) return 0;
    return (rows - 1) * w->scale_row_bytes + groups * format_info(w->scale_format)->block_bytes;
}

static struct cuda_weight without_arrays(const struct weight *w)
{
    return (struct cuda_weight){ .format = (int)w->format,
                                 .scale_format = (int)w->scale_format,
                                 .group_rows = w->group_rows,
                                 .group_cols = w->group_cols,
                                 .rows = w->rows,
                                 .cols = w->cols,
                                 .row_bytes = w->row_bytes,
                                 .scale_row_bytes = w->scale_row_bytes,
                                 .col_bytes = w->col_bytes };
}

mf_status cuda_weight_on_device(struct cuda_weight *out, struct cuda_backend *b,
                                const struct weight *weight, mf_error *why)
{
    const void *values, *scales = NULL, *biases = NULL;
    size_t bytes = scale_bytes(weight);
    *out = without_arrays(weight);
    mf_status status = cuda_array_on_device(&values, b, weight->values, value_bytes(weight), why);
    if (status == MF_OK) status = cuda_array_on_device(&scales, b, weight->scales, bytes, why);
    if (status == MF_OK) status = cuda_array_on_device(&biases, b, weight->biases, bytes, why);
    out->values = values;
    out->scales = scales;
    out->biases = biases;
    return status;
}

/* ------------------------------------------------------------------------------------- experts */

/* The arrays of an expert as stretches of host memory, those that overlap as one: rows of gate and
 * up may alternate. */
enum { STRETCHES_MAX = 12 };
struct stretches {
    struct {
        const uint8_t *begin, *end;
        size_t at; /* in the copy */
    } list[STRETCHES_MAX];
    size_t count, bytes;
};

static void add_stretch(struct stretches *s, const uint8_t *begin, size_t bytes)
{
    const uint8_t *end = begin + bytes;
    size_t at = 0;
    if (!begin || bytes == 0) return;
    for (size_t i = 0; i < s->count; i++) { /* those that it touches become part of it */
        if (s->list[i].begin < end && begin < s->list[i].end) {
            if (s->list[i].begin < begin) begin = s->list[i].begin;
            if (s->list[i].end > end) end = s->list[i].end;
        } else {
            s->list[at++] = s->list[i];
        }
    }
    s->count = at;
    s->list[s->count].begin = begin;
    s->list[s->count++].end = end;
}

static void add_weight(struct stretches *s, const struct weight *w)
{
    add_stretch(s, w->values, value_bytes(w));
    add_stretch(s, w->scales, scale_bytes(w));
    add_stretch(s, w->biases, scale_bytes(w));
}

static struct stretches stretches_of(const struct expert_view *view)
{
    struct stretches s = { .count = 0 };
    const struct weight *const weights[] = { &view->gate,       &view->up,
                                             &view->down,       &view->gate_addends,
                                             &view->up_addends, &view->down_addends };
    for (size_t i = 0; i < COUNT_OF(weights); i++) add_weight(&s, weights[i]);
    for (size_t i = 0; i < s.count; i++) {
        s.list[i].at = s.bytes;
        s.bytes += align_up((size_t)(s.list[i].end - s.list[i].begin), 256);
    }
    return s;
}

static const uint8_t *translated(const struct stretches *s, const uint8_t *memory,
                                 const uint8_t *address)
{
    for (size_t i = 0; i < s->count; i++)
        if (address >= s->list[i].begin && address < s->list[i].end)
            return memory + s->list[i].at + (address - s->list[i].begin);
    return NULL;
}

static struct cuda_weight moved(const struct weight *w, const struct stretches *s,
                                const uint8_t *memory)
{
    struct cuda_weight out = without_arrays(w);
    out.values = translated(s, memory, w->values);
    out.scales = translated(s, memory, w->scales);
    out.biases = translated(s, memory, w->biases);
    return out;
}

/* False: an error was noted, and the copy is not whole. */
static bool fill_expert(struct cuda_backend *b, struct copy *copy, const struct stretches *s,
                        const struct expert_view *view)
{
    uint8_t *memory = copy->memory;
    bool whole = true;
    for (size_t i = 0; i < s->count && whole; i++)
        whole = cuda_note(b, cudaMemcpyAsync(memory + s->list[i].at, s->list[i].begin,
                                             (size_t)(s->list[i].end - s->list[i].begin),
                                             cudaMemcpyHostToDevice, b->stream));
    b->copies = true;
    whole = cuda_note(b, cudaEventRecord(b->copied, b->stream)) && whole;
    copy->expert = (struct cuda_expert){ .gate = moved(&view->gate, s, memory),
                                         .up = moved(&view->up, s, memory),
                                         .down = moved(&view->down, s, memory),
                                         .gate_addends = moved(&view->gate_addends, s, memory),
                                         .up_addends = moved(&view->up_addends, s, memory),
                                         .down_addends = moved(&view->down_addends, s, memory) };
    return whole;
}

mf_status cuda_expert_on_device(const struct cuda_expert **out, struct cuda_backend *b,
                                const void *layer, const struct expert_work *work, mf_error *why)
{
    /* Experts of no model are copied each time: nothing tells when their address has new ones. */
    struct copy_key key = { layer, layer ? work->expert : b->launch << 16 | work->expert };
    struct copy *copy = find(&b->experts, key);
    *out = NULL;
    if (copy && copy->held) {
        *out = &copy->expert;
        return MF_OK;
    }
    if (copy) {
        unlink_expert(b, copy);
    } else {
        struct stretches stretches = stretches_of(work->view);
        void *memory = take_evicting(b, stretches.bytes);
        mf_status status = cuda_check(b, why);
        if (status != MF_OK) return status;
        if (!memory && b->newest && b->newest->launch == b->launch) return MF_OK;
        if (!memory) return cuda_fail_memory(why, b, stretches.bytes);
        copy = add(b, &b->experts, key);
        if (!copy) {
            cuda_give(b, memory, stretches.bytes);
            return fail_memory(why, sizeof *copy);
        }
        copy->memory = memory;
        copy->bytes = stretches.bytes;
        if (!fill_expert(b, copy, &stretches, work->view)) {
            drop(b, &b->experts, copy);
            return cuda_check(b, why);
        }
    }
    use_expert(b, copy);
    *out = &copy->expert;
    return cuda_check(b, why);
}

/* ---------------------------------------------------------------------------------------- held */

const struct cuda_expert *cuda_held_experts(const struct cuda_backend *b, const void *layer,
                                            uint32_t *count)
{
    const struct copy *table = find(&b->tables, (struct copy_key){ layer, 0 });
    *count = table ? (uint32_t)(table->bytes / sizeof(struct cuda_expert)) : 0;
    return table ? table->memory : NULL;
}

/* An expert leaves the order of uses, in which others might evict it. */
static mf_status hold(struct cuda_backend *b, const void *layer, const struct expert_work *work,
                      uint8_t *table, mf_error *why)
{
    const struct cuda_expert *expert;
    mf_status status = cuda_expert_on_device(&expert, b, layer, work, why);
    if (status != MF_OK) return status;
    if (!expert) return cuda_fail_memory(why, b, 0);
    struct copy *copy = find(&b->experts, (struct copy_key){ layer, work->expert });
    if (!copy->held) unlink_expert(b, copy);
    copy->held = true;
    cuda_note(b, cudaMemcpyAsync(table + work->expert * sizeof *expert, expert, sizeof *expert,
                                 cudaMemcpyHostToDevice, b->stream));
    return cuda_check(b, why);
}

mf_status cuda_hold_experts(struct backend *backend, const struct layer_weights *layer,
                            const struct expert_work *works, size_t count, size_t total,
                            mf_error *why)
{
    struct cuda_backend *b = (struct cuda_backend *)backend;
    struct copy_key key = { layer, 0 };
    struct copy *table = find(&b->tables, key);
    if (!table) {
        size_t bytes = total * sizeof(struct cuda_expert);
        void *memory = cuda_take(b, bytes);
        if (!memory) return cuda_fail_memory(why, b, bytes);
        table = add(b, &b->tables, key);
        if (!table) {
            cuda_give(b, memory, bytes);
            return fail_memory(why, sizeof *table);
        }
        table->memory = memory;
        table->bytes = bytes;
        cuda_note(b, cudaMemsetAsync(memory, 0, bytes, b->stream));
    }
    mf_status status = MF_OK;
    for (size_t i = 0; i < count && status == MF_OK; i++)
        status = hold(b, layer, &works[i], table->memory, why);
    cuda_wait_for_copies(b);
    return status;
}
