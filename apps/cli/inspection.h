/* inspection.h: what a checkpoint is, found from its headers alone: no weight is read.
 *
 * Tensors are counted by the format of their numbers: an MLX matrix is "affine 4-bit",
 * its scales and biases included, not a tensor of U32 and two of BF16.  An expert tensor
 * is known by its name, as every family here names them. */
#ifndef CLI_INSPECTION_H
#define CLI_INSPECTION_H

#include "experts/mode.h"
#include "base/json.h"
#include "files/metadata.h"
#include "files/packed.h"
#include "files/tensor_directory.h"
#include "model/config.h"

struct format_share {
    uint64_t tensors, bytes;
};

struct inspection {
    char path[PATH_CAPACITY];
    const char *name;   /* last part of the path */
    const char *layout; /* "safetensors", "GGUF", "packed", "ancestors" */
    struct tensor_directory directory;
    struct metadata metadata;      /* of a GGUF, or a packed model made from one */
    struct packed_manifest packed; /* of a packed model, else empty */
    struct arena arena;
    json_t *config_json; /* of a directory, or NULL */
    const char *family;  /* as the checkpoint calls it */
    bool supported;      /* `config` is filled */
    char problem[512];   /* why not */
    struct model_config config;
    struct format_share formats[FORMAT_COUNT + 1]; /* the last: formats we do not know */
    uint64_t bytes, expert_bytes;
    uint64_t parameters, expert_parameters;
};

/* `model` as typed after -m or as the argument; NULL: the embedded one. */
mf_status inspection_open(struct inspection *out, const char *model, mf_error *why);
void inspection_close(struct inspection *inspection);

/* Layers that have experts; the others are dense. */
uint32_t inspection_expert_layers(const struct inspection *inspection);

/* Parameters that take part in one token. */
uint64_t inspection_active_parameters(const struct inspection *inspection);

/* What would be where, if weights and caches may take `memory_bytes`. */
struct placement {
    uint64_t memory_bytes;
    uint64_t resident_bytes; /* everything but experts */
    uint64_t state_bytes;    /* of one sequence of `context` positions */
    uint64_t expert_count, expert_slots;
    uint64_t slot_bytes; /* of all slots; of the experts themselves where they are mapped */
    enum expert_mode mode;
    bool fits; /* resident part, state, the experts of one token and two more */
};

/* `promise`: somebody set the limit. */
void inspection_place(struct placement *out, const struct inspection *inspection,
                      uint64_t memory_bytes, bool promise, uint64_t context);

#endif
