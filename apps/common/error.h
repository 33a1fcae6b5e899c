/* error.h: how a function of the programs says what went wrong.
 *
 *     if (count > 8) return fail(why, MF_ERR_ARGUMENT, "%s has %zu fields, at most 8", ...);
 *
 * `fail` fills *why (may be NULL) and returns the status; `fail_errno` appends the description
 * of an errno value; `fail_memory` names the bytes that were asked for. */
#ifndef COMMON_ERROR_H
#define COMMON_ERROR_H

/* The library's own until every file here uses public headers only. */
#include "base/status.h"

#endif
