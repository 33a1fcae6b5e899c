/* Dicts in order of insertion, and the relations between values that they rest on. */
#include "jinja/run.h"

#include <math.h>

/* ------------------------------------------------------------------ equality */

/* Whole numbers and floats are compared exactly: long double holds every int64. */
static int order_numbers(struct jinja_value a, struct jinja_value b)
{
    long double x = a.kind == JINJA_FLOAT ? (long double)a.real
                    : a.kind == JINJA_INT ? (long double)a.integer
                                          : (long double)a.truth;
    long double y = b.kind == JINJA_FLOAT ? (long double)b.real
                    : b.kind == JINJA_INT ? (long double)b.integer
                                          : (long double)b.truth;
    return x < y ? -1 : x > y;
}

static bool equal_sequences(struct jinja_run *run, const struct jinja_sequence *a,
                            const struct jinja_sequence *b)
{
    if (a == b) return true;
    if (a->count != b->count || !jinja_enter(run)) return false;
    bool equal = true;
    for (size_t i = 0; equal && i < a->count && i < b->count; i++)
        equal = jinja_equal(run, a->items[i], b->items[i]) && jinja_charge(run, 0);
    jinja_leave(run);
    return equal;
}

static bool equal_dicts(struct jinja_run *run, const struct jinja_dict *a,
                        const struct jinja_dict *b)
{
    if (a == b) return true;
    if (a->count != b->count || !jinja_enter(run)) return false;
    bool equal = true;
    for (size_t i = 0; equal && i < a->count; i++) {
        const struct jinja_entry *other = jinja_dict_find(run, b, a->entries[i].key);
        equal =
            other && jinja_equal(run, a->entries[i].value, other->value) && jinja_charge(run, 0);
    }
    jinja_leave(run);
    return equal;
}

bool jinja_equal(struct jinja_run *run, struct jinja_value a, struct jinja_value b)
{
    if (jinja_is_number(a) && jinja_is_number(b)) {
        if ((a.kind == JINJA_FLOAT && isnan(a.real)) || (b.kind == JINJA_FLOAT && isnan(b.real)))
            return false;
        return order_numbers(a, b) == 0;
    }
    if (a.kind != b.kind) return false;
    switch (a.kind) {
    case JINJA_UNDEFINED:
    case JINJA_NONE:
        return true;
    case JINJA_STRING:
        return a.string->length == b.string->length && jinja_charge(run, a.string->length) &&
               memcmp(a.string->data, b.string->data, a.string->length) == 0;
    case JINJA_LIST:
    case JINJA_TUPLE:
    case JINJA_RANGE:
    case JINJA_VIEW:
        return equal_sequences(run, a.sequence, b.sequence);
    case JINJA_DICT:
        return equal_dicts(run, a.dict, b.dict);
    case JINJA_FUNCTION:
        return a.bound == b.bound;
    default:
        return a.sequence == b.sequence; /* the same object */
    }
}

int jinja_order(struct jinja_run *run, struct jinja_value a, struct jinja_value b,
                const char *operator)
{
    if (jinja_is_number(a) && jinja_is_number(b)) return order_numbers(a, b);
    if (a.kind == JINJA_STRING && b.kind == JINJA_STRING) {
        size_t common = min_size(a.string->length, b.string->length);
        jinja_charge(run, common);
        int order = common ? memcmp(a.string->data, b.string->data, common) : 0;
        if (order) return order;
        return a.string->length < b.string->length ? -1 : a.string->length > b.string->length;
    }
    if (a.kind == JINJA_UNDEFINED || b.kind == JINJA_UNDEFINED) {
        jinja_raise_undefined(run, a.kind == JINJA_UNDEFINED ? a : b);
        return 0;
    }
    if (a.kind != b.kind || (a.kind != JINJA_LIST && a.kind != JINJA_TUPLE)) {
        jinja_raise(run, JINJA_ERROR_TYPE,
                    "'%s' not supported between instances of '%s' and '%s'", operator,
                    jinja_type_name(a.kind), jinja_type_name(b.kind));
        return 0;
    }
    if (!jinja_enter(run)) return 0;
    int order = 0;
    size_t common = min_size(a.sequence->count, b.sequence->count), i = 0;
    while (i < common && jinja_charge(run, 0) &&
           jinja_equal(run, a.sequence->items[i], b.sequence->items[i]))
        i++;
    if (i < common)
        order = jinja_order(run, a.sequence->items[i], b.sequence->items[i], operator);
    else
        order = a.sequence->count < b.sequence->count ? -1 : a.sequence->count > b.sequence->count;
    jinja_leave(run);
    return order;
}

static bool text_contains(struct jinja_run *run, const struct jinja_string *text,
                          struct jinja_value item)
{
    if (item.kind != JINJA_STRING) {
        jinja_raise(run, JINJA_ERROR_TYPE, "'in <string>' requires string as left operand, not %s",
                    jinja_type_name(item.kind));
        return false;
    }
    if (!item.string->length) return true;
    return jinja_charge(run, text->length) &&
           memmem(text->data, text->length, item.string->data, item.string->length);
}

bool jinja_contains(struct jinja_run *run, struct jinja_value container, struct jinja_value item)
{
    if (container.kind == JINJA_UNDEFINED) return false;
    if (container.kind == JINJA_STRING) return text_contains(run, container.string, item);
    if (container.kind == JINJA_DICT) return jinja_dict_find(run, container.dict, item) != NULL;
    if (!jinja_is_sequence(container)) {
        jinja_raise(run, JINJA_ERROR_TYPE, "argument of type '%s' is not iterable",
                    jinja_type_name(container.kind));
        return false;
    }
    struct jinja_sequence *sequence = container.sequence;
    for (size_t i = sequence->position; i < sequence->count && jinja_charge(run, 0); i++) {
        if (container.kind == JINJA_GENERATOR) sequence->position = i + 1;
        if (jinja_equal(run, sequence->items[i], item)) return true;
    }
    return false;
}

