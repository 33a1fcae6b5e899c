/* parser.h: what the two halves of the parser share: tokens, nodes, names, errors.
 *
 * Errors are sticky: after the first one the parser sees nothing but the end of the source, so
 * that every loop ends, and the functions return nodes (or NULL) that are not used. */
#ifndef JINJA_PARSER_H
#define JINJA_PARSER_H

#include "jinja/ast.h"
#include "jinja/lexer.h"

enum { PARSER_DEPTH_LIMIT = 200, PARSER_NAME_BUCKETS = 256 };

struct parser_name {
    struct jinja_string text;
    struct parser_name *next;
};

struct parser {
    struct jinja_lexer lexer;
    struct arena *arena;
    struct jinja_token current, ahead;
    bool has_ahead;
    mf_status status;
    mf_error *why;
    unsigned depth; /* expressions in expressions, blocks in blocks */
    unsigned loops; /* for blocks around this point, for break and continue */
    bool mentions_caller, mentions_keywords, mentions_rest;
    struct parser_name *names[PARSER_NAME_BUCKETS];
};

/* A list of nodes in the making. */
struct node_list {
    struct jinja_node *first;
    struct jinja_node **last; /* NULL while empty */
    size_t count;
};

void parser_advance(struct parser *parser);
/* The token after the current one. */
const struct jinja_token *parser_look(struct parser *parser);
bool parser_is_name(const struct parser *parser, const char *name);
bool parser_is_operator(const struct parser *parser, const char *text);
/* Advances when the current token is that one. */
bool parser_skip_name(struct parser *parser, const char *name);
bool parser_skip_operator(struct parser *parser, const char *text);
/* The same; an error when it is another. */
bool parser_expect_operator(struct parser *parser, const char *text);
bool parser_expect(struct parser *parser, enum jinja_token_kind kind, const char *what);
/* A name as an interned string, and past it; NULL with an error when there is none. */
const struct jinja_string *parser_take_name(struct parser *parser);

void parser_fail(struct parser *parser, const char *format, ...) MF_PRINTF(2, 3);
/* "'endif'", "the end of the block", … for messages. */
const char *parser_describe(const struct parser *parser, char out[64]);

bool parser_enter(struct parser *parser);
void parser_leave(struct parser *parser);

/* A node at the current token; NULL when there is no memory. */
struct jinja_node *parser_node(struct parser *parser, enum jinja_node_kind kind);
/* A constant string in the arena. */
const struct jinja_string *parser_string(struct parser *parser, const char *text, size_t length);
const struct jinja_string *parser_intern(struct parser *parser, const char *text, size_t length);
void parser_push(struct node_list *list, struct jinja_node *node);

/* ------------------------------------------------------------------ parse_expression.c */

struct jinja_node *parse_expression(struct parser *parser);
/* An expression without `if` at its top: what follows `in` and `if`. */
struct jinja_node *parse_unconditional(struct parser *parser);
/* Expressions, with commas a tuple.  `conditional`: may they hold `x if y`? */
struct jinja_node *parse_tuple(struct parser *parser, bool conditional);
/* Filters, each `a` of the next; the first one's `a` is `node`, which may be NULL. */
struct jinja_node *parse_filters(struct parser *parser, struct jinja_node *node, bool started);
/* What can be assigned to: a name, namespace.attribute, or a tuple of such. */
struct jinja_node *parse_target(struct parser *parser);

#endif
