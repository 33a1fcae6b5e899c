/* How often an expert is in memory: `build/bench/bench_expert_cache [MODEL TEXT [SHARE …]]`.
 *
 * Without arguments, the first 2048 tokens of Pebble's held-out text.  The text is fed
 * token by token in windows of 512, as generation would be, and the routes recorded.
 * Then caches are played against the record, with room for SHARE (0.25) of all experts,
 * and the store itself is measured:
 *
 *     belady, moeflux, lfu, lru, s3-fifo   as in `moeflux simulate`
 *     horizon-n  knows which experts the next n tokens need, and the past: what even a
 *                perfect prediction of n tokens could win
 *     measured   the counters of the store at that size, nothing read ahead
 *
 * CSV on stdout: bench, case, hits in percent of all visits' experts (twice), unit. */
#include "api/handles.h"
#include "experts/eviction.h"
#include "experts/simulation.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { WINDOW = 512, TOKENS_STANDARD = 2048, LAYERS_MAX = 256 };

static mf_engine *engine;
static int32_t *tokens;
static size_t token_count;

static uint64_t bytes_of[2][LAYERS_MAX]; /* experts, slots */
static struct route_writer writer;
static char *file;
static size_t file_bytes, file_capacity;
static struct route_trace trace;

static void die(const char *text)
{
    fprintf(stderr, "bench_expert_cache: %s\n", text);
    exit(1);
}

static void must(mf_status status, const mf_error *why)
{
    if (status != MF_OK) die(why->text);
}

static void *take(size_t count, size_t size)
{
    void *memory = calloc(count + 1, size);
    if (!memory) die("out of memory");
    return memory;
}

/* ------------------------------------------------------------------- model */

static bool take_bytes(void *user, const void *bytes, size_t count)
{
    (void)user;
    if (file_bytes + count > file_capacity) {
        file_capacity = 2 * (file_bytes + count);
        file = realloc(file, file_capacity);
        if (!file) die("out of memory");
    }
    memcpy(file + file_bytes, bytes, count);
    file_bytes += count;
    return true;
}

static void watch(void *user, const mf_routes *routes)
{
    (void)user;
    struct route_choice choice = { routes->layer, routes->row_count, routes->tokens,
                                   routes->experts, routes->weights };
    route_writer_add(&writer, &choice);
}

static void begin_trace(const mf_model *model)
{
    mf_error why;
    const struct model_config *config = &model->model.config;
    struct route_shape shape = { .layers = config->layer_count,
                                 .experts = config->experts,
                                 .per_token = config->experts_per_token,
                                 .expert_bytes = bytes_of[0],
                                 .slot_bytes = bytes_of[1] };
    if (shape.layers > LAYERS_MAX) die("the model has too many layers");
    for (uint32_t i = 0; i < shape.layers; i++)
        expert_store_bytes_of(model->experts, i, &bytes_of[0][i], &bytes_of[1][i]);
    must(route_writer_open(&writer, &allocator_heap, &shape, take_bytes, NULL, &why), &why);
}

/* With `slot_bytes`, experts may take so much; 0: there is room for all. */
static void feed_text(mf_model *model, mf_routes_function each, uint64_t slot_bytes)
{
    mf_error why;
    mf_sequence *sequence;
    mf_sequence_options options = { .struct_size = sizeof options,
                                    .context_length = WINDOW,
                                    .chunk_rows = 1 };
    must(mf_sequence_open(&sequence, model, &options, &why), &why);
    mf_sequence_watch_routes(sequence, each, NULL);
    if (slot_bytes) must(expert_store_set_budget(model->experts, slot_bytes, &why), &why);
    for (size_t i = 0; i < token_count; i++) {
        if (i % WINDOW == 0) mf_sequence_clear(sequence);
        must(mf_sequence_feed(sequence, MF_PHASE_GENERATED, tokens + i, 1, &why), &why);
    }
    mf_sequence_close(sequence);
}

static void record(mf_model *model)
{
    mf_error why;
    begin_trace(model);
    feed_text(model, watch, 0);
    must(route_writer_end(&writer, 0, &why), &why);
    route_writer_free(&writer);
    must(route_trace_open(&trace, &allocator_heap, file, file_bytes, &why), &why);
}

