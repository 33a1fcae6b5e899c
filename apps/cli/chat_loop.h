/* chat_loop.h: talking with a model in the terminal.
 *
 *     > a line is a message; \ at its end goes on in the next one
 *     > """
 *     … everything up to the closing """ is one message
 *     > /help
 *
 * Ctrl-C while the model writes ends the answer, which stays in the conversation as far
 * as it came; Ctrl-D ends the program. */
#ifndef CLI_CHAT_LOOP_H
#define CLI_CHAT_LOOP_H

#include "runner.h"

/* Until the end of input or /quit; returns the exit status. */
int chat_loop(struct runner *runner);

#endif
