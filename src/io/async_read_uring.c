/* async_read_uring.c: reads by the kernel's own queue.
 *
 *     reader's queues ─▶ submission queue ─▶ kernel ─▶ completion queue ─▶ finished
 *     └── whoever has the reader's lock: ──┘         └─ the crew's thread, or the owner ─┘
 *         mostly the owner, at once                     when he looks for finished reads
 *
 * Who asks for an expert begins the read himself: a thread that had to be woken for it would
 * first have to get one of the cores that compute.  The thread sleeps in the kernel until a
 * read is finished, and begins those that had to wait for it.  Nothing polls: a polling kernel
 * thread would take a core, too. */
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
    RING_ENTRIES = 2 * DEPTH_MAX, /* one more for the end */
    COUNT_LIMIT = 1 << 30,        /* of one attempt; the rest counts as a short read */
    FILES_REGISTERED_MAX = 512,   /* direct and plain descriptors */
    BUFFERS_MAX = 16384           /* the kernel's limit */
};

struct uring_crew {
    struct read_crew crew;
    struct io_uring ring;  /* with the reader's lock */
    bool files_registered; /* direct at 2 x file, plain after it */
    bool *lent;            /* [table_count] is memory registered for this tag?  Written when no read
                           of the tag is outstanding */
    size_t table_count;    /* 0: the kernel takes none */
    bool refused;          /* it takes no more */
    pthread_t thread;
};

static struct uring_crew *uring_of(struct read_crew *crew)
{
    return (struct uring_crew *)crew;
}

/* ------------------------------------------------------------------- thread */

static void prepare(struct uring_crew *u, struct async_read *read)
{
    const struct read_source *source = &u->crew.reader->sources[read->file];
    struct io_uring_sqe *sqe = io_uring_get_sqe(&u->ring);
    assert(sqe); /* no more than DEPTH_MAX are under way */
    bool direct = read_is_direct(read, source);
    int descriptor = direct ? source->direct : source->descriptor;
    if (u->files_registered) descriptor = (int)(2 * read->file + !direct);
    unsigned count = (unsigned)min_size(read->count - read->done, COUNT_LIMIT);
    uint64_t offset = read->offset + read->done;
    if (!read->staged && read->tag < u->table_count && u->lent[read->tag])
        io_uring_prep_read_fixed(sqe, descriptor, read_target(read), count, offset, (int)read->tag);
    else
        io_uring_prep_read(sqe, descriptor, read_target(read), count, offset);
    if (u->files_registered) io_uring_sqe_set_flags(sqe, IOSQE_FIXED_FILE);
    if (!direct && source->traces == TRACES_FLAG) sqe->rw_flags = RWF_DONTCACHE;
    io_uring_sqe_set_data(sqe, read);
}

/* With the reader's lock.  These failures pass: a signal, no memory or no room at the moment. */
static void submit(struct uring_crew *u)
{
    int result = 0;
    while (io_uring_sq_ready(&u->ring) > 0 && (result = io_uring_submit(&u->ring)) < 0) {
        assert(result == -EINTR || result == -EAGAIN || result == -EBUSY);
        sched_yield();
    }
}

/* With the reader's lock. */
static void begin_reads(struct uring_crew *u)
{
    struct async_read *read;
    while ((read = async_reader_take(u->crew.reader, &u->crew))) prepare(u, read);
    submit(u);
}

/* Takes one that the kernel has finished; NULL: there is none.  With the reader's lock. */
static struct async_read *take_finished(struct uring_crew *u, int *result)
{
    struct io_uring_cqe *cqe;
    while (io_uring_peek_cqe(&u->ring, &cqe) == 0) {
        struct async_read *read = io_uring_cqe_get_data(cqe);
        *result = cqe->res;
        io_uring_cqe_seen(&u->ring, cqe);
        if (read) return read; /* else it is only the end */
    }
    return NULL;
}

/* Takes in all that the kernel has finished; what is not complete goes on at once.  With the
 * reader's lock, which is let go while contents are checked. */
