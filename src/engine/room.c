#include "engine/room.h"

#include "base/status.h"

uint32_t engine_room_pause_rows(struct engine_room_sizes sizes)
{
    return sizes.sequences > 1 ? (uint32_t)min_size(SPANS_MAX, sizes.chunk_rows) : 0;
}

/* A step, and one in its pause, write the next recurrent state of each sequence before they drop
 * the last one. */
static uint64_t spare_bytes(const struct state_shape *shape, struct engine_room_sizes sizes)
{
    size_t parts = SPANS_MAX + (size_t)engine_room_pause_rows(sizes);
    uint64_t states = shape->recurrent_layers > 0 ? min_size(sizes.sequences, parts) : 0;
    return states * state_block_bytes(shape, BLOCK_RECURRENT);
}

/* Of the arena and of the backend, with the nested forward. */
static mf_status step_bytes(struct forward_bytes *out, const struct forward_parts *parts,
                            struct engine_room_sizes sizes, mf_error *why)
{
    uint32_t rows = engine_room_pause_rows(sizes);
    mf_status status = forward_bytes(out, parts, sizes.chunk_rows, sizes.context_length, why);
    if (status == MF_OK && rows > 0) out->arena += forward_nested_bytes(parts, rows);
    return status;
}

mf_status engine_room_bytes(uint64_t *out, const struct forward_parts *parts,
                            struct engine_room_sizes sizes, mf_error *why)
{
    struct state_shape shape = state_shape_of(parts->config, forward_kv_format(parts));
    struct forward_bytes bytes;
    mf_status status = step_bytes(&bytes, parts, sizes, why);
    if (status == MF_OK)
        *out = arena_block_bytes(bytes.arena) + bytes.backend + spare_bytes(&shape, sizes);
    return status;
}

uint64_t engine_room_pool_bytes(const struct model_config *config, enum kv_format format,
                                struct engine_room_sizes sizes)
{
    struct state_shape shape = state_shape_of(config, format);
    shape.step_rows = sizes.chunk_rows;
    return sizes.sequences * sequence_pool_bytes(&shape, sizes.context_length);
}

mf_status engine_room_init(struct engine_room *room, const struct forward_parts *parts,
                           struct engine_room_sizes sizes, mf_error *why)
{
    enum kv_format format = forward_kv_format(parts);
    struct forward_bytes bytes;
    *room = (struct engine_room){ .sizes = sizes };
    arena_init(&room->arena, parts->allocator);
    mf_status status = step_bytes(&bytes, parts, sizes, why);
    if (status == MF_OK && !arena_reserve(&room->arena, bytes.arena))
        status = fail(why, MF_ERR_MEMORY, "out of memory for steps of %u rows", sizes.chunk_rows);
    if (status == MF_OK)
        status = forward_init(&room->forward, parts, &room->arena, sizes.chunk_rows,
                              sizes.context_length, why);
    if (status == MF_OK && engine_room_pause_rows(sizes) > 0)
        status = forward_nest(&room->nested, &room->forward, &room->arena,
                              engine_room_pause_rows(sizes), why);
    if (status == MF_OK)
        status = state_pool_init(&room->pool, parts->allocator, parts->backend->state_memory,
                                 parts->config, format, 0, why);
    if (status != MF_OK) {
        engine_room_free(room);
        return status;
    }
    room->pool.shape.has_open_rows = parts->backend->has_open_rows;
    room->pool.shape.step_rows = sizes.chunk_rows;
    uint64_t spare = spare_bytes(&room->pool.shape, sizes);
    state_pool_set_limit(&room->pool, engine_room_pool_bytes(parts->config, format, sizes) + spare);
    room->bytes = room->arena.total_bytes + bytes.backend + spare;
    return MF_OK;
}

void engine_room_set_experts(struct engine_room *room, struct expert_store *experts)
{
    room->forward.experts = experts;
    if (room->nested) room->nested->experts = experts;
}

void engine_room_free(struct engine_room *room)
{
    if (room->nested) forward_free(room->nested);
    forward_free(&room->forward);
    if (room->arena.allocator) arena_free(&room->arena);
    state_pool_free(&room->pool);
    room->bytes = 0;
}
