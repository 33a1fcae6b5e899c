/* How often an expert is in memory: `build/bench/bench_expert_cache [MODEL TEXT [SHARE …]]`.
 *
 * Without arguments, the first 2048 tokens of Pebble's held-out text.  The text is fed
 * token by token in windows of 512, as generation would be, and the
 * experts of every visit recorded.  Then policies are played against the record, with
 * room for SHARE (0.25) of all experts, and the store itself is measured.
 *
 *     belady     knows the future: the bound
 *     horizon-n  knows which experts the next n tokens need, and the past: what even a
 *                perfect prediction of n tokens could win
 *     lru, lfu, s3-fifo, decay-n (a frequency with a half-life of n tokens)
 *     store      src/experts/eviction.c in this simulation
 *     measured   the counters of the store at that size
 *
 * CSV on stdout: bench, case, hits in percent of all visits' experts (twice), unit. */
#include "api/handles.h"
#include "experts/eviction.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { WINDOW = 512, TOKENS_STANDARD = 2048 };

static uint32_t layers, experts, per_token; /* experts per layer */
static size_t places;                       /* layers x experts */
static uint32_t *trace;                     /* [tokens][layers][per_token] */
static size_t trace_count, trace_capacity;  /* tokens x layers */

static mf_engine *engine;
static int32_t *tokens;
static size_t token_count;

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

static void record(void *user, uint32_t layer, struct routes *routes, size_t rows)
{
    (void)user;
    (void)layer;
    if (rows != 1 || trace_count == trace_capacity) die("the trace has more visits than tokens");
    memcpy(trace + trace_count++ * per_token, routes->experts, per_token * sizeof *trace);
}

/* With `slot_bytes`, experts may take so much; 0: there is room for all. */
static void feed_text(mf_model *model, const struct observer *observer, uint64_t slot_bytes)
{
    mf_error why;
    mf_session *session;
    mf_session_options options = { .context_length = WINDOW, .chunk_rows = 1 };
    must(mf_session_open(&session, model, &options, &why), &why);
    session->session.forward.observer = observer;
    if (slot_bytes) must(expert_store_set_budget(model->experts, slot_bytes, &why), &why);
    for (size_t i = 0; i < token_count; i++) {
        if (i % WINDOW == 0) mf_session_clear(session);
        must(mf_session_feed(session, tokens + i, 1, &why), &why);
    }
    mf_session_close(session);
}

static void read_text(const mf_model *model, const char *path)
{
    mf_error why;
    char *text;
    size_t length;
    must(file_read_whole_new(&text, &length, &files_posix, path, 64 << 20, &why), &why);
    tokens = take(length, sizeof *tokens);
    must(mf_model_tokenize(model, tokens, length, &token_count, text, length, MF_SPECIAL_PARSE,
                           &why),
         &why);
    free(text);
}

/* -------------------------------------------------------------- simulation */

struct simulation {
    size_t slots;
    size_t visit, token; /* at hand */
    uint32_t layer;
    uint32_t *held; /* [slots] places */
    size_t held_count;
    size_t *slot_of; /* [places] + 1; 0: not held */
    bool *needed;    /* [places] by the visit at hand */
    uint64_t *last_use, *use_count;
    double *decayed;
    struct eviction eviction;
    double parameter;
};

/* How much a held expert should stay: the one with the least goes. */
typedef double (*keep_function)(const struct simulation *s, size_t place);

static uint32_t *next_uses; /* [tokens][places] the token that uses it next, after this one */

static void find_next_uses(void)
{
    uint32_t *coming = take(places, sizeof *coming);
    next_uses = take(token_count * places, sizeof *next_uses);
    for (size_t p = 0; p < places; p++) coming[p] = UINT32_MAX;
    for (size_t t = token_count; t-- > 0;) {
        memcpy(next_uses + t * places, coming, places * sizeof *coming);
        for (uint32_t layer = 0; layer < layers; layer++)
            for (uint32_t k = 0; k < per_token; k++)
                coming[layer * experts + trace[(t * layers + layer) * per_token + k]] = (uint32_t)t;
    }
    free(coming);
}

/* Visits until the next use. */
static double true_distance(const struct simulation *s, size_t place)
{
    uint32_t layer = (uint32_t)(place / experts);
    if (layer > s->layer && s->token == 0) return 1e9;
    size_t from = layer <= s->layer ? s->token : s->token - 1; /* its layer's last visit */
    uint32_t next = next_uses[from * places + place];
    if (next == UINT32_MAX) return 1e9;
    return ((double)next - (double)s->token) * layers + layer - s->layer;
}

static double keep_belady(const struct simulation *s, size_t place)
{
    return -true_distance(s, place);
}

