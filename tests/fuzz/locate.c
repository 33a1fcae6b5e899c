/* Any directories as a Hugging Face cache and as checkpoints.  The input is lines: the name that is
 * asked for, then one file a line, "path=content".  What is found is below the name or the cache,
 * whatever refs/main says, and no file stays open. */
#include "base/json.h"
#include "base/status.h"
#include "checkpoint/hub.h"
#include "checkpoint/locate.h"
#include "model/config.h"
#include "support/memory_files.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool condition)
{
    if (!condition) abort();
}

/* "a/.." and "../a", not "a..b". */
static bool climbs(const char *path)
{
    for (const char *at = path; (at = strstr(at, "..")); at += 2)
        if ((at == path || at[-1] == '/') && (at[2] == '/' || !at[2])) return true;
    return false;
}

/* Names are as long as a file system has them: up to 255 bytes. */
static bool names_fit(const char *path)
{
    size_t length = strcspn(path, "/");
    while (length < 256 && path[length]) {
        path += length + 1;
        length = strcspn(path, "/");
    }
    return length < 256;
}

static void put_line(struct memory_files *files, char *line)
{
    char *content = strchr(line, '=');
    if (!content || files->count >= MEMORY_FILES_MAX) return;
    *content++ = '\0';
    if (!names_fit(line)) return;
    memory_files_put(files, line, content, strlen(content));
}

static void read_config(const struct memory_files *files, const char *directory)
{
    struct model_config config;
    struct arena arena;
    json_t *json = NULL;
    json_read_maybe_new(&json, &files->files, directory, "config.json", 1 << 20, NULL);
    arena_init(&arena, &allocator_heap);
    if (json && config_parse(&config, json, &arena, "config.json", NULL) == MF_OK)
        must(config.layer_count > 0 && config.vocab_size > 0);
    arena_free(&arena);
    json_decref(json);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char path[PATH_CAPACITY], *text = malloc(size + 1), *rest = text;
    struct memory_files files;
    struct checkpoint_place place;
    mf_error why = { 0 };
    must(text != NULL);
    if (size) memcpy(text, data, size);
    text[size] = '\0';
    const char *name = strsep(&rest, "\n");
    memory_files_init(&files);
    while (rest) put_line(&files, strsep(&rest, "\n"));

    if (hub_find(path, &files.files, name, "hub", &why) == MF_OK) {
        must(strlen(path) < sizeof path);
        bool below = strncmp(path, name, strlen(name)) == 0;
        must(below || (strncmp(path, "hub/models--", 12) == 0 && !climbs(path)));
        read_config(&files, path);
        if (checkpoint_locate(&place, &files.files, path, &why) == MF_OK)
            must(strncmp(place.path, path, strlen(path)) == 0);
    } else {
        must(why.text[0] != '\0');
    }
    must(files.open_count == 0);
    free(text);
    return 0;
}
