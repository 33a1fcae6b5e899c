#include "state/pool.h"

#include "base/status.h"

#include <assert.h>

/* Stands behind the bytes of each block of the host. */
struct block_end {
    uint32_t holders;
    void *next; /* of the spare ones */
};

/* Stands for a block of a device. */
struct device_block {
    struct block_end end;
    void *memory;
    struct device_block *next; /* in its bucket */
};

enum { DEVICE_BUCKETS = 4096 };

static size_t content_bytes(const struct state_shape *shape, enum block_kind kind)
{
    size_t logits = shape->config->vocab_size * sizeof(float);
    size_t bytes = kind == BLOCK_PAGE        ? shape->page_bytes
                   : kind == BLOCK_WINDOW    ? shape->window_page_bytes
                   : kind == BLOCK_RECURRENT ? shape->recurrent_bytes
                                             : logits;
    return align_up(bytes, CACHE_LINE);
}

uint64_t state_block_bytes(const struct state_shape *shape, enum block_kind kind)
{
    return content_bytes(shape, kind) + CACHE_LINE;
}

static bool is_on_device(const struct state_pool *pool, enum block_kind kind)
{
    bool is_table = kind == BLOCK_RECURRENT && pool->shape.window_layers > 0;
    return pool->memory && kind != BLOCK_LOGITS && !is_table;
}

/* Where the chain of the block begins. */
static struct device_block **bucket_of(const struct state_pool *pool, const void *block)
{
    return &pool->on_device[(uintptr_t)block / 512 % DEVICE_BUCKETS];
}

static struct block_end *end_of(const struct state_pool *pool, enum block_kind kind, void *block)
{
    _Static_assert(sizeof(struct block_end) <= CACHE_LINE, "room behind a block");
    if (is_on_device(pool, kind)) {
        struct device_block *own = *bucket_of(pool, block);
        while (own->memory != block) own = own->next;
        return &own->end;
    }
    return (struct block_end *)(void *)((uint8_t *)block + pool->blocks[kind].bytes - CACHE_LINE);
}

/* ------------------------------------------------------------------------ memory of a device */

static void *allocate_on_device(struct state_pool *pool, size_t bytes)
{
    const mf_allocator *host = pool->allocator;
    struct device_block *own = host->allocate(host->user, sizeof *own, sizeof(void *));
    if (!own) return NULL;
    own->memory = pool->memory->allocate(pool->memory->user, bytes);
    if (!own->memory) {
        host->release(host->user, own, sizeof *own);
        return NULL;
    }
    struct device_block **bucket = bucket_of(pool, own->memory);
    own->next = *bucket;
    *bucket = own;
    return own->memory;
}

static void release_on_device(struct state_pool *pool, void *block, size_t bytes)
{
    struct device_block **at = bucket_of(pool, block);
    while ((*at)->memory != block) at = &(*at)->next;
    struct device_block *own = *at;
    *at = own->next;
    pool->memory->release(pool->memory->user, block, bytes);
    pool->allocator->release(pool->allocator->user, own, sizeof *own);
}

static mf_status fail_device(mf_error *why)
{
    return fail(why, MF_ERR_DEVICE, "the device failed to copy the state of a sequence");
}

static mf_status move(const struct state_pool *pool, void *to, const void *from, size_t bytes,
                      mf_error *why)
{
    if (!pool->memory) {
        memcpy(to, from, bytes);
        return MF_OK;
    }
    return pool->memory->copy(pool->memory->user, to, from, bytes) ? MF_OK : fail_device(why);
}

mf_status state_pool_read(const struct state_pool *pool, void *to, const void *block, size_t bytes,
                          mf_error *why)
{
    return move(pool, to, block, bytes, why);
}

mf_status state_pool_write(const struct state_pool *pool, void *block, const void *from,
                           size_t bytes, mf_error *why)
{
    return move(pool, block, from, bytes, why);
}

mf_status state_pool_clear(const struct state_pool *pool, void *block, size_t bytes, mf_error *why)
{
    if (!pool->memory) {
        memset(block, 0, bytes);
        return MF_OK;
    }
    return pool->memory->clear(pool->memory->user, block, bytes) ? MF_OK : fail_device(why);
}

/* ------------------------------------------------------------------------------------- the pool */

