#include "base/trace.h"

#include "base/status.h"

/* EVENTS: capacity of a worker's buffer, enough for a step of a prompt, which reads all experts of
 * all layers (two events each) and computes each in three parts.  Between steps a buffer is flushed
 * from EVENTS_KEPT on, while its events are still in the CPU's caches. */
enum { EVENTS = 1 << 16, EVENTS_KEPT = 1 << 7 };

static size_t events_bytes(const struct tracer *tracer)
{
    return tracer->worker_count * tracer->capacity * sizeof(mf_trace_event);
}

static mf_status take_buffers(struct tracer *tracer, mf_error *why)
{
    const mf_allocator *allocator = tracer->allocator;
    size_t bytes = tracer->worker_count * sizeof *tracer->buffers;
    tracer->buffers = allocator->allocate(allocator->user, bytes, CACHE_LINE);
    if (!tracer->buffers) return fail_memory(why, bytes);
    memset(tracer->buffers, 0, bytes);
    if (!tracer->function) return MF_OK;
    tracer->capacity = EVENTS;
    mf_trace_event *events = allocator->allocate(allocator->user, events_bytes(tracer), CACHE_LINE);
    if (!events) return fail_memory(why, events_bytes(tracer));
    for (unsigned i = 0; i < tracer->worker_count; i++)
        tracer->buffers[i].events = events + i * tracer->capacity;
    return MF_OK;
}

/* Reads both clocks at the same time: the attempt with the smallest gap of several. */
static void read_clocks(const struct tracer *tracer, uint64_t *tick, uint64_t *ns)
{
    uint64_t least = UINT64_MAX;
    for (int i = 0; i < 5; i++) {
        uint64_t before = clock_nanoseconds(), ticks = trace_ticks(tracer);
        uint64_t taken = clock_nanoseconds() - before;
        if (taken >= least) continue;
        least = taken;
        *tick = ticks;
        *ns = before + taken / 2;
    }
}

mf_status tracer_new(struct tracer **out, const struct tracer_options *options, mf_error *why)
{
    const mf_allocator *allocator = options->allocator;
    *out = NULL;
    struct tracer *tracer =
        allocator->allocate(allocator->user, sizeof *tracer, _Alignof(max_align_t));
    if (!tracer) return fail_memory(why, sizeof *tracer);
    *tracer = (struct tracer){ .allocator = allocator,
                               .function = options->function,
                               .user = options->user,
                               .worker_count = options->worker_count,
                               .use_counter = options->machine->steady_ticks,
                               .layer = -1 };
    read_clocks(tracer, &tracer->first_tick, &tracer->first_ns);
    mf_status status = take_buffers(tracer, why);
    if (status == MF_OK)
        *out = tracer;
    else
        tracer_free(tracer);
    return status;
}

void tracer_free(struct tracer *tracer)
{
    if (!tracer) return;
    const mf_allocator *allocator = tracer->allocator;
    if (tracer->buffers) {
        mf_trace_event *events = tracer->buffers[0].events;
        if (events) {
            tracer_flush(tracer);
            allocator->release(allocator->user, events, events_bytes(tracer));
        }
        allocator->release(allocator->user, tracer->buffers,
                           tracer->worker_count * sizeof *tracer->buffers);
    }
    allocator->release(allocator->user, tracer, sizeof *tracer);
}

/* -------------------------------------------------------------------- time */

double tracer_tick_seconds(const struct tracer *tracer)
{
    if (!tracer) return 0;
    uint64_t tick, ns;
    read_clocks(tracer, &tick, &ns);
    if (tick <= tracer->first_tick) return 1e-9;
    return (double)(ns - tracer->first_ns) * 1e-9 / (double)(tick - tracer->first_tick);
}

static uint64_t ns_of(const struct tracer *tracer, uint64_t tick, double tick_ns)
{
    if (!tracer->use_counter) return tick;
    /* A core whose counter lags may report a tick before the first one. */
    uint64_t since = tick > tracer->first_tick ? tick - tracer->first_tick : 0;
    return tracer->first_ns + (uint64_t)((double)since * tick_ns);
}

/* ---------------------------------------------------------------- handing over */

static void convert(const struct tracer *tracer, struct trace_buffer *buffer, double tick_ns)
{
    for (size_t i = 0; i < buffer->count; i++) {
        mf_trace_event *event = &buffer->events[i];
        event->begin_ns = ns_of(tracer, event->begin_ns, tick_ns);
        if (event->kind == MF_TRACE_SPAN) event->end_ns = ns_of(tracer, event->end_ns, tick_ns);
    }
}

