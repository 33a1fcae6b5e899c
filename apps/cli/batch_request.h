/* batch_request.h: one line of a batch: from an OpenAI request to its response. */
#ifndef CLI_BATCH_REQUEST_H
#define CLI_BATCH_REQUEST_H

#include "opened.h"

#include "common/json.h"

struct batch_request {
    const struct opened *opened;
    json_t *line; /* {"custom_id","method","url","body"} */
    const char *custom_id;
    mf_prompt *prompt;
    mf_request *request;      /* NULL: it was not valid, or could not be submitted */
    char *tools, *schema;     /* JSON text, or NULL */
    bool raw;                 /* a text to continue, not a chat */
    mf_request_result result; /* when it has ended */
    json_t *message;          /* what the model wrote: see mf_parser_message */
    mf_error problem;         /* what went wrong; status MF_OK: nothing */
};

/* Takes a line of the input, which it owns from now on; its custom_id is a string. */
void batch_request_init(struct batch_request *request, const struct opened *opened, json_t *line);
void batch_request_free(struct batch_request *request);

/* What the scheduler calls when the request has ended, in its own thread. */
struct batch_end {
    void (*ended)(void *user, const mf_request_result *result);
    void *user;
};

/* False: the request is not valid, or was refused; its result says why.  MF_ERR_BUSY in
 * `problem`: it may be submitted again later. */
bool batch_request_submit(struct batch_request *request, mf_scheduler *scheduler, uint64_t seed,
                          struct batch_end end);

/* The line of the output, when it has ended or was refused; NULL: no memory. */
json_t *batch_request_result_new(struct batch_request *request, size_t number);

#endif
