/* hub.h: resolves the name of a model to a path.
 *
 *     an existing path                 that path
 *     org/name                         the snapshot of its main branch in a Hugging Face cache:
 *
 *     CACHE/models--org--name/refs/main          the commit's name
 *                             snapshots/COMMIT/  the files of the checkpoint
 *
 * Nothing is downloaded.  Other names are refused with a message that says how to get a model. */
#ifndef CHECKPOINT_HUB_H
#define CHECKPOINT_HUB_H

#include "base/file.h"

/* The path of checkpoint `name`: a directory, or a GGUF file, also if `name` is a directory that
 * contains one.  A directory without weights gives itself.  `cache` is the Hugging Face cache; NULL:
 * do not search one.  `out` has PATH_CAPACITY bytes. */
mf_status hub_find(char *out, const mf_files *files, const char *name, const char *cache,
                   mf_error *why);

/* `name` of the path CACHE/models--org--name/snapshots/COMMIT, and its length; NULL: it is no such
 * path. */
const char *hub_name_in(size_t *length, const char *path);

#endif
