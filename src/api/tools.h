/* tools.h: what the functions of moeflux_tools.h share. */
#ifndef API_TOOLS_H
#define API_TOOLS_H

#include "moeflux_tools.h"

struct model_config;
void tools_fill_shape(mf_model_shape *out, const struct model_config *config);

#endif
