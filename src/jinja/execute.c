#include "jinja/run.h"

/* How a list of statements ended. */
enum flow { FLOW_NEXT, FLOW_BREAK, FLOW_CONTINUE };

static enum flow execute_list(struct jinja_run *run, const struct jinja_node *list);

/* Runs `list` in a new scope inside `parent`. */
static enum flow execute_in(struct jinja_run *run, struct jinja_scope *parent,
                            const struct jinja_node *list)
{
    struct jinja_scope *scope = jinja_scope_new(run, parent), *before = run->scope;
    if (!scope) return FLOW_NEXT;
    run->scope = scope;
    enum flow flow = execute_list(run, list);
    run->scope = before;
    return flow;
}

/* What `list` writes when run in `scope`. */
static struct jinja_value capture(struct jinja_run *run, struct jinja_scope *scope,
                                  const struct jinja_node *list)
{
    struct jinja_builder builder = { .run = run };
    struct jinja_builder *output = run->output;
    struct jinja_scope *before = run->scope;
    run->output = &builder;
    run->scope = scope;
    execute_list(run, list);
    run->scope = before;
    run->output = output;
    return jinja_built(&builder);
}

static struct jinja_value capture_in(struct jinja_run *run, struct jinja_scope *parent,
                                     const struct jinja_node *list)
{
    struct jinja_scope *scope = jinja_scope_new(run, parent);
    return scope ? capture(run, scope, list) : jinja_failed();
}

/* ------------------------------------------------------------------ assignment */

static void assign(struct jinja_run *run, const struct jinja_node *target,
                   struct jinja_value value);

static void unpack(struct jinja_run *run, const struct jinja_node *tuple, struct jinja_value value)
{
    if (!jinja_is_iterable(value)) {
        jinja_raise(run, JINJA_ERROR_TYPE, "cannot unpack non-iterable %s object",
                    jinja_type_name(value.kind));
        return;
    }
    struct jinja_sequence *items = jinja_iterate(run, value);
    if (!items) return;
    if (items->count != tuple->item_count) {
        if (items->count < tuple->item_count)
            jinja_raise(run, JINJA_ERROR_VALUE,
                        "not enough values to unpack (expected %zu, got %zu)", tuple->item_count,
                        items->count);
        else
            jinja_raise(run, JINJA_ERROR_VALUE, "too many values to unpack (expected %zu)",
                        tuple->item_count);
        return;
    }
    const struct jinja_node *target = tuple->items;
    for (size_t i = 0; target && !run->failed; i++, target = target->next)
        assign(run, target, items->items[i]);
}

static void assign(struct jinja_run *run, const struct jinja_node *target, struct jinja_value value)
{
    if (run->failed) return;
    run->line = target->line;
    run->column = target->column;
    if (target->kind == NODE_NAME) {
        jinja_scope_set(run, run->scope, target->text, value);
    } else if (target->kind == NODE_TUPLE) {
        unpack(run, target, value);
    } else {
        struct jinja_value object = jinja_scope_get(run, target->a->text);
        struct jinja_value key = { .kind = JINJA_STRING, .string = target->text };
        if (object.kind == JINJA_NAMESPACE)
            jinja_dict_set(run, object.dict, key, value);
        else
            jinja_raise(run, JINJA_ERROR_TYPE, "cannot assign attribute on non-namespace object");
    }
}

/* ------------------------------------------------------------------ loops */

/* Does the loop's condition let the item in? */
static bool passes(struct jinja_run *run, struct jinja_loop *loop, struct jinja_value item)
{
    if (!loop->node->b) return true;
    struct jinja_scope *before = run->scope;
    if (!loop->condition) loop->condition = jinja_scope_new(run, loop->outside);
    if (!loop->condition) return false;
    loop->condition->count = 0;
    run->scope = loop->condition;
    assign(run, loop->node->target, item);
    bool holds = !run->failed && jinja_truth(jinja_evaluate(run, loop->node->b));
    run->scope = before;
    return holds && !run->failed;
}

static bool draw(struct jinja_run *run, struct jinja_loop *loop, struct jinja_value *out)
{
    while (loop->drawn < loop->source->count && !run->failed) {
        *out = loop->source->items[loop->drawn++];
        if (passes(run, loop, *out)) return true;
    }
    return false;
}

/* Draws until `count` items are ahead of the present one, or all. */
static size_t look_ahead(struct jinja_run *run, struct jinja_loop *loop, size_t count)
{
    struct jinja_value item;
    if (!loop->ahead) loop->ahead = jinja_sequence(run, JINJA_LIST, 1).sequence;
    while (!run->failed && loop->ahead->count - loop->taken < count && draw(run, loop, &item))
        jinja_append(run, loop->ahead, item);
    return run->failed ? 0 : loop->ahead->count - loop->taken;
}

