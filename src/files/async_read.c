#include "files/async_read.h"

#include "base/clock.h"
#include "base/status.h"
#include "files/async_engine.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

/* ------------------------------------------------------------------ queues */

void read_queue_put(struct read_queue *queue, struct async_read *read)
{
    read->next = NULL;
    if (queue->tail)
        queue->tail->next = read;
    else
        queue->head = read;
    queue->tail = read;
}

struct async_read *read_queue_take(struct read_queue *queue)
{
    struct async_read *read = queue->head;
    if (!read) return NULL;
    queue->head = read->next;
    if (!queue->head) queue->tail = NULL;
    read->next = NULL;
    return read;
}

struct async_read *read_queue_take_all(struct read_queue *queue)
{
    struct async_read *list = queue->head;
    *queue = (struct read_queue){ 0 };
    return list;
}

void read_queue_promote(struct read_queue *ahead, struct read_queue *demand, uint32_t tag)
{
    struct async_read *read = read_queue_take_all(ahead), *next;
    for (; read; read = next) {
        bool moves = read->tag == tag;
        next = read->next;
        if (moves) read->ahead = false;
        read_queue_put(moves ? demand : ahead, read);
    }
}

void read_queue_cancel(struct read_queue *queue, struct read_queue *finished)
{
    for (struct async_read *read; (read = read_queue_take(queue));) {
        read->error = ECANCELED;
        read_queue_put(finished, read);
    }
}

void read_queues_put(struct read_queues *queues, struct async_read *list)
{
    for (struct async_read *read = list, *next; read; read = next) {
        next = read->next;
        read_queue_put(read->ahead ? &queues->ahead : &queues->demand, read);
    }
}

struct async_read *read_queues_start(struct read_queues *queues, uint32_t depth)
{
    if (queues->under_way >= depth) return NULL;
    struct async_read *read = read_queue_take(&queues->demand);
    bool room_ahead = queues->ahead_under_way < depth - depth / 4;
    if (!read && room_ahead) read = read_queue_take(&queues->ahead);
    if (!read) return NULL;
    read->started_at = clock_seconds();
    read->beside = queues->under_way++;
    queues->ahead_under_way += read->ahead;
    return read;
}

void read_queues_stop(struct read_queues *queues, const struct async_read *read)
{
    queues->under_way--;
    queues->ahead_under_way -= read->ahead;
}

/* ----------------------------------------------------------------- results */

/* A second try goes through the plain functions and starts again: what the first
 * one brought may be half of a page that was changing. */
static bool try_again(struct async_read *read, int error)
{
    read->error = error;
    if (read->tried) return false;
    read->tried = true;
    read->done = 0;
    read->error = 0;
    return true;
}

bool read_advance(struct async_read *read, const struct read_source *source, int64_t result)
{
    if (result == -EINTR) return false;
    if (result < 0) return !try_again(read, (int)-result);
    if (result == 0) return !try_again(read, ENODATA);
    size_t done = read->done + (size_t)result;
    if (done >= read->needed) {
        read->done = done;
        return true;
    }
    /* What follows a short direct read must be aligned again. */
    if (read_is_direct(read, source)) done -= done % source->alignment;
    if (done == read->done) return !try_again(read, ENODATA);
    read->done = done;
    return false;
}

void read_leave_no_trace(const struct async_read *read, const struct read_source *source)
{
    if (source->traces == TRACES_ADVICE && !read_is_direct(read, source))
        posix_fadvise(source->descriptor, (off_t)read->offset, (off_t)read->count,
                      POSIX_FADV_DONTNEED);
}

/* ----------------------------------------------------------------- sources */

/* Opening by descriptor finds the file that was opened first, whatever has been
 * renamed or unlinked since. */
static int open_direct(int descriptor)
{
    char path[48];
    snprintf(path, sizeof path, "/proc/self/fd/%d", descriptor);
    return open(path, O_RDONLY | O_CLOEXEC | O_DIRECT);
}

/* What direct reads must be multiples of; 0: there are none. */
static size_t direct_alignment(int descriptor)
{
#ifdef STATX_DIOALIGN
    struct statx info;
    if (statx(descriptor, "", AT_EMPTY_PATH, STATX_DIOALIGN, &info) == 0 &&
        (info.stx_mask & STATX_DIOALIGN))
        return max_size(info.stx_dio_mem_align, info.stx_dio_offset_align);
#endif
    struct stat plain; /* an older kernel does not say: a page is right nearly everywhere */
    return fstat(descriptor, &plain) == 0 ? 4096 : 0;
}

static enum read_traces choose_traces(int descriptor)
{
    char byte;
    struct iovec target = { &byte, 1 };
    bool known = preadv2(descriptor, &target, 1, 0, RWF_DONTCACHE) >= 0;
    return known ? TRACES_FLAG : TRACES_ADVICE;
}

