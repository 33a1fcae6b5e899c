/* packed.h: moeflux's own layout of a model, in which an expert is one read.
 *
 *     DIRECTORY/
 *       moeflux.json       the manifest: what lies where, a checksum for each
 *       resident.bin       the tensors that are not experts', each at a multiple of 64
 *       layer-NNN.bin      the experts of layer NNN, one blob each, at multiples of 4096
 *       config.json, …     configuration, tokenizer and template as they came; or
 *       metadata.gguf      the values of the GGUF file that it was made from
 *
 *     blob   │gate: values│scales│biases│up: …│down: …│   padded to 4096
 *
 * Each array of a blob begins at a multiple of 64; those that the weight format does
 * not have take nothing.  Tensors keep the names and shapes that they had, so that the
 * model binds them as it binds the checkpoint's own.
 *
 * The layout's id names the order of the bytes inside a matrix.  There is one, "rows":
 * the rows of the weight format one after the other, as its publisher has them, which is
 * what the kernels read.  A layout or version that is not known here is refused.
 *
 * Checksums are XXH3, 64 bits, as 16 hexadecimal digits.  A tensor's is over its bytes; an
 * expert's is over its arrays in the order of the blob, padding left out. */
#ifndef CHECKPOINT_PACKED_H
#define CHECKPOINT_PACKED_H

#include "base/arena.h"
#include "base/json.h"
#include "checkpoint/tensor_directory.h"

#define PACKED_MANIFEST "moeflux.json"
#define PACKED_RESIDENT "resident.bin"
#define PACKED_METADATA "metadata.gguf"
#define PACKED_LAYOUT   "rows"

enum {
    PACKED_VERSION = 1,
    PACKED_TENSOR_ALIGNMENT = 64, /* of tensors in resident.bin, and of arrays in a blob */
    PACKED_BLOB_ALIGNMENT = 4096, /* what direct reads of every disk we know ask for, at most */
    PACKED_PARTS = 3,             /* gate, up, down */
    PACKED_ARRAYS = 9,            /* of each: values, scales, biases */
};

/* Whose names the tensors have, and with them whether norms hold w or 1 + w. */
enum packed_convention { PACKED_HUGGING_FACE, PACKED_MLX, PACKED_GGUF, PACKED_CONVENTIONS };

struct packed_tensor {
    const char *name;
    enum format format;
    uint32_t rank;
    uint64_t shape[TENSOR_RANK_MAX];
    uint64_t offset, bytes; /* in resident.bin */
    uint64_t checksum;
};

/* A matrix of every expert of a layer: `shape` without data.  scale_row_bytes is 0 where
 * the format has no scales. */
struct packed_matrix {
    struct weight shape;
    uint64_t offsets[3]; /* of values, scales, biases in the blob */
    uint64_t bytes[3];   /* 0: the format has none */
};

struct packed_layer {
    uint32_t number; /* of the model's layers */
    struct packed_matrix parts[PACKED_PARTS];
    uint64_t blob_bytes; /* up to the last byte of the last array */
    uint64_t stride;     /* from one expert to the next */
    uint64_t *checksums; /* [experts] */
    uint32_t file;       /* index into the directory's files, once opened */
};

/* Configuration, tokenizer and so on. */
struct packed_side_file {
    const char *name;
    uint64_t bytes, checksum;
};

/* What the directory was made from.  Texts may not be NULL. */
struct packed_origin {
    const char *name;        /* of the checkpoint */
    const char *kind;        /* "safetensors", "GGUF", … */
    const char *fingerprint; /* 32 hexadecimal digits over what the files hold */
    const char *experts;     /* "q4" and so on, or "as they were" */
    const char *rest;
};

struct packed_manifest {
    struct arena arena;
    struct packed_origin origin;
    enum packed_convention convention;
    struct packed_tensor *tensors; /* in the order of resident.bin */
    size_t tensor_count;
    uint32_t experts;            /* per layer; 0: the model has none */
    struct packed_layer *layers; /* those with experts, ascending */
    size_t layer_count;
    struct packed_side_file *files;
    size_t file_count;
};

void packed_manifest_init(struct packed_manifest *manifest, const mf_allocator *allocator);
void packed_manifest_free(struct packed_manifest *manifest); /* a zeroed struct is legal */

/* "layer-007.bin" */
enum { PACKED_NAME_CAPACITY = 32 };
void packed_layer_name(char out[PACKED_NAME_CAPACITY], uint32_t layer);

/* ------------------------------------------------------------- arithmetic */

/* Row sizes from format, cols and groups; then where each array of the blob lies.  False:
 * something does not fit the format, or the sizes are beyond reason. */
bool packed_layer_arrange(struct packed_layer *layer);

/* Bytes of a tensor of this format and shape; false when it has none or too many. */
bool packed_tensor_size(uint64_t *out, enum format format, const uint64_t *shape, uint32_t rank);

/* Where resident.bin ends. */
uint64_t packed_resident_bytes(const struct packed_manifest *manifest);

/* ---------------------------------------------------------------- manifest */

/* The manifest as text, freed with free(); without checksums and side files it says what
 * is to be made, which is the same before and after.  NULL: no memory. */
char *packed_manifest_text_new(const struct packed_manifest *manifest, bool checksums);

/* `out` was initialised.  Everything is checked that can be without the other files:
 * sizes follow from shapes, nothing overlaps, no gap is larger than its alignment asks.
 * After a failure `out` is still to be freed. */
mf_status packed_manifest_parse(struct packed_manifest *out, const json_t *json, const char *where,
                                mf_error *why);

/* ----------------------------------------------------------------- opening */

/* Whether `path` has a manifest. */
mf_status packed_probe(bool *present, const mf_files *files, const char *path, mf_error *why);

/* Reads the manifest at `path`, opens the files that it names, compares their sizes and
 * puts the tensors into `directory`; experts stay with the manifest.  Both were
 * initialised and are empty; after a failure both are still to be freed. */
mf_status packed_open(struct packed_manifest *manifest, struct tensor_directory *directory,
                      const mf_files *files, const char *path, mf_error *why);

#endif
