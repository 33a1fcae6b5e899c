/* simulation.h: how a cache of experts would have done on a recorded text.
 *
 *     trace ─▶ visits ─▶ in a slot?  yes: a hit
 *                                    no:  a read, and if no slot is free, a victim ◀─ policy
 *
 * Slots are those that the store would have in the same budget (slot_plan.h), a visit's
 * own experts are never its victims, and the policy called "moeflux" is the store's
 * (eviction.h): what it finds is what the store counts when it reads nothing ahead.
 *
 *     belady    knows the future: the upper bound
 *     moeflux   the store's
 *     lfu       how often, a use counting half after 128 tokens
 *     lru       how long ago
 *     s3-fifo   Yang et al. 2023: a small queue for newcomers, a large one for those
 *               that were used again, and a memory of those that left the small one
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
    uint32_t rows;         /* tokens of a visit; 0: as they were recorded */
};

struct simulation_result {
    uint64_t slots, experts; /* in memory; of the model */
    bool resident;           /* a slot for every expert */
    uint64_t tokens;
    uint64_t uses, hits; /* experts that visits asked for; that were in memory then */
    uint64_t bytes_read;
};

/* A budget that holds less than one token needs is refused. */
mf_status simulation_run(struct simulation_result *out, const struct route_trace *trace,
                         const struct simulation_setting *setting, const mf_allocator *allocator,
                         mf_error *why);

/* What slots for every expert would take; UINT64_MAX: more than 64 bits can say. */
uint64_t simulation_full_bytes(const struct route_trace *trace);

#endif
