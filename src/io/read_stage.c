#include "io/read_stage.h"

#ifdef __SSE2__
#include <emmintrin.h>
#endif

enum {
    PAGE = 4096,
    /* Shorter phases measure the moment rather than the way.  In the long run one read in 30 goes
     * the slower way. */
    PHASE_READS = 240,
    PHASE_SKIPPED = 16,
    INTERVAL_MIN = 2048,
    INTERVAL_MAX = 8192
};

/* The copy takes time from computing, so staging must gain this much. */
static const double gain_min = 1.1;

void read_stage_init(struct read_stage *out, const mf_allocator *allocator, size_t read_bytes,
                     size_t count)
{
    read_bytes = align_up(read_bytes, PAGE); /* reads into whole pages are the fastest */
    *out = (struct read_stage){ .buffer_bytes = read_bytes, .phase = STAGE_PHASES };
    count = min_size(count, STAGE_BUFFERS_MAX);
    size_t bytes = count * read_bytes;
    if (bytes > 0) out->memory = allocator->allocate(allocator->user, bytes, PAGE);
    if (!out->memory) return;
    out->memory_bytes = bytes;
    out->phase = 0;
    out->interval = INTERVAL_MIN;
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
    bool used = stage->active && read_bytes <= stage->buffer_bytes;
    return used && stage->free_count > 0 ? stage->free[--stage->free_count] : NULL;
}

void read_stage_give_back(struct read_stage *stage, uint8_t *buffer)
{
    if (buffer) stage->free[stage->free_count++] = buffer;
}

/* ------------------------------------------------------------- measurement */

static double rate_of(const struct stage_rate *rate)
{
    return (double)rate->bytes / (rate->seconds > 0 ? rate->seconds : 1e-9);
}

/* Repeats the last two phases; the next interval is twice as long. */
static void measure_again(struct read_stage *stage)
{
    for (size_t way = 0; way < COUNT_OF(stage->rates); way++) {
        stage->rates[way].bytes /= 2;
        stage->rates[way].seconds /= 2;
    }
    stage->phase = STAGE_PHASES - COUNT_OF(stage->rates);
    stage->interval = (uint32_t)min_size(2 * (size_t)stage->interval, INTERVAL_MAX);
    stage->active = false;
    stage->reads = 0;
}

void read_stage_note(struct read_stage *stage, uint64_t bytes, double seconds)
{
    if (!stage->memory) return;
    stage->reads++;
    if (read_stage_is_settled(stage)) {
        if (stage->reads >= stage->interval) measure_again(stage);
        return;
    }
    if (stage->reads == PHASE_SKIPPED) stage->phase_start = (struct stage_rate){ bytes, seconds };
    if (stage->reads < PHASE_SKIPPED + PHASE_READS) return;
    struct stage_rate *rate = &stage->rates[stage->active];
    rate->bytes += bytes - stage->phase_start.bytes;
    rate->seconds += seconds - stage->phase_start.seconds;
    stage->reads = 0;
    stage->phase++;
    stage->active = read_stage_is_settled(stage)
                        ? rate_of(&stage->rates[true]) > gain_min * rate_of(&stage->rates[false])
                        : !stage->active;
}

/* -------------------------------------------------------------------- copy */

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

/* Copies whole cache lines in four streams, which the hardware prefetches separately: a third
 * faster than one stream.  Returns the number of bytes copied. */
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
