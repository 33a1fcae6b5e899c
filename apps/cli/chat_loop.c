#include "chat_loop.h"

#include "generation.h"
#include "line_editor.h"
#include "statistics.h"

#include "common/basics.h"
#include "common/error.h"

#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/stat.h>

enum { PATH_BYTES_MAX = 4096 };

struct chat_command {
    const char *name;
    const char *alias;    /* a second name, or NULL */
    const char *argument; /* its name in the help, or NULL: takes none */
    const char *help;
    bool (*run)(struct runner *runner, const char *argument); /* false: end the chat */
    bool destructive; /* discards messages: not suggested for a mistyped name */
};

/* Prints a dim line: a notice of the program, not part of the conversation. */
static void say(const struct runner *runner, const char *format, ...) MF_PRINTF(2, 3);

static void say(const struct runner *runner, const char *format, ...)
{
    char text[2048];
    va_list values;

    va_start(values, format);
    vsnprintf(text, sizeof text, format, values);
    va_end(values);
    fputs(terminal_style(runner->terminal.colour_out, STYLE_DIM), stdout);
    visible_print(stdout, text);
    printf("%s\n", terminal_style(runner->terminal.colour_out, STYLE_PLAIN));
}

/* ---------------------------------------------------------------- commands */

static bool command_help(struct runner *runner, const char *argument);

static bool command_system(struct runner *runner, const char *argument)
{
    if (!conversation_set_system(&runner->conversation, argument)) {
        say(runner, "that is not UTF-8");
    } else {
        say(runner, *argument ? "the system message is set" : "there is no system message now");
    }
    return true;
}

static bool command_think(struct runner *runner, const char *argument)
{
    (void)argument;
    runner->conversation.thinking = THINKING_ON;
    say(runner, "the model may think first");
    return true;
}

static bool command_nothink(struct runner *runner, const char *argument)
{
    (void)argument;
    runner->conversation.thinking = THINKING_OFF;
    say(runner, "the model answers at once");
    return true;
}

static bool command_fold(struct runner *runner, const char *argument)
{
    (void)argument;
    if (runner->view == REASONING_SHOW) {
        runner->view = REASONING_FOLD;
        say(runner, "reasoning is folded into a line");
    } else {
        runner->view = REASONING_SHOW;
        say(runner, "reasoning is shown");
    }
    return true;
}

/* Replaces a leading ~/ by the home directory, as a shell would.  Returns `out`, or `path` if
 * there is nothing to replace. */
static const char *expand_home(char out[PATH_BYTES_MAX], const char *path)
{
    const char *home = getenv("HOME");

    if (path[0] != '~' || path[1] != '/' || !home) return path;
    return snprintf(out, PATH_BYTES_MAX, "%s%s", home, path + 1) < PATH_BYTES_MAX ? out : path;
}

static bool command_save(struct runner *runner, const char *argument)
{
    char path[PATH_BYTES_MAX];
    struct output_file file;
    json_t *saved;
    mf_error why = { .text = "" };
    mf_status status;

    if (!*argument) {
        say(runner, "where to? /save FILE");
        return true;
    }
    argument = expand_home(path, argument);
    saved = json_pack("{s:s,s:O}", "model", mf_model_name(runner->opened.model), "messages",
                      runner->conversation.messages);
    status = output_file_open(&file, argument, &why);
    if (status == MF_OK) {
        json_dumpf(saved, file.stream, JSON_INDENT(1));
        fputc('\n', file.stream);
        status = output_file_commit(&file, &why);
    }
    json_decref(saved);
    if (status == MF_OK) {
        say(runner, "saved: %zu messages", json_array_size(runner->conversation.messages));
    } else {
        say(runner, "%s", why.text);
    }
    return true;
}

/* Messages as a template expects them: objects with a role. */
static mf_status check_messages(const json_t *messages, const char *where, mf_error *why)
{
    const json_t *message;
    size_t i;

    if (!json_is_array(messages)) {
        return fail(why, MF_ERR_FORMAT, "%.200s has no \"messages\"", where);
    }
    json_array_foreach(messages, i, message)
    {
        if (!json_is_string(json_object_get(message, "role"))) {
            return fail(why, MF_ERR_FORMAT, "%.200s: message %zu has no \"role\"", where, i + 1);
        }
    }
    return MF_OK;
}

