#include "state/sequence.h"

#include "base/array.h"
#include "base/status.h"

void sequence_init(struct sequence *sequence, struct state_pool *pool, uint32_t capacity)
{
    *sequence = (struct sequence){ .pool = pool, .capacity = capacity };
}

static const mf_allocator *allocator_of(const struct sequence *sequence)
{
    return sequence->pool->allocator;
}

static bool is_recurrent(const struct sequence *sequence)
{
    return sequence->pool->shape.recurrent_layers > 0;
}

/* Tables grow by an eighth, in whole cache lines: a token costs 5 bytes beside its page.  That of
 * the tokens is full where a page is, so that no other token takes memory. */
static size_t grown(size_t room, size_t needed, size_t size)
{
    size_t unit = size == sizeof(uint32_t) ? KV_PAGE_TOKENS : CACHE_LINE / size;
    return align_up(max_size(needed, room + room / 8), unit);
}

static mf_status make_room(void **array, size_t *room, size_t count, size_t size,
                           const struct sequence *sequence, mf_error *why)
{
    if (count <= *room) return MF_OK;
    return array_enlarge(array, room, grown(*room, count, size), size, allocator_of(sequence), why);
}

#define MAKE_ROOM(sequence, array, room, count, why)                                               \
    make_room((void **)&(sequence)->array, &(sequence)->room, (count), sizeof *(sequence)->array,  \
              (sequence), (why))

/* ------------------------------------------------------------------ holders */

static void drop_pages(struct sequence *sequence, uint32_t keep)
{
    while (sequence->page_count > keep)
        state_pool_drop(sequence->pool, BLOCK_PAGE, sequence->pages[--sequence->page_count]);
}

/* Pages beyond the committed position go back to the pool. */
static void trim_pages(struct sequence *sequence)
{
    drop_pages(sequence, state_pages_for(sequence->position));
    window_trim(&sequence->window, sequence->pool, sequence->position);
}

static void replace_recurrent(struct sequence *sequence, void *by)
{
    state_pool_drop(sequence->pool, BLOCK_RECURRENT, sequence->recurrent);
    sequence->recurrent = by;
}

static void drop_next(struct sequence *sequence)
{
    state_pool_drop(sequence->pool, BLOCK_RECURRENT, sequence->next);
    sequence->next = NULL;
    sequence->started = false;
}

static void drop_checkpoints(struct sequence *sequence, size_t keep)
{
    while (sequence->checkpoint_count > keep)
        state_pool_drop(sequence->pool, BLOCK_RECURRENT,
                        sequence->checkpoints[--sequence->checkpoint_count].recurrent);
}

void sequence_free(struct sequence *sequence)
{
    if (!sequence->pool) return;
    const mf_allocator *allocator = allocator_of(sequence);
    sequence_clear(sequence);
    drop_pages(sequence, 0);
    window_free(&sequence->window, sequence->pool);
    array_free(sequence->tokens, sequence->token_room, sizeof *sequence->tokens, allocator);
    array_free(sequence->pages, sequence->page_room, sizeof *sequence->pages, allocator);
    array_free(sequence->checkpoints, sequence->checkpoint_room, sizeof *sequence->checkpoints,
               allocator);
    *sequence = (struct sequence){ 0 };
}

mf_status sequence_fork(struct sequence *out, const struct sequence *sequence, mf_error *why)
{
    struct state_pool *pool = sequence->pool;
    uint32_t pages = sequence->page_count;
    sequence_init(out, pool, sequence->capacity);
    mf_status status = MAKE_ROOM(out, tokens, token_room, sequence->position, why);
    if (status == MF_OK) status = MAKE_ROOM(out, pages, page_room, pages, why);
    if (status == MF_OK)
        status = MAKE_ROOM(out, checkpoints, checkpoint_room, sequence->checkpoint_count, why);
    if (status == MF_OK) status = window_share(&out->window, &sequence->window, pool, why);
    if (status != MF_OK) {
        sequence_free(out);
        return status;
    }
    if (sequence->position > 0)
        memcpy(out->tokens, sequence->tokens, sequence->position * sizeof *out->tokens);
    for (; out->page_count < pages; out->page_count++)
        out->pages[out->page_count] =
            state_pool_share(pool, BLOCK_PAGE, sequence->pages[out->page_count]);
    for (size_t i = 0; i < sequence->checkpoint_count; i++) {
        const struct checkpoint *from = &sequence->checkpoints[i];
        out->checkpoints[out->checkpoint_count++] =
            (struct checkpoint){ from->position,
                                 state_pool_share(pool, BLOCK_RECURRENT, from->recurrent) };
    }
    out->recurrent = state_pool_share(pool, BLOCK_RECURRENT, sequence->recurrent);
    out->position = sequence->position;
    out->run_start = out->pending_run_start = sequence->run_start;
    return MF_OK;
}