static bool next_item(struct jinja_run *run, struct jinja_loop *loop)
{
    struct jinja_value item;
    if (loop->ahead && loop->taken < loop->ahead->count)
        item = loop->ahead->items[loop->taken++];
    else if (!draw(run, loop, &item))
        return false;
    loop->before = loop->current;
    loop->current = item;
    loop->index0++;
    return !run->failed;
}

static int64_t loop_length(struct jinja_run *run, struct jinja_loop *loop)
{
    if (!loop->node->b) return (int64_t)loop->source->count;
    return loop->index0 + 1 + (int64_t)look_ahead(run, loop, SIZE_MAX);
}

struct jinja_value jinja_loop_attribute(struct jinja_run *run, struct jinja_loop *loop,
                                        const struct jinja_string *name)
{
    if (jinja_is_text(name, "index0")) return jinja_int(loop->index0);
    if (jinja_is_text(name, "index")) return jinja_int(loop->index0 + 1);
    if (jinja_is_text(name, "first")) return jinja_bool(loop->index0 == 0);
    if (jinja_is_text(name, "last")) return jinja_bool(look_ahead(run, loop, 1) == 0);
    if (jinja_is_text(name, "length")) return jinja_int(loop_length(run, loop));
    if (jinja_is_text(name, "revindex")) return jinja_int(loop_length(run, loop) - loop->index0);
    if (jinja_is_text(name, "revindex0"))
        return jinja_int(loop_length(run, loop) - loop->index0 - 1);
    if (jinja_is_text(name, "depth")) return jinja_int(loop->depth0 + 1);
    if (jinja_is_text(name, "depth0")) return jinja_int(loop->depth0);
    if (jinja_is_text(name, "previtem"))
        return loop->index0 > 0 ? loop->before : jinja_undefined("there is no previous item");
    if (jinja_is_text(name, "nextitem"))
        return look_ahead(run, loop, 1) > 0 ? loop->ahead->items[loop->taken]
                                            : jinja_undefined("there is no next item");
    return jinja_absent();
}

static enum flow execute_iteration(struct jinja_run *run, struct jinja_scope *scope,
                                   struct jinja_loop *loop)
{
    struct jinja_scope *before = run->scope;
    struct jinja_value self = { .kind = JINJA_LOOP, .loop = loop };
    run->scope = scope;
    jinja_scope_set(run, scope, run->tree->loop_name, self);
    assign(run, loop->node->target, loop->current);
    enum flow flow = execute_list(run, loop->node->body);
    run->scope = before;
    return flow;
}

static void run_loop(struct jinja_run *run, const struct jinja_node *node,
                     struct jinja_value iterable, int64_t depth0)
{
    struct jinja_loop *loop = jinja_take(run, 1, sizeof *loop);
    bool in_place = iterable.kind >= JINJA_LIST && iterable.kind <= JINJA_VIEW;
    struct jinja_sequence *source = in_place ? iterable.sequence : jinja_iterate(run, iterable);
    if (!source || !loop) return;
    *loop = (struct jinja_loop){
        .node = node, .outside = run->scope, .source = source, .index0 = -1, .depth0 = depth0
    };
    struct jinja_scope *scope = NULL;
    bool completed = false; /* as Jinja counts: an iteration that came to its end */
    while (next_item(run, loop)) {
        if (scope && !scope->captured)
            scope->count = 0;
        else
            scope = jinja_scope_new(run, loop->outside);
        if (!scope) return;
        enum flow flow = execute_iteration(run, scope, loop);
        if (flow == FLOW_BREAK || run->failed) break;
        if (flow == FLOW_NEXT) completed = true;
    }
    if (!completed && node->otherwise && !run->failed) execute_in(run, run->scope, node->otherwise);
}

struct jinja_value jinja_call_loop(struct jinja_run *run, const struct jinja_loop *loop,
                                   const struct jinja_arguments *given)
{
    if (!loop->node->recursive)
        return jinja_raise(run, JINJA_ERROR_TYPE,
                           "The loop must have the 'recursive' marker to be called recursively.");
    if (given->positional_count != 1 || given->keyword_count)
        return jinja_raise(run, JINJA_ERROR_TYPE, "loop takes one argument");
    struct jinja_builder builder = { .run = run };
    struct jinja_builder *output = run->output;
    struct jinja_scope *before = run->scope;
    run->output = &builder;
    run->scope = loop->outside;
    run_loop(run, loop->node, given->positional[0], loop->depth0 + 1);
    run->scope = before;
    run->output = output;
    return jinja_built(&builder);
}

/* ------------------------------------------------------------------ macros */

static bool is_same(const struct jinja_string *a, const struct jinja_string *b)
{
    return a == b || (a->length == b->length && memcmp(a->data, b->data, a->length) == 0);
}

