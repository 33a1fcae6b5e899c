#include "experts/store_internal.h"

#include "base/clock.h"
#include "base/status.h"

/* -------------------------------------------------------------- handing over */

/* Under the lock, with a function. */
static void tell(struct expert_store *store, const mf_expert_batch *step)
{
    struct store_watch *watch = &store->watch;
    const struct expert_counters *c = &store->counters;
    mf_expert_batch batch = *step;
    batch.events = watch->events;
    batch.count = watch->count;
    batch.totals[MF_EXPERT_HIT] = c->hits - c->ahead_hits;
    batch.totals[MF_EXPERT_AHEAD] = c->ahead_hits;
    batch.totals[MF_EXPERT_LATE] = c->ahead_late;
    batch.totals[MF_EXPERT_DEMAND] = c->misses;
    batch.totals[MF_EXPERT_EVICTED] = c->evictions;
    batch.totals[MF_EXPERT_WASTED] = c->ahead_wasted;
    batch.bytes_read = c->bytes_read;
    batch.bytes_ahead = c->bytes_ahead;
    batch.bytes_wasted = c->bytes_wasted;
    batch.present = store->present;
    watch->function(watch->user, &batch);
}

void expert_store_tell_step(struct expert_store *store, const mf_expert_batch *step)
{
    struct store_watch *watch = &store->watch;
    pthread_mutex_lock(&watch->lock);
    if (watch->function) tell(store, step);
    pthread_mutex_unlock(&watch->lock);
    watch->count = 0;
    watch->told_at = clock_now(store->options.clock);
}

static const mf_expert_batch within_a_step;

void watch_record_slow(struct expert_store *store, uint32_t place, mf_expert_kind kind)
{
    struct store_watch *watch = &store->watch;
    if (watch->count == WATCH_EVENTS) expert_store_tell_step(store, &within_a_step);
    watch->events[watch->count++] =
        (mf_expert_event){ (uint16_t)layer_of(store, place), (uint16_t)(place % store->experts),
                           (uint16_t)kind };
}

void watch_visit(struct expert_store *store, double now)
{
    if (!expert_store_is_watched(store)) return;
    if (now - store->watch.told_at >= WATCH_SECONDS) expert_store_tell_step(store, &within_a_step);
}

/* -------------------------------------------------------------------- on, off */

bool expert_store_is_watched(struct expert_store *store)
{
    struct store_watch *watch = &store->watch;
    if (atomic_load_explicit(&watch->version, memory_order_relaxed) == watch->seen)
        return watch->on;
    pthread_mutex_lock(&watch->lock);
    watch->seen = atomic_load(&watch->version);
    watch->on = watch->function != NULL;
    watch->count = 0;
    if (watch->on) tell(store, &within_a_step);
    pthread_mutex_unlock(&watch->lock);
    return watch->on;
}

static size_t events_bytes(void)
{
    return WATCH_EVENTS * sizeof(mf_expert_event);
}

mf_status expert_store_watch(struct expert_store *store, mf_experts_function function, void *user,
                             mf_error *why)
{
    struct store_watch *watch = &store->watch;
    const mf_allocator *allocator = store->options.allocator;
    mf_status status = MF_OK;
    pthread_mutex_lock(&watch->lock);
    if (function && !watch->events) {
        watch->events = allocator->allocate(allocator->user, events_bytes(), _Alignof(max_align_t));
        if (!watch->events) status = fail_memory(why, events_bytes());
    }
    if (status == MF_OK) {
        watch->function = function;
        watch->user = user;
        atomic_fetch_add(&watch->version, 1);
    }
    pthread_mutex_unlock(&watch->lock);
    return status;
}

void watch_free(struct expert_store *store)
{
    const mf_allocator *allocator = store->options.allocator;
    if (store->watch.events)
        allocator->release(allocator->user, store->watch.events, events_bytes());
    pthread_mutex_destroy(&store->watch.lock);
}

/* ------------------------------------------------------------------------ map */

const uint32_t *expert_store_layers(const struct expert_store *store, uint32_t *count)
{
    *count = store->row_count;
    return store->with_experts;
}

size_t expert_store_map_bytes(const struct expert_store *store)
{
    return ((size_t)store->row_count * store->experts + 7) / 8;
}

void expert_store_map(const struct expert_store *store, uint8_t *out)
{
    size_t at = 0;
    memset(out, 0, expert_store_map_bytes(store));
    for (uint32_t row = 0; row < store->row_count; row++) {
        for (uint32_t e = 0; e < store->experts; e++, at++) {
            uint32_t place = place_of(store, store->with_experts[row], e);
            uint64_t word = atomic_load_explicit(&store->map[place / 64], memory_order_relaxed);
            if (word >> place % 64 & 1) out[at / 8] |= (uint8_t)(1u << at % 8);
        }
    }
}
