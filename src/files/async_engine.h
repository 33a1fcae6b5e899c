/* async_engine.h: what the read engines share; for src/files/async_read*.c only. */
#ifndef FILES_ASYNC_ENGINE_H
#define FILES_ASYNC_ENGINE_H

#include "files/async_read.h"

#include <sys/uio.h>

#ifndef RWF_DONTCACHE
#define RWF_DONTCACHE 0x00000080 /* Linux 6.14 */
#endif

/* The ways to one file. */
struct read_source {
    const struct file *file;
    int descriptor;   /* -1: only the file's functions can read it */
    int direct;       /* the same file past the page cache; -1: none */
    size_t alignment; /* of direct reads; 1 when there are none */
    enum read_traces {
        TRACES_STAY,  /* in the page cache, as the kernel likes */
        TRACES_FLAG,  /* RWF_DONTCACHE: pages that were not there before go again */
        TRACES_ADVICE /* an older kernel: it is told afterwards to drop them */
    } traces;
};

/* First in, first out. */
struct read_queue {
    struct async_read *head, *tail;
};

void read_queue_put(struct read_queue *queue, struct async_read *read);
struct async_read *read_queue_take(struct read_queue *queue); /* NULL: empty */

struct async_read *read_queue_take_all(struct read_queue *queue);

/* Reads ahead with this tag go to the end of the queue of demand reads. */
void read_queue_promote(struct read_queue *ahead, struct read_queue *demand, uint32_t tag);

/* What has not started is finished, with ECANCELED. */
void read_queue_cancel(struct read_queue *queue, struct read_queue *finished);

/* What an engine has to start from, and what is under way. */
struct read_queues {
    struct read_queue demand, ahead, finished;
    uint32_t under_way, ahead_under_way;
};

void read_queues_put(struct read_queues *queues, struct async_read *list);

/* The read to start next, which then counts as under way; NULL: none may start. */
struct async_read *read_queues_start(struct read_queues *queues, uint32_t depth);

/* A read is no longer under way. */
void read_queues_stop(struct read_queues *queues, const struct async_read *read);

/* Does the next try of this read go past the page cache? */
static inline bool read_is_direct(const struct async_read *read, const struct read_source *source)
{
    return source->direct >= 0 && !read->tried;
}

/* Where the next try goes on. */
static inline uint8_t *read_target(const struct async_read *read)
{
    return read->out + read->done;
}

/* Takes in the result of one attempt: a count of bytes, or a negative errno value.
 * True when the read is finished, well or not; else it goes on from `done`. */
bool read_advance(struct async_read *read, const struct read_source *source, int64_t result);

/* Once finished: pages that only this read brought leave the page cache. */
void read_leave_no_trace(const struct async_read *read, const struct read_source *source);

mf_status async_reader_threads_new(struct async_reader **out,
                                   const struct async_reader_options *options, mf_error *why);
#ifdef MOEFLUX_HAVE_URING
mf_status async_reader_uring_new(struct async_reader **out,
                                 const struct async_reader_options *options, mf_error *why);
#endif

/* `bytes` of zeroed memory that begin with a reader whose sources are open. */
mf_status async_reader_begin(struct async_reader **out, size_t bytes,
                             const struct async_reader_functions *functions,
                             const struct async_reader_options *options, mf_error *why);
void async_reader_end(struct async_reader *reader, size_t bytes);

#endif
