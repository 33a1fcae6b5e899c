/* simulation.h: replays a route trace with an expert cache of any size and policy.
 *
 *     trace ─▶ visits ─▶ in a slot?  yes: a hit
 *                                    no:  a read, and if no slot is free, a victim ◀─ policy
 *
 * The slots are those of a store with the same budget (slot_plan.h), and a visit never evicts its
 * own experts.  The policy "moeflux" is the store's (eviction.h): its hits and misses are those that
 * a store without read-ahead counts.
 *
 *     belady    evicts what is used last in the future: the upper bound of any policy
 *     moeflux   the store's
 *     lfu       least frequently used; the weight of a use halves every 128 tokens
 *     lru       least recently used
 *     s3-fifo   Yang et al. 2023: a small queue for new experts, a large one for those used again,
 *               and a list of those that left the small one
 *
 * Threads: any number of simulations of one trace. */
#ifndef EXPERTS_SIMULATION_H
#define EXPERTS_SIMULATION_H

#include "experts/route_trace.h"

#define CACHE_POLICY_LIST(X)                                                                       \
    X(CACHE_BELADY, "belady")                                                                      \
    X(CACHE_MOEFLUX, "moeflux")                                                                    \
    X(CACHE_LFU, "lfu")                                                                            \
    X(CACHE_LRU, "lru")                                                                            \
    X(CACHE_S3_FIFO, "s3-fifo")

enum cache_policy {
#define CACHE_POLICY_ENUM(policy, name) policy,
    CACHE_POLICY_LIST(CACHE_POLICY_ENUM)
#undef CACHE_POLICY_ENUM
        CACHE_POLICIES
};

const char *cache_policy_name(enum cache_policy policy);

struct simulation_setting {
    enum cache_policy policy;
    uint64_t budget_bytes; /* for slots */
    uint32_t rows;         /* tokens per visit; 0: as recorded */
};

struct simulation_result {
    uint64_t slots, experts; /* in memory; of the model */
    bool resident;           /* a slot for every expert */
    uint64_t tokens;
    uint64_t uses, hits; /* experts that visits asked for; that were in memory then */
    uint64_t bytes_read;
};

/* MF_ERR_MEMORY for a budget that is too small for one token. */
mf_status simulation_run(struct simulation_result *out, const struct route_trace *trace,
                         const struct simulation_setting *setting, const mf_allocator *allocator,
                         mf_error *why);

/* Bytes of slots for all experts; UINT64_MAX on overflow. */
uint64_t simulation_full_bytes(const struct route_trace *trace);

#endif
