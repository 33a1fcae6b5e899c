#include "experts/slot_plan.h"

#include "base/status.h"

/* Besides what one token needs in one layer: to read into while the others compute. */
enum { SPARE_SLOTS = 2 };

static void sort_into_classes(struct slot_plan *plan, const struct slot_needs *needs)
{
    plan->class_count = 0;
    for (uint32_t layer = 0; layer < needs->layers; layer++) {
        size_t c = 0;
        plan->class_of[layer] = NO_CLASS;
        if (needs->bytes[layer] == 0) continue;
        while (c < plan->class_count && plan->classes[c].bytes != needs->bytes[layer]) c++;
        if (c == plan->class_count)
            plan->classes[plan->class_count++] =
                (struct slot_class){ .bytes = needs->bytes[layer] };
        plan->classes[c].experts += needs->experts;
        plan->class_of[layer] = (uint32_t)c;
    }
}

/* Every layer takes slots of the largest size. */
static void merge_classes(struct slot_plan *plan, const struct slot_needs *needs)
{
    struct slot_class all = { 0 };
    for (size_t c = 0; c < plan->class_count; c++) {
        all.experts += plan->classes[c].experts;
        if (plan->classes[c].bytes > all.bytes) all.bytes = plan->classes[c].bytes;
    }
    plan->classes[0] = all;
    plan->class_count = 1;
    for (uint32_t layer = 0; layer < needs->layers; layer++)
        if (plan->class_of[layer] != NO_CLASS) plan->class_of[layer] = 0;
}

/* The bytes of all slots with `counts` as they are; false when 64 bits do not hold them. */
static bool place_slots(struct slot_plan *plan)
{
    uint64_t at = 0;
    plan->slot_count = 0;
    for (size_t c = 0; c < plan->class_count; c++) {
        struct slot_class *class = &plan->classes[c];
        uint64_t bytes;
        class->first_slot = plan->slot_count;
        class->memory_at = at;
        if (!checked_multiply(&bytes, class->bytes, class->count)) return false;
        if (!checked_add(&at, at, bytes)) return false;
        plan->slot_count += class->count;
    }
    plan->memory_bytes = at;
    return plan->slot_count < UINT32_MAX;
}

static size_t least_slots(const struct slot_class *class, const struct slot_needs *needs)
{
    return min_size(class->experts, (size_t)needs->per_token + SPARE_SLOTS);
}

/* What the least slots leave of the budget is shared out by the bytes still missing. */
static void share_out(struct slot_plan *plan, const struct slot_needs *needs)
{
    double missing = 0, left = (double)(needs->budget_bytes - plan->memory_bytes);
    for (size_t c = 0; c < plan->class_count; c++) {
        const struct slot_class *class = &plan->classes[c];
        missing += (double)(class->experts - class->count) * (double)class->bytes;
    }
    if (missing <= 0) return;
    for (size_t c = 0; c < plan->class_count; c++) {
        struct slot_class *class = &plan->classes[c];
        double share = left / missing < 1 ? left / missing : 1;
        class->count += (size_t)((double)(class->experts - class->count) * share);
    }
}

mf_status slot_plan_make(struct slot_plan *plan, const struct slot_needs *needs, mf_error *why)
{
    sort_into_classes(plan, needs);
    for (size_t c = 0; c < plan->class_count; c++)
        plan->classes[c].count = plan->classes[c].experts;
    bool known = place_slots(plan);
    plan->resident = known && plan->memory_bytes <= needs->budget_bytes;
    if (plan->resident) return MF_OK;

    for (size_t c = 0; c < plan->class_count; c++)
        plan->classes[c].count = least_slots(&plan->classes[c], needs);
    if (!place_slots(plan) || plan->memory_bytes > needs->budget_bytes) {
        merge_classes(plan, needs);
        plan->classes[0].count = least_slots(&plan->classes[0], needs);
        if (!place_slots(plan) || plan->memory_bytes > needs->budget_bytes)
            return fail(why, MF_ERR_MEMORY,
                        "%.2f MiB are left for experts; %zu of them, %.2f MiB, are the least",
                        (double)needs->budget_bytes / (1 << 20), plan->classes[0].count,
                        (double)plan->classes[0].bytes * (double)plan->classes[0].count /
                            (1 << 20));
    }
    share_out(plan, needs);
    return place_slots(plan) ? MF_OK
                             : fail(why, MF_ERR_MEMORY, "the slots take more than 2^64 bytes");
}
