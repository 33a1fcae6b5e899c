#include "support/memory_disk.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

/* ------------------------------------------------------------------ bytes */

static void resize(struct memory_bytes *b, uint64_t count)
{
    uint8_t *bytes = realloc(b->bytes, count + 1);
    if (!bytes) abort();
    if (count > b->count) memset(bytes + b->count, 0, count - b->count);
    b->bytes = bytes;
    b->count = count;
}

static void copy(struct memory_bytes *to, const struct memory_bytes *from)
{
    resize(to, from->count);
    if (from->count) memcpy(to->bytes, from->bytes, from->count);
}

uint64_t memory_disk_used(const struct memory_disk *disk)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < disk->node_count; i++)
        for (size_t b = 0; b < disk->nodes[i].block_count; b++) sum += disk->nodes[i].blocks[b];
    return sum * MEMORY_DISK_BLOCK;
}

/* Takes the block of byte `at`; false: there is no room for it. */
static bool take_block(struct memory_disk *d, struct memory_node *node, uint64_t at)
{
    size_t block = at / MEMORY_DISK_BLOCK;
    if (block >= node->block_count) {
        uint8_t *blocks = realloc(node->blocks, block + 1);
        if (!blocks) abort();
        memset(blocks + node->block_count, 0, block + 1 - node->block_count);
        node->blocks = blocks;
        node->block_count = block + 1;
    }
    if (node->blocks[block]) return true;
    if (d->capacity && memory_disk_used(d) + MEMORY_DISK_BLOCK > d->capacity) return false;
    node->blocks[block] = 1;
    return true;
}

/* ------------------------------------------------------------------ names */

static struct memory_entry *entry_of(struct memory_entry *entries, int parent, const char *name,
                                     size_t length)
{
    for (size_t i = 0; i < MEMORY_DISK_NODES; i++)
        if (entries[i].parent == parent && strlen(entries[i].name) == length &&
            memcmp(entries[i].name, name, length) == 0)
            return &entries[i];
    return NULL;
}

static struct memory_entry *free_entry(struct memory_entry *entries)
{
    for (size_t i = 0; i < MEMORY_DISK_NODES; i++)
        if (entries[i].parent < 0) return &entries[i];
    abort();
}

static struct memory_entry *add_entry(struct memory_entry *entries, int parent, const char *name,
                                      int node)
{
    struct memory_entry *entry = free_entry(entries);
    if (strlen(name) >= MEMORY_DISK_NAME) abort();
    entry->parent = parent;
    strcpy(entry->name, name);
    entry->node = node;
    return entry;
}

/* The directory that holds `path`, and its last name; -1: not there. */
static int parent_of(const struct memory_disk *d, const char *path, const char **name)
{
    int node = 0;
    if (*path == '/') path++;
    for (;;) {
        size_t length = strcspn(path, "/");
        if (path[length] == '\0') {
            *name = path;
            return node;
        }
        struct memory_entry *entry = entry_of((struct memory_entry *)d->now, node, path, length);
        if (!entry || !d->nodes[entry->node].directory) return -1;
        node = entry->node;
        path += length + 1;
    }
}

static struct memory_entry *find_entry(const struct memory_disk *d, const char *path)
{
    const char *name;
    int parent = parent_of(d, path, &name);
    if (parent < 0) return NULL;
    return entry_of((struct memory_entry *)d->now, parent, name, strlen(name));
}

/* "." is the root. */
static int find_node(const struct memory_disk *d, const char *path)
{
    if (strcmp(path, ".") == 0 || *path == '\0') return 0;
    struct memory_entry *entry = find_entry(d, path);
    return entry ? entry->node : -1;
}

static int new_node(struct memory_disk *d, bool directory)
{
    if (d->node_count == MEMORY_DISK_NODES) abort();
    d->nodes[d->node_count] = (struct memory_node){ .directory = directory };
    return (int)d->node_count++;
}

static bool is_empty(const struct memory_disk *d, int node)
{
    for (size_t i = 0; i < MEMORY_DISK_NODES; i++)
        if (d->now[i].parent == node) return false;
    return true;
}

/* ------------------------------------------------------------ the calls */

