#include "jinja/lexer.h"

#include "base/status.h"
#include "base/unicode.h"

#include <errno.h>
#include <stdlib.h>

/* Every line end becomes "\n"; one at the very end is dropped. */
static size_t normalise_newlines(char *text, size_t length)
{
    size_t out = 0;
    for (size_t i = 0; i < length; i++) {
        if (text[i] == '\r') {
            if (i + 1 < length && text[i + 1] == '\n') i++;
            text[out++] = '\n';
        } else {
            text[out++] = text[i];
        }
    }
    if (out && text[out - 1] == '\n') out--;
    text[out] = '\0';
    return out;
}

mf_status jinja_lexer_init(struct jinja_lexer *lexer, struct arena *arena, const char *source,
                           size_t length, const char *where, mf_error *why)
{
    size_t bad = unicode_check(source, length);
    if (bad < length)
        return fail(why, MF_ERR_TEMPLATE, "%s: byte %zu of the template is not UTF-8", where, bad);
    char *copy = arena_text(arena, source, length);
    if (!copy) return fail_memory(why, length);
    *lexer = (struct jinja_lexer){
        .arena = arena, .where = where, .source = copy, .line_starting = true
    };
    lexer->length = normalise_newlines(copy, length);
    lexer->line = lexer->column = 1;
    return MF_OK;
}

/* Sets the token's line and column to those of `offset`. */
static void place(struct jinja_token *token, struct jinja_lexer *lexer, size_t offset)
{
    for (; lexer->cursor < offset; lexer->cursor++) {
        char byte = lexer->source[lexer->cursor];
        if (byte == '\n') {
            lexer->line++;
            lexer->column = 1;
        } else if (!unicode_is_continuation(byte)) {
            lexer->column++;
        }
    }
    token->line = lexer->line;
    token->column = lexer->column;
}

static mf_status fail_at(struct jinja_lexer *lexer, size_t offset, const char *message,
                         mf_error *why)
{
    struct jinja_token here;
    place(&here, lexer, offset);
    return fail(why, MF_ERR_TEMPLATE, "%s: line %u, column %u: %s", lexer->where, here.line,
                here.column, message);
}

static bool at(const struct jinja_lexer *lexer, size_t offset, const char *text)
{
    size_t length = strlen(text);
    return offset <= lexer->length && lexer->length - offset >= length &&
           memcmp(lexer->source + offset, text, length) == 0;
}

static size_t skip_white(const struct jinja_lexer *lexer, size_t offset)
{
    return offset + unicode_white_prefix(lexer->source + offset, lexer->length - offset);
}

/* ------------------------------------------------------------------ text between tags */

/* The end of the text [start, end) before a tag whose sign is `sign` ('-', '+' or neither). */
static size_t strip_before_tag(const struct jinja_lexer *lexer, size_t start, size_t end, char sign,
                               bool is_output)
{
    const char *text = lexer->source;
    if (sign == '-') return start + unicode_strip_end(text + start, end - start);
    if (sign == '+' || is_output) return end;
    size_t line = end;
    while (line > start && text[line - 1] != '\n') line--;
    if (line == start && !lexer->line_starting) return end;
    return unicode_white_prefix(text + line, end - line) == end - line ? line : end;
}

/* The offset after a tag's end at `offset` ("%}", "-%}" or "+%}" with the given bracket), or
 * `offset` itself when there is none.  `trim`: a newline after it belongs to the tag. */
static size_t after_tag_end(const struct jinja_lexer *lexer, size_t offset, const char *bracket,
                            bool trim)
{
    char sign = lexer->source[offset]; /* the source is terminated */
    if (sign == '-' && at(lexer, offset + 1, bracket)) return skip_white(lexer, offset + 3);
    if (sign == '+' && trim && at(lexer, offset + 1, bracket)) return offset + 3;
    if (!at(lexer, offset, bracket)) return offset;
    offset += 2;
    return trim && offset < lexer->length && lexer->source[offset] == '\n' ? offset + 1 : offset;
}

