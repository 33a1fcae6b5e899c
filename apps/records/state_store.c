#include "records/state_store.h"

#include "common/basics.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

struct state_store {
    char *directory;
    uint64_t limit_bytes;
    int lock_file;
    pthread_mutex_t writing; /* of files: one at a time, so that they keep to the limit together */
    pthread_mutex_t lock;    /* of the records */
    json_t *records;         /* object: by name */
};

void state_new_name(char out[STATE_NAME_CAPACITY], const char *prefix)
{
    static const char letters[] = "0123456789abcdefghijklmnopqrstuvwxyz";
    unsigned char random[24];
    int length = snprintf(out, STATE_NAME_CAPACITY, "%.16s", prefix);

    if (getrandom(random, sizeof random, 0) != (ssize_t)sizeof random)
        memset(random, 0, sizeof random);
    for (size_t i = 0; i < sizeof random; i++)
        out[length++] = letters[random[i] % (sizeof letters - 1)];
    out[length] = '\0';
}

void state_path(char out[STATE_PATH_CAPACITY], const struct state_store *store, const char *name,
                const char *ending)
{
    snprintf(out, STATE_PATH_CAPACITY, "%s/%s%s", store->directory, name, ending);
}

/* ------------------------------------------------------------------------ files */

static mf_status sync_directory(const struct state_store *store, mf_error *why)
{
    int fd = open(store->directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    mf_status status = MF_OK;

    if (fd < 0 || fsync(fd) != 0)
        status = fail_errno(why, MF_ERR_IO, errno, "sync %.256s", store->directory);
    if (fd >= 0) close(fd);
    return status;
}

static mf_status write_all(int fd, const char *bytes, size_t count, mf_error *why)
{
    for (size_t at = 0; at < count;) {
        ssize_t written = write(fd, bytes + at, count - at);
        if (written < 0 && errno != EINTR)
            return fail_errno(why, MF_ERR_IO, errno, "a file of --state-dir cannot be written");
        if (written > 0) at += (size_t)written;
    }
    return MF_OK;
}

static mf_status copy_bytes(int to, int from, uint64_t offset, uint64_t count, mf_error *why)
{
    char buffer[1 << 16];
    mf_status status = MF_OK;

    while (count > 0 && status == MF_OK) {
        ssize_t got = pread(from, buffer, min_size(sizeof buffer, count), (off_t)offset);
        if (got <= 0) return fail_errno(why, MF_ERR_IO, errno, "uploaded bytes cannot be read");
        status = write_all(to, buffer, (size_t)got, why);
        offset += (uint64_t)got;
        count -= (uint64_t)got;
    }
    return status;
}

/* The file that was written as NAME.new gets its own name, or goes. */
static mf_status finish_file(struct state_store *store, int fd, const char *name,
                             const char *ending, mf_status status, mf_error *why)
{
    char from[STATE_PATH_CAPACITY], to[STATE_PATH_CAPACITY];

    state_path(from, store, name, ".new");
    state_path(to, store, name, ending);
    if (status == MF_OK && fsync(fd) != 0)
        status = fail_errno(why, MF_ERR_IO, errno, "sync %.256s", from);
    close(fd);
    if (status == MF_OK && rename(from, to) != 0)
        status = fail_errno(why, MF_ERR_IO, errno, "rename %.256s", from);
    if (status != MF_OK) {
        unlink(from);
        return status;
    }
    return sync_directory(store, why);
}

static mf_status create_file(int *fd, const struct state_store *store, const char *name,
                             mf_error *why)
{
    char path[STATE_PATH_CAPACITY];

    state_path(path, store, name, ".new");
    *fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
    return *fd >= 0 ? MF_OK : fail_errno(why, MF_ERR_IO, errno, "create %.256s", path);
}

mf_status state_write_data(struct state_store *store, const char *name, int from, uint64_t offset,
                           uint64_t count, mf_error *why)
{
    int fd;

    pthread_mutex_lock(&store->writing);
    mf_status status = state_has_room(store, count, why);
    if (status == MF_OK) status = create_file(&fd, store, name, why);
    if (status == MF_OK) {
        status = copy_bytes(fd, from, offset, count, why);
        status = finish_file(store, fd, name, ".data", status, why);
    }
    pthread_mutex_unlock(&store->writing);
    return status;
}

int state_spool(const struct state_store *store)
{
    char path[STATE_PATH_CAPACITY], name[STATE_NAME_CAPACITY];

    state_new_name(name, "upload-");
    state_path(path, store, name, ".new");
    int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd >= 0) unlink(path);
    return fd;
}

