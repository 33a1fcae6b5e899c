/* requests_park.c: the memory of requests: what they hold and will need, and states that make room
 * for others. */
#include "engine/requests_loop.h"

#include "base/disk.h"
#include "base/status.h"
#include "engine/admission.h"
#include "state/snapshot.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* A parked state is read by the process that wrote it. */
static const struct snapshot_identity own_state = { .model = "parked" };

uint64_t request_held_bytes(const struct request *request)
{
    const struct sequence *state = &request->sequence.state;
    const struct state_shape *shape = &state->pool->shape;
    return state->page_count * state_block_bytes(shape, BLOCK_PAGE) +
           (state->recurrent ? state_block_bytes(shape, BLOCK_RECURRENT) : 0) +
           (request->sequence.logits ? state_block_bytes(shape, BLOCK_LOGITS) : 0);
}

uint64_t request_wanted_bytes(const struct request *request, const struct state_shape *shape)
{
    const struct request_wishes *wishes = &request->wishes;
    uint32_t left = wishes->answer_count - request->answered;
    uint32_t positions =
        wishes->prompt_count + request->answered + (uint32_t)min_size(left, ADMISSION_AHEAD);
    uint64_t bytes = state_block_bytes(shape, BLOCK_LOGITS);
    if (shape->cached_layers > 0)
        bytes += state_pages_for(positions - 1) * state_block_bytes(shape, BLOCK_PAGE);
    /* A step writes the next recurrent state beside the present one. */
    if (shape->recurrent_layers > 0) bytes += 2 * state_block_bytes(shape, BLOCK_RECURRENT);
    return bytes;
}

/* -------------------------------------------------------------------- parking */

/* To a file of its own, for which the name is made from the process and the request's number. */
static mf_status write_file(struct request *request, const char *directory, mf_error *why)
{
    struct parked_state *parked = &request->parked;
    struct disk_file file;
    char name[64];
    snprintf(name, sizeof name, "parked-%ld-%llu", (long)getpid(),
             (unsigned long long)request->number);
    mf_status status = disk_file_open(&file, &disk_posix, directory, name, why);
    if (status != MF_OK) return status;
    status = disk_file_write(&file, 0, parked->bytes, parked->count, why);
    char *path = status == MF_OK ? strdup(file.path) : NULL;
    disk_file_close(&file);
    if (!path) {
        disk_posix.remove(NULL, file.path);
        return status == MF_OK ? fail_memory(why, 1) : status;
    }
    parked->path = path;
    free(parked->bytes);
    parked->bytes = NULL;
    return MF_OK;
}

mf_status request_park(struct request *request, const char *directory, mf_error *why)
{
    struct engine_sequence *sequence = &request->sequence;
    struct parked_state *parked = &request->parked;
    size_t count = (size_t)snapshot_bytes(&sequence->state, NULL);
    parked->bytes = malloc(count);
    if (!parked->bytes) return fail_memory(why, count);
    parked->count = count;
    snapshot_write(parked->bytes, &sequence->state, NULL, &own_state);
    mf_status status = directory ? write_file(request, directory, why) : MF_OK;
    if (status != MF_OK) {
        request_drop_parked(request);
        return status;
    }
    parked->times++;
    engine_sequence_release(sequence);
    return MF_OK;
}

mf_status request_unpark(struct request *request, mf_error *why)
{
    struct parked_state *parked = &request->parked;
    struct engine_sequence *sequence = &request->sequence;
    float *logits;
    mf_status status = MF_OK;
    if (parked->path) {
        char *bytes;
        size_t count;
        status =
            file_read_whole_new(&bytes, &count, &files_posix, parked->path, parked->count, why);
        if (status == MF_OK) parked->bytes = bytes;
    }
    if (status == MF_OK)
        status =
            snapshot_read(&sequence->state, &logits, parked->bytes, parked->count, &own_state, why);
    if (status == MF_OK) {
        request_drop_parked(request);
    } else if (parked->path) {
        free(parked->bytes);
        parked->bytes = NULL;
    }
    return status;
}

void request_drop_parked(struct request *request)
{
    struct parked_state *parked = &request->parked;
    if (parked->path) disk_posix.remove(NULL, parked->path);
    free(parked->path);
    free(parked->bytes);
    parked->path = NULL;
    parked->bytes = NULL;
    parked->count = 0;
}
