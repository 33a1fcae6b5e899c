/* Objects and arrays.
 *
 * Properties are written in the order of the schema.  Two chains of rules lead through them,
 * one for "nothing written yet" and one for "a comma comes first":
 *
 *     first(i)  =  property(i) more(i+1)   |  first(i+1)  where i may be left out
 *     more(i)   =  "," property(i) more(i+1)  |  more(i+1)  where i may be left out
 *
 * so that any subset of the optional ones takes two rules per property. */
#include "grammar/schema_internal.h"

#include <stdio.h>

/* ------------------------------------------------------------------- words */

static const struct expression *space(struct schema_compiler *c)
{
    return schema_shared(c, SHARED_SPACE);
}

static const struct expression *comma(struct schema_compiler *c)
{
    return SEQUENCE(c->builder, expression_text(c->builder, ","), space(c));
}

static const struct expression *pair(struct schema_compiler *c, const struct expression *key,
                                     const struct expression *value)
{
    return SEQUENCE(c->builder, key, expression_text(c->builder, ":"), space(c), value);
}

static const struct expression *braces(struct schema_compiler *c, const char *open,
                                       const struct expression *inside, const char *close)
{
    struct grammar_builder *b = c->builder;
    return SEQUENCE(b, expression_text(b, open), space(c), inside, expression_text(b, close));
}

/* ----------------------------------------------------------------- objects */

struct property {
    const struct expression *pair;
    bool required;
};

struct object_plan {
    struct schema_compiler *compiler;
    struct property *properties; /* [count] */
    uint32_t count;
    const struct expression *extra; /* a pair with a free key; NULL: none may come */
    uint32_t least, most;           /* pairs; 0 and REPEAT_ANY: not counted */
    uint32_t width;                 /* counts that are told apart: 1, or least or most + 1 */
    uint32_t *first, *more;         /* [(count + 1) * width]: rules; RULE_NONE: not made yet */
};

static bool is_required(const json_t *schema, const char *name)
{
    const json_t *list = json_object_get(schema, "required");
    for (size_t i = 0; i < json_array_size(list); i++) {
        const char *item = json_string_value(json_array_get(list, i));
        if (item && strcmp(item, name) == 0) return true;
    }
    return false;
}

static struct property named_property(struct schema_compiler *c, const char *name,
                                      const json_t *schema, bool required)
{
    const struct expression *key = schema_quoted(c, name, strlen(name));
    char step[SCHEMA_PATH_BYTES];
    snprintf(step, sizeof step, "properties/%.200s", name);
    return (struct property){ pair(c, key, schema_compile(c, schema, step)), required };
}

/* Required names that are not listed come last, with whatever additional ones may be. */
static uint32_t unlisted_required(struct object_plan *plan, const json_t *schema,
                                  const json_t *extra)
{
    const json_t *listed = json_object_get(schema, "properties");
    const json_t *required = json_object_get(schema, "required");
    uint32_t count = 0;
    for (size_t i = 0; i < json_array_size(required); i++) {
        const char *name = json_string_value(json_array_get(required, i));
        if (!name) {
            schema_fail(plan->compiler, MF_ERR_GRAMMAR, "required is not a list of strings");
            return 0;
        }
        bool repeated = false;
        for (size_t j = 0; j < i && !repeated; j++)
            repeated = json_equal(json_array_get(required, i), json_array_get(required, j));
        if (repeated || json_object_get(listed, name)) continue;
        if (plan->properties) {
            json_t *any = json_true();
            plan->properties[plan->count++] =
                named_property(plan->compiler, name, extra ? extra : any, true);
            json_decref(any);
        }
        count++;
    }
    return count;
}

static bool list_properties(struct object_plan *plan, const json_t *schema)
{
    struct schema_compiler *c = plan->compiler;
    json_t *listed = json_object_get(schema, "properties");
    const json_t *required = json_object_get(schema, "required");
    if ((listed && !json_is_object(listed)) || (required && !json_is_array(required)))
        return schema_fail(c, MF_ERR_GRAMMAR, "properties or required is of the wrong kind") !=
               NULL;
    const json_t *extra = json_object_get(schema, "additionalProperties");
    size_t room = json_object_size(listed) + unlisted_required(plan, schema, extra) + 1;
    plan->properties = arena_take(&c->builder->arena, room, sizeof *plan->properties);
    if (!plan->properties)
        return builder_fail(c->builder, MF_ERR_MEMORY, "out of memory for the schema") != NULL;
    const char *name;
    json_t *value;
    json_object_foreach(listed, name, value)
    {
        bool needed = is_required(schema, name);
        if (json_is_false(value) && !needed) continue;
        plan->properties[plan->count++] = named_property(c, name, value, needed);
    }
    unlisted_required(plan, schema, extra);
    return !builder_failed(c->builder);
}

