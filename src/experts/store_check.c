#include "experts/store_internal.h"

static bool slot_is_sound(const struct expert_store *store, uint32_t index)
{
    const struct expert_slot *slot = &store->slots[index];
    if (slot->state == SLOT_EMPTY)
        return slot->place == NO_PLACE && slot->leases == 0 && slot->pieces_left == 0;
    if (slot->place >= store->layers * store->experts) return false;
    const struct slot_class *class = &store->placement.plan.classes[class_of(store, slot->place)];
    if (index < class->first_slot || index >= class->first_slot + class->count) return false;
    if (store->slot_of[slot->place] != index) return false;
    if (slot->leases > 0 && slot->state != SLOT_READY) return false;
    if (slot->state == SLOT_FAILED && slot->wanted != store->visit) return false;
    return (slot->state == SLOT_READING) == (slot->pieces_left > 0);
}

/* Each class's stack of empty slots holds its empty slots and nothing else. */
static bool empties_are_sound(const struct expert_store *store)
{
    for (size_t c = 0; c < store->placement.plan.class_count; c++) {
        const struct slot_class *class = &store->placement.plan.classes[c];
        size_t empty = 0;
        for (size_t i = 0; i < class->count; i++)
            empty += store->slots[class->first_slot + i].state == SLOT_EMPTY;
        if (empty != store->empty_count[c]) return false;
        for (size_t i = 0; i < empty; i++) {
            uint32_t index = store->empty[class->first_slot + i];
            if (store->slots[index].state != SLOT_EMPTY) return false;
            if (index >= class->first_slot + class->count) return false;
        }
    }
    return true;
}

/* The map has the experts that are READY. */
static bool map_is_sound(const struct expert_store *store)
{
    for (uint32_t p = 0; p < store->layers * store->experts; p++) {
        uint32_t index = store->slot_of[p];
        bool ready = index != NO_SLOT && store->slots[index].state == SLOT_READY;
        if ((atomic_load(&store->map[p / 64]) >> p % 64 & 1) != ready) return false;
    }
    return true;
}

bool expert_store_check_invariants(const struct expert_store *store)
{
    size_t ready = 0, failed = 0, under_way = 0, held = 0;
    for (uint32_t i = 0; i < store->placement.plan.capacity; i++) {
        if (!slot_is_sound(store, i)) return false;
        ready += store->slots[i].state == SLOT_READY;
        failed += store->slots[i].state == SLOT_FAILED;
        under_way += store->slots[i].pieces_left;
        held += store->slots[i].state != SLOT_EMPTY;
    }
    for (size_t p = 0; p < (size_t)store->layers * store->experts; p++)
        held -= store->slot_of[p] != NO_SLOT; /* no expert is in two slots, none is lost */
    return held == 0 && ready == store->present && failed == store->failed &&
           under_way == async_reader_outstanding(store->reader) &&
           store->free_count + under_way == REQUESTS && empties_are_sound(store) &&
           map_is_sound(store);
}
