/* constraint.h: `--grammar`, `--json-schema` and tools: an answer that cannot be of another form.
 *
 * The form of an answer depends on its prompt, which may have opened the reasoning; a constraint
 * is made when a form is first needed and kept, because it grows faster with use. */
#ifndef CLI_CONSTRAINT_H
#define CLI_CONSTRAINT_H

#include "opened.h"

struct constraint_settings {
    const char *grammar_file;
    const char *schema_file;
};

enum { CONSTRAINT_OPTION_COUNT = 2 };
extern const struct option constraint_options[CONSTRAINT_OPTION_COUNT];

struct constraint {
    const struct opened *opened;
    const char *path;              /* of the grammar or the schema; NULL: there is none */
    char *text;                    /* what it holds */
    mf_constraint_options options; /* all but `reasoning` */
    mf_constraint *made[MF_REASONING_OPEN + 1]; /* by mf_reasoning; NULL: not needed yet */
};

/* What the settings say, for answers with the markup of `family`; no tools.  After a failure
 * nothing stays open. */
mf_status constraint_open(struct constraint *out, const struct constraint_settings *settings,
                          const struct opened *opened, const char *family, mf_error *why);
void constraint_close(struct constraint *constraint);

/* `tools` is a JSON array; `choice`: "auto", "required", "none" or a tool's name; NULL: auto.
 * Both are borrowed. */
void constraint_set_tools(struct constraint *constraint, const char *tools, const char *choice,
                          bool one_call);

/* True: the content has a form of its own, so that reasoning is better left out. */
bool constraint_shapes_content(const struct constraint *constraint);

/* The constraint of an answer, at its beginning; *out NULL: anything may be said. */
mf_status constraint_begin(struct constraint *constraint, mf_reasoning reasoning,
                           mf_constraint **out, mf_error *why);

#endif
