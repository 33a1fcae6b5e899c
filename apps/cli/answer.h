/* answer.h: shows an answer while it is generated and collects its parts.
 *
 *     tokens ── whole characters ── stop strings ── output parser ──┬ reasoning   dim or folded
 *                                                                   ├ content     as it is
 *                                                                   └ tool calls  "→ name {…}"
 *
 * Raw text is content without parsing.  Special tokens that are no markup are not shown.  The text
 * is always UTF-8: an answer that is cut inside a character ends with U+FFFD. */
#ifndef CLI_ANSWER_H
#define CLI_ANSWER_H

#include "common/json.h"
#include "common/lists.h"
#include "shown.h"
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
    const mf_text *text;
    const char *family;     /* NULL: raw text */
    const char *tools;      /* of the conversation, or NULL */
    mf_reasoning reasoning; /* of the prompt */
    enum reasoning_view view;
    mf_stops *stops; /* that end the answer; NULL: none */
    bool silent;     /* collect, show nothing */
};

enum answer_part { PART_NONE, PART_REASONING, PART_CONTENT, PART_CALL };

struct answer {
    struct answer_options options;
    mf_detokenizer *detokenizer;
    mf_parser *parser; /* NULL: raw text */
    struct byte_list reasoning, content;
    json_t *calls; /* array, as the OpenAI interface has them, which is what templates expect */
    struct byte_list call_name, call_id, call_arguments; /* of the current call */
    struct shown shown;                                  /* what a terminal gets */
    enum answer_part part;                               /* that is being shown */
    double reasoning_started;                            /* seconds of the clock */
    bool line_open; /* the last character shown is not a newline */
    bool stopped;   /* a stop string was found */
    bool failed;    /* out of memory */
};

/* After a failure answer_free is legal, as it is on a zeroed struct. */
mf_status answer_begin(struct answer *out, const struct answer_options *options, mf_error *why);

/* Shows the text that is complete after the token.  False: a stop string was found, or stdout is
 * closed. */
bool answer_push(struct answer *answer, int32_t token);

/* Shows the text that was held back, and a newline if the last line is open. */
void answer_end(struct answer *answer);
void answer_free(struct answer *answer);

/* The answer as a message of the conversation: {"role":"assistant","content":…,…}. */
mf_status answer_message_append(const struct answer *answer, json_t *messages, mf_error *why);

#endif
