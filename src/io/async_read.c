#include "io/async_read.h"

#include "base/clock.h"
#include "base/status.h"
#include "io/async_engine.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

/* ------------------------------------------------------------------ queues */

static void read_queue_put(struct read_queue *queue, struct async_read *read)
{
    read->next = NULL;
    if (queue->tail)
        queue->tail->next = read;
    else
        queue->head = read;
    queue->tail = read;
    queue->count++;
}

/* NULL: empty. */
static struct async_read *read_queue_take(struct read_queue *queue)
{
    struct async_read *read = queue->head;
    if (!read) return NULL;
    queue->head = read->next;
    if (!queue->head) queue->tail = NULL;
    queue->count--;
    read->next = NULL;
    return read;
}

static struct async_read *take_all(struct read_queue *queue)
{
    struct async_read *list = queue->head;
    *queue = (struct read_queue){ 0 };
    return list;
}

/* --------------------------------------------------------- for the engines */

/* Seconds in which a read was in flight. */
static double busy_seconds(const struct async_reader *r, double now)
{
    return r->busy_seconds + (r->under_way > 0 ? now - r->busy_since : 0);
}

struct async_read *async_reader_take(struct async_reader *r)
{
    uint32_t depth = read_pace_depth(&r->pace);
    if (r->under_way >= depth) return NULL;
    struct async_read *read = read_queue_take(&r->demand);
    bool room_ahead = r->ahead_under_way < depth - depth / 4;
    if (!read && room_ahead) read = read_queue_take(&r->ahead);
    if (!read) return NULL;
    read->staged = read->populate ? NULL : read_stage_take(&r->stage, read->count);
    read->started_at = clock_now(r->clock);
    if (r->under_way == 0) r->busy_since = read->started_at;
    read->beside = r->under_way++;
    r->ahead_under_way += read->ahead;
    return read;
}

void async_reader_wake(struct async_reader *r)
{
    uint32_t depth = read_pace_depth(&r->pace);
    uint32_t room = depth > r->under_way ? depth - r->under_way : 0;
    uint32_t waiting = r->demand.count + r->ahead.count;
    if (room > 0 && waiting > 0)
        r->engine->functions->wake(r->engine, room < waiting ? room : waiting);
}

/* Measures first whether to stage, then how many reads to keep in flight. */
static void learn_from(struct async_reader *r, const struct async_read *read, double now)
{
    uint32_t depth = read_pace_depth(&r->pace);
    bool settled = read_stage_is_settled(&r->stage);
    read_stage_note(&r->stage, r->bytes, r->busy_seconds);
    if (settled) read_pace_note(&r->pace, read->done, now - read->started_at, read->beside);
    if (read_pace_depth(&r->pace) > depth) async_reader_wake(r);
}

void async_reader_finish(struct async_reader *r, struct async_read *read)
{
    double now = clock_now(r->clock);
    r->busy_seconds = busy_seconds(r, now);
    r->busy_since = now;
    r->under_way--;
    r->ahead_under_way -= read->ahead;
    r->reads++;
    r->retries += read->tried;
    r->bytes += min_size(read->done, read->count);
    read_stage_give_back(&r->stage, read->staged);
    read->staged = NULL;
    learn_from(r, read, now);
    read_queue_put(&r->finished, read);
    pthread_cond_signal(&r->done);
}

/* ----------------------------------------------------------------- results */

/* The second attempt goes through the file's functions and starts from the beginning: the first
 * may have returned part of a page that was being written. */
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
    if (read->staged) read_stage_copy(read->out + read->done, read->staged, (size_t)result);
    size_t done = read->done + (size_t)result;
    if (done >= read->needed) {
        int problem = read->check ? read->check(read) : 0;
        if (problem) return !try_again(read, problem);
        read->done = done;
        return true;
    }
    /* The rest of a short direct read must be aligned again. */
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

/* Reopens by descriptor: the path may have been renamed or unlinked since. */
static int open_direct(int descriptor)
{
    char path[48];
    snprintf(path, sizeof path, "/proc/self/fd/%d", descriptor);
    return open(path, O_RDONLY | O_CLOEXEC | O_DIRECT);
}

/* Alignment of direct reads; 0: not supported. */
static size_t direct_alignment(int descriptor)
{
#ifdef STATX_DIOALIGN
    struct statx info;
    if (statx(descriptor, "", AT_EMPTY_PATH, STATX_DIOALIGN, &info) == 0 &&
        (info.stx_mask & STATX_DIOALIGN))
        return max_size(info.stx_dio_mem_align, info.stx_dio_offset_align);
#endif
    struct stat plain; /* older kernels do not report it; a page is nearly always enough */
    return fstat(descriptor, &plain) == 0 ? 4096 : 0;
}

