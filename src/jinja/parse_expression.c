/* Expressions, from loose to tight:
 *
 *     a if b else c    or    and    not    == != < <= > >= in, not in    + -    ~
 *     * / // %    **    unary - +    .name [index] (call)    |filter  is test */
#include "jinja/builtins.h"
#include "jinja/parser.h"

struct jinja_node *parse_expression(struct parser *parser)
{
    struct jinja_node *node = parse_unconditional(parser);
    while (parser_is_name(parser, "if")) {
        struct jinja_node *condition = parser_node(parser, NODE_CONDITION);
        parser_advance(parser);
        if (!condition) return NULL;
        condition->a = node;
        condition->b = parse_unconditional(parser);
        if (parser_skip_name(parser, "else")) {
            if (!parser_enter(parser)) return NULL;
            condition->c = parse_expression(parser);
            parser_leave(parser);
        }
        node = condition;
    }
    return node;
}

/* ------------------------------------------------------------------ operators */

struct binary_operator {
    const char *text;
    enum jinja_operator operator;
};

static const struct binary_operator *
find_operator(const struct parser *parser, const struct binary_operator *table, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (parser_is_operator(parser, table[i].text)) return &table[i];
    return NULL;
}

/* operand (operator operand)*, grouped from the left. */
static struct jinja_node *parse_binary(struct parser *parser, const struct binary_operator *table,
                                       size_t count, struct jinja_node *(*operand)(struct parser *))
{
    struct jinja_node *left = operand(parser);
    const struct binary_operator *found;
    while ((found = find_operator(parser, table, count))) {
        struct jinja_node *node = parser_node(parser, NODE_BINARY);
        parser_advance(parser);
        if (!node) return NULL;
        node->operator= found->operator;
        node->a = left;
        node->b = operand(parser);
        left = node;
    }
    return left;
}

static struct jinja_node *parse_unary(struct parser *parser);

static struct jinja_node *parse_power(struct parser *parser)
{
    static const struct binary_operator table[] = { { "**", OPERATOR_POWER } };
    return parse_binary(parser, table, COUNT_OF(table), parse_unary);
}

static struct jinja_node *parse_product(struct parser *parser)
{
    static const struct binary_operator table[] = {
        { "*", OPERATOR_MULTIPLY },
        { "/", OPERATOR_DIVIDE },
        { "//", OPERATOR_FLOOR_DIVIDE },
        { "%", OPERATOR_MODULO },
    };
    return parse_binary(parser, table, COUNT_OF(table), parse_power);
}

static struct jinja_node *parse_concatenation(struct parser *parser)
{
    struct jinja_node *first = parse_product(parser);
    if (!parser_is_operator(parser, "~")) return first;
    struct jinja_node *node = parser_node(parser, NODE_CONCAT);
    struct node_list items = { 0 };
    parser_push(&items, first);
    while (parser_skip_operator(parser, "~")) parser_push(&items, parse_product(parser));
    if (node) node->items = items.first;
    return node;
}

static struct jinja_node *parse_sum(struct parser *parser)
{
    static const struct binary_operator table[] = { { "+", OPERATOR_ADD },
                                                    { "-", OPERATOR_SUBTRACT } };
    return parse_binary(parser, table, COUNT_OF(table), parse_concatenation);
}

/* The comparison at the current token, which is skipped; false: there is none. */
static bool skip_comparison(struct parser *parser, enum jinja_operator *out)
{
    static const struct binary_operator table[] = {
        { "==", OPERATOR_EQUAL },  { "!=", OPERATOR_NOT_EQUAL },
        { "<", OPERATOR_LESS },    { "<=", OPERATOR_LESS_EQUAL },
        { ">", OPERATOR_GREATER }, { ">=", OPERATOR_GREATER_EQUAL },
    };
    const struct binary_operator *found = find_operator(parser, table, COUNT_OF(table));
    if (found) {
        *out = found->operator;
        parser_advance(parser);
        return true;
    }
    if (parser_skip_name(parser, "in")) {
        *out = OPERATOR_IN;
        return true;
    }
    if (!parser_is_name(parser, "not")) return false;
    const struct jinja_token *ahead = parser_look(parser);
    if (ahead->kind != TOKEN_NAME || ahead->length != 2 || memcmp(ahead->text, "in", 2) != 0)
        return false;
    parser_advance(parser);
    parser_advance(parser);
    *out = OPERATOR_NOT_IN;
    return true;
}

