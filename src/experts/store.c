#include "experts/store.h"

#include "base/clock.h"
#include "base/status.h"
#include "experts/eviction.h"
#include "experts/layout.h"
#include "experts/prefetch.h"
#include "experts/slot_plan.h"

#include <assert.h>
#include <errno.h>
#include <string.h>
#include <sys/mman.h>

enum {
    ARENA_ALIGNMENT = 2 << 20, /* of a huge page */
    REQUESTS = 1024,           /* reads that may be submitted at a time */
    VICTIMS_MAX = 64,          /* found in one look at the slots */
    ALWAYS_LEVEL = 2,          /* of AHEAD_ALWAYS */
    AHEAD_ROWS_MAX = 4,        /* a step of more rows wants too many experts to be predicted */
    PADDING_SHARE = 8          /* direct reads may add 1/8 to a slot, else reads are plain */
};

#define NO_SLOT  UINT32_MAX
#define NO_PLACE UINT32_MAX

enum slot_state { SLOT_EMPTY, SLOT_READING, SLOT_READY, SLOT_FAILED };

/* Small, for all of them are looked at when a victim is sought. */
struct expert_slot {
    uint32_t place; /* layer x experts + expert that it holds or awaits; NO_PLACE: empty */
    uint32_t leases;
    uint64_t wanted; /* number of the visit that waits for it */
    uint8_t state;
    bool ahead;     /* read ahead, and no visit has asked for it yet */
    bool inherited; /* its read had begun before the visit that waits for it */
    uint16_t pieces_left;
};

/* The first piece of a slot that failed. */
struct slot_failure {
    int error;
    uint32_t file;
    uint64_t offset;
    size_t missing; /* bytes */
};

/* An expert that was not in memory when it was predicted. */
struct prediction {
    uint32_t place, rank;
};

struct victim {
    float distance; /* expected visits until it is used */
    uint32_t slot;
};

struct expert_store {
    struct expert_store_options options;
    struct arena arena;
    struct async_reader *reader;
    bool direct;
    uint32_t layers, experts; /* experts per layer */
    struct eviction eviction;

    uint64_t *layer_bytes; /* [layers] of a slot */
    struct slot_plan plan;
    uint8_t *memory;
    struct expert_slot *slots;     /* [plan.capacity] */
    struct slot_failure *failures; /* [plan.capacity] */
    uint32_t *slot_of;             /* [layers x experts], NO_SLOT: not in memory */
    uint32_t *empty;               /* [plan.capacity] those of a class from its first slot on */
    size_t *empty_count;           /* [classes] */
    size_t present, failed;        /* slots READY, FAILED */

    struct async_read *requests;      /* [REQUESTS] */
    struct async_read *free_requests; /* linked */
    size_t free_count;

    /* of the visit at hand */
    uint64_t visit;      /* its number */
    uint32_t visit_rows; /* of its step */
    uint32_t *pending;   /* [experts] asked for and not yet handed out */
    size_t pending_count;
    uint32_t *missing; /* [experts] to be read, by place in the file */
    size_t missing_count, missing_next;
    uint32_t *one_row; /* [experts] what a visit without numbers stands for */
    struct victim victims[VICTIMS_MAX];
    size_t victim_count, victim_next;

    struct prefetch prefetch;
    struct prediction predictions[PREFETCH_RANKS]; /* for one layer */
    size_t prediction_count;
    double asked_at;    /* when predictions were wanted */
    double cost_before; /* wait and prediction when the last visit began */

    uint64_t *uses; /* [layers x experts] */
    struct expert_counters counters;
};

/* ------------------------------------------------------------------ making */

/* The size of a slot for each layer; what the arrays alone need goes to *array_bytes. */
static void measure_layers(uint64_t *slot_bytes, uint64_t *array_bytes,
                           const struct expert_store *store)
{
    struct expert_layout layout = { 0 };
    *array_bytes = 0;
    for (uint32_t layer = 0; layer < store->layers; layer++) {
        uint64_t largest = 0;
        for (uint32_t expert = 0; expert < store->experts; expert++) {
            expert_layout_make(&layout, &store->options.layers[layer], expert, store->reader);
            if (layout.bytes > largest) largest = layout.bytes;
        }
        slot_bytes[layer] = align_up(largest, SLOT_ALIGNMENT);
        *array_bytes += layout.array_bytes;
    }
}

