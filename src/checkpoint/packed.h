/* packed.h: moeflux's own layout of a model, in which each expert is one aligned read.
 *
 *     DIRECTORY/
 *       moeflux.json       the manifest: offsets and checksums of all tensors and experts
 *       resident.bin       all tensors except experts, each at a multiple of 64
 *       layer-NNN.bin      the experts of layer NNN, one blob each, at multiples of 4096
 *       config.json, …     configuration, tokenizer and template, copied from the source; or
 *       metadata.gguf      the values of the source GGUF file
 *
 *     blob   │gate: values│scales│biases│addends│up: …│down: …│   padded to 4096
 *
 * Each array of a blob begins at a multiple of 64; arrays that the weight format does not have take
 * no space.  Tensors keep the names and shapes of the source, so that the model binds them in the
 * same way.
 *
 * The layout id names the order of bytes inside a matrix.  There is one, "rows": the rows of the
 * weight format in order, as published, which is what the kernels read.  An unknown layout or
 * version is refused.
 *
 * Checksums are XXH3, 64 bits, as 16 hexadecimal digits: of a tensor over its bytes, of an expert
 * over its arrays in the order of the blob, without padding. */
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
    PACKED_ARRAYS = 4,            /* of each: values, scales, biases, addends */
};

/* The naming scheme of the tensors, which also says whether norms are stored as w or 1 + w. */
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
    bool has_addends;                /* a number for each row, which is added to its product */
    enum format addend_format;       /* F32, F16 or BF16 */
    uint64_t offsets[PACKED_ARRAYS]; /* of the arrays in the blob */
    uint64_t bytes[PACKED_ARRAYS];   /* 0: there is none */
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

/* The source of the conversion.  No text is NULL. */
struct packed_origin {
    const char *name;        /* of the checkpoint */
    const char *kind;        /* "safetensors", "GGUF", … */
    const char *fingerprint; /* 32 hexadecimal digits over what the files hold */
    const char *experts;     /* format of requantised experts, "q4" …, or "as they were" */
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

/* Computes row sizes from format, cols and groups, and the offset of each array in the blob.  False
 * if a size does not fit the format or exceeds the limits. */
bool packed_layer_arrange(struct packed_layer *layer);

/* Bytes of a tensor of this format and shape; false if it has none or exceeds the limits. */
bool packed_tensor_size(uint64_t *out, enum format format, const uint64_t *shape, uint32_t rank);

/* The size of resident.bin. */
uint64_t packed_resident_bytes(const struct packed_manifest *manifest);

/* ---------------------------------------------------------------- manifest */

/* The manifest as text; release with free().  NULL: out of memory.  Without `checksums` it leaves
 * out checksums and side files: that part is known before anything is written and identifies the
 * plan. */
char *packed_manifest_text_new(const struct packed_manifest *manifest, bool checksums);

/* Parses and checks the manifest without the other files: sizes follow from shapes, nothing
 * overlaps, no gap exceeds its alignment.  `out` is initialised; the caller frees it, also after a
 * failure. */
mf_status packed_manifest_parse(struct packed_manifest *out, const json_t *json, const char *where,
                                mf_error *why);

/* ----------------------------------------------------------------- opening */

/* Whether `path` has a manifest. */
mf_status packed_probe(bool *present, const mf_files *files, const char *path, mf_error *why);

/* Reads the manifest at `path`, opens the files that it names, checks their sizes and adds the
 * tensors to `directory`; experts are listed in the manifest only.  Both are initialised and empty;
 * the caller frees both, also after a failure. */
mf_status packed_open(struct packed_manifest *manifest, struct tensor_directory *directory,
                      const mf_files *files, const char *path, mf_error *why);

#endif
