#include "line_editor.h"

#include "terminal.h"

#include <stdio.h>
#include <stdlib.h>

#ifdef HAVE_LIBEDIT

#include <errno.h>
#include <fcntl.h>
#include <histedit.h>
#include <signal.h>
#include <sys/select.h>
#include <unistd.h>
#include <wchar.h>

/* Signals that need the terminal restored or the line redrawn.  libedit's own handlers
 * (EL_SIGNAL) allocate and print inside the handler, so it is not given them: they are blocked
 * while a line is edited, except in pselect, and read_character does the work afterwards. */
static const int edit_signals[] = { SIGWINCH, SIGCONT, SIGTSTP, SIGTERM, SIGQUIT, SIGHUP };
static volatile sig_atomic_t signal_came[COUNT_OF(edit_signals)];

struct line_editor {
    EditLine *edit;
    History *history;
    char *history_path;
    const char *prompt;
    const char *const *words; /* [word_count]: for Tab */
    size_t word_count;
    char *line;
    bool given_up;
    bool pastes; /* the terminal marks what is pasted */
    /* While a line is edited: what the signals did before, and the mask before. */
    struct sigaction old_actions[COUNT_OF(edit_signals)];
    sigset_t old_mask;
};

static void on_signal(int number)
{
    for (size_t i = 0; i < COUNT_OF(edit_signals); i++)
        if (edit_signals[i] == number) signal_came[i] = 1;
}

/* Signals that the process ignored before (nohup) stay ignored. */
static void take_signals(struct line_editor *editor)
{
    struct sigaction action = { .sa_handler = on_signal };
    sigset_t blocked;

    sigemptyset(&blocked);
    sigfillset(&action.sa_mask);
    for (size_t i = 0; i < COUNT_OF(edit_signals); i++) sigaddset(&blocked, edit_signals[i]);
    pthread_sigmask(SIG_BLOCK, &blocked, &editor->old_mask);
    for (size_t i = 0; i < COUNT_OF(edit_signals); i++) {
        signal_came[i] = 0;
        sigaction(edit_signals[i], NULL, &editor->old_actions[i]);
        if (editor->old_actions[i].sa_handler != SIG_IGN) sigaction(edit_signals[i], &action, NULL);
    }
}

static void give_signals_back(struct line_editor *editor)
{
    for (size_t i = 0; i < COUNT_OF(edit_signals); i++)
        sigaction(edit_signals[i], &editor->old_actions[i], NULL);
    pthread_sigmask(SIG_SETMASK, &editor->old_mask, NULL);
}

/* Asks the terminal to mark pasted text, or no longer to. */
static void mark_pastes(const struct line_editor *editor, bool on)
{
    if (!editor->pastes) return;
    fputs(on ? "\033[?2004h" : "\033[?2004l", stdout);
    fflush(stdout);
}

/* Draws the line again, from the start of the row where the cursor is. */
static void draw_again(const struct line_editor *editor)
{
    fputs("\r", stdout);
    fflush(stdout);
    el_set(editor->edit, EL_REFRESH);
}

/* Puts the terminal in order, lets the signal do what it did before the line was edited (stop or
 * end the process, as a rule), and returns to editing when the process goes on. */
static void deliver_signal(struct line_editor *editor, int number)
{
    mark_pastes(editor, false);
    el_set(editor->edit, EL_PREP_TERM, 0);
    give_signals_back(editor);
    raise(number);
    take_signals(editor);
    el_set(editor->edit, EL_PREP_TERM, 1);
    mark_pastes(editor, true);
    draw_again(editor);
}

static void handle_signals(struct line_editor *editor)
{
    for (size_t i = 0; i < COUNT_OF(edit_signals); i++) {
        if (!signal_came[i]) continue;
        signal_came[i] = 0;
        if (edit_signals[i] == SIGWINCH) {
            el_resize(editor->edit);
        } else if (edit_signals[i] == SIGCONT) { /* the shell may have changed the modes */
            el_set(editor->edit, EL_PREP_TERM, 0);
            el_set(editor->edit, EL_PREP_TERM, 1);
            draw_again(editor);
        } else {
            deliver_signal(editor, edit_signals[i]);
        }
    }
}