/* How the experts are read.
 *
 * Resident ones are read once, through the page cache, where they may still be from
 * the last run.  Streamed ones are read again and again, past it; if they are so
 * small that rounding would take too much of the slots, through it without a trace. */
enum reading { READING_KEPT, READING_DIRECT, READING_UNCACHED };

static mf_status open_reader(struct expert_store *store, enum reading how, mf_error *why)
{
    const struct expert_store_options *options = &store->options;
    async_reader_free(store->reader);
    store->reader = NULL;
    store->direct = how == READING_DIRECT;
    struct async_reader_options reader = { .allocator = options->allocator,
                                           .files = options->directory->files,
                                           .file_count = options->directory->file_count,
                                           .engine = options->engine,
                                           .direct = store->direct,
                                           .uncached = how != READING_KEPT || options->promise };
    return async_reader_new(&store->reader, &reader, why);
}

/* *padded: rounding adds more than a little to the slots. */
static mf_status make_plan(struct expert_store *store, enum reading how, bool *padded,
                           mf_error *why)
{
    uint64_t array_bytes, slot_bytes = 0;
    mf_status status = open_reader(store, how, why);
    if (status != MF_OK) return status;
    measure_layers(store->layer_bytes, &array_bytes, store);
    for (uint32_t layer = 0; layer < store->layers; layer++)
        slot_bytes += store->layer_bytes[layer];
    *padded = slot_bytes > array_bytes + array_bytes / PADDING_SHARE;
    struct slot_needs needs = { .bytes = store->layer_bytes,
                                .layers = store->layers,
                                .experts = store->experts,
                                .per_token = store->options.config->experts_per_token,
                                .budget_bytes = store->options.budget_bytes };
    return slot_plan_make(&store->plan, &needs, why);
}

static mf_status choose_mode(struct expert_store *store, mf_error *why)
{
    bool padded;
    mf_status status = make_plan(store, READING_KEPT, &padded, why);
    if (status != MF_OK || store->plan.resident) return status;
    status = make_plan(store, READING_DIRECT, &padded, NULL);
    if (status == MF_OK && !padded) return MF_OK;
    return make_plan(store, READING_UNCACHED, &padded, why);
}

static mf_status take_memory(struct expert_store *store, mf_error *why)
{
    const mf_allocator *allocator = store->options.allocator;
    uint64_t bytes = store->plan.memory_bytes;
    if (bytes == 0) return MF_OK; /* a model without experts */
    size_t alignment = bytes < ARENA_ALIGNMENT ? SLOT_ALIGNMENT : ARENA_ALIGNMENT;
    store->memory = allocator->allocate(allocator->user, bytes, alignment);
    if (!store->memory) return fail_memory(why, bytes);
    if (alignment == ARENA_ALIGNMENT) madvise(store->memory, bytes, MADV_HUGEPAGE);
    return MF_OK;
}

static bool take_tables(struct expert_store *store)
{
    struct arena *arena = &store->arena;
    size_t places = (size_t)store->layers * store->experts, slots = store->plan.capacity;
    store->slots = ARENA_NEW(arena, struct expert_slot, slots);
    store->failures = ARENA_NEW(arena, struct slot_failure, slots);
    store->slot_of = ARENA_NEW(arena, uint32_t, places);
    store->empty = ARENA_NEW(arena, uint32_t, slots);
    store->empty_count = ARENA_NEW(arena, size_t, store->plan.class_count);
    store->requests = ARENA_NEW(arena, struct async_read, REQUESTS);
    store->pending = ARENA_NEW(arena, uint32_t, store->experts);
    store->missing = ARENA_NEW(arena, uint32_t, store->experts);
    store->one_row = ARENA_NEW(arena, uint32_t, store->experts);
    store->uses = ARENA_NEW(arena, uint64_t, places);
    return store->slots && store->failures && store->slot_of && store->empty &&
           store->empty_count && store->requests && store->pending && store->missing &&
           store->one_row && store->uses &&
           eviction_init(&store->eviction, arena, store->layers, store->experts);
}

