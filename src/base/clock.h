/* clock.h: monotonic time.  Code that decides by time takes a `struct clock`, so that tests can
 * simulate it.  The calendar is for dates that are shown, and callers can set it. */
#ifndef BASE_CLOCK_H
#define BASE_CLOCK_H

#include <stdint.h>
#include <time.h>

/* Since some fixed moment. */
static inline uint64_t clock_nanoseconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static inline double clock_seconds(void)
{
    return (double)clock_nanoseconds() * 1e-9;
}

/* Since 1970, by the machine's clock. */
static inline int64_t clock_calendar_seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec;
}

struct clock {
    double (*now)(void *user); /* seconds since some fixed moment */
    void *user;
};

/* NULL: the system clock. */
static inline double clock_now(const struct clock *clock)
{
    return clock ? clock->now(clock->user) : clock_seconds();
}

#endif