static double keep_store(const struct simulation *s, size_t place)
{
    return -(double)eviction_distance(&s->eviction, (uint32_t)(place / experts),
                                      (uint32_t)(place % experts));
}

static double keep_horizon(const struct simulation *s, size_t place)
{
    double distance = true_distance(s, place), horizon = s->parameter * layers;
    return distance <= horizon ? -distance : keep_store(s, place) - horizon;
}

static double keep_lru(const struct simulation *s, size_t place)
{
    return (double)s->last_use[place];
}

static double keep_lfu(const struct simulation *s, size_t place)
{
    return (double)s->use_count[place];
}

static double keep_decayed(const struct simulation *s, size_t place)
{
    return s->decayed[place];
}

static void note_visit(struct simulation *s, const uint32_t *ids)
{
    size_t first = (size_t)s->layer * experts;
    uint32_t *uses = take(experts, sizeof *uses);
    double left = s->parameter > 0 ? exp2(-1 / s->parameter) : 0;
    for (uint32_t e = 0; e < experts; e++) s->decayed[first + e] *= left;
    for (uint32_t k = 0; k < per_token; k++) {
        size_t place = first + ids[k];
        s->needed[place] = true;
        s->last_use[place] = s->visit + 1;
        s->use_count[place]++;
        s->decayed[place] += 1;
        uses[ids[k]] = 1;
    }
    eviction_visit(&s->eviction, s->layer, uses, 1);
    free(uses);
}

static void bring_in(struct simulation *s, size_t place, keep_function keep)
{
    size_t slot = s->held_count;
    if (slot < s->slots) {
        s->held_count++;
    } else {
        double least = INFINITY;
        for (size_t i = 0; i < s->slots; i++) {
            if (s->needed[s->held[i]]) continue;
            double value = keep(s, s->held[i]);
            if (value < least) {
                least = value;
                slot = i;
            }
        }
        s->slot_of[s->held[slot]] = 0;
    }
    s->held[slot] = (uint32_t)place;
    s->slot_of[place] = slot + 1;
}

static double simulate(keep_function keep, double parameter, size_t slots)
{
    struct arena arena;
    arena_init(&arena, &allocator_heap);
    struct simulation s = { .slots = slots,
                            .parameter = parameter,
                            .held = take(slots, sizeof *s.held),
                            .slot_of = take(places, sizeof *s.slot_of),
                            .needed = take(places, sizeof *s.needed),
                            .last_use = take(places, sizeof *s.last_use),
                            .use_count = take(places, sizeof *s.use_count),
                            .decayed = take(places, sizeof *s.decayed) };
    size_t hits = 0;
    if (!eviction_init(&s.eviction, &arena, layers, experts)) die("out of memory");
    for (s.visit = 0; s.visit < trace_count; s.visit++) {
        const uint32_t *ids = trace + s.visit * per_token;
        s.token = s.visit / layers;
        s.layer = (uint32_t)(s.visit % layers);
        note_visit(&s, ids);
        for (uint32_t k = 0; k < per_token; k++) hits += s.slot_of[s.layer * experts + ids[k]] != 0;
        for (uint32_t k = 0; k < per_token; k++) {
            size_t place = (size_t)s.layer * experts + ids[k];
            if (!s.slot_of[place]) bring_in(&s, place, keep);
        }
        for (uint32_t k = 0; k < per_token; k++) s.needed[s.layer * experts + ids[k]] = false;
    }
    arena_free(&arena);
    free(s.held);
    free(s.slot_of);
    free(s.needed);
    free(s.last_use);
    free(s.use_count);
    free(s.decayed);
    return 100.0 * (double)hits / ((double)trace_count * per_token);
}

/* S3-FIFO (Yang et al., 2023): a small queue for newcomers, a main one for those that
 * were used again, and a memory of those that left the small one. */
struct fifo {
    uint32_t *ring;
    size_t capacity, head, count;
};

static void fifo_put(struct fifo *f, uint32_t place)
{
    f->ring[(f->head + f->count++) % f->capacity] = place;
}

static uint32_t fifo_take(struct fifo *f)
{
    uint32_t place = f->ring[f->head];
    f->head = (f->head + 1) % f->capacity;
    f->count--;
    return place;
}

struct s3 {
    struct fifo small, large, ghosts;
    uint8_t *frequency;
    bool *held, *ghost;
};

static void s3_evict(struct s3 *c, size_t small_share)
{
    for (;;) {
        bool from_small = c->small.count > small_share || c->large.count == 0;
        uint32_t place = fifo_take(from_small ? &c->small : &c->large);
        if (c->frequency[place] > (from_small ? 1 : 0)) {
            c->frequency[place] = from_small ? 0 : c->frequency[place] - 1;
            fifo_put(&c->large, place);
            continue;
        }
        c->held[place] = false;
        if (!from_small) return;
        if (c->ghosts.count == c->ghosts.capacity - 1) c->ghost[fifo_take(&c->ghosts)] = false;
        fifo_put(&c->ghosts, place);
        c->ghost[place] = true;
        return;
    }
}