static void empty_all(struct expert_store *store)
{
    size_t places = (size_t)store->layers * store->experts;
    for (size_t i = 0; i < places; i++) store->slot_of[i] = NO_SLOT;
    for (size_t c = 0; c < store->plan.class_count; c++) {
        const struct slot_class *class = &store->plan.classes[c];
        store->empty_count[c] = class->count;
        for (size_t i = 0; i < class->count; i++) /* the first slot is on top */
            store->empty[class->first_slot + i] =
                (uint32_t)(class->first_slot + class->count - 1 - i);
    }
    for (size_t i = 0; i < store->plan.capacity; i++)
        store->slots[i] = (struct expert_slot){ .place = NO_PLACE };
    store->present = store->failed = 0;
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
                                    .experts = config->experts };
    store->plan.classes = ARENA_NEW(&store->arena, struct slot_class, store->layers);
    store->plan.class_of = ARENA_NEW(&store->arena, uint32_t, store->layers);
    store->layer_bytes = ARENA_NEW(&store->arena, uint64_t, store->layers);
    mf_status status = MF_OK;
    if (!store->plan.classes || !store->plan.class_of || !store->layer_bytes)
        status = fail_memory(why, store->layers * sizeof *store->plan.classes);
    if (status == MF_OK) status = choose_mode(store, why);
    if (status == MF_OK && !take_tables(store))
        status = fail_memory(why, store->plan.capacity * sizeof *store->slots);
    if (status == MF_OK) status = take_memory(store, why);
    if (status != MF_OK) {
        expert_store_free(store);
        return status;
    }
    empty_all(store);
    link_requests(store);
    prefetch_init(&store->prefetch, layers_with_experts(store));
    if (options->promise) async_reader_forget(store->reader); /* weights were read before */
    *out = store;
    return MF_OK;
}

mf_status expert_store_new(struct expert_store **out, const mf_allocator *allocator,
                           const struct tensor_directory *directory,
                           const struct layer_weights *layers, const struct model_config *config,
                           uint64_t budget_bytes, mf_error *why)
{
    struct expert_store_options options = { .allocator = allocator,
                                            .directory = directory,
                                            .layers = layers,
                                            .config = config,
                                            .budget_bytes = budget_bytes };
    return expert_store_open(out, &options, why);
}

void expert_store_free(struct expert_store *store)
{
    if (!store) return;
    const mf_allocator *allocator = store->options.allocator;
    async_reader_free(store->reader); /* nothing writes into the slots from here on */
    if (store->memory) allocator->release(allocator->user, store->memory, store->plan.memory_bytes);
    struct arena arena = store->arena;
    arena_free(&arena);
}

/* ------------------------------------------------------------------- slots */

static uint32_t place_of(const struct expert_store *store, uint32_t layer, uint32_t expert)
{
    return layer * store->experts + expert;
}

static uint32_t class_index(const struct expert_store *store, uint32_t place)
{
    return store->plan.class_of[place / store->experts];
}

static uint8_t *slot_memory(const struct expert_store *store, uint32_t slot, uint32_t place)
{
    const struct slot_class *class = &store->plan.classes[class_index(store, place)];
    return store->memory + class->memory_at + (slot - class->first_slot) * class->bytes;
}

static void make_layout(struct expert_layout *out, const struct expert_store *store, uint32_t place)
{
    expert_layout_make(out, &store->options.layers[place / store->experts], place % store->experts,
                       store->reader);
}

/* READY or FAILED → EMPTY */
static void empty_slot(struct expert_store *store, uint32_t index)
{
    struct expert_slot *slot = &store->slots[index];
    uint32_t c = class_index(store, slot->place);
    if (slot->state == SLOT_READY) store->present--;
    if (slot->state == SLOT_FAILED) store->failed--;
    if (slot->ahead) store->counters.ahead_wasted++;
    store->slot_of[slot->place] = NO_SLOT;
    store->empty[store->plan.classes[c].first_slot + store->empty_count[c]++] = index;
    *slot = (struct expert_slot){ .place = NO_PLACE };
}

static bool is_evictable(const struct expert_store *store, const struct expert_slot *slot)
{
    return slot->state == SLOT_READY && slot->leases == 0 && slot->wanted != store->visit;
}