/* --------------------------------------------------------------------- feeds */

uint32_t sequence_next_position(const struct sequence *sequence)
{
    return sequence->position + sequence->pending;
}

/* The page that the next token falls into, if it is begun, becomes this sequence's own. */
static mf_status own_last_page(struct sequence *sequence, mf_error *why)
{
    uint32_t next = sequence_next_position(sequence);
    if (next % KV_PAGE_TOKENS == 0) return MF_OK;
    return state_pool_own(&sequence->pages[next / KV_PAGE_TOKENS], sequence->pool, BLOCK_PAGE, why);
}

static mf_status take_pages(struct sequence *sequence, uint32_t needed, mf_error *why)
{
    mf_status status = MAKE_ROOM(sequence, pages, page_room, needed, why);
    if (status == MF_OK) status = own_last_page(sequence, why);
    while (status == MF_OK && sequence->page_count < needed) {
        void *page;
        status = state_pool_take(&page, sequence->pool, BLOCK_PAGE, why);
        if (status == MF_OK) sequence->pages[sequence->page_count++] = page;
    }
    return status;
}

/* The state that the feed writes; zeroed where there is none to read from. */
static mf_status take_next(struct sequence *sequence, mf_error *why)
{
    if (!is_recurrent(sequence) || sequence->next) return MF_OK;
    mf_status status = state_pool_take(&sequence->next, sequence->pool, BLOCK_RECURRENT, why);
    if (status == MF_OK && !sequence->recurrent)
        status = state_pool_clear(sequence->pool, sequence->next,
                                  sequence->pool->shape.recurrent_bytes, why);
    return status;
}

mf_status sequence_reserve(struct sequence *sequence, uint32_t count, mf_error *why)
{
    uint32_t next = sequence_next_position(sequence);
    if (count > sequence->capacity - next)
        return fail(why, MF_ERR_CONTEXT_FULL,
                    "%u tokens do not fit: the context holds %u and %u are taken", count,
                    sequence->capacity, next);
    if (count == 0) return MF_OK;
    mf_status status = MAKE_ROOM(sequence, tokens, token_room, (size_t)next + count, why);
    if (status == MF_OK && sequence->pool->shape.cached_layers > 0)
        status = take_pages(sequence, state_pages_for(next + count), why);
    if (status == MF_OK)
        status = window_reserve(&sequence->window, sequence->pool, next, next + count, why);
    if (status == MF_OK) status = take_next(sequence, why);
    return status;
}

mf_status sequence_hold(struct sequence *sequence, uint32_t count, mf_error *why)
{
    if (count > sequence->capacity)
        return fail(why, MF_ERR_CONTEXT_FULL, "%u tokens do not fit: the context holds %u", count,
                    sequence->capacity);
    if (count == 0) return MF_OK;
    mf_status status = MAKE_ROOM(sequence, tokens, token_room, count, why);
    if (status == MF_OK && sequence->pool->shape.cached_layers > 0)
        status = take_pages(sequence, state_pages_for(count), why);
    if (status == MF_OK) status = window_hold(&sequence->window, sequence->pool, count, why);
    if (status == MF_OK) status = take_next(sequence, why);
    return status;
}

void sequence_view(const struct sequence *sequence, uint32_t layer, struct span *span)
{
    const struct state_pool *pool = sequence->pool;
    uint32_t index = pool->layer_index[layer];
    enum mixer_kind kind = pool->shape.config->mixers[layer];
    if (kind != MIXER_DELTA) {
        span->kv = state_kv_view(&pool->shape, kind, index,
                                 kind == MIXER_WINDOW ? sequence->window.pages : sequence->pages);
        return;
    }
    bool reads_next = sequence->started || !sequence->recurrent;
    span->recurrent = state_recurrent_view(
        &pool->shape, index, reads_next ? sequence->next : sequence->recurrent, sequence->next);
}

