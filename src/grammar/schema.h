/* schema.h: compiles a JSON Schema to a grammar.
 *
 * Every text of the grammar is JSON that satisfies the schema.  The grammar allows less than the
 * schema where that costs a model nothing: properties appear in the order of the schema, only listed
 * ones unless additionalProperties allows more; numbers have at most 15 digits, so that every reader
 * sees the same value; whitespace is one space, or a line break with indentation; strings contain
 * neither NUL nor half a surrogate pair.
 *
 *   kept      type (lists too), nullable, enum, const, properties, required,
 *             additionalProperties, patternProperties (one, without properties),
 *             propertyNames (without properties), min/maxProperties, items, prefixItems,
 *             min/maxItems, min/maxLength, pattern (no lookaround, no back references),
 *             format (date, time, date-time, uuid, email, ipv4, ipv6, hostname, uri),
 *             minimum, maximum, exclusive*, multipleOf, anyOf, oneOf, allOf, $ref within
 *             the schema, recursive too
 *   refused   not, if, dependent*, contains, uniqueItems, unevaluated* other than false,
 *             $dynamicRef; with `lenient` they are noted and not kept
 *   noted     a format that is not known; oneOf whose branches may overlap (taken as
 *             anyOf); unknown keywords
 *
 * A schema is untrusted input: depth, sizes and the number of rules are bounded. */
#ifndef GRAMMAR_SCHEMA_H
#define GRAMMAR_SCHEMA_H

#include "base/json.h"
#include "grammar/grammar.h"

struct expression;
struct grammar_builder;

enum { JSON_SCHEMA_TEXT_LIMIT = 1 << 20 };

struct json_schema_options {
    bool lenient; /* a keyword that cannot be kept is noted instead of refused */
    /* '/' or '|': it never stands behind "<" in the text, where markup would begin.  JSON has other
     * ways to write that.  0: it may. */
    char barred;
    /* Not JSON, but its relative with bare keys and strings without escapes, between two of these:
     * {city:<|"|>Oslo<|"|>,days:3}.  NULL: JSON. */
    const char *quote;
    const char *const *never; /* texts that such a string does not hold, NULL behind the last */
    const json_t *root;       /* what $ref starts from; NULL: the schema itself */
    /* One sentence per thing that a user may want to know; may be NULL. */
    void (*note)(void *user, const char *sentence);
    void *user;
};

/* Reads a schema from text: an object, true or false.  The caller owns it. */
mf_status json_schema_read_new(json_t **out, const char *text, size_t length, mf_error *why);

/* A rule for the schema inside a larger grammar; RULE_NONE and the builder's error after a
 * failure.  Whitespace around the value is not included. */
uint32_t json_schema_add_rule(struct grammar_builder *builder, const json_t *schema,
                              const struct json_schema_options *options);

/* A rule for the strings of the schema without quotes and escapes, for values inside markup.  A
 * string without restrictions is `free_text`, which includes its end; restricted ones contain no
 * "<" and are followed by `end`. */
uint32_t json_schema_add_text_rule(struct grammar_builder *builder, const json_t *schema,
                                   const struct json_schema_options *options,
                                   const struct expression *free_text,
                                   const struct expression *end);

#endif