/* The slots of a class whose experts are wanted last, the very last first. */
static void find_victims(struct expert_store *store, const struct slot_class *class)
{
    struct victim *victims = store->victims;
    size_t count = 0;
    for (size_t i = 0; i < class->count; i++) {
        uint32_t index = (uint32_t)(class->first_slot + i);
        const struct expert_slot *slot = &store->slots[index];
        if (!is_evictable(store, slot)) continue;
        float distance = eviction_distance(&store->eviction, slot->place / store->experts,
                                           slot->place % store->experts);
        if (count == VICTIMS_MAX && distance <= victims[count - 1].distance) continue;
        size_t at = count < VICTIMS_MAX ? count++ : count - 1;
        for (; at > 0 && victims[at - 1].distance < distance; at--) victims[at] = victims[at - 1];
        victims[at] = (struct victim){ distance, index };
    }
    store->victim_count = count;
    store->victim_next = 0;
}

/* An empty slot of the class, if need be by evicting an expert whose next use is more
 * than `distance` visits away; NO_SLOT: there is none. */
static uint32_t take_slot(struct expert_store *store, uint32_t class_number, float distance)
{
    const struct slot_class *class = &store->plan.classes[class_number];
    size_t *empty_count = &store->empty_count[class_number];
    if (*empty_count == 0) {
        if (store->victim_next == store->victim_count) find_victims(store, class);
        if (store->victim_count == 0) return NO_SLOT;
        const struct victim *victim = &store->victims[store->victim_next];
        if (victim->distance <= distance) return NO_SLOT;
        store->victim_next++;
        store->counters.evictions++;
        empty_slot(store, victim->slot);
    }
    return store->empty[class->first_slot + --*empty_count];
}

/* ----------------------------------------------------------------- reading */

/* EMPTY → READING: the reads are put at the head of *list.  False when there is no
 * slot (`distance`: see take_slot), or no request, at the moment. */
static bool begin_read(struct expert_store *store, struct async_read **list, uint32_t place,
                       float distance, bool ahead)
{
    struct expert_layout layout;
    make_layout(&layout, store, place);
    if (store->free_count < layout.piece_count) return false;
    uint32_t index = take_slot(store, class_index(store, place), distance);
    if (index == NO_SLOT) return false;
    struct expert_slot *slot = &store->slots[index];
    uint8_t *memory = slot_memory(store, index, place);
    *slot = (struct expert_slot){ .place = place,
                                  .wanted = ahead ? 0 : store->visit,
                                  .state = SLOT_READING,
                                  .ahead = ahead,
                                  .pieces_left = (uint16_t)layout.piece_count };
    store->failures[index] = (struct slot_failure){ 0 };
    store->slot_of[place] = index;
    for (size_t i = layout.piece_count; i-- > 0;) {
        const struct expert_piece *piece = &layout.pieces[i];
        struct async_read *read = store->free_requests;
        store->free_requests = read->next;
        store->free_count--;
        *read = (struct async_read){ .file = piece->file,
                                     .tag = index,
                                     .offset = piece->offset,
                                     .count = piece->count,
                                     .out = memory + piece->at,
                                     .needed = piece->needed,
                                     .ahead = ahead,
                                     .next = *list };
        *list = read;
    }
    return true;
}

/* READING → READY, or FAILED.  A failure that no visit waits for is forgotten; one of
 * a read that the visit did not begin itself makes it begin one. */
static void end_read(struct expert_store *store, uint32_t index)
{
    struct expert_slot *slot = &store->slots[index];
    if (!store->failures[index].error) {
        slot->state = SLOT_READY;
        store->present++;
        return;
    }
    bool wanted = slot->wanted == store->visit;
    slot->state = SLOT_FAILED;
    store->failed++;
    if (wanted && !slot->inherited) return;
    if (wanted) store->missing[store->missing_count++] = slot->place;
    empty_slot(store, index);
}

/* Takes in the reads that have finished; false when there was none. */
static bool collect(struct expert_store *store, bool block)
{
    struct async_read *read = async_reader_wait(store->reader, block), *next;
    if (!read) return false;
    for (; read; read = next) {
        struct slot_failure *failure = &store->failures[read->tag];
        next = read->next;
        if (!read->error)
            store->counters.bytes_read += read->needed;
        else if (!failure->error)
            *failure = (struct slot_failure){ read->error, read->file, read->offset + read->done,
                                              read->needed - read->done };
        if (--store->slots[read->tag].pieces_left == 0) end_read(store, read->tag);
        read->next = store->free_requests;
        store->free_requests = read;
        store->free_count++;
    }
    return true;
}

