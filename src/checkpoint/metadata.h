/* metadata.h: the named values at the head of a GGUF file.
 *
 * A value is a number, a flag, a text, or an array of one of these.  The bytes of all values stay
 * as read, in one block; an entry holds the offset of its value, so that a vocabulary of 150,000
 * tokens costs one array of offsets and no copies.
 *
 *     uint64_t layers;
 *     metadata_need_count(&layers, metadata, "qwen3moe.block_count", 1, 1000, why);
 *
 *     struct metadata_array tokens;
 *     metadata_need_array(&tokens, metadata, "tokenizer.ggml.tokens", METADATA_TEXT, why);
 *     for (i < tokens.count) { struct metadata_text t = metadata_array_text(&tokens, i); … }
 *
 * The message of a failed getter names the file, the key, what was found and what was expected.
 * Lifetime: everything returned is borrowed from the metadata. */
#ifndef CHECKPOINT_METADATA_H
#define CHECKPOINT_METADATA_H

#include "base/arena.h"
#include "checkpoint/name_table.h"

/* enum suffix, number in the file, bytes (0: varies), name for messages */
#define METADATA_TYPE_LIST(X)                                                                      \
    X(U8, 0, 1, "an 8-bit number")                                                                 \
    X(I8, 1, 1, "a signed 8-bit number")                                                           \
    X(U16, 2, 2, "a 16-bit number")                                                                \
    X(I16, 3, 2, "a signed 16-bit number")                                                         \
    X(U32, 4, 4, "a 32-bit number")                                                                \
    X(I32, 5, 4, "a signed 32-bit number")                                                         \
    X(F32, 6, 4, "a 32-bit float")                                                                 \
    X(FLAG, 7, 1, "true or false")                                                                 \
    X(TEXT, 8, 0, "a text")                                                                        \
    X(ARRAY, 9, 0, "an array")                                                                     \
    X(U64, 10, 8, "a 64-bit number")                                                               \
    X(I64, 11, 8, "a signed 64-bit number")                                                        \
    X(F64, 12, 8, "a 64-bit float")

enum metadata_type {
#define METADATA_ENUM(id, number, bytes, name) METADATA_##id = number,
    METADATA_TYPE_LIST(METADATA_ENUM)
#undef METADATA_ENUM
        METADATA_TYPE_COUNT
};

/* Of one value; 0: it varies. */
size_t metadata_type_bytes(enum metadata_type type);

struct metadata_entry {
    const char *key;
    enum metadata_type type; /* of the value; of the elements when is_array */
    bool is_array;
    uint64_t count;   /* elements; 1 for a single value */
    uint64_t offset;  /* of the value in `bytes` */
    size_t starts;    /* array of texts: the first one's index in `starts` */
    const char *text; /* of a single text, terminated: the next key follows it in the file */
    size_t length;
};

struct metadata {
    struct arena arena; /* keys and single texts */
    const char *path;   /* of the file, for messages */
    struct metadata_entry *entries;
    size_t count, capacity;
    struct name_table keys;
    uint8_t *bytes; /* the head of the file as it is */
    size_t byte_capacity;
    uint64_t *starts; /* offsets in `bytes` of the length fields of texts in arrays */
    size_t start_count, start_capacity;
};

/* Not terminated: use the length. */
struct metadata_text {
    const char *bytes;
    size_t length;
};

struct metadata_array {
    enum metadata_type type; /* of the elements */
    uint64_t count;
    const uint8_t *bytes;   /* the first element, or for texts the start of the file */
    const uint64_t *starts; /* of texts */
};

void metadata_init(struct metadata *metadata, const mf_allocator *allocator);
void metadata_free(struct metadata *metadata); /* a zeroed struct is legal */

/* All values except those about splitting, as a GGUF file without tensors; release with free(). */
mf_status metadata_write_new(uint8_t **out, size_t *bytes, const struct metadata *metadata,
                             mf_error *why);

/* The entry of that key, or NULL. */
const struct metadata_entry *metadata_find(const struct metadata *metadata, const char *key);

/* "a text", "an array", … for messages; "nothing" for NULL. */
const char *metadata_kind(const struct metadata_entry *entry);

/* A whole number of any width, from `low` to `high`.  need_: a missing key is an error.  maybe_: it
 * leaves *out unchanged. */
mf_status metadata_need_count(uint64_t *out, const struct metadata *metadata, const char *key,
                              uint64_t low, uint64_t high, mf_error *why);
mf_status metadata_maybe_count(uint64_t *out, const struct metadata *metadata, const char *key,
                               uint64_t low, uint64_t high, mf_error *why);

/* A float, or a whole number as one. */
mf_status metadata_maybe_real(double *out, const struct metadata *metadata, const char *key,
                              mf_error *why);
mf_status metadata_maybe_flag(bool *out, const struct metadata *metadata, const char *key,
                              mf_error *why);

/* A NUL-terminated text; an error if it contains a NUL. */
mf_status metadata_need_text(const char **out, const struct metadata *metadata, const char *key,
                             mf_error *why);
mf_status metadata_maybe_text(const char **out, const struct metadata *metadata, const char *key,
                              mf_error *why);

/* An array of `kind`: METADATA_TEXT, METADATA_FLAG or METADATA_I64 (whole numbers of any
 * width). */
mf_status metadata_need_array(struct metadata_array *out, const struct metadata *metadata,
                              const char *key, enum metadata_type kind, mf_error *why);
/* count 0 when the key is absent. */
mf_status metadata_maybe_array(struct metadata_array *out, const struct metadata *metadata,
                               const char *key, enum metadata_type kind, mf_error *why);

/* Element `index` < count of an array of the requested kind.  A u64 above INT64_MAX becomes
 * INT64_MAX. */
struct metadata_text metadata_array_text(const struct metadata_array *array, uint64_t index);
int64_t metadata_array_int(const struct metadata_array *array, uint64_t index);

#endif
