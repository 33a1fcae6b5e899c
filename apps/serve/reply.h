/* reply.h: JSON and server-sent events as replies. */
#ifndef SERVE_REPLY_H
#define SERVE_REPLY_H

#include "http/exchange.h"

#include <jansson.h>

/* Takes the object over; NULL: no memory, the reply is 500. */
void reply_json(struct exchange *exchange, unsigned status, json_t *value);

/* "event: NAME\ndata: {…}\n\n"; `event` NULL: no such line.  Takes `data` over.  False: no memory. */
bool sse_add(struct byte_list *out, const char *event, json_t *data);

/* A line of NDJSON. */
bool json_line_add(struct byte_list *out, json_t *data);

/* Text as it is. */
bool text_add(struct byte_list *out, const char *text);

/* What keeps a connection open while nothing is to be said: a comment. */
bool sse_add_ping(struct byte_list *out);

/* A string of JSON from any bytes: what is not UTF-8 becomes U+FFFD. */
json_t *json_text_new(const char *text, size_t length);

/* Integers, so that callers need no casts. */
json_t *json_count_new(uint64_t count);

#endif
