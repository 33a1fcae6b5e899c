/* store_table.c: the records of a store by key and as trees, and which of them goes first. */
#include "state/store_internal.h"

#include <math.h>

enum { HALF_LIFE_SECONDS = 6 * 3600, FIRST_BUCKETS = 256 };

bool key_equal(const struct cache_key *a, const struct cache_key *b)
{
    return memcmp(a, b, sizeof *a) == 0;
}

uint64_t entry_file_bytes(const struct entry *entry)
{
    return entry->record.kind == CACHE_ROOT ? 0 : store_file_bytes(entry->record.bytes);
}

/* ---------------------------------------------------------------------- keys */

/* Keys are hashes already. */
static struct entry **bucket_of(const struct table *table, const struct cache_key *key)
{
    return &table->buckets[load_u64(key->bytes) & (table->bucket_count - 1)];
}

struct entry *table_find(const struct table *table, const struct cache_key *key)
{
    if (table->bucket_count == 0) return NULL;
    struct entry *entry = *bucket_of(table, key);
    while (entry && !key_equal(&entry->record.key, key)) entry = entry->next_in_bucket;
    return entry;
}

struct entry *table_find_stored(const struct table *table, const struct cache_key *key)
{
    struct entry *entry = table_find(table, key);
    bool stored = entry && entry->state == ENTRY_STORED && entry->record.kind != CACHE_ROOT;
    return stored ? entry : NULL;
}

static void put_in_bucket(struct table *table, struct entry *entry)
{
    struct entry **bucket = bucket_of(table, &entry->record.key);
    entry->next_in_bucket = *bucket;
    *bucket = entry;
}

/* Twice the buckets; without memory for them the lists get longer. */
static bool grow(struct table *table)
{
    size_t count = table->bucket_count ? table->bucket_count * 2 : FIRST_BUCKETS;
    const mf_allocator *allocator = table->allocator;
    struct entry **old = table->buckets,
                 **buckets =
                     allocator->allocate(allocator->user, count * sizeof(void *), sizeof(void *));
    size_t old_count = table->bucket_count;
    if (!buckets) return old_count > 0;
    memset(buckets, 0, count * sizeof(void *));
    table->buckets = buckets;
    table->bucket_count = count;
    for (size_t i = 0; i < old_count; i++)
        for (struct entry *entry = old[i], *next; entry; entry = next) {
            next = entry->next_in_bucket;
            put_in_bucket(table, entry);
        }
    if (old) allocator->release(allocator->user, old, old_count * sizeof(void *));
    return true;
}

/* ------------------------------------------------------------------- entries */

static struct entry *new_entry(struct table *table, size_t tail)
{
    const mf_allocator *allocator = table->allocator;
    if (table->entry_count >= table->bucket_count && !grow(table)) return NULL;
    size_t bytes = sizeof(struct entry) + tail;
    struct entry *entry = allocator->allocate(allocator->user, bytes, _Alignof(struct entry));
    if (!entry) return NULL;
    memset(entry, 0, bytes);
    entry->allocation = bytes;
    table->entry_count++;
    return entry;
}

struct entry *table_add_root(struct table *table, const struct cache_key *key, const char *label)
{
    size_t length = strnlen(label, CACHE_LABEL);
    struct entry *entry = new_entry(table, length + 1);
    if (!entry) return NULL;
    entry->label = (char *)(entry + 1);
    memcpy(entry->label, label, length);
    entry->record.key = entry->record.root = *key;
    entry->state = ENTRY_STORED;
    put_in_bucket(table, entry);
    table->live_bytes += journal_entry_bytes(entry);
    return entry;
}

struct entry *table_add(struct table *table, const struct cache_record *record)
{
    struct entry *parent = table_find(table, &record->parent);
    struct entry *entry = new_entry(table, record->count * sizeof *record->tokens);
    if (!entry) return NULL;
    uint32_t *tokens = (uint32_t *)(entry + 1);
    memcpy(tokens, record->tokens, record->count * sizeof *tokens);
    entry->record = *record;
    entry->record.tokens = tokens;
    if (record->saved == 0)
        entry->record.saved =
            record->kind == CACHE_PAGE ? record->count : record->first + record->count;
    entry->state = ENTRY_QUEUED;
    entry->parent = parent;
    entry->next = parent->children;
    if (entry->next) entry->next->previous = entry;
    parent->children = entry;
    put_in_bucket(table, entry);
    return entry;
}

void table_set_stored(struct table *table, struct entry *entry)
{
    entry->state = ENTRY_STORED;
    table->file_bytes += entry_file_bytes(entry);
    table->live_bytes += journal_entry_bytes(entry);
}

