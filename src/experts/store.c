#include "experts/store.h"

#include "base/clock.h"
#include "base/status.h"

#include <stdio.h>

/* Slots start at page boundaries: direct reads need that. */
enum { SLOT_ALIGNMENT = 4096 };

enum slot_state { SLOT_EMPTY, SLOT_READING, SLOT_READY };

struct expert_slot {
    enum slot_state state;
    uint32_t leases;
};

struct expert_store {
    const mf_allocator *allocator;
    struct arena arena;
    const struct tensor_directory *directory;
    const struct layer_weights *layers;
    uint32_t layer_count, experts; /* per layer */
    struct expert_slot *slots;     /* [layer_count][experts] */
    uint64_t *uses;                /* [layer_count][experts] */
    size_t *layer_offsets;         /* [layer_count] first byte of the layer's slots */
    size_t *slot_bytes;            /* [layer_count] */
    uint8_t *memory;
    size_t memory_bytes;
    size_t present;
    struct expert_counters counters;
};

static size_t expert_bytes(const struct layer_weights *layer)
{
    size_t bytes = 0;
    for (int part = 0; part < EXPERT_PARTS; part++) {
        const struct expert_matrix *m = &layer->experts[part];
        bytes += align_up(m->value_bytes, CACHE_LINE) + align_up(m->scale_bytes, CACHE_LINE) +
                 align_up(m->bias_bytes, CACHE_LINE);
    }
    return align_up(bytes, SLOT_ALIGNMENT);
}

/* Where each layer's slots begin; false when the sum does not fit in 64 bits. */
static bool lay_out(struct expert_store *store)
{
    uint64_t total = 0;
    for (uint32_t i = 0; i < store->layer_count; i++) {
        uint64_t layer_bytes;
        store->layer_offsets[i] = total;
        store->slot_bytes[i] = expert_bytes(&store->layers[i]);
        if (!checked_multiply(&layer_bytes, store->slot_bytes[i], store->experts)) return false;
        if (!checked_add(&total, total, layer_bytes)) return false;
    }
    store->memory_bytes = total;
    return true;
}

static mf_status check_budget(const struct expert_store *store, uint64_t budget_bytes,
                              mf_error *why)
{
    if (store->memory_bytes <= budget_bytes) return MF_OK;
    return fail(why, MF_ERR_MEMORY, "the experts take %.1f GiB and %.1f GiB are left for them",
                (double)store->memory_bytes / (1 << 30), (double)budget_bytes / (1 << 30));
}

mf_status expert_store_new(struct expert_store **out, const mf_allocator *allocator,
                           const struct tensor_directory *directory,
                           const struct layer_weights *layers, const struct model_config *config,
                           uint64_t budget_bytes, mf_error *why)
{
    *out = NULL;
    struct arena arena;
    arena_init(&arena, allocator);
    struct expert_store *store = ARENA_NEW(&arena, struct expert_store, 1);
    if (!store) return fail_memory(why, sizeof *store);
    *store = (struct expert_store){ .allocator = allocator,
                                    .directory = directory,
                                    .layers = layers,
                                    .layer_count = config->layer_count,
                                    .experts = config->experts };
    size_t count = (size_t)config->layer_count * config->experts;
    store->slots = ARENA_NEW(&arena, struct expert_slot, count);
    store->uses = ARENA_NEW(&arena, uint64_t, count);
    store->layer_offsets = ARENA_NEW(&arena, size_t, config->layer_count);
    store->slot_bytes = ARENA_NEW(&arena, size_t, config->layer_count);
    store->arena = arena; /* the store lives in its own arena */
    mf_status status = MF_OK;
    if (!store->slots || !store->uses || !store->layer_offsets || !store->slot_bytes)
        status = fail_memory(why, count * sizeof *store->slots);
    else if (!lay_out(store))
        status = fail(why, MF_ERR_MEMORY, "the experts take more than 2^64 bytes");
    else
        status = check_budget(store, budget_bytes, why);
    if (status == MF_OK) {
        store->memory = allocator->allocate(allocator->user, store->memory_bytes, SLOT_ALIGNMENT);
        if (!store->memory) status = fail_memory(why, store->memory_bytes);
    }
    if (status == MF_OK)
        *out = store;
    else
        expert_store_free(store);
    return status;
}

void expert_store_free(struct expert_store *store)
{
    if (!store) return;
    if (store->memory)
        store->allocator->release(store->allocator->user, store->memory, store->memory_bytes);
    struct arena arena = store->arena;
    arena_free(&arena);
}

/* ------------------------------------------------------------------- slots */

static size_t slot_of(const struct expert_store *store, uint32_t layer, uint32_t expert)
{
    return (size_t)layer * store->experts + expert;
}

static uint8_t *slot_memory(const struct expert_store *store, uint32_t layer, uint32_t expert)
{
    return store->memory + store->layer_offsets[layer] + expert * store->slot_bytes[layer];
}

/* Where the next array of an expert goes in its slot; the first problem sticks. */
struct slot_cursor {
    uint8_t *at;
    mf_status status;
};

static void read_array(struct slot_cursor *cursor, const struct expert_store *store,
                       const struct extent *extents, uint64_t bytes, uint32_t expert, mf_error *why)
{
    if (cursor->status != MF_OK || !extents) return;
    const struct extent *extent = &extents[expert];
    cursor->status =
        file_read(&store->directory->files[extent->file], cursor->at, extent->offset, bytes, why);
    cursor->at += align_up(bytes, CACHE_LINE);
}

