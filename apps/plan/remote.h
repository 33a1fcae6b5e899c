/* remote.h: the headers of a checkpoint that lies on a hub, without its weights.
 *
 *     listing ── choose ── ranges of headers ─▶ sparse files of full size in a temporary directory
 *
 * The copy can be described and planned as any checkpoint; reading its weights gives zeros.  Of a
 * GGUF file as much is read as its header has, of safetensors the header of every file and
 * the texts that describe the model.  At most REMOTE_BYTES_MAX bytes are transferred. */
#ifndef PLAN_REMOTE_H
#define PLAN_REMOTE_H

#include "hub/choose.h"
#include "hub/client.h"

enum { REMOTE_BYTES_MAX = 15 * 1000 * 1000 };

struct remote {
    struct hub_settings settings;
    struct hub_client client;
    struct hub_listing listing;
    struct hub_candidates candidates;
    const struct hub_candidate *chosen;
    uint64_t transferred;          /* bytes of headers */
    char directory[PATH_CAPACITY]; /* "" none yet */
    char path[PATH_CAPACITY];      /* of the checkpoint in it */
};

/* Lists the repository and chooses: the quantisation of the name, else what `moeflux pull` would choose
 * for that memory (0: the machine's).
 * `name` and `observer` are borrowed.  After a failure nothing is open. */
mf_status remote_open(struct remote *out, const struct hub_name *name,
                      const struct hub_observer *observer, uint64_t memory_bytes, mf_error *why);

/* Makes the copy of the chosen files' headers. */
mf_status remote_fetch(struct remote *remote, mf_error *why);

/* Removes the copy. */
void remote_close(struct remote *remote);

#endif
