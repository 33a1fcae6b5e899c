/* shown.h: text that comes from a model or a file, made fit for a terminal.
 *
 *     answer ── control characters made visible ── wrapped at words ── stdout
 *
 * A control character could clear the screen, rename the window or move the cursor: it is shown
 * as \x1b, \r or \u009b instead.  Where stdout is no terminal the bytes stay exact.  Lines that
 * are indented or begin with '|', and what stands between ``` and ```, are not wrapped. */
#ifndef CLI_SHOWN_H
#define CLI_SHOWN_H

#include "moeflux.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

enum { SHOWN_WORD_BYTES = 512 };

/* A zeroed struct passes everything on as it is. */
struct shown {
    bool terminal;
    unsigned width;              /* columns of a line */
    unsigned column;             /* where the next character stands */
    unsigned spaces;             /* before the word that is held back */
    char word[SHOWN_WORD_BYTES]; /* held back until it is complete */
    size_t word_bytes;
    unsigned word_columns;
    bool verbatim; /* this line is not wrapped */
    bool fenced;   /* between ``` and ``` */
};

void shown_begin(struct shown *out, bool terminal, unsigned width);

/* Whole characters of UTF-8. */
void shown_write(struct shown *shown, const char *text, size_t length);

/* The word that was held back. */
void shown_flush(struct shown *shown);

/* One line of `text` to `stream`, control characters made visible; newlines are kept. */
void visible_print(FILE *stream, const char *text);

/* The same of a formatted text, of at most 4096 bytes. */
void visible_printf(FILE *stream, const char *format, ...) MF_PRINTF(2, 3);

#endif
