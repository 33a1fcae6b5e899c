/* check.h: ends a test program of the public headers where something is not as expected.  The
 * program has an mf_error called `why`, which is printed, too. */
#ifndef TESTS_API_CHECK_H
#define TESTS_API_CHECK_H

#include <stdio.h>
#include <stdlib.h>

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: %s is false; %s\n", __FILE__, __LINE__, #condition, why.text); \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

#endif
