/* `moeflux logits`: what the model thinks comes next, as numbers. */
#include "command.h"
#include "generation.h"
#include "statistics.h"
#include "token_text.h"

#include <math.h>

struct logits_settings {
    struct common_settings common;
    const char *tokens;
    const char *output;
    bool all;
};

static const struct option options[] = {
    { 0, "tokens", OPTION_TEXT, offsetof(struct logits_settings, tokens), "IDS",
      .help = "token ids, comma separated" },
    { 0, "all", OPTION_FLAG, offsetof(struct logits_settings, all), NULL,
      .help = "every position, not only the last" },
    { 'o', "output", OPTION_TEXT, offsetof(struct logits_settings, output), "FILE",
      .help = "raw little-endian f32, n_vocab numbers per position, into FILE (- is stdout)" },
};

static const struct option_group groups[] = { { "options", options, COUNT_OF(options), 0 } };

enum { TOP_COUNT = 10 };

/* The ids of the largest logits, best first, the lower id first among equals. */
static size_t find_top(int32_t *top, const float *logits, size_t vocab_size)
{
    size_t count = 0;

    for (size_t id = 0; id < vocab_size; id++) {
        size_t place = count;
        while (place > 0 && logits[id] > logits[top[place - 1]]) place--;
        if (place == TOP_COUNT) continue;
        if (count < TOP_COUNT) count++;
        memmove(top + place + 1, top + place, (count - 1 - place) * sizeof *top);
        top[place] = (int32_t)id;
    }
    return count;
}

struct writer {
    FILE *raw; /* NULL: JSON on stdout */
    size_t vocab_size;
    size_t first; /* index of the first position that is wanted */
};

static void print_json(const float *logits, size_t vocab_size)
{
    int32_t top[TOP_COUNT];
    size_t count = find_top(top, logits, vocab_size);

    printf("{\"n_vocab\":%zu,\"top\":[", vocab_size);
    for (size_t i = 0; i < count; i++) {
        float logit = logits[top[i]];
        printf("%s[%d,", i ? "," : "", top[i]);
        /* JSON has no infinities; nine digits give every float back. */
        if (isfinite(logit)) {
            printf("%.9g]", (double)logit);
        } else {
            printf("null]");
        }
    }
    printf("]}\n");
}

static void write_position(void *user, size_t index, const float *logits)
{
    const struct writer *writer = user;

    if (index < writer->first) return;
    if (writer->raw == stdout) {
        output_write(logits, writer->vocab_size * sizeof *logits);
    } else if (writer->raw) {
        fwrite(logits, sizeof *logits, writer->vocab_size, writer->raw);
    } else {
        print_json(logits, writer->vocab_size);
    }
}

static mf_status write_logits(const struct opened *opened, const struct id_list *tokens, bool all,
                              FILE *raw, mf_error *why)
{
    struct writer writer = { raw, mf_model_vocab_size(opened->model), 0 };
    struct terminal terminal;
    mf_status status;

    if (all) {
        return mf_sequence_feed_each(opened->sequence, MF_PHASE_PROMPT, tokens->ids, tokens->count,
                                     write_position, &writer, why);
    }
    terminal_probe(&terminal);
    status = prompt_feed(opened->sequence, tokens->ids, tokens->count, &terminal, why);
    if (status == MF_OK) write_position(&writer, 0, mf_sequence_logits(opened->sequence));
    return status;
}

static mf_status logits(const struct opened *opened, const struct id_list *tokens,
                        const struct logits_settings *settings, mf_error *why)
{
    struct output_file file;
    mf_status status = tokens_check(tokens, mf_model_vocab_size(opened->model), why);

    if (status != MF_OK) return status;
    if (!settings->output) return write_logits(opened, tokens, settings->all, NULL, why);
    if (strcmp(settings->output, "-") == 0) {
        return write_logits(opened, tokens, settings->all, stdout, why);
    }
    status = output_file_open(&file, settings->output, why);
    if (status != MF_OK) return status;
    status = write_logits(opened, tokens, settings->all, file.stream, why);
    if (status == MF_OK) status = output_file_commit(&file, why);
    output_file_abandon(&file);
    return status;
}

static int run(const void *settings_, const struct arguments *arguments)
{
    const struct logits_settings *settings = settings_;
    struct id_list tokens = { 0 };
    struct opened opened = { 0 };
    mf_error why = { .text = "" };
    int code = EXIT_DONE;

    (void)arguments;
    if (!settings->tokens) return usage_error(&command_logits, "--tokens is missing");
    if (tokens_parse(&tokens, settings->tokens, &why) != MF_OK) {
        code = usage_error(&command_logits, "--tokens: %s", why.text);
    } else if (opened_open(&opened, &settings->common, &why) != MF_OK ||
               logits(&opened, &tokens, settings, &why) != MF_OK) {
        code = report(&why);
    }
    if (opened.sequence) statistics_report(&opened, &settings->common);
    opened_close(&opened);
    id_list_free(&tokens);
    return code;
}

const struct command command_logits = {
    .name = "logits",
    .summary = "print the logits after a list of token ids",
    .groups = groups,
    .group_count = COUNT_OF(groups),
    .notes = "Without -o, a line of JSON per position: {\"n_vocab\":…,\"top\":[[id,logit]×10]}.",
    .examples = "  moeflux logits --tokens 4500,692,258,547\n"
                "  moeflux logits --tokens 4500,692 --all -o logits.f32\n"
                "  moeflux logits --tokens 4500,692 --backend reference\n",
    .settings_bytes = sizeof(struct logits_settings),
    .run = run,
};