static enum read_traces choose_traces(int descriptor)
{
    char byte;
    struct iovec target = { &byte, 1 };
    bool known = preadv2(descriptor, &target, 1, 0, RWF_DONTCACHE) >= 0;
    return known ? TRACES_FLAG : TRACES_ADVICE;
}

/* -1: none. */
static int descriptor_of(const struct file *file)
{
    if (!file->handle || !file->files->descriptor) return -1;
    return file->files->descriptor(file->files->user, file->handle);
}

size_t async_read_alignment(const struct file *file)
{
    enum { ALIGNMENT_MAX = 4096 }; /* slots begin at pages */
    int descriptor = descriptor_of(file);
    size_t alignment = descriptor < 0 ? 0 : direct_alignment(descriptor);
    if (alignment == 0 || alignment > ALIGNMENT_MAX) return 1;
    int direct = open_direct(descriptor);
    if (direct < 0) return 1;
    close(direct);
    return alignment;
}

static void open_source(struct read_source *source, const struct async_reader_options *options,
                        size_t index)
{
    const struct file *file = &options->files[index];
    *source = (struct read_source){ .file = file, .descriptor = -1, .direct = -1, .alignment = 1 };
    source->descriptor = descriptor_of(file);
    if (source->descriptor < 0) return;
    if (options->uncached) source->traces = choose_traces(source->descriptor);
    if (!options->direct) return;
    size_t alignment =
        options->alignments ? options->alignments[index] : async_read_alignment(file);
    if (alignment == 1) return;
    source->direct = open_direct(source->descriptor);
    if (source->direct >= 0) source->alignment = alignment;
}

/* ------------------------------------------------------------------ reader */

static mf_status open_sources(struct async_reader *r, const struct async_reader_options *options,
                              mf_error *why)
{
    const mf_allocator *allocator = options->allocator;
    size_t bytes = (options->file_count + 1) * sizeof *r->sources;
    r->sources = allocator->allocate(allocator->user, bytes, CACHE_LINE);
    if (!r->sources) return fail_memory(why, bytes);
    r->source_count = options->file_count;
    for (size_t i = 0; i < options->file_count; i++) open_source(&r->sources[i], options, i);
    return MF_OK;
}

static mf_status open_uring(struct async_reader *r, mf_error *why)
{
#ifdef MOEFLUX_HAVE_URING
    return read_engine_uring_new(&r->engine, r, why);
#else
    (void)r;
    return fail(why, MF_ERR_UNSUPPORTED, "this library was built without io_uring");
#endif
}

/* io_uring for direct reads, else threads, unless the caller asks for one of them. */
static mf_status open_engine(struct async_reader *r, const struct async_reader_options *options,
                             mf_error *why)
{
    if (options->factory) return options->factory(&r->engine, r, why);
    if (options->engine == READ_ENGINE_URING) return open_uring(r, why);
    bool uring = options->engine == READ_ENGINE_BEST && options->direct;
    if (uring && open_uring(r, NULL) == MF_OK) return MF_OK;
    return read_engine_threads_new(&r->engine, r, why);
}

mf_status async_reader_new(struct async_reader **out, const struct async_reader_options *options,
                           mf_error *why)
{
    const mf_allocator *allocator = options->allocator;
    struct async_reader *r = allocator->allocate(allocator->user, sizeof *r, CACHE_LINE);
    *out = NULL;
    if (!r) return fail_memory(why, sizeof *r);
    *r = (struct async_reader){ .allocator = allocator,
                                .clock = options->clock,
                                .buffer_count = options->buffer_count };
    pthread_mutex_init(&r->lock, NULL);
    pthread_cond_init(&r->done, NULL);
    read_pace_init(&r->pace, DEPTH_MIN, DEPTH_AT_FIRST, DEPTH_MAX);
    mf_status status = open_sources(r, options, why);
    pthread_mutex_lock(&r->lock); /* the engine starts when the reader is complete */
    if (status == MF_OK) status = open_engine(r, options, why);
    read_stage_init(&r->stage, allocator, 0, 0);
    pthread_mutex_unlock(&r->lock);
    if (status != MF_OK) {
        async_reader_free(r);
        return status;
    }
    *out = r;
    return MF_OK;
}

