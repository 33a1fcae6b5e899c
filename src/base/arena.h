/* arena.h: memory with one lifetime.
 *
 * An arena hands out zeroed memory and releases all of it at once; models, sequences, expert stores
 * and simulations each own one.  Nothing is taken from an arena during decode.
 *
 * Threads: an arena has one owner. */
#ifndef BASE_ARENA_H
#define BASE_ARENA_H

#include "base/common.h"
#include "moeflux.h"

struct arena_block;

struct arena {
    const mf_allocator *allocator;
    struct arena_block *blocks; /* newest first */
    size_t total_bytes;         /* allocated, block headers included */
};

/* The C library's heap. */
extern const mf_allocator allocator_heap;

void arena_init(struct arena *arena, const mf_allocator *allocator);
void arena_free(struct arena *arena);

/* `count` elements of `size` bytes, zeroed, aligned to a cache line; NULL if the product overflows
 * or memory runs out.  `count` may be 0; the pointer is then valid, too. */
void *arena_take(struct arena *arena, size_t count, size_t size);

/* The same without zeroing, for memory that the caller overwrites. */
void *arena_take_raw(struct arena *arena, size_t count, size_t size);

/* Allocates one block of arena_block_bytes(bytes) in an empty arena; later requests come from it.
 * `bytes` is the sum of the requests, each rounded up to a cache line.  False: out of memory. */
bool arena_reserve(struct arena *arena, size_t bytes);
size_t arena_block_bytes(size_t bytes);

/* Later requests share no block with earlier ones, so that their total does not depend on what was
 * left of the current block. */
void arena_start_block(struct arena *arena);

/* What requests would take of an arena, counted without memory: the bytes of the blocks that the
 * same requests, in the same order, add to an arena that has just started a block. */
struct arena_tally {
    size_t left; /* in the present block */
    uint64_t total_bytes;
};
#define ARENA_TALLY_STARTED                                                                        \
    {                                                                                              \
        0                                                                                          \
    }
void arena_tally_take(struct arena_tally *tally, size_t count, size_t size);

/* Whether `pointer` lies in memory of this arena. */
bool arena_owns(const struct arena *arena, const void *pointer);

/* A terminated copy of `length` bytes. */
char *arena_text(struct arena *arena, const char *text, size_t length);

/* An allocator on the arena, for array_reserve.  It releases nothing: memory that an array outgrows
 * stays allocated until arena_free. */
mf_allocator arena_allocator(struct arena *arena);

/* struct layer *layers = ARENA_NEW(arena, struct layer, count); */
#define ARENA_NEW(arena, type, count) ((type *)arena_take((arena), (count), sizeof(type)))

#endif
