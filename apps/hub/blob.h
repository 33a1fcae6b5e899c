/* blob.h: a file of the cache while it is downloaded.
 *
 *     CACHE/models--org--name/blobs/HASH                      complete and verified
 *                             blobs/HASH.moeflux.incomplete   with holes
 *                             blobs/HASH.moeflux.ranges       which bytes of it are there
 *     CACHE/.locks/models--org--name/HASH.lock                locked while one process downloads
 *
 * The lock is the one that huggingface_hub takes (flock), so that two tools do not download the same
 * file at a time.  The incomplete file has another name than that tool's ("HASH.incomplete"), because
 * its older versions continue such a file at its end, wherever holes are.
 *
 *     closed --open--> [there] a complete blob, nothing to do
 *                      [busy]  another process downloads it
 *                      [mine]  locked, incomplete --commit or discard--> closed */
#ifndef HUB_BLOB_H
#define HUB_BLOB_H

#include "hub/listing.h"
#include "hub/ranges.h"

struct hub_blob {
    const struct hub_file *file; /* borrowed */
    int lock, descriptor;        /* -1: not open */
    bool resumed;                /* there was something at open */
    uint64_t unrecorded;         /* bytes since the last record */
    struct hub_ranges there;
    char path[PATH_CAPACITY];       /* of the complete blob */
    char incomplete[PATH_CAPACITY]; /* and what lies beside it */
    char record[PATH_CAPACITY], lock_path[PATH_CAPACITY];
};

enum hub_blob_state { HUB_BLOB_THERE, HUB_BLOB_BUSY, HUB_BLOB_MINE };

/* Sets the paths; nothing is opened.  `cache` and `repository` as in hub/cache.h. */
mf_status hub_blob_name(struct hub_blob *out, const struct hub_file *file, const char *cache,
                        const char *repository, mf_error *why);

/* Whether the complete blob is there, with the size that it should have. */
bool hub_blob_is_there(const struct hub_blob *blob);

/* Bytes that the disk already gives to the incomplete file. */
uint64_t hub_blob_allocated(const struct hub_blob *blob);

mf_status hub_blob_open(enum hub_blob_state *state, struct hub_blob *blob, mf_error *why);

/* Writes at `at`; the range counts as there afterwards. */
mf_status hub_blob_write(struct hub_blob *blob, const void *bytes, size_t count, uint64_t at,
                         mf_error *why);

/* Replaces the record on disk. */
mf_status hub_blob_record(struct hub_blob *blob, mf_error *why);

/* Reads the whole file and compares its hash; *stop set from another thread ends it early (the
 * result is then MF_ERR_CANCELLED).  MF_ERR_MISMATCH: it is not what the hub promised. */
mf_status hub_blob_verify(const struct hub_blob *blob, const bool *stop, mf_error *why);

/* Gives the verified file its name. */
mf_status hub_blob_commit(struct hub_blob *blob, mf_error *why);

/* Nothing is there any more: to begin anew. */
mf_status hub_blob_discard(struct hub_blob *blob, mf_error *why);

/* Closes and unlocks; writes the record if it is out of date. */
void hub_blob_close(struct hub_blob *blob);

#endif