void sequence_step_done(struct sequence *sequence, const int32_t *tokens, uint32_t count,
                        bool generated)
{
    uint32_t *to = sequence->tokens + sequence_next_position(sequence);
    for (uint32_t i = 0; i < count; i++)
        to[i] = (uint32_t)tokens[i] | (generated ? TOKEN_GENERATED : 0);
    sequence->pending += count;
    if (generated) sequence->pending_run_start = sequence_next_position(sequence);
    window_advance(&sequence->window, sequence->pool, sequence->position,
                   sequence_next_position(sequence));
    sequence->started = true;
}

void sequence_commit(struct sequence *sequence)
{
    sequence->position += sequence->pending;
    sequence->pending = 0;
    sequence->run_start = sequence->pending_run_start;
    if (sequence->started && sequence->next) {
        replace_recurrent(sequence, sequence->next);
        sequence->next = NULL;
    }
    drop_next(sequence);
    window_commit(&sequence->window, sequence->pool, sequence->position);
}

/* Where the prompt rows begin that end before `position`. */
static uint32_t find_run(const struct sequence *sequence, uint32_t position)
{
    while (position > 0 && !(sequence->tokens[position - 1] & TOKEN_GENERATED)) position--;
    return position;
}

void sequence_restore(struct sequence *sequence, const void *tokens, uint32_t count)
{
    if (count == 0) return;
    memcpy(sequence->tokens, tokens, count * sizeof *sequence->tokens);
    sequence->pending = count;
    sequence->pending_run_start = find_run(sequence, count);
    sequence->started = true;
    sequence_commit(sequence);
}

mf_status sequence_make_tables(struct sequence *sequence, uint32_t count, mf_error *why)
{
    mf_status status = MAKE_ROOM(sequence, tokens, token_room, count, why);
    if (status == MF_OK)
        status = MAKE_ROOM(sequence, pages, page_room, state_pages_for(count), why);
    if (status == MF_OK) status = window_make_table(&sequence->window, sequence->pool, count, why);
    return status;
}

/* The state that was kept of a position becomes the present one. */
static mf_status adopt_state(struct sequence *sequence, void *kept, mf_error *why)
{
    if (sequence->pool->shape.window_layers > 0)
        return window_adopt(&sequence->window, sequence->pool, kept, why);
    replace_recurrent(sequence, state_pool_share(sequence->pool, BLOCK_RECURRENT, kept));
    return MF_OK;
}

mf_status sequence_adopt(struct sequence *sequence, uint32_t count, void *kept, mf_error *why)
{
    mf_status status = adopt_state(sequence, kept, why);
    state_pool_drop(sequence->pool, BLOCK_RECURRENT, kept);
    if (status != MF_OK) return status;
    sequence->position = count;
    sequence->run_start = sequence->pending_run_start = find_run(sequence, count);
    return MF_OK;
}

void sequence_abandon(struct sequence *sequence)
{
    sequence->pending = 0;
    sequence->pending_run_start = sequence->run_start;
    drop_next(sequence);
    trim_pages(sequence);
}

void sequence_clear(struct sequence *sequence)
{
    sequence->position = 0;
    sequence->run_start = 0;
    replace_recurrent(sequence, NULL);
    drop_checkpoints(sequence, 0);
    sequence_abandon(sequence);
}

/* --------------------------------------------------- checkpoints and cutting */

/* How many checkpoints lie before `position`. */
static size_t checkpoints_before(const struct sequence *sequence, uint32_t position)
{
    size_t count = sequence->checkpoint_count;
    while (count > 0 && sequence->checkpoints[count - 1].position >= position) count--;
    return count;
}

bool sequence_has_checkpoint(const struct sequence *sequence, uint32_t position)
{
    size_t at = checkpoints_before(sequence, position);
    return at < sequence->checkpoint_count && sequence->checkpoints[at].position == position;
}

mf_status sequence_state(void **out, const struct sequence *sequence, mf_error *why)
{
    *out = state_pool_share(sequence->pool, BLOCK_RECURRENT, sequence->recurrent);
    if (sequence->pool->shape.window_layers == 0 || sequence->position == 0) return MF_OK;
    return window_keep(out, &sequence->window, sequence->pool, sequence->position, why);
}

