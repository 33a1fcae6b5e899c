#include "checkpoint/name_table.h"

#include "base/status.h"

__extension__ typedef unsigned __int128 wide;

static uint64_t fold(uint64_t a, uint64_t b)
{
    wide product = (wide)a * b;
    return (uint64_t)product ^ (uint64_t)(product >> 64);
}

static uint64_t hash(const char *name, size_t length, uint64_t key)
{
    const uint64_t odd = 0x9e3779b97f4a7c15u; /* 2^64 / golden ratio: bits without a pattern */
    uint64_t state = fold(key ^ length, odd);
    for (; length >= 8; length -= 8, name += 8) state = fold(state ^ load_u64(name), odd);
    uint64_t tail = 0;
    memcpy(&tail, name, length);
    return fold(state ^ tail, odd ^ key);
}

/* The bucket that holds the name, or the free one where it belongs. */
static struct name_bucket *probe(struct name_bucket *buckets, size_t bucket_count, const char *name,
                                 size_t length)
{
    size_t mask = bucket_count - 1;
    size_t at = hash(name, length, (uintptr_t)buckets) & mask;
    while (buckets[at].name) {
        if (buckets[at].length == length && memcmp(buckets[at].name, name, length) == 0) break;
        at = (at + 1) & mask;
    }
    return &buckets[at];
}

void name_table_init(struct name_table *table, const mf_allocator *allocator)
{
    *table = (struct name_table){ .allocator = allocator };
}

void name_table_free(struct name_table *table)
{
    const mf_allocator *allocator = table->allocator;
    if (table->buckets)
        allocator->release(allocator->user, table->buckets,
                           table->bucket_count * sizeof *table->buckets);
    name_table_init(table, allocator);
}

static mf_status grow(struct name_table *table, mf_error *why)
{
    const mf_allocator *allocator = table->allocator;
    size_t bucket_count = table->bucket_count ? table->bucket_count * 2 : 64;
    size_t bytes = bucket_count * sizeof(struct name_bucket);
    struct name_bucket *buckets = allocator->allocate(allocator->user, bytes, CACHE_LINE);
    if (!buckets) return fail_memory(why, bytes);
    memset(buckets, 0, bytes);
    for (size_t i = 0; i < table->bucket_count; i++) {
        const struct name_bucket *old = &table->buckets[i];
        if (old->name) *probe(buckets, bucket_count, old->name, old->length) = *old;
    }
    size_t count = table->count;
    name_table_free(table);
    *table = (struct name_table){ allocator, buckets, bucket_count, count };
    return MF_OK;
}

mf_status name_table_add(uint32_t *holder, struct name_table *table, const char *name,
                         size_t length, uint32_t number, mf_error *why)
{
    *holder = number;
    if (table->bucket_count <= 2 * table->count) {
        mf_status status = grow(table, why);
        if (status != MF_OK) return status;
    }
    struct name_bucket *bucket = probe(table->buckets, table->bucket_count, name, length);
    if (bucket->name) {
        *holder = bucket->number;
        return MF_OK;
    }
    *bucket = (struct name_bucket){ name, length, number };
    table->count++;
    return MF_OK;
}

uint32_t name_table_find(const struct name_table *table, const char *name, size_t length)
{
    if (table->bucket_count == 0) return NAME_UNKNOWN;
    const struct name_bucket *bucket = probe(table->buckets, table->bucket_count, name, length);
    return bucket->name ? bucket->number : NAME_UNKNOWN;
}
