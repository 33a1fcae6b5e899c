/* reasoning_token.h: reasoning that survives the round trip through a client.
 *
 * Clients send earlier answers back, but some show no reasoning and keep none.  What they do keep is
 * an opaque text: the `signature` of a thinking block, `encrypted_content` of a reasoning item.  It
 * holds the reasoning itself, so that the same prompt can be rendered again without state in the
 * server:
 *
 *     token = base64url, without padding, of
 *
 *     offset  bytes  what
 *     0       1      version, 1
 *     1       n      the text as a zstd frame that states its size
 *     1 + n   32     HMAC-SHA256 of all before it
 *
 * The key says that the text is one this server has written; it does not hide it.
 * Threads: all functions may be called from any thread. */
#ifndef DIALECTS_REASONING_TOKEN_H
#define DIALECTS_REASONING_TOKEN_H

#include "common/lists.h"
#include "serve/serve.h"

enum {
    REASONING_KEY_BYTES = 32,
    REASONING_TEXT_MAX = 1 << 20 /* bytes; what a token unpacks to is never more */
};

/* The key of tokens: from the file reasoning.key of the directory, which is made, with the
 * directory, where it is not there; `directory` NULL: a random one.  After a failure `key` is
 * undefined. */
mf_status reasoning_key_load(unsigned char key[REASONING_KEY_BYTES], const char *directory,
                             mf_error *why);

/* Freed with free(); "" where the text is longer than REASONING_TEXT_MAX.  NULL: no memory. */
char *reasoning_token_new(const struct serve *serve, const char *text, size_t length);

/* Appends the text of a token to `out`.  False: the token is not of this key, or is damaged; `out`
 * is as it was. */
bool reasoning_token_read(const struct serve *serve, const char *token, struct byte_list *out);

#endif
