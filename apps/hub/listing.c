#include "hub/listing.h"

#include "common/json.h"
#include "common/lists.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

enum { FILES_LIMIT = 100000 };

mf_status hub_listing_read_revision(struct hub_listing *listing, const char *text, size_t length,
                                    mf_error *why)
{
    json_t *answer;
    mf_status status = json_text_read_new(&answer, text, length, "the hub's answer", why);

    if (status != MF_OK) return status;
    const char *commit = json_string_value(json_object_get(answer, "sha"));
    if (commit && hub_is_hash(commit)) {
        snprintf(listing->commit, sizeof listing->commit, "%s", commit);
    } else {
        status = fail(why, MF_ERR_FORMAT,
                      "the hub's answer names no commit: is it a Hugging Face "
                      "hub (HF_ENDPOINT)?");
    }
    json_decref(answer);
    return status;
}

mf_status hub_listing_add(struct hub_listing *listing, const char *path, uint64_t size,
                          const char *hash, mf_error *why)
{
    mf_status status = list_reserve((void **)&listing->files, &listing->capacity,
                                    sizeof *listing->files, listing->count + 1, why);

    if (status != MF_OK) return status;
    struct hub_file *file = &listing->files[listing->count];
    *file = (struct hub_file){ .path = strdup(path), .size = size };
    if (!file->path) return fail_memory(why, strlen(path) + 1);
    snprintf(file->hash, sizeof file->hash, "%s", hash);
    listing->count++;
    return MF_OK;
}

/* A size that a file can have; false: it is none. */
static bool read_size(uint64_t *out, const json_t *object)
{
    const json_t *size = json_object_get(object, "size");

    if (!json_is_integer(size) || json_integer_value(size) < 0) return false;
    *out = (uint64_t)json_integer_value(size);
    return *out < (uint64_t)1 << 60;
}

static mf_status add_entry(struct hub_listing *listing, const json_t *entry, mf_error *why)
{
    const json_t *path = json_object_get(entry, "path"), *lfs = json_object_get(entry, "lfs");
    const char *type = json_string_value(json_object_get(entry, "type"));
    const json_t *content = json_is_object(lfs) ? lfs : entry;
    const char *hash = json_string_value(json_object_get(content, "oid"));
    uint64_t size = 0;

    if (type && strcmp(type, "file") != 0) return MF_OK; /* a directory */
    if (!json_is_string(path)) {
        return fail(why, MF_ERR_FORMAT, "the hub lists a file without a name");
    }
    const char *name = json_string_value(path);
    if (!hub_file_name_is_safe(name, json_string_length(path))) {
        return fail(why, MF_ERR_FORMAT,
                    "the hub lists a file with the name \"%.128s\", which cannot be a file of the "
                    "cache; nothing is downloaded",
                    name);
    }
    if (!hash || !hub_is_hash(hash) || (content == lfs && strlen(hash) != 64)) {
        return fail(why, MF_ERR_FORMAT, "the hub lists %.128s without a hash to check it by", name);
    }
    if (!read_size(&size, content)) {
        return fail(why, MF_ERR_FORMAT, "the hub lists %.128s without its size", name);
    }
    if (listing->count == FILES_LIMIT) {
        return fail(why, MF_ERR_UNSUPPORTED, "the repository has more than %d files", FILES_LIMIT);
    }
    return hub_listing_add(listing, name, size, hash, why);
}

mf_status hub_listing_add_page(struct hub_listing *listing, const char *text, size_t length,
                               mf_error *why)
{
    json_t *page;
    mf_status status = json_text_read_new(&page, text, length, "the hub's list of files", why);

    if (status != MF_OK) return status;
    if (!json_is_array(page)) {
        status = fail(why, MF_ERR_FORMAT, "the hub's list of files is %s, an array was expected",
                      json_type_name(page));
    }
    for (size_t i = 0; status == MF_OK && i < json_array_size(page); i++) {
        status = add_entry(listing, json_array_get(page, i), why);
    }
    json_decref(page);
    return status;
}

static int by_path(const void *a, const void *b)
{
    return strcmp(((const struct hub_file *)a)->path, ((const struct hub_file *)b)->path);
}

/* Whether a file of the listing has the name of a directory that `path` lies in. */
static bool lies_in_a_file(const struct hub_listing *listing, const char *path)
{
    char parent[HUB_FILE_NAME_LIMIT + 1];
    struct hub_file key = { .path = parent };

    for (const char *slash = strchr(path, '/'); slash; slash = strchr(slash + 1, '/')) {
        snprintf(parent, sizeof parent, "%.*s", (int)(slash - path), path);
        if (bsearch(&key, listing->files, listing->count, sizeof key, by_path)) return true;
    }
    return false;
}

mf_status hub_listing_finish(struct hub_listing *listing, mf_error *why)
{
    uint64_t sum = 0;

    if (listing->count == 0) return MF_OK;
    qsort(listing->files, listing->count, sizeof *listing->files, by_path);
    for (size_t i = 0; i < listing->count; i++) {
        const char *path = listing->files[i].path;
        if (!checked_add(&sum, sum, listing->files[i].size))
            return fail(why, MF_ERR_FORMAT, "the hub lists more bytes than 64 bits can count");
        if (i > 0 && strcmp(path, listing->files[i - 1].path) == 0) {
            return fail(why, MF_ERR_FORMAT, "the hub lists %.128s twice; nothing is downloaded",
                        path);
        }
        if (lies_in_a_file(listing, path)) {
            return fail(why, MF_ERR_FORMAT,
                        "the hub lists %.128s inside of a file; nothing is downloaded", path);
        }
    }
    return MF_OK;
}

void hub_listing_free(struct hub_listing *listing)
{
    for (size_t i = 0; i < listing->count; i++) free(listing->files[i].path);
    free(listing->files);
    *listing = (struct hub_listing){ .count = 0 };
}
