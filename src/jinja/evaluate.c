#include "jinja/run.h"
#include "base/unicode.h"

/* Errors are reported where the work is: evaluating an operand has moved the place. */
static void go_to(struct jinja_run *run, const struct jinja_node *node)
{
    run->line = node->line;
    run->column = node->column;
}

/* ------------------------------------------------------------------ attributes and items */

static struct jinja_value bind_method(struct jinja_run *run, const struct jinja_builtin *builtin,
                                      struct jinja_value self)
{
    struct jinja_bound *bound = jinja_take(run, 1, sizeof *bound);
    if (!bound) return jinja_failed();
    *bound = (struct jinja_bound){ builtin, self };
    return (struct jinja_value){ .kind = JINJA_FUNCTION, .bound = bound };
}

/* What Python's getattr finds; ABSENT when nothing. */
static struct jinja_value own_attribute(struct jinja_run *run, struct jinja_value object,
                                        const struct jinja_string *name)
{
    if (object.kind == JINJA_LOOP) {
        struct jinja_value value = jinja_loop_attribute(run, object.loop, name);
        if (value.kind != JINJA_ABSENT) return value;
    }
    if (object.kind == JINJA_NAMESPACE) {
        struct jinja_value key = { .kind = JINJA_STRING, .string = name };
        const struct jinja_entry *entry = jinja_dict_find(run, object.dict, key);
        return entry ? entry->value : jinja_absent();
    }
    if (object.kind == JINJA_MACRO && jinja_is_text(name, "name"))
        return (struct jinja_value){ .kind = JINJA_STRING, .string = object.macro->node->text };
    const struct jinja_builtin *method = jinja_find_method(object.kind, name);
    return method ? bind_method(run, method, object) : jinja_absent();
}

struct jinja_value jinja_get_attribute(struct jinja_run *run, struct jinja_value object,
                                       const struct jinja_string *name)
{
    if (run->failed) return jinja_failed();
    if (object.kind == JINJA_UNDEFINED) return jinja_raise_undefined(run, object);
    struct jinja_value value = own_attribute(run, object, name);
    if (value.kind != JINJA_ABSENT) return value;
    if (object.kind == JINJA_DICT) {
        struct jinja_value key = { .kind = JINJA_STRING, .string = name };
        const struct jinja_entry *entry = jinja_dict_find(run, object.dict, key);
        if (entry) return entry->value;
    }
    return jinja_undefined_name(object.kind, name);
}

/* Item `index` of a string or sequence; ABSENT when there is none. */
static struct jinja_value item_at(struct jinja_run *run, struct jinja_value object, int64_t index)
{
    if (object.kind != JINJA_STRING && (object.kind < JINJA_LIST || object.kind > JINJA_RANGE))
        return jinja_absent();
    int64_t length = jinja_length(object);
    if (index < 0) index += length;
    if (index < 0 || index >= length) return jinja_absent();
    if (object.kind != JINJA_STRING) return object.sequence->items[index];
    const struct jinja_string *text = object.string;
    size_t offset = (size_t)index, bytes = 1;
    if (text->length != text->characters) {
        jinja_charge(run, text->length);
        offset = unicode_offset(text->data, text->length, (size_t)index);
        unicode_decode(text->data + offset, &bytes);
    }
    return jinja_string_view(run, text->data + offset, bytes);
}

struct jinja_value jinja_get_item(struct jinja_run *run, struct jinja_value object,
                                  struct jinja_value key)
{
    if (run->failed) return jinja_failed();
    if (object.kind == JINJA_UNDEFINED) return jinja_raise_undefined(run, object);
    if (object.kind == JINJA_DICT) {
        bool hashable = key.kind != JINJA_LIST && key.kind != JINJA_DICT;
        const struct jinja_entry *entry = hashable ? jinja_dict_find(run, object.dict, key) : NULL;
        if (entry) return entry->value;
    } else if (key.kind == JINJA_INT || key.kind == JINJA_BOOL) {
        struct jinja_value value =
            item_at(run, object, key.kind == JINJA_INT ? key.integer : key.truth);
        if (value.kind != JINJA_ABSENT) return value;
    }
    if (key.kind != JINJA_STRING) {
        struct jinja_value text = jinja_str(run, key);
        return run->failed ? text : jinja_undefined_name(object.kind, text.string);
    }
    struct jinja_value value = own_attribute(run, object, key.string);
    if (value.kind != JINJA_ABSENT) return value;
    return jinja_undefined_name(object.kind, key.string);
}

