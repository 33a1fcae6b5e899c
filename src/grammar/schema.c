#include "grammar/schema_internal.h"

#include "base/status.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

enum { MEMO_BYTES_LIMIT = 16 << 20 };

/* ------------------------------------------------------------------ messages */

const struct expression *schema_fail(struct schema_compiler *c, mf_status status,
                                     const char *format, ...)
{
    char text[384];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    return builder_fail(c->builder, status, "schema at %.100s: %s", c->path, text);
}

void schema_note(struct schema_compiler *c, const char *format, ...)
{
    if (!c->options.note) return;
    char text[384], sentence[512];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    snprintf(sentence, sizeof sentence, "schema at %.100s: %s", c->path, text);
    c->options.note(c->options.user, sentence);
}

bool schema_leave_out(struct schema_compiler *c, const char *keyword, const char *reason)
{
    if (c->options.lenient)
        schema_note(c, "%.60s is not kept: %s", keyword, reason);
    else
        schema_fail(c, MF_ERR_UNSUPPORTED, "%.60s is not supported here: %s", keyword, reason);
    return c->options.lenient;
}

bool schema_may_work(struct schema_compiler *c)
{
    if (builder_failed(c->builder)) return false;
    if (++c->work <= SCHEMA_WORK_LIMIT) return true;
    schema_fail(c, MF_ERR_GRAMMAR, "the schema is too large or its references multiply");
    return false;
}

bool schema_count(struct schema_compiler *c, uint32_t *out, const json_t *schema,
                  const char *keyword, uint32_t otherwise)
{
    const json_t *value = json_object_get(schema, keyword);
    *out = otherwise;
    if (!value) return true;
    double number = json_number_value(value);
    bool upper = strncmp(keyword, "max", 3) == 0;
    if (!json_is_number(value) || !(number >= 0) || number != floor(number))
        return schema_fail(c, MF_ERR_GRAMMAR, "%s is not a count", keyword) != NULL;
    if (number > GRAMMAR_REPEAT_LIMIT) {
        if (upper) { /* narrower, and no answer is that long */
            *out = GRAMMAR_REPEAT_LIMIT;
            return true;
        }
        return schema_fail(c, MF_ERR_UNSUPPORTED, "%s is more than %d", keyword,
                           GRAMMAR_REPEAT_LIMIT) != NULL;
    }
    *out = (uint32_t)number;
    return true;
}

/* ---------------------------------------------------------------- references */

/* One step of a JSON pointer, unescaped in place: ~1 is /, ~0 is ~, %25 is %. */
static void unescape(char *step)
{
    char *out = step;
    for (const char *in = step; *in; in++) {
        unsigned code;
        if (in[0] == '~' && (in[1] == '0' || in[1] == '1')) {
            *out++ = *++in == '0' ? '~' : '/';
        } else if (in[0] == '%' && sscanf(in + 1, "%2x", &code) == 1 && in[1] && in[2]) {
            *out++ = (char)code;
            in += 2;
        } else {
            *out++ = *in;
        }
    }
    *out = '\0';
}

static const json_t *child_of(const json_t *value, const char *step)
{
    if (json_is_object(value)) return json_object_get(value, step);
    char *end;
    unsigned long index = strtoul(step, &end, 10);
    return *step && !*end ? json_array_get(value, index) : NULL;
}

const json_t *schema_resolve(struct schema_compiler *c, const char *reference)
{
    const json_t *value = c->root;
    const char *at = reference;
    if (*at++ != '#') {
        schema_fail(c, MF_ERR_UNSUPPORTED, "$ref \"%.80s\" leads out of the schema", reference);
        return NULL;
    }
    while (*at && value) {
        char step[256];
        size_t length = *at == '/' ? strcspn(at + 1, "/") : sizeof step;
        if (length >= sizeof step) break;
        memcpy(step, at + 1, length);
        step[length] = '\0';
        unescape(step);
        value = child_of(value, step);
        at += 1 + length;
    }
    if (value && !*at) return value;
    schema_fail(c, MF_ERR_GRAMMAR, "$ref \"%.80s\" leads nowhere", reference);
    return NULL;
}

/* ------------------------------------------------------------------ keywords */

