/* description.h: what a checkpoint is, found from its headers alone: no weight is read.
 *
 *     headers ── model, described ── every weight bound and checked ── classes
 *        └────── if it cannot be run: its tensors by format, and why not
 *
 * Tensors are counted by the format of their numbers: an MLX matrix is "affine 4-bit",
 * its scales and biases included, not a tensor of U32 and two of BF16. */
#ifndef TOOLS_DESCRIPTION_H
#define TOOLS_DESCRIPTION_H

#include "model/model.h"
#include "moeflux_tools.h"

enum { FORMATS = FORMAT_COUNT + 1 }; /* the last: formats we do not know */

struct description {
    char path[PATH_CAPACITY];
    const char *name;                         /* last part of the path */
    const char *layout;                       /* "safetensors", "GGUF", "packed", "ancestors" */
    struct model model;                       /* described; empty when it cannot be run */
    struct tensor_directory listed;           /* then its tensors */
    const struct tensor_directory *directory; /* of the two the one that is filled */
    char family[64];                          /* as we call it, or else the checkpoint */
    bool supported;
    char problem[512]; /* why not */
    mf_tensor_sum classes[MF_TENSOR_CLASS_COUNT][FORMATS];
};

/* `path` is resolved.  After a failure nothing is left open. */
mf_status description_open(struct description *out, const char *path, mf_error *why);
void description_close(struct description *description);

/* Sums over the classes and formats that are not -1. */
mf_tensor_sum description_sum(const struct description *description, int tensor_class, int format);

/* All that the model computes with; those of it in experts; those that one token uses. */
struct parameter_counts {
    uint64_t total, experts, active;
};
struct parameter_counts description_parameters(const struct description *description);

/* What one more token costs: weights that it reads, and state that it adds. */
struct token_bytes {
    uint64_t always, experts; /* all but the embedding's other rows; the chosen experts */
    uint64_t state;
};
struct token_bytes description_token_bytes(const struct description *description);

/* The `index`-th tensor that no weight was made from, or NULL. */
const struct tensor *description_unknown(const struct description *description, size_t index);

#endif
