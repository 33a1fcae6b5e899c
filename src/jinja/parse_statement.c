#include "jinja/parser.h"

/* A block's body ends at one of these words; the array ends with NULL. */
typedef const char *const end_words[];

static struct jinja_node *parse_statements(struct parser *parser, end_words ends);

static bool is_end(const struct parser *parser, end_words ends)
{
    for (size_t i = 0; ends && ends[i]; i++)
        if (parser_is_name(parser, ends[i])) return true;
    return false;
}

/* The body after a block's opening tag, up to one of `ends`, which becomes the current token. */
static struct jinja_node *parse_body(struct parser *parser, end_words ends)
{
    parser_skip_operator(parser, ":");
    parser_expect(parser, TOKEN_BLOCK_END, "the end of the tag");
    if (!parser_enter(parser)) return NULL;
    struct jinja_node *body = parse_statements(parser, ends);
    parser_leave(parser);
    if (parser->status == MF_OK && parser->current.kind == TOKEN_END)
        parser_fail(parser, "the template ends before '%s'", ends[0]);
    return body;
}

/* A body that has one end, which is skipped. */
static struct jinja_node *parse_whole_body(struct parser *parser, const char *end)
{
    const char *const ends[] = { end, NULL };
    struct jinja_node *body = parse_body(parser, ends);
    parser_advance(parser);
    return body;
}

static void parse_if(struct parser *parser, struct jinja_node *node)
{
    static const char *const ends[] = { "elif", "else", "endif", NULL };
    for (;;) {
        node->a = parse_tuple(parser, false);
        node->body = parse_body(parser, ends);
        struct jinja_node *alternative = parser_node(parser, NODE_IF);
        if (!alternative) return;
        if (parser_skip_name(parser, "elif")) {
            node->otherwise = alternative;
            node = alternative;
            continue;
        }
        if (parser_skip_name(parser, "else")) {
            node->otherwise = alternative;
            alternative->body = parse_whole_body(parser, "endif");
        } else {
            parser_advance(parser);
        }
        return;
    }
}

static void parse_for(struct parser *parser, struct jinja_node *node)
{
    static const char *const ends[] = { "endfor", "else", NULL };
    char found[64];
    node->target = parse_target(parser);
    if (!parser_skip_name(parser, "in"))
        parser_fail(parser, "'in' was expected, found %s", parser_describe(parser, found));
    node->a = parse_tuple(parser, false);
    if (parser_skip_name(parser, "if")) node->b = parse_expression(parser);
    node->recursive = parser_skip_name(parser, "recursive");
    parser->loops++;
    node->body = parse_body(parser, ends);
    parser->loops--;
    if (parser_skip_name(parser, "else"))
        node->otherwise = parse_whole_body(parser, "endfor");
    else
        parser_advance(parser);
}

static void parse_set(struct parser *parser, struct jinja_node *node)
{
    node->target = parse_target(parser);
    if (parser_skip_operator(parser, "=")) {
        node->a = parse_tuple(parser, true);
        return;
    }
    node->kind = NODE_SET_BLOCK;
    node->a = parse_filters(parser, NULL, false);
    node->body = parse_whole_body(parser, "endset");
}

/* "(a, b=1)" of a macro or a call block. */
static void parse_parameters(struct parser *parser, struct jinja_node *macro)
{
    struct node_list parameters = { 0 };
    bool defaults_seen = false;
    parser_expect_operator(parser, "(");
    while (parser->status == MF_OK && !parser_is_operator(parser, ")")) {
        if (parameters.first && !parser_expect_operator(parser, ",")) break;
        struct jinja_node *parameter = parser_node(parser, NODE_NAME);
        if (!parameter) break;
        parameter->text = parser_take_name(parser);
        if (parser_skip_operator(parser, "=")) {
            parameter->a = parse_expression(parser);
            defaults_seen = true;
        } else if (defaults_seen) {
            parser_fail(parser, "a parameter without default follows one with a default");
        }
        parser_push(&parameters, parameter);
    }
    parser_expect_operator(parser, ")");
    macro->items = parameters.first;
    macro->item_count = parameters.count;
}

/* A macro's body; what it mentions decides what the macro takes. */
static void parse_macro_body(struct parser *parser, struct jinja_node *macro, const char *end)
{
    bool caller = parser->mentions_caller, keywords = parser->mentions_keywords;
    bool rest = parser->mentions_rest;
    unsigned loops = parser->loops;
    parser->mentions_caller = parser->mentions_keywords = parser->mentions_rest = false;
    parser->loops = 0;
    macro->body = parse_whole_body(parser, end);
    macro->takes_caller = parser->mentions_caller;
    macro->takes_keywords = parser->mentions_keywords;
    macro->takes_rest = parser->mentions_rest;
    parser->loops = loops;
    parser->mentions_caller |= caller;
    parser->mentions_keywords |= keywords;
    parser->mentions_rest |= rest;
}

static void parse_macro(struct parser *parser, struct jinja_node *node)
{
    node->text = parser_take_name(parser);
    parse_parameters(parser, node);
    parse_macro_body(parser, node, "endmacro");
}

