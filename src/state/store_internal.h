/* store_internal.h: what the files of the store share.
 *
 *     store.c           the calls, the queue and the thread that writes
 *     store_open.c      the directory: secret, lock, names
 *     store_table.c     records by key and as trees; which one goes first
 *     store_list.c      records for people
 *     store_journal.c   the journal
 *     store_file.c      the files of payloads
 *
 * Lock: `lock` of the store guards the table, the queue and the counters.  The journal's file and
 * all files that are written belong to the thread that writes, and before it starts and after it
 * has ended to the caller of open and close. */
#ifndef STATE_STORE_INTERNAL_H
#define STATE_STORE_INTERNAL_H

#include "base/array.h"
#include "base/checksum.h"
#include "base/status.h"
#include "state/store.h"

#include <pthread.h>

enum {
    CACHE_BLOCK = 4096,
    CACHE_NAME = 64,   /* of a file, with its NUL */
    CACHE_LABEL = 200, /* of a root, without its NUL */
    CACHE_IDENTITY = 1024,
};

/* A store with no files: the secret and the lock. */
#define CACHE_BASE_BYTES ((uint64_t)CACHE_BLOCK)

enum entry_state { ENTRY_QUEUED, ENTRY_STORED, ENTRY_DROPPED };

/* A record in memory; roots are entries, too. */
struct entry {
    struct cache_record record; /* `tokens` points behind the struct */
    enum entry_state state;
    uint64_t serial; /* of the store's entries: tells one from a later one of the same key */
    struct entry *next_in_bucket;
    struct entry *parent, *children, *next, *previous; /* of a root: parent is NULL */
    bool dirty;                                        /* hits that are not in the journal */
    bool found; /* at open: the file is there; of a root: the journal has it */
    /* In the queue: */
    struct entry *next_in_queue;
    const void *payload;
    cache_done_function done;
    void *user;
    char *label;       /* of a root, behind the struct */
    size_t allocation; /* bytes of all of it */
};

struct table {
    const mf_allocator *allocator;
    struct entry **buckets;
    size_t bucket_count, entry_count;
    uint64_t file_bytes; /* of stored entries, and of those whose file is still to be removed */
    uint64_t live_bytes; /* that a journal of the stored entries has */
};

struct journal {
    struct disk_file file;
    uint64_t size;
    bool unsynced;
};

struct cache_store {
    pthread_mutex_t lock;
    pthread_cond_t work, idle;
    pthread_t thread;
    bool has_thread, closing, is_idle, look_only;
    const mf_allocator *allocator;
    const struct disk *disk;
    const mf_files *files;
    const struct clock *clock;
    char directory[PATH_CAPACITY];
    struct disk_file lock_file;
    uint8_t secret[CHECKSUM_SECRET];
    uint64_t limit_bytes, queue_limit_bytes;
    struct table table;
    struct journal journal;
    struct entry *first, *last; /* the queue */
    uint64_t queued_bytes;
    uint64_t serial;
    uint64_t newest; /* serial of the entry that was written last: not evicted */
    struct cache_store_statistics counted;
};

double store_now(const struct cache_store *store);

/* --------------------------------------------------------------- store_table.c */

bool key_equal(const struct cache_key *a, const struct cache_key *b);

struct entry *table_find(const struct table *table, const struct cache_key *key);
struct entry *table_find_stored(const struct table *table, const struct cache_key *key);

/* A root, or NULL: out of memory. */
struct entry *table_add_root(struct table *table, const struct cache_key *key, const char *label);

/* Adds a copy of the record, in state `queued`, below its parent, which is there.  NULL: out of
 * memory. */
struct entry *table_add(struct table *table, const struct cache_record *record);
void table_set_stored(struct table *table, struct entry *entry);

/* Takes an entry without children out of the table; its file's bytes stay counted until
 * entry_free. */
void table_remove(struct table *table, struct entry *entry);
void entry_free(struct table *table, struct entry *entry);
void table_free(struct table *table);