static void read_text(const mf_model *model, const char *path)
{
    mf_error why;
    char *text;
    size_t length;
    must(file_read_whole_new(&text, &length, &files_posix, path, 64 << 20, &why), &why);
    tokens = take(length, sizeof *tokens);
    must(mf_text_tokenize(mf_model_text(model), tokens, length, &token_count, text, length,
                          MF_SPECIAL_PARSE, &why),
         &why);
    free(text);
}

/* ----------------------------------------------------------------- horizon */

/* Every layer has experts here, and steps have one row. */
struct oracle {
    uint32_t layers, experts, per_token;
    size_t places, slots;
    uint32_t *next_uses;         /* [tokens][places] the token that uses it next, after this one */
    uint32_t *held;              /* [slots] places */
    size_t held_count, *slot_of; /* [places] + 1; 0: not held */
    bool *needed;                /* [places] by the current visit */
    uint32_t *uses;              /* [experts] */
    struct eviction eviction;
    size_t token;
    uint32_t layer;
    double horizon; /* visits */
};

static void find_next_uses(struct oracle *o)
{
    uint32_t *coming = take(o->places, sizeof *coming);
    o->next_uses = take(token_count * o->places, sizeof *o->next_uses);
    for (size_t p = 0; p < o->places; p++) coming[p] = UINT32_MAX;
    for (size_t t = token_count; t-- > 0;) {
        memcpy(o->next_uses + t * o->places, coming, o->places * sizeof *coming);
        for (uint32_t layer = 0; layer < o->layers; layer++)
            for (uint32_t k = 0; k < o->per_token; k++) {
                uint32_t e = route_trace_expert(&trace, &trace.steps[t], layer, 0, k);
                coming[layer * o->experts + e] = (uint32_t)t;
            }
    }
    free(coming);
}

/* Visits until the next use: as it will be within the horizon, beyond it as expected. */
static double distance(const struct oracle *o, size_t place)
{
    uint32_t layer = (uint32_t)(place / o->experts);
    double expected =
        (double)eviction_distance(&o->eviction, layer, (uint32_t)(place % o->experts));
    if (layer > o->layer && o->token == 0) return expected + o->horizon;
    size_t from = layer <= o->layer ? o->token : o->token - 1; /* its layer's last visit */
    uint32_t next = o->next_uses[from * o->places + place];
    double known = ((double)next - (double)o->token) * o->layers + layer - o->layer;
    return next != UINT32_MAX && known <= o->horizon ? known : expected + o->horizon;
}

static void bring_in(struct oracle *o, size_t place)
{
    size_t slot = o->held_count;
    double most = -1;
    if (slot < o->slots) {
        o->held_count++;
    } else {
        for (size_t i = 0; i < o->slots; i++) {
            if (o->needed[o->held[i]]) continue;
            double far = distance(o, o->held[i]);
            if (far > most) {
                most = far;
                slot = i;
            }
        }
        o->slot_of[o->held[slot]] = 0;
    }
    o->held[slot] = (uint32_t)place;
    o->slot_of[place] = slot + 1;
}

/* How many of the visit's experts were there. */
static size_t visit(struct oracle *o)
{
    const struct route_step *step = &trace.steps[o->token];
    size_t hits = 0, first = (size_t)o->layer * o->experts;
    memset(o->uses, 0, o->experts * sizeof *o->uses);
    memset(o->needed, 0, o->places * sizeof *o->needed);
    for (uint32_t k = 0; k < o->per_token; k++) {
        uint32_t e = route_trace_expert(&trace, step, o->layer, 0, k);
        o->uses[e] = 1;
        o->needed[first + e] = true;
        hits += o->slot_of[first + e] != 0;
    }
    eviction_visit(&o->eviction, o->layer, o->uses, 1);
    for (uint32_t e = 0; e < o->experts; e++)
        if (o->uses[e] && !o->slot_of[first + e]) bring_in(o, first + e);
    return hits;
}

