#include "state/window.h"

#include "base/array.h"

static bool has_window(const struct state_pool *pool)
{
    return pool->shape.window_layers > 0;
}

mf_status window_make_table(struct window_pages *window, const struct state_pool *pool,
                            uint32_t positions, mf_error *why)
{
    size_t needed = state_pages_for(positions), before = window->room;
    if (!has_window(pool) || needed <= before) return MF_OK;
    size_t room = align_up(max_size(needed, before + before / 8), CACHE_LINE / sizeof(uint8_t *));
    mf_status status = array_enlarge((void **)&window->pages, &window->room, room,
                                     sizeof *window->pages, pool->allocator, why);
    if (status == MF_OK)
        memset(window->pages + before, 0, (window->room - before) * sizeof *window->pages);
    return status;
}

static void drop_range(struct window_pages *window, struct state_pool *pool, uint32_t from,
                       uint32_t to)
{
    for (uint32_t i = from; i < to; i++) {
        state_pool_drop(pool, BLOCK_WINDOW, window->pages[i]);
        window->pages[i] = NULL;
    }
}

static void drop_all(struct window_pages *window, struct state_pool *pool)
{
    drop_range(window, pool, window->first, window->end);
    window->first = window->end = window->goal = 0;
}

void window_free(struct window_pages *window, struct state_pool *pool)
{
    drop_all(window, pool);
    array_free(window->pages, window->room, sizeof *window->pages, pool->allocator);
    *window = (struct window_pages){ 0 };
}

/* --------------------------------------------------------------------- feeds */

/* The page that the next token falls into, if it is begun, becomes the sequence's own. */
static mf_status own_last_page(struct window_pages *window, struct state_pool *pool,
                               uint32_t position, mf_error *why)
{
    if (position % KV_PAGE_TOKENS == 0) return MF_OK;
    return state_pool_own(&window->pages[position / KV_PAGE_TOKENS], pool, BLOCK_WINDOW, why);
}

mf_status window_reserve(struct window_pages *window, struct state_pool *pool, uint32_t position,
                         uint32_t end, mf_error *why)
{
    if (!has_window(pool)) return MF_OK;
    mf_status status = window_make_table(window, pool, end, why);
    if (status == MF_OK) status = own_last_page(window, pool, position, why);
    window->goal = state_pages_for(end);
    uint64_t most = (uint64_t)state_pages_for(position) + state_step_pages(&pool->shape);
    while (status == MF_OK && window->end < min_size(window->goal, most)) {
        void *page;
        status = state_pool_take(&page, pool, BLOCK_WINDOW, why);
        if (status == MF_OK) window->pages[window->end++] = page;
    }
    return status;
}

void window_advance(struct window_pages *window, const struct state_pool *pool, uint32_t position,
                    uint32_t next)
{
    if (!has_window(pool)) return;
    /* Pages of the committed window stay until the feed is committed. */
    uint32_t left = state_window_page(&pool->shape, next);
    for (uint32_t i = state_pages_for(position); i < left && window->end < window->goal; i++) {
        if (!window->pages[i]) continue;
        window->pages[window->end++] = window->pages[i];
        window->pages[i] = NULL;
    }
}

void window_commit(struct window_pages *window, struct state_pool *pool, uint32_t position)
{
    if (!has_window(pool)) return;
    uint32_t first = state_window_page(&pool->shape, position);
    if (first <= window->first) return;
    drop_range(window, pool, window->first, first);
    window->first = first;
}

void window_trim(struct window_pages *window, struct state_pool *pool, uint32_t position)
{
    uint32_t end = state_pages_for(position);
    if (!has_window(pool) || end >= window->end) return;
    drop_range(window, pool, end, window->end);
    window->end = end;
    if (window->first > end) window->first = end;
}

/* ------------------------------------------------------------------ resuming */

bool window_reaches(const struct window_pages *window, const struct state_shape *shape,
                    uint32_t position)
{
    return position == 0 || state_window_page(shape, position) >= window->first;
}

mf_status window_hold(struct window_pages *window, struct state_pool *pool, uint32_t position,
                      mf_error *why)
{
    if (!has_window(pool)) return MF_OK;
    drop_all(window, pool);
    mf_status status = window_make_table(window, pool, position, why);
    if (status != MF_OK) return status;
    window->first = window->end = state_window_page(&pool->shape, position);
    window->goal = state_pages_for(position);
    while (status == MF_OK && window->end < window->goal) {
        void *page;
        status = state_pool_take(&page, pool, BLOCK_WINDOW, why);
        if (status == MF_OK) window->pages[window->end++] = page;
    }
    return status;
}

/* The references of `pages`, which are shared, as those of page `first` and the next ones. */
static void refer(struct window_pages *out, struct state_pool *pool, uint8_t *const *pages,
                  uint32_t first, uint32_t count)
{
    out->first = first;
    out->end = first + count;
    for (uint32_t i = 0; i < count; i++)
        out->pages[first + i] = state_pool_share(pool, BLOCK_WINDOW, pages[i]);
}

mf_status window_share(struct window_pages *out, const struct window_pages *window,
                       struct state_pool *pool, mf_error *why)
{
    mf_status status = window_make_table(out, pool, window->end * KV_PAGE_TOKENS, why);
    if (status != MF_OK || !has_window(pool)) return status;
    refer(out, pool, window->pages + window->first, window->first, window->end - window->first);
    return MF_OK;
}

mf_status window_keep(void **out, const struct window_pages *window, struct state_pool *pool,
                      uint32_t position, mf_error *why)
{
    void *block;
    mf_status status = state_pool_take(&block, pool, BLOCK_RECURRENT, why);
    *out = NULL;
    if (status != MF_OK) return status;
    struct window_table *table = block;
    table->first = state_window_page(&pool->shape, position);
    table->count = state_pages_for(position) - table->first;
    for (uint32_t i = 0; i < table->count; i++)
        table->pages[i] = state_pool_share(pool, BLOCK_WINDOW, window->pages[table->first + i]);
    *out = block;
    return MF_OK;
}

mf_status window_adopt(struct window_pages *window, struct state_pool *pool, const void *table,
                       mf_error *why)
{
    const struct window_table *from = table;
    mf_status status = MF_OK;
    if (from)
        status = window_make_table(window, pool, (from->first + from->count) * KV_PAGE_TOKENS, why);
    if (status != MF_OK) return status;
    drop_all(window, pool); /* the table holds what both have */
    if (from) refer(window, pool, from->pages, from->first, from->count);
    return MF_OK;
}
