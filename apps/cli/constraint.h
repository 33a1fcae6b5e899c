/* constraint.h: `--grammar` and `--json-schema`: an answer that cannot be of another form. */
#ifndef CLI_CONSTRAINT_H
#define CLI_CONSTRAINT_H

#include "engine/grammar_matcher.h"
#include "opened.h"

struct constraint_settings {
    const char *grammar_file;
    const char *schema_file;
};

enum { CONSTRAINT_OPTION_COUNT = 2 };
extern const struct option constraint_options[CONSTRAINT_OPTION_COUNT];

struct constraint {
    struct grammar *grammar;
    struct grammar_vocabulary *vocabulary;
    struct grammar_matcher *matcher; /* NULL: anything may be said */
};

/* As the settings say, for this model's tokens.  After a failure nothing stays open. */
mf_status constraint_open(struct constraint *out, const struct constraint_settings *settings,
                          const struct opened *opened, mf_error *why);
void constraint_close(struct constraint *constraint);

#endif