static struct fifo new_fifo(size_t capacity)
{
    return (struct fifo){ .ring = take(capacity, sizeof(uint32_t)), .capacity = capacity };
}

static double simulate_s3_fifo(size_t slots)
{
    struct s3 c = { .small = new_fifo(slots + 1),
                    .large = new_fifo(slots + 1),
                    .ghosts = new_fifo(slots + 1),
                    .frequency = take(places, 1),
                    .held = take(places, sizeof(bool)),
                    .ghost = take(places, sizeof(bool)) };
    size_t hits = 0;
    for (size_t i = 0; i < trace_count * per_token; i++) {
        uint32_t place = (uint32_t)(i / per_token % layers) * experts + trace[i];
        if (c.held[place]) {
            hits++;
            if (c.frequency[place] < 3) c.frequency[place]++;
            continue;
        }
        if (c.small.count + c.large.count == slots) s3_evict(&c, slots / 10);
        c.held[place] = true;
        c.frequency[place] = 0;
        fifo_put(c.ghost[place] ? &c.large : &c.small, place);
    }
    free(c.small.ring);
    free(c.large.ring);
    free(c.ghosts.ring);
    free(c.frequency);
    free(c.held);
    free(c.ghost);
    return 100.0 * (double)hits / ((double)trace_count * per_token);
}

/* ----------------------------------------------------------------- reports */

static void report(const char *policy, double share, double percent)
{
    printf("expert_cache,%s %.0f%%,%.2f,%.2f,%% hits\n", policy, 100 * share, percent, percent);
    fflush(stdout);
}

static void measure_store(mf_model *model, double share, uint64_t all_bytes)
{
    expert_store_reset_counters(model->experts);
    expert_store_drop_all(model->experts);
    feed_text(model, NULL, (uint64_t)(share * (double)all_bytes));
    struct expert_counters c = expert_store_counters(model->experts);
    report("measured", share, 100.0 * (double)c.hits / (double)(c.hits + c.misses));
}

static void compare_policies(double share)
{
    size_t slots = (size_t)(share * (double)places);
    report("belady", share, simulate(keep_belady, 0, slots));
    static const int horizons[] = { 1, 2, 3, 4 };
    for (size_t i = 0; i < COUNT_OF(horizons); i++) {
        char name[32];
        snprintf(name, sizeof name, "horizon-%d", horizons[i]);
        report(name, share, simulate(keep_horizon, horizons[i], slots));
    }
    report("lru", share, simulate(keep_lru, 0, slots));
    report("lfu", share, simulate(keep_lfu, 0, slots));
    report("s3-fifo", share, simulate_s3_fifo(slots));
    report("decay-4", share, simulate(keep_decayed, 4, slots));
    report("decay-32", share, simulate(keep_decayed, 32, slots));
    report("decay-256", share, simulate(keep_decayed, 256, slots));
    report("store", share, simulate(keep_store, 0, slots));
}

int main(int count, char **arguments)
{
    const char *path = count > 2 ? arguments[1] : "models/pebble";
    const char *text = count > 2 ? arguments[2] : "tests/fixtures/pebble/heldout.txt";
    mf_error why;
    mf_model *model;
    mf_engine_options options = { .thread_count = 1 };
    must(mf_engine_open(&engine, &options, &why), &why);
    must(mf_model_open(&model, engine, path, NULL, &why), &why);
    layers = model->model.config.layer_count;
    experts = model->model.config.experts;
    per_token = model->model.config.experts_per_token;
    places = (size_t)layers * experts;
    read_text(model, text);
    if (count <= 2 && token_count > TOKENS_STANDARD) token_count = TOKENS_STANDARD;
    trace_capacity = token_count * layers;
    trace = take(trace_capacity * per_token, sizeof *trace);
    struct observer observer = { .routes = record };
    feed_text(model, &observer, 0);
    if (trace_count != trace_capacity) die("every layer must have experts");
    uint64_t all_bytes = expert_store_sizes(model->experts).slot_bytes;
    find_next_uses();
    for (int i = 3; i < count || i == 3; i++) {
        double share = i < count ? atof(arguments[i]) : 0.25;
        compare_policies(share);
        measure_store(model, share, all_bytes);
    }
    mf_model_close(model);
    mf_engine_close(engine);
    free(next_uses);
    free(trace);
    free(tokens);
    return 0;
}
