#include "manual/manual.h"

#include <string.h>

/* Text inside of '…' in a specification of _arguments, where brackets and colons mean something. */
static void write_escaped(FILE *out, const char *text, const char *special)
{
    for (; *text; text++) {
        if (*text == '\'') {
            fputs("'\\''", out);
            continue;
        }
        if (*text == '\\' || strchr(special, *text)) fputc('\\', out);
        fputc(*text, out);
    }
}

static void write_value(FILE *out, const struct option *option)
{
    if (option->kind == OPTION_FLAG) return;
    fputc(':', out);
    write_escaped(out, option->value, "[]:");
    fputc(':', out);
    if (option->kind == OPTION_CHOICE) {
        fputc('(', out);
        for (size_t c = 0; option->choices[c]; c++)
            fprintf(out, "%s%s", c ? " " : "", option->choices[c]);
        fputc(')', out);
    } else if (option->kind == OPTION_TEXT || option->kind == OPTION_TEXTS) {
        fputs("_files", out);
    } else {
        fputc(' ', out); /* a number: nothing is offered */
    }
}

/* '(-m --model)'{-m,--model}'[help]:MODEL:_files': an option that was given is not offered again. */
static void write_option(FILE *out, const struct option *option)
{
    bool again = option->kind == OPTION_TEXTS;

    fputs("            ", out);
    if (option->letter && !again)
        fprintf(out, "'(-%c --%s)'{-%c,--%s}'[", option->letter, option->name, option->letter,
                option->name);
    else if (option->letter)
        fprintf(out, "'*'{-%c,--%s}'[", option->letter, option->name);
    else
        fprintf(out, "'%s--%s[", again ? "*" : "", option->name);
    write_escaped(out, option->help, "[]:");
    fputc(']', out);
    write_value(out, option);
    fputs("'\n", out);
}

static void write_command(FILE *out, const struct command *command)
{
    const struct option_group *common = command_common_group(command);

    fprintf(out, "    %s)\n        options=(\n", command->name);
    for (size_t g = 0; g < command->group_count; g++)
        for (size_t i = 0; i < command->groups[g].count; i++)
            write_option(out, &command->groups[g].options[i]);
    for (size_t i = 0; i < common->count; i++) write_option(out, &common->options[i]);
    if (command->arguments) fputs("            '*: :_files'\n", out);
    fputs("        )\n        ;;\n", out);
}

void manual_write_zsh(FILE *out)
{
    fputs("#compdef moeflux\n"
          "# zsh completion for moeflux, generated from its option tables\n"
          "_moeflux()\n"
          "{\n"
          "    local -a commands options\n"
          "    commands=(\n"
          "        'help:show the help of a command'\n",
          out);
    for (size_t i = 0; command_at(i); i++) {
        fprintf(out, "        '%s:", command_at(i)->name);
        write_escaped(out, command_at(i)->summary, "");
        fputs("'\n", out);
    }
    fputs("    )\n"
          "    if (( CURRENT == 2 )); then\n"
          "        _describe -t commands command commands\n"
          "        _arguments '--help[print the help]' '--version[print the version]'\n"
          "        return\n"
          "    fi\n"
          "    case $words[2] in\n"
          "    help)\n"
          "        _describe -t commands command commands\n"
          "        return\n"
          "        ;;\n",
          out);
    for (size_t i = 0; command_at(i); i++) write_command(out, command_at(i));
    fputs("    *)\n"
          "        return 1\n"
          "        ;;\n"
          "    esac\n"
          "    shift words\n"
          "    (( CURRENT-- ))\n"
          "    _arguments -s -S $options\n"
          "}\n"
          "_moeflux \"$@\"\n",
          out);
}
