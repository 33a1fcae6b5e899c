/* handles.h: what the opaque types of moeflux_compat.h are. */
#ifndef COMPAT_HANDLES_H
#define COMPAT_HANDLES_H

#include "api/handles.h"
#include "moeflux_compat.h"

struct mf_context {
    mf_engine *engine;
    mf_model *model;
    mf_sequence *sequence;
    struct observer observer; /* passes the residual stream on to … */
    mf_hidden_function watch_hidden;
    void *watch_user;
};

#endif
