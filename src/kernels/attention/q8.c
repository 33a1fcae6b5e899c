/* q8.c: numbers of a KV cache in bytes (attention.h: struct q8_tile). */
#include "kernels/attention/attention.h"
#include "kernels/set.h"
#include "kernels/simd/simd.h"

/* Added to a number below 2^22 in magnitude, it leaves the nearest whole number in the lowest bits
 * of the sum. */
#define TO_WHOLE 12582912.0f

LANES_INLINE float greatest_lane(lanes v)
{
    float most = v[0];
    for (int i = 1; i < LANES; i++) most = v[i] > most ? v[i] : most;
    return most;
}

/* The scale of a group, as it is stored: rounded up, so that the greatest number fits. */
LANES_INLINE uint16_t scale_of(lanes low, lanes high)
{
    lanes most = lanes_greater(lanes_greater(low, -low), lanes_greater(high, -high));
    float spoilt = lanes_sum(low * 0.0f + high * 0.0f); /* 0, or NaN */
    float scale = greatest_lane(most) / 127.0f + spoilt;
    uint16_t stored = f16_from_f32(scale);
    return f32_from_f16(stored) < scale ? (uint16_t)(stored + 1) : stored;
}

LANES_INLINE void to_bytes(int8_t *out, lanes x, float inverse)
{
    lanes scaled = lanes_greater(x * inverse, lanes_all(-127.0f)); /* not NaN from here on */
    lanes whole = lanes_least(scaled, lanes_all(127.0f)) + TO_WHOLE;
    int_lanes bits;
    memcpy(&bits, &whole, sizeof bits);
    lanes_to_bytes(out, bits);
}

void NAMED(store_q8)(const struct q8_tile *t, size_t index, const float *x)
{
    uint16_t *scales = q8_scales(t) + index;
    for (size_t c = 0; c < t->width; c += Q8_GROUP, scales += ATTEND_TILE) {
        float group[Q8_GROUP] = { 0 };
        int8_t numbers[Q8_GROUP];
        size_t count = min_size(Q8_GROUP, t->width - c);
        memcpy(group, x + c, count * sizeof *group);
        lanes low = lanes_load(group), high = lanes_load(group + LANES);
        *scales = scale_of(low, high);
        float scale = f32_from_f16(*scales), inverse = scale > 0.0f ? 1.0f / scale : 0.0f;
        to_bytes(numbers, low, inverse);
        to_bytes(numbers + LANES, high, inverse);
        for (size_t i = 0; t->by_channel && i < count; i++)
            t->numbers[(c + i) * ATTEND_TILE + index] = numbers[i];
        if (!t->by_channel) memcpy(t->numbers + index * t->width + c, numbers, count);
    }
}

LANES_INLINE lanes from_bytes(const int8_t *p)
{
    signed_bytes stored;
    memcpy(&stored, p, sizeof stored);
    return __builtin_convertvector(__builtin_convertvector(stored, int_lanes), lanes);
}

static void widen_channels(uint16_t *out, const struct q8_tile *t)
{
    const uint16_t *stored = q8_scales(t);
    for (size_t p = 0; p < ATTEND_TILE; p += LANES)
        for (size_t c = 0; c < t->width; c++) {
            lanes scales = lanes_from_f16(stored + c / Q8_GROUP * ATTEND_TILE + p);
            lanes_to_f16(out + c * ATTEND_TILE + p,
                         from_bytes(t->numbers + c * ATTEND_TILE + p) * scales);
        }
}

static void widen_positions(uint16_t *out, const struct q8_tile *t)
{
    const uint16_t *stored = q8_scales(t);
    for (size_t p = 0; p < ATTEND_TILE; p++)
        for (size_t c = 0; c < t->width; c += LANES) {
            float scale = f32_from_f16(stored[c / Q8_GROUP * ATTEND_TILE + p]);
            size_t at = p * t->width + c, count = min_size(LANES, t->width - c);
            if (count == LANES)
                lanes_to_f16(out + at, from_bytes(t->numbers + at) * scale);
            else
                for (size_t i = at; i < at + count; i++)
                    out[i] = f16_from_f32((float)t->numbers[i] * scale);
        }
}

void NAMED(widen_q8)(uint16_t *out, const struct q8_tile *t)
{
    if (t->by_channel)
        widen_channels(out, t);
    else
        widen_positions(out, t);
}
