/* manual.h: what is known of the commands, in the forms that other programs read. */
#ifndef MANUAL_MANUAL_H
#define MANUAL_MANUAL_H

#include "cli/command.h"

#include <stdio.h>

/* moeflux.1: every command with its options, then those that all share. */
void manual_write_page(FILE *out);

/* For bash: commands, their options, and the values of options that have a list of them. */
void manual_write_completion(FILE *out);

#endif
