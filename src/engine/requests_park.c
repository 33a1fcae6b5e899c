/* requests_park.c: the memory of requests: what they hold and will need, and states that make room
 * for others. */
#include "engine/requests_loop.h"

#include "base/disk.h"
#include "base/status.h"
#include "engine/admission.h"
#include "state/snapshot.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>

/* A parked state is read by the process that wrote it. */
static const struct snapshot_identity own_state = { .model = "parked" };

uint64_t request_held_bytes(const struct request *request)
{
    const struct sequence *state = &request->sequence.state;
    const struct state_shape *shape = &state->pool->shape;
    return state->page_count * state_block_bytes(shape, BLOCK_PAGE) +
           (state->window.end - state->window.first) * state_block_bytes(shape, BLOCK_WINDOW) +
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
    bytes += sequence_window_pages(shape, positions - 1) * state_block_bytes(shape, BLOCK_WINDOW);
    /* A step writes the next recurrent state beside the present one. */
    if (shape->recurrent_layers > 0) bytes += 2 * state_block_bytes(shape, BLOCK_RECURRENT);
    return bytes;
}

/* ---------------------------------------------------------------------- files */

/* A file without a name: it has a random one only until it is open twice, to write and to read.
 * So a process that ends leaves none behind, and none is taken for that of another request. */
static mf_status open_nameless(struct disk_file *to, struct file *from,
                               const struct requests_options *options, const char *directory,
                               mf_error *why)
{
    const struct disk *disk = options->disk ? options->disk : &disk_private;
    uint64_t number = 0;
    char name[64];
    if (getrandom(&number, sizeof number, 0) != (ssize_t)sizeof number)
        return fail_errno(why, MF_ERR_IO, errno, "the system gives no random bytes");
    snprintf(name, sizeof name, "parked-%016llx", (unsigned long long)number);
    mf_status status = disk_file_open(to, disk, directory, name, why);
    if (status != MF_OK) return status;
    status = file_open(from, options->files ? options->files : &files_posix, to->path, why);
    disk->remove(disk->user, to->path);
    from->path = "the file of a parked state"; /* for messages */
    if (status != MF_OK) disk_file_close(to);
    return status;
}

/* The snapshot goes from memory to a file. */
static mf_status write_file(struct parked_state *parked, const struct requests_options *options,
                            const char *directory, mf_error *why)
{
    struct disk_file to;
    struct file from;
    mf_status status = open_nameless(&to, &from, options, directory, why);
    if (status != MF_OK) return status;
    status = disk_file_write(&to, 0, parked->bytes, parked->count, why);
    disk_file_close(&to);
    if (status != MF_OK) {
        file_close(&from);
        return status;
    }
    parked->file = from;
    free(parked->bytes);
    parked->bytes = NULL;
    return MF_OK;
}

static mf_status read_file(struct parked_state *parked, mf_error *why)
{
    parked->bytes = malloc(parked->count);
    if (!parked->bytes) return fail_memory(why, parked->count);
    return file_read(&parked->file, parked->bytes, 0, parked->count, why);
}

mf_status requests_check_directory(const struct requests_options *options, mf_error *why)
{
    struct disk_file to;
    struct file from;
    if (!options->park_directory) return MF_OK;
    mf_status status = open_nameless(&to, &from, options, options->park_directory, why);
    if (status != MF_OK) return status;
    disk_file_close(&to);
    file_close(&from);
    return MF_OK;
}

/* -------------------------------------------------------------------- parking */

mf_status request_park(struct request *request, const struct requests_options *options,
                       const char *directory, mf_error *why)
{
    struct engine_sequence *sequence = &request->sequence;
    struct parked_state *parked = &request->parked;
    size_t count = (size_t)snapshot_bytes(&sequence->state, NULL);
    parked->bytes = malloc(count);
    if (!parked->bytes) return fail_memory(why, count);
    parked->count = count;
    mf_status status = snapshot_write(parked->bytes, &sequence->state, NULL, &own_state, why);
    if (status != MF_OK) {
        request_drop_parked(request);
        return status;
    }
    /* Where the disk is full it stays in memory. */
    if (directory) write_file(parked, options, directory, NULL);
    parked->times++;
    engine_sequence_release(sequence);
    return MF_OK;
}

mf_status request_unpark(struct request *request, mf_error *why)
{
    struct parked_state *parked = &request->parked;
    struct engine_sequence *sequence = &request->sequence;
    float *logits;
    mf_status status = parked->file.handle ? read_file(parked, why) : MF_OK;
    if (status == MF_OK)
        status =
            snapshot_read(&sequence->state, &logits, parked->bytes, parked->count, &own_state, why);
    if (status == MF_OK) {
        request_drop_parked(request);
    } else if (parked->file.handle) {
        free(parked->bytes);
        parked->bytes = NULL;
    }
    return status;
}

void request_drop_parked(struct request *request)
{
    struct parked_state *parked = &request->parked;
    file_close(&parked->file);
    free(parked->bytes);
    parked->bytes = NULL;
    parked->count = 0;
}
