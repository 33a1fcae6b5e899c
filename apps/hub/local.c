#include "hub/local.h"

#include "common/json.h"
#include "common/lists.h"
#include "hub/files.h"
#include "hub/head.h"
#include "hub/ranges.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

enum { DEPTH_LIMIT = 16 };

/* False: it would be too long. */
static bool join(char out[PATH_CAPACITY], const char *directory, const char *name)
{
    return snprintf(out, PATH_CAPACITY, "%s/%s", directory, name) < PATH_CAPACITY;
}

/* --------------------------------------------------------------- snapshots */

/* The blob that a link of a snapshot names; "": it is no such link. */
static void read_blob_name(char out[HUB_HASH_CAPACITY], const char *path)
{
    char target[PATH_CAPACITY];
    ssize_t length = readlink(path, target, sizeof target - 1);

    out[0] = '\0';
    if (length <= 0) return;
    target[length] = '\0';
    const char *slash = strrchr(target, '/');
    if (slash && hub_is_hash(slash + 1)) snprintf(out, HUB_HASH_CAPACITY, "%s", slash + 1);
}

/* All files below `directory`, with names that begin with `prefix`. */
static mf_status add_files(struct hub_listing *out, const char *directory, const char *prefix,
                           unsigned depth, mf_error *why)
{
    DIR *stream = opendir(directory);
    mf_status status = MF_OK;

    if (!stream) return MF_OK; /* not there, or not ours to read */
    for (struct dirent *entry; status == MF_OK && (entry = readdir(stream));) {
        char path[PATH_CAPACITY], name[HUB_FILE_NAME_LIMIT + 1], hash[HUB_HASH_CAPACITY];
        struct stat info, link;
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0) continue;
        int length = snprintf(name, sizeof name, "%s%s", prefix, entry->d_name);
        if (length >= (int)sizeof name || !join(path, directory, entry->d_name)) continue;
        if (lstat(path, &link) != 0 || stat(path, &info) != 0) continue;
        if (S_ISDIR(link.st_mode) && depth < DEPTH_LIMIT && length + 1 < (int)sizeof name) {
            memcpy(name + length, "/", 2);
            status = add_files(out, path, name, depth + 1, why);
        } else if (S_ISREG(info.st_mode)) {
            read_blob_name(hash, path);
            status = hub_listing_add(out, name, (uint64_t)info.st_size, hash, why);
        }
    }
    closedir(stream);
    return status;
}

static mf_status add_snapshot(struct hub_local *local, const char *directory, const char *name,
                              mf_error *why)
{
    char path[PATH_CAPACITY];
    struct stat info;

    if (name[0] == '.' || strlen(name) >= sizeof local->snapshots->commit) return MF_OK;
    if (!join(path, directory, name) || lstat(path, &info) != 0 || !S_ISDIR(info.st_mode))
        return MF_OK;
    mf_status status = list_reserve((void **)&local->snapshots, &local->capacity,
                                    sizeof *local->snapshots, local->count + 1, why);
    if (status != MF_OK) return status;
    struct hub_snapshot *snapshot = &local->snapshots[local->count++];
    *snapshot = (struct hub_snapshot){ .files = { .count = 0 } };
    snprintf(snapshot->commit, sizeof snapshot->commit, "%s", name);
    status = add_files(&snapshot->files, path, "", 0, why);
    return status == MF_OK ? hub_listing_finish(&snapshot->files, why) : status;
}

/* The one that refs/main names; a cache filled by hand may lack it and have one snapshot. */
static size_t find_main(const struct hub_local *local)
{
    char path[PATH_CAPACITY], commit[HUB_HASH_CAPACITY], *text;
    size_t length;

    bool named =
        join(path, local->folder, "refs/main") && hub_read_file_new(&text, &length, path, 4096);
    if (!named) return local->count == 1 ? 0 : local->count;
    if (!hub_read_ref(commit, text, length)) {
        /* A commit's name of another kind: compare it as it is. */
        text[strcspn(text, " \r\n")] = '\0';
        snprintf(commit, sizeof commit, "%.64s", text);
    }
    free(text);
    for (size_t i = 0; i < local->count; i++) {
        if (strcmp(local->snapshots[i].commit, commit) == 0) return i;
    }
    return local->count;
}

