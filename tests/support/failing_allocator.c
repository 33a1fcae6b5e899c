#include "support/failing_allocator.h"

#include <stdio.h>
#include <stdlib.h>

/* In front of every block.  The payload keeps its alignment because the header's room is
 * rounded up to it, so the header sits right before the payload. */
struct header {
    void *start; /* what malloc gave */
    uint64_t bytes;
    uint64_t magic;
};

static const uint64_t magic_live = 0x6d6f65666c757821;
static const uint64_t magic_released = 0xdeadbeefdeadbeef;

static void wrong_use(const char *what)
{
    fprintf(stderr, "failing_allocator: %s\n", what);
    abort();
}

static void *allocate(void *user, size_t bytes, size_t alignment)
{
    struct failing_allocator *heap = user;
    if (alignment == 0 || (alignment & (alignment - 1))) wrong_use("alignment is no power of two");
    if (atomic_fetch_add(&heap->calls, 1) + 1 == heap->fail_at) {
        atomic_store(&heap->fired, true);
        return NULL;
    }
    if (heap->limit_bytes &&
        (bytes > heap->limit_bytes || atomic_load(&heap->live_bytes) + bytes > heap->limit_bytes))
        return NULL;
    if (alignment < _Alignof(max_align_t)) alignment = _Alignof(max_align_t);
    size_t room = (sizeof(struct header) + alignment - 1) & ~(alignment - 1);
    void *start = NULL;
    if (bytes > SIZE_MAX - room || posix_memalign(&start, alignment, room + bytes)) return NULL;
    uint8_t *payload = (uint8_t *)start + room;
    ((struct header *)payload)[-1] = (struct header){ start, bytes, magic_live };
    atomic_fetch_add(&heap->live_bytes, bytes);
    atomic_fetch_add(&heap->live_blocks, 1);
    return payload;
}

static void release(void *user, void *pointer, size_t bytes)
{
    struct failing_allocator *heap = user;
    if (!pointer) return;
    struct header *header = (struct header *)pointer - 1;
    if (header->magic != magic_live) wrong_use("a block that is not live was released");
    if (header->bytes != bytes) wrong_use("a block was released with another size than asked");
    header->magic = magic_released;
    atomic_fetch_sub(&heap->live_bytes, bytes);
    atomic_fetch_sub(&heap->live_blocks, 1);
    free(header->start);
}

void failing_allocator_init(struct failing_allocator *heap)
{
    *heap = (struct failing_allocator){ .allocator = { heap, allocate, release } };
}

void failing_allocator_arm(struct failing_allocator *heap, uint64_t nth)
{
    atomic_store(&heap->calls, 0);
    atomic_store(&heap->fired, false);
    heap->fail_at = nth;
}

bool failing_allocator_disarm(struct failing_allocator *heap)
{
    heap->fail_at = 0;
    return atomic_load(&heap->fired);
}