static const char *const kept[] = {
    "type",
    "nullable",
    "enum",
    "properties",
    "required",
    "items",
    "prefixItems",
    "minItems",
    "maxItems",
    "minLength",
    "maxLength",
    "pattern",
    "format",
    "minimum",
    "maximum",
    "multipleOf",
    "anyOf",
    "oneOf",
    "exclusiveMinimum",
    "exclusiveMaximum",
    "minProperties",
    "maxProperties",
    "propertyNames",
    "additionalProperties",
    "patternProperties",
    NULL,
};
static const char *const refused[] = {
    "not",
    "if",
    "then",
    "else",
    "dependentRequired",
    "dependencies",
    "dependentSchemas",
    "contains",
    "minContains",
    "maxContains",
    "$dynamicRef",
    "$recursiveRef",
    NULL,
};
/* Said about a value, not asked of it. */
static const char *const silent[] = {
    "$vocabulary",      "$dynamicAnchor",
    "$recursiveAnchor", "contentEncoding",
    "contentMediaType", "contentSchema",
    "example",          "discriminator",
    "externalDocs",     "xml",
    "uniqueItems",      "unevaluatedProperties",
    "unevaluatedItems", "propertyOrdering",
    "strict",           NULL,
};

static bool is_one_of(const char *text, const char *const *list)
{
    for (; *list; list++)
        if (strcmp(*list, text) == 0) return true;
    return false;
}

static bool check_keywords(struct schema_compiler *c, const json_t *schema)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)schema, key, value)
    {
        if (is_one_of(key, kept)) continue;
        bool unevaluated = strncmp(key, "unevaluated", 11) == 0 && json_is_object(value);
        bool unique = strcmp(key, "uniqueItems") == 0 && json_is_true(value);
        if (is_one_of(key, refused) || unevaluated || unique) {
            if (!schema_leave_out(c, key, "a grammar cannot express it")) return false;
        } else if (!is_one_of(key, silent)) {
            schema_note(c, "keyword \"%.60s\" is not known and not kept", key);
        }
    }
    return true;
}

/* ---------------------------------------------------------------- categories */

static bool has_any(const json_t *schema, const char *const *keys)
{
    for (; *keys; keys++)
        if (json_object_get(schema, *keys)) return true;
    return false;
}

/* Without a type, keywords say what is meant: {"minLength": 1} is a string here. */
static bool is_wanted(const json_t *schema, const char *type)
{
    static const char *const of_objects[] = { "properties",        "required",
                                              "minProperties",     "maxProperties",
                                              "patternProperties", "additionalProperties",
                                              "propertyNames",     NULL };
    static const char *const of_arrays[] = { "items", "prefixItems", "minItems", "maxItems", NULL };
    static const char *const of_strings[] = { "minLength", "maxLength", "pattern", "format", NULL };
    static const char *const of_numbers[] = { "minimum",          "maximum",    "exclusiveMinimum",
                                              "exclusiveMaximum", "multipleOf", NULL };
    if (!schema_allows_type(schema, type)) return false;
    if (json_object_get(schema, "type")) return true;
    bool object = has_any(schema, of_objects), array = has_any(schema, of_arrays);
    bool string = has_any(schema, of_strings), number = has_any(schema, of_numbers);
    if (!object && !array && !string && !number) return true;
    if (strcmp(type, "object") == 0) return object;
    if (strcmp(type, "array") == 0) return array;
    if (strcmp(type, "string") == 0) return string;
    if (strcmp(type, "number") == 0) return number;
    return strcmp(type, "null") == 0 && json_is_true(json_object_get(schema, "nullable"));
}

static const struct expression *compile_types(struct schema_compiler *c, const json_t *schema)
{
    struct grammar_builder *b = c->builder;
    const struct expression *items[8];
    size_t count = 0;
    bool number = is_wanted(schema, "number");
    if (is_wanted(schema, "object")) items[count++] = schema_object(c, schema);
    if (is_wanted(schema, "array")) items[count++] = schema_array(c, schema);
    if (is_wanted(schema, "string")) items[count++] = schema_string(c, schema);
    if (number) items[count++] = schema_number(c, schema, false);
    if (!number && is_wanted(schema, "integer")) items[count++] = schema_number(c, schema, true);
    if (is_wanted(schema, "boolean"))
        items[count++] = CHOICE(b, expression_text(b, "true"), expression_text(b, "false"));
    if (is_wanted(schema, "null")) items[count++] = expression_text(b, "null");
    if (count == 0) return schema_shared(c, SHARED_NEVER);
    return expression_choice(b, items, count);
}

