/* trace.h: a time line of what the engine does: operations, reads, steps, time per stage.
 *
 *     workers   ── spans ──▶ a buffer of each worker ─┐
 *     store     ── reads ──▶ the owner's buffer ──────┼─ between steps ─▶ the caller's function
 *     steps     ── spans, counters, ticks by stage ───┘
 *
 * Without a tracer every function here is one test of a pointer.  With one, a worker reads the
 * clock and writes to a buffer of its own, without locks, system calls or allocation.  If the
 * events of a step do not fit, the last ones are dropped and counted.
 *
 * Times are ticks of the CPU's counter where that is steady (machine.h), because reading it takes
 * half as long as clock_gettime; events are delivered in nanoseconds of CLOCK_MONOTONIC.
 *
 * Threads: within a run of the pool each worker records its own events; all other functions are for
 * the thread that owns the step. */
#ifndef BASE_TRACE_H
#define BASE_TRACE_H

#include "base/clock.h"
#include "base/common.h"
#include "base/machine.h"
#include "moeflux.h"

/* One worker's events since the last flush, on cache lines of its own. */
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
    uint64_t first_tick;          /* time of tracer_new, in ticks … */
    uint64_t first_ns;            /* … and in nanoseconds */
    size_t capacity;              /* events per buffer; 0 without a function */
    struct trace_buffer *buffers; /* [worker_count] */
    uint64_t *stage_ticks; /* [MF_STAGE_COUNT] of the sequence that steps; NULL: not counted */
    int32_t layer;         /* current layer; -1: none */
};

struct tracer_options {
    const mf_allocator *allocator;
    const struct machine *machine;
    unsigned worker_count;
    mf_trace_function function; /* may be NULL */
    void *user;
};

/* Allocates the buffers of all workers. */
mf_status tracer_new(struct tracer **out, const struct tracer_options *options, mf_error *why);
void tracer_free(struct tracer *tracer); /* flushes first; NULL is legal */

/* Delivers all events to the caller's function and empties the buffers; not during a run. */
void tracer_flush(struct tracer *tracer);

/* The same if a buffer is filling up; call between steps. */
void tracer_flush_full(struct tracer *tracer);

/* Seconds per tick, measured since tracer_new, so more exact over time; 0 if `tracer` is NULL. */
double tracer_tick_seconds(const struct tracer *tracer);

const char *stage_name(mf_stage stage);

/* -------------------------------------------------------------------- hooks */

/* `tracer` is not NULL. */
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

/* The current tick; 0 without a tracer. */
static inline uint64_t trace_now(const struct tracer *tracer)
{
    return tracer ? trace_ticks(tracer) : 0;
}

/* Later stages add their ticks to stage_ticks[MF_STAGE_COUNT]. */
static inline void trace_count_into(struct tracer *tracer, uint64_t *stage_ticks)
{
    if (tracer) tracer->stage_ticks = stage_ticks;
}

static inline void trace_layer(struct tracer *tracer, int32_t layer)
{
    if (tracer) tracer->layer = layer;
}

/* Records a span of the owner from tick `begin` until now.  `detail` is passed on in the event. */
void trace_span_slow(struct tracer *tracer, const char *name, uint64_t begin, uint32_t detail);
static inline void trace_span(struct tracer *tracer, const char *name, uint64_t begin,
                              uint32_t detail)
{
    if (tracer && tracer->function) trace_span_slow(tracer, name, begin, detail);
}

/* The same for a stage that is not an operation of a graph; adds its ticks to the stage's.  Returns
 * the current tick, where the next stage begins. */
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

/* The read of an expert begins or ends; `ahead`: it is a read-ahead. */
struct trace_read {
    bool begins, ahead;
    uint32_t layer, expert;
};
void trace_read_slow(struct tracer *tracer, struct trace_read read);
static inline void trace_read(struct tracer *tracer, struct trace_read read)
{
    if (tracer && tracer->function) trace_read_slow(tracer, read);
}

/* Records a worker's operations of a graph:
 *
 *     struct trace_walk walk = trace_walk_begin(tracer, worker.index);
 *     for (…) { compute; trace_walk_done(&walk); barrier; trace_walk_next(&walk, name, stage); }
 *
 * A span covers the operation without the barrier; the time of a stage is worker 0's, barriers
 * included. */
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

/* Records a span only, for a part of a stage whose ticks are added as a whole. */
void trace_walk_part_slow(struct trace_walk *walk, struct trace_part part);
static inline void trace_walk_part(struct trace_walk *walk, struct trace_part part)
{
    if (walk->tracer && walk->tracer->function) trace_walk_part_slow(walk, part);
}

#endif
