/* locate.h: which kind of checkpoint lies at a path, and where its weights begin.
 *
 *     a file that begins with "GGUF"        GGUF, under any name
 *     a directory with moeflux.json         packed
 *     a directory with artifacts/           the ancestors' layout
 *     a directory with model*.safetensors   safetensors of Hugging Face or MLX
 *     a directory with one GGUF model       that file, or the first part of a split one; looked
 *                                           for one directory deeper where there is none
 *
 * What is none of these is refused with a sentence that says what to do about it: pointers of
 * git-lfs, pipes and devices, parts of a checkpoint, weights in other formats. */
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

/* `path` is borrowed for the call.  The weights themselves are not looked at. */
mf_status checkpoint_locate(struct checkpoint_place *out, const mf_files *files, const char *path,
                            mf_error *why);

/* Whether the file begins with GGUF's magic; false where it cannot be read. */
bool checkpoint_is_gguf(const mf_files *files, const char *path);

/* Whether `path` is a directory. */
bool checkpoint_is_directory(const mf_files *files, const char *path);

#endif
