/* output_internal.h: what the files of the output parser share.
 *
 * The machine.  Text waits in `buffer`; `at` is how far the present stage has read it.
 *
 *            opener                    name                      body
 *     TEXT ─────────→ OPEN ──────→ NAME ──────→ JSON ──→ JSON_END ──┐ complete
 *      ↑               ↑                 └────→ PARAMETER ⇄ KEY,     ├──→ BETWEEN ──→ TEXT
 *      │               │                        VALUE …  ────────────┘       │
 *      │               └──────────── another call of the section ───────────┘
 *      └── malformed: everything from the opener on is text ── any stage
 *
 * While a call is read the buffer keeps its whole text from the opener on, so that it can be
 * given back.  A family without sections goes from TEXT to NAME (or JSON) and back at once.
 *
 * Errors (memory, the sink) are sticky in parser->status. */
#ifndef CHAT_OUTPUT_INTERNAL_H
#define CHAT_OUTPUT_INTERNAL_H

#include "chat/output_family.h"
#include "chat/output_json.h"
#include "chat/output_parser.h"

/* ------------------------------------------------------------------ the machine */

enum output_stage {
    STAGE_TEXT,
    STAGE_OPEN,
    STAGE_NAME,
    STAGE_JSON,
    STAGE_JSON_END,
    STAGE_PARAMETER,
    STAGE_KEY,
    STAGE_SAYS_STRING,
    STAGE_VALUE_BEGIN,
    STAGE_VALUE,
    STAGE_BETWEEN,
};

enum output_mode { MODE_CONTENT, MODE_REASONING };

enum output_progress {
    PROGRESS_ON,   /* something was done: look again */
    PROGRESS_WAIT, /* more text is needed */
    PROGRESS_BAD,  /* this is not a call */
};

/* A part of the buffer, by offsets: the buffer moves when it grows. */
struct output_span {
    size_t start, end;
};

struct output_parser {
    struct output_options options;
    const struct output_family *family;
    mf_status status;
    mf_error *why;       /* of the call in progress */
    bool finishing, cut; /* see output_parser_finish and output_parser_cut */

    struct byte_buffer storage; /* of the buffer, which begins at `consumed` */
    size_t consumed;
    struct {
        const char *data;
        size_t length;
    } buffer;
    size_t at;
    enum output_stage stage;

    /* text */
    enum output_mode mode;
    struct byte_buffer space; /* white space that waits for text behind it */
    bool trim;                /* white space before the next text is markup's */
    bool begun;               /* content or a call was seen: <think> means nothing any more */
    bool opened_by_prompt;    /* the present reasoning */
    bool reasoned;            /* it has text */
    bool left_open;           /* a call ended the reasoning: its </think> may still come */

    /* the call being read */
    enum output_mode origin;
    size_t call;       /* its number */
    bool section_open; /* a call is complete, section_end may still come */
    bool announced;    /* CALL_BEGIN was sent */
    size_t sent;       /* bytes of `arguments` that were sent */
    bool name_on_line; /* the name ends with its line */
    bool fence_seen;   /* ```json */
    struct byte_buffer name, id, arguments;
    struct json_reader json;
    size_t body;                                    /* where the body begins */
    struct output_span name_value, arguments_value; /* of BODY_CALL; end 0: not there */
    struct output_span key;                         /* inside the JSON, or of the parameter */
    size_t value;                                   /* where the parameter's value begins */
    size_t parameters;                              /* how many are complete */
    bool is_string;                                 /* says_strings: what was said */
};

/* ------------------------------------------------------------------ output_parser.c */

/* Does the buffer hold `literal` at `offset`, or the beginning of it up to the buffer's end? */
enum output_match { MATCH_NO, MATCH_PART, MATCH_YES };
enum output_match output_match(const struct output_parser *parser, size_t offset,
                               const char *literal);
void output_fail(struct output_parser *parser, mf_status status);
/* Adds to a text of the parser; out of memory is sticky. */
void output_add(struct output_parser *parser, struct byte_buffer *text, const char *data,
                size_t length);
void output_send(struct output_parser *parser, const struct output_event *event);
/* How many of the first `length` bytes are whole characters. */
size_t output_whole_characters(const char *data, size_t length);
/* Forgets the first `count` bytes of the buffer; `at` is then its start.  Costs nothing. */
void output_consume(struct output_parser *parser, size_t count);
/* Content follows, after markup: no white space from around it. */
void output_begin_content(struct output_parser *parser);

/* ------------------------------------------------------------------ output_call.c */

/* An opener was found at the start of the buffer: `at` is behind it. */
void output_call_open(struct output_parser *parser, const char *opener);
enum output_progress output_call_step(struct output_parser *parser);
/* The call is over, complete or none: forgets it. */
void output_call_reset(struct output_parser *parser);

/* ------------------------------------------------------------------ output_value.c */

/* As a JSON string, quoted and escaped.  Bytes that are not UTF-8 become U+FFFD. */
void output_add_quoted(struct byte_buffer *out, const char *data, size_t length);

/* Adds a parameter's text as the JSON value that the schema of the tool's parameter makes of it;
 * `parameters` is the schema of all of them. */
void output_value_add(struct byte_buffer *out, const json_t *parameters, const json_t *schema,
                      const char *text, size_t length);

#endif
