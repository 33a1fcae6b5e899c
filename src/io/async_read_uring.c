/* async_read_uring.c: an engine on io_uring.
 *
 *     reader's queues ─▶ submission queue ─▶ kernel ─▶ completion queue ─▶ finished
 *     └─ any thread with the reader's lock ─┘         └─ the engine's thread, or the ─┘
 *        mostly the owner, in submit                     owner in async_reader_wait
 *
 * The owner starts its reads itself: waking a thread for it would take a core from the workers
 * that compute.  The engine's thread sleeps until a read completes and starts queued ones.  No
 * kernel polling (SQPOLL), which would occupy a core as well. */
#include "base/status.h"
#include "base/thread.h"
#include "io/async_engine.h"

#include <assert.h>
#include <errno.h>
#include <liburing.h>
#include <poll.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

enum {
    RING_ENTRIES = 2 * DEPTH_MAX, /* leaves room for the stop request */
    COUNT_LIMIT = 1 << 30,        /* bytes of one attempt; the rest counts as a short read */
    FILES_REGISTERED_MAX = 512,   /* direct and plain descriptors */
    BUFFERS_MAX = 16384           /* the kernel's limit */
};

struct uring_engine {
    struct read_engine engine;
    struct io_uring ring;  /* with the reader's lock */
    bool files_registered; /* direct at 2 x file, plain after it */
    bool *registered;      /* [table_count] whether the tag has a buffer; written when no read of
                              the tag is outstanding */
    size_t table_count;    /* 0: no table of buffers */
    bool refused;          /* the kernel takes no more buffers */
    pthread_t thread;
};

static struct uring_engine *uring_of(struct read_engine *engine)
{
    return (struct uring_engine *)engine;
}

/* ------------------------------------------------------------------- thread */

static void prepare(struct uring_engine *u, struct async_read *read)
{
    const struct read_source *source = &u->engine.reader->sources[read->file];
    struct io_uring_sqe *sqe = io_uring_get_sqe(&u->ring);
    assert(sqe); /* at most DEPTH_MAX are in flight */
    bool direct = read_is_direct(read, source);
    int descriptor = direct ? source->direct : source->descriptor;
    if (u->files_registered) descriptor = (int)(2 * read->file + !direct);
    unsigned count = (unsigned)min_size(read->count - read->done, COUNT_LIMIT);
    uint64_t offset = read->offset + read->done;
    if (!read->staged && read->tag < u->table_count && u->registered[read->tag])
        io_uring_prep_read_fixed(sqe, descriptor, read_target(read), count, offset, (int)read->tag);
    else
        io_uring_prep_read(sqe, descriptor, read_target(read), count, offset);
    if (u->files_registered) io_uring_sqe_set_flags(sqe, IOSQE_FIXED_FILE);
    if (!direct && source->traces == TRACES_FLAG) sqe->rw_flags = RWF_DONTCACHE;
    io_uring_sqe_set_data(sqe, read);
}

/* With the reader's lock.  The asserted errors are temporary: a signal, no memory, no room. */
static void submit(struct uring_engine *u)
{
    int result = 0;
    while (io_uring_sq_ready(&u->ring) > 0 && (result = io_uring_submit(&u->ring)) < 0) {
        assert(result == -EINTR || result == -EAGAIN || result == -EBUSY);
        sched_yield();
    }
}

/* With the reader's lock. */
static void begin_reads(struct uring_engine *u)
{
    struct async_read *read;
    while ((read = async_reader_take(u->engine.reader))) prepare(u, read);
    submit(u);
}

/* The next completion; NULL: there is none.  With the reader's lock. */
static struct async_read *take_finished(struct uring_engine *u, int *result)
{
    struct io_uring_cqe *cqe;
    while (io_uring_peek_cqe(&u->ring, &cqe) == 0) {
        struct async_read *read = io_uring_cqe_get_data(cqe);
        *result = cqe->res;
        io_uring_cqe_seen(&u->ring, cqe);
        if (read) return read; /* NULL: the stop request */
    }
    return NULL;
}

/* Handles all completions; incomplete reads continue at once.  With the reader's lock, which is
 * released while contents are checked. */
static void collect(struct uring_engine *u)
{
    struct async_reader *reader = u->engine.reader;
    struct async_read *read;
    int result;
    while ((read = take_finished(u, &result))) {
        const struct read_source *source = &reader->sources[read->file];
        if (source->descriptor < 0) result = -ENOENT; /* a missing file */
        if (result == -ECANCELED) result = -EINTR;    /* the submitting thread has exited */
        pthread_mutex_unlock(&reader->lock);
        bool complete = read_advance(read, source, result);
        if (complete) read_leave_no_trace(read, source);
        pthread_mutex_lock(&reader->lock);
        if (complete)
            async_reader_finish(reader, read);
        else
            prepare(u, read);
    }
    begin_reads(u);
}

/* Lets this thread run soon after it wakes while the workers keep all cores busy: by short time
 * slices, which older kernels ignore; under a real-time policy, where threads of equal priority do
 * not interrupt each other, by a priority one above that of the workers.  Where that is not allowed,
 * nothing changes. */
static void run_soon(void)
{
    struct {
        uint32_t size, policy;
        uint64_t flags;
        int32_t nice;
        uint32_t priority;
        uint64_t runtime, deadline, period; /* nanoseconds */
    } turn = { .size = sizeof turn };
    if (syscall(SYS_sched_getattr, 0, &turn, sizeof turn, 0) != 0) return;
    switch (turn.policy) {
    case SCHED_OTHER:
        turn.runtime = 100000;
        break;
    case SCHED_FIFO:
    case SCHED_RR:
        turn.priority++;
        break;
    default:
        return;
    }
    (void)syscall(SYS_sched_setattr, 0, &turn, 0);
}

