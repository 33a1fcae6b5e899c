#include "experts/store_internal.h"

#include "base/clock.h"
#include "base/status.h"

#include <assert.h>

/* ------------------------------------------------------------------- begin */

void visit_end(struct expert_store *store)
{
    store->pending_count = 0;
    store->missing.count = store->missing.next = 0;
    store->visit++;
    for (uint32_t i = 0; store->failed > 0 && i < store->placement.plan.capacity; i++)
        if (store->slots[i].state == SLOT_FAILED) slots_empty(store, i);
}

/* Counts a requested expert and protects it from eviction, or lists it as missing. */
static void want(struct expert_store *store, uint32_t place)
{
    struct expert_counters *counters = &store->counters;
    uint32_t index = store->slot_of[place];
    store->uses[place]++;
    if (index == NO_SLOT) {
        watch_record(store, place, MF_EXPERT_DEMAND);
        counters->misses++;
        reading_add(store, &store->missing, place);
        return;
    }
    struct expert_slot *slot = &store->slots[index];
    if (slot->state == SLOT_READY) {
        watch_record(store, place, slot->ahead ? MF_EXPERT_AHEAD : MF_EXPERT_HIT);
        counters->hits++;
        if (slot->ahead) counters->ahead_hits++;
    } else if (slot->ahead) {
        watch_record(store, place, MF_EXPERT_LATE);
        counters->ahead_late++;
        async_reader_promote(store->reader, index);
    } else {
        watch_record(store, place, MF_EXPERT_DEMAND);
        counters->misses++; /* requested by an earlier visit that ended before the read */
    }
    slot->inherited = slot->state == SLOT_READING;
    slot->ahead = false;
    slot->wanted = store->visit;
}

void expert_visit_begin(struct expert_visit *visit, struct expert_store *store,
                        const struct expert_request *request)
{
    double now = clock_now(store->options.clock);
    watch_visit(store, now);
    reading_collect(store, false);
    visit_end(store);
    ahead_judge(store, request, now);
    if (!store->placement.plan.resident)
        eviction_visit(&store->eviction, request->layer, request->uses, request->rows);
    if (now - store->published_at >= PUBLISH_SECONDS) {
        expert_store_publish(store);
        store->published_at = now;
    }
    store->visit_layer = request->layer;
    store->visit_rows = request->rows;
    store->visit_at = now;
    store->waited_then = store->counters.wait_seconds;
    store->predicted_then = store->counters.predict_seconds;
    store->pending_count = request->count;
    for (size_t i = 0; i < request->count; i++) {
        store->pending[i] = request->experts[i];
        want(store, place_of(store, request->layer, request->experts[i]));
    }
    async_reader_cancel_ahead(store->reader); /* requested ones have been promoted */
    reading_begin_list(store, &store->missing, -1.0f, false);
    *visit =
        (struct expert_visit){ .store = store, .layer = request->layer, .number = store->visit };
}

/* -------------------------------------------------------------------- next */

/* While experts wait for slots, half of the slots is kept free for reads. */
static size_t lease_limit(const struct expert_store *store, uint32_t layer, size_t capacity)
{
    if (store->missing.next == store->missing.count) return capacity;
    size_t slots = store->placement.plan.classes[store->placement.plan.class_of[layer]].count;
    return min_size(capacity, max_size(slots / 2, 1));
}

static void lease_slot(struct expert_lease *out, struct expert_store *store, uint32_t index)
{
    struct expert_slot *slot = &store->slots[index];
    slot->leases++;
    slot->wanted = 0;
    *out = (struct expert_lease){ .view = slots_view(store, index),
                                  .expert = slot->place % store->experts,
                                  .store = store,
                                  .slot = index };
}

/* Leases the experts that are ready; a failure is reported once and ends the visit. */
static size_t hand_out(const struct expert_visit *visit, struct expert_lease *leases,
                       size_t capacity, mf_status *status, mf_error *why)
{
    struct expert_store *store = visit->store;
    size_t given = 0, kept = 0, limit = lease_limit(store, visit->layer, capacity);
    for (size_t i = 0; i < store->pending_count; i++) {
        uint32_t expert = store->pending[i];
        uint32_t index = store->slot_of[place_of(store, visit->layer, expert)];
        if (store->maps && index != NO_SLOT) reading_check_map(store, index);
        enum slot_state state = index == NO_SLOT ? SLOT_EMPTY : store->slots[index].state;
        if (state == SLOT_FAILED && *status == MF_OK) *status = reading_report(store, index, why);
        if (state == SLOT_READY && given < limit)
            lease_slot(&leases[given++], store, index);
        else
            store->pending[kept++] = expert;
    }
    store->pending_count = kept;
    if (*status == MF_OK) return given;
    while (given > 0) expert_lease_end(&leases[--given]);
    return 0;
}

/* Waits for a read.  False: none is outstanding, and there is no slot for one. */
static bool wait_for_reads(struct expert_store *store)
{
    double begin = clock_now(store->options.clock);
    bool came = reading_collect(store, true);
    store->counters.waits++;
    store->counters.wait_seconds += clock_now(store->options.clock) - begin;
    return came;
}

size_t expert_visit_next(struct expert_visit *visit, struct expert_lease *leases, size_t capacity,
                         mf_status *status, mf_error *why)
{
    struct expert_store *store = visit->store;
    *status = MF_OK;
    if (visit->number != store->visit) {
        *status = fail(why, MF_ERR_ARGUMENT, "the visit has ended: another one has begun");
        return 0;
    }
    while (store->pending_count > 0) {
        reading_collect(store, false);
        reading_begin_list(store, &store->missing, -1.0f, false);
        ahead_continue(store);
        size_t given = hand_out(visit, leases, capacity, status, why);
        if (given > 0) return given;
        if (*status == MF_OK && !wait_for_reads(store))
            *status = fail(why, MF_ERR_ARGUMENT,
                           "all %zu slots are leased; a lease must end before the visit goes on",
                           store->placement.plan.slot_count);
        if (*status != MF_OK) visit_end(store);
    }
    return 0;
}

void expert_lease_end(struct expert_lease *lease)
{
    struct expert_slot *slot = &lease->store->slots[lease->slot];
    assert(slot->leases > 0);
    slot->leases--;
}
