#include "base/arena.h"

#include <stdlib.h>
#include <sys/mman.h>

/* Small requests share blocks of this size; a larger one gets its own. */
enum { BLOCK_BYTES = 64 * 1024 };

enum { HUGE_PAGE = 2 << 20 };

struct arena_block {
    struct arena_block *next;
    size_t bytes; /* as asked of the allocator, header included */
    size_t used;
};

/* Huge pages: with 4 KiB pages, TLB misses take a third of the time of reading weights.  The tail
 * that does not fill a huge page stays in small ones, so that no memory is wasted. */
static void *heap_allocate(void *user, size_t bytes, size_t alignment)
{
    (void)user;
    void *pointer = NULL;
    size_t huge = bytes / HUGE_PAGE * HUGE_PAGE;
    if (huge > 0) alignment = max_size(alignment, HUGE_PAGE);
    if (posix_memalign(&pointer, alignment, bytes) != 0) return NULL;
    if (huge > 0) madvise(pointer, huge, MADV_HUGEPAGE); /* may fail: only speed depends on it */
    return pointer;
}

static void heap_release(void *user, void *pointer, size_t bytes)
{
    (void)user;
    (void)bytes;
    free(pointer);
}

const mf_allocator allocator_heap = { .allocate = heap_allocate, .release = heap_release };

void arena_init(struct arena *arena, const mf_allocator *allocator)
{
    *arena = (struct arena){ .allocator = allocator };
}

void arena_free(struct arena *arena)
{
    struct arena_block *block = arena->blocks;
    while (block) {
        struct arena_block *next = block->next;
        arena->allocator->release(arena->allocator->user, block, block->bytes);
        block = next;
    }
    arena->blocks = NULL;
    arena->total_bytes = 0;
}

bool arena_owns(const struct arena *arena, const void *pointer)
{
    uintptr_t address = (uintptr_t)pointer;
    for (const struct arena_block *block = arena->blocks; block; block = block->next)
        if (address - (uintptr_t)block < block->bytes) return true;
    return false;
}

size_t arena_block_bytes(size_t bytes)
{
    size_t header = align_up(sizeof(struct arena_block), CACHE_LINE);
    return header + max_size(bytes, BLOCK_BYTES - header);
}

static struct arena_block *block_new(struct arena *arena, size_t payload)
{
    const mf_allocator *allocator = arena->allocator;
    size_t header = align_up(sizeof(struct arena_block), CACHE_LINE);
    size_t bytes = arena_block_bytes(payload);
    struct arena_block *block = allocator->allocate(allocator->user, bytes, CACHE_LINE);
    if (!block) return NULL;
    *block = (struct arena_block){ .bytes = bytes, .used = header };
    arena->total_bytes += bytes;
    return block;
}

bool arena_reserve(struct arena *arena, size_t bytes)
{
    struct arena_block *block = bytes <= SIZE_MAX / 2 ? block_new(arena, bytes) : NULL;
    if (!block) return false;
    block->next = arena->blocks;
    arena->blocks = block;
    return true;
}

/* A request that the present block has no room for gets a block of its own if it is large: the
 * present block is filled further afterwards. */
static bool gets_own_block(uint64_t bytes)
{
    return bytes > BLOCK_BYTES / 4;
}

void *arena_take_raw(struct arena *arena, size_t count, size_t size)
{
    uint64_t bytes;
    if (!checked_multiply(&bytes, count, size) || bytes > SIZE_MAX / 2) return NULL;
    bytes = align_up(bytes, CACHE_LINE);

    struct arena_block *block = arena->blocks;
    if (!block || block->bytes - block->used < bytes) {
        block = block_new(arena, bytes);
        if (!block) return NULL;
        if (arena->blocks && gets_own_block(bytes)) {
            block->next = arena->blocks->next;
            arena->blocks->next = block;
        } else {
            block->next = arena->blocks;
            arena->blocks = block;
        }
    }
    void *pointer = (uint8_t *)block + block->used;
    block->used += bytes;
    return pointer;
}

void *arena_take(struct arena *arena, size_t count, size_t size)
{
    void *pointer = arena_take_raw(arena, count, size);
    return pointer ? memset(pointer, 0, count * size) : NULL;
}

void arena_tally_take(struct arena_tally *tally, size_t count, size_t size)
{
    uint64_t bytes = align_up((uint64_t)count * size, CACHE_LINE);
    if (tally->left >= bytes) {
        tally->left -= bytes;
        return;
    }
    size_t block = arena_block_bytes(bytes);
    tally->total_bytes += block;
    if (!gets_own_block(bytes))
        tally->left = block - align_up(sizeof(struct arena_block), CACHE_LINE) - bytes;
}

void arena_start_block(struct arena *arena)
{
    if (arena->blocks) arena->blocks->used = arena->blocks->bytes;
}

char *arena_text(struct arena *arena, const char *text, size_t length)
{
    if (length == SIZE_MAX) return NULL;
    char *copy = arena_take(arena, length + 1, 1);
    if (copy && length) memcpy(copy, text, length);
    return copy;
}

static void *allocator_take(void *arena, size_t bytes, size_t alignment)
{
    return alignment <= CACHE_LINE ? arena_take_raw(arena, bytes, 1) : NULL;
}

static void allocator_keep(void *arena, void *pointer, size_t bytes)
{
    (void)arena;
    (void)pointer;
    (void)bytes;
}

mf_allocator arena_allocator(struct arena *arena)
{
    return (mf_allocator){ .user = arena, .allocate = allocator_take, .release = allocator_keep };
}
