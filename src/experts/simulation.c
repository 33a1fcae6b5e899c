#include "experts/simulation_internal.h"

#include "base/status.h"

/* Victims found in one scan of the slots. */
enum { VICTIMS_MAX = 64 };

const char *cache_policy_name(enum cache_policy policy)
{
    static const char *const names[] = {
#define CACHE_POLICY_NAME(policy, name) [policy] = (name),
        CACHE_POLICY_LIST(CACHE_POLICY_NAME)
#undef CACHE_POLICY_NAME
    };
    return names[policy];
}

uint64_t simulation_full_bytes(const struct route_trace *trace)
{
    uint64_t sum = 0, bytes;
    for (uint32_t i = 0; i < trace->shape.layers; i++)
        if (!checked_multiply(&bytes, trace->shape.slot_bytes[i], trace->shape.experts) ||
            !checked_add(&sum, sum, bytes))
            return UINT64_MAX;
    return sum;
}

/* ------------------------------------------------------------------ visits */

/* A row of the trace. */
struct cursor {
    size_t step;
    uint32_t row;
};

static void advance(struct cursor *cursor, const struct route_trace *trace)
{
    if (++cursor->row < trace->steps[cursor->step].rows) return;
    cursor->row = 0;
    cursor->step++;
}

/* Collects the experts that `visit->rows` rows from the cursor on use in the layer. */
static void gather(struct cache *cache, struct visit *visit, struct cursor cursor)
{
    const struct route_trace *trace = cache->trace;
    memset(cache->uses, 0, trace->shape.experts * sizeof *cache->uses);
    for (uint32_t i = 0; i < visit->rows; i++) {
        const struct route_step *step = &trace->steps[cursor.step];
        for (uint32_t k = 0; k < trace->shape.per_token; k++)
            cache->uses[route_trace_expert(trace, step, visit->layer, cursor.row, k)]++;
        advance(&cursor, trace);
    }
    visit->count = 0;
    for (uint32_t e = 0; e < trace->shape.experts; e++)
        if (cache->uses[e] > 0) cache->experts[visit->count++] = e;
}

void cache_walk(struct cache *cache, void (*each)(struct cache *cache, const struct visit *visit))
{
    const struct route_trace *trace = cache->trace;
    struct visit visit = { .uses = cache->uses, .experts = cache->experts };
    struct cursor cursor = { 0, 0 };
    while (visit.tokens < trace->row_count) {
        uint32_t rows = cache->setting.rows;
        if (rows == 0) rows = trace->steps[cursor.step].rows;
        visit.rows = (uint32_t)min_size(rows, trace->row_count - visit.tokens);
        for (visit.layer = 0; visit.layer < trace->shape.layers; visit.layer++) {
            if (trace->order[visit.layer] == NO_ORDER) continue;
            visit.number++;
            gather(cache, &visit, cursor);
            each(cache, &visit);
        }
        for (uint32_t i = 0; i < visit.rows; i++) advance(&cursor, trace);
        visit.tokens += visit.rows;
    }
}

/* ----------------------------------------------------------------- victims */

struct victim {
    double distance;
    uint32_t slot;
};

struct victims {
    struct victim list[VICTIMS_MAX]; /* by descending distance, then ascending slot */
    size_t count, next;
};

static void find_victims(struct victims *victims, const struct cache *cache,
                         const struct slot_class *class)
{
    victims->count = victims->next = 0;
    for (size_t i = 0; i < class->count; i++) {
        uint32_t slot = (uint32_t)(class->first_slot + i);
        if (!cache_can_leave(cache, slot)) continue;
        double distance = cache->functions->distance(cache, cache->places[slot]);
        size_t count = victims->count;
        if (count == VICTIMS_MAX && distance <= victims->list[count - 1].distance) continue;
        size_t at = count < VICTIMS_MAX ? victims->count++ : count - 1;
        for (; at > 0 && victims->list[at - 1].distance < distance; at--)
            victims->list[at] = victims->list[at - 1];
        victims->list[at] = (struct victim){ distance, slot };
    }
}

static uint32_t next_victim(struct victims *victims, struct cache *cache, size_t class_number)
{
    if (cache->functions->victim) return cache->functions->victim(cache, class_number);
    if (victims->next == victims->count)
        find_victims(victims, cache, &cache->plan.classes[class_number]);
    return victims->next < victims->count ? victims->list[victims->next++].slot : NO_SLOT;
}

/* Allows the eviction of the visit's own experts: those in memory are computed first, then their
 * slots are reused for the missing ones. */
static void release_wanted(const struct cache *cache, const struct slot_class *class)
{
    for (size_t i = 0; i < class->count; i++) cache->wanted[class->first_slot + i] = 0;
}

