#include "support/memory_files.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static struct memory_file *find(struct memory_files *files, const char *path)
{
    for (size_t i = 0; i < files->count; i++)
        if (strcmp(files->list[i].path, path) == 0) return &files->list[i];
    return NULL;
}

static int memory_open(void *user, const char *path, void **handle, uint64_t *size)
{
    struct memory_files *files = user;
    struct memory_file *file = find(files, path);
    if (!file) return -ENOENT;
    files->open_count++;
    *handle = file;
    *size = file->size;
    return 0;
}

static int64_t memory_read(void *user, void *handle, uint64_t offset, void *out, size_t count)
{
    struct memory_files *files = user;
    const struct memory_file *file = handle;
    if (offset >= file->size) return 0;
    size_t got = file->size - (size_t)offset < count ? file->size - (size_t)offset : count;
    if (got) memcpy(out, (const char *)file->data + offset, got);
    files->read_bytes += got;
    return (int64_t)got;
}

static void memory_close(void *user, void *handle)
{
    struct memory_files *files = user;
    (void)handle;
    files->open_count--;
}

/* Whether a file before `end` lies at or in directory/name. */
static bool listed_before(const struct memory_files *files, size_t end, const char *directory,
                          const char *name)
{
    size_t length = strlen(directory), part = strlen(name);
    for (size_t i = 0; i < end; i++) {
        const char *path = files->list[i].path;
        if (strncmp(path, directory, length) != 0 || path[length] != '/') continue;
        const char *rest = path + length + 1;
        if (strncmp(rest, name, part) == 0 && (rest[part] == '/' || !rest[part])) return true;
    }
    return false;
}

static int memory_list(void *user, const char *directory,
                       void (*entry)(void *context, const char *name), void *context)
{
    struct memory_files *files = user;
    size_t length = strlen(directory);
    bool found = false;
    for (size_t i = 0; i < files->count; i++) {
        const char *path = files->list[i].path;
        if (strncmp(path, directory, length) != 0 || path[length] != '/') continue;
        found = true;
        char name[256];
        size_t part = strcspn(path + length + 1, "/");
        if (part >= sizeof name) abort();
        memcpy(name, path + length + 1, part);
        name[part] = '\0';
        if (!listed_before(files, i, directory, name)) entry(context, name);
    }
    return found ? 0 : -ENOENT;
}

void memory_files_init(struct memory_files *files)
{
    memset(files, 0, sizeof *files);
    files->files = (mf_files){ .user = files,
                               .open = memory_open,
                               .read = memory_read,
                               .close = memory_close,
                               .list = memory_list };
}

void memory_files_put(struct memory_files *files, const char *path, const void *data, size_t size)
{
    struct memory_file *file = find(files, path);
    if (!file && files->count == MEMORY_FILES_MAX) abort(); /* the test needs a larger list */
    if (!file) file = &files->list[files->count++];
    *file = (struct memory_file){ path, data, size };
}
