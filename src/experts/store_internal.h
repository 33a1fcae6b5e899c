/* store_internal.h: declarations shared by the files of the store, src/experts/store*.c.
 *
 *     store.c          open, budget, statistics
 *     store_slots.c    slots and eviction
 *     store_reading.c  reads into slots
 *     store_visit.c    visits and leases
 *     store_ahead.c    read-ahead
 *     store_watch.c    what visits find, for a watcher
 *     store_check.c    the invariants
 */
#ifndef EXPERTS_STORE_INTERNAL_H
#define EXPERTS_STORE_INTERNAL_H

#include "experts/eviction.h"
#include "experts/layout.h"
#include "experts/prefetch.h"
#include "experts/store.h"
#include "experts/warm_memory.h"

#include <pthread.h>

enum {
    REQUESTS = 1024,                              /* reads that may be outstanding */
    VICTIMS_MAX = 64,                             /* found in one scan of the slots */
    PREDICTIONS = PREFETCH_RANKS * PREFETCH_REACH /* whose outcome is not known yet */
};

/* Events that are handed over at a time, at most, and how long they may wait. */
enum { WATCH_EVENTS = 4096 };
#define WATCH_SECONDS 0.05

/* How old a report may become while a step runs. */
#define PUBLISH_SECONDS 1e-3

#define NO_SLOT  UINT32_MAX
#define NO_PLACE UINT32_MAX
#define NO_LAYER UINT32_MAX

enum slot_state { SLOT_EMPTY, SLOT_READING, SLOT_READY, SLOT_FAILED };

/* A slot's memory is registered with the reader at its second use.  Registering untouched pages
 * would fault them in on the owner's thread; after the first read they are present. */
enum slot_memory { MEMORY_FRESH, MEMORY_TOUCHED, MEMORY_REGISTERED };

/* Kept small: a search for victims scans all of them. */
struct expert_slot {
    uint32_t place; /* layer x experts + expert that it holds or reads; NO_PLACE: empty */
    uint32_t leases;
    uint64_t wanted;   /* number of the visit that waits for it */
    uint64_t expected; /* of the visit that it was read ahead for; not evicted before that */
    uint8_t state;
    bool ahead;     /* read ahead and not yet requested by a visit */
    bool inherited; /* its read had begun before the visit that waits for it */
    uint16_t pieces_left;
};

/* The read into a slot.  error, file, offset and missing describe its first failure. */
struct slot_read {
    uint64_t bytes; /* read so far */
    bool ahead;     /* it started as a read-ahead */
    int error;
    uint32_t file;
    uint64_t offset;
    size_t missing; /* bytes */
};

/* An expert that was not in memory when it was predicted. */
struct prediction {
    uint32_t place;
    uint16_t reach, rank; /* made `reach` visits before its layer's, at this rank */
};

struct victim {
    float distance; /* expected visits until its next use */
    uint32_t slot;
};

/* Experts to be read, in this order. */
struct place_list {
    uint32_t *places; /* [experts] */
    size_t count, next;
};

struct store_watch {
    pthread_mutex_t lock; /* held during calls of the function, and of these two */
    mf_experts_function function;
    void *user;
    atomic_uint version; /* counts changes of them */
    unsigned seen;       /* what follows is the computing thread's */
    bool on;
    size_t count;
    double told_at;
    mf_expert_event *events; /* [WATCH_EVENTS]; NULL: never watched */
};

struct expert_store {
    struct expert_store_options options;
    struct arena arena;
    struct async_reader *reader;
    struct expert_placement placement;
    struct file_map *maps;    /* [files] of a mapped store, else NULL */
    uint32_t layers, experts; /* experts per layer */
    struct eviction eviction; /* without tables while nothing can be evicted */
    uint64_t policy_bytes;    /* of its tables */

    uint8_t *memory;            /* placement.memory_bytes */
    struct backend *pinned_for; /* a device that `memory` is pinned for; NULL: none */
    struct memory_warmer warmer;
    struct expert_slot *slots; /* [placement.plan.capacity] */
    struct slot_read *reads;   /* [placement.plan.capacity] */
    uint8_t *memory_states;    /* [placement.plan.capacity] enum slot_memory */
    uint32_t *slot_of;         /* [layers x experts], NO_SLOT: not in memory */
    uint32_t *empty;        /* [placement.plan.capacity] those of a class from its first slot on */
    size_t *empty_count;    /* [classes, at most layers] */
    size_t present, failed; /* slots READY, FAILED */
    _Atomic uint64_t *map;  /* [layers x experts] bits: READY; written by the computing thread */
    uint32_t *with_experts; /* [row_count] layers that have experts */
    uint32_t row_count;
    struct victim victims[VICTIMS_MAX];
    size_t victim_count, victim_next;

    struct async_read *requests;      /* [REQUESTS] */
    struct async_read *free_requests; /* linked */
    size_t free_count;

    /* of the current visit */
    uint64_t visit; /* its number */
    uint32_t visit_layer, visit_rows;
    double visit_at;                    /* time of its begin, seconds … */
    double waited_then, predicted_then; /* … and wait_seconds, predict_seconds at that time */
    uint32_t *pending;                  /* [experts] requested and not yet leased */
    size_t pending_count;
    struct place_list missing; /* by offset in the file */

