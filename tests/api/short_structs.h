/* short_structs.h: what a program saw that was compiled against a moeflux.h with fewer fields in
 * its structs: the first fields of each, and the functions that take them. */
#ifndef SHORT_STRUCTS_H
#define SHORT_STRUCTS_H

#include <stddef.h>
#include <stdint.h>

typedef struct mf_engine mf_engine;
typedef struct mf_model mf_model;
typedef struct mf_sequence mf_sequence;
typedef struct mf_sampler mf_sampler;

typedef struct mf_error {
    int status;
    char text[512];
    char origin[64];
} mf_error;

typedef struct mf_engine_options {
    size_t struct_size;
    uint32_t thread_count;
} mf_engine_options;

typedef struct mf_model_options {
    size_t struct_size;
    uint64_t memory_bytes;
} mf_model_options;

typedef struct mf_sequence_options {
    size_t struct_size;
    uint32_t context_length;
} mf_sequence_options;

typedef struct mf_sampler_options {
    size_t struct_size;
    float temperature;
} mf_sampler_options;

typedef struct mf_sequence_statistics {
    size_t struct_size;
    uint64_t prompt_tokens;
} mf_sequence_statistics;

typedef struct mf_model_statistics {
    size_t struct_size;
    const char *expert_mode;
} mf_model_statistics;

int mf_engine_open(mf_engine **, const mf_engine_options *, mf_error *);
void mf_engine_close(mf_engine *);
int mf_model_open(mf_model **, mf_engine *, const char *, const mf_model_options *, mf_error *);
void mf_model_close(mf_model *);
int mf_model_stats(const mf_model *, mf_model_statistics *, mf_error *);
int mf_sequence_open(mf_sequence **, mf_model *, const mf_sequence_options *, mf_error *);
void mf_sequence_close(mf_sequence *);
int mf_sequence_feed(mf_sequence *, int, const int32_t *, size_t, mf_error *);
const float *mf_sequence_logits(const mf_sequence *);
uint32_t mf_sequence_context_length(const mf_sequence *);
int mf_sequence_stats(const mf_sequence *, mf_sequence_statistics *, mf_error *);
int mf_sampler_open(mf_sampler **, const mf_model *, const mf_sampler_options *, mf_error *);
void mf_sampler_close(mf_sampler *);
int32_t mf_sampler_pick(mf_sampler *, const float *);

#endif
