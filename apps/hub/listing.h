/* listing.h: the files of a repository as the hub lists them.
 *
 *     GET /api/models/ORG/NAME/revision/main                    {"sha": COMMIT, …}
 *     GET /api/models/ORG/NAME/tree/COMMIT?recursive=true       [{"type": "file", "path": …,
 *         "size": …, "oid": git's hash, "lfs": {"oid": SHA-256, "size": …}}, …], in pages
 *
 * A file's hash names its blob in the cache: SHA-256 of large files, of others git's hash, which is
 * SHA-1 of "blob SIZE", a NUL and the bytes.  Names that could leave the cache, names that occur
 * twice and hashes that are none are refused. */
#ifndef HUB_LISTING_H
#define HUB_LISTING_H

#include "common/error.h"
#include "hub/name.h"

struct hub_file {
    char *path; /* inside the repository, safe */
    uint64_t size;
    char hash[HUB_HASH_CAPACITY];
};

/* All zeros: empty. */
struct hub_listing {
    char commit[HUB_HASH_CAPACITY];
    struct hub_file *files;
    size_t count, capacity;
};

/* Takes the commit from the answer about a revision. */
mf_status hub_listing_read_revision(struct hub_listing *listing, const char *text, size_t length,
                                    mf_error *why);

/* Adds a page of the tree.  After a failure the listing can only be freed. */
mf_status hub_listing_add_page(struct hub_listing *listing, const char *text, size_t length,
                               mf_error *why);

/* After the last page: sorts by name, and refuses what cannot be one directory tree, and sizes whose sum
 * does not fit: sums of some of them need no check. */
mf_status hub_listing_finish(struct hub_listing *listing, mf_error *why);

/* Adds one file; `path` is copied. */
mf_status hub_listing_add(struct hub_listing *listing, const char *path, uint64_t size,
                          const char *hash, mf_error *why);

void hub_listing_free(struct hub_listing *listing);

#endif
