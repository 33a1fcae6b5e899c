/* constraint.h: `--grammar`, `--json-schema` and tools: an answer that cannot be of another form.
 *
 * The form of an answer depends on its prompt, which may have opened the reasoning; a matcher
 * is made when a form is first needed and kept, because it grows faster with use. */
#ifndef CLI_CONSTRAINT_H
#define CLI_CONSTRAINT_H

#include "chat/constraint.h"
#include "grammar/matcher.h"
#include "opened.h"

struct constraint_settings {
    const char *grammar_file;
    const char *schema_file;
};

enum { CONSTRAINT_OPTION_COUNT = 2 };
extern const struct option constraint_options[CONSTRAINT_OPTION_COUNT];

struct constraint {
    const struct opened *opened;
    struct answer_form form; /* all but `reasoning` */
    char *notation;
    json_t *schema;
    struct grammar_vocabulary *vocabulary; /* NULL: not needed yet */
    struct {
        struct grammar *grammar;
        struct grammar_matcher *matcher;
    } made[ANSWER_OPENS_REASONING + 1]; /* by enum answer_reasoning */
};

/* What the settings say; no tools.  After a failure nothing stays open. */
mf_status constraint_open(struct constraint *out, const struct constraint_settings *settings,
                          const struct opened *opened, mf_error *why);
void constraint_close(struct constraint *constraint);

/* Whose markup an answer has. */
void constraint_set_family(struct constraint *constraint, const struct output_family *family);

/* `choice`: "auto", "required", "none" or a tool's name; NULL: auto.  Both are borrowed. */
void constraint_set_tools(struct constraint *constraint, const json_t *tools, const char *choice);

/* True: the content has a form of its own, so that reasoning is better left out. */
bool constraint_shapes_content(const struct constraint *constraint);

/* The matcher for an answer, at its beginning; *out NULL: anything may be said. */
mf_status constraint_begin(struct constraint *constraint, enum answer_reasoning reasoning,
                           struct grammar_matcher **out, mf_error *why);

#endif
