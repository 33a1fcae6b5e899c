#include "constraint.h"

#include "api/handles.h"
#include "base/status.h"
#include "engine/json_schema.h"

#include <stdlib.h>

const struct option constraint_options[CONSTRAINT_OPTION_COUNT] = {
    { 0, "grammar", OPTION_TEXT, offsetof(struct constraint_settings, grammar_file), "FILE",
      .help = "the answer is a text of this grammar (GBNF)" },
    { 0, "json-schema", OPTION_TEXT, offsetof(struct constraint_settings, schema_file), "FILE",
      .help = "the answer is JSON that this schema accepts" },
};

static void pass_note(void *user, const char *sentence)
{
    (void)user;
    note("%s", sentence);
}

static mf_status open_grammar(struct constraint *out, const struct constraint_settings *settings,
                              mf_error *why)
{
    static const struct json_schema_options schema_options = { .note = pass_note };
    const char *path = settings->grammar_file ? settings->grammar_file : settings->schema_file;
    char *text = NULL;
    size_t length = 0;
    mf_status status = input_read_new(&text, &length, path, why);

    if (status == MF_OK && settings->grammar_file) {
        status = grammar_parse_new(&out->grammar, &allocator_heap, text, length, why);
    } else if (status == MF_OK) {
        status = json_schema_parse_new(&out->grammar, &allocator_heap, text, length,
                                       &schema_options, why);
    }
    free(text);
    return status;
}

/* Special tokens are markup: no part of an answer, whatever their bytes. */
static const char *visible_bytes(void *user, int32_t id, size_t *length)
{
    const struct tokenizer *tokenizer = user;

    return tokenizer_is_special(tokenizer, id) ? NULL
                                               : tokenizer_token_bytes(tokenizer, id, length);
}

static mf_status open_vocabulary(struct constraint *out, const struct opened *opened, mf_error *why)
{
    const struct model *model = &opened->model->model;
    struct vocabulary_source source = {
        .token_count = model_usable_tokens(model),
        .bytes = visible_bytes,
        .user = model->tokenizer,
        .end_tokens = model->config.end_tokens,
        .end_count = model->config.end_token_count,
    };

    if (!model->tokenizer) return fail(why, MF_ERR_UNSUPPORTED, "the model has no tokenizer");
    return grammar_vocabulary_new(&out->vocabulary, &allocator_heap, &source, why);
}

mf_status constraint_open(struct constraint *out, const struct constraint_settings *settings,
                          const struct opened *opened, mf_error *why)
{
    mf_status status;

    *out = (struct constraint){ 0 };
    if (!settings->grammar_file && !settings->schema_file) return MF_OK;
    if (settings->grammar_file && settings->schema_file) {
        return fail(why, MF_ERR_ARGUMENT, "--grammar and --json-schema exclude each other");
    }
    status = open_grammar(out, settings, why);
    if (status == MF_OK) status = open_vocabulary(out, opened, why);
    if (status == MF_OK) {
        status =
            grammar_matcher_new(&out->matcher, &allocator_heap, out->grammar, out->vocabulary, why);
    }
    if (status != MF_OK) constraint_close(out);
    return status;
}

void constraint_close(struct constraint *constraint)
{
    grammar_matcher_free(constraint->matcher);
    grammar_vocabulary_free(constraint->vocabulary);
    grammar_free(constraint->grammar);
    *constraint = (struct constraint){ 0 };
}
