/* terminal.h: properties of the terminal, colours, progress bar.
 *
 * Colours, the progress bar and other decoration appear only where the stream is a
 * terminal; on a pipe or in a file there is plain text and nothing else.  NO_COLOR,
 * TERM=dumb and COLUMNS are honoured (this is the program, so the environment may
 * be read here). */
#ifndef CLI_TERMINAL_H
#define CLI_TERMINAL_H

#include "common/basics.h"

#include <stdio.h>

enum style { STYLE_PLAIN, STYLE_BOLD, STYLE_DIM, STYLE_GOOD, STYLE_WARM, STYLE_BAD, STYLE_COUNT };

struct terminal {
    bool out;        /* stdout is a terminal */
    bool err;        /* stderr is one */
    bool in;         /* stdin is one */
    bool colour_out; /* and takes colours */
    bool colour_err;
    bool utf8; /* the locale's characters are UTF-8: bars may use block characters */
};

/* Characters are those of the environment's locale, or of UTF-8 where that has only ASCII, as in
 * containers and cron: text is UTF-8 everywhere here. */
void terminal_set_locale(void);

void terminal_probe(struct terminal *out);

/* Ends a question on stderr with " [y/N] " and reads the answer; true: it begins with y.  A signal
 * whose handler returns ends it with false. */
bool terminal_ask(void);

/* Columns of the terminal now (it may be resized); 80 where that is not known. */
unsigned terminal_width(void);

/* The escape sequence, or "" where `colour` is false. */
const char *terminal_style(bool colour, enum style style);

/* One line on stderr that is redrawn, "reading 1024/4096 ███████     512 tokens/s",
 * at most ten times a second; nothing at all where stderr is not a terminal. */
struct progress {
    const struct terminal *terminal;
    const char *label;
    const char *unit;
    uint64_t total;
    double started, drawn; /* seconds; drawn 0: not yet */
    /* Of progress_transfer: bytes per second lately, and where they were counted from. */
    double rate, counted;
    uint64_t counted_done;
};

void progress_begin(struct progress *progress, const struct terminal *terminal, const char *label,
                    const char *unit, uint64_t total);
void progress_update(struct progress *progress, uint64_t done);

/* For steps that take seconds: drawn at once, with what begins now and the time that the
 * others let expect, "decode 64, round 2 of 5 ██████      about 1:05 left". */
void progress_say(struct progress *progress, const char *what, uint64_t done);

/* For bytes: "NAME 3.2 GiB of 17.3 GiB ██████      85 MiB/s, 2:47 left"; the rate is that of the last
 * seconds. */
void progress_transfer(struct progress *progress, uint64_t done);
void progress_end(struct progress *progress); /* erases the line */

/* "512 bytes", "17.4 MiB", "1.4 GiB": binary units. Returns `out`. */
const char *size_text(uint64_t bytes, char *out, size_t capacity);

#endif
