/* kv_pages.h: memory for keys and values, in pages of 64 positions.
 *
 * One pool serves every full-attention layer: a page number means the same
 * place in each of them.  A sequence owns the pages in its block table.
 * Memory is taken once, when the pool is made, and touched when it is written. */
#ifndef STATE_KV_PAGES_H
#define STATE_KV_PAGES_H

#include "backend/backend.h"

struct kv_pool {
    const mf_allocator *allocator;
    uint32_t layer_count; /* full-attention layers */
    uint32_t page_count;
    size_t page_numbers; /* of keys in one layer, and of values where there are any */
    enum kv_format format;
    uint32_t parts;  /* 2: keys and values; 1: keys only */
    uint8_t *memory; /* [layer_count][parts][page_count][page_numbers] */
    size_t memory_bytes;
    uint32_t *free_pages; /* a stack */
    uint32_t free_count;
};

/* Pages a sequence of `positions` takes. */
uint32_t kv_pages_for(uint32_t positions);

/* Bytes of one number. */
size_t kv_number_bytes(enum kv_format format);

/* `shape` gives layer_count, page_count, page_numbers, format and parts; the rest is set here. */
mf_status kv_pool_init(struct kv_pool *pool, const mf_allocator *allocator,
                       const struct kv_pool *shape, mf_error *why);
void kv_pool_free(struct kv_pool *pool); /* a zeroed pool is legal */

/* False when there is none left. */
bool kv_pool_take(struct kv_pool *pool, uint32_t *page);
void kv_pool_give(struct kv_pool *pool, uint32_t page);

/* Attention layer `layer` (counted among those) as seen through a block table. */
struct kv_view kv_pool_view(const struct kv_pool *pool, uint32_t layer, const uint32_t *pages);

#endif
