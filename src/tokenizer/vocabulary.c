#include "tokenizer/internal.h"

#include "base/status.h"
#include "base/utf8.h"

#include <stdlib.h>

/* Four to a cache line; a copy of what the entry says saves another one. */
struct token_bucket {
    uint32_t tag; /* high half of the hash: most other tokens are told apart by it */
    int32_t id;   /* -1: empty */
    uint32_t bytes, bytes_length;
};

/* ------------------------------------------------------------ the byte alphabet */

/* Byte-level strings write a byte as the character of the same number where that one is
 * visible; the other 68 are U+0100 and on, in ascending order. */
static bool byte_is_visible(unsigned byte)
{
    return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

/* The byte that a character stands for; -1: none. */
static int byte_of_character(uint32_t character)
{
    if (character < 0x100) return byte_is_visible(character) ? (int)character : -1;
    if (character > 0x143) return -1;
    uint32_t nth = character - 0x100;
    if (nth < 0x21) return (int)nth;
    if (nth == 0x21) return 0x7F;
    return nth == 0x43 ? 0xAD : (int)(nth - 0x22 + 0x80);
}

bool byte_level_decode(char *out, size_t *length, struct text_span text)
{
    size_t count = 0;
    for (size_t at = 0; at < text.length;) {
        uint32_t character;
        at += utf8_decode(&character, text.text + at, text.length - at);
        int byte = character == UTF8_INVALID ? -1 : byte_of_character(character);
        if (byte < 0) return false;
        out[count++] = (char)byte;
    }
    *length = count;
    return true;
}

void vocabulary_decode(const struct vocabulary *vocabulary, char *out, size_t *length,
                       struct text_span text)
{
    if (vocabulary->spaces) {
        *length = text_replace_space_signs(out, text.text, text.length);
    } else if (!byte_level_decode(out, length, text)) {
        memcpy(out, text.text, text.length);
        *length = text.length;
    }
}

static uint32_t character_of_byte(uint8_t byte)
{
    if (byte_is_visible(byte)) return byte;
    if (byte < 0x21) return 0x100u + byte;
    if (byte == 0x7F) return 0x121;
    return byte == 0xAD ? 0x143 : 0x122u + byte - 0x80;
}

mf_status byte_level_append(struct byte_buffer *out, struct text_span bytes, mf_error *why)
{
    if (!byte_buffer_reserve(out, 2 * bytes.length)) return byte_buffer_status(out, why);
    for (size_t i = 0; i < bytes.length; i++) {
        uint32_t character = character_of_byte((uint8_t)bytes.text[i]);
        out->count += utf8_encode(out->data + out->count, character);
    }
    return MF_OK;
}

/* ------------------------------------------------------------------------ tokens */

static mf_status store_token(struct vocabulary *vocabulary, struct token_entry *entry,
                             struct text_span text, bool literal, mf_error *why)
{
    struct byte_buffer *blob = &vocabulary->blob;
    if (!byte_buffer_reserve(blob, 2 * text.length + 1)) return byte_buffer_status(blob, why);
    if (blob->count > UINT32_MAX - 2 * TOKEN_TEXT_LIMIT)
        return fail(why, MF_ERR_FORMAT, "the vocabulary's tokens have more than 4 GB");

    char *copy = blob->data + blob->count;
    if (text.length) memcpy(copy, text.text, text.length);
    copy[text.length] = '\0';
    *entry = (struct token_entry){ .text = (uint32_t)blob->count,
                                   .text_length = (uint32_t)text.length,
                                   .bytes = (uint32_t)blob->count,
                                   .bytes_length = (uint32_t)text.length,
                                   .flags = TOKEN_PRESENT };
    blob->count += text.length + 1;

    size_t length = text.length;
    char *bytes = blob->data + blob->count;
    if (!literal || vocabulary->spaces) vocabulary_decode(vocabulary, bytes, &length, text);
    if (length < text.length) {
        entry->bytes = (uint32_t)blob->count;
        entry->bytes_length = (uint32_t)length;
        blob->count += length;
    }
    return MF_OK;
}

/* The blob begins with every byte once, for vocabulary_make_byte. */
static mf_status store_single_bytes(struct vocabulary *vocabulary, mf_error *why)
{
    char bytes[256];
    for (unsigned byte = 0; byte < 256; byte++) bytes[byte] = (char)byte;
    byte_buffer_append(&vocabulary->blob, bytes, sizeof bytes);
    return byte_buffer_status(&vocabulary->blob, why);
}

void vocabulary_make_byte(struct vocabulary *vocabulary, int32_t id, uint8_t byte)
{
    vocabulary->entries[id].bytes = byte;
    vocabulary->entries[id].bytes_length = 1;
}

mf_status vocabulary_add(struct vocabulary *vocabulary, uint64_t id, struct text_span text,
                         bool literal, const char *where, mf_error *why)
{
    uint64_t limit = vocabulary->id_limit ? vocabulary->id_limit : TOKEN_ID_LIMIT;
    if (id >= limit)
        return fail(why, MF_ERR_FORMAT, "%s: token \"%.*s\" has id %llu, at most %llu are accepted",
                    where, SPAN_ARGS(text), (unsigned long long)id, (unsigned long long)limit - 1);
    if (text.length > TOKEN_TEXT_LIMIT)
        return fail(why, MF_ERR_FORMAT, "%s: token %llu has %zu bytes, at most %d are accepted",
                    where, (unsigned long long)id, text.length, TOKEN_TEXT_LIMIT);
    mf_status status = ARRAY_RESERVE(vocabulary->entries, vocabulary->capacity, id + 1, NULL, why);
    if (status == MF_OK && vocabulary->blob.count == 0)
        status = store_single_bytes(vocabulary, why);
    if (status != MF_OK) return status;
    while (vocabulary->size <= id)
        vocabulary->entries[vocabulary->size++] = (struct token_entry){ 0 };

    struct token_entry *entry = &vocabulary->entries[id];
    if (entry->flags & TOKEN_PRESENT)
        return fail(why, MF_ERR_FORMAT, "%s: id %llu is given to \"%s\" and to \"%.*s\"", where,
                    (unsigned long long)id, vocabulary->blob.data + entry->text, SPAN_ARGS(text));
    status = store_token(vocabulary, entry, text, literal, why);
    vocabulary->longest = max_size(vocabulary->longest, entry->bytes_length);
    return status;
}

const struct token_entry *vocabulary_entry(const struct vocabulary *vocabulary, int64_t id)
{
    if (id < 0 || (uint64_t)id >= vocabulary->size) return NULL;
    const struct token_entry *entry = &vocabulary->entries[id];
    return entry->flags & TOKEN_PRESENT ? entry : NULL;
}

void vocabulary_free(struct vocabulary *vocabulary)
{
    free(vocabulary->entries);
    byte_buffer_free(&vocabulary->blob);
    free(vocabulary->buckets);
}

/* ------------------------------------------------------------------------- index */

static uint64_t mix(uint64_t hash, uint64_t word)
{
    hash = (hash ^ word) * 0x9E3779B97F4A7C15u;
    return hash ^ hash >> 32;
}

static uint64_t hash_bytes(const char *bytes, size_t length)
{
    uint64_t hash = length;
    for (; length > 8; bytes += 8, length -= 8) hash = mix(hash, load_u64(bytes));
    uint64_t tail = 0;
    if (length >= 4)
        tail = (uint64_t)load_u32(bytes) << 32 | load_u32(bytes + length - 4);
    else
        for (size_t i = 0; i < length; i++) tail = tail << 8 | (uint8_t)bytes[i];
    return mix(mix(hash, tail), 0x2545F4914F6CDD1Du);
}

/* The bucket that holds these bytes, or the empty one where they would go. */
static struct token_bucket *bucket_of(const struct vocabulary *vocabulary, uint64_t hash,
                                      const char *bytes, size_t length)
{
    uint32_t tag = (uint32_t)(hash >> 32);
    for (size_t at = (size_t)hash;; at++) {
        struct token_bucket *bucket = &vocabulary->buckets[at & vocabulary->bucket_mask];
        if (bucket->id < 0) return bucket;
        if (bucket->tag == tag && bucket->bytes_length == length &&
            memcmp(vocabulary->blob.data + bucket->bytes, bytes, length) == 0)
            return bucket;
    }
}

static bool same_text(const struct vocabulary *vocabulary, const struct token_entry *a,
                      const struct token_entry *b)
{
    return a->text_length == b->text_length &&
           memcmp(vocabulary->blob.data + a->text, vocabulary->blob.data + b->text,
                  a->text_length) == 0;
}

mf_status vocabulary_index(struct vocabulary *vocabulary, bool unique, const char *where,
                           mf_error *why)
{
    size_t bucket_count = 16;
    while (bucket_count < vocabulary->size + vocabulary->size / 2) bucket_count *= 2;
    vocabulary->buckets = malloc(bucket_count * sizeof *vocabulary->buckets);
    if (!vocabulary->buckets) return fail_memory(why, bucket_count * sizeof *vocabulary->buckets);
    memset(vocabulary->buckets, 0xFF, bucket_count * sizeof *vocabulary->buckets); /* id -1 */
    vocabulary->bucket_mask = bucket_count - 1;

    for (size_t id = 0; id < vocabulary->size; id++) {
        const struct token_entry *entry = &vocabulary->entries[id];
        if (!(entry->flags & TOKEN_PRESENT) || entry->flags & (TOKEN_SPECIAL | TOKEN_HIDDEN))
            continue;
        const char *bytes = vocabulary->blob.data + entry->bytes;
        uint64_t hash = hash_bytes(bytes, entry->bytes_length);
        struct token_bucket *bucket = bucket_of(vocabulary, hash, bytes, entry->bytes_length);
        if (bucket->id < 0) {
            *bucket = (struct token_bucket){ (uint32_t)(hash >> 32), (int32_t)id, entry->bytes,
                                             entry->bytes_length };
            continue;
        }
        /* "õ" as an added token and the byte-level string of its two bytes may both be there:
         * text is encoded with the latter. */
        const struct token_entry *other = &vocabulary->entries[bucket->id];
        bool added = (entry->flags | other->flags) & TOKEN_ADDED;
        if (unique && !added && same_text(vocabulary, entry, other))
            return fail(why, MF_ERR_FORMAT, "%s: token \"%.64s\" stands twice, as %d and %zu",
                        where, vocabulary->blob.data + entry->text, bucket->id, id);
        if (other->flags & TOKEN_ADDED && !(entry->flags & TOKEN_ADDED)) bucket->id = (int32_t)id;
    }
    return MF_OK;
}

int32_t vocabulary_find(const struct vocabulary *vocabulary, const char *bytes, size_t length)
{
    if (length > vocabulary->longest || !vocabulary->buckets) return -1;
    return bucket_of(vocabulary, hash_bytes(bytes, length), bytes, length)->id;
}
