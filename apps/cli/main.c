/* main.c: finds the command, reads its options, runs it.  Nothing else is decided here. */
#include "command.h"
#include "terminal.h"

#include <stdarg.h>
#include <stdlib.h>

static const struct command *const commands[] = {
#define COMMAND_ENTRY(name) &command_##name,
    COMMAND_LIST(COMMAND_ENTRY)
#undef COMMAND_ENTRY
};

static const char *const expert_modes[] = { "auto", "resident", "mapped", NULL };
static const char *const read_aheads[] = { "auto", "never", "always", NULL };
static const char *const readers[] = { "auto", "io_uring", "threads", NULL };
static const char *const backends[] = { "reference", "cpu", "cuda", NULL };

static const struct option common_options[] = {
    { 'm', "model", OPTION_TEXT, offsetof(struct common_settings, model), "MODEL",
      .help = "checkpoint directory, .gguf file, or org/name in the local Hugging Face cache; "
              "without it the embedded model" },
    { 't', "threads", OPTION_COUNT, offsetof(struct common_settings, threads), "N",
      .help = "threads; default: one for every core", .low = 1, .high = 1024 },
    { 'c', "context", OPTION_COUNT, offsetof(struct common_settings, context), "N",
      .help = "positions of the context; default: the model's, at most 4096", .low = 1,
      .high = 1 << 24 },
    { 0, "prompt-chunk", OPTION_COUNT, offsetof(struct common_settings, prompt_chunk), "N",
      .help = "tokens of a prompt that are computed at once; default 2048, with less than "
              "4 GiB 512; fewer take less memory and more time",
      .low = 1, .high = 1 << 24 },
    { 0, "memory", OPTION_SIZE, offsetof(struct common_settings, memory_bytes), "SIZE",
      .help = "what weights and caches may take, as in 8G; default: what the machine has" },
    { 0, "seed", OPTION_COUNT, offsetof(struct common_settings, seed), "N",
      .help = "same seed, same text" },
    { 0, "backend", OPTION_CHOICE, offsetof(struct common_settings, backend), "NAME",
      .help = "who computes: reference or cpu; default: cpu, the faster one", .choices = backends },
    { 0, "kernels", OPTION_TEXT, offsetof(struct common_settings, kernels), "NAME",
      .help = "the kernel set, as in avx2; default: the best one that runs here" },
    { 0, "expert-mode", OPTION_CHOICE, offsetof(struct common_settings, expert_mode), "MODE",
      .help = "where experts live: auto, resident or mapped; default: auto, by their size",
      .choices = expert_modes },
    { 0, "read-ahead", OPTION_CHOICE, offsetof(struct common_settings, read_ahead), "WHEN",
      .help = "read experts before they are needed: auto, never or always; default: auto, "
              "while it saves time",
      .choices = read_aheads },
    { 0, "reader", OPTION_CHOICE, offsetof(struct common_settings, reader), "NAME",
      .help = "who reads them: auto, io_uring or threads; default: auto, the faster one",
      .choices = readers },
    { 0, "no-checksums", OPTION_FLAG, offsetof(struct common_settings, no_checksums), NULL,
      .help = "experts of a converted model are not compared with their checksums as they are "
              "read" },
    { 0, "stats", OPTION_FLAG, offsetof(struct common_settings, stats), NULL,
      .help = "afterwards, a table of times and expert statistics on stderr" },
    { 0, "stats-json", OPTION_FLAG, offsetof(struct common_settings, stats_json), NULL,
      .help = "the same as one line of JSON on stderr" },
    { 0, "trace", OPTION_TEXT, offsetof(struct common_settings, trace), "FILE.json",
      .help = "every operation and read with its time, for ui.perfetto.dev" },
    { 0, "version", OPTION_FLAG, 0, NULL, .help = "the program's version" },
    { 'h', "help", OPTION_FLAG, 0, NULL, .help = "this text" },
};

enum { OPTIONS_OF_ALL = 2 }; /* the last ones */

static const struct option_group common_group = { "common options", common_options,
                                                  COUNT_OF(common_options), 0 };

/* Of commands that open no model. */
static const struct option_group least_group = {
    "common options", common_options + COUNT_OF(common_options) - OPTIONS_OF_ALL, OPTIONS_OF_ALL, 0
};

static const struct option_group *common_group_of(const struct command *command)
{
    return command->opens_no_model ? &least_group : &common_group;
}

static const struct command *find_command(const char *name)
{
    for (size_t i = 0; i < COUNT_OF(commands); i++) {
        if (strcmp(commands[i]->name, name) == 0) return commands[i];
    }
    return NULL;
}

static int unknown_command(const char *name)
{
    const char *names[COUNT_OF(commands)];
    size_t near;

    for (size_t i = 0; i < COUNT_OF(commands); i++) names[i] = commands[i]->name;
    near = nearest_name(name, names, COUNT_OF(names));
    fprintf(stderr, "moeflux: there is no command %.64s", name);
    if (near < COUNT_OF(names)) fprintf(stderr, "; did you mean %s?", names[near]);
    fputs("\nmoeflux: `moeflux --help` lists the commands\n", stderr);
    return EXIT_USAGE;
}

