/* planning.h: what `plan` and the question before a download share: the machine's rates and a model's
 * headers. */
#ifndef CLI_PLANNING_H
#define CLI_PLANNING_H

#include "plan/planned.h"
#include "plan/rates_file.h"
#include "plan/remote.h"

/* What is known about the machine, and where that is kept.  All zeros: closed. */
struct planning_machine {
    mf_engine *engine;
    char fingerprint[FINGERPRINT_BYTES];
    char path[PATH_CAPACITY]; /* "": nowhere */
    struct known_rates known; /* empty where they are not to be loaded */
};

/* `threads` 0: one for every core; `kernels` NULL: the best set. */
mf_status planning_machine_open(struct planning_machine *out, uint32_t threads, const char *kernels,
                                bool load, mf_error *why);
void planning_machine_close(struct planning_machine *machine);

/* A checkpoint, or the copy of the headers of one that lies on a hub.  All zeros: closed. */
struct planning_subject {
    const char *path;
    const char *disk;            /* a path on the disk that it lies on, or will lie on */
    const struct remote *remote; /* NULL: it is here */
    mf_description *description;
    mf_description_info info;
    struct model_costs costs;
};

mf_status planning_subject_open(struct planning_subject *out, const char *path, const char *kv_type,
                                mf_error *why);
void planning_subject_close(struct planning_subject *subject);

/* Shortens the path to the nearest directory that exists. */
void planning_find_existing(char path[PATH_CAPACITY]);

/* A question to the hub, before a download. */
struct planning_query {
    const struct hub_name *name; /* with the quantisation that was chosen */
    const struct hub_observer *observer;
    const char *kernels;
    uint32_t threads;
    uint64_t memory_bytes; /* 0: what is free now */
};

/* "about 12 … 15 tokens/s with 17.2 GiB of memory", from the headers on the hub and rates that were
 * measured before.  False: they are not known, or the headers could not be read. */
bool planning_tell_speed(char *out, size_t capacity, const struct planning_query *query);

#endif
