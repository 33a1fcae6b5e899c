/* async_engine.h: what the reader and its engines share; for src/io/async_read*.c only. */
#ifndef IO_ASYNC_ENGINE_H
#define IO_ASYNC_ENGINE_H

#include "io/async_read.h"
#include "io/read_pace.h"
#include "io/read_stage.h"

#include <pthread.h>
#include <sys/uio.h>

enum {
    DEPTH_MAX = 256,
    DEPTH_AT_FIRST = 8,
    /* With busy cores a completion is noticed late; extra depth keeps the disk busy meanwhile. */
    DEPTH_MIN = 4,
};

#ifndef RWF_DONTCACHE
#define RWF_DONTCACHE 0x00000080 /* Linux 6.14 */
#endif

/* The ways to read one file. */
struct read_source {
    const struct file *file;
    int descriptor;   /* -1: readable through the file's functions only */
    int direct;       /* descriptor opened with O_DIRECT; -1: none */
    size_t alignment; /* of direct reads; 1 when there are none */
    enum read_traces {
        TRACES_STAY,  /* pages stay in the page cache */
        TRACES_FLAG,  /* RWF_DONTCACHE: the kernel drops pages that the read brought in */
        TRACES_ADVICE /* older kernels: POSIX_FADV_DONTNEED after the read */
    } traces;
};

/* First in, first out. */
struct read_queue {
    struct async_read *head, *tail;
    uint32_t count;
};

/* Takes reads from the reader's queues and carries them out. */
struct read_engine {
    const struct read_engine_functions {
        const char *name;
        /* Up to `room` more reads may start, or the reader is stopping.  With the reader's
         * lock held. */
        void (*wake)(struct read_engine *engine, uint32_t room);
        /* The reader is stopping, and nothing is in flight. */
        void (*free)(struct read_engine *engine);
        /* The owner looks for finished reads; with `block` there are none yet and the owner would
         * sleep, so the engine may read on the owner's thread.  With the lock held, which may be
         * released meanwhile.  May be NULL. */
        void (*help)(struct read_engine *engine, bool block);
        /* See async_reader_register_buffer; NULL memory unregisters.  Called by the owner without
         * the lock.  May be NULL. */
        void (*register_buffer)(struct read_engine *engine, uint32_t tag, void *memory,
                                size_t bytes);
    } * functions;
    struct async_reader *reader;
};

struct async_reader {
    const mf_allocator *allocator;
    struct read_source *sources; /* [source_count], one for each file */
    size_t source_count;
    const struct clock *clock;
    size_t buffer_count;
    size_t outstanding; /* submitted and not yet returned; owner thread only */
    struct read_engine *engine;

    /* Guards what follows; never held during a read. */
    pthread_mutex_t lock;
    pthread_cond_t done; /* `finished` has grown */
    struct read_queue demand, ahead, finished;
    uint32_t under_way, ahead_under_way;
    struct read_pace pace;
    struct read_stage stage;
    bool stop;
    uint64_t reads, retries, bytes; /* totals */
    double busy_seconds, busy_since;
};

/* With the lock: the next read to start, which then counts as in flight; NULL: none may start. */
struct async_read *async_reader_take(struct async_reader *reader);

/* With the lock: wakes the engine if a read may start. */
void async_reader_wake(struct async_reader *reader);

/* With the lock: a read in flight has succeeded or failed. */
void async_reader_finish(struct async_reader *reader, struct async_read *read);

/* Whether the next attempt bypasses the page cache. */
static inline bool read_is_direct(const struct async_read *read, const struct read_source *source)
{
    return source->direct >= 0 && !read->tried;
}

/* Where the next attempt writes. */
static inline uint8_t *read_target(const struct async_read *read)
{
    return read->staged ? read->staged : read->out + read->done;
}

/* Handles the result of one attempt: a byte count or a negative errno value.  True when the read
 * has succeeded or failed; otherwise it continues from `done`. */
bool read_advance(struct async_read *read, const struct read_source *source, int64_t result);

/* After the last attempt: drops the pages that this read brought into the page cache. */
void read_leave_no_trace(const struct async_read *read, const struct read_source *source);

/* Reads through the files' own functions; works with any mf_files. */
mf_status read_engine_threads_new(struct read_engine **out, struct async_reader *reader,
                                  mf_error *why);
#ifdef MOEFLUX_HAVE_URING
mf_status read_engine_uring_new(struct read_engine **out, struct async_reader *reader,
                                mf_error *why);
#endif

#endif
