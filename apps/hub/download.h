/* download.h: brings blobs into the cache, several ranges at a time.
 *
 * Each file is cut into pieces; every connection takes the next piece that is neither there nor under
 * way, of the first file that has one.  What arrived is recorded every few MiB.  A complete file is
 * verified by a thread of its own while the next ones are downloaded, and gets its name then.
 *
 * Threads: all calls come from one thread. */
#ifndef HUB_DOWNLOAD_H
#define HUB_DOWNLOAD_H

#include "hub/client.h"

struct hub_download {
    const struct hub_client *client;
    const struct hub_listing *listing;
    const size_t *files; /* indices into the listing */
    size_t file_count;
    unsigned connections; /* at a time, 1 … HUB_CONNECTION_LIMIT */
};

enum { HUB_CONNECTION_LIMIT = 32 };

/* Ends when all blobs are there, or with the first failure that is final; what had arrived by then
 * is kept. */
mf_status hub_download(const struct hub_download *order, mf_error *why);

#endif
