#include "line_editor.h"

#include <locale.h>
#include <stdio.h>
#include <stdlib.h>

#ifdef HAVE_LIBEDIT

#include <fcntl.h>
#include <histedit.h>
#include <signal.h>
#include <unistd.h>

struct line_editor {
    EditLine *edit;
    History *history;
    char *history_path;
    const char *prompt;
    char *line;
    bool given_up;
};

static char *show_prompt(EditLine *edit)
{
    struct line_editor *editor;

    el_get(edit, EL_CLIENTDATA, &editor);
    return (char *)(uintptr_t)editor->prompt;
}

static unsigned char give_up(EditLine *edit, int key)
{
    struct line_editor *editor;

    (void)key;
    el_get(edit, EL_CLIENTDATA, &editor);
    editor->given_up = true;
    return CC_EOF;
}

/* Ctrl-Z as usual; libedit's own handler puts the terminal in order before and after. */
static unsigned char suspend(EditLine *edit, int key)
{
    (void)edit;
    (void)key;
    kill(0, SIGTSTP);
    return CC_REDISPLAY;
}

/* Ctrl-C is a key here, not a signal: libedit goes on reading after a signal. */
static void set_up_keys(struct line_editor *editor)
{
    EditLine *edit = editor->edit;

    el_set(edit, EL_CLIENTDATA, editor);
    el_set(edit, EL_PROMPT_ESC, show_prompt, '\1');
    el_set(edit, EL_EDITOR, "emacs");
    el_set(edit, EL_SIGNAL, 1); /* suspend, continue and resize */
    el_set(edit, EL_SETTY, "-d", "-isig", NULL);
    /* The wide form keeps the strings it is given; the other one copies and never frees. */
    el_wset(edit, EL_ADDFN, L"give-up", L"give up the line", give_up);
    el_wset(edit, EL_ADDFN, L"suspend", L"stop the program for a while", suspend);
    el_set(edit, EL_BIND, "^C", "give-up", NULL);
    el_set(edit, EL_BIND, "^Z", "suspend", NULL);
    el_set(edit, EL_BIND, "^R", "em-inc-search-prev", NULL);
    el_source(edit, NULL); /* the user's ~/.editrc */
}

struct line_editor *line_editor_new(const char *history_path)
{
    struct line_editor *editor = calloc(1, sizeof *editor);
    HistEvent event;

    if (!editor) return NULL;
    setlocale(LC_CTYPE, ""); /* so that a character is one step of the cursor */
    editor->edit = el_init("moeflux", stdin, stdout, stderr);
    editor->history = history_init();
    if (history_path) editor->history_path = strdup(history_path);
    if (!editor->edit || !editor->history) {
        line_editor_free(editor);
        return NULL;
    }
    set_up_keys(editor);
    history(editor->history, &event, H_SETSIZE, 1000);
    history(editor->history, &event, H_SETUNIQUE, 1);
    if (editor->history_path) history(editor->history, &event, H_LOAD, editor->history_path);
    el_set(editor->edit, EL_HIST, history, editor->history);
    return editor;
}

/* What somebody typed is nobody else's business: the file is the owner's alone. */
static void save_history(struct line_editor *editor)
{
    int file = open(editor->history_path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    HistEvent event;

    if (file < 0) return; /* a history that cannot be kept is no failure */
    close(file);
    history(editor->history, &event, H_SAVE, editor->history_path);
}

void line_editor_free(struct line_editor *editor)
{
    if (!editor) return;
    if (editor->history && editor->history_path) save_history(editor);
    if (editor->edit) el_end(editor->edit);
    if (editor->history) history_end(editor->history);
    free(editor->history_path);
    free(editor->line);
    free(editor);
}

enum line_result line_editor_read(struct line_editor *editor, const char *prompt, const char **line)
{
    int count = 0;
    const char *text;

    editor->prompt = prompt;
    editor->given_up = false;
    text = el_gets(editor->edit, &count);
    if (editor->given_up) {
        fputs("\n", stdout);
        return LINE_GIVEN_UP;
    }
    if (!text || count <= 0) return LINE_END;
    free(editor->line);
    editor->line = strndup(text, strcspn(text, "\n"));
    *line = editor->line ? editor->line : "";
    return LINE_READ;
}

void line_editor_remember(struct line_editor *editor, const char *text)
{
    HistEvent event;

    if (*text) history(editor->history, &event, H_ENTER, text);
}

#else

struct line_editor {
    char *line;
    size_t capacity;
};

struct line_editor *line_editor_new(const char *history_path)
{
    (void)history_path;
    return calloc(1, sizeof(struct line_editor));
}

void line_editor_free(struct line_editor *editor)
{
    if (!editor) return;
    free(editor->line);
    free(editor);
}

enum line_result line_editor_read(struct line_editor *editor, const char *prompt, const char **line)
{
    fputs(prompt, stdout);
    fflush(stdout);
    if (getline(&editor->line, &editor->capacity, stdin) < 0) return LINE_END;
    editor->line[strcspn(editor->line, "\n")] = '\0';
    *line = editor->line;
    return LINE_READ;
}

void line_editor_remember(struct line_editor *editor, const char *text)
{
    (void)editor;
    (void)text;
}

#endif