static uint32_t take_slot(struct victims *victims, struct cache *cache, size_t class_number)
{
    const struct slot_class *class = &cache->plan.classes[class_number];
    if (cache->filled[class_number] < class->count)
        return (uint32_t)(class->first_slot + cache->filled[class_number]++);
    uint32_t slot = next_victim(victims, cache, class_number);
    if (slot == NO_SLOT) {
        release_wanted(cache, class);
        slot = next_victim(victims, cache, class_number);
    }
    cache->slot_of[cache->places[slot]] = NO_SLOT;
    return slot;
}

/* ----------------------------------------------------------------- playing */

/* Counts hits and lists the other experts in missing[]; returns their number. */
static size_t look_up(struct cache *cache, const struct visit *visit)
{
    uint32_t first = visit->layer * cache->trace->shape.experts;
    size_t missing = 0;
    for (size_t i = 0; i < visit->count; i++) {
        uint32_t place = first + visit->experts[i], slot = cache->slot_of[place];
        if (slot == NO_SLOT)
            cache->missing[missing++] = place;
        else
            cache->wanted[slot] = visit->number;
    }
    cache->result.uses += visit->count;
    cache->result.hits += visit->count - missing;
    return missing;
}

static void play(struct cache *cache, const struct visit *visit)
{
    struct victims victims = { .count = 0 };
    cache->visit = visit;
    cache->functions->visit(cache);
    size_t missing = look_up(cache, visit);
    for (size_t i = 0; i < missing; i++) {
        uint32_t slot = take_slot(&victims, cache, cache->plan.class_of[visit->layer]);
        cache->places[slot] = cache->missing[i];
        cache->wanted[slot] = visit->number;
        cache->slot_of[cache->missing[i]] = slot;
        if (cache->functions->enter) cache->functions->enter(cache, slot);
    }
    cache->result.bytes_read += missing * cache->trace->shape.expert_bytes[visit->layer];
}

static mf_status take_tables(struct cache *cache, mf_error *why)
{
    const struct route_shape *shape = &cache->trace->shape;
    struct arena *arena = &cache->arena;
    size_t places = (size_t)shape->layers * shape->experts, slots;
    cache->plan.classes = ARENA_NEW(arena, struct slot_class, shape->layers);
    cache->plan.class_of = ARENA_NEW(arena, uint32_t, shape->layers);
    cache->uses = ARENA_NEW(arena, uint32_t, shape->experts);
    cache->experts = ARENA_NEW(arena, uint32_t, shape->experts);
    cache->missing = ARENA_NEW(arena, uint32_t, shape->experts);
    cache->slot_of = ARENA_NEW(arena, uint32_t, places);
    if (!cache->plan.classes || !cache->plan.class_of || !cache->uses || !cache->experts ||
        !cache->missing || !cache->slot_of)
        return fail_memory(why, places * sizeof *cache->slot_of);
    for (size_t i = 0; i < places; i++) cache->slot_of[i] = NO_SLOT;
    struct slot_needs needs = { .bytes = shape->slot_bytes,
                                .layers = shape->layers,
                                .experts = shape->experts,
                                .per_token = shape->per_token,
                                .budget_bytes = cache->setting.budget_bytes };
    mf_status status = slot_plan_make(&cache->plan, &needs, why);
    if (status != MF_OK) return status;
    slots = cache->plan.slot_count;
    cache->places = ARENA_NEW(arena, uint32_t, slots);
    cache->wanted = ARENA_NEW(arena, uint64_t, slots);
    cache->filled = ARENA_NEW(arena, size_t, cache->plan.class_count);
    bool complete = cache->places && cache->wanted && cache->filled;
    return complete ? MF_OK : fail_memory(why, slots * sizeof *cache->wanted);
}

mf_status simulation_run(struct simulation_result *out, const struct route_trace *trace,
                         const struct simulation_setting *setting, const mf_allocator *allocator,
                         mf_error *why)
{
    static const struct cache_functions *const policies[] = {
        [CACHE_BELADY] = &cache_belady, [CACHE_MOEFLUX] = &cache_moeflux, [CACHE_LFU] = &cache_lfu,
        [CACHE_LRU] = &cache_lru,       [CACHE_S3_FIFO] = &cache_s3_fifo,
    };
    struct cache cache = { .trace = trace,
                           .setting = *setting,
                           .functions = policies[setting->policy] };
    arena_init(&cache.arena, allocator);
    mf_status status = take_tables(&cache, why);
    if (status == MF_OK && cache.functions->begin) status = cache.functions->begin(&cache, why);
    if (status == MF_OK) {
        for (size_t c = 0; c < cache.plan.class_count; c++)
            cache.result.experts += cache.plan.classes[c].experts;
        cache.result.slots = cache.plan.slot_count;
        cache.result.resident = cache.plan.resident;
        cache.result.tokens = trace->row_count;
        cache_walk(&cache, play);
        *out = cache.result;
    }
    arena_free(&cache.arena);
    return status;
}