static double play_horizon(struct oracle *o, uint32_t horizon_tokens)
{
    struct arena arena;
    size_t hits = 0;
    arena_init(&arena, &allocator_heap);
    if (!eviction_init(&o->eviction, &arena, o->layers, o->experts)) die("out of memory");
    memset(o->slot_of, 0, o->places * sizeof *o->slot_of);
    o->held_count = 0;
    o->horizon = (double)horizon_tokens * o->layers;
    for (o->token = 0; o->token < token_count; o->token++)
        for (o->layer = 0; o->layer < o->layers; o->layer++) hits += visit(o);
    arena_free(&arena);
    return 100.0 * (double)hits / ((double)token_count * o->layers * o->per_token);
}

static void oracle_init(struct oracle *o)
{
    *o = (struct oracle){ .layers = trace.shape.layers,
                          .experts = trace.shape.experts,
                          .per_token = trace.shape.per_token,
                          .places = (size_t)trace.shape.layers * trace.shape.experts };
    for (uint32_t i = 0; i < o->layers; i++)
        if (trace.order[i] == NO_ORDER) die("every layer must have experts");
    o->held = take(o->places, sizeof *o->held);
    o->slot_of = take(o->places, sizeof *o->slot_of);
    o->needed = take(o->places, sizeof *o->needed);
    o->uses = take(o->experts, sizeof *o->uses);
    find_next_uses(o);
}

static void oracle_free(struct oracle *o)
{
    free(o->next_uses);
    free(o->held);
    free(o->slot_of);
    free(o->needed);
    free(o->uses);
}

/* ----------------------------------------------------------------- reports */

static void report(const char *policy, double share, double percent)
{
    printf("expert_cache,%s %.0f%%,%.2f,%.2f,%% hits\n", policy, 100 * share, percent, percent);
    fflush(stdout);
}

static void measure_store(mf_model *model, double share)
{
    expert_store_reset_counters(model->experts);
    expert_store_drop_all(model->experts);
    feed_text(model, NULL, (uint64_t)(share * (double)simulation_full_bytes(&trace)));
    struct expert_counters c = expert_store_counters(model->experts);
    report("measured", share, 100.0 * (double)c.hits / (double)(c.hits + c.misses));
}

static void compare_policies(struct oracle *oracle, double share)
{
    mf_error why;
    for (int i = 0; i < CACHE_POLICIES; i++) {
        struct simulation_result result;
        struct simulation_setting setting = {
            .policy = (enum cache_policy)i,
            .budget_bytes = (uint64_t)(share * (double)simulation_full_bytes(&trace)),
            .rows = 1
        };
        must(simulation_run(&result, &trace, &setting, &allocator_heap, &why), &why);
        report(cache_policy_name(setting.policy), share,
               100.0 * (double)result.hits / (double)result.uses);
    }
    oracle->slots = (size_t)(share * (double)oracle->places);
    for (uint32_t n = 1; n <= 4; n++) {
        char name[32];
        snprintf(name, sizeof name, "horizon-%u", n);
        report(name, share, play_horizon(oracle, n));
    }
}

int main(int count, char **arguments)
{
    const char *path = count > 2 ? arguments[1] : "models/pebble";
    const char *text = count > 2 ? arguments[2] : "tests/fixtures/pebble/heldout.txt";
    mf_error why;
    mf_model *model;
    struct oracle oracle;
    mf_engine_options options = { .struct_size = sizeof options, .thread_count = 1 };
    mf_model_options model_options = { .struct_size = sizeof model_options, .read_ahead = "never" };
    must(mf_engine_open(&engine, &options, &why), &why);
    must(mf_model_open(&model, engine, path, &model_options, &why), &why);
    read_text(model, text);
    if (count <= 2 && token_count > TOKENS_STANDARD) token_count = TOKENS_STANDARD;
    record(model);
    oracle_init(&oracle);
    for (int i = 3; i < count || i == 3; i++) {
        double share = i < count ? atof(arguments[i]) : 0.25;
        compare_policies(&oracle, share);
        measure_store(model, share);
    }
    oracle_free(&oracle);
    route_trace_free(&trace);
    mf_model_close(model);
    mf_engine_close(engine);
    free(file);
    free(tokens);
    return 0;
}
