/* measure.h: the figures that a forecast needs and the file does not have yet. */
#ifndef PLAN_MEASURE_H
#define PLAN_MEASURE_H

#include "plan/rates_file.h"

struct measure_wishes {
    const bool *formats;               /* [mf_format_count()] that are wanted */
    const mf_description *description; /* whose disk is wanted; or NULL */
    const char *directory;             /* whose disk is wanted, where there is no description */
    const char *disk;                  /* its name, see disk_name; NULL: none is wanted */
    uint32_t threads;                  /* 0: one for every core */
    bool (*stop)(void);                /* true: end with MF_ERR_CANCELLED; NULL: go on */
};

/* Told what is about to be measured; NULL is legal. */
typedef void (*measure_progress)(void *user, const char *what);

/* Fills what is 0 in `known`, and sets `changed` if that was anything. */
mf_status measure_missing(struct known_rates *known, mf_engine *engine,
                          const struct measure_wishes *wishes, measure_progress progress,
                          void *user, mf_error *why);

/* Of the file system that a file or directory lies on: type, identity and size, which stay the same
 * where its device gets another number at the next start; the number of the device where the file
 * system has no identity.  False: the file is not there. */
bool disk_name(char out[DISK_NAME_BYTES], const char *path);

#endif
