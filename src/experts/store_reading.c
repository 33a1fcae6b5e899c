#include "experts/store_internal.h"

#include "base/status.h"

#include <errno.h>

void reading_layout(struct expert_layout *out, const struct expert_store *store, uint32_t place)
{
    expert_layout_make(out, &store->options.layers[layer_of(store, place)], place % store->experts,
                       store->placement.alignments);
}

/* Called by a thread of the reader, which is safe: the place of a slot does not change while the
 * slot is READING. */
static int check_expert(const struct async_read *read)
{
    const struct expert_store *store = read->check_user;
    uint32_t place = store->slots[read->tag].place;
    const struct layer_weights *layer = &store->options.layers[layer_of(store, place)];
    struct expert_view view = slots_view(store, read->tag);
    uint64_t expected = layer->expert_checksums[place % store->experts];
    return expert_layout_checksum(layer, &view) == expected ? 0 : EBADMSG;
}

static bool is_checked(const struct expert_store *store, uint32_t place)
{
    return !store->options.unchecked &&
           store->options.layers[layer_of(store, place)].expert_checksums;
}

static struct async_read *take_request(struct expert_store *store)
{
    struct async_read *read = store->free_requests;
    store->free_requests = read->next;
    store->free_count--;
    return read;
}

static void register_memory(struct expert_store *store, uint32_t index, uint32_t place,
                            uint8_t *memory)
{
    if (store->memory_states[index] == MEMORY_REGISTERED) return;
    if (store->placement.mode == EXPERTS_STREAMED)
        memory_warmer_start(&store->warmer, &store->placement.plan, store->memory);
    const struct slot_class *class = &store->placement.plan.classes[class_of(store, place)];
    if (store->memory_states[index]++ == MEMORY_TOUCHED)
        async_reader_register_buffer(store->reader, index, memory, class->bytes);
}

bool reading_begin(struct expert_store *store, struct async_read **list, uint32_t place,
                   float distance, bool ahead)
{
    struct expert_layout layout;
    reading_layout(&layout, store, place);
    if (store->free_count < layout.piece_count) return false;
    uint32_t index = slots_take(store, place, distance);
    if (index == NO_SLOT) return false;
    bool checked = is_checked(store, place) && layout.piece_count == 1; /* packed: always one */
    uint8_t *memory = store->maps ? NULL : slots_memory(store, index, place);
    if (!store->maps) register_memory(store, index, place, memory);
    store->slots[index] = (struct expert_slot){ .place = place,
                                                .wanted = ahead ? 0 : store->visit,
                                                .state = SLOT_READING,
                                                .ahead = ahead,
                                                .pieces_left = (uint16_t)layout.piece_count };
    store->reads[index] = (struct slot_read){ .ahead = ahead };
    store->slot_of[place] = index;
    trace_read(store->options.tracer,
               (struct trace_read){ true, ahead, layer_of(store, place), place % store->experts });
    for (size_t i = layout.piece_count; i-- > 0;) {
        const struct expert_piece *piece = &layout.pieces[i];
        struct async_read *read = take_request(store);
        uint8_t *out = store->maps ? (uint8_t *)store->maps[piece->file].bytes + piece->offset
                                   : memory + piece->at;
        *read = (struct async_read){ .file = piece->file,
                                     .tag = index,
                                     .offset = piece->offset,
                                     .count = piece->count,
                                     .out = out,
                                     .needed = piece->needed,
                                     .ahead = ahead,
                                     .populate = store->maps != NULL,
                                     .check = checked ? check_expert : NULL,
                                     .check_user = store,
                                     .next = *list };
        *list = read;
    }
    return true;
}

void reading_begin_list(struct expert_store *store, struct place_list *list, float distance,
                        bool ahead)
{
    struct async_read *reads = NULL, **end = &reads;
    if (list->next == list->count) return;
    slots_begin_taking(store);
    for (; list->next < list->count; list->next++) {
        if (!reading_begin(store, end, list->places[list->next], distance, ahead)) break;
        while (*end) end = &(*end)->next;
    }
    async_reader_submit(store->reader, reads);
}

/* READING → READY or FAILED.  A failure that no visit waits for is dropped; if the visit waits for
 * a read that started before it, the read is started again. */
static void end_read(struct expert_store *store, uint32_t index)
{
    struct expert_slot *slot = &store->slots[index];
    const struct slot_read *read = &store->reads[index];
    trace_read(store->options.tracer,
               (struct trace_read){ false, read->ahead, layer_of(store, slot->place),
                                    slot->place % store->experts });
    if (read->ahead && read->bytes > 0) store->counters.ahead_reads++;
    if (!read->error) {
        slot->state = SLOT_READY;
        set_present(store, slot->place, true);
        return;
    }
    bool wanted = slot->wanted == store->visit;
    slot->state = SLOT_FAILED;
    store->failed++;
    if (wanted && !slot->inherited) return;
    if (wanted) store->missing.places[store->missing.count++] = slot->place;
    slots_empty(store, index);
}

