/* watch: what a watcher of experts is told: sums, map, steps; on and off while steps run.
 *     api_watch MODEL   (models/pebble) */
#include <moeflux.h>

#include "check.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PROMPT = 200, ANSWER = 40, REPEATS = 2, KINDS = MF_EXPERT_WASTED + 1 };

static mf_error why;
static const char *path;
static mf_engine *engine;

/* What a watcher has seen. */
struct seen {
    atomic_size_t batches;
    size_t steps, prompt_rows, decode_rows;
    uint64_t events[KINDS];
    uint64_t first[KINDS], totals[KINDS]; /* of the first and of the last batch */
    uint64_t bytes_read, present;
    double step_seconds, stage_seconds;
    bool *used; /* [rows][experts], asked for since the beginning */
    bool *kept; /* the same, as events tell what is in memory */
    const mf_experts *experts;
};

static size_t cell_of(const mf_experts *experts, uint32_t layer, uint32_t expert)
{
    uint32_t row = 0;
    while (experts->rows[row] != layer) CHECK(++row < experts->row_count);
    CHECK(expert < experts->expert_count);
    return (size_t)row * experts->expert_count + expert;
}

static void take_event(struct seen *seen, const mf_expert_event *event)
{
    size_t cell = cell_of(seen->experts, event->layer, event->expert);
    CHECK(event->kind < KINDS);
    seen->events[event->kind]++;
    bool leaves = event->kind == MF_EXPERT_EVICTED || event->kind == MF_EXPERT_WASTED;
    if (event->kind == MF_EXPERT_HIT) CHECK(seen->kept[cell]);
    if (!leaves) seen->used[cell] = true;
    seen->kept[cell] = !leaves;
}

/* The totals grow by what the batch has, each time. */
static void take_batch(void *user, const mf_expert_batch *batch)
{
    struct seen *seen = user;
    bool is_first = atomic_load(&seen->batches) == 0;
    CHECK(!is_first || (batch->count == 0 && batch->seconds == 0));
    if (is_first) memcpy(seen->first, batch->totals, sizeof seen->first);
    for (size_t i = 0; i < batch->count; i++) take_event(seen, &batch->events[i]);
    for (int k = 0; k < KINDS; k++) CHECK(batch->totals[k] == seen->first[k] + seen->events[k]);
    memcpy(seen->totals, batch->totals, sizeof seen->totals);
    seen->bytes_read = batch->bytes_read;
    seen->present = batch->present;
    seen->prompt_rows += batch->prompt_rows;
    seen->decode_rows += batch->decode_rows;
    CHECK((batch->seconds > 0) == (batch->stage_seconds != NULL));
    if (batch->seconds > 0) {
        double sum = 0;
        for (int i = 0; i < MF_STAGE_COUNT; i++) sum += batch->stage_seconds[i];
        CHECK(batch->prompt_rows + batch->decode_rows > 0);
        CHECK(sum > 0 && sum < 1.5 * batch->seconds + 0.01);
        seen->steps++;
        seen->step_seconds += batch->seconds;
        seen->stage_seconds += sum;
    }
    atomic_fetch_add(&seen->batches, 1);
}

static mf_model *open_model(uint64_t memory, const char *read_ahead)
{
    mf_model_options options = MF_MODEL_OPTIONS_INIT;
    mf_model *model;
    options.memory_bytes = memory;
    options.context_length = 512;
    options.read_ahead = read_ahead;
    CHECK(mf_model_open(&model, engine, path, &options, &why) == MF_OK);
    return model;
}

static struct seen *seen_new(const mf_experts *experts)
{
    struct seen *seen = calloc(1, sizeof *seen);
    size_t cells = (size_t)experts->row_count * experts->expert_count;
    CHECK(seen && cells > 0);
    seen->used = calloc(cells, sizeof *seen->used);
    seen->kept = calloc(cells, sizeof *seen->kept);
    CHECK(seen->used && seen->kept);
    seen->experts = experts;
    return seen;
}

static void seen_free(struct seen *seen)
{
    free(seen->used);
    free(seen->kept);
    free(seen);
}

static mf_experts experts_of(const mf_model *model)
{
    mf_experts experts = MF_EXPERTS_INIT;
    CHECK(mf_model_engine(model) == engine);
    CHECK(mf_model_experts(model, &experts, &why) == MF_OK);
    CHECK(experts.row_count > 0 && experts.row_count <= experts.layer_count);
    CHECK(experts.experts_per_token > 0 && experts.experts_per_token <= experts.expert_count);
    CHECK(experts.map_bytes == ((size_t)experts.row_count * experts.expert_count + 7) / 8);
    return experts;
}

static mf_model_statistics stats_of(const mf_model *model)
{
    mf_model_statistics found = MF_MODEL_STATISTICS_INIT;
    CHECK(mf_model_stats(model, &found, &why) == MF_OK);
    return found;
}

