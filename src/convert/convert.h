/* convert.h: any checkpoint into the packed layout.
 *
 *     source ── described: every weight checked, none read
 *       │
 *     plan      the manifest without checksums: what goes where, in which format
 *       │
 *     units     one after the other: read, requantised if asked for, written, noted
 *       │       in the journal (checkpoint/packed_writer.h); those that are noted are skipped
 *     the rest  configuration, tokenizer, template; with `verify` all is read again and
 *       │       compared with what the source gives
 *     name      TARGET.partial becomes TARGET
 *
 * Memory: lists of tensors, one expert, and some megabytes: it does not grow with the
 * number of layers or experts.  What is written depends on source and options only, not
 * on threads, time, or how often it was interrupted. */
#ifndef CONVERT_CONVERT_H
#define CONVERT_CONVERT_H

#include "base/disk.h"
#include "base/log.h"
#include "convert/requantise.h"

enum convert_stage { CONVERT_WRITING, CONVERT_VERIFYING };

struct convert_options {
    const mf_files *files;
    const struct disk *disk;
    const mf_allocator *allocator;
    const struct logger *logger;
    const char *source, *target;
    enum quantisation experts; /* KEEP, Q8, Q4, Q3, Q2 */
    enum quantisation rest; /* KEEP, BF16, Q8: matrices that are not experts', routers or gates */
    unsigned threads;       /* 0: one */
    bool verify;
    uint64_t sync_bytes; /* see packed_writer.h */
    void (*progress)(void *user, enum convert_stage stage, uint64_t done, uint64_t total);
    void *user;
};

struct convert_result {
    bool exact;       /* no number was rounded: the same logits, to the bit */
    bool already;     /* the target was there, made from this source with these options */
    bool resumed;     /* an earlier run had begun */
    bool interrupted; /* after a failure: what was done is kept, the next run goes on there */
    uint64_t source_bytes, resident_bytes, expert_bytes; /* of what the model uses */
    uint64_t experts, layers;                            /* in all; that have some */
    uint64_t requantised, kept; /* matrices that were asked to change: did, did not */
};

/* After a failure there is nothing under the name of the target. */
mf_status convert_run(struct convert_result *out, const struct convert_options *options,
                      mf_error *why);

#endif