void tracer_flush(struct tracer *tracer)
{
    if (!tracer || !tracer->function) return;
    double tick_ns = tracer_tick_seconds(tracer) * 1e9;
    for (unsigned i = 0; i < tracer->worker_count; i++) {
        struct trace_buffer *buffer = &tracer->buffers[i];
        convert(tracer, buffer, tick_ns);
        if (buffer->count > 0) tracer->function(tracer->user, buffer->events, buffer->count);
        buffer->count = 0;
        if (buffer->lost == 0) continue;
        mf_trace_event event = { .kind = MF_TRACE_COUNTER,
                                 .name = "lost events",
                                 .begin_ns = clock_nanoseconds(),
                                 .value = buffer->lost,
                                 .layer = -1,
                                 .worker = i };
        buffer->lost = 0;
        tracer->function(tracer->user, &event, 1);
    }
}

void tracer_flush_full(struct tracer *tracer)
{
    if (!tracer || !tracer->function) return;
    for (unsigned i = 0; i < tracer->worker_count; i++) {
        if (tracer->buffers[i].count <= EVENTS_KEPT) continue;
        tracer_flush(tracer);
        return;
    }
}

/* ------------------------------------------------------------------- events */

const char *stage_name(mf_stage stage)
{
    static const char *const names[] = {
#define STAGE_NAME(id, name) [MF_STAGE_##id] = name,
        MF_STAGE_LIST(STAGE_NAME)
#undef STAGE_NAME
    };
    return (unsigned)stage < MF_STAGE_COUNT ? names[stage] : "?";
}

/* The next free event of a worker, with kind, layer and worker set; NULL: the buffer is full. */
static mf_trace_event *trace_next(struct tracer *tracer, unsigned worker, mf_trace_kind kind)
{
    struct trace_buffer *buffer = &tracer->buffers[worker];
    if (buffer->count == tracer->capacity) {
        buffer->lost++;
        return NULL;
    }
    mf_trace_event *event = &buffer->events[buffer->count++];
    event->kind = kind;
    event->worker = worker;
    event->layer = tracer->layer;
    return event;
}

struct span_parts {
    const char *name;
    uint64_t begin, end;
    uint32_t detail;
    mf_stage stage;
};

static void add_span(struct tracer *tracer, unsigned worker, struct span_parts parts)
{
    mf_trace_event *event = trace_next(tracer, worker, MF_TRACE_SPAN);
    if (!event) return;
    event->name = parts.name;
    event->begin_ns = parts.begin;
    event->end_ns = parts.end;
    event->detail = parts.detail;
    event->stage = parts.stage;
}

void trace_span_slow(struct tracer *tracer, const char *name, uint64_t begin, uint32_t detail)
{
    add_span(tracer, 0,
             (struct span_parts){ name, begin, trace_ticks(tracer), detail, MF_STAGE_COUNT });
}

uint64_t trace_stage_slow(struct tracer *tracer, mf_stage stage, uint64_t begin, uint32_t detail)
{
    uint64_t now = trace_ticks(tracer);
    if (tracer->stage_ticks) tracer->stage_ticks[stage] += now - begin;
    if (tracer->function)
        add_span(tracer, 0, (struct span_parts){ stage_name(stage), begin, now, detail, stage });
    return now;
}

void trace_walk_next_slow(struct trace_walk *walk, const char *name, mf_stage stage)
{
    struct tracer *tracer = walk->tracer;
    uint64_t now = trace_ticks(tracer);
    if (walk->worker == 0 && tracer->stage_ticks) tracer->stage_ticks[stage] += now - walk->begin;
    if (tracer->function)
        add_span(tracer, walk->worker,
                 (struct span_parts){ name, walk->begin, walk->done, 0, stage });
    walk->begin = now;
}

void trace_walk_part_slow(struct trace_walk *walk, struct trace_part part)
{
    add_span(walk->tracer, walk->worker,
             (struct span_parts){ part.name, walk->begin, walk->done, part.detail, part.stage });
    walk->begin = trace_ticks(walk->tracer);
}

void trace_counter_slow(struct tracer *tracer, const char *name, uint64_t value)
{
    mf_trace_event *event = trace_next(tracer, 0, MF_TRACE_COUNTER);
    if (!event) return;
    event->name = name;
    event->begin_ns = trace_ticks(tracer);
    event->value = value;
    event->detail = 0;
    event->stage = MF_STAGE_COUNT;
}

void trace_read_slow(struct tracer *tracer, struct trace_read read)
{
    mf_trace_event *event =
        trace_next(tracer, 0, read.begins ? MF_TRACE_READ_BEGIN : MF_TRACE_READ_END);
    if (!event) return;
    event->name = read.ahead ? "read ahead" : "read";
    event->begin_ns = trace_ticks(tracer);
    event->value = 0;
    event->layer = (int32_t)read.layer;
    event->detail = read.expert;
    event->stage = MF_STAGE_COUNT;
}
