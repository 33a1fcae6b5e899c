/* Any bytes as the journal of a cache directory: as they are, and with keys and checksums put
 * right, so that what lies behind them is looked at.  What is read is a set of sound trees, says
 * the same when it is written and read again, and can be evicted to the last record. */
#include "base/arena.h"
#include "state/store_internal.h"
#include "support/fuzzed_model.h"
#include "support/memory_disk.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Offsets in the journal and in a record (state/store_journal.c). */
enum {
    HEADER = 24,
    MAGIC = 0x314a464d,
    AT_TYPE = 4,
    AT_LENGTH = 8,
    AT_CHECKSUM = 16,
    BODY = 24,
    AT_PARENT = BODY + 16,
    AT_KEY = BODY + 32,
    AT_KIND = BODY + 48,
    AT_COUNT = BODY + 56,
    AT_TOKENS = BODY + 96,
    ROOT = 1,
    ADDED = 2,
    RECORD_MAX = 512,
    INPUT_MAX = 1 << 16
};

static double at_noon(void *user)
{
    (void)user;
    return 1e9;
}

static void store_begin(struct cache_store *store, struct memory_disk *disk)
{
    static const struct clock noon = { at_noon, NULL };
    *store = (struct cache_store){ .allocator = &allocator_heap,
                                   .disk = &disk->disk,
                                   .files = &disk->files,
                                   .clock = &noon,
                                   .limit_bytes = 1 << 20,
                                   .table.allocator = &allocator_heap };
    memcpy(store->directory, "d", 2);
    for (size_t i = 0; i < sizeof store->secret; i++) store->secret[i] = (uint8_t)(7 * i + 1);
    pthread_mutex_init(&store->lock, NULL);
}

static void store_end(struct cache_store *store)
{
    disk_file_close(&store->journal.file);
    table_free(&store->table);
    pthread_mutex_destroy(&store->lock);
}

static uint64_t sum_of_record(const uint8_t *record, uint64_t length)
{
    struct checksum sum;
    checksum_begin(&sum);
    checksum_add(&sum, record, AT_CHECKSUM);
    checksum_add(&sum, record + BODY, length - BODY);
    return checksum_end(&sum);
}

/* The keys of a record's parent and of itself: its parent is the root, or, where the first byte of
 * that key is odd, the record before it. */
static void put_keys_right(const struct cache_store *store, uint8_t *record, uint64_t length,
                           struct cache_key *last)
{
    uint32_t count = length >= AT_TOKENS ? load_u32(record + AT_COUNT) : UINT32_MAX;
    uint32_t tokens[CACHE_TOKENS_MAX];
    if (count > CACHE_TOKENS_MAX || count * sizeof *tokens > length - AT_TOKENS) return;
    memcpy(tokens, record + AT_TOKENS, count * sizeof *tokens);
    memset(record + BODY, 0, sizeof *last); /* the root */
    if (record[AT_PARENT] % 2)
        memcpy(record + AT_PARENT, last, sizeof *last);
    else
        memset(record + AT_PARENT, 0, sizeof *last);
    struct cache_key parent;
    memcpy(&parent, record + AT_PARENT, sizeof parent);
    *last =
        cache_store_key(store, (enum cache_kind)load_u32(record + AT_KIND), &parent, tokens, count);
    memcpy(record + AT_KEY, last, sizeof *last);
}

static void put_right(const struct cache_store *store, uint8_t *data, size_t size)
{
    struct cache_key last = { 0 };
    uint64_t sum, length;
    for (size_t at = HEADER; at + BODY <= size; at += length) {
        uint8_t *record = data + at;
        length = load_u64(record + AT_LENGTH);
        if (load_u32(record) != MAGIC || length < BODY || length > size - at || length % 8 ||
            length > RECORD_MAX) {
            length = 8;
            continue;
        }
        if (load_u32(record + AT_TYPE) == ROOT && length >= BODY + sizeof last)
            memset(record + BODY, 0, sizeof last);
        if (load_u32(record + AT_TYPE) == ADDED) put_keys_right(store, record, length, &last);
        sum = sum_of_record(record, length);
        memcpy(record + AT_CHECKSUM, &sum, sizeof sum);
    }
    if (size < HEADER) return;
    sum = checksum_of(data, AT_CHECKSUM);
    memcpy(data + AT_CHECKSUM, &sum, sizeof sum);
}

static void evict_all(struct cache_store *store)
{
    struct entry *least;
    while ((least = table_least(&store->table, 0))) {
        table_remove(&store->table, least);
        entry_free(&store->table, least);
    }
    must(table_check(&store->table) && store->table.file_bytes == 0);
    size_t bucket;
    for (struct entry *entry = NULL; (entry = table_next(&store->table, entry, &bucket));)
        must(entry->record.kind == CACHE_ROOT);
}

static void load(const uint8_t *data, size_t size, struct memory_disk *disk)
{
    struct cache_store store, again;
    bool damaged;
    store_begin(&store, disk);
    mf_status status = journal_parse(&store, data, size, &damaged, NULL);
    must(status == MF_OK || status == MF_ERR_UNSUPPORTED);
    must(table_check(&store.table));
    must(journal_rewrite(&store, NULL) == MF_OK);

    store_begin(&again, disk);
    must(journal_load(&again, &damaged, NULL) == MF_OK && !damaged);
    must(again.table.entry_count == store.table.entry_count);
    must(again.table.live_bytes == store.table.live_bytes);
    must(again.table.file_bytes == store.table.file_bytes);
    must(store.journal.size == HEADER + store.table.live_bytes);
    evict_all(&again);
    store_end(&again);
    store_end(&store);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct memory_disk *disk = malloc(sizeof *disk);
    uint8_t *copy = malloc(size ? size : 1);
    struct cache_store keys;
    must(disk && copy);
    if (size <= INPUT_MAX) {
        memory_disk_init(disk);
        must(disk->disk.make_directory(disk->disk.user, "d") == 0);
        load(data, size, disk);
        if (size > 0) memcpy(copy, data, size);
        store_begin(&keys, disk);
        put_right(&keys, copy, size);
        store_end(&keys);
        load(copy, size, disk);
        must(disk->open_count == 0);
        memory_disk_free(disk);
    }
    free(copy);
    free(disk);
    return 0;
}
