#include "jinja/parser.h"

#include "base/status.h"
#include "base/unicode.h"

#include <stdarg.h>
#include <stdio.h>

/* ------------------------------------------------------------------ tokens */

static void stop(struct parser *parser, mf_status status)
{
    if (parser->status == MF_OK) parser->status = status;
    parser->current.kind = TOKEN_END;
    parser->has_ahead = false;
}

void parser_fail(struct parser *parser, const char *format, ...)
{
    if (parser->status != MF_OK) return;
    char text[256];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    stop(parser, fail(parser->why, MF_ERR_TEMPLATE, "%s: line %u, column %u: %s",
                      parser->lexer.where, parser->current.line, parser->current.column, text));
}

static void read_token(struct parser *parser, struct jinja_token *out)
{
    mf_status status = jinja_lexer_next(out, &parser->lexer, parser->why);
    if (status != MF_OK) {
        stop(parser, status);
        out->kind = TOKEN_END;
    }
}

void parser_advance(struct parser *parser)
{
    if (parser->status != MF_OK) return;
    if (parser->has_ahead) {
        parser->current = parser->ahead;
        parser->has_ahead = false;
    } else {
        read_token(parser, &parser->current);
    }
}

const struct jinja_token *parser_look(struct parser *parser)
{
    if (parser->status == MF_OK && !parser->has_ahead) {
        read_token(parser, &parser->ahead);
        parser->has_ahead = parser->status == MF_OK;
    }
    return &parser->ahead;
}

static bool is_token(const struct parser *parser, enum jinja_token_kind kind, const char *text)
{
    const struct jinja_token *token = &parser->current;
    return token->kind == kind && token->length == strlen(text) &&
           memcmp(token->text, text, token->length) == 0;
}

bool parser_is_name(const struct parser *parser, const char *name)
{
    return is_token(parser, TOKEN_NAME, name);
}

bool parser_is_operator(const struct parser *parser, const char *text)
{
    return is_token(parser, TOKEN_OPERATOR, text);
}

bool parser_skip_name(struct parser *parser, const char *name)
{
    if (!parser_is_name(parser, name)) return false;
    parser_advance(parser);
    return true;
}

bool parser_skip_operator(struct parser *parser, const char *text)
{
    if (!parser_is_operator(parser, text)) return false;
    parser_advance(parser);
    return true;
}

const char *parser_describe(const struct parser *parser, char out[64])
{
    const struct jinja_token *token = &parser->current;
    switch (token->kind) {
    case TOKEN_END:
        return "the end of the template";
    case TOKEN_BLOCK_END:
    case TOKEN_OUTPUT_END:
        return "the end of the tag";
    case TOKEN_STRING:
        return "a string";
    default:
        snprintf(out, 64, "'%.*s'", (int)unicode_check(token->text, min_size(token->length, 40)),
                 token->text);
        return out;
    }
}

bool parser_expect_operator(struct parser *parser, const char *text)
{
    char found[64];
    if (parser_skip_operator(parser, text)) return true;
    parser_fail(parser, "'%s' was expected, found %s", text, parser_describe(parser, found));
    return false;
}

bool parser_expect(struct parser *parser, enum jinja_token_kind kind, const char *what)
{
    char found[64];
    if (parser->status == MF_OK && parser->current.kind == kind) {
        parser_advance(parser);
        return true;
    }
    parser_fail(parser, "%s was expected, found %s", what, parser_describe(parser, found));
    return false;
}

const struct jinja_string *parser_take_name(struct parser *parser)
{
    char found[64];
    if (parser->current.kind != TOKEN_NAME) {
        parser_fail(parser, "a name was expected, found %s", parser_describe(parser, found));
        return NULL;
    }
    const struct jinja_string *name =
        parser_intern(parser, parser->current.text, parser->current.length);
    parser_advance(parser);
    return name;
}

/* ------------------------------------------------------------------ nodes and names */

bool parser_enter(struct parser *parser)
{
    if (parser->depth >= PARSER_DEPTH_LIMIT) {
        parser_fail(parser, "the template is nested too deeply");
        return false;
    }
    parser->depth++;
    return true;
}

void parser_leave(struct parser *parser)
{
    parser->depth--;
}

static void *take(struct parser *parser, size_t bytes)
{
    void *memory = parser->status == MF_OK ? arena_take(parser->arena, 1, bytes) : NULL;
    if (!memory && parser->status == MF_OK) stop(parser, fail_memory(parser->why, bytes));
    return memory;
}

struct jinja_node *parser_node(struct parser *parser, enum jinja_node_kind kind)
{
    struct jinja_node *node = take(parser, sizeof *node);
    if (!node) return NULL;
    node->kind = kind;
    node->line = parser->current.line;
    node->column = parser->current.column;
    return node;
}

const struct jinja_string *parser_string(struct parser *parser, const char *text, size_t length)
{
    struct jinja_string *string = take(parser, sizeof *string);
    if (string)
        *string = (struct jinja_string){ .data = text,
                                         .length = length,
                                         .characters = unicode_count(text, length) };
    return string;
}

const struct jinja_string *parser_intern(struct parser *parser, const char *text, size_t length)
{
    size_t hash = length;
    for (size_t i = 0; i < length; i++) hash = hash * 31 + (unsigned char)text[i];
    struct parser_name **bucket = &parser->names[hash % PARSER_NAME_BUCKETS];
    for (struct parser_name *name = *bucket; name; name = name->next)
        if (name->text.length == length && memcmp(name->text.data, text, length) == 0)
            return &name->text;
    struct parser_name *name = take(parser, sizeof *name);
    if (!name) return NULL;
    name->text = (struct jinja_string){ .data = text,
                                        .length = length,
                                        .characters = unicode_count(text, length) };
    name->next = *bucket;
    *bucket = name;
    return &name->text;
}

void parser_push(struct node_list *list, struct jinja_node *node)
{
    if (!node) return;
    if (list->last)
        *list->last = node;
    else
        list->first = node;
    list->last = &node->next;
    list->count++;
}
