/* context.c: one sequence behind one handle, on top of engine, model and sequence. */
#include "moeflux_compat.h"

#include "api/handles.h"
#include "base/file.h"
#include "base/status.h"

struct mf_context {
    mf_engine *engine;
    mf_model *model;
    mf_sequence *sequence;
};

/* What a context's sequence may hold, unless the model's own limit is lower. */
enum { CONTEXT_POSITIONS = 8192 };

/* The ancestors' parent directory, which has mlx/config.json: two up from the weights. */
static mf_status parent_of_weights(char out[PATH_CAPACITY], const char *weights, mf_error *why)
{
    if (strlen(weights) >= PATH_CAPACITY - 8)
        return fail(why, MF_ERR_ARGUMENT, "the path of the weights is longer than %d bytes",
                    PATH_CAPACITY - 8);
    strcpy(out, weights);
    char *slash = strrchr(out, '/');
    if (!slash) {
        strcpy(out, "..");
        return MF_OK;
    }
    *slash = '\0'; /* out is the directory of the weights */
    slash = strrchr(out, '/');
    if (slash && slash > out && slash[1] && slash[1] != '.')
        *slash = '\0'; /* a name to go up from, so that the model has the name of its parent */
    else
        strcat(out, "/..");
    return MF_OK;
}

static mf_status open_model(mf_context *context, const char *weights,
                            const struct ancestors_paths *ancestors, uint32_t experts_per_tok,
                            mf_error *why)
{
    mf_model_options options = { .struct_size = sizeof options,
                                 .experts_per_token = experts_per_tok };
    if (!ancestors) return mf_model_open(&context->model, context->engine, weights, &options, why);
    char parent[PATH_CAPACITY];
    mf_status status = parent_of_weights(parent, weights, why);
    if (status != MF_OK) return status;
    return api_model_open(&context->model, context->engine, parent, ancestors, &options, why);
}

mf_status mf_context_open(mf_context **out, const char *weights, const char *manifest,
                          const char *vocab, const char *experts_dir, uint32_t experts_per_tok,
                          bool use_2bit, mf_error *why)
{
    (void)vocab; /* the tokenizer is found beside config.json */
    if (!out) return fail(why, MF_ERR_ARGUMENT, "the argument `out` is NULL");
    *out = NULL;
    if (!weights) return fail(why, MF_ERR_ARGUMENT, "the argument `weights` is NULL");
    mf_context *context =
        allocator_heap.allocate(allocator_heap.user, sizeof *context, _Alignof(max_align_t));
    if (!context) return fail_memory(why, sizeof *context);
    *context = (mf_context){ 0 };

    struct ancestors_paths ancestors = { weights, manifest, experts_dir, use_2bit };
    mf_status status = mf_engine_open(&context->engine, NULL, why);
    if (status == MF_OK)
        status = open_model(context, weights, manifest ? &ancestors : NULL, experts_per_tok, why);
    if (status == MF_OK) {
        uint32_t limit = mf_model_context_length(context->model);
        mf_sequence_options sizes = { .struct_size = sizeof sizes,
                                      .context_length =
                                          (uint32_t)min_size(limit, CONTEXT_POSITIONS) };
        status = mf_sequence_open(&context->sequence, context->model, &sizes, why);
    }
    if (status == MF_OK)
        *out = context;
    else
        mf_context_close(context);
    return status;
}

void mf_context_close(mf_context *context)
{
    if (!context) return;
    mf_sequence_close(context->sequence);
    mf_model_close(context->model);
    mf_engine_close(context->engine);
    allocator_heap.release(allocator_heap.user, context, sizeof *context);
}

size_t mf_context_n_vocab(const mf_context *context)
{
    return mf_model_vocab_size(context->model);
}

size_t mf_context_n_ctx(const mf_context *context)
{
    return mf_sequence_context_length(context->sequence);
}

int32_t mf_context_eos(const mf_context *context)
{
    return mf_model_eos(context->model);
}

const char *mf_context_model_name(const mf_context *context)
{
    return mf_model_name(context->model);
}

static mf_status evaluate(mf_context *context, mf_phase phase, const int32_t *tokens, size_t count,
                          int32_t start_pos, float *logits, size_t logits_length, mf_error *why)
{
    if (!context) return fail(why, MF_ERR_ARGUMENT, "the argument `context` is NULL");
    size_t vocab_size = mf_context_n_vocab(context);
    if (!logits || logits_length != vocab_size)
        return fail(why, MF_ERR_BUFFER_SIZE, "there is room for %zu logits, %zu were expected",
                    logits ? logits_length : 0, vocab_size);
    if (count == 0) return MF_OK;
    uint32_t position = mf_sequence_position(context->sequence);
    if (start_pos < 0 || (uint32_t)start_pos != position)
        return fail(why, MF_ERR_ARGUMENT, "the start position is %d, the sequence goes on at %u",
                    start_pos, position);
    mf_status status = mf_sequence_feed(context->sequence, phase, tokens, count, why);
    if (status != MF_OK) return status;
    memcpy(logits, mf_sequence_logits(context->sequence), vocab_size * sizeof *logits);
    return MF_OK;
}

mf_status mf_context_eval_prompt(mf_context *context, const int32_t *tokens, size_t count,
                                 int32_t start_pos, int32_t seq_id, float *logits,
                                 size_t logits_length, mf_error *why)
{
    (void)seq_id;
    return evaluate(context, MF_PHASE_PROMPT, tokens, count, start_pos, logits, logits_length, why);
}

mf_status mf_context_eval_token(mf_context *context, int32_t token, int32_t pos, int32_t seq_id,
                                float *logits, size_t logits_length, mf_error *why)
{
    (void)seq_id;
    return evaluate(context, MF_PHASE_GENERATED, &token, 1, pos, logits, logits_length, why);
}

void mf_context_memory_clear(mf_context *context)
{
    mf_sequence_clear(context->sequence);
}

mf_status mf_context_memory_seq_rm(mf_context *context, int32_t seq_id, int32_t p0, int32_t p1,
                                   mf_error *why)
{
    (void)seq_id;
    if (!context) return fail(why, MF_ERR_ARGUMENT, "the argument `context` is NULL");
    uint32_t position = mf_sequence_position(context->sequence);
    uint32_t keep = p0 < 0 ? 0 : (uint32_t)p0;
    if (p1 >= 0 && (uint32_t)p1 < position)
        return fail(why, MF_ERR_CANNOT_TRUNCATE,
                    "positions %d to %d lie inside the sequence of %u; only its end can be removed",
                    p0, p1, position);
    return mf_sequence_truncate(context->sequence, (uint32_t)min_size(keep, position), why);
}

int32_t mf_context_memory_seq_pos_max(const mf_context *context, int32_t seq_id)
{
    (void)seq_id;
    return (int32_t)mf_sequence_position(context->sequence) - 1;
}