/* '-', '+' or 0 */
static char sign_at(const struct jinja_lexer *lexer, size_t offset)
{
    if (at(lexer, offset, "-")) return '-';
    return (char)(at(lexer, offset, "+") ? '+' : 0);
}

/* The offset after a tag "{% word %}" at `offset`, or `offset` itself. */
static size_t after_word_tag(const struct jinja_lexer *lexer, size_t offset, const char *word,
                             bool trim)
{
    size_t inside = offset + 2;
    if (sign_at(lexer, inside)) inside++;
    inside = skip_white(lexer, inside);
    if (!at(lexer, inside, word)) return offset;
    inside = skip_white(lexer, inside + strlen(word));
    size_t end = after_tag_end(lexer, inside, "%}", trim);
    return end == inside ? offset : end;
}

static void advance(struct jinja_lexer *lexer, size_t offset)
{
    lexer->position = offset;
    lexer->line_starting = offset > 0 && lexer->source[offset - 1] == '\n';
}

static mf_status skip_comment(struct jinja_lexer *lexer, size_t tag, mf_error *why)
{
    size_t inside = tag + 2 + (sign_at(lexer, tag + 2) ? 1 : 0);
    const char *end = memmem(lexer->source + inside, lexer->length - inside, "#}", 2);
    if (!end) return fail_at(lexer, tag, "the comment is not closed", why);
    size_t offset = (size_t)(end - lexer->source);
    if (offset > inside && sign_at(lexer, offset - 1)) offset--;
    advance(lexer, after_tag_end(lexer, offset, "#}", true));
    return MF_OK;
}

/* The text of a raw block; `tag` is where it opens and `inside` where its text begins. */
static mf_status take_raw(struct jinja_token *out, struct jinja_lexer *lexer, size_t tag,
                          size_t inside, mf_error *why)
{
    advance(lexer, inside);
    for (size_t offset = inside; offset + 2 <= lexer->length; offset++) {
        if (!at(lexer, offset, "{%")) continue;
        size_t end = after_word_tag(lexer, offset, "endraw", true);
        if (end == offset) continue;
        size_t text_end =
            strip_before_tag(lexer, inside, offset, sign_at(lexer, offset + 2), false);
        *out = (struct jinja_token){ .kind = TOKEN_DATA,
                                     .text = lexer->source + inside,
                                     .length = text_end - inside };
        place(out, lexer, inside);
        advance(lexer, end);
        return MF_OK;
    }
    return fail_at(lexer, tag, "the raw block is not closed", why);
}

static size_t find_tag(const struct jinja_lexer *lexer, size_t offset)
{
    for (; offset + 1 < lexer->length; offset++) {
        if (lexer->source[offset] != '{') continue;
        char second = lexer->source[offset + 1];
        if (second == '%' || second == '{' || second == '#') return offset;
    }
    return lexer->length;
}

/* A piece of text, or (with `kind` END) nothing because a tag follows at once. */
static mf_status next_text(struct jinja_token *out, struct jinja_lexer *lexer, mf_error *why)
{
    size_t start = lexer->position;
    size_t tag = find_tag(lexer, start);
    size_t end = tag;
    char second = '\0';
    if (tag < lexer->length) second = lexer->source[tag + 1];
    if (second) end = strip_before_tag(lexer, start, tag, sign_at(lexer, tag + 2), second == '{');
    *out = (struct jinja_token){ .kind = end > start ? TOKEN_DATA : TOKEN_END,
                                 .text = lexer->source + start,
                                 .length = end - start };
    place(out, lexer, start);
    if (!second) {
        lexer->position = lexer->length;
        return MF_OK;
    }
    if (second == '#') return skip_comment(lexer, tag, why);

    size_t raw = second == '%' ? after_word_tag(lexer, tag, "raw", false) : tag;
    if (raw != tag) {
        struct jinja_token *text = end > start ? &lexer->pending : out;
        return take_raw(text, lexer, tag, raw, why);
    }
    lexer->mode = second == '{' ? LEXER_OUTPUT : LEXER_BLOCK;
    lexer->pending = (struct jinja_token){
        .kind = second == '{' ? TOKEN_OUTPUT_BEGIN : TOKEN_BLOCK_BEGIN,
        .text = lexer->source + tag,
        .length = 2,
    };
    place(&lexer->pending, lexer, tag);
    advance(lexer, tag + 2 + (sign_at(lexer, tag + 2) ? 1 : 0));
    return MF_OK;
}

