#include "jinja/run.h"

struct jinja_scope *jinja_scope_new(struct jinja_run *run, struct jinja_scope *parent)
{
    struct jinja_scope *scope = jinja_take(run, 1, sizeof *scope);
    if (scope) scope->parent = parent;
    return scope;
}

static struct jinja_binding *find(const struct jinja_scope *scope, const struct jinja_string *name)
{
    for (size_t i = 0; i < scope->count; i++)
        if (scope->bindings[i].name == name) return &scope->bindings[i];
    return NULL;
}

void jinja_scope_set(struct jinja_run *run, struct jinja_scope *scope,
                     const struct jinja_string *name, struct jinja_value value)
{
    struct jinja_binding *binding = find(scope, name);
    if (!binding) {
        if (!JINJA_RESERVE(run, scope->bindings, scope->capacity, scope->count + 1)) return;
        binding = &scope->bindings[scope->count++];
        binding->name = name;
    }
    binding->value = value;
}

/* bos_token and the like are the model's own. */
static bool is_special_token(const struct jinja_string *name, const json_t *json)
{
    return json_is_string(json) && name->length > 6 &&
           memcmp(name->data + name->length - 6, "_token", 6) == 0;
}

/* A variable of the context is converted at its first use, and then kept: a list that a template
 * appends to stays the same list. */
static struct jinja_value from_context(struct jinja_run *run, const struct jinja_string *name)
{
    const json_t *json = json_object_getn(run->context, name->data, name->length);
    struct jinja_value value;
    if (json) {
        value = is_special_token(name, json) ? jinja_markup_from_json(run, json)
                                             : jinja_from_json(run, json);
    } else {
        const struct jinja_builtin *builtin = jinja_find_global(name);
        bool no_clock = builtin && !run->options->now && jinja_is_text(name, "strftime_now");
        if (!builtin || no_clock) return jinja_undefined_name(JINJA_ABSENT, name);
        struct jinja_bound *bound = jinja_take(run, 1, sizeof *bound);
        if (!bound) return jinja_failed();
        bound->builtin = builtin;
        value = (struct jinja_value){ .kind = JINJA_FUNCTION, .bound = bound };
    }
    jinja_scope_set(run, run->base, name, value);
    return value;
}

struct jinja_value jinja_scope_get(struct jinja_run *run, const struct jinja_string *name)
{
    for (const struct jinja_scope *scope = run->scope; scope; scope = scope->parent) {
        const struct jinja_binding *binding = find(scope, name);
        if (binding) return binding->value;
        jinja_charge(run, scope->count); /* the search is linear */
    }
    return from_context(run, name);
}
