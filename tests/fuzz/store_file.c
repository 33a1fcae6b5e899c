/* Any bytes as a file of a cache directory: as they are, and with the checksums put right, so that
 * what lies behind them is looked at.  Only the file of the record is served. */
#include "state/store_internal.h"
#include "support/cache_texts.h"
#include "support/fuzzed_model.h"
#include "support/memory_disk.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Offsets in the header (state/store_file.c). */
enum {
    AT_PAYLOAD_CHECKSUM = 88,
    AT_HEADER_CHECKSUM = 120,
    HEADER = 128,
    PAYLOAD = 50,
    WHOLE = CACHE_BLOCK + PAYLOAD,
    INPUT_MAX = 1 << 16
};

struct bench {
    struct memory_disk disk;
    struct cache_store store;
    struct cache_text text;
    char path[CACHE_NAME + 2];
    uint8_t sound[WHOLE];
};

/* Once. */
static struct bench *open_bench(void)
{
    static struct bench b;
    static const struct cache_key root = { { 1 } };
    if (b.path[0]) return &b;
    memory_disk_init(&b.disk);
    must(b.disk.disk.make_directory(b.disk.disk.user, "d") == 0);
    b.store = (struct cache_store){ .disk = &b.disk.disk, .files = &b.disk.files };
    memcpy(b.store.directory, "d", 2);
    cache_text_make(&b.text, &b.store, CACHE_PAGE, &root, NULL, 1, 40, PAYLOAD);
    uint8_t *payload = cache_text_payload_new(&b.text.record);
    must(store_file_write(&b.store, &b.text.record, payload, NULL) == MF_OK);
    free(payload);
    memcpy(b.path, "d/", 2);
    store_file_name(b.path + 2, &b.text.record);
    const struct memory_bytes *file = memory_disk_find(&b.disk, b.path);
    must(file && file->count == WHOLE);
    memcpy(b.sound, file->bytes, WHOLE);
    return &b;
}

static bool read_file(struct bench *b, const uint8_t *data, size_t size)
{
    uint8_t out[PAYLOAD];
    memory_disk_put(&b->disk, b->path, data, size);
    enum file_verdict verdict = store_file_read(out, &b->store, &b->text.record);
    must(verdict == FILE_SOUND || verdict == FILE_DAMAGED);
    must(store_file_read(NULL, &b->store, &b->text.record) == verdict);
    must(verdict != FILE_SOUND || memcmp(out, data + CACHE_BLOCK, PAYLOAD) == 0);
    must(b->disk.open_count == 0);
    return verdict == FILE_SOUND;
}

static void put_right(uint8_t *data)
{
    struct checksum sum;
    uint64_t value = checksum_of(data + CACHE_BLOCK, PAYLOAD);
    memcpy(data + AT_PAYLOAD_CHECKSUM, &value, sizeof value);
    checksum_begin(&sum);
    checksum_add(&sum, data, AT_HEADER_CHECKSUM);
    checksum_add(&sum, data + HEADER, CACHE_BLOCK - HEADER);
    value = checksum_end(&sum);
    memcpy(data + AT_HEADER_CHECKSUM, &value, sizeof value);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct bench *b = open_bench();
    uint8_t copy[WHOLE], expected[WHOLE];
    if (size > INPUT_MAX) return 0;
    bool same = size == WHOLE && memcmp(data, b->sound, WHOLE) == 0;
    must(read_file(b, data, size) == same);
    if (size < WHOLE) return 0;
    memcpy(copy, data, WHOLE);
    put_right(copy);
    memcpy(expected, b->sound, CACHE_BLOCK); /* with this payload */
    memcpy(expected + CACHE_BLOCK, copy + CACHE_BLOCK, PAYLOAD);
    put_right(expected);
    must(read_file(b, copy, WHOLE) == (memcmp(copy, expected, WHOLE) == 0));
    return 0;
}
