/* store_journal.c: the list of a cache directory's files, as records that are only appended.
 *
 *     header | record | record | ...
 *
 * Each record has its length and a checksum and begins at a multiple of 8 bytes, so that reading
 * goes on behind a damaged one.  A later record counts more than an earlier one.  A parent's record
 * comes before those of its children. */
#include "state/store_internal.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

static const char MAGIC[8] = { 'M', 'F', 'J', 'O', 'U', 'R', 'N', '\n' };
static const char NAME[] = "journal";

enum { VERSION = 1, RECORD_MAGIC = 0x314a464d /* MFJ1 */, ALIGNMENT = 8, RECORD_MAX = 512 };

#define JOURNAL_MAX  ((uint64_t)1 << 32)  /* bytes that are read */
#define PAYLOAD_MAX  ((uint64_t)1 << 40)  /* bytes of a record's payload that are believed */
#define POSITION_MAX ((uint32_t)1 << 31)  /* its positions end before */
#define SLACK_MAX    ((uint64_t)64 << 10) /* see journal_room */

struct journal_header {
    char magic[8];
    uint32_t version, reserved;
    uint64_t checksum; /* of all before */
};

enum record_type { RECORD_ROOT = 1, RECORD_ADDED, RECORD_TOUCHED, RECORD_DROPPED };

/* As they lie in the file: little-endian, no gaps. */
struct record_head {
    uint32_t magic;
    uint32_t type;
    uint64_t length;   /* of the record, head included */
    uint64_t checksum; /* of what is before and behind it */
};

struct root_body {
    struct cache_key key;
    uint64_t label_length; /* the label follows */
};

struct added_body {
    struct cache_key root, parent, key;
    uint32_t kind, first, count, saved, place, reserved;
    uint64_t bytes;
    double hits, used;
    /* tokens: [count] */
};

struct touched_body {
    struct cache_key key;
    double hits, used;
};

struct dropped_body {
    struct cache_key key;
};

_Static_assert(sizeof(struct journal_header) == 24, "no gaps");
_Static_assert(sizeof(struct record_head) == 24, "no gaps");
_Static_assert(sizeof(struct added_body) == 96, "no gaps");
_Static_assert(sizeof(struct record_head) + sizeof(struct added_body) +
                       CACHE_TOKENS_MAX * sizeof(uint32_t) <=
                   RECORD_MAX,
               "it fits");
_Static_assert(sizeof(struct record_head) + sizeof(struct root_body) + CACHE_LABEL + ALIGNMENT <=
                   RECORD_MAX,
               "it fits");

static uint64_t record_checksum(const uint8_t *record, uint64_t length)
{
    struct checksum sum;
    checksum_begin(&sum);
    checksum_add(&sum, record, offsetof(struct record_head, checksum));
    checksum_add(&sum, record + sizeof(struct record_head), length - sizeof(struct record_head));
    return checksum_end(&sum);
}

/* ------------------------------------------------------------------- writing */

static void print(struct byte_buffer *out, enum record_type type, const void *body, size_t bytes,
                  const void *tail, size_t tail_bytes)
{
    _Alignas(8) uint8_t record[RECORD_MAX] = { 0 };
    struct record_head head = { .magic = RECORD_MAGIC,
                                .type = type,
                                .length = align_up(sizeof head + bytes + tail_bytes, ALIGNMENT) };
    memcpy(record, &head, sizeof head);
    memcpy(record + sizeof head, body, bytes);
    if (tail_bytes) memcpy(record + sizeof head + bytes, tail, tail_bytes);
    head.checksum = record_checksum(record, head.length);
    memcpy(record, &head, sizeof head);
    byte_buffer_append(out, record, head.length);
}

void journal_print_added(struct byte_buffer *out, const struct entry *entry)
{
    const struct cache_record *r = &entry->record;
    if (r->kind == CACHE_ROOT) {
        struct root_body root = { .key = r->key, .label_length = strlen(entry->label) };
        print(out, RECORD_ROOT, &root, sizeof root, entry->label, root.label_length);
        return;
    }
    struct added_body added = { .root = r->root,
                                .parent = r->parent,
                                .key = r->key,
                                .kind = r->kind,
                                .first = r->first,
                                .count = r->count,
                                .saved = r->saved,
                                .place = r->place,
                                .bytes = r->bytes,
                                .hits = r->hits,
                                .used = r->used };
    print(out, RECORD_ADDED, &added, sizeof added, r->tokens, r->count * sizeof *r->tokens);
}