static mf_status report_failure(struct expert_store *store, uint32_t index, mf_error *why)
{
    const struct slot_failure *failure = &store->failures[index];
    const struct file *file = &store->options.directory->files[failure->file];
    uint32_t layer = store->slots[index].place / store->experts;
    uint32_t expert = store->slots[index].place % store->experts;
    unsigned long long offset = failure->offset;
    empty_slot(store, index);
    if (!file->handle)
        return fail(why, MF_ERR_IO, "layer %u, expert %u: %s is not there", layer, expert,
                    file->path);
    if (failure->error == ENODATA)
        return fail(why, MF_ERR_IO,
                    "layer %u, expert %u: %s ends at byte %llu, %zu more were expected", layer,
                    expert, file->path, offset, failure->missing);
    return fail_errno(why, MF_ERR_IO, failure->error,
                      "layer %u, expert %u: %s cannot be read at byte %llu", layer, expert,
                      file->path, offset);
}

/* ------------------------------------------------------------------ visits */

static uint64_t file_position(const struct expert_store *store, uint32_t place)
{
    const struct expert_matrix *m =
        &store->options.layers[place / store->experts].experts[EXPERT_GATE];
    const struct extent *extent = &m->values[place % store->experts];
    return ((uint64_t)extent->file << 48) + extent->offset;
}

/* In the order of the file; most checkpoints have them in it already. */
static void add_missing(struct expert_store *store, uint32_t place)
{
    uint64_t position = file_position(store, place);
    size_t at = store->missing_count++;
    for (; at > 0 && file_position(store, store->missing[at - 1]) > position; at--)
        store->missing[at] = store->missing[at - 1];
    store->missing[at] = place;
}

/* Nobody is waited for any more; failures that were not reported are forgotten. */
static void end_visit(struct expert_store *store)
{
    store->pending_count = store->missing_count = store->missing_next = 0;
    store->visit++;
    for (uint32_t i = 0; store->failed > 0 && i < store->plan.capacity; i++)
        if (store->slots[i].state == SLOT_FAILED) empty_slot(store, i);
}

/* How right were the predictions for this layer? */
static void judge_predictions(struct expert_store *store, const struct expert_wish *wish)
{
    if (store->prediction_count == 0) return;
    if (store->predictions[0].place / store->experts != wish->layer) return;
    for (size_t i = 0; i < store->prediction_count; i++) {
        const struct prediction *prediction = &store->predictions[i];
        bool right = wish->uses[prediction->place % store->experts] > 0;
        prefetch_learn(&store->prefetch, prediction->rank, right);
        store->counters.predictions++;
        store->counters.predictions_right += right;
    }
    store->prediction_count = 0;
}

/* What has the visit that ends cost in time?  Those of prompts say nothing. */
static void judge_prefetch(struct expert_store *store)
{
    double cost = store->counters.wait_seconds + store->counters.predict_seconds;
    bool decode = store->visit_rows > 0 && store->visit_rows <= AHEAD_ROWS_MAX;
    if (decode) prefetch_visit(&store->prefetch, cost - store->cost_before);
    store->cost_before = cost;
}

/* Who is wanted is counted, and not evicted from here on; who is missing is listed. */
static void want(struct expert_store *store, uint32_t place)
{
    struct expert_counters *counters = &store->counters;
    uint32_t index = store->slot_of[place];
    store->uses[place]++;
    if (index == NO_SLOT) {
        counters->misses++;
        add_missing(store, place);
        return;
    }
    struct expert_slot *slot = &store->slots[index];
    if (slot->state == SLOT_READY) {
        counters->hits++;
        if (slot->ahead) counters->ahead_hits++;
    } else if (slot->ahead) {
        counters->ahead_late++;
        async_reader_promote(store->reader, index);
    } else {
        counters->misses++; /* a visit before this one asked and was given up */
    }
    slot->inherited = slot->state == SLOT_READING;
    slot->ahead = false;
    slot->wanted = store->visit;
}