/* Whether the map has each expert that `cells` has, and, if `exactly`, no other. */
static void check_map(const mf_model *model, const mf_experts *experts, const bool *cells,
                      bool exactly)
{
    uint8_t *map = malloc(experts->map_bytes);
    uint64_t present = 0;
    CHECK(map && mf_model_experts_present(model, map, experts->map_bytes, &why) == MF_OK);
    CHECK(mf_model_experts_present(model, map, experts->map_bytes - 1, &why) == MF_ERR_BUFFER_SIZE);
    for (size_t i = 0; i < (size_t)experts->row_count * experts->expert_count; i++) {
        bool is_present = map[i / 8] >> i % 8 & 1;
        present += is_present;
        CHECK(is_present || !cells[i]);
        CHECK(!exactly || is_present == cells[i]);
    }
    CHECK(present == stats_of(model).experts_present);
    free(map);
}

static int32_t next_token(mf_sequence *sequence)
{
    const float *logits = mf_sequence_logits(sequence);
    uint32_t best = 0, count = mf_model_vocab_size(mf_sequence_model(sequence));
    for (uint32_t i = 1; i < count; i++)
        if (logits[i] > logits[best]) best = i;
    return (int32_t)best;
}

static void feed_some(mf_sequence *sequence, size_t prompt, size_t answer)
{
    int32_t tokens[PROMPT];
    for (size_t i = 0; i < prompt; i++) tokens[i] = (int32_t)(300 + i * 37 % 900);
    CHECK(mf_sequence_feed(sequence, MF_PHASE_PROMPT, tokens, prompt, &why) == MF_OK);
    for (size_t i = 0; i < answer; i++) {
        int32_t token = next_token(sequence);
        CHECK(mf_sequence_feed(sequence, MF_PHASE_GENERATED, &token, 1, &why) == MF_OK);
    }
}

/* Experts by the routes of a sequence. */
struct routed {
    bool *cells;
    const mf_experts *experts;
};

static void take_routes(void *user, const mf_routes *routes)
{
    const struct routed *routed = user;
    for (size_t i = 0; i < (size_t)routes->row_count * routes->per_row; i++)
        routed->cells[cell_of(routed->experts, routes->layer, routes->experts[i])] = true;
}

/* ------------------------------------------------------------------------ tests */

static void check_sums(const struct seen *seen, const mf_model_statistics *found)
{
    CHECK(found->expert_hits == seen->totals[MF_EXPERT_HIT] + seen->totals[MF_EXPERT_AHEAD]);
    CHECK(found->expert_misses == seen->totals[MF_EXPERT_DEMAND] + seen->totals[MF_EXPERT_LATE]);
    CHECK(found->expert_ahead_hits == seen->totals[MF_EXPERT_AHEAD]);
    CHECK(found->expert_ahead_late == seen->totals[MF_EXPERT_LATE]);
    CHECK(found->expert_evictions == seen->totals[MF_EXPERT_EVICTED]);
    CHECK(found->expert_ahead_wasted == seen->totals[MF_EXPERT_WASTED]);
    CHECK(found->expert_bytes_read == seen->bytes_read);
    CHECK(found->experts_present == seen->present);
}

/* Few slots, and read-ahead: all kinds of events. */
static void sums_of_events_are_the_counters_when_streamed(void)
{
    mf_model *model = open_model(12 << 20, "always");
    const mf_experts experts = experts_of(model);
    struct seen *seen = seen_new(&experts);
    mf_sequence *sequence;
    mf_sequence_statistics times = MF_SEQUENCE_STATISTICS_INIT;
    CHECK(strcmp(stats_of(model).expert_mode, "streamed") == 0);
    CHECK(mf_model_watch_experts(model, take_batch, seen, &why) == MF_OK);
    CHECK(mf_sequence_open(&sequence, model, NULL, &why) == MF_OK);
    for (int i = 0; i < REPEATS; i++) {
        feed_some(sequence, 60, ANSWER);
        mf_sequence_clear(sequence);
    }
    const mf_model_statistics found = stats_of(model);
    check_sums(seen, &found);
    for (int k = 0; k < KINDS; k++)
        if (k != MF_EXPERT_LATE) CHECK(seen->events[k] > 0); /* a fast disk is never late */
    CHECK(found.expert_hits + found.expert_misses ==
          seen->events[MF_EXPERT_HIT] + seen->events[MF_EXPERT_AHEAD] +
              seen->events[MF_EXPERT_LATE] + seen->events[MF_EXPERT_DEMAND]);
    CHECK(seen->prompt_rows == REPEATS * 60 && seen->decode_rows == REPEATS * ANSWER);
    check_map(model, &experts, seen->kept, false);
    /* The engine's profile is off: stages are counted for the watcher alone. */
    CHECK(mf_sequence_stats(sequence, &times, &why) == MF_OK);
    CHECK(times.decode_stage_seconds[MF_STAGE_EXPERTS] == 0);
    CHECK(seen->stage_seconds > 0.5 * seen->step_seconds);
    mf_sequence_close(sequence);
    mf_model_close(model);
    seen_free(seen);
}

