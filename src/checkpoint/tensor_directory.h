/* tensor_directory.h: what tensors a checkpoint has and where their bytes lie.
 *
 * Every file format ends up here: a list of (name, format, shape, file extent),
 * validated, in no way interpreted.  Shapes are slowest dimension first, as
 * Hugging Face writes them; a GGUF reader turns its order round.
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

/* Opens `path` (copied) and appends it; *index is its number.  After a failure
 * the directory has the files it had. */
mf_status tensor_directory_add_file(struct tensor_directory *directory, uint32_t *index,
                                    const mf_files *files, const char *path, mf_error *why);

/* MF_OK where `path` is there: one of several files of a checkpoint, to be added next. */
mf_status tensor_file_require(const mf_files *files, const char *path, mf_error *why);

/* Appends a file that is not there.  Tensors may lie in it; reading one is an error. */
mf_status tensor_directory_add_absent(struct tensor_directory *directory, uint32_t *index,
                                      const char *path, mf_error *why);

/* A zeroed tensor appended to the list, valid until the next one; NULL: no memory. */
struct tensor *tensor_directory_add(struct tensor_directory *directory);

/* Builds the index once all tensors are there; a name that stands twice is an error. */
mf_status tensor_directory_finish(struct tensor_directory *directory, mf_error *why);

/* The tensor of that name, or NULL. */
struct tensor *tensor_find(const struct tensor_directory *directory, const char *name);

/* All bytes of a tensor into `out`; those of a checksummed one are what they were when it
 * was written, or it is an error. */
mf_status tensor_read(const struct tensor_directory *directory, const struct tensor *tensor,
                      void *out, mf_error *why);

/* "[64, 128]" for messages. */
const char *tensor_shape_text(const struct tensor *tensor, char *out, size_t capacity);

#endif
