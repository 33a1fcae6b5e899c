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
 * In a family with channels HEADER leads to TEXT or, with a recipient, to JSON, and both back to
 * HEADER (output_channels.c).  PAIRS is in the place of JSON where keys are bare (output_pairs.c).
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
    STAGE_HEADER,
    STAGE_OPEN,
    STAGE_NAME,
    STAGE_JSON,
    STAGE_JSON_END,
    STAGE_PAIRS,
    STAGE_PARAMETER,
    STAGE_KEY,
    STAGE_SAYS_STRING,
    STAGE_VALUE_BEGIN,
    STAGE_VALUE,
    STAGE_BETWEEN,
};

enum output_mode {
    MODE_CONTENT,
    MODE_REASONING,
    MODE_FOREIGN, /* not the model's to say: left out */
    MODE_COUNT
};

enum output_progress {
    PROGRESS_ON,   /* something was done: look again */
    PROGRESS_WAIT, /* more text is needed */
    PROGRESS_BAD,  /* this is not a call */
};

/* A part of the buffer, by offsets: the buffer moves when it grows. */
struct output_span {
    size_t start, end;
};

/* Where a header of a family with channels begins. */
enum output_header {
    HEADER_ANSWER,  /* the role is given: behind the prompt, or at <|channel|> */
    HEADER_FOREIGN, /* the same in a message of another role */
    HEADER_ROLE,    /* behind <|start|> */
};

/* {key:value,…}: what is expected next. */
enum pairs_state {
    PAIRS_KEY, /* or the end of the object */
    PAIRS_NEXT_KEY,
    PAIRS_COLON,
    PAIRS_VALUE,
    PAIRS_ITEM, /* or the end of the array */
    PAIRS_COMMA,
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
    const char *named;        /* reasoning_name or turn_role, which may come next; or NULL */
    bool said[MODE_COUNT];    /* there was text of this mode */
    enum output_header header;

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
    enum pairs_state pairs;
    size_t scanned;                           /* of the present word of PAIRS */
    size_t depth;                             /* of containers in containers of PAIRS */
    uint64_t objects[JSON_READER_DEPTH / 64]; /* bit per depth: an object (else an array) */
};

/* ------------------------------------------------------------------ output_parser.c */

/* Does the buffer hold `literal` at `offset`, or the beginning of it up to the buffer's end? */
enum output_match { MATCH_NO, MATCH_PART, MATCH_YES };
enum output_match output_match(const struct output_parser *parser, size_t offset,
                               const char *literal);
/* One of the family's markers there: *which is set with MATCH_YES and may be NULL. */
enum output_match output_marker(const struct output_parser *parser, size_t offset,
                                const char **which);
/* The same for the first place from `offset` on where there is one, or the beginning of one: *at,
 * else the buffer's end.  A beginning that nothing can complete any more is none. */
enum output_match output_find_marker(const struct output_parser *parser, size_t *at, size_t offset,
                                     const char **which);
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
/* Text of this mode follows, a paragraph of its own if the family has markers. */
void output_set_mode(struct output_parser *parser, enum output_mode mode);
/* Text for the present mode: white space at its end waits for what follows. */
void output_add_text(struct output_parser *parser, const char *data, size_t length);
bool output_is_white(char c);
/* A marker that means nothing where it stands is a blank, so that the texts around it do not make
 * another one together. */
void output_leave_out_marker(struct output_parser *parser);

/* ------------------------------------------------------------------ output_call.c */

/* An opener was found at the start of the buffer: `at` is behind it. */
void output_call_open(struct output_parser *parser, const char *opener);
enum output_progress output_call_step(struct output_parser *parser);
/* The call is over, complete or none: forgets it. */
void output_call_reset(struct output_parser *parser);
/* Moves parser->at past white space; false: nothing but it is there. */
bool output_skip_white(struct output_parser *parser);
/* Sends what is known of the call, if calls are streamed. */
void output_call_stream(struct output_parser *parser);
/* The last byte of the call is behind parser->at. */
enum output_progress output_call_complete(struct output_parser *parser);
bool output_is_name_text(const char *text, size_t length);

/* ------------------------------------------------------------------ output_channels.c */

enum output_progress output_header_step(struct output_parser *parser);
enum output_progress output_channel_step(struct output_parser *parser);

/* ------------------------------------------------------------------ output_pairs.c */

/* Behind the opening brace. */
void output_pairs_begin(struct output_parser *parser);
enum output_progress output_pairs_step(struct output_parser *parser);

/* ------------------------------------------------------------------ output_value.c */

/* As a JSON string, quoted and escaped.  Bytes that are not UTF-8 become U+FFFD. */
void output_add_quoted(struct byte_buffer *out, const char *data, size_t length);

/* Adds a parameter's text as the JSON value that the schema of the tool's parameter makes of it;
 * `parameters` is the schema of all of them. */
void output_value_add(struct byte_buffer *out, const json_t *parameters, const json_t *schema,
                      const char *text, size_t length);

#endif
