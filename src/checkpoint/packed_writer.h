/* packed_writer.h: writes a packed model; an interrupted write can be resumed.
 *
 * The model is written to TARGET.partial and renamed to TARGET when all of it is on the medium.  A
 * unit is a tensor or an expert.  All sizes are known beforehand, so every unit has a fixed offset
 * and units may be written in any order.  A journal records the finished ones:
 *
 *     units' bytes ─▶ sync ─▶ (unit, checksum) into the journal ─▶ sync ─▶ … next units
 *
 *     all units ─▶ other files ─▶ manifest: written, synced, renamed to moeflux.json
 *               ─▶ journal removed ─▶ TARGET.partial renamed to TARGET
 *
 * A writer with the same plan can resume after a crash at any point: units without a record are
 * written again; if the manifest exists, only the renames are left.  A directory of another plan is
 * not touched.
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
    const mf_files *files;            /* for reading the journal of an earlier run */
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

/* Creates TARGET.partial, or resumes an existing one. */
mf_status packed_writer_open(struct packed_writer **out,
                             const struct packed_writer_options *options, mf_error *why);

/* The identity of a plan: a digest of the manifest without checksums. */
mf_status packed_identify(char out[CHECKSUM_WIDE_TEXT], const struct packed_manifest *manifest,
                          mf_error *why);

/* Closes the files; what is written stays for a later run.  NULL is legal. */
void packed_writer_close(struct packed_writer *writer);

/* "TARGET.partial" */
const char *packed_writer_directory(const struct packed_writer *writer);

/* Whether an earlier run is resumed, and whether a unit has been written. */
bool packed_writer_resumed(const struct packed_writer *writer);
bool packed_writer_has(const struct packed_writer *writer, uint64_t unit);

/* Writes bytes of a unit at `offset` from its beginning. */
mf_status packed_writer_write(struct packed_writer *writer, uint64_t unit, uint64_t offset,
                              const void *bytes, size_t count, mf_error *why);

/* Records the unit as complete; the journal is synced later, with the data. */
mf_status packed_writer_end_unit(struct packed_writer *writer, uint64_t unit, uint64_t checksum,
                                 mf_error *why);

/* Call when every unit is written, before the manifest: syncs all data and drops it from the page
 * cache, so that a verification reads the medium. */
mf_status packed_writer_settle(struct packed_writer *writer, mf_error *why);

/* The last steps, in this order: small files, the manifest, the rename to TARGET. */
mf_status packed_writer_put(struct packed_writer *writer, const char *name, const void *bytes,
                            size_t count, mf_error *why);
mf_status packed_writer_put_manifest(struct packed_writer *writer, mf_error *why);
mf_status packed_writer_finish(struct packed_writer *writer, mf_error *why);

/* Whether the manifest exists: an earlier run wrote everything and only the renames are left. */
bool packed_writer_is_complete(const struct packed_writer *writer);

#endif
