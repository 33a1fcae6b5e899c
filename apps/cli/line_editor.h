/* line_editor.h: what is typed at a terminal, with editing and history.
 *
 * Built on libedit where it is there (HAVE_LIBEDIT); otherwise lines are read as the
 * terminal gives them.  Ctrl-C gives up the line and not the program, Ctrl-D on an
 * empty line ends the input.  Alt-Enter puts a line break into the text, and a text that is
 * pasted keeps its own: nothing is sent before Enter.  Tab completes command words and the
 * names of files. */
#ifndef CLI_LINE_EDITOR_H
#define CLI_LINE_EDITOR_H

#include "common/basics.h"

struct line_editor;

enum line_result { LINE_READ, LINE_GIVEN_UP, LINE_END };

/* `history_path` (NULL: none) is read now and written at close; it need not exist.
 * NULL: no memory. */
struct line_editor *line_editor_new(const char *history_path);

/* Words that Tab completes at the beginning of a line; `words` is borrowed. */
void line_editor_set_words(struct line_editor *editor, const char *const *words, size_t count);
void line_editor_free(struct line_editor *editor);

/* Shows `prompt` (escape sequences stand between bytes 1) and reads a text; *line is it without
 * the newline that ended it, borrowed until the next call. */
enum line_result line_editor_read(struct line_editor *editor, const char *prompt,
                                  const char **line);

/* Puts a text (of several lines, perhaps) into the history. */
void line_editor_remember(struct line_editor *editor, const char *text);

#endif