/* ------------------------------------------------------------------ dicts */

/* Below this many entries a search is a scan. */
enum { SCAN_LIMIT = 8 };

static uint64_t hash_bytes(const void *data, size_t length, uint64_t hash)
{
    const unsigned char *bytes = data;
    for (size_t i = 0; i < length; i++) hash = (hash ^ bytes[i]) * 0x100000001B3u;
    return hash ^ (hash >> 32);
}

static const uint64_t hash_seed = 0xCBF29CE484222325u;

/* False, with a type error, for what Python cannot hash.  Equal values have equal hashes. */
static bool hash_value(struct jinja_run *run, struct jinja_value key, uint64_t *out)
{
    double real;
    switch (key.kind) {
    case JINJA_UNDEFINED:
    case JINJA_NONE:
        *out = hash_seed + (uint64_t)key.kind;
        return true;
    case JINJA_BOOL:
    case JINJA_INT:
    case JINJA_FLOAT:
        real = jinja_real(key);
        if (real == 0) real = 0; /* -0.0 */
        *out = hash_bytes(&real, sizeof real, hash_seed);
        return true;
    case JINJA_STRING:
        *out = hash_bytes(key.string->data, key.string->length, hash_seed);
        return jinja_charge(run, key.string->length);
    case JINJA_TUPLE:
        if (!jinja_enter(run)) return false;
        *out = hash_seed;
        for (size_t i = 0; i < key.sequence->count && !run->failed; i++) {
            uint64_t item = 0;
            if (hash_value(run, key.sequence->items[i], &item))
                *out = hash_bytes(&item, sizeof item, *out);
        }
        jinja_leave(run);
        return !run->failed;
    default:
        jinja_raise(run, JINJA_ERROR_TYPE, "unhashable type: '%s'", jinja_type_name(key.kind));
        return false;
    }
}

struct jinja_value jinja_dict(struct jinja_run *run)
{
    struct jinja_dict *dict = jinja_take(run, 1, sizeof *dict);
    if (!dict) return jinja_failed();
    return (struct jinja_value){ .kind = JINJA_DICT, .dict = dict };
}

static struct jinja_entry *find_hashed(struct jinja_run *run, const struct jinja_dict *dict,
                                       struct jinja_value key, uint64_t hash)
{
    if (!dict->buckets) {
        for (size_t i = 0; i < dict->count; i++) {
            struct jinja_entry *entry = &dict->entries[i];
            if (entry->hash == hash && jinja_equal(run, entry->key, key)) return entry;
        }
        return NULL;
    }
    size_t mask = dict->bucket_count - 1;
    for (size_t bucket = hash & mask; dict->buckets[bucket]; bucket = (bucket + 1) & mask) {
        struct jinja_entry *entry = &dict->entries[dict->buckets[bucket] - 1];
        if (entry->hash == hash && jinja_equal(run, entry->key, key)) return entry;
        if (!jinja_charge(run, 0)) return NULL;
    }
    return NULL;
}

struct jinja_entry *jinja_dict_find(struct jinja_run *run, const struct jinja_dict *dict,
                                    struct jinja_value key)
{
    uint64_t hash;
    if (!hash_value(run, key, &hash)) return NULL;
    return find_hashed(run, dict, key, hash);
}

/* Fills the hash table from the entries. */
static void rebuild_buckets(struct jinja_dict *dict)
{
    size_t mask = dict->bucket_count - 1;
    memset(dict->buckets, 0, dict->bucket_count * sizeof *dict->buckets);
    for (size_t i = 0; i < dict->count; i++) {
        size_t bucket = dict->entries[i].hash & mask;
        while (dict->buckets[bucket]) bucket = (bucket + 1) & mask;
        dict->buckets[bucket] = (uint32_t)(i + 1);
    }
}

static bool grow(struct jinja_run *run, struct jinja_dict *dict)
{
    if (dict->capacity > UINT32_MAX / 4 ||
        !JINJA_RESERVE(run, dict->entries, dict->capacity, dict->count + 1))
        return false;
    if (dict->capacity > SCAN_LIMIT) {
        dict->bucket_count = dict->capacity * 2; /* a power of two, at most half full */
        dict->buckets = jinja_take(run, dict->bucket_count, sizeof *dict->buckets);
        if (!dict->buckets) return false;
        rebuild_buckets(dict);
    }
    return true;
}

bool jinja_dict_set(struct jinja_run *run, struct jinja_dict *dict, struct jinja_value key,
                    struct jinja_value value)
{
    uint64_t hash;
    if (!hash_value(run, key, &hash)) return false;
    struct jinja_entry *entry = find_hashed(run, dict, key, hash);
    if (run->failed) return false;
    if (entry) {
        entry->value = value;
        return true;
    }
    if (dict->count == dict->capacity && !grow(run, dict)) return false;
    if (dict->buckets) {
        size_t mask = dict->bucket_count - 1, bucket = hash & mask;
        while (dict->buckets[bucket]) bucket = (bucket + 1) & mask;
        dict->buckets[bucket] = (uint32_t)(dict->count + 1);
    }
    dict->entries[dict->count++] = (struct jinja_entry){ key, value, hash };
    return true;
}

void jinja_dict_remove(struct jinja_run *run, struct jinja_dict *dict, struct jinja_entry *entry)
{
    size_t index = (size_t)(entry - dict->entries);
    memmove(entry, entry + 1, (dict->count - index - 1) * sizeof *entry);
    dict->count--;
    jinja_charge(run, dict->count * sizeof *entry);
    if (dict->buckets) rebuild_buckets(dict);
}
