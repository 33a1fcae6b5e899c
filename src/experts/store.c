#include "experts/store_internal.h"

#include "base/status.h"

#include <assert.h>
#include <sys/mman.h>

/* ----------------------------------------------------------------- opening */

static mf_status open_reader(struct expert_store *store, mf_error *why)
{
    const struct expert_store_options *options = &store->options;
    enum expert_reading reading = store->placement.reading;
    struct async_reader *opened;
    struct async_reader_options reader = { .allocator = options->allocator,
                                           .files = options->directory->files,
                                           .file_count = options->directory->file_count,
                                           .engine = options->engine,
                                           .direct = reading == READING_DIRECT,
                                           .alignments = store->placement.alignments,
                                           .uncached =
                                               reading != READING_KEPT || options->hard_limit,
                                           .clock = options->clock,
                                           .factory = options->factory,
                                           .buffer_count = (size_t)store->layers * store->experts };
    if (reading == READING_MAPPED) { /* page faults block, so threads take them; the pages stay */
        reader.engine = READ_ENGINE_THREADS;
        reader.uncached = false;
    }
    mf_status status = async_reader_new(&opened, &reader, why);
    if (status != MF_OK) return status; /* an earlier reader stays in use */
    async_reader_free(store->reader);
    store->reader = opened;
    return MF_OK;
}

/* Gives the reader its staging buffers; no read may be in flight. */
static void set_buffers(struct expert_store *store)
{
    async_reader_stage(store->reader, store->placement.stage_bytes, store->placement.stage_count);
}

/* Opens a reader; without direct reads if these are not possible. */
static mf_status open_reading(struct expert_store *store, uint64_t budget_bytes, mf_error *why)
{
    struct expert_placement *placement = &store->placement;
    mf_status status = open_reader(store, why);
    if (status != MF_OK && placement->reading == READING_DIRECT) {
        status = expert_placement_avoid_direct(placement, budget_bytes, why);
        if (status == MF_OK) status = open_reader(store, why);
    }
    if (status == MF_OK) set_buffers(store);
    return status;
}

static mf_status place_experts(struct expert_store *store, mf_error *why)
{
    const struct expert_store_options *options = &store->options;
    struct expert_needs needs = { .directory = options->directory,
                                  .layers = options->layers,
                                  .config = options->config,
                                  .budget_bytes = options->budget_bytes,
                                  .hard_limit = options->hard_limit,
                                  .mode = options->mode };
    struct expert_placement *placement = &store->placement;
    mf_status status = expert_placement_make(placement, &needs, &store->arena, why);
    if (status == MF_OK) status = open_reading(store, options->budget_bytes, why);
    if (placement->mode != EXPERTS_MAPPED) placement->memory_bytes = placement->plan.memory_bytes;
    return status;
}

static mf_status take_memory(struct expert_store *store, mf_error *why)
{
    const mf_allocator *allocator = store->options.allocator;
    uint64_t bytes = store->placement.memory_bytes;
    if (bytes == 0) return MF_OK; /* a model without experts */
    store->memory = allocator->allocate(allocator->user, bytes, SLOT_ALIGNMENT);
    return store->memory ? MF_OK : fail_memory(why, bytes);
}

static mf_status map_files(struct expert_store *store, mf_error *why)
{
    const struct tensor_directory *directory = store->options.directory;
    store->maps = ARENA_NEW(&store->arena, struct file_map, directory->file_count);
    if (!store->maps) return fail_memory(why, directory->file_count * sizeof *store->maps);
    for (size_t i = 0; i < directory->file_count; i++) {
        mf_status status = file_map_open(&store->maps[i], &directory->files[i], why);
        if (status != MF_OK) return status;
    }
    return MF_OK;
}

