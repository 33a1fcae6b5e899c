/* async_read_threads.c: reads by threads that wait for them.
 *
 * Works with any mf_files.  A thread takes one read at a time and stays with it until it
 * is finished, so there are as many threads as reads have ever been under way at a time. */
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

enum { STACK_BYTES = 256 * 1024 /* a thread only waits */ };

struct threads_crew {
    struct read_crew crew;
    pthread_cond_t work; /* something to do */
    /* all of these with the reader's lock */
    pthread_t threads[DEPTH_MAX];
    uint32_t thread_count, idle_count;
};

static struct threads_crew *threads_of(struct read_crew *crew)
{
    return (struct threads_crew *)crew;
}

/* The pages of a mapping, as if they had been touched, but with an error where that would
 * kill.  An older kernel reads them somewhere else: then they are near, at least. */
static int64_t populate(const struct async_read *read, const struct file *file)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), from = (uintptr_t)read->out;
    size_t before = from % page;
    uint8_t scratch[16384];
    if (madvise(read->out - before, read->needed + before, MADV_POPULATE_READ) == 0)
        return (int64_t)read->needed;
    if (errno == EFAULT) return 0; /* the file ends before */
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

/* With the lock, which is let go while the read lasts. */
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
    struct threads_crew *t = argument;
    struct async_reader *reader = t->crew.reader;
    pthread_mutex_lock(&reader->lock);
    while (!async_reader_dismisses(reader, &t->crew)) {
        struct async_read *read = async_reader_take(reader, &t->crew);
        if (!read) {
            t->idle_count++;
            pthread_cond_wait(&t->work, &reader->lock);
            t->idle_count--;
            continue;
        }
        async_reader_wake(reader); /* who was woken with this thread may be busy by now */
        carry_out(reader, read);
    }
    pthread_mutex_unlock(&reader->lock);
    return NULL;
}

/* A read from the page cache takes less time than waking a thread for it. */
static void threads_help(struct read_crew *crew, bool block)
{
    struct async_reader *reader = crew->reader;
    const struct async_read *first = reader->demand.head;
    if (!block || !first || reader->sources[first->file].direct >= 0) return;
    struct async_read *read = async_reader_take(reader, crew);
    if (read) carry_out(reader, read);
}

/* 0, or the errno value of why there is not one more. */
static int add_thread(struct threads_crew *t)
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

/* Who was woken a moment ago may still count as idle: whoever begins a read makes up for it. */
static void threads_wake(struct read_crew *crew, uint32_t room)
{
    struct threads_crew *t = threads_of(crew);
    if (crew->reader->stop || room >= t->thread_count)
        pthread_cond_broadcast(&t->work);
    else
        for (uint32_t i = 0; i < room; i++) pthread_cond_signal(&t->work);
    if (async_reader_dismisses(crew->reader, crew)) return;
    for (uint32_t i = t->idle_count; i < room; i++)
        if (add_thread(t) != 0) return; /* fewer are slower, not wrong */
}

static void threads_free(struct read_crew *crew)
{
    struct threads_crew *t = threads_of(crew);
    const mf_allocator *allocator = crew->reader->allocator;
    for (uint32_t i = 0; i < t->thread_count; i++) pthread_join(t->threads[i], NULL);
    pthread_cond_destroy(&t->work);
    allocator->release(allocator->user, t, sizeof *t);
}

static const struct read_crew_functions threads_functions = {
    .name = "threads", .wake = threads_wake, .free = threads_free, .help = threads_help
};

mf_status read_crew_threads_new(struct read_crew **out, struct async_reader *reader, mf_error *why)
{
    const mf_allocator *allocator = reader->allocator;
    struct threads_crew *t = allocator->allocate(allocator->user, sizeof *t, CACHE_LINE);
    if (!t) return fail_memory(why, sizeof *t);
    *t = (struct threads_crew){ .crew = { &threads_functions, reader } };
    pthread_cond_init(&t->work, NULL);
    int problem = add_thread(t);
    if (problem != 0) {
        threads_free(&t->crew); /* joins nobody */
        return fail_errno(why, MF_ERR_MEMORY, problem, "no thread that reads could be started");
    }
    *out = &t->crew;
    return MF_OK;
}