static struct jinja_node *parse_comparison(struct parser *parser)
{
    struct jinja_node *node = parser_node(parser, NODE_COMPARE);
    struct jinja_node *first = parse_sum(parser);
    struct node_list operands = { 0 };
    enum jinja_operator operator;
    while (skip_comparison(parser, &operator)) {
        struct jinja_node *operand = parser_node(parser, NODE_OPERAND);
        if (!operand) return NULL;
        operand->operator= operator;
        operand->b = parse_sum(parser);
        parser_push(&operands, operand);
    }
    if (!operands.first || !node) return first;
    node->a = first;
    node->items = operands.first;
    return node;
}

static struct jinja_node *parse_not(struct parser *parser)
{
    if (!parser_is_name(parser, "not")) return parse_comparison(parser);
    struct jinja_node *node = parser_node(parser, NODE_NOT);
    parser_advance(parser);
    if (!node || !parser_enter(parser)) return NULL;
    node->a = parse_not(parser);
    parser_leave(parser);
    return node;
}

static struct jinja_node *parse_logic(struct parser *parser, const char *word,
                                      enum jinja_node_kind kind,
                                      struct jinja_node *(*operand)(struct parser *))
{
    struct jinja_node *left = operand(parser);
    while (parser_is_name(parser, word)) {
        struct jinja_node *node = parser_node(parser, kind);
        parser_advance(parser);
        if (!node) return NULL;
        node->a = left;
        node->b = operand(parser);
        left = node;
    }
    return left;
}

static struct jinja_node *parse_and(struct parser *parser)
{
    return parse_logic(parser, "and", NODE_AND, parse_not);
}

struct jinja_node *parse_unconditional(struct parser *parser)
{
    if (!parser_enter(parser)) return NULL;
    struct jinja_node *node = parse_logic(parser, "or", NODE_OR, parse_and);
    parser_leave(parser);
    return node;
}

/* ------------------------------------------------------------------ arguments */

static struct jinja_node *parse_argument(struct parser *parser, bool keywords_seen)
{
    struct jinja_node *node = parser_node(parser, NODE_ARGUMENT);
    if (!node) return NULL;
    if (parser_skip_operator(parser, "**")) {
        node->kind = NODE_SPREAD_KEYWORDS;
    } else if (parser_skip_operator(parser, "*")) {
        node->kind = NODE_SPREAD;
    } else if (parser->current.kind == TOKEN_NAME && parser_look(parser)->kind == TOKEN_OPERATOR &&
               parser->ahead.length == 1 && parser->ahead.text[0] == '=') {
        node->kind = NODE_KEYWORD;
        node->text = parser_take_name(parser);
        parser_advance(parser);
    } else if (keywords_seen) {
        parser_fail(parser, "a plain argument follows a keyword argument");
    }
    node->a = parse_expression(parser);
    return node;
}

/* "(…)": arguments of a call, filter or test. */
static void parse_arguments(struct parser *parser, struct jinja_node *call)
{
    struct node_list arguments = { 0 };
    bool keywords_seen = false;
    parser_expect_operator(parser, "(");
    while (parser->status == MF_OK && !parser_is_operator(parser, ")")) {
        if (arguments.first && !parser_expect_operator(parser, ",")) break;
        if (parser_is_operator(parser, ")")) break;
        struct jinja_node *argument = parse_argument(parser, keywords_seen);
        if (!argument) break;
        keywords_seen = keywords_seen || argument->kind != NODE_ARGUMENT;
        parser_push(&arguments, argument);
    }
    parser_expect_operator(parser, ")");
    call->items = arguments.first;
    call->item_count = arguments.count;
}

/* ------------------------------------------------------------------ primaries */

