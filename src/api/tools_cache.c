/* tools_cache.c: cache directories, looked at from outside a run. */
#include "api/tools.h"

#include "api/handles.h"
#include "base/array.h"
#include "base/status.h"
#include "state/store.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

/* What a callback is given, kept while files are read. */
struct listed_file {
    mf_cached_file shown;
    struct cache_key key;
    uint64_t payload_bytes;
};

struct listing {
    struct listed_file *files;
    size_t count, room;
    mf_status status;
    mf_error *why;
    double now;
};

static void print_key(char out[33], const struct cache_key *key)
{
    for (size_t i = 0; i < sizeof key->bytes; i++) snprintf(out + 2 * i, 3, "%02x", key->bytes[i]);
}

static void add_file(void *user, const struct cache_listed *listed)
{
    struct listing *listing = user;
    const struct cache_record *record = listed->record;
    if (listing->status == MF_OK)
        listing->status =
            ARRAY_RESERVE(listing->files, listing->room, listing->count + 1, NULL, listing->why);
    if (listing->status != MF_OK) return;
    struct listed_file *file = &listing->files[listing->count++];
    *file = (struct listed_file){
        .shown = { .model = listed->label,
                   .checkpoint = record->kind == CACHE_CHECKPOINT,
                   .depth = listed->depth,
                   .position = record->first,
                   .count = record->count,
                   .bytes = listed->file_bytes,
                   .hits = record->hits,
                   .age_seconds = listing->now > record->used ? listing->now - record->used : 0,
                   .problem = listed->missing ? "missing" : NULL },
        .key = record->key,
        .payload_bytes = record->bytes
    };
    print_key(file->shown.root, &record->root);
    print_key(file->shown.key, &record->key);
}

static mf_status list_files(struct listing *out, struct cache_store *store, mf_error *why)
{
    *out = (struct listing){ .status = MF_OK, .why = why, .now = (double)time(NULL) };
    cache_store_list(store, add_file, out);
    return out->status;
}

/* Reads the files; those that are damaged get it noted. */
static void read_files(struct listing *listing, struct cache_store *store)
{
    for (size_t i = 0; i < listing->count; i++) {
        struct listed_file *file = &listing->files[i];
        if (!file->shown.problem && !cache_store_get(NULL, file->payload_bytes, store, &file->key))
            file->shown.problem = "damaged";
    }
}

static mf_status open_store(struct cache_store **out, const char *directory, uint64_t limit_bytes,
                            bool look_only, mf_error *why)
{
    struct cache_store_options options = { .directory = directory,
                                           .limit_bytes = limit_bytes,
                                           .look_only = look_only };
    bool held;
    mf_status status = cache_store_open(out, &held, &options, why);
    if (status == MF_OK && held)
        status = fail(why, MF_ERR_IO, "%.400s is in use by another process", directory);
    return status;
}

static mf_cache_summary summarise(struct cache_store *store, const struct listing *listing)
{
    struct cache_store_statistics s = cache_store_statistics(store);
    mf_cache_summary sum = { .bytes = s.directory_bytes,
                             .bytes_before = s.directory_bytes,
                             .pages = s.pages,
                             .checkpoints = s.checkpoints,
                             .strangers = s.strangers,
                             .evicted = s.evicted };
    for (size_t i = 0; i < listing->count; i++) {
        const char *problem = listing->files[i].shown.problem;
        sum.missing += problem && strcmp(problem, "missing") == 0;
        sum.damaged += problem && strcmp(problem, "damaged") == 0;
    }
    return sum;
}

static mf_status give_summary(mf_cache_summary *out, const mf_cache_summary *sum, mf_error *why)
{
    return out ? api_statistics_out(out, sum, sizeof *sum, "MF_CACHE_SUMMARY_INIT", why) : MF_OK;
}

static mf_status look(mf_cache_summary *out, const char *directory, bool read,
                      mf_cached_file_function function, void *user, mf_error *why)
{
    struct cache_store *store;
    struct listing listing = { 0 };
    if (!directory) return api_missing(why, "directory");
    mf_status status = open_store(&store, directory, UINT64_MAX, true, why);
    if (status != MF_OK) return status;
    status = list_files(&listing, store, why);
    if (status == MF_OK && read) read_files(&listing, store);
    if (status == MF_OK) {
        mf_cache_summary sum = summarise(store, &listing);
        status = give_summary(out, &sum, why);
    }
    for (size_t i = 0; status == MF_OK && function && i < listing.count; i++)
        function(user, &listing.files[i].shown);
    free(listing.files);
    cache_store_close(store); /* the names of models are its own */
    return status;
}

mf_status mf_cache_list(mf_cache_summary *out, const char *directory,
                        mf_cached_file_function function, void *user, mf_error *why)
{
    return look(out, directory, false, function, user, why);
}

mf_status mf_cache_verify(mf_cache_summary *out, const char *directory,
                          mf_cached_file_function function, void *user, mf_error *why)
{
    return look(out, directory, true, function, user, why);
}

mf_status mf_cache_collect(mf_cache_summary *out, const char *directory, uint64_t limit_bytes,
                           mf_error *why)
{
    struct cache_store *store;
    struct listing listing = { 0 };
    mf_cache_summary before = MF_CACHE_SUMMARY_INIT, sum = { 0 };
    mf_status status = mf_cache_list(&before, directory, NULL, NULL, why);
    if (status != MF_OK) return status;
    status = open_store(&store, directory, limit_bytes ? limit_bytes : UINT64_MAX, false, why);
    if (status != MF_OK) return status;
    status = list_files(&listing, store, why);
    if (status == MF_OK) {
        read_files(&listing, store); /* drops what is damaged */
        cache_store_flush(store);
        sum = summarise(store, &listing);
        sum.bytes_before = before.bytes;
        sum.missing = before.missing;
        status = give_summary(out, &sum, why);
    }
    free(listing.files);
    cache_store_close(store);
    return status;
}
