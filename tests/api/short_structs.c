/* A program that was compiled against shorter structs runs with this library: its fields are
 * read, nothing behind them is read or written, and a struct without a size is refused. */
#include "short_structs.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(what)                                                                                \
    do {                                                                                           \
        if (!(what)) {                                                                             \
            fprintf(stderr, "line %d: %s: %s\n", __LINE__, #what, why.text);                       \
            return 1;                                                                              \
        }                                                                                          \
    } while (0)

/* Statistics with bytes behind them that must stay as they are. */
struct guarded_sequence {
    mf_sequence_statistics statistics;
    uint64_t guard[64];
};
struct guarded_model {
    mf_model_statistics statistics;
    uint64_t guard[64];
};

static int is_untouched(const uint64_t *guard)
{
    for (int i = 0; i < 64; i++)
        if (guard[i] != UINT64_C(0x5555555555555555)) return 0;
    return 1;
}

int main(int count, char **words)
{
    mf_error why = { 0 };
    /* Garbage behind the options: were it read, the backend or the allocator would be wild. */
    struct {
        mf_engine_options options;
        unsigned char garbage[256];
    } engine_options;
    struct {
        mf_model_options options;
        unsigned char garbage[256];
    } model_options;
    memset(&engine_options, 0x55, sizeof engine_options);
    memset(&model_options, 0x55, sizeof model_options);
    engine_options.options = (mf_engine_options){ sizeof(mf_engine_options), 1 };
    model_options.options = (mf_model_options){ sizeof(mf_model_options), UINT64_C(1) << 30 };
    mf_sequence_options sequence_options = { sizeof sequence_options, 128 };
    mf_sampler_options sampler_options = { sizeof sampler_options, 0.0f };
    struct guarded_sequence sequence_statistics;
    struct guarded_model model_statistics;
    memset(&sequence_statistics, 0x55, sizeof sequence_statistics);
    memset(&model_statistics, 0x55, sizeof model_statistics);
    sequence_statistics.statistics.struct_size = sizeof(mf_sequence_statistics);
    model_statistics.statistics.struct_size = sizeof(mf_model_statistics);
    const int32_t tokens[] = { 1, 2, 3 };
    mf_engine *engine;
    mf_model *model;
    mf_sequence *sequence;
    mf_sampler *sampler;

    CHECK(count == 2);
    CHECK(mf_engine_open(&engine, &engine_options.options, &why) == 0);
    CHECK(mf_model_open(&model, engine, words[1], &model_options.options, &why) == 0);
    CHECK(mf_sequence_open(&sequence, model, &sequence_options, &why) == 0);
    CHECK(mf_sequence_context_length(sequence) == 128);
    CHECK(mf_sampler_open(&sampler, model, &sampler_options, &why) == 0);
    CHECK(mf_sequence_feed(sequence, 0, tokens, 3, &why) == 0);
    CHECK(mf_sampler_pick(sampler, mf_sequence_logits(sequence)) >= 0);
    CHECK(mf_sequence_stats(sequence, &sequence_statistics.statistics, &why) == 0);
    CHECK(sequence_statistics.statistics.prompt_tokens == 3);
    CHECK(sequence_statistics.statistics.struct_size == sizeof(mf_sequence_statistics));
    CHECK(is_untouched(sequence_statistics.guard));
    CHECK(mf_model_stats(model, &model_statistics.statistics, &why) == 0);
    CHECK(strcmp(model_statistics.statistics.expert_mode, "resident") == 0);
    CHECK(is_untouched(model_statistics.guard));

    mf_sequence_options unsized = { 0, 128 };
    mf_sequence *refused;
    CHECK(mf_sequence_open(&refused, model, &unsized, &why) == -1);
    CHECK(strstr(why.text, "MF_SEQUENCE_OPTIONS_INIT"));
    sequence_statistics.statistics.struct_size = 0;
    CHECK(mf_sequence_stats(sequence, &sequence_statistics.statistics, &why) == -1);
    CHECK(strstr(why.text, "MF_SEQUENCE_STATISTICS_INIT"));

    mf_sampler_close(sampler);
    mf_sequence_close(sequence);
    mf_model_close(model);
    mf_engine_close(engine);
    return 0;
}