int usage_error(const struct command *command, const char *format, ...)
{
    va_list list;

    fprintf(stderr, "moeflux %s: ", command->name);
    va_start(list, format);
    vfprintf(stderr, format, list);
    va_end(list);
    fprintf(stderr, "\nmoeflux: `moeflux %s --help` shows its options\n", command->name);
    return EXIT_USAGE;
}

/* -------------------------------------------------------------------- help */

static void print_version(void)
{
    printf("moeflux %s\n", mf_version());
}

static void print_command_list(bool colour)
{
    for (size_t i = 0; i < COUNT_OF(commands); i++) {
        printf("  %s%-11s%s %s\n", terminal_style(colour, STYLE_BOLD), commands[i]->name,
               terminal_style(colour, STYLE_PLAIN), commands[i]->summary);
    }
}

static void print_welcome(void)
{
    struct terminal terminal;

    terminal_probe(&terminal);
    const char *bold = terminal_style(terminal.colour_out, STYLE_BOLD);
    const char *plain = terminal_style(terminal.colour_out, STYLE_PLAIN);
    printf("%smoeflux %s%s: runs mixture-of-experts models that are bigger than memory.\n\n", bold,
           mf_version(), plain);
    printf("A small model came with it, so you can start right now:\n\n"
           "  %smoeflux run \"What is the capital of Japan?\"%s\n"
           "  %smoeflux run --raw \"Once upon a time there was a little\"%s\n"
           "  %smoeflux run%s                                  chat in the terminal\n"
           "  %smoeflux run -m org/name \"…\"%s                  any model in your cache\n"
           "  %smoeflux inspect -m DIRECTORY --memory 8G%s     what would live where\n\n",
           bold, plain, bold, plain, bold, plain, bold, plain, bold, plain);
    printf("Commands (`moeflux COMMAND --help` for each):\n\n");
    print_command_list(terminal.colour_out);
}

static void print_help(void)
{
    printf("usage: moeflux COMMAND [options]\n\ncommands:\n");
    print_command_list(false);
    printf("\n`moeflux COMMAND --help` shows the options of a command, with examples.\n"
           "Exit status: 0 done, 1 the work failed, 2 wrong usage.\n");
}

static void print_command_help(const struct command *command)
{
    unsigned width = (unsigned)min_size(terminal_width(), 100);

    printf("moeflux %s: %s\n\nusage: moeflux %s [options]%s%s\n\n", command->name, command->summary,
           command->name, command->arguments ? " " : "",
           command->arguments ? command->arguments : "");
    if (command->notes) printf("%s\n\n", command->notes);
    for (size_t i = 0; i < command->group_count; i++) {
        options_print(stdout, &command->groups[i], width);
        putchar('\n');
    }
    options_print(stdout, common_group_of(command), width);
    printf("\nexamples:\n%s", command->examples);
}

/* ----------------------------------------------------------------- running */

static int run_command(const struct command *command, char **words, size_t count)
{
    struct option_group groups[COMMAND_GROUPS + 1];
    size_t group_count = command->group_count;
    struct arguments arguments = { NULL, 0 };
    mf_error why = { .text = "" };
    void *settings = calloc(1, command->settings_bytes);
    int code = EXIT_DONE;

    if (!settings) {
        fputs("moeflux: out of memory\n", stderr);
        return EXIT_FAILED;
    }
    for (size_t i = 0; i < group_count; i++) groups[i] = command->groups[i];
    groups[group_count++] = *common_group_of(command);
    switch (options_parse(settings, &arguments, groups, group_count, words, count, &why)) {
    case PARSE_FAILED:
        code = usage_error(command, "%s", why.text);
        break;
    case PARSE_HELP:
        print_command_help(command);
        break;
    case PARSE_VERSION:
        print_version();
        break;
    case PARSE_DONE:
        if (arguments.count > command->argument_limit) {
            code = usage_error(command, "what is \"%.64s\"? %s",
                               arguments.values[command->argument_limit],
                               !command->arguments           ? "Nothing can follow the options."
                               : command->argument_limit > 1 ? "That is one argument too many."
                                                             : "Only one argument can follow the "
                                                               "options.");
        } else {
            code = command->run(settings, &arguments);
        }
    }
    free(settings);
    return code;
}

static int dispatch(int count, char **words)
{
    const struct command *command;

    if (count < 2) {
        print_welcome();
        return EXIT_DONE;
    }
    if (strcmp(words[1], "--version") == 0) {
        print_version();
        return EXIT_DONE;
    }
    if (strcmp(words[1], "--help") == 0 || strcmp(words[1], "-h") == 0 ||
        (strcmp(words[1], "help") == 0 && count == 2)) {
        print_help();
        return EXIT_DONE;
    }
    if (strcmp(words[1], "help") == 0) {
        command = find_command(words[2]);
        if (!command) return unknown_command(words[2]);
        print_command_help(command);
        return EXIT_DONE;
    }
    if (words[1][0] == '-') {
        fprintf(stderr, "moeflux: the command comes first, as in `moeflux run %.64s`\n", words[1]);
        return EXIT_USAGE;
    }
    command = find_command(words[1]);
    if (!command) return unknown_command(words[1]);
    return run_command(command, words + 2, (size_t)count - 2);
}

int main(int count, char **words)
{
    streams_guard();
    return streams_finish(dispatch(count, words));
}