/* Waits for a byte of the terminal: 1, 0 at the end of the input, -1 where it cannot be read. */
static int read_byte(struct line_editor *editor, char *byte)
{
    for (;;) {
        fd_set ready;
        FD_ZERO(&ready);
        FD_SET(STDIN_FILENO, &ready);
        handle_signals(editor);
        int found = pselect(STDIN_FILENO + 1, &ready, NULL, NULL, NULL, &editor->old_mask);
        if (found < 0 && errno != EINTR) return -1;
        if (found <= 0) continue;
        ssize_t got = read(STDIN_FILENO, byte, 1);
        if (got >= 0) return (int)got;
        if (errno != EINTR && errno != EAGAIN) return -1;
    }
}

/* EL_GETCFN: the next character of the locale; bytes that are none are dropped. */
static int read_character(EditLine *edit, wchar_t *out)
{
    struct line_editor *editor;
    mbstate_t decoder = { 0 };
    char byte;

    el_get(edit, EL_CLIENTDATA, &editor);
    for (;;) {
        int got = read_byte(editor, &byte);
        if (got != 1) return got;
        size_t length = mbrtowc(out, &byte, 1, &decoder);
        if (length <= 1) return 1;
        if (length == (size_t)-1) decoder = (mbstate_t){ 0 };
    }
}

static bool terminal_takes_escapes(void)
{
    const char *term = getenv("TERM");

    return isatty(STDOUT_FILENO) && term && *term && strcmp(term, "dumb") != 0;
}

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
    el_push(edit, "\n"); /* ends the line below its last row, wherever the cursor is */
    return CC_NORM;
}

/* Ctrl-Z stops the whole job, as the terminal would; read_character puts the terminal in order. */
static unsigned char suspend(EditLine *edit, int key)
{
    (void)edit;
    (void)key;
    kill(0, SIGTSTP);
    return CC_NORM;
}

/* A line break inside the text. */
static unsigned char break_line(EditLine *edit, int key)
{
    (void)key;
    return el_insertstr(edit, "\n") == 0 ? CC_REFRESH : CC_ERROR;
}

/* The terminal says that a text is being pasted: all of it up to the mark of its end. */
static unsigned char paste(EditLine *edit, int key)
{
    static const wchar_t end[] = L"\033[201~";
    size_t matched = 0, length = 0, capacity = 256;
    wchar_t c, *text = malloc(capacity * sizeof *text);
    bool good = text != NULL;

    (void)key;
    while (good && matched < COUNT_OF(end) - 1 && el_wgetc(edit, &c) == 1) {
        matched = c == end[matched] ? matched + 1 : c == end[0];
        if (c == L'\r') c = L'\n';
        if (matched > 0 || (c < L' ' && c != L'\n' && c != L'\t')) continue;
        if (length + 1 == capacity) {
            wchar_t *grown = realloc(text, 2 * capacity * sizeof *text);
            good = grown != NULL;
            if (!good) break;
            text = grown;
            capacity *= 2;
        }
        text[length++] = c;
    }
    while (length > 0 && text[length - 1] == L'\n') length--; /* Enter is the user's */
    if (good) {
        text[length] = L'\0';
        good = length == 0 || el_winsertstr(edit, text) == 0;
    }
    free(text);
    return good ? CC_REFRESH : CC_ERROR;
}

/* Tab: the rest of a word at the beginning of the line, or the name of a file. */
static unsigned char complete(EditLine *edit, int key)
{
    struct line_editor *editor;
    const LineInfo *line = el_line(edit);
    size_t typed = (size_t)(line->cursor - line->buffer), common = 0;
    const char *found = NULL;

    el_get(edit, EL_CLIENTDATA, &editor);
    if (memchr(line->buffer, ' ', typed)) return _el_fn_complete(edit, key);
    for (size_t i = 0; i < editor->word_count && typed > 0; i++) {
        const char *word = editor->words[i];
        if (strncmp(word, line->buffer, typed) != 0) continue;
        if (!found) {
            found = word;
            common = strlen(word);
        } else {
            size_t same = typed;
            while (word[same] && word[same] == found[same]) same++;
            common = min_size(common, same);
        }
    }
    if (!found || common == typed) return CC_ERROR;
    char rest[64];
    bool whole = found[common] == '\0';
    snprintf(rest, sizeof rest, "%.*s%s", (int)(common - typed), found + typed, whole ? " " : "");
    return el_insertstr(edit, rest) == 0 ? CC_REFRESH : CC_ERROR;
}

