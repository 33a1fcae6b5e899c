/* command.h: what a command is.  One file cmd_<name>.c defines each; commands.c lists them.
 *
 * A command's settings are a struct of its own whose first member is `common`; its
 * option table and the common one write into it.  It returns an exit status. */
#ifndef CLI_COMMAND_H
#define CLI_COMMAND_H

#include "options.h"
#include "streams.h"

struct common_settings {
    const char *model; /* as typed, see model_path.h; NULL: the embedded one */
    const char *backend, *kernels, *kv;
    struct maybe_count threads;
    struct maybe_count context;
    struct maybe_count prompt_chunk;
    struct maybe_count memory_bytes;
    struct maybe_count device_bytes; /* of a device's memory */
    struct maybe_count seed;
    const char *expert_mode, *read_ahead, *reader;
    bool no_checksums;
    const char *cache; /* of beginnings of texts; NULL: none */
    const char *cache_directory;
    struct maybe_count cache_disk_bytes;
    bool stretch; /* the context may be above the model's limit */
    bool stats, stats_json, profile;
    const char *trace;  /* file, or NULL */
    uint32_t sequences; /* that the command will use at a time; 0: one */
    bool yes;           /* a model that is not here may be downloaded */
};

enum { COMMAND_GROUPS = 4 };

struct command {
    const char *name;
    const char *summary;   /* one line, no full stop */
    const char *arguments; /* "[PROMPT]": what follows the options; NULL: nothing may */
    size_t argument_limit;
    const struct option_group *groups; /* its own options, at most COMMAND_GROUPS */
    size_t group_count;
    bool opens_no_model;   /* most of the common options would mean nothing */
    const char *notes;     /* a paragraph for the help, or NULL */
    const char *examples;  /* lines, each ending in \n */
    size_t settings_bytes; /* of the struct that starts with common_settings */
    int (*run)(const void *settings, const struct arguments *arguments);
};

/* In the order of the help. */
#define COMMAND_LIST(X)                                                                            \
    X(run)                                                                                         \
    X(serve)                                                                                       \
    X(connect)                                                                                     \
    X(batch)                                                                                       \
    X(pull)                                                                                        \
    X(list)                                                                                        \
    X(show)                                                                                        \
    X(rm)                                                                                          \
    X(cache)                                                                                       \
    X(plan)                                                                                        \
    X(doctor)                                                                                      \
    X(inspect)                                                                                     \
    X(convert)                                                                                     \
    X(selftest)                                                                                    \
    X(bench)                                                                                       \
    X(simulate)                                                                                    \
    X(generate)                                                                                    \
    X(logits)                                                                                      \
    X(perplexity)                                                                                  \
    X(tokenize)                                                                                    \
    X(detokenize)                                                                                  \
    X(template)                                                                                    \
    X(parse)

#define COMMAND_DECLARE(name) extern const struct command command_##name;
COMMAND_LIST(COMMAND_DECLARE)
#undef COMMAND_DECLARE

#define COMMAND_COUNT_ONE(name) +1
enum { COMMAND_COUNT = 0 COMMAND_LIST(COMMAND_COUNT_ONE) };
#undef COMMAND_COUNT_ONE

/* In that order; NULL after the last. */
const struct command *command_at(size_t index);

/* The options that commands share: all of them, or those of commands that open no model. */
const struct option_group *command_common_group(const struct command *command);

/* "moeflux <name>: <sentence>" and where the help is, on stderr; returns EXIT_USAGE. */
int usage_error(const struct command *command, const char *format, ...) MF_PRINTF(2, 3);

#endif