/* ---------------------------------------------------------------------- records */

mf_status state_put(struct state_store *store, const json_t *record, mf_error *why)
{
    const char *name = json_string_value(json_object_get(record, "id"));
    char *text = json_dumps(record, JSON_COMPACT);
    int fd;
    mf_status status = text ? MF_OK : fail_memory(why, 1);

    pthread_mutex_lock(&store->lock);
    if (status == MF_OK) status = create_file(&fd, store, name, why);
    if (status == MF_OK) {
        status = write_all(fd, text, strlen(text), why);
        status = finish_file(store, fd, name, ".json", status, why);
    }
    if (status == MF_OK && json_object_set_new(store->records, name, json_deep_copy(record)) != 0)
        status = fail_memory(why, 1);
    pthread_mutex_unlock(&store->lock);
    free(text);
    return status;
}

bool state_remove(struct state_store *store, const char *name)
{
    char path[STATE_PATH_CAPACITY];
    static const char *const endings[] = { ".json", ".data", ".failed" };

    pthread_mutex_lock(&store->lock);
    bool known = json_object_get(store->records, name) != NULL;
    for (size_t i = 0; i < COUNT_OF(endings) && known; i++) {
        state_path(path, store, name, endings[i]);
        unlink(path);
    }
    json_object_del(store->records, name);
    pthread_mutex_unlock(&store->lock);
    return known;
}

static bool is_of(const json_t *record, const char *owner)
{
    const char *own = json_string_value(json_object_get(record, "owner"));

    return !owner || (own && strcmp(own, owner) == 0);
}

json_t *state_get_new(struct state_store *store, const char *name, const char *owner)
{
    pthread_mutex_lock(&store->lock);
    const json_t *record = json_object_get(store->records, name);
    json_t *copy = record && is_of(record, owner) ? json_deep_copy(record) : NULL;
    pthread_mutex_unlock(&store->lock);
    return copy;
}

static int by_age(const void *a, const void *b)
{
    json_int_t first = json_integer_value(json_object_get(*(json_t *const *)a, "created_at"));
    json_int_t second = json_integer_value(json_object_get(*(json_t *const *)b, "created_at"));

    return (first < second) - (first > second);
}

json_t *state_list_new(struct state_store *store, const char *prefix, const char *owner)
{
    json_t *list = json_array(), *record;
    const char *name;
    size_t count = 0;

    pthread_mutex_lock(&store->lock);
    json_t **found = calloc(json_object_size(store->records) + 1, sizeof *found);
    json_object_foreach(store->records, name, record)
    {
        if (found && strncmp(name, prefix, strlen(prefix)) == 0 && is_of(record, owner))
            found[count++] = record;
    }
    if (found) qsort(found, count, sizeof *found, by_age);
    for (size_t i = 0; i < count; i++) json_array_append_new(list, json_deep_copy(found[i]));
    free(found);
    pthread_mutex_unlock(&store->lock);
    return list;
}

/* ------------------------------------------------------------------------- room */

static uint64_t used_bytes(const struct state_store *store)
{
    char path[STATE_PATH_CAPACITY];
    DIR *directory = opendir(store->directory);
    const struct dirent *entry;
    struct stat info;
    uint64_t sum = 0;

    while (directory && (entry = readdir(directory))) {
        state_path(path, store, entry->d_name, "");
        if (lstat(path, &info) == 0 && S_ISREG(info.st_mode)) sum += (uint64_t)info.st_size;
    }
    if (directory) closedir(directory);
    return sum;
}

mf_status state_has_room(struct state_store *store, uint64_t bytes, mf_error *why)
{
    uint64_t used = used_bytes(store);

    if (used <= store->limit_bytes && bytes <= store->limit_bytes - used) return MF_OK;
    return fail(why, MF_ERR_MEMORY,
                "%llu bytes do not fit: --state-dir holds %llu of at most %llu bytes",
                (unsigned long long)bytes, (unsigned long long)used,
                (unsigned long long)store->limit_bytes);
}

/* ------------------------------------------------------------------------- open */

