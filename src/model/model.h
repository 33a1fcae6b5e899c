/* model.h: a checkpoint, opened: configuration and weights; what it says about text goes to the
 * caller (chat/model_text.h).
 *
 *     directory with config.json     safetensors of Hugging Face or MLX
 *     file that begins with GGUF     GGUF, whole or the first of a split one; or the
 *                                    directory that holds it
 *     directory with moeflux.json    the packed layout, from any of these
 *     directory with artifacts/      the layout of the project's ancestors
 *
 * Immutable after opening and shared by all sequences.  The resident weights are in
 * memory; the experts are only known by their extents. */
#ifndef MODEL_MODEL_H
#define MODEL_MODEL_H

#include "base/log.h"
#include "chat/model_text.h"
#include "checkpoint/metadata.h"
#include "checkpoint/ancestors.h"
#include "checkpoint/tensor_directory.h"
#include "model/config.h"
#include "model/weights.h"

struct model {
    struct arena arena;
    char *path;
    char *name; /* last part of the path, or what a hub's cache calls it */
    struct tensor_directory directory;
    const char *kind;              /* "safetensors", "GGUF", "packed", "ancestors" */
    struct metadata metadata;      /* of a GGUF file, else empty */
    struct packed_manifest packed; /* of a packed model, else empty */
    struct model_config config;
    struct weights weights;
    const struct model_text *text; /* that the source asked for, borrowed; NULL: it did not */
};

struct model_source {
    const mf_files *files;
    const mf_allocator *allocator;
    const char *path;
    const struct ancestors_paths
        *ancestors;          /* the ancestors' files one by one; NULL: found from path */
    struct model_text *text; /* filled; outlives the model; NULL: read for its checks only */
    const struct logger *logger;
    bool uncached; /* what is read does not stay in the page cache */
    bool describe; /* no weight is read: weights.origins says where they lie */
};

/* After a failure nothing is left open. */
mf_status model_open(struct model *out, const struct model_source *source, mf_error *why);
void model_close(struct model *model);

/* The text side of a checkpoint without its weights; `path` as in the drawing, or a directory with
 * nothing but a tokenizer or a template.  *out is empty after a failure. */
mf_status model_open_text(struct model_text *out, const mf_files *files, const char *path,
                          mf_error *why);

/* Where configuration and tokenizer of the directory `path` lie: there, or in mlx/ where the
 * weights are in the layout of the ancestors, or in the GGUF file beside packed weights. */
mf_status model_parts_path(char *out, size_t capacity, const mf_files *files, const char *path,
                           mf_error *why);

/* Ids below this can be sampled: rows of the embedding above it are padding. */
uint32_t model_usable_tokens(const struct model *model);

bool model_is_end_token(const struct model *model, int32_t token);

#endif
