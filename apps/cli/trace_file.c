#include "trace_file.h"

#include "common/error.h"

#include <inttypes.h>
#include <stdlib.h>

mf_status trace_file_open_new(struct trace_file **out, const char *path, mf_error *why)
{
    struct trace_file *trace = calloc(1, sizeof *trace);
    mf_status status;

    *out = NULL;
    if (!trace) return fail_memory(why, sizeof *trace);
    status = output_file_open(&trace->file, path, why);
    if (status == MF_OK) {
        *out = trace;
    } else {
        free(trace);
    }
    return status;
}

static bool make_room(struct trace_file *trace, size_t count)
{
    size_t wanted = trace->count + count, capacity = trace->capacity;
    mf_trace_event *larger;

    if (wanted <= capacity) return true;
    if (wanted > TRACE_EVENTS_MAX) return false;
    while (capacity < wanted) capacity = capacity ? capacity * 2 : 1 << 16;
    larger = realloc(trace->events, capacity * sizeof *larger);
    if (!larger) return false;
    trace->events = larger;
    trace->capacity = capacity;
    return true;
}

void trace_file_take(void *user, const mf_trace_event *events, size_t count)
{
    struct trace_file *trace = user;

    if (!make_room(trace, count)) {
        trace->dropped += count;
        return;
    }
    memcpy(trace->events + trace->count, events, count * sizeof *events);
    trace->count += count;
}

/* ----------------------------------------------------------------- writing */

static uint64_t first_moment(const struct trace_file *trace)
{
    uint64_t first = UINT64_MAX;

    for (size_t i = 0; i < trace->count; i++) {
        if (trace->events[i].begin_ns < first) first = trace->events[i].begin_ns;
    }
    return first;
}

static void write_names(FILE *out, const struct trace_file *trace)
{
    uint32_t workers = 0;

    for (size_t i = 0; i < trace->count; i++) {
        if (trace->events[i].worker >= workers) workers = trace->events[i].worker + 1;
    }
    fputs("{\"ph\":\"M\",\"pid\":1,\"tid\":0,\"name\":\"process_name\","
          "\"args\":{\"name\":\"moeflux\"}}",
          out);
    for (uint32_t i = 0; i < workers; i++) {
        fprintf(out,
                ",\n{\"ph\":\"M\",\"pid\":1,\"tid\":%u,\"name\":\"thread_name\","
                "\"args\":{\"name\":\"worker %u\"}}",
                i, i);
    }
}

/* Nanoseconds as the microseconds that the format wants. */
static void write_time(FILE *out, const char *key, uint64_t ns)
{
    fprintf(out, ",\"%s\":%" PRIu64 ".%03u", key, ns / 1000, (unsigned)(ns % 1000));
}

static void write_event(FILE *out, const mf_trace_event *event, uint64_t start_ns)
{
    static const char phases[] = { [MF_TRACE_SPAN] = 'X',
                                   [MF_TRACE_READ_BEGIN] = 'b',
                                   [MF_TRACE_READ_END] = 'e',
                                   [MF_TRACE_COUNTER] = 'C' };

    fprintf(out, ",\n{\"ph\":\"%c\",\"pid\":1,\"tid\":%u,\"name\":\"%s\"", phases[event->kind],
            event->worker, event->name);
    write_time(out, "ts", event->begin_ns - start_ns);
    switch (event->kind) {
    case MF_TRACE_SPAN:
        write_time(out, "dur", event->end_ns - event->begin_ns);
        fprintf(out, ",\"cat\":\"%s\",\"args\":{",
                event->stage < MF_STAGE_COUNT ? mf_stage_name(event->stage) : "step");
        if (event->layer >= 0) fprintf(out, "\"layer\":%d", event->layer);
        if (event->detail > 0) {
            fprintf(out, "%s\"count\":%u", event->layer >= 0 ? "," : "", event->detail);
        }
        fputs("}}", out);
        break;
    case MF_TRACE_READ_BEGIN:
    case MF_TRACE_READ_END:
        fprintf(out, ",\"cat\":\"read\",\"id\":\"%d.%u\",\"args\":{\"layer\":%d,\"expert\":%u}}",
                event->layer, event->detail, event->layer, event->detail);
        break;
    case MF_TRACE_COUNTER:
        fprintf(out, ",\"args\":{\"value\":%" PRIu64 "}}", event->value);
        break;
    }
}

static void write_events(FILE *out, const struct trace_file *trace)
{
    uint64_t start = first_moment(trace);

    fputs("{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n", out);
    write_names(out, trace);
    for (size_t i = 0; i < trace->count; i++) write_event(out, &trace->events[i], start);
    fprintf(out, "\n],\"otherData\":{\"version\":\"%s\",\"dropped_events\":\"%" PRIu64 "\"}}\n",
            mf_version(), trace->dropped);
}

mf_status trace_file_finish(struct trace_file *trace, mf_error *why)
{
    mf_status status = MF_OK;

    if (!trace) return MF_OK;
    if (trace->count > 0) {
        write_events(trace->file.stream, trace);
        status = output_file_commit(&trace->file, why);
        if (trace->dropped > 0) {
            note("the trace holds the first %zu events; %" PRIu64 " more did not fit", trace->count,
                 trace->dropped);
        }
    } else {
        output_file_abandon(&trace->file);
    }
    free(trace->events);
    free(trace);
    return status;
}
