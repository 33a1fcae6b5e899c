/* context.c: a model and its sequences behind one handle, on top of engine, model and sequence. */
#include "compat/handles.h"

#include "base/array.h"
#include "base/file.h"
#include "base/status.h"

enum { MAX_CHECKPOINTS_STANDARD = 4 };

/* --------------------------------------------------------------- sequences */

struct context_sequence *context_find(const mf_context *context, int32_t seq_id)
{
    for (size_t i = 0; context && i < context->sequence_count; i++)
        if (context->sequences[i].id == seq_id) return &context->sequences[i];
    return NULL;
}

static void set_observer(mf_context *context, mf_sequence *live)
{
    live->sequence.observer = context->watch_hidden ? &context->observer : NULL;
}

mf_status context_find_or_add(struct context_sequence **out, mf_context *context, int32_t seq_id,
                              mf_error *why)
{
    if (!context) return api_missing(why, "context");
    *out = context_find(context, seq_id);
    if (*out) return MF_OK;
    if (seq_id < 0) return fail(why, MF_ERR_ARGUMENT, "seq_id is %d, ids begin at 0", seq_id);
    struct context_sequence added = { .id = seq_id };
    mf_status status = ARRAY_RESERVE(context->sequences, context->sequence_room,
                                     context->sequence_count + 1, &allocator_heap, why);
    if (status == MF_OK) status = mf_sequence_open(&added.live, context->model, NULL, why);
    if (status != MF_OK) return status;
    set_observer(context, added.live);
    *out = &context->sequences[context->sequence_count++];
    **out = added;
    return MF_OK;
}

mf_status context_go_to(mf_context *context, struct context_sequence *sequence,
                        const mf_sequence *state, mf_error *why)
{
    mf_sequence *fork;
    mf_status status = mf_sequence_fork(&fork, state, why);
    if (status != MF_OK) return status;
    mf_sequence_close(sequence->live);
    sequence->live = fork;
    set_observer(context, fork);
    return MF_OK;
}

static void drop_sequences(mf_context *context, size_t keep)
{
    while (context->sequence_count > keep) {
        struct context_sequence *last = &context->sequences[--context->sequence_count];
        checkpoints_free(&last->checkpoints);
        mf_sequence_close(last->live);
    }
}

/* ------------------------------------------------------------------ opening */

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
                            const mf_context_options *options, mf_error *why)
{
    mf_model_options own = { .struct_size = sizeof own,
                             .memory_bytes = options->memory_bytes,
                             .context_length = options->context_length,
                             .experts_per_token = options->experts_per_tok,
                             .sequences = options->sequences,
                             .kv_type = options->kv_type };
    if (!options->manifest)
        return mf_model_open(&context->model, context->engine, weights, &own, why);
    struct ancestors_paths ancestors = { weights, options->manifest, options->experts_dir,
                                         options->use_2bit };
    char parent[PATH_CAPACITY];
    mf_status status = parent_of_weights(parent, weights, why);
    if (status != MF_OK) return status;
    return api_model_open(&context->model, context->engine, parent, &ancestors, &own, why);
}

mf_status mf_context_open_with(mf_context **out, const char *weights,
                               const mf_context_options *options, mf_error *why)
{
    if (!out) return api_missing(why, "out");
    *out = NULL;
    if (!weights) return api_missing(why, "weights");
    mf_context_options own;
    mf_status status = api_options_in(&own, sizeof own, options, "MF_CONTEXT_OPTIONS_INIT", why);
    if (status != MF_OK) return status;
    mf_context *context = api_new_handle(&allocator_heap, sizeof *context);
    if (!context) return fail_memory(why, sizeof *context);
    context->max_checkpoints = MAX_CHECKPOINTS_STANDARD;
    mf_engine_options engine = { .struct_size = sizeof engine,
                                 .thread_count = own.thread_count,
                                 .backend = own.backend,
                                 .kernels = own.kernels };
    status = mf_engine_open(&context->engine, &engine, why);
    if (status == MF_OK) status = open_model(context, weights, &own, why);
    struct context_sequence *first;
    if (status == MF_OK) status = context_find_or_add(&first, context, 0, why);
    if (status == MF_OK)
        *out = context;
    else
        mf_context_close(context);
    return status;
}

mf_status mf_context_open(mf_context **out, const char *weights, const char *manifest,
                          const char *vocab, const char *experts_dir, uint32_t experts_per_tok,
                          bool use_2bit, mf_error *why)
{
    mf_context_options options = { .struct_size = sizeof options,
                                   .experts_per_tok = experts_per_tok,
                                   .manifest = manifest,
                                   .vocab = vocab,
                                   .experts_dir = experts_dir,
                                   .use_2bit = use_2bit };
    return mf_context_open_with(out, weights, &options, why);
}

void mf_context_close(mf_context *context)
{
    if (!context) return;
    drop_sequences(context, 0);
    array_free(context->sequences, context->sequence_room, sizeof *context->sequences,
               &allocator_heap);
    mf_model_close(context->model);
    mf_engine_close(context->engine);
    allocator_heap.release(allocator_heap.user, context, sizeof *context);
}

const mf_model *mf_context_model(const mf_context *context)
{
    return context ? context->model : NULL;
}

