/* store_file.c: one payload as a file: header, tokens with phases, payload from byte 4096 on. */
#include "state/store_internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

static const char MAGIC[8] = { 'M', 'F', 'C', 'A', 'C', 'H', 'E', '\n' };

enum { VERSION = 1, READ_BYTES = 1 << 20 };

/* How the payload lies in the file; another way gets another number. */
enum packing { PACKING_NONE = 0 };

/* As it lies in the file: little-endian, no gaps. */
struct header {
    char magic[8];
    uint32_t version;
    uint16_t kind, packing;
    struct cache_key root, parent, key;
    uint32_t first, count;
    uint64_t packed_bytes, bytes; /* of the payload: in the file, and as it is used */
    uint64_t payload_checksum;    /* of what is in the file */
    uint64_t reserved[3];
    uint64_t header_checksum; /* of all before, and of the tokens */
};

_Static_assert(sizeof(struct header) == 128, "no gaps");
_Static_assert(offsetof(struct header, packed_bytes) == 72, "no gaps");

/* The first block. */
struct front {
    struct header header;
    uint32_t tokens[CACHE_TOKENS_MAX];
    uint8_t zeros[CACHE_BLOCK - sizeof(struct header) - CACHE_TOKENS_MAX * sizeof(uint32_t)];
};

_Static_assert(sizeof(struct front) == CACHE_BLOCK, "the payload begins at a block");

static uint64_t checksum_front(const struct front *front)
{
    struct checksum sum;
    checksum_begin(&sum);
    checksum_add(&sum, &front->header, offsetof(struct header, header_checksum));
    checksum_add(&sum, front->tokens, sizeof front->tokens + sizeof front->zeros);
    return checksum_end(&sum);
}

static void describe(struct front *front, const struct cache_record *record)
{
    memset(front, 0, sizeof *front);
    front->header = (struct header){ .version = VERSION,
                                     .kind = (uint16_t)record->kind,
                                     .packing = PACKING_NONE,
                                     .root = record->root,
                                     .parent = record->parent,
                                     .key = record->key,
                                     .first = record->first,
                                     .count = record->count,
                                     .packed_bytes = record->bytes,
                                     .bytes = record->bytes };
    memcpy(front->header.magic, MAGIC, sizeof MAGIC);
    memcpy(front->tokens, record->tokens, record->count * sizeof *record->tokens);
}

/* --------------------------------------------------------------------- names */

static const char *const endings[] = { [CACHE_PAGE] = ".page", [CACHE_CHECKPOINT] = ".state" };

void store_file_name(char out[CACHE_NAME], const struct cache_record *record)
{
    for (size_t i = 0; i < sizeof record->key.bytes; i++)
        snprintf(out + 2 * i, 3, "%02x", record->key.bytes[i]);
    snprintf(out + 32, CACHE_NAME - 32, "%s", endings[record->kind]);
}

