/* store.h: the only way to an expert's bytes.
 *
 * The store knows where every expert lies on disk and keeps slots in memory.  A
 * step walks the experts that a layer's routes name: a visit hands out leases for
 * those that are ready, and while a lease is held its slot stays as it is.
 *
 *     expert_visit_begin(&visit, store, layer, ids, count);
 *     while ((n = expert_visit_next(&visit, leases, capacity, &status, why)) > 0)
 *         … compute with leases[i].view, then expert_lease_end(&leases[i]) …
 *
 * State of a slot:
 *
 *            read begins             read done            lease / end
 *     EMPTY ─────────────▶ READING ─────────────▶ READY ◀────────────▶ READY, leases > 0
 *       ▲                     │ read failed
 *       └─────────────────────┘
 *
 * Mode "resident": there is a slot for every expert, filled when it is first
 * needed and never emptied.  No expert byte is read before that.
 *
 * Threads: one visit at a time; the engine serialises its sessions. */
#ifndef EXPERTS_STORE_H
#define EXPERTS_STORE_H

#include "backend/backend.h"
#include "model/weights.h"

struct expert_store;

struct expert_lease {
    struct expert_view view;
    uint32_t expert; /* its id in the layer */
    struct expert_store *store;
    size_t slot;
};

struct expert_visit {
    struct expert_store *store;
    uint32_t layer;
    const uint32_t *experts; /* ids, each once; borrowed until the visit ends */
    size_t count, next;
};

struct expert_counters {
    uint64_t hits;   /* was in memory when it was asked for */
    uint64_t misses; /* had to be read */
    uint64_t bytes_read;
    double wait_seconds;
};

struct expert_store_sizes {
    uint64_t slot_bytes;   /* of all slots */
    uint64_t slots, total; /* slots in memory; experts in the model */
    uint64_t present;      /* experts in memory now */
};

/* The directory and the layers' extents are borrowed and must outlive the store.
 * An expert set that does not fit in `budget_bytes` is refused. */
mf_status expert_store_new(struct expert_store **out, const mf_allocator *allocator,
                           const struct tensor_directory *directory,
                           const struct layer_weights *layers, const struct model_config *config,
                           uint64_t budget_bytes, mf_error *why);
void expert_store_free(struct expert_store *store);

void expert_visit_begin(struct expert_visit *visit, struct expert_store *store, uint32_t layer,
                        const uint32_t *experts, size_t count);

/* Leases for up to `capacity` experts that are ready now, waiting for one if none
 * is.  0 when the visit is over, or when *status says that a read failed; the
 * store is usable afterwards. */
size_t expert_visit_next(struct expert_visit *visit, struct expert_lease *leases, size_t capacity,
                         mf_status *status, mf_error *why);
void expert_lease_end(struct expert_lease *lease);

struct expert_counters expert_store_counters(const struct expert_store *store);
void expert_store_reset_counters(struct expert_store *store);
struct expert_store_sizes expert_store_sizes(const struct expert_store *store);

/* How often each expert of a layer was asked for: [experts], borrowed. */
const uint64_t *expert_store_uses(const struct expert_store *store, uint32_t layer);

/* Forgets what is in memory; no lease may be held. */
void expert_store_drop_all(struct expert_store *store);

/* Every promise in the picture above, checked; for tests. */
bool expert_store_check_invariants(const struct expert_store *store);

#endif
