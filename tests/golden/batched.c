/* batched.c: a sequence has the same bits alone and in any company, for checkpoints of every family.
 *
 *     batched CHECKPOINT [MOST [KV [BACKEND]]]     of the source tree; up to MOST sequences, else 64;
 *         the type of keys and values, else the backend's; the backend, else reference and cpu
 *
 * Each sequence follows a script: prompts and generated tokens of random lengths, with
 * forks and snapshots between them.  First
 * every script runs alone and its logits are kept.  Then random parts of many scripts go through
 * mf_model_step together, in random order, and every logit must be the same; and again with steps
 * that pause before every layer for parts of other scripts. */
#include "support/test.h"

#include "api/handles.h"
#include "base/file.h"

#include <stdio.h>
#include <stdlib.h>

enum { SEQUENCES_MAX = 64, FEEDS = 6, PROMPT_MOST = 45, LENGTH_MOST = FEEDS * PROMPT_MOST };

static char path[PATH_CAPACITY];
static const char *kv_type, *only_backend;
static uint64_t seed = 1;
static size_t most = SEQUENCES_MAX; /* sequences at a time */

static uint32_t draw(uint32_t below)
{
    seed = seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)(seed >> 33) % below;
}

static void must(mf_status status, const mf_error *why)
{
    if (status != MF_OK) fail_msg("%s (%s)", why->text, why->origin);
}

/* ------------------------------------------------------------------- scripts */

struct script {
    struct {
        mf_phase phase;
        uint32_t first, count;
        enum { GO_ON, FORK, SNAPSHOT } how; /* in itself, in a fork, or restored from bytes */
    } feeds[FEEDS];
    int32_t tokens[LENGTH_MOST];
    float *logits; /* [FEEDS][vocabulary], of the script alone */
};

static void write_script(struct script *script, size_t vocab_size)
{
    uint32_t length = 0;
    for (int i = 0; i < FEEDS; i++) {
        bool generated = i > 0 && draw(2) == 0;
        uint32_t count = generated ? 1 + draw(3) / 2 : 1 + draw(draw(3) ? PROMPT_MOST : 3);
        script->feeds[i].phase = generated ? MF_PHASE_GENERATED : MF_PHASE_PROMPT;
        script->feeds[i].first = length;
        script->feeds[i].count = count;
        script->feeds[i].how = draw(4) ? GO_ON : draw(2) ? FORK : SNAPSHOT;
        length += count;
    }
    for (uint32_t i = 0; i < length; i++) script->tokens[i] = (int32_t)draw((uint32_t)vocab_size);
}

static mf_part part_of(const struct script *script, int feed, mf_sequence *sequence, mf_error *why)
{
    return (mf_part){ .sequence = sequence,
                      .phase = script->feeds[feed].phase,
                      .tokens = script->tokens + script->feeds[feed].first,
                      .count = script->feeds[feed].count,
                      .why = why };
}

/* -------------------------------------------------------------------- engines */

struct opened {
    mf_engine *engine;
    mf_model *model;
    size_t vocab_size;
};

static struct opened open_model(const char *backend, uint32_t threads,
                                const mf_model_options *model)
{
    struct opened o;
    mf_error why = { 0 };
    mf_engine_options options = { .struct_size = sizeof options,
                                  .thread_count = threads,
                                  .backend = backend };
    must(mf_engine_open(&o.engine, &options, &why), &why);
    must(mf_model_open(&o.model, o.engine, path, model, &why), &why);
    o.vocab_size = mf_model_vocab_size(o.model);
    return o;
}

static void close_model(struct opened *o)
{
    for (int kind = 0; kind < BLOCK_KINDS; kind++)
        assert_int_equal(state_pool_sizes(&o->model->room.pool).held[kind], 0);
    mf_model_close(o->model);
    mf_engine_close(o->engine);
}

static void run_alone(struct script *script, struct opened *o)
{
    mf_sequence *sequence;
    mf_error why = { 0 };
    script->logits = calloc(FEEDS * o->vocab_size, sizeof *script->logits);
    assert_non_null(script->logits);
    must(mf_sequence_open(&sequence, o->model, NULL, &why), &why);
    for (int i = 0; i < FEEDS; i++) {
        must(mf_sequence_feed(sequence, script->feeds[i].phase,
                              script->tokens + script->feeds[i].first, script->feeds[i].count,
                              &why),
             &why);
        memcpy(script->logits + i * o->vocab_size, mf_sequence_logits(sequence),
               o->vocab_size * sizeof(float));
    }
    mf_sequence_close(sequence);
}

