#include "support/test.h"

#include "support/tiny_engine.h"

#include <stdlib.h>

void tiny_must(mf_status status, const mf_error *why)
{
    if (status != MF_OK) fail_msg("%s: %s (%s)", mf_status_name(status), why->text, why->origin);
}

/* An engine has no more threads than there are CPUs; what does not depend on how many there are is
 * tested with more. */
static void use_threads(mf_engine *engine, unsigned count)
{
    mf_error why = { 0 };
    if (count == 0 || thread_pool_size(engine->pool) == count) return;
    engine->backend->functions->free(engine->backend);
    engine->backend = NULL;
    thread_pool_free(engine->pool);
    engine->pool = NULL;
    tiny_must(thread_pool_new(&engine->pool, &engine->allocator, count, &why), &why);
    tiny_must(backend_cpu_new(&engine->backend, &engine->allocator, engine->pool, engine->kernels,
                              engine->exact, &why),
              &why);
}

void tiny_engine_open(struct tiny_engine *t, const struct tiny_shape *shape,
                      const mf_engine_options *options)
{
    tiny_engine_open_as(t, shape, options, NULL);
}

void tiny_engine_open_as(struct tiny_engine *t, const struct tiny_shape *shape,
                         const mf_engine_options *options, const mf_model_options *model)
{
    mf_error why = { 0 };
    mf_engine_options chosen = { .struct_size = sizeof chosen, .thread_count = 1 };
    if (options) chosen = *options;
    tiny_model_init(&t->tiny, shape);
    tiny_model_write(&t->tiny);
    failing_allocator_init(&t->heap);
    failing_files_init(&t->files, &t->tiny.files.files);
    chosen.allocator = &t->heap.allocator;
    chosen.files = &t->files.files;
    tiny_must(mf_engine_open(&t->engine, &chosen, &why), &why);
    if (!t->engine->tracer) use_threads(t->engine, chosen.thread_count);
    tiny_must(mf_model_open(&t->model, t->engine, TINY_PATH, model, &why), &why);
}

void tiny_engine_close(struct tiny_engine *t)
{
    mf_model_close(t->model);
    mf_engine_close(t->engine);
    assert_int_equal(t->heap.live_bytes, 0);
    assert_int_equal(t->tiny.files.open_count, 0);
    tiny_model_free(&t->tiny);
}

mf_sequence *tiny_sequence(struct tiny_engine *t, uint32_t chunk_rows)
{
    mf_error why = { 0 };
    mf_sequence *sequence;
    tiny_must(mf_sequence_open(&sequence, t->model,
                               &(mf_sequence_options){ .struct_size = sizeof(mf_sequence_options),
                                                       .chunk_rows = chunk_rows },
                               &why),
              &why);
    return sequence;
}

struct forward_parts tiny_parts(const struct tiny_engine *t)
{
    return (struct forward_parts){ .allocator = &t->engine->allocator,
                                   .config = &t->model->model.config,
                                   .weights = &t->model->model.weights,
                                   .experts = t->model->experts,
                                   .backend = t->engine->backend,
                                   .kv_format = t->model->kv_format };
}

void tiny_tokens(int32_t *out, const struct tiny_engine *t, size_t count)
{
    uint32_t x = 12345;
    for (size_t i = 0; i < count; i++) {
        x = x * 1664525u + 1013904223u;
        out[i] = (int32_t)((x >> 8) % t->tiny.shape.vocab_size);
    }
}

float *tiny_copy_logits(const mf_sequence *sequence)
{
    size_t bytes = mf_model_vocab_size(sequence->model) * sizeof(float);
    float *copy = malloc(bytes);
    assert_true(copy && mf_sequence_logits(sequence));
    return memcpy(copy, mf_sequence_logits(sequence), bytes);
}

void tiny_feed_as(mf_sequence *sequence, mf_phase phase, const int32_t *tokens, size_t count)
{
    mf_error why = { 0 };
    tiny_must(mf_sequence_feed(sequence, phase, tokens, count, &why), &why);
}

void tiny_feed(mf_sequence *sequence, const int32_t *tokens, size_t count)
{
    tiny_feed_as(sequence, MF_PHASE_PROMPT, tokens, count);
}

struct gathered {
    float *logits; /* [tokens][vocabulary] */
    size_t vocab_size, next;
};

static void gather(void *user, size_t index, const float *logits)
{
    struct gathered *g = user;
    assert_int_equal(index, g->next++);
    memcpy(g->logits + index * g->vocab_size, logits, g->vocab_size * sizeof(float));
}

/* Every position's logits, to be freed. */
float *tiny_all_logits(struct tiny_engine *t, const int32_t *tokens, size_t count, uint32_t chunk)
{
    mf_error why = { 0 };
    struct gathered g = { .vocab_size = t->tiny.shape.vocab_size };
    g.logits = malloc(count * g.vocab_size * sizeof(float));
    assert_non_null(g.logits);
    mf_sequence *sequence = tiny_sequence(t, chunk);
    tiny_must(mf_sequence_feed_each(sequence, MF_PHASE_PROMPT, tokens, count, gather, &g, &why),
              &why);
    assert_int_equal(g.next, count);
    assert_memory_equal(mf_sequence_logits(sequence), g.logits + (count - 1) * g.vocab_size,
                        g.vocab_size * sizeof(float));
    mf_sequence_close(sequence);
    return g.logits;
}

/* The same, each token fed on its own, as it is when generated. */
float *tiny_decoded_logits(struct tiny_engine *t, const int32_t *tokens, size_t count)
{
    mf_error why = { 0 };
    size_t vocab = t->tiny.shape.vocab_size;
    float *logits = malloc(count * vocab * sizeof(float));
    assert_non_null(logits);
    mf_sequence *sequence = tiny_sequence(t, 64);
    for (size_t i = 0; i < count; i++) {
        tiny_must(mf_sequence_feed(sequence, MF_PHASE_GENERATED, tokens + i, 1, &why), &why);
        memcpy(logits + i * vocab, mf_sequence_logits(sequence), vocab * sizeof(float));
    }
    mf_sequence_close(sequence);
    return logits;
}
