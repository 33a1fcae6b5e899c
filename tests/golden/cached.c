/* cached.c: requests with the prefix cache and without it: the same logits, bit for bit.
 *
 *     cached CHECKPOINT REQUESTS     of the source tree
 *
 * Prompts begin like earlier prompts and answers, differ somewhere, and leave checkpoints at random
 * places; the cache is so small that it evicts all the time.  Each prompt is also read from its
 * beginning by a sequence that never saw the cache.  "exact": all logits are the same.  "reuse": so
 * are those of prompts that nothing generated is a part of. */
#include "support/test.h"

#include "base/common.h"
#include "base/file.h"
#include "support/random_text.h"

#include <stdio.h>
#include <stdlib.h>

enum { TEXTS = 8, PROMPT_MAX = 220, ANSWER_MAX = 24, CONTEXT = PROMPT_MAX + ANSWER_MAX };

static char path[PATH_CAPACITY];
static uint32_t requests;

struct text {
    int32_t tokens[CONTEXT];
    uint32_t count;
};

struct run {
    mf_engine *engine;
    mf_model *model;
    mf_sequence *cached, *plain;
    struct random_text random;
    struct text texts[TEXTS]; /* of earlier requests, with their answers */
    bool exact;
    uint32_t vocab_size, compared;
    uint64_t resumed, generated; /* tokens: taken over, and of them those that were generated */
};

static void must(mf_status status, const mf_error *why)
{
    if (status != MF_OK) fail_msg("%s (%s)", why->text, why->origin);
}

static uint32_t below(struct run *r, uint32_t limit)
{
    return random_below(&r->random, limit);
}

/* What a long prompt takes of the pool. */
static uint64_t bytes_of_text(mf_model *model)
{
    mf_model_statistics stats = MF_MODEL_STATISTICS_INIT;
    int32_t tokens[PROMPT_MAX] = { 0 };
    mf_error why = { 0 };
    mf_sequence *sequence;
    must(mf_sequence_open(&sequence, model, NULL, &why), &why);
    must(mf_sequence_feed(sequence, MF_PHASE_PROMPT, tokens, PROMPT_MAX, &why), &why);
    mf_model_stats(model, &stats, NULL);
    mf_sequence_close(sequence);
    return stats.sequence_bytes;
}

static void run_open(struct run *r, bool exact)
{
    mf_error why = { 0 };
    mf_engine_options engine = { .struct_size = sizeof engine, .thread_count = 2 };
    mf_model_options options = { .struct_size = sizeof options,
                                 .context_length = CONTEXT,
                                 .sequences = 3,
                                 .cache = exact ? "exact" : "reuse" };
    *r = (struct run){ .exact = exact, .random.state = 5 };
    must(mf_engine_open(&r->engine, &engine, &why), &why);
    must(mf_model_open(&r->model, r->engine, path, &options, &why), &why);
    options.cache_bytes = 8 * bytes_of_text(r->model);
    mf_model_close(r->model);
    must(mf_model_open(&r->model, r->engine, path, &options, &why), &why);
    must(mf_sequence_open(&r->cached, r->model, NULL, &why), &why);
    must(mf_sequence_open(&r->plain, r->model, NULL, &why), &why);
    r->vocab_size = mf_model_vocab_size(r->model);
}

static void run_close(struct run *r)
{
    mf_sequence_close(r->cached);
    mf_sequence_close(r->plain);
    mf_model_close(r->model);
    mf_engine_close(r->engine);
}

static void make_prompt(struct run *r, struct text *prompt)
{
    const struct text *from = &r->texts[below(r, TEXTS)];
    uint32_t most = (uint32_t)min_size(from->count, PROMPT_MAX - 1);
    uint32_t shared = below(r, 3) == 0 ? most : below(r, most + 1);
    uint32_t tail = 1 + below(r, below(r, 2) ? 20 : PROMPT_MAX - shared);
    memcpy(prompt->tokens, from->tokens, shared * sizeof *prompt->tokens);
    prompt->count = (uint32_t)min_size(shared + tail, PROMPT_MAX);
    for (uint32_t i = shared; i < prompt->count; i++)
        prompt->tokens[i] = (int32_t)below(r, (uint32_t)min_size(r->vocab_size, 50));
}

static void feed_to(mf_sequence *sequence, const struct text *text, uint32_t end)
{
    mf_error why = { 0 };
    uint32_t at = mf_sequence_position(sequence);
    if (end <= at) return;
    must(mf_sequence_feed(sequence, MF_PHASE_PROMPT, text->tokens + at, end - at, &why), &why);
}

