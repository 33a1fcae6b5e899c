#include "support/byte_writer.h"

#include <stdlib.h>
#include <string.h>

void byte_writer_free(struct byte_writer *writer)
{
    free(writer->bytes);
    *writer = (struct byte_writer){ 0 };
}

/* `count` more bytes; where they begin. */
static uint8_t *extend(struct byte_writer *writer, size_t count)
{
    if (writer->count + count > writer->capacity) {
        writer->capacity = 2 * (writer->count + count) + 64;
        writer->bytes = realloc(writer->bytes, writer->capacity);
        if (!writer->bytes) abort();
    }
    writer->count += count;
    return writer->bytes + writer->count - count;
}

void put_bytes(struct byte_writer *writer, const void *bytes, size_t count)
{
    if (count) memcpy(extend(writer, count), bytes, count);
}

void put_zeros(struct byte_writer *writer, size_t count)
{
    if (count) memset(extend(writer, count), 0, count);
}

void put_u8(struct byte_writer *writer, uint8_t value)
{
    put_bytes(writer, &value, sizeof value);
}

void put_u16(struct byte_writer *writer, uint16_t value)
{
    put_bytes(writer, &value, sizeof value);
}

void put_u32(struct byte_writer *writer, uint32_t value)
{
    put_bytes(writer, &value, sizeof value);
}

void put_u64(struct byte_writer *writer, uint64_t value)
{
    put_bytes(writer, &value, sizeof value);
}

void put_padding(struct byte_writer *writer, size_t alignment)
{
    put_zeros(writer, (alignment - writer->count % alignment) % alignment);
}

void put_text(struct byte_writer *writer, const char *text)
{
    put_u64(writer, strlen(text));
    put_bytes(writer, text, strlen(text));
}
