#include "jinja/value.h"

#include "base/array.h"
#include "jinja/run.h"
#include "base/unicode.h"

#include <stdarg.h>
#include <stdio.h>

/* ------------------------------------------------------------------ heap and errors */

enum { CHUNK_BYTES = 32 * 1024, HEAP_ALIGNMENT = 16 };

/* The bits of a piece stand behind it. */
static void *take_fresh(struct jinja_run *run, size_t bytes)
{
    char *memory = arena_take(&run->arena, bytes + jinja_marks_bytes(bytes), 1);
    if (!memory) jinja_raise(run, JINJA_ERROR_MEMORY, "out of memory");
    if (!memory || !jinja_marks_add_region(run, memory, bytes, (uint8_t *)memory + bytes))
        return NULL;
    return memory;
}

void *jinja_take(struct jinja_run *run, size_t count, size_t size)
{
    uint64_t bytes;
    if (!checked_multiply(&bytes, count, size) || bytes > run->memory_left) {
        jinja_raise(run, JINJA_ERROR_LIMIT, "the template needs too much memory");
        return NULL;
    }
    bytes = align_up(max_size(bytes, 1), HEAP_ALIGNMENT);
    run->memory_left -= min_size(bytes, run->memory_left);
    if (bytes > CHUNK_BYTES / 4) return take_fresh(run, bytes);
    if (bytes > run->free_bytes) {
        run->free_space = take_fresh(run, CHUNK_BYTES);
        run->free_bytes = run->free_space ? CHUNK_BYTES : 0;
        if (!run->free_space) return NULL;
    }
    void *memory = run->free_space;
    run->free_space += bytes;
    run->free_bytes -= bytes;
    return memory;
}

/* An mf_allocator's functions: what an array outgrew stays in the heap. */
static void *heap_allocate(void *run, size_t bytes, size_t alignment)
{
    (void)alignment; /* of the elements: HEAP_ALIGNMENT is enough */
    return jinja_take(run, bytes, 1);
}

static void heap_release(void *run, void *pointer, size_t bytes)
{
    (void)run;
    (void)pointer;
    (void)bytes;
}

bool jinja_reserve(struct jinja_run *run, void **array, size_t *capacity, size_t count, size_t size)
{
    mf_allocator heap = { run, heap_allocate, heap_release };
    if (run->failed) return false;
    if (array_reserve(array, capacity, count, size, &heap, NULL) == MF_OK) return true;
    jinja_raise(run, JINJA_ERROR_LIMIT, "the template needs too much memory");
    return false;
}

bool jinja_charge(struct jinja_run *run, size_t bytes)
{
    uint64_t steps = 1 + bytes / 32;
    if (steps > run->steps_left) {
        run->steps_left = 0;
        jinja_raise(run, JINJA_ERROR_LIMIT, "the template takes too many steps");
        return false;
    }
    run->steps_left -= steps;
    return !run->failed;
}

bool jinja_enter(struct jinja_run *run)
{
    if (run->failed) return false;
    if (!run->depth_left) {
        jinja_raise(run, JINJA_ERROR_LIMIT, "the template is nested too deeply");
        return false;
    }
    run->depth_left--;
    return true;
}

void jinja_leave(struct jinja_run *run)
{
    run->depth_left++;
}

static void note_error(struct jinja_run *run, enum jinja_error_kind kind, const char *message,
                       size_t length)
{
    run->failed = true;
    run->error_kind = kind;
    run->error_line = run->line;
    run->error_column = run->column;
    run->error_message = message;
    run->error_length = length;
}

struct jinja_value jinja_raise(struct jinja_run *run, enum jinja_error_kind kind,
                               const char *format, ...)
{
    struct jinja_value undefined = jinja_failed();
    if (run->failed) return undefined;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(run->error_text, sizeof run->error_text, format, arguments);
    va_end(arguments);
    note_error(run, kind, run->error_text, strlen(run->error_text));
    return undefined;
}

struct jinja_value jinja_raise_text(struct jinja_run *run, enum jinja_error_kind kind,
                                    const struct jinja_string *text)
{
    if (!run->failed) note_error(run, kind, text->data, text->length);
    return jinja_failed();
}

/* Jinja's name of a value's type in "'list object' has no attribute 'x'". */
static const char *object_name(enum jinja_kind kind, char out[64])
{
    if (kind == JINJA_NONE) return "None";
    snprintf(out, 64, "%s object", jinja_type_name(kind));
    return out;
}

struct jinja_value jinja_raise_undefined(struct jinja_run *run, struct jinja_value value)
{
    char owner[64];
    if (value.owner == JINJA_KIND_COUNT)
        return jinja_raise(run, JINJA_ERROR_UNDEFINED, "%s", value.hint);
    if (!value.name) return jinja_raise(run, JINJA_ERROR_UNDEFINED, "the value is undefined");
    int length = (int)min_size(value.name->length, 200);
    if (value.owner == JINJA_ABSENT)
        return jinja_raise(run, JINJA_ERROR_UNDEFINED, "'%.*s' is undefined", length,
                           value.name->data);
    return jinja_raise(run, JINJA_ERROR_UNDEFINED, "'%s' has no attribute '%.*s'",
                       object_name(value.owner, owner), length, value.name->data);
}