static bool take_tables(struct expert_store *store)
{
    struct arena *arena = &store->arena;
    size_t places = (size_t)store->layers * store->experts, slots = store->placement.plan.capacity;
    store->slots = ARENA_NEW(arena, struct expert_slot, slots);
    store->reads = ARENA_NEW(arena, struct slot_read, slots);
    store->memory_states = ARENA_NEW(arena, uint8_t, slots);
    store->slot_of = ARENA_NEW(arena, uint32_t, places);
    store->empty = ARENA_NEW(arena, uint32_t, slots);
    store->empty_count = ARENA_NEW(arena, size_t, store->layers);
    store->requests = ARENA_NEW(arena, struct async_read, REQUESTS);
    store->pending = ARENA_NEW(arena, uint32_t, store->experts);
    store->missing.places = ARENA_NEW(arena, uint32_t, store->experts);
    store->coming.places = ARENA_NEW(arena, uint32_t, store->experts);
    store->prompt_uses = ARENA_NEW(arena, uint8_t, places);
    store->prompt_rows = ARENA_NEW(arena, uint32_t, store->layers);
    store->uses = ARENA_NEW(arena, uint64_t, places);
    store->map = ARENA_NEW(arena, _Atomic uint64_t, places / 64 + 1);
    store->with_experts = ARENA_NEW(arena, uint32_t, store->layers);
    return store->slots && store->reads && store->memory_states && store->slot_of && store->empty &&
           store->empty_count && store->requests && store->pending && store->missing.places &&
           store->coming.places && store->prompt_uses && store->prompt_rows && store->uses &&
           store->map && store->with_experts;
}

/* Allocates the tables of the cache policy, if anything can be evicted and they are not there
 * yet. */
static bool take_policy_tables(struct expert_store *store)
{
    if (store->policy_bytes > 0 || expert_placement_policy_bytes(&store->placement) == 0)
        return true;
    size_t before = store->arena.total_bytes;
    arena_start_block(&store->arena);
    bool taken = eviction_init(&store->eviction, &store->arena, store->layers, store->experts);
    if (taken) store->policy_bytes = store->arena.total_bytes - before;
    return taken;
}

static void link_requests(struct expert_store *store)
{
    for (size_t i = 0; i < REQUESTS; i++) {
        store->requests[i].next = store->free_requests;
        store->free_requests = &store->requests[i];
    }
    store->free_count = REQUESTS;
}

static void list_layers_with_experts(struct expert_store *store)
{
    for (uint32_t layer = 0; layer < store->layers; layer++)
        if (store->placement.plan.class_of[layer] != NO_CLASS)
            store->with_experts[store->row_count++] = layer;
}

mf_status expert_store_open(struct expert_store **out, const struct expert_store_options *options,
                            mf_error *why)
{
    *out = NULL;
    struct arena arena;
    arena_init(&arena, options->allocator);
    struct expert_store *store = ARENA_NEW(&arena, struct expert_store, 1);
    if (!store) return fail_memory(why, sizeof *store);
    const struct model_config *config = options->config;
    *store = (struct expert_store){ .options = *options,
                                    .arena = arena, /* the store lives in its own arena */
                                    .layers = config->layer_count,
                                    .experts = config->experts,
                                    .visit_layer = NO_LAYER,
                                    .ahead_layer = NO_LAYER };
    pthread_mutex_init(&store->report_lock, NULL);
    pthread_mutex_init(&store->watch.lock, NULL);
    mf_status status = place_experts(store, why);
    if (status == MF_OK && !(take_tables(store) && take_policy_tables(store)))
        status = fail_memory(why, store->placement.plan.capacity * sizeof *store->slots);
    if (status == MF_OK)
        status = store->placement.mode == EXPERTS_MAPPED ? map_files(store, why)
                                                         : take_memory(store, why);
    if (status != MF_OK) {
        expert_store_free(store);
        return status;
    }
    slots_reset(store);
    link_requests(store);
    list_layers_with_experts(store);
    prefetch_init(&store->prefetch, store->row_count, config->experts_per_token);
    if (options->hard_limit) async_reader_forget(store->reader); /* weights were read before */
    expert_store_publish(store);
    *out = store;
    return MF_OK;
}