static struct jinja_node *parse_string_literal(struct parser *parser)
{
    struct jinja_node *node = parser_node(parser, NODE_CONSTANT);
    const char *text = parser->current.text;
    size_t length = parser->current.length;
    parser_advance(parser);
    while (parser->current.kind == TOKEN_STRING) { /* "a" "b" is one string */
        size_t more = parser->current.length;
        char *joined = arena_take(parser->arena, length + more + 1, 1);
        if (!joined) {
            parser_fail(parser, "out of memory");
            return NULL;
        }
        memcpy(joined, text, length);
        memcpy(joined + length, parser->current.text, more);
        text = joined;
        length += more;
        parser_advance(parser);
    }
    if (!node) return NULL;
    node->constant.kind = JINJA_STRING;
    node->constant.string = parser_string(parser, text, length);
    return node;
}

static bool is_word(const struct jinja_token *token, const char *a, const char *b)
{
    return (token->length == strlen(a) && memcmp(token->text, a, token->length) == 0) ||
           (token->length == strlen(b) && memcmp(token->text, b, token->length) == 0);
}

static struct jinja_node *parse_name(struct parser *parser)
{
    struct jinja_node *node = parser_node(parser, NODE_CONSTANT);
    if (!node) return NULL;
    const struct jinja_token *token = &parser->current;
    if (is_word(token, "true", "True")) {
        node->constant = jinja_bool(true);
    } else if (is_word(token, "false", "False")) {
        node->constant = jinja_bool(false);
    } else if (is_word(token, "none", "None")) {
        node->constant = jinja_none();
    } else {
        node->kind = NODE_NAME;
        parser->mentions_caller |= is_word(token, "caller", "caller");
        parser->mentions_keywords |= is_word(token, "kwargs", "kwargs");
        parser->mentions_rest |= is_word(token, "varargs", "varargs");
        node->text = parser_take_name(parser);
        return node;
    }
    parser_advance(parser);
    return node;
}

/* The items of a list or dict literal up to `close`; a comma may follow the last. */
static struct jinja_node *parse_items(struct parser *parser, enum jinja_node_kind kind,
                                      const char *close)
{
    struct jinja_node *node = parser_node(parser, kind);
    struct node_list items = { 0 };
    parser_advance(parser);
    while (parser->status == MF_OK && !parser_is_operator(parser, close)) {
        if (items.first && !parser_expect_operator(parser, ",")) break;
        if (parser_is_operator(parser, close)) break;
        parser_push(&items, parse_expression(parser));
        if (kind != NODE_DICT) continue;
        parser_expect_operator(parser, ":");
        parser_push(&items, parse_expression(parser));
    }
    parser_expect_operator(parser, close);
    if (!node) return NULL;
    node->items = items.first;
    node->item_count = items.count;
    return node;
}

static struct jinja_node *parse_parenthesis(struct parser *parser)
{
    parser_advance(parser);
    struct jinja_node *node;
    if (parser_is_operator(parser, ")"))
        node = parser_node(parser, NODE_TUPLE);
    else
        node = parse_tuple(parser, true);
    parser_expect_operator(parser, ")");
    return node;
}

static struct jinja_node *parse_primary(struct parser *parser)
{
    struct jinja_node *node;
    char what[64];
    switch (parser->current.kind) {
    case TOKEN_NAME:
        return parse_name(parser);
    case TOKEN_STRING:
        return parse_string_literal(parser);
    case TOKEN_INT:
    case TOKEN_FLOAT:
        node = parser_node(parser, NODE_CONSTANT);
        if (node)
            node->constant = parser->current.kind == TOKEN_INT ? jinja_int(parser->current.integer)
                                                               : jinja_float(parser->current.real);
        parser_advance(parser);
        return node;
    default:
        break;
    }
    if (parser_is_operator(parser, "(")) return parse_parenthesis(parser);
    if (parser_is_operator(parser, "[")) return parse_items(parser, NODE_LIST, "]");
    if (parser_is_operator(parser, "{")) return parse_items(parser, NODE_DICT, "}");
    parser_fail(parser, "an expression was expected, found %s", parser_describe(parser, what));
    return NULL;
}

