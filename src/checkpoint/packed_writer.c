#include "checkpoint/packed_writer.h"

#include "base/status.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#define JOURNAL         "journal"
#define JOURNAL_MAGIC   "moeflux journal\n"
#define MANIFEST_UNDONE PACKED_MANIFEST ".new"
#define SYNC_BYTES      ((uint64_t)256 << 20)

enum {
    HEADER_BYTES = 64,
    IDENTITY_AT = 16,
    RECORD_BYTES = 24,
    BATCH = 4096, /* records between two syncs, at most */
    NO_FILE = -1
};

struct packed_writer {
    struct packed_writer_options options;
    struct packed_manifest *manifest;
    struct arena arena;
    char directory[PATH_CAPACITY]; /* TARGET.partial */
    char identity[CHECKSUM_WIDE_TEXT];
    bool resumed, complete;
    uint8_t *has; /* [units] */
    uint64_t units;

    struct disk_file journal;
    uint64_t journal_end;
    struct disk_file data; /* the file that is being written */
    int64_t data_number;   /* which, or NO_FILE */
    uint64_t unsynced;     /* bytes */
    uint8_t *records;      /* [BATCH x RECORD_BYTES] of units that are not yet synced */
    size_t record_count;
};

/* ------------------------------------------------------------------- units */

uint64_t packed_unit_count(const struct packed_manifest *m)
{
    return m->tensor_count + m->layer_count * (uint64_t)m->experts;
}

struct packed_place packed_unit_place(const struct packed_manifest *m, uint64_t unit)
{
    if (unit < m->tensor_count)
        return (struct packed_place){ 0, m->tensors[unit].offset, m->tensors[unit].bytes };
    uint64_t layer = (unit - m->tensor_count) / m->experts;
    uint64_t expert = (unit - m->tensor_count) % m->experts;
    const struct packed_layer *l = &m->layers[layer];
    return (struct packed_place){ (uint32_t)layer + 1, expert * l->stride, l->blob_bytes };
}

void packed_file_name(char out[PACKED_NAME_CAPACITY], const struct packed_manifest *m,
                      uint32_t file)
{
    if (file == 0)
        snprintf(out, PACKED_NAME_CAPACITY, "%s", PACKED_RESIDENT);
    else
        packed_layer_name(out, m->layers[file - 1].number);
}

static uint64_t file_bytes(const struct packed_manifest *m, uint32_t file)
{
    return file == 0 ? packed_resident_bytes(m) : m->layers[file - 1].stride * m->experts;
}

static uint64_t *checksum_place(const struct packed_manifest *m, uint64_t unit)
{
    if (unit < m->tensor_count) return &m->tensors[unit].checksum;
    uint64_t expert = unit - m->tensor_count;
    return &m->layers[expert / m->experts].checksums[expert % m->experts];
}

void packed_set_checksum(struct packed_manifest *manifest, uint64_t unit, uint64_t checksum)
{
    *checksum_place(manifest, unit) = checksum;
}

uint64_t packed_get_checksum(const struct packed_manifest *manifest, uint64_t unit)
{
    return *checksum_place(manifest, unit);
}

/* ---------------------------------------------------------------- identity */

/* Two plans with the same text make the same bytes. */
mf_status packed_identify(char out[CHECKSUM_WIDE_TEXT], const struct packed_manifest *manifest,
                          mf_error *why)
{
    char *text = packed_manifest_text_new(manifest, false);
    if (!text) return fail_memory(why, manifest->tensor_count * sizeof *manifest->tensors);
    struct checksum sum;
    checksum_begin(&sum);
    checksum_add(&sum, text, strlen(text));
    checksum_end_wide(&sum, out);
    free(text);
    return MF_OK;
}

static mf_status other_plan(const struct packed_writer *w, mf_error *why)
{
    return fail(
        why, MF_ERR_MISMATCH,
        "%s is an unfinished conversion of another checkpoint or with other options: remove "
        "it to begin anew",
        w->directory);
}

/* ---------------------------------------------------------------- resuming */

/* What is in the directory. */
struct found {
    bool journal, manifest, anything;
};

