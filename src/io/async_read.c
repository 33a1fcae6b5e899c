#include "io/async_read.h"

#include "base/clock.h"
#include "base/status.h"
#include "io/async_engine.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

/* Threads must be better than io_uring by this.  They have no other merit, and a disk that others
 * use gives much more at one moment than at the next. */
static const struct read_choice_rule threads_rule = { .worth = 2.0,
                                                      .phase_reads = 240,
                                                      .lead = 240 };

/* ------------------------------------------------------------------ queues */

void read_queue_put(struct read_queue *queue, struct async_read *read)
{
    read->next = NULL;
    if (queue->tail)
        queue->tail->next = read;
    else
        queue->head = read;
    queue->tail = read;
    queue->count++;
}

struct async_read *read_queue_take(struct read_queue *queue)
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

/* ------------------------------------------------------------ for the crews */

/* Seconds in which something was under way. */
static double busy_seconds(const struct async_reader *r, double now)
{
    return r->busy_seconds + (r->under_way > 0 ? now - r->busy_since : 0);
}

struct async_read *async_reader_take(struct async_reader *r, const struct read_crew *crew)
{
    uint32_t depth = read_pace_depth(&r->pace);
    if (r->under_way >= depth || crew != r->crews[r->choice.active]) return NULL;
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
    struct read_crew *crew = r->crews[r->choice.active];
    if (room > 0 && waiting > 0) crew->functions->wake(crew, room < waiting ? room : waiting);
}

static void wake_all(struct async_reader *r)
{
    for (uint32_t i = 0; i < r->crew_count; i++)
        r->crews[i]->functions->wake(r->crews[i], DEPTH_MAX);
}

/* Measures by it who shall read, by which way, and how much at a time; one after the other. */
static void learn_from(struct async_reader *r, const struct async_read *read, double now)
{
    uint32_t depth = read_pace_depth(&r->pace), phase = r->choice.phase;
    bool hired = read_choice_is_over(&r->choice), way = read_choice_is_over(&r->stage.choice);
    if (!hired)
        read_choice_note(&r->choice, r->bytes, r->busy_seconds);
    else if (r->stage.memory)
        read_choice_note(&r->stage.choice, r->bytes, r->busy_seconds);
    if (hired && way) read_pace_note(&r->pace, read->done, now - read->started_at, read->beside);
    if (r->choice.phase != phase)
        wake_all(r); /* one crew begins, or goes home */
    else if (read_pace_depth(&r->pace) > depth)
        async_reader_wake(r);
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

bool async_reader_dismisses(const struct async_reader *r, const struct read_crew *crew)
{
    return r->stop || (read_choice_is_over(&r->choice) && crew != r->crews[r->choice.active]);
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
    if (read->staged) read_stage_copy(read->out + read->done, read->staged, (size_t)result);
    size_t done = read->done + (size_t)result;
    if (done >= read->needed) {
        int problem = read->check ? read->check(read) : 0;
        if (problem) return !try_again(read, problem);
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

static mf_status open_sources(struct async_reader *r, const struct async_reader_options *options,
                              mf_error *why)
{
    const mf_allocator *allocator = options->allocator;
    size_t bytes = (options->file_count + 1) * sizeof *r->sources;
    r->sources = allocator->allocate(allocator->user, bytes, CACHE_LINE);
    if (!r->sources) return fail_memory(why, bytes);
    r->source_count = options->file_count;
    for (size_t i = 0; i < options->file_count; i++)
        open_source(&r->sources[i], &options->files[i], options);
    return MF_OK;
}

/* io_uring first, if it is wanted; then threads, unless they are not. */
static mf_status hire_crews(struct async_reader *r, const struct async_reader_options *options,
                            mf_error *why)
{
    bool plain = options->engine == READ_ENGINE_BEST && !options->direct;
    mf_status status = MF_OK;
    if (options->hire) {
        status = options->hire(&r->crews[0], r, why);
        r->crew_count += status == MF_OK;
        return status;
    }
    if (!plain && options->engine != READ_ENGINE_THREADS) {
#ifdef MOEFLUX_HAVE_URING
        status = read_crew_uring_new(&r->crews[0], r, why);
#else
        status = fail(why, MF_ERR_UNSUPPORTED, "this library was built without io_uring");
#endif
        r->crew_count += status == MF_OK;
        if (options->engine == READ_ENGINE_URING) return status;
    }
    status = read_crew_threads_new(&r->crews[r->crew_count], r, why);
    r->crew_count += status == MF_OK;
    return r->crew_count > 0 ? MF_OK : status;
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
    pthread_mutex_lock(&r->lock); /* the crews begin when all is ready */
    if (status == MF_OK) status = hire_crews(r, options, why);
    read_choice_init(&r->choice, r->crew_count == CHOICE_WAYS ? &threads_rule : NULL);
    read_stage_init(&r->stage, allocator, 0, 0);
    pthread_mutex_unlock(&r->lock);
    if (status != MF_OK) {
        async_reader_free(r);
        return status;
    }
    *out = r;
    return MF_OK;
}

static void dismiss_crews(struct async_reader *r)
{
    pthread_mutex_lock(&r->lock);
    r->stop = true;
    wake_all(r);
    pthread_mutex_unlock(&r->lock);
    for (uint32_t i = 0; i < r->crew_count; i++) r->crews[i]->functions->free(r->crews[i]);
}

void async_reader_free(struct async_reader *r)
{
    if (!r) return;
    const mf_allocator *allocator = r->allocator;
    async_reader_cancel_ahead(r);
    while (async_reader_wait(r, true)) continue;
    dismiss_crews(r);
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
    *out = (struct read_activity){ .engine = r->crews[r->choice.active]->functions->name,
                                   .depth = read_pace_depth(&r->pace),
                                   .reads = r->reads,
                                   .retries = r->retries,
                                   .bytes = r->bytes,
                                   .seconds = busy_seconds(r, clock_now(r->clock)),
                                   .staged = r->stage.choice.active == 1 };
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

void async_reader_lend(struct async_reader *r, uint32_t tag, void *memory, size_t bytes)
{
    for (uint32_t i = 0; i < r->crew_count && tag < r->buffer_count; i++)
        if (r->crews[i]->functions->lend)
            r->crews[i]->functions->lend(r->crews[i], tag, memory, bytes);
}

void async_reader_take_back(struct async_reader *r, uint32_t tag)
{
    async_reader_lend(r, tag, NULL, 0);
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
    async_reader_wake(r); /* reads ahead may not take the whole depth, this one may */
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
    struct read_crew *crew = r->crews[r->choice.active];
    if (crew->functions->help) crew->functions->help(crew, block && !r->finished.head);
    while (block && !r->finished.head) pthread_cond_wait(&r->done, &r->lock);
    struct async_read *list = take_all(&r->finished);
    pthread_mutex_unlock(&r->lock);
    for (struct async_read *read = list; read; read = read->next) r->outstanding--;
    return list;
}