uint64_t journal_entry_bytes(const struct entry *entry)
{
    uint64_t bytes =
        entry->record.kind == CACHE_ROOT
            ? sizeof(struct root_body) + strlen(entry->label)
            : sizeof(struct added_body) + entry->record.count * sizeof *entry->record.tokens;
    return align_up(sizeof(struct record_head) + bytes, ALIGNMENT);
}

void journal_print_touched(struct byte_buffer *out, const struct entry *entry)
{
    struct touched_body touched = { entry->record.key, entry->record.hits, entry->record.used };
    print(out, RECORD_TOUCHED, &touched, sizeof touched, NULL, 0);
}

void journal_print_dropped(struct byte_buffer *out, const struct cache_key *key)
{
    struct dropped_body dropped = { *key };
    print(out, RECORD_DROPPED, &dropped, sizeof dropped, NULL, 0);
}

static void print_header(struct byte_buffer *out)
{
    struct journal_header header = { .version = VERSION };
    memcpy(header.magic, MAGIC, sizeof header.magic);
    header.checksum = checksum_of(&header, offsetof(struct journal_header, checksum));
    byte_buffer_append(out, &header, sizeof header);
}

static void print_tree(struct byte_buffer *out, struct entry *root)
{
    root->found = true;
    for (const struct entry *entry = root; entry; entry = tree_next(root, entry))
        if (entry->state == ENTRY_STORED) journal_print_added(out, entry);
}

mf_status journal_rewrite(struct cache_store *store, mf_error *why)
{
    struct byte_buffer all = { 0 };
    char path[PATH_CAPACITY];
    size_t bucket;
    print_header(&all);
    pthread_mutex_lock(&store->lock);
    for (struct entry *entry = NULL; (entry = table_next(&store->table, entry, &bucket));)
        if (entry->record.kind == CACHE_ROOT) print_tree(&all, entry);
    pthread_mutex_unlock(&store->lock);
    mf_status status = byte_buffer_status(&all, why);
    if (status == MF_OK) status = path_join(path, sizeof path, store->directory, NAME, why);
    if (status == MF_OK) status = disk_replace(store->disk, path, all.data, all.count, why);
    if (status == MF_OK) {
        disk_file_close(&store->journal.file); /* the one that was replaced */
        status = disk_file_open(&store->journal.file, store->disk, store->directory, NAME, why);
    }
    pthread_mutex_lock(&store->lock);
    if (status == MF_OK) store->journal.size = all.count;
    store->journal.unsynced &= status != MF_OK;
    pthread_mutex_unlock(&store->lock);
    byte_buffer_free(&all);
    return status;
}

/* Appended records may take as much as the live ones, and this. */
static uint64_t slack_of(const struct cache_store *store)
{
    uint64_t part = store->limit_bytes / 64;
    return part < CACHE_BLOCK ? CACHE_BLOCK : part < SLACK_MAX ? part : SLACK_MAX;
}

static uint64_t largest_journal(const struct cache_store *store, uint64_t live_bytes)
{
    return 2 * (sizeof(struct journal_header) + live_bytes) + slack_of(store);
}

uint64_t journal_room(const struct cache_store *store, uint64_t live_bytes)
{
    uint64_t largest = largest_journal(store, live_bytes) + RECORD_MAX;
    if (store->journal.size > largest) largest = store->journal.size;
    return align_up(largest, CACHE_BLOCK) +
           align_up(sizeof(struct journal_header) + live_bytes, CACHE_BLOCK);
}

