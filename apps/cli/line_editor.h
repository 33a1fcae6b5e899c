/* line_editor.h: lines typed at a terminal, with editing and history.
 *
 * Built on libedit where it is there (HAVE_LIBEDIT); otherwise lines are read as the
 * terminal gives them.  Ctrl-C gives up the line and not the program, Ctrl-D on an
 * empty line ends the input. */
#ifndef CLI_LINE_EDITOR_H
#define CLI_LINE_EDITOR_H

#include "base/common.h"

struct line_editor;

enum line_result { LINE_READ, LINE_GIVEN_UP, LINE_END };

/* `history_path` (NULL: none) is read now and written at close; it need not exist.
 * NULL: no memory. */
struct line_editor *line_editor_new(const char *history_path);
void line_editor_free(struct line_editor *editor);

/* Shows `prompt` and reads one line; *line is it without its newline, borrowed until the
 * next call. */
enum line_result line_editor_read(struct line_editor *editor, const char *prompt,
                                  const char **line);

/* Puts a text (of several lines, perhaps) into the history. */
void line_editor_remember(struct line_editor *editor, const char *text);

#endif
