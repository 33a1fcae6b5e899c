/* store_internal.h: what the parts of the store share; for src/experts/store*.c only.
 *
 *     store.c          open, budget, statistics
 *     store_slots.c    slots and eviction
 *     store_reading.c  reads into slots
 *     store_visit.c    visits and leases
 *     store_ahead.c    read-ahead
 *     store_check.c    the invariants
 */
#ifndef EXPERTS_STORE_INTERNAL_H
#define EXPERTS_STORE_INTERNAL_H

#include "experts/eviction.h"
#include "experts/layout.h"
#include "experts/prefetch.h"
#include "experts/slot_plan.h"
#include "experts/store.h"
#include "experts/warm_memory.h"

enum {
    REQUESTS = 1024,                              /* reads that may be outstanding */
    VICTIMS_MAX = 64,                             /* found in one scan of the slots */
    PREDICTIONS = PREFETCH_RANKS * PREFETCH_REACH /* whose outcome is not known yet */
};

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
    uint64_t wanted; /* number of the visit that waits for it */
    uint8_t state;
    bool ahead;     /* read ahead and not yet requested by a visit */
    bool inherited; /* its read had begun before the visit that waits for it */
    uint16_t pieces_left;
};

/* Of a slot: the bytes that its read has brought, and its first failure. */
struct slot_read {
    uint64_t bytes;
    bool ahead; /* it started as a read-ahead */
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

struct expert_store {
    struct expert_store_options options;
    struct arena arena;
    struct async_reader *reader;
    enum expert_mode mode;
    struct file_map *maps; /* [files] of a mapped store, else NULL */
    bool direct;
    uint64_t stage_bytes;     /* of the reader's buffers */
    uint32_t layers, experts; /* experts per layer */
    struct eviction eviction; /* without tables while nothing can be evicted */
    uint64_t policy_bytes;    /* of its tables */

    uint64_t *layer_bytes; /* [layers] of a slot */
    struct slot_plan plan;
    uint8_t *memory;
    uint64_t memory_bytes; /* of the first plan; later ones take no more */
    struct memory_warmer warmer;
    struct expert_slot *slots; /* [plan.capacity] */
    struct slot_read *reads;   /* [plan.capacity] */
    uint8_t *memory_states;    /* [plan.capacity] enum slot_memory */
    uint32_t *slot_of;         /* [layers x experts], NO_SLOT: not in memory */
    uint32_t *empty;           /* [plan.capacity] those of a class from its first slot on */
    size_t *empty_count;       /* [classes, at most layers] */
    size_t present, failed;    /* slots READY, FAILED */
    struct victim victims[VICTIMS_MAX];
    size_t victim_count, victim_next;

    struct async_read *requests;      /* [REQUESTS] */
    struct async_read *free_requests; /* linked */
    size_t free_count;

    /* of the current visit */
    uint64_t visit; /* its number */
    uint32_t visit_layer, visit_rows;
    double visit_at;                    /* when it began … */
    double waited_then, predicted_then; /* … and what the counters said then */
    uint32_t *pending;                  /* [experts] asked for and not yet handed out */
    size_t pending_count;
    struct place_list missing; /* by offset in the file */

    struct prefetch prefetch;
    uint32_t ahead_layer; /* whose experts a prompt will nearly all use; NO_LAYER: none */
    struct prediction predictions[PREDICTIONS];
    size_t prediction_count;
    struct place_list
        coming;            /* experts of that layer that a prompt will use, by offset in the file */
    uint8_t *prompt_uses;  /* [layers x experts] whether the last chunk of a prompt used it */
    uint32_t *prompt_rows; /* [layers] rows of that chunk; 0: none yet */
    double asked_at;       /* when predicting began */

    uint64_t *uses; /* [layers x experts] */
    struct expert_counters counters;
    struct read_activity disk_before; /* when the counters were reset */
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
    return store->plan.class_of[layer_of(store, place)];
}

/* ------------------------------------------------------------ store_slots.c */

/* All slots are empty; nothing may be under way. */
void slots_reset(struct expert_store *store);

/* Where an expert lies in a slot; a mapped store has none. */
uint8_t *slots_memory(const struct expert_store *store, uint32_t slot, uint32_t place);

/* Its matrices, wherever they are. */
struct expert_view slots_view(const struct expert_store *store, uint32_t index);

/* READY or FAILED → EMPTY */
void slots_empty(struct expert_store *store, uint32_t index);

/* Before a series of takes: what was known about victims is old. */
void slots_begin_taking(struct expert_store *store);

/* An empty slot for the place, if need be by evicting an expert whose next use is more
 * than `distance` visits away; NO_SLOT: there is none. */
uint32_t slots_take(struct expert_store *store, uint32_t place, float distance);

/* ---------------------------------------------------------- store_reading.c */

void reading_layout(struct expert_layout *out, const struct expert_store *store, uint32_t place);

/* EMPTY → READING: the reads are put at the head of *list.  False when there is no
 * slot (`distance`: see slots_take), or no request, at the moment. */
bool reading_begin(struct expert_store *store, struct async_read **list, uint32_t place,
                   float distance, bool ahead);

/* Begins what is on the list, as far as there are slots and requests. */
void reading_begin_list(struct expert_store *store, struct place_list *list, float distance,
                        bool ahead);

/* Takes in the reads that have finished; false when there was none. */
bool reading_collect(struct expert_store *store, bool block);

/* READY → FAILED, if the files no longer have what is mapped. */
void reading_check_map(struct expert_store *store, uint32_t index);

/* FAILED → EMPTY, with the reason. */
mf_status reading_report(struct expert_store *store, uint32_t index, mf_error *why);

/* Adds to a list that is in the order of the file, as most checkpoints are. */
void reading_add(const struct expert_store *store, struct place_list *list, uint32_t place);

/* ------------------------------------------------------------ store_visit.c */

/* No read is waited for any more; failures that were not reported are forgotten. */
void visit_end(struct expert_store *store);

/* ------------------------------------------------------------ store_ahead.c */

/* A visit begins, and its experts have not been looked for yet: what does it say about
 * the predictions, and about the time since the visit before? */
void ahead_judge(struct expert_store *store, const struct expert_request *request, double now);

/* Whether a token's experts are read ahead now. */
bool ahead_is_on(const struct expert_store *store);

/* Goes on with what a prompt will want next, when everything that is wanted now has begun. */
void ahead_continue(struct expert_store *store);

#endif
