/* async_read_uring.c: reads by the kernel's own queue.
 *
 *     demand, ahead ─▶ submission queue ─▶ kernel ─▶ completion queue ─▶ wait
 *
 * The owner starts reads whenever it calls; while it computes, the kernel works on
 * what is under way.  Nothing polls: io_uring with plain interrupts, because a
 * polling kernel thread would take one of the cores that compute.
 *
 * The ring is not bound to a thread: sessions of one engine may be fed by several,
 * one after another.  A read whose thread has ended is cancelled by the kernel and
 * gets its second try. */
#include "base/clock.h"
#include "base/status.h"
#include "files/async_engine.h"

#include <assert.h>
#include <errno.h>
#include <liburing.h>

enum {
    DEPTH_MAX = 64, /* reads under way */
    DEPTH_AT_FIRST = 8,
    COUNT_LIMIT = 1 << 30,     /* of one attempt; the rest counts as a short read */
    FILES_REGISTERED_MAX = 512 /* direct and plain descriptors */
};

struct uring_reader {
    struct async_reader reader;
    struct io_uring ring;
    struct read_queues queues;
    bool files_registered; /* direct at 2 x file, plain after it */
};

static struct uring_reader *uring_of(struct async_reader *reader)
{
    return (struct uring_reader *)reader;
}

/* ---------------------------------------------------------------- starting */

static void prepare(struct uring_reader *r, struct io_uring_sqe *sqe, struct async_read *read)
{
    const struct read_source *source = &r->reader.sources[read->file];
    bool direct = read_is_direct(read, source);
    int descriptor = direct ? source->direct : source->descriptor;
    if (r->files_registered) descriptor = (int)(2 * read->file + !direct);
    io_uring_prep_read(sqe, descriptor, read_target(read),
                       (unsigned)min_size(read->count - read->done, COUNT_LIMIT),
                       read->offset + read->done);
    if (r->files_registered) io_uring_sqe_set_flags(sqe, IOSQE_FIXED_FILE);
    if (!direct && source->traces == TRACES_FLAG) sqe->rw_flags = RWF_DONTCACHE;
    io_uring_sqe_set_data(sqe, read);
}

/* Hands the kernel what may be under way, and waits for one completion if asked to. */
static void start_reads(struct uring_reader *r, bool block)
{
    struct async_read *read;
    while ((read = read_queues_start(&r->queues, read_pace_depth(&r->reader.pace)))) {
        struct io_uring_sqe *sqe = io_uring_get_sqe(&r->ring);
        assert(sqe); /* the ring has room for DEPTH_MAX */
        prepare(r, sqe, read);
    }
    int result = block ? io_uring_submit_and_wait(&r->ring, 1) : io_uring_submit(&r->ring);
    /* These pass: a signal, no memory or no room at the moment. */
    assert(result >= 0 || result == -EINTR || result == -EAGAIN || result == -EBUSY);
    (void)result;
}

/* --------------------------------------------------------------- functions */

static void uring_submit(struct async_reader *reader, struct async_read *list)
{
    struct uring_reader *r = uring_of(reader);
    read_queues_put(&r->queues, list);
    start_reads(r, false);
}

static void uring_promote(struct async_reader *reader, uint32_t tag)
{
    struct uring_reader *r = uring_of(reader);
    read_queue_promote(&r->queues.ahead, &r->queues.demand, tag);
    start_reads(r, false);
}

static void uring_cancel_ahead(struct async_reader *reader)
{
    struct uring_reader *r = uring_of(reader);
    read_queue_cancel(&r->queues.ahead, &r->queues.finished);
}

/* Takes in what the kernel has finished.  `watched`: we were waiting, so that now is
 * when it happened. */
static void collect(struct uring_reader *r, bool watched)
{
    struct io_uring_cqe *cqe;
    double now = watched ? clock_seconds() : 0;
    while (io_uring_peek_cqe(&r->ring, &cqe) == 0) {
        struct async_read *read = io_uring_cqe_get_data(cqe);
        int result = cqe->res;
        io_uring_cqe_seen(&r->ring, cqe);
        read_queues_stop(&r->queues, read);
        const struct read_source *source = &r->reader.sources[read->file];
        if (source->descriptor < 0) result = -ENOENT; /* a file that is not there */
        if (!read_advance(read, source, result)) {
            read->next = NULL;
            read_queues_put(&r->queues, read); /* goes on from where it is */
            continue;
        }
        if (watched)
            read_pace_note(&r->reader.pace, read->done, now - read->started_at, read->beside);
        read_leave_no_trace(read, source);
        read_queue_put(&r->queues.finished, read);
    }
}

/* What is finished makes room: the next reads are started before it is given back. */
static struct async_read *uring_wait(struct async_reader *reader, bool block)
{
    struct uring_reader *r = uring_of(reader);
    collect(r, false);
    while (block && !r->queues.finished.head) {
        start_reads(r, true);
        collect(r, true);
    }
    start_reads(r, false);
    return read_queue_take_all(&r->queues.finished);
}

static void uring_free(struct async_reader *reader)
{
    struct uring_reader *r = uring_of(reader);
    io_uring_queue_exit(&r->ring);
    async_reader_end(reader, sizeof *r);
}

static const struct async_reader_functions uring_functions = { .name = "io_uring",
                                                               .free = uring_free,
                                                               .submit = uring_submit,
                                                               .promote = uring_promote,
                                                               .cancel_ahead = uring_cancel_ahead,
                                                               .wait = uring_wait };

/* Registered files save the kernel a lookup per read; without them it works too. */
static void register_files(struct uring_reader *r)
{
    int descriptors[FILES_REGISTERED_MAX];
    size_t count = r->reader.source_count;
    if (2 * count > FILES_REGISTERED_MAX) return;
    for (size_t i = 0; i < count; i++) {
        descriptors[2 * i] = r->reader.sources[i].direct;
        descriptors[2 * i + 1] = r->reader.sources[i].descriptor;
    }
    r->files_registered =
        io_uring_register_files(&r->ring, descriptors, (unsigned)(2 * count)) == 0;
}

/* A file that is not there is no obstacle: reading it is an error in any engine. */
static bool all_have_descriptors(const struct async_reader *reader)
{
    for (size_t i = 0; i < reader->source_count; i++) {
        const struct read_source *source = &reader->sources[i];
        if (source->file->handle && source->descriptor < 0) return false;
    }
    return true;
}

mf_status async_reader_uring_new(struct async_reader **out,
                                 const struct async_reader_options *options, mf_error *why)
{
    mf_status status =
        async_reader_begin(out, sizeof(struct uring_reader), &uring_functions, options, why);
    if (status != MF_OK) return status;
    struct uring_reader *r = uring_of(*out);
    if (!all_have_descriptors(*out)) {
        status =
            fail(why, MF_ERR_UNSUPPORTED, "io_uring needs files with descriptors; these have none");
    } else {
        int result = io_uring_queue_init(DEPTH_MAX, &r->ring, 0);
        if (result < 0)
            status = fail_errno(why, MF_ERR_UNSUPPORTED, -result, "io_uring cannot be used here");
    }
    if (status != MF_OK) {
        async_reader_end(*out, sizeof *r);
        *out = NULL;
        return status;
    }
    read_pace_init(&(*out)->pace, DEPTH_AT_FIRST, DEPTH_MAX);
    register_files(r);
    return MF_OK;
}