static void collect(struct uring_crew *u)
{
    struct async_reader *reader = u->crew.reader;
    struct async_read *read;
    int result;
    while ((read = take_finished(u, &result))) {
        const struct read_source *source = &reader->sources[read->file];
        if (source->descriptor < 0) result = -ENOENT; /* a file that is not there */
        if (result == -ECANCELED) result = -EINTR;    /* the thread that began it has ended */
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

/* The scheduler lets a thread that asks for short turns go first when it wakes; a system that
 * does not know this takes no notice.  Who runs under another policy than the usual one is left
 * alone. */
static void take_short_turns(void)
{
    struct {
        uint32_t size, policy;
        uint64_t flags;
        int32_t nice;
        uint32_t priority;
        uint64_t runtime, deadline, period; /* nanoseconds */
    } turns = { .size = sizeof turns };
    if (syscall(SYS_sched_getattr, 0, &turns, sizeof turns, 0) != 0) return;
    if (turns.policy != SCHED_OTHER) return;
    turns.runtime = 100000;
    (void)syscall(SYS_sched_setattr, 0, &turns, 0);
}

static void *work(void *argument)
{
    struct uring_crew *u = argument;
    struct async_reader *reader = u->crew.reader;
    take_short_turns();
    for (bool stop = false; !stop;) {
        struct pollfd finished = { .fd = u->ring.ring_fd, .events = POLLIN };
        (void)poll(&finished, 1, -1); /* the ring itself is for whoever has the lock */
        pthread_mutex_lock(&reader->lock);
        collect(u);
        stop = reader->stop;
        pthread_mutex_unlock(&reader->lock);
    }
    return NULL;
}

/* ---------------------------------------------------------------- functions */

static void uring_wake(struct read_crew *crew, uint32_t room)
{
    struct uring_crew *u = uring_of(crew);
    (void)room;
    if (crew->reader->stop) {
        struct io_uring_sqe *sqe = io_uring_get_sqe(&u->ring);
        assert(sqe);
        io_uring_prep_nop(sqe);
        io_uring_sqe_set_data(sqe, NULL);
    }
    begin_reads(u);
}

static void uring_help(struct read_crew *crew, bool block)
{
    (void)block; /* the thread will tell */
    collect(uring_of(crew));
}

/* The kernel pins the pages, as far as the limit on locked memory allows.  What it refuses
 * once it is not asked again. */
static void uring_lend(struct read_crew *crew, uint32_t tag, void *memory, size_t bytes)
{
    struct uring_crew *u = uring_of(crew);
    struct iovec buffer = { memory, bytes };
    bool wanted = memory != NULL;
    if (tag >= u->table_count || u->lent[tag] == wanted || (wanted && u->refused)) return;
    int done = io_uring_register_buffers_update_tag(&u->ring, tag, &buffer, NULL, 1);
    if (done == 1) u->lent[tag] = wanted;
    u->refused = u->refused || (wanted && done != 1);
}

static void drop_table(struct uring_crew *u)
{
    const mf_allocator *allocator = u->crew.reader->allocator;
    if (u->lent) allocator->release(allocator->user, u->lent, u->table_count * sizeof *u->lent);
}

static void uring_free(struct read_crew *crew)
{
    struct uring_crew *u = uring_of(crew);
    const mf_allocator *allocator = crew->reader->allocator;
    pthread_join(u->thread, NULL);
    io_uring_queue_exit(&u->ring);
    drop_table(u);
    allocator->release(allocator->user, u, sizeof *u);
}

static const struct read_crew_functions uring_functions = {
    .name = "io_uring",
    .wake = uring_wake,
    .free = uring_free,
    .help = uring_help,
    .lend = uring_lend,
};

/* Registered files save the kernel a lookup per read; without them it works too. */
static void register_files(struct uring_crew *u)
{
    int descriptors[FILES_REGISTERED_MAX];
    const struct async_reader *reader = u->crew.reader;
    size_t count = reader->source_count;
    if (2 * count > FILES_REGISTERED_MAX) return;
    for (size_t i = 0; i < count; i++) {
        descriptors[2 * i] = reader->sources[i].direct;
        descriptors[2 * i + 1] = reader->sources[i].descriptor;
    }
    u->files_registered =
        io_uring_register_files(&u->ring, descriptors, (unsigned)(2 * count)) == 0;
}

/* A table for buffers, all empty; without it reads go on as ever. */
static void prepare_buffers(struct uring_crew *u)
{
    const mf_allocator *allocator = u->crew.reader->allocator;
    size_t count = min_size(u->crew.reader->buffer_count, BUFFERS_MAX);
    if (count == 0 || io_uring_register_buffers_sparse(&u->ring, (unsigned)count) != 0) return;
    u->lent = allocator->allocate(allocator->user, count * sizeof *u->lent, CACHE_LINE);
    if (!u->lent) return;
    memset(u->lent, 0, count * sizeof *u->lent);
    u->table_count = count;
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

static mf_status start(struct uring_crew *u, mf_error *why)
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

mf_status read_crew_uring_new(struct read_crew **out, struct async_reader *reader, mf_error *why)
{
    const mf_allocator *allocator = reader->allocator;
    if (!all_have_descriptors(reader))
        return fail(why, MF_ERR_UNSUPPORTED,
                    "io_uring needs files with descriptors; these have none");
    struct uring_crew *u = allocator->allocate(allocator->user, sizeof *u, CACHE_LINE);
    if (!u) return fail_memory(why, sizeof *u);
    *u = (struct uring_crew){ .crew = { &uring_functions, reader } };
    mf_status status = start(u, why);
    if (status != MF_OK) {
        allocator->release(allocator->user, u, sizeof *u);
        return status;
    }
    *out = &u->crew;
    return MF_OK;
}
