#include "shown.h"

#include "streams.h"

#include <stdarg.h>
#include <string.h>
#include <wchar.h>

/* ------------------------------------------------------- control characters */

enum { CHARACTER_BYTES_MAX = 8 }; /* of one character, or of its visible form */

/* Takes one character from `text`; *code is -1 where the bytes are not UTF-8.  Returns its bytes. */
static size_t take_character(const char *text, size_t length, int32_t *code)
{
    static const unsigned char lead[] = { 0x00, 0xc2, 0xe0, 0xf0 },
                               masks[] = { 0x7f, 0x1f, 0x0f, 0x07 };
    unsigned char first = (unsigned char)text[0];
    size_t more = first < 0x80 ? 0 : first < 0xe0 ? 1 : first < 0xf0 ? 2 : 3;

    *code = -1;
    if (first < lead[more] || first > 0xf4 || more >= length) return 1;
    int32_t value = first & masks[more];
    for (size_t i = 1; i <= more; i++) {
        if (((unsigned char)text[i] & 0xc0) != 0x80) return 1;
        value = value << 6 | (text[i] & 0x3f);
    }
    *code = value;
    return more + 1;
}

static bool is_control(int32_t code)
{
    return code < 0 || (code < 0x20 && code != '\n' && code != '\t') ||
           (code >= 0x7f && code < 0xa0);
}

/* The character as it is, or its visible form; returns the bytes in `out`. */
static size_t visible_form(char out[CHARACTER_BYTES_MAX], const char *text, size_t bytes,
                           int32_t code)
{
    if (!is_control(code)) {
        memcpy(out, text, bytes);
        return bytes;
    }
    if (code == '\r') return (size_t)snprintf(out, CHARACTER_BYTES_MAX, "\\r");
    return (size_t)snprintf(out, CHARACTER_BYTES_MAX, code >= 0x80 ? "\\u%04x" : "\\x%02x",
                            code >= 0 ? (unsigned)code : (unsigned char)text[0]);
}

void visible_print(FILE *stream, const char *text)
{
    for (size_t length = strlen(text); length > 0;) {
        char form[CHARACTER_BYTES_MAX];
        int32_t code;
        size_t bytes = take_character(text, length, &code);
        fwrite(form, 1, visible_form(form, text, bytes, code), stream);
        text += bytes;
        length -= bytes;
    }
}

void visible_printf(FILE *stream, const char *format, ...)
{
    char text[4096];
    va_list list;

    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    visible_print(stream, text);
}

/* ----------------------------------------------------------------- wrapping */

void shown_begin(struct shown *out, bool terminal, unsigned width)
{
    *out = (struct shown){ .terminal = terminal, .width = width };
}

static void put_spaces(struct shown *shown)
{
    for (; shown->spaces > 0; shown->spaces--) {
        output_write(" ", 1);
        shown->column++;
    }
}

static void put_word(struct shown *shown)
{
    if (shown->word_bytes == 0) return;
    bool first = shown->column == 0;
    if (first && shown->word_bytes >= 3 && memcmp(shown->word, "```", 3) == 0) {
        shown->fenced = !shown->fenced;
        shown->verbatim = true;
    }
    bool fits = shown->column + shown->spaces + shown->word_columns <= shown->width;
    if (!first && !fits && !shown->verbatim) {
        output_write("\n", 1);
        shown->column = shown->spaces = 0;
    }
    put_spaces(shown);
    output_write(shown->word, shown->word_bytes);
    shown->column += shown->word_columns;
    shown->word_bytes = shown->word_columns = 0;
}

static void put_newline(struct shown *shown)
{
    put_word(shown);
    shown->spaces = shown->column = 0;
    output_write("\n", 1);
    shown->verbatim = shown->fenced;
}

/* One character, or its visible form, of `columns`. */
static void put_character(struct shown *shown, const char *text, size_t bytes, unsigned columns)
{
    bool first = shown->column == 0 && shown->word_bytes == 0 && shown->spaces == 0;
    bool space = bytes == 1 && (text[0] == ' ' || text[0] == '\t');
    if (first && (text[0] == '\t' || text[0] == '|')) shown->verbatim = true;
    if (space && text[0] == ' ') {
        put_word(shown);
        shown->spaces++;
        if (shown->column == 0 && shown->spaces > 1) shown->verbatim = true;
        if (shown->verbatim) put_spaces(shown);
        return;
    }
    if (shown->word_bytes + bytes > sizeof shown->word) put_word(shown);
    memcpy(shown->word + shown->word_bytes, text, bytes);
    shown->word_bytes += bytes;
    shown->word_columns += columns;
    /* A line may break after every wide character, and inside a word as long as a line. */
    if (columns > 1 || shown->verbatim || shown->word_columns >= shown->width) put_word(shown);
}

void shown_write(struct shown *shown, const char *text, size_t length)
{
    if (!shown->terminal) {
        output_write(text, length);
        return;
    }
    while (length > 0) {
        char form[CHARACTER_BYTES_MAX];
        int32_t code;
        size_t bytes = take_character(text, length, &code);
        size_t shown_bytes = visible_form(form, text, bytes, code);
        int columns = is_control(code) ? (int)shown_bytes : wcwidth((wchar_t)code);
        if (code == '\n')
            put_newline(shown);
        else
            put_character(shown, form, shown_bytes, columns < 0 ? 1 : (unsigned)columns);
        text += bytes;
        length -= bytes;
    }
}

void shown_flush(struct shown *shown)
{
    if (!shown->terminal) return;
    put_word(shown);
    put_spaces(shown);
}