/* ------------------------------------------------------------------ what follows a primary */

static struct jinja_node *parse_attribute(struct parser *parser, struct jinja_node *object)
{
    struct jinja_node *node = parser_node(parser, NODE_ATTRIBUTE);
    parser_advance(parser);
    if (!node) return NULL;
    node->a = object;
    if (parser->current.kind == TOKEN_INT) { /* a.0 is a[0] */
        node->kind = NODE_ITEM;
        node->b = parse_primary(parser);
    } else {
        node->text = parser_take_name(parser);
    }
    return node;
}

/* A part of a slice; NULL when it is left out. */
static struct jinja_node *parse_slice_part(struct parser *parser)
{
    if (parser_is_operator(parser, ":") || parser_is_operator(parser, "]")) return NULL;
    return parse_expression(parser);
}

static struct jinja_node *parse_subscript(struct parser *parser, struct jinja_node *object)
{
    struct jinja_node *node = parser_node(parser, NODE_ITEM);
    parser_advance(parser);
    struct jinja_node *slice = parser_node(parser, NODE_SLICE);
    if (!node || !slice) return NULL;
    node->a = object;
    if (!parser_is_operator(parser, ":")) node->b = parse_tuple(parser, true);
    if (parser_skip_operator(parser, ":")) {
        slice->a = node->b;
        slice->b = parse_slice_part(parser);
        if (parser_skip_operator(parser, ":")) slice->c = parse_slice_part(parser);
        node->b = slice;
    }
    parser_expect_operator(parser, "]");
    return node;
}

static struct jinja_node *parse_call(struct parser *parser, struct jinja_node *callee)
{
    struct jinja_node *node = parser_node(parser, NODE_CALL);
    if (!node) return NULL;
    node->a = callee;
    parse_arguments(parser, node);
    return node;
}

static struct jinja_node *parse_postfix(struct parser *parser, struct jinja_node *node)
{
    while (parser->status == MF_OK) {
        if (parser_is_operator(parser, "."))
            node = parse_attribute(parser, node);
        else if (parser_is_operator(parser, "["))
            node = parse_subscript(parser, node);
        else if (parser_is_operator(parser, "("))
            node = parse_call(parser, node);
        else
            break;
    }
    return node;
}

/* A test's single argument may stand without parentheses: `is divisibleby 3`. */
static bool starts_test_argument(const struct parser *parser)
{
    switch (parser->current.kind) {
    case TOKEN_NAME:
        return !parser_is_name(parser, "else") && !parser_is_name(parser, "or") &&
               !parser_is_name(parser, "and") && !parser_is_name(parser, "if");
    case TOKEN_STRING:
    case TOKEN_INT:
    case TOKEN_FLOAT:
        return true;
    default:
        return parser_is_operator(parser, "[") || parser_is_operator(parser, "{");
    }
}

static struct jinja_node *parse_test(struct parser *parser, struct jinja_node *object)
{
    parser_advance(parser);
    bool negated = parser_skip_name(parser, "not");
    struct jinja_node *node = parser_node(parser, NODE_TEST);
    if (!node) return NULL;
    node->a = object;
    node->text = parser_take_name(parser);
    if (node->text) node->builtin = jinja_find_test(node->text);
    if (parser_is_operator(parser, "(")) {
        parse_arguments(parser, node);
    } else if (parser_is_name(parser, "is")) {
        parser_fail(parser, "tests cannot be chained with is");
    } else if (starts_test_argument(parser)) {
        struct jinja_node *argument = parser_node(parser, NODE_ARGUMENT);
        if (!argument) return NULL;
        argument->a = parse_postfix(parser, parse_primary(parser));
        node->items = argument;
        node->item_count = 1;
    }
    if (!negated) return node;
    struct jinja_node *not = parser_node(parser, NODE_NOT);
    if (not ) not ->a = node;
    return not ;
}

