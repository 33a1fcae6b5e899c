/* fingerprint.h: which weights these are, without reading all of them.
 *
 * Small files count whole, large ones in places, and so does every tensor's name, format and
 * shape: weights that were trained further differ nearly everywhere. */
#ifndef MODEL_FINGERPRINT_H
#define MODEL_FINGERPRINT_H

#include "base/checksum.h"
#include "checkpoint/tensor_directory.h"
#include "model/config.h"

/* What the config says of the arithmetic: a file that was edited has the same weights and other
 * results.  Left out: the experts of a token, which the caller may choose and which are part of
 * snapshot_identity.arithmetic, and what only limits. */
void fingerprint_add_config(struct checksum *sum, const struct model_config *config);

mf_status fingerprint_add(struct checksum *sum, const struct tensor_directory *directory,
                          mf_error *why);

#endif
