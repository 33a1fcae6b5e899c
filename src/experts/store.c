#include "experts/store_internal.h"

#include "base/status.h"
#include "io/read_stage.h"

#include <assert.h>
#include <sys/mman.h>

/* Direct reads are rounded out to whole blocks.  If that adds more than 1/8 to the slots, reads
 * go through the page cache instead. */
enum { PADDING_SHARE = 8 };

/* The reader's staging buffers (io/read_stage.h) take at most 1/64 of the budget. */
enum { STAGE_SHARE = 64 };

/* ----------------------------------------------------------------- opening */

static uint64_t longest_read(const struct expert_layout *layout)
{
    uint64_t longest = 0;
    for (size_t i = 0; i < layout->piece_count; i++)
        longest = max_size(longest, layout->pieces[i].count);
    return longest;
}

struct measures {
    uint64_t array_bytes; /* one expert of each layer, without padding */
    uint64_t read_bytes;  /* the longest read */
};

/* Sets slot_bytes[layer] to the size of a slot for the layer's largest expert. */
static struct measures measure_layers(uint64_t *slot_bytes, const struct expert_store *store)
{
    struct expert_layout layout = { 0 };
    struct measures found = { 0 };
    for (uint32_t layer = 0; layer < store->layers; layer++) {
        uint64_t largest = 0;
        for (uint32_t expert = 0; expert < store->experts; expert++) {
            expert_layout_make(&layout, &store->options.layers[layer], expert, store->reader);
            if (layout.bytes > largest) largest = layout.bytes;
            found.read_bytes = max_size(found.read_bytes, longest_read(&layout));
        }
        slot_bytes[layer] = align_up(largest, SLOT_ALIGNMENT);
        found.array_bytes += layout.array_bytes;
    }
    return found;
}

/* How the experts are read. */
enum reading {
    READING_KEPT,    /* resident: once, through the page cache, which may hold them already */
    READING_MAPPED,  /* mapped: threads fault the pages in */
    READING_DIRECT,  /* streamed: with O_DIRECT, past the page cache */
    READING_UNCACHED /* streamed, but too small for direct reads: through the page cache, whose
                        pages are dropped after the read */
};

static mf_status open_reader(struct expert_store *store, enum reading how, mf_error *why)
{
    const struct expert_store_options *options = &store->options;
    bool direct = how == READING_DIRECT;
    struct async_reader *opened;
    struct async_reader_options reader = { .allocator = options->allocator,
                                           .files = options->directory->files,
                                           .file_count = options->directory->file_count,
                                           .engine = options->engine,
                                           .direct = direct,
                                           .uncached = how != READING_KEPT || options->hard_limit,
                                           .clock = options->clock,
                                           .factory = options->factory,
                                           .buffer_count = (size_t)store->layers * store->experts };
    if (how == READING_MAPPED) { /* page faults block, so threads take them; the pages stay */
        reader.engine = READ_ENGINE_THREADS;
        reader.uncached = false;
    }
    mf_status status = async_reader_new(&opened, &reader, why);
    if (status != MF_OK) return status; /* an earlier reader stays in use */
    async_reader_free(store->reader);
    store->reader = opened;
    store->direct = direct;
    store->stage_bytes = 0;
    return MF_OK;
}

/* Sets the number and size of the reader's staging buffers; no read may be in flight. */
static void set_buffers(struct expert_store *store, uint64_t count, uint64_t bytes)
{
    count = min_size(count, STAGE_BUFFERS_MAX);
    async_reader_stage(store->reader, bytes, count);
    store->stage_bytes = count * bytes;
}

/* The budget without the reader's staging buffers. */
static uint64_t budget_of_slots(const struct expert_store *store, uint64_t budget_bytes)
{
    return budget_bytes - min_size(store->stage_bytes, budget_bytes);
}

/* Opens a reader for `how` and plans the slots.  *padded: rounding adds more than PADDING_SHARE
 * allows.  Staging buffers only make reads faster: a budget too small for both goes to slots. */
