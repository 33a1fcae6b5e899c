/* Any bytes as model_weights.json and, behind the first NUL byte, as layout.json, beside a file
 * of weights and two layers of experts.  What is accepted must lie within its file. */
#include "checkpoint/ancestors.h"
#include "support/failing_allocator.h"
#include "support/memory_files.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* With 2 experts of 4 bits, hidden size 64 and 64 rows: 2 · 3 · (64·64/2 + 2·64·2). */
static const uint8_t weights[4096], experts[2 * 3 * (64 * 64 / 2 + 2 * 64 * 2)];

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct memory_files files;
    struct failing_allocator heap;
    struct tensor_directory directory;
    mf_error why;
    const uint8_t *end = size ? memchr(data, '\0', size) : NULL;
    size_t manifest_bytes = end ? (size_t)(end - data) : size;
    memory_files_init(&files);
    memory_files_put(&files, "p/artifacts/model_weights.bin", weights, sizeof weights);
    memory_files_put(&files, "p/artifacts/model_weights.json", data, manifest_bytes);
    memory_files_put(&files, "p/root/packed_experts/layer_00.bin", experts, sizeof experts);
    memory_files_put(&files, "p/root/packed_experts/layer_02.bin", experts, sizeof experts);
    if (end)
        memory_files_put(&files, "p/root/packed_experts/layout.json", end + 1,
                         size - manifest_bytes - 1);
    failing_allocator_init(&heap);
    tensor_directory_init(&directory, &heap.allocator);
    mf_status status = ancestors_open_parent(&directory, &files.files, "p", false, &why);
    for (size_t i = 0; i < directory.count && status == MF_OK; i++) {
        const struct tensor *tensor = &directory.tensors[i];
        const struct file *file = &directory.files[tensor->file];
        if (!file->handle) continue; /* a layer that is not there */
        if (tensor->offset > file->size || tensor->bytes > file->size - tensor->offset) abort();
    }
    tensor_directory_free(&directory);
    if (heap.live_bytes != 0 || files.open_count != 0) abort();
    return 0;
}
