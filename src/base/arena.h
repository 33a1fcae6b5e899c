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
    size_t total_bytes;         /* what the allocator has given */
};

/* The C library's heap. */
extern const mf_allocator allocator_heap;

void arena_init(struct arena *arena, const mf_allocator *allocator);
void arena_free(struct arena *arena);

/* `count` elements of `size` bytes, zeroed, aligned to a cache line; NULL when
 * the product overflows or there is no memory.  Zero elements give a valid pointer. */
void *arena_take(struct arena *arena, size_t count, size_t size);

/* The same without the zeroes, for bytes that are about to be read from a file. */
void *arena_take_raw(struct arena *arena, size_t count, size_t size);

/* One block with room for `bytes`, counted in whole cache lines per request: what is taken from an
 * empty arena lies there, and the arena takes arena_block_bytes(bytes) in all.  False: no memory. */
bool arena_reserve(struct arena *arena, size_t bytes);
size_t arena_block_bytes(size_t bytes);

/* What is taken from here on shares no block with what was taken before, so that the same
 * requests always take as much. */
void arena_start_block(struct arena *arena);

/* Whether `pointer` lies in memory of this arena. */
bool arena_owns(const struct arena *arena, const void *pointer);

/* A terminated copy of `length` bytes. */
char *arena_text(struct arena *arena, const char *text, size_t length);

/* For array_reserve: memory of the arena, where what an array outgrew stays until the end. */
mf_allocator arena_allocator(struct arena *arena);

/* struct layer *layers = ARENA_NEW(arena, struct layer, count); */
#define ARENA_NEW(arena, type, count) ((type *)arena_take((arena), (count), sizeof(type)))

#endif
