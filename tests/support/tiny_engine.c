#include "support/test.h"

#include "support/tiny_engine.h"

void tiny_must(mf_status status, const mf_error *why)
{
    if (status != MF_OK) fail_msg("%s: %s (%s)", mf_status_name(status), why->text, why->origin);
}

void tiny_engine_open(struct tiny_engine *t, const struct tiny_shape *shape,
                      const mf_engine_options *options)
{
    mf_error why = { 0 };
    mf_engine_options chosen = { .thread_count = 1 };
    if (options) chosen = *options;
    tiny_model_init(&t->tiny, shape);
    tiny_model_write(&t->tiny);
    failing_allocator_init(&t->heap);
    failing_files_init(&t->files, &t->tiny.files.files);
    chosen.allocator = &t->heap.allocator;
    chosen.files = &t->files.files;
    tiny_must(mf_engine_open(&t->engine, &chosen, &why), &why);
    tiny_must(mf_model_open(&t->model, t->engine, TINY_PATH, NULL, &why), &why);
}

void tiny_engine_close(struct tiny_engine *t)
{
    mf_model_close(t->model);
    mf_engine_close(t->engine);
    assert_int_equal(t->heap.live_bytes, 0);
    assert_int_equal(t->tiny.files.open_count, 0);
    tiny_model_free(&t->tiny);
}

mf_sequence *tiny_session(struct tiny_engine *t, uint32_t chunk_rows)
{
    mf_error why = { 0 };
    mf_sequence *session;
    tiny_must(mf_sequence_open(&session, t->model,
                               &(mf_sequence_options){ .chunk_rows = chunk_rows }, &why),
              &why);
    return session;
}

struct forward_parts tiny_parts(const struct tiny_engine *t)
{
    return (struct forward_parts){ .config = &t->model->model.config,
                                   .weights = &t->model->model.weights,
                                   .experts = t->model->experts,
                                   .backend = t->engine->backend };
}

void tiny_tokens(int32_t *out, const struct tiny_engine *t, size_t count)
{
    uint32_t x = 12345;
    for (size_t i = 0; i < count; i++) {
        x = x * 1664525u + 1013904223u;
        out[i] = (int32_t)((x >> 8) % t->tiny.shape.vocab_size);
    }
}