static mf_status make_plan(struct expert_store *store, enum reading how, bool *padded,
                           mf_error *why)
{
    bool mapped = how == READING_MAPPED; /* slots without memory: no budget needed */
    uint64_t slot_bytes = 0, budget_bytes = mapped ? UINT64_MAX : store->options.budget_bytes;
    mf_status status = open_reader(store, how, why);
    if (status != MF_OK) return status;
    struct measures found = measure_layers(store->layer_bytes, store);
    for (uint32_t layer = 0; layer < store->layers; layer++)
        slot_bytes += store->layer_bytes[layer];
    *padded = slot_bytes > found.array_bytes + found.array_bytes / PADDING_SHARE;
    if (how == READING_DIRECT && found.read_bytes > 0)
        set_buffers(store, budget_bytes / STAGE_SHARE / found.read_bytes, found.read_bytes);
    struct slot_needs needs = { .bytes = store->layer_bytes,
                                .layers = store->layers,
                                .experts = store->experts,
                                .per_token = store->options.config->experts_per_token,
                                .budget_bytes = budget_of_slots(store, budget_bytes) };
    status = slot_plan_make(&store->plan, &needs, why);
    if (status == MF_OK || store->stage_bytes == 0) return status;
    set_buffers(store, 0, 0);
    needs.budget_bytes = budget_bytes;
    return slot_plan_make(&store->plan, &needs, why);
}

static bool all_can_be_mapped(const struct tensor_directory *directory)
{
    for (size_t i = 0; i < directory->file_count; i++)
        if (!file_can_be_mapped(&directory->files[i])) return false;
    return true;
}

static uint64_t bytes_of_files(const struct tensor_directory *directory)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < directory->file_count; i++) bytes += directory->files[i].size;
    return bytes;
}

static uint64_t bytes_of_slots(const struct expert_store *store)
{
    uint64_t bytes = 0;
    for (size_t c = 0; c < store->plan.class_count; c++)
        bytes += store->plan.classes[c].experts * store->plan.classes[c].bytes;
    return bytes;
}

/* Direct reads where they fit, else reads through the page cache. */
static mf_status plan_streamed(struct expert_store *store, mf_error *why)
{
    bool padded;
    mf_status status = make_plan(store, READING_DIRECT, &padded, NULL);
    if (status == MF_OK && !padded) return MF_OK;
    return make_plan(store, READING_UNCACHED, &padded, why);
}

/* Sets the mode, the reader and the plan.  The plan of a resident store comes first, because the
 * choice depends on its sizes. */
static mf_status choose_mode(struct expert_store *store, mf_error *why)
{
    const struct expert_store_options *options = &store->options;
    bool padded;
    mf_status status = make_plan(store, READING_KEPT, &padded, why);
    if (status != MF_OK) return status;
    struct expert_mode_sizes sizes = { .slot_bytes = bytes_of_slots(store),
                                       .file_bytes = bytes_of_files(options->directory),
                                       .budget_bytes = options->budget_bytes,
                                       .hard_limit = options->hard_limit,
                                       .mappable = all_can_be_mapped(options->directory) };
    store->mode = expert_mode_choose(&sizes);
    double mebibyte = 1 << 20;
    if (options->mode == MODE_RESIDENT && store->mode == EXPERTS_STREAMED)
        return fail(why, MF_ERR_MEMORY,
                    "%.2f MiB are left for experts; to hold them all takes %.2f MiB",
                    (double)sizes.budget_bytes / mebibyte, (double)sizes.slot_bytes / mebibyte);
    if (options->mode == MODE_MAPPED && sizes.file_bytes > sizes.budget_bytes)
        return fail(why, MF_ERR_MEMORY, "%.2f MiB are left; the files to be mapped have %.2f MiB",
                    (double)sizes.budget_bytes / mebibyte, (double)sizes.file_bytes / mebibyte);
    if (options->mode == MODE_RESIDENT) store->mode = EXPERTS_RESIDENT;
    if (options->mode == MODE_MAPPED) store->mode = EXPERTS_MAPPED;
    if (store->mode == EXPERTS_STREAMED) return plan_streamed(store, why);
    if (store->mode == EXPERTS_MAPPED) return make_plan(store, READING_MAPPED, &padded, why);
    return MF_OK;
}