static bool is_bound(const struct jinja_scope *scope, const struct jinja_string *name)
{
    for (size_t i = 0; i < scope->count; i++)
        if (scope->bindings[i].name == name) return true;
    return false;
}

static struct jinja_value define_macro(struct jinja_run *run, const struct jinja_node *node)
{
    struct jinja_macro *macro = jinja_take(run, 1, sizeof *macro);
    if (!macro) return jinja_failed();
    *macro = (struct jinja_macro){ node, run->scope };
    for (struct jinja_scope *scope = run->scope; scope && !scope->captured; scope = scope->parent)
        scope->captured = true;
    return (struct jinja_value){ .kind = JINJA_MACRO, .macro = macro };
}

/* Keyword arguments that no parameter took: `caller`, `kwargs`, or an error. */
static void bind_extra_keywords(struct jinja_run *run, struct jinja_scope *scope,
                                const struct jinja_node *node, const struct jinja_arguments *given,
                                const bool *used)
{
    struct jinja_value rest = node->takes_keywords ? jinja_dict(run) : jinja_none();
    bool explicit_caller = is_bound(scope, run->tree->caller_name);
    if (node->takes_caller && !explicit_caller)
        jinja_scope_set(run, scope, run->tree->caller_name, jinja_undefined("No caller defined"));
    for (size_t i = 0; i < given->keyword_count && !run->failed; i++) {
        const struct jinja_keyword *keyword = &given->keywords[i];
        struct jinja_value key = { .kind = JINJA_STRING, .string = keyword->name };
        if (used[i]) continue;
        if (node->takes_caller && is_same(keyword->name, run->tree->caller_name))
            jinja_scope_set(run, scope, run->tree->caller_name, keyword->value);
        else if (node->takes_keywords)
            jinja_dict_set(run, rest.dict, key, keyword->value);
        else
            jinja_raise(run, JINJA_ERROR_TYPE, "macro '%.*s' takes no keyword argument '%.*s'",
                        (int)min_size(node->text->length, 100), node->text->data,
                        (int)min_size(keyword->name->length, 100), keyword->name->data);
    }
    if (node->takes_keywords) jinja_scope_set(run, scope, run->tree->keywords_name, rest);
}

static void bind_rest(struct jinja_run *run, struct jinja_scope *scope,
                      const struct jinja_node *node, const struct jinja_arguments *given)
{
    if (!node->takes_rest) {
        if (given->positional_count > node->item_count)
            jinja_raise(run, JINJA_ERROR_TYPE, "macro '%.*s' takes not more than %zu argument(s)",
                        (int)min_size(node->text->length, 100), node->text->data, node->item_count);
        return;
    }
    struct jinja_value rest = jinja_sequence(run, JINJA_TUPLE, 0);
    for (size_t i = node->item_count; i < given->positional_count && !run->failed; i++)
        jinja_append(run, rest.sequence, given->positional[i]);
    if (!run->failed) jinja_scope_set(run, scope, run->tree->rest_name, rest);
}

/* A parameter's value by position or by name; ABSENT when it was not given. */
static struct jinja_value parameter_value(const struct jinja_node *parameter, size_t index,
                                          const struct jinja_arguments *given, bool *used)
{
    if (index < given->positional_count) return given->positional[index];
    for (size_t i = 0; i < given->keyword_count; i++) {
        if (used[i] || !is_same(given->keywords[i].name, parameter->text)) continue;
        used[i] = true;
        return given->keywords[i].value;
    }
    return jinja_absent();
}

static void bind_parameters(struct jinja_run *run, struct jinja_scope *scope,
                            const struct jinja_node *node, const struct jinja_arguments *given)
{
    bool few[JINJA_FEW_ARGUMENTS] = { false };
    bool *used = few;
    size_t index = 0;
    if (given->keyword_count > JINJA_FEW_ARGUMENTS)
        used = jinja_take(run, given->keyword_count, sizeof *used);
    if (!used) return;
    for (const struct jinja_node *p = node->items; p && !run->failed; p = p->next, index++) {
        struct jinja_value value = parameter_value(p, index, given, used);
        if (value.kind != JINJA_ABSENT) jinja_scope_set(run, scope, p->text, value);
    }
    bind_extra_keywords(run, scope, node, given, used);
    bind_rest(run, scope, node, given);
    /* Defaults see the parameters before them. */
    for (const struct jinja_node *p = node->items; p && !run->failed; p = p->next) {
        if (is_bound(scope, p->text)) continue;
        jinja_scope_set(run, scope, p->text,
                        p->a ? jinja_evaluate(run, p->a)
                             : jinja_undefined_name(JINJA_ABSENT, p->text));
    }
}

