/* doctor.h: what about this machine makes moeflux slower than it could be.
 *
 *     /proc, /sys, a few probes ── checks ── findings: what was found, what it costs, what fixes it
 *
 * All files are read below `root`, "" normally and a directory in tests, so that every finding can be
 * provoked; what no file says comes as a member of doctor_subject.  A file that is absent gives no
 * finding.  Nothing is changed. */
#ifndef DOCTOR_DOCTOR_H
#define DOCTOR_DOCTOR_H

#include "common/basics.h"

enum { FINDINGS_MAX = 40, FINDING_TEXT = 320, DOCTOR_SETS = 16 };

enum finding_level {
    FINDING_FINE,
    FINDING_NOTE,   /* costs something here and there, or nothing can be done about it */
    FINDING_WARNING /* costs speed or memory */
};

struct finding {
    const char *check; /* "huge pages" */
    enum finding_level level;
    char found[FINDING_TEXT];
    char cost[FINDING_TEXT]; /* "" of what is fine */
    char fix[FINDING_TEXT];  /* a command, or why there is none; "" of what is fine */
};

struct findings {
    struct finding items[FINDINGS_MAX];
    size_t count;
};

/* The disk that a model lies on. */
struct doctor_disk {
    const char *path; /* of the model; NULL: no disk is looked at */
    unsigned major, minor;
    bool direct;  /* reads can pass by the page cache */
    double bytes; /* per second; 0: not measured */
};

struct doctor_subject {
    const char *root;
    const char *kernel_sets[DOCTOR_SETS]; /* that run here, the best one first */
    size_t set_count;
    unsigned cores;        /* of the affinity */
    double cpu_quota;      /* of the control groups, in CPUs; 0: none */
    uint64_t memory_limit; /* likewise; 0: none */
    bool has_io_uring;     /* in this build */
    int io_uring_error;    /* of setting up a ring; 0: it works */
    struct doctor_disk disk;
    bool has_device;  /* the backend cuda computes on it … */
    char device[256]; /* … and what it is; or why there is none */
};

/* Appends the findings of all checks. */
void doctor_examine(struct findings *out, const struct doctor_subject *subject);

/* The checks, in their order. */
void doctor_check_kernels(struct findings *out, const struct doctor_subject *subject);
void doctor_check_threads(struct findings *out, const struct doctor_subject *subject);
void doctor_check_clock(struct findings *out, const struct doctor_subject *subject);
void doctor_check_memory(struct findings *out, const struct doctor_subject *subject);
void doctor_check_huge_pages(struct findings *out, const struct doctor_subject *subject);
void doctor_check_locked_memory(struct findings *out, const struct doctor_subject *subject);
void doctor_check_io_uring(struct findings *out, const struct doctor_subject *subject);
void doctor_check_disk(struct findings *out, const struct doctor_subject *subject);
void doctor_check_read_ahead(struct findings *out, const struct doctor_subject *subject);
void doctor_check_gpu(struct findings *out, const struct doctor_subject *subject);

/* ------------------------------------------------------------- for the checks */

/* A new finding, FINDING_FINE and without texts but `check`. */
struct finding *doctor_add(struct findings *out, const char *check);

/* root/path, NUL-terminated and cut to the capacity; false: there is no such file. */
bool doctor_read(char *out, size_t capacity, const struct doctor_subject *subject,
                 const char *path);

/* Its first line, without its end. */
bool doctor_read_line(char *out, size_t capacity, const struct doctor_subject *subject,
                      const char *path);

/* Its first number. */
bool doctor_read_number(uint64_t *out, const struct doctor_subject *subject, const char *path);

/* Whether `word` stands in `text`, between spaces or ends. */
bool doctor_has_word(const char *text, const char *word);

/* "12.5 GiB" */
const char *doctor_size(char out[32], uint64_t bytes);

#endif
