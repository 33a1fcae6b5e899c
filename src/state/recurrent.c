#include "state/recurrent.h"

#include "base/status.h"

/* Of one layer, whole cache lines: states are written past the caches. */
static size_t layer_floats(const struct recurrent *r)
{
    size_t line = CACHE_LINE / sizeof(float);
    return align_up(r->sizes.delta_floats, line) + align_up(r->sizes.open_floats, line) +
           align_up(r->sizes.conv_floats, line);
}

static size_t copy_floats(const struct recurrent *r)
{
    return r->layer_count * layer_floats(r);
}

mf_status recurrent_init(struct recurrent *recurrent, struct arena *arena, uint32_t layer_count,
                         struct recurrent_sizes sizes, mf_error *why)
{
    *recurrent = (struct recurrent){ .sizes = sizes, .layer_count = layer_count };
    for (int i = 0; i < 2; i++) {
        recurrent->copies[i] = ARENA_NEW(arena, float, copy_floats(recurrent));
        if (!recurrent->copies[i]) return fail_memory(why, copy_floats(recurrent) * sizeof(float));
    }
    return MF_OK;
}

size_t recurrent_bytes(uint32_t layer_count, struct recurrent_sizes sizes)
{
    const struct recurrent shape = { .sizes = sizes, .layer_count = layer_count };
    return 2 * align_up(copy_floats(&shape) * sizeof(float), CACHE_LINE);
}

struct recurrent_view recurrent_view(const struct recurrent *recurrent, uint32_t layer)
{
    size_t line = CACHE_LINE / sizeof(float), offset = layer * layer_floats(recurrent);
    size_t open = align_up(recurrent->sizes.delta_floats, line);
    size_t conv = open + align_up(recurrent->sizes.open_floats, line);
    float *out = recurrent->copies[1 - recurrent->committed] + offset;
    float *in = recurrent->started ? out : recurrent->copies[recurrent->committed] + offset;
    return (struct recurrent_view){ .conv_in = in + conv,
                                    .conv_out = out + conv,
                                    .delta_in = in,
                                    .delta_out = out,
                                    .open_in = in + open,
                                    .open_out = out + open };
}

void recurrent_step_done(struct recurrent *recurrent)
{
    recurrent->started = true;
}

void recurrent_commit(struct recurrent *recurrent)
{
    if (recurrent->started) recurrent->committed = 1 - recurrent->committed;
    recurrent->started = false;
}

void recurrent_abandon(struct recurrent *recurrent)
{
    recurrent->started = false;
}

void recurrent_clear(struct recurrent *recurrent)
{
    memset(recurrent->copies[recurrent->committed], 0, copy_floats(recurrent) * sizeof(float));
    recurrent->started = false;
}
