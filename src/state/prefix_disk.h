/* prefix_disk.h: the prefix cache on disk: what the tree keeps in memory is written to a cache
 * directory (store.h), and what is only there is read back when a request begins with it.
 *
 *     keep:    tree, then store: pages and checkpoint are queued by reference, nothing waits
 *     resume:  where the store knows more of the request than the tree, that is read into the
 *              tree first
 *
 * Only what the tree decided to keep is written.  What memory evicts stays on disk.
 *
 * Threads: any.  No function is called with the tree's lock held. */
#ifndef STATE_PREFIX_DISK_H
#define STATE_PREFIX_DISK_H

#include "state/prefix.h"
#include "state/store.h"

struct prefix_disk {
    struct cache_store *store;
    struct state_pool *pool;
    struct cache_key root;
};

/* Writes the first `count` tokens' pages of the sequence, and of its position the state `kept`,
 * unless it is NULL. */
void prefix_disk_keep(struct prefix_disk *disk, const struct sequence *sequence, uint32_t count,
                      void *kept, enum prefix_place place);

/* Makes an empty sequence hold the longest beginning of `tokens` that is on disk, if it has more
 * than `known` tokens.  `exact`: only tokens of prompts.  False: there is none; the sequence is
 * empty.  *place is the checkpoint's. */
bool prefix_disk_load(struct sequence *sequence, enum prefix_place *place,
                      const struct prefix_disk *disk, const int32_t *tokens, uint32_t count,
                      uint32_t known, bool exact);

/* Waits until the blocks that are being written are no longer borrowed; false: there were none. */
bool prefix_disk_wait(const struct prefix_disk *disk);

/* The sequence was resumed: a hit for the record that it ends with. */
void prefix_disk_touch(const struct prefix_disk *disk, const struct sequence *sequence);

#endif