/* -------------------------------------------------------------------- company */

struct actor {
    mf_sequence *sequence;
    int feed;  /* the next one */
    bool busy; /* with a step that stands still */
};

/* Another sequence takes the actor's place. */
static void replace_actor(struct actor *actor, bool fork)
{
    mf_error why = { 0 };
    mf_sequence *other;
    if (fork) {
        must(mf_sequence_fork(&other, actor->sequence, &why), &why);
    } else {
        size_t bytes = (size_t)mf_sequence_snapshot_bytes(actor->sequence);
        void *snapshot = malloc(bytes);
        assert_non_null(snapshot);
        must(mf_sequence_open(&other, mf_sequence_model(actor->sequence), NULL, &why), &why);
        must(mf_sequence_save(actor->sequence, snapshot, bytes, NULL, &why), &why);
        must(mf_sequence_load(other, snapshot, bytes, &why), &why);
        free(snapshot);
    }
    mf_sequence_close(actor->sequence);
    actor->sequence = other;
}

/* Those that have not ended and take no part in the step that stands still. */
static bool is_free(const struct actor *actor)
{
    return actor->feed < FEEDS && !actor->busy;
}

/* Some of those that are free, in random order. */
static size_t choose_actors(size_t *chosen, const struct actor *actors, size_t count)
{
    size_t found = 0, often = 1 + draw(4);
    for (size_t i = 0; i < count; i++) {
        if (!is_free(&actors[i]) || draw(4) >= often) continue;
        size_t at = draw((uint32_t)++found);
        chosen[found - 1] = chosen[at];
        chosen[at] = i;
    }
    return found;
}

static void compare(const struct script *script, const struct actor *actor, size_t vocab_size)
{
    assert_true(engine_sequence_check_invariants(&actor->sequence->sequence));
    if (memcmp(mf_sequence_logits(actor->sequence), script->logits + actor->feed * vocab_size,
               vocab_size * sizeof(float)) != 0)
        fail_msg("feed %d of a script (%u tokens, phase %d): other bits in company", actor->feed,
                 script->feeds[actor->feed].count, (int)script->feeds[actor->feed].phase);
}

struct company {
    const struct script *scripts;
    struct actor actors[SEQUENCES_MAX];
    size_t count, left; /* actors; feeds of all of them */
    size_t vocab_size;
};

static void open_company(struct company *c, const struct script *scripts, size_t count,
                         struct opened *o)
{
    mf_error why = { 0 };
    *c = (struct company){
        .scripts = scripts, .count = count, .left = count * FEEDS, .vocab_size = o->vocab_size
    };
    for (size_t i = 0; i < count; i++)
        must(mf_sequence_open(&c->actors[i].sequence, o->model, NULL, &why), &why);
}

static void close_company(struct company *c)
{
    for (size_t i = 0; i < c->count; i++) mf_sequence_close(c->actors[i].sequence);
}

/* The chosen actors have done their next feed. */
static void check_feeds(struct company *c, const size_t *chosen, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        struct actor *actor = &c->actors[chosen[i]];
        compare(&c->scripts[chosen[i]], actor, c->vocab_size);
        actor->feed++;
        actor->busy = false;
    }
    c->left -= count;
}

/* Some actors that are free, as forks or copies of themselves where their scripts say so. */
static size_t next_actors(size_t *chosen, struct company *c)
{
    size_t count = choose_actors(chosen, c->actors, c->count);
    for (size_t i = 0; i < count; i++) {
        struct actor *actor = &c->actors[chosen[i]];
        int how = c->scripts[chosen[i]].feeds[actor->feed].how;
        if (how != GO_ON) replace_actor(actor, how == FORK);
    }
    return count;
}

static void run_together(const struct script *scripts, size_t count, struct opened *o)
{
    struct company c;
    size_t chosen[SEQUENCES_MAX];
    mf_error why = { 0 };
    open_company(&c, scripts, count, o);
    while (c.left > 0) {
        mf_part parts[SEQUENCES_MAX];
        size_t part_count = next_actors(chosen, &c);
        for (size_t i = 0; i < part_count; i++) {
            const struct actor *actor = &c.actors[chosen[i]];
            parts[i] = part_of(&scripts[chosen[i]], actor->feed, actor->sequence, &why);
        }
        must(mf_model_step(o->model, parts, part_count, &why), &why);
        check_feeds(&c, chosen, part_count);
    }
    close_company(&c);
}

