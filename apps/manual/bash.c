#include "manual/manual.h"

#include <string.h>

static void write_names(FILE *out, const struct option_group *group)
{
    for (size_t i = 0; i < group->count; i++) fprintf(out, " --%s", group->options[i].name);
}

/* The word before is this option: offers its values, files where there is no list of them. */
static void write_values(FILE *out, const struct option_group *group)
{
    for (size_t i = 0; i < group->count; i++) {
        const struct option *option = &group->options[i];
        if (option->kind == OPTION_FLAG) continue;
        fputs("            ", out);
        if (option->letter) fprintf(out, "-%c|", option->letter);
        fprintf(out, "--%s) ", option->name);
        if (option->kind == OPTION_CHOICE) {
            fputs("values=\"", out);
            for (size_t c = 0; option->choices[c]; c++) {
                fprintf(out, "%s%s", c ? " " : "", option->choices[c]);
            }
            fputs("\" ;;\n", out);
        } else if (option->kind == OPTION_TEXT || option->kind == OPTION_TEXTS) {
            fputs("files=1 ;;\n", out);
        } else {
            fputs("nothing=1 ;;\n", out);
        }
    }
}

static void write_command(FILE *out, const struct command *command)
{
    const struct option_group *common = command_common_group(command);

    fprintf(out, "    %s)\n        options=\"", command->name);
    for (size_t i = 0; i < command->group_count; i++) write_names(out, &command->groups[i]);
    write_names(out, common);
    fputs("\"\n        case $before in\n", out);
    for (size_t i = 0; i < command->group_count; i++) write_values(out, &command->groups[i]);
    write_values(out, common);
    fputs("        esac\n        ;;\n", out);
}

static const char head[] = "# bash completion for moeflux, generated from its option tables\n"
                           "_moeflux()\n"
                           "{\n"
                           "    local word=${COMP_WORDS[COMP_CWORD]}\n"
                           "    local before=${COMP_WORDS[COMP_CWORD-1]}\n"
                           "    local options= values= files= nothing=\n"
                           "    COMPREPLY=()\n";

static const char tail[] = "    esac\n"
                           "    if [[ $nothing ]]; then\n"
                           "        return\n"
                           "    elif [[ $values ]]; then\n"
                           "        COMPREPLY=($(compgen -W \"$values\" -- \"$word\"))\n"
                           "    elif [[ $word == -* && ! $files ]]; then\n"
                           "        COMPREPLY=($(compgen -W \"$options\" -- \"$word\"))\n"
                           "    else\n"
                           "        compopt -o filenames 2>/dev/null\n"
                           "        COMPREPLY=($(compgen -f -- \"$word\"))\n"
                           "    fi\n"
                           "}\n"
                           "complete -F _moeflux moeflux\n";

void manual_write_bash(FILE *out)
{
    fputs(head, out);
    fputs("    if ((COMP_CWORD == 1)); then\n        COMPREPLY=($(compgen -W \"help", out);
    for (size_t i = 0; command_at(i); i++) fprintf(out, " %s", command_at(i)->name);
    fputs(" --help --version\" -- \"$word\"))\n        return\n    fi\n", out);
    fputs("    case ${COMP_WORDS[1]} in\n    help)\n        values=\"", out);
    for (size_t i = 0; command_at(i); i++) fprintf(out, "%s%s", i ? " " : "", command_at(i)->name);
    fputs("\"\n        ;;\n", out);
    for (size_t i = 0; command_at(i); i++) write_command(out, command_at(i));
    fputs(tail, out);
}