/* ------------------------------------------------------------------ inside of tags */

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* Digits with single underscores between them, from `offset`; the end. */
static size_t skip_digits(const struct jinja_lexer *lexer, size_t offset)
{
    while (offset < lexer->length && (is_digit(lexer->source[offset]) ||
                                      (lexer->source[offset] == '_' && offset + 1 < lexer->length &&
                                       is_digit(lexer->source[offset + 1]))))
        offset++;
    return offset;
}

/* The end of a float's fraction and exponent after its whole part; `offset` when it has none. */
static size_t skip_fraction(const struct jinja_lexer *lexer, size_t offset)
{
    const char *source = lexer->source;
    size_t end = offset;
    if (end + 1 < lexer->length && source[end] == '.' && is_digit(source[end + 1]))
        end = skip_digits(lexer, end + 1);
    if (end < lexer->length && (source[end] | 0x20) == 'e') {
        size_t digits = end + 1;
        if (digits < lexer->length && (source[digits] == '+' || source[digits] == '-')) digits++;
        if (digits < lexer->length && is_digit(source[digits])) end = skip_digits(lexer, digits);
    }
    return end;
}

/* A whole number with a prefix such as 0x; the end, or `offset` when it is not one. */
static size_t skip_based(const struct jinja_lexer *lexer, size_t offset, int *base)
{
    const char *source = lexer->source;
    if (offset + 2 >= lexer->length || source[offset] != '0') return offset;
    char letter = (char)(source[offset + 1] | 0x20);
    *base = letter == 'x' ? 16 : letter == 'o' ? 8 : letter == 'b' ? 2 : 0;
    if (!*base) return offset;
    size_t end = offset + 2;
    while (end < lexer->length) {
        char c = source[end];
        int digit = is_digit(c)                              ? c - '0'
                    : (c | 0x20) >= 'a' && (c | 0x20) <= 'f' ? (c | 0x20) - 'a' + 10
                    : c == '_' && end + 1 < lexer->length    ? 0
                                                             : 99;
        if (digit >= *base) break;
        end++;
    }
    return end > offset + 2 ? end : offset;
}

static mf_status take_number(struct jinja_token *out, struct jinja_lexer *lexer, mf_error *why)
{
    size_t start = lexer->position, skip = 2;
    int base = 10;
    size_t end = skip_based(lexer, start, &base);
    if (end == start) {
        base = 10;
        skip = 0;
        end = skip_digits(lexer, start);
        bool after_dot = start > 0 && lexer->source[start - 1] == '.';
        size_t fraction = after_dot ? end : skip_fraction(lexer, end);
        out->kind = fraction > end ? TOKEN_FLOAT : TOKEN_INT;
        end = fraction;
    } else {
        out->kind = TOKEN_INT;
    }
    char digits[400];
    size_t count = 0;
    for (size_t i = start + skip; i < end; i++) {
        if (lexer->source[i] == '_') continue;
        if (count + 1 >= sizeof digits) return fail_at(lexer, start, "the number is too long", why);
        digits[count++] = lexer->source[i];
    }
    digits[count] = '\0';
    errno = 0;
    if (out->kind == TOKEN_FLOAT) out->real = strtod(digits, NULL);
    if (out->kind == TOKEN_INT) {
        out->integer = strtoll(digits, NULL, base);
        if (errno == ERANGE)
            return fail_at(lexer, start, "the whole number has more than 64 bits", why);
    }
    out->length = end - start;
    return MF_OK;
}

