/* chat_loop.h: chat in the terminal.
 *
 *     > a line is a message; \ at its end continues it on the next line
 *     > """
 *     … everything up to the closing """ is one message
 *     > /help
 *
 * Ctrl-C during an answer ends it; the conversation keeps the part generated so far.  Ctrl-D ends
 * the program. */
#ifndef CLI_CHAT_LOOP_H
#define CLI_CHAT_LOOP_H

#include "runner.h"

/* Runs until the end of input or /quit; returns the exit status. */
int chat_loop(struct runner *runner);

#endif
