#include "support/cache_texts.h"

#include "base/checksum.h"

#include <stdlib.h>

void cache_text_make(struct cache_text *out, const struct cache_store *store, enum cache_kind kind,
                     const struct cache_key *root, const struct cache_text *parent, uint32_t seed,
                     uint32_t count, uint64_t bytes)
{
    const struct cache_record *above = parent ? &parent->record : NULL;
    *out = (struct cache_text){ 0 };
    for (uint32_t i = 0; i < count; i++) out->tokens[i] = seed * 1000 + i;
    out->record = (struct cache_record){ .kind = kind,
                                         .root = *root,
                                         .parent = above ? above->key : *root,
                                         .first = above ? above->first + above->count : 0,
                                         .count = count,
                                         .tokens = out->tokens,
                                         .bytes = bytes };
    out->record.key = cache_store_key(store, kind, &out->record.parent, out->tokens, count);
}

uint8_t *cache_text_payload_new(const struct cache_record *record)
{
    uint8_t *bytes = malloc(record->bytes + 1);
    uint64_t state = checksum_of(record->tokens, record->count * sizeof *record->tokens) +
                     record->first * 16 + record->kind;
    if (!bytes) abort();
    for (uint64_t i = 0; i < record->bytes; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        bytes[i] = (uint8_t)(state >> 56);
    }
    return bytes;
}

static void note_status(void *user, mf_status status)
{
    *(mf_status *)user = status;
}

mf_status cache_text_put(struct cache_store *store, const struct cache_text *text)
{
    mf_status status = MF_ERR_ARGUMENT;
    uint8_t *payload = cache_text_payload_new(&text->record);
    enum cache_put put = cache_store_put(store, &text->record, payload, note_status, &status);
    if (put == CACHE_PUT_QUEUED) cache_store_flush(store);
    free(payload);
    return status;
}

int cache_text_get(struct cache_store *store, const struct cache_record *record)
{
    uint8_t *expected = cache_text_payload_new(record), *got = malloc(record->bytes + 1);
    if (!got) abort();
    int result = -1;
    if (cache_store_get(got, record->bytes, store, &record->key))
        result = memcmp(got, expected, record->bytes) == 0;
    free(expected);
    free(got);
    return result;
}

struct list {
    struct cache_text *texts;
    size_t count;
};

static void add_to_list(void *user, const struct cache_record *record)
{
    struct list *list = user;
    list->texts = realloc(list->texts, (list->count + 1) * sizeof *list->texts);
    if (!list->texts) abort();
    struct cache_text *text = &list->texts[list->count++];
    text->record = *record;
    memcpy(text->tokens, record->tokens, record->count * sizeof *record->tokens);
}

int cache_text_get_all(struct cache_store *store, const struct cache_key *root)
{
    struct list list = { 0 };
    int right = 0;
    cache_store_each(store, root, add_to_list, &list);
    for (size_t i = 0; i < list.count && right >= 0; i++) {
        list.texts[i].record.tokens = list.texts[i].tokens;
        int result = cache_text_get(store, &list.texts[i].record);
        right = result == 0 ? -1 : right + (result == 1);
    }
    free(list.texts);
    return right;
}
