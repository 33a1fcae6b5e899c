/* `moeflux generate`: continue a list of ids; nothing is added to them. */
#include "command.h"
#include "constraint.h"
#include "generation.h"
#include "json_lines.h"
#include "recording.h"
#include "sampling.h"
#include "statistics.h"
#include "token_text.h"

#include "common/basics.h"
#include "common/error.h"

#include <math.h>
#include <stdlib.h>

enum { LOGPROBS_LIMIT = 1000 };

struct generate_settings {
    struct common_settings common;
    const char *tokens;
    const char *prompt;
    struct maybe_count count;
    bool ids;
    struct maybe_count logprobs;
    bool ignore_end;
    struct sampling_settings sampling;
    struct constraint_settings constraint;
    struct recording_settings recording;
};

static const struct option options[] = {
    { 0, "tokens", OPTION_TEXT, offsetof(struct generate_settings, tokens), "IDS",
      .help = "token ids to continue, comma separated" },
    { 'p', "prompt", OPTION_TEXT, offsetof(struct generate_settings, prompt), "TEXT",
      .help = "text to continue, instead of --tokens" },
    { 'n', "count", OPTION_COUNT, offsetof(struct generate_settings, count), "N",
      .help = "at most N tokens; default 128", .low = 0, .high = 1 << 24 },
    { 0, "ids", OPTION_FLAG, offsetof(struct generate_settings, ids), NULL,
      .help = "print ids, comma separated, instead of text" },
    { 0, "logprobs", OPTION_COUNT, offsetof(struct generate_settings, logprobs), "N",
      .help = "print a line of JSON per token instead: its log-probability by the model itself, "
              "and the N most likely ones",
      .low = 1, .high = LOGPROBS_LIMIT },
    { 0, "ignore-eos", OPTION_FLAG, offsetof(struct generate_settings, ignore_end), NULL,
      .help = "continue after an end token" },
};

static const struct option_group groups[] = {
    { "options", options, COUNT_OF(options), 0 },
    { "sampling (greedy when nothing is given)", sampling_options, SAMPLING_OPTION_COUNT,
      offsetof(struct generate_settings, sampling) },
    { "form", constraint_options, CONSTRAINT_OPTION_COUNT,
      offsetof(struct generate_settings, constraint) },
    { "recording", recording_options, RECORDING_OPTION_COUNT,
      offsetof(struct generate_settings, recording) },
};

struct printer {
    const struct opened *opened;
    mf_sampler *sampler;
    mf_stops *stops; /* NULL: none */
    bool ids;
    size_t logprobs; /* 0: text or ids */
    size_t count;
};

/* The stop strings' sink. */
static void print_text(void *user, const char *text, size_t length)
{
    const struct printer *printer = user;

    if (!printer->ids && !printer->logprobs) output_write(text, length);
}

/* Bytes as JSON can hold them: what is not UTF-8 alone (a part of a character) is null. */
static json_t *text_json_new(const char *bytes, size_t length)
{
    json_t *text = bytes ? json_stringn(bytes, length) : NULL;

    return text ? text : json_null();
}

/* A token that cannot occur has none. */
static json_t *logprob_json_new(double logprob)
{
    return isfinite(logprob) ? json_real(logprob) : json_null();
}

/* {"id":…,"text":…,"logprob":…,"top":[[id,logprob],…]} of the token that was just picked. */
static void print_logprobs(const struct printer *printer, int32_t token, const char *bytes,
                           size_t length)
{
    mf_logprob top[LOGPROBS_LIMIT];
    const float *logits = mf_sequence_logits(printer->opened->sequence);
    size_t count = mf_sampler_logprobs(printer->sampler, top, printer->logprobs, logits);
    double own = (double)mf_sampler_logprob_of(printer->sampler, logits, token);
    json_t *list = json_array();
    json_t *line;
    char *text;

    for (size_t i = 0; i < count; i++) {
        json_array_append_new(
            list, json_pack("[i,o]", (int)top[i].token, logprob_json_new((double)top[i].logprob)));
    }
    line = json_pack("{s:i,s:o,s:o,s:o}", "id", (int)token, "text", text_json_new(bytes, length),
                     "logprob", logprob_json_new(own), "top", list);
    text = json_dumps(line, JSON_COMPACT | JSON_REAL_PRECISION(7)); /* what a float has */
    json_print_text(text);
    free(text);
    json_decref(line);
}

static bool print_token(void *user, int32_t token)
{
    struct printer *printer = user;
    size_t length = 0;
    const char *bytes = mf_text_token_bytes(mf_model_text(printer->opened->model), token, &length);
    bool stopped = false;

    if (printer->logprobs) {
        print_logprobs(printer, token, bytes, length);
    } else if (printer->ids) {
        printf(printer->count++ ? ",%d" : "%d", token);
    }
    if (bytes && printer->stops) {
        stopped = mf_stops_feed(printer->stops, bytes, length, print_text, printer);
    } else if (bytes) {
        print_text(printer, bytes, length);
    }
    return !stopped && !output_is_lost();
}