/* What the record beside an incomplete blob says is there; false: there is none. */
static bool read_written(uint64_t *out, const char *incomplete)
{
    static const char ending[] = ".moeflux.incomplete";
    char record[PATH_CAPACITY], hash[HUB_HASH_CAPACITY];
    size_t length = strlen(incomplete), tail = sizeof ending - 1, size = 0;
    struct hub_ranges ranges = { NULL, 0, 0 };
    unsigned long long bytes;
    char *text = NULL;

    if (length < tail || strcmp(incomplete + length - tail, ending) != 0) return false;
    *out = 0; /* what is not recorded is downloaded again */
    snprintf(record, sizeof record, "%.*s.moeflux.ranges", (int)min_size(length - tail, 4000),
             incomplete);
    if (hub_read_file_new(&text, &size, record, 16 << 20) &&
        sscanf(text, "moeflux ranges 1\n%64[0-9a-f] %llu\n", hash, &bytes) == 2 &&
        hub_ranges_read(&ranges, text, size, hash, bytes))
        *out = hub_ranges_sum(&ranges);
    hub_ranges_free(&ranges);
    free(text);
    return true;
}

static bool is_linked(const struct hub_local *local, const char *hash)
{
    for (size_t i = 0; i < local->count; i++) {
        const struct hub_listing *files = &local->snapshots[i].files;
        for (size_t f = 0; f < files->count; f++) {
            if (strcmp(files->files[f].hash, hash) == 0) return true;
        }
    }
    return false;
}

/* A blob is linked when all files of its model are there.  Beside a snapshot it may as well be one
 * that another tool has left. */
static void count_unlinked_blob(struct hub_local *local, const struct stat *info)
{
    local->reserved_bytes += (uint64_t)info->st_size;
    if (local->count > 0) return;
    local->incomplete_bytes += (uint64_t)info->st_size;
    local->incomplete_count++;
}

/* Blocks may be reserved ahead of what is written. */
static void count_incomplete(struct hub_local *local)
{
    char directory[PATH_CAPACITY], path[PATH_CAPACITY];
    struct stat info;
    const uint64_t block = 512;

    if (!join(directory, local->folder, "blobs")) return;
    DIR *stream = opendir(directory);
    if (!stream) return;
    for (struct dirent *entry; (entry = readdir(stream));) {
        size_t length = strlen(entry->d_name);
        uint64_t written, blocks;
        bool whole = hub_is_hash(entry->d_name);
        if (whole && is_linked(local, entry->d_name)) continue;
        if (!whole && (length < 11 || strcmp(entry->d_name + length - 11, ".incomplete") != 0))
            continue;
        if (!join(path, directory, entry->d_name) || lstat(path, &info) != 0) continue;
        if (whole) {
            count_unlinked_blob(local, &info);
            continue;
        }
        blocks = (uint64_t)info.st_blocks * block;
        if (!read_written(&written, path)) written = min_size(blocks, (uint64_t)info.st_size);
        local->incomplete_bytes += written;
        local->reserved_bytes += blocks;
        local->incomplete_count++;
    }
    closedir(stream);
}

mf_status hub_local_read(struct hub_local *out, const char *cache, const char *repository,
                         mf_error *why)
{
    char folder[HUB_REPOSITORY_CAPACITY + 32], snapshots[PATH_CAPACITY];
    mf_status status = MF_OK;

    *out = (struct hub_local){ .count = 0 };
    hub_folder_name(folder, sizeof folder, repository);
    snprintf(out->repository, sizeof out->repository, "%s", repository);
    if (!join(out->folder, cache, folder) || !join(snapshots, out->folder, "snapshots")) {
        return fail(why, MF_ERR_ARGUMENT, "the path of the Hugging Face cache is too long");
    }
    DIR *stream = opendir(snapshots);
    for (struct dirent *entry; stream && status == MF_OK && (entry = readdir(stream));) {
        status = add_snapshot(out, snapshots, entry->d_name, why);
    }
    if (stream) closedir(stream);
    if (status != MF_OK) {
        hub_local_free(out);
        return status;
    }
    out->main = find_main(out);
    count_incomplete(out);
    return MF_OK;
}

void hub_local_free(struct hub_local *local)
{
    for (size_t i = 0; i < local->count; i++) hub_listing_free(&local->snapshots[i].files);
    free(local->snapshots);
    local->snapshots = NULL;
    local->count = local->capacity = local->main = 0;
}

const struct hub_listing *hub_local_main(const struct hub_local *local)
{
    return local->main < local->count ? &local->snapshots[local->main].files : NULL;
}

/* --------------------------------------------------------------- the cache */

static int select_models(const struct dirent *entry)
{
    return strncmp(entry->d_name, "models--", 8) == 0;
}

mf_status hub_local_visit(const char *cache, bool (*take)(void *user, const char *repository),
                          void *user, mf_error *why)
{
    struct dirent **entries = NULL;
    int count = scandir(cache, &entries, select_models, alphasort);
    bool more = true;

    if (count < 0 && errno != ENOENT) {
        return fail_errno(why, MF_ERR_IO, errno, "the cache %.256s cannot be read", cache);
    }
    for (int i = 0; i < count; i++) {
        char name[HUB_REPOSITORY_CAPACITY];
        const char *from = entries[i]->d_name + 8, *between = strstr(from, "--");
        int owner = between ? (int)(between - from) : (int)strlen(from);
        int length = snprintf(name, sizeof name, "%.*s%s%s", owner, from, between ? "/" : "",
                              between ? between + 2 : "");
        if (more && length < (int)sizeof name) more = take(user, name);
        free(entries[i]);
    }
    free(entries);
    return MF_OK;
}

