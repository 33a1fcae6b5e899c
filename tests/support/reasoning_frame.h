/* reasoning_frame.h: a token of apps/dialects/reasoning_token.h around any bytes in place of its frame,
 * by other code than that module's: nettle's base64url. */
#ifndef SUPPORT_REASONING_FRAME_H
#define SUPPORT_REASONING_FRAME_H

#include <nettle/base64.h>
#include <nettle/hmac.h>
#include <stdlib.h>
#include <string.h>

/* Freed with free(); NULL: no memory. */
static inline char *signed_token_new(const unsigned char key[32], unsigned char version,
                                     const void *frame, size_t size)
{
    size_t count = 1 + size + SHA256_DIGEST_SIZE;
    unsigned char *packed = malloc(count);
    char *token = malloc(BASE64_ENCODE_LENGTH(count) + BASE64_ENCODE_FINAL_LENGTH + 1);
    struct hmac_sha256_ctx hmac;
    struct base64_encode_ctx base64;

    if (packed && token) {
        packed[0] = version;
        if (size > 0) memcpy(packed + 1, frame, size);
        hmac_sha256_set_key(&hmac, 32, key);
        hmac_sha256_update(&hmac, 1 + size, packed);
        hmac_sha256_digest(&hmac, SHA256_DIGEST_SIZE, packed + 1 + size);
        base64url_encode_init(&base64);
        size_t length = base64_encode_update(&base64, token, count, packed);
        length += base64_encode_final(&base64, token + length);
        token[length] = '\0';
        token[strcspn(token, "=")] = '\0';
    }
    free(packed);
    return token;
}

#endif