/* Nothing is read ahead or evicted: the map is what the routes have named. */
static void the_map_is_what_routes_have_named_when_resident(void)
{
    mf_model *model = open_model(0, "never");
    const mf_experts experts = experts_of(model);
    struct seen *seen = seen_new(&experts), *later = seen_new(&experts);
    struct routed routed = { later->used, &experts };
    mf_sequence *sequence;
    CHECK(strcmp(stats_of(model).expert_mode, "resident") == 0);
    CHECK(mf_sequence_open(&sequence, model, NULL, &why) == MF_OK);
    mf_sequence_watch_routes(sequence, take_routes, &routed);
    CHECK(mf_model_watch_experts(model, take_batch, seen, &why) == MF_OK);
    feed_some(sequence, 9, 20);
    const mf_model_statistics found = stats_of(model);
    check_sums(seen, &found);
    check_map(model, &experts, later->used, true);
    check_map(model, &experts, seen->used, true);
    CHECK(seen->events[MF_EXPERT_DEMAND] == found.experts_present);
    CHECK(seen->events[MF_EXPERT_EVICTED] == 0 && found.experts_present < found.experts_total);
    CHECK(seen->steps == 21 && seen->prompt_rows == 9 && seen->decode_rows == 20);
    /* Nothing is told afterwards, and another watcher begins with the totals of then. */
    size_t batches = atomic_load(&seen->batches);
    CHECK(mf_model_watch_experts(model, NULL, NULL, &why) == MF_OK);
    feed_some(sequence, 3, 3);
    CHECK(atomic_load(&seen->batches) == batches);
    uint8_t map[4096];
    CHECK(mf_model_experts_present(model, map, sizeof map, &why) == MF_OK);
    for (size_t i = 0; i < (size_t)experts.row_count * experts.expert_count; i++)
        later->kept[i] = map[i / 8] >> i % 8 & 1;
    const mf_model_statistics then = stats_of(model);
    CHECK(mf_model_watch_experts(model, take_batch, later, &why) == MF_OK);
    feed_some(sequence, 1, 1);
    CHECK(later->first[MF_EXPERT_HIT] == then.expert_hits && then.expert_hits > found.expert_hits);
    const mf_model_statistics last = stats_of(model);
    check_sums(later, &last);
    mf_sequence_close(sequence);
    mf_model_close(model);
    seen_free(seen);
    seen_free(later);
}

struct switching {
    mf_model *model;
    atomic_bool stop;
    atomic_size_t calls;
    atomic_bool watched; /* calls are legal */
};

static void count_call(void *user, const mf_expert_batch *batch)
{
    struct switching *switching = user;
    CHECK(atomic_load(&switching->watched) && (batch->count == 0 || batch->events));
    atomic_fetch_add(&switching->calls, 1);
}

static void *switch_on_and_off(void *user)
{
    struct switching *switching = user;
    mf_error error;
    uint8_t map[4096];
    mf_experts experts = experts_of(switching->model);
    for (size_t i = 0; !atomic_load(&switching->stop); i++) {
        atomic_store(&switching->watched, true);
        CHECK(mf_model_watch_experts(switching->model, count_call, switching, &error) == MF_OK);
        CHECK(mf_model_experts_present(switching->model, map, sizeof map, &error) == MF_OK);
        size_t before = atomic_load(&switching->calls);
        while (!atomic_load(&switching->stop) && atomic_load(&switching->calls) == before)
            usleep(100);
        CHECK(mf_model_watch_experts(switching->model, NULL, NULL, &error) == MF_OK);
        atomic_store(&switching->watched, false);
    }
    CHECK(experts.map_bytes <= sizeof map);
    return NULL;
}

static void another_thread_watches_and_stops_while_steps_run(void)
{
    struct switching switching = { .model = open_model(12 << 20, "always") };
    mf_sequence *sequence;
    pthread_t thread;
    CHECK(mf_sequence_open(&sequence, switching.model, NULL, &why) == MF_OK);
    CHECK(pthread_create(&thread, NULL, switch_on_and_off, &switching) == 0);
    feed_some(sequence, PROMPT, ANSWER / 2);
    atomic_store(&switching.stop, true);
    pthread_join(thread, NULL);
    CHECK(atomic_load(&switching.calls) > 2);
    mf_sequence_close(sequence);
    mf_model_close(switching.model);
}

int main(int argc, char **argv)
{
    CHECK(argc == 2);
    path = argv[1];
    mf_engine_options options = MF_ENGINE_OPTIONS_INIT;
    options.thread_count = 2;
    CHECK(mf_engine_open(&engine, &options, &why) == MF_OK);
    sums_of_events_are_the_counters_when_streamed();
    the_map_is_what_routes_have_named_when_resident();
    another_thread_watches_and_stops_while_steps_run();
    mf_engine_close(engine);
    puts("watch: all as expected");
    return 0;
}
