/* Two schemas that must both hold, as one: allOf, $ref with neighbours, and what stands
 * beside anyOf.  Keyword by keyword; parts of parts become allOf again and are merged when
 * their turn comes, so that recursive schemas end. */
#include "grammar/schema_internal.h"

#include <math.h>

static json_t *no_memory(struct schema_compiler *c)
{
    builder_fail(c->builder, MF_ERR_MEMORY, "out of memory for the schema");
    return NULL;
}

/* Both of two subschemas; an absent one (NULL) holds always.  A new reference. */
static json_t *both_new(const json_t *a, const json_t *b)
{
    if (!a || !b || json_equal(a, b)) return json_incref((json_t *)(uintptr_t)(a ? a : b));
    if (json_is_true(a)) return json_incref((json_t *)(uintptr_t)b);
    if (json_is_true(b)) return json_incref((json_t *)(uintptr_t)a);
    if (json_is_false(a) || json_is_false(b)) return json_false();
    return json_pack("{s:[O,O]}", "allOf", a, b);
}

/* ------------------------------------------------------------------- types */

bool schema_allows_type(const json_t *schema, const char *type)
{
    const json_t *given = json_object_get(schema, "type");
    bool null = strcmp(type, "null") == 0;
    if (null && json_is_true(json_object_get(schema, "nullable"))) return true;
    if (!given) return true;
    bool whole = strcmp(type, "integer") == 0;
    size_t count = json_is_array(given) ? json_array_size(given) : 1;
    for (size_t i = 0; i < count; i++) {
        const json_t *item = json_is_array(given) ? json_array_get(given, i) : given;
        const char *name = json_string_value(item);
        if (!name) continue;
        if (strcmp(name, type) == 0 || (whole && strcmp(name, "number") == 0)) return true;
    }
    return false;
}

static json_t *merge_types(const json_t *a, const json_t *b)
{
    static const char *const names[] = { "object",  "array",   "string", "number",
                                         "integer", "boolean", "null" };
    json_t *left = json_pack("{s:O}", "type", a), *right = json_pack("{s:O}", "type", b);
    json_t *out = json_array();
    bool number = false;
    for (size_t i = 0; i < COUNT_OF(names) && out && left && right; i++) {
        if (!schema_allows_type(left, names[i]) || !schema_allows_type(right, names[i])) continue;
        if (strcmp(names[i], "number") == 0) number = true;
        if (strcmp(names[i], "integer") == 0 && number) continue;
        json_array_append_new(out, json_string(names[i]));
    }
    json_decref(left);
    json_decref(right);
    return out;
}

/* -------------------------------------------------------- keywords of values */

static json_t *merge_enums(const json_t *a, const json_t *b)
{
    json_t *out = json_array();
    for (size_t i = 0; out && i < json_array_size(a); i++)
        for (size_t j = 0; j < json_array_size(b); j++)
            if (json_equal(json_array_get(a, i), json_array_get(b, j))) {
                json_array_append(out, json_array_get(a, i));
                break;
            }
    return out;
}

static json_t *merge_required(const json_t *a, const json_t *b)
{
    json_t *out = json_copy((json_t *)(uintptr_t)a);
    for (size_t j = 0; out && j < json_array_size(b); j++) {
        bool known = false;
        for (size_t i = 0; i < json_array_size(a); i++)
            known = known || json_equal(json_array_get(a, i), json_array_get(b, j));
        if (!known) json_array_append(out, json_array_get(b, j));
    }
    return out;
}

/* Every pair of alternatives. */
static json_t *merge_alternatives(struct schema_compiler *c, const json_t *a, const json_t *b)
{
    enum { PAIR_LIMIT = 256 };
    if (json_array_size(a) * json_array_size(b) > PAIR_LIMIT) {
        schema_fail(c, MF_ERR_UNSUPPORTED, "anyOf times anyOf gives more than %d", PAIR_LIMIT);
        return NULL;
    }
    json_t *out = json_array();
    for (size_t i = 0; out && i < json_array_size(a); i++)
        for (size_t j = 0; j < json_array_size(b); j++)
            json_array_append_new(out, both_new(json_array_get(a, i), json_array_get(b, j)));
    return out;
}

