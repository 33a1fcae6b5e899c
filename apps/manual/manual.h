/* manual.h: what is known of the commands, in the forms that other programs read.  All of it follows
 * from the tables of commands and options; nothing here has a list of its own. */
#ifndef MANUAL_MANUAL_H
#define MANUAL_MANUAL_H

#include "cli/command.h"

#include <stdio.h>

/* moeflux.1: what the program is for, and its commands, a line each. */
void manual_write_overview(FILE *out);

/* moeflux-<name>.1: everything that `moeflux <name> --help` shows. */
void manual_write_page(FILE *out, const struct command *command);

/* Completions: commands, their options, and the values of options that have a list of them. */
void manual_write_bash(FILE *out);
void manual_write_zsh(FILE *out);
void manual_write_fish(FILE *out);

#endif