static bool command_load(struct runner *runner, const char *argument)
{
    char path[PATH_BYTES_MAX];
    json_t *saved = NULL, *messages;
    char *text = NULL;
    size_t length = 0;
    mf_error why = { .text = "" };
    mf_status status;

    if (!*argument) {
        say(runner, "which file? /load FILE");
        return true;
    }
    argument = expand_home(path, argument);
    status = input_read_new(&text, &length, argument, &why);
    if (status == MF_OK) status = json_text_read_new(&saved, text, length, argument, &why);
    free(text);
    messages = json_object_get(saved, "messages");
    if (status == MF_OK) status = check_messages(messages, argument, &why);
    if (status == MF_OK) {
        json_decref(runner->conversation.messages);
        runner->conversation.messages = json_incref(messages);
        say(runner, "loaded: %zu messages", json_array_size(messages));
    } else {
        say(runner, "%s", why.text);
    }
    json_decref(saved);
    return true;
}

static void answer_last(struct runner *runner, size_t before);

/* The number of tool calls of the last answer that have no result yet. */
static size_t unanswered_calls(const struct conversation *conversation)
{
    size_t count = json_array_size(conversation->messages), results = 0;

    for (size_t i = count; i > 0; i--) {
        const json_t *message = json_array_get(conversation->messages, i - 1);
        const char *role = json_string_value(json_object_get(message, "role"));
        if (role && strcmp(role, "tool") == 0) {
            results++;
            continue;
        }
        size_t calls = json_array_size(json_object_get(message, "tool_calls"));
        return calls > results ? calls - results : 0;
    }
    return 0;
}

/* Adds the result of a tool call; generation continues when every call has its result. */
static bool command_tool(struct runner *runner, const char *argument)
{
    size_t before = json_array_size(runner->conversation.messages), left;

    if (!conversation_add(&runner->conversation, "tool", argument, strlen(argument))) {
        say(runner, "that is not UTF-8");
        return true;
    }
    left = unanswered_calls(&runner->conversation);
    if (left > 0)
        say(runner, "(%zu more to come: /tool TEXT, in the order of the calls)", left);
    else
        answer_last(runner, before);
    return true;
}

/* Index of the last user message; the number of messages if there is none. */
static size_t last_user_message(const struct conversation *conversation)
{
    size_t count = json_array_size(conversation->messages);

    for (size_t i = count; i > 0; i--) {
        const json_t *message = json_array_get(conversation->messages, i - 1);
        const char *role = json_string_value(json_object_get(message, "role"));
        if (role && strcmp(role, "user") == 0) return i - 1;
    }
    return count;
}

/* Removes the messages from index `first` on. */
static void drop_messages(struct conversation *conversation, size_t first)
{
    while (json_array_size(conversation->messages) > first) {
        json_array_remove(conversation->messages, json_array_size(conversation->messages) - 1);
    }
}

static bool command_undo(struct runner *runner, const char *argument)
{
    struct conversation *conversation = &runner->conversation;
    size_t last = last_user_message(conversation);

    (void)argument;
    if (last == json_array_size(conversation->messages)) {
        say(runner, "there is nothing to take back");
        return true;
    }
    drop_messages(conversation, last);
    say(runner, "the last question and its answer are forgotten");
    return true;
}

static bool command_retry(struct runner *runner, const char *argument)
{
    struct conversation *conversation = &runner->conversation;
    size_t last = last_user_message(conversation);

    (void)argument;
    if (last == json_array_size(conversation->messages)) {
        say(runner, "there is no question to answer again");
        return true;
    }
    drop_messages(conversation, last + 1);
    interrupt_begin();
    answer_last(runner, last);
    interrupt_end();
    return true;
}

static void show_sampling(const struct runner *runner)
{
    const mf_sampler_options *s = &runner->sampling;

    say(runner,
        "temp %g, top-k %u, top-p %g, min-p %g, typical-p %g, repetition-penalty %g, "
        "frequency-penalty %g, presence-penalty %g, dry %g",
        (double)s->temperature, s->top_k, (double)s->top_p, (double)s->min_p, (double)s->typical_p,
        (double)s->repetition_penalty, (double)s->frequency_penalty, (double)s->presence_penalty,
        (double)s->dry_multiplier);
}

