/* store.h: the only access to the bytes of experts.
 *
 * The store knows where every expert lies on disk and keeps some of them in slots in memory.  A
 * step visits the experts that a layer's routes name: a visit hands out leases for those that are
 * ready, cached ones first, then the others as their reads finish.  A leased slot does not change.
 *
 *     expert_visit_begin(&visit, store, &request);
 *     while ((n = expert_visit_next(&visit, leases, capacity, &status, why)) > 0)
 *         … compute with leases[i].view, then expert_lease_end(&leases[i]) …
 *
 * State of a slot:
 *
 *            read starts            last piece arrived        lease / end
 *     EMPTY ────────────▶ READING ─────────────────────▶ READY ◀────────▶ READY, leases > 0
 *       ▲ ▲                  │ a piece failed              │
 *       │ │ reported by a    ▼ twice                       │ evicted: no lease, and no
 *       │ └─────────────── FAILED                          │ visit waits for it
 *       │   visit, or not requested                        │
 *       └──────────────────────────────────────────────────┘
 *
 * The mode (resident, mapped, streamed) is chosen from the sizes when the store is opened
 * (placement.h).  In every mode an expert is read at its first use; the read of a mapped expert faults
 * its pages in, so that all modes wait, read ahead, count and fail in the same way.
 *
 * A visit works with as few slots as the plan gives (slot_plan.h), however many experts it
 * requests: leases that end make room for the missing ones.
 *
 * Threads: one visit at a time; the engine serialises its sequences.  No lock is held during a
 * read.  expert_store_report is for any thread. */
#ifndef EXPERTS_STORE_H
#define EXPERTS_STORE_H

#include "backend/backend.h"
#include "experts/placement.h"
#include "io/async_read.h"
#include "model/weights.h"

struct expert_store;

struct expert_lease {
    struct expert_view view;
    uint32_t expert; /* its id in the layer */
    struct expert_store *store;
    size_t slot;
};

/* The experts of a layer that a step uses. */
struct expert_request {
    uint32_t layer;
    const uint32_t *experts; /* ids, each once; borrowed until begin returns */
    size_t count;
    uint32_t rows;        /* of the step */
    const uint32_t *uses; /* [experts of the layer] the number of rows that use each */
};

struct expert_visit {
    struct expert_store *store;
    uint32_t layer;
    uint64_t number;
};

/* Every requested expert counts as one of hits, ahead_late and misses. */
struct expert_counters {
    uint64_t hits;       /* in memory when requested … */
    uint64_t ahead_hits; /* … of these: first use of an expert that was read ahead */
    uint64_t ahead_late; /* its read-ahead was in flight */
    uint64_t misses;     /* read on demand */
    uint64_t ahead_reads;
    uint64_t ahead_wasted; /* read ahead and evicted unused */
    uint64_t predictions;  /* of experts that were not in memory … */
    uint64_t predictions_right;
    uint64_t evictions;
    uint64_t bytes_read;
    uint64_t bytes_ahead, bytes_wasted; /* of these: read ahead; read ahead and unused */
    uint64_t waits;                     /* times that a visit had no expert ready */
    double wait_seconds;
    double predict_seconds;
};

struct expert_store_sizes {
    const char *mode;      /* "resident", "mapped", "streamed" */
    const char *reader;    /* "io_uring", "threads" */
    bool direct;           /* reads bypass the page cache */
    uint64_t slot_bytes;   /* of all slots */
    uint64_t slots, total; /* slots in memory; experts in the model */
    uint64_t policy_bytes; /* tables of the cache policy; 0: nothing can be evicted */
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
    bool hard_limit;       /* the budget includes the page cache that reads fill */
    bool unchecked;        /* ignore the checksums of the packed layout */
    enum read_engine_kind engine;
    enum expert_ahead { AHEAD_MEASURED, AHEAD_NEVER, AHEAD_ALWAYS } ahead;
    const struct clock *clock;    /* NULL: the system clock */
    read_engine_factory factory;  /* NULL: as `engine` says; for tests */
    enum expert_mode_choice mode; /* opening fails if the budget is too small for it */
    struct tracer *tracer;        /* receives reads; may be NULL */
};

/* A budget below what one token needs in one layer, and two experts more, is refused. */
mf_status expert_store_open(struct expert_store **out, const struct expert_store_options *options,
                            mf_error *why);

void expert_store_free(struct expert_store *store);

/* Uses fewer slots, or more again, up to the number at open; the memory of evicted experts returns
 * to the system.  A mapped store has none to return.  A resident store with a hard limit that is
 * now too small becomes a streamed one and reads its experts again.  Too small a budget is refused
 * and changes nothing.  Waits for reads; no lease may be held. */
mf_status expert_store_set_budget(struct expert_store *store, uint64_t budget_bytes, mf_error *why);

