/* name_table.h: which number has this name?
 *
 * Open addressing over borrowed names.  A checkpoint of 671B parameters has some
 * 90,000 tensors, and a hostile file chooses its names: the hash is keyed with
 * the address of the table, which no file can know, so that no file can make the
 * names collide.
 *
 * Lifetime: names stay where they are, and with their owner, while the table lives. */
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

/* Gives `name` the number `number`, unless it has one.  *holder is the number it
 * has after the call, so `*holder != number` means that the name stood there
 * before.  After a failure the table is as it was. */
mf_status name_table_add(uint32_t *holder, struct name_table *table, const char *name,
                         size_t length, uint32_t number, mf_error *why);

/* The number of `name`, or NAME_UNKNOWN. */
uint32_t name_table_find(const struct name_table *table, const char *name, size_t length);

#endif
