/* rates.h: how fast a backend multiplies with weights of a format, measured on experts of a
 * middling size and on narrow ones, and what a step costs beside its products.
 *
 *     decode    bytes of weights per second that one row's experts are read with: more experts
 *               than any cache holds, one after the other
 *     prompt    operations per second with some rows for each expert: the first rows of a prompt
 *               are multiplied as generated ones, as in a step
 *     layer     seconds of a layer of one row whose weights are nearly nothing: barriers, norms
 *
 * The numbers are of no interest: weights are a pattern of bits.  Measuring again only raises a
 * rate, as in ceilings.h. */
#ifndef TOOLS_RATES_H
#define TOOLS_RATES_H

#include "backend/backend.h"
#include "base/machine.h"
#include "moeflux_tools.h"

/* False: nothing computes with the format. */
bool rates_have(enum format format);

/* `allocator` is given back what it gave.  The backend's scratch grows. */
mf_status rates_measure(mf_format_rates *rates, struct backend *backend,
                        const mf_allocator *allocator, const struct machine *machine,
                        enum format format, mf_error *why);

mf_status rates_measure_layer(double *seconds, struct backend *backend, mf_error *why);

#endif
