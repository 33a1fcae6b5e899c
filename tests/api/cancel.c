/* cancel: a second thread ends a feed, with experts in memory and streamed: at most the layer under
 * way ends (counted), and the sequence is as it was before.  Statistics of the model can be read
 * meanwhile.
 *     api_cancel MODEL   (models/pebble: every layer has experts, so that routes count layers) */
#include <moeflux_tools.h>

#include "check.h"

#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    HELD = 40,
    FED = 96,
    CHUNK = 32,
    LAYERS = 8,
    FEED_LAYERS = (FED + CHUNK - 1) / CHUNK * LAYERS
};

static mf_error why;
static const char *path;
static mf_engine *engine;
static mf_model *model;
static mf_sequence *sequence;
static int32_t tokens[HELD + FED];
static float *before, *after; /* logits of a feed that nothing disturbs */

/* What the two threads share. */
static atomic_uint layers;      /* that began in the present feed */
static unsigned pause_at;       /* the layer that waits for the second thread; 0: none does */
static sem_t reached, released; /* that layer; the second thread is done */

static void count_layer(void *user, const mf_routes *routes)
{
    (void)user;
    (void)routes;
    if (atomic_fetch_add(&layers, 1) + 1 != pause_at) return;
    sem_post(&reached);
    sem_wait(&released);
}

static mf_status feed(void)
{
    return mf_sequence_feed(sequence, MF_PHASE_PROMPT, tokens + HELD, FED, &why);
}

static bool logits_are(const float *expected)
{
    size_t bytes = mf_model_vocab_size(model) * sizeof(float);
    return memcmp(mf_sequence_logits(sequence), expected, bytes) == 0;
}

static void open_model(uint64_t memory_bytes, const char *mode)
{
    mf_model_options options = MF_MODEL_OPTIONS_INIT;
    mf_model_statistics found = MF_MODEL_STATISTICS_INIT;
    options.memory_bytes = memory_bytes;
    options.context_length = 256;
    options.chunk_rows = CHUNK;
    CHECK(mf_model_open(&model, engine, path, &options, &why) == MF_OK);
    CHECK(mf_model_stats(model, &found, &why) == MF_OK);
    CHECK(strcmp(found.expert_mode, mode) == 0);
    CHECK(mf_sequence_open(&sequence, model, NULL, &why) == MF_OK);
    mf_sequence_watch_routes(sequence, count_layer, NULL);
    size_t count = mf_model_vocab_size(model);
    before = calloc(count, sizeof *before);
    after = calloc(count, sizeof *after);
    pause_at = 0;
    CHECK(mf_sequence_feed(sequence, MF_PHASE_PROMPT, tokens, HELD, &why) == MF_OK);
    memcpy(before, mf_sequence_logits(sequence), count * sizeof *before);
    atomic_store(&layers, 0);
    CHECK(feed() == MF_OK);
    CHECK(atomic_load(&layers) == FEED_LAYERS);
    memcpy(after, mf_sequence_logits(sequence), count * sizeof *after);
    mf_sequence_clear(sequence);
    CHECK(mf_sequence_feed(sequence, MF_PHASE_PROMPT, tokens, HELD, &why) == MF_OK);
}

static void close_model(void)
{
    free(before);
    free(after);
    mf_sequence_close(sequence);
    mf_model_close(model);
}

static void *cancel_when_reached(void *user)
{
    (void)user;
    sem_wait(&reached);
    mf_sequence_cancel(sequence);
    sem_post(&released);
    return NULL;
}

/* Whichever layer is under way when the cancel comes, it is the last. */
static void check_every_layer(void)
{
    for (pause_at = 1; pause_at < FEED_LAYERS; pause_at += pause_at < 2 * LAYERS ? 1 : 7) {
        pthread_t thread;
        atomic_store(&layers, 0);
        CHECK(pthread_create(&thread, NULL, cancel_when_reached, NULL) == 0);
        CHECK(feed() == MF_ERR_CANCELLED);
        pthread_join(thread, NULL);
        CHECK(atomic_load(&layers) == pause_at);
        CHECK(mf_sequence_position(sequence) == HELD && logits_are(before));
    }
    pause_at = 0;
}