static void note_entry(void *context, const char *name)
{
    struct found *found = context;
    if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0) return;
    found->anything = true;
    found->journal |= strcmp(name, JOURNAL) == 0;
    found->manifest |= strcmp(name, PACKED_MANIFEST) == 0;
}

/* The checksums of a manifest that an earlier run has finished. */
static mf_status take_manifest(struct packed_writer *w, mf_error *why)
{
    struct packed_manifest done;
    struct tensor_directory directory;
    char identity[CHECKSUM_WIDE_TEXT];
    packed_manifest_init(&done, w->options.allocator);
    tensor_directory_init(&directory, w->options.allocator);
    mf_status status = packed_open(&done, &directory, w->options.files, w->directory, why);
    if (status == MF_OK) status = packed_identify(identity, &done, why);
    if (status == MF_OK && strcmp(identity, w->identity) != 0) status = other_plan(w, why);
    for (uint64_t i = 0; i < w->units && status == MF_OK; i++) {
        packed_set_checksum(w->manifest, i, packed_get_checksum(&done, i));
        w->has[i] = 1;
    }
    tensor_directory_free(&directory);
    packed_manifest_free(&done);
    w->complete = status == MF_OK;
    return status;
}

static uint64_t check_of(const uint8_t record[RECORD_BYTES])
{
    return checksum_of(record, 16);
}

/* The records up to the first that was not written whole. */
static void take_records(struct packed_writer *w, const uint8_t *journal, size_t bytes)
{
    size_t at = HEADER_BYTES;
    for (; at + RECORD_BYTES <= bytes; at += RECORD_BYTES) {
        uint64_t unit = load_u64(journal + at);
        if (load_u64(journal + at + 16) != check_of(journal + at) || unit >= w->units) break;
        w->has[unit] = 1;
        packed_set_checksum(w->manifest, unit, load_u64(journal + at + 8));
    }
    w->journal_end = at;
}

static mf_status take_journal(struct packed_writer *w, mf_error *why)
{
    char path[PATH_CAPACITY], *text = NULL;
    size_t bytes = 0, most = HEADER_BYTES + 4 * (size_t)(w->units + BATCH) * RECORD_BYTES;
    mf_status status = path_join(path, sizeof path, w->directory, JOURNAL, why);
    if (status == MF_OK)
        status = file_read_whole_new(&text, &bytes, w->options.files, path, most, why);
    if (status == MF_OK && bytes >= HEADER_BYTES) { /* a shorter one never got anywhere */
        bool ours = memcmp(text, JOURNAL_MAGIC, IDENTITY_AT) == 0 &&
                    memcmp(text + IDENTITY_AT, w->identity, CHECKSUM_WIDE_TEXT - 1) == 0;
        if (ours)
            take_records(w, (const uint8_t *)text, bytes);
        else
            status = other_plan(w, why);
    }
    free(text);
    return status;
}

/* Units of files that are gone or not as long as they were made are written again. */
static void distrust_files(struct packed_writer *w)
{
    uint64_t unit = 0;
    for (uint32_t file = 0; file <= w->manifest->layer_count; file++) {
        char name[PACKED_NAME_CAPACITY], path[PATH_CAPACITY];
        struct file opened = { 0 };
        packed_file_name(name, w->manifest, file);
        bool sound = path_join(path, sizeof path, w->directory, name, NULL) == MF_OK &&
                     file_open(&opened, w->options.files, path, NULL) == MF_OK &&
                     opened.size == file_bytes(w->manifest, file);
        file_close(&opened);
        uint64_t count = file == 0 ? w->manifest->tensor_count : w->manifest->experts;
        if (!sound) memset(w->has + unit, 0, count);
        unit += count;
    }
}

static mf_status look_for_earlier_run(struct packed_writer *w, mf_error *why)
{
    struct found found = { 0 };
    const mf_files *files = w->options.files;
    int result = files->list(files->user, w->directory, note_entry, &found);
    if (result < 0) return fail_errno(why, MF_ERR_IO, -result, "%s cannot be listed", w->directory);
    if (found.anything && !found.journal && !found.manifest)
        return fail(why, MF_ERR_ARGUMENT, "%s is in the way: it is not an unfinished conversion",
                    w->directory);
    w->resumed = found.journal || found.manifest;
    mf_status status = MF_OK;
    if (found.manifest) return take_manifest(w, why);
    if (found.journal) status = take_journal(w, why);
    if (status == MF_OK) distrust_files(w);
    return status;
}