static bool check_type_names(struct schema_compiler *c, const json_t *schema)
{
    static const char *const names[] = { "object",  "array",   "string", "number",
                                         "integer", "boolean", "null",   NULL };
    const json_t *type = json_object_get(schema, "type");
    size_t count = json_is_array(type) ? json_array_size(type) : type ? 1 : 0;
    for (size_t i = 0; i < count; i++) {
        const json_t *item = json_is_array(type) ? json_array_get(type, i) : type;
        const char *name = json_string_value(item);
        if (!name || !is_one_of(name, names))
            return schema_fail(c, MF_ERR_GRAMMAR, "type \"%.40s\" is not known",
                               name ? name : json_kind(item)) != NULL;
    }
    return true;
}

/* The values of an enum that keep the other keywords. */
static const struct expression *compile_enum(struct schema_compiler *c, const json_t *schema,
                                             const json_t *values)
{
    struct grammar_builder *b = c->builder;
    if (!json_is_array(values))
        return schema_fail(c, MF_ERR_GRAMMAR, "enum is %s, a list was expected", json_kind(values));
    size_t total = json_array_size(values), count = 0;
    struct literal_text *texts = arena_take(&b->arena, total + 1, sizeof *texts);
    if (!texts) return builder_fail(b, MF_ERR_MEMORY, "out of memory for the schema");
    for (size_t i = 0; i < total; i++) {
        const json_t *value = json_array_get(values, i);
        if (!schema_value_fits(value, schema)) continue;
        char *text = schema_value_text(c, value);
        if (!text) return NULL;
        size_t length = strlen(text);
        texts[count++] = (struct literal_text){ arena_text(&b->arena, text, length), length };
        free(text);
        if (!texts[count - 1].bytes)
            return builder_fail(b, MF_ERR_MEMORY, "out of memory for the schema");
    }
    if (count == 0) return schema_shared(c, SHARED_NEVER);
    return expression_literals(b, texts, count);
}

/* -------------------------------------------------------------- alternatives */

static void note_overlap(struct schema_compiler *c, const json_t *branches)
{
    size_t count = min_size(json_array_size(branches), 24);
    for (size_t i = 0; i < count; i++)
        for (size_t j = i + 1; j < count; j++) {
            const json_t *a = json_array_get(branches, i), *b = json_array_get(branches, j);
            if (schema_disjoint(c, a, b, 0)) continue;
            schema_note(c, "oneOf is taken as anyOf: branches %zu and %zu may overlap", i, j);
            return;
        }
}

/* anyOf or oneOf, with everything beside it taken into each branch. */
static const struct expression *compile_alternatives(struct schema_compiler *c,
                                                     const json_t *schema, const char *keyword)
{
    enum { BRANCH_LIMIT = 512 };
    const json_t *branches = json_object_get(schema, keyword);
    size_t count = json_array_size(branches);
    if (count == 0 || count > BRANCH_LIMIT)
        return schema_fail(c, MF_ERR_GRAMMAR, "%s with %zu branches, 1 to %d were expected",
                           keyword, count, BRANCH_LIMIT);
    if (strcmp(keyword, "oneOf") == 0 && c->options.note) note_overlap(c, branches);
    const struct expression **items = arena_take(&c->builder->arena, count, sizeof *items);
    json_t *base = json_copy((json_t *)(uintptr_t)schema);
    if (!items || !base) {
        json_decref(base);
        return builder_fail(c->builder, MF_ERR_MEMORY, "out of memory for the schema");
    }
    json_object_del(base, keyword);
    for (size_t i = 0; i < count && !builder_failed(c->builder); i++) {
        char step[40];
        snprintf(step, sizeof step, "%s/%zu", keyword, i);
        json_t *merged = schema_merge_new(c, base, json_array_get(branches, i));
        items[i] = merged ? schema_compile(c, merged, step) : NULL;
        json_decref(merged);
    }
    json_decref(base);
    if (builder_failed(c->builder)) return NULL;
    return expression_choice(c->builder, items, count);
}

/* --------------------------------------------------------------- one schema */

