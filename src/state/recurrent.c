#include "state/recurrent.h"

#include "base/status.h"

static size_t copy_floats(const struct recurrent *r)
{
    return r->layer_count * (r->conv_floats + r->delta_floats);
}

mf_status recurrent_init(struct recurrent *recurrent, struct arena *arena, uint32_t layer_count,
                         size_t conv_floats, size_t delta_floats, mf_error *why)
{
    *recurrent = (struct recurrent){ .conv_floats = conv_floats,
                                     .delta_floats = delta_floats,
                                     .layer_count = layer_count };
    for (int i = 0; i < 2; i++) {
        recurrent->copies[i] = ARENA_NEW(arena, float, copy_floats(recurrent));
        if (!recurrent->copies[i]) return fail_memory(why, copy_floats(recurrent) * sizeof(float));
    }
    return MF_OK;
}

struct recurrent_view recurrent_view(const struct recurrent *recurrent, uint32_t layer)
{
    size_t offset = layer * (recurrent->conv_floats + recurrent->delta_floats);
    float *out = recurrent->copies[1 - recurrent->committed] + offset;
    float *in = recurrent->started ? out : recurrent->copies[recurrent->committed] + offset;
    return (struct recurrent_view){ .conv_in = in,
                                    .conv_out = out,
                                    .delta_in = in + recurrent->conv_floats,
                                    .delta_out = out + recurrent->conv_floats };
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
