/* ast.h: a parsed template: statements and expressions as a tree.
 *
 * Lists are chained through `next`.  Everything lies in the arena that the parser was given and
 * is never written again, so that threads may render from one tree at once. */
#ifndef JINJA_AST_H
#define JINJA_AST_H

#include "base/arena.h"
#include "jinja/value.h"

enum jinja_node_kind {
    /* expressions */
    NODE_CONSTANT,
    NODE_NAME,
    NODE_LIST,
    NODE_TUPLE,
    NODE_DICT,      /* items: key, value, key, value, … */
    NODE_ATTRIBUTE, /* a.text */
    NODE_ITEM,      /* a[b]; b may be a SLICE */
    NODE_SLICE,     /* a:b:c, each may be NULL */
    NODE_CALL,      /* a(items) */
    NODE_FILTER,    /* a|text(items); a is NULL for the body of a block */
    NODE_TEST,      /* a is text(items) */
    NODE_UNARY,     /* operator a */
    NODE_BINARY,    /* a operator b */
    NODE_AND,
    NODE_OR,
    NODE_NOT,
    NODE_COMPARE,   /* a, then items: OPERAND, OPERAND, … */
    NODE_OPERAND,   /* operator b */
    NODE_CONCAT,    /* items joined as text */
    NODE_CONDITION, /* a if b else c; c may be NULL */
    /* arguments of a call */
    NODE_ARGUMENT,        /* a */
    NODE_KEYWORD,         /* text=a */
    NODE_SPREAD,          /* *a */
    NODE_SPREAD_KEYWORDS, /* **a */
    /* targets of an assignment, besides NAME and TUPLE */
    NODE_NAMESPACE_TARGET, /* a.text */
    /* statements */
    NODE_DATA,         /* text as it stands */
    NODE_OUTPUT,       /* {{ a }} */
    NODE_IF,           /* if a: body; otherwise is the next IF, with a NULL for else */
    NODE_FOR,          /* for target in a if b: body; otherwise: body of else */
    NODE_SET,          /* target = a */
    NODE_SET_BLOCK,    /* target = body, through the filters a */
    NODE_MACRO,        /* text(parameters): body */
    NODE_CALL_BLOCK,   /* a is the call; macro is what `caller` runs */
    NODE_FILTER_BLOCK, /* a: filters around body */
    NODE_WITH,         /* items: SET, SET, … evaluated outside, then body in a scope */
    NODE_SCOPE,        /* body in a scope of its own */
    NODE_BREAK,
    NODE_CONTINUE,
};

enum jinja_operator {
    OPERATOR_ADD,
    OPERATOR_SUBTRACT,
    OPERATOR_MULTIPLY,
    OPERATOR_DIVIDE,
    OPERATOR_FLOOR_DIVIDE,
    OPERATOR_MODULO,
    OPERATOR_POWER,
    OPERATOR_NEGATE,
    OPERATOR_PLUS,
    OPERATOR_EQUAL,
    OPERATOR_NOT_EQUAL,
    OPERATOR_LESS,
    OPERATOR_LESS_EQUAL,
    OPERATOR_GREATER,
    OPERATOR_GREATER_EQUAL,
    OPERATOR_IN,
    OPERATOR_NOT_IN,
};

struct jinja_builtin;

struct jinja_node {
    enum jinja_node_kind kind;
    enum jinja_operator operator;
    unsigned line, column;
    struct jinja_node *next;
    struct jinja_node *a, *b, *c;
    struct jinja_node *items;
    struct jinja_node *body;
    struct jinja_node *otherwise;
    struct jinja_node *target;
    size_t item_count;
    /* NAME, ATTRIBUTE, FILTER, …: interned, so that names are equal when pointers are. */
    const struct jinja_string *text;
    struct jinja_value constant;         /* CONSTANT, DATA */
    const struct jinja_builtin *builtin; /* FILTER, TEST; NULL: there is none of that name */
    bool recursive;                      /* FOR */
    /* MACRO: what the body mentions decides what the macro takes. */
    bool takes_caller, takes_keywords, takes_rest;
};

/* MACRO: `items` are the parameters: NAME nodes whose `a` is the default, or NULL. */

struct jinja_tree {
    struct jinja_node *body;
    const struct jinja_string *loop_name, *caller_name, *keywords_name, *rest_name;
};

/* Parses into `arena`.  `source` (valid UTF-8 or refused) is borrowed for the call.  Errors:
 * MF_ERR_TEMPLATE with `where`, line and column. */
mf_status jinja_parse(struct jinja_tree *out, struct arena *arena, const char *source,
                      size_t length, const char *where, mf_error *why);

#endif
