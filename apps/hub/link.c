#include "hub/link.h"

#include "hub/files.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

/* MF_OK with the lock; it waits a moment for another process. */
static mf_status take_repository_lock(int *out, const char *cache, const char *repository,
                                      mf_error *why)
{
    enum { ATTEMPTS = 100, WAIT_MICROSECONDS = 50000 };
    char folder[HUB_REPOSITORY_CAPACITY + 32], path[PATH_CAPACITY];

    *out = -1;
    hub_folder_name(folder, sizeof folder, repository);
    if (snprintf(path, sizeof path, "%s/.locks/%s/moeflux.lock", cache, folder) >= PATH_CAPACITY)
        return fail(why, MF_ERR_ARGUMENT, "the path of the Hugging Face cache is too long");
    for (int i = 0; i < ATTEMPTS; i++) {
        mf_status status = hub_take_lock(out, path, why);
        if (status != MF_OK || *out >= 0) return status;
        usleep(WAIT_MICROSECONDS);
    }
    return fail(why, MF_ERR_IO, "another process changes %.128s in the cache; try again",
                repository);
}

/* ----------------------------------------------------------------- linking */

/* A link that other tools made has the same target, or is replaced. */
static mf_status link_file(const char *folder, const char *commit, const struct hub_file *file,
                           mf_error *why)
{
    char path[PATH_CAPACITY], target[PATH_CAPACITY], found[PATH_CAPACITY], temporary[PATH_CAPACITY];
    size_t used = 0;

    if (snprintf(path, sizeof path, "%s/snapshots/%s/%s", folder, commit, file->path) >=
        PATH_CAPACITY)
        return fail(why, MF_ERR_ARGUMENT, "the path of %.128s is too long", file->path);
    /* As many steps up as there are directories below the repository's. */
    target[0] = '\0';
    for (const char *at = file->path; at && used + 80 < sizeof target; at = strchr(at, '/')) {
        used += (size_t)snprintf(target + used, sizeof target - used, "../");
        at++;
    }
    snprintf(target + used, sizeof target - used, "../blobs/%s", file->hash);
    snprintf(temporary, sizeof temporary, "%.3900s/blobs/%s", folder, file->hash);
    if (access(temporary, F_OK) != 0) {
        return fail(why, MF_ERR_IO,
                    "%.128s was removed by another process; run the same command again",
                    file->path);
    }
    ssize_t length = readlink(path, found, sizeof found - 1);
    if (length > 0) {
        found[length] = '\0';
        if (strcmp(found, target) == 0) return MF_OK;
    }
    mf_status status = hub_make_directories(path, why);
    if (status != MF_OK) return status;
    snprintf(temporary, sizeof temporary, "%.3900s/moeflux.link", folder);
    unlink(temporary);
    if (symlink(target, temporary) != 0 || rename(temporary, path) != 0) {
        status = fail_errno(why, MF_ERR_IO, errno, "%.256s cannot be linked", path);
        unlink(temporary);
    }
    return status;
}

static mf_status set_main(const char *folder, const char *commit, mf_error *why)
{
    char path[PATH_CAPACITY];

    if (snprintf(path, sizeof path, "%s/refs/main", folder) >= PATH_CAPACITY)
        return fail(why, MF_ERR_ARGUMENT, "the path of the Hugging Face cache is too long");
    mf_status status = hub_make_directories(path, why);
    return status == MF_OK ? hub_replace_file(path, commit, strlen(commit), why) : status;
}

mf_status hub_link(const char *cache, const char *repository, const struct hub_listing *listing,
                   const size_t *files, size_t count, mf_error *why)
{
    char name[HUB_REPOSITORY_CAPACITY + 32], folder[PATH_CAPACITY];
    int lock;

    hub_folder_name(name, sizeof name, repository);
    if (snprintf(folder, sizeof folder, "%s/%s", cache, name) >= PATH_CAPACITY)
        return fail(why, MF_ERR_ARGUMENT, "the path of the Hugging Face cache is too long");
    mf_status status = take_repository_lock(&lock, cache, repository, why);
    if (status != MF_OK) return status;
    for (size_t i = 0; status == MF_OK && i < count; i++)
        status = link_file(folder, listing->commit, &listing->files[files[i]], why);
    if (status == MF_OK) status = set_main(folder, listing->commit, why);
    close(lock);
    return status;
}