/* Lets a device copy experts at the speed of its bus, until the budget changes or the store is freed.
 * Slots that are mapped, or that a budget leaves without memory, stay as they are. */
void expert_store_pin(struct expert_store *store, struct backend *device);

/* Submits reads for the missing experts, as far as there are slots, and ends the previous visit. */
void expert_visit_begin(struct expert_visit *visit, struct expert_store *store,
                        const struct expert_request *request);

/* Leases up to `capacity` experts that are ready, waiting for one if none is.  0 when the visit is
 * complete, or when *status says that a read failed; the store stays usable and keeps the experts
 * that were read. */
size_t expert_visit_next(struct expert_visit *visit, struct expert_lease *leases, size_t capacity,
                         mf_status *status, mf_error *why);
void expert_lease_end(struct expert_lease *lease);

/* Steps of up to this many rows predict each row's experts.  For steps of more rows
 * expert_store_predict_rows reads ahead what the layer used last, if most of it will be used. */
enum { EXPERT_DECODE_ROWS_MAX = 12 };

/* Read-ahead.  While a layer's experts arrive and compute, the caller predicts the experts of a
 * later layer; whether they are read is the store's decision (prefetch.h).  Predictions change no
 * result.  `reach`: visits from now to the layer's own, from 1; a later prediction for the same
 * layer replaces an earlier one.
 *
 * Returns how many experts per row are worth predicting; 0: none.  The time from this call to
 * expert_store_predict counts as the cost of the prediction. */
uint32_t expert_store_predictable_ranks(struct expert_store *store, uint32_t reach);

/* `weights`: how likely each of the `count` ids is; an id may occur twice. */
void expert_store_predict(struct expert_store *store, uint32_t layer, uint32_t reach,
                          const uint32_t *experts, const float *weights, size_t count);

/* The next layer of a step with more than EXPERT_DECODE_ROWS_MAX rows. */
void expert_store_predict_rows(struct expert_store *store, uint32_t layer, uint32_t rows);

struct expert_counters expert_store_counters(const struct expert_store *store);
void expert_store_reset_counters(struct expert_store *store);
struct expert_store_sizes expert_store_sizes(const struct expert_store *store);

/* Disk activity since the counters were reset. */
void expert_store_disk(const struct expert_store *store, struct read_activity *out);

/* All three, as they were when they were published last: by a visit, at most PUBLISH_SECONDS
 * before, or by this store's owner.  Reading them waits for no step and may come from any thread. */
struct expert_report {
    struct expert_counters counters;
    struct expert_store_sizes sizes;
    struct read_activity disk;
};
void expert_store_publish(struct expert_store *store);
struct expert_report expert_store_report(struct expert_store *store);

/* Watching (mf_model_watch_experts).  What visits find is handed over in batches, by the thread that
 * computes: when a step ends, when WATCH_SECONDS have passed at the begin of a visit, and when the
 * buffer is full.  Without a function nothing is recorded.
 *
 * `function` NULL: no more.  From any thread; waits for no more than a call that is under way.  The
 * first call is one without events.  Allocates the buffer if there is none yet. */
mf_status expert_store_watch(struct expert_store *store, mf_experts_function function, void *user,
                             mf_error *why);

/* For the thread that computes, between visits: takes notice of expert_store_watch; true: a function
 * wants batches. */
bool expert_store_is_watched(struct expert_store *store);

/* Hands over what is recorded, at the end of a step: its rows, seconds and stages. */
void expert_store_tell_step(struct expert_store *store, const mf_expert_batch *step);

/* Sets the bits of the experts that are in memory, [layers that have experts][experts] in row-major
 * order, bit 0 of byte 0 first; `out`: expert_store_map_bytes.  From any thread. */
size_t expert_store_map_bytes(const struct expert_store *store);
void expert_store_map(const struct expert_store *store, uint8_t *out);

/* The layers that have experts, in order; borrowed. */
const uint32_t *expert_store_layers(const struct expert_store *store, uint32_t *count);

/* Bytes of an expert of the layer on disk, and of a slot for it; 0, 0: the layer has none. */
void expert_store_bytes_of(const struct expert_store *store, uint32_t layer, uint64_t *expert_bytes,
                           uint64_t *slot_bytes);

/* The expert's bytes from its files, past the slots and, as far as the system allows, past the page
 * cache: values, scales and biases of gate, up and down, one after the other.  `expert` is one of
 * the layer's. */
mf_status expert_store_read_files(const struct expert_store *store, uint8_t *out, uint32_t layer,
                                  uint32_t expert, mf_error *why);

/* How often each expert of a layer was requested: [experts], borrowed. */
const uint64_t *expert_store_uses(const struct expert_store *store, uint32_t layer);

/* Empties all slots after waiting for reads; no lease may be held. */
void expert_store_drop_all(struct expert_store *store);

/* Checks the invariants of the state diagram (tests only). */
bool expert_store_check_invariants(const struct expert_store *store);

#endif