mf_status state_pool_init(struct state_pool *pool, const mf_allocator *allocator,
                          const struct state_memory *memory, const struct model_config *config,
                          enum kv_format format, uint64_t limit_bytes, mf_error *why)
{
    size_t bytes = config->layer_count * sizeof(uint32_t);
    size_t device_bytes = memory ? DEVICE_BUCKETS * sizeof(struct device_block *) : 0;
    uint32_t seen[MIXER_KINDS] = { 0 };
    *pool =
        (struct state_pool){ .shape = state_shape_of(config, format), .limit_bytes = limit_bytes };
    pool->layer_index = allocator->allocate(allocator->user, bytes, CACHE_LINE);
    if (!pool->layer_index) return fail_memory(why, bytes);
    pool->allocator = allocator;
    pthread_mutex_init(&pool->lock, NULL);
    if (memory) {
        pool->on_device = allocator->allocate(allocator->user, device_bytes, CACHE_LINE);
        if (!pool->on_device) {
            state_pool_free(pool);
            return fail_memory(why, device_bytes);
        }
        memset(pool->on_device, 0, device_bytes);
        pool->memory = memory;
    }
    for (uint32_t i = 0; i < config->layer_count; i++)
        pool->layer_index[i] = seen[config->mixers[i]]++;
    for (int kind = 0; kind < BLOCK_KINDS; kind++)
        pool->blocks[kind].bytes = state_block_bytes(&pool->shape, (enum block_kind)kind);
    return MF_OK;
}

/* Under the lock. */
static void release_spare(struct state_pool *pool)
{
    for (int kind = 0; kind < BLOCK_KINDS; kind++) {
        struct blocks *blocks = &pool->blocks[kind];
        while (blocks->first_spare) {
            void *block = blocks->first_spare;
            blocks->first_spare = end_of(pool, (enum block_kind)kind, block)->next;
            blocks->spare--;
            pool->taken_bytes -= blocks->bytes;
            if (is_on_device(pool, (enum block_kind)kind))
                release_on_device(pool, block, blocks->bytes);
            else
                pool->allocator->release(pool->allocator->user, block, blocks->bytes);
        }
    }
}

void state_pool_free(struct state_pool *pool)
{
    const mf_allocator *allocator = pool->allocator;
    if (!allocator) return;
    release_spare(pool);
    assert(pool->taken_bytes == 0);
    pthread_mutex_destroy(&pool->lock);
    if (pool->on_device)
        allocator->release(allocator->user, pool->on_device,
                           DEVICE_BUCKETS * sizeof(struct device_block *));
    allocator->release(allocator->user, pool->layer_index,
                       pool->shape.config->layer_count * sizeof(uint32_t));
    *pool = (struct state_pool){ 0 };
}

void state_pool_set_limit(struct state_pool *pool, uint64_t limit_bytes)
{
    pthread_mutex_lock(&pool->lock);
    pool->limit_bytes = limit_bytes;
    pthread_mutex_unlock(&pool->lock);
}

static mf_status fail_full(const struct state_pool *pool, enum block_kind kind, mf_error *why)
{
    static const char *const names[] = { "page of 64 positions", "page of a window",
                                         "recurrent state", "row of logits" };
    double mebibyte = 1 << 20;
    return fail(why, MF_ERR_POOL_FULL,
                "the memory for sequences is full: another %s takes %.2f MiB; of %.2f MiB, "
                "%u pages, %u recurrent states and %u rows of logits hold %.2f",
                names[kind], (double)pool->blocks[kind].bytes / mebibyte,
                (double)pool->limit_bytes / mebibyte,
                pool->blocks[BLOCK_PAGE].held + pool->blocks[BLOCK_WINDOW].held,
                pool->blocks[BLOCK_RECURRENT].held, pool->blocks[BLOCK_LOGITS].held,
                (double)pool->taken_bytes / mebibyte);
}

/* Under the lock: a block from the allocator. */
static mf_status take_fresh(void **out, struct state_pool *pool, enum block_kind kind,
                            mf_error *why)
{
    size_t bytes = pool->blocks[kind].bytes;
    if (pool->taken_bytes + bytes > pool->limit_bytes) release_spare(pool);
    if (pool->taken_bytes + bytes > pool->limit_bytes) return fail_full(pool, kind, why);
    *out = is_on_device(pool, kind) ? allocate_on_device(pool, bytes)
                                    : pool->allocator->allocate(pool->allocator->user, bytes, 4096);
    if (!*out) return fail_memory(why, bytes);
    pool->taken_bytes += bytes;
    return MF_OK;
}

void state_pool_set_reclaim(struct state_pool *pool,
                            uint64_t (*reclaim)(void *user, uint64_t bytes), void *user)
{
    pool->reclaim = reclaim;
    pool->reclaim_user = user;
}

