/* tools.h: how the functions of moeflux_tools.h read and fill structs that may be of another
 * version: all begin with size_t struct_size. */
#ifndef API_TOOLS_H
#define API_TOOLS_H

#include "moeflux_tools.h"

/* The caller's options onto `own` (own_size bytes, its defaults): what both know.  `given` may be
 * NULL.  MF_ERR_ARGUMENT: struct_size is 0; `initialiser` is named then. */
mf_status tools_take(void *own, size_t own_size, const void *given, const char *initialiser,
                     mf_error *why);

/* `own` into the caller's struct as far as that goes; nothing where `given` is NULL. */
void tools_give(void *given, const void *own, size_t own_size);

struct model_config;
void tools_fill_shape(mf_model_shape *out, const struct model_config *config);

#endif
