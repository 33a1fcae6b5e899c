/* Any bytes as a GGUF file, which is also the first of two parts.  What is accepted must hold
 * what its head promises: every extent within its file, every value and every element of an
 * array readable, memory in proportion to the file, nothing left open. */
#include "checkpoint/gguf.h"
#include "support/byte_writer.h"
#include "support/failing_allocator.h"
#include "support/memory_files.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool condition)
{
    if (!condition) abort();
}

/* A part 2 of 2 with a tensor of its own. */
static void put_second_part(struct byte_writer *w)
{
    static const char *const keys[] = { "split.no", "split.count" };
    put_bytes(w, "GGUF", 4);
    put_u32(w, 3);
    put_u64(w, 1);
    put_u64(w, 2);
    for (uint16_t i = 0; i < 2; i++) {
        put_text(w, keys[i]);
        put_u32(w, METADATA_U16);
        put_u16(w, i + 1);
    }
    put_text(w, "of the second part");
    put_u32(w, 1);
    put_u64(w, 1);
    put_u32(w, 0);
    put_u64(w, 0);
    put_padding(w, 32);
    put_u32(w, 0);
}

static uint64_t touch(const void *bytes, size_t count)
{
    const uint8_t *from = bytes;
    uint64_t sum = 0;
    for (size_t i = 0; i < count; i++) sum += from[i];
    return sum;
}

/* Every getter on every key: each answers or refuses. */
static void try_values(const struct metadata *metadata)
{
    static const enum metadata_type kinds[] = { METADATA_TEXT, METADATA_FLAG, METADATA_I64 };
    mf_error why;
    uint64_t count, sum = 0;
    double real;
    bool flag;
    const char *text;
    for (size_t i = 0; i < metadata->count; i++) {
        const char *key = metadata->entries[i].key;
        must(metadata_find(metadata, key) == &metadata->entries[i]);
        metadata_need_count(&count, metadata, key, 1, 1000, &why);
        metadata_maybe_real(&real, metadata, key, &why);
        metadata_maybe_flag(&flag, metadata, key, &why);
        if (metadata_need_text(&text, metadata, key, &why) == MF_OK) sum += strlen(text);
        for (size_t k = 0; k < COUNT_OF(kinds); k++) {
            struct metadata_array array;
            if (metadata_need_array(&array, metadata, key, kinds[k], &why) != MF_OK) continue;
            for (uint64_t e = 0; e < array.count; e++) {
                if (kinds[k] == METADATA_TEXT) {
                    struct metadata_text element = metadata_array_text(&array, e);
                    sum += touch(element.bytes, element.length);
                } else {
                    sum += (uint64_t)metadata_array_int(&array, e);
                }
            }
        }
    }
    volatile uint64_t keep = sum;
    (void)keep;
}

static void try_tensors(const struct tensor_directory *directory)
{
    for (size_t i = 0; i < directory->count; i++) {
        const struct tensor *tensor = &directory->tensors[i];
        must(tensor_find(directory, tensor->name) == tensor);
        if (tensor->bytes == 0) continue;
        uint64_t size = directory->files[tensor->file].size;
        must(tensor->offset <= size && tensor->bytes <= size - tensor->offset);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct memory_files files;
    struct failing_allocator heap;
    struct tensor_directory directory;
    struct metadata metadata;
    struct byte_writer second = { 0 };
    mf_error why;
    put_second_part(&second);
    memory_files_init(&files);
    memory_files_put(&files, "a-00001-of-00002.gguf", data, size);
    memory_files_put(&files, "a-00002-of-00002.gguf", second.bytes, second.count);
    failing_allocator_init(&heap);
    tensor_directory_init(&directory, &heap.allocator);
    metadata_init(&metadata, &heap.allocator);

    mf_status status =
        checkpoint_gguf_open(&directory, &metadata, &files.files, "a-00001-of-00002.gguf", &why);
    must(heap.live_bytes <= 512 * 1024 + 64 * size);
    if (status == MF_OK) {
        try_values(&metadata);
        try_tensors(&directory);
    }
    metadata_free(&metadata);
    tensor_directory_free(&directory);
    must(heap.live_bytes == 0 && files.open_count == 0);
    byte_writer_free(&second);
    return 0;
}
