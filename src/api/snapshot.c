/* snapshot.c: mf_sequence_save, mf_sequence_load and their files. */
#include "api/handles.h"

#include "base/disk.h"
#include "base/status.h"
#include "model/fingerprint.h"

#include <stdio.h>
#include <stdlib.h>

/* Read once; the state of other weights would give nonsense. */
static mf_status find_fingerprint(mf_model *model, mf_error *why)
{
    struct checksum sum;
    mf_status status = MF_OK;
    pthread_mutex_lock(&model->fingerprint_lock);
    if (model->fingerprint[0] == '\0') {
        checksum_begin(&sum);
        status = fingerprint_add(&sum, &model->model.directory, why);
        fingerprint_add_config(&sum, &model->model.config);
        if (status == MF_OK) checksum_end_wide(&sum, model->fingerprint);
    }
    pthread_mutex_unlock(&model->fingerprint_lock);
    return status;
}

mf_status api_identify(struct snapshot_identity *out, mf_model *model, mf_error *why)
{
    const mf_engine *engine = model->engine;
    char arithmetic[sizeof out->arithmetic + 1];
    mf_status status = find_fingerprint(model, why);
    if (status != MF_OK) return status;
    memset(out, 0, sizeof *out);
    snprintf(arithmetic, sizeof arithmetic, "%s%s/%u/%s", engine->exact ? "reference/" : "",
             engine->cuda ? "cuda" : engine->kernels->name, model->model.config.experts_per_token,
             kv_format_name(model->kv_format));
    memcpy(out->model, model->fingerprint, sizeof out->model);
    memcpy(out->arithmetic, arithmetic, min_size(strlen(arithmetic), sizeof out->arithmetic));
    return MF_OK;
}

static const float *logits_of(const mf_sequence *sequence)
{
    return sequence->sequence.has_logits ? sequence->sequence.logits : NULL;
}

uint64_t mf_sequence_snapshot_bytes(const mf_sequence *sequence)
{
    return sequence ? snapshot_bytes(&sequence->sequence.state, logits_of(sequence)) : 0;
}

mf_status mf_sequence_save(const mf_sequence *sequence, void *out, size_t capacity, size_t *written,
                           mf_error *why)
{
    struct snapshot_identity identity;
    if (!sequence) return api_missing(why, "sequence");
    if (!out) return api_missing(why, "out");
    uint64_t bytes = mf_sequence_snapshot_bytes(sequence);
    if (capacity < bytes)
        return fail(why, MF_ERR_BUFFER_SIZE, "the snapshot has %llu bytes, the buffer %zu",
                    (unsigned long long)bytes, capacity);
    mf_status status = api_identify(&identity, sequence->model, why);
    if (status != MF_OK) return status;
    status = snapshot_write(out, &sequence->sequence.state, logits_of(sequence), &identity, why);
    if (status == MF_OK && written) *written = (size_t)bytes;
    return status;
}

mf_status mf_sequence_load(mf_sequence *sequence, const void *bytes, size_t count, mf_error *why)
{
    struct snapshot_identity identity;
    if (!sequence) return api_missing(why, "sequence");
    if (!bytes) return api_missing(why, "bytes");
    struct engine_sequence *own = &sequence->sequence;
    struct state_pool *pool = &own->room->pool;
    struct sequence state;
    float *logits;
    mf_status status = api_identify(&identity, sequence->model, why);
    if (status != MF_OK) return status;
    sequence_init(&state, pool, own->state.capacity);
    status = snapshot_read(&state, &logits, bytes, count, &identity, why);
    if (status != MF_OK) {
        sequence_free(&state);
        return status;
    }
    sequence_free(&own->state);
    state_pool_drop(pool, BLOCK_LOGITS, own->logits);
    own->state = state;
    own->logits = logits;
    own->has_logits = logits != NULL;
    return MF_OK;
}

mf_status mf_sequence_save_file(const mf_sequence *sequence, const char *path, mf_error *why)
{
    if (!sequence) return api_missing(why, "sequence");
    if (!path) return api_missing(why, "path");
    const mf_allocator *allocator = &sequence->model->engine->allocator;
    size_t bytes = (size_t)mf_sequence_snapshot_bytes(sequence);
    void *memory = allocator->allocate(allocator->user, bytes, CACHE_LINE);
    if (!memory) return fail_memory(why, bytes);
    mf_status status = mf_sequence_save(sequence, memory, bytes, NULL, why);
    if (status == MF_OK) status = disk_replace(&disk_posix, path, memory, bytes, why);
    allocator->release(allocator->user, memory, bytes);
    return status;
}

mf_status mf_sequence_load_file(mf_sequence *sequence, const char *path, mf_error *why)
{
    if (!sequence) return api_missing(why, "sequence");
    if (!path) return api_missing(why, "path");
    char *bytes;
    size_t count;
    mf_status status = file_read_whole_new(&bytes, &count, &sequence->model->engine->files, path,
                                           SIZE_MAX / 2, why);
    if (status != MF_OK) return status;
    status = mf_sequence_load(sequence, bytes, count, why);
    free(bytes);
    return status;
}
