/* schema_internal.h: the parts of the JSON Schema compiler.
 *
 *     schema.c          walks a schema: references, rules, types, keywords
 *     schema_merge.c    two schemas that must both hold, as one
 *     schema_object.c   objects and arrays
 *     schema_string.c   strings, keys, formats
 *     schema_fixed.c    values and keys that are given
 *     schema_pattern.c  regular expressions
 *     schema_number.c   numbers and whole numbers
 *     schema_text.c     strings that are written without quotes
 *
 * A schema that nothing satisfies becomes the rule `never`, which has no end; the grammar
 * compiler then takes away every way that leads to it. */
#ifndef GRAMMAR_SCHEMA_INTERNAL_H
#define GRAMMAR_SCHEMA_INTERNAL_H

#include "grammar/builder.h"
#include "grammar/schema.h"

enum {
    SCHEMA_DEPTH_LIMIT = 96,
    SCHEMA_WORK_LIMIT = 20000, /* schemas compiled or merged */
    SCHEMA_MEMO_BUCKETS = 1 << 15,
    SCHEMA_PATH_BYTES = 256,
};

/* The rule of a schema, found by the schema's text. */
struct schema_memo {
    char *text; /* from jansson; NULL: a free bucket */
    uint32_t rule;
};

/* Rules that many schemas share, made when they are first needed. */
enum shared_rule {
    SHARED_ANY,
    SHARED_CHARACTER,
    SHARED_STRING,
    SHARED_NUMBER,
    SHARED_INTEGER,
    SHARED_SPACE,
    SHARED_NEVER,
    SHARED_COUNT
};

struct schema_compiler {
    struct grammar_builder *builder;
    const json_t *root;
    struct json_schema_options options;
    struct schema_memo *memos; /* [SCHEMA_MEMO_BUCKETS], a hash table */
    size_t memo_bytes, work;
    unsigned depth;
    bool unquoted; /* characters stand for themselves: schema_text.c */
    uint32_t shared[SHARED_COUNT];
    char path[SCHEMA_PATH_BYTES]; /* where in the schema: "#/properties/name" */
};

/* ------------------------------------------------------------ schema.c */

/* Ready to compile; false after an error.  To be closed in either case. */
bool schema_compiler_open(struct schema_compiler *c, struct grammar_builder *builder,
                          const json_t *schema, const struct json_schema_options *options);
void schema_compiler_close(struct schema_compiler *c);

/* A reference to the rule of a schema; NULL after an error. */
const struct expression *schema_compile(struct schema_compiler *c, const json_t *schema,
                                        const char *step);

/* The schema that `reference` ("#/$defs/x") names; borrowed, NULL after an error. */
const json_t *schema_resolve(struct schema_compiler *c, const char *reference);

/* An error, or a note, that begins with the place.  schema_fail returns NULL. */
const struct expression *schema_fail(struct schema_compiler *c, mf_status status,
                                     const char *format, ...) MF_PRINTF(3, 4);
void schema_note(struct schema_compiler *c, const char *format, ...) MF_PRINTF(2, 3);

/* A keyword that cannot be kept: true when it may be left out (lenient), after a note. */
bool schema_leave_out(struct schema_compiler *c, const char *keyword, const char *reason);

/* A count (minItems, …), or `otherwise`.  False after an error. */
bool schema_count(struct schema_compiler *c, uint32_t *out, const json_t *schema,
                  const char *keyword, uint32_t otherwise);

/* Counts work and time-bounds the compiler; false when it was too much. */
bool schema_may_work(struct schema_compiler *c);

const struct expression *schema_shared(struct schema_compiler *c, enum shared_rule which);

/* ------------------------------------------------------ schema_merge.c */

/* Both must hold: a new reference, without $ref and allOf at its top.  NULL after an error. */
json_t *schema_merge_new(struct schema_compiler *c, const json_t *a, const json_t *b);

/* $ref and allOf at the top taken in; a new reference.  NULL after an error. */
json_t *schema_flatten_new(struct schema_compiler *c, const json_t *schema);

/* Whether no value satisfies both, as far as can be seen. */
bool schema_disjoint(struct schema_compiler *c, const json_t *a, const json_t *b, unsigned depth);

/* Whether a value has the type and keeps the simple bounds of a flat schema. */
bool schema_value_fits(const json_t *value, const json_t *schema);
bool schema_allows_type(const json_t *schema, const char *type);

/* ----------------------------------------------------- schema_object.c */

const struct expression *schema_object(struct schema_compiler *c, const json_t *schema);
const struct expression *schema_array(struct schema_compiler *c, const json_t *schema);

/* ----------------------------------------------------- schema_string.c */

/* The value with its quotes. */
const struct expression *schema_string(struct schema_compiler *c, const json_t *schema);

/* What stands between the quotes, by pattern, format and lengths; `free_text` when none is given.
 * NULL after an error. */
const struct expression *schema_string_inside(struct schema_compiler *c, const json_t *schema,
                                              const struct expression *free_text);

/* Any string, with its quotes: the body of SHARED_STRING. */
const struct expression *schema_any_string(struct schema_compiler *c);

/* `x` between quotes. */
const struct expression *schema_in_quotes(struct schema_compiler *c, const struct expression *x);

/* A string without escapes that is none of `names` (the keys of an object). */
const struct expression *schema_other_key(struct schema_compiler *c, const json_t *names);

/* One character of a string, as it is written in JSON; `ranges` is a set. */
const struct expression *schema_character(struct schema_compiler *c,
                                          const struct code_range *ranges, size_t count);

/* ------------------------------------------------------ schema_fixed.c */

/* A fixed text as a JSON string; a key without quotes where these are bare. */
const struct expression *schema_quoted(struct schema_compiler *c, const char *text, size_t length);

/* The text of any value: from malloc, NULL after an error. */
char *schema_value_text(struct schema_compiler *c, const json_t *value);

/* A key that can be written without quotes, where these are bare. */
bool schema_is_bare_key(const char *key);

/* ---------------------------------------------------- schema_pattern.c */

/* The inside of a string that matches a regular expression somewhere (its anchors decide), with
 * `least` to `most` characters.  NULL after an error; *kept_lengths false when the pattern is
 * kept but its lengths could not be. */
const struct expression *schema_pattern(struct schema_compiler *c, const char *pattern,
                                        uint32_t least, uint32_t most, bool *kept_lengths);

/* ----------------------------------------------------- schema_number.c */

/* Any of them, unbounded: the bodies of SHARED_INTEGER and SHARED_NUMBER. */
const struct expression *schema_any_number(struct schema_compiler *c, bool whole);

const struct expression *schema_number(struct schema_compiler *c, const json_t *schema, bool whole);

#endif
