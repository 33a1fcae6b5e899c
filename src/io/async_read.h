/* async_read.h: reads that go on while the caller computes.
 *
 *     submit ─▶ demand ─┐                             ┌─▶ finished ─▶ wait
 *                       ├─▶ a crew: `depth` at a time ┤
 *     submit ─▶ ahead ──┘   (threads | io_uring)      └─▶ once more, if it failed
 *
 * A crew works on its own: the disk has always `depth` reads to do, whatever the
 * caller does meanwhile.  The depth adapts to the device (read_pace.h), and where both
 * crews can be had the first reads tell which is faster (read_choice.h).  A read-ahead
 * starts only when no demand read waits; reads ahead never take the whole depth.
 *
 * What can go wrong is handled here.  A short read is continued, an interrupted
 * one repeated; any other error, and an end of file that comes too early, gets
 * one more try through the file's plain functions; only then the read comes back
 * with an error.
 *
 * Direct reads go past the page cache and need offset, count and memory at
 * multiples of the file's alignment, so callers round them out; `needed` says how
 * much of a rounded read must arrive, for the end of a file has no alignment.
 *
 * Lifetime: a read and its memory are lent from submit until wait gives it back.
 * Threads: a reader has one owner; what it runs itself is its own affair. */
#ifndef IO_ASYNC_READ_H
#define IO_ASYNC_READ_H

#include "base/file.h"

struct async_read {
    uint32_t file;   /* index into the reader's files */
    uint32_t tag;    /* the caller's: names the reads that are promoted together */
    uint64_t offset; /* these three at multiples of the file's alignment */
    size_t count;
    uint8_t *out;
    size_t needed; /* ≤ count: that many bytes or it has failed */
    bool ahead;
    bool populate; /* `out` is the file's mapping: its pages are brought in, nothing is copied;
                      only by threads */

    /* Are the bytes right?  0, or an errno value, which counts as an error of the read.
     * Called by the crew's threads; NULL: whatever comes is right. */
    int (*check)(const struct async_read *read);
    const void *check_user;

    int error; /* when it is back: 0, or an errno value; ENODATA: the file ends too early */

    /* the crew's */
    size_t done;     /* bytes that have arrived */
    bool tried;      /* one try has failed */
    uint8_t *staged; /* the buffer that it passes through; NULL: none */
    double started_at;
    uint32_t beside; /* reads that were under way then */
    struct async_read *next;
};

struct async_reader;
struct read_crew;
struct clock;

/* Hires a crew that is not known here; for tests (async_engine.h). */
typedef mf_status (*read_crew_function)(struct read_crew **out, struct async_reader *reader,
                                        mf_error *why);

enum read_engine { READ_ENGINE_BEST, READ_ENGINE_THREADS, READ_ENGINE_URING };

struct async_reader_options {
    const mf_allocator *allocator;
    const struct file *files; /* borrowed, stay open and in place */
    size_t file_count;
    enum read_engine engine;
    bool direct;   /* past the page cache where the file allows it */
    bool uncached; /* bytes read through the page cache do not stay there because of us */
    const struct clock *clock; /* NULL: the real one */
    read_crew_function hire;   /* NULL: as `engine` says */
    size_t buffer_count;       /* tags that memory may be lent for, from 0 */
};

/* What the disk has done. */
struct read_activity {
    const char *engine; /* "threads", "io_uring" */
    uint32_t depth;
    uint64_t reads, retries;
    uint64_t bytes;
    double seconds; /* in which at least one read was under way */
    bool staged;    /* reads pass through buffers */
};

/* READ_ENGINE_BEST: for direct reads, if the files have descriptors and the kernel lets
 * us, io_uring or threads, whichever is faster; else threads, because io_uring copies
 * from the page cache in the one thread that submits.  Asking for io_uring where it
 * cannot be had is an error. */
mf_status async_reader_new(struct async_reader **out, const struct async_reader_options *options,
                           mf_error *why);

/* Waits for what is under way; those reads are given up.  NULL is legal. */
void async_reader_free(struct async_reader *reader);

/* Since the reader was made. */
void async_reader_activity(struct async_reader *reader, struct read_activity *out);

/* Reads that were submitted and not yet given back. */
size_t async_reader_outstanding(const struct async_reader *reader);

/* What direct reads of this file must be multiples of; 1: it is read plainly. */
size_t async_reader_alignment(const struct async_reader *reader, uint32_t file);

/* What the page cache holds of the files leaves it. */
void async_reader_forget(const struct async_reader *reader);

/* All reads with this tag will go into this memory: the kernel need not look for its pages
 * every time.  It stays in place until it is taken back, when no such read is outstanding;
 * freeing the reader takes back all.  Memory that cannot be locked is read into as ever. */
void async_reader_lend(struct async_reader *reader, uint32_t tag, void *memory, size_t bytes);
void async_reader_take_back(struct async_reader *reader, uint32_t tag);

/* Reads of at most `read_bytes` may pass through as many buffers where that is faster
 * (read_stage.h); 0: they all go to their places.  No read may be outstanding. */
void async_reader_stage(struct async_reader *reader, size_t read_bytes, size_t count);

/* A list linked by `next`, first to be started first.  Never fails: what cannot be
 * started comes back with an error. */
void async_reader_submit(struct async_reader *reader, struct async_read *list);

/* Reads ahead with this tag that have not started become demand reads. */
void async_reader_promote(struct async_reader *reader, uint32_t tag);

/* Reads ahead that have not started come back with ECANCELED. */
void async_reader_cancel_ahead(struct async_reader *reader);

/* The reads that are finished, linked by `next`; NULL when there are none.  With
 * `block`, waits for one unless nothing is outstanding. */
struct async_read *async_reader_wait(struct async_reader *reader, bool block);

#endif
