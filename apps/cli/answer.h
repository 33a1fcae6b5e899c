/* answer.h: an answer as it arrives, token by token, shown and remembered.
 *
 *     tokens ── whole characters ── stop strings ── output parser ──┬ reasoning   dim or folded
 *                                                                   ├ content     as it is
 *                                                                   └ tool calls  "→ name {…}"
 *
 * Raw text is content as it is.  Special tokens that are no markup are not shown. */
#ifndef CLI_ANSWER_H
#define CLI_ANSWER_H

#include "chat/stop_strings.h"
#include "chat/output_parser.h"
#include "tokenizer/tokenizer.h"
#include "terminal.h"

enum reasoning_view {
    REASONING_SHOW,
    REASONING_FOLD, /* one line that says how long it took */
    REASONING_HIDE
};

/* "show", "fold", "hide", NULL: in the order of the enum. */
extern const char *const reasoning_views[];

/* NULL: shown on a terminal, otherwise hidden. */
enum reasoning_view reasoning_view_named(const char *name, const struct terminal *terminal);

struct answer_options {
    const struct terminal *terminal;
    const struct tokenizer *tokenizer;
    const struct output_family *family; /* NULL: raw text */
    const json_t *tools;                /* of the conversation, or NULL */
    const char *prompt;                 /* it may have opened the reasoning already */
    size_t prompt_length;
    enum reasoning_view view;
    struct stop_strings *stops; /* that end the answer; NULL: none.  Begun anew */
};

enum answer_part { PART_NONE, PART_REASONING, PART_CONTENT, PART_CALL };

struct answer {
    struct answer_options options;
    struct token_stream stream;
    char *buffer; /* of one token's characters */
    size_t buffer_capacity;
    struct output_parser *parser; /* NULL: raw text */
    struct output_message message;
    enum answer_part part;    /* that is being shown */
    double reasoning_started; /* seconds of the clock */
    bool line_open;           /* the last character shown is not a newline */
    bool stopped;             /* a stop string was found */
    bool failed;              /* the parser ran out of memory */
};

/* After a failure answer_free is legal, as it is on a zeroed struct. */
mf_status answer_begin(struct answer *out, const struct answer_options *options, mf_error *why);

/* Shows what the token makes ready; false: a stop string was found, or
 * the output is closed. */
bool answer_push(struct answer *answer, int32_t token);

/* What was held back, and a newline if one is missing. */
void answer_end(struct answer *answer);
void answer_free(struct answer *answer);

/* The answer as a message of the conversation: {"role":"assistant","content":…,…}. */
mf_status answer_message_append(const struct answer *answer, json_t *messages, mf_error *why);

#endif
