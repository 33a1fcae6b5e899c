/* simulation_queues.c: S3-FIFO (Yang, Zhang, Qiu, Yue, Rashmi: "FIFO queues are all you need
 * for cache eviction", SOSP 2023), one for every class of slots.
 *
 *     new ──▶ small ──▶ used twice? ──▶ large ──▶ used? again to its end, counted down
 *               │ no                      │ no
 *               ▼                         ▼
 *             ghost: an expert that     evicted
 *             returns goes to large
 *
 * Experts of the current visit are skipped. */
#include "experts/simulation_internal.h"

#include "base/status.h"

enum { SMALL_SHARE = 10, USES_MAX = 3, USES_TO_STAY = 2 };

struct queue {
    uint32_t *ring; /* [capacity] places */
    size_t capacity, head, count;
};

struct queues {
    struct queue small, large, ghosts;
    size_t slots;
};

struct s3_fifo {
    struct queues *classes;
    uint8_t *uses; /* [places] since it entered, up to USES_MAX */
    bool *ghost;   /* [places] */
};

static void queue_put(struct queue *queue, uint32_t place)
{
    queue->ring[(queue->head + queue->count++) % queue->capacity] = place;
}

static uint32_t queue_take(struct queue *queue)
{
    uint32_t place = queue->ring[queue->head];
    queue->head = (queue->head + 1) % queue->capacity;
    queue->count--;
    return place;
}

static bool queue_init(struct queue *queue, struct arena *arena, size_t capacity)
{
    *queue = (struct queue){ .ring = ARENA_NEW(arena, uint32_t, capacity), .capacity = capacity };
    return queue->ring != NULL;
}

static mf_status s3_begin(struct cache *cache, mf_error *why)
{
    const struct route_shape *shape = &cache->trace->shape;
    size_t places = (size_t)shape->layers * shape->experts;
    struct s3_fifo *s3 = ARENA_NEW(&cache->arena, struct s3_fifo, 1);
    if (!s3) return fail_memory(why, sizeof *s3);
    cache->policy = s3;
    s3->classes = ARENA_NEW(&cache->arena, struct queues, cache->plan.class_count);
    s3->uses = ARENA_NEW(&cache->arena, uint8_t, places);
    s3->ghost = ARENA_NEW(&cache->arena, bool, places);
    bool complete = s3->classes && s3->uses && s3->ghost;
    for (size_t c = 0; c < cache->plan.class_count && complete; c++) {
        struct queues *queues = &s3->classes[c];
        queues->slots = cache->plan.classes[c].count;
        complete = queue_init(&queues->small, &cache->arena, queues->slots + 1) &&
                   queue_init(&queues->large, &cache->arena, queues->slots + 1) &&
                   queue_init(&queues->ghosts, &cache->arena, queues->slots + 1);
    }
    return complete ? MF_OK : fail_memory(why, places);
}

static void s3_visit(struct cache *cache)
{
    const struct s3_fifo *s3 = cache->policy;
    uint32_t first = cache->visit->layer * cache->trace->shape.experts;
    for (size_t i = 0; i < cache->visit->count; i++) {
        uint32_t place = first + cache->visit->experts[i];
        if (cache->slot_of[place] != NO_SLOT && s3->uses[place] < USES_MAX) s3->uses[place]++;
    }
}

static void remember_ghost(const struct s3_fifo *s3, struct queues *queues, uint32_t place)
{
    if (queues->ghosts.count == queues->slots) s3->ghost[queue_take(&queues->ghosts)] = false;
    queue_put(&queues->ghosts, place);
    s3->ghost[place] = true;
}

/* Each turn takes one entry from the head of a queue.  Half of the turns are enough to find that the
 * small queue has no victim; the others count all entries of the large one down. */
static uint32_t s3_victim(struct cache *cache, size_t class_number)
{
    const struct s3_fifo *s3 = cache->policy;
    struct queues *queues = &s3->classes[class_number];
    size_t turns = (USES_MAX + 2) * (queues->slots + 1);
    for (size_t i = 0; i < turns; i++) {
        bool small = queues->large.count == 0 ||
                     (queues->small.count > queues->slots / SMALL_SHARE && i < turns / 2);
        if (queues->small.count == 0) small = false;
        struct queue *queue = small ? &queues->small : &queues->large;
        uint32_t place = queue_take(queue), slot = cache->slot_of[place];
        if (!cache_can_leave(cache, slot)) {
            queue_put(queue, place);
        } else if (small && s3->uses[place] >= USES_TO_STAY) {
            s3->uses[place] = 0;
            queue_put(&queues->large, place);
        } else if (!small && s3->uses[place] > 0) {
            s3->uses[place]--;
            queue_put(queue, place);
        } else {
            if (small) remember_ghost(s3, queues, place);
            return slot;
        }
    }
    return NO_SLOT;
}

static void s3_enter(struct cache *cache, uint32_t slot)
{
    const struct s3_fifo *s3 = cache->policy;
    uint32_t place = cache->places[slot], layer = place / cache->trace->shape.experts;
    struct queues *queues = &s3->classes[cache->plan.class_of[layer]];
    s3->uses[place] = 0;
    queue_put(s3->ghost[place] ? &queues->large : &queues->small, place);
}

const struct cache_functions cache_s3_fifo = {
    .begin = s3_begin, .visit = s3_visit, .victim = s3_victim, .enter = s3_enter
};
