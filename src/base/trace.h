/* trace.h: what happened when, while an engine computes.
 *
 *     workers   ── spans ──▶ a buffer of each worker ─┐
 *     store     ── reads ──▶ the owner's buffer ──────┼─ between steps ─▶ the caller's function
 *     steps     ── spans, counters, ticks by stage ───┘
 *
 * Without a tracer the cost is small: every function here is then one
 * test of a pointer.  With one, a worker looks at the clock and writes into memory of
 * its own: no lock, no call, no allocation.  A step whose events do not fit loses the
 * last of them; how many is counted.
 *
 * Time is counted in ticks of the CPU's own counter where that is a clock, because
 * reading it takes half as long as asking the system; events are handed over in
 * nanoseconds of CLOCK_MONOTONIC.
 *
 * Threads: a worker records for itself, and only within a run of the pool; everything
 * else belongs to the thread that owns the step. */
#ifndef BASE_TRACE_H
#define BASE_TRACE_H

#include "base/clock.h"
#include "base/common.h"
#include "base/machine.h"
#include "moeflux.h"

/* One worker's events since the last flush, on lines of its own. */
struct trace_buffer {
    _Alignas(CACHE_LINE) mf_trace_event *events; /* [capacity]; times in ticks */
    size_t count;
    uint64_t lost;
};

struct tracer {
    const mf_allocator *allocator;
    mf_trace_function function; /* NULL: only ticks by stage */
    void *user;
    unsigned worker_count;
    bool use_counter;             /* ticks are the CPU's; else nanoseconds */
    uint64_t first_tick;          /* when it was made, … */
    uint64_t first_ns;            /* … on both clocks */
    size_t capacity;              /* events of a buffer; 0 without a function */
    struct trace_buffer *buffers; /* [worker_count] */
    uint64_t *stage_ticks; /* [MF_STAGE_COUNT] of the sequence that steps; NULL: not counted */
    int32_t layer;         /* at hand; -1: none */
};

struct tracer_options {
    const mf_allocator *allocator;
    const struct machine *machine;
    unsigned worker_count;
    mf_trace_function function; /* may be NULL */
    void *user;
};

/* Buffers for all workers are taken now. */
mf_status tracer_new(struct tracer **out, const struct tracer_options *options, mf_error *why);
void tracer_free(struct tracer *tracer); /* hands over what is left; NULL is legal */

/* Hands the events over and forgets them; no run may be under way. */
void tracer_flush(struct tracer *tracer);

/* The same where a buffer holds more than a few: to be called between steps. */
void tracer_flush_full(struct tracer *tracer);

/* Seconds of a tick, the better known the longer the tracer exists; 0 without one. */
double tracer_tick_seconds(const struct tracer *tracer);

const char *stage_name(mf_stage stage);

/* -------------------------------------------------------------------- hooks */

/* `tracer` is one. */
static inline uint64_t trace_ticks(const struct tracer *tracer)
{
#if defined(__x86_64__)
    if (tracer->use_counter) return __builtin_ia32_rdtsc();
#elif defined(__aarch64__)
    uint64_t ticks;
    __asm__ volatile("mrs %0, cntvct_el0" : "=r"(ticks));
    if (tracer->use_counter) return ticks;
#endif
    (void)tracer;
    return clock_nanoseconds();
}

/* Now, or 0 without a tracer, where it is not used. */
static inline uint64_t trace_now(const struct tracer *tracer)
{
    return tracer ? trace_ticks(tracer) : 0;
}

/* Whose time is being added up from here on: [MF_STAGE_COUNT]. */
static inline void trace_count_into(struct tracer *tracer, uint64_t *stage_ticks)
{
    if (tracer) tracer->stage_ticks = stage_ticks;
}

static inline void trace_layer(struct tracer *tracer, int32_t layer)
{
    if (tracer) tracer->layer = layer;
}

/* What the owner did from tick `begin` until now.  `detail` is the event's. */
void trace_span_slow(struct tracer *tracer, const char *name, uint64_t begin, uint32_t detail);
static inline void trace_span(struct tracer *tracer, const char *name, uint64_t begin,
                              uint32_t detail)
{
    if (tracer && tracer->function) trace_span_slow(tracer, name, begin, detail);
}

/* The same for a stage that is not an operation of a graph; its time is added up.
 * Returns now, where the next stage begins. */
uint64_t trace_stage_slow(struct tracer *tracer, mf_stage stage, uint64_t begin, uint32_t detail);
static inline uint64_t trace_stage(struct tracer *tracer, mf_stage stage, uint64_t begin,
                                   uint32_t detail)
{
    return tracer ? trace_stage_slow(tracer, stage, begin, detail) : 0;
}

void trace_counter_slow(struct tracer *tracer, const char *name, uint64_t value);
static inline void trace_counter(struct tracer *tracer, const char *name, uint64_t value)
{
    if (tracer && tracer->function) trace_counter_slow(tracer, name, value);
}

/* An expert's read begins or ends; `ahead`: it began before it was asked for. */
struct trace_read {
    bool begins, ahead;
    uint32_t layer, expert;
};
void trace_read_slow(struct tracer *tracer, struct trace_read read);
static inline void trace_read(struct tracer *tracer, struct trace_read read)
{
    if (tracer && tracer->function) trace_read_slow(tracer, read);
}

/* A worker's way through the operations of a graph:
 *
 *     struct trace_walk walk = trace_walk_begin(tracer, worker.index);
 *     for (…) { compute; trace_walk_done(&walk); barrier; trace_walk_next(&walk, name, stage); }
 *
 * A span is an operation without the barrier; the stage's time is worker 0's with it. */
struct trace_part {
    const char *name;
    mf_stage stage;
    uint32_t detail; /* the event's */
};

struct trace_walk {
    struct tracer *tracer; /* NULL: this worker records nothing */
    unsigned worker;
    uint64_t begin, done;
};

static inline struct trace_walk trace_walk_begin(struct tracer *tracer, unsigned worker)
{
    bool records = tracer && (tracer->function || worker == 0);
    return (struct trace_walk){ records ? tracer : NULL, worker, records ? trace_ticks(tracer) : 0,
                                0 };
}

static inline void trace_walk_done(struct trace_walk *walk)
{
    if (walk->tracer && walk->tracer->function) walk->done = trace_ticks(walk->tracer);
}

void trace_walk_next_slow(struct trace_walk *walk, const char *name, mf_stage stage);
static inline void trace_walk_next(struct trace_walk *walk, const char *name, mf_stage stage)
{
    if (walk->tracer) trace_walk_next_slow(walk, name, stage);
}

/* The same for a part of a stage whose time is added up as a whole: a span and no more. */
void trace_walk_part_slow(struct trace_walk *walk, struct trace_part part);
static inline void trace_walk_part(struct trace_walk *walk, struct trace_part part)
{
    if (walk->tracer && walk->tracer->function) trace_walk_part_slow(walk, part);
}

#endif
