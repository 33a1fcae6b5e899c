/* name_table.h: hash table from names to numbers.
 *
 * Open addressing over borrowed names.  A checkpoint of 671B parameters has about 90,000 tensors.
 * The hash is keyed with the address of the table, so that a hostile file cannot choose names that
 * collide.
 *
 * Lifetime: names belong to the caller and must not move while the table is in use. */
#ifndef CHECKPOINT_NAME_TABLE_H
#define CHECKPOINT_NAME_TABLE_H

#include "base/common.h"
#include "moeflux.h"

#define NAME_UNKNOWN UINT32_MAX

struct name_bucket {
    const char *name; /* NULL: free */
    size_t length;
    uint32_t number;
};

struct name_table {
    const mf_allocator *allocator;
    struct name_bucket *buckets;
    size_t bucket_count; /* 0 or a power of two, at least twice `count` */
    size_t count;
};

void name_table_init(struct name_table *table, const mf_allocator *allocator);
void name_table_free(struct name_table *table); /* usable again, empty */

/* Adds `name` with `number` unless the name is in the table.  *holder is its number after the call:
 * `*holder != number` means that the name was there before.  After a failure the table is
 * unchanged. */
mf_status name_table_add(uint32_t *holder, struct name_table *table, const char *name,
                         size_t length, uint32_t number, mf_error *why);

/* The number of `name`, or NAME_UNKNOWN. */
uint32_t name_table_find(const struct name_table *table, const char *name, size_t length);

#endif
