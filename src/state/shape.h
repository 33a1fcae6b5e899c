/* shape.h: what the state of a sequence looks like for a model: how large a page and a recurrent
 * state are, and where each layer finds its own part of them.
 *
 *     page        keys and values of 64 positions, of every layer with attention:
 *                 [layer][keys | values][numbers]; latent attention has keys only
 *     recurrent   what the layers without history know: [layer][delta | open | conv]
 *
 * All layers of a sequence share one block table. */
#ifndef STATE_SHAPE_H
#define STATE_SHAPE_H

#include "backend/backend.h"
#include "model/config.h"

const char *kv_format_name(enum kv_format format); /* "f16" */

struct state_shape {
    const struct model_config *config;
    enum kv_format format; /* not KV_DEFAULT */
    uint32_t cached_layers, recurrent_layers;
    size_t half_bytes; /* of a page: keys of one layer, or its values */
    size_t page_bytes;
    size_t delta_floats, open_floats, conv_floats; /* of one layer, in whole cache lines */
    size_t recurrent_bytes;
    bool has_open_rows; /* the backend keeps rows of delta chunks; set by its owner */
};

struct state_shape state_shape_of(const struct model_config *config, enum kv_format format);

/* Pages that hold `positions`. */
uint32_t state_pages_for(uint32_t positions);

/* Layer `index` among those with attention, seen through a block table; and layer `index` among
 * the recurrent ones, read from one state and written to another, which may be the same. */
struct kv_view state_kv_view(const struct state_shape *shape, uint32_t index,
                             uint8_t *const *pages);
struct recurrent_view state_recurrent_view(const struct state_shape *shape, uint32_t index,
                                           const void *in, void *out);

/* Zeros for the positions of a page from `used` on. */
void state_clear_page(const struct state_shape *shape, uint8_t *page, uint32_t used);

/* Zeros for what a recurrent state of a sequence of `position` tokens holds beside its content: rows
 * of a delta chunk that are not in use, and what is behind the ends of its parts. */
void state_clear_recurrent(const struct state_shape *shape, void *state, uint32_t position,
                           uint32_t run_start);

/* Bytes that a token reads of its sequence's state: of the cache for each position, and fixed. */
size_t state_position_bytes(const struct model_config *config, enum kv_format format);
size_t state_fixed_bytes(const struct model_config *config);

#endif
