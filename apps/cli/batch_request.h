/* batch_request.h: one line of a batch: from an OpenAI request to its response.
 *
 *     WAITING ── begin ──▶ READING (prompt) ── last logits ──▶ ANSWERING ── end ──▶ DONE
 *        └────────────── a request that is not valid ──────────────────────────────▲
 *
 * A request has a sequence of its own; the caller puts the parts of many into the same steps. */
#ifndef CLI_BATCH_REQUEST_H
#define CLI_BATCH_REQUEST_H

#include "answer.h"
#include "opened.h"

enum request_state { REQUEST_WAITING, REQUEST_READING, REQUEST_ANSWERING, REQUEST_DONE };

struct batch_request {
    const struct opened *opened;
    json_t *line; /* {"custom_id","method","url","body"} */
    const char *custom_id;
    enum request_state state;
    mf_sequence *sequence;
    mf_prompt *prompt;
    mf_sampler *sampler;
    mf_constraint *constraint; /* NULL: none */
    mf_stops *stops;           /* NULL: none */
    char *tools, *schema;      /* JSON text, or NULL */
    struct answer answer;
    bool raw;           /* a text to continue, not a chat */
    size_t limit;       /* tokens of the answer, at most */
    size_t count;       /* tokens of the answer so far */
    int32_t token;      /* the last one */
    const char *finish; /* "stop", "length", "tool_calls" */
    mf_error problem;   /* what was wrong with the request; status MF_OK: nothing */
};

/* Takes a line of the input, which it owns from now on; its custom_id is a string. */
void batch_request_init(struct batch_request *request, const struct opened *opened, json_t *line);
void batch_request_free(struct batch_request *request);

/* Opens the sequence and renders the prompt.  A request that is not valid is done at once. */
void batch_request_begin(struct batch_request *request, uint64_t seed);

/* What it adds to the next step; borrowed until then. */
mf_part batch_request_part(struct batch_request *request);

/* After that step: takes the next token.  A part that failed ends the request with its sentence;
 * one that found no memory is tried again, unless the request was `alone`. */
void batch_request_advance(struct batch_request *request, const mf_part *part, bool alone);

/* The line of the output; NULL: no memory. */
json_t *batch_request_result_new(const struct batch_request *request, size_t number);

#endif
