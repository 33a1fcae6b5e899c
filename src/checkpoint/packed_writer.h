/* packed_writer.h: a packed model in the making.
 *
 * It grows beside its place, in TARGET.partial, and takes its name when all of it is on the
 * medium.  A unit is a tensor or an expert; what is to be written is known beforehand, so
 * every unit has its place and units may be written in any order.  What has been written
 * is kept in a journal:
 *
 *     units' bytes ─▶ sync ─▶ (unit, checksum) into the journal ─▶ sync ─▶ … next units
 *
 *     all units ─▶ other files ─▶ manifest: written, synced, renamed to moeflux.json
 *               ─▶ journal removed ─▶ TARGET.partial renamed to TARGET
 *
 * So a writer that is killed anywhere leaves something that a later one with the same plan
 * goes on with: units without a record are written again, a manifest means that only the
 * names are left to change.  A directory of another plan is left alone.
 *
 *     journal   byte 0    "moeflux journal\n"
 *                   16    32 digits: the plan's identity
 *                   48    16 zero bytes
 *                   64    records: u64 unit, u64 checksum, u64 XXH3 of these 16 bytes
 *
 * Threads: one owner. */
#ifndef CHECKPOINT_PACKED_WRITER_H
#define CHECKPOINT_PACKED_WRITER_H

#include "base/checksum.h"
#include "base/disk.h"
#include "checkpoint/packed.h"

struct packed_writer;

struct packed_writer_options {
    const mf_allocator *allocator;
    const struct disk *disk;
    const mf_files *files;            /* for reading what an earlier run has left */
    const char *target;               /* must not be there, or be an empty directory */
    struct packed_manifest *manifest; /* without checksums, which are filled in; borrowed */
    uint64_t sync_bytes;              /* between two syncs; 0: 256 MiB */
};

/* Units [0, tensor_count) are the tensors; then come the experts, layer by layer. */
struct packed_place {
    uint32_t file; /* 0: resident.bin; then the layers in their order */
    uint64_t offset, bytes;
};
struct packed_place packed_unit_place(const struct packed_manifest *manifest, uint64_t unit);
uint64_t packed_unit_count(const struct packed_manifest *manifest);
void packed_file_name(char out[PACKED_NAME_CAPACITY], const struct packed_manifest *manifest,
                      uint32_t file);
void packed_set_checksum(struct packed_manifest *manifest, uint64_t unit, uint64_t checksum);
uint64_t packed_get_checksum(const struct packed_manifest *manifest, uint64_t unit);

/* Makes the directory or goes on with the one that is there. */
mf_status packed_writer_open(struct packed_writer **out,
                             const struct packed_writer_options *options, mf_error *why);

/* The text by which two plans are known to be the same: 32 digits and a NUL. */
mf_status packed_identify(char out[CHECKSUM_WIDE_TEXT], const struct packed_manifest *manifest,
                          mf_error *why);

/* What is written so far stays.  NULL is legal. */
void packed_writer_close(struct packed_writer *writer);

/* "TARGET.partial" */
const char *packed_writer_directory(const struct packed_writer *writer);

/* An earlier run had begun; and had written this unit. */
bool packed_writer_resumed(const struct packed_writer *writer);
bool packed_writer_has(const struct packed_writer *writer, uint64_t unit);

/* Bytes of a unit, from `offset` in it. */
mf_status packed_writer_write(struct packed_writer *writer, uint64_t unit, uint64_t offset,
                              const void *bytes, size_t count, mf_error *why);

/* The unit is whole. */
mf_status packed_writer_end_unit(struct packed_writer *writer, uint64_t unit, uint64_t checksum,
                                 mf_error *why);

/* Every unit is written: all of it on the medium, nothing in the page cache, so that what
 * is read now is what is there.  Must come before the manifest. */
mf_status packed_writer_settle(struct packed_writer *writer, mf_error *why);

/* A small file; the manifest, which is the last one; the name. */
mf_status packed_writer_put(struct packed_writer *writer, const char *name, const void *bytes,
                            size_t count, mf_error *why);
mf_status packed_writer_put_manifest(struct packed_writer *writer, mf_error *why);
mf_status packed_writer_finish(struct packed_writer *writer, mf_error *why);

/* The manifest is there: an earlier run got to the end but for the names. */
bool packed_writer_is_complete(const struct packed_writer *writer);

#endif