static mf_status take(void **out, struct state_pool *pool, enum block_kind kind, mf_error *why)
{
    struct blocks *blocks = &pool->blocks[kind];
    mf_status status = MF_OK;
    *out = NULL;
    pthread_mutex_lock(&pool->lock);
    if (blocks->first_spare) {
        *out = blocks->first_spare;
        blocks->first_spare = end_of(pool, kind, *out)->next;
        blocks->spare--;
    } else {
        status = take_fresh(out, pool, kind, why);
    }
    if (status == MF_OK) {
        *end_of(pool, kind, *out) = (struct block_end){ .holders = 1 };
        blocks->held++;
    }
    pthread_mutex_unlock(&pool->lock);
    return status;
}

mf_status state_pool_take(void **out, struct state_pool *pool, enum block_kind kind, mf_error *why)
{
    mf_status status = take(out, pool, kind, why);
    /* Again while there is something to drop: another thread may have been faster. */
    while (status == MF_ERR_POOL_FULL && pool->reclaim &&
           pool->reclaim(pool->reclaim_user, pool->blocks[kind].bytes) > 0)
        status = take(out, pool, kind, why);
    return status;
}

void *state_pool_share(struct state_pool *pool, enum block_kind kind, void *block)
{
    if (!block) return NULL;
    pthread_mutex_lock(&pool->lock);
    end_of(pool, kind, block)->holders++;
    pthread_mutex_unlock(&pool->lock);
    return block;
}

/* The table of references that the block is; NULL: it is none. */
static const struct window_table *table_in(const struct state_pool *pool, enum block_kind kind,
                                           const void *block)
{
    return kind == BLOCK_RECURRENT && pool->shape.window_layers > 0 ? block : NULL;
}

/* Under the lock. */
static void drop(struct state_pool *pool, enum block_kind kind, void *block)
{
    struct block_end *end = end_of(pool, kind, block);
    struct blocks *blocks = &pool->blocks[kind];
    const struct window_table *table = table_in(pool, kind, block);
    assert(end->holders > 0);
    if (--end->holders > 0) return;
    for (uint32_t i = 0; table && i < table->count; i++) drop(pool, BLOCK_WINDOW, table->pages[i]);
    end->next = blocks->first_spare;
    blocks->first_spare = block;
    blocks->spare++;
    blocks->held--;
}

void state_pool_drop(struct state_pool *pool, enum block_kind kind, void *block)
{
    if (!block) return;
    pthread_mutex_lock(&pool->lock);
    drop(pool, kind, block);
    pthread_mutex_unlock(&pool->lock);
}

mf_status state_pool_own(uint8_t **page, struct state_pool *pool, enum block_kind kind,
                         mf_error *why)
{
    void *copy;
    if (!state_pool_is_shared(pool, kind, *page)) return MF_OK;
    mf_status status = state_pool_take(&copy, pool, kind, why);
    if (status != MF_OK) return status;
    status = move(pool, copy, *page, content_bytes(&pool->shape, kind), why);
    if (status != MF_OK) {
        state_pool_drop(pool, kind, copy);
        return status;
    }
    state_pool_drop(pool, kind, *page);
    *page = copy;
    return MF_OK;
}

uint64_t state_pool_unshared_bytes(struct state_pool *pool, enum block_kind kind, void *block)
{
    const struct window_table *table = table_in(pool, kind, block);
    uint64_t bytes = 0;
    if (!block) return 0;
    pthread_mutex_lock(&pool->lock);
    if (end_of(pool, kind, block)->holders == 1) {
        bytes = pool->blocks[kind].bytes;
        for (uint32_t i = 0; table && i < table->count; i++)
            if (end_of(pool, BLOCK_WINDOW, table->pages[i])->holders == 1)
                bytes += pool->blocks[BLOCK_WINDOW].bytes;
    }
    pthread_mutex_unlock(&pool->lock);
    return bytes;
}

bool state_pool_is_shared(struct state_pool *pool, enum block_kind kind, void *block)
{
    pthread_mutex_lock(&pool->lock);
    bool shared = end_of(pool, kind, block)->holders > 1;
    pthread_mutex_unlock(&pool->lock);
    return shared;
}

void state_pool_trim(struct state_pool *pool)
{
    pthread_mutex_lock(&pool->lock);
    release_spare(pool);
    pthread_mutex_unlock(&pool->lock);
}

struct state_pool_sizes state_pool_sizes(struct state_pool *pool)
{
    struct state_pool_sizes sizes = { 0 };
    pthread_mutex_lock(&pool->lock);
    sizes.limit_bytes = pool->limit_bytes;
    sizes.taken_bytes = pool->taken_bytes;
    for (int kind = 0; kind < BLOCK_KINDS; kind++) {
        sizes.held[kind] = pool->blocks[kind].held;
        sizes.held_bytes += (uint64_t)pool->blocks[kind].held * pool->blocks[kind].bytes;
    }
    pthread_mutex_unlock(&pool->lock);
    return sizes;
}
