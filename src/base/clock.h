/* clock.h: time for statistics, and for decisions that are made by them: those take a
 * clock, so that a test can let it go as it likes. */
#ifndef BASE_CLOCK_H
#define BASE_CLOCK_H

#include <time.h>

/* Seconds since some fixed moment. */
static inline double clock_seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

struct clock {
    double (*now)(void *user); /* seconds since some fixed moment */
    void *user;
};

/* NULL: the real one. */
static inline double clock_now(const struct clock *clock)
{
    return clock ? clock->now(clock->user) : clock_seconds();
}

#endif
