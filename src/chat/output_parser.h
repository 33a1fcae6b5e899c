/* output_parser.h: what a model writes, taken apart: reasoning, content, tool calls.
 *
 *     text, in pieces of any size ── parser ── events
 *
 *         <think>\nfirst\n</think>\n\nLet me look.\n<tool_call>\n{"name": "f", …}\n</tool_call>
 *
 *         REASONING "first"   CONTENT "Let me look."   CALL_BEGIN f   CALL_ARGUMENTS {…}   CALL_END
 *
 * Models of a family share a syntax for calls; the families are rows of a table
 * (output_families.c), and one machine reads them all.
 *
 * What holds for every piece-wise feeding of a text:
 *   - the concatenated events are the same;
 *   - markup never shows up in reasoning or content, except a call that turned out not to be
 *     one: then all of its text does, nothing lost, and no call is made up (of a family with
 *     `markers`, output_family.h, all but those);
 *   - what was shown as text is never taken back.
 * White space between markup and text is dropped, text of events is whole UTF-8 characters (as
 * long as the input is UTF-8), and text that may yet become markup waits.
 *
 * Lifetimes: family, tools and sink are borrowed and outlive the parser; the text of an event is
 *            valid during the call of the sink.
 * Threads:   a parser has one owner. */
#ifndef CHAT_OUTPUT_PARSER_H
#define CHAT_OUTPUT_PARSER_H

#include "base/array.h"
#include "moeflux.h"

#include <jansson.h>

/* ------------------------------------------------------------------ families */

struct output_family;

/* By name: think, hermes, qwen3_coder, qwen3_5, deepseek_v3, deepseek_v3_1, deepseek_v3_2,
 * kimi_k2, glm_4_6, minimax_m2, harmony, gemma4.  NULL: there is none. */
const struct output_family *output_family_find(const char *name);
/* The family that a chat template's text speaks of; `think` when it speaks of no calls. */
const struct output_family *output_family_detect(const char *template_source);
const char *output_family_name(const struct output_family *family);
/* Number `index` of all, NULL behind the last: for lists in messages. */
const struct output_family *output_family_at(size_t index);

/* Does this prompt end inside of reasoning, so that the output begins there?  Or does it end with
 * reasoning that is closed? */
bool output_prompt_opens_reasoning(const struct output_family *family, const char *prompt,
                                   size_t length);
bool output_prompt_closes_reasoning(const struct output_family *family, const char *prompt,
                                    size_t length);

/* ------------------------------------------------------------------ events */

enum output_event_kind {
    OUTPUT_REASONING,      /* text */
    OUTPUT_CONTENT,        /* text */
    OUTPUT_CALL_BEGIN,     /* text is the function's name */
    OUTPUT_CALL_ARGUMENTS, /* text is a piece of the arguments, a JSON object in all */
    OUTPUT_CALL_END,       /* the call is complete */
    OUTPUT_CALL_DROPPED,   /* the call that began is none; its text comes as text.  Only with
                            * stream_calls */
};

struct output_event {
    enum output_event_kind kind;
    const char *text; /* not terminated */
    size_t length;
    const char *id; /* CALL_BEGIN: the id that the model itself gave (Kimi), or NULL */
    size_t id_length;
    size_t call; /* CALL_…: its number, from 0 */
};

/* An error ends the feeding and is returned from it. */
typedef mf_status (*output_sink)(void *user, const struct output_event *event, mf_error *why);

/* ------------------------------------------------------------------ parser */

struct output_options {
    const struct output_family *family;
    const json_t *tools; /* the conversation's, for the types of parameters; may be NULL */
    bool prompt_opens_reasoning;
    /* true: CALL_BEGIN and CALL_ARGUMENTS come while the call is being written, and may be
     * followed by CALL_DROPPED.  false: all events of a call come when it is complete. */
    bool stream_calls;
    output_sink sink;
    void *user;
};

struct output_parser;

mf_status output_parser_new(struct output_parser **out, const struct output_options *options,
                            mf_error *why);
void output_parser_free(struct output_parser *parser);

/* Takes the next piece.  After an error the parser can only be freed. */
mf_status output_parser_feed(struct output_parser *parser, const char *text, size_t length,
                             mf_error *why);

/* The output is over: what waited is released.  Call it once, last. */
mf_status output_parser_finish(struct output_parser *parser, mf_error *why);

/* The same for an output that a limit has ended: a call that has begun, or what may have become
 * markup, is left out instead of becoming text.  A call that was announced has no end. */
mf_status output_parser_cut(struct output_parser *parser, mf_error *why);

/* ------------------------------------------------------------------ collecting */

struct output_call {
    char *name, *id; /* terminated; id may be NULL */
    struct byte_buffer arguments;
    bool complete;
};

/* The events put together.  Zeroed is empty. */
struct output_message {
    struct byte_buffer reasoning, content;
    struct output_call *calls;
    size_t call_count, call_capacity;
};

/* A sink: `user` is the struct output_message. */
mf_status output_message_sink(void *user, const struct output_event *event, mf_error *why);
void output_message_clear(struct output_message *message);

/* {"reasoning":…,"content":…,"tool_calls":[{"name":…,"arguments":{…},"id":…}]}, of the calls that
 * are complete: JSON on one line, terminated, freed with free().  Arguments are as the model wrote
 * them, white space apart: no number loses a digit. */
mf_status output_message_json_new(char **out, const struct output_message *message, mf_error *why);

#endif