/* Submits reads for all that are missing, as far as there are slots. */
static void read_missing(struct expert_store *store)
{
    struct async_read *reads = NULL, **end = &reads;
    store->victim_count = store->victim_next = 0;
    while (store->missing_next < store->missing_count) {
        if (!begin_read(store, end, store->missing[store->missing_next], -1.0f, false)) break;
        store->missing_next++;
        while (*end) end = &(*end)->next;
    }
    async_reader_submit(store->reader, reads);
}

void expert_visit_begin_rows(struct expert_visit *visit, struct expert_store *store,
                             const struct expert_wish *wish)
{
    collect(store, false);
    end_visit(store);
    judge_prefetch(store);
    judge_predictions(store, wish);
    eviction_visit(&store->eviction, wish->layer, wish->uses, wish->rows);
    store->visit_rows = wish->rows;
    store->pending_count = wish->count;
    for (size_t i = 0; i < wish->count; i++) {
        store->pending[i] = wish->experts[i];
        want(store, place_of(store, wish->layer, wish->experts[i]));
    }
    async_reader_cancel_ahead(store->reader); /* who is wanted has been promoted */
    read_missing(store);
    *visit = (struct expert_visit){ .store = store, .layer = wish->layer, .number = store->visit };
}

void expert_visit_begin(struct expert_visit *visit, struct expert_store *store, uint32_t layer,
                        const uint32_t *experts, size_t count)
{
    memset(store->one_row, 0, store->experts * sizeof *store->one_row);
    for (size_t i = 0; i < count; i++) store->one_row[experts[i]] = 1;
    struct expert_wish wish = {
        .layer = layer, .experts = experts, .count = count, .rows = 1, .uses = store->one_row
    };
    expert_visit_begin_rows(visit, store, &wish);
}

/* While experts wait for slots, part of the slots is left to be read into. */
static size_t lease_limit(const struct expert_store *store, uint32_t layer, size_t capacity)
{
    if (store->missing_next == store->missing_count) return capacity;
    size_t slots = store->plan.classes[store->plan.class_of[layer]].count;
    return min_size(capacity, max_size(slots / 2, 1));
}

static void lease_slot(struct expert_lease *out, struct expert_store *store, uint32_t index)
{
    struct expert_slot *slot = &store->slots[index];
    uint32_t layer = slot->place / store->experts;
    struct expert_layout layout;
    make_layout(&layout, store, slot->place);
    slot->leases++;
    slot->wanted = 0;
    *out =
        (struct expert_lease){ .view = expert_layout_view(&layout, &store->options.layers[layer],
                                                          slot_memory(store, index, slot->place)),
                               .expert = slot->place % store->experts,
                               .store = store,
                               .slot = index };
}

/* Leases those that are ready; a failure is reported once and ends the visit. */
static size_t hand_out(const struct expert_visit *visit, struct expert_lease *leases,
                       size_t capacity, mf_status *status, mf_error *why)
{
    struct expert_store *store = visit->store;
    size_t given = 0, kept = 0, limit = lease_limit(store, visit->layer, capacity);
    for (size_t i = 0; i < store->pending_count; i++) {
        uint32_t expert = store->pending[i];
        uint32_t index = store->slot_of[place_of(store, visit->layer, expert)];
        enum slot_state state = index == NO_SLOT ? SLOT_EMPTY : store->slots[index].state;
        if (state == SLOT_FAILED && *status == MF_OK) *status = report_failure(store, index, why);
        if (state == SLOT_READY && given < limit)
            lease_slot(&leases[given++], store, index);
        else
            store->pending[kept++] = expert;
    }
    store->pending_count = kept;
    if (*status == MF_OK) return given;
    while (given > 0) expert_lease_end(&leases[--given]);
    return 0;
}

/* Nothing is ready: waits for a read.  False: there is none, and no slot for one. */
static bool wait_for_reads(struct expert_store *store)
{
    double begin = clock_seconds();
    bool came = collect(store, true);
    store->counters.waits++;
    store->counters.wait_seconds += clock_seconds() - begin;
    return came;
}

