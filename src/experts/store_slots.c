#include "experts/store_internal.h"

void slots_reset(struct expert_store *store)
{
    size_t places = (size_t)store->layers * store->experts;
    for (size_t i = 0; i < places; i++) store->slot_of[i] = NO_SLOT;
    for (size_t c = 0; c < store->placement.plan.class_count; c++) {
        const struct slot_class *class = &store->placement.plan.classes[c];
        store->empty_count[c] = class->count;
        for (size_t i = 0; i < class->count; i++) /* the first slot is on top */
            store->empty[class->first_slot + i] =
                (uint32_t)(class->first_slot + class->count - 1 - i);
    }
    for (size_t i = 0; i < store->placement.plan.capacity; i++)
        store->slots[i] = (struct expert_slot){ .place = NO_PLACE };
    for (size_t i = 0; i <= places / 64; i++) atomic_store(&store->map[i], 0);
    store->present = store->failed = 0;
}

uint8_t *slots_memory(const struct expert_store *store, uint32_t slot, uint32_t place)
{
    const struct slot_class *class = &store->placement.plan.classes[class_of(store, place)];
    return store->memory + class->memory_at + (slot - class->first_slot) * class->bytes;
}

struct expert_view slots_view(const struct expert_store *store, uint32_t index)
{
    uint32_t place = store->slots[index].place;
    const struct layer_weights *layer = &store->options.layers[layer_of(store, place)];
    if (store->maps) return expert_layout_view_mapped(layer, place % store->experts, store->maps);
    struct expert_layout layout;
    reading_layout(&layout, store, place);
    return expert_layout_view(&layout, layer, slots_memory(store, index, place));
}

void slots_empty(struct expert_store *store, uint32_t index)
{
    struct expert_slot *slot = &store->slots[index];
    uint32_t c = class_of(store, slot->place);
    if (slot->state == SLOT_READY) set_present(store, slot->place, false);
    if (slot->state == SLOT_FAILED) store->failed--;
    if (slot->ahead && store->reads[index].bytes > 0) {
        watch_record(store, slot->place, MF_EXPERT_WASTED);
        store->counters.ahead_wasted++;
        store->counters.bytes_wasted += store->reads[index].bytes;
    }
    store->slot_of[slot->place] = NO_SLOT;
    store->empty[store->placement.plan.classes[c].first_slot + store->empty_count[c]++] = index;
    *slot = (struct expert_slot){ .place = NO_PLACE };
}

/* ---------------------------------------------------------------- eviction */

static bool is_evictable(const struct expert_store *store, const struct expert_slot *slot)
{
    return slot->state == SLOT_READY && slot->leases == 0 && slot->wanted != store->visit &&
           slot->expected <= store->visit;
}

size_t slots_expected(const struct expert_store *store, const struct slot_class *class)
{
    size_t count = 0;
    for (size_t i = 0; i < class->count; i++)
        count += store->slots[class->first_slot + i].expected > store->visit;
    return count;
}

/* Expected visits until the slot's expert is used.  Experts read ahead, and those of the next layer
 * of a prompt, are used when their layer is visited. */
static float distance_of(const struct expert_store *store, const struct expert_slot *slot)
{
    uint32_t layer = layer_of(store, slot->place);
    if (layer == store->ahead_layer) return 1.0f;
    uint32_t until = (layer + store->layers - store->eviction.present) % store->layers;
    if (slot->ahead && until > 0 && until <= PREFETCH_REACH) return (float)until;
    return eviction_distance(&store->eviction, layer, slot->place % store->experts);
}

/* The slots of a class with the largest distances, in descending order. */
static void find_victims(struct expert_store *store, const struct slot_class *class)
{
    struct victim *victims = store->victims;
    size_t count = 0;
    for (size_t i = 0; i < class->count; i++) {
        uint32_t index = (uint32_t)(class->first_slot + i);
        const struct expert_slot *slot = &store->slots[index];
        if (!is_evictable(store, slot)) continue;
        float distance = distance_of(store, slot);
        if (count == VICTIMS_MAX && distance <= victims[count - 1].distance) continue;
        size_t at = count < VICTIMS_MAX ? count++ : count - 1;
        for (; at > 0 && victims[at - 1].distance < distance; at--) victims[at] = victims[at - 1];
        victims[at] = (struct victim){ distance, index };
    }
    store->victim_count = count;
    store->victim_next = 0;
}

void slots_begin_taking(struct expert_store *store)
{
    store->victim_count = store->victim_next = 0;
}

uint32_t slots_take(struct expert_store *store, uint32_t place, float distance)
{
    uint32_t c = class_of(store, place);
    const struct slot_class *class = &store->placement.plan.classes[c];
    if (store->empty_count[c] == 0) {
        if (store->victim_next == store->victim_count) find_victims(store, class);
        if (store->victim_count == 0) return NO_SLOT;
        const struct victim *victim = &store->victims[store->victim_next];
        if (victim->distance <= distance) return NO_SLOT;
        store->victim_next++;
        watch_record(store, store->slots[victim->slot].place, MF_EXPERT_EVICTED);
        store->counters.evictions++;
        slots_empty(store, victim->slot);
    }
    return store->empty[class->first_slot + --store->empty_count[c]];
}