static int digit_of(char c)
{
    if (c >= '0' && c <= '9') return c - '0';
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

bool store_file_parse_name(struct cache_key *key, enum cache_kind *kind, const char *name)
{
    for (size_t i = 0; i < sizeof key->bytes; i++) {
        int high = digit_of(name[2 * i]), low = high < 0 ? -1 : digit_of(name[2 * i + 1]);
        if (low < 0) return false;
        key->bytes[i] = (uint8_t)(high << 4 | low);
    }
    for (size_t i = CACHE_PAGE; i < COUNT_OF(endings); i++)
        if (strcmp(name + 32, endings[i]) == 0) {
            *kind = (enum cache_kind)i;
            return true;
        }
    return false;
}

uint64_t store_file_bytes(uint64_t payload_bytes)
{
    return CACHE_BLOCK + align_up(payload_bytes, CACHE_BLOCK);
}

/* ------------------------------------------------------------------- writing */

static mf_status write_parts(struct cache_store *store, const char *name, const struct front *front,
                             const void *payload, mf_error *why)
{
    struct disk_file file;
    mf_status status = disk_file_open(&file, store->disk, store->directory, name, why);
    if (status == MF_OK) status = disk_file_resize(&file, 0, why);
    if (status == MF_OK) status = disk_file_write(&file, 0, front, sizeof *front, why);
    if (status == MF_OK)
        status = disk_file_write(&file, sizeof *front, payload, front->header.packed_bytes, why);
    if (status == MF_OK) status = disk_file_sync(&file, why);
    disk_file_close(&file);
    return status;
}

mf_status store_file_write(struct cache_store *store, const struct cache_record *record,
                           const void *payload, mf_error *why)
{
    const struct disk *disk = store->disk;
    char name[CACHE_NAME], partial[CACHE_NAME + 8];
    char from[PATH_CAPACITY], to[PATH_CAPACITY];
    _Alignas(CACHE_BLOCK) struct front front;
    store_file_name(name, record);
    snprintf(partial, sizeof partial, "%s.partial", name);
    mf_status status = path_join(from, sizeof from, store->directory, partial, why);
    if (status == MF_OK) status = path_join(to, sizeof to, store->directory, name, why);
    if (status != MF_OK) return status;
    describe(&front, record);
    front.header.payload_checksum = checksum_of(payload, record->bytes);
    front.header.header_checksum = checksum_front(&front);
    status = write_parts(store, partial, &front, payload, why);
    int result = status == MF_OK ? disk->rename(disk->user, from, to) : 0;
    if (status != MF_OK || result < 0) {
        disk->remove(disk->user, from);
        return status != MF_OK ? status
                               : fail_errno(why, MF_ERR_IO, -result, "%s cannot be renamed", from);
    }
    result = disk->sync_directory(disk->user, store->directory);
    if (result == 0) return MF_OK;
    disk->remove(disk->user, to);
    return fail_errno(why, MF_ERR_IO, -result, "%s cannot be synced", store->directory);
}

void store_file_remove(struct cache_store *store, const struct cache_record *record)
{
    char name[CACHE_NAME], path[PATH_CAPACITY];
    store_file_name(name, record);
    if (path_join(path, sizeof path, store->directory, name, NULL) == MF_OK)
        store->disk->remove(store->disk->user, path);
}

/* ------------------------------------------------------------------- reading */

/* Continues short reads; the file was long enough when it was opened. */
static enum file_verdict read_all(const struct cache_store *store, void *handle, uint64_t offset,
                                  void *out, size_t count)
{
    uint8_t *to = out;
    while (count > 0) {
        int64_t got = store->files->read(store->files->user, handle, offset, to, count);
        if (got < 0 && got != -EIO) return FILE_UNREADABLE;
        if (got <= 0) return FILE_DAMAGED;
        to += got;
        offset += (uint64_t)got;
        count -= (size_t)got;
    }
    return FILE_SOUND;
}

/* `out` NULL: in pieces. */
static enum file_verdict read_payload(uint64_t *sum, const struct cache_store *store, void *handle,
                                      void *out, uint64_t bytes)
{
    struct checksum running;
    uint8_t *piece = out ? NULL : malloc(READ_BYTES);
    enum file_verdict verdict = out || piece ? FILE_SOUND : FILE_UNREADABLE;
    checksum_begin(&running);
    for (uint64_t at = 0; verdict == FILE_SOUND && at < bytes;) {
        size_t count = min_size(bytes - at, READ_BYTES);
        uint8_t *to = out ? (uint8_t *)out + at : piece;
        verdict = read_all(store, handle, CACHE_BLOCK + at, to, count);
        if (verdict == FILE_SOUND) checksum_add(&running, to, count);
        at += count;
    }
    *sum = checksum_end(&running);
    free(piece);
    return verdict;
}

static enum file_verdict read_opened(void *out, const struct cache_store *store,
                                     const struct cache_record *record, void *handle, uint64_t size)
{
    struct front front, expected;
    uint64_t sum;
    if (size != CACHE_BLOCK + record->bytes) return FILE_DAMAGED;
    enum file_verdict verdict = read_all(store, handle, 0, &front, sizeof front);
    if (verdict != FILE_SOUND) return verdict;
    /* All but the checksums is known from the journal. */
    describe(&expected, record);
    expected.header.payload_checksum = front.header.payload_checksum;
    expected.header.header_checksum = front.header.header_checksum;
    if (memcmp(&front, &expected, sizeof front) != 0 ||
        front.header.header_checksum != checksum_front(&front))
        return FILE_DAMAGED;
    verdict = read_payload(&sum, store, handle, out, record->bytes);
    if (verdict == FILE_SOUND && sum != front.header.payload_checksum) verdict = FILE_DAMAGED;
    return verdict;
}

enum file_verdict store_file_read(void *out, const struct cache_store *store,
                                  const struct cache_record *record)
{
    char name[CACHE_NAME], path[PATH_CAPACITY];
    void *handle;
    uint64_t size;
    store_file_name(name, record);
    if (path_join(path, sizeof path, store->directory, name, NULL) != MF_OK) return FILE_UNREADABLE;
    int result = store->files->open(store->files->user, path, &handle, &size);
    if (result == -ENOENT) return FILE_MISSING;
    if (result < 0) return FILE_UNREADABLE;
    enum file_verdict verdict = read_opened(out, store, record, handle, size);
    store->files->close(store->files->user, handle);
    return verdict;
}
