#include "hub/download.h"

#include "common/clock.h"
#include "hub/job.h"

#include <stdio.h>
#include <stdlib.h>

static const double record_seconds = 0.5, busy_seconds = 0.3;
enum { RECORD_BYTES = 4 << 20, STEP_MS = 50 };

/* A connection, and the bytes first … end - 1 that it brings; `first` moves on as they arrive. */
struct lane {
    struct transfer transfer;
    struct downloader *downloader;
    struct hub_job *job; /* NULL: idle */
    uint64_t first, end;
    uint64_t begun; /* first, as it was requested */
};

struct downloader {
    const struct hub_download *order;
    struct hub_job *jobs; /* one per blob, which several files may have */
    size_t job_count;
    struct lane lanes[HUB_CONNECTION_LIMIT];
    uint64_t total;
    double recorded; /* clock_seconds() */
    mf_status status;
    mf_error why; /* of the first failure */
};

/* Keeps the first failure. */
static void keep_failure(struct downloader *d, mf_status status, const mf_error *why)
{
    if (d->status != MF_OK || status == MF_OK) return;
    d->status = status;
    d->why = *why;
}

/* ------------------------------------------------------------------- lanes */

/* The response is the range that was requested, of the file that the hub listed. */
static bool judge_head(struct transfer *transfer)
{
    struct lane *lane = transfer->user;
    struct hub_job *job = lane->job;
    const struct hub_head *head = &transfer->head;
    const struct hub_file *file = job->blob.file;
    bool whole = head->status == 200;

    if (head->status != 200 && head->status != 206) return true; /* judged at its end */
    bool other = (head->linked_hash[0] && strcmp(head->linked_hash, file->hash) != 0) ||
                 (head->has_linked_size && head->linked_size != file->size) ||
                 (whole && head->has_length && head->length != file->size) ||
                 (!whole && (!head->has_range || head->total != file->size));
    if (other) {
        hub_job_refuse(job, "has changed on the hub, or is not what the hub lists");
        return false;
    }
    if (whole && (lane->first != 0 || lane->end != file->size)) {
        /* One connection for all of it; but what came in ranges is not given up for one answer. */
        if (!job->ranged)
            job->whole = true;
        else
            snprintf(transfer->problem, sizeof transfer->problem,
                     "the server answers with all of the file instead of a range");
        return false;
    }
    if (!whole && (head->first != lane->first || head->last >= lane->end)) {
        hub_job_refuse(job, "comes from a server that sends other ranges than requested");
        return false;
    }
    job->ranged |= !whole;
    if (!whole) lane->end = head->last + 1;
    if (!job->address) job->address = strdup(transfer_address(transfer));
    return true;
}

static bool take_bytes(struct transfer *transfer, const void *bytes, size_t count)
{
    struct lane *lane = transfer->user;
    mf_error why = { .text = "" };

    if (transfer->head.status != 200 && transfer->head.status != 206) return true;
    if (count > lane->end - lane->first) {
        hub_job_refuse(lane->job, "is longer than the hub says");
        return false;
    }
    struct hub_blob *blob = &lane->job->blob;
    mf_status status = hub_blob_write(blob, bytes, count, lane->first, &why);
    lane->first += count;
    /* Here, as one step may bring much more than this. */
    if (status == MF_OK && blob->unrecorded >= RECORD_BYTES) status = hub_blob_record(blob, &why);
    keep_failure(lane->downloader, status, &why);
    return status == MF_OK;
}

/* Begins with the next piece of the job; false: it has none for now. */
static bool begin_lane(struct downloader *d, struct lane *lane, struct hub_job *job)
{
    struct hub_range busy[HUB_CONNECTION_LIMIT], gap;
    const struct hub_file *file = job->blob.file;
    char address[HUB_ADDRESS_CAPACITY];
    mf_error why = { .text = "" };
    size_t count = 0;
    mf_status status = MF_OK;

    if (job->state != JOB_ACTIVE || clock_seconds() < job->retry.not_before) return false;
    for (unsigned i = 0; i < d->order->connections; i++) {
        if (d->lanes[i].job != job) continue;
        busy[count++] = (struct hub_range){ d->lanes[i].first, d->lanes[i].end };
    }
    /* The first request learns where the ranges come from. */
    if (count > 0 && (job->whole || !job->address)) return false;
    if (job->whole) hub_ranges_clear(&job->blob.there);
    if (!hub_ranges_gap(&gap, &job->blob.there, busy, count, file->size)) return false;
    if (!job->whole) gap.end = min_size(gap.end, gap.first + job->piece_bytes);
    lane->first = lane->begun = gap.first;
    lane->end = gap.end;
    lane->job = job;
    if (!job->address) {
        status = hub_file_address(address, sizeof address, d->order->client,
                                  d->order->listing->commit, file->path, &why);
    } else {
        snprintf(address, sizeof address, "%s", job->address);
    }
    bool all = gap.first == 0 && gap.end == file->size;
    if (status == MF_OK) {
        status = transfer_begin(&lane->transfer, d->order->client->transport, address, gap.first,
                                all ? 0 : gap.end, &why);
    }
    if (status == MF_OK) return true;
    lane->job = NULL;
    keep_failure(d, status, &why);
    return false;
}