size_t mf_context_n_vocab(const mf_context *context)
{
    return mf_model_vocab_size(mf_context_model(context));
}

size_t mf_context_n_ctx(const mf_context *context)
{
    return context ? mf_sequence_context_length(context->sequences[0].live) : 0;
}

int32_t mf_context_eos(const mf_context *context)
{
    return mf_model_eos(mf_context_model(context));
}

const char *mf_context_model_name(const mf_context *context)
{
    return mf_model_name(mf_context_model(context));
}

/* Tokens and where they belong. */
struct evaluation {
    mf_phase phase;
    const int32_t *tokens;
    size_t count;
    int32_t start_pos, seq_id;
};

/* Where the pool is full, checkpoints give way, as they do at their limit. */
static mf_status feed(struct context_sequence *sequence, const struct evaluation *e, mf_error *why)
{
    mf_status status;
    do {
        status = mf_sequence_feed(sequence->live, e->phase, e->tokens, e->count, why);
    } while (status == MF_ERR_POOL_FULL && checkpoints_evict(&sequence->checkpoints));
    return status;
}

static mf_status evaluate(mf_context *context, const struct evaluation *e, float *logits,
                          size_t logits_length, mf_error *why)
{
    struct context_sequence *sequence;
    if (!context) return api_missing(why, "context");
    mf_status status = context_find_or_add(&sequence, context, e->seq_id, why);
    if (status != MF_OK) return status;
    size_t vocab_size = mf_context_n_vocab(context);
    if (!logits || logits_length != vocab_size)
        return fail(why, MF_ERR_BUFFER_SIZE, "there is room for %zu logits, %zu were expected",
                    logits ? logits_length : 0, vocab_size);
    if (e->count == 0) return MF_OK;
    uint32_t position = mf_sequence_position(sequence->live);
    if (e->start_pos < 0 || (uint32_t)e->start_pos != position)
        return fail(why, MF_ERR_ARGUMENT, "the start position is %d, the sequence goes on at %u",
                    e->start_pos, position);
    status = feed(sequence, e, why);
    if (status != MF_OK) return status;
    memcpy(logits, mf_sequence_logits(sequence->live), vocab_size * sizeof *logits);
    return MF_OK;
}

mf_status mf_context_eval_prompt(mf_context *context, const int32_t *tokens, size_t count,
                                 int32_t start_pos, int32_t seq_id, float *logits,
                                 size_t logits_length, mf_error *why)
{
    struct evaluation prompt = { MF_PHASE_PROMPT, tokens, count, start_pos, seq_id };
    return evaluate(context, &prompt, logits, logits_length, why);
}

mf_status mf_context_eval_token(mf_context *context, int32_t token, int32_t pos, int32_t seq_id,
                                float *logits, size_t logits_length, mf_error *why)
{
    struct evaluation generated = { MF_PHASE_GENERATED, &token, 1, pos, seq_id };
    return evaluate(context, &generated, logits, logits_length, why);
}

void mf_context_memory_clear(mf_context *context)
{
    if (!context) return;
    drop_sequences(context, 1);
    checkpoints_clear(&context->sequences[0].checkpoints);
    mf_sequence_clear(context->sequences[0].live);
}

mf_status mf_context_memory_seq_rm(mf_context *context, int32_t seq_id, int32_t p0, int32_t p1,
                                   mf_error *why)
{
    struct context_sequence *sequence;
    if (!context) return api_missing(why, "context");
    mf_status status = context_find_or_add(&sequence, context, seq_id, why);
    if (status != MF_OK) return status;
    uint32_t position = mf_sequence_position(sequence->live);
    uint32_t keep = (uint32_t)min_size(p0 < 0 ? 0 : (uint32_t)p0, position);
    if (p1 >= 0 && (uint32_t)p1 < position)
        return fail(why, MF_ERR_CANNOT_TRUNCATE,
                    "positions %d to %d lie inside the sequence of %u; only its end can be removed",
                    p0, p1, position);
    status = mf_sequence_truncate(sequence->live, keep, NULL, why);
    if (status != MF_ERR_CANNOT_TRUNCATE) return status;
    const mf_sequence *kept =
        checkpoints_beginning_of(&sequence->checkpoints, sequence->live, keep);
    return kept ? context_go_to(context, sequence, kept, why) : status;
}

int32_t mf_context_memory_seq_pos_max(const mf_context *context, int32_t seq_id)
{
    const struct context_sequence *sequence = context_find(context, seq_id);
    return sequence ? (int32_t)mf_sequence_position(sequence->live) - 1 : -1;
}

static void pass_hidden(void *user, int layer, const float *x, size_t rows)
{
    const mf_context *context = user;
    context->watch_hidden(context->watch_user, layer, x, rows, context->model->model.config.width);
}

void mf_context_watch_hidden(mf_context *context, mf_hidden_function each, void *user)
{
    if (!context) return;
    context->watch_hidden = each;
    context->watch_user = user;
    context->observer = (struct observer){ .user = context, .hidden = pass_hidden };
    for (size_t i = 0; i < context->sequence_count; i++)
        set_observer(context, context->sequences[i].live);
}