static mf_status read_prompt(struct id_list *out, const struct opened *opened,
                             const struct generate_settings *settings, mf_error *why)
{
    mf_status status = MF_OK;

    if (settings->prompt) {
        status = opened_tokenize(out, opened, settings->prompt, strlen(settings->prompt), why);
        if (status == MF_OK && out->count == 0) {
            status = fail(why, MF_ERR_ARGUMENT, "the prompt is empty");
        }
        return status;
    }
    return tokens_check(out, mf_model_vocab_size(opened->model), why);
}

/* Everything but the prompt is ready. */
static mf_status generate_from(struct generation *generation, struct printer *printer,
                               const struct id_list *prompt, mf_error *why)
{
    mf_status status;

    printer->sampler = generation->sampler;
    mf_sampler_accept_prompt(generation->sampler, prompt->ids, prompt->count);
    status = generation_run(generation, why);
    if (printer->stops) mf_stops_finish(printer->stops, print_text, printer);
    if (status == MF_OK && !printer->logprobs) putchar('\n');
    if (status == MF_OK && generation->end == END_OF_CONTEXT) {
        note("the context is full after %zu tokens (-c sets its size)", generation->count);
    }
    return status;
}

static mf_status generate(const struct opened *opened, struct id_list *prompt,
                          const struct generate_settings *settings, mf_error *why)
{
    mf_sampler_options sampling = MF_SAMPLER_OPTIONS_INIT;
    mf_logit_bias biases[TEXT_LIST_LIMIT];
    struct constraint constraint = { 0 };
    struct printer printer = { opened, NULL, NULL, settings->ids, settings->logprobs.value, 0 };
    struct generation generation = {
        .sequence = opened->sequence,
        .model = opened->model,
        .count_limit = settings->count.given ? settings->count.value : 128,
        .ignore_end = settings->ignore_end,
        .each = print_token,
        .user = &printer,
    };
    struct terminal terminal;
    mf_status status = read_prompt(prompt, opened, settings, why);

    terminal_probe(&terminal);
    sampling.seed = settings->common.seed.value;
    sampling_apply(&sampling, &settings->sampling);
    if (status == MF_OK) {
        status = sampling_read_biases(biases, &sampling, &settings->sampling, opened, why);
    }
    if (status == MF_OK) status = sampling_stops_new(&printer.stops, &settings->sampling, why);
    if (status == MF_OK) {
        status = mf_sampler_open(&generation.sampler, opened->model, &sampling, why);
    }
    if (status == MF_OK) {
        status = constraint_open(&constraint, &settings->constraint, opened, "think", why);
    }
    if (status == MF_OK) {
        status = constraint_begin(&constraint, MF_REASONING_NONE, &generation.constraint, why);
    }
    if (status == MF_OK) {
        status = prompt_feed(opened->sequence, prompt->ids, prompt->count, &terminal, why);
    }
    if (status == MF_OK) status = generate_from(&generation, &printer, prompt, why);
    mf_sampler_close(generation.sampler);
    mf_stops_close(printer.stops);
    constraint_close(&constraint);
    return status;
}

static int run(const void *settings_, const struct arguments *arguments)
{
    const struct generate_settings *settings = settings_;
    struct id_list prompt = { 0 };
    struct opened opened = { 0 };
    struct recording recording = { 0 };
    mf_error why = { .text = "" };
    int code = EXIT_DONE;

    (void)arguments;
    if (!settings->tokens == !settings->prompt) {
        return usage_error(&command_generate, "give the prompt either with --tokens or with -p");
    }
    if (settings->tokens && tokens_parse(&prompt, settings->tokens, &why) != MF_OK) {
        code = usage_error(&command_generate, "--tokens: %s", why.text);
    } else if (opened_open(&opened, &settings->common, &why) != MF_OK ||
               recording_begin(&recording, &settings->recording, &opened, &why) != MF_OK ||
               generate(&opened, &prompt, settings, &why) != MF_OK) {
        code = report(&why);
    }
    code = recording_end(&recording, code);
    if (opened.sequence) statistics_report(&opened, &settings->common);
    opened_close(&opened);
    id_list_free(&prompt);
    return code;
}

const struct command command_generate = {
    .name = "generate",
    .summary = "continue token ids or a text",
    .groups = groups,
    .group_count = COUNT_OF(groups),
    .notes =
        "Prints the generated text, or with --ids the generated ids, and a newline. An end token\n"
        "ends it and is not printed; with --ignore-eos it is a token like others.",
    .examples = "  moeflux generate --tokens 4500,692,258,547 -n 24 --temp 0 --ids\n"
                "  moeflux generate -p 'The old king' -n 40 --temp 0.8 --seed 7\n",
    .settings_bytes = sizeof(struct generate_settings),
    .run = run,
};
