/* Does reading ahead pay?  `build/bench/bench_expert_ahead [TOKENS [MODEL]]`.
 *
 * Pebble (or MODEL, the same in another layout) reads its held-out text token by token with
 * room for a quarter of its experts: reads as fast as the page cache, and reads that take
 * 2 ms more; read-ahead as the store decides, never, and always.  The three take turns at
 * every token, so that what else the machine does happens to all of them; the first quarter
 * of the tokens, in which the store makes up its mind, is not counted.
 *
 * CSV on stdout: bench, case, ms per token, share of what it is without read-ahead, unit. */
#include "api/handles.h"
#include "base/clock.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { MODES = 3, WINDOW = 512 };

enum { MEASURED, NEVER, ALWAYS };

static const char *const mode_names[MODES] = { "measured", "never", "always" };
static mf_files slow_files;
static useconds_t delay_us;
static const char *path = "models/pebble";

static int64_t slow_read(void *user, void *handle, uint64_t offset, void *out, size_t count)
{
    if (delay_us) usleep(delay_us);
    return files_posix.read(user, handle, offset, out, count);
}

static void must(mf_status status, const mf_error *why)
{
    if (status == MF_OK) return;
    fprintf(stderr, "bench_expert_ahead: %s\n", why->text);
    exit(1);
}

static int32_t *read_text(const mf_model *model, size_t *count)
{
    mf_error why;
    char *text;
    size_t length;
    must(file_read_whole_new(&text, &length, &files_posix, "tests/fixtures/pebble/heldout.txt",
                             1 << 20, &why),
         &why);
    int32_t *ids = calloc(length + 1, sizeof *ids);
    must(mf_text_tokenize(mf_model_text(model), ids, length, count, text, length, MF_SPECIAL_PARSE,
                          &why),
         &why);
    free(text);
    return ids;
}

struct runner {
    mf_model *model;
    mf_sequence *sequence;
    mf_sequence_statistics sequence_stats;
    mf_model_statistics model_stats;
};

static void open_runner(struct runner *r, mf_engine *engine, int mode)
{
    mf_error why;
    mf_model_options options = { .struct_size = sizeof options,
                                 .read_ahead = mode == MEASURED ? NULL : mode_names[mode] };
    mf_sequence_options small = { .struct_size = sizeof small,
                                  .context_length = WINDOW,
                                  .chunk_rows = 1 };
    must(mf_model_open(&r->model, engine, path, &options, &why), &why);
    must(mf_sequence_open(&r->sequence, r->model, &small, &why), &why);
    uint64_t all = expert_store_sizes(r->model->experts).slot_bytes;
    must(expert_store_set_budget(r->model->experts, all / 4, &why), &why);
}

static void close_runner(struct runner *r)
{
    mf_sequence_close(r->sequence);
    mf_model_close(r->model);
}

static void feed(struct runner *r, size_t index, int32_t token)
{
    mf_error why;
    if (index % WINDOW == 0) mf_sequence_clear(r->sequence);
    must(mf_sequence_feed(r->sequence, MF_PHASE_GENERATED, &token, 1, &why), &why);
}

static void describe(const struct runner *r, int mode, size_t tokens)
{
    const mf_model_statistics *s = &r->model_stats;
    double uses = (double)(s->expert_hits + s->expert_misses);
    fprintf(
        stderr,
        "%-8s  depth %u, read-ahead %s at the end; %.1f%% hits; ahead %llu reads, %llu in time, "
        "%llu late, %llu wasted; %.0f%% of predictions right, %.3f ms per token\n",
        mode_names[mode], s->disk_depth, s->expert_ahead ? "on" : "off",
        100.0 * (double)s->expert_hits / uses, (unsigned long long)s->expert_ahead_reads,
        (unsigned long long)s->expert_ahead_hits, (unsigned long long)s->expert_ahead_late,
        (unsigned long long)s->expert_ahead_wasted,
        100.0 * (double)s->expert_predictions_right / (double)(s->expert_predictions + 1),
        1e3 * s->expert_predict_seconds / (double)tokens);
}

static void print_case(const char *speed, const char *what, int mode, double seconds, double never,
                       size_t tokens)
{
    printf("expert_ahead,%s %s %s,%.3f,%.3f,ms/token\n", speed, mode_names[mode], what,
           1e3 * seconds / (double)tokens, seconds / never);
}

static void compare(mf_engine *engine, const char *speed, size_t tokens)
{
    struct runner runners[MODES];
    size_t count, settled = tokens / 4;
    for (int mode = 0; mode < MODES; mode++) open_runner(&runners[mode], engine, mode);
    int32_t *ids = read_text(runners[0].model, &count);
    for (size_t i = 0; i < tokens; i++)
        for (int mode = 0; mode < MODES; mode++) {
            if (i == settled) {
                mf_sequence_reset_stats(runners[mode].sequence);
                mf_model_reset_stats(runners[mode].model);
            }
            feed(&runners[mode], i, ids[i % count]);
        }
    fprintf(stderr, "%s\n", speed);
    for (int mode = 0; mode < MODES; mode++) {
        runners[mode].sequence_stats = (mf_sequence_statistics)MF_SEQUENCE_STATISTICS_INIT;
        runners[mode].model_stats = (mf_model_statistics)MF_MODEL_STATISTICS_INIT;
        mf_sequence_stats(runners[mode].sequence, &runners[mode].sequence_stats, NULL);
        mf_model_stats(runners[mode].model, &runners[mode].model_stats, NULL);
        describe(&runners[mode], mode, tokens - settled);
    }
    const mf_sequence_statistics *never = &runners[NEVER].sequence_stats;
    for (int mode = 0; mode < MODES; mode++) {
        const mf_sequence_statistics *s = &runners[mode].sequence_stats;
        print_case(speed, "wait", mode, s->expert_wait_seconds, never->expert_wait_seconds,
                   tokens - settled);
        print_case(speed, "step", mode, s->decode_seconds, never->decode_seconds, tokens - settled);
        close_runner(&runners[mode]);
    }
    fflush(stdout);
    free(ids);
}

int main(int count, char **arguments)
{
    mf_error why;
    mf_engine *engine;
    size_t tokens = count > 1 ? (size_t)atoi(arguments[1]) : 800;
    if (count > 2) path = arguments[2];
    slow_files = files_posix;
    slow_files.read = slow_read;
    slow_files.descriptor = NULL; /* every read goes through slow_read */
    mf_engine_options options = { .struct_size = sizeof options,
                                  .thread_count = 1,
                                  .files = &slow_files };
    must(mf_engine_open(&engine, &options, &why), &why);
    compare(engine, "page cache", tokens);
    delay_us = 2000;
    compare(engine, "2 ms", tokens / 2);
    mf_engine_close(engine);
    return 0;
}
