/* local.h: what the cache holds of a repository.
 *
 *     CACHE/models--org--name/refs/main               a commit
 *                             snapshots/COMMIT/PATH   links to ../../blobs/HASH
 *                             blobs/HASH              the files
 *
 * Other tools write there, too: anything that does not look like this is left alone. */
#ifndef HUB_LOCAL_H
#define HUB_LOCAL_H

#include "hub/choose.h"

struct hub_snapshot {
    char commit[256];         /* the directory's name */
    struct hub_listing files; /* hash "" where a file is no link to a blob */
};

struct hub_local {
    char folder[PATH_CAPACITY]; /* of the repository */
    char repository[HUB_REPOSITORY_CAPACITY];
    struct hub_snapshot *snapshots;
    size_t count, capacity;
    size_t main; /* index of the main snapshot; count: there is none */
    /* Of downloads that were interrupted, by any tool: what is written, and what it takes of the disk,
     * where space may be reserved ahead.  Blobs that no snapshot has are among the latter, and where
     * there is no snapshot among the former. */
    uint64_t incomplete_bytes, reserved_bytes;
    size_t incomplete_count;
};

/* A repository that is not there is empty, and that is no failure. */
mf_status hub_local_read(struct hub_local *out, const char *cache, const char *repository,
                         mf_error *why);
void hub_local_free(struct hub_local *local);

/* The files of the main snapshot; NULL: there is none. */
const struct hub_listing *hub_local_main(const struct hub_local *local);

/* What the main snapshot has; weights that its index names and that are not there are counted in
 * missing_files. */
mf_status hub_local_candidates(struct hub_candidates *out, const struct hub_local *local,
                               mf_error *why);

/* Calls `take` for every model in the cache, by name, until it returns false. */
mf_status hub_local_visit(const char *cache, bool (*take)(void *user, const char *repository),
                          void *user, mf_error *why);

/* Whether the cache has what the name says; then *path is the checkpoint, or "" where the whole
 * snapshot is meant.  MF_ERR_ARGUMENT: the name fits several. */
mf_status hub_local_find(bool *found, char path[PATH_CAPACITY], const char *cache,
                         const struct hub_name *name, mf_error *why);

#endif
