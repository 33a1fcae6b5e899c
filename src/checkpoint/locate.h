/* locate.h: finds out which kind of checkpoint a path holds, and its first weight file.
 *
 *     a file that begins with "GGUF"        GGUF, under any name
 *     a directory with moeflux.json         packed
 *     a directory with artifacts/           the ancestors' layout
 *     a directory with model*.safetensors   safetensors of Hugging Face or MLX
 *     a directory with one GGUF model       that file, or the first part of a split one: *.gguf,
 *                                           else any name by its first bytes, else *.gguf in the
 *                                           directories inside
 *
 * Anything else is refused with a message that says what to do: git-lfs pointers, pipes and
 * devices, incomplete checkpoints, weights in other formats. */
#ifndef CHECKPOINT_LOCATE_H
#define CHECKPOINT_LOCATE_H

#include "base/file.h"

enum checkpoint_kind {
    CHECKPOINT_SAFETENSORS,
    CHECKPOINT_GGUF,
    CHECKPOINT_PACKED,
    CHECKPOINT_ANCESTORS
};

struct checkpoint_place {
    enum checkpoint_kind kind;
    char path[PATH_CAPACITY]; /* as given, or of a GGUF file in the directory given */
};

/* `path` is borrowed for the call.  No weights are read. */
mf_status checkpoint_locate(struct checkpoint_place *out, const mf_files *files, const char *path,
                            mf_error *why);

/* Whether the file begins with the magic of GGUF; false if it cannot be read. */
bool checkpoint_is_gguf(const mf_files *files, const char *path);

/* Whether `path` is a directory. */
bool checkpoint_is_directory(const mf_files *files, const char *path);

#endif
