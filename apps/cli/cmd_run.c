/* `moeflux run`: answers a prompt, or chats in the terminal. */
#include "chat_loop.h"
#include "model_path.h"
#include "pulling.h"
#include "runner.h"
#include "statistics.h"

#include "common/basics.h"
#include "common/error.h"

#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static const char *const caches[] = { "reuse", "exact", "off", NULL };

static const struct option options[] = {
    { 'p', "prompt", OPTION_TEXT, offsetof(struct run_settings, prompt), "TEXT",
      .help = "the prompt, if it is not the argument" },
    { 'f', "file", OPTION_TEXT, offsetof(struct run_settings, file), "FILE",
      .help = "a text that is the prompt or follows it; - is stdin" },
    { 'n', "count", OPTION_COUNT, offsetof(struct run_settings, count), "N",
      .help = "at most N tokens; default: until the answer ends, with --raw 256", .low = 0,
      .high = 1 << 24 },
    { 0, "system", OPTION_TEXT, offsetof(struct run_settings, system), "TEXT",
      .help = "the system message" },
    { 0, "tools", OPTION_TEXT, offsetof(struct run_settings, tools), "FILE",
      .help = "JSON array of tools that the model may call, with arguments that their schemas "
              "accept; calls are shown, not executed" },
    { 0, "tool-choice", OPTION_TEXT, offsetof(struct run_settings, tool_choice), "HOW",
      .help = "auto (the model decides), required, none, or the tool that must be called" },
    { 0, "one-call", OPTION_FLAG, offsetof(struct run_settings, one_call), NULL,
      .help = "at most one call in an answer" },
    { 0, "family", OPTION_TEXT, offsetof(struct run_settings, family), "NAME",
      .help = "syntax of reasoning and tool calls (see `moeflux parse --help`); default: detected "
              "from the chat template" },
    { 0, "raw", OPTION_FLAG, offsetof(struct run_settings, raw), NULL,
      .help = "continue the text as it is, without the model's chat template" },
    { 0, "think", OPTION_FLAG, offsetof(struct run_settings, think), NULL,
      .help = "ask the model to reason first, if its template supports that" },
    { 0, "no-think", OPTION_FLAG, offsetof(struct run_settings, no_think), NULL,
      .help = "ask the model to answer without reasoning" },
    { 0, "reasoning", OPTION_CHOICE, offsetof(struct run_settings, reasoning), "HOW",
      .help = "show, fold or hide reasoning; default: show on a terminal, otherwise hide",
      .choices = reasoning_views },
    { 0, "ignore-eos", OPTION_FLAG, offsetof(struct run_settings, ignore_end), NULL,
      .help = "continue after an end token" },
    { 0, "json", OPTION_FLAG, offsetof(struct run_settings, json), NULL,
      .help = "one JSON object instead of text: content, reasoning, tool_calls, finish_reason and "
              "usage" },
    { 0, "no-trim", OPTION_FLAG, offsetof(struct run_settings, no_trim), NULL,
      .help = "in a chat that fills the context, refuse the message instead of dropping the oldest "
              "turns" },
    { 0, "cache", OPTION_CHOICE, offsetof(struct run_settings, common.cache), "HOW",
      .help = "what a turn of a chat may take from earlier ones: reuse (all), exact (what prompts "
              "have made: the same bits as without) or off; default: reuse in a chat and with "
              "--cache-dir",
      .choices = caches },
    { 0, "cache-dir", OPTION_TEXT, offsetof(struct run_settings, common.cache_directory), "DIR",
      .help = "keep beginnings of prompts in this directory, for later runs, too; it is made if it "
              "is not there, see `moeflux cache`" },
    { 0, "cache-disk", OPTION_SIZE, offsetof(struct run_settings, common.cache_disk_bytes), "SIZE",
      .help = "what --cache-dir may take; default: 20G" },
    { 'q', "quiet", OPTION_FLAG, offsetof(struct run_settings, quiet), NULL,
      .help = "no statistics line at the end" },
    { 'y', "yes", OPTION_FLAG, offsetof(struct run_settings, common.yes), NULL,
      .help = "download the model if it is not here, without asking; see `moeflux pull`" },
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

/* As the OpenAI interface calls them. */
static const char *finish_reason(const struct runner *runner, enum generation_end end)
{
    switch (end) {
    case END_OF_COUNT:
    case END_OF_CONTEXT:
        return "length";
    case END_BY_INTERRUPT:
        return "interrupted";
    default:
        return runner->answer.calls ? "tool_calls" : "stop";
    }
}

static void print_json(const struct runner *runner, enum generation_end end)
{
    const struct answer *answer = &runner->answer;
    json_t *object = json_pack(
        "{s:s%,s:s,s:{s:I,s:I,s:I}}", "content", answer->content.count ? answer->content.bytes : "",
        answer->content.count, "finish_reason", finish_reason(runner, end), "usage",
        "prompt_tokens", (json_int_t)runner->prompt_tokens, "completion_tokens",
        (json_int_t)runner->answer_tokens, "total_tokens",
        (json_int_t)runner->prompt_tokens + (json_int_t)runner->answer_tokens);

    if (object && answer->reasoning.count > 0) {
        json_object_set_new(object, "reasoning",
                            json_stringn(answer->reasoning.bytes, answer->reasoning.count));
    }
    if (object && answer->calls) json_object_set(object, "tool_calls", answer->calls);
    char *line = object ? json_dumps(object, JSON_COMPACT | JSON_REAL_PRECISION(15)) : NULL;
    if (line) {
        output_write(line, strlen(line));
        output_write("\n", 1);
    }
    free(line);
    json_decref(object);
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
    if (runner->settings->json) print_json(runner, end);
    if (end == END_OF_CONTEXT) note("the context is full (-c sets its size)");
    if (end == END_BY_INTERRUPT) *code = EXIT_INTERRUPTED;
    fflush(stdout);
    if (end == END_OF_COUNT && !runner->settings->quiet) {
        fprintf(stderr, "[stopped after %zu tokens: -n]\n", runner->answer_tokens);
    }
    statistics_read(&stats, &runner->opened);
    statistics_report(&runner->opened, &runner->settings->common);
    if (!runner->settings->common.stats && !runner->settings->quiet) {
        statistics_print_line(&stats, runner->answer_tokens, &runner->terminal);
    }
    return MF_OK;
}

/* `more` behind `*text` (may be NULL), with `between` them if both have some; frees `more`. */
static mf_status append_text(char **text, size_t *length, char *more, size_t more_length,
                             const char *between, mf_error *why)
{
    size_t gap = *text && more ? strlen(between) : 0;
    char *joined = realloc(*text, *length + gap + more_length + 1);

    if (!joined) {
        free(more);
        return fail_memory(why, *length + gap + more_length + 1);
    }
    memcpy(joined + *length, between, gap);
    if (more) memcpy(joined + *length + gap, more, more_length);
    *length += gap + more_length;
    joined[*length] = '\0';
    *text = joined;
    free(more);
    return MF_OK;
}

/* Something is piped or redirected into the program: not a terminal, and not /dev/null. */
static bool has_piped_input(void)
{
    struct stat info;

    return fstat(STDIN_FILENO, &info) == 0 &&
           (S_ISREG(info.st_mode) || S_ISFIFO(info.st_mode) || S_ISSOCK(info.st_mode));
}

static mf_status read_file_behind(char **out, size_t *length, const struct run_settings *settings,
                                  const char *path, mf_error *why)
{
    char *text = NULL;
    size_t text_length = 0;
    mf_status status = input_read_new(&text, &text_length, path, why);

    if (status != MF_OK) return status;
    /* The newline that ends a file is no part of a message; a text to continue keeps it. */
    while (!settings->raw && text_length > 0 && text[text_length - 1] == '\n') text_length--;
    if (text_length > 0 || !*out) return append_text(out, length, text, text_length, "\n\n", why);
    free(text);
    return MF_OK;
}

/* The words of the arguments or of -p, and behind them, after an empty line, the text of -f or
 * of a stdin that is piped. */
static mf_status read_prompt_new(char **out, size_t *length, const struct run_settings *settings,
                                 const struct arguments *arguments, mf_error *why)
{
    mf_status status = MF_OK;

    *out = NULL;
    *length = 0;
    for (size_t i = 0; i < arguments->count && status == MF_OK; i++) {
        const char *word = arguments->values[i];
        status = append_text(out, length, strdup(word), strlen(word), " ", why);
    }
    if (settings->prompt && status == MF_OK) {
        status =
            append_text(out, length, strdup(settings->prompt), strlen(settings->prompt), " ", why);
    }
    bool words = *out != NULL;
    if (status == MF_OK && settings->file)
        status = read_file_behind(out, length, settings, settings->file, why);
    else if (status == MF_OK && (!words || has_piped_input()))
        status = read_file_behind(out, length, settings, NULL, why);
    if (status != MF_OK) {
        free(*out);
        *out = NULL;
    }
    return status;
}

/* One prompt, one answer. */
static int run_prompt(const struct run_settings *settings, const struct arguments *arguments)
{
    struct runner runner = { 0 };
    struct run_settings changed = *settings;
    mf_error why = { .text = "" };
    char *text = NULL;
    size_t length = 0;
    int code = EXIT_DONE;

    if (read_prompt_new(&text, &length, settings, arguments, &why) != MF_OK) return report(&why);
    if (length == 0) {
        free(text);
        return usage_error(&command_run, "there is no prompt");
    }
    if (changed.common.cache_directory && !changed.common.cache) changed.common.cache = "reuse";
    mf_status status = runner_open(&runner, &changed, &why);
    if (status == MF_OK) status = run_once(&runner, text, length, &code, &why);
    if (status != MF_OK) code = report(&why);
    if (status == MF_ERR_CANCELLED) code = EXIT_INTERRUPTED;
    free(text);
    return runner_close(&runner, code);
}

static int run_chat(const struct run_settings *settings)
{
    struct runner runner = { 0 };
    struct run_settings changed = *settings;
    mf_error why = { .text = "" };
    int code;

    if (!changed.common.cache) changed.common.cache = "reuse";
    code = runner_open(&runner, &changed, &why) == MF_OK ? chat_loop(&runner) : report(&why);
    return runner_close(&runner, code);
}

static int run(const void *settings_, const struct arguments *arguments);

/* With the model that a first argument names. */
static int run_model(const struct run_settings *settings, const struct arguments *arguments)
{
    struct run_settings changed = *settings;
    struct arguments rest = { arguments->values + 1, arguments->count - 1 };
    char path[4096];
    mf_error why = { .text = "" };

    changed.common.model = arguments->values[0];
    bool declined = false;
    int code = pulling_offer(&changed.common, changed.common.model, &declined);
    if (code == EXIT_DONE && model_path_resolve(path, changed.common.model, &why) != MF_OK)
        code = report(&why);
    if (code == EXIT_FAILED && !declined) {
        fputs("moeflux: the first argument is taken for a model; -p gives a prompt that looks like "
              "one\n",
              stderr);
    }
    return code == EXIT_DONE ? run(&changed, &rest) : code;
}

static int run(const void *settings_, const struct arguments *arguments)
{
    const struct run_settings *settings = settings_;
    bool has_prompt = arguments->count || settings->prompt || settings->file;
    struct terminal terminal;

    if (arguments->count && !settings->common.model && model_path_is_meant(arguments->values[0])) {
        return run_model(settings, arguments);
    }
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
    int code = pulling_offer(&settings->common, settings->common.model, NULL);
    if (code != EXIT_DONE) return code;
    terminal_probe(&terminal);
    if (!has_prompt && terminal.in && terminal.out) return run_chat(settings);
    return run_prompt(settings, arguments);
}

const struct command command_run = {
    .name = "run",
    .summary = "answer a prompt, or chat in the terminal",
    .arguments = "[MODEL] [PROMPT]",
    .argument_limit = SIZE_MAX,
    .groups = groups,
    .group_count = COUNT_OF(groups),
    .notes =
        "Prints the answer while it is generated, then a line of statistics on stderr. Without a\n"
        "prompt it chats if stdin is a terminal, otherwise stdin is the prompt. With a prompt,\n"
        "piped input is appended to it after an empty line. All arguments together are the "
        "prompt,\n"
        "except a first one that names a model (a path, a GGUF file, org/name). Ctrl-C ends the\n"
        "answer.",
    .examples = "  moeflux run \"What is the capital of Japan?\"\n"
                "  moeflux run --raw \"Once upon a time there was a little\" -n 100 --seed 7\n"
                "  moeflux run -f letter.txt \"Answer this letter:\"\n"
                "  moeflux run                  a chat in the terminal, with /help\n"
                "  moeflux run org/name         a chat with a model in the Hugging Face cache\n"
                "  cat letter.txt | moeflux run \"Summarise this letter:\"\n"
                "  moeflux run -m model.gguf --memory 8G --stats \"Why is the sky blue?\"\n"
                "  moeflux run --json-schema person.json \"Invent a person.\"\n"
                "  echo \"What is 27 + 45?\" | moeflux run --no-think --temp 0\n",
    .settings_bytes = sizeof(struct run_settings),
    .run = run,
};
