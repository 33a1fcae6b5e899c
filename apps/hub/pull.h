/* pull.h: from a name to files in the cache.
 *
 *     hub_pull_open     asks the hub what there is, chooses, and looks at the disk
 *     hub_pull_run      downloads, verifies, links */
#ifndef HUB_PULL_H
#define HUB_PULL_H

#include "hub/choose.h"
#include "hub/client.h"

struct hub_pull_options {
    const char *name; /* org/name[:QUANT] */
    const struct hub_observer *observer;
    unsigned connections, idle_seconds; /* 0: 8; 30 */
    uint64_t memory_bytes;              /* to choose for; 0: the machine's */
    bool list; /* only what there is, which is no failure where nothing can be chosen */
};

/* What is chosen for where nothing is said: the memory of the machine, or less where a control group
 * has a limit; and the bytes that a download may take on the disk of the cache. */
uint64_t hub_memory_bytes(void);
uint64_t hub_room_bytes(const char *cache);

/* Sets missing_bytes and disk_bytes of the candidates. */
mf_status hub_count_missing(struct hub_candidates *candidates, const struct hub_listing *listing,
                            const char *cache, const char *repository, mf_error *why);

/* What is going to happen. */
struct hub_pull {
    struct hub_name name;
    struct hub_settings settings;
    struct hub_client client;
    struct hub_observer observer;
    struct hub_listing listing;
    struct hub_candidates candidates;
    const struct hub_candidate *chosen; /* NULL, of a list only: none, for the reason in `none` */
    mf_error none;
    const char *reason;  /* why this one; NULL: it was named */
    uint64_t disk_bytes; /* free on the cache's disk */
    unsigned connections;
};

/* After a failure nothing is open. */
mf_status hub_pull_open(struct hub_pull *out, const struct hub_pull_options *options,
                        mf_error *why);
void hub_pull_close(struct hub_pull *pull);

/* *path is the checkpoint afterwards: the first GGUF file, or the snapshot's directory.
 * MF_ERR_CANCELLED: the observer stopped it; what is there is kept. */
mf_status hub_pull_run(struct hub_pull *pull, char path[PATH_CAPACITY], mf_error *why);

#endif