/* A signed address is good for some time; then the hub is asked for another one. */
static bool is_expired(const struct downloader *d, const struct transfer *transfer)
{
    unsigned status = transfer->head.status;

    return transfer->state == TRANSFER_DONE && status >= 400 && status < 500 && status != 429 &&
           status != 408 &&
           !transport_is_hub(d->order->client->transport, transfer_address(transfer));
}

/* After a transfer that did not bring all of its piece.  `ranged`: it had asked for a range. */
static void end_badly(struct downloader *d, struct hub_job *job, const struct transfer *transfer,
                      bool ranged)
{
    mf_error why = { .text = "" };

    if (job->refusal) {
        keep_failure(d,
                     fail(&why, MF_ERR_MISMATCH, "%.200s %s; run the same command again",
                          job->blob.file->path, job->refusal),
                     &why);
        return;
    }
    /* Begun anew without ranges; what is refused without one stays refused. */
    if (transfer->state == TRANSFER_REFUSED && job->whole && ranged) return;
    bool expired = is_expired(d, transfer);
    /* Connections that had the same address count once. */
    if (job->address || transfer->redirections > 0) job->expired++;
    free(job->address);
    job->address = NULL;
    if (expired && job->expired < JOB_EXPIRY_LIMIT) return;
    if (hub_retry_later(&job->retry, transfer)) {
        double wait = job->retry.not_before - clock_seconds();
        if (wait > 2)
            hub_say(d->order->client->observer, "the hub is busy: trying again in %.0f s", wait);
        return;
    }
    keep_failure(d, hub_explain(d->order->client, transfer, job->blob.file->path, &why), &why);
}

static void end_lane(struct downloader *d, struct lane *lane)
{
    struct hub_job *job = lane->job;
    struct transfer *transfer = &lane->transfer;
    bool good = transfer->state == TRANSFER_DONE &&
                (transfer->head.status == 200 || transfer->head.status == 206);

    lane->job = NULL;
    if (lane->first > lane->begun && !job->whole) { /* that was progress */
        job->retry.failures = 0;
        job->expired = 0;
    }
    if (d->status != MF_OK) return;
    if (good && lane->first == lane->end) return;
    if (good) { /* without a length the end of a connection looks like the end of the file */
        transfer->state = TRANSFER_CUT;
        snprintf(transfer->problem, sizeof transfer->problem, "the connection ended early");
    }
    if (transfer->state == TRANSFER_REFUSED && transfer->head.status == 200 && job->ranged)
        transfer->state = TRANSFER_CUT; /* the next answer may be a range again */
    end_badly(d, job, transfer, lane->begun > 0 || lane->end < job->blob.file->size);
}

/* -------------------------------------------------------------------- jobs */

static void keep_job(struct downloader *d, struct hub_job *job,
                     mf_status (*step)(struct hub_job *, mf_error *))
{
    mf_error why = { .text = "" };

    keep_failure(d, step(job, &why), &why);
}

static void open_job(struct downloader *d, struct hub_job *job)
{
    if (clock_seconds() < job->retry.not_before) return;
    keep_job(d, job, hub_job_open);
    job->retry.not_before = job->state == JOB_WAITING ? clock_seconds() + busy_seconds : 0;
    if (d->status != MF_OK || job->state != JOB_WAITING || job->said) return;
    hub_say(d->order->client->observer, "another process downloads %s: waiting for it",
            job->blob.file->path);
    job->said = true;
}