/* ----------------------------------------------------------------- opening */

static mf_status open_journal(struct packed_writer *w, mf_error *why)
{
    const struct disk *disk = w->options.disk;
    mf_status status = disk_file_open(&w->journal, disk, w->directory, JOURNAL, why);
    if (status != MF_OK) return status;
    int result = disk->lock(disk->user, w->journal.handle);
    if (result < 0)
        return fail_errno(why, MF_ERR_IO, -result, "%s is being written by another process",
                          w->directory);
    if (w->journal_end >= HEADER_BYTES) return MF_OK;
    uint8_t header[HEADER_BYTES] = { 0 };
    memcpy(header, JOURNAL_MAGIC, IDENTITY_AT);
    memcpy(header + IDENTITY_AT, w->identity, CHECKSUM_WIDE_TEXT - 1);
    status = disk_file_write(&w->journal, 0, header, sizeof header, why);
    if (status == MF_OK) status = disk_file_sync(&w->journal, why);
    w->journal_end = HEADER_BYTES;
    return status;
}

/* It is better to hear it now than in an hour. */
static mf_status check_space(const struct packed_writer *w, mf_error *why)
{
    uint64_t needed = 0, available;
    for (uint64_t i = 0; i < w->units; i++)
        if (!w->has[i]) needed += packed_unit_place(w->manifest, i).bytes;
    /* An earlier run may have written units that have no record. */
    uint64_t slack = w->resumed ? w->options.sync_bytes : 0;
    if (w->options.disk->free_bytes(w->options.disk->user, w->directory, &available) < 0 ||
        available + slack >= needed)
        return MF_OK;
    return fail(why, MF_ERR_IO,
                "%s needs %llu bytes more, and %llu are free: make room and run it again",
                w->directory, (unsigned long long)needed, (unsigned long long)available);
}

static mf_status sync_directory(const struct packed_writer *w, const char *path, mf_error *why)
{
    int result = w->options.disk->sync_directory(w->options.disk->user, path);
    return result == 0 ? MF_OK : fail_errno(why, MF_ERR_IO, -result, "%s cannot be written", path);
}

/* The directory in which target and TARGET.partial lie. */
static void parent_path(char out[PATH_CAPACITY], const struct packed_writer *w)
{
    snprintf(out, PATH_CAPACITY, "%s", w->directory);
    char *slash = strrchr(out, '/');
    if (!slash)
        strcpy(out, ".");
    else
        slash[slash == out] = '\0'; /* the root keeps its name */
}

static mf_status make_directory(struct packed_writer *w, mf_error *why)
{
    const struct disk *disk = w->options.disk;
    size_t length = strlen(w->options.target);
    while (length > 1 && w->options.target[length - 1] == '/') length--;
    int needed =
        snprintf(w->directory, sizeof w->directory, "%.*s.partial", (int)length, w->options.target);
    if (length == 0 || needed < 0 || (size_t)needed + 64 > sizeof w->directory)
        return fail(why, MF_ERR_ARGUMENT, "the path %.64s… is empty or too long",
                    w->options.target);
    int result = disk->make_directory(disk->user, w->directory);
    if (result < 0 && result != -EEXIST)
        return fail_errno(why, MF_ERR_IO, -result, "%s cannot be made", w->directory);
    char parent[PATH_CAPACITY];
    parent_path(parent, w);
    return sync_directory(w, parent, why);
}

static mf_status open_parts(struct packed_writer *w, mf_error *why)
{
    w->units = packed_unit_count(w->manifest);
    w->has = ARENA_NEW(&w->arena, uint8_t, w->units);
    w->records = ARENA_NEW(&w->arena, uint8_t, BATCH * RECORD_BYTES);
    if (!w->has || !w->records) return fail_memory(why, w->units + BATCH * RECORD_BYTES);
    mf_status status = packed_identify(w->identity, w->manifest, why);
    if (status == MF_OK) status = make_directory(w, why);
    if (status == MF_OK) status = look_for_earlier_run(w, why);
    if (status != MF_OK || w->complete) return status;
    status = open_journal(w, why);
    if (status == MF_OK) status = sync_directory(w, w->directory, why);
    if (status == MF_OK) status = check_space(w, why);
    return status;
}