/* "temp 0.5": sets a sampling option of the command line for all later answers. */
static bool command_set(struct runner *runner, const char *argument)
{
    const struct option_group group = { "sampling", sampling_options, SAMPLING_OPTION_COUNT, 0 };
    struct sampling_settings settings = { 0 };
    struct arguments rest = { NULL, 0 };
    mf_error why = { .text = "" };
    char name[64], value[64], option[72];
    char *words[] = { option, value };

    if (!*argument) {
        show_sampling(runner);
        return true;
    }
    if (sscanf(argument, "%63s %63s", name, value) != 2) {
        say(runner, "/set NAME VALUE, as in /set temp 0.5; /set alone shows the values");
        return true;
    }
    snprintf(option, sizeof option, "--%s", name);
    if (strcmp(name, "stop") == 0 || strcmp(name, "logit-bias") == 0) {
        say(runner, "%s is for the command line", option);
    } else if (options_parse(&settings, &rest, &group, 1, words, 2, &why) != PARSE_DONE) {
        say(runner, "%s", why.text[0] ? why.text : "/set NAME VALUE");
    } else {
        sampling_apply(&runner->sampling, &settings);
        say(runner, "%s is %s now", name, value);
    }
    return true;
}

static bool command_stats(struct runner *runner, const char *argument)
{
    (void)argument;
    fflush(stdout);
    statistics_print(&runner->opened);
    say(runner, "%u of %u positions of the context are used",
        mf_sequence_position(runner->opened.sequence),
        mf_sequence_context_length(runner->opened.sequence));
    return true;
}

static bool command_reset(struct runner *runner, const char *argument)
{
    (void)argument;
    conversation_clear(&runner->conversation);
    say(runner, "the conversation is empty");
    return true;
}

static bool command_quit(struct runner *runner, const char *argument)
{
    (void)runner;
    (void)argument;
    return false;
}

static const struct chat_command chat_commands[] = {
    { "/help", "/?", NULL, "this list", command_help, false },
    { "/system", NULL, "TEXT", "set the system message; without TEXT remove it", command_system,
      false },
    { "/think", NULL, NULL, "let the model reason before it answers", command_think, false },
    { "/nothink", NULL, NULL, "let it answer at once", command_nothink, false },
    { "/fold", NULL, NULL, "fold reasoning into a line, or show it again", command_fold, false },
    { "/set", NULL, "NAME VALUE", "set a sampling option, as in temp 0.5; alone: show them",
      command_set, false },
    { "/retry", NULL, NULL, "answer the last question again", command_retry, true },
    { "/undo", NULL, NULL, "forget the last question and its answer", command_undo, true },
    { "/save", NULL, "FILE", "write the conversation to a file", command_save, false },
    { "/load", NULL, "FILE", "continue a saved conversation", command_load, true },
    { "/tool", NULL, "TEXT", "give the result of a tool call", command_tool, false },
    { "/stats", NULL, NULL, "speed and experts of the last answer", command_stats, false },
    { "/reset", "/clear", NULL, "forget the conversation, keep the system message", command_reset,
      true },
    { "/quit", "/bye", NULL, "leave", command_quit, true },
};

static bool command_help(struct runner *runner, const char *argument)
{
    (void)runner;
    (void)argument;
    for (size_t i = 0; i < COUNT_OF(chat_commands); i++) {
        const struct chat_command *command = &chat_commands[i];
        char name[32];
        snprintf(name, sizeof name, "%s %s", command->name,
                 command->argument ? command->argument : "");
        printf("  %-18s %s\n", name, command->help);
    }
    printf("  %-18s %s\n", "\\ at a line's end", "the message continues on the next line");
    printf("  %-18s %s\n", "\"\"\"", "begins and ends a message of several lines");
    printf("  %-18s %s\n", "Alt-Enter", "a line break in the message; pasted ones are kept");
    printf("  %-18s %s\n", "Tab", "completes commands and file names");
    printf("  %-18s %s\n", "Ctrl-C", "ends the answer");
    printf("  %-18s %s\n", "Ctrl-D", "leaves");
    return true;
}

/* A word that starts with the line's only slash: "/load x" is a command, a path such as
 * "/etc/hosts" is text. */
static bool is_chat_command(const char *line)
{
    size_t length = strcspn(line, " \t\n");

    return *line == '/' && !memchr(line + 1, '/', length - 1);
}

/* Whether the first `length` bytes of `line` equal `word`; false if `word` is NULL. */
static bool is_word(const char *line, size_t length, const char *word)
{
    return word && strlen(word) == length && strncmp(word, line, length) == 0;
}