/* Ctrl-C is a key here, not a signal: libedit goes on reading after a signal. */
static void set_up_keys(struct line_editor *editor)
{
    EditLine *edit = editor->edit;

    el_set(edit, EL_CLIENTDATA, editor);
    el_set(edit, EL_PROMPT_ESC, show_prompt, '\1');
    el_set(edit, EL_EDITOR, "emacs");
    el_wset(edit, EL_GETCFN, read_character);
    el_set(edit, EL_SETTY, "-d", "-isig", NULL);
    /* The wide form keeps the strings it is given; the other one copies and never frees. */
    el_wset(edit, EL_ADDFN, L"give-up", L"give up the line", give_up);
    el_wset(edit, EL_ADDFN, L"suspend", L"stop the program for a while", suspend);
    el_wset(edit, EL_ADDFN, L"break-line", L"put in a line break", break_line);
    el_wset(edit, EL_ADDFN, L"paste", L"take a pasted text", paste);
    el_wset(edit, EL_ADDFN, L"complete", L"complete a command or file", complete);
    el_set(edit, EL_BIND, "^C", "give-up", NULL);
    el_set(edit, EL_BIND, "^I", "complete", NULL);
    el_set(edit, EL_BIND, "\\e^M", "break-line", NULL); /* Alt-Enter */
    el_set(edit, EL_BIND, "\\e^J", "break-line", NULL);
    el_set(edit, EL_BIND, "\\e[200~", "paste", NULL);
    el_set(edit, EL_BIND, "^Z", "suspend", NULL);
    el_set(edit, EL_BIND, "^R", "em-inc-search-prev", NULL);
    el_source(edit, NULL); /* the user's ~/.editrc */
}

struct line_editor *line_editor_new(const char *history_path)
{
    struct line_editor *editor = calloc(1, sizeof *editor);
    HistEvent event;

    if (!editor) return NULL;
    terminal_set_locale(); /* so that a character is one step of the cursor */
    editor->edit = el_init("moeflux", stdin, stdout, stderr);
    editor->history = history_init();
    if (history_path) editor->history_path = strdup(history_path);
    if (!editor->edit || !editor->history) {
        line_editor_free(editor);
        return NULL;
    }
    set_up_keys(editor);
    editor->pastes = terminal_takes_escapes();
    history(editor->history, &event, H_SETSIZE, 1000);
    history(editor->history, &event, H_SETUNIQUE, 1);
    if (editor->history_path) history(editor->history, &event, H_LOAD, editor->history_path);
    el_set(editor->edit, EL_HIST, history, editor->history);
    return editor;
}

/* Mode 0600: other users must not read what was typed. */
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

void line_editor_set_words(struct line_editor *editor, const char *const *words, size_t count)
{
    editor->words = words;
    editor->word_count = count;
}

enum line_result line_editor_read(struct line_editor *editor, const char *prompt, const char **line)
{
    int count = 0;
    const char *text;

    editor->prompt = prompt;
    editor->given_up = false;
    take_signals(editor);
    mark_pastes(editor, true);
    text = el_gets(editor->edit, &count);
    mark_pastes(editor, false);
    give_signals_back(editor);
    if (editor->given_up) return LINE_GIVEN_UP;
    if (!text || count <= 0) return LINE_END;
    free(editor->line);
    editor->line = strndup(text, strlen(text) - (text[strlen(text) - 1] == '\n'));
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

void line_editor_set_words(struct line_editor *editor, const char *const *words, size_t count)
{
    (void)editor;
    (void)words;
    (void)count;
}

enum line_result line_editor_read(struct line_editor *editor, const char *prompt, const char **line)
{
    for (; *prompt; prompt++)
        if (*prompt != '\1') putchar(*prompt);
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
