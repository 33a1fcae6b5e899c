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

static mf_error why;
static mf_engine *engine;
static mf_model *model;
static mf_sequence *sequence;
static mf_sampler *sampler;

/* Garbage behind the options: were it read, the backend or the allocator would be wild. */
static int open_all(const char *path)
{
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
    const int32_t tokens[] = { 1, 2, 3 };

    CHECK(mf_engine_open(&engine, &engine_options.options, &why) == 0);
    CHECK(mf_model_open(&model, engine, path, &model_options.options, &why) == 0);
    CHECK(mf_sequence_open(&sequence, model, &sequence_options, &why) == 0);
    CHECK(mf_sequence_context_length(sequence) == 128);
    CHECK(mf_sampler_open(&sampler, model, &sampler_options, &why) == 0);
    CHECK(mf_sequence_feed(sequence, 0, tokens, 3, &why) == 0);
    CHECK(mf_sampler_pick(sampler, mf_sequence_logits(sequence)) >= 0);
    return 0;
}

static int check_sequence_statistics(void)
{
    struct guarded_sequence found;
    memset(&found, 0x55, sizeof found);
    found.statistics.struct_size = sizeof(mf_sequence_statistics);
    CHECK(mf_sequence_stats(sequence, &found.statistics, &why) == 0);
    CHECK(found.statistics.prompt_tokens == 3);
    CHECK(found.statistics.struct_size == sizeof(mf_sequence_statistics));
    CHECK(is_untouched(found.guard));
    found.statistics.struct_size = 0;
    CHECK(mf_sequence_stats(sequence, &found.statistics, &why) == -1);
    CHECK(strstr(why.text, "MF_SEQUENCE_STATISTICS_INIT"));
    return 0;
}

static int check_model_statistics(void)
{
    struct guarded_model found;
    memset(&found, 0x55, sizeof found);
    found.statistics.struct_size = sizeof(mf_model_statistics);
    CHECK(mf_model_stats(model, &found.statistics, &why) == 0);
    CHECK(strcmp(found.statistics.expert_mode, "resident") == 0);
    CHECK(is_untouched(found.guard));
    return 0;
}

static int check_options_without_size(void)
{
    mf_sequence_options unsized = { 0, 128 };
    mf_sequence *refused;
    CHECK(mf_sequence_open(&refused, model, &unsized, &why) == -1);
    CHECK(strstr(why.text, "MF_SEQUENCE_OPTIONS_INIT"));
    return 0;
}

int main(int count, char **words)
{
    CHECK(count == 2);
    int failed = open_all(words[1]) || check_sequence_statistics() || check_model_statistics() ||
                 check_options_without_size();
    mf_sampler_close(sampler);
    mf_sequence_close(sequence);
    mf_model_close(model);
    mf_engine_close(engine);
    return failed;
}