static void *work(void *argument)
{
    struct uring_engine *u = argument;
    struct async_reader *reader = u->engine.reader;
    run_soon();
    for (bool stop = false; !stop;) {
        struct pollfd finished = { .fd = u->ring.ring_fd, .events = POLLIN };
        (void)poll(&finished, 1, -1); /* the ring itself needs the lock */
        pthread_mutex_lock(&reader->lock);
        collect(u);
        stop = reader->stop;
        pthread_mutex_unlock(&reader->lock);
    }
    return NULL;
}

/* ---------------------------------------------------------------- functions */

static void uring_wake(struct read_engine *engine, uint32_t room)
{
    struct uring_engine *u = uring_of(engine);
    (void)room;
    if (engine->reader->stop) {
        struct io_uring_sqe *sqe = io_uring_get_sqe(&u->ring);
        assert(sqe);
        io_uring_prep_nop(sqe);
        io_uring_sqe_set_data(sqe, NULL);
    }
    begin_reads(u);
}

static void uring_help(struct read_engine *engine, bool block)
{
    (void)block; /* the owner then sleeps until the thread signals */
    collect(uring_of(engine));
}

/* The kernel pins the pages, up to the limit on locked memory.  After the first refusal no more
 * buffers are registered. */
static void uring_register_buffer(struct read_engine *engine, uint32_t tag, void *memory,
                                  size_t bytes)
{
    struct uring_engine *u = uring_of(engine);
    struct iovec buffer = { memory, bytes };
    bool wanted = memory != NULL;
    if (tag >= u->table_count || u->registered[tag] == wanted || (wanted && u->refused)) return;
    int done = io_uring_register_buffers_update_tag(&u->ring, tag, &buffer, NULL, 1);
    if (done == 1) u->registered[tag] = wanted;
    u->refused = u->refused || (wanted && done != 1);
}

static void drop_table(struct uring_engine *u)
{
    const mf_allocator *allocator = u->engine.reader->allocator;
    if (u->registered)
        allocator->release(allocator->user, u->registered, u->table_count * sizeof *u->registered);
}

static void uring_free(struct read_engine *engine)
{
    struct uring_engine *u = uring_of(engine);
    const mf_allocator *allocator = engine->reader->allocator;
    pthread_join(u->thread, NULL);
    io_uring_queue_exit(&u->ring);
    drop_table(u);
    allocator->release(allocator->user, u, sizeof *u);
}

static const struct read_engine_functions uring_functions = {
    .name = "io_uring",
    .wake = uring_wake,
    .free = uring_free,
    .help = uring_help,
    .register_buffer = uring_register_buffer,
};

/* Registered files save the kernel a lookup per read; they are optional. */
static void register_files(struct uring_engine *u)
{
    int descriptors[FILES_REGISTERED_MAX];
    const struct async_reader *reader = u->engine.reader;
    size_t count = reader->source_count;
    if (2 * count > FILES_REGISTERED_MAX) return;
    for (size_t i = 0; i < count; i++) {
        descriptors[2 * i] = reader->sources[i].direct;
        descriptors[2 * i + 1] = reader->sources[i].descriptor;
    }
    u->files_registered =
        io_uring_register_files(&u->ring, descriptors, (unsigned)(2 * count)) == 0;
}

/* An empty table of buffers; optional. */
static void prepare_buffers(struct uring_engine *u)
{
    const mf_allocator *allocator = u->engine.reader->allocator;
    size_t count = min_size(u->engine.reader->buffer_count, BUFFERS_MAX);
    if (count == 0 || io_uring_register_buffers_sparse(&u->ring, (unsigned)count) != 0) return;
    u->registered = allocator->allocate(allocator->user, count * sizeof *u->registered, CACHE_LINE);
    if (!u->registered) return;
    memset(u->registered, 0, count * sizeof *u->registered);
    u->table_count = count;
}

/* A missing file does not count: reading it fails in any engine. */
static bool all_have_descriptors(const struct async_reader *reader)
{
    for (size_t i = 0; i < reader->source_count; i++) {
        const struct read_source *source = &reader->sources[i];
        if (source->file->handle && source->descriptor < 0) return false;
    }
    return true;
}

static mf_status start(struct uring_engine *u, mf_error *why)
{
    int result = io_uring_queue_init(RING_ENTRIES, &u->ring, 0);
    if (result < 0)
        return fail_errno(why, MF_ERR_UNSUPPORTED, -result, "io_uring cannot be used here");
    register_files(u);
    prepare_buffers(u);
    result = thread_start(&u->thread, NULL, work, u);
    if (result == 0) return MF_OK;
    io_uring_queue_exit(&u->ring);
    drop_table(u);
    return fail_errno(why, MF_ERR_UNSUPPORTED, result, "no thread for io_uring could be started");
}

mf_status read_engine_uring_new(struct read_engine **out, struct async_reader *reader,
                                mf_error *why)
{
    const mf_allocator *allocator = reader->allocator;
    if (!all_have_descriptors(reader))
        return fail(why, MF_ERR_UNSUPPORTED,
                    "io_uring needs files with descriptors; these have none");
    struct uring_engine *u = allocator->allocate(allocator->user, sizeof *u, CACHE_LINE);
    if (!u) return fail_memory(why, sizeof *u);
    *u = (struct uring_engine){ .engine = { &uring_functions, reader } };
    mf_status status = start(u, why);
    if (status != MF_OK) {
        allocator->release(allocator->user, u, sizeof *u);
        return status;
    }
    *out = &u->engine;
    return MF_OK;
}
