/* select.h: the kernel set that a caller names.
 *
 * Apart from kernels.h, which every kernel includes: kernels need nothing of the public header. */
#ifndef KERNELS_SELECT_H
#define KERNELS_SELECT_H

#include "kernels/kernels.h"
#include "moeflux.h"

/* As kernels_select; where there is none, MF_ERR_ARGUMENT with a list of the sets that run on
 * `machine`. */
mf_status kernels_choose(const struct kernels **out, const struct machine *machine,
                         const char *name, mf_error *why);

#endif
