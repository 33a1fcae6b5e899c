/* inspection.h: what a checkpoint is, found from its headers alone: no weight is read.
 *
 *     headers ── model, described ── every weight bound and checked ── classes, placement
 *        └────── if it cannot be run: its tensors by format, and why not
 *
 * Tensors are counted by the format of their numbers: an MLX matrix is "affine 4-bit",
 * its scales and biases included, not a tensor of U32 and two of BF16. */
#ifndef CLI_INSPECTION_H
#define CLI_INSPECTION_H

#include "model/model.h"

/* What tensors are for. */
enum tensor_class {
    CLASS_EMBEDDING,
    CLASS_ATTENTION,
    CLASS_DELTA,
    CLASS_ROUTERS,
    CLASS_SHARED,
    CLASS_DENSE,
    CLASS_NORMS,
    CLASS_HEAD,
    CLASS_EXPERTS,
    CLASS_EXTRA,   /* vision and prediction of several tokens: known and not used */
    CLASS_UNKNOWN, /* nobody asked for them */
    CLASS_COUNT
};

extern const char *const class_names[CLASS_COUNT];

enum { FORMATS = FORMAT_COUNT + 1 }; /* the last: formats we do not know */

struct tensor_share {
    uint64_t tensors, parameters, bytes; /* scales and biases are bytes, not tensors */
};

struct inspection {
    char path[PATH_CAPACITY];
    const char *name;                         /* last part of the path */
    const char *layout;                       /* "safetensors", "GGUF", "packed", "ancestors" */
    struct model model;                       /* described; empty when it cannot be run */
    struct tensor_directory listed;           /* then its tensors */
    const struct tensor_directory *directory; /* of the two the one that is filled */
    char family[64];                          /* as we call it, or else the checkpoint */
    bool supported;
    char problem[512]; /* why not */
    struct tensor_share classes[CLASS_COUNT][FORMATS];
};

/* `model` as typed after -m or as the argument; NULL: the embedded one. */
mf_status inspection_open(struct inspection *out, const char *model, mf_error *why);
void inspection_close(struct inspection *inspection);

/* Sums over the classes and formats that are not -1. */
struct tensor_share inspection_sum(const struct inspection *inspection, int tensor_class,
                                   int format);

/* All that the model computes with; those of it in experts; those that one token uses. */
struct parameter_counts {
    uint64_t total, experts, active;
};
struct parameter_counts inspection_parameters(const struct inspection *inspection);

/* What one more token costs: weights that it reads, and state that it adds. */
struct token_bytes {
    uint64_t always, experts; /* all but the embedding's other rows; the chosen experts */
    uint64_t state;
};
struct token_bytes inspection_token_bytes(const struct inspection *inspection);

/* Layers that have experts; the others are dense. */
uint32_t inspection_expert_layers(const struct inspection *inspection);

/* The `index`-th tensor that nobody asked for, or NULL. */
const struct tensor *inspection_unknown(const struct inspection *inspection, size_t index);

/* What would be where: planned by the same code as a run's. */
struct placement {
    uint64_t memory_bytes; /* that weights and caches may take */
    uint64_t context;
    uint64_t resident_bytes; /* everything but experts */
    uint64_t state_bytes;    /* of a sequence of `context` positions */
    uint64_t session_bytes;  /* that and what computing takes */
    uint64_t expert_count, expert_slots;
    uint64_t slot_bytes; /* of all slots */
    char mode[16];       /* "resident", "mapped", "streamed" */
    char problem[512];   /* why it does not fit; empty: it does */
};

/* memory_bytes 0: what the machine has; context 0: the model's, at most 4096. */
mf_status inspection_place(struct placement *out, const struct inspection *inspection,
                           uint64_t memory_bytes, uint64_t context, mf_error *why);

#endif
