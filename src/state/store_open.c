/* store_open.c: a cache directory is made or opened: secret, lock, journal, names of files. */
#include "state/store_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/random.h>

static const char MAGIC[8] = { 'M', 'F', 'S', 'E', 'C', 'R', 'T', '\n' };
static const char SECRET[] = "secret", LOCK[] = "lock";
static const char *const fixed_names[] = { "secret", "journal", "lock" };

struct secret_file {
    char magic[8];
    uint8_t secret[CHECKSUM_SECRET];
    uint64_t checksum; /* of all before */
};

_Static_assert(sizeof(struct secret_file) == 208, "no gaps");

/* --------------------------------------------------------------------- names */

struct names {
    const struct cache_store *store;
    struct name {
        char text[CACHE_NAME];
    } * strangers; /* with names of ours, and no record */
    size_t count, room;
    bool has_secret, has_foreign; /* foreign: no names of ours */
};

/* Without ".partial" at its end, if it has that. */
static bool split_partial(char out[CACHE_NAME], const char *name)
{
    static const char partial[] = ".partial";
    size_t length = strlen(name), end = sizeof partial - 1;
    bool is_partial = length > end && strcmp(name + length - end, partial) == 0;
    if (is_partial) length -= end;
    if (length >= CACHE_NAME) length = 0; /* none of ours */
    memcpy(out, name, length);
    out[length] = '\0';
    return is_partial;
}

static void look_at_name(void *context, const char *name)
{
    struct names *names = context;
    char base[CACHE_NAME];
    struct cache_key key;
    enum cache_kind kind;
    bool partial = split_partial(base, name), fixed = false;
    for (size_t i = 0; i < COUNT_OF(fixed_names); i++) fixed |= strcmp(base, fixed_names[i]) == 0;
    if (!partial && strcmp(base, SECRET) == 0) names->has_secret = true;
    if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0 || (fixed && !partial)) return;
    if (!fixed && !store_file_parse_name(&key, &kind, base)) {
        names->has_foreign = true;
        return;
    }
    struct entry *entry = fixed || partial ? NULL : table_find_stored(&names->store->table, &key);
    if (entry && entry->record.kind == kind) {
        entry->found = true;
    } else if (strlen(name) < CACHE_NAME && ARRAY_RESERVE(names->strangers, names->room,
                                                          names->count + 1, NULL, NULL) == MF_OK) {
        strcpy(names->strangers[names->count++].text, name);
    }
}

static mf_status look_at_names(struct names *out, const struct cache_store *store, mf_error *why)
{
    *out = (struct names){ .store = store };
    int result = store->files->list(store->files->user, store->directory, look_at_name, out);
    if (result == 0 || result == -ENOENT) return MF_OK;
    return fail_errno(why, MF_ERR_IO, -result, "%s cannot be listed", store->directory);
}

/* -------------------------------------------------------------------- secret */

static mf_status make_secret(struct cache_store *store, mf_error *why)
{
    struct secret_file file = { 0 };
    char path[PATH_CAPACITY];
    memcpy(file.magic, MAGIC, sizeof MAGIC);
    if (getrandom(file.secret, sizeof file.secret, 0) != (ssize_t)sizeof file.secret)
        return fail_errno(why, MF_ERR_IO, errno, "the system gives no random bytes");
    file.checksum = checksum_of(&file, offsetof(struct secret_file, checksum));
    memcpy(store->secret, file.secret, sizeof store->secret);
    mf_status status = path_join(path, sizeof path, store->directory, SECRET, why);
    if (status == MF_OK) status = disk_replace(store->disk, path, &file, sizeof file, why);
    return status;
}

/* *known: there was one, and it is as it was written.  With another one no key fits. */
static mf_status read_secret(struct cache_store *store, bool *known, mf_error *why)
{
    char path[PATH_CAPACITY], *bytes = NULL;
    struct secret_file file = { 0 };
    size_t count = 0;
    mf_status status = path_join(path, sizeof path, store->directory, SECRET, why);
    if (status == MF_OK)
        status = file_read_maybe_new(&bytes, &count, store->files, path, CACHE_BLOCK, why);
    if (bytes && count == sizeof file) memcpy(&file, bytes, sizeof file);
    free(bytes);
    *known = memcmp(file.magic, MAGIC, sizeof MAGIC) == 0 &&
             file.checksum == checksum_of(&file, offsetof(struct secret_file, checksum));
    if (*known) memcpy(store->secret, file.secret, sizeof store->secret);
    return status;
}

/* ----------------------------------------------------------------- directory */

