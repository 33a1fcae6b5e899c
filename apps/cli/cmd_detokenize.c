/* `moeflux detokenize`: ids to the exact bytes. */
#include "command.h"
#include "json_lines.h"
#include "model_parts.h"
#include "token_text.h"

#include "common/error.h"

#include <stdlib.h>

struct detokenize_settings {
    struct common_settings common;
    const char *tokens;
    bool json_lines;
};

static const struct option options[] = {
    { 0, "tokens", OPTION_TEXT, offsetof(struct detokenize_settings, tokens), "IDS",
      .help = "token ids, comma separated; without it they are read from stdin" },
    { 0, "jsonl", OPTION_FLAG, offsetof(struct detokenize_settings, json_lines), NULL,
      .help = "one JSON object per line in and out" },
};
static const struct option_group groups[] = { { "options", options, COUNT_OF(options), 0 } };

static mf_status write_bytes(FILE *out, const mf_text *tokenizer, const struct id_list *list,
                             mf_error *why)
{
    for (size_t i = 0; i < list->count; i++) {
        size_t length = 0;
        const char *bytes = mf_text_token_bytes(tokenizer, list->ids[i], &length);
        if (!bytes) {
            return fail(why, MF_ERR_ARGUMENT, "the tokenizer has no token %d: its ids end at %zu",
                        list->ids[i], mf_text_token_count(tokenizer) - 1);
        }
        fwrite(bytes, 1, length, out);
    }
    return MF_OK;
}

/* Nothing is written when one of the ids is unknown. */
static mf_status decode_new(char **out, size_t *length, const mf_text *tokenizer,
                            const struct id_list *list, mf_error *why)
{
    FILE *stream = open_memstream(out, length);
    mf_status status;

    if (!stream) return fail_memory(why, list->count);
    status = write_bytes(stream, tokenizer, list, why);
    if (fclose(stream) != 0 && status == MF_OK) status = fail_memory(why, *length);
    return status;
}

static mf_status read_ids(struct id_list *out, const json_t *line, mf_error *why)
{
    const json_t *ids = json_object_get(line, "ids"), *id;
    mf_status status = MF_OK;
    size_t i;

    if (!json_is_array(ids)) {
        return fail(why, MF_ERR_FORMAT, "\"ids\" is %s, expected an array", json_type_name(ids));
    }
    json_array_foreach(ids, i, id)
    {
        json_int_t value = json_is_integer(id) ? json_integer_value(id) : -1;
        if (value < 0 || value > INT32_MAX) {
            return fail(why, MF_ERR_FORMAT, "\"ids\"[%zu] is not a token id", i);
        }
        status = id_list_append(out, (int32_t)value, why);
        if (status != MF_OK) break;
    }
    return status;
}

static mf_status answer_line(json_t **out, const json_t *line, void *user, mf_error *why)
{
    struct id_list list = { 0 };
    char *bytes = NULL;
    size_t length = 0;
    mf_status status = read_ids(&list, line, why);

    if (status == MF_OK) status = decode_new(&bytes, &length, user, &list, why);
    if (status == MF_OK) *out = json_pack("{s:o}", "hex", hex_encode_new(bytes, length));
    id_list_free(&list);
    free(bytes);
    return status;
}

static mf_status detokenize_list(const mf_text *tokenizer, const struct id_list *list,
                                 mf_error *why)
{
    char *bytes = NULL;
    size_t length = 0;
    mf_status status = decode_new(&bytes, &length, tokenizer, list, why);

    if (status == MF_OK) output_write(bytes, length);
    free(bytes);
    return status;
}

/* The ids of --tokens, or of stdin. */
static int read_list(struct id_list *out, const struct detokenize_settings *settings)
{
    mf_error why = { .text = "" };
    char *text = NULL;
    size_t length = 0;
    int code = EXIT_DONE;

    if (!settings->tokens && input_read_new(&text, &length, NULL, &why) != MF_OK) {
        return report(&why);
    }
    if (tokens_parse(out, text ? text : settings->tokens, &why) != MF_OK) {
        code = usage_error(&command_detokenize, "%s", why.text);
    }
    free(text);
    return code;
}

static int run(const void *settings_, const struct arguments *arguments)
{
    const struct detokenize_settings *settings = settings_;
    struct id_list list = { 0 };
    mf_text *text = NULL;
    mf_error why = { .text = "" };
    int code = EXIT_DONE;

    (void)arguments;
    if (!settings->json_lines) code = read_list(&list, settings);
    if (code == EXIT_DONE &&
        model_parts_open_tokenizer(&text, settings->common.model, &why) != MF_OK) {
        code = report(&why);
    }
    if (code == EXIT_DONE && settings->json_lines) {
        code = json_lines_run(answer_line, text);
    } else if (code == EXIT_DONE && detokenize_list(text, &list, &why) != MF_OK) {
        code = report(&why);
    }
    mf_text_close(text);
    id_list_free(&list);
    return code;
}

const struct command command_detokenize = {
    .name = "detokenize",
    .summary = "convert token ids to their bytes",
    .groups = groups,
    .group_count = COUNT_OF(groups),
    .notes =
        "Writes the bytes and nothing else, no newline. With --jsonl a line is {\"ids\":[…]} and\n"
        "the answer {\"hex\":…}. Only the tokenizer of the model is needed.",
    .examples = "  moeflux detokenize --tokens 4500,692,258,547\n"
                "  printf 'Hello there' | moeflux tokenize | moeflux detokenize\n",
    .settings_bytes = sizeof(struct detokenize_settings),
    .run = run,
};
