/* cache_texts.h: records for a cache store, with payloads that follow from their tokens, so that a
 * test can tell a right payload from a wrong one without keeping any. */
#ifndef SUPPORT_CACHE_TEXTS_H
#define SUPPORT_CACHE_TEXTS_H

#include "state/store.h"

struct cache_text {
    struct cache_record record;
    uint32_t tokens[CACHE_TOKENS_MAX];
};

/* A record below `parent` (NULL: the root) whose tokens follow from `seed`. */
void cache_text_make(struct cache_text *out, const struct cache_store *store, enum cache_kind kind,
                     const struct cache_key *root, const struct cache_text *parent, uint32_t seed,
                     uint32_t count, uint64_t bytes);

/* The payload of a record; release with free(). */
uint8_t *cache_text_payload_new(const struct cache_record *record);

/* Puts and waits; the status that `done` was given, or MF_ERR_ARGUMENT: not queued. */
mf_status cache_text_put(struct cache_store *store, const struct cache_text *text);

/* -1: a miss, 0: another payload than it should be, 1: the right one. */
int cache_text_get(struct cache_store *store, const struct cache_record *record);

/* Gets every record of the root.  How many were right; -1: one was wrong. */
int cache_text_get_all(struct cache_store *store, const struct cache_key *root);

#endif
