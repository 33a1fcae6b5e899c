/* tiny_engine.h: a tiny model (support/tiny_model.h), opened as a program opens one, with an
 * allocator and files that can be told to fail.
 *
 *     struct tiny_engine t;
 *     tiny_engine_open(&t, &tiny_odd, &(mf_engine_options){ .struct_size = sizeof(mf_engine_options), .thread_count = 2 });
 *     mf_sequence *sequence = tiny_sequence(&t, 0);
 *     ...
 *     mf_sequence_close(sequence);
 *     tiny_engine_close(&t);           fails the test when something leaked
 *
 * Threads: one. */
#ifndef SUPPORT_TINY_ENGINE_H
#define SUPPORT_TINY_ENGINE_H

#include "support/failing_allocator.h"
#include "support/failing_files.h"
#include "support/tiny_model.h"

#include "api/handles.h"

struct tiny_engine {
    struct tiny_model tiny;
    struct failing_allocator heap;
    struct failing_files files;
    mf_engine *engine;
    mf_model *model;
};

/* `options` may be NULL; its allocator and files are replaced. */
void tiny_engine_open(struct tiny_engine *t, const struct tiny_shape *shape,
                      const mf_engine_options *options);
void tiny_engine_open_as(struct tiny_engine *t, const struct tiny_shape *shape,
                         const mf_engine_options *options, const mf_model_options *model);
void tiny_engine_close(struct tiny_engine *t);

/* A sequence with this chunk size (0: standard). */
mf_sequence *tiny_sequence(struct tiny_engine *t, uint32_t chunk_rows);

/* What a forward of this model is made of. */
struct forward_parts tiny_parts(const struct tiny_engine *t);

/* `count` tokens that the model has, the same every time. */
void tiny_tokens(int32_t *out, const struct tiny_engine *t, size_t count);

/* Feeds a prompt, or tokens of any phase; fails the test when that fails. */
void tiny_feed(mf_sequence *sequence, const int32_t *tokens, size_t count);
void tiny_feed_as(mf_sequence *sequence, mf_phase phase, const int32_t *tokens, size_t count);

/* Logits, to be freed: the last ones; of every token of a prompt; of every token, fed as generated
 * ones after the first. */
float *tiny_copy_logits(const mf_sequence *sequence);
float *tiny_all_logits(struct tiny_engine *t, const int32_t *tokens, size_t count, uint32_t chunk);
float *tiny_decoded_logits(struct tiny_engine *t, const int32_t *tokens, size_t count);

/* Fails the test with the error's sentence. */
void tiny_must(mf_status status, const mf_error *why);

#endif
