/* shape.h: what the state of a sequence looks like for a model: how large a page and a recurrent
 * state are, and where each layer finds its own part of them.
 *
 *     page        keys and values of 64 positions, of every layer with attention:
 *                 [layer][keys | values][numbers]; latent attention has keys only
 *     window      the same of the layers that see a window of positions
 *     recurrent   what the layers without history know: [layer][delta | open | conv]
 *
 * All layers of a sequence share one block table, and those with a window another one.  A position
 * can be resumed where its pages are kept and, of a model that keeps states, its recurrent state or
 * the pages of its window. */
#ifndef STATE_SHAPE_H
#define STATE_SHAPE_H

#include "backend/backend.h"
#include "model/config.h"

const char *kv_format_name(enum kv_format format); /* "f16" */

/* What a BLOCK_RECURRENT of a model with windows holds: references to the pages of one. */
struct window_table {
    uint32_t first, count; /* numbers of the pages */
    uint8_t *pages[];
};

struct state_shape {
    const struct model_config *config;
    enum kv_format format; /* not KV_DEFAULT */
    uint32_t cached_layers, window_layers, recurrent_layers;
    size_t half_bytes, window_half_bytes; /* of a page: keys of one layer, or its values */
    size_t page_bytes, window_page_bytes;
    uint32_t window_pages; /* that a window can lie in */
    uint32_t step_rows;    /* of a step at most, set by the owner; 0: as many as a feed has */
    size_t delta_floats, open_floats, conv_floats; /* of one layer, in whole cache lines */
    size_t recurrent_bytes; /* of windows: of a table that refers to their pages */
    bool has_open_rows;     /* the backend keeps rows of delta chunks; set by its owner */
};

struct state_shape state_shape_of(const struct model_config *config, enum kv_format format);

/* Pages that hold `positions`. */
uint32_t state_pages_for(uint32_t positions);

/* Layer `index` among those with this kind of attention, seen through a block table; and layer `index` among
 * the recurrent ones, read from one state and written to another, which may be the same. */
struct kv_view state_kv_view(const struct state_shape *shape, enum mixer_kind kind, uint32_t index,
                             uint8_t *const *pages);
struct recurrent_view state_recurrent_view(const struct state_shape *shape, uint32_t index,
                                           const void *in, void *out);

/* Whether a position can be resumed only where its state was kept. */
static inline bool state_is_kept(const struct state_shape *shape)
{
    return shape->recurrent_layers > 0 || shape->window_layers > 0;
}

/* Bytes of what is kept of a position: its recurrent state, or the pages of its window. */
size_t state_kept_bytes(const struct state_shape *shape);

/* The page in which the window of the token at `position` begins; `window` 0: there is none. */
static inline uint32_t position_window_page(uint32_t window, uint32_t position)
{
    return window > 0 && position >= window ? (position + 1 - window) / KV_PAGE_TOKENS : 0;
}

static inline uint32_t state_window_page(const struct state_shape *shape, uint32_t position)
{
    return position_window_page(shape->config->window.positions, position);
}

/* Pages of windows that a step can need beside those of the committed position. */
uint32_t state_step_pages(const struct state_shape *shape);

/* Zeros for the positions of a page from `used` on. */
void state_clear_page(const struct state_shape *shape, uint8_t *page, uint32_t used);
void state_clear_window_page(const struct state_shape *shape, uint8_t *page, uint32_t used);

/* Zeros for what a recurrent state of a sequence of `position` tokens holds beside its content: rows
 * of a delta chunk that are not in use, and what is behind the ends of its parts. */
void state_clear_recurrent(const struct state_shape *shape, void *state, uint32_t position,
                           uint32_t run_start);

/* Bytes that a token reads of its sequence's state: of the cache for each position, and fixed. */
size_t state_position_bytes(const struct model_config *config, enum kv_format format);
size_t state_fixed_bytes(const struct model_config *config);

#endif