static bool run_chat_command(struct runner *runner, const char *line)
{
    const char *names[COUNT_OF(chat_commands)];
    size_t length = strcspn(line, " \t"), near;
    char typed[32];

    for (size_t i = 0; i < COUNT_OF(chat_commands); i++) {
        const struct chat_command *command = &chat_commands[i];
        names[i] = command->name;
        if (!is_word(line, length, command->name) && !is_word(line, length, command->alias))
            continue;
        return command->run(runner, line + length + strspn(line + length, " \t"));
    }
    snprintf(typed, sizeof typed, "%.*s", (int)length, line);
    near = nearest_name(typed, names, COUNT_OF(chat_commands));
    bool suggest = near < COUNT_OF(chat_commands) && !chat_commands[near].destructive;
    say(runner, "there is no command %s; %s %s", typed, suggest ? "did you mean" : "try",
        suggest ? names[near] : "/help");
    return true;
}

/* ------------------------------------------------------------------- turns */

/* Positions to keep free for an answer: older turns are dropped until that many are. */
static size_t answer_positions(const struct runner *runner)
{
    return min_size(mf_sequence_context_length(runner->opened.sequence) / 4, 256);
}

/* Removes the oldest turn, a user message and all up to the next one, and adds the number of
 * messages to *dropped.  Returns false, changing nothing, if it is the only turn. */
static bool drop_oldest_turn(struct conversation *conversation, size_t *dropped)
{
    size_t first = conversation_first(conversation), end = first + 1;
    const size_t count = json_array_size(conversation->messages);

    for (; end < count; end++) {
        const json_t *message = json_array_get(conversation->messages, end);
        const char *role = json_string_value(json_object_get(message, "role"));
        if (role && strcmp(role, "user") == 0) break;
    }
    if (end >= count) return false;
    for (size_t i = first; i < end; i++) json_array_remove(conversation->messages, first);
    *dropped += end - first;
    return true;
}

/* Renders the conversation.  While the prompt leaves too little of the context for an answer, the
 * oldest turn is removed, unless --no-trim was given. */
static mf_status render_trimmed_new(mf_prompt **out, struct runner *runner, mf_error *why)
{
    size_t context = mf_sequence_context_length(runner->opened.sequence), count, dropped = 0;
    mf_status status = conversation_render_new(out, &runner->conversation, why);

    while (status == MF_OK && !runner->settings->no_trim && runner->conversation.has_template) {
        mf_prompt_tokens(*out, &count);
        if (count + answer_positions(runner) <= context) break;
        if (!drop_oldest_turn(&runner->conversation, &dropped)) break;
        mf_prompt_close(*out);
        status = conversation_render_new(out, &runner->conversation, why);
    }
    if (dropped > 0) {
        say(runner,
            "(the context is full: the %zu oldest messages are dropped; -c makes it larger)",
            dropped);
    }
    return status;
}

/* Generates an answer and appends it to the conversation, also if it was cut short. */
static mf_status take_turn(struct runner *runner, enum generation_end *end, mf_error *why)
{
    bool raw = !runner->conversation.has_template;
    mf_prompt *prompt = NULL;
    mf_status status = render_trimmed_new(&prompt, runner, why);

    if (status == MF_OK) status = runner_answer(runner, prompt, raw, end, why);
    mf_prompt_close(prompt);
    if (status != MF_OK) return status;
    return answer_message_append(&runner->answer, runner->conversation.messages, why);
}

/* Answers the last message.  After a failure only the first `before` messages are kept, so that
 * the user can send the message again. */
static void answer_last(struct runner *runner, size_t before)
{
    enum generation_end end = END_OF_TEXT;
    json_t *messages = runner->conversation.messages;
    json_t *kept = json_copy(messages);
    mf_error why = { .text = "" };
    struct run_statistics stats;

    statistics_reset(&runner->opened);
    if (take_turn(runner, &end, &why) != MF_OK) {
        json_array_clear(messages); /* trimming may have removed some */
        json_array_extend(messages, kept);
        while (json_array_size(messages) > before) json_array_remove(messages, before);
        json_decref(kept);
        say(runner, "%s", why.text);
        return;
    }
    json_decref(kept);
    fflush(stdout);
    if (end == END_BY_INTERRUPT) say(runner, "(stopped)");
    if (end == END_OF_CONTEXT) say(runner, "(the context is full; /reset, or more with -c)");
    if (end == END_OF_COUNT) say(runner, "(stopped after %zu tokens: -n)", runner->answer_tokens);
    statistics_read(&stats, &runner->opened);
    if (!runner->settings->quiet)
        statistics_print_line(&stats, runner->answer_tokens, &runner->terminal);
    if (runner->answer.calls) say(runner, "(/tool TEXT gives the result of a call)");
    putchar('\n'); /* an empty line between turns */
}

