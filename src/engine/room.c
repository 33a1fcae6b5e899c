#include "engine/room.h"

#include "base/status.h"

mf_status engine_room_bytes(uint64_t *out, const struct forward_parts *parts,
                            struct engine_room_sizes sizes, mf_error *why)
{
    struct forward_bytes bytes;
    mf_status status = forward_bytes(&bytes, parts, sizes.chunk_rows, sizes.context_length, why);
    if (status == MF_OK) *out = arena_block_bytes(bytes.arena) + bytes.backend;
    return status;
}

mf_status engine_room_init(struct engine_room *room, const struct forward_parts *parts,
                           struct engine_room_sizes sizes, mf_error *why)
{
    struct forward_bytes bytes;
    *room = (struct engine_room){ .sizes = sizes };
    arena_init(&room->arena, parts->allocator);
    mf_status status = forward_bytes(&bytes, parts, sizes.chunk_rows, sizes.context_length, why);
    if (status == MF_OK && !arena_reserve(&room->arena, bytes.arena))
        status = fail(why, MF_ERR_MEMORY, "out of memory for steps of %u rows", sizes.chunk_rows);
    if (status == MF_OK)
        status = forward_init(&room->forward, parts, &room->arena, sizes.chunk_rows,
                              sizes.context_length, why);
    room->bytes = room->arena.total_bytes + bytes.backend;
    if (status != MF_OK) engine_room_free(room);
    return status;
}

void engine_room_free(struct engine_room *room)
{
    if (room->arena.allocator) arena_free(&room->arena);
    room->bytes = 0;
}