/* Whether the current call does its work, and whether it reports success. */
struct verdict {
    bool works, answers;
    int problem;
};

static struct verdict judge(struct memory_disk *d)
{
    bool once = d->kind == FAIL_BEFORE || d->kind == FAIL_AFTER;
    if (d->stopped && !once) return (struct verdict){ false, false, -EIO };
    d->calls++;
    if (d->stop_at == 0 || d->calls < d->stop_at || d->stopped)
        return (struct verdict){ true, true, 0 };
    d->stopped = true;
    return (struct verdict){ d->kind == STOP_AFTER || d->kind == FAIL_AFTER, false,
                             once ? -ENOSPC : -EIO };
}

#define CALL(d, work)                                                                              \
    struct verdict verdict_ = judge(d);                                                            \
    int result_ = verdict_.works ? (work) : 0;                                                     \
    return verdict_.answers ? result_ : verdict_.problem

static int make_directory(struct memory_disk *d, const char *path)
{
    const char *name;
    int parent = parent_of(d, path, &name);
    if (parent < 0) return -ENOENT;
    if (entry_of(d->now, parent, name, strlen(name))) return -EEXIST;
    add_entry(d->now, parent, name, new_node(d, true));
    return 0;
}

static int call_make_directory(void *user, const char *path)
{
    CALL((struct memory_disk *)user, make_directory(user, path));
}

static void *handle_of(int node)
{
    return (void *)((intptr_t)node + 1);
}

static struct memory_node *node_of(struct memory_disk *d, void *handle)
{
    return &d->nodes[(intptr_t)handle - 1];
}

static int open_file(struct memory_disk *d, const char *path, void **handle, uint64_t *size)
{
    const char *name;
    int parent = parent_of(d, path, &name);
    if (parent < 0) return -ENOENT;
    struct memory_entry *entry = entry_of(d->now, parent, name, strlen(name));
    if (!entry) entry = add_entry(d->now, parent, name, new_node(d, false));
    if (d->nodes[entry->node].directory) return -EISDIR;
    *handle = handle_of(entry->node);
    *size = d->nodes[entry->node].now.count;
    return 0;
}

static int call_open(void *user, const char *path, void **handle, uint64_t *size)
{
    struct memory_disk *d = user;
    struct verdict verdict = judge(d);
    int result = verdict.works ? open_file(d, path, handle, size) : 0;
    if (!verdict.answers) return verdict.problem;
    d->open_count += result == 0;
    return result;
}

static int64_t write_bytes(struct memory_disk *d, void *handle, uint64_t offset, const void *bytes,
                           size_t count)
{
    struct memory_node *node = node_of(d, handle);
    struct memory_bytes *now = &node->now;
    if (d->piece && count > d->piece) count = d->piece;
    size_t fits = 0;
    while (fits < count && take_block(d, node, offset + fits))
        fits += MEMORY_DISK_BLOCK - (offset + fits) % MEMORY_DISK_BLOCK;
    if (fits == 0 && count > 0) return -ENOSPC;
    if (fits < count) count = fits;
    if (offset + count > now->count) resize(now, offset + count);
    memcpy(now->bytes + offset, bytes, count);
    return (int64_t)count;
}

static int64_t call_write(void *user, void *handle, uint64_t offset, const void *bytes,
                          size_t count)
{
    struct memory_disk *d = user;
    struct verdict verdict = judge(d);
    if (!verdict.answers && d->kind == FAIL_AFTER) count /= 2;
    int64_t result = verdict.works ? write_bytes(d, handle, offset, bytes, count) : 0;
    return verdict.answers ? result : verdict.problem;
}

static int resize_file(struct memory_disk *d, void *handle, uint64_t bytes)
{
    struct memory_node *node = node_of(d, handle);
    size_t blocks = (bytes + MEMORY_DISK_BLOCK - 1) / MEMORY_DISK_BLOCK;
    if (blocks < node->block_count) node->block_count = blocks;
    resize(&node->now, bytes);
    return 0;
}

static int call_resize(void *user, void *handle, uint64_t bytes)
{
    CALL((struct memory_disk *)user, resize_file(user, handle, bytes));
}

static int sync_file(struct memory_disk *d, void *handle)
{
    struct memory_node *node = node_of(d, handle);
    copy(&node->safe, &node->now);
    return 0;
}