static bool has_ending(const char *name, const char *ending)
{
    size_t length = strlen(name), count = strlen(ending);

    return length > count && strcmp(name + length - count, ending) == 0;
}

/* A record that is damaged is left alone: it stands for nothing. */
static void read_record(struct state_store *store, const char *path, const char *name)
{
    json_t *record = json_load_file(path, JSON_REJECT_DUPLICATES, NULL);
    const char *id = json_string_value(json_object_get(record, "id"));

    if (id && strlen(id) + strlen(".json") == strlen(name) && strncmp(id, name, strlen(id)) == 0)
        json_object_set(store->records, id, record);
    json_decref(record);
}

/* Made by state_new_name: a directory that is used by mistake loses no files. */
static bool is_own_name(const char *name)
{
    static const char *const prefixes[] = { "batch_", "file-", "upload-" };

    for (size_t i = 0; i < COUNT_OF(prefixes); i++)
        if (strncmp(name, prefixes[i], strlen(prefixes[i])) == 0) return true;
    return false;
}

static mf_status read_directory(struct state_store *store, mf_error *why)
{
    char path[STATE_PATH_CAPACITY];
    DIR *directory = opendir(store->directory);
    const struct dirent *entry;

    if (!directory) return fail_errno(why, MF_ERR_IO, errno, "open %.256s", store->directory);
    while ((entry = readdir(directory))) {
        state_path(path, store, entry->d_name, "");
        if (is_own_name(entry->d_name) && has_ending(entry->d_name, ".new")) unlink(path);
        if (has_ending(entry->d_name, ".json")) read_record(store, path, entry->d_name);
    }
    closedir(directory);
    return MF_OK;
}

static mf_status make_directory(const char *directory, mf_error *why)
{
    struct stat info;

    if (mkdir(directory, 0700) != 0 && errno != EEXIST)
        return fail_errno(why, MF_ERR_IO, errno, "make %.256s", directory);
    if (stat(directory, &info) != 0)
        return fail_errno(why, MF_ERR_IO, errno, "open %.256s", directory);
    if (!S_ISDIR(info.st_mode))
        return fail(why, MF_ERR_ARGUMENT, "%.256s is no directory", directory);
    if (!(info.st_mode & S_IWOTH)) return MF_OK;
    return fail(why, MF_ERR_ARGUMENT,
                "every user of this machine may change the directory %.256s (mode %o): one that "
                "only yours may change is expected, as by chmod 700",
                directory, info.st_mode & 07777);
}

static mf_status lock_directory(struct state_store *store, mf_error *why)
{
    char path[STATE_PATH_CAPACITY];

    state_path(path, store, "lock", "");
    store->lock_file = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (store->lock_file < 0) return fail_errno(why, MF_ERR_IO, errno, "open %.256s", path);
    if (flock(store->lock_file, LOCK_EX | LOCK_NB) == 0) return MF_OK;
    return fail(why, MF_ERR_BUSY, "another server uses the directory %.256s", store->directory);
}

mf_status state_store_open(struct state_store **out, const char *directory, uint64_t limit_bytes,
                           mf_error *why)
{
    struct state_store *store = calloc(1, sizeof *store);
    mf_status status = MF_OK;

    *out = NULL;
    if (!store) return fail_memory(why, sizeof *store);
    pthread_mutex_init(&store->writing, NULL);
    pthread_mutex_init(&store->lock, NULL);
    store->lock_file = -1;
    store->limit_bytes = limit_bytes;
    store->directory = strdup(directory);
    store->records = json_object();
    if (!store->directory || !store->records) status = fail_memory(why, 1);
    if (status == MF_OK && strlen(directory) >= PATH_CAPACITY)
        status = fail(why, MF_ERR_ARGUMENT, "the path of --state-dir is too long");
    if (status == MF_OK) status = make_directory(directory, why);
    if (status == MF_OK) status = lock_directory(store, why);
    if (status == MF_OK) status = read_directory(store, why);
    if (status == MF_OK)
        *out = store;
    else
        state_store_close(store);
    return status;
}

void state_store_close(struct state_store *store)
{
    if (!store) return;
    if (store->lock_file >= 0) close(store->lock_file);
    json_decref(store->records);
    free(store->directory);
    pthread_mutex_destroy(&store->writing);
    pthread_mutex_destroy(&store->lock);
    free(store);
}
