/* pool.h: the memory of all sequences of a model: pages of keys and values, recurrent states and
 * rows of logits, in blocks that are counted references.
 *
 *            take              share             drop            drop (the last)
 *     free ───────▶ 1 holder ───────▶ 2 holders ──────▶ 1 holder ──────▶ free
 *
 * Several sequences may hold a block: forks, shared prefixes and checkpoints are the same thing.
 * A block with more than one holder is not written.  A table of a window's pages holds each of
 * them, and its last holder drops them with it.  Blocks come from the allocator as they are
 * wanted, up to one limit in bytes for all kinds; free ones are kept for the next holder.
 *
 * Where a device computes, pages and recurrent states lie in its memory: their contents are read and
 * written with the functions below only.  Rows of logits and tables are the host's.
 *
 * Threads: any. */
#ifndef STATE_POOL_H
#define STATE_POOL_H

#include "state/shape.h"

#include <pthread.h>

enum block_kind { BLOCK_PAGE, BLOCK_WINDOW, BLOCK_RECURRENT, BLOCK_LOGITS, BLOCK_KINDS };

struct state_pool {
    struct state_shape shape;
    const mf_allocator *allocator;
    const struct state_memory *memory; /* of a device; NULL: all blocks are the host's */
    struct device_block **on_device;   /* [DEVICE_BUCKETS] blocks there, by address */
    uint32_t *layer_index;             /* [layers] how many layers of the same kind come before */
    pthread_mutex_t lock;              /* of what follows; taken after every other lock */
    uint64_t limit_bytes;
    uint64_t taken_bytes; /* from the allocator */
    struct blocks {
        size_t bytes;   /* of one block */
        uint32_t held;  /* blocks with a holder */
        uint32_t spare; /* blocks without */
        void *first_spare;
    } blocks[BLOCK_KINDS];
    /* Asked for memory before the pool says that it is full; NULL: none.  Called without the lock;
     * returns the bytes of the blocks that it has dropped. */
    uint64_t (*reclaim)(void *user, uint64_t bytes);
    void *reclaim_user;
};

/* An empty pool; `config`, `allocator` and `memory` (NULL: none) are borrowed. */
mf_status state_pool_init(struct state_pool *pool, const mf_allocator *allocator,
                          const struct state_memory *memory, const struct model_config *config,
                          enum kv_format format, uint64_t limit_bytes, mf_error *why);
/* No block has a holder.  A zeroed pool is legal. */
void state_pool_free(struct state_pool *pool);

/* Also below what the pool has taken: then blocks come only from those that are free again. */
void state_pool_set_limit(struct state_pool *pool, uint64_t limit_bytes);

/* Before the pool has other users; NULL ends it. */
void state_pool_set_reclaim(struct state_pool *pool,
                            uint64_t (*reclaim)(void *user, uint64_t bytes), void *user);

/* A block with one holder; what is in it is not defined.  MF_ERR_POOL_FULL: the limit is reached,
 * MF_ERR_MEMORY: the allocator or the device has none. */
mf_status state_pool_take(void **out, struct state_pool *pool, enum block_kind kind, mf_error *why);

/* One holder more, one less.  NULL is no block, and legal. */
void *state_pool_share(struct state_pool *pool, enum block_kind kind, void *block);
void state_pool_drop(struct state_pool *pool, enum block_kind kind, void *block);

/* A page of which there are other holders is replaced by a copy, which has one. */
mf_status state_pool_own(uint8_t **page, struct state_pool *pool, enum block_kind kind,
                         mf_error *why);

/* Contents of a page or a recurrent state, from any place in it, to and from memory of the host.
 * MF_ERR_DEVICE: a copy failed. */
mf_status state_pool_read(const struct state_pool *pool, void *to, const void *block, size_t bytes,
                          mf_error *why);
mf_status state_pool_write(const struct state_pool *pool, void *block, const void *from,
                           size_t bytes, mf_error *why);
mf_status state_pool_clear(const struct state_pool *pool, void *block, size_t bytes, mf_error *why);

/* What dropping it would give back: nothing where another one holds it, too; with a table of
 * references those pages that no other holds. */
uint64_t state_pool_unshared_bytes(struct state_pool *pool, enum block_kind kind, void *block);

/* Whether another one holds it, too. */
bool state_pool_is_shared(struct state_pool *pool, enum block_kind kind, void *block);

/* Gives the free blocks back to the allocator. */
void state_pool_trim(struct state_pool *pool);

/* What the pool has, for statistics and messages. */
struct state_pool_sizes {
    uint64_t limit_bytes, taken_bytes, held_bytes;
    uint32_t held[BLOCK_KINDS];
};
struct state_pool_sizes state_pool_sizes(struct state_pool *pool);

/* What one block takes of the limit. */
uint64_t state_block_bytes(const struct state_shape *shape, enum block_kind kind);

#endif