/* Opens files, starts and ends their verification.  True: all are done. */
static bool advance_jobs(struct downloader *d)
{
    bool all = true;
    size_t open = 0, open_limit = d->order->connections + 4;

    for (size_t i = 0; i < d->job_count; i++) {
        struct hub_job *job = &d->jobs[i];
        if (job->state == JOB_WAITING && open < open_limit) open_job(d, job);
        if (job->state == JOB_ACTIVE && hub_ranges_sum(&job->blob.there) == job->blob.file->size) {
            keep_job(d, job, hub_job_verify);
        }
        if (job->state == JOB_VERIFIES) keep_job(d, job, hub_job_end_verify);
        open += job->state == JOB_ACTIVE || job->state == JOB_VERIFIES;
        all &= job->state == JOB_DONE;
        if (d->status != MF_OK) return false;
    }
    return all;
}

static void begin_lanes(struct downloader *d)
{
    for (unsigned i = 0; i < d->order->connections && d->status == MF_OK; i++) {
        struct lane *lane = &d->lanes[i];
        for (size_t j = 0; !lane->job && j < d->job_count && d->status == MF_OK; j++) {
            if (begin_lane(d, lane, &d->jobs[j])) break;
        }
    }
}

/* Records what has arrived, after a moment. */
static void record_jobs(struct downloader *d)
{
    double now = clock_seconds();
    mf_error why = { .text = "" };

    if (now - d->recorded < record_seconds) return;
    d->recorded = now;
    for (size_t i = 0; i < d->job_count; i++) {
        struct hub_blob *blob = &d->jobs[i].blob;
        if (d->jobs[i].state == JOB_ACTIVE && blob->unrecorded > 0)
            keep_failure(d, hub_blob_record(blob, &why), &why);
    }
}

static void show_progress(const struct downloader *d)
{
    const struct hub_observer *observer = d->order->client->observer;
    uint64_t done = 0;

    if (!observer->progress) return;
    for (size_t i = 0; i < d->job_count; i++) {
        const struct hub_job *job = &d->jobs[i];
        done += job->state == JOB_DONE ? job->blob.file->size : hub_ranges_sum(&job->blob.there);
    }
    observer->progress(observer->user, done, d->total);
}

static void run(struct downloader *d)
{
    mf_error why = { .text = "" };

    while (d->status == MF_OK && !advance_jobs(d)) {
        if (hub_is_stopped(d->order->client->observer)) {
            keep_failure(d, fail(&why, MF_ERR_CANCELLED, "interrupted"), &why);
        }
        if (d->status != MF_OK) break;
        begin_lanes(d);
        mf_status status = transport_step(d->order->client->transport, STEP_MS, &why);
        keep_failure(d, status, &why);
        for (unsigned i = 0; i < d->order->connections; i++) {
            struct lane *lane = &d->lanes[i];
            if (lane->job && lane->transfer.state != TRANSFER_RUNS) end_lane(d, lane);
        }
        record_jobs(d);
        show_progress(d);
    }
}

/* Whether an earlier file of the order has the same blob. */
static bool is_again(const struct hub_download *order, size_t index)
{
    const struct hub_file *files = order->listing->files;

    for (size_t i = 0; i < index; i++) {
        if (strcmp(files[order->files[i]].hash, files[order->files[index]].hash) == 0) return true;
    }
    return false;
}

mf_status hub_download(const struct hub_download *order, mf_error *why)
{
    struct downloader *d = calloc(1, sizeof *d);

    if (d) d->jobs = calloc(order->file_count + 1, sizeof *d->jobs);
    if (!d || !d->jobs) {
        free(d);
        return fail_memory(why, sizeof *d);
    }
    d->order = order;
    for (size_t i = 0; i < order->file_count; i++) {
        const struct hub_file *file = &order->listing->files[order->files[i]];
        mf_error reason = { .text = "" };
        if (is_again(order, i)) continue;
        d->total += file->size;
        mf_status status = hub_job_begin(&d->jobs[d->job_count++], file, order->client,
                                         order->connections, &reason);
        keep_failure(d, status, &reason);
    }
    for (unsigned i = 0; i < order->connections; i++) {
        d->lanes[i].downloader = d;
        d->lanes[i].transfer.on_head = judge_head;
        d->lanes[i].transfer.on_body = take_bytes;
        d->lanes[i].transfer.user = &d->lanes[i];
    }
    run(d);
    for (unsigned i = 0; i < order->connections; i++) transfer_cancel(&d->lanes[i].transfer);
    for (size_t i = 0; i < d->job_count; i++) hub_job_end(&d->jobs[i]);
    mf_status status = d->status;
    if (status != MF_OK && why) *why = d->why;
    free(d->jobs);
    free(d);
    return status;
}
