/* `moeflux run`: ask a model, or talk with it. */
#include "chat_loop.h"
#include "runner.h"
#include "statistics.h"

#include "common/basics.h"
#include "common/error.h"

#include <stdlib.h>

static const struct option options[] = {
    { 'p', "prompt", OPTION_TEXT, offsetof(struct run_settings, prompt), "TEXT",
      .help = "the prompt, if it is not the argument" },
    { 'f', "file", OPTION_TEXT, offsetof(struct run_settings, file), "FILE",
      .help = "a text that is the prompt or follows it; - is stdin" },
    { 'n', "count", OPTION_COUNT, offsetof(struct run_settings, count), "N",
      .help = "at most N tokens; default: until the answer ends, with --raw 256", .low = 0,
      .high = 1 << 24 },
    { 0, "system", OPTION_TEXT, offsetof(struct run_settings, system), "TEXT",
      .help = "a system message before the first one" },
    { 0, "tools", OPTION_TEXT, offsetof(struct run_settings, tools), "FILE",
      .help = "JSON array of tools that the model may call, with arguments that their schemas "
              "accept; calls are shown, not carried out" },
    { 0, "tool-choice", OPTION_TEXT, offsetof(struct run_settings, tool_choice), "HOW",
      .help = "auto (the model decides), required, none, or the tool that must be called" },
    { 0, "one-call", OPTION_FLAG, offsetof(struct run_settings, one_call), NULL,
      .help = "at most one call in an answer" },
    { 0, "family", OPTION_TEXT, offsetof(struct run_settings, family), "NAME",
      .help = "whose syntax reasoning and calls have; default: as the chat template shows" },
    { 0, "raw", OPTION_FLAG, offsetof(struct run_settings, raw), NULL,
      .help = "continue the text as it is, without the model's chat template" },
    { 0, "think", OPTION_FLAG, offsetof(struct run_settings, think), NULL,
      .help = "ask the model to reason first, where its template knows how" },
    { 0, "no-think", OPTION_FLAG, offsetof(struct run_settings, no_think), NULL,
      .help = "ask it not to" },
    { 0, "reasoning", OPTION_CHOICE, offsetof(struct run_settings, reasoning), "HOW",
      .help = "show, fold or hide; default: show on a terminal, otherwise hide",
      .choices = reasoning_views },
    { 0, "ignore-eos", OPTION_FLAG, offsetof(struct run_settings, ignore_end), NULL,
      .help = "go on after an end token" },
    { 'q', "quiet", OPTION_FLAG, offsetof(struct run_settings, quiet), NULL,
      .help = "no statistics line at the end" },
};

static const struct option_group groups[] = {
    { "options", options, COUNT_OF(options), 0 },
    { "sampling (default: as the model's generation_config.json says)", sampling_options,
      SAMPLING_OPTION_COUNT, offsetof(struct run_settings, sampling) },
    { "form", constraint_options, CONSTRAINT_OPTION_COUNT,
      offsetof(struct run_settings, constraint) },
    { "recording", recording_options, RECORDING_OPTION_COUNT,
      offsetof(struct run_settings, recording) },
};

/* The user's words in the model's template, or as they are. */
static mf_status build_prompt_new(mf_prompt **out, struct runner *runner, bool raw,
                                  const char *text, size_t length, mf_error *why)
{
    *out = NULL;
    if (raw)
        return mf_prompt_from_text(out, mf_model_text(runner->opened.model), text, length, why);
    if (!conversation_add(&runner->conversation, "user", text, length)) {
        return fail(why, MF_ERR_ARGUMENT, "the prompt is not UTF-8");
    }
    return conversation_render_new(out, &runner->conversation, why);
}

static mf_status run_once(struct runner *runner, const char *text, size_t text_length, int *code,
                          mf_error *why)
{
    enum generation_end end = END_OF_TEXT;
    bool raw = runner->settings->raw;
    mf_prompt *prompt = NULL;
    struct run_statistics stats;
    mf_status status;

    if (!raw && !runner->conversation.has_template) {
        note("this model has no chat template; the text is continued as with --raw");
        raw = true;
    }
    status = build_prompt_new(&prompt, runner, raw, text, text_length, why);
    if (status == MF_OK) status = runner_answer(runner, prompt, raw, &end, why);
    mf_prompt_close(prompt);
    if (status != MF_OK) return status;
    if (end == END_OF_CONTEXT) note("the context is full (-c sets its size)");
    if (end == END_BY_INTERRUPT) *code = EXIT_INTERRUPTED;
    fflush(stdout);
    statistics_read(&stats, &runner->opened);
    statistics_report(&runner->opened, &runner->settings->common);
    if (!runner->settings->common.stats && !runner->settings->quiet) {
        statistics_print_line(&stats, &runner->terminal);
    }
    return MF_OK;
}