static void stop_engine(struct async_reader *r)
{
    if (!r->engine) return;
    pthread_mutex_lock(&r->lock);
    r->stop = true;
    r->engine->functions->wake(r->engine, DEPTH_MAX);
    pthread_mutex_unlock(&r->lock);
    r->engine->functions->free(r->engine);
}

void async_reader_free(struct async_reader *r)
{
    if (!r) return;
    const mf_allocator *allocator = r->allocator;
    async_reader_cancel_ahead(r);
    while (async_reader_wait(r, true)) continue;
    stop_engine(r);
    for (size_t i = 0; i < r->source_count; i++)
        if (r->sources[i].direct >= 0) close(r->sources[i].direct);
    if (r->sources)
        allocator->release(allocator->user, r->sources, (r->source_count + 1) * sizeof *r->sources);
    read_stage_free(&r->stage, allocator);
    pthread_cond_destroy(&r->done);
    pthread_mutex_destroy(&r->lock);
    allocator->release(allocator->user, r, sizeof *r);
}

void async_reader_activity(struct async_reader *r, struct read_activity *out)
{
    pthread_mutex_lock(&r->lock);
    *out = (struct read_activity){ .engine = r->engine->functions->name,
                                   .depth = read_pace_depth(&r->pace),
                                   .reads = r->reads,
                                   .retries = r->retries,
                                   .bytes = r->bytes,
                                   .seconds = busy_seconds(r, clock_now(r->clock)),
                                   .staged = r->stage.active };
    pthread_mutex_unlock(&r->lock);
}

size_t async_reader_outstanding(const struct async_reader *reader)
{
    return reader->outstanding;
}

size_t async_reader_alignment(const struct async_reader *reader, uint32_t file)
{
    return reader->sources[file].alignment;
}

void async_reader_forget(const struct async_reader *reader)
{
    for (size_t i = 0; i < reader->source_count; i++) file_forget(reader->sources[i].file);
}

void async_reader_register_buffer(struct async_reader *r, uint32_t tag, void *memory, size_t bytes)
{
    const struct read_engine_functions *functions = r->engine->functions;
    if (functions->register_buffer && tag < r->buffer_count)
        functions->register_buffer(r->engine, tag, memory, bytes);
}

void async_reader_unregister_buffer(struct async_reader *r, uint32_t tag)
{
    async_reader_register_buffer(r, tag, NULL, 0);
}

void async_reader_stage(struct async_reader *r, size_t read_bytes, size_t count)
{
    pthread_mutex_lock(&r->lock);
    read_stage_free(&r->stage, r->allocator);
    read_stage_init(&r->stage, r->allocator, read_bytes, count);
    pthread_mutex_unlock(&r->lock);
}

void async_reader_submit(struct async_reader *r, struct async_read *list)
{
    if (!list) return;
    pthread_mutex_lock(&r->lock);
    for (struct async_read *read = list, *next; read; read = next) {
        next = read->next;
        read->error = 0;
        read->done = 0;
        read->tried = false;
        r->outstanding++;
        read_queue_put(read->ahead ? &r->ahead : &r->demand, read);
    }
    async_reader_wake(r);
    pthread_mutex_unlock(&r->lock);
}

void async_reader_promote(struct async_reader *r, uint32_t tag)
{
    if (r->outstanding == 0) return;
    pthread_mutex_lock(&r->lock);
    struct async_read *read = take_all(&r->ahead), *next;
    for (; read; read = next) {
        bool moves = read->tag == tag;
        next = read->next;
        if (moves) read->ahead = false;
        read_queue_put(moves ? &r->demand : &r->ahead, read);
    }
    async_reader_wake(r); /* a demand read may use the part of the depth closed to read-aheads */
    pthread_mutex_unlock(&r->lock);
}

void async_reader_cancel_ahead(struct async_reader *r)
{
    if (r->outstanding == 0) return;
    pthread_mutex_lock(&r->lock);
    for (struct async_read *read; (read = read_queue_take(&r->ahead));) {
        read->error = ECANCELED;
        read_queue_put(&r->finished, read);
    }
    pthread_mutex_unlock(&r->lock);
}

struct async_read *async_reader_wait(struct async_reader *r, bool block)
{
    if (r->outstanding == 0) return NULL;
    pthread_mutex_lock(&r->lock);
    struct read_engine *engine = r->engine;
    if (engine->functions->help) engine->functions->help(engine, block && !r->finished.head);
    while (block && !r->finished.head) pthread_cond_wait(&r->done, &r->lock);
    struct async_read *list = take_all(&r->finished);
    pthread_mutex_unlock(&r->lock);
    for (struct async_read *read = list; read; read = read->next) r->outstanding--;
    return list;
}
