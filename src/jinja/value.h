/* value.h: the values a template computes with: Python's, as far as templates can tell.
 *
 *     undefined none bool int float string      by value, or immutable
 *     list tuple range view generator           struct jinja_sequence
 *     dict namespace                            struct jinja_dict, in order of insertion
 *     function macro loop                       things that can be called or asked
 *
 * A rendering owns one heap; every value of it lives there until the rendering ends, so nothing
 * is ever freed on its own and a list that contains itself needs no care.  The heap is budgeted.
 * What would pile up in such a heap, text built up by `s = s + piece`, is extended in place
 * (see jinja_concatenate).
 *
 * Errors are sticky: the first jinja_raise is kept, the result of a failed call is undefined,
 * and loops that could run long look at run->failed.
 *
 * Text is valid UTF-8 and counted in code points, as Python does. */
#ifndef JINJA_VALUE_H
#define JINJA_VALUE_H

#include "jinja/options.h"
#include "moeflux.h"

#include <jansson.h>

struct jinja_run;

/* kind, Python's name of the type */
#define JINJA_KIND_LIST(X)                                                                         \
    X(ABSENT, "absent") /* an argument that was not given; no template ever sees it */             \
    X(UNDEFINED, "Undefined")                                                                      \
    X(NONE, "NoneType")                                                                            \
    X(BOOL, "bool")                                                                                \
    X(INT, "int")                                                                                  \
    X(FLOAT, "float")                                                                              \
    X(STRING, "str")                                                                               \
    X(LIST, "list")                                                                                \
    X(TUPLE, "tuple")                                                                              \
    X(RANGE, "range")                                                                              \
    X(VIEW, "dict_view")                                                                           \
    X(GENERATOR, "generator")                                                                      \
    X(DICT, "dict")                                                                                \
    X(NAMESPACE, "Namespace")                                                                      \
    X(FUNCTION, "builtin_function_or_method")                                                      \
    X(MACRO, "Macro")                                                                              \
    X(LOOP, "LoopContext")

enum jinja_kind {
#define JINJA_KIND_ENUM(id, name) JINJA_##id,
    JINJA_KIND_LIST(JINJA_KIND_ENUM)
#undef JINJA_KIND_ENUM
        JINJA_KIND_COUNT
};

struct jinja_value {
    enum jinja_kind kind;
    enum jinja_kind owner; /* UNDEFINED: of which kind of value it was asked; else 0 */
    union {
        bool truth;
        int64_t integer;
        double real;
        const struct jinja_string *string;
        const char *hint;                /* UNDEFINED with owner KIND_COUNT: why; static text */
        const struct jinja_string *name; /* UNDEFINED with another owner: what was asked for */
        struct jinja_sequence *sequence; /* LIST … GENERATOR */
        struct jinja_dict *dict;         /* DICT, NAMESPACE */
        const struct jinja_bound *bound; /* FUNCTION */
        const struct jinja_macro *macro;
        struct jinja_loop *loop;
    };
};

/* May share its bytes with other strings; not terminated. */
struct jinja_string {
    const char *data;
    size_t length;     /* bytes */
    size_t characters; /* code points */
};

struct jinja_sequence {
    struct jinja_value *items;
    size_t count, capacity;
    size_t position;           /* GENERATOR: how often it was asked */
    const char *label;         /* VIEW: "dict_items" … */
    int64_t start, stop, step; /* RANGE, as written */
};

struct jinja_entry {
    struct jinja_value key, value;
    uint64_t hash;
};

struct jinja_dict {
    struct jinja_entry *entries; /* in order of insertion */
    size_t count, capacity;
    uint32_t *buckets; /* hash table of entry number + 1; NULL while small */
    size_t bucket_count;
};

/* ------------------------------------------------------------------ heap and errors */

/* Zeroed memory of the rendering; NULL (and a sticky error) when the budget is spent. */
void *jinja_take(struct jinja_run *run, size_t count, size_t size);
/* Room in an array of that heap for `count` elements (array_reserve); false after an error. */
bool jinja_reserve(struct jinja_run *run, void **array, size_t *capacity, size_t count,
                   size_t size);
#define JINJA_RESERVE(run, array, capacity, count)                                                 \
    ((count) <= (capacity) ||                                                                      \
     jinja_reserve((run), (void **)&(array), &(capacity), (count), sizeof *(array)))

/* Counts work that is not a step of its own, `bytes` looked at.  False when steps ran out. */
bool jinja_charge(struct jinja_run *run, size_t bytes);

/* Nested work (values in values, macros in macros): enter is false at the limit, and leave must
 * then not be called. */
bool jinja_enter(struct jinja_run *run);
void jinja_leave(struct jinja_run *run);

/* Keeps the first error, at the position of the node in work.  Returns undefined. */
struct jinja_value jinja_raise(struct jinja_run *run, enum jinja_error_kind kind,
                               const char *format, ...) MF_PRINTF(3, 4);
/* With the text as it is, of any length. */
struct jinja_value jinja_raise_text(struct jinja_run *run, enum jinja_error_kind kind,
                                    const struct jinja_string *text);