/* value[key], or what is given for a value that has none. */
static struct jinja_value get_or(struct jinja_run *run, struct jinja_value object,
                                 struct jinja_value key, struct jinja_value otherwise)
{
    struct jinja_value value = jinja_get_item(run, object, key);
    return value.kind == JINJA_UNDEFINED && jinja_given(otherwise) ? otherwise : value;
}

struct jinja_value jinja_get_path(struct jinja_run *run, struct jinja_value object,
                                  struct jinja_value path, struct jinja_value otherwise)
{
    if (path.kind != JINJA_STRING) return get_or(run, object, path, otherwise);
    const char *rest = path.string->data;
    size_t left = path.string->length;
    for (;;) {
        const char *dot = memchr(rest, '.', left);
        size_t length = dot ? (size_t)(dot - rest) : left;
        struct jinja_value key = jinja_string_view(run, rest, length);
        if (run->failed) return key;
        int64_t index;
        bool digits = length > 0 && rest[0] >= '0' && rest[0] <= '9';
        if (digits && jinja_parse_int(&index, key.string, 10)) key = jinja_int(index);
        object = get_or(run, object, key, otherwise);
        if (!dot || run->failed) return object;
        left -= length + 1;
        rest = dot + 1;
    }
}

/* ------------------------------------------------------------------ calls */

static void add_keyword(struct jinja_run *run, struct jinja_arguments *out, size_t capacity,
                        struct jinja_keyword keyword)
{
    for (size_t i = 0; i < out->keyword_count; i++) {
        const struct jinja_string *name = out->keywords[i].name;
        if (name->length == keyword.name->length &&
            memcmp(name->data, keyword.name->data, name->length) == 0) {
            jinja_raise(run, JINJA_ERROR_TYPE, "the keyword argument '%.*s' is given twice",
                        (int)min_size(name->length, 100), name->data);
            return;
        }
    }
    if (out->keyword_count < capacity) out->keywords[out->keyword_count++] = keyword;
}

/* **dict: its keys become keyword arguments. */
static void spread_keywords(struct jinja_run *run, struct jinja_arguments *out, size_t *capacity,
                            struct jinja_value value)
{
    if (value.kind != JINJA_DICT) {
        jinja_raise(run, JINJA_ERROR_TYPE, "argument after ** must be a mapping, not %s",
                    jinja_type_name(value.kind));
        return;
    }
    size_t total = *capacity + value.dict->count;
    struct jinja_keyword *keywords = jinja_take(run, total, sizeof *keywords);
    if (!keywords) return;
    if (out->keyword_count) memcpy(keywords, out->keywords, out->keyword_count * sizeof *keywords);
    out->keywords = keywords;
    *capacity = total;
    for (size_t i = 0; i < value.dict->count && !run->failed; i++) {
        const struct jinja_entry *entry = &value.dict->entries[i];
        if (entry->key.kind != JINJA_STRING)
            jinja_raise(run, JINJA_ERROR_TYPE, "keywords must be strings");
        else
            add_keyword(run, out, total, (struct jinja_keyword){ entry->key.string, entry->value });
    }
}

/* Room for the call's arguments.  A spread may need more and then moves them. */
static bool reserve_arguments(struct jinja_run *run, struct jinja_arguments *out, size_t count)
{
    out->positional = out->few;
    out->keywords = out->few_keywords;
    out->positional_count = out->keyword_count = 0;
    if (count <= JINJA_FEW_ARGUMENTS) return !run->failed;
    out->positional = jinja_take(run, count, sizeof *out->positional);
    out->keywords = jinja_take(run, count, sizeof *out->keywords);
    return !run->failed;
}

/* *value: its items become arguments. */
static void spread_items(struct jinja_run *run, struct jinja_arguments *out, size_t left,
                         struct jinja_value value)
{
    struct jinja_sequence *more = jinja_iterate(run, value);
    if (!more) return;
    size_t total = out->positional_count + more->count + left;
    struct jinja_value *moved = jinja_take(run, total, sizeof *moved);
    if (!moved) return;
    if (out->positional_count)
        memcpy(moved, out->positional, out->positional_count * sizeof *moved);
    out->positional = moved;
    for (size_t i = 0; i < more->count; i++) moved[out->positional_count++] = more->items[i];
}

