/* store.h: the files of a cache directory: pages and checkpoints that outlive the process.
 *
 *     secret     random bytes, for the keys; made with the directory
 *     journal    one record for every file, with tokens and phases (store_journal.c)
 *     lock       held while a process has the directory open
 *     <key>.page, <key>.state    one payload each (store_file.c)
 *
 * Records are trees, one for each root (a model with its tokenizer, type of cache, arithmetic and
 * salt).  A page has the page before it as parent, the first one the root.  A checkpoint has the
 * parent of the page that it lies in, and the tokens of that page up to its position: it stays when
 * the page grows and is stored under another key.  A record is there only while its parent is.
 *
 *              put                    write                 evict, drop, damage
 *     absent ───────▶ queued ─────────────────▶ stored ──────────────────────▶ absent
 *                            └ failed: absent
 *
 * A payload is written by a thread of the store's own to a temporary name, synced, renamed, and
 * then named in the journal.  So a process that ends at any moment leaves a directory that opens:
 * files that no record names are removed, records without a file are dropped.  A payload is served
 * only if its header, tokens and bytes have the checksums of the file.
 *
 * The limit counts all bytes of the directory.  When a file would exceed it, the least valuable
 * ones go: those that no other record needs, by hits (with a half-life of 6 hours) times the
 * positions that need not be computed again, divided by bytes.  Files of other models go, too.
 *
 * Threads: any.  No function but open, get, flush and close waits for the disk.  The store's lock is
 * taken after all others; functions given to put are called without it, those given to each with
 * it. */
#ifndef STATE_STORE_H
#define STATE_STORE_H

#include "base/clock.h"
#include "base/common.h"
#include "base/disk.h"

enum cache_kind {
    CACHE_ROOT = 0, /* of the store: what the trees hang from; has no file */
    CACHE_PAGE = 1,
    CACHE_CHECKPOINT = 2,
};

enum { CACHE_TOKENS_MAX = 64 };

struct cache_key {
    uint8_t bytes[16];
};

struct cache_record {
    enum cache_kind kind;
    struct cache_key root, parent, key; /* parent: the root's key for those that begin a text */
    uint32_t first;                     /* position of the first of the tokens */
    uint32_t count;                     /* of tokens; a checkpoint's position is first + count */
    const uint32_t *tokens;             /* [count] ids with phases */
    uint32_t saved; /* positions that need not be computed again; 0: page count, checkpoint all */
    uint32_t place; /* of the caller: kept and given back */
    uint64_t bytes; /* of the payload */
    /* Of the store: */
    double hits; /* with a half-life of 6 hours; as of `used` */
    double used; /* last, in seconds since 1970 */
};

struct cache_store;

struct cache_store_options {
    const char *directory; /* made where it is not there, for its owner only */
    uint64_t limit_bytes;
    uint64_t queue_bytes;          /* payloads that wait to be written; 0: 256 MiB */
    const mf_allocator *allocator; /* NULL: the heap */
    const struct disk *disk;       /* NULL: files that only their owner can read */
    const mf_files *files;         /* NULL: POSIX */
    const struct clock *clock;     /* seconds since 1970; NULL: the system's */
    bool look_only;                /* changes nothing: what is wrong is counted, puts are refused */
};

/* Opens the directory, and removes what is damaged, not known or too much.  *held: another process
 * has it open; *out is NULL then and the status MF_OK.  MF_ERR_MISMATCH: the directory has files of
 * others, and nothing was changed. */
mf_status cache_store_open(struct cache_store **out, bool *held,
                           const struct cache_store_options *options, mf_error *why);

/* Finishes what is queued.  NULL is legal. */
void cache_store_close(struct cache_store *store);

/* The root for an identity: bytes that are the same where states can be exchanged.  `label` names
 * it for people (`moeflux cache ls`). */
mf_status cache_store_root(struct cache_key *out, struct cache_store *store, const void *identity,
                           size_t bytes, const char *label, mf_error *why);

/* The key of a record; the secret makes it unpredictable. */
struct cache_key cache_store_key(const struct cache_store *store, enum cache_kind kind,
                                 const struct cache_key *parent, const uint32_t *tokens,
                                 uint32_t count);

/* Calls `function` with every stored record of the root, parents first.  No file is read. */
typedef void (*cache_each_function)(void *user, const struct cache_record *record);
void cache_store_each(struct cache_store *store, const struct cache_key *root,
                      cache_each_function function, void *user);

/* The same for what is directly below a page or a root, queued records included. */
void cache_store_children(struct cache_store *store, const struct cache_key *parent,
                          cache_each_function function, void *user);

/* Called once, by the store's thread, when the payload is on disk or will never be. */
typedef void (*cache_done_function)(void *user, mf_status status);

enum cache_put {
    CACHE_PUT_QUEUED,  /* `payload` is borrowed until `done` was called */
    CACHE_PUT_PRESENT, /* stored or queued already; `done` is not called */
    CACHE_PUT_REFUSED, /* `done` is not called: the queue is full, the payload larger than the
                          limit, the parent not there, or memory is out */
};

/* `record->key` is what cache_store_key gives; the tokens are copied. */
enum cache_put cache_store_put(struct cache_store *store, const struct cache_record *record,
                               const void *payload, cache_done_function done, void *user);

/* Reads the payload of a stored record; `out` NULL: only checks it.  False: it is not there, has another number of bytes or
 * was damaged; a damaged file and what depends on it are dropped, and `out` is not defined. */
bool cache_store_get(void *out, uint64_t bytes, struct cache_store *store,
                     const struct cache_key *key);

bool cache_store_has(struct cache_store *store, const struct cache_key *key);   /* stored, queued */
void cache_store_touch(struct cache_store *store, const struct cache_key *key); /* a hit, now */

/* Drops a record and what depends on it. */
void cache_store_drop(struct cache_store *store, const struct cache_key *key);

/* Waits until all that was queued is on disk, touches and drops included. */
void cache_store_flush(struct cache_store *store);

/* For people: the records of all roots, as texts.  A page comes before the checkpoints that lie in
 * it, and these before the pages that continue it. */
struct cache_listed {
    const char *label; /* of the root; "": not known */
    const struct cache_record *record;
    uint32_t depth;      /* pages above; of a checkpoint: with the one that it lies in */
    uint64_t file_bytes; /* in whole blocks */
    bool missing;        /* there is no such file */
};
typedef void (*cache_list_function)(void *user, const struct cache_listed *listed);
void cache_store_list(struct cache_store *store, cache_list_function function, void *user);

struct cache_store_statistics {
    uint64_t limit_bytes, used_bytes; /* used: with what the journal may grow to */
    uint64_t directory_bytes;         /* what is there now, in whole blocks */
    uint64_t journal_bytes;
    uint64_t queued_bytes;
    uint64_t records, pages, checkpoints;
    /* Since it was opened: */
    uint64_t gets, misses, bytes_read;
    uint64_t written, bytes_written;
    uint64_t refused, failed; /* puts */
    uint64_t evicted, damaged;
    uint64_t strangers, missing; /* files without record and records without file, at open */
};
struct cache_store_statistics cache_store_statistics(struct cache_store *store);

/* Checks the invariants of the picture above (tests only). */
bool cache_store_check_invariants(struct cache_store *store);

#endif