mf_status sequence_keep_checkpoint(struct sequence *sequence, mf_error *why)
{
    uint32_t position = sequence->position;
    void *kept = NULL;
    sequence_forget_checkpoint(sequence, position);
    size_t count = sequence->checkpoint_count;
    mf_status status = MAKE_ROOM(sequence, checkpoints, checkpoint_room, count + 1, why);
    if (status == MF_OK) status = sequence_state(&kept, sequence, why);
    if (status != MF_OK) return status;
    /* None lies behind the end of the sequence. */
    sequence->checkpoints[sequence->checkpoint_count++] = (struct checkpoint){ position, kept };
    return MF_OK;
}

void sequence_forget_checkpoint(struct sequence *sequence, uint32_t position)
{
    if (!sequence_has_checkpoint(sequence, position)) return;
    size_t at = checkpoints_before(sequence, position);
    struct checkpoint *gone = &sequence->checkpoints[at];
    state_pool_drop(sequence->pool, BLOCK_RECURRENT, gone->recurrent);
    memmove(gone, gone + 1, (--sequence->checkpoint_count - at) * sizeof *gone);
}

uint32_t sequence_cut_before(const struct sequence *sequence, uint32_t position)
{
    const struct state_shape *shape = &sequence->pool->shape;
    if (!state_is_kept(shape) || position >= sequence->position) return position;
    if (!is_recurrent(sequence) && window_reaches(&sequence->window, shape, position))
        return position;
    size_t count = checkpoints_before(sequence, position + 1);
    return count > 0 ? sequence->checkpoints[count - 1].position : 0;
}

mf_status sequence_truncate(struct sequence *sequence, uint32_t position, mf_error *why)
{
    if (position > sequence->position)
        return fail(why, MF_ERR_ARGUMENT, "position %u is beyond the end of the sequence, %u",
                    position, sequence->position);
    if (position == sequence->position) return MF_OK;
    uint32_t possible = sequence_cut_before(sequence, position);
    if (possible < position)
        return fail(why, MF_ERR_CANNOT_TRUNCATE,
                    "%s hold no history: the sequence of %u tokens cannot be cut back to %u, the "
                    "nearest checkpoint before is at %u",
                    is_recurrent(sequence) ? "recurrent layers" : "layers with a window",
                    sequence->position, position, possible);
    bool held = !is_recurrent(sequence) &&
                window_reaches(&sequence->window, &sequence->pool->shape, position);
    if (!held) {
        size_t at = checkpoints_before(sequence, position);
        void *kept = sequence_has_checkpoint(sequence, position)
                         ? sequence->checkpoints[at].recurrent
                         : NULL; /* of the empty sequence */
        mf_status status = adopt_state(sequence, kept, why);
        if (status != MF_OK) return status;
    }
    drop_checkpoints(sequence, checkpoints_before(sequence, position + 1));
    sequence->position = position;
    sequence->run_start = sequence->pending_run_start = find_run(sequence, position);
    trim_pages(sequence);
    return MF_OK;
}

/* --------------------------------------------------------------------- sizes */

uint64_t sequence_window_pages(const struct state_shape *shape, uint32_t positions)
{
    if (shape->window_layers == 0) return 0;
    return min_size(state_pages_for(positions),
                    (uint64_t)shape->window_pages + state_step_pages(shape));
}

/* Those of two checkpoints with them. */
static uint64_t all_window_pages(const struct state_shape *shape, uint32_t positions)
{
    return sequence_window_pages(shape, positions) +
           2 * min_size(state_pages_for(positions),
                        shape->window_layers > 0 ? shape->window_pages : 0);
}

uint64_t sequence_pool_bytes(const struct state_shape *shape, uint32_t positions)
{
    uint64_t pages = shape->cached_layers > 0 ? state_pages_for(positions) : 0;
    uint64_t kept = state_is_kept(shape) ? 3 * state_block_bytes(shape, BLOCK_RECURRENT) : 0;
    return pages * state_block_bytes(shape, BLOCK_PAGE) + kept +
           all_window_pages(shape, positions) * state_block_bytes(shape, BLOCK_WINDOW) +
           state_block_bytes(shape, BLOCK_LOGITS);
}

uint64_t sequence_table_bytes(uint32_t positions)
{
    size_t pages = state_pages_for(positions), token = sizeof(uint32_t), page = sizeof(uint8_t *);
    return grown(positions, positions, token) * token + grown(pages, pages, page) * page;
}