/* With those above it. */
static mf_status make_directories(struct cache_store *store, mf_error *why)
{
    const struct disk *disk = store->disk;
    char path[PATH_CAPACITY];
    size_t length = strlen(store->directory);
    int result = 0;
    memcpy(path, store->directory, length + 1);
    for (size_t i = 1; i <= length; i++) {
        if (path[i] != '/' && path[i] != '\0') continue;
        path[i] = '\0';
        result = disk->make_directory(disk->user, path);
        path[i] = store->directory[i];
    }
    if (result == 0 || result == -EEXIST) return MF_OK;
    return fail_errno(why, MF_ERR_IO, -result, "%s cannot be made", store->directory);
}

static mf_status take_lock(struct cache_store *store, bool *held, mf_error *why)
{
    const struct disk *disk = store->disk;
    mf_status status = disk_file_open(&store->lock_file, disk, store->directory, LOCK, why);
    if (status != MF_OK) return status;
    int result = disk->lock(disk->user, store->lock_file.handle);
    *held = result == -EWOULDBLOCK;
    if (result == 0 || *held) return MF_OK;
    return fail_errno(why, MF_ERR_IO, -result, "%s cannot be locked", store->lock_file.path);
}

/* The directory of another purpose is left alone. */
static mf_status check_purpose(const struct cache_store *store, mf_error *why)
{
    struct names names;
    mf_status status = look_at_names(&names, store, why);
    free(names.strangers);
    if (status != MF_OK || names.has_secret) return status;
    if (names.has_foreign)
        return fail(why, MF_ERR_MISMATCH,
                    "%.512s has other files and is no cache directory: give an empty one",
                    store->directory);
    if (store->look_only)
        return fail(why, MF_ERR_MISMATCH, "%.512s is no cache directory", store->directory);
    return MF_OK;
}

/* ------------------------------------------------------------------ contents */

/* Without a file a record has no use, nor have those below it, with their files. */
static void drop_tree(struct cache_store *store, struct entry *top)
{
    for (struct entry *leaf = NULL; leaf != top;) {
        leaf = tree_leaf(top);
        if (leaf->found) store_file_remove(store, &leaf->record);
        store->counted.missing++;
        table_remove(&store->table, leaf);
        entry_free(&store->table, leaf);
    }
}

static void drop_missing(struct cache_store *store)
{
    struct table *table = &store->table;
    for (size_t i = 0; i < table->bucket_count; i++)
        for (struct entry *entry = table->buckets[i]; entry;) {
            bool gone = entry->record.kind != CACHE_ROOT && !entry->found;
            if (gone) drop_tree(store, entry);
            entry = gone ? table->buckets[i] : entry->next_in_bucket; /* the list has changed */
        }
}

static void drop_empty_roots(struct cache_store *store)
{
    struct table *table = &store->table;
    for (size_t i = 0; i < table->bucket_count; i++)
        for (struct entry *entry = table->buckets[i], *next; entry; entry = next) {
            next = entry->next_in_bucket;
            if (entry->record.kind != CACHE_ROOT || entry->children) continue;
            table_remove(table, entry);
            entry_free(table, entry);
        }
}

static void remove_strangers(struct cache_store *store, const struct names *names)
{
    char path[PATH_CAPACITY];
    for (size_t i = 0; i < names->count; i++)
        if (path_join(path, sizeof path, store->directory, names->strangers[i].text, NULL) == MF_OK)
            store->disk->remove(store->disk->user, path);
}

static mf_status read_contents(struct cache_store *store, bool *damaged, mf_error *why)
{
    struct names names = { 0 };
    mf_status status = journal_load(store, damaged, why);
    if (status == MF_OK) status = look_at_names(&names, store, why);
    if (status == MF_OK && !store->look_only) {
        remove_strangers(store, &names);
        drop_missing(store);
        drop_empty_roots(store);
    }
    store->counted.strangers = names.count;
    *damaged |= names.count > 0 || store->counted.missing > 0;
    free(names.strangers);
    return status;
}

mf_status store_open_directory(struct cache_store *store, bool *held, mf_error *why)
{
    bool known = false, damaged = false;
    mf_status status = check_purpose(store, why);
    if (status == MF_OK && !store->look_only) status = make_directories(store, why);
    if (status == MF_OK) status = take_lock(store, held, why);
    if (status != MF_OK || *held) return status;
    status = read_secret(store, &known, why);
    if (status == MF_OK && !known && !store->look_only) status = make_secret(store, why);
    if (status == MF_OK) status = read_contents(store, &damaged, why);
    if (status != MF_OK || store->look_only) return status;
    /* A journal that cannot be written now is written later. */
    if (damaged)
        journal_rewrite(store, NULL);
    else
        status = journal_open(store, why);
    if (status == MF_OK) store_make_room(store, 0, 0);
    return status;
}
