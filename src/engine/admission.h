/* admission.h: which requests may begin with the memory that is free, and which are parked.
 *
 * A request needs memory for its prompt and the next ADMISSION_AHEAD tokens, not for all that it may
 * ever generate: a running one takes more as it goes, and where there is none left, the request of
 * the lowest class that came last is parked (its state kept elsewhere, nothing computed again).
 *
 * Policy only; threads: any. */
#ifndef ENGINE_ADMISSION_H
#define ENGINE_ADMISSION_H

#include "moeflux.h"

#include "base/common.h"

enum { ADMISSION_AHEAD = 256 };

struct admission_request {
    bool running;        /* it holds memory */
    bool background;     /* after interactive ones */
    uint32_t round;      /* requests of the same client that run or came before it */
    double arrival;      /* seconds */
    uint64_t need_bytes; /* what it would take further, for its prompt and ADMISSION_AHEAD tokens */
    bool begins;         /* out */
};

/* MF_ERR_POOL_FULL, with numbers: a request that needs so much can never run, not even alone. */
mf_status admission_check(uint64_t need_bytes, uint32_t prompt_tokens, uint64_t pool_bytes,
                          mf_error *why);

struct admission_times {
    double now;
    double patience_seconds; /* see below */
};

/* Which of those that do not run begin now: interactive ones first, then those of clients with the
 * fewest before them, then in order of arrival.  What the running ones will need is not given away.
 * A smaller one passes one that does not fit, until that one has waited for `patience_seconds`:
 * from then on what becomes free is kept for it.  A background request that has waited four times
 * as long is taken for an interactive one.  Where nothing runs, the first begins. */
void admission_plan(struct admission_request *requests, size_t count, uint64_t free_bytes,
                    struct admission_times times);

/* Whether the request comes after all interactive ones. */
bool admission_is_low(const struct admission_request *request, struct admission_times times);

/* The running request to park: background before interactive, then the one that came last.
 * Returns `count` where fewer than two run. */
size_t admission_park(const struct admission_request *requests, size_t count);

#endif
