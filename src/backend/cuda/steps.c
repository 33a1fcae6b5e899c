/* steps.c: what all graphs of a step read of the host, in one block; steps that are repeated. */
#include "backend/cuda/device.h"

enum {
    ALIGNMENT = 256,
    TABLES = 2
}; /* block tables of a span: of all positions, and of a window */

/* ---------------------------------------------------------------------------------------- block */

static bool enlarge(struct cuda_backend *b, struct step_block *block, size_t bytes)
{
    if (block->capacity >= bytes) return true;
    cuda_drop_replays(b);
    if (block->host) cuda_note(b, cudaFreeHost(block->host));
    cuda_give(b, block->device, block->capacity);
    *block = (struct step_block){ .host = NULL };
    bytes = max_size(2 * bytes, 1 << 18);
    void *host = NULL, *device = cuda_take(b, bytes);
    if (!device) return cuda_note(b, cudaErrorMemoryAllocation);
    block->device = device;
    block->capacity = bytes;
    if (cuda_note(b, cudaHostAlloc(&host, bytes, cudaHostAllocDefault))) {
        block->host = host;
        return true;
    }
    cuda_give(b, device, bytes);
    *block = (struct step_block){ .host = NULL };
    return false;
}

/* Room for an array of the block; returns where it is written, *device is where it is read. */
static void *take(struct step_block *block, size_t bytes, const void **device)
{
    void *host = block->host + block->bytes;
    *device = block->device + block->bytes;
    block->bytes += align_up(bytes, ALIGNMENT);
    return host;
}

static size_t pages_of(const struct span *span)
{
    return ((size_t)span->position + span->row_count + KV_PAGE_TOKENS - 1) / KV_PAGE_TOKENS;
}

/* Pages that a span's tables have room for.  Those of a step that repeats do not grow. */
static size_t table_pages(const struct step_frame *step, const struct span *span)
{
    size_t most = ((size_t)step->context + KV_PAGE_TOKENS - 1) / KV_PAGE_TOKENS;
    return step->repeats ? max_size(most, pages_of(span)) : pages_of(span);
}

static size_t block_bytes(const struct step_frame *step)
{
    size_t bytes = step->row_count * (sizeof(struct cuda_row) + sizeof(int32_t));
    bytes += step->layer_count * step->span_count * sizeof(struct cuda_span);
    for (size_t s = 0; s < step->span_count; s++)
        bytes += TABLES * (table_pages(step, &step->spans[s]) * sizeof(uint8_t *) + ALIGNMENT);
    return bytes + (size_t)3 * ALIGNMENT;
}

/* Layers of a kind share a block table: a span has one, or two. */
struct tables {
    uint8_t *const *host[TABLES];
    const void *device[TABLES];
};

static const void *find_table(struct tables *tables, struct step_block *block,
                              const struct span *span, size_t room)
{
    uint8_t *const *pages = span->kv.pages;
    size_t t = 0;
    if (!pages) return NULL;
    while (t < TABLES - 1 && tables->host[t] && tables->host[t] != pages) t++;
    if (tables->host[t] == pages) return tables->device[t];
    void *out = take(block, room * sizeof *pages, &tables->device[t]);
    memcpy(out, pages, pages_of(span) * sizeof *pages);
    tables->host[t] = pages;
    return tables->device[t];
}

static struct cuda_span span_on_device(const struct span *span, const void *pages)
{
    const struct kv_view *kv = &span->kv;
    const struct recurrent_view *r = &span->recurrent;
    return (struct cuda_span){ .first_row = span->first_row,
                               .row_count = span->row_count,
                               .position = span->position,
                               .decode = span->decode,
                               .pages = pages,
                               .keys = kv->keys,
                               .values = kv->values,
                               .kv_format = kv->format,
                               .conv_in = r->conv_in,
                               .delta_in = r->delta_in,
                               .conv_out = r->conv_out,
                               .delta_out = r->delta_out };
}

