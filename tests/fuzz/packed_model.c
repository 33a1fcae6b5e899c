/* A model in the packed layout: its manifest and config.json, beside files of zeroes.
 *
 *     offset  bytes
 *     0       2        length of config.json
 *     2       3        length of resident.bin, at most 4 MiB
 *     5       3        length of each of layer-000.bin to layer-003.bin, at most 1 MiB
 *     8       …        config.json, then moeflux.json
 *
 * What is bound is run. */
#include "base/common.h"
#include "support/fuzzed_model.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { FRONT = 8, RESIDENT_MAX = 4 << 20, LAYER_MAX = 1 << 20 };

static size_t load_u24(const uint8_t *data)
{
    return data[0] + 256u * data[1] + 65536u * data[2];
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const uint8_t zeroes[RESIDENT_MAX];
    static const char *const layers[] = { "m/layer-000.bin", "m/layer-001.bin", "m/layer-002.bin",
                                          "m/layer-003.bin" };
    if (size < FRONT) return 0;
    size_t config_bytes = load_u16(data), resident_bytes = load_u24(data + 2),
           layer_bytes = load_u24(data + 5);
    if (config_bytes > size - FRONT || resident_bytes > RESIDENT_MAX || layer_bytes > LAYER_MAX)
        return 0;
    struct memory_files files;
    memory_files_init(&files);
    memory_files_put(&files, "m/config.json", data + FRONT, config_bytes);
    memory_files_put(&files, "m/moeflux.json", data + FRONT + config_bytes,
                     size - FRONT - config_bytes);
    memory_files_put(&files, "m/resident.bin", zeroes, resident_bytes);
    for (size_t i = 0; i < COUNT_OF(layers); i++)
        memory_files_put(&files, layers[i], zeroes, layer_bytes);
    fuzzed_model_try(&files, "m", fuzzed_model_run);
    return 0;
}
