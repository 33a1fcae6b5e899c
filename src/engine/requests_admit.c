/* requests_admit.c: which requests begin, and which make room. */
#include "engine/requests_loop.h"

#include "base/clock.h"
#include "base/status.h"
#include "engine/admission.h"

/* A request that found too little memory for so long is not overtaken any more. */
#define PATIENCE_SECONDS 5.0

enum {
    LOOKED_AT = 64,      /* requests that wait, in one plan; the others come after them */
    CLIENT_COUNTS = 256, /* clients whose numbers meet here count as one */
};

struct admission {
    struct admission_request requests[REQUESTS_PARALLEL_MAX + LOOKED_AT];
    struct request *list[REQUESTS_PARALLEL_MAX + LOOKED_AT];
    size_t count;
    struct admission_times times;
    uint32_t clients[CLIENT_COUNTS]; /* requests of each, so far */
};

/* -------------------------------------------------------------------- listing */

static uint32_t *count_of_client(struct admission *admission, uint64_t client)
{
    return &admission->clients[(client * 0x9e3779b97f4a7c15u) >> 56];
}

_Static_assert(CLIENT_COUNTS == 1 << 8, "the upper eight bits");

static struct admission_request describe(const struct request *request, bool running)
{
    const struct state_shape *shape = &request->sequence.room->pool.shape;
    uint64_t held = request_held_bytes(request), wanted = request_wanted_bytes(request, shape);
    return (struct admission_request){ .running = running,
                                       .background = request->wishes.background,
                                       .round = request->round,
                                       .arrival = request->submitted,
                                       .need_bytes = wanted > held ? wanted - held : 0 };
}

static void add_to(struct admission *admission, struct request *request, bool running)
{
    admission->list[admission->count] = request;
    admission->requests[admission->count++] = describe(request, running);
}

static void list_active(struct admission *admission, const struct requests *requests)
{
    *admission = (struct admission){ .times = { clock_seconds(), PATIENCE_SECONDS } };
    for (size_t i = 0; i < requests->active_count; i++) {
        add_to(admission, requests->active[i], true);
        ++*count_of_client(admission, requests->active[i]->wishes.client);
    }
}

/* Those of one class and round.  Returns the next round that there is; 0: none. */
static uint32_t list_round(struct admission *admission, size_t *looked_at,
                           const struct requests *requests, bool low, uint32_t round)
{
    uint32_t next = 0;
    struct request *request = requests->waiting;
    for (; request && *looked_at < LOOKED_AT; request = request->following) {
        struct admission_request as = describe(request, false);
        if (admission_is_low(&as, admission->times) != low) continue;
        if (request->round > round && (next == 0 || request->round < next)) next = request->round;
        if (request->round != round) continue;
        ++*looked_at;
        if (!request_waits_for_prefix(requests, request)) add_to(admission, request, false);
    }
    return *looked_at < LOOKED_AT ? next : 0;
}

/* In the order in which they may begin: a client with many requests does not keep others from
 * being looked at. */
static void list_waiting(struct admission *admission, struct requests *requests)
{
    size_t looked_at = 0;
    pthread_mutex_lock(&requests->lock);
    for (struct request *request = requests->waiting; request; request = request->following)
        request->round = (*count_of_client(admission, request->wishes.client))++;
    for (int low = 0; low < 2; low++) {
        uint32_t round = 0;
        do round = list_round(admission, &looked_at, requests, low, round);
        while (round > 0);
    }
    pthread_mutex_unlock(&requests->lock);
}

/* ----------------------------------------------------------------- beginning */

static uint64_t free_bytes(const struct requests *requests)
{
    struct state_pool_sizes sizes = state_pool_sizes(&requests->options.room->pool);
    uint64_t given = 0;
    if (requests->options.prefixes) /* it gives way, but for what sequences hold, too */
        given = prefix_tree_unshared_bytes(requests->options.prefixes);
    uint64_t held = sizes.held_bytes - min_size(sizes.held_bytes, given);
    return sizes.limit_bytes > held ? sizes.limit_bytes - held : 0;
}

static void begin_request(struct requests *requests, struct request *request)
{
    mf_error why;
    requests_take_out(requests, request);
    mf_status status = request->parked.count > 0
                           ? request_unpark(request, &why)
                           : request_resume(request, requests->options.prefixes, &why);
    if (status == MF_OK) {
        requests->active[requests->active_count++] = request;
        requests_move(requests, request, REQUEST_RUNNING);
    } else if (status == MF_ERR_POOL_FULL && requests->active_count > 0) {
        requests_put_back(requests, request);
    } else {
        requests_end(requests, request, &why);
    }
}

void requests_admit(struct requests *requests)
{
    struct admission admission;
    if (requests->active_count >= requests->options.parallel) return;
    list_active(&admission, requests);
    list_waiting(&admission, requests);
    if (admission.count == requests->active_count) return;
    admission_plan(admission.requests, admission.count, free_bytes(requests), admission.times);
    for (size_t i = 0; i < admission.count; i++)
        if (admission.requests[i].begins && requests->active_count < requests->options.parallel &&
            !request_waits_for_prefix(requests, admission.list[i]))
            begin_request(requests, admission.list[i]);
}

/* -------------------------------------------------------------- making room */

/* Nothing else can make room: what the cache shares with the request goes, then the request. */
static void help_last(struct requests *requests, struct request *only)
{
    struct prefix_tree *prefixes = requests->options.prefixes;
    mf_error why;
    if (prefixes && prefix_tree_statistics(prefixes).bytes > 0) {
        prefix_tree_clear(prefixes);
        return;
    }
    fail(&why, MF_ERR_POOL_FULL,
         "the memory for sequences is full: %llu bytes, of which this request holds %llu",
         (unsigned long long)state_pool_sizes(&requests->options.room->pool).limit_bytes,
         (unsigned long long)request_held_bytes(only));
    requests_end(requests, only, &why);
}

static void park(struct requests *requests, struct request *request)
{
    mf_error why;
    if (request_park(request, &requests->options, requests->park_directory, &why) != MF_OK) {
        requests_end(requests, request, &why);
        return;
    }
    requests_leave_active(requests, request);
    requests_move(requests, request, REQUEST_PARKED);
    requests_put_back(requests, request);
}

void requests_make_room(struct requests *requests)
{
    if (requests->active_count == 1) {
        help_last(requests, requests->active[0]);
        return;
    }
    /* The last ones that hold nothing free nothing: they wait again, and one more is parked. */
    while (requests->active_count > 1) {
        struct admission admission;
        list_active(&admission, requests);
        struct request *last = admission.list[admission_park(admission.requests, admission.count)];
        if (request_held_bytes(last) > 0) {
            park(requests, last);
            return;
        }
        requests_leave_active(requests, last);
        requests_move(requests, last, REQUEST_WAITING);
        requests_put_back(requests, last);
    }
}
