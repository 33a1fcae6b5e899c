#include "experts/slot_plan.h"

#include "base/status.h"

/* Slots beyond those of one token in one layer: targets of reads while the others compute. */
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

static size_t least_slots(const struct slot_class *class, uint32_t per_token)
{
    return min_size(class->experts, (size_t)per_token + SPARE_SLOTS);
}

/* Bytes of the minimum of slots of all classes; false on overflow. */
static bool least_bytes(uint64_t *out, const struct slot_plan *plan, uint32_t per_token)
{
    *out = 0;
    for (size_t c = 0; c < plan->class_count; c++) {
        const struct slot_class *class = &plan->classes[c];
        uint64_t bytes;
        if (!checked_multiply(&bytes, class->bytes, least_slots(class, per_token))) return false;
        if (!checked_add(out, *out, bytes)) return false;
    }
    return true;
}

static mf_status refuse(const struct slot_plan *plan, uint32_t per_token, uint64_t budget_bytes,
                        mf_error *why)
{
    double mebibyte = 1 << 20, least = 0;
    size_t slots = 0;
    for (size_t c = 0; c < plan->class_count; c++) {
        const struct slot_class *class = &plan->classes[c];
        slots += least_slots(class, per_token);
        least += (double)class->bytes * (double)least_slots(class, per_token);
    }
    return fail(why, MF_ERR_MEMORY,
                "%.2f MiB are left for experts; %zu of them, %.2f MiB, are the least",
                (double)budget_bytes / mebibyte, slots, least / mebibyte);
}

/* Gives every class its minimum and divides the rest in proportion to the bytes still missing. */
mf_status slot_plan_limit(struct slot_plan *plan, uint32_t per_token, uint64_t budget_bytes,
                          mf_error *why)
{
    uint64_t least;
    if (!least_bytes(&least, plan, per_token) || least > budget_bytes)
        return refuse(plan, per_token, budget_bytes, why);
    double missing = 0;
    for (size_t c = 0; c < plan->class_count; c++) {
        const struct slot_class *class = &plan->classes[c];
        missing += (double)(class->experts - least_slots(class, per_token)) * (double)class->bytes;
    }
    double share = missing > 0 ? (double)(budget_bytes - least) / missing : 0;
    plan->slot_count = 0;
    plan->used_bytes = 0;
    plan->resident = true;
    for (size_t c = 0; c < plan->class_count; c++) {
        struct slot_class *class = &plan->classes[c];
        size_t basis = least_slots(class, per_token), rest = class->experts - basis;
        class->count = basis + (share < 1 ? (size_t)((double)rest * share) : rest);
        if (class->capacity > 0) class->count = min_size(class->count, class->capacity);
        plan->slot_count += class->count;
        plan->used_bytes += class->count * class->bytes;
        plan->resident = plan->resident && class->count == class->experts;
    }
    return MF_OK;
}

/* False: a number is larger than any memory. */
static bool place_slots(struct slot_plan *plan)
{
    uint64_t at = 0;
    plan->capacity = 0;
    for (size_t c = 0; c < plan->class_count; c++) {
        struct slot_class *class = &plan->classes[c];
        uint64_t bytes;
        class->capacity = class->count;
        class->first_slot = plan->capacity;
        class->memory_at = at;
        if (!checked_multiply(&bytes, class->bytes, class->capacity)) return false;
        if (!checked_add(&at, at, bytes)) return false;
        plan->capacity += class->capacity;
    }
    plan->memory_bytes = at;
    return plan->capacity < UINT32_MAX;
}

mf_status slot_plan_make(struct slot_plan *plan, const struct slot_needs *needs, mf_error *why)
{
    sort_into_classes(plan, needs);
    mf_status status = slot_plan_limit(plan, needs->per_token, needs->budget_bytes, NULL);
    if (status != MF_OK && plan->class_count > 1) {
        merge_classes(plan, needs);
        status = slot_plan_limit(plan, needs->per_token, needs->budget_bytes, why);
    } else if (status != MF_OK) {
        status = refuse(plan, needs->per_token, needs->budget_bytes, why);
    }
    if (status != MF_OK) return status;
    return place_slots(plan) ? MF_OK
                             : fail(why, MF_ERR_MEMORY, "the slots take more than 2^64 bytes");
}
