/* runner.h: the parts of `moeflux run` that a single prompt and a chat share. */
#ifndef CLI_RUNNER_H
#define CLI_RUNNER_H

#include "answer.h"
#include "command.h"
#include "constraint.h"
#include "conversation.h"
#include "generation.h"
#include "recording.h"
#include "sampling.h"

struct run_settings {
    struct common_settings common;
    const char *prompt;
    const char *file;
    const char *system;
    const char *tools;
    const char *tool_choice;
    bool one_call;
    const char *family; /* NULL: as the template shows */
    struct maybe_count count;
    const char *reasoning; /* of reasoning_views */
    bool raw;
    bool think, no_think;
    bool ignore_end;
    bool quiet;
    bool json;    /* one object instead of text */
    bool no_trim; /* a chat that fills the context is refused, not trimmed */
    struct sampling_settings sampling;
    struct constraint_settings constraint;
    struct recording_settings recording;
};

struct runner {
    const struct run_settings *settings;
    struct terminal terminal;
    struct opened opened;
    struct recording recording;
    struct conversation conversation;
    const char *family; /* of reasoning and calls */
    struct constraint constraint;
    mf_sampler_options sampling; /* its seed increases by one with every answer */
    mf_logit_bias biases[TEXT_LIST_LIMIT];
    mf_stops *stops; /* NULL: none */
    enum reasoning_view view;
    struct answer answer; /* the last one, … */
    size_t answer_tokens; /* … how many it has, … */
    size_t prompt_tokens; /* … and those of its prompt */
};

/* As the settings say; after a failure runner_close is still to be called.  That returns
 * `code`, or the code of what went wrong with the recording. */
mf_status runner_open(struct runner *out, const struct run_settings *settings, mf_error *why);
int runner_close(struct runner *runner, int code);

/* Reads `prompt` and prints what follows; with `raw` as plain text.  Ctrl-C ends it. */
mf_status runner_answer(struct runner *runner, const mf_prompt *prompt, bool raw,
                        enum generation_end *end, mf_error *why);

#endif
