/* dot_lanes.h: how products are added up where no instruction set has its own way.
 *
 * Generic's loops define the result of all; NEON adds up neighbours in registers. */
#ifndef KERNELS_DECODE_DOT_LANES_H
#define KERNELS_DECODE_DOT_LANES_H

#include "kernels/weight_units.h"

enum { STREAMS = 1, TOGETHER = 1 };

#define UNIT_ORDERS [0] = UNIT_ORDER_ROW

typedef struct unit dot_unit;

struct sums {
    lanes all; /* groups of 32: eight of products, eight of mins; groups of 16: all sixteen */
};

LANES_INLINE int_lanes dot_groups(const struct unit *w, const struct integer_unit *x,
                                  struct unit_kind kind)
{
    int_lanes fours[4];
    for (int v = 0; v < 4; v++)
        fours[v] = dot4_planes(w->q[v], bytes_load(x->high + 64 * v), bytes_load(x->low + 64 * v),
                               kind.wide);
    int_lanes sums = sums_of_16(fours);
    return kind.group == 32 ? sums_of_32(sums) : sums;
}

LANES_INLINE void add_product(struct sums *sums, size_t which, const struct unit *w,
                              const struct integer_unit *x, struct unit_kind kind)
{
    lanes dots = __builtin_convertvector(dot_groups(w, x, kind), lanes);
    lanes x_both = lanes_load(x->scales), scale; /* the sums lie behind the scales */
    (void)which;
    if (kind.group == 32) {
        scale = w->both * x_both;
        sums->all = lanes_add_upper(sums->all, scale);
        scale = lanes_lower(scale);
    } else {
        scale = w->scale * lanes_twice(x_both);
        sums->all = lanes_fma(w->min, lanes_load(x->sums_16), sums->all);
    }
    sums->all = lanes_fma(dots, scale, sums->all);
}

LANES_INLINE void sum_four(float out[4], const struct sums *sums, struct unit_kind kind)
{
    (void)kind;
    for (int i = 0; i < 4; i++) out[i] = lanes_sum(sums[i].all);
}

LANES_INLINE void load_for_dot(dot_unit *u, const struct unit_place *at, unit_loader load,
                               struct unit_kind kind)
{
    (void)kind;
    load(u, at);
}

#endif
