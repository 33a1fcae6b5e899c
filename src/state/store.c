#include "state/store.h"

#include "base/arena.h"
#include "base/thread.h"
#include "state/store_internal.h"

#include <time.h>

#define QUEUE_BYTES ((uint64_t)256 << 20)

double store_now(const struct cache_store *store)
{
    struct timespec now;
    if (store->clock) return clock_now(store->clock);
    clock_gettime(CLOCK_REALTIME, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/* ---------------------------------------------------------------------- keys */

/* `kind` tells a page from a checkpoint of the same tokens, and from a root. */
static struct cache_key make_key(const struct cache_store *store, uint32_t kind,
                                 const struct cache_key *parent, const void *bytes, size_t count)
{
    uint8_t text[sizeof kind + sizeof *parent + CACHE_IDENTITY];
    struct cache_key key;
    memcpy(text, &kind, sizeof kind);
    memcpy(text + sizeof kind, parent, sizeof *parent);
    if (count) memcpy(text + sizeof kind + sizeof *parent, bytes, count);
    checksum_keyed(key.bytes, store->secret, text, sizeof kind + sizeof *parent + count);
    return key;
}

_Static_assert(CACHE_TOKENS_MAX * sizeof(uint32_t) <= CACHE_IDENTITY, "tokens fit in a key's text");

struct cache_key cache_store_key(const struct cache_store *store, enum cache_kind kind,
                                 const struct cache_key *parent, const uint32_t *tokens,
                                 uint32_t count)
{
    return make_key(store, kind, parent, tokens,
                    min_size(count, CACHE_TOKENS_MAX) * sizeof *tokens);
}

mf_status cache_store_root(struct cache_key *out, struct cache_store *store, const void *identity,
                           size_t bytes, const char *label, mf_error *why)
{
    static const struct cache_key no_parent;
    mf_status status = MF_OK;
    if (bytes > CACHE_IDENTITY)
        return fail(why, MF_ERR_ARGUMENT, "an identity of %zu bytes is longer than %d", bytes,
                    CACHE_IDENTITY);
    *out = make_key(store, CACHE_ROOT, &no_parent, identity, bytes);
    pthread_mutex_lock(&store->lock);
    struct entry *root = table_find(&store->table, out);
    /* It gets into the journal with the first record below it. */
    if (!root && !table_add_root(&store->table, out, label))
        status = fail_memory(why, sizeof *root);
    pthread_mutex_unlock(&store->lock);
    return status;
}

/* ---------------------------------------------------------------------- room */

static uint64_t used_bytes(const struct cache_store *store, uint64_t more_live)
{
    return CACHE_BASE_BYTES + store->table.file_bytes +
           journal_room(store, store->table.live_bytes + more_live);
}

static bool fits(const struct cache_store *store, uint64_t more_file, uint64_t more_live)
{
    uint64_t used = used_bytes(store, more_live);
    return used <= store->limit_bytes && more_file <= store->limit_bytes - used;
}

/* Removes a stored entry's file.  The entry is out of the table. */
static void remove_file(struct cache_store *store, struct entry *entry)
{
    struct byte_buffer record = { 0 };
    store_file_remove(store, &entry->record);
    journal_print_dropped(&record, &entry->record.key);
    journal_append(store, &record, NULL); /* without it the record has no file */
    byte_buffer_free(&record);
    pthread_mutex_lock(&store->lock);
    entry_free(&store->table, entry);
    pthread_mutex_unlock(&store->lock);
}

bool store_make_room(struct cache_store *store, uint64_t more_file, uint64_t more_live)
{
    for (;;) {
        pthread_mutex_lock(&store->lock);
        bool enough = fits(store, more_file, more_live);
        struct entry *least = enough ? NULL : table_least(&store->table, store->newest);
        if (least) table_remove(&store->table, least);
        store->counted.evicted += least != NULL;
        pthread_mutex_unlock(&store->lock);
        if (!least) return enough;
        remove_file(store, least);
    }
}

/* --------------------------------------------------------------------- queue */

static void enqueue(struct cache_store *store, struct entry *entry)
{
    entry->next_in_queue = NULL;
    if (store->last)
        store->last->next_in_queue = entry;
    else
        store->first = entry;
    store->last = entry;
    store->is_idle = false;
    pthread_cond_signal(&store->work);
}

static struct entry *dequeue(struct cache_store *store)
{
    struct entry *entry = store->first;
    if (!entry) return NULL;
    store->first = entry->next_in_queue;
    if (!store->first) store->last = NULL;
    return entry;
}

/* With the lock.  An entry in the queue is stored: its file is to be removed; queued: it is to be
 * written; dropped: it was to be written.  The one that is being written is not in the queue. */
static void drop_tree(struct cache_store *store, struct entry *top)
{
    for (struct entry *leaf = NULL; leaf != top;) {
        leaf = tree_leaf(top);
        table_remove(&store->table, leaf);
        if (leaf->state == ENTRY_STORED)
            enqueue(store, leaf);
        else
            leaf->state = ENTRY_DROPPED;
    }
}

/* ----------------------------------------------------- the thread that writes */

static mf_status write_record(struct cache_store *store, const struct entry *entry)
{
    struct byte_buffer record = { 0 };
    mf_status status = store_file_write(store, &entry->record, entry->payload, NULL);
    if (status != MF_OK) return status;
    pthread_mutex_lock(&store->lock);
    struct entry *root = table_find(&store->table, &entry->record.root);
    if (root && !root->found) journal_print_added(&record, root);
    if (root) root->found = true;
    journal_print_added(&record, entry);
    pthread_mutex_unlock(&store->lock);
    status = journal_append(store, &record, NULL);
    byte_buffer_free(&record);
    if (status != MF_OK) store_file_remove(store, &entry->record);
    return status;
}

/* The file was written.  False: it was dropped meanwhile. */
static bool settle(struct cache_store *store, struct entry *entry)
{
    pthread_mutex_lock(&store->lock);
    bool kept = entry->state == ENTRY_QUEUED;
    table_set_stored(&store->table, entry);
    if (!kept) store->table.live_bytes -= journal_entry_bytes(entry); /* not in the table */
    if (kept) store->newest = entry->serial;
    store->counted.written++;
    store->counted.bytes_written += entry->record.bytes;
    pthread_mutex_unlock(&store->lock);
    if (!kept) remove_file(store, entry);
    return kept;
}

/* Nothing was written. */
static void give_up(struct cache_store *store, struct entry *entry)
{
    pthread_mutex_lock(&store->lock);
    if (entry->state == ENTRY_QUEUED) drop_tree(store, entry);
    entry_free(&store->table, entry);
    pthread_mutex_unlock(&store->lock);
}

static void write_entry(struct cache_store *store, struct entry *entry)
{
    cache_done_function done = entry->done;
    void *user = entry->user;
    uint64_t bytes = entry->record.bytes;
    mf_status status = MF_ERR_CANCELLED;
    pthread_mutex_lock(&store->lock);
    bool wanted = entry->state == ENTRY_QUEUED;
    uint64_t live = journal_entry_bytes(entry);
    pthread_mutex_unlock(&store->lock);
    if (wanted && store_make_room(store, store_file_bytes(bytes), live))
        status = write_record(store, entry);
    bool failed = wanted && status != MF_OK;
    if (status != MF_OK)
        give_up(store, entry);
    else if (!settle(store, entry))
        status = MF_ERR_CANCELLED;
    pthread_mutex_lock(&store->lock);
    store->queued_bytes -= bytes;
    store->counted.failed += failed;
    pthread_mutex_unlock(&store->lock);
    if (done) done(user, status);
}

/* With the lock: hits that the journal does not have. */
static void print_touched(struct byte_buffer *out, struct cache_store *store)
{
    size_t bucket;
    for (struct entry *entry = NULL; (entry = table_next(&store->table, entry, &bucket));) {
        if (entry->dirty && entry->state == ENTRY_STORED) journal_print_touched(out, entry);
        entry->dirty &= entry->state != ENTRY_STORED;
    }
}

/* With the lock, which is let go meanwhile.  False: there was nothing to write. */
static bool catch_up(struct cache_store *store)
{
    struct byte_buffer touched = { 0 };
    print_touched(&touched, store);
    if (!store->journal.unsynced && touched.count == 0) {
        byte_buffer_free(&touched);
        return false; /* with the lock all the time: no touch comes in between */
    }
    pthread_mutex_unlock(&store->lock);
    if (touched.count > 0) journal_append(store, &touched, NULL);
    journal_sync(store, NULL);
    byte_buffer_free(&touched);
    pthread_mutex_lock(&store->lock);
    return true;
}

static void *write_all(void *argument)
{
    struct cache_store *store = argument;
    pthread_mutex_lock(&store->lock);
    for (;;) {
        struct entry *entry = dequeue(store);
        if (entry) {
            bool remove = entry->state == ENTRY_STORED;
            pthread_mutex_unlock(&store->lock);
            if (remove)
                remove_file(store, entry);
            else
                write_entry(store, entry);
            pthread_mutex_lock(&store->lock);
        } else if (!catch_up(store) && !store->first) {
            store->is_idle = true;
            pthread_cond_broadcast(&store->idle);
            if (store->closing) break;
            pthread_cond_wait(&store->work, &store->lock);
        }
    }
    pthread_mutex_unlock(&store->lock);
    return NULL;
}

/* --------------------------------------------------------------------- calls */

static bool may_queue(const struct cache_store *store, uint64_t bytes)
{
    return store->queued_bytes == 0 || (store->queued_bytes <= store->queue_limit_bytes &&
                                        bytes <= store->queue_limit_bytes - store->queued_bytes);
}

enum cache_put cache_store_put(struct cache_store *store, const struct cache_record *record,
                               const void *payload, cache_done_function done, void *user)
{
    enum cache_put result = CACHE_PUT_REFUSED;
    struct entry *entry = NULL;
    pthread_mutex_lock(&store->lock);
    if (table_find(&store->table, &record->key))
        result = CACHE_PUT_PRESENT;
    else if (store->has_thread && record->count <= CACHE_TOKENS_MAX &&
             store_record_fits(store, record) && may_queue(store, record->bytes) &&
             store_file_bytes(record->bytes) < store->limit_bytes)
        entry = table_add(&store->table, record);
    if (entry) {
        entry->serial = ++store->serial;
        entry->record.hits = 0;
        entry->record.used = store_now(store);
        entry->payload = payload;
        entry->done = done;
        entry->user = user;
        store->queued_bytes += record->bytes;
        enqueue(store, entry);
        result = CACHE_PUT_QUEUED;
    }
    store->counted.refused += result == CACHE_PUT_REFUSED;
    pthread_mutex_unlock(&store->lock);
    return result;
}

/* A stored record and its tokens, as they are now. */
struct copied {
    struct cache_record record;
    uint32_t tokens[CACHE_TOKENS_MAX];
    uint64_t serial;
};

static void copy_entry(struct copied *out, const struct entry *entry)
{
    out->record = entry->record;
    memcpy(out->tokens, entry->record.tokens, entry->record.count * sizeof *out->tokens);
    out->record.tokens = out->tokens;
    out->serial = entry->serial;
}

/* With the lock: unless it has become another one. */
static void drop_damaged(struct cache_store *store, const struct copied *copied)
{
    struct entry *entry = table_find_stored(&store->table, &copied->record.key);
    if (!entry || entry->serial != copied->serial) return;
    store->counted.damaged++;
    if (!store->look_only) drop_tree(store, entry);
}

bool cache_store_get(void *out, uint64_t bytes, struct cache_store *store,
                     const struct cache_key *key)
{
    struct copied copied;
    enum file_verdict verdict = FILE_UNREADABLE;
    pthread_mutex_lock(&store->lock);
    const struct entry *entry = table_find_stored(&store->table, key);
    bool there = entry && entry->record.bytes == bytes;
    if (there) copy_entry(&copied, entry);
    pthread_mutex_unlock(&store->lock);
    if (there) verdict = store_file_read(out, store, &copied.record);
    pthread_mutex_lock(&store->lock);
    if (verdict == FILE_DAMAGED || verdict == FILE_MISSING) drop_damaged(store, &copied);
    store->counted.gets++;
    if (verdict == FILE_SOUND)
        store->counted.bytes_read += bytes;
    else
        store->counted.misses++;
    pthread_mutex_unlock(&store->lock);
    return verdict == FILE_SOUND;
}

bool cache_store_has(struct cache_store *store, const struct cache_key *key)
{
    pthread_mutex_lock(&store->lock);
    const struct entry *entry = table_find(&store->table, key);
    bool has = entry && entry->record.kind != CACHE_ROOT;
    pthread_mutex_unlock(&store->lock);
    return has;
}

void cache_store_touch(struct cache_store *store, const struct cache_key *key)
{
    pthread_mutex_lock(&store->lock);
    struct entry *entry = table_find(&store->table, key);
    if (entry && entry->record.kind != CACHE_ROOT) {
        entry_touch(entry, store_now(store));
        entry->dirty = true;
        store->is_idle = false;
        pthread_cond_signal(&store->work);
    }
    pthread_mutex_unlock(&store->lock);
}

void cache_store_drop(struct cache_store *store, const struct cache_key *key)
{
    pthread_mutex_lock(&store->lock);
    struct entry *entry = table_find(&store->table, key);
    if (entry && entry->record.kind != CACHE_ROOT && !store->look_only) drop_tree(store, entry);
    pthread_mutex_unlock(&store->lock);
}

void cache_store_each(struct cache_store *store, const struct cache_key *root,
                      cache_each_function function, void *user)
{
    pthread_mutex_lock(&store->lock);
    const struct entry *top = table_find(&store->table, root);
    if (top && top->record.kind == CACHE_ROOT)
        for (const struct entry *entry = top; (entry = tree_next(top, entry));)
            if (entry->state == ENTRY_STORED) function(user, &entry->record);
    pthread_mutex_unlock(&store->lock);
}

void cache_store_children(struct cache_store *store, const struct cache_key *parent,
                          cache_each_function function, void *user)
{
    pthread_mutex_lock(&store->lock);
    const struct entry *top = table_find(&store->table, parent);
    for (const struct entry *entry = top ? top->children : NULL; entry; entry = entry->next)
        function(user, &entry->record);
    pthread_mutex_unlock(&store->lock);
}

void cache_store_flush(struct cache_store *store)
{
    pthread_mutex_lock(&store->lock);
    while (store->has_thread && !store->is_idle) pthread_cond_wait(&store->idle, &store->lock);
    pthread_mutex_unlock(&store->lock);
}

struct cache_store_statistics cache_store_statistics(struct cache_store *store)
{
    size_t bucket;
    pthread_mutex_lock(&store->lock);
    struct cache_store_statistics out = store->counted;
    out.limit_bytes = store->limit_bytes;
    out.used_bytes = used_bytes(store, 0);
    out.journal_bytes = store->journal.size;
    out.directory_bytes =
        CACHE_BASE_BYTES + store->table.file_bytes + align_up(store->journal.size, CACHE_BLOCK);
    out.queued_bytes = store->queued_bytes;
    for (struct entry *entry = NULL; (entry = table_next(&store->table, entry, &bucket));)
        if (entry->state == ENTRY_STORED) {
            out.pages += entry->record.kind == CACHE_PAGE;
            out.checkpoints += entry->record.kind == CACHE_CHECKPOINT;
        }
    out.records = out.pages + out.checkpoints;
    pthread_mutex_unlock(&store->lock);
    return out;
}

bool cache_store_check_invariants(struct cache_store *store)
{
    pthread_mutex_lock(&store->lock);
    bool sound = table_check(&store->table);
    pthread_mutex_unlock(&store->lock);
    return sound;
}

/* ------------------------------------------------------------- opening, closing */

static void init_store(struct cache_store *store, const struct cache_store_options *options,
                       const mf_allocator *allocator)
{
    *store = (struct cache_store){ .allocator = allocator,
                                   .disk = options->disk ? options->disk : &disk_private,
                                   .files = options->files ? options->files : &files_posix,
                                   .clock = options->clock,
                                   .limit_bytes = options->limit_bytes,
                                   .queue_limit_bytes =
                                       options->queue_bytes ? options->queue_bytes : QUEUE_BYTES,
                                   .look_only = options->look_only,
                                   .is_idle = true,
                                   .table.allocator = allocator };
    pthread_mutex_init(&store->lock, NULL);
    pthread_cond_init(&store->work, NULL);
    pthread_cond_init(&store->idle, NULL);
}

mf_status cache_store_open(struct cache_store **out, bool *held,
                           const struct cache_store_options *options, mf_error *why)
{
    const mf_allocator *allocator = options->allocator ? options->allocator : &allocator_heap;
    size_t length = strlen(options->directory);
    *out = NULL;
    *held = false;
    if (length == 0 || length >= PATH_CAPACITY - CACHE_NAME)
        return fail(why, MF_ERR_ARGUMENT, "the path of a cache directory has %zu bytes", length);
    struct cache_store *store =
        allocator->allocate(allocator->user, sizeof *store, _Alignof(struct cache_store));
    if (!store) return fail_memory(why, sizeof *store);
    init_store(store, options, allocator);
    memcpy(store->directory, options->directory, length + 1);
    mf_status status = store_open_directory(store, held, why);
    if (status == MF_OK && !*held && !store->look_only) {
        int result = thread_start(&store->thread, NULL, write_all, store);
        store->has_thread = result == 0;
        if (result != 0) status = fail_errno(why, MF_ERR_MEMORY, result, "no thread to write");
    }
    if (status != MF_OK || *held)
        cache_store_close(store);
    else
        *out = store;
    return status;
}

void cache_store_close(struct cache_store *store)
{
    if (!store) return;
    const mf_allocator *allocator = store->allocator;
    if (store->has_thread) {
        pthread_mutex_lock(&store->lock);
        store->closing = true;
        pthread_cond_signal(&store->work);
        pthread_mutex_unlock(&store->lock);
        pthread_join(store->thread, NULL);
    }
    disk_file_close(&store->journal.file);
    disk_file_close(&store->lock_file);
    table_free(&store->table);
    pthread_cond_destroy(&store->idle);
    pthread_cond_destroy(&store->work);
    pthread_mutex_destroy(&store->lock);
    allocator->release(allocator->user, store, sizeof *store);
}