/* All entries, in any order.  NULL begins and ends. */
struct entry *table_next(const struct table *table, const struct entry *entry, size_t *bucket);
/* The next one of a tree in order; `entry` of `top`'s tree.  Parents come before children. */
struct entry *tree_next(const struct entry *top, const struct entry *entry);
/* An entry without children, at or below `top`. */
struct entry *tree_leaf(struct entry *top);

/* The stored entry that is worth the least among those that no other one needs; NULL: none. */
struct entry *table_least(const struct table *table, uint64_t protected_serial);

void entry_touch(struct entry *entry, double now);

/* Whether the checkpoint lies in the page: they have the same parent and the same first tokens. */
bool entry_lies_in(const struct entry *checkpoint, const struct entry *page);

/* Bytes of the entry's file; 0 for roots. */
uint64_t entry_file_bytes(const struct entry *entry);

bool table_check(const struct table *table);

/* ------------------------------------------------------------- store_journal.c */

/* Bytes of the entry's record in a journal. */
uint64_t journal_entry_bytes(const struct entry *entry);

/* Whether the record may be added: it continues its parent, which is there, and has its own key. */
bool store_record_fits(const struct cache_store *store, const struct cache_record *record);

/* Reads records into the table; what is damaged or fits to nothing is left out.  *damaged: some
 * was. */
mf_status journal_parse(struct cache_store *store, const void *bytes, size_t count, bool *damaged,
                        mf_error *why);
/* The directory's; one that is missing counts as damaged. */
mf_status journal_load(struct cache_store *store, bool *damaged, mf_error *why);
/* For appending; the journal is not damaged. */
mf_status journal_open(struct cache_store *store, mf_error *why);

void journal_print_added(struct byte_buffer *out, const struct entry *entry);
void journal_print_touched(struct byte_buffer *out, const struct entry *entry);
void journal_print_dropped(struct byte_buffer *out, const struct cache_key *key);

/* Appends records, or writes the journal anew where it has become twice as large as the live
 * records. */
mf_status journal_append(struct cache_store *store, const struct byte_buffer *records,
                         mf_error *why);
mf_status journal_rewrite(struct cache_store *store, mf_error *why);
mf_status journal_sync(struct cache_store *store, mf_error *why);

/* The most bytes that the journal and its successor take while `live_bytes` are live. */
uint64_t journal_room(const struct cache_store *store, uint64_t live_bytes);

/* ---------------------------------------------------------------- store_file.c */

enum file_verdict {
    FILE_SOUND,
    FILE_MISSING,
    FILE_DAMAGED,
    FILE_UNREADABLE, /* now: too many open files, for one */
};

void store_file_name(char out[CACHE_NAME], const struct cache_record *record);
bool store_file_parse_name(struct cache_key *key, enum cache_kind *kind, const char *name);
uint64_t store_file_bytes(uint64_t payload_bytes); /* of the file, in whole blocks */

/* Writes the file under a temporary name, syncs and renames it.  After a failure neither is
 * there. */
mf_status store_file_write(struct cache_store *store, const struct cache_record *record,
                           const void *payload, mf_error *why);
void store_file_remove(struct cache_store *store, const struct cache_record *record);

/* Reads and checks the payload.  `out` NULL: only checks. */
enum file_verdict store_file_read(void *out, const struct cache_store *store,
                                  const struct cache_record *record);

/* ---------------------------------------------------------------- store_open.c */

/* Everything of cache_store_open but the thread. */
mf_status store_open_directory(struct cache_store *store, bool *held, mf_error *why);

/* ---------------------------------------------------------------------- store.c */

/* Removes least valuable files until `more_file` bytes of files and `more_live` of the journal
 * fit.  False: they do not.  Called by the thread that writes, without the lock. */
bool store_make_room(struct cache_store *store, uint64_t more_file, uint64_t more_live);

#endif