/* Reads the prompt as a server would; whether all that it resumed was made by prompts. */
static bool read_cached(struct run *r, const struct text *prompt)
{
    static const mf_place places[] = { MF_PLACE_HEAD, MF_PLACE_LAST_USER, MF_PLACE_NONE };
    mf_phase phases[CONTEXT];
    mf_error why = { 0 };
    mf_resumed found = MF_RESUMED_INIT;
    must(mf_sequence_resume(r->cached, prompt->tokens, prompt->count, &found, &why), &why);
    assert_int_equal(found.resumed, mf_sequence_position(r->cached));
    must(mf_sequence_tokens(r->cached, 0, found.resumed, NULL, phases, &why), &why);
    uint32_t generated = 0, middle = below(r, prompt->count);
    for (uint32_t i = 0; i < found.resumed; i++) generated += phases[i] == MF_PHASE_GENERATED;
    r->resumed += found.resumed;
    r->generated += generated;
    if (found.junction) {
        feed_to(r->cached, prompt, found.junction);
        must(mf_sequence_keep(r->cached, MF_PLACE_JUNCTION, &why), &why);
    }
    if (middle > mf_sequence_position(r->cached)) {
        feed_to(r->cached, prompt, middle);
        must(mf_sequence_keep(r->cached, places[below(r, COUNT_OF(places))], &why), &why);
    }
    feed_to(r->cached, prompt, prompt->count);
    must(mf_sequence_keep(r->cached, MF_PLACE_PROMPT_END, &why), &why);
    return generated == 0;
}

static void compare(struct run *r)
{
    const float *cached = mf_sequence_logits(r->cached), *plain = mf_sequence_logits(r->plain);
    assert_memory_equal(cached, plain, r->vocab_size * sizeof *cached);
    r->compared++;
}

static void request(struct run *r)
{
    struct text prompt;
    mf_error why = { 0 };
    make_prompt(r, &prompt);
    bool same = read_cached(r, &prompt);
    assert_true(same || !r->exact);
    mf_sequence_clear(r->plain);
    if (same) {
        feed_to(r->plain, &prompt, prompt.count);
        compare(r);
    }
    for (uint32_t left = below(r, ANSWER_MAX); left > 0; left--) {
        int32_t token = (int32_t)below(r, (uint32_t)min_size(r->vocab_size, 50));
        must(mf_sequence_feed(r->cached, MF_PHASE_GENERATED, &token, 1, &why), &why);
        if (same) must(mf_sequence_feed(r->plain, MF_PHASE_GENERATED, &token, 1, &why), &why);
        prompt.tokens[prompt.count++] = token;
    }
    if (same) compare(r);
    must(mf_sequence_keep(r->cached, below(r, 2) ? MF_PLACE_ANSWER_END : MF_PLACE_BREAKPOINT, &why),
         &why);
    r->texts[below(r, TEXTS)] = prompt;
}

static void run_all(bool exact)
{
    struct run r;
    mf_model_statistics stats = MF_MODEL_STATISTICS_INIT;
    run_open(&r, exact);
    for (uint32_t i = 0; i < requests; i++) request(&r);
    mf_model_stats(r.model, &stats, NULL);
    print_message("%u logits compared; %llu of %llu tokens resumed, %llu of them generated; "
                  "%llu pages evicted\n",
                  r.compared, (unsigned long long)r.resumed,
                  (unsigned long long)stats.cache_asked_tokens, (unsigned long long)r.generated,
                  (unsigned long long)stats.cache_pages_evicted);
    assert_int_equal(stats.cache_resumed_tokens, r.resumed);
    assert_int_equal(stats.cache_requests, requests);
    assert_true(r.resumed > stats.cache_asked_tokens / 10);
    assert_true(exact ? r.generated == 0 : r.generated > 0);
    assert_true(stats.cache_pages_evicted > 0 && r.compared > requests / 4);
    run_close(&r);
}

static void exact_cache_changes_no_bit(void **state)
{
    (void)state;
    run_all(true);
}

static void prompts_that_reuse_prompts_change_no_bit(void **state)
{
    (void)state;
    run_all(false);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(exact_cache_changes_no_bit),
        cmocka_unit_test(prompts_that_reuse_prompts_change_no_bit),
    };
    const char *source = getenv("MOEFLUX_SOURCE");
    if (argc != 3) {
        fprintf(stderr, "usage: cached CHECKPOINT REQUESTS\n");
        return 2;
    }
    snprintf(path, sizeof path, "%s/%s", source ? source : ".", argv[1]);
    requests = (uint32_t)strtoul(argv[2], NULL, 10);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