/* ------------------------------------------------------------------ plain values */

struct jinja_value jinja_none(void)
{
    return (struct jinja_value){ .kind = JINJA_NONE };
}

struct jinja_value jinja_absent(void)
{
    return (struct jinja_value){ .kind = JINJA_ABSENT };
}

struct jinja_value jinja_bool(bool truth)
{
    return (struct jinja_value){ .kind = JINJA_BOOL, .truth = truth };
}

struct jinja_value jinja_int(int64_t integer)
{
    return (struct jinja_value){ .kind = JINJA_INT, .integer = integer };
}

struct jinja_value jinja_float(double real)
{
    return (struct jinja_value){ .kind = JINJA_FLOAT, .real = real };
}

struct jinja_value jinja_failed(void)
{
    return (struct jinja_value){ .kind = JINJA_UNDEFINED };
}

struct jinja_value jinja_undefined(const char *hint)
{
    return (struct jinja_value){ .kind = JINJA_UNDEFINED, .owner = JINJA_KIND_COUNT, .hint = hint };
}

struct jinja_value jinja_undefined_name(enum jinja_kind owner, const struct jinja_string *name)
{
    return (struct jinja_value){ .kind = JINJA_UNDEFINED, .owner = owner, .name = name };
}

/* ------------------------------------------------------------------ strings */

struct jinja_value jinja_string_view(struct jinja_run *run, const char *data, size_t length)
{
    struct jinja_string *string = jinja_take(run, 1, sizeof *string);
    if (!string) return jinja_failed();
    *string = (struct jinja_string){ .data = data,
                                     .length = length,
                                     .characters = unicode_count(data, length) };
    return (struct jinja_value){ .kind = JINJA_STRING, .string = string };
}

struct jinja_value jinja_string_copy(struct jinja_run *run, const char *data, size_t length)
{
    char *copy = jinja_take(run, length, 1);
    if (!copy) return jinja_failed();
    if (length) memcpy(copy, data, length);
    jinja_marks_copy(run, copy, data, length);
    return jinja_string_view(run, copy, length);
}

struct jinja_value jinja_text(struct jinja_run *run, const char *terminated)
{
    return jinja_string_copy(run, terminated, strlen(terminated));
}

bool jinja_is_text(const struct jinja_string *string, const char *terminated)
{
    size_t length = strlen(terminated);
    return string->length == length && memcmp(string->data, terminated, length) == 0;
}

/* The block that ends with `a`, so that more can be put behind it; else one to be replaced. */
static struct jinja_growing *find_growing(struct jinja_run *run, const struct jinja_string *a,
                                          bool *found)
{
    for (size_t i = 0; i < JINJA_GROWING_COUNT; i++) {
        struct jinja_growing *block = &run->growing[i];
        *found =
            block->end && a->length && a->data + a->length == block->end && a->data >= block->start;
        if (*found) return block;
    }
    return &run->growing[run->next_growing++ % JINJA_GROWING_COUNT];
}

struct jinja_value jinja_concatenate(struct jinja_run *run, const struct jinja_string *a,
                                     const struct jinja_string *b)
{
    struct jinja_string *string = jinja_take(run, 1, sizeof *string);
    uint64_t length;
    bool found;
    if (!string || !checked_add(&length, a->length, b->length) || !jinja_charge(run, b->length))
        return jinja_failed();
    struct jinja_growing *block = find_growing(run, a, &found);
    const char *start = a->data;
    if (!found || (size_t)(block->limit - block->end) < b->length) {
        size_t capacity = length + length / 2;
        char *fresh = jinja_take(run, capacity, 1);
        if (!fresh || !jinja_charge(run, a->length)) return jinja_failed();
        if (a->length) memcpy(fresh, a->data, a->length);
        jinja_marks_copy(run, fresh, a->data, a->length);
        *block = (struct jinja_growing){ fresh, fresh + a->length, fresh + capacity };
        start = fresh;
    }
    if (b->length) memcpy(block->end, b->data, b->length);
    jinja_marks_copy(run, block->end, b->data, b->length);
    block->end += b->length;
    *string = (struct jinja_string){ .data = start,
                                     .length = length,
                                     .characters = a->characters + b->characters };
    return (struct jinja_value){ .kind = JINJA_STRING, .string = string };
}

/* ------------------------------------------------------------------ sequences */

struct jinja_value jinja_sequence(struct jinja_run *run, enum jinja_kind kind, size_t capacity)
{
    struct jinja_sequence *sequence = jinja_take(run, 1, sizeof *sequence);
    if (!sequence) return jinja_failed();
    if (capacity) {
        sequence->items = jinja_take(run, capacity, sizeof *sequence->items);
        if (!sequence->items) return jinja_failed();
        sequence->capacity = capacity;
    }
    return (struct jinja_value){ .kind = kind, .sequence = sequence };
}