static int64_t greatest_divisor(int64_t a, int64_t b)
{
    while (b) {
        int64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

static json_t *merge_steps(struct schema_compiler *c, const json_t *a, const json_t *b)
{
    int64_t x = json_is_integer(a) ? json_integer_value(a) : 0;
    int64_t y = json_is_integer(b) ? json_integer_value(b) : 0;
    if (x > 0 && y > 0 && x < INT32_MAX && y < INT32_MAX)
        return json_integer(x / greatest_divisor(x, y) * y);
    schema_leave_out(c, "multipleOf", "two different fractions");
    return json_incref((json_t *)(uintptr_t)a);
}

/* Whether the first of two bounds is the tighter one. */
static bool is_tighter(const char *keyword, const json_t *a, const json_t *b)
{
    double x = json_number_value(a), y = json_number_value(b);
    bool low = strncmp(keyword, "min", 3) == 0 || strcmp(keyword, "exclusiveMinimum") == 0;
    return low ? x >= y : x <= y;
}

static bool is_one_of(const char *text, const char *const *list)
{
    for (; *list; list++)
        if (strcmp(*list, text) == 0) return true;
    return false;
}

/* One keyword that both schemas have; a new reference, NULL after an error. */
static json_t *merge_keyword(struct schema_compiler *c, const char *key, const json_t *a,
                             const json_t *b)
{
    static const char *const bounds[] = {
        "minimum",  "maximum",  "exclusiveMinimum", "exclusiveMaximum", "minLength", "maxLength",
        "minItems", "maxItems", "minProperties",    "maxProperties",    NULL,
    };
    if (json_equal(a, b)) return json_incref((json_t *)(uintptr_t)a);
    bool numbers = json_is_number(a) && json_is_number(b);
    bool lists = json_is_array(a) && json_is_array(b);
    if (is_one_of(key, bounds) && numbers)
        return json_incref((json_t *)(uintptr_t)(is_tighter(key, a, b) ? a : b));
    if (strcmp(key, "type") == 0) return merge_types(a, b);
    if (strcmp(key, "enum") == 0 && lists) return merge_enums(a, b);
    if (strcmp(key, "required") == 0 && lists) return merge_required(a, b);
    if (strcmp(key, "anyOf") == 0 && lists) return merge_alternatives(c, a, b);
    if (strcmp(key, "oneOf") == 0 && lists) return merge_alternatives(c, a, b);
    if (strcmp(key, "multipleOf") == 0 && numbers) return merge_steps(c, a, b);
    if (strcmp(key, "nullable") == 0 || strcmp(key, "unevaluatedProperties") == 0 ||
        strcmp(key, "unevaluatedItems") == 0)
        return json_false();
    schema_leave_out(c, key, "two different ones that must both hold");
    return json_incref((json_t *)(uintptr_t)a);
}

/* ---------------------------------------------------------- objects, arrays */

/* What a schema asks of property `name`; NULL: nothing. */
static const json_t *property_of(const json_t *schema, const char *name)
{
    const json_t *own = json_object_get(json_object_get(schema, "properties"), name);
    return own ? own : json_object_get(schema, "additionalProperties");
}

static void merge_properties(json_t *out, const json_t *a, const json_t *b)
{
    json_t *left = json_object_get(a, "properties"), *right = json_object_get(b, "properties");
    json_t *extra = both_new(json_object_get(a, "additionalProperties"),
                             json_object_get(b, "additionalProperties"));
    if (extra) json_object_set_new(out, "additionalProperties", extra);
    if (!left && !right) return;
    json_t *merged = json_object();
    const char *name;
    json_t *value;
    json_object_foreach(left, name, value)
    {
        json_object_set_new(merged, name, both_new(value, property_of(b, name)));
    }
    json_object_foreach(right, name, value)
    {
        if (json_object_get(left, name)) continue;
        json_object_set_new(merged, name, both_new(property_of(a, name), value));
    }
    json_object_set_new(out, "properties", merged);
}

static const json_t *element_of(const json_t *schema, size_t i)
{
    const json_t *own = json_array_get(json_object_get(schema, "prefixItems"), i);
    return own ? own : json_object_get(schema, "items");
}

static void merge_items(json_t *out, const json_t *a, const json_t *b)
{
    json_t *rest = both_new(json_object_get(a, "items"), json_object_get(b, "items"));
    if (rest) json_object_set_new(out, "items", rest);
    size_t count = max_size(json_array_size(json_object_get(a, "prefixItems")),
                            json_array_size(json_object_get(b, "prefixItems")));
    if (count == 0) return;
    json_t *prefix = json_array();
    for (size_t i = 0; i < count; i++)
        json_array_append_new(prefix, both_new(element_of(a, i), element_of(b, i)));
    json_object_set_new(out, "prefixItems", prefix);
}

/* A copy in one form: const as enum, the tuples of old drafts as prefixItems, no annotations. */
static json_t *normal_copy(const json_t *schema)
{
    static const char *const dropped[] = {
        "$defs",   "definitions", "$schema",  "$id",        "$comment", "$anchor",   "title",
        "default", "description", "examples", "deprecated", "readOnly", "writeOnly", NULL,
    };
    json_t *out = json_copy((json_t *)(uintptr_t)schema);
    if (!out) return NULL;
    for (size_t i = 0; dropped[i]; i++) json_object_del(out, dropped[i]);
    json_t *constant = json_object_get(out, "const");
    if (constant) {
        json_t *only = json_pack("[O]", constant);
        json_t *given = json_object_get(out, "enum");
        json_object_set_new(out, "enum",
                            json_is_array(given) ? merge_enums(given, only) : json_incref(only));
        json_decref(only);
        json_object_del(out, "const");
    }
    json_t *items = json_object_get(out, "items");
    if (json_is_array(items)) {
        json_object_set(out, "prefixItems", items);
        json_object_del(out, "items");
        json_t *more = json_object_get(out, "additionalItems");
        if (more) json_object_set(out, "items", more);
    }
    json_object_del(out, "additionalItems");
    return out;
}

/* ----------------------------------------------------------------- merging */

/* Two flat schemas. */
static json_t *merge_flat(struct schema_compiler *c, const json_t *a, const json_t *b)
{
    static const char *const apart[] = { "properties", "additionalProperties", "items",
                                         "prefixItems", NULL };
    if (!schema_may_work(c)) return NULL;
    if (json_is_boolean(a)) return json_incref((json_t *)(uintptr_t)(json_is_true(a) ? b : a));
    if (json_is_boolean(b)) return json_incref((json_t *)(uintptr_t)(json_is_true(b) ? a : b));
    json_t *left = normal_copy(a), *right = normal_copy(b);
    json_t *out = left && right ? json_copy(left) : NULL;
    const char *key;
    json_t *value;
    json_object_foreach(right, key, value)
    {
        if (!out) break;
        json_t *own = json_object_get(left, key);
        if (is_one_of(key, apart)) continue;
        if (!own) {
            json_object_set(out, key, value);
            continue;
        }
        json_t *merged = merge_keyword(c, key, own, value);
        if (merged) json_object_set_new(out, key, merged);
    }
    if (out) {
        merge_properties(out, left, right);
        merge_items(out, left, right);
    }
    json_decref(left);
    json_decref(right);
    if (!out) return no_memory(c);
    if (!builder_failed(c->builder)) return out;
    json_decref(out);
    return NULL;
}

json_t *schema_merge_new(struct schema_compiler *c, const json_t *a, const json_t *b)
{
    json_t *left = schema_flatten_new(c, a);
    json_t *right = left ? schema_flatten_new(c, b) : NULL;
    json_t *out = right ? merge_flat(c, left, right) : NULL;
    json_decref(left);
    json_decref(right);
    return out;
}

/* `*out` and one more schema. */
static bool take_in(struct schema_compiler *c, json_t **out, const json_t *more)
{
    json_t *merged = schema_merge_new(c, *out, more);
    json_decref(*out);
    *out = merged;
    return merged != NULL;
}

static json_t *flatten(struct schema_compiler *c, const json_t *schema)
{
    const json_t *reference = json_object_get(schema, "$ref");
    const json_t *all = json_object_get(schema, "allOf");
    json_t *out = normal_copy(schema);
    if (!out) return no_memory(c);
    json_object_del(out, "$ref");
    json_object_del(out, "allOf");
    if (reference) {
        const json_t *target = NULL;
        if (json_is_string(reference))
            target = schema_resolve(c, json_string_value(reference));
        else
            schema_fail(c, MF_ERR_GRAMMAR, "$ref is not a string");
        if (!target) {
            json_decref(out);
            return NULL;
        }
        if (!take_in(c, &out, target)) return NULL;
    }
    for (size_t i = 0; i < json_array_size(all); i++)
        if (!take_in(c, &out, json_array_get(all, i))) return NULL;
    return out;
}

json_t *schema_flatten_new(struct schema_compiler *c, const json_t *schema)
{
    if (json_is_boolean(schema)) return json_incref((json_t *)(uintptr_t)schema);
    if (!json_is_object(schema)) {
        schema_fail(c, MF_ERR_GRAMMAR, "a schema is %s, an object was expected", json_kind(schema));
        return NULL;
    }
    if (!schema_may_work(c)) return NULL;
    if (c->depth >= SCHEMA_DEPTH_LIMIT) {
        schema_fail(c, MF_ERR_GRAMMAR, "nested or referred to more than %d deep",
                    SCHEMA_DEPTH_LIMIT);
        return NULL;
    }
    c->depth++;
    json_t *out = flatten(c, schema);
    c->depth--;
    return out;
}

/* ------------------------------------------------------------- comparisons */

static bool fits_bounds(double value, const json_t *schema, const char *low, const char *high)
{
    const json_t *least = json_object_get(schema, low), *most = json_object_get(schema, high);
    return !(json_is_number(least) && value < json_number_value(least)) &&
           !(json_is_number(most) && value > json_number_value(most));
}

static size_t count_characters(const char *text)
{
    size_t count = 0;
    for (; *text; text++) count += ((uint8_t)*text & 0xc0) != 0x80;
    return count;
}

bool schema_value_fits(const json_t *value, const json_t *schema)
{
    static const char *const names[] = {
        [JSON_OBJECT] = "object",   [JSON_ARRAY] = "array", [JSON_STRING] = "string",
        [JSON_INTEGER] = "integer", [JSON_REAL] = "number", [JSON_TRUE] = "boolean",
        [JSON_FALSE] = "boolean",   [JSON_NULL] = "null",
    };
    bool whole = json_is_real(value) && floor(json_real_value(value)) == json_real_value(value);
    if (!schema_allows_type(schema, whole ? "integer" : names[json_typeof(value)])) return false;
    if (json_is_string(value))
        return fits_bounds((double)count_characters(json_string_value(value)), schema, "minLength",
                           "maxLength");
    if (json_is_array(value))
        return fits_bounds((double)json_array_size(value), schema, "minItems", "maxItems");
    if (json_is_object(value))
        return fits_bounds((double)json_object_size(value), schema, "minProperties",
                           "maxProperties");
    if (!json_is_number(value)) return true;
    double number = json_number_value(value);
    const json_t *above = json_object_get(schema, "exclusiveMinimum");
    const json_t *below = json_object_get(schema, "exclusiveMaximum");
    return fits_bounds(number, schema, "minimum", "maximum") &&
           !(json_is_number(above) && number <= json_number_value(above)) &&
           !(json_is_number(below) && number >= json_number_value(below));
}

static bool types_disjoint(const json_t *a, const json_t *b)
{
    static const char *const names[] = { "object",  "array",   "string", "number",
                                         "integer", "boolean", "null" };
    for (size_t i = 0; i < COUNT_OF(names); i++)
        if (schema_allows_type(a, names[i]) && schema_allows_type(b, names[i])) return false;
    return true;
}

static bool values_disjoint(const json_t *a, const json_t *b)
{
    const json_t *left = json_object_get(a, "enum"), *right = json_object_get(b, "enum");
    const json_t *values = json_is_array(left) ? left : right;
    if (!json_is_array(values)) return false;
    for (size_t i = 0; i < json_array_size(values); i++) {
        const json_t *value = json_array_get(values, i);
        bool in_left = schema_value_fits(value, a), in_right = schema_value_fits(value, b);
        if (values == left && json_is_array(right)) {
            bool found = false;
            for (size_t j = 0; j < json_array_size(right); j++)
                found = found || json_equal(value, json_array_get(right, j));
            in_right = in_right && found;
        }
        if (in_left && in_right) return false;
    }
    return true;
}

static bool lists_name(const json_t *list, const char *name)
{
    for (size_t i = 0; i < json_array_size(list); i++) {
        const char *item = json_string_value(json_array_get(list, i));
        if (item && strcmp(item, name) == 0) return true;
    }
    return false;
}

/* Objects written for `a` are never valid by `b`: b needs a property that a does not list (only
 * listed ones are written), or both need one with different values. */
static bool objects_disjoint(struct schema_compiler *c, const json_t *a, const json_t *b,
                             unsigned depth)
{
    const json_t *needed = json_object_get(b, "required"), *own = json_object_get(a, "required");
    const json_t *listed = json_object_get(a, "properties");
    const json_t *extra = json_object_get(a, "additionalProperties");
    bool closed = listed && (!extra || json_is_false(extra));
    for (size_t i = 0; i < json_array_size(needed); i++) {
        const char *name = json_string_value(json_array_get(needed, i));
        if (!name) continue;
        const json_t *left = json_object_get(listed, name);
        const json_t *right = json_object_get(json_object_get(b, "properties"), name);
        if (closed && !left && !lists_name(own, name)) return true;
        if (left && right && lists_name(own, name) && schema_disjoint(c, left, right, depth + 1))
            return true;
    }
    return false;
}

bool schema_disjoint(struct schema_compiler *c, const json_t *a, const json_t *b, unsigned depth)
{
    if (depth > 3 || builder_failed(c->builder)) return false;
    json_t *left = schema_flatten_new(c, a);
    json_t *right = left ? schema_flatten_new(c, b) : NULL;
    bool disjoint = false;
    if (json_is_object(left) && json_is_object(right)) {
        disjoint =
            types_disjoint(left, right) || values_disjoint(left, right) ||
            (objects_disjoint(c, left, right, depth) && objects_disjoint(c, right, left, depth));
    }
    json_decref(left);
    json_decref(right);
    return disjoint;
}
