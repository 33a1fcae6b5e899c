/* byte_writer.h: files made byte by byte in memory, for readers under test.
 *
 *     struct byte_writer w = { 0 };
 *     put_bytes(&w, "GGUF", 4);
 *     put_u32(&w, 3);
 *     memory_files_put(&files, "a.gguf", w.bytes, w.count);
 *     byte_writer_free(&w);
 *
 * Little-endian.  Running out of memory ends the test. */
#ifndef SUPPORT_BYTE_WRITER_H
#define SUPPORT_BYTE_WRITER_H

#include <stddef.h>
#include <stdint.h>

struct byte_writer {
    uint8_t *bytes;
    size_t count, capacity;
};

void byte_writer_free(struct byte_writer *writer); /* empty again, usable */

void put_bytes(struct byte_writer *writer, const void *bytes, size_t count);
void put_zeros(struct byte_writer *writer, size_t count);
void put_u8(struct byte_writer *writer, uint8_t value);
void put_u16(struct byte_writer *writer, uint16_t value);
void put_u32(struct byte_writer *writer, uint32_t value);
void put_u64(struct byte_writer *writer, uint64_t value);

/* Zeros up to a multiple of `alignment`. */
void put_padding(struct byte_writer *writer, size_t alignment);

/* u64 length and the bytes of `text`: a text of GGUF. */
void put_text(struct byte_writer *writer, const char *text);

#endif
