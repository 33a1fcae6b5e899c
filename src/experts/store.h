/* store.h: the only way to an expert's bytes.
 *
 * The store knows where every expert lies on disk and keeps some of them in slots
 * in memory.  A step walks the experts that a layer's routes name: a visit hands
 * out leases for those that are ready, first those that were in memory, then the
 * others as they arrive, and while a lease is held its slot stays as it is.
 *
 *     expert_visit_begin(&visit, store, layer, ids, count);
 *     while ((n = expert_visit_next(&visit, leases, capacity, &status, why)) > 0)
 *         … compute with leases[i].view, then expert_lease_end(&leases[i]) …
 *
 * State of a slot:
 *
 *            read begins            last piece is here        lease / end
 *     EMPTY ────────────▶ READING ─────────────────────▶ READY ◀────────▶ READY, leases > 0
 *       ▲ ▲                  │ a piece failed              │
 *       │ │ a visit said so, ▼ twice                       │ evicted: no lease, and no
 *       │ └─────────────── FAILED                          │ visit waits for it
 *       │   or none waited for it                          │
 *       └──────────────────────────────────────────────────┘
 *
 * Where experts live is chosen from the sizes when the store is made (mode.h).  No expert
 * byte is read before it is needed, in any mode; a mapped expert's "read" brings its pages
 * in, so that every mode waits, reads ahead, counts and fails in the same way.
 *
 * A visit goes on with as few slots as the plan gives (slot_plan.h), however many
 * experts it wants: leases that end make room for those that are still missing.
 *
 * Threads: one visit at a time; the engine serialises its sessions.  No lock is
 * held and no other thread stopped while a read is under way. */
#ifndef EXPERTS_STORE_H
#define EXPERTS_STORE_H

#include "backend/backend.h"
#include "experts/mode.h"
#include "io/async_read.h"
#include "model/weights.h"

struct expert_store;

struct expert_lease {
    struct expert_view view;
    uint32_t expert; /* its id in the layer */
    struct expert_store *store;
    size_t slot;
};

/* What a step wants of a layer. */
struct expert_wish {
    uint32_t layer;
    const uint32_t *experts; /* ids, each once; borrowed until begin returns */
    size_t count;
    uint32_t rows;        /* of the step */
    const uint32_t *uses; /* [experts of the layer] how many of the rows want each */
};

struct expert_visit {
    struct expert_store *store;
    uint32_t layer;
    uint64_t number;
};

/* Every expert that a visit asks for is one of hits, ahead_late and misses. */
struct expert_counters {
    uint64_t hits;       /* was in memory when it was asked for … */
    uint64_t ahead_hits; /* … of these: because it had been read ahead, at its first use */
    uint64_t ahead_late; /* was being read ahead */
    uint64_t misses;     /* had to be read on demand */
    uint64_t ahead_reads;
    uint64_t ahead_wasted; /* read ahead and given up without having been used */
    uint64_t predictions;  /* of experts that were not in memory … */
    uint64_t predictions_right;
    uint64_t evictions;
    uint64_t bytes_read;
    uint64_t bytes_ahead, bytes_wasted; /* of these: read ahead; read ahead in vain */
    uint64_t waits;                     /* times that a visit had nothing to compute with */
    double wait_seconds;
    double predict_seconds;
};

struct expert_store_sizes {
    const char *mode;      /* "resident", "mapped", "streamed" */
    const char *reader;    /* "io_uring", "threads" */
    bool direct;           /* reads pass by the page cache */
    uint64_t slot_bytes;   /* of all slots */
    uint64_t slots, total; /* slots in memory; experts in the model */
    uint64_t present;      /* experts in memory now */
    bool ahead;            /* experts are read ahead now (prefetch.h) */
};

