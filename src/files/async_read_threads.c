/* async_read_threads.c: reads by threads that wait for them.
 *
 * Works with any mf_files.  A thread takes one read at a time and stays with it
 * until it is finished, so the number of threads is the number of reads under way.
 *
 * The lock guards the queues and nothing else; no thread holds it while it reads. */
#include "base/clock.h"
#include "base/status.h"
#include "files/async_engine.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <unistd.h>

enum {
    READ_THREADS = 64, /* the greatest depth */
    DEPTH_AT_FIRST = 8,
    STACK_BYTES = 256 * 1024 /* a thread only waits */
};

struct threads_reader {
    struct async_reader reader;
    pthread_mutex_t lock;
    pthread_cond_t work, done; /* something to do; something is finished */
    struct read_queues queues;
    bool stop;
    pthread_t threads[READ_THREADS];
    unsigned thread_count;
};

static struct threads_reader *threads_of(struct async_reader *reader)
{
    return (struct threads_reader *)reader;
}

/* ----------------------------------------------------------------- threads */

static int64_t attempt(const struct async_read *read, const struct read_source *source)
{
    const struct file *file = source->file;
    uint64_t offset = read->offset + read->done;
    size_t count = read->count - read->done;
    if (!file->handle) return -ENOENT;
    ssize_t got;
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

/* Wakes as many threads as may start a read, and no more. */
static void wake_threads(struct threads_reader *r, size_t reads)
{
    uint32_t depth = read_pace_depth(&r->reader.pace), under_way = r->queues.under_way;
    size_t room = depth > under_way ? depth - under_way : 0;
    for (size_t i = min_size(reads, room); i > 0; i--) pthread_cond_signal(&r->work);
}

/* Finishes a read; without the lock. */
static void carry_out(struct threads_reader *r, struct async_read *read)
{
    const struct read_source *source = &r->reader.sources[read->file];
    while (!read_advance(read, source, attempt(read, source))) continue;
    read_leave_no_trace(read, source);
}

static void *work(void *argument)
{
    struct threads_reader *r = argument;
    pthread_mutex_lock(&r->lock);
    while (!r->stop) {
        struct async_read *read = read_queues_start(&r->queues, read_pace_depth(&r->reader.pace));
        if (!read) {
            pthread_cond_wait(&r->work, &r->lock);
            continue;
        }
        pthread_mutex_unlock(&r->lock);
        carry_out(r, read);
        double seconds = clock_seconds() - read->started_at;
        pthread_mutex_lock(&r->lock);
        uint32_t depth_before = read_pace_depth(&r->reader.pace);
        read_pace_note(&r->reader.pace, read->done, seconds, read->beside);
        read_queues_stop(&r->queues, read);
        if (read_pace_depth(&r->reader.pace) > depth_before) wake_threads(r, READ_THREADS);
        read_queue_put(&r->queues.finished, read);
        pthread_cond_signal(&r->done);
    }
    pthread_mutex_unlock(&r->lock);
    return NULL;
}

/* --------------------------------------------------------------- functions */

static void threads_submit(struct async_reader *reader, struct async_read *list)
{
    struct threads_reader *r = threads_of(reader);
    pthread_mutex_lock(&r->lock);
    size_t reads = 0;
    for (const struct async_read *read = list; read; read = read->next) reads++;
    read_queues_put(&r->queues, list);
    wake_threads(r, reads);
    pthread_mutex_unlock(&r->lock);
}

static void threads_promote(struct async_reader *reader, uint32_t tag)
{
    struct threads_reader *r = threads_of(reader);
    pthread_mutex_lock(&r->lock);
    read_queue_promote(&r->queues.ahead, &r->queues.demand, tag);
    wake_threads(r, READ_THREADS);
    pthread_mutex_unlock(&r->lock);
}

static void threads_cancel_ahead(struct async_reader *reader)
{
    struct threads_reader *r = threads_of(reader);
    pthread_mutex_lock(&r->lock);
    read_queue_cancel(&r->queues.ahead, &r->queues.finished);
    pthread_mutex_unlock(&r->lock);
}

static struct async_read *threads_wait(struct async_reader *reader, bool block)
{
    struct threads_reader *r = threads_of(reader);
    pthread_mutex_lock(&r->lock);
    while (block && !r->queues.finished.head) pthread_cond_wait(&r->done, &r->lock);
    struct async_read *list = read_queue_take_all(&r->queues.finished);
    pthread_mutex_unlock(&r->lock);
    return list;
}

static void threads_free(struct async_reader *reader)
{
    struct threads_reader *r = threads_of(reader);
    pthread_mutex_lock(&r->lock);
    r->stop = true;
    pthread_cond_broadcast(&r->work);
    pthread_mutex_unlock(&r->lock);
    for (unsigned i = 0; i < r->thread_count; i++) pthread_join(r->threads[i], NULL);
    pthread_cond_destroy(&r->done);
    pthread_cond_destroy(&r->work);
    pthread_mutex_destroy(&r->lock);
    async_reader_end(reader, sizeof *r);
}

static const struct async_reader_functions threads_functions = { .name = "threads",
                                                                 .free = threads_free,
                                                                 .submit = threads_submit,
                                                                 .promote = threads_promote,
                                                                 .cancel_ahead =
                                                                     threads_cancel_ahead,
                                                                 .wait = threads_wait };

mf_status async_reader_threads_new(struct async_reader **out,
                                   const struct async_reader_options *options, mf_error *why)
{
    mf_status status =
        async_reader_begin(out, sizeof(struct threads_reader), &threads_functions, options, why);
    if (status != MF_OK) return status;
    struct threads_reader *r = threads_of(*out);
    pthread_attr_t small;
    read_pace_init(&(*out)->pace, DEPTH_AT_FIRST, READ_THREADS);
    pthread_mutex_init(&r->lock, NULL);
    pthread_cond_init(&r->work, NULL);
    pthread_cond_init(&r->done, NULL);
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, STACK_BYTES);
    int problem = 0;
    while (r->thread_count < READ_THREADS) {
        problem = pthread_create(&r->threads[r->thread_count], &small, work, r);
        if (problem) break;
        r->thread_count++;
    }
    pthread_attr_destroy(&small);
    if (r->thread_count > 0) return MF_OK; /* fewer are slower, not wrong */
    threads_free(*out);
    *out = NULL;
    return fail_errno(why, MF_ERR_MEMORY, problem, "no thread that reads could be started");
}