    struct prefetch prefetch;
    bool token_counts;    /* for the trials of read-ahead */
    uint32_t ahead_layer; /* whose experts a prompt will nearly all use; NO_LAYER: none */
    struct prediction predictions[PREDICTIONS];
    size_t prediction_count;
    struct place_list
        coming;            /* experts of that layer that a prompt will use, by offset in the file */
    uint8_t *prompt_uses;  /* [layers x experts] whether the last chunk of a prompt used it */
    uint32_t *prompt_rows; /* [layers] rows of that chunk; 0: none yet */
    double asked_at;       /* time of expert_store_predictable_ranks, seconds */

    uint64_t *uses; /* [layers x experts] */
    struct expert_counters counters;
    struct read_activity disk_before; /* when the counters were reset */

    pthread_mutex_t report_lock; /* of the next; taken last */
    struct expert_report report;
    double published_at;
    struct store_watch watch;
};

static inline uint32_t place_of(const struct expert_store *store, uint32_t layer, uint32_t expert)
{
    return layer * store->experts + expert;
}

static inline uint32_t layer_of(const struct expert_store *store, uint32_t place)
{
    return place / store->experts;
}

static inline uint32_t class_of(const struct expert_store *store, uint32_t place)
{
    return store->placement.plan.class_of[layer_of(store, place)];
}

/* An expert has come into memory, or leaves it. */
static inline void set_present(struct expert_store *store, uint32_t place, bool present)
{
    _Atomic uint64_t *word = &store->map[place / 64];
    uint64_t bit = UINT64_C(1) << place % 64,
             bits = atomic_load_explicit(word, memory_order_relaxed);
    atomic_store_explicit(word, present ? bits | bit : bits & ~bit, memory_order_relaxed);
    store->present += present ? 1 : -1;
}

/* ------------------------------------------------------------ store_watch.c */

void watch_record_slow(struct expert_store *store, uint32_t place, mf_expert_kind kind);

/* An event that is about to be counted. */
static inline void watch_record(struct expert_store *store, uint32_t place, mf_expert_kind kind)
{
    if (store->watch.on) watch_record_slow(store, place, kind);
}

/* At the begin of a visit. */
void watch_visit(struct expert_store *store, double now);

void watch_free(struct expert_store *store);

/* ------------------------------------------------------------ store_slots.c */

/* Empties all slots; no read may be in flight. */
void slots_reset(struct expert_store *store);

/* The memory of a slot of the class of `place`; not for a mapped store, which has none. */
uint8_t *slots_memory(const struct expert_store *store, uint32_t slot, uint32_t place);

/* The matrices of the expert in a slot, or of its mapped file. */
struct expert_view slots_view(const struct expert_store *store, uint32_t index);

/* READY or FAILED → EMPTY */
void slots_empty(struct expert_store *store, uint32_t index);

/* Call before a series of slots_take: discards the victims found earlier. */
void slots_begin_taking(struct expert_store *store);

/* Returns an empty slot for the expert `place`, evicting one whose next use is expected more than
 * `distance` visits from now if none is empty; NO_SLOT if that is not possible either. */
uint32_t slots_take(struct expert_store *store, uint32_t place, float distance);

/* Slots of a class that were read ahead for a visit that has not begun. */
size_t slots_expected(const struct expert_store *store, const struct slot_class *class);

/* ---------------------------------------------------------- store_reading.c */

void reading_layout(struct expert_layout *out, const struct expert_store *store, uint32_t place);

/* EMPTY → READING: takes a slot and puts its reads at the head of *list; the caller submits them.
 * False if no slot (`distance`: see slots_take) or no request is free. */
bool reading_begin(struct expert_store *store, struct async_read **list, uint32_t place,
                   float distance, bool ahead);

/* Begins and submits the reads on the list, as far as slots and requests are free. */
void reading_begin_list(struct expert_store *store, struct place_list *list, float distance,
                        bool ahead);

/* Moves the slots of finished reads to READY or FAILED.  `block`: wait for one if none has
 * finished.  False if there was none. */
bool reading_collect(struct expert_store *store, bool block);

/* READY → FAILED if a file is now too short for the mapped expert. */
void reading_check_map(struct expert_store *store, uint32_t index);

/* FAILED → EMPTY; returns the reason of the failure. */
mf_status reading_report(struct expert_store *store, uint32_t index, mf_error *why);

/* Inserts into a list that is sorted by offset in the file; cheap where that is the order of ids,
 * as in most checkpoints. */
void reading_add(const struct expert_store *store, struct place_list *list, uint32_t place);

/* ------------------------------------------------------------ store_visit.c */

/* Ends the current visit: it waits for no slot any more, and FAILED slots become EMPTY. */
void visit_end(struct expert_store *store);

/* ------------------------------------------------------------ store_ahead.c */

/* Compares the request of a new visit with the predictions for it and measures the time since the
 * visit before.  Call before the visit changes any slot. */
void ahead_judge(struct expert_store *store, const struct expert_request *request, double now);

/* Whether a token's experts are read ahead now. */
bool ahead_is_on(const struct expert_store *store);

/* Begins reads for the next layer of a prompt once all reads of the current visit have begun. */
void ahead_continue(struct expert_store *store);

#endif
