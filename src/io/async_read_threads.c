/* async_read_threads.c: an engine of threads that read synchronously.
 *
 * Works with any mf_files.  A thread carries out one read at a time, so the number of threads is
 * the largest number of reads that have been in flight. */
#include "base/status.h"
#include "base/thread.h"
#include "io/async_engine.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22 /* Linux 5.14 */
#endif

enum { STACK_BYTES = 256 * 1024 /* these threads mostly sleep in the kernel */ };

struct threads_engine {
    struct read_engine engine;
    pthread_cond_t work; /* a read may start, or the reader stops */
    /* guarded by the reader's lock */
    pthread_t threads[DEPTH_MAX];
    uint32_t thread_count, idle_count;
};

static struct threads_engine *threads_of(struct read_engine *engine)
{
    return (struct threads_engine *)engine;
}

/* Faults the pages of a mapping in, with an error where touching them would raise SIGBUS.  Older
 * kernels: reads the bytes into a scratch buffer, so that at least the page cache has them. */
static int64_t populate(const struct async_read *read, const struct file *file)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), from = (uintptr_t)read->out;
    size_t before = from % page;
    uint8_t scratch[16384];
    if (madvise(read->out - before, read->needed + before, MADV_POPULATE_READ) == 0)
        return (int64_t)read->needed;
    if (errno == EFAULT) return 0; /* the file ends earlier */
    if (errno != EINVAL) return -errno;
    return file->files->read(file->files->user, file->handle, read->offset + read->done, scratch,
                             min_size(read->count - read->done, sizeof scratch));
}

static int64_t attempt(const struct async_read *read, const struct read_source *source)
{
    const struct file *file = source->file;
    uint64_t offset = read->offset + read->done;
    size_t count = read->count - read->done;
    if (!file->handle) return -ENOENT;
    ssize_t got;
    if (read->populate) return populate(read, file);
    if (read_is_direct(read, source)) {
        got = pread(source->direct, read_target(read), count, (off_t)offset);
    } else if (source->traces == TRACES_FLAG) {
        struct iovec target = { read_target(read), count };
        got = preadv2(source->descriptor, &target, 1, (off_t)offset, RWF_DONTCACHE);
    } else {
        return file->files->read(file->files->user, file->handle, offset, read_target(read), count);
    }
    return got < 0 ? -errno : got;
}

/* With the lock held; releases it during the read. */
static void carry_out(struct async_reader *reader, struct async_read *read)
{
    pthread_mutex_unlock(&reader->lock);
    const struct read_source *source = &reader->sources[read->file];
    while (!read_advance(read, source, attempt(read, source))) continue;
    read_leave_no_trace(read, source);
    pthread_mutex_lock(&reader->lock);
    async_reader_finish(reader, read);
}

static void *work(void *argument)
{
    struct threads_engine *t = argument;
    struct async_reader *reader = t->engine.reader;
    pthread_mutex_lock(&reader->lock);
    while (!reader->stop) {
        struct async_read *read = async_reader_take(reader);
        if (!read) {
            t->idle_count++;
            pthread_cond_wait(&t->work, &reader->lock);
            t->idle_count--;
            continue;
        }
        async_reader_wake(reader); /* makes up for a wake-up that found no idle thread */
        carry_out(reader, read);
    }
    pthread_mutex_unlock(&reader->lock);
    return NULL;
}

/* A read from the page cache takes less time than waking a thread. */
static void threads_help(struct read_engine *engine, bool block)
{
    struct async_reader *reader = engine->reader;
    const struct async_read *first = reader->demand.head;
    if (!block || !first || reader->sources[first->file].direct >= 0) return;
    struct async_read *read = async_reader_take(reader);
    if (read) carry_out(reader, read);
}

/* 0 or an errno value. */
static int add_thread(struct threads_engine *t)
{
    pthread_attr_t small;
    if (t->thread_count == DEPTH_MAX) return EAGAIN;
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, STACK_BYTES);
    int problem = thread_start(&t->threads[t->thread_count], &small, work, t);
    pthread_attr_destroy(&small);
    if (problem == 0) t->thread_count++;
    return problem;
}

/* A thread that was just woken may still count as idle; each thread that starts a read wakes again
 * to make up for it. */
static void threads_wake(struct read_engine *engine, uint32_t room)
{
    struct threads_engine *t = threads_of(engine);
    if (engine->reader->stop || room >= t->thread_count)
        pthread_cond_broadcast(&t->work);
    else
        for (uint32_t i = 0; i < room; i++) pthread_cond_signal(&t->work);
    if (engine->reader->stop) return;
    for (uint32_t i = t->idle_count; i < room; i++)
        if (add_thread(t) != 0) return; /* fewer threads are only slower */
}

static void threads_free(struct read_engine *engine)
{
    struct threads_engine *t = threads_of(engine);
    const mf_allocator *allocator = engine->reader->allocator;
    for (uint32_t i = 0; i < t->thread_count; i++) pthread_join(t->threads[i], NULL);
    pthread_cond_destroy(&t->work);
    allocator->release(allocator->user, t, sizeof *t);
}

static const struct read_engine_functions threads_functions = {
    .name = "threads", .wake = threads_wake, .free = threads_free, .help = threads_help
};

mf_status read_engine_threads_new(struct read_engine **out, struct async_reader *reader,
                                  mf_error *why)
{
    const mf_allocator *allocator = reader->allocator;
    struct threads_engine *t = allocator->allocate(allocator->user, sizeof *t, CACHE_LINE);
    if (!t) return fail_memory(why, sizeof *t);
    *t = (struct threads_engine){ .engine = { &threads_functions, reader } };
    pthread_cond_init(&t->work, NULL);
    int problem = add_thread(t);
    if (problem != 0) {
        threads_free(&t->engine); /* there is no thread to join */
        return fail_errno(why, MF_ERR_MEMORY, problem, "no thread that reads could be started");
    }
    *out = &t->engine;
    return MF_OK;
}