size_t expert_visit_next(struct expert_visit *visit, struct expert_lease *leases, size_t capacity,
                         mf_status *status, mf_error *why)
{
    struct expert_store *store = visit->store;
    *status = MF_OK;
    if (visit->number != store->visit) {
        *status = fail(why, MF_ERR_ARGUMENT, "the visit has ended: another one has begun");
        return 0;
    }
    while (store->pending_count > 0) {
        collect(store, false);
        read_missing(store);
        size_t given = hand_out(visit, leases, capacity, status, why);
        if (given > 0) return given;
        if (*status == MF_OK && !wait_for_reads(store))
            *status = fail(why, MF_ERR_ARGUMENT,
                           "all %zu slots are leased; a lease must end before the visit goes on",
                           store->plan.slot_count);
        if (*status != MF_OK) end_visit(store);
    }
    return 0;
}

void expert_lease_end(struct expert_lease *lease)
{
    struct expert_slot *slot = &lease->store->slots[lease->slot];
    assert(slot->leases > 0);
    slot->leases--;
}

/* ----------------------------------------------------------- reading ahead */

bool expert_store_wants_predictions(struct expert_store *store)
{
    if (store->plan.resident || store->options.ahead == AHEAD_NEVER) return false;
    if (store->options.ahead == AHEAD_MEASURED && store->prefetch.level == 0) return false;
    store->asked_at = clock_seconds();
    return true;
}

/* Of the list, the surest that comes after `last` (the first among equals first);
 * `count`: there is none.  What is no number is never sure. */
static size_t next_surest(const float *weights, size_t count, size_t last)
{
    size_t best = count;
    for (size_t i = 0; i < count; i++) {
        bool after = last == count || weights[i] < weights[last] ||
                     (weights[i] == weights[last] && i > last);
        if (after && weights[i] == weights[i] && (best == count || weights[i] > weights[best]))
            best = i;
    }
    return best;
}

static bool is_known(const struct expert_store *store, uint32_t place)
{
    if (store->slot_of[place] != NO_SLOT) return true;
    for (size_t i = 0; i < store->prediction_count; i++)
        if (store->predictions[i].place == place) return true;
    return false;
}

/* Those that are not in memory, ranked. */
static void rank_predictions(struct expert_store *store, uint32_t layer, const uint32_t *experts,
                             const float *weights, size_t count)
{
    size_t at = count;
    store->prediction_count = 0;
    for (uint32_t rank = 0; rank < PREFETCH_RANKS; rank++) {
        at = next_surest(weights, count, at);
        if (at == count) return;
        uint32_t place = place_of(store, layer, experts[at]);
        if (!is_known(store, place))
            store->predictions[store->prediction_count++] = (struct prediction){ place, rank };
    }
}

void expert_store_expect(struct expert_store *store, uint32_t layer, const uint32_t *experts,
                         const float *weights, size_t count)
{
    struct async_read *reads = NULL, **end = &reads;
    uint32_t level = store->options.ahead == AHEAD_ALWAYS ? ALWAYS_LEVEL : store->prefetch.level;
    rank_predictions(store, layer, experts, weights, count);
    store->victim_count = store->victim_next = 0;
    for (size_t i = 0; i < store->prediction_count; i++) {
        const struct prediction *prediction = &store->predictions[i];
        if (!prefetch_trusts(&store->prefetch, prediction->rank, level)) continue;
        float distance = prefetch_distance(&store->prefetch, prediction->rank);
        if (!begin_read(store, end, prediction->place, distance, true)) break;
        store->counters.ahead_reads++;
        while (*end) end = &(*end)->next;
    }
    async_reader_submit(store->reader, reads);
    store->counters.predict_seconds += clock_seconds() - store->asked_at;
}

/* ------------------------------------------------------------------ budget */

/* Gives the pages of slots that are no longer used back to the system. */
static void release_slots(const struct expert_store *store, const struct slot_class *class)
{
    uint64_t from = class->memory_at + class->count * class->bytes;
    uint64_t bytes = (class->capacity - class->count) * class->bytes;
    if (bytes > 0) madvise(store->memory + from, bytes, MADV_DONTNEED);
}

