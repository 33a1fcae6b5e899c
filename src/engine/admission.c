#include "engine/admission.h"

#include "base/status.h"

/* A background request waits this many times longer before it counts as an interactive one. */
#define BACKGROUND_PATIENCE 4

/* Requests that do not fit and are passed by others, at most, in one plan. */
enum { PASSED_MAX = 16 };

mf_status admission_check(uint64_t need_bytes, uint32_t prompt_tokens, uint64_t pool_bytes,
                          mf_error *why)
{
    if (need_bytes <= pool_bytes) return MF_OK;
    return fail(why, MF_ERR_POOL_FULL,
                "a prompt of %u tokens and the next %d need %.1f MiB, more than the %.1f MiB that "
                "all sequences have together",
                prompt_tokens, ADMISSION_AHEAD, (double)need_bytes / (1 << 20),
                (double)pool_bytes / (1 << 20));
}

bool admission_is_low(const struct admission_request *request, struct admission_times times)
{
    return request->background &&
           times.now - request->arrival <= BACKGROUND_PATIENCE * times.patience_seconds;
}

static bool comes_before(const struct admission_request *a, const struct admission_request *b,
                         struct admission_times times)
{
    bool low_a = admission_is_low(a, times), low_b = admission_is_low(b, times);
    if (low_a != low_b) return low_b;
    if (a->round != b->round) return a->round < b->round;
    return a->arrival != b->arrival ? a->arrival < b->arrival : a < b;
}

/* The first request that does not run, behind `last` in order; NULL: none. */
static struct admission_request *next_waiting(struct admission_request *requests, size_t count,
                                              const struct admission_request *last,
                                              struct admission_times times)
{
    struct admission_request *next = NULL;
    for (size_t i = 0; i < count; i++) {
        struct admission_request *at = &requests[i];
        if (at->running || (last && !comes_before(last, at, times))) continue;
        if (!next || comes_before(at, next, times)) next = at;
    }
    return next;
}

void admission_plan(struct admission_request *requests, size_t count, uint64_t free_bytes,
                    struct admission_times times)
{
    struct admission_request *at = NULL;
    bool some = false;
    for (size_t i = 0; i < count; i++) {
        requests[i].begins = false;
        if (!requests[i].running) continue;
        some = true;
        free_bytes -= requests[i].need_bytes < free_bytes ? requests[i].need_bytes : free_bytes;
    }
    for (int passed = 0; passed <= PASSED_MAX;) {
        at = next_waiting(requests, count, at, times);
        if (!at) break;
        if (!some || at->need_bytes <= free_bytes) {
            at->begins = some = true;
            free_bytes -= at->need_bytes < free_bytes ? at->need_bytes : free_bytes;
        } else if (times.now - at->arrival > times.patience_seconds) {
            break;
        } else {
            passed++;
        }
    }
}

/* Of two running requests, the one that is parked first. */
static bool parks_before(const struct admission_request *a, const struct admission_request *b)
{
    return a->background != b->background ? a->background : a->arrival > b->arrival;
}

size_t admission_park(const struct admission_request *requests, size_t count)
{
    size_t last = count, running = 0;
    for (size_t i = 0; i < count; i++) {
        if (!requests[i].running) continue;
        running++;
        if (last == count || parks_before(&requests[i], &requests[last])) last = i;
    }
    return running > 1 ? last : count;
}
