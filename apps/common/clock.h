/* clock.h: the one clock of the programs. */
#ifndef COMMON_CLOCK_H
#define COMMON_CLOCK_H

/* The library's own until every file here uses public headers only. */
#include "base/clock.h"

#endif
