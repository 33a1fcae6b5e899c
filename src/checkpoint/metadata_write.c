/* metadata_write.c: the values of a GGUF file as a GGUF file without tensors. */
#include "base/status.h"
#include "checkpoint/metadata.h"

#include <stdlib.h>

/* Bytes that grow; the first failure sticks. */
struct growing {
    uint8_t *bytes;
    size_t count, capacity;
    bool failed;
};

static void put(struct growing *g, const void *bytes, size_t count)
{
    if (g->failed || count == 0) return;
    if (count > g->capacity - g->count) {
        size_t wider = max_size(2 * g->capacity, g->count + count + 4096);
        uint8_t *copy = realloc(g->bytes, wider);
        if (!copy) {
            g->failed = true;
            return;
        }
        g->bytes = copy;
        g->capacity = wider;
    }
    memcpy(g->bytes + g->count, bytes, count);
    g->count += count;
}

static void put_u32(struct growing *g, uint32_t value)
{
    put(g, &value, sizeof value);
}

static void put_u64(struct growing *g, uint64_t value)
{
    put(g, &value, sizeof value);
}

static void put_text(struct growing *g, const char *text, size_t length)
{
    put_u64(g, length);
    put(g, text, length);
}

static size_t type_bytes(enum metadata_type type)
{
    switch (type) {
#define SIZE_CASE(id, number, bytes, name)                                                         \
    case METADATA_##id:                                                                            \
        return bytes;
        METADATA_TYPE_LIST(SIZE_CASE)
#undef SIZE_CASE
    default:
        return 0;
    }
}

static void put_entry(struct growing *g, const struct metadata *metadata,
                      const struct metadata_entry *entry)
{
    put_text(g, entry->key, strlen(entry->key));
    put_u32(g, entry->is_array ? METADATA_ARRAY : entry->type);
    if (entry->is_array) {
        put_u32(g, entry->type);
        put_u64(g, entry->count);
    } else if (entry->type == METADATA_TEXT) {
        put_text(g, entry->text, entry->length);
        return;
    }
    if (entry->type != METADATA_TEXT) {
        put(g, metadata->bytes + entry->offset, entry->count * type_bytes(entry->type));
        return;
    }
    for (uint64_t i = 0; i < entry->count; i++) {
        const uint8_t *text = metadata->bytes + metadata->starts[entry->starts + i];
        put(g, text, 8 + load_u64(text));
    }
}

/* How the tensors were split over files is no property of the model. */
static bool is_about_files(const struct metadata_entry *entry)
{
    return strncmp(entry->key, "split.", 6) == 0;
}

mf_status metadata_write_new(uint8_t **out, size_t *bytes, const struct metadata *metadata,
                             mf_error *why)
{
    struct growing g = { 0 };
    uint64_t kept = 0;
    for (size_t i = 0; i < metadata->count; i++) kept += !is_about_files(&metadata->entries[i]);
    put(&g, "GGUF", 4);
    put_u32(&g, 3);
    put_u64(&g, 0);
    put_u64(&g, kept);
    for (size_t i = 0; i < metadata->count; i++)
        if (!is_about_files(&metadata->entries[i])) put_entry(&g, metadata, &metadata->entries[i]);
    *out = NULL;
    *bytes = g.count;
    if (g.failed) {
        free(g.bytes);
        return fail_memory(why, g.capacity);
    }
    *out = g.bytes;
    return MF_OK;
}