/* Accounts one finished read and returns it to the free requests. */
static void take_in(struct expert_store *store, struct async_read *read)
{
    struct slot_read *total = &store->reads[read->tag];
    if (!read->error) {
        total->bytes += read->needed;
        store->counters.bytes_read += read->needed;
        if (total->ahead) store->counters.bytes_ahead += read->needed;
    } else if (!total->error) {
        total->error = read->error;
        total->file = read->file;
        total->offset = read->offset + read->done;
        total->missing = read->needed - read->done;
    }
    if (--store->slots[read->tag].pieces_left == 0) end_read(store, read->tag);
    read->next = store->free_requests;
    store->free_requests = read;
    store->free_count++;
}

bool reading_collect(struct expert_store *store, bool block)
{
    struct async_read *read = async_reader_wait(store->reader, block), *next;
    if (!read) return false;
    for (; read; read = next) {
        next = read->next;
        take_in(store, read);
    }
    return true;
}

void reading_check_map(struct expert_store *store, uint32_t index)
{
    struct expert_slot *slot = &store->slots[index];
    struct expert_layout layout;
    reading_layout(&layout, store, slot->place);
    for (size_t i = 0; i < layout.piece_count && slot->state == SLOT_READY; i++) {
        const struct expert_piece *piece = &layout.pieces[i];
        uint64_t left = file_map_bytes_left(&store->maps[piece->file]);
        uint64_t end = piece->offset + piece->needed;
        if (end <= left) continue;
        store->reads[index] = (struct slot_read){
            .error = ENODATA, .file = piece->file, .offset = left, .missing = (size_t)(end - left)
        };
        slot->state = SLOT_FAILED;
        set_present(store, slot->place, false);
        store->failed++;
    }
}

mf_status reading_report(struct expert_store *store, uint32_t index, mf_error *why)
{
    const struct slot_read *read = &store->reads[index];
    const struct file *file = &store->options.directory->files[read->file];
    uint32_t layer = layer_of(store, store->slots[index].place);
    uint32_t expert = store->slots[index].place % store->experts;
    unsigned long long offset = read->offset;
    slots_empty(store, index);
    if (!file->handle)
        return fail(why, MF_ERR_IO, "layer %u, expert %u: %s is missing", layer, expert,
                    file->path);
    if (read->error == EBADMSG)
        return fail(why, MF_ERR_IO,
                    "layer %u, expert %u: %s is damaged at byte %llu: the checksum does not match",
                    layer, expert, file->path, offset);
    if (read->error == ENODATA)
        return fail(why, MF_ERR_IO,
                    "layer %u, expert %u: %s ends at byte %llu, %zu more were expected", layer,
                    expert, file->path, offset, read->missing);
    return fail_errno(why, MF_ERR_IO, read->error,
                      "layer %u, expert %u: %s cannot be read at byte %llu", layer, expert,
                      file->path, offset);
}

static uint64_t file_position(const struct expert_store *store, uint32_t place)
{
    const struct expert_matrix *m =
        &store->options.layers[layer_of(store, place)].experts[EXPERT_GATE];
    const struct extent *extent = &m->values[place % store->experts];
    return ((uint64_t)extent->file << 48) + extent->offset;
}

void reading_add(const struct expert_store *store, struct place_list *list, uint32_t place)
{
    uint64_t position = file_position(store, place);
    size_t at = list->count++;
    for (; at > 0 && file_position(store, list->places[at - 1]) > position; at--)
        list->places[at] = list->places[at - 1];
    list->places[at] = place;
}

mf_status expert_store_read_files(const struct expert_store *store, uint8_t *out, uint32_t layer,
                                  uint32_t expert, mf_error *why)
{
    mf_status status = MF_OK;
    for (int part = 0; part < EXPERT_PARTS; part++) {
        const struct expert_matrix *m = &store->options.layers[layer].experts[part];
        for (size_t i = 0; i < EXPERT_MATRIX_ARRAYS && status == MF_OK; i++) {
            struct expert_array array = expert_array(m, i);
            if (!array.extents) continue;
            const struct extent *place = &array.extents[expert];
            const struct file *file = &store->options.directory->files[place->file];
            file_forget(file);
            status = file_read(file, out, place->offset, (size_t)array.bytes, why);
            out += array.bytes;
        }
    }
    return status;
}