/* ---------------------------------------------------------------- removing */

/* Whether a link that stays has the same blob, or an earlier one that goes: then its bytes are not
 * free, or counted already. */
static bool is_counted(const struct hub_removal *removal, size_t index)
{
    const char *hash = removal->links[index].file->hash;

    for (size_t i = 0; hash[0] && i < removal->link_count; i++) {
        const struct hub_link_entry *other = &removal->links[i];
        if (i == index || strcmp(other->file->hash, hash) != 0) continue;
        if (!other->goes || i < index) return true;
    }
    return false;
}

/* Whether a link that stays has the blob. */
static bool is_needed(const struct hub_removal *removal, const char *hash)
{
    for (size_t i = 0; i < removal->link_count; i++) {
        const struct hub_link_entry *other = &removal->links[i];
        if (!other->goes && strcmp(other->file->hash, hash) == 0) return true;
    }
    return false;
}

/* What the quantisation of a name means in all snapshots. */
struct marking {
    struct hub_removal *removal;
    enum hub_fit best;
    char label[HUB_QUANTISATION_CAPACITY]; /* of the first candidate that fits best */
    bool several;                          /* others that fit as well have another label */
    mf_error why;                          /* of a snapshot that has no such model, or several */
};

static void look_for_best(struct marking *marking, const struct hub_candidates *candidates)
{
    const char *name = marking->removal->name.quantisation;

    for (size_t i = 0; i < candidates->count; i++) {
        const struct hub_candidate *candidate = &candidates->items[i];
        enum hub_fit fit = hub_candidate_fit(candidate, name);
        if (fit == HUB_FIT_NONE || fit < marking->best) continue;
        if (fit > marking->best) {
            marking->best = fit;
            marking->several = false;
            snprintf(marking->label, sizeof marking->label, "%s", candidate->label);
        } else if (strcmp(candidate->label, marking->label) != 0) {
            marking->several = true;
        }
    }
}

/* Marks the files of the candidate that the name means; `links` are the snapshot's. */
static void mark_files(struct marking *marking, const struct hub_candidates *candidates,
                       struct hub_link_entry *links)
{
    const char *name = marking->removal->name.quantisation;
    const struct hub_candidate *candidate = NULL;
    mf_error why = { .text = "" };

    if (hub_choose_named(&candidate, candidates, name, &why) != MF_OK) {
        marking->why = why;
        return;
    }
    if (hub_candidate_fit(candidate, name) != marking->best) return;
    for (size_t f = 0; f < candidate->file_count; f++) links[candidate->files[f]].goes = true;
}

static mf_status visit_snapshots(struct marking *marking, bool mark, mf_error *why)
{
    const struct hub_local *local = marking->removal->local;
    struct hub_link_entry *links = marking->removal->links;

    for (size_t i = 0; i < local->count; i++) {
        struct hub_candidates candidates;
        mf_status status = hub_candidates_find(&candidates, &local->snapshots[i].files, why);
        if (status != MF_OK) return status;
        if (mark)
            mark_files(marking, &candidates, links);
        else
            look_for_best(marking, &candidates);
        hub_candidates_free(&candidates);
        links += local->snapshots[i].files.count;
    }
    return MF_OK;
}

/* Marks the files of one quantisation in every snapshot that has it.  A part of a name is not enough:
 * it may mean another quantisation in each snapshot. */
