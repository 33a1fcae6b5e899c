/* slot_plan.h: how many slots of which size fit in a budget.
 *
 * Layers whose experts have the same size share a class of slots (a Q4_K_M file has two).  With
 * room for every expert the plan is resident.  Otherwise each class gets slots in proportion to
 * its bytes, at least as many as one token uses in one layer plus two to read into; if that does
 * not fit, all layers share one class of the largest size. */
#ifndef EXPERTS_SLOT_PLAN_H
#define EXPERTS_SLOT_PLAN_H

#include "base/common.h"
#include "moeflux.h"

struct slot_class {
    uint64_t bytes;    /* of one slot */
    uint64_t experts;  /* of all layers of the class */
    size_t first_slot; /* the class has slots [first_slot, first_slot + capacity) … */
    size_t capacity;
    size_t count;       /* … and uses the first `count` of them */
    uint64_t memory_at; /* offset of its first slot in the memory of all slots */
};

struct slot_plan {
    struct slot_class *classes; /* [at most one per layer], the caller's */
    size_t class_count;
    uint32_t *class_of;    /* [layers], the caller's; NO_CLASS: a layer without experts */
    size_t capacity;       /* slots that have memory … */
    uint64_t memory_bytes; /* … and its size */
    size_t slot_count;     /* of these, slots that the budget allows now … */
    uint64_t used_bytes;   /* … and their size */
    bool resident;         /* a slot for every expert */
};

#define NO_CLASS UINT32_MAX

struct slot_needs {
    const uint64_t *bytes; /* [layers] of one expert's slot; 0: the layer has none */
    uint32_t layers;
    uint32_t experts;   /* per layer */
    uint32_t per_token; /* experts of a layer that one token needs */
    uint64_t budget_bytes;
};

/* MF_ERR_MEMORY for a budget that is too small; the text names the smallest sufficient one. */
mf_status slot_plan_make(struct slot_plan *plan, const struct slot_needs *needs, mf_error *why);

/* Sets the counts of the classes, slot_count and used_bytes for another budget, up to the
 * capacities, which stay.  After a failure the plan is unchanged. */
mf_status slot_plan_limit(struct slot_plan *plan, uint32_t per_token, uint64_t budget_bytes,
                          mf_error *why);

#endif
