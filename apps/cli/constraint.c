#include "constraint.h"

#include "api/handles.h"
#include "base/status.h"
#include "grammar/vocabulary.h"

#include <stdlib.h>

const struct option constraint_options[CONSTRAINT_OPTION_COUNT] = {
    { 0, "grammar", OPTION_TEXT, offsetof(struct constraint_settings, grammar_file), "FILE",
      .help = "the answer is a text of this grammar (GBNF)" },
    { 0, "json-schema", OPTION_TEXT, offsetof(struct constraint_settings, schema_file), "FILE",
      .help = "the answer is JSON that this schema accepts; it closes within -n tokens, which "
              "must be enough for the shortest one" },
};

static void pass_note(void *user, const char *sentence)
{
    (void)user;
    note("%s", sentence);
}

static mf_status read_form(struct constraint *out, const struct constraint_settings *settings,
                           mf_error *why)
{
    const char *path = settings->grammar_file ? settings->grammar_file : settings->schema_file;
    char *text = NULL;
    size_t length = 0;
    mf_status status = input_read_new(&text, &length, path, why);

    if (status == MF_OK && settings->grammar_file) {
        if (strlen(text) != length) {
            status = fail(why, MF_ERR_GRAMMAR, "%.256s contains a NUL", path);
        } else {
            out->form.notation = out->notation = text;
            return MF_OK;
        }
    } else if (status == MF_OK) {
        mf_error problem;
        status = json_schema_read_new(&out->schema, text, length, &problem);
        if (status != MF_OK) fail(why, status, "%.200s: %.256s", path, problem.text);
        out->form.schema = out->schema;
    }
    free(text);
    return status;
}

mf_status constraint_open(struct constraint *out, const struct constraint_settings *settings,
                          const struct opened *opened, mf_error *why)
{
    struct grammar_matcher *matcher;
    mf_status status;

    *out = (struct constraint){
        .opened = opened,
        .form = { .family = output_family_find("think"), .schema_options = { .note = pass_note } },
    };
    if (!settings->grammar_file && !settings->schema_file) return MF_OK;
    if (settings->grammar_file && settings->schema_file) {
        return fail(why, MF_ERR_ARGUMENT, "--grammar and --json-schema exclude each other");
    }
    status = read_form(out, settings, why);
    /* Made at once, so that mistakes in it are told before anything is read or written. */
    if (status == MF_OK) status = constraint_begin(out, ANSWER_NO_REASONING, &matcher, why);
    if (status != MF_OK) constraint_close(out);
    return status;
}

static void forget_made(struct constraint *constraint)
{
    for (size_t i = 0; i < COUNT_OF(constraint->made); i++) {
        grammar_matcher_free(constraint->made[i].matcher);
        grammar_free(constraint->made[i].grammar);
        constraint->made[i].matcher = NULL;
        constraint->made[i].grammar = NULL;
    }
    grammar_vocabulary_free(constraint->vocabulary);
    constraint->vocabulary = NULL;
}

void constraint_close(struct constraint *constraint)
{
    forget_made(constraint);
    json_decref(constraint->schema);
    free(constraint->notation);
    *constraint = (struct constraint){ 0 };
}

void constraint_set_family(struct constraint *constraint, const struct output_family *family)
{
    forget_made(constraint);
    constraint->form.family = family;
    /* What there is to say about a schema has been said. */
    constraint->form.schema_options.note = NULL;
}

void constraint_set_tools(struct constraint *constraint, const json_t *tools, const char *choice)
{
    struct answer_form *form = &constraint->form;

    forget_made(constraint);
    form->tools = tools;
    form->only_tool = NULL;
    if (!choice || strcmp(choice, "auto") == 0) {
        form->choice = TOOL_CHOICE_AUTO;
    } else if (strcmp(choice, "none") == 0) {
        form->choice = TOOL_CHOICE_NONE;
    } else {
        form->choice = TOOL_CHOICE_REQUIRED;
        if (strcmp(choice, "required") != 0) form->only_tool = choice;
    }
}

bool constraint_shapes_content(const struct constraint *constraint)
{
    return constraint->form.schema || constraint->form.notation;
}

static mf_status open_vocabulary(struct constraint *constraint, mf_error *why)
{
    const struct model *model = &constraint->opened->model->model;
    struct answer_tokens tokens = {
        .tokenizer = model->text->tokenizer,
        .family = constraint->form.family,
        .usable = model_usable_tokens(model),
        .end_tokens = model->config.end_tokens,
        .end_count = model->config.end_token_count,
    };

    if (!model->text->tokenizer) return fail(why, MF_ERR_UNSUPPORTED, "the model has no tokenizer");
    return answer_vocabulary_new(&constraint->vocabulary, &allocator_heap, &tokens, why);
}

mf_status constraint_begin(struct constraint *constraint, enum answer_reasoning reasoning,
                           struct grammar_matcher **out, mf_error *why)
{
    struct grammar **grammar = &constraint->made[reasoning].grammar;
    struct grammar_matcher **matcher = &constraint->made[reasoning].matcher;
    mf_status status = MF_OK;

    *out = NULL;
    if (answer_form_is_free(&constraint->form)) return MF_OK;
    constraint->form.reasoning = reasoning;
    if (!constraint->vocabulary) status = open_vocabulary(constraint, why);
    if (status == MF_OK && !*grammar) {
        status = answer_grammar_new(grammar, &allocator_heap, &constraint->form, why);
    }
    if (status == MF_OK && !*matcher) {
        status =
            grammar_matcher_new(matcher, &allocator_heap, *grammar, constraint->vocabulary, why);
    }
    if (status != MF_OK) return status;
    matcher_reset(*matcher);
    *out = *matcher;
    return MF_OK;
}
