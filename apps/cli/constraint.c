#include "constraint.h"

#include "common/basics.h"
#include "common/error.h"

#include <stdlib.h>

const struct option constraint_options[CONSTRAINT_OPTION_COUNT] = {
    { 0, "grammar", OPTION_TEXT, offsetof(struct constraint_settings, grammar_file), "FILE",
      .help = "the answer is a text of this grammar (GBNF)" },
    { 0, "json-schema", OPTION_TEXT, offsetof(struct constraint_settings, schema_file), "FILE",
      .help = "the answer is JSON that satisfies this schema, complete within -n tokens; a limit "
              "too small for the shortest such JSON is refused" },
};

static void pass_note(void *user, const char *sentence)
{
    (void)user;
    note("%s", sentence);
}

static mf_status read_form(struct constraint *out, const struct constraint_settings *settings,
                           mf_error *why)
{
    size_t length = 0;
    mf_status status;

    out->path = settings->grammar_file ? settings->grammar_file : settings->schema_file;
    status = input_read_new(&out->text, &length, out->path, why);
    if (status != MF_OK) return status;
    if (strlen(out->text) != length) {
        return fail(why, MF_ERR_GRAMMAR, "%.256s contains a NUL", out->path);
    }
    if (settings->grammar_file) {
        out->options.grammar = out->text;
    } else {
        out->options.json_schema = out->text;
    }
    return MF_OK;
}

mf_status constraint_open(struct constraint *out, const struct constraint_settings *settings,
                          const struct opened *opened, const char *family, mf_error *why)
{
    mf_constraint *made;
    mf_status status;

    *out = (struct constraint){ .opened = opened, .options = MF_CONSTRAINT_OPTIONS_INIT };
    out->options.family = family;
    if (!settings->grammar_file && !settings->schema_file) return MF_OK;
    if (settings->grammar_file && settings->schema_file) {
        return fail(why, MF_ERR_ARGUMENT, "--grammar and --json-schema exclude each other");
    }
    status = read_form(out, settings, why);
    /* Made at once, so that mistakes in it are told before anything is read or written. */
    out->options.note = pass_note;
    if (status == MF_OK) status = constraint_begin(out, MF_REASONING_NONE, &made, why);
    out->options.note = NULL; /* what there is to say about a schema has been said */
    if (status != MF_OK) constraint_close(out);
    return status;
}

static void forget_made(struct constraint *constraint)
{
    for (size_t i = 0; i < COUNT_OF(constraint->made); i++) {
        mf_constraint_close(constraint->made[i]);
        constraint->made[i] = NULL;
    }
}

void constraint_close(struct constraint *constraint)
{
    forget_made(constraint);
    free(constraint->text);
    *constraint = (struct constraint){ 0 };
}

void constraint_set_tools(struct constraint *constraint, const char *tools, const char *choice,
                          bool one_call)
{
    forget_made(constraint);
    constraint->options.tools = tools;
    constraint->options.tool_choice = choice;
    constraint->options.one_call = one_call;
}

bool constraint_shapes_content(const struct constraint *constraint)
{
    return constraint->text != NULL;
}

mf_status constraint_begin(struct constraint *constraint, mf_reasoning reasoning,
                           mf_constraint **out, mf_error *why)
{
    mf_constraint_options *options = &constraint->options;
    mf_constraint **made = &constraint->made[reasoning];
    mf_error problem = { .text = "" };

    *out = NULL;
    if (!options->grammar && !options->json_schema && !options->tools) return MF_OK;
    options->reasoning = reasoning;
    if (!*made) {
        mf_status status = mf_constraint_open(made, constraint->opened->model, options, &problem);
        if (status != MF_OK && constraint->path && !options->tools) {
            return fail(why, status, "%.200s: %.256s", constraint->path, problem.text);
        }
        if (status != MF_OK) {
            *why = problem;
            return status;
        }
    }
    mf_constraint_reset(*made);
    *out = *made;
    return MF_OK;
}