void expert_store_pin(struct expert_store *store, struct backend *device)
{
    const struct slot_plan *plan = &store->placement.plan;
    if (!store->memory || store->pinned_for || !device->functions->pin) return;
    for (size_t c = 0; c < plan->class_count; c++)
        if (plan->classes[c].count < plan->classes[c].capacity) return; /* pinning would take it */
    if (device->functions->pin(device, store->memory, store->placement.memory_bytes))
        store->pinned_for = device;
}

static void unpin(struct expert_store *store)
{
    struct backend *device = store->pinned_for;
    store->pinned_for = NULL;
    if (device) device->functions->unpin(device, store->memory);
}

void expert_store_free(struct expert_store *store)
{
    if (!store) return;
    const mf_allocator *allocator = store->options.allocator;
    memory_warmer_stop(&store->warmer);
    async_reader_free(store->reader); /* nothing writes into the slots from here on */
    unpin(store);
    for (size_t i = 0; store->maps && i < store->options.directory->file_count; i++)
        file_map_close(&store->maps[i]);
    if (store->memory)
        allocator->release(allocator->user, store->memory, store->placement.memory_bytes);
    pthread_mutex_destroy(&store->report_lock);
    watch_free(store);
    struct arena arena = store->arena;
    arena_free(&arena);
}

/* ------------------------------------------------------------------ budget */

/* Returns the memory of the slots past class->count to the system. */
static void release_slots(struct expert_store *store, const struct slot_class *class)
{
    uint64_t from = class->memory_at + class->count * class->bytes;
    uint64_t bytes = (class->capacity - class->count) * class->bytes;
    for (size_t i = class->count; i < class->capacity; i++) {
        uint32_t index = (uint32_t)(class->first_slot + i);
        if (store->memory_states[index] == MEMORY_REGISTERED)
            async_reader_unregister_buffer(store->reader, index);
        store->memory_states[index] = MEMORY_FRESH;
    }
    if (bytes > 0) madvise(store->memory + from, bytes, MADV_DONTNEED);
}

/* Turns a resident store into a streamed one, in the same memory: drops all experts, plans the slots
 * again and opens a reader for streaming.  If such a reader cannot be opened, the one that there is
 * reads on. */
static mf_status begin_streaming(struct expert_store *store, uint64_t budget_bytes, mf_error *why)
{
    expert_store_drop_all(store);
    for (uint32_t i = 0; i < store->placement.plan.capacity; i++) {
        if (store->memory_states[i] == MEMORY_REGISTERED)
            async_reader_unregister_buffer(store->reader, i);
        store->memory_states[i] = MEMORY_FRESH;
    }
    madvise(store->memory, store->placement.memory_bytes, MADV_DONTNEED);
    mf_status status = expert_placement_stream(&store->placement, budget_bytes, why);
    if (status == MF_OK && open_reading(store, budget_bytes, NULL) != MF_OK)
        status = expert_placement_avoid_direct(&store->placement, budget_bytes, why);
    slots_reset(store);
    return status;
}

