/* read_stage.h: a few buffers that reads pass through on their way to where they belong.
 *
 *     disk ─▶ one of a few buffers ─▶ copied by whoever takes the read in ─▶ its place
 *
 * Where a virtual machine's host carries the bytes, it finds memory that nothing was read into
 * for some seconds much later than memory that it has just used: a cache of gigabytes is nearly
 * always of the first kind, some buffers are always of the second (docs/experiments.md).  On
 * other machines copying is only lost time, so whether reads take this way is measured while
 * they go on (read_choice.h).
 *
 * Threads: with the reader's lock, but for copying, which concerns one read alone. */
#ifndef IO_READ_STAGE_H
#define IO_READ_STAGE_H

#include "io/read_choice.h"
#include "moeflux.h"

enum { STAGE_BUFFERS_MAX = 24 };

struct read_stage {
    uint8_t *memory; /* NULL: there is none */
    size_t memory_bytes, buffer_bytes;
    uint8_t *free[STAGE_BUFFERS_MAX];
    uint32_t free_count;
    struct read_choice choice; /* 1: through the buffers */
};

/* `count` buffers for reads of at most `read_bytes`, a multiple of what direct reads are aligned
 * to.  No memory, no stage: reads then go to their places. */
void read_stage_init(struct read_stage *out, const mf_allocator *allocator, size_t read_bytes,
                     size_t count);
void read_stage_free(struct read_stage *stage, const mf_allocator *allocator);

/* A buffer for a read, or NULL: it goes to its place. */
uint8_t *read_stage_take(struct read_stage *stage, size_t read_bytes);
void read_stage_give_back(struct read_stage *stage, uint8_t *buffer); /* NULL is legal */

/* From a buffer to its place, which is not read again so soon that caches should hold it. */
void read_stage_copy(uint8_t *out, const uint8_t *buffer, size_t bytes);

#endif
