/* link.h: changes of what the cache says is there: snapshots and refs, and removing.
 *
 * Both take the lock CACHE/.locks/models--org--name/moeflux.lock, so that they do not meet. */
#ifndef HUB_LINK_H
#define HUB_LINK_H

#include "hub/local.h"

/* After all blobs are there: links the files of the listing in snapshots/COMMIT, and lets refs/main
 * name it. */
mf_status hub_link(const char *cache, const char *repository, const struct hub_listing *listing,
                   const size_t *files, size_t count, mf_error *why);

/* A link of a snapshot. */
struct hub_link_entry {
    const struct hub_snapshot *snapshot;
    const struct hub_file *file;
    bool goes;
};

/* What removing a model means. */
struct hub_removal {
    struct hub_name name;
    bool whole;              /* nothing of the repository stays */
    struct hub_local *local; /* borrowed */
    struct hub_link_entry *links;
    size_t link_count;
    uint64_t bytes; /* that become free: blobs without another link; of a whole repository all */
};

/* Without a quantisation everything goes; a quantisation is a label or a file's name as a whole, in
 * every snapshot that has it.  MF_ERR_ARGUMENT: there is no such model. */
mf_status hub_removal_plan(struct hub_removal *out, struct hub_local *local,
                           const struct hub_name *name, mf_error *why);

/* Reads the cache again under the lock; where the plan would be another one now nothing is removed. */
mf_status hub_removal_run(const struct hub_removal *removal, const char *cache, mf_error *why);
void hub_removal_free(struct hub_removal *removal);

#endif