/* A pair whose key is free; NULL when there is none. */
static const struct expression *extra_pair(struct schema_compiler *c, const json_t *schema)
{
    const json_t *listed = json_object_get(schema, "properties");
    const json_t *extra = json_object_get(schema, "additionalProperties");
    const json_t *patterns = json_object_get(schema, "patternProperties");
    const json_t *names = json_object_get(schema, "propertyNames");
    if (json_is_false(json_object_get(schema, "unevaluatedProperties"))) extra = json_false();
    bool any_listed = json_object_size(listed) > 0 || json_object_get(schema, "required");

    if (json_object_size(patterns) > 0) {
        void *entry = json_object_iter((json_t *)(uintptr_t)patterns);
        if (any_listed || json_object_size(patterns) > 1 || names) {
            schema_leave_out(c, "patternProperties", "it is kept alone only");
            return NULL;
        }
        bool kept = true;
        const struct expression *key = schema_in_quotes(
            c, schema_pattern(c, json_object_iter_key(entry), 0, REPEAT_ANY, &kept));
        return pair(c, key, schema_compile(c, json_object_iter_value(entry), "patternProperties"));
    }
    /* Nothing said about anything: any object.  Something listed: only that. */
    if (!extra && any_listed) return NULL;
    if (json_is_false(extra)) return NULL;
    json_t *any = json_true();
    const struct expression *value =
        extra ? schema_compile(c, extra, "additionalProperties") : schema_compile(c, any, "*");
    json_decref(any);
    if (!names) return pair(c, schema_other_key(c, listed), value);
    if (any_listed) {
        schema_leave_out(c, "propertyNames", "it is kept only without properties");
        return pair(c, schema_other_key(c, listed), value);
    }
    json_t *flat = schema_flatten_new(c, names);
    if (!flat) return NULL;
    json_t *text = json_pack("{s:s}", "type", "string");
    json_t *both = schema_merge_new(c, text, flat);
    const struct expression *key = both ? schema_compile(c, both, "propertyNames") : NULL;
    json_decref(flat);
    json_decref(text);
    json_decref(both);
    return pair(c, key, value);
}

/* At least `least` and at most `most` elements in all, of which `written` are there. */
struct list_bounds {
    uint32_t least, most, written;
};

/* The rest of a list of `item` (NULL: no more may be written), with commas between elements and,
 * unless `is_first`, before the first one. */
static const struct expression *repeated_list(struct schema_compiler *c,
                                              const struct expression *item,
                                              struct list_bounds bounds, bool is_first)
{
    struct grammar_builder *b = c->builder;
    uint32_t written = bounds.written;
    uint32_t missing = bounds.least > written ? bounds.least - written : 0;
    uint32_t room = bounds.most == REPEAT_ANY ? REPEAT_ANY
                    : bounds.most > written   ? bounds.most - written
                                              : 0;
    if (!item || room == 0) return missing ? schema_shared(c, SHARED_NEVER) : expression_empty(b);
    const struct expression *next = SEQUENCE(b, comma(c), item);
    if (!is_first) return expression_repeat(b, next, missing, room);
    uint32_t others = room == REPEAT_ANY ? REPEAT_ANY : room - 1;
    const struct expression *some =
        SEQUENCE(b, item, expression_repeat(b, next, missing > 1 ? missing - 1 : 0, others));
    return missing ? some : expression_repeat(b, some, 0, 1);
}

static const struct expression *chain(struct object_plan *plan, uint32_t at, uint32_t written,
                                      bool is_first);

/* Free keys after the listed ones, when `written` pairs are there. */
static const struct expression *extras(struct object_plan *plan, uint32_t written, bool is_first)
{
    struct schema_compiler *c = plan->compiler;
    /* Two free keys may be the same name: only one is sure to add a property. */
    bool writable = plan->extra && plan->most > written;
    if (writable && plan->least > written + 1 &&
        !schema_leave_out(c, "minProperties", "more than one of them would have a free name"))
        return NULL;
    struct list_bounds bounds = { plan->least, plan->most, written };
    return repeated_list(c, plan->extra, bounds, is_first);
}

/* first(at) or more(at), with `written` pairs so far. */
static const struct expression *chain_body(struct object_plan *plan, uint32_t at, uint32_t written,
                                           bool is_first)
{
    struct schema_compiler *c = plan->compiler;
    struct grammar_builder *b = c->builder;
    if (at == plan->count) return extras(plan, written, is_first);
    const struct property *property = &plan->properties[at];
    const struct expression *with = NULL, *without = NULL;
    if (written < plan->most) {
        with = property->pair;
        if (!is_first) with = SEQUENCE(b, comma(c), with);
        with = SEQUENCE(b, with, chain(plan, at + 1, written + 1, false));
    } else {
        with = schema_shared(c, SHARED_NEVER);
    }
    if (property->required) return with;
    without = chain(plan, at + 1, written, is_first);
    return CHOICE(b, with, without);
}

static const struct expression *chain(struct object_plan *plan, uint32_t at, uint32_t written,
                                      bool is_first)
{
    struct grammar_builder *b = plan->compiler->builder;
    uint32_t column = plan->width == 1 ? 0 : (uint32_t)min_size(written, plan->width - 1);
    uint32_t *rule = &(is_first ? plan->first : plan->more)[at * plan->width + column];
    if (*rule == RULE_NONE) {
        *rule = builder_add_rule(b, NULL);
        uint32_t made = *rule;
        builder_define(b, made, chain_body(plan, at, written, is_first));
        return expression_rule(b, made);
    }
    return expression_rule(b, *rule);
}