bool jinja_evaluate_arguments(struct jinja_run *run, struct jinja_arguments *out,
                              const struct jinja_node *call)
{
    size_t left = call->item_count; /* arguments that are still to come */
    size_t keyword_capacity = max_size(left, JINJA_FEW_ARGUMENTS);
    if (!reserve_arguments(run, out, left)) return false;
    for (const struct jinja_node *item = call->items; item && !run->failed; item = item->next) {
        struct jinja_value value = jinja_evaluate(run, item->a);
        left--;
        if (run->failed) break;
        if (item->kind == NODE_ARGUMENT)
            out->positional[out->positional_count++] = value;
        else if (item->kind == NODE_KEYWORD)
            add_keyword(run, out, keyword_capacity, (struct jinja_keyword){ item->text, value });
        else if (item->kind == NODE_SPREAD)
            spread_items(run, out, left, value);
        else
            spread_keywords(run, out, &keyword_capacity, value);
    }
    return !run->failed;
}

struct jinja_value jinja_call(struct jinja_run *run, struct jinja_value callee,
                              struct jinja_arguments *given)
{
    if (!jinja_enter(run)) return jinja_failed();
    struct jinja_value result;
    switch (callee.kind) {
    case JINJA_FUNCTION:
        result = jinja_call_builtin(run, callee.bound->builtin, callee.bound->self, given);
        break;
    case JINJA_MACRO:
        result = jinja_call_macro(run, callee.macro, given);
        break;
    case JINJA_LOOP:
        result = jinja_call_loop(run, callee.loop, given);
        break;
    case JINJA_UNDEFINED:
        result = jinja_raise_undefined(run, callee);
        break;
    default:
        result = jinja_raise(run, JINJA_ERROR_TYPE, "'%s' object is not callable",
                             jinja_type_name(callee.kind));
        break;
    }
    jinja_leave(run);
    return result;
}

/* ------------------------------------------------------------------ expressions */

static struct jinja_value evaluate_items(struct jinja_run *run, const struct jinja_node *node)
{
    enum jinja_kind kind = node->kind == NODE_LIST ? JINJA_LIST : JINJA_TUPLE;
    struct jinja_value value = jinja_sequence(run, kind, node->item_count);
    for (const struct jinja_node *item = node->items; item && !run->failed; item = item->next)
        jinja_append(run, value.sequence, jinja_evaluate(run, item));
    return value;
}

static struct jinja_value evaluate_dict(struct jinja_run *run, const struct jinja_node *node)
{
    struct jinja_value value = jinja_dict(run);
    const struct jinja_node *key = node->items;
    while (key && key->next && !run->failed) {
        struct jinja_value k = jinja_evaluate(run, key);
        struct jinja_value v = jinja_evaluate(run, key->next);
        if (!run->failed) jinja_dict_set(run, value.dict, k, v);
        key = key->next->next;
    }
    return value;
}

static struct jinja_value evaluate_attribute(struct jinja_run *run, const struct jinja_node *node)
{
    struct jinja_value object = jinja_evaluate(run, node->a);
    go_to(run, node);
    return jinja_get_attribute(run, object, node->text);
}

static struct jinja_value evaluate_item(struct jinja_run *run, const struct jinja_node *node)
{
    struct jinja_value object = jinja_evaluate(run, node->a);
    if (node->b && node->b->kind != NODE_SLICE)
        return jinja_get_item(run, object, jinja_evaluate(run, node->b));
    struct jinja_value bounds[3] = { jinja_none(), jinja_none(), jinja_none() };
    const struct jinja_node *slice = node->b;
    if (slice && slice->a) bounds[0] = jinja_evaluate(run, slice->a);
    if (slice && slice->b) bounds[1] = jinja_evaluate(run, slice->b);
    if (slice && slice->c) bounds[2] = jinja_evaluate(run, slice->c);
    return run->failed ? jinja_failed() : jinja_slice(run, object, bounds);
}

static struct jinja_value raise_unknown(struct jinja_run *run, const char *what,
                                        const struct jinja_string *name)
{
    return jinja_raise(run, JINJA_ERROR_SYNTAX, "No %s named '%.*s'.", what,
                       (int)min_size(name->length, 100), name->data);
}

/* A filter or a test: the value in front, the arguments, the function. */
static struct jinja_value evaluate_applied(struct jinja_run *run, const struct jinja_node *node)
{
    struct jinja_arguments given;
    struct jinja_value self = node->a ? jinja_evaluate(run, node->a) : run->block;
    if (!jinja_evaluate_arguments(run, &given, node)) return jinja_failed();
    go_to(run, node);
    if (!node->builtin)
        return raise_unknown(run, node->kind == NODE_FILTER ? "filter" : "test", node->text);
    return jinja_call_builtin(run, node->builtin, self, &given);
}

