/* base64.h: bytes as text, as in RFC 4648 with padding. */
#ifndef DIALECTS_BASE64_H
#define DIALECTS_BASE64_H

#include "common/lists.h"

/* False: no memory; `out` is as it was. */
bool base64_add(struct byte_list *out, const void *bytes, size_t count);

#endif