static const struct expression *compile_flat(struct schema_compiler *c, const json_t *schema)
{
    if (json_is_true(schema)) return schema_shared(c, SHARED_ANY);
    if (json_is_false(schema)) return schema_shared(c, SHARED_NEVER);
    if (json_object_get(schema, "anyOf")) return compile_alternatives(c, schema, "anyOf");
    if (json_object_get(schema, "oneOf")) return compile_alternatives(c, schema, "oneOf");
    if (!check_keywords(c, schema) || !check_type_names(c, schema)) return NULL;
    const json_t *values = json_object_get(schema, "enum");
    if (values) return compile_enum(c, schema, values);
    bool says_nothing = true;
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)schema, key, value)
    {
        if (is_one_of(key, kept)) says_nothing = false;
    }
    return says_nothing ? schema_shared(c, SHARED_ANY) : compile_types(c, schema);
}

static const struct expression *compile_body(struct schema_compiler *c, const json_t *schema)
{
    /* A bare reference is the rule of what it names. */
    const json_t *reference = json_object_get(schema, "$ref");
    if (json_is_string(reference) && json_object_size(schema) == 1) {
        const char *text = json_string_value(reference);
        const json_t *target = schema_resolve(c, text);
        return target ? schema_compile(c, target, text) : NULL;
    }
    json_t *flat = schema_flatten_new(c, schema);
    if (!flat) return NULL;
    const struct expression *body = compile_flat(c, flat);
    json_decref(flat);
    return body;
}

/* Appends a step to the path (a reference starts it anew); its former length. */
static size_t enter(struct schema_compiler *c, const char *step)
{
    size_t length = strlen(c->path);
    if (step && length + strlen(step) + 2 < sizeof c->path) {
        c->path[length] = '/';
        memcpy(c->path + length + 1, step, strlen(step) + 1);
    }
    return length;
}

static uint64_t hash_text(const char *text)
{
    uint64_t hash = 14695981039346656037u;
    for (; *text; text++) hash = (hash ^ (uint8_t)*text) * 1099511628211u;
    return hash;
}

/* The place of a schema with this text in the table: found, or free. */
static size_t memo_bucket(const struct schema_compiler *c, const char *text)
{
    size_t bucket = hash_text(text) % SCHEMA_MEMO_BUCKETS;
    while (c->memos[bucket].text && strcmp(c->memos[bucket].text, text) != 0)
        bucket = (bucket + 1) % SCHEMA_MEMO_BUCKETS;
    return bucket;
}

const struct expression *schema_compile(struct schema_compiler *c, const json_t *schema,
                                        const char *step)
{
    if (!schema_may_work(c)) return NULL;
    if (c->depth >= SCHEMA_DEPTH_LIMIT)
        return schema_fail(c, MF_ERR_GRAMMAR, "nested more than %d deep", SCHEMA_DEPTH_LIMIT);
    /* Equal schemas share a rule; that is also how a recursive one ends. */
    char *text = json_dumps(schema, JSON_COMPACT | JSON_ENCODE_ANY);
    if (!text) return builder_fail(c->builder, MF_ERR_MEMORY, "out of memory for the schema");
    size_t bucket = memo_bucket(c, text);
    if (c->memos[bucket].text) {
        free(text);
        return expression_rule(c->builder, c->memos[bucket].rule);
    }
    size_t length = enter(c, step);
    uint32_t rule = builder_add_rule(c->builder, c->path);
    c->memos[bucket] = (struct schema_memo){ text, rule };
    c->memo_bytes += strlen(text);
    if (c->memo_bytes > MEMO_BYTES_LIMIT) schema_fail(c, MF_ERR_GRAMMAR, "the schema is too large");
    c->depth++;
    builder_define(c->builder, rule, compile_body(c, schema));
    c->depth--;
    c->path[length] = '\0';
    return expression_rule(c->builder, rule);
}

/* ------------------------------------------------------------- shared rules */

/* Whatever is JSON: the schema {} with its parts spelt out. */
static const struct expression *any_value(struct schema_compiler *c)
{
    static const char *const parts[] = {
        "{\"type\":\"object\"}", "{\"type\":\"array\"}",   "{\"type\":\"string\"}",
        "{\"type\":\"number\"}", "{\"type\":\"boolean\"}", "{\"type\":\"null\"}",
    };
    const struct expression *items[COUNT_OF(parts)];
    for (size_t i = 0; i < COUNT_OF(parts); i++) {
        json_t *schema = json_loads(parts[i], 0, NULL);
        items[i] = schema ? schema_compile(c, schema, NULL) : NULL;
        json_decref(schema);
    }
    return expression_choice(c->builder, items, COUNT_OF(items));
}