/* object.method is bound in *method for the time of the call, without the heap. */
static struct jinja_value evaluate_callee(struct jinja_run *run, const struct jinja_node *node,
                                          struct jinja_bound *method)
{
    if (node->kind != NODE_ATTRIBUTE) return jinja_evaluate(run, node);
    struct jinja_value object = jinja_evaluate(run, node->a);
    if (run->failed) return object;
    method->builtin = jinja_find_method(object.kind, node->text);
    method->self = object;
    if (method->builtin) return (struct jinja_value){ .kind = JINJA_FUNCTION, .bound = method };
    go_to(run, node);
    return jinja_get_attribute(run, object, node->text);
}

static struct jinja_value evaluate_call(struct jinja_run *run, const struct jinja_node *node)
{
    struct jinja_arguments given;
    struct jinja_bound method;
    struct jinja_value callee = evaluate_callee(run, node->a, &method);
    if (!jinja_evaluate_arguments(run, &given, node)) return jinja_failed();
    go_to(run, node);
    return jinja_call(run, callee, &given);
}

static struct jinja_value evaluate_comparison(struct jinja_run *run, const struct jinja_node *node)
{
    struct jinja_value left = jinja_evaluate(run, node->a);
    bool holds = true;
    for (const struct jinja_node *item = node->items; item && holds; item = item->next) {
        struct jinja_value right = jinja_evaluate(run, item->b);
        go_to(run, item);
        holds = jinja_compare(run, item->operator, left, right) && !run->failed;
        left = right;
    }
    return jinja_bool(holds);
}

static struct jinja_value evaluate_concatenation(struct jinja_run *run,
                                                 const struct jinja_node *node)
{
    struct jinja_value left = jinja_str(run, jinja_evaluate(run, node->items));
    for (const struct jinja_node *item = node->items->next; item && !run->failed;
         item = item->next) {
        struct jinja_value right = jinja_str(run, jinja_evaluate(run, item));
        if (run->failed) break;
        left = jinja_concatenate(run, left.string, right.string);
    }
    return left;
}

static struct jinja_value evaluate_condition(struct jinja_run *run, const struct jinja_node *node)
{
    bool holds = jinja_truth(jinja_evaluate(run, node->b));
    if (run->failed) return jinja_failed();
    if (holds) return jinja_evaluate(run, node->a);
    if (node->c) return jinja_evaluate(run, node->c);
    return jinja_undefined("the inline if-expression evaluated to false and no else section "
                           "was defined.");
}

static struct jinja_value evaluate_binary(struct jinja_run *run, const struct jinja_node *node)
{
    struct jinja_value a = jinja_evaluate(run, node->a);
    struct jinja_value b = run->failed ? a : jinja_evaluate(run, node->b);
    go_to(run, node);
    return jinja_binary(run, node->operator, a, b);
}

static struct jinja_value evaluate_logic(struct jinja_run *run, const struct jinja_node *node)
{
    struct jinja_value a = jinja_evaluate(run, node->a);
    if (node->kind == NODE_NOT) return jinja_bool(!jinja_truth(a));
    bool decided = jinja_truth(a) == (node->kind == NODE_OR);
    return decided || run->failed ? a : jinja_evaluate(run, node->b);
}

static struct jinja_value evaluate_node(struct jinja_run *run, const struct jinja_node *node)
{
    switch (node->kind) {
    case NODE_CONSTANT:
        return node->constant;
    case NODE_NAME:
        return jinja_scope_get(run, node->text);
    case NODE_LIST:
    case NODE_TUPLE:
        return evaluate_items(run, node);
    case NODE_DICT:
        return evaluate_dict(run, node);
    case NODE_ATTRIBUTE:
        return evaluate_attribute(run, node);
    case NODE_ITEM:
        return evaluate_item(run, node);
    case NODE_CALL:
        return evaluate_call(run, node);
    case NODE_FILTER:
    case NODE_TEST:
        return evaluate_applied(run, node);
    case NODE_UNARY:
        return jinja_unary(run, node->operator, jinja_evaluate(run, node->a));
    case NODE_BINARY:
        return evaluate_binary(run, node);
    case NODE_AND:
    case NODE_OR:
    case NODE_NOT:
        return evaluate_logic(run, node);
    case NODE_COMPARE:
        return evaluate_comparison(run, node);
    case NODE_CONCAT:
        return evaluate_concatenation(run, node);
    case NODE_CONDITION:
        return evaluate_condition(run, node);
    default:
        return jinja_raise(run, JINJA_ERROR_SYNTAX, "this is not an expression");
    }
}

struct jinja_value jinja_evaluate(struct jinja_run *run, const struct jinja_node *node)
{
    if (!jinja_charge(run, 0) || !jinja_enter(run)) return jinja_failed();
    go_to(run, node);
    struct jinja_value value = evaluate_node(run, node);
    jinja_leave(run);
    return run->failed ? jinja_failed() : value;
}
