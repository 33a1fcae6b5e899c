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

static void write_group(FILE *out, const struct option_group *group)
{
    fputs(".SH \"", out);
    for (const char *at = group->title; *at; at++) fputc(toupper((unsigned char)*at), out);
    fputs("\"\n", out);
    write_options(out, group);
}

static void write_examples(FILE *out, const char *examples)
{
    fputs(".SH EXAMPLES\n.nf\n", out);
    write_text(out, examples);
    fputs(".fi\n", out);
}

/* A sentence: a summary has no full stop. */
static void write_summary(FILE *out, const char *summary)
{
    fputc(toupper((unsigned char)summary[0]), out);
    write_text(out, summary + 1);
    fputs(strchr(".?!", summary[strlen(summary) - 1]) ? "\n" : ".\n", out);
}

static void write_title(FILE *out, const struct command *command)
{
    fputs(".TH MOEFLUX", out);
    if (command) {
        fputs("\\-", out);
        for (const char *at = command->name; *at; at++) fputc(toupper((unsigned char)*at), out);
    }
    fprintf(out, " 1 \"\" \"moeflux %s\" \"User Commands\"\n.SH NAME\n", mf_version());
}

static const char statuses[] = ".SH EXIT STATUS\n"
                               ".TP\n.B 0\nDone.\n"
                               ".TP\n.B 1\nThe work failed; a message says why.\n"
                               ".TP\n.B 2\nWrong usage.\n"
                               ".TP\n.B 130\nInterrupted.\n";

void manual_write_page(FILE *out, const struct command *command)
{
    write_title(out, command);
    fprintf(out, "moeflux\\-%s \\- ", command->name);
    write_text(out, command->summary);
    fprintf(out, "\n.SH SYNOPSIS\n.B moeflux %s\n[\\fIoptions\\fR]", command->name);
    if (command->arguments) {
        fputc(' ', out);
        write_text(out, command->arguments);
    }
    fputs("\n.SH DESCRIPTION\n", out);
    write_summary(out, command->summary);
    if (command->notes) {
        fputs(".PP\n", out);
        write_text(out, command->notes);
        fputc('\n', out);
    }
    for (size_t i = 0; i < command->group_count; i++) write_group(out, &command->groups[i]);
    write_group(out, command_common_group(command));
    if (command->examples) write_examples(out, command->examples);
    fputs(statuses, out);
    fputs(".SH SEE ALSO\n.BR moeflux (1)\n", out);
}

static const char head[] =
    "moeflux \\- runs mixture\\-of\\-experts language models that are bigger than memory\n"
    ".SH SYNOPSIS\n"
    ".B moeflux\n"
    "\\fICOMMAND\\fR [\\fIoptions\\fR] [\\fIarguments\\fR]\n"
    ".br\n"
    ".B moeflux help\n"
    "[\\fICOMMAND\\fR]\n"
    ".SH DESCRIPTION\n"
    "moeflux keeps the weights that every token uses in memory, streams the experts that the\n"
    "routers choose from disk, and keeps the popular ones in a cache of the size that\n"
    ".B \\-\\-memory\n"
    "allows. Data goes to standard output, messages go to standard error.\n"
    ".PP\n"
    "A model is a checkpoint directory (safetensors of Hugging Face or MLX, or the packed layout\n"
    "of \\fBmoeflux convert\\fR), a GGUF file, or \\fIorg/name\\fR in the local Hugging Face\n"
    "cache; without one, a small model that comes with the program is used.\n"
    ".SH COMMANDS\n";

static const char tail[] =
    ".SH ENVIRONMENT\n"
    ".TP\n.B HF_HUB_CACHE, HF_HOME\nThe Hugging Face cache; else hub in HF_HOME, which is\n"
    ".I ~/.cache/huggingface\nby default.\n"
    ".TP\n.B HF_ENDPOINT\nThe hub; default https://huggingface.co.\n"
    ".TP\n.B HF_TOKEN\nThe token for private and gated models; else the file HF_TOKEN_PATH, else\n"
    "token in HF_HOME. It is sent to the hub only.\n"
    ".TP\n.B HF_HUB_OFFLINE\n1, true, yes or on: no network is used.\n"
    ".TP\n.B NO_COLOR\nNo colours on a terminal.\n"
    ".SH FILES\n"
    ".TP\n.I /etc/default/moeflux\nMOEFLUX_OPTIONS of the systemd unit, for\n"
    ".BR moeflux\\-serve (1).\n";

void manual_write_overview(FILE *out)
{
    write_title(out, NULL);
    fputs(head, out);
    for (size_t i = 0; command_at(i); i++) {
        fprintf(out, ".TP\n.BR moeflux\\-%s (1)\n", command_at(i)->name);
        write_summary(out, command_at(i)->summary);
    }
    fputs(statuses, out);
    fputs(tail, out);
    fputs(".SH SEE ALSO\n", out);
    for (size_t i = 0; command_at(i); i++)
        fprintf(out, ".BR moeflux\\-%s (1)%s\n", command_at(i)->name, command_at(i + 1) ? "," : "");
}
