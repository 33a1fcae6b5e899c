/* guard.h: what is checked before a body is read.
 *
 *   key     as Bearer token, x-api-key or password (Basic, for browsers), compared in constant time
 *   Host    without a key, the name of a machine is no proof that the page that asks is ours (DNS
 *           rebinding): only addresses and localhost are accepted
 *   Origin  a page of another origin gets 403; CORS is off
 *   type    bodies are application/json, so that a form of another page cannot post */
#ifndef SERVE_GUARD_H
#define SERVE_GUARD_H

#include "serve/failure.h"
#include "serve/serve.h"

bool guard_key(const struct serve *serve, const struct exchange *exchange, struct failure *failure);

/* Which key a request came with, from 1; 0: the server has none.  Requests of one key are those of
 * one owner: others see of them how many there are. */
uint32_t guard_owner(const struct serve *serve, const struct exchange *exchange);
bool guard_origin(const struct serve *serve, const struct exchange *exchange,
                  struct failure *failure);
bool guard_type(const struct exchange *exchange, bool upload, struct failure *failure);

#endif