struct jinja_value jinja_call_macro(struct jinja_run *run, const struct jinja_macro *macro,
                                    const struct jinja_arguments *given)
{
    struct jinja_scope *scope = jinja_scope_new(run, macro->scope), *before = run->scope;
    if (!scope) return jinja_failed();
    run->scope = scope;
    bind_parameters(run, scope, macro->node, given);
    run->scope = before;
    return run->failed ? jinja_failed() : capture(run, scope, macro->node->body);
}

/* {% call(x) f(y) %}body{% endcall %}: f gets the body as `caller`. */
static void execute_call_block(struct jinja_run *run, const struct jinja_node *node)
{
    struct jinja_arguments given;
    struct jinja_value caller = define_macro(run, node->target);
    struct jinja_value callee = jinja_evaluate(run, node->a->a);
    if (run->failed || !jinja_evaluate_arguments(run, &given, node->a)) return;
    struct jinja_keyword *keywords = jinja_take(run, given.keyword_count + 1, sizeof *keywords);
    if (!keywords) return;
    if (given.keyword_count)
        memcpy(keywords, given.keywords, given.keyword_count * sizeof *keywords);
    keywords[given.keyword_count++] = (struct jinja_keyword){ run->tree->caller_name, caller };
    given.keywords = keywords;
    struct jinja_value result = jinja_call(run, callee, &given);
    if (!run->failed) jinja_add_value(run->output, result);
}

/* ------------------------------------------------------------------ statements */

static enum flow execute_if(struct jinja_run *run, const struct jinja_node *node)
{
    for (; node && !run->failed; node = node->otherwise) {
        bool holds = !node->a || jinja_truth(jinja_evaluate(run, node->a));
        if (holds && !run->failed) return execute_list(run, node->body);
    }
    return FLOW_NEXT;
}

/* The body's text through the block's filters. */
static struct jinja_value filtered_body(struct jinja_run *run, const struct jinja_node *node)
{
    struct jinja_value text = capture_in(run, run->scope, node->body);
    if (!node->a || run->failed) return text;
    struct jinja_value before = run->block;
    run->block = text;
    text = jinja_evaluate(run, node->a);
    run->block = before;
    return text;
}

static enum flow execute_with(struct jinja_run *run, const struct jinja_node *node)
{
    struct jinja_scope *scope = jinja_scope_new(run, run->scope), *before = run->scope;
    for (const struct jinja_node *set = node->items; set && scope && !run->failed; set = set->next)
        jinja_scope_set(run, scope, set->target->text, jinja_evaluate(run, set->a));
    if (run->failed) return FLOW_NEXT;
    run->scope = scope;
    enum flow flow = execute_list(run, node->body);
    run->scope = before;
    return flow;
}

static void execute_output(struct jinja_run *run, const struct jinja_node *node)
{
    struct jinja_value value = jinja_evaluate(run, node->a);
    if (!run->failed) jinja_add_value(run->output, value);
}

static enum flow execute_node(struct jinja_run *run, const struct jinja_node *node)
{
    switch (node->kind) {
    case NODE_DATA:
        jinja_add_string(run->output, node->constant.string);
        break;
    case NODE_OUTPUT:
        execute_output(run, node);
        break;
    case NODE_IF:
        return execute_if(run, node);
    case NODE_FOR:
        run_loop(run, node, jinja_evaluate(run, node->a), 0);
        break;
    case NODE_SET:
        assign(run, node->target, jinja_evaluate(run, node->a));
        break;
    case NODE_SET_BLOCK:
        assign(run, node->target, filtered_body(run, node));
        break;
    case NODE_MACRO:
        jinja_scope_set(run, run->scope, node->text, define_macro(run, node));
        break;
    case NODE_CALL_BLOCK:
        execute_call_block(run, node);
        break;
    case NODE_FILTER_BLOCK:
        jinja_add_value(run->output, filtered_body(run, node));
        break;
    case NODE_WITH:
        return execute_with(run, node);
    case NODE_SCOPE:
        return execute_in(run, run->scope, node->body);
    case NODE_BREAK:
        return FLOW_BREAK;
    case NODE_CONTINUE:
        return FLOW_CONTINUE;
    default:
        jinja_raise(run, JINJA_ERROR_SYNTAX, "this is not a statement");
        break;
    }
    return FLOW_NEXT;
}

static enum flow execute_list(struct jinja_run *run, const struct jinja_node *list)
{
    enum flow flow = FLOW_NEXT;
    if (!jinja_enter(run)) return flow;
    for (const struct jinja_node *node = list; node && flow == FLOW_NEXT; node = node->next) {
        if (!jinja_charge(run, 0)) break;
        run->line = node->line;
        run->column = node->column;
        flow = execute_node(run, node);
        if (run->failed) break;
    }
    jinja_leave(run);
    return flow;
}

void jinja_execute(struct jinja_run *run, const struct jinja_node *list)
{
    execute_list(run, list);
}
