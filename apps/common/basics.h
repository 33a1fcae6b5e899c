/* basics.h: the few helpers that every file of the programs needs. */
#ifndef COMMON_BASICS_H
#define COMMON_BASICS_H

/* The library's own until every file here uses public headers only. */
#include "base/common.h"

#endif