static mf_status mark_named(struct hub_removal *out, mf_error *why)
{
    struct marking marking = { .removal = out, .why = { .text = "" } };
    const char *repository = out->name.repository, *name = out->name.quantisation;
    bool any = false;

    mf_status status = visit_snapshots(&marking, false, why);
    if (status == MF_OK && marking.best > HUB_FIT_PART && !marking.several)
        status = visit_snapshots(&marking, true, why);
    for (size_t i = 0; i < out->link_count; i++) any |= out->links[i].goes;
    if (status != MF_OK || any) return status;
    if (marking.best == HUB_FIT_PART || marking.several)
        return fail(why, MF_ERR_ARGUMENT,
                    "%.128s in the cache: \"%.64s\" is a part of a name; say the whole "
                    "quantisation, as in %.64s",
                    repository, name, marking.label);
    visit_snapshots(&marking, true, NULL); /* says what there is */
    return fail(why, MF_ERR_ARGUMENT, "%.128s in the cache: %.300s", repository,
                marking.why.text[0] ? marking.why.text
                                    : "it has no model; `moeflux rm` of it without a quantisation "
                                      "removes what a download has left");
}

static mf_status list_links(struct hub_removal *out, mf_error *why)
{
    size_t count = 0;

    for (size_t i = 0; i < out->local->count; i++) count += out->local->snapshots[i].files.count;
    out->links = calloc(count + 1, sizeof *out->links);
    if (!out->links) return fail_memory(why, (count + 1) * sizeof *out->links);
    for (size_t i = 0; i < out->local->count; i++) {
        const struct hub_snapshot *snapshot = &out->local->snapshots[i];
        for (size_t f = 0; f < snapshot->files.count; f++) {
            out->links[out->link_count++] =
                (struct hub_link_entry){ snapshot, &snapshot->files.files[f], out->whole };
        }
    }
    return MF_OK;
}

mf_status hub_removal_plan(struct hub_removal *out, struct hub_local *local,
                           const struct hub_name *name, mf_error *why)
{
    struct stat info;

    *out = (struct hub_removal){ .local = local, .name = *name, .whole = !name->quantisation[0] };
    if (lstat(local->folder, &info) != 0 || !S_ISDIR(info.st_mode)) {
        return fail(why, MF_ERR_ARGUMENT,
                    "%.128s is not in the cache; `moeflux list` shows what is", name->repository);
    }
    mf_status status = list_links(out, why);
    if (status == MF_OK && !out->whole) status = mark_named(out, why);
    for (size_t i = 0; status == MF_OK && i < out->link_count; i++) {
        if (out->links[i].goes && !is_counted(out, i)) out->bytes += out->links[i].file->size;
    }
    if (out->whole) out->bytes += local->reserved_bytes;
    if (status != MF_OK) hub_removal_free(out);
    return status;
}

void hub_removal_free(struct hub_removal *removal)
{
    free(removal->links);
    removal->links = NULL;
}

/* Everything below a directory, without following a link out of it. */
static bool remove_tree(int parent, const char *name)
{
    int descriptor = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *stream = descriptor >= 0 ? fdopendir(descriptor) : NULL;
    bool good = true;

    if (!stream) {
        if (descriptor >= 0) close(descriptor);
        return unlinkat(parent, name, 0) == 0 || errno == ENOENT;
    }
    for (struct dirent *entry; (entry = readdir(stream));) {
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0) continue;
        if (unlinkat(descriptor, entry->d_name, 0) == 0) continue;
        good &= remove_tree(descriptor, entry->d_name);
    }
    closedir(stream);
    return unlinkat(parent, name, AT_REMOVEDIR) == 0 && good;
}

/* Removes the directories that a link leaves empty, up to the snapshot. */
static void remove_empty(char *path, size_t keep)
{
    for (char *slash = strrchr(path, '/'); slash && (size_t)(slash - path) > keep;
         slash = strrchr(path, '/')) {
        *slash = '\0';
        if (rmdir(path) != 0) return;
    }
}

