#include "state/kv_pages.h"

#include "base/status.h"

uint32_t kv_pages_for(uint32_t positions)
{
    return positions / KV_PAGE_TOKENS + (positions % KV_PAGE_TOKENS != 0);
}

size_t kv_number_bytes(enum kv_format format)
{
    return format == KV_F16 ? sizeof(uint16_t) : sizeof(float);
}

static size_t stack_bytes(uint32_t page_count)
{
    return max_size(page_count, 1) * sizeof(uint32_t);
}

mf_status kv_pool_init(struct kv_pool *pool, const mf_allocator *allocator,
                       const struct kv_pool *shape, mf_error *why)
{
    uint64_t numbers, bytes, pages = (uint64_t)shape->layer_count * shape->parts;
    uint32_t page_count = shape->page_count;
    *pool = *shape;
    pool->allocator = allocator;
    if (!checked_multiply(&pages, pages, page_count) ||
        !checked_multiply(&numbers, pages, shape->page_numbers) ||
        !checked_multiply(&bytes, numbers, kv_number_bytes(shape->format)))
        return fail(why, MF_ERR_MEMORY, "a cache of %u pages takes more than 2^64 bytes",
                    page_count);
    pool->memory_bytes = max_size(bytes, sizeof(float));
    pool->memory = allocator->allocate(allocator->user, pool->memory_bytes, 4096);
    if (!pool->memory) return fail_memory(why, pool->memory_bytes);
    pool->free_pages =
        allocator->allocate(allocator->user, stack_bytes(page_count), _Alignof(uint32_t) * 4);
    if (!pool->free_pages) {
        kv_pool_free(pool);
        return fail_memory(why, stack_bytes(page_count));
    }
    while (pool->free_count < page_count) {
        pool->free_pages[pool->free_count] = page_count - 1 - pool->free_count;
        pool->free_count++;
    }
    return MF_OK;
}

void kv_pool_free(struct kv_pool *pool)
{
    const mf_allocator *allocator = pool->allocator;
    if (pool->memory) allocator->release(allocator->user, pool->memory, pool->memory_bytes);
    if (pool->free_pages)
        allocator->release(allocator->user, pool->free_pages, stack_bytes(pool->page_count));
    pool->memory = NULL;
    pool->free_pages = NULL;
}

bool kv_pool_take(struct kv_pool *pool, uint32_t *page)
{
    if (pool->free_count == 0) return false;
    *page = pool->free_pages[--pool->free_count];
    return true;
}

void kv_pool_give(struct kv_pool *pool, uint32_t page)
{
    pool->free_pages[pool->free_count++] = page;
}

struct kv_view kv_pool_view(const struct kv_pool *pool, uint32_t layer, const uint32_t *pages)
{
    size_t page_bytes = pool->page_numbers * kv_number_bytes(pool->format);
    size_t half = pool->page_count * page_bytes;
    uint8_t *keys = pool->memory + pool->parts * layer * half;
    return (struct kv_view){ .keys = keys,
                             .values = pool->parts > 1 ? keys + half : NULL,
                             .pages = pages,
                             .page_bytes = page_bytes,
                             .format = pool->format };
}