static mf_status take_memory(struct expert_store *store, mf_error *why)
{
    const mf_allocator *allocator = store->options.allocator;
    uint64_t bytes = store->plan.memory_bytes;
    if (bytes == 0) return MF_OK; /* a model without experts */
    store->memory = allocator->allocate(allocator->user, bytes, SLOT_ALIGNMENT);
    if (!store->memory) return fail_memory(why, bytes);
    store->memory_bytes = bytes;
    return MF_OK;
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
    size_t places = (size_t)store->layers * store->experts, slots = store->plan.capacity;
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
    return store->slots && store->reads && store->memory_states && store->slot_of && store->empty &&
           store->empty_count && store->requests && store->pending && store->missing.places &&
           store->coming.places && store->prompt_uses && store->prompt_rows && store->uses;
}

/* Allocates the tables of the cache policy, layers x experts² floats, if anything can be evicted
 * and they are not there yet. */
static bool take_policy_tables(struct expert_store *store)
{
    if (store->plan.resident || store->mode == EXPERTS_MAPPED || store->policy_bytes > 0)
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

static uint32_t layers_with_experts(const struct expert_store *store)
{
    uint32_t count = 0;
    for (uint32_t layer = 0; layer < store->layers; layer++)
        count += store->plan.class_of[layer] != NO_CLASS;
    return count;
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
    store->plan.classes = ARENA_NEW(&store->arena, struct slot_class, store->layers);
    store->plan.class_of = ARENA_NEW(&store->arena, uint32_t, store->layers);
    store->layer_bytes = ARENA_NEW(&store->arena, uint64_t, store->layers);
    mf_status status = MF_OK;
    if (!store->plan.classes || !store->plan.class_of || !store->layer_bytes)
        status = fail_memory(why, store->layers * sizeof *store->plan.classes);
    if (status == MF_OK) status = choose_mode(store, why);
    if (status == MF_OK && !(take_tables(store) && take_policy_tables(store)))
        status = fail_memory(why, store->plan.capacity * sizeof *store->slots);
    if (status == MF_OK)
        status = store->mode == EXPERTS_MAPPED ? map_files(store, why) : take_memory(store, why);
    if (status != MF_OK) {
        expert_store_free(store);
        return status;
    }
    slots_reset(store);
    link_requests(store);
    prefetch_init(&store->prefetch, layers_with_experts(store), config->experts_per_token);
    if (options->hard_limit) async_reader_forget(store->reader); /* weights were read before */
    *out = store;
    return MF_OK;
}

void expert_store_free(struct expert_store *store)
{
    if (!store) return;
    const mf_allocator *allocator = store->options.allocator;
    memory_warmer_stop(&store->warmer);
    async_reader_free(store->reader); /* nothing writes into the slots from here on */
    for (size_t i = 0; store->maps && i < store->options.directory->file_count; i++)
        file_map_close(&store->maps[i]);
    if (store->memory) allocator->release(allocator->user, store->memory, store->memory_bytes);
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

/* Plans the slots for another budget, without staging buffers if it is too small for both. */
static mf_status limit_slots(struct expert_store *store, uint64_t budget_bytes, mf_error *why)
{
    uint32_t per_token = store->options.config->experts_per_token;
    uint64_t left = budget_of_slots(store, budget_bytes);
    if (left < budget_bytes && slot_plan_limit(&store->plan, per_token, left, NULL) == MF_OK)
        return MF_OK;
    mf_status status = slot_plan_limit(&store->plan, per_token, budget_bytes, why);
    if (status != MF_OK || store->stage_bytes == 0) return status;
    visit_end(store);
    while (reading_collect(store, true)) continue;
    set_buffers(store, 0, 0);
    return MF_OK;
}

/* Turns a resident store into a streamed one, in the same memory: drops all experts, opens a reader
 * for streaming and plans the slots again.  If such a reader cannot be opened, the store stays
 * resident in name and evicts experts under the plan it has. */
static mf_status begin_streaming(struct expert_store *store, uint64_t budget_bytes, mf_error *why)
{
    bool padded;
    expert_store_drop_all(store);
    for (uint32_t i = 0; i < store->plan.capacity; i++) {
        if (store->memory_states[i] == MEMORY_REGISTERED)
            async_reader_unregister_buffer(store->reader, i);
        store->memory_states[i] = MEMORY_FRESH;
    }
    madvise(store->memory, store->memory_bytes, MADV_DONTNEED);
    store->options.budget_bytes = store->memory_bytes;
    if (plan_streamed(store, NULL) != MF_OK) return MF_OK;
    store->mode = EXPERTS_STREAMED;
    mf_status status = limit_slots(store, budget_bytes, NULL);
    if (status != MF_OK) { /* padded slots do not fit: try without direct reads */
        status = make_plan(store, READING_UNCACHED, &padded, why);
        if (status == MF_OK) status = limit_slots(store, budget_bytes, why);
    }
    slots_reset(store);
    return status;
}

mf_status expert_store_set_budget(struct expert_store *store, uint64_t budget_bytes, mf_error *why)
{
    if (store->mode == EXPERTS_MAPPED) return MF_OK; /* the page cache makes room by itself */
    memory_warmer_stop(&store->warmer);              /* the next read starts it again */
    mf_status status = limit_slots(store, budget_bytes, why);
    if (status != MF_OK) return status;
    bool limited = store->options.hard_limit && store->options.mode == MODE_BY_SIZE;
    if (limited && store->memory && store->mode == EXPERTS_RESIDENT && !store->plan.resident) {
        status = begin_streaming(store, budget_bytes, why);
        if (status != MF_OK) return status;
    }
    if (!take_policy_tables(store))
        return fail(why, MF_ERR_MEMORY, "out of memory for the tables of the cache policy");
    visit_end(store);
    while (reading_collect(store, true)) continue;
    for (size_t c = 0; c < store->plan.class_count; c++) {
        const struct slot_class *class = &store->plan.classes[c];
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
    enum expert_mode mode = store->mode == EXPERTS_RESIDENT && !store->plan.resident
                                ? EXPERTS_STREAMED /* the budget has become smaller */
                                : store->mode;
    async_reader_activity(store->reader, &activity);
    for (size_t c = 0; c < store->plan.class_count; c++) total += store->plan.classes[c].experts;
    return (struct expert_store_sizes){ .mode = expert_mode_name(mode),
                                        .reader = activity.engine,
                                        .direct = store->direct,
                                        .slot_bytes = store->plan.used_bytes,
                                        .slots = store->plan.slot_count,
                                        .total = total,
                                        .present = store->present,
                                        .policy_bytes = store->policy_bytes,
                                        .ahead = ahead_is_on(store) };
}

void expert_store_bytes_of(const struct expert_store *store, uint32_t layer, uint64_t *expert_bytes,
                           uint64_t *slot_bytes)
{
    struct expert_layout layout = { 0 };
    if (store->experts > 0)
        expert_layout_make(&layout, &store->options.layers[layer], 0, store->reader);
    *expert_bytes = layout.array_bytes;
    *slot_bytes = store->layer_bytes[layer];
}

const uint64_t *expert_store_uses(const struct expert_store *store, uint32_t layer)
{
    return store->uses + place_of(store, layer, 0);
}

void expert_store_drop_all(struct expert_store *store)
{
    visit_end(store);
    while (reading_collect(store, true)) continue;
    for (uint32_t i = 0; i < store->plan.capacity; i++)
        if (store->slots[i].state != SLOT_EMPTY) slots_empty(store, i);
    slots_reset(store); /* the first slots are used first again */
}