static mf_status remove_links(const struct hub_removal *removal, mf_error *why)
{
    char path[PATH_CAPACITY];

    for (size_t i = 0; i < removal->link_count; i++) {
        const struct hub_snapshot *snapshot = removal->links[i].snapshot;
        const struct hub_file *file = removal->links[i].file;
        if (!removal->links[i].goes) continue;
        int keep = snprintf(path, sizeof path, "%s/snapshots", removal->local->folder);
        if (snprintf(path + keep, sizeof path - (size_t)keep, "/%s/%s", snapshot->commit,
                     file->path) >= PATH_CAPACITY - keep)
            continue;
        if (unlink(path) != 0 && errno != ENOENT)
            return fail_errno(why, MF_ERR_IO, errno, "%.256s cannot be removed", path);
        remove_empty(path, (size_t)keep);
        if (!file->hash[0] || is_needed(removal, file->hash)) continue;
        snprintf(path, sizeof path, "%.3900s/blobs/%s", removal->local->folder, file->hash);
        if (unlink(path) != 0 && errno != ENOENT)
            return fail_errno(why, MF_ERR_IO, errno, "%.256s cannot be removed", path);
    }
    return MF_OK;
}

/* Whether a process holds the lock of a file that it downloads. */
static bool is_downloaded_now(const char *locks)
{
    DIR *stream = opendir(locks);
    bool busy = false;

    if (!stream) return false;
    for (struct dirent *entry; !busy && (entry = readdir(stream));) {
        char path[PATH_CAPACITY];
        size_t length = strlen(entry->d_name);
        int lock = -1;
        if (length != 45 && length != 69) continue; /* HASH.lock */
        if (snprintf(path, sizeof path, "%s/%s", locks, entry->d_name) >= PATH_CAPACITY) continue;
        if (hub_take_lock(&lock, path, NULL) == MF_OK && lock < 0) busy = true;
        if (lock >= 0) close(lock);
    }
    closedir(stream);
    return busy;
}

static bool same_link(const struct hub_link_entry *a, const struct hub_link_entry *b)
{
    return a->goes == b->goes && strcmp(a->snapshot->commit, b->snapshot->commit) == 0 &&
           strcmp(a->file->path, b->file->path) == 0 && strcmp(a->file->hash, b->file->hash) == 0;
}

static bool same_removal(const struct hub_removal *a, const struct hub_removal *b)
{
    if (a->link_count != b->link_count || a->bytes != b->bytes) return false;
    for (size_t i = 0; i < a->link_count; i++) {
        if (!same_link(&a->links[i], &b->links[i])) return false;
    }
    return true;
}

static mf_status remove_all(const struct hub_removal *removal, mf_error *why)
{
    if (!removal->whole) return remove_links(removal, why);
    if (remove_tree(AT_FDCWD, removal->local->folder)) return MF_OK;
    return fail_errno(why, MF_ERR_IO, errno, "%.256s cannot be removed", removal->local->folder);
}

/* The plan was made before the question, without the lock: it must still be what there is. */
static mf_status remove_as_planned(const struct hub_removal *removal, const char *cache,
                                   mf_error *why)
{
    struct hub_local local;
    struct hub_removal now;
    mf_status status = hub_local_read(&local, cache, removal->name.repository, why);

    if (status != MF_OK) return status;
    status = hub_removal_plan(&now, &local, &removal->name, why);
    if (status == MF_OK && !same_removal(removal, &now)) {
        status =
            fail(why, MF_ERR_IO,
                 "%.128s has changed in the cache since then, and nothing was removed; run the "
                 "same command again",
                 removal->name.repository);
    }
    if (status == MF_OK) status = remove_all(&now, why);
    hub_removal_free(&now);
    hub_local_free(&local);
    return status;
}

mf_status hub_removal_run(const struct hub_removal *removal, const char *cache, mf_error *why)
{
    char folder[HUB_REPOSITORY_CAPACITY + 32], locks[PATH_CAPACITY];
    const char *repository = removal->name.repository;
    int lock;
    mf_status status = take_repository_lock(&lock, cache, repository, why);

    if (status != MF_OK) return status;
    hub_folder_name(folder, sizeof folder, repository);
    snprintf(locks, sizeof locks, "%.3800s/.locks/%s", cache, folder);
    if (is_downloaded_now(locks)) {
        status = fail(why, MF_ERR_IO, "another process downloads %.128s: end it first", repository);
    } else {
        status = remove_as_planned(removal, cache, why);
    }
    close(lock);
    return status;
}
