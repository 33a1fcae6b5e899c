#include "manual/manual.h"

/* Text inside of '…'. */
static void write_quoted(FILE *out, const char *text)
{
    fputc('\'', out);
    for (; *text; text++) {
        if (*text == '\'' || *text == '\\') fputc('\\', out);
        fputc(*text, out);
    }
    fputc('\'', out);
}

static void write_option(FILE *out, const struct command *command, const struct option *option)
{
    fprintf(out, "complete -c moeflux -n '__moeflux_command_is %s' -l %s", command->name,
            option->name);
    if (option->letter) fprintf(out, " -s %c", option->letter);
    if (option->kind == OPTION_CHOICE) {
        fputs(" -x -a '", out);
        for (size_t c = 0; option->choices[c]; c++)
            fprintf(out, "%s%s", c ? " " : "", option->choices[c]);
        fputc('\'', out);
    } else if (option->kind == OPTION_TEXT || option->kind == OPTION_TEXTS) {
        fputs(" -r -F", out);
    } else if (option->kind != OPTION_FLAG) {
        fputs(" -x", out); /* a number: nothing is offered */
    }
    fputs(" -d ", out);
    write_quoted(out, option->help);
    fputc('\n', out);
}

static void write_command(FILE *out, const struct command *command)
{
    const struct option_group *common = command_common_group(command);

    fprintf(out, "complete -c moeflux -n '__moeflux_has_no_command' -f -a %s -d ", command->name);
    write_quoted(out, command->summary);
    fputc('\n', out);
    if (!command->arguments)
        fprintf(out, "complete -c moeflux -n '__moeflux_command_is %s' -f\n", command->name);
    for (size_t g = 0; g < command->group_count; g++)
        for (size_t i = 0; i < command->groups[g].count; i++)
            write_option(out, command, &command->groups[g].options[i]);
    for (size_t i = 0; i < common->count; i++) write_option(out, command, &common->options[i]);
}

void manual_write_fish(FILE *out)
{
    fputs("# fish completion for moeflux, generated from its option tables\n"
          "function __moeflux_has_no_command\n"
          "    test (count (commandline -opc)) -eq 1\n"
          "end\n"
          "function __moeflux_command_is\n"
          "    set -l words (commandline -opc)\n"
          "    test (count $words) -ge 2; and test $words[2] = $argv[1]\n"
          "end\n"
          "complete -c moeflux -n '__moeflux_has_no_command' -f -a help -d 'show the help of a "
          "command'\n"
          "complete -c moeflux -n '__moeflux_has_no_command' -l help -d 'print the help'\n"
          "complete -c moeflux -n '__moeflux_has_no_command' -l version -d 'print the version'\n"
          "complete -c moeflux -n '__moeflux_command_is help' -f -a '",
          out);
    for (size_t i = 0; command_at(i); i++) fprintf(out, "%s%s", i ? " " : "", command_at(i)->name);
    fputs("'\n", out);
    for (size_t i = 0; command_at(i); i++) write_command(out, command_at(i));
}
