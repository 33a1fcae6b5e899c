/* stops.c: mf_stops_*: texts that end an answer. */
#include "api/handles.h"

#include "base/arena.h"
#include "base/status.h"
#include "chat/stop_strings.h"

#include <stdlib.h>

struct mf_stops {
    struct stop_strings *strings;
};

mf_status mf_stops_open(mf_stops **out, const char *const *strings, size_t count, mf_error *why)
{
    if (!out) return api_missing(why, "out");
    *out = NULL;
    if (!strings && count > 0) return api_missing(why, "strings");
    for (size_t i = 0; i < count; i++)
        if (!strings[i]) return fail(why, MF_ERR_ARGUMENT, "stop string %zu is NULL", i);
    mf_stops *stops = calloc(1, sizeof *stops);
    if (!stops) return fail_memory(why, sizeof *stops);
    mf_status status = stop_strings_new(&stops->strings, &allocator_heap, strings, count, why);
    if (status == MF_OK)
        *out = stops;
    else
        free(stops);
    return status;
}

void mf_stops_close(mf_stops *stops)
{
    if (!stops) return;
    stop_strings_free(stops->strings);
    free(stops);
}

bool mf_stops_feed(mf_stops *stops, const char *text, size_t length, mf_text_function emit,
                   void *user)
{
    if (!stops || !emit || (!text && length > 0)) return false;
    return stop_strings_feed(stops->strings, text, length, emit, user);
}

void mf_stops_finish(mf_stops *stops, mf_text_function emit, void *user)
{
    if (!stops) return;
    if (emit) stop_strings_finish(stops->strings, emit, user);
    stop_strings_reset(stops->strings);
}

const char *mf_stops_found(const mf_stops *stops)
{
    return stops ? stop_strings_found(stops->strings) : NULL;
}
