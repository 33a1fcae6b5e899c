#include "support/tiny_directory.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *const names[] = { "config.json", "model.safetensors" };

static void path_of(char out[128], const struct tiny_directory *directory, const char *name)
{
    snprintf(out, 128, "%s/%s", directory->path, name);
}

void tiny_directory_make(struct tiny_directory *directory)
{
    snprintf(directory->path, sizeof directory->path, "/tmp/moeflux-tiny-XXXXXX");
    if (!mkdtemp(directory->path)) abort();
}

static void write_file(const struct tiny_directory *directory, const char *name, const void *data,
                       size_t size)
{
    char path[128];
    path_of(path, directory, name);
    FILE *file = fopen(path, "wb");
    if (!file || fwrite(data, 1, size, file) != size || fclose(file) != 0) abort();
}

void tiny_directory_write(const struct tiny_directory *directory, const struct tiny_shape *shape)
{
    struct tiny_model tiny;
    tiny_model_init(&tiny, shape);
    tiny_model_write(&tiny);
    write_file(directory, names[0], tiny.config_text, strlen(tiny.config_text));
    write_file(directory, names[1], tiny.weights.bytes, tiny.weights.count);
    tiny_model_free(&tiny);
}

void tiny_directory_remove(const struct tiny_directory *directory)
{
    for (size_t i = 0; i < COUNT_OF(names); i++) {
        char path[128];
        path_of(path, directory, names[i]);
        unlink(path);
    }
    if (rmdir(directory->path) != 0) abort();
}