/* The next feeds of the chosen actors, for the engine. */
static void make_feeds(struct feed *feeds, const struct company *c, const size_t *chosen,
                       size_t count, mf_error *why)
{
    for (size_t i = 0; i < count; i++) {
        const struct actor *actor = &c->actors[chosen[i]];
        mf_part part = part_of(&c->scripts[chosen[i]], actor->feed, actor->sequence, why);
        feeds[i] = (struct feed){ .sequence = &actor->sequence->sequence,
                                  .phase = part.phase,
                                  .tokens = part.tokens,
                                  .count = part.count,
                                  .why = why };
    }
}

static void run_in_pause(void *user)
{
    struct company *c = user;
    struct feed feeds[SEQUENCES_MAX];
    size_t chosen[SEQUENCES_MAX];
    mf_error why = { 0 };
    size_t count = next_actors(chosen, c);
    make_feeds(feeds, c, chosen, count, &why);
    engine_feed_in_pause(feeds, count);
    for (size_t i = 0; i < count; i++) must(feeds[i].status, &why);
    check_feeds(c, chosen, count);
}

static void run_with_pauses(const struct script *scripts, size_t count, struct opened *o)
{
    struct company c;
    struct feed feeds[SEQUENCES_MAX];
    size_t chosen[SEQUENCES_MAX];
    mf_error why = { 0 };
    const struct feed_pause pause = { run_in_pause, &c };
    open_company(&c, scripts, count, o);
    while (c.left > 0) {
        size_t feed_count = min_size(next_actors(chosen, &c), 1 + draw(3));
        for (size_t i = 0; i < feed_count; i++) c.actors[chosen[i]].busy = true;
        make_feeds(feeds, &c, chosen, feed_count, &why);
        engine_feed_pausable(feeds, feed_count, &pause);
        for (size_t i = 0; i < feed_count; i++) must(feeds[i].status, &why);
        check_feeds(&c, chosen, feed_count);
    }
    assert_true(o->model->room.pause_steps > 0);
    close_company(&c);
}

/* ---------------------------------------------------------------------- tests */

/* The least memory, in steps of 64 KiB, with which the model opens: experts are streamed. */
static struct opened open_streamed(const char *backend, mf_model_options options,
                                   const mf_model *resident)
{
    struct opened o = { .vocab_size = mf_model_vocab_size(resident) };
    mf_error why = { 0 };
    mf_engine_options engine = { .struct_size = sizeof engine,
                                 .thread_count = 2,
                                 .backend = backend };
    must(mf_engine_open(&o.engine, &engine, &why), &why);
    options.memory_bytes = resident->model.weights.resident_bytes + resident->room.bytes;
    do options.memory_bytes += 64 << 10;
    while (mf_model_open(&o.model, o.engine, path, &options, &why) == MF_ERR_MEMORY);
    assert_non_null(o.model);
    assert_string_equal(expert_store_sizes(o.model->experts).mode, "streamed");
    return o;
}

static void check_backend(const char *backend)
{
    static struct script scripts[SEQUENCES_MAX];
    static const size_t counts[] = { 2, 3, 5, 8, 17, 64 };
    mf_model_options options = { .struct_size = sizeof options,
                                 .context_length = LENGTH_MOST,
                                 .chunk_rows = 96, /* parts of a step may be cut */
                                 .sequences = SEQUENCES_MAX,
                                 .kv_type = kv_type };
    struct opened alone = open_model(backend, 1, &options);
    for (size_t i = 0; i < most; i++) {
        write_script(&scripts[i], alone.vocab_size);
        run_alone(&scripts[i], &alone);
    }
    struct opened together = open_streamed(backend, options, alone.model);
    for (size_t i = 0; i < COUNT_OF(counts) && counts[i] <= most; i++) {
        run_together(scripts, counts[i], i % 3 == 1 ? &alone : &together);
        if (i % 2 == 1) run_with_pauses(scripts, counts[i], i == 1 ? &alone : &together);
    }
    for (size_t i = 0; i < most; i++) free(scripts[i].logits);
    close_model(&together);
    close_model(&alone);
}

static void batching_changes_no_bit_of_the_reference(void **state)
{
    (void)state;
    check_backend("reference");
}

