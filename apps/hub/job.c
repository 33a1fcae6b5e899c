#include "hub/job.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

/* A request for fewer bytes costs more than it brings; more would leave connections idle at the
 * file's end. */
static const uint64_t least_piece = 1 << 20, most_piece = 64 << 20;

/* Without a byte in between, over about a minute: as long as a network is away at times. */
enum { FAILURE_LIMIT = 9 };

mf_status hub_job_begin(struct hub_job *job, const struct hub_file *file,
                        const struct hub_client *client, unsigned connections, mf_error *why)
{
    uint64_t piece = file->size / (4 * (uint64_t)connections);

    *job = (struct hub_job){ .state = JOB_WAITING, .retry = { .limit = FAILURE_LIMIT } };
    job->piece_bytes = piece < least_piece ? least_piece : piece > most_piece ? most_piece : piece;
    return hub_blob_name(&job->blob, file, client->settings->cache, client->repository, why);
}

/* Reserves the disk's space at once where the file system can: a full disk is found now. */
static mf_status reserve(const struct hub_blob *blob, mf_error *why)
{
    if (blob->file->size == 0 ||
        fallocate(blob->descriptor, FALLOC_FL_KEEP_SIZE, 0, (off_t)blob->file->size) == 0 ||
        errno != ENOSPC) {
        return MF_OK;
    }
    return fail(why, MF_ERR_IO, "the disk of the cache has no room for %.128s (%.1f GiB)",
                blob->file->path, (double)blob->file->size / 0x1p30);
}

mf_status hub_job_open(struct hub_job *job, mf_error *why)
{
    enum hub_blob_state found;
    mf_status status = hub_blob_open(&found, &job->blob, why);

    if (status != MF_OK || found == HUB_BLOB_BUSY) return status;
    job->state = found == HUB_BLOB_THERE ? JOB_DONE : JOB_ACTIVE;
    return job->state == JOB_ACTIVE ? reserve(&job->blob, why) : MF_OK;
}

static void *verify(void *user)
{
    struct hub_job *job = user;

    job->result = hub_blob_verify(&job->blob, &job->stop, &job->why);
    __atomic_store_n(&job->ended, true, __ATOMIC_RELEASE);
    return NULL;
}

mf_status hub_job_verify(struct hub_job *job, mf_error *why)
{
    mf_status status = job->blob.unrecorded > 0 ? hub_blob_record(&job->blob, why) : MF_OK;

    if (status != MF_OK) return status;
    job->stop = job->ended = false;
    int number = pthread_create(&job->thread, NULL, verify, job);
    if (number != 0) {
        return fail_errno(why, MF_ERR_MEMORY, number, "a thread cannot be started");
    }
    job->state = JOB_VERIFIES;
    return MF_OK;
}

mf_status hub_job_end_verify(struct hub_job *job, mf_error *why)
{
    if (!__atomic_load_n(&job->ended, __ATOMIC_ACQUIRE)) return MF_OK;
    pthread_join(job->thread, NULL);
    job->state = JOB_ACTIVE;
    if (job->result == MF_OK) {
        mf_status status = hub_blob_commit(&job->blob, why);
        if (status == MF_OK) job->state = JOB_DONE;
        return status;
    }
    if (job->result == MF_ERR_MISMATCH) {
        /* What an earlier run left may have been damaged by a power failure. */
        bool again = job->blob.resumed;
        mf_status status = hub_blob_discard(&job->blob, why);
        if (status != MF_OK || again) return status;
        unlink(job->blob.incomplete);
    }
    if (why) *why = job->why;
    return job->result;
}

void hub_job_refuse(struct hub_job *job, const char *reason)
{
    job->refusal = reason;
}

void hub_job_end(struct hub_job *job)
{
    if (job->state == JOB_VERIFIES) {
        __atomic_store_n(&job->stop, true, __ATOMIC_RELAXED);
        pthread_join(job->thread, NULL);
    }
    hub_blob_close(&job->blob);
    free(job->address);
    job->address = NULL;
}