mf_status packed_writer_open(struct packed_writer **out,
                             const struct packed_writer_options *options, mf_error *why)
{
    struct arena arena;
    *out = NULL;
    arena_init(&arena, options->allocator);
    struct packed_writer *w = ARENA_NEW(&arena, struct packed_writer, 1);
    if (!w) return fail_memory(why, sizeof *w);
    *w = (struct packed_writer){ .options = *options,
                                 .manifest = options->manifest,
                                 .arena = arena, /* the writer lives in its own arena */
                                 .data_number = NO_FILE };
    if (w->options.sync_bytes == 0) w->options.sync_bytes = SYNC_BYTES;
    mf_status status = open_parts(w, why);
    if (status == MF_OK)
        *out = w;
    else
        packed_writer_close(w);
    return status;
}

void packed_writer_close(struct packed_writer *writer)
{
    if (!writer) return;
    disk_file_close(&writer->data);
    disk_file_close(&writer->journal);
    struct arena arena = writer->arena;
    arena_free(&arena);
}

const char *packed_writer_directory(const struct packed_writer *writer)
{
    return writer->directory;
}

bool packed_writer_resumed(const struct packed_writer *writer)
{
    return writer->resumed;
}

bool packed_writer_has(const struct packed_writer *writer, uint64_t unit)
{
    return writer->has[unit];
}

bool packed_writer_is_complete(const struct packed_writer *writer)
{
    return writer->complete;
}

/* ----------------------------------------------------------------- writing */

/* What has been written goes to the medium, then its records. */
static mf_status commit(struct packed_writer *w, mf_error *why)
{
    if (w->record_count == 0) return MF_OK;
    mf_status status = disk_file_sync(&w->data, why);
    if (status == MF_OK)
        status = disk_file_write(&w->journal, w->journal_end, w->records,
                                 w->record_count * RECORD_BYTES, why);
    if (status == MF_OK) status = disk_file_sync(&w->journal, why);
    if (status != MF_OK) return status;
    w->journal_end += w->record_count * RECORD_BYTES;
    w->record_count = 0;
    w->unsynced = 0;
    return MF_OK;
}

/* Opens data file `number`, after committing the one that is open, unless it is that one. */
static mf_status turn_to_file(struct packed_writer *w, uint32_t number, mf_error *why)
{
    if (w->data_number == number) return MF_OK;
    mf_status status = commit(w, why);
    if (status != MF_OK) return status;
    disk_file_close(&w->data);
    w->data_number = NO_FILE;
    char name[PACKED_NAME_CAPACITY];
    packed_file_name(name, w->manifest, number);
    status = disk_file_open(&w->data, w->options.disk, w->directory, name, why);
    uint64_t bytes = file_bytes(w->manifest, number);
    if (status == MF_OK && w->data.size != bytes) {
        status = disk_file_resize(&w->data, bytes, why);
        if (status == MF_OK) status = sync_directory(w, w->directory, why);
    }
    if (status == MF_OK) w->data_number = number;
    return status;
}

mf_status packed_writer_write(struct packed_writer *writer, uint64_t unit, uint64_t offset,
                              const void *bytes, size_t count, mf_error *why)
{
    struct packed_place place = packed_unit_place(writer->manifest, unit);
    mf_status status = turn_to_file(writer, place.file, why);
    if (status != MF_OK) return status;
    writer->unsynced += count;
    return disk_file_write(&writer->data, place.offset + offset, bytes, count, why);
}

