/* lexer.h: template source to tokens, white-space control included.
 *
 * The rules are those of Jinja with trim_blocks and lstrip_blocks: a newline after a block or
 * comment is dropped; blanks between the start of a line and a block or comment are dropped;
 * `-` at a tag's end drops all white space on that side and `+` keeps all of it; one newline at
 * the end of the source is dropped; every line end counts as "\n".
 *
 * Threads: a lexer has one owner. */
#ifndef JINJA_LEXER_H
#define JINJA_LEXER_H

#include "base/arena.h"
#include "moeflux.h"

enum jinja_token_kind {
    TOKEN_END,
    TOKEN_DATA,
    TOKEN_OUTPUT_BEGIN, /* {{ */
    TOKEN_OUTPUT_END,
    TOKEN_BLOCK_BEGIN, /* {% */
    TOKEN_BLOCK_END,
    TOKEN_NAME,
    TOKEN_STRING, /* text is unescaped */
    TOKEN_INT,
    TOKEN_FLOAT,
    TOKEN_OPERATOR, /* text is one of ** // == != >= <= + - / * % ~ [ ] ( ) { } > < = . : | , ; */
};

struct jinja_token {
    enum jinja_token_kind kind;
    unsigned line, column; /* from 1; columns count characters */
    const char *text;      /* in the lexer's source or arena */
    size_t length;
    int64_t integer;
    double real;
};

enum { JINJA_BRACKET_LIMIT = 128 };

struct jinja_lexer {
    struct arena *arena;
    const char *where;
    const char *source;
    size_t length, position;
    enum { LEXER_TEXT, LEXER_OUTPUT, LEXER_BLOCK } mode;
    bool line_starting; /* the last match ended a line */
    char brackets[JINJA_BRACKET_LIMIT];
    size_t bracket_count;
    struct jinja_token pending; /* the tag that ended a piece of text; END: none */
    /* line and column of `cursor`, which only moves forward */
    size_t cursor;
    unsigned line, column;
};

/* `source` is copied into `arena`.  Text that is not UTF-8 is refused. */
mf_status jinja_lexer_init(struct jinja_lexer *lexer, struct arena *arena, const char *source,
                           size_t length, const char *where, mf_error *why);
mf_status jinja_lexer_next(struct jinja_token *out, struct jinja_lexer *lexer, mf_error *why);

#endif