struct racer {
    unsigned wait_us;
    unsigned begun; /* layers, when the cancel had been said */
};

static void *cancel_after_a_while(void *user)
{
    struct racer *racer = user;
    usleep(racer->wait_us);
    mf_sequence_cancel(sequence);
    racer->begun = atomic_load(&layers);
    return NULL;
}

/* Without any agreement between the threads: the layer that was about to begin may still do so. */
static void check_any_moment(void)
{
    for (unsigned i = 0; i < 20; i++) {
        struct racer racer = { .wait_us = 700 * i };
        pthread_t thread;
        atomic_store(&layers, 0);
        CHECK(pthread_create(&thread, NULL, cancel_after_a_while, &racer) == 0);
        mf_status status = feed();
        pthread_join(thread, NULL);
        if (status == MF_ERR_CANCELLED) {
            CHECK(atomic_load(&layers) <= racer.begun + 1);
            CHECK(mf_sequence_position(sequence) == HELD && logits_are(before));
            continue;
        }
        CHECK(status == MF_OK && logits_are(after)); /* it had ended before: the next one ends */
        CHECK(mf_sequence_feed(sequence, MF_PHASE_PROMPT, tokens, 1, &why) == MF_ERR_CANCELLED);
        mf_sequence_clear(sequence);
        CHECK(mf_sequence_feed(sequence, MF_PHASE_PROMPT, tokens, HELD, &why) == MF_OK);
    }
}

static void *read_statistics(void *user)
{
    mf_model_statistics *found = user;
    sem_wait(&reached);
    CHECK(mf_model_stats(model, found, &why) == MF_OK); /* the feed waits until it returns */
    sem_post(&released);
    return NULL;
}

static void check_statistics_during_a_step(void)
{
    mf_model_statistics found = MF_MODEL_STATISTICS_INIT, then = MF_MODEL_STATISTICS_INIT;
    pthread_t thread;
    CHECK(mf_model_stats(model, &then, &why) == MF_OK);
    atomic_store(&layers, 0);
    pause_at = FEED_LAYERS - 1;
    CHECK(pthread_create(&thread, NULL, read_statistics, &found) == 0);
    CHECK(feed() == MF_OK);
    pthread_join(thread, NULL);
    pause_at = 0;
    CHECK(logits_are(after));
    CHECK(found.experts_total == then.experts_total && found.weight_bytes == then.weight_bytes);
    uint64_t uses_then = then.expert_hits + then.expert_misses;
    uint64_t uses = found.expert_hits + found.expert_misses;
    CHECK(mf_model_stats(model, &then, &why) == MF_OK);
    CHECK(uses >= uses_then && uses < then.expert_hits + then.expert_misses);
}

int main(int count, char **words)
{
    mf_engine_options options = MF_ENGINE_OPTIONS_INIT;
    CHECK(count == 2);
    path = words[1];
    for (int i = 0; i < HELD + FED; i++) tokens[i] = (i * 37 + 11) % 4000;
    sem_init(&reached, 0, 0);
    sem_init(&released, 0, 0);
    options.thread_count = 2;
    CHECK(mf_engine_open(&engine, &options, &why) == MF_OK);
    static const struct {
        uint64_t memory_bytes;
        const char *mode;
    } places[] = { { UINT64_C(256) << 20, "resident" }, { UINT64_C(14) << 20, "streamed" } };
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        open_model(places[i].memory_bytes, places[i].mode);
        check_every_layer();
        check_any_moment();
        check_statistics_during_a_step();
        close_model();
    }
    mf_engine_close(engine);
    return 0;
}