mf_status journal_append(struct cache_store *store, const struct byte_buffer *records,
                         mf_error *why)
{
    struct journal *journal = &store->journal;
    mf_status status = byte_buffer_status(records, why);
    pthread_mutex_lock(&store->lock);
    bool large = journal->size + records->count > largest_journal(store, store->table.live_bytes);
    pthread_mutex_unlock(&store->lock);
    /* A file that could not be opened again after a rewrite is one that was not written to. */
    if (status == MF_OK && (large || !journal->file.handle)) status = journal_rewrite(store, why);
    if (status == MF_OK)
        status = disk_file_write(&journal->file, journal->size, records->data, records->count, why);
    pthread_mutex_lock(&store->lock);
    if (status == MF_OK) journal->size += records->count;
    journal->unsynced |= status == MF_OK;
    pthread_mutex_unlock(&store->lock);
    return status;
}

mf_status journal_sync(struct cache_store *store, mf_error *why)
{
    mf_status status = MF_OK;
    if (store->journal.file.handle) status = disk_file_sync(&store->journal.file, why);
    pthread_mutex_lock(&store->lock);
    store->journal.unsynced = false; /* also after a failure: the next append tries again */
    pthread_mutex_unlock(&store->lock);
    return status;
}

/* ------------------------------------------------------------------- reading */

static bool is_amount(double value)
{
    return isfinite(value) && value >= 0;
}

bool store_record_fits(const struct cache_store *store, const struct cache_record *record)
{
    const struct entry *parent = table_find(&store->table, &record->parent);
    if (record->kind != CACHE_PAGE && record->kind != CACHE_CHECKPOINT) return false;
    if (record->count == 0 || record->count > CACHE_TOKENS_MAX || record->bytes == 0 ||
        record->bytes > PAYLOAD_MAX || record->first >= POSITION_MAX - CACHE_TOKENS_MAX)
        return false;
    if (!parent || !key_equal(&parent->record.root, &record->root)) return false;
    if (parent->record.kind == CACHE_CHECKPOINT) return false;
    if (record->first != parent->record.first + parent->record.count) return false;
    struct cache_key key =
        cache_store_key(store, record->kind, &record->parent, record->tokens, record->count);
    return key_equal(&key, &record->key);
}

static bool read_root(struct cache_store *store, const uint8_t *bytes, size_t count, bool *memory)
{
    struct root_body root;
    char label[CACHE_LABEL + 1] = { 0 };
    if (count < sizeof root) return false;
    memcpy(&root, bytes, sizeof root);
    if (root.label_length > min_size(count - sizeof root, CACHE_LABEL)) return false;
    memcpy(label, bytes + sizeof root, root.label_length);
    if (table_find(&store->table, &root.key)) return true;
    struct entry *entry = table_add_root(&store->table, &root.key, label);
    *memory = entry != NULL;
    if (entry) entry->found = true;
    return true;
}

/* A record that is there twice: the later one counts. */
static void read_again(struct cache_store *store, struct entry *entry,
                       const struct cache_record *record)
{
    const uint32_t *tokens = entry->record.tokens;
    store->table.file_bytes -= entry_file_bytes(entry);
    entry->record = *record;
    entry->record.tokens = tokens;
    store->table.file_bytes += entry_file_bytes(entry);
}

static bool read_added(struct cache_store *store, const uint8_t *bytes, size_t count, bool *memory)
{
    struct added_body added;
    uint32_t tokens[CACHE_TOKENS_MAX];
    if (count < sizeof added) return false;
    memcpy(&added, bytes, sizeof added);
    size_t token_bytes = added.count * sizeof *tokens;
    if (added.count > CACHE_TOKENS_MAX || token_bytes > count - sizeof added) return false;
    memcpy(tokens, bytes + sizeof added, token_bytes);
    struct cache_record record = { .kind = (enum cache_kind)added.kind,
                                   .root = added.root,
                                   .parent = added.parent,
                                   .key = added.key,
                                   .first = added.first,
                                   .count = added.count,
                                   .tokens = tokens,
                                   .saved = added.saved,
                                   .place = added.place,
                                   .bytes = added.bytes,
                                   .hits = added.hits,
                                   .used = added.used };
    if (!is_amount(record.hits) || !is_amount(record.used)) return false;
    record.used = fmin(record.used, store_now(store)); /* the clock may have been wrong */
    if (!table_find(&store->table, &record.root) &&
        !(*memory = table_add_root(&store->table, &record.root, "") != NULL))
        return true;
    if (!store_record_fits(store, &record)) return false;
    struct entry *entry = table_find(&store->table, &record.key);
    if (entry) {
        read_again(store, entry, &record);
        return true;
    }
    entry = table_add(&store->table, &record);
    *memory = entry != NULL;
    if (!entry) return true;
    entry->serial = ++store->serial;
    table_set_stored(&store->table, entry);
    return true;
}