static void parse_call_block(struct parser *parser, struct jinja_node *node)
{
    struct jinja_node *caller = parser_node(parser, NODE_MACRO);
    if (!caller) return;
    caller->text = parser_intern(parser, "caller", 6);
    if (parser_is_operator(parser, "(")) parse_parameters(parser, caller);
    node->a = parse_expression(parser);
    if (node->a && node->a->kind != NODE_CALL) parser_fail(parser, "a call was expected");
    parse_macro_body(parser, caller, "endcall");
    node->target = caller;
}

static void parse_filter_block(struct parser *parser, struct jinja_node *node)
{
    node->a = parse_filters(parser, NULL, true);
    node->body = parse_whole_body(parser, "endfilter");
}

static void parse_with(struct parser *parser, struct jinja_node *node)
{
    struct node_list items = { 0 };
    while (parser->status == MF_OK && parser->current.kind == TOKEN_NAME) {
        struct jinja_node *set = parser_node(parser, NODE_SET);
        if (!set) return;
        /* no tuples here: the comma separates assignments */
        set->target = parser_node(parser, NODE_NAME);
        if (!set->target) return;
        set->target->text = parser_take_name(parser);
        parser_expect_operator(parser, "=");
        set->a = parse_expression(parser);
        parser_push(&items, set);
        if (!parser_skip_operator(parser, ",")) break;
    }
    node->items = items.first;
    node->body = parse_whole_body(parser, "endwith");
}

static void parse_generation(struct parser *parser, struct jinja_node *node)
{
    node->body = parse_whole_body(parser, "endgeneration");
}

static void parse_jump(struct parser *parser, struct jinja_node *node)
{
    if (!parser->loops)
        parser_fail(parser, "%s outside of a loop",
                    node->kind == NODE_BREAK ? "break" : "continue");
}

/* Hugging Face's `generation` marks what the model wrote; it renders as its body. */
static const struct {
    const char *word;
    enum jinja_node_kind kind;
    void (*parse)(struct parser *parser, struct jinja_node *node);
} statements[] = {
    { "if", NODE_IF, parse_if },
    { "for", NODE_FOR, parse_for },
    { "set", NODE_SET, parse_set },
    { "macro", NODE_MACRO, parse_macro },
    { "call", NODE_CALL_BLOCK, parse_call_block },
    { "filter", NODE_FILTER_BLOCK, parse_filter_block },
    { "with", NODE_WITH, parse_with },
    { "generation", NODE_SCOPE, parse_generation },
    { "break", NODE_BREAK, parse_jump },
    { "continue", NODE_CONTINUE, parse_jump },
};

static struct jinja_node *parse_statement(struct parser *parser)
{
    char found[64];
    for (size_t i = 0; i < COUNT_OF(statements); i++) {
        if (!parser_is_name(parser, statements[i].word)) continue;
        struct jinja_node *node = parser_node(parser, statements[i].kind);
        parser_advance(parser);
        if (node) statements[i].parse(parser, node);
        parser_expect(parser, TOKEN_BLOCK_END, "the end of the tag");
        return node;
    }
    parser_fail(parser, "%s is not a statement that is known here", parser_describe(parser, found));
    return NULL;
}

static struct jinja_node *parse_data(struct parser *parser)
{
    struct jinja_node *node = parser_node(parser, NODE_DATA);
    if (node) {
        node->constant.kind = JINJA_STRING;
        node->constant.string = parser_string(parser, parser->current.text, parser->current.length);
    }
    parser_advance(parser);
    return node;
}

static struct jinja_node *parse_output(struct parser *parser)
{
    struct jinja_node *node = parser_node(parser, NODE_OUTPUT);
    parser_advance(parser);
    if (node) node->a = parse_tuple(parser, true);
    parser_expect(parser, TOKEN_OUTPUT_END, "'}}'");
    return node;
}

static struct jinja_node *parse_statements(struct parser *parser, end_words ends)
{
    struct node_list body = { 0 };
    while (parser->status == MF_OK && parser->current.kind != TOKEN_END) {
        if (parser->current.kind == TOKEN_DATA) {
            parser_push(&body, parse_data(parser));
        } else if (parser->current.kind == TOKEN_OUTPUT_BEGIN) {
            parser_push(&body, parse_output(parser));
        } else {
            parser_advance(parser); /* {% */
            if (is_end(parser, ends)) break;
            parser_push(&body, parse_statement(parser));
        }
    }
    return body.first;
}

mf_status jinja_parse(struct jinja_tree *out, struct arena *arena, const char *source,
                      size_t length, const char *where, mf_error *why)
{
    struct parser parser = { .arena = arena, .why = why };
    *out = (struct jinja_tree){ 0 };
    mf_status status = jinja_lexer_init(&parser.lexer, arena, source, length, where, why);
    if (status != MF_OK) return status;
    parser_advance(&parser);
    out->body = parse_statements(&parser, NULL);
    out->loop_name = parser_intern(&parser, "loop", 4);
    out->caller_name = parser_intern(&parser, "caller", 6);
    out->keywords_name = parser_intern(&parser, "kwargs", 6);
    out->rest_name = parser_intern(&parser, "varargs", 7);
    return parser.status;
}
