/* async_read.h: asynchronous file reads.
 *
 *     submit ─▶ demand ─┐                                ┌─▶ finished ─▶ wait
 *                       ├─▶ engine: `depth` in flight ───┤
 *     submit ─▶ ahead ──┘   (threads | io_uring)         └─▶ retried once after a failure
 *
 * The engine keeps `depth` reads in flight while the caller computes; the depth adapts to the
 * device (read_pace.h).  The engine follows from how files are read: io_uring for direct reads;
 * threads for reads through the page cache, because io_uring copies from the page cache in the
 * one thread that submits.  A read-ahead starts only when no demand read waits, and read-aheads
 * never fill the whole depth.
 *
 * Error handling: a short read is continued and an interrupted read repeated.  Any other error,
 * and an unexpected end of file, gets one more attempt through the file's own functions; if that
 * fails too, the read is returned with an error.
 *
 * Direct reads bypass the page cache and need offset, count and memory at multiples of the file's
 * alignment, so callers extend them to such multiples; `needed` says how many of the bytes must
 * arrive, because the end of a file is not aligned.
 *
 * Lifetime: the reader borrows a read and its memory from submit until wait returns it.
 * Threads: a reader has one owner thread at a time; the engine's threads are internal. */
#ifndef IO_ASYNC_READ_H
#define IO_ASYNC_READ_H

#include "base/file.h"

struct async_read {
    uint32_t file;   /* index into the reader's files */
    uint32_t tag;    /* the caller's; reads with the same tag are promoted together */
    uint64_t offset; /* offset, count and out: multiples of the file's alignment */
    size_t count;
    uint8_t *out;
    size_t needed; /* ≤ count: fewer bytes are an error */
    bool ahead;
    bool populate; /* `out` is the file's mapping: fault its pages in, copy nothing; threads only */

    /* Validates the bytes: 0, or an errno value, which counts as an error of the read.  Called on
     * the engine's threads; may be NULL. */
    int (*check)(const struct async_read *read);
    const void *check_user;

    int error; /* result: 0 or an errno value; ENODATA: the file ends too early */

    /* internal */
    size_t done;     /* bytes that have arrived */
    bool tried;      /* one attempt has failed */
    uint8_t *staged; /* bounce buffer of this read; NULL: none */
    double started_at;
    uint32_t beside; /* other reads in flight at the start */
    struct async_read *next;
};

struct async_reader;
struct read_engine;
struct clock;

/* Makes an engine (async_engine.h); tests inject theirs. */
typedef mf_status (*read_engine_factory)(struct read_engine **out, struct async_reader *reader,
                                         mf_error *why);

enum read_engine_kind { READ_ENGINE_BEST, READ_ENGINE_THREADS, READ_ENGINE_URING };

struct async_reader_options {
    const mf_allocator *allocator;
    const struct file *files; /* borrowed; must stay open and in place */
    size_t file_count;
    enum read_engine_kind engine;
    bool direct;               /* bypass the page cache where the file allows it … */
    const size_t *alignments;  /* … [files] as async_read_alignment says; NULL: asked for */
    bool uncached;             /* reads through the page cache leave no pages of their own behind */
    const struct clock *clock; /* NULL: the system clock */
    read_engine_factory factory; /* NULL: as `engine` says */
    size_t buffer_count;         /* tags 0 … buffer_count-1 may have a registered buffer */
};

struct read_activity {
    const char *engine; /* "threads", "io_uring" */
    uint32_t depth;
    uint64_t reads, retries;
    uint64_t bytes;
    double seconds; /* in which at least one read was in flight */
    bool staged;    /* reads pass through bounce buffers */
};

/* READ_ENGINE_BEST: io_uring for direct reads if the files have descriptors and the kernel
 * allows it, else threads.  READ_ENGINE_URING fails where io_uring is not available. */
mf_status async_reader_new(struct async_reader **out, const struct async_reader_options *options,
                           mf_error *why);

/* Waits for reads in flight and drops their results.  NULL is legal. */
void async_reader_free(struct async_reader *reader);

/* Totals since the reader was made. */
void async_reader_activity(struct async_reader *reader, struct read_activity *out);

/* Reads submitted and not yet returned by wait. */
size_t async_reader_outstanding(const struct async_reader *reader);

/* Alignment that direct reads of a file need; 1: it can only be read through the page cache. */
size_t async_read_alignment(const struct file *file);

/* Alignment of direct reads of this file; 1: the file is read through the page cache. */
size_t async_reader_alignment(const struct async_reader *reader, uint32_t file);

/* Drops the files' pages from the page cache. */
void async_reader_forget(const struct async_reader *reader);

/* All reads with this tag go into this memory, so that the kernel can pin its pages once.  The
 * memory must stay until it is unregistered, when no such read is outstanding, or until the reader
 * is freed.  If the kernel refuses to pin it, reads work without. */
void async_reader_register_buffer(struct async_reader *reader, uint32_t tag, void *memory,
                                  size_t bytes);
void async_reader_unregister_buffer(struct async_reader *reader, uint32_t tag);

/* Lets reads of at most `read_bytes` pass through `count` bounce buffers where that is faster
 * (read_stage.h); 0 switches staging off.  No read may be outstanding. */
void async_reader_stage(struct async_reader *reader, size_t read_bytes, size_t count);

/* Submits a list linked by `next`, in the order in which reads are to start.  Never fails: a read
 * that cannot be started is returned with an error. */
void async_reader_submit(struct async_reader *reader, struct async_read *list);

/* Read-aheads with this tag that have not started become demand reads. */
void async_reader_promote(struct async_reader *reader, uint32_t tag);

/* Read-aheads that have not started are returned with ECANCELED. */
void async_reader_cancel_ahead(struct async_reader *reader);

/* The finished reads, linked by `next`; NULL when there are none.  With `block`, waits for one
 * unless nothing is outstanding. */
struct async_read *async_reader_wait(struct async_reader *reader, bool block);

#endif