mf_status packed_writer_end_unit(struct packed_writer *writer, uint64_t unit, uint64_t checksum,
                                 mf_error *why)
{
    uint8_t *record = writer->records + writer->record_count++ * RECORD_BYTES;
    memcpy(record, &unit, 8);
    memcpy(record + 8, &checksum, 8);
    uint64_t check = check_of(record);
    memcpy(record + 16, &check, 8);
    packed_set_checksum(writer->manifest, unit, checksum);
    writer->has[unit] = 1;
    if (writer->record_count < BATCH && writer->unsynced < writer->options.sync_bytes) return MF_OK;
    return commit(writer, why);
}

mf_status packed_writer_settle(struct packed_writer *writer, mf_error *why)
{
    const struct disk *disk = writer->options.disk;
    mf_status status = commit(writer, why);
    disk_file_close(&writer->data);
    writer->data_number = NO_FILE;
    for (uint32_t i = 0; i <= writer->manifest->layer_count && status == MF_OK; i++) {
        status = turn_to_file(writer, i, why);
        if (status == MF_OK && disk->forget) disk->forget(disk->user, writer->data.handle);
    }
    return status;
}

/* ---------------------------------------------------------------- the end */

mf_status packed_writer_put(struct packed_writer *writer, const char *name, const void *bytes,
                            size_t count, mf_error *why)
{
    return disk_put(writer->options.disk, writer->directory, name, bytes, count, why);
}

static mf_status rename_it(const struct packed_writer *w, const char *from, const char *to,
                           mf_error *why)
{
    int result = w->options.disk->rename(w->options.disk->user, from, to);
    return result == 0
               ? MF_OK
               : fail_errno(why, MF_ERR_IO, -result, "%s cannot be renamed to %s", from, to);
}

/* What was written can be read: checked here, because a text without memory is a short one. */
static mf_status check_text(const struct packed_writer *w, const char *text, mf_error *why)
{
    struct packed_manifest read;
    json_t *json = NULL;
    packed_manifest_init(&read, w->options.allocator);
    mf_status status = json_parse_new(&json, text, strlen(text), PACKED_MANIFEST, why);
    if (status == MF_OK) status = packed_manifest_parse(&read, json, PACKED_MANIFEST, why);
    bool whole = packed_unit_count(&read) == w->units && read.file_count == w->manifest->file_count;
    if (status == MF_OK && !whole) status = fail_memory(why, strlen(text));
    json_decref(json);
    packed_manifest_free(&read);
    return status;
}

mf_status packed_writer_put_manifest(struct packed_writer *writer, mf_error *why)
{
    char from[PATH_CAPACITY], to[PATH_CAPACITY];
    char *text = packed_manifest_text_new(writer->manifest, true);
    if (!text) return fail_memory(why, writer->units * 64);
    mf_status status = path_join(from, sizeof from, writer->directory, MANIFEST_UNDONE, why);
    if (status == MF_OK) status = path_join(to, sizeof to, writer->directory, PACKED_MANIFEST, why);
    if (status == MF_OK) status = check_text(writer, text, why);
    if (status == MF_OK)
        status = packed_writer_put(writer, MANIFEST_UNDONE, text, strlen(text), why);
    if (status == MF_OK) status = sync_directory(writer, writer->directory, why);
    if (status == MF_OK) status = rename_it(writer, from, to, why);
    if (status == MF_OK) status = sync_directory(writer, writer->directory, why);
    writer->complete = status == MF_OK;
    free(text);
    return status;
}

mf_status packed_writer_finish(struct packed_writer *writer, mf_error *why)
{
    const struct disk *disk = writer->options.disk;
    char journal[PATH_CAPACITY], target[PATH_CAPACITY], parent[PATH_CAPACITY];
    mf_status status = path_join(journal, sizeof journal, writer->directory, JOURNAL, why);
    if (status != MF_OK) return status;
    int result = disk->remove(disk->user, journal);
    if (result < 0 && result != -ENOENT)
        return fail_errno(why, MF_ERR_IO, -result, "%s cannot be removed", journal);
    status = sync_directory(writer, writer->directory, why);
    if (status != MF_OK) return status;
    size_t length = strlen(writer->directory) - strlen(".partial");
    snprintf(target, sizeof target, "%.*s", (int)length, writer->directory);
    parent_path(parent, writer);
    status = rename_it(writer, writer->directory, target, why);
    return status == MF_OK ? sync_directory(writer, parent, why) : status;
}
