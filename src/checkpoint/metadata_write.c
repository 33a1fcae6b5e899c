/* metadata_write.c: the values of a GGUF file as a GGUF file without tensors. */
#include "base/array.h"
#include "base/status.h"
#include "checkpoint/metadata.h"

static void put_u32(struct byte_buffer *out, uint32_t value)
{
    byte_buffer_append(out, &value, sizeof value);
}

static void put_u64(struct byte_buffer *out, uint64_t value)
{
    byte_buffer_append(out, &value, sizeof value);
}

static void put_text(struct byte_buffer *out, const char *text, size_t length)
{
    put_u64(out, length);
    byte_buffer_append(out, text, length);
}

static void put_entry(struct byte_buffer *out, const struct metadata *metadata,
                      const struct metadata_entry *entry)
{
    put_text(out, entry->key, strlen(entry->key));
    put_u32(out, entry->is_array ? METADATA_ARRAY : entry->type);
    if (entry->is_array) {
        put_u32(out, entry->type);
        put_u64(out, entry->count);
    } else if (entry->type == METADATA_TEXT) {
        put_text(out, entry->text, entry->length);
        return;
    }
    if (entry->type != METADATA_TEXT) {
        byte_buffer_append(out, metadata->bytes + entry->offset,
                           entry->count * metadata_type_bytes(entry->type));
        return;
    }
    for (uint64_t i = 0; i < entry->count; i++) {
        const uint8_t *text = metadata->bytes + metadata->starts[entry->starts + i];
        byte_buffer_append(out, text, 8 + load_u64(text));
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
    struct byte_buffer text = { 0 };
    uint64_t kept = 0;
    for (size_t i = 0; i < metadata->count; i++) kept += !is_about_files(&metadata->entries[i]);
    byte_buffer_append(&text, "GGUF", 4);
    put_u32(&text, 3);
    put_u64(&text, 0);
    put_u64(&text, kept);
    for (size_t i = 0; i < metadata->count; i++)
        if (!is_about_files(&metadata->entries[i]))
            put_entry(&text, metadata, &metadata->entries[i]);
    mf_status status = byte_buffer_status(&text, why);
    if (status != MF_OK) byte_buffer_free(&text);
    *out = (uint8_t *)text.data;
    *bytes = text.count;
    return status;
}
