#include "view/experts_internal.h"

#include "common/clock.h"
#include "serve/failure.h"
#include "serve/guard.h"
#include "serve/handlers.h"
#include "serve/reply.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

/* Between frames while something happens, and while nothing does. */
static const double busy_seconds = 0.1, idle_seconds = 1, ping_seconds = 15;

/* Of frames that the kernel keeps for a viewer: a second or two. */
enum { BUFFER_BYTES = 128 << 10 };

/* ------------------------------------------------------------------ the encoder */

/* Under `switching`.  NULL: there is nothing to tell yet. */
static struct gathering *close_gathering(struct experts *experts, struct expert_sums *sums,
                                         uint64_t *present)
{
    pthread_mutex_lock(&experts->lock);
    struct gathering *closed = experts->open;
    bool due = experts->happened || clock_seconds() - experts->told_at >= idle_seconds;
    if (due) experts->open = &experts->gatherings[closed == experts->gatherings];
    *sums = experts->sums;
    *present = experts->present;
    if (due) experts->happened = false;
    pthread_mutex_unlock(&experts->lock);
    return due ? closed : NULL;
}

static void reset(struct gathering *gathering)
{
    for (size_t i = 0; i < gathering->touched_count; i++)
        gathering->counts[gathering->touched[i]] = 0;
    gathering->touched_count = gathering->token_count = 0;
    gathering->event_count = 0;
}

static void wake(const struct viewer *viewer)
{
    uint64_t one = 1;

    if (write(viewer->wake, &one, sizeof one) < 0) return; /* it is readable already */
}

/* Takes the frame's text over. */
static void publish(struct experts *experts, const struct frame *made,
                    const struct expert_sums *sums, uint64_t present)
{
    pthread_mutex_lock(&experts->frames_lock);
    struct frame *frame = &experts->frames[experts->next_frame % FRAMES_KEPT];
    frame_free(frame);
    *frame = *made;
    experts->next_frame++;
    experts->told = *sums;
    experts->told_present = present;
    experts->told_at = clock_seconds();
    for (struct viewer *viewer = experts->viewers; viewer; viewer = viewer->next) wake(viewer);
    pthread_mutex_unlock(&experts->frames_lock);
}

static void make_frame(struct experts *experts)
{
    struct frame made = { 0 };
    struct expert_sums sums;
    struct frame_head head = { .number = experts->next_frame,
                               .seconds = clock_seconds() - experts->serve->started };
    struct gathering *closed = close_gathering(experts, &sums, &head.present);

    if (!closed) return;
    struct expert_sums grown = sums_between(&experts->told, &sums);
    if (frame_encode(&made, experts, &head, &grown, closed)) {
        publish(experts, &made, &sums, head.present);
        metrics_add(experts->serve->metrics, METRIC_MAP_FRAMES, 1);
    } else {
        frame_free(&made); /* the next one has these sums, too */
    }
    reset(closed);
}

/* Under frames_lock: sleeps until it is time, or until the end. */
static void sleep_until(struct experts *experts, double when)
{
    struct timespec until = { .tv_sec = (time_t)when,
                              .tv_nsec = (long)((when - (double)(time_t)when) * 1e9) };

    while (!experts->closing && clock_seconds() < when)
        pthread_cond_timedwait(&experts->changed, &experts->frames_lock, &until);
}

void *experts_encode(void *user)
{
    struct experts *experts = user;

    pthread_mutex_lock(&experts->frames_lock);
    for (;;) {
        while (!experts->viewers && !experts->closing)
            pthread_cond_wait(&experts->changed, &experts->frames_lock);
        sleep_until(experts, clock_seconds() + busy_seconds);
        if (experts->closing) break;
        pthread_mutex_unlock(&experts->frames_lock);
        pthread_mutex_lock(&experts->switching);
        if (atomic_load(&experts->on)) make_frame(experts);
        pthread_mutex_unlock(&experts->switching);
        pthread_mutex_lock(&experts->frames_lock);
    }
    pthread_mutex_unlock(&experts->frames_lock);
    return NULL;
}

/* --------------------------------------------------------------------- viewers */

