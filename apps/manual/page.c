#include "manual/manual.h"

#include <ctype.h>
#include <string.h>

/* A character of two to four bytes, by its number; returns what follows it. */
static const unsigned char *write_character(FILE *out, const unsigned char *at)
{
    unsigned code = *at < 0xe0 ? *at & 0x1fu : *at < 0xf0 ? *at & 0xfu : *at & 7u;

    for (at++; (*at & 0xc0) == 0x80; at++) code = code << 6 | (*at & 0x3fu);
    fprintf(out, "\\[u%04X]", code);
    return at;
}

/* Text for roff: a minus that can be copied, no escapes, no control lines, and what is not ASCII
 * by its number. */
static void write_text(FILE *out, const char *text)
{
    bool at_line_start = true;

    for (const unsigned char *at = (const unsigned char *)text; *at; at++) {
        if (at_line_start && (*at == '.' || *at == '\'')) fputs("\\&", out);
        at_line_start = *at == '\n';
        if (*at == '-') {
            fputs("\\-", out);
        } else if (*at == '\\') {
            fputs("\\e", out);
        } else if (*at >= 0xc0) {
            at = write_character(out, at) - 1;
        } else {
            fputc(*at, out);
        }
    }
}

static void write_option(FILE *out, const struct option *option)
{
    fputs(".TP\n\\fB", out);
    if (option->letter) fprintf(out, "\\-%c\\fR, \\fB", option->letter);
    fputs("\\-\\-", out);
    write_text(out, option->name);
    fputs("\\fR", out);
    if (option->value) {
        fputs(" \\fI", out);
        write_text(out, option->value);
        fputs("\\fR", out);
    }
    fputc('\n', out);
    write_text(out, option->help);
    fputc('\n', out);
}

static void write_options(FILE *out, const struct option_group *group)
{
    for (size_t i = 0; i < group->count; i++) write_option(out, &group->options[i]);
}

static void write_examples(FILE *out, const char *examples)
{
    fputs(".PP\nExamples:\n.PP\n.nf\n", out);
    write_text(out, examples);
    fputs(".fi\n", out);
}

static void write_command(FILE *out, const struct command *command)
{
    fputs(".SS \"moeflux ", out);
    write_text(out, command->name);
    fputs(" [options]", out);
    if (command->arguments) {
        fputc(' ', out);
        write_text(out, command->arguments);
    }
    fputs("\"\n", out);
    fputc(toupper((unsigned char)command->summary[0]), out);
    write_text(out, command->summary + 1);
    fputs(strchr(".?!", command->summary[strlen(command->summary) - 1]) ? "\n" : ".\n", out);
    if (command->notes) {
        fputs(".PP\n", out);
        write_text(out, command->notes);
        fputc('\n', out);
    }
    for (size_t i = 0; i < command->group_count; i++) write_options(out, &command->groups[i]);
    if (command->examples) write_examples(out, command->examples);
}

static const char head[] =
    ".SH NAME\n"
    "moeflux \\- runs mixture\\-of\\-experts language models that are bigger than memory\n"
    ".SH SYNOPSIS\n"
    ".B moeflux\n"
    ".I COMMAND\n"
    "[options] [arguments]\n"
    ".SH DESCRIPTION\n"
    "moeflux keeps the weights that every token uses in memory, streams the experts that the\n"
    "routers choose from disk, and keeps the popular ones in a cache of the size that\n"
    ".B \\-\\-memory\n"
    "allows. Data goes to standard output, messages go to standard error.\n"
    ".PP\n"
    "A model is a checkpoint directory (safetensors of Hugging Face or MLX, or the packed layout\n"
    "of \\fBmoeflux convert\\fR), a GGUF file, or \\fIorg/name\\fR in the local Hugging Face\n"
    "cache; without one, a small model that comes with the program is used.\n";

static const char tail[] = ".SH EXIT STATUS\n"
                           ".TP\n.B 0\nDone.\n"
                           ".TP\n.B 1\nThe work failed; a message says why.\n"
                           ".TP\n.B 2\nWrong usage.\n"
                           ".TP\n.B 130\nInterrupted.\n"
                           ".SH ENVIRONMENT\n"
                           ".TP\n.B HF_HUB_CACHE, HF_HOME\nWhere the Hugging Face cache lies.\n"
                           ".TP\n.B NO_COLOR\nNo colours on a terminal.\n";

void manual_write_page(FILE *out)
{
    const struct option_group *all = NULL;

    fprintf(out, ".TH MOEFLUX 1 \"\" \"moeflux %s\" \"User Commands\"\n", mf_version());
    fputs(head, out);
    fputs(".SH COMMANDS\n", out);
    for (size_t i = 0; command_at(i); i++) {
        write_command(out, command_at(i));
        if (!command_at(i)->opens_no_model) all = command_common_group(command_at(i));
    }
    fputs(".SH COMMON OPTIONS\nThese can be given to every command; those about models only to "
          "commands that open one.\n",
          out);
    if (all) write_options(out, all);
    fputs(tail, out);
}
