#include "engine/session.h"

#include "base/clock.h"
#include "base/status.h"

mf_status session_init(struct session *session, const mf_allocator *allocator,
                       const struct forward_parts *parts, struct session_sizes sizes, mf_error *why)
{
    const struct model_config *config = parts->config;
    *session = (struct session){ .chunk_rows = sizes.chunk_rows };
    arena_init(&session->arena, allocator);
    mf_status status = sequence_pool_init(&session->pool, allocator, config, sizes.context_length,
                                          parts->backend->kv_format, why);
    if (status == MF_OK)
        status = sequence_init(&session->sequence, config, &session->pool, &session->arena,
                               sizes.context_length, why);
    if (status == MF_OK)
        status = forward_init(&session->forward, parts, &session->arena, sizes.chunk_rows,
                              sizes.context_length, why);
    if (status == MF_OK) {
        session->logits = ARENA_NEW(&session->arena, float, config->vocab_size);
        if (!session->logits) status = fail_memory(why, config->vocab_size * sizeof(float));
    }
    if (status != MF_OK) session_free(session);
    return status;
}

void session_free(struct session *session)
{
    kv_pool_free(&session->pool);
    arena_free(&session->arena);
}

static mf_status check_tokens(const struct session *session, const int32_t *tokens, size_t count,
                              mf_error *why)
{
    uint32_t vocab_size = session->sequence.config->vocab_size;
    for (size_t i = 0; i < count; i++) {
        if (tokens[i] < 0 || (uint32_t)tokens[i] >= vocab_size)
            return fail(why, MF_ERR_ARGUMENT,
                        "token %zu has the id %d, the model's vocabulary ends at %u", i, tokens[i],
                        vocab_size - 1);
    }
    if (count > session->sequence.capacity)
        return fail(why, MF_ERR_CONTEXT_FULL, "%zu tokens do not fit: the context holds %u", count,
                    session->sequence.capacity);
    return MF_OK;
}

/* Hands over the logits of all rows of the last step; the last row's stay readable. */
static mf_status each_row(struct session *session, size_t first_index, size_t rows,
                          mf_logits_function each, void *user, mf_error *why)
{
    size_t vocab_size = session->sequence.config->vocab_size;
    for (size_t r = 0; r < rows; r += LOGIT_ROWS) {
        const float *logits;
        size_t count = min_size(LOGIT_ROWS, rows - r);
        mf_status status = forward_logits(&logits, &session->forward, r, count, why);
        if (status != MF_OK) return status;
        for (size_t i = 0; i < count; i++) each(user, first_index + r + i, logits + i * vocab_size);
    }
    return MF_OK;
}

/* Neither infinite nor NaN: an exponent of all ones is one of the two. */
static bool all_finite(const float *values, size_t count)
{
    const uint32_t exponent = 0x7f800000;
    uint32_t found = 0;
    for (size_t i = 0; i < count; i++) {
        uint32_t bits;
        memcpy(&bits, &values[i], sizeof bits);
        found |= (bits & exponent) == exponent;
    }
    return !found;
}

/* A checkpoint with such a weight opens, because its experts are not read until they are
 * chosen; what it computes is refused here. */
static mf_status check_logits(const struct session *session, const float *logits, mf_error *why)
{
    const struct forward *f = &session->forward;
    char culprit[128] = "no resident weight is the cause: one of an expert that was chosen";
    if (all_finite(logits, f->config->vocab_size)) return MF_OK;
    weights_find_not_finite(culprit, sizeof culprit, f->weights, f->config->layer_count);
    return fail(why, MF_ERR_NOT_FINITE,
                "the logits are not finite numbers, which they are with sound weights; look at: %s",
                culprit);
}

static mf_status feed_chunks(struct session *session, const struct session_feed *feed,
                             mf_error *why)
{
    for (size_t done = 0; done < feed->count;) {
        uint32_t rows = (uint32_t)min_size(session->chunk_rows, feed->count - done);
        struct step_part part = { &session->sequence, feed->tokens + done, rows,
                                  feed->phase == MF_PHASE_GENERATED };
        mf_status status = forward_step(&session->forward, &part, 1, why);
        if (status == MF_OK && feed->each)
            status = each_row(session, done, rows, feed->each, feed->user, why);
        if (status != MF_OK) return status;
        done += rows;
    }
    const float *logits;
    size_t last_row = (feed->count - 1) % session->chunk_rows;
    mf_status status = forward_logits(&logits, &session->forward, last_row, 1, why);
    if (status == MF_OK) status = check_logits(session, logits, why);
    if (status != MF_OK) return status;
    memcpy(session->logits, logits, session->sequence.config->vocab_size * sizeof(float));
    return MF_OK;
}

static void count_feed(struct session_times *times, const struct session_feed *feed, double seconds)
{
    if (feed->phase == MF_PHASE_GENERATED) {
        times->decode_tokens += feed->count;
        times->decode_seconds += seconds;
    } else {
        times->prompt_tokens += feed->count;
        times->prompt_seconds += seconds;
    }
}

/* All but the commit: the tokens are pending, or after a failure nothing is. */
static mf_status feed_pending(struct session *session, const struct session_feed *feed,
                              mf_error *why)
{
    mf_status status = check_tokens(session, feed->tokens, feed->count, why);
    if (status == MF_OK) status = sequence_reserve(&session->sequence, (uint32_t)feed->count, why);
    double begin = clock_seconds();
    if (status == MF_OK) status = feed_chunks(session, feed, why);
    if (status != MF_OK) {
        sequence_abandon(&session->sequence); /* also pages taken before the pool ran out */
        return status;
    }
    count_feed(&session->times, feed, clock_seconds() - begin);
    return MF_OK;
}

mf_status session_feed(struct session *session, const struct session_feed *feed, mf_error *why)
{
    if (feed->count == 0) return MF_OK;
    mf_status status = feed_pending(session, feed, why);
    if (status != MF_OK) return status;
    sequence_commit(&session->sequence);
    session->has_logits = true;
    return MF_OK;
}

mf_status session_rehearse(struct session *session, const struct session_feed *feed, mf_error *why)
{
    if (feed->count == 0) return MF_OK;
    mf_status status = feed_pending(session, feed, why);
    if (status != MF_OK) return status;
    sequence_abandon(&session->sequence);
    session->has_logits = false; /* they are of another sequence */
    return MF_OK;
}

void session_clear(struct session *session)
{
    sequence_clear(&session->sequence);
    session->has_logits = false;
}

mf_status session_truncate(struct session *session, uint32_t position, mf_error *why)
{
    bool cut = position < session->sequence.position;
    mf_status status = sequence_truncate(&session->sequence, position, why);
    if (status == MF_OK && cut) session->has_logits = false;
    return status;
}
