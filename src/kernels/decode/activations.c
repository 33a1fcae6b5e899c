/* activations.c: activations as integers (struct integer_unit).
 *
 * The largest of 32 numbers becomes ±16256 = 127·128, so that the high byte stays
 * below 128 whatever the low one rounds to. */
#include "kernels/decode/pairs.h"
#include "kernels/set.h"

static const float largest_integer = 16256.0f;

LANES_INLINE lanes lanes_absolute(lanes v)
{
    int_lanes bits;
    memcpy(&bits, &v, sizeof bits);
    bits &= 0x7fffffff;
    memcpy(&v, &bits, sizeof bits);
    return v;
}

/* The greatest lane; NaN only if the first is. */
LANES_INLINE float lanes_greatest(lanes v)
{
    float values[LANES];
    lanes_store(values, v);
    for (int width = LANES / 2; width > 0; width /= 2)
        for (int i = 0; i < width; i++)
            values[i] = values[i + width] > values[i] ? values[i + width] : values[i];
    return values[0];
}

LANES_INLINE float lanes_sum_integers(int_lanes v)
{
    int32_t sum = 0;
    for (int i = 0; i < LANES; i++) sum += v[i];
    return (float)sum;
}

/* 16 numbers as integers; returns the sum of these. */
LANES_INLINE float make_16(int8_t *high, int8_t *low, lanes x, float inverse)
{
    /* Adding and taking off 1.5·2^23 rounds to the nearest whole number. */
    const lanes magic = lanes_all(12582912.0f);
    lanes rounded = (x * inverse + magic) - magic;
    int_lanes q = __builtin_convertvector(rounded, int_lanes);
    int_lanes upper = (q + 64) >> 7;
    lanes_to_bytes(high, upper);
    lanes_to_bytes(low, q - (upper << 7));
    return lanes_sum_integers(q);
}

/* 32 numbers, `place` in the unit. */
LANES_INLINE void make_32(struct integer_unit *unit, size_t place, lanes first, lanes second)
{
    float largest = lanes_greatest(lanes_max(lanes_absolute(first), lanes_absolute(second)));
    float spoilt = lanes_sum((first - first) + (second - second)); /* 0, or NaN */
    float inverse = largest > 0.0f ? largest_integer / largest : 0.0f;
    float scale = largest / largest_integer + spoilt;
    if (spoilt != spoilt || inverse > 3e38f) inverse = 0.0f;
    if (spoilt != spoilt) first = second = lanes_all(0.0f); /* no integers: the scale is NaN */
    float sum = make_16(unit->high + place, unit->low + place, first, inverse);
    float sum2 = make_16(unit->high + place + 16, unit->low + place + 16, second, inverse);
    unit->scales[place / 32] = scale;
    unit->sums[place / 32] = (sum + sum2) * scale;
    unit->sums_16[place / 16] = sum * scale;
    unit->sums_16[place / 16 + 1] = sum2 * scale;
}

/* Where eight `e` of a unit goes. */
LANES_INLINE size_t place_of_eight(size_t e, enum unit_order order)
{
    size_t c = e / 8, p = e / 4 % 2, i = e % 4; /* a byte of K formats is of 64 numbers */
    switch (order) {
    case UNIT_ORDER_K_64:
        return 16 * (i % 2) + 8 * (p ^ i / 2) + 4 * (c % 2) + 2 * p + c / 2;
    case UNIT_ORDER_K_32:
        return 16 * p + 4 * i + c;
    case UNIT_ORDER_HALVES:
        return 16 * (e / 8 % 2) + 8 * (e % 2) + 2 * (e / 2 % 4) + e / 16;
    default:
        return e;
    }
}

LANES_INLINE void move_eights(int8_t *plane, enum unit_order order)
{
    int8_t from[UNIT];
    memcpy(from, plane, sizeof from);
#pragma GCC unroll 32
    for (size_t e = 0; e < UNIT / 8; e++)
        memcpy(plane + 8 * place_of_eight(e, order), from + 8 * e, 8);
}

static void put_in_order(int8_t *plane, enum unit_order order)
{
    switch (order) { /* constants from here on */
    case UNIT_ORDER_K_64:
        move_eights(plane, UNIT_ORDER_K_64);
        break;
    case UNIT_ORDER_K_32:
        move_eights(plane, UNIT_ORDER_K_32);
        break;
    case UNIT_ORDER_HALVES:
        move_eights(plane, UNIT_ORDER_HALVES);
        break;
    case UNIT_ORDER_PAIRS:
        unit_part_pairs(plane);
        break;
    default:
        break;
    }
}

void NAMED(make_units)(struct integer_unit *out, const float *x, size_t n, enum unit_order order)
{
    for (size_t i = 0; i < n; i += 32) {
        size_t left = n - i;
        lanes first = left >= 16 ? lanes_load(x + i) : lanes_load_some(x + i, left);
        lanes second = { 0 };
        if (left >= 32)
            second = lanes_load(x + i + 16);
        else if (left > 16)
            second = lanes_load_some(x + i + 16, left - 16);
        make_32(out + i / UNIT, i % UNIT, first, second);
    }
    for (size_t i = align_up(n, 32); i % UNIT != 0; i += 32)
        make_32(out + i / UNIT, i % UNIT, (lanes){ 0 }, (lanes){ 0 });
    for (size_t u = 0; u < units_of(n) && order != UNIT_ORDER_ROW; u++) {
        put_in_order(out[u].high, order);
        put_in_order(out[u].low, order);
    }
}
