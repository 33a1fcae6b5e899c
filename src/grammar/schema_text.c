/* Strings of a schema without quotes: between tags a model writes them as they are. */
#include "grammar/schema_internal.h"

/* See json_schema_add_text_rule. */
struct text_parts {
    const struct expression *free_text, *end;
};

static const struct expression *text_of(struct schema_compiler *c, const json_t *schema,
                                        const struct text_parts *parts);

/* The strings among the values of an enum. */
static const struct expression *text_of_enum(struct schema_compiler *c, const json_t *schema,
                                             const json_t *values)
{
    struct grammar_builder *b = c->builder;
    size_t total = json_array_size(values), count = 0;
    struct literal_text *texts = arena_take(&b->arena, total + 1, sizeof *texts);
    if (!texts) return builder_fail(b, MF_ERR_MEMORY, "out of memory for the schema");
    for (size_t i = 0; i < total; i++) {
        const json_t *value = json_array_get(values, i);
        const char *text = json_string_value(value);
        size_t length = json_string_length(value);
        if (!text || memchr(text, '<', length) || !schema_value_fits(value, schema)) continue;
        texts[count++] = (struct literal_text){ text, length };
    }
    return count ? expression_literals(b, texts, count) : schema_shared(c, SHARED_NEVER);
}

/* The strings of any branch, each with what stands beside the branches. */
static const struct expression *text_of_branches(struct schema_compiler *c, const json_t *schema,
                                                 const char *keyword,
                                                 const struct text_parts *parts)
{
    const json_t *branches = json_object_get(schema, keyword);
    size_t count = json_array_size(branches);
    json_t *base = json_copy((json_t *)(uintptr_t)schema);
    const struct expression **items = arena_take(&c->builder->arena, count, sizeof *items);
    if (!base || !items) {
        json_decref(base);
        return builder_fail(c->builder, MF_ERR_MEMORY, "out of memory for the schema");
    }
    json_object_del(base, keyword);
    for (size_t i = 0; i < count && !builder_failed(c->builder); i++) {
        json_t *merged = schema_merge_new(c, base, json_array_get(branches, i));
        items[i] = merged ? text_of(c, merged, parts) : NULL;
        json_decref(merged);
    }
    json_decref(base);
    return builder_failed(c->builder) ? NULL : expression_choice(c->builder, items, count);
}

static const struct expression *text_of_flat(struct schema_compiler *c, const json_t *schema,
                                             const struct text_parts *parts)
{
    const json_t *values = json_object_get(schema, "enum");
    if (json_is_true(schema)) return parts->free_text;
    if (json_is_false(schema)) return schema_shared(c, SHARED_NEVER);
    if (json_object_get(schema, "anyOf")) return text_of_branches(c, schema, "anyOf", parts);
    if (json_object_get(schema, "oneOf")) return text_of_branches(c, schema, "oneOf", parts);
    if (values) return SEQUENCE(c->builder, text_of_enum(c, schema, values), parts->end);
    if (!schema_allows_type(schema, "string")) return schema_shared(c, SHARED_NEVER);
    const struct expression *inside = schema_string_inside(c, schema, parts->free_text);
    return inside == parts->free_text ? inside : SEQUENCE(c->builder, inside, parts->end);
}

static const struct expression *text_of(struct schema_compiler *c, const json_t *schema,
                                        const struct text_parts *parts)
{
    if (!schema_may_work(c)) return NULL;
    if (c->depth >= SCHEMA_DEPTH_LIMIT)
        return schema_fail(c, MF_ERR_GRAMMAR, "nested more than %d deep", SCHEMA_DEPTH_LIMIT);
    json_t *flat = schema_flatten_new(c, schema);
    if (!flat) return NULL;
    c->depth++;
    const struct expression *text = text_of_flat(c, flat, parts);
    c->depth--;
    json_decref(flat);
    return text;
}

uint32_t json_schema_add_text_rule(struct grammar_builder *builder, const json_t *schema,
                                   const struct json_schema_options *options,
                                   const struct expression *free_text, const struct expression *end)
{
    struct schema_compiler c;
    struct text_parts parts = { free_text, end };
    const struct expression *text = NULL;
    if (schema_compiler_open(&c, builder, schema, options)) {
        c.unquoted = true;
        text = text_of(&c, schema, &parts);
    }
    schema_compiler_close(&c);
    uint32_t rule = text ? builder_add_rule(builder, NULL) : RULE_NONE;
    builder_define(builder, rule, text);
    return rule;
}
