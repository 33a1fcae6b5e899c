#include "hub/pull.h"

#include "hub/blob.h"
#include "hub/download.h"
#include "hub/files.h"
#include "hub/link.h"
#include "moeflux_tools.h"

#include <stdio.h>
#include <unistd.h>

enum { CONNECTIONS = 8, IDLE_SECONDS = 30, FILES_LIMIT = 4096 };
static const uint64_t spare_bytes = 64 << 20; /* that a download leaves free */

uint64_t hub_memory_bytes(void)
{
    long pages = sysconf(_SC_PHYS_PAGES), size = sysconf(_SC_PAGESIZE);
    uint64_t bytes = pages > 0 && size > 0 ? (uint64_t)pages * (uint64_t)size : (uint64_t)8 << 30;
    mf_machine_limits limits = MF_MACHINE_LIMITS_INIT;

    if (mf_machine_get_limits(&limits, NULL) == MF_OK && limits.memory_bytes > 0)
        bytes = min_size(bytes, limits.memory_bytes);
    return bytes;
}

uint64_t hub_room_bytes(const char *cache)
{
    uint64_t bytes = hub_disk_free(cache);

    return bytes > spare_bytes ? bytes - spare_bytes : 0;
}

static mf_status count_missing(struct hub_candidate *candidate, const struct hub_listing *listing,
                               const char *cache, const char *repository, mf_error *why)
{
    candidate->missing_bytes = candidate->disk_bytes = 0;
    for (size_t i = 0; i < candidate->file_count; i++) {
        const struct hub_file *file = &listing->files[candidate->files[i]];
        struct hub_blob blob;
        mf_status status = hub_blob_name(&blob, file, cache, repository, why);
        if (status != MF_OK) return status;
        if (hub_blob_is_there(&blob)) continue;
        uint64_t allocated = hub_blob_allocated(&blob);
        candidate->missing_bytes += file->size;
        candidate->disk_bytes += file->size > allocated ? file->size - allocated : 0;
    }
    return MF_OK;
}

mf_status hub_count_missing(struct hub_candidates *candidates, const struct hub_listing *listing,
                            const char *cache, const char *repository, mf_error *why)
{
    mf_status status = MF_OK;

    for (size_t i = 0; status == MF_OK && i < candidates->count; i++)
        status = count_missing(&candidates->items[i], listing, cache, repository, why);
    return status;
}

static mf_status check_disk(const struct hub_pull *pull, uint64_t needed, mf_error *why)
{
    if (needed == 0 ||
        (pull->disk_bytes >= spare_bytes && needed <= pull->disk_bytes - spare_bytes))
        return MF_OK;
    return fail(why, MF_ERR_IO,
                "%.128s needs %.1f GiB on the disk of %.200s, and %.1f GiB are free: make room, "
                "name a smaller quantisation, or set HF_HOME to another disk",
                pull->name.repository, (double)needed / 0x1p30, pull->settings.cache,
                (double)pull->disk_bytes / 0x1p30);
}

static mf_status choose_one(struct hub_pull *pull, uint64_t memory, mf_error *why)
{
    mf_status status;

    if (pull->name.quantisation[0]) {
        status = hub_choose_named(&pull->chosen, &pull->candidates, pull->name.quantisation, why);
    } else {
        status = hub_choose_best(&pull->chosen, &pull->reason, &pull->candidates,
                                 memory ? memory : hub_memory_bytes(),
                                 hub_room_bytes(pull->settings.cache), why);
    }
    if (status == MF_OK) status = hub_candidate_check(pull->chosen, why);
    if (status == MF_OK && pull->chosen->file_count > FILES_LIMIT) {
        status = fail(why, MF_ERR_UNSUPPORTED, "%.128s has more than %d files",
                      pull->name.repository, FILES_LIMIT);
    }
    return status == MF_OK ? check_disk(pull, pull->chosen->disk_bytes, why) : status;
}

static mf_status choose(struct hub_pull *pull, const struct hub_pull_options *options,
                        mf_error *why)
{
    mf_status status = hub_candidates_find(&pull->candidates, &pull->listing, why);

    if (status == MF_OK) {
        status = hub_count_missing(&pull->candidates, &pull->listing, pull->settings.cache,
                                   pull->name.repository, why);
    }
    if (status != MF_OK) return status;
    if (!options->list || pull->candidates.count == 0)
        return choose_one(pull, options->memory_bytes, why);
    if (choose_one(pull, options->memory_bytes, &pull->none) != MF_OK) pull->chosen = NULL;
    return MF_OK;
}

static mf_status open_parts(struct hub_pull *out, const struct hub_pull_options *options,
                            mf_error *why)
{
    if (!hub_name_parse(&out->name, options->name)) {
        return fail(why, MF_ERR_ARGUMENT,
                    "\"%.128s\" is no name of a model: it is ORG/NAME or ORG/NAME:QUANT",
                    options->name);
    }
    mf_status status = hub_settings_read(&out->settings, why);
    if (status != MF_OK) return status;
    if (out->settings.offline) {
        return fail(why, MF_ERR_IO, "HF_HUB_OFFLINE is set: nothing is downloaded");
    }
    if (!out->settings.cache[0]) {
        return fail(why, MF_ERR_IO, "there is no place for the cache: set HF_HOME");
    }
    out->observer = *options->observer;
    out->client = (struct hub_client){ .settings = &out->settings,
                                       .observer = &out->observer,
                                       .repository = out->name.repository };
    unsigned idle = options->idle_seconds ? options->idle_seconds : IDLE_SECONDS;
    status = transport_open(&out->client.transport, &out->settings, idle, why);
    if (status == MF_OK) status = hub_list(&out->listing, &out->client, why);
    if (status != MF_OK) return status;
    out->disk_bytes = hub_disk_free(out->settings.cache);
    return choose(out, options, why);
}

mf_status hub_pull_open(struct hub_pull *out, const struct hub_pull_options *options, mf_error *why)
{
    *out = (struct hub_pull){ .connections =
                                  options->connections ? options->connections : CONNECTIONS };
    mf_status status = open_parts(out, options, why);
    if (status != MF_OK) hub_pull_close(out);
    return status;
}

void hub_pull_close(struct hub_pull *pull)
{
    hub_candidates_free(&pull->candidates);
    hub_listing_free(&pull->listing);
    transport_close(pull->client.transport);
    pull->client.transport = NULL;
}

mf_status hub_pull_run(struct hub_pull *pull, char path[PATH_CAPACITY], mf_error *why)
{
    const struct hub_candidate *chosen = pull->chosen;
    char folder[HUB_REPOSITORY_CAPACITY + 32];
    struct hub_download download = { .client = &pull->client,
                                     .listing = &pull->listing,
                                     .files = chosen->files,
                                     .file_count = chosen->file_count,
                                     .connections = pull->connections };
    mf_status status = hub_download(&download, why);

    if (status == MF_OK) {
        status = hub_link(pull->settings.cache, pull->name.repository, &pull->listing,
                          chosen->files, chosen->file_count, why);
    }
    if (status != MF_OK) return status;
    hub_folder_name(folder, sizeof folder, pull->name.repository);
    int length = snprintf(path, PATH_CAPACITY, "%s/%s/snapshots/%s%s%s", pull->settings.cache,
                          folder, pull->listing.commit, chosen->gguf ? "/" : "",
                          chosen->gguf ? pull->listing.files[chosen->files[0]].path : "");
    if (length < PATH_CAPACITY) return MF_OK;
    return fail(why, MF_ERR_ARGUMENT, "the path of the Hugging Face cache is too long");
}