static int hexadecimal(char c)
{
    if (is_digit(c)) return c - '0';
    c |= 0x20;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* `count` hexadecimal digits at *text, which moves past them; -1 when there are fewer. */
static int64_t take_hexadecimal(const char **text, const char *end, size_t count)
{
    if ((size_t)(end - *text) < count) return -1;
    int64_t value = 0;
    for (size_t i = 0; i < count; i++) {
        int digit = hexadecimal((*text)[i]);
        if (digit < 0) return -1;
        value = value * 16 + digit;
    }
    *text += count;
    return value;
}

/* \xhh, \uhhhh, \Uhhhhhhhh after the letter; two surrogates make one character. */
static int64_t take_code_point(const char **text, const char *end, char letter)
{
    int64_t value = take_hexadecimal(text, end, letter == 'x' ? 2 : letter == 'u' ? 4 : 8);
    if (value >= 0xD800 && value <= 0xDBFF && end - *text >= 6 && (*text)[0] == '\\' &&
        (*text)[1] == 'u') {
        const char *rest = *text + 2;
        int64_t low = take_hexadecimal(&rest, end, 4);
        if (low >= 0xDC00 && low <= 0xDFFF) {
            *text = rest;
            return 0x10000 + ((value - 0xD800) << 10) + (low - 0xDC00);
        }
    }
    return value > 0x10FFFF ? -1 : value;
}

/* One escape after the backslash.  What Python does not know stays as it is. */
static bool unescape_one(char **out, const char **text, const char *end)
{
    static const char letters[] = "abfnrtv\\'\"";
    static const char meanings[] = "\a\b\f\n\r\t\v\\'\"";
    char letter = *(*text)++;
    const char *known = letter ? strchr(letters, letter) : NULL;
    if (known) {
        *(*out)++ = meanings[known - letters];
    } else if (letter == '\n') {
        /* a line continued */
    } else if (letter == 'x' || letter == 'u' || letter == 'U') {
        int64_t code_point = take_code_point(text, end, letter);
        if (code_point < 0) return false;
        *out += unicode_encode(*out, (uint32_t)code_point);
    } else if (letter >= '0' && letter <= '7') {
        uint32_t value = (uint32_t)(letter - '0');
        for (int i = 0; i < 2 && *text < end && **text >= '0' && **text <= '7'; i++)
            value = value * 8 + (uint32_t)(*(*text)++ - '0');
        *out += unicode_encode(*out, value);
    } else {
        *(*out)++ = '\\';
        *(*out)++ = letter;
    }
    return true;
}

static mf_status take_string(struct jinja_token *out, struct jinja_lexer *lexer, mf_error *why)
{
    size_t start = lexer->position;
    char quote = lexer->source[start];
    size_t end = start + 1;
    while (end < lexer->length && lexer->source[end] != quote)
        end += lexer->source[end] == '\\' && end + 1 < lexer->length ? 2 : 1;
    if (end >= lexer->length) return fail_at(lexer, start, "the string is not closed", why);

    /* No escape is shorter than what it stands for. */
    char *text = arena_take(lexer->arena, end - start, 1);
    if (!text) return fail_memory(why, end - start);
    char *write = text;
    const char *read = lexer->source + start + 1, *stop = lexer->source + end;
    while (read < stop) {
        const char *here = read;
        if (*read != '\\') {
            *write++ = *read++;
            continue;
        }
        read++;
        if (!unescape_one(&write, &read, stop))
            return fail_at(lexer, (size_t)(here - lexer->source), "the escape is malformed", why);
    }
    *out = (struct jinja_token){ .kind = TOKEN_STRING,
                                 .line = out->line,
                                 .column = out->column,
                                 .text = text,
                                 .length = (size_t)(write - text) };
    lexer->position = end + 1;
    return MF_OK;
}

static size_t operator_length(const struct jinja_lexer *lexer, size_t offset)
{
    static const char *const two[] = { "**", "//", "==", "!=", ">=", "<=" };
    for (size_t i = 0; i < COUNT_OF(two); i++)
        if (at(lexer, offset, two[i])) return 2;
    char c = lexer->source[offset];
    return c && strchr("+-/*%~[](){}><=.:|,;", c) ? 1 : 0;
}

static mf_status track_bracket(struct jinja_lexer *lexer, char c, mf_error *why)
{
    size_t start = lexer->position;
    if (c == '(' || c == '[' || c == '{') {
        if (lexer->bracket_count == JINJA_BRACKET_LIMIT)
            return fail_at(lexer, start, "brackets are nested too deeply", why);
        lexer->brackets[lexer->bracket_count++] = (char)(c == '(' ? ')' : c == '[' ? ']' : '}');
    } else if (c == ')' || c == ']' || c == '}') {
        if (!lexer->bracket_count || lexer->brackets[lexer->bracket_count - 1] != c)
            return fail_at(lexer, start, "this bracket closes none", why);
        lexer->bracket_count--;
    }
    return MF_OK;
}

static mf_status take_operator(struct jinja_token *out, struct jinja_lexer *lexer, mf_error *why)
{
    out->kind = TOKEN_OPERATOR;
    out->length = operator_length(lexer, lexer->position);
    if (!out->length) return fail_at(lexer, lexer->position, "unexpected character", why);
    mf_status status = track_bracket(lexer, *out->text, why);
    lexer->position += out->length;
    return status;
}

/* A token inside of {{ }} or {% %}. */
static mf_status next_inside(struct jinja_token *out, struct jinja_lexer *lexer, mf_error *why)
{
    lexer->position = skip_white(lexer, lexer->position);
    size_t start = lexer->position;
    *out = (struct jinja_token){ .text = lexer->source + start };
    place(out, lexer, start);
    bool is_block = lexer->mode == LEXER_BLOCK;
    if (start == lexer->length) return fail_at(lexer, start, "the tag is not closed", why);
    if (!lexer->bracket_count) {
        size_t end = after_tag_end(lexer, start, is_block ? "%}" : "}}", is_block);
        if (end != start) {
            out->kind = is_block ? TOKEN_BLOCK_END : TOKEN_OUTPUT_END;
            out->length = end - start;
            lexer->mode = LEXER_TEXT;
            advance(lexer, end);
            return MF_OK;
        }
    }
    char first = lexer->source[start];
    if (first == '"' || first == '\'') return take_string(out, lexer, why);
    mf_status status = MF_OK;
    if (is_digit(first)) {
        status = take_number(out, lexer, why);
        lexer->position += out->length;
        return status;
    }
    out->length = unicode_identifier_prefix(lexer->source + start, lexer->length - start);
    if (!out->length) return take_operator(out, lexer, why);
    out->kind = TOKEN_NAME;
    lexer->position += out->length;
    return MF_OK;
}

mf_status jinja_lexer_next(struct jinja_token *out, struct jinja_lexer *lexer, mf_error *why)
{
    if (lexer->pending.kind != TOKEN_END) {
        *out = lexer->pending;
        lexer->pending.kind = TOKEN_END;
        return MF_OK;
    }
    if (lexer->mode != LEXER_TEXT) return next_inside(out, lexer, why);
    while (lexer->position < lexer->length) {
        mf_status status = next_text(out, lexer, why);
        if (status != MF_OK || out->kind != TOKEN_END) return status;
        if (lexer->pending.kind != TOKEN_END) return jinja_lexer_next(out, lexer, why);
    }
    *out = (struct jinja_token){ .kind = TOKEN_END, .text = "" };
    place(out, lexer, lexer->length);
    return MF_OK;
}
