/* builtins.h: filters, tests, methods and global functions: tables of small functions.
 *
 *     { "replace", "old new count?", replace }
 *
 * The middle column names the parameters in order ("?": may be left out, "*": the function reads
 * all arguments itself); arguments are checked and bound by it before the function runs, so that a
 * function finds its third parameter in given->bound[2], ABSENT when it was left out.
 *
 * For a filter or test `self` is the value in front, for a method the object. */
#ifndef JINJA_BUILTINS_H
#define JINJA_BUILTINS_H

#include "jinja/value.h"

enum { JINJA_BOUND_COUNT = 6, JINJA_FEW_ARGUMENTS = 4 };

struct jinja_keyword {
    const struct jinja_string *name;
    struct jinja_value value;
};

struct jinja_arguments {
    struct jinja_value *positional;
    size_t positional_count;
    struct jinja_keyword *keywords;
    size_t keyword_count;
    struct jinja_value bound[JINJA_BOUND_COUNT];
    /* Where the first two point when there are few: a call in a loop then takes no heap. */
    struct jinja_value few[JINJA_FEW_ARGUMENTS];
    struct jinja_keyword few_keywords[JINJA_FEW_ARGUMENTS];
};

typedef struct jinja_value (*jinja_function)(struct jinja_run *run, struct jinja_value self,
                                             const struct jinja_arguments *given);

/* The head of such a function; it need not use all of `run`, `self` and `given`. */
#define JINJA_BUILTIN(name)                                                                        \
    static struct jinja_value name(__attribute__((unused)) struct jinja_run *run,                  \
                                   __attribute__((unused)) struct jinja_value self,                \
                                   __attribute__((unused)) const struct jinja_arguments *given)

struct jinja_builtin {
    const char *name;
    const char *parameters;
    jinja_function function;
};

struct jinja_bound {
    const struct jinja_builtin *builtin;
    struct jinja_value self;
};

/* Tables end with an entry without name. */
extern const struct jinja_builtin jinja_filters_text[];
extern const struct jinja_builtin jinja_filters_sequence[];
extern const struct jinja_builtin jinja_filters_value[];
extern const struct jinja_builtin jinja_tests[];
extern const struct jinja_builtin jinja_globals[];
extern const struct jinja_builtin jinja_string_methods[];
extern const struct jinja_builtin jinja_string_questions[];
extern const struct jinja_builtin jinja_list_methods[];
extern const struct jinja_builtin jinja_tuple_methods[];
extern const struct jinja_builtin jinja_dict_methods[];

/* NULL when there is none of that name. */
const struct jinja_builtin *jinja_find_filter(const struct jinja_string *name);
const struct jinja_builtin *jinja_find_test(const struct jinja_string *name);
const struct jinja_builtin *jinja_find_method(enum jinja_kind kind,
                                              const struct jinja_string *name);
const struct jinja_builtin *jinja_find_global(const struct jinja_string *name);

/* Binds the arguments and runs the function. */
struct jinja_value jinja_call_builtin(struct jinja_run *run, const struct jinja_builtin *builtin,
                                      struct jinja_value self, struct jinja_arguments *given);

/* ------------------------------------------------------------------ reading arguments */

bool jinja_given(struct jinja_value argument); /* neither ABSENT nor none */
/* The argument as a whole number, `otherwise` when ABSENT; a type error for other kinds. */
int64_t jinja_argument_int(struct jinja_run *run, struct jinja_value argument, int64_t otherwise);
bool jinja_argument_truth(struct jinja_value argument, bool otherwise);
/* The argument's text; a type error, and an empty string, for other kinds. */
const struct jinja_string *jinja_argument_string(struct jinja_run *run,
                                                 struct jinja_value argument);
/* A keyword among those given; ABSENT when it is not. */
struct jinja_value jinja_find_keyword(const struct jinja_arguments *given, const char *name);

/* ------------------------------------------------------------------ shared between the files */

/* A value that iterates once over `items`, which it takes. */
struct jinja_value jinja_generator(struct jinja_value list);

/* json.dumps with the parameters of Hugging Face's tojson filter. */
struct jinja_value jinja_to_json(struct jinja_run *run, struct jinja_value self,
                                 const struct jinja_arguments *given);
struct jinja_value jinja_filter_from_json(struct jinja_run *run, struct jinja_value self,
                                          const struct jinja_arguments *given);

/* template % values, as Python formats; values is a tuple, a dict or a single value. */
struct jinja_value jinja_format_percent(struct jinja_run *run, const struct jinja_string *format,
                                        struct jinja_value values);
/* "…{}…".format(…) */
struct jinja_value jinja_format_braces(struct jinja_run *run, const struct jinja_string *format,
                                       const struct jinja_arguments *given);

/* int() and float() of a text; false when it is not a number. */
bool jinja_parse_int(int64_t *out, const struct jinja_string *text, int base);
bool jinja_parse_float(double *out, const struct jinja_string *text);

/* A string without the characters of `set` (NULL: white space) at its ends. */
enum jinja_side { JINJA_LEFT = 1, JINJA_RIGHT = 2, JINJA_BOTH = 3 };
struct jinja_value jinja_strip(struct jinja_run *run, const struct jinja_string *text,
                               const struct jinja_string *set, enum jinja_side side);
struct jinja_value jinja_replace(struct jinja_run *run, const struct jinja_string *text,
                                 const struct jinja_string *old, const struct jinja_string *new,
                                 int64_t limit);
/* The whole text in another case; TITLE: the first letter of the text. */
struct jinja_value jinja_convert_case(struct jinja_run *run, const struct jinja_string *text,
                                      int to_case);
struct jinja_value jinja_capitalise(struct jinja_run *run, const struct jinja_string *text);
struct jinja_value jinja_split_lines(struct jinja_run *run, const struct jinja_string *text,
                                     bool keep_ends);
struct jinja_value jinja_join(struct jinja_run *run, const struct jinja_string *separator,
                              const struct jinja_sequence *items, bool only_strings);

#endif
