/* async_engine.h: what the reader and its crews share; for src/io only. */
#ifndef IO_ASYNC_ENGINE_H
#define IO_ASYNC_ENGINE_H

#include "io/async_read.h"
#include "io/read_choice.h"
#include "io/read_pace.h"
#include "io/read_stage.h"

#include <pthread.h>
#include <sys/uio.h>

enum {
    DEPTH_MAX = 256,
    DEPTH_AT_FIRST = 8,
    DEPTH_MIN = 4, /* who collects one comes late when all cores compute; others bridge that */
};

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
    uint32_t count;
};

void read_queue_put(struct read_queue *queue, struct async_read *read);
struct async_read *read_queue_take(struct read_queue *queue); /* NULL: empty */

/* Who carries reads out: takes them from the reader's queues whenever it may. */
struct read_crew {
    const struct read_crew_functions {
        const char *name;
        /* There is something to do for up to `room` more reads under way, or the reader
         * is stopping.  With the reader's lock held. */
        void (*wake)(struct read_crew *crew, uint32_t room);
        /* The reader is stopping, and nothing is under way. */
        void (*free)(struct read_crew *crew);
        /* The owner looks for finished reads, and with `block` there are none yet and it has
         * nothing else to do: it may carry reads out itself.  With the lock, which may be
         * let go meanwhile.  NULL: it can be of no help. */
        void (*help)(struct read_crew *crew, bool block);
        /* See async_reader_lend; NULL memory takes it back.  By the owner, without the
         * lock.  NULL: of no use here. */
        void (*lend)(struct read_crew *crew, uint32_t tag, void *memory, size_t bytes);
    } * functions;
    struct async_reader *reader;
};

struct async_reader {
    const mf_allocator *allocator;
    struct read_source *sources; /* [source_count], one for each file */
    size_t source_count;
    const struct clock *clock;
    size_t buffer_count;
    size_t outstanding; /* submitted and not yet given back; the owner's */
    struct read_crew *crews[CHOICE_WAYS];
    uint32_t crew_count;

    /* Guards what follows.  Nobody holds it while he waits for a read. */
    pthread_mutex_t lock;
    pthread_cond_t done; /* something is finished */
    struct read_queue demand, ahead, finished;
    uint32_t under_way, ahead_under_way;
    struct read_pace pace;
    struct read_choice choice; /* of the crew */
    struct read_stage stage;
    bool stop;
    uint64_t reads, retries, bytes; /* so far */
    double busy_seconds, busy_since;
};

/* With the lock: the read to start next, which then counts as under way; NULL: none may
 * start now, or it is the other crew's turn. */
struct async_read *async_reader_take(struct async_reader *reader, const struct read_crew *crew);

/* With the lock: wakes those of the crew that may begin a read. */
void async_reader_wake(struct async_reader *reader);

/* With the lock: a read that was under way is finished, well or not. */
void async_reader_finish(struct async_reader *reader, struct async_read *read);

/* Does a crew have nothing to come back for?  With the lock. */
bool async_reader_dismisses(const struct async_reader *reader, const struct read_crew *crew);

/* Does the next try of this read go past the page cache? */
static inline bool read_is_direct(const struct async_read *read, const struct read_source *source)
{
    return source->direct >= 0 && !read->tried;
}

/* Where the next try goes on. */
static inline uint8_t *read_target(const struct async_read *read)
{
    return read->staged ? read->staged : read->out + read->done;
}

/* Takes in the result of one attempt: a count of bytes, or a negative errno value.
 * True when the read is finished, well or not; else it goes on from `done`. */
bool read_advance(struct async_read *read, const struct read_source *source, int64_t result);

/* Once finished: pages that only this read brought leave the page cache. */
void read_leave_no_trace(const struct async_read *read, const struct read_source *source);

/* Reads through whatever functions the files have. */
mf_status read_crew_threads_new(struct read_crew **out, struct async_reader *reader, mf_error *why);
#ifdef MOEFLUX_HAVE_URING
mf_status read_crew_uring_new(struct read_crew **out, struct async_reader *reader, mf_error *why);
#endif

#endif