static int call_sync(void *user, void *handle)
{
    CALL((struct memory_disk *)user, sync_file(user, handle));
}

static int lock_file(struct memory_disk *d, void *handle)
{
    struct memory_node *node = node_of(d, handle);
    if (node->locked) return -EWOULDBLOCK;
    node->locked = true;
    return 0;
}

static int call_lock(void *user, void *handle)
{
    CALL((struct memory_disk *)user, lock_file(user, handle));
}

static void call_close(void *user, void *handle)
{
    struct memory_disk *d = user;
    node_of(d, handle)->locked = false;
    d->open_count--;
}

static int rename_it(struct memory_disk *d, const char *from, const char *to)
{
    const char *name;
    struct memory_entry *entry = find_entry(d, from);
    int parent = parent_of(d, to, &name);
    if (!entry || parent < 0) return -ENOENT;
    struct memory_entry *there = entry_of(d->now, parent, name, strlen(name));
    if (there && d->nodes[there->node].directory && !is_empty(d, there->node)) return -ENOTEMPTY;
    if (there && d->nodes[there->node].directory != d->nodes[entry->node].directory) return -EISDIR;
    if (there) there->parent = -1;
    int node = entry->node;
    entry->parent = -1;
    add_entry(d->now, parent, name, node);
    return 0;
}

static int call_rename(void *user, const char *from, const char *to)
{
    CALL((struct memory_disk *)user, rename_it(user, from, to));
}

static int remove_it(struct memory_disk *d, const char *path)
{
    struct memory_entry *entry = find_entry(d, path);
    if (!entry) return -ENOENT;
    if (d->nodes[entry->node].directory) return -EISDIR;
    entry->parent = -1;
    return 0;
}

static int call_remove(void *user, const char *path)
{
    CALL((struct memory_disk *)user, remove_it(user, path));
}

/* The names in a directory become safe as they are now. */
static int sync_directory(struct memory_disk *d, const char *path)
{
    int node = find_node(d, path);
    if (node < 0) return -ENOENT;
    for (size_t i = 0; i < MEMORY_DISK_NODES; i++)
        if (d->safe[i].parent == node) d->safe[i].parent = -1;
    for (size_t i = 0; i < MEMORY_DISK_NODES; i++)
        if (d->now[i].parent == node) *free_entry(d->safe) = d->now[i];
    return 0;
}

static int call_sync_directory(void *user, const char *path)
{
    CALL((struct memory_disk *)user, sync_directory(user, path));
}

static int call_free_bytes(void *user, const char *path, uint64_t *bytes)
{
    const struct memory_disk *d = user;
    (void)path;
    uint64_t used = memory_disk_used(d);
    *bytes = d->capacity ? d->capacity > used ? d->capacity - used : 0 : UINT64_MAX / 2;
    return 0;
}

/* ---------------------------------------------------------------- reading */

static int read_open(void *user, const char *path, void **handle, uint64_t *size)
{
    struct memory_disk *d = user;
    int node = find_node(d, path);
    if (node < 0) return -ENOENT;
    if (d->nodes[node].directory) return -EISDIR;
    *handle = handle_of(node);
    *size = d->nodes[node].now.count;
    d->open_count++;
    return 0;
}

static int64_t read_bytes(void *user, void *handle, uint64_t offset, void *out, size_t count)
{
    const struct memory_bytes *now = &node_of(user, handle)->now;
    if (offset >= now->count) return 0;
    if (count > now->count - offset) count = now->count - offset;
    if (count) memcpy(out, now->bytes + offset, count);
    return (int64_t)count;
}

static void read_close(void *user, void *handle)
{
    struct memory_disk *d = user;
    (void)handle;
    d->open_count--;
}

static int read_list(void *user, const char *directory,
                     void (*entry)(void *context, const char *name), void *context)
{
    const struct memory_disk *d = user;
    int node = find_node(d, directory);
    if (node < 0) return -ENOENT;
    if (!d->nodes[node].directory) return -ENOTDIR;
    for (size_t i = 0; i < MEMORY_DISK_NODES; i++)
        if (d->now[i].parent == node) entry(context, d->now[i].name);
    return 0;
}