static bool read_touched(struct cache_store *store, const uint8_t *bytes, size_t count)
{
    struct touched_body touched;
    if (count < sizeof touched) return false;
    memcpy(&touched, bytes, sizeof touched);
    if (!is_amount(touched.hits) || !is_amount(touched.used)) return false;
    struct entry *entry = table_find_stored(&store->table, &touched.key);
    if (!entry) return true;
    entry->record.hits = touched.hits;
    entry->record.used = fmin(touched.used, store_now(store));
    return true;
}

static bool read_dropped(struct cache_store *store, const uint8_t *bytes, size_t count)
{
    struct dropped_body dropped;
    if (count < sizeof dropped) return false;
    memcpy(&dropped, bytes, sizeof dropped);
    struct entry *top = table_find_stored(&store->table, &dropped.key);
    for (struct entry *leaf = NULL; top && leaf != top;) {
        leaf = tree_leaf(top);
        table_remove(&store->table, leaf);
        entry_free(&store->table, leaf);
    }
    return true;
}

static bool read_record(struct cache_store *store, const uint8_t *bytes, uint64_t count,
                        bool *memory, uint64_t *length)
{
    struct record_head head;
    if (count < sizeof head) return false;
    memcpy(&head, bytes, sizeof head);
    if (head.magic != RECORD_MAGIC || head.length < sizeof head || head.length > count ||
        head.length > RECORD_MAX || head.length % ALIGNMENT != 0 ||
        head.checksum != record_checksum(bytes, head.length))
        return false;
    *length = head.length;
    const uint8_t *body = bytes + sizeof head;
    size_t body_bytes = head.length - sizeof head;

    switch ((enum record_type)head.type) {
    case RECORD_ROOT:
        return read_root(store, body, body_bytes, memory);
    case RECORD_ADDED:
        return read_added(store, body, body_bytes, memory);
    case RECORD_TOUCHED:
        return read_touched(store, body, body_bytes);
    case RECORD_DROPPED:
        return read_dropped(store, body, body_bytes);
    }
    return false;
}

mf_status journal_parse(struct cache_store *store, const void *bytes, size_t count, bool *damaged,
                        mf_error *why)
{
    struct journal_header header = { 0 };
    bool memory = true;
    if (count >= sizeof header) memcpy(&header, bytes, sizeof header);
    bool sound = memcmp(header.magic, MAGIC, sizeof MAGIC) == 0 &&
                 header.checksum == checksum_of(&header, offsetof(struct journal_header, checksum));
    if (sound && header.version != VERSION)
        return fail(why, MF_ERR_UNSUPPORTED,
                    "%.512s is a cache directory of version %u, this library reads version %d",
                    store->directory, header.version, VERSION);
    *damaged = !sound;
    for (uint64_t at = sizeof header; at < count;) {
        uint64_t length = ALIGNMENT;
        if (!read_record(store, (const uint8_t *)bytes + at, count - at, &memory, &length))
            *damaged = true;
        if (!memory) return fail_memory(why, sizeof(struct entry));
        at += length;
    }
    return MF_OK;
}

mf_status journal_load(struct cache_store *store, bool *damaged, mf_error *why)
{
    char path[PATH_CAPACITY];
    char *bytes = NULL;
    size_t count = 0;
    *damaged = true;
    mf_status status = path_join(path, sizeof path, store->directory, NAME, why);
    if (status != MF_OK) return status;
    status = file_read_maybe_new(&bytes, &count, store->files, path, JOURNAL_MAX, why);
    if (status == MF_OK && bytes) status = journal_parse(store, bytes, count, damaged, why);
    free(bytes);
    store->journal.size = align_up(count, ALIGNMENT);
    return status;
}

mf_status journal_open(struct cache_store *store, mf_error *why)
{
    return disk_file_open(&store->journal.file, store->disk, store->directory, NAME, why);
}
