#include "io/read_stage.h"

#ifdef __SSE2__
#include <emmintrin.h>
#endif

enum { PAGE = 4096 };

/* Copying must be worth the time that it takes from computing.  Shorter phases say more about the
 * moment than about the way; of all reads a 30th go the worse way. */
static const struct read_choice_rule rule = { .worth = 1.1, .phase_reads = 240, .again = 8192 };

void read_stage_init(struct read_stage *out, const mf_allocator *allocator, size_t read_bytes,
                     size_t count)
{
    *out = (struct read_stage){ .buffer_bytes = read_bytes };
    count = min_size(count, STAGE_BUFFERS_MAX);
    size_t bytes = count * read_bytes;
    if (bytes > 0) out->memory = allocator->allocate(allocator->user, bytes, PAGE);
    read_choice_init(&out->choice, out->memory ? &rule : NULL);
    if (!out->memory) return;
    out->memory_bytes = bytes;
    for (; out->free_count < count; out->free_count++)
        out->free[out->free_count] = out->memory + out->free_count * read_bytes;
}

void read_stage_free(struct read_stage *stage, const mf_allocator *allocator)
{
    if (stage->memory) allocator->release(allocator->user, stage->memory, stage->memory_bytes);
    *stage = (struct read_stage){ 0 };
}

uint8_t *read_stage_take(struct read_stage *stage, size_t read_bytes)
{
    bool used = stage->choice.active == 1 && read_bytes <= stage->buffer_bytes;
    return used && stage->free_count > 0 ? stage->free[--stage->free_count] : NULL;
}

void read_stage_give_back(struct read_stage *stage, uint8_t *buffer)
{
    if (buffer) stage->free[stage->free_count++] = buffer;
}

#ifdef __SSE2__
static void copy_line(uint8_t *out, const uint8_t *buffer)
{
    const __m128i *in = (const __m128i *)(const void *)buffer;
    __m128i a = _mm_loadu_si128(in), b = _mm_loadu_si128(in + 1), c = _mm_loadu_si128(in + 2),
            d = _mm_loadu_si128(in + 3);
    _mm_stream_si128((__m128i *)(void *)out, a);
    _mm_stream_si128((__m128i *)(void *)out + 1, b);
    _mm_stream_si128((__m128i *)(void *)out + 2, c);
    _mm_stream_si128((__m128i *)(void *)out + 3, d);
}

/* Whole lines from four places at a time, which the CPU fetches ahead each by itself: a third
 * faster than from one.  The bytes that were copied. */
static size_t copy_lines(uint8_t *out, const uint8_t *buffer, size_t bytes)
{
    enum { STREAMS = 4 };
    size_t part = bytes / STREAMS / CACHE_LINE * CACHE_LINE;
    if ((uintptr_t)out % sizeof(__m128i) != 0) return 0;
    for (size_t i = 0; i < part; i += CACHE_LINE)
        for (size_t at = i; at < STREAMS * part; at += part) copy_line(out + at, buffer + at);
    _mm_sfence();
    return STREAMS * part;
}
#else
static size_t copy_lines(uint8_t *out, const uint8_t *buffer, size_t bytes)
{
    (void)out;
    (void)buffer;
    (void)bytes;
    return 0;
}
#endif

void read_stage_copy(uint8_t *out, const uint8_t *buffer, size_t bytes)
{
    size_t done = copy_lines(out, buffer, bytes);
    memcpy(out + done, buffer + done, bytes - done);
}
