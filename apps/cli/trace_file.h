/* trace_file.h: the events of an engine, kept in memory and written at the end as JSON
 * that Perfetto (ui.perfetto.dev) and chrome://tracing show.
 *
 *     "X"   an operation or a stage: a span on the track of its worker
 *     "b"   a read of an expert begins, "e" it ends: a track of its own for each
 *     "C"   a counter
 *
 * Nothing is formatted while the model runs. */
#ifndef CLI_TRACE_FILE_H
#define CLI_TRACE_FILE_H

#include "streams.h"

struct trace_file {
    struct output_file file;
    mf_trace_event *events;
    size_t count, capacity;
    uint64_t dropped; /* beyond TRACE_EVENTS_MAX, or of the library's buffers */
};

enum { TRACE_EVENTS_MAX = 4 << 20 };

/* Creates the file, so that a wrong path fails before the model runs; `path` is borrowed. */
mf_status trace_file_open_new(struct trace_file **out, const char *path, mf_error *why);

/* An mf_trace_function; `user` is the trace_file. */
void trace_file_take(void *user, const mf_trace_event *events, size_t count);

/* Writes and closes the file, removing it if there are no events, and frees the trace, also after a
 * failure.  NULL is legal. */
mf_status trace_file_finish(struct trace_file *trace, mf_error *why);

#endif
