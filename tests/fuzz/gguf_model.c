/* A GGUF file as a model: its header, behind which the tensors' data are zeroes.
 *
 *     offset  bytes
 *     0       3        length of the data, at most 4 MiB
 *     3       …        header, metadata and tensor infos
 *
 * Configuration, tokenizer and weights come from that one header.  What is bound is run. */
#include "support/fuzzed_model.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { FRONT = 3, DATA_MAX = 4 << 20 };

static const char path[] = "m.gguf";

static void use(mf_model *model)
{
    fuzzed_model_encode(model);
    fuzzed_model_run(model);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < FRONT) return 0;
    size_t data_bytes = data[0] + 256u * data[1] + 65536u * data[2];
    if (data_bytes > DATA_MAX) return 0;
    size_t header_bytes = size - FRONT;
    uint8_t *file = calloc(header_bytes + data_bytes + 1, 1);
    must(file != NULL);
    memcpy(file, data + FRONT, header_bytes);

    struct memory_files files;
    memory_files_init(&files);
    memory_files_put(&files, path, file, header_bytes + data_bytes);
    fuzzed_model_try(&files, path, use);
    free(file);
    return 0;
}