mf_status expert_store_set_budget(struct expert_store *store, uint64_t budget_bytes, mf_error *why)
{
    struct expert_placement *placement = &store->placement;
    size_t buffers = placement->stage_count;
    if (placement->mode == EXPERTS_MAPPED) return MF_OK; /* the page cache makes room by itself */
    memory_warmer_stop(&store->warmer);                  /* the next read starts it again */
    visit_end(store);
    while (reading_collect(store, true)) continue;
    mf_status status = expert_placement_limit(placement, budget_bytes, why);
    if (status != MF_OK) return status;
    unpin(store); /* a device would go on to read the pages that are returned below */
    if (placement->stage_count != buffers) set_buffers(store);
    if (expert_placement_must_stream(placement)) {
        status = begin_streaming(store, budget_bytes, why);
        if (status != MF_OK) return status;
    }
    if (!take_policy_tables(store))
        return fail(why, MF_ERR_MEMORY, "out of memory for the tables of the cache policy");
    for (size_t c = 0; c < store->placement.plan.class_count; c++) {
        const struct slot_class *class = &store->placement.plan.classes[c];
        uint32_t *empty = store->empty + class->first_slot;
        for (size_t i = class->count; i < class->capacity; i++) {
            uint32_t index = (uint32_t)(class->first_slot + i);
            assert(store->slots[index].leases == 0);
            if (store->slots[index].state != SLOT_EMPTY) slots_empty(store, index);
        }
        store->empty_count[c] = 0;
        for (size_t i = class->count; i-- > 0;) {
            uint32_t index = (uint32_t)(class->first_slot + i);
            if (store->slots[index].state == SLOT_EMPTY) empty[store->empty_count[c]++] = index;
        }
        release_slots(store, class);
    }
    return MF_OK;
}

/* -------------------------------------------------------------- statistics */

void expert_store_disk(const struct expert_store *store, struct read_activity *out)
{
    async_reader_activity(store->reader, out);
    out->reads -= store->disk_before.reads;
    out->retries -= store->disk_before.retries;
    out->bytes -= store->disk_before.bytes;
    out->seconds -= store->disk_before.seconds;
}

struct expert_counters expert_store_counters(const struct expert_store *store)
{
    return store->counters;
}

void expert_store_reset_counters(struct expert_store *store)
{
    store->counters = (struct expert_counters){ 0 };
    store->waited_then = store->predicted_then = 0;
    async_reader_activity(store->reader, &store->disk_before);
    memset(store->uses, 0, (size_t)store->layers * store->experts * sizeof *store->uses);
}

struct expert_store_sizes expert_store_sizes(const struct expert_store *store)
{
    uint64_t total = 0;
    struct read_activity activity;
    async_reader_activity(store->reader, &activity);
    for (size_t c = 0; c < store->placement.plan.class_count; c++)
        total += store->placement.plan.classes[c].experts;
    return (struct expert_store_sizes){ .mode = expert_placement_mode_name(&store->placement),
                                        .reader = activity.engine,
                                        .direct = store->placement.reading == READING_DIRECT,
                                        .slot_bytes = store->placement.plan.used_bytes,
                                        .slots = store->placement.plan.slot_count,
                                        .total = total,
                                        .present = store->present,
                                        .policy_bytes = store->policy_bytes,
                                        .ahead = ahead_is_on(store) };
}

void expert_store_publish(struct expert_store *store)
{
    struct expert_report report = { .counters = store->counters,
                                    .sizes = expert_store_sizes(store) };
    expert_store_disk(store, &report.disk);
    pthread_mutex_lock(&store->report_lock);
    store->report = report;
    pthread_mutex_unlock(&store->report_lock);
}

struct expert_report expert_store_report(struct expert_store *store)
{
    pthread_mutex_lock(&store->report_lock);
    struct expert_report report = store->report;
    pthread_mutex_unlock(&store->report_lock);
    return report;
}

void expert_store_bytes_of(const struct expert_store *store, uint32_t layer, uint64_t *expert_bytes,
                           uint64_t *slot_bytes)
{
    struct expert_layout layout = { 0 };
    if (store->experts > 0)
        expert_layout_make(&layout, &store->options.layers[layer], 0, store->placement.alignments);
    *expert_bytes = layout.array_bytes;
    *slot_bytes = store->placement.layer_bytes[layer];
}

const uint64_t *expert_store_uses(const struct expert_store *store, uint32_t layer)
{
    return store->uses + place_of(store, layer, 0);
}

void expert_store_drop_all(struct expert_store *store)
{
    visit_end(store);
    while (reading_collect(store, true)) continue;
    for (uint32_t i = 0; i < store->placement.plan.capacity; i++)
        if (store->slots[i].state != SLOT_EMPTY) slots_empty(store, i);
    slots_reset(store); /* the first slots are used first again */
}