static void answer_message(struct runner *runner, const char *text)
{
    size_t before = json_array_size(runner->conversation.messages);

    if (conversation_add(&runner->conversation, "user", text, strlen(text))) {
        answer_last(runner, before);
    } else {
        say(runner, "that is not UTF-8");
    }
}

/* ------------------------------------------------------------------- lines */

/* Reads a message: one line, lines continued by a final \, or lines between """ and """.  The
 * caller frees it with free().  NULL: *result is LINE_GIVEN_UP or LINE_END. */
static char *read_message_new(struct line_editor *editor, const char *prompt,
                              enum line_result *result)
{
    char *text = NULL;
    size_t size = 0;
    FILE *stream = open_memstream(&text, &size);
    bool quoted = false, more = true, first = true;
    const char *line;

    *result = LINE_END;
    while (stream && more) {
        *result = line_editor_read(editor, first ? prompt : "… ", &line);
        if (*result != LINE_READ) break;
        size_t length = strlen(line);
        if (first && strcmp(line, "\"\"\"") == 0) {
            quoted = true;
        } else if (quoted && strcmp(line, "\"\"\"") == 0) {
            more = false;
        } else {
            bool goes_on = !quoted && length > 0 && line[length - 1] == '\\';
            fwrite(line, 1, length - goes_on, stream);
            if (goes_on || quoted) fputc('\n', stream);
            more = goes_on || quoted;
        }
        first = false;
    }
    if (stream) fclose(stream);
    if (*result == LINE_READ) return text;
    free(text);
    return NULL;
}

/* $XDG_STATE_HOME/moeflux/history, else ~/.local/state/moeflux/history; creates the directories.
 * False: neither variable is set, or a directory cannot be made. */
static bool history_path(char out[PATH_BYTES_MAX])
{
    const char *state = getenv("XDG_STATE_HOME"), *home = getenv("HOME");
    char *slash;
    int used;

    if (state && *state) {
        used = snprintf(out, PATH_BYTES_MAX, "%s/moeflux/history", state);
    } else if (home && *home) {
        used = snprintf(out, PATH_BYTES_MAX, "%s/.local/state/moeflux/history", home);
    } else {
        return false;
    }
    if (used >= PATH_BYTES_MAX) return false;
    for (slash = strchr(out + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        bool made = mkdir(out, 0700) == 0 || errno == EEXIST;
        *slash = '/';
        if (!made) return false;
    }
    return true;
}

/* Runs a command or answers a message.  False: the chat ends. */
static bool take_message(struct runner *runner, struct line_editor *editor, const char *text)
{
    const char *start = text + strspn(text, " \t\n");

    if (!*start) return true;
    line_editor_remember(editor, text);
    if (is_chat_command(start)) {
        char *line = strdup(start); /* trimmed below: completion appends a space */
        bool goes_on = true;
        if (line) {
            size_t length = strlen(line);
            while (length > 0 && strchr(" \t\n", line[length - 1])) line[--length] = '\0';
            goes_on = run_chat_command(runner, line);
        }
        free(line);
        return goes_on;
    }
    interrupt_begin(); /* turns echo off, else keys typed during prefill appear in the answer */
    answer_message(runner, text);
    interrupt_end();
    return !output_is_lost();
}

int chat_loop(struct runner *runner)
{
    char path[PATH_BYTES_MAX];
    struct line_editor *editor = line_editor_new(history_path(path) ? path : NULL);
    const char *words[COUNT_OF(chat_commands)];
    enum line_result result = LINE_READ;
    bool goes_on = editor != NULL;

    say(runner, "%s (%s). /help shows the commands, Ctrl-D leaves.",
        mf_model_name(runner->opened.model), mf_model_family(runner->opened.model));
    if (!runner->conversation.has_template) say(runner, "This model has no chat template.");
    for (size_t i = 0; i < COUNT_OF(chat_commands); i++) words[i] = chat_commands[i].name;
    if (editor) line_editor_set_words(editor, words, COUNT_OF(words));
    while (goes_on && result != LINE_END) {
        char *text = read_message_new(
            editor, runner->terminal.colour_out ? "\1\033[1m\1> \1\033[0m\1" : "> ", &result);
        if (text) goes_on = take_message(runner, editor, text);
        free(text);
    }
    if (result == LINE_END) putchar('\n');
    line_editor_free(editor);
    return EXIT_DONE;
}
