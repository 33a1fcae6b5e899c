/* A whole checkpoint: config.json and the header of model.safetensors, whose data are zeroes.
 *
 *     offset  bytes
 *     0       2        length of config.json
 *     2       3        length of the data, at most 4 MiB
 *     5       …        config.json, then the header
 *
 * What is bound is run. */
#include "support/fuzzed_model.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { FRONT = 5, DATA_MAX = 4 << 20 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < FRONT) return 0;
    size_t config_bytes = data[0] + 256u * data[1];
    size_t data_bytes = data[2] + 256u * data[3] + 65536u * data[4];
    if (config_bytes > size - FRONT || data_bytes > DATA_MAX) return 0;
    uint64_t header_bytes = size - FRONT - config_bytes;
    size_t file_bytes = 8 + (size_t)header_bytes + data_bytes;
    uint8_t *file = calloc(file_bytes, 1);
    must(file != NULL);
    memcpy(file, &header_bytes, 8);
    memcpy(file + 8, data + FRONT + config_bytes, (size_t)header_bytes);

    struct memory_files files;
    memory_files_init(&files);
    memory_files_put(&files, "m/config.json", data + FRONT, config_bytes);
    memory_files_put(&files, "m/model.safetensors", file, file_bytes);
    fuzzed_model_try(&files, "m", fuzzed_model_run);
    free(file);
    return 0;
}