static void open_source(struct read_source *source, const struct file *file,
                        const struct async_reader_options *options)
{
    enum { ALIGNMENT_MAX = 4096 }; /* slots begin at pages */
    *source = (struct read_source){ .file = file, .descriptor = -1, .direct = -1, .alignment = 1 };
    if (!file->handle || !file->files->descriptor) return;
    source->descriptor = file->files->descriptor(file->files->user, file->handle);
    if (source->descriptor < 0) return;
    if (options->uncached) source->traces = choose_traces(source->descriptor);
    size_t alignment = options->direct ? direct_alignment(source->descriptor) : 0;
    if (alignment == 0 || alignment > ALIGNMENT_MAX) return;
    source->direct = open_direct(source->descriptor);
    if (source->direct >= 0) source->alignment = alignment;
}

/* ------------------------------------------------------------------ reader */

mf_status async_reader_begin(struct async_reader **out, size_t bytes,
                             const struct async_reader_functions *functions,
                             const struct async_reader_options *options, mf_error *why)
{
    const mf_allocator *allocator = options->allocator;
    struct async_reader *reader = allocator->allocate(allocator->user, bytes, CACHE_LINE);
    size_t source_bytes = (options->file_count + 1) * sizeof *reader->sources;
    *out = NULL;
    if (!reader) return fail_memory(why, bytes);
    memset(reader, 0, bytes);
    reader->functions = functions;
    reader->allocator = allocator;
    reader->sources = allocator->allocate(allocator->user, source_bytes, CACHE_LINE);
    if (!reader->sources) {
        allocator->release(allocator->user, reader, bytes);
        return fail_memory(why, source_bytes);
    }
    reader->source_count = options->file_count;
    for (size_t i = 0; i < options->file_count; i++)
        open_source(&reader->sources[i], &options->files[i], options);
    *out = reader;
    return MF_OK;
}

void async_reader_end(struct async_reader *reader, size_t bytes)
{
    const mf_allocator *allocator = reader->allocator;
    for (size_t i = 0; i < reader->source_count; i++)
        if (reader->sources[i].direct >= 0) close(reader->sources[i].direct);
    allocator->release(allocator->user, reader->sources,
                       (reader->source_count + 1) * sizeof *reader->sources);
    allocator->release(allocator->user, reader, bytes);
}

mf_status async_reader_new(struct async_reader **out, const struct async_reader_options *options,
                           mf_error *why)
{
    *out = NULL;
    bool plain = options->engine == READ_ENGINE_BEST && !options->direct;
    if (plain || options->engine == READ_ENGINE_THREADS)
        return async_reader_threads_new(out, options, why);
#ifdef MOEFLUX_HAVE_URING
    mf_status status = async_reader_uring_new(out, options, why);
    if (status == MF_OK || options->engine == READ_ENGINE_URING) return status;
#else
    if (options->engine == READ_ENGINE_URING)
        return fail(why, MF_ERR_UNSUPPORTED, "this library was built without io_uring");
#endif
    return async_reader_threads_new(out, options, why);
}

void async_reader_free(struct async_reader *reader)
{
    if (!reader) return;
    while (async_reader_wait(reader, true)) continue;
    reader->functions->free(reader);
}

const char *async_reader_name(const struct async_reader *reader)
{
    return reader->functions->name;
}

size_t async_reader_alignment(const struct async_reader *reader, uint32_t file)
{
    return reader->sources[file].alignment;
}

void async_reader_forget(const struct async_reader *reader)
{
    for (size_t i = 0; i < reader->source_count; i++)
        if (reader->sources[i].descriptor >= 0)
            posix_fadvise(reader->sources[i].descriptor, 0, 0, POSIX_FADV_DONTNEED);
}

void async_reader_submit(struct async_reader *reader, struct async_read *list)
{
    for (struct async_read *read = list; read; read = read->next) {
        read->error = 0;
        read->done = 0;
        read->tried = false;
        reader->outstanding++;
    }
    if (list) reader->functions->submit(reader, list);
}

void async_reader_promote(struct async_reader *reader, uint32_t tag)
{
    if (reader->outstanding > 0) reader->functions->promote(reader, tag);
}

void async_reader_cancel_ahead(struct async_reader *reader)
{
    if (reader->outstanding > 0) reader->functions->cancel_ahead(reader);
}

struct async_read *async_reader_wait(struct async_reader *reader, bool block)
{
    if (reader->outstanding == 0) return NULL;
    struct async_read *list = reader->functions->wait(reader, block);
    for (struct async_read *read = list; read; read = read->next) reader->outstanding--;
    return list;
}