static void fill(struct step_block *block, const struct step_frame *step)
{
    const void *rows, *tokens, *device_spans;
    _Static_assert(sizeof(struct cuda_row) == sizeof(struct row), "copied as they are");
    block->bytes = 0;
    block->last_position = 0;
    memcpy(take(block, step->row_count * sizeof *step->rows, &rows), step->rows,
           step->row_count * sizeof *step->rows);
    memcpy(take(block, step->row_count * sizeof *step->tokens, &tokens), step->tokens,
           step->row_count * sizeof *step->tokens);
    size_t count = step->layer_count * step->span_count;
    struct cuda_span *spans = take(block, count * sizeof *spans, &device_spans);
    for (size_t s = 0; s < step->span_count; s++) {
        struct tables tables = { .host = { NULL } };
        const struct span *first = &step->spans[s];
        size_t room = table_pages(step, first);
        for (size_t layer = 0; layer < step->layer_count; layer++) {
            size_t at = layer * step->span_count + s;
            spans[at] = span_on_device(&step->spans[at],
                                       find_table(&tables, block, &step->spans[at], room));
        }
        uint32_t last = first->position + first->row_count - 1;
        if (first->row_count > 0 && last > block->last_position) block->last_position = last;
    }
    block->rows = (struct cuda_rows){ (uint32_t)step->row_count, (uint32_t)step->span_count, tokens,
                                      rows, device_spans };
}

struct cuda_rows cuda_step_rows(const struct cuda_backend *b, const struct frame *frame)
{
    struct cuda_rows rows = b->steps[frame->step->nested].rows;
    rows.spans += frame->layer * frame->step->span_count;
    return rows;
}

/* --------------------------------------------------------------------------------------- replay */

static void drop_replay(struct cuda_backend *b, struct replay *replay)
{
    if (replay->recording) cuda_note(b, cudaGraphExecDestroy(replay->recording));
    *replay = (struct replay){ .owner = NULL };
}

void cuda_drop_replays(struct cuda_backend *b)
{
    for (size_t kind = 0; kind < STEP_KINDS; kind++)
        for (size_t rows = 0; rows <= REPLAY_ROWS_MAX; rows++)
            drop_replay(b, &b->replays[kind][rows]);
}

static struct replay *replay_of(struct cuda_backend *b, const struct step_frame *step)
{
    if (!step->repeats || step->row_count > REPLAY_ROWS_MAX) return NULL;
    struct replay *replay = &b->replays[step->nested][step->row_count];
    if (replay->owner != step->owner) drop_replay(b, replay);
    replay->owner = step->owner;
    return replay;
}

mf_status cuda_begin_step(struct backend *backend, const struct step_frame *step, bool *replayed,
                          mf_error *why)
{
    struct cuda_backend *b = (struct cuda_backend *)backend;
    struct step_block *block = &b->steps[step->nested];
    *replayed = false;
    if (!enlarge(b, block, block_bytes(step))) return cuda_check(b, why);
    fill(block, step);
    struct replay *replay = replay_of(b, step);
    if (replay && replay->recording) {
        *replayed = cuda_note(b, cudaGraphLaunch(replay->recording, b->stream));
        return cuda_check(b, why);
    }
    if (replay && replay->seen++ > 0 &&
        cuda_note(b, cudaStreamBeginCapture(b->stream, cudaStreamCaptureModeThreadLocal)))
        b->recorded = replay;
    cuda_note(b, cudaMemcpyAsync(block->device, block->host, block->bytes, cudaMemcpyHostToDevice,
                                 b->stream));
    return cuda_check(b, why);
}

void cuda_end_step(struct cuda_backend *b, bool whole)
{
    cudaGraph_t graph = NULL;
    struct replay *replay = b->recorded;
    if (!replay) return;
    b->recorded = NULL;
    if (cuda_note(b, cudaStreamEndCapture(b->stream, &graph)) && whole &&
        cuda_note(b, cudaGraphInstantiate(&replay->recording, graph, 0)))
        cuda_note(b, cudaGraphLaunch(replay->recording, b->stream));
    if (graph) cuda_note(b, cudaGraphDestroy(graph));
}

void cuda_free_steps(struct cuda_backend *b)
{
    cuda_drop_replays(b);
    for (size_t kind = 0; kind < STEP_KINDS; kind++) {
        if (b->steps[kind].host) cuda_note(b, cudaFreeHost(b->steps[kind].host));
        cuda_give(b, b->steps[kind].device, b->steps[kind].capacity);
    }
}
