/* hub.h: from a model's name to its place on disk.
 *
 *     what is there under that path    itself
 *     org/name                         the snapshot of its main branch in a Hugging Face cache:
 *
 *     CACHE/models--org--name/refs/main          the commit's name
 *                             snapshots/COMMIT/  the files of the checkpoint
 *
 * Nothing is downloaded.  Names of other kinds are refused with a sentence that says how to get
 * such a model. */
#ifndef CHECKPOINT_HUB_H
#define CHECKPOINT_HUB_H

#include "base/file.h"

/* Where the checkpoint `name` begins: a directory, or a GGUF file, also where `name` is a
 * directory with one.  A directory without weights is itself.  `cache` NULL: no cache is looked into.  `out` has PATH_CAPACITY bytes. */
mf_status hub_find(char *out, const mf_files *files, const char *name, const char *cache,
                   mf_error *why);

#endif