/* The error that Jinja gives when an undefined value is used. */
struct jinja_value jinja_raise_undefined(struct jinja_run *run, struct jinja_value value);

/* ------------------------------------------------------------------ making values */

struct jinja_value jinja_none(void);
struct jinja_value jinja_absent(void);
struct jinja_value jinja_bool(bool truth);
struct jinja_value jinja_int(int64_t integer);
struct jinja_value jinja_float(double real);
/* What is returned after an error. */
struct jinja_value jinja_failed(void);
/* Undefined with a whole sentence as its reason; `hint` is static text. */
struct jinja_value jinja_undefined(const char *hint);
/* Undefined because `owner` (ABSENT: the template's variables) has no `name`. */
struct jinja_value jinja_undefined_name(enum jinja_kind owner, const struct jinja_string *name);

/* A string around bytes that outlive the rendering or lie in its heap. */
struct jinja_value jinja_string_view(struct jinja_run *run, const char *data, size_t length);
struct jinja_value jinja_string_copy(struct jinja_run *run, const char *data, size_t length);
struct jinja_value jinja_text(struct jinja_run *run, const char *terminated);

/* An empty LIST or TUPLE with room for `capacity` items. */
struct jinja_value jinja_sequence(struct jinja_run *run, enum jinja_kind kind, size_t capacity);
bool jinja_append(struct jinja_run *run, struct jinja_sequence *sequence, struct jinja_value item);
struct jinja_value jinja_pair(struct jinja_run *run, struct jinja_value a, struct jinja_value b);

struct jinja_value jinja_dict(struct jinja_run *run);
/* NULL when absent, or when the key cannot be one (then with an error). */
struct jinja_entry *jinja_dict_find(struct jinja_run *run, const struct jinja_dict *dict,
                                    struct jinja_value key);
bool jinja_dict_set(struct jinja_run *run, struct jinja_dict *dict, struct jinja_value key,
                    struct jinja_value value);
void jinja_dict_remove(struct jinja_run *run, struct jinja_dict *dict, struct jinja_entry *entry);

/* The value of a JSON text's tree; strings are borrowed from it. */
struct jinja_value jinja_from_json(struct jinja_run *run, const json_t *json);

/* A JSON string as markup (marks.h). */
struct jinja_value jinja_markup_from_json(struct jinja_run *run, const json_t *json);

/* ------------------------------------------------------------------ asking values */

const char *jinja_type_name(enum jinja_kind kind);
bool jinja_is_number(struct jinja_value value);   /* bool, int, float */
bool jinja_is_sequence(struct jinja_value value); /* has a struct jinja_sequence of items */
bool jinja_truth(struct jinja_value value);
double jinja_real(struct jinja_value value); /* of a number */
bool jinja_equal(struct jinja_run *run, struct jinja_value a, struct jinja_value b);
/* <0, 0, >0; values that Python does not order raise a type error that names `operator`. */
int jinja_order(struct jinja_run *run, struct jinja_value a, struct jinja_value b,
                const char *operator);
bool jinja_contains(struct jinja_run *run, struct jinja_value container, struct jinja_value item);
/* -1 when there is no such thing as a length (no error). */
int64_t jinja_length(struct jinja_value value);
/* A fresh list of what a loop over the value would see (a generator is used up by it);
 * a type error, and NULL, when it cannot be looped over. */
struct jinja_sequence *jinja_iterate(struct jinja_run *run, struct jinja_value value);
bool jinja_is_iterable(struct jinja_value value);
/* The string equals `terminated`. */
bool jinja_is_text(const struct jinja_string *string, const char *terminated);

/* ------------------------------------------------------------------ text */

/* Text that grows, in the heap. */
struct jinja_builder {
    struct jinja_run *run;
    char *data;
    size_t length, capacity;
    bool markup; /* all that is added is: text computed from markup alone (marks.h) */
};

void jinja_add(struct jinja_builder *builder, const char *data, size_t length);
void jinja_add_text(struct jinja_builder *builder, const char *terminated);
void jinja_add_string(struct jinja_builder *builder, const struct jinja_string *string);
void jinja_add_repeated(struct jinja_builder *builder, char character, size_t count);
void jinja_add_code_point(struct jinja_builder *builder, uint32_t code_point);
/* Python's str() and repr(). */
void jinja_add_value(struct jinja_builder *builder, struct jinja_value value);
void jinja_add_repr(struct jinja_builder *builder, struct jinja_value value);
/* What was built, without a copy; the builder is finished. */
struct jinja_value jinja_built(struct jinja_builder *builder);

struct jinja_value jinja_str(struct jinja_run *run, struct jinja_value value);
/* a + b; `a`'s bytes are shared when nothing was added after them yet. */
struct jinja_value jinja_concatenate(struct jinja_run *run, const struct jinja_string *a,
                                     const struct jinja_string *b);

enum { JINJA_FLOAT_CAPACITY = 40 };
/* repr() of a float: the shortest text that reads back as the same number. */
void jinja_format_float(char out[JINJA_FLOAT_CAPACITY], double real);

#endif
