/* tools.h: what the functions of moeflux_tools.h share. */
#ifndef API_TOOLS_H
#define API_TOOLS_H

#include "moeflux_tools.h"

struct model_config;
void tools_fill_shape(mf_model_shape *out, const struct model_config *config);

/* The disk that the directory's files lie on. */
struct tensor_directory;
mf_status tools_measure_files(mf_ceilings *ceilings, const struct tensor_directory *directory,
                              mf_error *why);

#endif
