/* main.c: finds the command, reads its options, runs it.  Nothing else is decided here. */
#include "command.h"
#include "terminal.h"

#include <stdlib.h>

static const struct command *find_command(const char *name)
{
    for (size_t i = 0; command_at(i); i++) {
        if (strcmp(command_at(i)->name, name) == 0) return command_at(i);
    }
    return NULL;
}

static int unknown_command(const char *name)
{
    const char *names[COMMAND_COUNT];
    size_t near;

    for (size_t i = 0; i < COMMAND_COUNT; i++) names[i] = command_at(i)->name;
    near = nearest_name(name, names, COUNT_OF(names));
    fprintf(stderr, "moeflux: there is no command %.64s", name);
    if (near < COUNT_OF(names)) fprintf(stderr, "; did you mean %s?", names[near]);
    fputs("\nmoeflux: `moeflux --help` lists the commands\n", stderr);
    return EXIT_USAGE;
}

/* -------------------------------------------------------------------- help */

static void print_version(void)
{
    printf("moeflux %s\n", mf_version());
}

static void print_command_list(bool colour)
{
    for (size_t i = 0; command_at(i); i++) {
        printf("  %s%-11s%s %s\n", terminal_style(colour, STYLE_BOLD), command_at(i)->name,
               terminal_style(colour, STYLE_PLAIN), command_at(i)->summary);
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
           "  %smoeflux inspect -m DIRECTORY --memory 8G%s     what would be in memory\n\n",
           bold, plain, bold, plain, bold, plain, bold, plain, bold, plain);
    printf("Commands (`moeflux COMMAND --help` for each):\n\n");
    print_command_list(terminal.colour_out);
}

static void print_help(void)
{
    printf("usage: moeflux COMMAND [options]\n\ncommands:\n");
    print_command_list(false);
    printf("\n`moeflux COMMAND --help` shows the options of a command, with examples.\n"
           "Exit status: 0 success, 1 failure, 2 wrong usage, 130 interrupted.\n");
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
    options_print(stdout, command_common_group(command), width);
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
    groups[group_count++] = *command_common_group(command);
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
    if (strcmp(words[1], "--version") == 0 || strcmp(words[1], "version") == 0) {
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