/* -------------------------------------------------------------------- all */

void memory_disk_init(struct memory_disk *disk)
{
    memset(disk, 0, sizeof *disk);
    for (size_t i = 0; i < MEMORY_DISK_NODES; i++) disk->now[i].parent = disk->safe[i].parent = -1;
    new_node(disk, true);
    disk->disk = (struct disk){ .user = disk,
                                .make_directory = call_make_directory,
                                .open = call_open,
                                .write = call_write,
                                .resize = call_resize,
                                .sync = call_sync,
                                .lock = call_lock,
                                .close = call_close,
                                .rename = call_rename,
                                .remove = call_remove,
                                .sync_directory = call_sync_directory,
                                .free_bytes = call_free_bytes };
    disk->files = (mf_files){
        .user = disk, .open = read_open, .read = read_bytes, .close = read_close, .list = read_list
    };
}

void memory_disk_free(struct memory_disk *disk)
{
    for (size_t i = 0; i < disk->node_count; i++) {
        free(disk->nodes[i].now.bytes);
        free(disk->nodes[i].safe.bytes);
        free(disk->nodes[i].blocks);
    }
    memset(disk, 0, sizeof *disk);
}

void memory_disk_put(struct memory_disk *disk, const char *path, const void *bytes, size_t count)
{
    char part[PATH_CAPACITY];
    for (const char *slash = strchr(path, '/'); slash; slash = strchr(slash + 1, '/')) {
        snprintf(part, sizeof part, "%.*s", (int)(slash - path), path);
        if (find_node(disk, part) < 0) make_directory(disk, part);
    }
    void *handle;
    uint64_t size;
    if (open_file(disk, path, &handle, &size) != 0) abort();
    struct memory_node *node = node_of(disk, handle);
    resize(&node->now, count);
    if (count) memcpy(node->now.bytes, bytes, count);
    for (uint64_t at = 0; at < count; at += MEMORY_DISK_BLOCK) take_block(disk, node, at);
    copy(&node->safe, &node->now);
    memcpy(disk->safe, disk->now, sizeof disk->safe);
}

void memory_disk_stop(struct memory_disk *disk, uint64_t nth, enum stop_kind kind)
{
    disk->calls = 0;
    disk->stop_at = nth;
    disk->kind = kind;
    disk->stopped = false;
}

bool memory_disk_restart(struct memory_disk *disk, bool power_cut)
{
    bool stopped = disk->stopped;
    disk->stopped = false;
    disk->stop_at = 0;
    disk->calls = 0;
    if (!power_cut) return stopped;
    memcpy(disk->now, disk->safe, sizeof disk->now);
    for (size_t i = 0; i < disk->node_count; i++) copy(&disk->nodes[i].now, &disk->nodes[i].safe);
    return stopped;
}

struct memory_bytes *memory_disk_find(struct memory_disk *disk, const char *path)
{
    int node = find_node(disk, path);
    return node < 0 || disk->nodes[node].directory ? NULL : &disk->nodes[node].now;
}

bool memory_disk_has(const struct memory_disk *disk, const char *path)
{
    return find_node(disk, path) >= 0;
}

static bool has_all_of(struct memory_disk *disk, int a, struct memory_disk *other, int b)
{
    for (size_t i = 0; i < MEMORY_DISK_NODES; i++) {
        const struct memory_entry *mine = &disk->now[i];
        if (mine->parent != a) continue;
        struct memory_entry *theirs = entry_of(other->now, b, mine->name, strlen(mine->name));
        if (!theirs) return false;
        const struct memory_bytes *x = &disk->nodes[mine->node].now;
        const struct memory_bytes *y = &other->nodes[theirs->node].now;
        if (x->count != y->count) return false;
        if (x->count && memcmp(x->bytes, y->bytes, x->count) != 0) return false;
    }
    return true;
}

bool memory_disk_same(struct memory_disk *disk, const char *a, struct memory_disk *other,
                      const char *b)
{
    int left = find_node(disk, a), right = find_node(other, b);
    if (left < 0 || right < 0) return false;
    return has_all_of(disk, left, other, right) && has_all_of(other, right, disk, left);
}