static void batching_changes_no_bit_of_the_tuned_arithmetic(void **state)
{
    (void)state;
    check_backend(only_backend ? only_backend : "cpu");
}

/* ------------------------------------------------------------- long contexts */

enum { LONG = 1500, SHORT = 3, GROUP_MOST = 9 };

static mf_sequence *prompted(struct opened *o, uint32_t length)
{
    static int32_t tokens[LONG];
    mf_sequence *sequence;
    mf_error why = { 0 };
    for (uint32_t i = 0; i < length; i++) tokens[i] = (int32_t)(i * 7 % o->vocab_size);
    must(mf_sequence_open(&sequence, o->model, NULL, &why), &why);
    must(mf_sequence_feed(sequence, MF_PHASE_PROMPT, tokens, length, &why), &why);
    return sequence;
}

/* A generated token for `longs` forks of one sequence and `shorts` of another; the logits follow
 * each other. */
static void step_group(float *out, struct opened *o, mf_sequence *const bases[2], size_t longs,
                       size_t shorts)
{
    mf_sequence *forks[GROUP_MOST];
    mf_part parts[GROUP_MOST];
    static const int32_t token = 5;
    mf_error why = { 0 };
    for (size_t i = 0; i < longs + shorts; i++) {
        must(mf_sequence_fork(&forks[i], bases[i >= longs], &why), &why);
        parts[i] = (mf_part){ .sequence = forks[i],
                              .phase = MF_PHASE_GENERATED,
                              .tokens = &token,
                              .count = 1,
                              .why = &why };
    }
    must(mf_model_step(o->model, parts, longs + shorts, &why), &why);
    for (size_t i = 0; i < longs + shorts; i++) {
        memcpy(out + i * o->vocab_size, mf_sequence_logits(forks[i]),
               o->vocab_size * sizeof(float));
        mf_sequence_close(forks[i]);
    }
}

/* A long context is divided among workers or not, by what else is in the step. */
static void long_contexts_have_the_same_bits_in_any_company(void **state)
{
    (void)state;
    static const size_t groups[][2] = { { 1, 0 }, { 2, 0 }, { 1, 1 }, { 1, 8 }, { 7, 2 } };
    mf_model_options options = { .struct_size = sizeof options,
                                 .context_length = LONG + 4,
                                 .sequences = GROUP_MOST + 2 };
    float *expected = NULL, *found = NULL;
    for (uint32_t threads = 1; threads <= 5; threads += 2) {
        struct opened o = open_model(only_backend ? only_backend : "cpu", threads, &options);
        size_t row = o.vocab_size;
        size_t most_long = min_size(LONG, mf_model_context_length(o.model) - 4);
        mf_sequence *bases[2] = { prompted(&o, (uint32_t)most_long), prompted(&o, SHORT) };
        if (!expected) expected = calloc(2 * row, sizeof *expected);
        if (!found) found = calloc(GROUP_MOST * row, sizeof *found);
        assert_true(expected && found);
        if (threads == 1) step_group(expected, &o, bases, 1, 0);
        if (threads == 1) step_group(expected + row, &o, bases, 0, 1);
        for (size_t g = 0; g < COUNT_OF(groups); g++) {
            size_t longs = groups[g][0], all = longs + groups[g][1];
            step_group(found, &o, bases, longs, groups[g][1]);
            for (size_t i = 0; i < all; i++)
                assert_memory_equal(found + i * row, expected + (i >= longs) * row,
                                    row * sizeof *found);
        }
        for (size_t i = 0; i < 2; i++) mf_sequence_close(bases[i]);
        close_model(&o);
    }
    free(expected);
    free(found);
}

int main(int count, char **arguments)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(batching_changes_no_bit_of_the_reference),
        cmocka_unit_test(batching_changes_no_bit_of_the_tuned_arithmetic),
        cmocka_unit_test(long_contexts_have_the_same_bits_in_any_company),
    };
    const char *source = getenv("MOEFLUX_SOURCE");
    if (count < 2 || count > 5) return 2;
    if (count > 4) only_backend = arguments[4];
    if (count > 2) most = min_size((size_t)atoi(arguments[2]), SEQUENCES_MAX);
    if (count > 3) kv_type = arguments[3];
    snprintf(path, sizeof path, "%s/%s", source ? source : ".", arguments[1]);
    size_t first = only_backend ? 1 : 0; /* the reference comes first */
    return _cmocka_run_group_tests("batched", tests + first, COUNT_OF(tests) - first, NULL, NULL);
}