bool jinja_append(struct jinja_run *run, struct jinja_sequence *sequence, struct jinja_value item)
{
    if (!JINJA_RESERVE(run, sequence->items, sequence->capacity, sequence->count + 1)) return false;
    sequence->items[sequence->count++] = item;
    return true;
}

struct jinja_value jinja_pair(struct jinja_run *run, struct jinja_value a, struct jinja_value b)
{
    struct jinja_value pair = jinja_sequence(run, JINJA_TUPLE, 2);
    if (run->failed) return pair;
    jinja_append(run, pair.sequence, a);
    jinja_append(run, pair.sequence, b);
    return pair;
}

struct jinja_value jinja_generator(struct jinja_value list)
{
    if (list.kind == JINJA_LIST) list.kind = JINJA_GENERATOR;
    return list;
}

/* ------------------------------------------------------------------ asking */

const char *jinja_type_name(enum jinja_kind kind)
{
    static const char *const names[] = {
#define JINJA_KIND_NAME(id, name) name,
        JINJA_KIND_LIST(JINJA_KIND_NAME)
#undef JINJA_KIND_NAME
    };
    return names[kind];
}

bool jinja_is_number(struct jinja_value value)
{
    return value.kind == JINJA_BOOL || value.kind == JINJA_INT || value.kind == JINJA_FLOAT;
}

bool jinja_is_sequence(struct jinja_value value)
{
    return value.kind >= JINJA_LIST && value.kind <= JINJA_GENERATOR;
}

double jinja_real(struct jinja_value value)
{
    if (value.kind == JINJA_FLOAT) return value.real;
    return value.kind == JINJA_BOOL ? (double)value.truth : (double)value.integer;
}

bool jinja_truth(struct jinja_value value)
{
    switch (value.kind) {
    case JINJA_ABSENT:
    case JINJA_UNDEFINED:
    case JINJA_NONE:
        return false;
    case JINJA_BOOL:
        return value.truth;
    case JINJA_INT:
        return value.integer != 0;
    case JINJA_FLOAT:
        return value.real != 0;
    case JINJA_STRING:
        return value.string->length > 0;
    case JINJA_LIST:
    case JINJA_TUPLE:
    case JINJA_RANGE:
    case JINJA_VIEW:
        return value.sequence->count > 0;
    case JINJA_DICT:
        return value.dict->count > 0;
    default:
        return true;
    }
}

int64_t jinja_length(struct jinja_value value)
{
    switch (value.kind) {
    case JINJA_UNDEFINED:
        return 0;
    case JINJA_STRING:
        return (int64_t)value.string->characters;
    case JINJA_LIST:
    case JINJA_TUPLE:
    case JINJA_RANGE:
    case JINJA_VIEW:
        return (int64_t)value.sequence->count;
    case JINJA_DICT:
        return (int64_t)value.dict->count;
    default:
        return -1;
    }
}

bool jinja_is_iterable(struct jinja_value value)
{
    return value.kind == JINJA_UNDEFINED || value.kind == JINJA_STRING ||
           value.kind == JINJA_DICT || jinja_is_sequence(value);
}

static void append_characters(struct jinja_run *run, struct jinja_sequence *out,
                              const struct jinja_string *string)
{
    size_t offset = 0;
    while (offset < string->length && !run->failed) {
        size_t bytes;
        unicode_decode(string->data + offset, &bytes);
        jinja_append(run, out, jinja_string_view(run, string->data + offset, bytes));
        offset += bytes;
    }
}

struct jinja_sequence *jinja_iterate(struct jinja_run *run, struct jinja_value value)
{
    if (!jinja_is_iterable(value)) {
        jinja_raise(run, JINJA_ERROR_TYPE, "'%s' object is not iterable",
                    jinja_type_name(value.kind));
        return NULL;
    }
    int64_t length = jinja_length(value);
    struct jinja_value list = jinja_sequence(run, JINJA_LIST, length > 0 ? (size_t)length : 0);
    if (run->failed || !jinja_charge(run, length > 0 ? (size_t)length : 0)) return NULL;
    if (value.kind == JINJA_STRING) {
        append_characters(run, list.sequence, value.string);
    } else if (value.kind == JINJA_DICT) {
        for (size_t i = 0; i < value.dict->count; i++)
            jinja_append(run, list.sequence, value.dict->entries[i].key);
    } else if (jinja_is_sequence(value)) {
        for (size_t i = value.sequence->position; i < value.sequence->count; i++)
            jinja_append(run, list.sequence, value.sequence->items[i]);
        if (value.kind == JINJA_GENERATOR) value.sequence->position = value.sequence->count;
    }
    return run->failed ? NULL : list.sequence;
}
