/* slot_plan.h: how many slots of which size fit in a budget.
 *
 * Layers whose experts have the same size share a class of slots (a Q4_K_M file has
 * two).  With room for every expert the store is resident.  Else each class gets
 * slots in proportion to its bytes, and at least as many as one token uses in one
 * layer plus two to read into; if that does not fit, all layers share
 * one class of the largest size. */
#ifndef EXPERTS_SLOT_PLAN_H
#define EXPERTS_SLOT_PLAN_H

#include "base/common.h"
#include "moeflux.h"

struct slot_class {
    uint64_t bytes;    /* of one slot */
    uint64_t experts;  /* that live in this class */
    size_t first_slot; /* the class has slots [first_slot, first_slot + capacity) … */
    size_t capacity;
    size_t count;       /* … and uses the first so many of them */
    uint64_t memory_at; /* of its first slot, from the start of the arena */
};

struct slot_plan {
    struct slot_class *classes; /* [at most one per layer], the caller's */
    size_t class_count;
    uint32_t *class_of;    /* [layers], the caller's; NO_CLASS: a layer without experts */
    size_t capacity;       /* slots that there is memory for */
    uint64_t memory_bytes; /* of that */
    size_t slot_count;     /* slots in use */
    uint64_t used_bytes;
    bool resident; /* a slot for every expert */
};

#define NO_CLASS UINT32_MAX

struct slot_needs {
    const uint64_t *bytes; /* [layers] of one expert's slot; 0: the layer has none */
    uint32_t layers;
    uint32_t experts;   /* per layer */
    uint32_t per_token; /* experts of a layer that one token needs */
    uint64_t budget_bytes;
};

/* A budget that is too small is refused with what would be enough. */
mf_status slot_plan_make(struct slot_plan *plan, const struct slot_needs *needs, mf_error *why);

/* Sets the classes' counts, and slot_count and used_bytes with them, for another budget;
 * classes and capacities stay.  A plan that was refused is as it was. */
mf_status slot_plan_limit(struct slot_plan *plan, uint32_t per_token, uint64_t budget_bytes,
                          mf_error *why);

#endif
