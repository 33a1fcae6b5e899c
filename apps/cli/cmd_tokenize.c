/* `moeflux tokenize`: text to ids. */
#include "command.h"
#include "json_lines.h"
#include "model_parts.h"
#include "token_text.h"

#include "common/basics.h"
#include "common/error.h"

#include <stdlib.h>

struct tokenize_settings {
    struct common_settings common;
    bool no_special;
    bool json_lines;
};

static const struct option options[] = {
    { 0, "no-special", OPTION_FLAG, offsetof(struct tokenize_settings, no_special), NULL,
      .help = "added tokens marked special, such as <|im_end|>, are plain text" },
    { 0, "jsonl", OPTION_FLAG, offsetof(struct tokenize_settings, json_lines), NULL,
      .help = "one JSON object per line in and out" },
};
static const struct option_group groups[] = { { "options", options, COUNT_OF(options), 0 } };

/* {"special": …} of a line, or what the command line says. */
static mf_status read_mode(mf_special *out, const json_t *line, mf_error *why)
{
    static const struct {
        const char *name;
        mf_special mode;
    } modes[] = {
        { "parse", MF_SPECIAL_PARSE },
        { "no-special", MF_SPECIAL_AS_TEXT },
        { "plain", MF_SPECIAL_NONE },
    };
    const char *name = NULL;
    mf_status status = json_field_text(&name, line, "special", "the line", why);

    if (status != MF_OK || !name) return status;
    for (size_t i = 0; i < COUNT_OF(modes); i++) {
        if (strcmp(modes[i].name, name) != 0) continue;
        *out = modes[i].mode;
        return MF_OK;
    }
    return fail(why, MF_ERR_ARGUMENT,
                "\"special\" is \"%.32s\", expected \"parse\", \"no-special\" or \"plain\"", name);
}

/* {"ids":[…],"tokens":["…"]} */
static json_t *tokens_json_new(const struct id_list *list, const mf_text *tokenizer)
{
    json_t *ids = json_array(), *tokens = json_array();

    for (size_t i = 0; i < list->count; i++) {
        const char *text = mf_text_token_name(tokenizer, list->ids[i]);
        json_array_append_new(ids, json_integer(list->ids[i]));
        json_array_append_new(tokens, json_string(text ? text : ""));
    }
    return json_pack("{s:o,s:o}", "ids", ids, "tokens", tokens);
}

struct line_context {
    const mf_text *tokenizer;
    mf_special mode;
};

static mf_status answer_line(json_t **out, const json_t *line, void *user, mf_error *why)
{
    const struct line_context *context = user;
    mf_special mode = context->mode;
    const json_t *text = json_object_get(line, "text");
    const json_t *hex = json_object_get(line, "hex");
    struct id_list list = { 0 };
    char *bytes = NULL;
    size_t length = 0;
    mf_status status = read_mode(&mode, line, why);

    if (status != MF_OK) return status;
    if (json_is_string(hex)) {
        status = hex_decode_new(&bytes, &length, json_string_value(hex), why);
    } else if (!json_is_string(text)) {
        status = fail(why, MF_ERR_FORMAT, "the line has neither \"text\" nor \"hex\"");
    }
    if (status == MF_OK) {
        status = text_tokenize(&list, context->tokenizer, bytes ? bytes : json_string_value(text),
                               bytes ? length : json_string_length(text), mode, why);
    }
    if (status == MF_OK) *out = tokens_json_new(&list, context->tokenizer);
    id_list_free(&list);
    free(bytes);
    return status;
}

static mf_status tokenize_input(const mf_text *tokenizer, mf_special mode, const char *path,
                                mf_error *why)
{
    struct id_list list = { 0 };
    char *text = NULL;
    size_t length = 0;
    mf_status status = input_read_new(&text, &length, path, why);

    if (status == MF_OK) status = text_tokenize(&list, tokenizer, text, length, mode, why);
    if (status == MF_OK) tokens_print(stdout, list.ids, list.count);
    id_list_free(&list);
    free(text);
    return status;
}

static int run(const void *settings_, const struct arguments *arguments)
{
    const struct tokenize_settings *settings = settings_;
    struct line_context context = { .mode = settings->no_special ? MF_SPECIAL_AS_TEXT
                                                                 : MF_SPECIAL_PARSE };
    mf_text *text = NULL;
    mf_error why = { .text = "" };
    int code = EXIT_DONE;

    if (model_parts_open_tokenizer(&text, settings->common.model, &why) != MF_OK)
        return report(&why);
    context.tokenizer = text;
    if (settings->json_lines) {
        code = json_lines_run(answer_line, &context);
    } else if (tokenize_input(text, context.mode, arguments->count ? arguments->values[0] : NULL,
                              &why) != MF_OK) {
        code = report(&why);
    }
    mf_text_close(text);
    return code;
}

const struct command command_tokenize = {
    .name = "tokenize",
    .summary = "convert text to token ids",
    .arguments = "[FILE]",
    .argument_limit = 1,
    .groups = groups,
    .group_count = COUNT_OF(groups),
    .notes =
        "Prints the ids, comma separated, on one line. Every added token is recognised unless\n"
        "--no-special is given. With --jsonl a line is {\"text\":…} or {\"hex\":…}, optionally\n"
        "with \"special\": \"parse\", \"no-special\" or \"plain\" (none is recognised); the "
        "answer\n"
        "is {\"ids\":[…],\"tokens\":[…]}. Only the tokenizer of the model is needed.",
    .examples = "  printf 'Hello there' | moeflux tokenize\n"
                "  moeflux tokenize -m Qwen/Qwen3-30B-A3B book.txt\n"
                "  printf '{\"text\":\"Hi<|im_end|>\"}\\n' | moeflux tokenize --jsonl\n",
    .settings_bytes = sizeof(struct tokenize_settings),
    .run = run,
};