/* The prompt's words from the argument or -p, and the text of -f or stdin behind them. */
static mf_status read_prompt_new(char **out, size_t *length, const struct run_settings *settings,
                                 const struct arguments *arguments, mf_error *why)
{
    const char *words = arguments->count ? arguments->values[0] : settings->prompt;
    char *text = NULL;
    size_t text_length = 0, words_length = words ? strlen(words) : 0;
    mf_status status = MF_OK;

    *out = NULL;
    if (!words || settings->file) {
        status = input_read_new(&text, &text_length, settings->file, why);
    }
    /* The newline that ends a file is no part of a message; a text to continue keeps it. */
    while (!settings->raw && text_length > 0 && text[text_length - 1] == '\n') text_length--;
    if (status == MF_OK) {
        *out = malloc(words_length + text_length + 3);
        if (!*out) status = fail_memory(why, words_length + text_length + 3);
    }
    if (status == MF_OK) {
        memcpy(*out, words ? words : "", words_length);
        if (words && text) {
            memcpy(*out + words_length, "\n\n", 2);
            words_length += 2;
        }
        if (text) memcpy(*out + words_length, text, text_length);
        *length = words_length + text_length;
    }
    free(text);
    return status;
}

/* One prompt, one answer. */
static int run_prompt(const struct run_settings *settings, const struct arguments *arguments)
{
    struct runner runner = { 0 };
    mf_error why = { .text = "" };
    char *text = NULL;
    size_t length = 0;
    int code = EXIT_DONE;

    if (read_prompt_new(&text, &length, settings, arguments, &why) != MF_OK) return report(&why);
    if (length == 0) {
        free(text);
        return usage_error(&command_run, "there is no prompt");
    }
    if (runner_open(&runner, settings, &why) != MF_OK ||
        run_once(&runner, text, length, &code, &why) != MF_OK) {
        code = report(&why);
    }
    free(text);
    return runner_close(&runner, code);
}

static int run_chat(const struct run_settings *settings)
{
    struct runner runner = { 0 };
    mf_error why = { .text = "" };
    int code;

    code = runner_open(&runner, settings, &why) == MF_OK ? chat_loop(&runner) : report(&why);
    return runner_close(&runner, code);
}

static int run(const void *settings_, const struct arguments *arguments)
{
    const struct run_settings *settings = settings_;
    bool has_prompt = arguments->count || settings->prompt || settings->file;
    struct terminal terminal;

    if (arguments->count && settings->prompt) {
        return usage_error(&command_run, "the prompt is given twice");
    }
    if (settings->think && settings->no_think) {
        return usage_error(&command_run, "--think and --no-think exclude each other");
    }
    if ((settings->tool_choice || settings->one_call) && !settings->tools) {
        return usage_error(&command_run, "%s needs --tools",
                           settings->tool_choice ? "--tool-choice" : "--one-call");
    }
    terminal_probe(&terminal);
    if (!has_prompt && terminal.in && terminal.out) return run_chat(settings);
    return run_prompt(settings, arguments);
}

const struct command command_run = {
    .name = "run",
    .summary = "ask a model, or talk with it",
    .arguments = "[PROMPT]",
    .argument_limit = 1,
    .groups = groups,
    .group_count = COUNT_OF(groups),
    .notes =
        "The answer is printed as it is written, a line of statistics follows on stderr. Without\n"
        "a prompt it is a chat in a terminal, and elsewhere the text comes from stdin. Ctrl-C\n"
        "ends the answer.",
    .examples = "  moeflux run \"What is the capital of Japan?\"\n"
                "  moeflux run --raw \"Once upon a time there was a little\" -n 100 --seed 7\n"
                "  moeflux run -f letter.txt \"Answer this letter:\"\n"
                "  moeflux run                  a chat in the terminal, with /help\n"
                "  moeflux run -m model.gguf --memory 8G --stats \"Why is the sky blue?\"\n"
                "  moeflux run --json-schema person.json \"Invent a person.\"\n"
                "  echo \"What is 27 + 45?\" | moeflux run --no-think --temp 0\n",
    .settings_bytes = sizeof(struct run_settings),
    .run = run,
};
