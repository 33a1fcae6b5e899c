/* snapshot.h: a sequence as bytes: exact at its position, to be continued later, by another process
 * or on another day.
 *
 *     header (snapshot.c) | tokens with phases | pages | recurrent state | logits
 *
 * The header says which model and which arithmetic made the state, the sizes of all parts, and
 * checksums of itself and of what follows.  Reading checks all of that before anything is
 * changed.  What is in pages and state beside the
 * sequence's content is zero: the bytes depend on its tokens and their phases alone. */
#ifndef STATE_SNAPSHOT_H
#define STATE_SNAPSHOT_H

#include "state/sequence.h"

/* What must be the same for a state to mean the same; ends with zeros. */
struct snapshot_identity {
    char model[32];      /* fingerprint, in hexadecimal digits */
    char arithmetic[32]; /* backend, kernel set, options that change results */
};

/* `logits`: [vocabulary] of the last token, or NULL. */
uint64_t snapshot_bytes(const struct sequence *sequence, const float *logits);
/* MF_ERR_DEVICE: the state could not be read. */
mf_status snapshot_write(uint8_t *out, const struct sequence *sequence, const float *logits,
                         const struct snapshot_identity *identity, mf_error *why);

/* Fills an empty sequence, and *logits with a block of the pool, or NULL where there are none.
 * MF_ERR_FORMAT: no snapshot, or damaged; MF_ERR_UNSUPPORTED: of another version;
 * MF_ERR_MISMATCH: of another model or arithmetic; MF_ERR_CONTEXT_FULL: longer than the sequence
 * may be; MF_ERR_POOL_FULL; MF_ERR_DEVICE.  After a failure the sequence is empty. */
mf_status snapshot_read(struct sequence *sequence, float **logits, const void *bytes, size_t count,
                        const struct snapshot_identity *identity, mf_error *why);

#endif
