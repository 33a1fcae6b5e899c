/* Any bytes as the manifest of a packed model.  One that is accepted says the same when it is
 * written and read again, and opens with files of the sizes that follow from it: every tensor
 * and every array of every expert lies within its file. */
#include "base/status.h"
#include "checkpoint/packed.h"
#include "support/failing_allocator.h"
#include "support/memory_files.h"

#include <stdio.h>
#include <stdlib.h>

enum { FILE_BYTES_MAX = 1 << 20, LAYERS_MAX = 16 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const uint8_t zeros[FILE_BYTES_MAX];

static void check_text(const struct packed_manifest *m, const mf_allocator *allocator)
{
    char *text = packed_manifest_text_new(m, true);
    json_t *json = NULL;
    struct packed_manifest again;
    packed_manifest_init(&again, allocator);
    if (!text || json_parse_new(&json, text, strlen(text), "again", NULL) != MF_OK) abort();
    if (packed_manifest_parse(&again, json, "again", NULL) != MF_OK) abort();
    char *other = packed_manifest_text_new(&again, true);
    if (!other || strcmp(text, other) != 0) abort();
    packed_manifest_free(&again);
    json_decref(json);
    free(text);
    free(other);
}

static void check_extents(const struct packed_manifest *m, const struct tensor_directory *directory)
{
    for (size_t i = 0; i < directory->count; i++) {
        const struct tensor *t = &directory->tensors[i];
        const struct file *file = &directory->files[t->file];
        if (t->offset > file->size || t->bytes > file->size - t->offset) abort();
    }
    for (size_t i = 0; i < m->layer_count; i++) {
        const struct packed_layer *layer = &m->layers[i];
        for (size_t a = 0; a < PACKED_ARRAYS; a++) {
            const struct packed_matrix *part = &layer->parts[a / 3];
            uint64_t end = layer->stride * (m->experts - 1) + part->offsets[a % 3];
            if (end + part->bytes[a % 3] > directory->files[layer->file].size) abort();
        }
    }
}

/* Files as large as the manifest says, unless they are beyond reason; false: they are. */
static bool put_files(struct memory_files *files, char names[LAYERS_MAX][PACKED_NAME_CAPACITY + 2],
                      const struct packed_manifest *m)
{
    if (packed_resident_bytes(m) > FILE_BYTES_MAX || m->layer_count > LAYERS_MAX) return false;
    memory_files_put(files, "p/resident.bin", zeros, packed_resident_bytes(m));
    for (size_t i = 0; i < m->layer_count; i++) {
        char name[PACKED_NAME_CAPACITY];
        if (m->layers[i].stride * m->experts > FILE_BYTES_MAX) return false;
        packed_layer_name(name, m->layers[i].number);
        snprintf(names[i], PACKED_NAME_CAPACITY + 2, "p/%s", name);
        memory_files_put(files, names[i], zeros, m->layers[i].stride * m->experts);
    }
    return true;
}

static void open_it(const struct memory_files *files, const mf_allocator *allocator)
{
    struct packed_manifest m;
    struct tensor_directory directory;
    packed_manifest_init(&m, allocator);
    tensor_directory_init(&directory, allocator);
    mf_error why;
    if (packed_open(&m, &directory, &files->files, "p", &why) == MF_OK)
        check_extents(&m, &directory);
    else if (!strstr(why.text, "stands twice"))
        abort(); /* the name of a tensor: all else was looked at before */
    tensor_directory_free(&directory);
    packed_manifest_free(&m);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct memory_files files;
    struct failing_allocator heap;
    struct packed_manifest m;
    char names[LAYERS_MAX][PACKED_NAME_CAPACITY + 2];
    json_t *json = NULL;
    mf_error why;
    failing_allocator_init(&heap);
    packed_manifest_init(&m, &heap.allocator);
    memory_files_init(&files);
    memory_files_put(&files, "p/moeflux.json", data, size);
    mf_status status =
        json_read_file_new(&json, &files.files, "p/moeflux.json", FILE_BYTES_MAX, &why);
    if (status == MF_OK) status = packed_manifest_parse(&m, json, "m", &why);
    if (status == MF_OK) check_text(&m, &heap.allocator);
    if (status == MF_OK && put_files(&files, names, &m)) open_it(&files, &heap.allocator);
    json_decref(json);
    packed_manifest_free(&m);
    if (heap.live_bytes != 0 || files.open_count != 0) abort();
    return 0;
}
