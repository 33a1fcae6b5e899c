/* choose.h: which files of a repository a model is made of.
 *
 * Each GGUF model in it (one file, or all parts of a split one) is a candidate, and so are the
 * safetensors files together with the texts that belong to them.  A candidate's label is its
 * quantisation as its name says it: "Q4_K_M", "UD-Q4_K_XL", "BF16", or "safetensors". */
#ifndef HUB_CHOOSE_H
#define HUB_CHOOSE_H

#include "hub/listing.h"

/* Says in which file each tensor of a safetensors checkpoint is. */
#define HUB_WEIGHTS_INDEX "model.safetensors.index.json"

struct hub_candidate {
    char label[HUB_QUANTISATION_CAPACITY];
    char stem[HUB_FILE_NAME_LIMIT + 1]; /* GGUF: the name without part and ending */
    unsigned bits;                      /* per weight, by the label; 0: not known */
    bool gguf, runs;                    /* runs: in a format that moeflux reads */
    uint64_t bytes;
    /* What it takes in addition: to download, and of the disk.  At first all of it; the caller may
     * know what is there. */
    uint64_t missing_bytes, disk_bytes;
    size_t *files; /* indices into the listing, in order */
    size_t file_count, file_capacity;
    unsigned long parts; /* of a split GGUF model, as the names say; 0: not split */
    size_t
        missing_files; /* safetensors: weights that names or an index say, and that are not there */
};

struct hub_candidates {
    struct hub_candidate *items; /* ascending by size */
    size_t count, capacity;
};

/* What the repository offers. */
mf_status hub_candidates_find(struct hub_candidates *out, const struct hub_listing *listing,
                              mf_error *why);
void hub_candidates_free(struct hub_candidates *candidates);

/* How well what follows the colon of a name means a candidate, ascending. */
enum hub_fit {
    HUB_FIT_NONE,
    HUB_FIT_PART,        /* a part of the file's name */
    HUB_FIT_FILE,        /* the file's name */
    HUB_FIT_SHORT_LABEL, /* the label without "UD-" */
    HUB_FIT_LABEL
};
enum hub_fit hub_candidate_fit(const struct hub_candidate *candidate, const char *name);

/* By what follows the colon of a name: a label, whatever its case, or a part of the file's name
 * that only one candidate has.  MF_ERR_ARGUMENT lists what there is. */
mf_status hub_choose_named(const struct hub_candidate **out,
                           const struct hub_candidates *candidates, const char *name,
                           mf_error *why);

/* The best one for a machine; `reason` says why, in a few words.
 *
 *     1. the largest that fits into memory (with room for state) and on the disk, up to 8 bits; where
 *        there is none, of any bits
 *     2. else, as experts can be streamed, the smallest of 4 bits or more that fits on the disk
 *     3. else the largest that fits on the disk
 *
 * Formats that moeflux does not read, and models that lack parts, are left out. */
mf_status hub_choose_best(const struct hub_candidate **out, const char **reason,
                          const struct hub_candidates *candidates, uint64_t memory_bytes,
                          uint64_t disk_bytes, mf_error *why);

/* MF_ERR_FORMAT: parts of the model are missing. */
mf_status hub_candidate_check(const struct hub_candidate *candidate, mf_error *why);

#endif