/* Nothing, a blank, or a new line and its indentation. */
static const struct expression *any_space(struct grammar_builder *b)
{
    const struct expression *blank = expression_text(b, " ");
    const struct expression *line =
        SEQUENCE(b, expression_text(b, "\n"),
                 CHOICE(b, expression_repeat(b, blank, 0, 24),
                        expression_repeat(b, expression_text(b, "\t"), 1, 8)));
    return expression_repeat(b, CHOICE(b, blank, line), 0, 1);
}

static const struct expression *shared_body(struct schema_compiler *c, enum shared_rule which)
{
    struct grammar_builder *b = c->builder;
    switch (which) {
    case SHARED_ANY:
        return any_value(c);
    case SHARED_STRING:
        return schema_any_string(c);
    case SHARED_NUMBER:
        return schema_any_number(c, false);
    case SHARED_INTEGER:
        return schema_any_number(c, true);
    case SHARED_SPACE:
        return any_space(b);
    default: /* SHARED_NEVER: it never ends, and so is never allowed to begin */
        return SEQUENCE(b, expression_text(b, "x"), expression_rule(b, c->shared[SHARED_NEVER]));
    }
}

const struct expression *schema_shared(struct schema_compiler *c, enum shared_rule which)
{
    static const char *const names[] = {
        [SHARED_ANY] = "json-value",       [SHARED_CHARACTER] = "json-character",
        [SHARED_STRING] = "json-string",   [SHARED_NUMBER] = "json-number",
        [SHARED_INTEGER] = "json-integer", [SHARED_SPACE] = "json-space",
        [SHARED_NEVER] = "never",
    };
    if (c->shared[which] == RULE_NONE) {
        c->shared[which] = builder_add_rule(c->builder, names[which]);
        uint32_t rule = c->shared[which];
        builder_define(c->builder, rule, shared_body(c, which));
        return expression_rule(c->builder, rule);
    }
    return expression_rule(c->builder, c->shared[which]);
}

/* ------------------------------------------------------------------- whole */

bool schema_compiler_open(struct schema_compiler *c, struct grammar_builder *builder,
                          const json_t *schema, const struct json_schema_options *options)
{
    *c = (struct schema_compiler){ .builder = builder, .root = schema, .path = "#" };
    if (options) c->options = *options;
    if (c->options.root) c->root = c->options.root;
    c->unquoted = c->options.quote != NULL;
    for (size_t i = 0; i < SHARED_COUNT; i++) c->shared[i] = RULE_NONE;
    c->memos = calloc(SCHEMA_MEMO_BUCKETS, sizeof *c->memos);
    return c->memos || builder_fail(builder, MF_ERR_MEMORY, "out of memory for the schema");
}

void schema_compiler_close(struct schema_compiler *c)
{
    for (size_t i = 0; c->memos && i < SCHEMA_MEMO_BUCKETS; i++) free(c->memos[i].text);
    free(c->memos);
}

uint32_t json_schema_add_rule(struct grammar_builder *builder, const json_t *schema,
                              const struct json_schema_options *options)
{
    struct schema_compiler c;
    const struct expression *value = NULL;
    if (schema_compiler_open(&c, builder, schema, options))
        value = schema_compile(&c, schema, NULL);
    schema_compiler_close(&c);
    return value && !builder_failed(builder) ? value->rule : RULE_NONE;
}

mf_status json_schema_read_new(json_t **out, const char *text, size_t length, mf_error *why)
{
    *out = NULL;
    if (length > JSON_SCHEMA_TEXT_LIMIT)
        return fail(why, MF_ERR_GRAMMAR, "schema: %zu bytes, at most %d", length,
                    JSON_SCHEMA_TEXT_LIMIT);
    json_error_t problem; /* not json_parse_new: true and false are schemas too */
    size_t flags = JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL | JSON_DECODE_ANY;
    *out = json_loadb(text, length, flags, &problem);
    if (*out) return MF_OK;
    return fail(why, MF_ERR_FORMAT, "schema is not valid JSON: line %d, column %d: %s",
                problem.line, problem.column, problem.text);
}