/* Directory, layers and config are borrowed and must outlive the store. */
struct expert_store_options {
    const mf_allocator *allocator;
    const struct tensor_directory *directory;
    const struct layer_weights *layers;
    const struct model_config *config;
    uint64_t budget_bytes; /* for slots */
    bool promise;          /* the page cache that reading fills counts too */
    bool unchecked;        /* what the packed layout's checksums say does not matter */
    enum read_engine_kind engine;
    enum expert_ahead { AHEAD_MEASURED, AHEAD_NEVER, AHEAD_ALWAYS } ahead;
    const struct clock *clock;   /* NULL: the real one */
    read_engine_factory factory; /* NULL: as `engine` says; for tests */
    enum expert_place { PLACE_BY_SIZE, PLACE_RESIDENT, PLACE_MAPPED } place; /* or refused */
    struct tracer *tracer; /* hears of reads; may be NULL */
};

/* A budget below what one token needs in one layer, and two experts more, is refused. */
mf_status expert_store_open(struct expert_store **out, const struct expert_store_options *options,
                            mf_error *why);

/* The same with the best reader and no promise. */
mf_status expert_store_new(struct expert_store **out, const mf_allocator *allocator,
                           const struct tensor_directory *directory,
                           const struct layer_weights *layers, const struct model_config *config,
                           uint64_t budget_bytes, mf_error *why);
void expert_store_free(struct expert_store *store);

/* Uses fewer slots, or again more, up to what the store was made with; evicted
 * experts' memory goes back to the system.  A mapped store has none to give.  A resident
 * one that no longer can be, and promised how much memory it takes, becomes a streamed one;
 * what was in memory is read again.  Too small a
 * budget is refused and changes nothing.  Waits for reads; no lease may be held. */
mf_status expert_store_set_budget(struct expert_store *store, uint64_t budget_bytes, mf_error *why);

/* Submits reads for all experts that are missing, as far as there are slots, and ends
 * the visit before this one, whatever that one still wanted. */
void expert_visit_begin_rows(struct expert_visit *visit, struct expert_store *store,
                             const struct expert_wish *wish);

/* The same for one row that wants them all. */
void expert_visit_begin(struct expert_visit *visit, struct expert_store *store, uint32_t layer,
                        const uint32_t *experts, size_t count);

/* Leases for up to `capacity` experts that are ready now, waiting for one if none
 * is.  0 when the visit is over, or when *status says that a read failed; the
 * store is usable afterwards, and what had been read stays. */
size_t expert_visit_next(struct expert_visit *visit, struct expert_lease *leases, size_t capacity,
                         mf_status *status, mf_error *why);
void expert_lease_end(struct expert_lease *lease);

/* Reading ahead.  While a layer's experts arrive and compute, a caller that knows what a
 * later layer is likely to want says so; whether it is read is the store's decision
 * (prefetch.h).  Asking first saves the work of predicting: the answer is how many
 * experts per row are worth naming, and the time between the two calls counts as the
 * price of the prediction.  Predictions change no result.
 * `reach`: how many visits before the layer's own this is said, from 1 on; what is said
 * again later, and better, counts then.
 * `weights` say how sure each of the `count` ids is; an id may stand there twice. */
uint32_t expert_store_wants_predictions(struct expert_store *store, uint32_t reach);
void expert_store_expect(struct expert_store *store, uint32_t layer, uint32_t reach,
                         const uint32_t *experts, const float *weights, size_t count);

/* The same for a step of so many rows that each expert is likely to be wanted. */
void expert_store_expect_rows(struct expert_store *store, uint32_t layer, uint32_t rows);

struct expert_counters expert_store_counters(const struct expert_store *store);
void expert_store_reset_counters(struct expert_store *store);
struct expert_store_sizes expert_store_sizes(const struct expert_store *store);

/* What the disk did since the counters were reset. */
void expert_store_disk(const struct expert_store *store, struct read_activity *out);

/* What an expert of the layer has on disk, and what a slot for it takes; 0, 0: the layer
 * has none. */
void expert_store_bytes_of(const struct expert_store *store, uint32_t layer, uint64_t *expert_bytes,
                           uint64_t *slot_bytes);

/* How often each expert of a layer was asked for: [experts], borrowed. */
const uint64_t *expert_store_uses(const struct expert_store *store, uint32_t layer);

/* Forgets what is in memory, after waiting for reads; no lease may be held. */
void expert_store_drop_all(struct expert_store *store);

/* Every promise in the picture above, checked; for tests. */
bool expert_store_check_invariants(const struct expert_store *store);

#endif
