/* job.h: one file of a download.
 *
 *     WAITING --> ACTIVE --> VERIFIES --> DONE
 *        |          ^           |          ^
 *        |          +-----------+          |    resumed, and the hash is wrong: begun anew, once
 *        +---------------------------------+    it is in the cache */
#ifndef HUB_JOB_H
#define HUB_JOB_H

#include "hub/blob.h"
#include "hub/client.h"

#include <pthread.h>

enum hub_job_state {
    JOB_WAITING, /* not looked at, or another process downloads it */
    JOB_ACTIVE,  /* locked; bytes are missing */
    JOB_VERIFIES,
    JOB_DONE
};

enum { JOB_EXPIRY_LIMIT = 5 }; /* addresses in a row that expired without a byte */

struct hub_job {
    enum hub_job_state state;
    struct hub_blob blob;
    struct hub_retry retry;
    char *address;        /* where ranges come from, NULL: the hub is to be asked */
    const char *refusal;  /* why the file is not the one that was listed, NULL: it is */
    uint64_t piece_bytes; /* of a request */
    unsigned expired;
    bool ranged; /* a range has come: the server knows them */
    bool whole;  /* it knows none */
    bool said;   /* that another process has it */
    /* Of the verification: */
    bool stop, ended; /* atomic */
    pthread_t thread;
    mf_status result;
    mf_error why;
};

mf_status hub_job_begin(struct hub_job *job, const struct hub_file *file,
                        const struct hub_client *client, unsigned connections, mf_error *why);

/* From WAITING to ACTIVE or DONE, if no other process has the file. */
mf_status hub_job_open(struct hub_job *job, mf_error *why);

/* Starts the thread that reads the file. */
mf_status hub_job_verify(struct hub_job *job, mf_error *why);

/* If that has ended: to DONE, or once more to ACTIVE. */
mf_status hub_job_end_verify(struct hub_job *job, mf_error *why);

/* The file that comes is not the one that was listed. */
void hub_job_refuse(struct hub_job *job, const char *reason);

/* Closes everything; what is there is kept. */
void hub_job_end(struct hub_job *job);

#endif
