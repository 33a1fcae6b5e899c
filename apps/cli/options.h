/* options.h: one table per command says which options there are; everything else
 * (parsing, checking, `--help`, "did you mean") follows from the table.
 *
 *     struct greet_settings { struct common_settings common; struct maybe_count times; };
 *     static const struct option options[] = {
 *         { 'n', "times", OPTION_COUNT, offsetof(struct greet_settings, times), "N",
 *           "how often", .low = 1, .high = 99 },
 *     };
 *
 * Accepted: `--times 3`, `--times=3`, `-n 3`, `-n3`; options and arguments in any
 * order; `--` ends the options; `-` alone is an argument.  A value that is itself
 * the name of an option is refused unless it is joined with `=`, because then the
 * value was most likely forgotten.
 *
 * Lifetimes: texts point into argv. */
#ifndef CLI_OPTIONS_H
#define CLI_OPTIONS_H

#include "common/basics.h"
#include "moeflux.h"

#include <stdio.h>

enum option_kind {
    OPTION_FLAG,   /* bool; takes no value */
    OPTION_TEXT,   /* const char * */
    OPTION_TEXTS,  /* struct text_list: may be given several times */
    OPTION_CHOICE, /* const char *, one of `choices` */
    OPTION_COUNT,  /* struct maybe_count: a whole number in low … high */
    OPTION_COUNTS, /* struct count_list: such numbers with commas between them */
    OPTION_SIZE,   /* struct maybe_count: bytes, with K M G T as binary units */
    OPTION_REAL,   /* struct maybe_real: a finite number in low … high */
    OPTION_RATE    /* struct maybe_real: bytes per second above 0, with a unit */
};

/* What was not given is left to the command, or to the model's own settings. */
struct maybe_count {
    bool given;
    uint64_t value;
};

/* Empty: not given. */
struct count_list {
    size_t count;
    uint64_t values[16];
};

struct maybe_real {
    bool given;
    double value;
};

enum { TEXT_LIST_LIMIT = 32 };

struct text_list {
    const char *values[TEXT_LIST_LIMIT];
    size_t count;
};

struct option {
    char letter;      /* 'n', or 0 */
    const char *name; /* "times" */
    enum option_kind kind;
    size_t offset;     /* of the field, from the group's base */
    const char *value; /* "N": what stands for the value in the help; NULL for a flag */
    const char *help;
    double low, high;           /* inclusive; both 0: no limit but the type's own */
    const char *const *choices; /* ends with NULL */
};

/* Options under one heading of the help, for one struct inside a command's settings. */
struct option_group {
    const char *title;
    const struct option *options;
    size_t count;
    size_t base; /* of that struct in the settings */
};

struct arguments {
    const char *const *values; /* what is not an option, in order */
    size_t count;
};

enum parse_result { PARSE_DONE, PARSE_HELP, PARSE_VERSION, PARSE_FAILED };

/* Reads `count` words into `settings` (zeroed by the caller).  `words` is sorted so
 * that the arguments stand together.  `--help`, `-h` and `--version` are always
 * there and end the parsing.  PARSE_FAILED: *why is the sentence to show. */
enum parse_result options_parse(void *settings, struct arguments *arguments,
                                const struct option_group *groups, size_t group_count, char **words,
                                size_t count, mf_error *why);

/* The lines of the help for a group: options, values, meanings, wrapped to `width`. */
void options_print(FILE *out, const struct option_group *group, unsigned width);

/* "8G", "512M", "1.5G", "4096" in bytes, binary units; false: not a size. */
bool parse_size(uint64_t *out, const char *text);

/* "3GB/s" in bytes per second: decimal units, as disks are sold, binary ones with an "i"
 * ("3GiB/s"); "/s" may be left out.  False: not a rate, or one without a unit. */
bool parse_rate(double *out, const char *text);

/* Digits only, no sign, no space, fits. */
bool parse_count(uint64_t *out, const char *text);

/* A finite decimal number that fills the whole text. */
bool parse_real(double *out, const char *text);

/* How many letters must be added, dropped, changed or swapped with a neighbour. */
size_t edit_distance(const char *a, const char *b);

/* The index of the name that `word` was most likely meant to be, or `count` if none is near. */
size_t nearest_name(const char *word, const char *const *names, size_t count);

#endif