static mf_status read_expert(struct expert_store *store, uint32_t layer, uint32_t expert,
                             mf_error *why)
{
    struct slot_cursor cursor = { slot_memory(store, layer, expert), MF_OK };
    for (int part = 0; part < EXPERT_PARTS; part++) {
        const struct expert_matrix *m = &store->layers[layer].experts[part];
        read_array(&cursor, store, m->values, m->value_bytes, expert, why);
        read_array(&cursor, store, m->scales, m->scale_bytes, expert, why);
        read_array(&cursor, store, m->biases, m->bias_bytes, expert, why);
        if (cursor.status != MF_OK) break;
        store->counters.bytes_read += m->value_bytes + m->scale_bytes + m->bias_bytes;
    }
    if (cursor.status != MF_OK && why) {
        char reason[sizeof why->text];
        snprintf(reason, sizeof reason, "%s", why->text);
        return fail(why, cursor.status, "layer %u, expert %u: %.400s", layer, expert, reason);
    }
    return cursor.status;
}

/* EMPTY → READING → READY, or back to EMPTY when the read fails. */
static mf_status fill_slot(struct expert_store *store, uint32_t layer, uint32_t expert,
                           mf_error *why)
{
    struct expert_slot *slot = &store->slots[slot_of(store, layer, expert)];
    double begin = clock_seconds();
    slot->state = SLOT_READING;
    mf_status status = read_expert(store, layer, expert, why);
    slot->state = status == MF_OK ? SLOT_READY : SLOT_EMPTY;
    store->counters.wait_seconds += clock_seconds() - begin;
    store->counters.misses++;
    if (status == MF_OK) store->present++;
    return status;
}

static const uint8_t *take_array(const uint8_t **at, const struct extent *extents, uint64_t bytes)
{
    if (!extents) return NULL;
    const uint8_t *array = *at;
    *at += align_up(bytes, CACHE_LINE);
    return array;
}

static struct expert_view view_of(const struct expert_store *store, uint32_t layer, uint32_t expert)
{
    struct weight parts[EXPERT_PARTS];
    const uint8_t *at = slot_memory(store, layer, expert);
    for (int part = 0; part < EXPERT_PARTS; part++) {
        const struct expert_matrix *m = &store->layers[layer].experts[part];
        parts[part] = m->shape;
        parts[part].values = take_array(&at, m->values, m->value_bytes);
        parts[part].scales = take_array(&at, m->scales, m->scale_bytes);
        parts[part].biases = take_array(&at, m->biases, m->bias_bytes);
    }
    return (struct expert_view){ parts[EXPERT_GATE], parts[EXPERT_UP], parts[EXPERT_DOWN] };
}

/* ------------------------------------------------------------------ visits */

void expert_visit_begin(struct expert_visit *visit, struct expert_store *store, uint32_t layer,
                        const uint32_t *experts, size_t count)
{
    *visit =
        (struct expert_visit){ .store = store, .layer = layer, .experts = experts, .count = count };
}

static mf_status lease_expert(struct expert_lease *out, struct expert_store *store, uint32_t layer,
                              uint32_t expert, mf_error *why)
{
    size_t index = slot_of(store, layer, expert);
    struct expert_slot *slot = &store->slots[index];
    store->uses[index]++;
    if (slot->state == SLOT_READY) {
        store->counters.hits++;
    } else {
        mf_status status = fill_slot(store, layer, expert, why);
        if (status != MF_OK) return status;
    }
    slot->leases++;
    *out = (struct expert_lease){
        .view = view_of(store, layer, expert), .expert = expert, .store = store, .slot = index
    };
    return MF_OK;
}

size_t expert_visit_next(struct expert_visit *visit, struct expert_lease *leases, size_t capacity,
                         mf_status *status, mf_error *why)
{
    size_t given = 0;
    while (given < capacity && visit->next < visit->count) {
        *status = lease_expert(&leases[given], visit->store, visit->layer,
                               visit->experts[visit->next], why);
        if (*status != MF_OK) {
            while (given > 0) expert_lease_end(&leases[--given]);
            return 0;
        }
        visit->next++;
        given++;
    }
    return given;
}

void expert_lease_end(struct expert_lease *lease)
{
    lease->store->slots[lease->slot].leases--;
}

/* -------------------------------------------------------------- statistics */

struct expert_counters expert_store_counters(const struct expert_store *store)
{
    return store->counters;
}

void expert_store_reset_counters(struct expert_store *store)
{
    store->counters = (struct expert_counters){ 0 };
    memset(store->uses, 0, (size_t)store->layer_count * store->experts * sizeof *store->uses);
}

struct expert_store_sizes expert_store_sizes(const struct expert_store *store)
{
    uint64_t total = (uint64_t)store->layer_count * store->experts;
    return (struct expert_store_sizes){
        .slot_bytes = store->memory_bytes, .slots = total, .total = total, .present = store->present
    };
}

const uint64_t *expert_store_uses(const struct expert_store *store, uint32_t layer)
{
    return store->uses + slot_of(store, layer, 0);
}

void expert_store_drop_all(struct expert_store *store)
{
    size_t count = (size_t)store->layer_count * store->experts;
    for (size_t i = 0; i < count; i++) store->slots[i].state = SLOT_EMPTY;
    store->present = 0;
}

bool expert_store_check_invariants(const struct expert_store *store)
{
    size_t ready = 0, count = (size_t)store->layer_count * store->experts;
    for (size_t i = 0; i < count; i++) {
        const struct expert_slot *slot = &store->slots[i];
        if (slot->leases > 0 && slot->state != SLOT_READY) return false;
        if (slot->state == SLOT_READING) return false; /* reads end within a visit */
        ready += slot->state == SLOT_READY;
    }
    return ready == store->present;
}