void table_remove(struct table *table, struct entry *entry)
{
    struct entry **link = bucket_of(table, &entry->record.key);
    while (*link != entry) link = &(*link)->next_in_bucket;
    *link = entry->next_in_bucket;
    if (entry->previous)
        entry->previous->next = entry->next;
    else if (entry->parent)
        entry->parent->children = entry->next;
    if (entry->next) entry->next->previous = entry->previous;
    entry->parent = entry->next = entry->previous = NULL;
    table->entry_count--;
    if (entry->state == ENTRY_STORED) table->live_bytes -= journal_entry_bytes(entry);
}

void entry_free(struct table *table, struct entry *entry)
{
    if (entry->state == ENTRY_STORED) table->file_bytes -= entry_file_bytes(entry);
    table->allocator->release(table->allocator->user, entry, entry->allocation);
}

void table_free(struct table *table)
{
    const mf_allocator *allocator = table->allocator;
    for (size_t i = 0; i < table->bucket_count; i++)
        for (struct entry *entry = table->buckets[i], *next; entry; entry = next) {
            next = entry->next_in_bucket;
            allocator->release(allocator->user, entry, entry->allocation);
        }
    if (table->buckets)
        allocator->release(allocator->user, table->buckets, table->bucket_count * sizeof(void *));
    *table = (struct table){ .allocator = allocator };
}

/* --------------------------------------------------------------------- walks */

struct entry *table_next(const struct table *table, const struct entry *entry, size_t *bucket)
{
    if (!entry) *bucket = 0;
    struct entry *next = entry ? entry->next_in_bucket : NULL;
    if (entry && !next) (*bucket)++;
    for (; !next && *bucket < table->bucket_count; *bucket += !next) next = table->buckets[*bucket];
    return next;
}

struct entry *tree_next(const struct entry *top, const struct entry *entry)
{
    if (entry->children) return entry->children;
    while (entry != top && !entry->next) entry = entry->parent;
    return entry == top ? NULL : entry->next;
}

struct entry *tree_leaf(struct entry *top)
{
    while (top->children) top = top->children;
    return top;
}

/* --------------------------------------------------------------------- value */

void entry_touch(struct entry *entry, double now)
{
    double age = now > entry->record.used ? now - entry->record.used : 0;
    entry->record.hits = entry->record.hits * exp2(-age / HALF_LIFE_SECONDS) + 1;
    entry->record.used = now;
}

/* log2 of hits, with their half-life, times positions divided by bytes: in this form it does not
 * depend on the present time, which takes the same from all. */
static double value_of(const struct entry *entry)
{
    const struct cache_record *record = &entry->record;
    return log2((record->hits + 1) * record->saved / (double)entry_file_bytes(entry)) +
           record->used / HALF_LIFE_SECONDS;
}

bool entry_lies_in(const struct entry *checkpoint, const struct entry *page)
{
    const struct cache_record *inner = &checkpoint->record, *outer = &page->record;
    return inner->kind == CACHE_CHECKPOINT && outer->kind == CACHE_PAGE &&
           checkpoint->parent == page->parent && inner->count <= outer->count &&
           memcmp(inner->tokens, outer->tokens, inner->count * sizeof *inner->tokens) == 0;
}

/* A checkpoint is of no use without the page that it lies in. */
static bool has_checkpoint(const struct entry *page)
{
    for (const struct entry *other = page->parent->children; other; other = other->next)
        if (entry_lies_in(other, page)) return true;
    return false;
}

static bool is_needed(const struct entry *entry)
{
    return entry->children || has_checkpoint(entry);
}

struct entry *table_least(const struct table *table, uint64_t protected_serial)
{
    struct entry *least = NULL, *entry = NULL;
    double least_value = 0;
    size_t bucket;
    while ((entry = table_next(table, entry, &bucket))) {
        if (entry->record.kind == CACHE_ROOT || entry->state != ENTRY_STORED ||
            entry->serial == protected_serial || is_needed(entry))
            continue;
        double value = value_of(entry);
        if (!least || value < least_value) {
            least = entry;
            least_value = value;
        }
    }
    return least;
}

/* -------------------------------------------------------------------- checks */

static bool entry_check(const struct table *table, const struct entry *entry)
{
    bool root = entry->record.kind == CACHE_ROOT;
    if (entry->state == ENTRY_DROPPED || root != !entry->parent) return false;
    if (table_find(table, &entry->record.key) != entry) return false;
    for (const struct entry *child = entry->children; child; child = child->next)
        if (child->parent != entry || (child->next && child->next->previous != child)) return false;
    if (root) return true;
    return key_equal(&entry->record.parent, &entry->parent->record.key) &&
           table_find(table, &entry->record.parent) == entry->parent &&
           !(entry->state == ENTRY_STORED && entry->parent->state == ENTRY_QUEUED);
}

bool table_check(const struct table *table)
{
    uint64_t live = 0;
    size_t count = 0, bucket;
    for (struct entry *entry = NULL; (entry = table_next(table, entry, &bucket)); count++) {
        if (!entry_check(table, entry)) return false;
        if (entry->state == ENTRY_STORED) live += journal_entry_bytes(entry);
    }
    return count == table->entry_count && live == table->live_bytes;
}
