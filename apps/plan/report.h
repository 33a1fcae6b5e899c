/* report.h: plans as text and as JSON. */
#ifndef PLAN_REPORT_H
#define PLAN_REPORT_H

#include "plan/planned.h"

#include <jansson.h>

/* A quantisation that a repository has. */
struct plan_row {
    const char *label;
    uint64_t bytes;
    bool chosen, runs;        /* chosen: the one whose headers were read */
    struct estimate estimate; /* with the first memory size; where it runs */
};

struct plan_report {
    const mf_description_info *info;
    const struct machine_rates *rates;
    const char *machine; /* the fingerprint */
    int64_t measured;    /* seconds since 1970 of the oldest rate; 0: not known */
    double load;         /* of the machine then */
    unsigned threads;
    const struct plan_wishes *wishes;
    const struct planned *plans; /* [wishes->size_count] */
    bool disk_known;
    const struct plan_row *rows; /* NULL: the model is not on a hub */
    size_t row_count;
    uint64_t transferred; /* bytes of headers that were read from there */
};

void plan_print(const struct plan_report *report);
json_t *plan_json_new(const struct plan_report *report);

#endif