/* Under frames_lock: what the viewer has not got; more than a few frames as one. */
static bool add_frames(struct viewer *viewer, struct byte_list *out)
{
    enum { LAG_MAX = FRAMES_KEPT / 2 };
    struct experts *experts = viewer->experts;

    if (experts->next_frame - viewer->next_frame <= LAG_MAX) {
        for (; viewer->next_frame < experts->next_frame; viewer->next_frame++)
            if (!frame_add(out, &experts->frames[viewer->next_frame % FRAMES_KEPT], viewer->owner))
                return false;
    } else {
        struct frame_head head = { .number = experts->next_frame - 1,
                                   .seconds = experts->told_at - experts->serve->started,
                                   .present = experts->told_present };
        struct expert_sums grown = sums_between(&viewer->seen, &experts->told);
        struct frame sums = { 0 };
        bool done = frame_encode(&sums, experts, &head, &grown, NULL) &&
                    frame_add(out, &sums, viewer->owner);
        frame_free(&sums);
        if (!done) return false;
        viewer->next_frame = experts->next_frame;
    }
    viewer->seen = experts->told;
    return true;
}

/* False: no memory. */
static bool take_frames(struct viewer *viewer, struct byte_list *out)
{
    struct experts *experts = viewer->experts;
    uint64_t count;
    bool done = true;

    pthread_mutex_lock(&experts->frames_lock);
    if (viewer->next_frame < experts->next_frame)
        done = add_frames(viewer, out);
    else if (read(viewer->wake, &count, sizeof count) < 0) /* what comes now writes again */
        done = errno == EAGAIN;
    pthread_mutex_unlock(&experts->frames_lock);
    return done;
}

static bool fill_view(void *user, struct byte_list *out)
{
    struct viewer *viewer = user;

    if (viewer->map.count > 0) {
        *out = viewer->map;
        viewer->map = (struct byte_list){ 0 };
        return true;
    }
    while (out->count == 0) {
        if (!take_frames(viewer, out)) return false;
        if (out->count > 0) break;
        enum exchange_wait found = exchange_wait(viewer->exchange, viewer->wake, ping_seconds);
        if (found == EXCHANGE_GONE) return false;
        if (found == EXCHANGE_TIMEOUT) return sse_add_ping(out);
    }
    return true;
}

static void leave(struct viewer *viewer)
{
    struct experts *experts = viewer->experts;

    pthread_mutex_lock(&experts->switching);
    pthread_mutex_lock(&experts->frames_lock);
    struct viewer **at = &experts->viewers;
    while (*at != viewer) at = &(*at)->next;
    *at = viewer->next;
    bool was_last = !experts->viewers;
    pthread_mutex_unlock(&experts->frames_lock);
    if (was_last) experts_end(experts);
    pthread_mutex_unlock(&experts->switching);
}

static void close_view(void *user)
{
    struct viewer *viewer = user;

    leave(viewer);
    byte_list_free(&viewer->map);
    close(viewer->wake);
    free(viewer);
}

/* Its map has the totals of the last frame; the next frames are its own. */
static mf_status enter(struct viewer *viewer, mf_error *why)
{
    struct experts *experts = viewer->experts;
    mf_status status = MF_OK;

    pthread_mutex_lock(&experts->switching);
    if (!experts->viewers) status = experts_begin(experts, why); /* changed under switching, too */
    if (status == MF_OK && !map_encode(&viewer->map, experts, &experts->told)) {
        status = fail_memory(why, experts->layout.map_bytes);
        if (!experts->viewers) experts_end(experts);
    }
    if (status == MF_OK) {
        pthread_mutex_lock(&experts->frames_lock);
        viewer->next_frame = experts->next_frame;
        viewer->seen = experts->told;
        viewer->next = experts->viewers;
        experts->viewers = viewer;
        pthread_cond_signal(&experts->changed);
        pthread_mutex_unlock(&experts->frames_lock);
    }
    pthread_mutex_unlock(&experts->switching);
    return status;
}

void experts_reply(struct serve *serve, struct exchange *exchange)
{
    struct viewer *viewer = calloc(1, sizeof *viewer);
    struct failure failure;
    mf_error why = { .text = "" };
    mf_status status = MF_OK;

    if (!viewer) return; /* the reply is "no memory" */
    viewer->experts = serve->experts;
    viewer->exchange = exchange;
    viewer->owner = guard_owner(serve, exchange);
    viewer->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (viewer->wake < 0) status = fail_errno(&why, MF_ERR_IO, errno, "no event descriptor");
    if (status == MF_OK) status = enter(viewer, &why);
    if (status == MF_OK) {
        struct exchange_stream stream = { fill_view, close_view, viewer };
        exchange_limit_buffer(exchange, BUFFER_BYTES);
        exchange_reply_stream(exchange, "text/event-stream", &stream);
        return;
    }
    byte_list_free(&viewer->map);
    if (viewer->wake >= 0) close(viewer->wake);
    free(viewer);
    refuse_error(&failure, &why);
    failure_reply(exchange, DIALECT_OPENAI, &failure);
}