/* Rules are made from the last property to the first, so that no call goes deep. */
static const struct expression *chain_of_all(struct object_plan *plan)
{
    for (uint32_t at = plan->count + 1; at-- > 0;)
        for (uint32_t written = 0; written < plan->width; written++) {
            if (written > at) continue;
            if (written == 0) chain(plan, at, 0, true);
            if (written > 0 || plan->width == 1) chain(plan, at, written, false);
        }
    return chain(plan, 0, 0, true);
}

const struct expression *schema_object(struct schema_compiler *c, const json_t *schema)
{
    enum { CHAIN_LIMIT = 20000 };
    struct grammar_builder *b = c->builder;
    struct object_plan plan = { .compiler = c };
    if (!schema_count(c, &plan.least, schema, "minProperties", 0)) return NULL;
    if (!schema_count(c, &plan.most, schema, "maxProperties", REPEAT_ANY)) return NULL;
    if (plan.least > plan.most) return schema_shared(c, SHARED_NEVER);
    if (!list_properties(&plan, schema)) return NULL;
    plan.extra = extra_pair(c, schema);
    if (builder_failed(b)) return NULL;

    uint32_t highest = plan.most == REPEAT_ANY ? plan.least : plan.most;
    plan.width =
        highest == 0 && plan.most == REPEAT_ANY ? 1 : (uint32_t)min_size(highest, plan.count) + 1;
    uint64_t rules = ((uint64_t)plan.count + 1) * plan.width;
    if (rules > CHAIN_LIMIT)
        return schema_fail(c, MF_ERR_UNSUPPORTED, "%u properties counted up to %u", plan.count,
                           plan.width);
    plan.first = arena_take(&b->arena, rules, sizeof *plan.first);
    plan.more = arena_take(&b->arena, rules, sizeof *plan.more);
    if (!plan.first || !plan.more)
        return builder_fail(b, MF_ERR_MEMORY, "out of memory for the schema");
    for (uint64_t i = 0; i < rules; i++) plan.first[i] = plan.more[i] = RULE_NONE;
    const struct expression *inside = chain_of_all(&plan);
    return braces(c, "{", SEQUENCE(b, inside, space(c)), "}");
}

/* ------------------------------------------------------------------ arrays */

struct array_plan {
    struct schema_compiler *compiler;
    const json_t *prefix;
    uint32_t prefix_count, least, most;
    const struct expression *item; /* after the prefix; NULL: none may come */
};

static bool read_array(struct array_plan *plan, const json_t *schema)
{
    struct schema_compiler *c = plan->compiler;
    if (!schema_count(c, &plan->least, schema, "minItems", 0)) return false;
    if (!schema_count(c, &plan->most, schema, "maxItems", REPEAT_ANY)) return false;
    plan->prefix = json_object_get(schema, "prefixItems");
    if (plan->prefix && !json_is_array(plan->prefix))
        return schema_fail(c, MF_ERR_GRAMMAR, "prefixItems is not a list") != NULL;
    plan->prefix_count = (uint32_t)json_array_size(plan->prefix);
    const json_t *items = json_object_get(schema, "items");
    bool closed =
        json_is_false(items) || json_is_false(json_object_get(schema, "unevaluatedItems"));
    /* After a prefix, more is written only when it is described or needed. */
    bool wanted = items || plan->prefix_count == 0 || plan->least > plan->prefix_count;
    if (closed || !wanted) return true;
    json_t *any = json_true();
    plan->item = schema_compile(c, items ? items : any, "items");
    json_decref(any);
    return plan->item != NULL;
}

const struct expression *schema_array(struct schema_compiler *c, const json_t *schema)
{
    struct grammar_builder *b = c->builder;
    struct array_plan plan = { .compiler = c };
    if (!read_array(&plan, schema)) return NULL;
    if (plan.least > plan.most) return schema_shared(c, SHARED_NEVER);
    /* From the end: element i and then the tail, which may be left out once enough are there. */
    const struct expression *tail = repeated_list(
        c, plan.item, (struct list_bounds){ plan.least, plan.most, plan.prefix_count },
        plan.prefix_count == 0);
    for (uint32_t i = plan.prefix_count; i-- > 0 && tail;) {
        char step[40];
        snprintf(step, sizeof step, "prefixItems/%u", i);
        const struct expression *element = schema_compile(c, json_array_get(plan.prefix, i), step);
        if (i > 0) element = SEQUENCE(b, comma(c), element);
        tail = i < plan.most ? SEQUENCE(b, element, tail) : schema_shared(c, SHARED_NEVER);
        if (i >= plan.least) tail = expression_repeat(b, tail, 0, 1);
        uint32_t rule = builder_add_rule(b, NULL);
        builder_define(b, rule, tail);
        tail = expression_rule(b, rule);
    }
    return braces(c, "[", SEQUENCE(b, tail, space(c)), "]");
}
