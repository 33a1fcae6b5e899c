/* tensor_directory.h: the tensors of a checkpoint and where their bytes are.
 *
 * The readers of all file formats fill it: a validated list of (name, format, shape, file extent),
 * without interpretation.  Shapes are slowest dimension first, as in Hugging Face's files; the GGUF
 * reader reverses its order.
 *
 * Lifetime: names and tensors live as long as the directory; files stay open. */
#ifndef CHECKPOINT_TENSOR_DIRECTORY_H
#define CHECKPOINT_TENSOR_DIRECTORY_H

#include "base/arena.h"
#include "base/file.h"
#include "checkpoint/name_table.h"
#include "quant/format.h"

enum { TENSOR_RANK_MAX = 8 };

struct tensor {
    const char *name;
    enum format format; /* FORMAT_COUNT: a type we do not know; an error only if it is used */
    uint32_t rank;
    uint64_t shape[TENSOR_RANK_MAX];
    uint32_t file;   /* index into files */
    uint64_t offset; /* from the start of that file */
    uint64_t bytes;
    bool checksummed; /* reading it compares */
    uint64_t checksum;
    bool used; /* set by the model's binding; the rest is listed as unknown */
};

struct tensor_directory {
    struct arena arena;
    struct file *files;
    size_t file_count, file_capacity;
    struct tensor *tensors;
    size_t count, capacity;
    struct name_table names; /* name to index into tensors; built by _finish */
    bool uncached;           /* what is read does not stay in the page cache */
};

void tensor_directory_init(struct tensor_directory *directory, const mf_allocator *allocator);
void tensor_directory_free(struct tensor_directory *directory);

/* Opens `path` (copied) and appends it; *index is its number.  After a failure the list of files is
 * unchanged. */
mf_status tensor_directory_add_file(struct tensor_directory *directory, uint32_t *index,
                                    const mf_files *files, const char *path, mf_error *why);

/* Checks that `path`, one of several files of a checkpoint, exists; the message says that the
 * download may be incomplete. */
mf_status tensor_file_require(const mf_files *files, const char *path, mf_error *why);

/* Appends a missing file.  Tensors may refer to it; reading one is an error. */
mf_status tensor_directory_add_absent(struct tensor_directory *directory, uint32_t *index,
                                      const char *path, mf_error *why);

/* Appends a zeroed tensor; the pointer is valid until the next call.  NULL: out of memory. */
struct tensor *tensor_directory_add(struct tensor_directory *directory);

/* Builds the index after all tensors were added; a duplicate name is an error. */
mf_status tensor_directory_finish(struct tensor_directory *directory, mf_error *why);

/* The tensor of that name, or NULL. */
struct tensor *tensor_find(const struct tensor_directory *directory, const char *name);

/* Reads all bytes of a tensor; fails if it has a checksum that does not match. */
mf_status tensor_read(const struct tensor_directory *directory, const struct tensor *tensor,
                      void *out, mf_error *why);

/* "[64, 128]" for messages. */
const char *tensor_shape_text(const struct tensor *tensor, char *out, size_t capacity);

#endif
