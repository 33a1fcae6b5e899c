/* handles.h: what the opaque types of moeflux_compat.h are. */
#ifndef COMPAT_HANDLES_H
#define COMPAT_HANDLES_H

#include "compat/checkpoints.h"
#include "moeflux_compat.h"

struct mf_context {
    mf_engine *engine;
    mf_model *model;
    struct context_sequence {
        int32_t id;
        mf_sequence *live;
        struct checkpoints checkpoints;
    } * sequences; /* the first has the id 0, and is always there */
    size_t sequence_count, sequence_room;
    size_t max_checkpoints;   /* of each sequence */
    struct observer observer; /* passes the residual stream on to … */
    mf_hidden_function watch_hidden;
    void *watch_user;
};

/* The sequence with this id, or NULL; borrowed until the next one is added. */
struct context_sequence *context_find(const mf_context *context, int32_t seq_id);

/* The same, which is added, empty, where there was none.  A negative id is MF_ERR_ARGUMENT. */
mf_status context_find_or_add(struct context_sequence **out, mf_context *context, int32_t seq_id,
                              mf_error *why);

/* Continues the sequence from another state, which is not changed. */
mf_status context_go_to(mf_context *context, struct context_sequence *sequence,
                        const mf_sequence *state, mf_error *why);

#endif
