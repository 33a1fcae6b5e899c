/* Any bytes as model.safetensors.index.json beside two small shards. */
#include "checkpoint/safetensors.h"
#include "support/failing_allocator.h"
#include "support/memory_files.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* 57 bytes of header, one of data */
#define SHARD(name)                                                                                \
    "\x39\0\0\0\0\0\0\0"                                                                           \
    "{\"" name "\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}    "                   \
    "x"
static const char shard_a[] = SHARD("a"), shard_b[] = SHARD("b");

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct memory_files files;
    struct failing_allocator heap;
    struct tensor_directory directory;
    mf_error why;
    memory_files_init(&files);
    memory_files_put(&files, "m/model.safetensors.index.json", data, size);
    memory_files_put(&files, "m/a.safetensors", shard_a, sizeof shard_a - 1);
    memory_files_put(&files, "m/b.safetensors", shard_b, sizeof shard_b - 1);
    memory_files_put(&files, "elsewhere.safetensors", shard_b, sizeof shard_b - 1);
    failing_allocator_init(&heap);
    tensor_directory_init(&directory, &heap.allocator);
    if (safetensors_open(&directory, &files.files, "m", &why) == MF_OK) {
        for (size_t i = 0; i < directory.file_count; i++) {
            /* a name in the index cannot lead out of the directory */
            if (strncmp(directory.files[i].path, "m/", 2) != 0) abort();
        }
        for (size_t i = 0; i < directory.count; i++) {
            uint8_t byte;
            if (tensor_read(&directory, &directory.tensors[i], &byte, NULL) != MF_OK) abort();
        }
    }
    tensor_directory_free(&directory);
    if (heap.live_bytes != 0 || files.open_count != 0) abort();
    return 0;
}