/* -------------------------------------------------------------- completeness */

static bool has_file(const struct hub_listing *listing, const char *path)
{
    size_t low = 0, high = listing->count;

    while (low < high) {
        size_t middle = low + (high - low) / 2;
        int order = strcmp(listing->files[middle].path, path);
        if (order == 0) return true;
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return false;
}

/* Files that the index of a safetensors checkpoint names and the snapshot lacks; an index that cannot
 * be read counts as one. */
static size_t count_unlinked(const struct hub_listing *listing, const char *text, size_t length)
{
    json_t *index = NULL, *value, *missing = json_object();
    const char *tensor;
    size_t count = 1;

    json_text_read_new(&index, text, length, HUB_WEIGHTS_INDEX, NULL);
    json_t *map = json_object_get(index, "weight_map");
    if (missing && json_is_object(map)) {
        json_object_foreach(map, tensor, value)
        {
            const char *file = json_string_value(value);
            if (!file || !has_file(listing, file))
                json_object_set_new(missing, file ? file : "", json_true());
        }
        count = json_object_size(missing);
    }
    json_decref(index);
    json_decref(missing);
    return count;
}

mf_status hub_local_candidates(struct hub_candidates *out, const struct hub_local *local,
                               mf_error *why)
{
    enum { INDEX_LIMIT = 256 << 20 };
    const struct hub_listing *listing = hub_local_main(local);
    char path[PATH_CAPACITY];

    *out = (struct hub_candidates){ NULL, 0, 0 };
    if (!listing) return MF_OK;
    mf_status status = hub_candidates_find(out, listing, why);
    for (size_t i = 0; status == MF_OK && i < out->count; i++) {
        char *text;
        size_t length;
        if (out->items[i].gguf || !has_file(listing, HUB_WEIGHTS_INDEX)) continue;
        snprintf(path, sizeof path, "%.3500s/snapshots/%s/" HUB_WEIGHTS_INDEX, local->folder,
                 local->snapshots[local->main].commit);
        if (!hub_read_file_new(&text, &length, path, INDEX_LIMIT)) continue;
        out->items[i].missing_files = count_unlinked(listing, text, length);
        free(text);
    }
    return status;
}

/* -------------------------------------------------------------------- name */

static mf_status find_candidate(bool *found, char path[PATH_CAPACITY],
                                const struct hub_local *local,
                                const struct hub_candidates *candidates,
                                const struct hub_name *name, mf_error *why)
{
    const struct hub_candidate *candidate = NULL;
    const struct hub_snapshot *snapshot = &local->snapshots[local->main];
    size_t models = 0, complete = 0;

    *found = false;
    path[0] = '\0';
    for (size_t i = 0; i < candidates->count; i++) {
        models += candidates->items[i].gguf;
        complete += hub_candidate_check(&candidates->items[i], NULL) == MF_OK;
    }
    if (!name->quantisation[0]) {
        *found = complete > 0;
        if (models < 2) return MF_OK;
        return fail(why, MF_ERR_ARGUMENT,
                    "the cache has %zu quantisations of %.128s: say which one, as in %.128s:%.64s",
                    models, name->repository, name->repository, candidates->items[0].label);
    }
    if (hub_choose_named(&candidate, candidates, name->quantisation, NULL) != MF_OK ||
        hub_candidate_check(candidate, NULL) != MF_OK) {
        return MF_OK;
    }
    *found = true;
    if (!candidate->gguf) return MF_OK;
    int length = snprintf(path, PATH_CAPACITY, "%s/snapshots/%s/%s", local->folder,
                          snapshot->commit, snapshot->files.files[candidate->files[0]].path);
    if (length < PATH_CAPACITY) return MF_OK;
    return fail(why, MF_ERR_ARGUMENT, "the path of the Hugging Face cache is too long");
}

mf_status hub_local_find(bool *found, char path[PATH_CAPACITY], const char *cache,
                         const struct hub_name *name, mf_error *why)
{
    struct hub_local local;
    struct hub_candidates candidates = { NULL, 0, 0 };

    *found = false;
    path[0] = '\0';
    mf_status status = hub_local_read(&local, cache, name->repository, why);
    if (status != MF_OK) return status;
    if (hub_local_main(&local)) {
        status = hub_local_candidates(&candidates, &local, why);
        if (status == MF_OK) status = find_candidate(found, path, &local, &candidates, name, why);
    }
    hub_candidates_free(&candidates);
    hub_local_free(&local);
    return status;
}
