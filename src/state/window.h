/* window.h: the pages of those layers of a sequence that see a window of positions.
 *
 *     0          first              end of what is committed            goal
 *     ├── NULL ────┤ in the window ───────┤ of the present feed ──────────┤
 *
 * A page that the window has left goes back to the pool when the feed is committed, so that a long
 * sequence takes no more of them than a short one.  A feed takes only as many as one of its steps
 * can need, and moves those that its own window has left to its end (window_advance).
 *
 * A position is resumed from the pages of its window.  A checkpoint keeps them as a block of
 * references (struct window_table in pool.h).
 *
 * Everything here is without effect for a model without such layers. */
#ifndef STATE_WINDOW_H
#define STATE_WINDOW_H

#include "state/pool.h"

struct window_pages {
    uint8_t **pages; /* block table, [room], by number of the page */
    size_t room;
    uint32_t first, end; /* pages that are held lie in between; in a feed not all of them are */
    uint32_t goal;       /* of the present feed: where its last page ends */
};

void window_free(struct window_pages *window, struct state_pool *pool);

/* Room in the table for `positions`. */
mf_status window_make_table(struct window_pages *window, const struct state_pool *pool,
                            uint32_t positions, mf_error *why);

/* The pages for a feed behind `position` up to `end`, or for as much of it as a step can need. */
mf_status window_reserve(struct window_pages *window, struct state_pool *pool, uint32_t position,
                         uint32_t end, mf_error *why);

/* The feed behind `position` has come to `next`. */
void window_advance(struct window_pages *window, const struct state_pool *pool, uint32_t position,
                    uint32_t next);

/* Drops what the window of `position` has left, or what lies behind `position`. */
void window_commit(struct window_pages *window, struct state_pool *pool, uint32_t position);
void window_trim(struct window_pages *window, struct state_pool *pool, uint32_t position);

/* Whether the pages of the window of `position` are held. */
bool window_reaches(const struct window_pages *window, const struct state_shape *shape,
                    uint32_t position);

/* Fresh pages for the window of `position`, in place of those that were held. */
mf_status window_hold(struct window_pages *window, struct state_pool *pool, uint32_t position,
                      mf_error *why);

/* References to the pages of another one. */
mf_status window_share(struct window_pages *out, const struct window_pages *window,
                       struct state_pool *pool, mf_error *why);

/* A BLOCK_RECURRENT of references to the pages of the window of `position`; the same back. */
mf_status window_keep(void **out, const struct window_pages *window, struct state_pool *pool,
                      uint32_t position, mf_error *why);
mf_status window_adopt(struct window_pages *window, struct state_pool *pool, const void *table,
                       mf_error *why);

#endif