struct jinja_node *parse_filters(struct parser *parser, struct jinja_node *node, bool started)
{
    while (parser->status == MF_OK && (started || parser_is_operator(parser, "|"))) {
        if (!started) parser_advance(parser);
        started = false;
        struct jinja_node *filter = parser_node(parser, NODE_FILTER);
        if (!filter) return NULL;
        filter->a = node;
        filter->text = parser_take_name(parser);
        if (filter->text) filter->builtin = jinja_find_filter(filter->text);
        if (parser_is_operator(parser, "(")) parse_arguments(parser, filter);
        node = filter;
    }
    return node;
}

/* A unary operator or primary with what follows it.  Filters bind to the whole of `-x`. */
static struct jinja_node *parse_signed(struct parser *parser, bool with_filters)
{
    struct jinja_node *node;
    bool minus = parser_is_operator(parser, "-");
    if (!parser_enter(parser)) return NULL;
    if (minus || parser_is_operator(parser, "+")) {
        node = parser_node(parser, NODE_UNARY);
        parser_advance(parser);
        if (node) {
            node->operator= minus ? OPERATOR_NEGATE : OPERATOR_PLUS;
            node->a = parse_signed(parser, false);
        }
    } else {
        node = parse_primary(parser);
    }
    parser_leave(parser);
    node = parse_postfix(parser, node);
    while (with_filters && parser->status == MF_OK) {
        if (parser_is_operator(parser, "|"))
            node = parse_filters(parser, node, false);
        else if (parser_is_name(parser, "is"))
            node = parse_test(parser, node);
        else if (parser_is_operator(parser, "("))
            node = parse_call(parser, node);
        else
            break;
    }
    return node;
}

static struct jinja_node *parse_unary(struct parser *parser)
{
    return parse_signed(parser, true);
}

/* ------------------------------------------------------------------ tuples and targets */

static bool ends_tuple(const struct parser *parser)
{
    return parser->current.kind != TOKEN_NAME && parser->current.kind != TOKEN_STRING &&
           parser->current.kind != TOKEN_INT && parser->current.kind != TOKEN_FLOAT &&
           !parser_is_operator(parser, "(") && !parser_is_operator(parser, "[") &&
           !parser_is_operator(parser, "{") && !parser_is_operator(parser, "-") &&
           !parser_is_operator(parser, "+");
}

/* `first`, then more after commas, each read by `item`. */
static struct jinja_node *parse_more(struct parser *parser, struct jinja_node *first,
                                     struct jinja_node *(*item)(struct parser *))
{
    if (!parser_is_operator(parser, ",")) return first;
    struct jinja_node *node = parser_node(parser, NODE_TUPLE);
    struct node_list items = { 0 };
    parser_push(&items, first);
    while (parser_skip_operator(parser, ",")) {
        if (ends_tuple(parser) || parser_is_name(parser, "in")) break;
        parser_push(&items, item(parser));
    }
    if (!node) return NULL;
    node->items = items.first;
    node->item_count = items.count;
    return node;
}

struct jinja_node *parse_tuple(struct parser *parser, bool conditional)
{
    struct jinja_node *(*item)(struct parser *) =
        conditional ? parse_expression : parse_unconditional;
    return parse_more(parser, item(parser), item);
}

static struct jinja_node *parse_one_target(struct parser *parser)
{
    if (parser_skip_operator(parser, "(")) {
        if (!parser_enter(parser)) return NULL;
        struct jinja_node *inner = parse_target(parser);
        parser_leave(parser);
        parser_expect_operator(parser, ")");
        return inner;
    }
    struct jinja_node *name = parser_node(parser, NODE_NAME);
    if (!name) return NULL;
    name->text = parser_take_name(parser);
    if (!parser_is_operator(parser, ".")) return name;
    struct jinja_node *attribute = parser_node(parser, NODE_NAMESPACE_TARGET);
    parser_advance(parser);
    if (!attribute) return NULL;
    attribute->a = name;
    attribute->text = parser_take_name(parser);
    return attribute;
}

struct jinja_node *parse_target(struct parser *parser)
{
    return parse_more(parser, parse_one_target(parser), parse_one_target);
}
