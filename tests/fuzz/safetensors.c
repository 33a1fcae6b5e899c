/* Any bytes as a safetensors file.  The first byte chooses: odd, the rest is the whole file;
 * even, it is a header that gets its right length in front and byte/2 bytes of data behind, so
 * that mutations reach beyond the length.  What is accepted must hold what the header promises:
 * every extent within the file, memory in proportion to the file, nothing left open. */
#include "checkpoint/safetensors.h"
#include "support/failing_allocator.h"
#include "support/memory_files.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool condition)
{
    if (!condition) abort();
}

/* The file that `data` stands for; the caller frees it. */
static uint8_t *make_file(size_t *file_size, const uint8_t *data, size_t size)
{
    bool whole = data[0] % 2 == 1;
    size_t data_bytes = whole ? 0 : data[0] / 2;
    size_t front = whole ? 0 : 8;
    uint64_t header_bytes = size - 1;
    *file_size = front + (size_t)header_bytes + data_bytes;
    uint8_t *file = calloc(*file_size + 1, 1);
    must(file != NULL);
    memcpy(file, &header_bytes, front);
    memcpy(file + front, data + 1, (size_t)header_bytes);
    return file;
}

static void try_tensor(const struct tensor_directory *directory, const struct tensor *tensor,
                       size_t file_size)
{
    char text[64];
    must(tensor->offset <= file_size && tensor->bytes <= file_size - tensor->offset);
    must(tensor_find(directory, tensor->name) == tensor);
    tensor_shape_text(tensor, text, sizeof text);
    uint8_t *bytes = malloc((size_t)tensor->bytes + 1);
    must(bytes && tensor_read(directory, tensor, bytes, NULL) == MF_OK);
    free(bytes);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0) return 0;
    size_t file_size;
    uint8_t *file = make_file(&file_size, data, size);
    struct memory_files files;
    struct failing_allocator heap;
    struct tensor_directory directory;
    mf_error why;
    memory_files_init(&files);
    memory_files_put(&files, "m/model.safetensors", file, file_size);
    failing_allocator_init(&heap);
    tensor_directory_init(&directory, &heap.allocator);

    if (safetensors_open(&directory, &files.files, "m", &why) == MF_OK) {
        for (size_t i = 0; i < directory.count; i++)
            try_tensor(&directory, &directory.tensors[i], file_size);
    }
    must(heap.live_bytes <= 256 * 1024 + 64 * file_size);
    tensor_directory_free(&directory);
    must(heap.live_bytes == 0 && files.open_count == 0);
    free(file);
    return 0;
}
