/* Does reading ahead pay?  `build/bench/bench_expert_ahead [TOKENS]`.
 *
 * Pebble writes on after its held-out text, token by token, with room for a quarter of
 * its experts: reads as fast as the page cache, and reads that take 2 ms more; read-ahead
 * never, always, and as the store decides.  The rounds take turns.
 *
 * CSV on stdout: bench, case, milliseconds (best and worst round) per token, unit; first
 * of waiting, then of the whole step. */
#include "api/handles.h"
#include "base/clock.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { ROUNDS = 3, MODES = 3, WINDOW = 512 };

static const char *const mode_names[MODES] = { "measured", "never", "always" };
static mf_files slow_files;
static useconds_t delay_us;

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
    must(mf_model_tokenize(model, ids, length, count, text, length, MF_SPECIAL_PARSE, &why), &why);
    free(text);
    return ids;
}

struct result {
    double wait_ms, step_ms;
};

static struct result measure(mf_engine *engine, mf_read_ahead mode, size_t tokens, bool report)
{
    mf_error why;
    mf_model *model;
    mf_session *session;
    mf_stats stats;
    mf_model_options options = { .read_ahead = mode };
    mf_session_options small = { .context_length = WINDOW, .chunk_rows = 1 };
    must(mf_model_open(&model, engine, "models/pebble", &options, &why), &why);
    must(mf_session_open(&session, model, &small, &why), &why);
    uint64_t all = expert_store_sizes(model->experts).slot_bytes;
    must(expert_store_set_budget(model->experts, all / 4, &why), &why);
    size_t count;
    int32_t *ids = read_text(model, &count);
    for (size_t i = 0; i < tokens; i++) {
        if (i % WINDOW == 0) mf_session_clear(session);
        must(mf_session_feed(session, &ids[i % count], 1, &why), &why);
    }
    mf_session_stats(session, &stats);
    struct read_activity disk;
    expert_store_disk(model->experts, &disk);
    struct expert_store_sizes sizes = expert_store_sizes(model->experts);
    if (report) fprintf(stderr, "depth %u, level %u; ", disk.depth, sizes.ahead_level);
    if (report)
        fprintf(stderr,
                "%s: %.1f%% hits, ahead %llu reads, %llu in time, %llu late, %llu wasted; "
                "%.0f%% of %llu predictions right, %.3f ms per token\n",
                mode_names[mode], 100.0 * (double)stats.expert_hits / (double)(tokens * 64),
                (unsigned long long)stats.expert_ahead_reads,
                (unsigned long long)stats.expert_ahead_hits,
                (unsigned long long)stats.expert_ahead_late,
                (unsigned long long)stats.expert_ahead_wasted,
                100.0 * (double)stats.expert_predictions_right /
                    (double)(stats.expert_predictions + 1),
                (unsigned long long)stats.expert_predictions,
                1e3 * stats.expert_predict_seconds / (double)tokens);
    free(ids);
    mf_session_close(session);
    mf_model_close(model);
    return (struct result){ 1e3 * stats.expert_wait_seconds / (double)tokens,
                            1e3 * stats.decode_seconds / (double)tokens };
}

static void print_case(const char *speed, const char *what, int mode, double best, double worst)
{
    printf("expert_ahead,%s %s %s,%.3f,%.3f,ms/token\n", speed, mode_names[mode], what, best,
           worst);
    fflush(stdout);
}

static void compare(mf_engine *engine, const char *speed, size_t tokens)
{
    struct result best[MODES], worst[MODES];
    for (int round = 0; round < ROUNDS; round++)
        for (int mode = 0; mode < MODES; mode++) {
            struct result r = measure(engine, (mf_read_ahead)mode, tokens, round == 0);
            if (round == 0) best[mode] = worst[mode] = r;
            if (r.wait_ms < best[mode].wait_ms) best[mode].wait_ms = r.wait_ms;
            if (r.step_ms < best[mode].step_ms) best[mode].step_ms = r.step_ms;
            if (r.wait_ms > worst[mode].wait_ms) worst[mode].wait_ms = r.wait_ms;
            if (r.step_ms > worst[mode].step_ms) worst[mode].step_ms = r.step_ms;
        }
    for (int mode = 0; mode < MODES; mode++) {
        print_case(speed, "wait", mode, best[mode].wait_ms, worst[mode].wait_ms);
        print_case(speed, "step", mode, best[mode].step_ms, worst[mode].step_ms);
    }
}

int main(int count, char **arguments)
{
    mf_error why;
    mf_engine *engine;
    size_t tokens = count > 1 ? (size_t)atoi(arguments[1]) : 200;
    slow_files = files_posix;
    slow_files.read = slow_read;
    slow_files.descriptor = NULL; /* every read goes through slow_read */
    mf_engine_options options = { .thread_count = 1, .files = &slow_files };
    must(mf_engine_open(&engine, &options, &why), &why);
    compare(engine, "page cache", tokens);
    delay_us = 2000;
    compare(engine, "2 ms", tokens / 4);
    mf_engine_close(engine);
    return 0;
}
