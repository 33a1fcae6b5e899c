/* gguf.h: reads GGUF checkpoints into a tensor directory and a table of metadata.
 *
 *     byte 0   "GGUF", u32 version (2 or 3), i64 tensors, i64 values
 *         24   values:   key, i32 type, value       (a text is u64 length and bytes)
 *              tensors:  name, u32 rank, i64 dims (fastest first), i32 type, u64 offset
 *              padding to general.alignment (32 unless it says otherwise)
 *              data:     the tensors in the order above, each padded
 *
 * A checkpoint may be split into NAME-00001-of-0000N.gguf and so on; the first
 * part has the metadata, all have tensors.
 *
 * Counts and lengths in the file are not trusted for allocation: the head is read piece by piece,
 * and lists grow as entries are found. */
#ifndef CHECKPOINT_GGUF_H
#define CHECKPOINT_GGUF_H

#include "checkpoint/metadata.h"
#include "checkpoint/tensor_directory.h"

/* Adds all tensors of the checkpoint whose only or first file is `path`, and the values of that
 * file.  Shapes are reversed to slowest dimension first.  `directory` and `metadata` are initialised
 * and empty; the caller frees both, also after a failure. */
mf_status checkpoint_gguf_open(struct tensor_directory *directory, struct metadata *metadata,
                               const mf_files *files, const char *path, mf_error *why);

#endif
