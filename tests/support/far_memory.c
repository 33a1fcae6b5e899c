#include "support/far_memory.h"

#include "support/test.h"

#include <sys/mman.h>

enum { FAR_BYTES = 1 << 30 };

static bool is_far(const struct far_memory *far, const void *memory)
{
    const uint8_t *at = memory;
    return at >= far->far && at < far->far + FAR_BYTES;
}

static void *near_of(const struct far_memory *far, const void *memory)
{
    size_t offset = (size_t)((const uint8_t *)memory - far->far);
    return is_far(far, memory) ? far->near + offset : (void *)(uintptr_t)memory;
}

static bool works(struct far_memory *far)
{
    return far->fails_after == 0 || --far->fails_after > 0;
}

static void *allocate(void *user, size_t bytes)
{
    struct far_memory *far = user;
    void *out = far->far + far->used;
    size_t used = (size_t)align_up(far->used + bytes, 512);
    if (used > FAR_BYTES) return NULL;
    far->used = used;
    far->live_count++;
    return out;
}

static void release(void *user, void *memory, size_t bytes)
{
    struct far_memory *far = user;
    (void)bytes;
    assert_true(is_far(far, memory));
    far->live_count--;
}

static bool copy(void *user, void *to, const void *from, size_t bytes)
{
    struct far_memory *far = user;
    if (!works(far)) return false;
    assert_true(is_far(far, to) || is_far(far, from));
    memcpy(near_of(far, to), near_of(far, from), bytes);
    return true;
}

static bool clear(void *user, void *memory, size_t bytes)
{
    struct far_memory *far = user;
    if (!works(far)) return false;
    assert_true(is_far(far, memory));
    memset(near_of(far, memory), 0, bytes);
    return true;
}

static uint8_t *reserve(int protection)
{
    void *memory =
        mmap(NULL, FAR_BYTES, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    assert_true(memory != MAP_FAILED);
    return memory;
}

void far_memory_open(struct far_memory *far)
{
    *far = (struct far_memory){ .memory = { .allocate = allocate,
                                            .release = release,
                                            .copy = copy,
                                            .clear = clear,
                                            .user = far } };
    far->far = reserve(PROT_NONE);
    far->near = reserve(PROT_READ | PROT_WRITE);
}

void far_memory_close(struct far_memory *far)
{
    assert_int_equal(far->live_count, 0);
    munmap(far->far, FAR_BYTES);
    munmap(far->near, FAR_BYTES);
}