mf_status expert_store_set_budget(struct expert_store *store, uint64_t budget_bytes, mf_error *why)
{
    mf_status status =
        slot_plan_limit(&store->plan, store->options.config->experts_per_token, budget_bytes, why);
    if (status != MF_OK) return status;
    end_visit(store);
    while (collect(store, true)) continue;
    for (size_t c = 0; c < store->plan.class_count; c++) {
        const struct slot_class *class = &store->plan.classes[c];
        uint32_t *empty = store->empty + class->first_slot;
        for (size_t i = class->count; i < class->capacity; i++) {
            uint32_t index = (uint32_t)(class->first_slot + i);
            assert(store->slots[index].leases == 0);
            if (store->slots[index].state != SLOT_EMPTY) empty_slot(store, index);
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

struct expert_counters expert_store_counters(const struct expert_store *store)
{
    return store->counters;
}

void expert_store_reset_counters(struct expert_store *store)
{
    store->counters = (struct expert_counters){ 0 };
    store->cost_before = 0;
    memset(store->uses, 0, (size_t)store->layers * store->experts * sizeof *store->uses);
}

struct expert_store_sizes expert_store_sizes(const struct expert_store *store)
{
    uint64_t total = 0;
    for (size_t c = 0; c < store->plan.class_count; c++) total += store->plan.classes[c].experts;
    return (struct expert_store_sizes){ .mode = store->plan.resident ? "resident" : "streamed",
                                        .reader = async_reader_name(store->reader),
                                        .direct = store->direct,
                                        .slot_bytes = store->plan.used_bytes,
                                        .slots = store->plan.slot_count,
                                        .total = total,
                                        .present = store->present };
}

const uint64_t *expert_store_uses(const struct expert_store *store, uint32_t layer)
{
    return store->uses + place_of(store, layer, 0);
}

void expert_store_drop_all(struct expert_store *store)
{
    end_visit(store);
    while (collect(store, true)) continue;
    for (uint32_t i = 0; i < store->plan.capacity; i++)
        if (store->slots[i].state != SLOT_EMPTY) empty_slot(store, i);
    empty_all(store); /* the first slots are used first again */
}

/* -------------------------------------------------------------- invariants */

static bool slot_is_sound(const struct expert_store *store, uint32_t index)
{
    const struct expert_slot *slot = &store->slots[index];
    if (slot->state == SLOT_EMPTY)
        return slot->place == NO_PLACE && slot->leases == 0 && slot->pieces_left == 0;
    if (slot->place >= store->layers * store->experts) return false;
    const struct slot_class *class = &store->plan.classes[class_index(store, slot->place)];
    if (index < class->first_slot || index >= class->first_slot + class->count) return false;
    if (store->slot_of[slot->place] != index) return false;
    if (slot->leases > 0 && slot->state != SLOT_READY) return false;
    if (slot->state == SLOT_FAILED && slot->wanted != store->visit) return false;
    return (slot->state == SLOT_READING) == (slot->pieces_left > 0);
}

/* Each class's stack of empty slots holds its empty slots and nothing else. */
static bool empties_are_sound(const struct expert_store *store)
{
    for (size_t c = 0; c < store->plan.class_count; c++) {
        const struct slot_class *class = &store->plan.classes[c];
        size_t empty = 0;
        for (size_t i = 0; i < class->count; i++)
            empty += store->slots[class->first_slot + i].state == SLOT_EMPTY;
        if (empty != store->empty_count[c]) return false;
        for (size_t i = 0; i < empty; i++) {
            uint32_t index = store->empty[class->first_slot + i];
            if (store->slots[index].state != SLOT_EMPTY) return false;
            if (index >= class->first_slot + class->count) return false;
        }
    }
    return true;
}

bool expert_store_check_invariants(const struct expert_store *store)
{
    size_t ready = 0, failed = 0, under_way = 0, held = 0;
    for (uint32_t i = 0; i < store->plan.capacity; i++) {
        if (!slot_is_sound(store, i)) return false;
        ready += store->slots[i].state == SLOT_READY;
        failed += store->slots[i].state == SLOT_FAILED;
        under_way += store->slots[i].pieces_left;
        held += store->slots[i].state != SLOT_EMPTY;
    }
    for (size_t p = 0; p < (size_t)store->layers * store->experts; p++)
        held -= store->slot_of[p] != NO_SLOT; /* no expert is in two slots, none is lost */
    return held == 0 && ready == store->present && failed == store->failed &&
           under_way == store->reader->outstanding && store->free_count + under_way == REQUESTS &&
           empties_are_sound(store);
}
