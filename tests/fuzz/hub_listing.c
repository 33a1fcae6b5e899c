/* Any bytes as what a hub says about a repository, pages separated by a NUL: what is accepted has
 * names that stay inside a directory, each once, and hashes; and what is chosen of it is part of it. */
#include "hub/choose.h"

#include <stdio.h>
#include <stdlib.h>
#include <strings.h>

/* Of support/fuzzed_model.h, whose other headers are those of the library. */
void must(bool condition);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_file(const struct hub_listing *listing, size_t index)
{
    const struct hub_file *file = &listing->files[index];
    char path[HUB_FILE_NAME_LIMIT + 3];

    must(hub_is_hash(file->hash));
    must(file->path[0] && file->path[0] != '/' && strlen(file->path) <= HUB_FILE_NAME_LIMIT);
    must(!strpbrk(file->path, "\\\n\r\t\x1b"));
    snprintf(path, sizeof path, "/%s/", file->path);
    must(!strstr(path, "/../") && !strstr(path, "/./") && !strstr(path, "//"));
    must(index == 0 || strcmp(listing->files[index - 1].path, file->path) < 0);
}

static void check_candidate(const struct hub_listing *listing,
                            const struct hub_candidates *candidates,
                            const struct hub_candidate *candidate)
{
    const struct hub_candidate *found = NULL;
    uint64_t bytes = 0;

    must(candidate->file_count > 0 && candidate->label[0]);
    for (size_t i = 0; i < candidate->file_count; i++) {
        must(candidate->files[i] < listing->count);
        bytes += listing->files[candidate->files[i]].size;
    }
    must(bytes == candidate->bytes);
    if (hub_choose_named(&found, candidates, candidate->label, NULL) == MF_OK)
        must(strcasecmp(found->label, candidate->label) == 0);
    hub_candidate_check(candidate, NULL);
}

static void check_listing(const struct hub_listing *listing)
{
    struct hub_candidates candidates;
    const struct hub_candidate *best = NULL;
    const char *reason;

    for (size_t i = 0; i < listing->count; i++) check_file(listing, i);
    must(hub_candidates_find(&candidates, listing, NULL) == MF_OK);
    for (size_t i = 0; i < candidates.count; i++) {
        check_candidate(listing, &candidates, &candidates.items[i]);
        must(i == 0 || candidates.items[i - 1].bytes <= candidates.items[i].bytes);
    }
    for (uint64_t memory = 1; memory < (uint64_t)1 << 50; memory <<= 7) {
        uint64_t disk = (uint64_t)1 << 33;
        if (hub_choose_best(&best, &reason, &candidates, memory, disk, NULL) == MF_OK)
            must(best->runs && best->bytes <= disk);
    }
    hub_candidates_free(&candidates);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct hub_listing listing = { .count = 0 };
    const char *text = (const char *)data, *end = text + size;
    mf_status status = MF_OK;

    if (hub_listing_read_revision(&listing, text, size, NULL) == MF_OK)
        must(hub_is_hash(listing.commit));
    while (status == MF_OK && text < end) {
        const char *stop = memchr(text, '\0', (size_t)(end - text));
        size_t length = (size_t)((stop ? stop : end) - text);
        status = hub_listing_add_page(&listing, text, length, NULL);
        text += length + 1;
    }
    if (status == MF_OK && hub_listing_finish(&listing, NULL) == MF_OK) check_listing(&listing);
    hub_listing_free(&listing);
    return 0;
}
