/* The sampler against a plain reference that sorts, and against itself. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "base/arena.h"
#include "sampling/random.h"
#include "sampling/sampler.h"
#include "support/failing_allocator.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* ---------------------------------------------------------------- reference */

struct entry {
    int32_t id;
    double x, p, rank;
};

static int by_rank(const void *a, const void *b)
{
    const struct entry *x = a, *y = b;
    if (x->rank != y->rank) return x->rank > y->rank ? -1 : 1;
    return x->id < y->id ? -1 : 1;
}

static size_t scale_to_one(struct entry *e, size_t count)
{
    double sum = 0;
    for (size_t i = 0; i < count; i++) sum += e[i].p;
    for (size_t i = 0; i < count; i++) e[i].p /= sum;
    return count;
}

static size_t cut_by_mass(struct entry *e, size_t count, double mass)
{
    if (mass <= 0 || mass >= 1) return count;
    scale_to_one(e, count);
    qsort(e, count, sizeof *e, by_rank);
    double sum = 0;
    size_t kept = 0;
    while (kept < count && sum < mass) sum += e[kept++].p;
    return scale_to_one(e, kept);
}

/* The distribution that the options ask for, by sorting; how many tokens are possible. */
static size_t reference(struct entry *e, const struct sampler_options *o, const float *logits,
                        size_t usable)
{
    double best = -INFINITY;
    size_t count = 0;
    for (size_t i = 0; i < usable; i++)
        if (!isnan(logits[i]) && (double)logits[i] > best) best = (double)logits[i];
    for (size_t i = 0; i < usable; i++) {
        if (isnan(logits[i]) || logits[i] == -INFINITY) continue;
        double x = ((double)logits[i] - best) / (double)o->temperature;
        e[count++] = (struct entry){ (int32_t)i, x, exp(x), x };
    }
    scale_to_one(e, count);
    qsort(e, count, sizeof *e, by_rank);
    if (o->top_k > 0 && (size_t)o->top_k < count) count = scale_to_one(e, (size_t)o->top_k);
    double entropy = 0;
    for (size_t i = 0; i < count; i++)
        if (e[i].p > 0) entropy -= e[i].p * log(e[i].p);
    for (size_t i = 0; i < count; i++) e[i].rank = -fabs(-log(e[i].p) - entropy);
    count = cut_by_mass(e, count, (double)o->typical_p);
    for (size_t i = 0; i < count; i++) e[i].rank = e[i].x;
    count = cut_by_mass(e, count, (double)o->top_p);
    qsort(e, count, sizeof *e, by_rank);
    size_t kept = 0;
    while (kept < count && e[kept].p >= (double)o->min_p * e[0].p) kept++;
    return scale_to_one(e, kept);
}

/* ------------------------------------------------------------------ helpers */

static float gaussian(struct random *random)
{
    double u = random_unit(random) + 0x1p-60, v = random_unit(random);
    return (float)(sqrt(-2 * log(u)) * cos(6.283185307179586 * v));
}

static struct sampler *open_sampler(const struct sampler_options *options, size_t vocab,
                                    size_t usable)
{
    struct sampler *sampler;
    mf_error why;
    if (sampler_new(&sampler, &allocator_heap, options, vocab, usable, &why) != MF_OK)
        fail_msg("%s", why.text);
    return sampler;
}

static struct sampler_options plain_options(void)
{
    struct sampler_options options;
    sampler_options_default(&options);
    return options;
}

enum { DRAWS = 20000 };

/* Draws and compares with the reference: nothing outside its set, and chi-square over the
 * tokens with an expected count of 8 or more (the others together) within 5 sigma. */
static void check_distribution(const struct sampler_options *options, const float *logits,
                               size_t vocab, size_t usable)
{
    struct entry *e = calloc(vocab, sizeof *e);
    double *expected = calloc(vocab, sizeof *expected);
    size_t *drawn = calloc(vocab, sizeof *drawn);
    size_t count = reference(e, options, logits, usable);
    assert_true(count > 0);
    for (size_t i = 0; i < count; i++) expected[e[i].id] = e[i].p * DRAWS;

    struct sampler *sampler = open_sampler(options, vocab, usable);
    for (size_t i = 0; i < DRAWS; i++) {
        int32_t token = sampler_pick(sampler, logits);
        assert_in_range(token, 0, usable - 1);
        drawn[token]++;
    }
    sampler_free(sampler);

    double chi = 0, rest_expected = 0, rest_drawn = 0, degrees = 0;
    for (size_t i = 0; i < vocab; i++) {
        if (expected[i] == 0 && drawn[i])
            fail_msg("token %zu was drawn %zu times, the filters exclude it", i, drawn[i]);
        if (expected[i] < 8) {
            rest_expected += expected[i];
            rest_drawn += (double)drawn[i];
            continue;
        }
        double d = (double)drawn[i] - expected[i];
        chi += d * d / expected[i];
        degrees++;
    }
    if (rest_expected >= 8) {
        chi += (rest_drawn - rest_expected) * (rest_drawn - rest_expected) / rest_expected;
        degrees++;
    }
    degrees = degrees > 1 ? degrees - 1 : 1;
    double limit = degrees + 5 * sqrt(2 * degrees) + 10;
    if (chi > limit) fail_msg("chi-square %g with %g degrees, at most %g", chi, degrees, limit);
    free(e);
    free(expected);
    free(drawn);
}

/* -------------------------------------------------------------------- tests */

static void filters_give_the_reference_distribution(void **state)
{
    (void)state;
    static const struct {
        float temperature;
        int32_t top_k;
        float top_p, min_p, typical_p;
    } cases[] = {
        { 1.0f, 0, 1.0f, 0.0f, 1.0f },    { 0.7f, 0, 1.0f, 0.0f, 1.0f },
        { 1.5f, 5, 1.0f, 0.0f, 1.0f },    { 1.0f, 40, 1.0f, 0.0f, 1.0f },
        { 1.0f, 0, 0.9f, 0.0f, 1.0f },    { 1.0f, 0, 0.3f, 0.0f, 1.0f },
        { 1.0f, 0, 1.0f, 0.05f, 1.0f },   { 1.0f, 0, 1.0f, 0.0f, 0.7f },
        { 0.8f, 30, 0.95f, 0.02f, 0.9f }, { 1.3f, 200, 0.8f, 0.1f, 1.0f },
        { 1.0f, 2, 0.01f, 0.0f, 1.0f },   { 1.0f, 1000, 1.0f, 1.0f, 1.0f },
        { 0.0f, 0, 0.0f, 0.0f, 0.0f }, /* zero probabilities mean off; temperature set below */
    };
    enum { VOCAB = 700, USABLE = 650 };
    float logits[VOCAB];
    struct random random;
    random_seed(&random, 7);
    for (size_t c = 0; c < COUNT_OF(cases); c++) {
        for (size_t i = 0; i < VOCAB; i++) logits[i] = 2.5f * gaussian(&random);
        for (size_t i = USABLE; i < VOCAB; i++) logits[i] = 50.0f; /* padding: never */
        logits[3] = NAN;
        logits[64] = -INFINITY;
        struct sampler_options options = plain_options();
        options.temperature = cases[c].temperature > 0 ? cases[c].temperature : 1.1f;
        options.top_k = cases[c].top_k;
        options.top_p = cases[c].top_p;
        options.min_p = cases[c].min_p;
        options.typical_p = cases[c].typical_p;
        options.seed = 1000 + c;
        check_distribution(&options, logits, VOCAB, USABLE);
    }
}

/* Exactly the reference's set, token by token, over many rows: small ones, so that every
 * member is drawn. */
static void filters_keep_exactly_the_reference_set(void **state)
{
    (void)state;
    enum { VOCAB = 40, ROWS = 200, PICKS = 1200 };
    struct random random;
    random_seed(&random, 99);
    for (size_t row = 0; row < ROWS; row++) {
        float logits[VOCAB];
        struct entry e[VOCAB];
        bool seen[VOCAB] = { false };
        for (size_t i = 0; i < VOCAB; i++) /* few distinct values: many ties */
            logits[i] = (float)(random_next(&random) % 7) * 0.3f;
        struct sampler_options options = plain_options();
        options.seed = row;
        options.top_k = (int32_t)(random_next(&random) % 12);
        if (row % 2) options.top_p = (float)random_unit(&random);
        if (row % 3 == 0) options.min_p = (float)random_unit(&random);
        if (row % 5 == 0) options.temperature = 0.5f + (float)random_unit(&random);
        size_t count = reference(e, &options, logits, VOCAB);
        struct sampler *sampler = open_sampler(&options, VOCAB, VOCAB);
        for (size_t i = 0; i < PICKS; i++) seen[sampler_pick(sampler, logits)] = true;
        sampler_free(sampler);
        size_t total = 0;
        for (size_t i = 0; i < VOCAB; i++) total += seen[i];
        assert_int_equal(total, count);
        for (size_t i = 0; i < count; i++) assert_true(seen[e[i].id]);
    }
}

static void ties_go_to_the_lower_id(void **state)
{
    (void)state;
    enum { VOCAB = 1000 };
    float logits[VOCAB];
    for (size_t i = 0; i < VOCAB; i++) logits[i] = i % 2 ? 0.0f : -0.0f;
    logits[200] = -1.0f;
    struct sampler_options options = plain_options();
    options.temperature = 0.0f;
    struct sampler *sampler = open_sampler(&options, VOCAB, VOCAB);
    assert_int_equal(sampler_pick(sampler, logits), 0);
    logits[517] = logits[518] = logits[900] = 3.0f;
    assert_int_equal(sampler_pick(sampler, logits), 517);
    sampler_free(sampler);

    options.temperature = 1.0f;
    options.top_k = 5; /* three of 3.0, then ids 0 and 1 of the many zeros */
    sampler = open_sampler(&options, VOCAB, VOCAB);
    bool seen[VOCAB] = { false };
    for (size_t i = 0; i < 5000; i++) seen[sampler_pick(sampler, logits)] = true;
    for (size_t i = 0; i < VOCAB; i++)
        assert_int_equal(seen[i], i == 0 || i == 1 || i == 517 || i == 518 || i == 900);
    sampler_free(sampler);
}

static void small_temperature_is_greedy(void **state)
{
    (void)state;
    enum { VOCAB = 500 };
    float logits[VOCAB];
    struct random random;
    random_seed(&random, 3);
    for (size_t row = 0; row < 50; row++) {
        int32_t best = 0;
        for (int32_t i = 0; i < VOCAB; i++) {
            logits[i] = gaussian(&random) * 4;
            if (logits[i] > logits[best]) best = i;
        }
        static const float temperatures[] = { 0.0f, 1e-30f, 1e-6f };
        for (size_t t = 0; t < COUNT_OF(temperatures); t++) {
            struct sampler_options options = plain_options();
            options.temperature = temperatures[t];
            struct sampler *sampler = open_sampler(&options, VOCAB, VOCAB);
            for (size_t i = 0; i < 20; i++) assert_int_equal(sampler_pick(sampler, logits), best);
            sampler_free(sampler);
        }
    }
}

static void same_seed_same_tokens(void **state)
{
    (void)state;
    enum { VOCAB = 300, COUNT = 200 };
    float logits[VOCAB];
    struct random random;
    random_seed(&random, 5);
    for (size_t i = 0; i < VOCAB; i++) logits[i] = gaussian(&random);
    struct sampler_options options = plain_options();
    options.seed = 42;
    options.top_p = 0.95f;
    options.frequency_penalty = 0.1f;
    int32_t first[COUNT];
    struct sampler *sampler = open_sampler(&options, VOCAB, VOCAB);
    for (size_t i = 0; i < COUNT; i++)
        sampler_accept(sampler, first[i] = sampler_pick(sampler, logits));
    sampler_reset(sampler);
    for (size_t i = 0; i < COUNT; i++) {
        assert_int_equal(sampler_pick(sampler, logits), first[i]);
        sampler_accept(sampler, first[i]);
    }
    sampler_free(sampler);

    options.seed = 43;
    size_t same = 0;
    sampler = open_sampler(&options, VOCAB, VOCAB);
    for (size_t i = 0; i < COUNT; i++) same += sampler_pick(sampler, logits) == first[i];
    assert_true(same < COUNT / 4);
    sampler_free(sampler);
}

/* The generator's published first outputs for the state {1, 2, 3, 4}, and the tokens of one
 * seed: a change of any of them changes every user's text. */
static void the_generator_is_the_published_one(void **state)
{
    (void)state;
    struct random random = { { 1, 2, 3, 4 } };
    static const uint64_t expected[] = { 41943041u, 58720359u, 3588806011781223u, 3591011842654386u,
                                         9228616714210784205u };
    for (size_t i = 0; i < COUNT_OF(expected); i++)
        assert_true(random_next(&random) == expected[i]);
}

static void nan_and_infinite_logits_are_never_picked(void **state)
{
    (void)state;
    float logits[4] = { NAN, -INFINITY, 1.0f, NAN };
    struct sampler_options options = plain_options();
    static const float temperatures[] = { 0.0f, 1.0f };
    for (size_t t = 0; t < COUNT_OF(temperatures); t++) {
        options.temperature = temperatures[t];
        struct sampler *sampler = open_sampler(&options, 4, 4);
        for (size_t i = 0; i < 100; i++) assert_int_equal(sampler_pick(sampler, logits), 2);
        logits[3] = INFINITY;
        for (size_t i = 0; i < 100; i++) assert_int_equal(sampler_pick(sampler, logits), 3);
        float none[4] = { NAN, -INFINITY, NAN, -INFINITY };
        assert_int_equal(sampler_pick(sampler, none), -1);
        assert_int_equal(sampler_logprobs(sampler, (mf_logprob[4]){ 0 }, 4, none), 0);
        float spread[4] = { -FLT_MAX, FLT_MAX, -FLT_MAX, 0.0f };
        assert_int_equal(sampler_pick(sampler, spread), 1);
        logits[3] = NAN;
        sampler_free(sampler);
    }
}

static void a_mask_is_obeyed(void **state)
{
    (void)state;
    enum { VOCAB = 200 };
    float logits[VOCAB];
    uint64_t mask[TOKEN_MASK_WORDS(VOCAB)] = { 0 };
    for (size_t i = 0; i < VOCAB; i++) logits[i] = (float)i;
    struct sampler_options options = plain_options();
    options.temperature = 0.0f;
    struct sampler *sampler = open_sampler(&options, VOCAB, 190);
    assert_int_equal(sampler_pick(sampler, logits), 189);
    assert_int_equal(sampler_pick_allowed(sampler, logits, mask), -1);
    mask[3] |= 1ull << 5; /* 197: padding, even if the mask says otherwise */
    assert_int_equal(sampler_pick_allowed(sampler, logits, mask), -1);
    mask[1] |= 1ull << 63 | 1;
    assert_int_equal(sampler_pick_allowed(sampler, logits, mask), 127);
    sampler_free(sampler);
}

static void biases_and_penalties_shift_logits(void **state)
{
    (void)state;
    float logits[6] = { 1.0f, 2.0f, 3.0f, -1.0f, 0.5f, 0.0f };
    mf_logit_bias biases[] = { { 2, -INFINITY }, { 0, 1.5f } };
    struct sampler_options options = plain_options();
    options.temperature = 0.0f;
    options.biases = biases;
    options.bias_count = 2;
    struct sampler *sampler = open_sampler(&options, 6, 6);
    assert_int_equal(sampler_pick(sampler, logits), 0); /* 1 + 1.5 */
    sampler_free(sampler);

    options = plain_options();
    options.temperature = 0.0f;
    options.repetition_penalty = 2.0f;
    sampler = open_sampler(&options, 6, 6);
    sampler_accept_prompt(sampler, (int32_t[]){ 2, 100, -5 }, 3);
    assert_int_equal(sampler_pick(sampler, logits), 1); /* 3 / 2 */
    sampler_accept(sampler, 1);
    assert_int_equal(sampler_pick(sampler, logits), 2); /* 1.5 against 1 and 1 */
    sampler_free(sampler);

    options.repetition_penalty = 1.0f;
    options.frequency_penalty = 0.6f;
    options.presence_penalty = 0.5f;
    options.penalty_window = 3;
    sampler = open_sampler(&options, 6, 6);
    sampler_accept_prompt(sampler, (int32_t[]){ 2, 2, 2 }, 3);
    assert_int_equal(sampler_pick(sampler, logits), 2); /* the prompt does not count here */
    sampler_accept(sampler, 2);
    assert_int_equal(sampler_pick(sampler, logits), 1); /* 3 - 0.5 - 0.6 = 1.9 */
    sampler_accept(sampler, 1);
    assert_int_equal(sampler_pick(sampler, logits), 2); /* 1.9 against 2 - 1.1 */
    sampler_accept(sampler, 2);
    assert_int_equal(sampler_pick(sampler, logits), 2); /* 3 - 0.5 - 1.2 = 1.3 */
    sampler_accept(sampler, 3);
    sampler_accept(sampler, 3);
    sampler_accept(sampler, 3); /* the window forgets 1 and 2 */
    assert_int_equal(sampler_pick(sampler, logits), 2);
    sampler_free(sampler);
}

/* The best token by the formulas of sampler.h, from the whole history. */
static int32_t best_after_penalties(const struct sampler_options *o, const float *logits,
                                    size_t vocab, const int32_t *history, size_t prompt,
                                    size_t length)
{
    size_t window = (size_t)o->penalty_window, first = length > window ? length - window : 0;
    double best = -INFINITY;
    int32_t winner = -1;
    for (size_t token = 0; token < vocab; token++) {
        double x = (double)logits[token];
        size_t seen = 0, said = 0;
        for (size_t i = 0; i < o->bias_count; i++)
            if (o->biases[i].token == (int32_t)token) x += (double)o->biases[i].bias;
        for (size_t i = first; i < length; i++) {
            if (history[i] != (int32_t)token) continue;
            seen++;
            if (i >= prompt) said++;
        }
        double repetition = (double)o->repetition_penalty;
        if (seen > 0) x = x > 0 ? x / repetition : x * repetition;
        x -= (double)o->frequency_penalty * (double)said;
        if (said > 0) x -= (double)o->presence_penalty;
        if (x > best) {
            best = x;
            winner = (int32_t)token;
        }
    }
    return winner;
}

static void penalties_are_the_plain_formulas(void **state)
{
    (void)state;
    enum { VOCAB = 30, LENGTH = 60, ROUNDS = 400 };
    struct random random;
    random_seed(&random, 17);
    for (int round = 0; round < ROUNDS; round++) {
        mf_logit_bias biases[2] = { { 3, 4 * gaussian(&random) }, { 7, gaussian(&random) } };
        struct sampler_options options = plain_options();
        int32_t history[LENGTH];
        float logits[VOCAB];
        size_t prompt = random_next(&random) % (LENGTH / 2);
        options.temperature = 0.0f;
        options.biases = biases;
        options.bias_count = 2;
        options.penalty_window = (int32_t)(1 + random_next(&random) % (2 * LENGTH));
        options.repetition_penalty = 0.5f + 2 * (float)random_unit(&random);
        options.frequency_penalty = gaussian(&random);
        options.presence_penalty = 2 * gaussian(&random);
        struct sampler *sampler = open_sampler(&options, VOCAB, VOCAB);
        for (size_t i = 0; i < LENGTH; i++) history[i] = (int32_t)(random_next(&random) % VOCAB);
        sampler_accept_prompt(sampler, history, prompt);
        for (size_t length = prompt; length < LENGTH; length++) {
            for (size_t i = 0; i < VOCAB; i++) logits[i] = 2 * gaussian(&random);
            assert_int_equal(
                sampler_pick(sampler, logits),
                best_after_penalties(&options, logits, VOCAB, history, prompt, length));
            sampler_accept(sampler, history[length]);
        }
        sampler_free(sampler);
    }
}

/* What DRY would subtract for each token, the slow way. */
static void dry_reference(double *penalty, size_t vocab, const int32_t *text, size_t length,
                          const struct sampler_options *o)
{
    for (size_t t = 0; t < vocab; t++) penalty[t] = 0;
    for (size_t end = 1; end < length; end++) { /* text[end] followed a match ending before it */
        size_t n = 0;
        while (n < end && text[end - 1 - n] == text[length - 1 - n]) {
            bool breaker = false;
            for (size_t b = 0; b < o->dry_breaker_count; b++)
                breaker |= text[length - 1 - n] == o->dry_breakers[b];
            if (breaker) break;
            n++;
        }
        if (n < (size_t)o->dry_allowed_length) continue;
        double p = (double)o->dry_multiplier *
                   pow((double)o->dry_base, (double)n - (double)o->dry_allowed_length);
        if (p > penalty[text[end]]) penalty[text[end]] = p;
    }
}

static void dry_matches_the_slow_way(void **state)
{
    (void)state;
    enum { VOCAB = 5, LENGTH = 60 };
    struct random random;
    random_seed(&random, 11);
    for (size_t round = 0; round < 300; round++) {
        int32_t breaker = 4, text[LENGTH];
        struct sampler_options options = plain_options();
        options.temperature = 0.0f;
        options.dry_multiplier = 0.8f;
        options.dry_allowed_length = 1 + (int32_t)(round % 3);
        options.dry_breakers = &breaker;
        options.dry_breaker_count = round % 2;
        options.penalty_window = 50;
        struct sampler *sampler = open_sampler(&options, VOCAB, VOCAB);
        for (size_t i = 0; i < LENGTH; i++) {
            text[i] = (int32_t)(random_next(&random) % (i % 7 ? 3 : 5));
            sampler_accept(sampler, text[i]);
        }
        double penalty[VOCAB];
        dry_reference(penalty, VOCAB, text + 10, 50, &options);
        for (int32_t token = 0; token < VOCAB; token++) {
            /* Against a rival just below and just above the penalised score. */
            float logits[VOCAB] = { 0 };
            int32_t rival = (token + 1) % VOCAB;
            for (int32_t i = 0; i < VOCAB; i++) logits[i] = -INFINITY;
            logits[token] = 0.0f;
            logits[rival] = (float)(penalty[rival] - penalty[token] - 1e-3);
            assert_int_equal(sampler_pick(sampler, logits), token);
            logits[rival] = (float)(penalty[rival] - penalty[token] + 1e-3);
            assert_int_equal(sampler_pick(sampler, logits), rival);
        }
        sampler_free(sampler);
    }
}

static void logprobs_are_those_of_the_model(void **state)
{
    (void)state;
    enum { VOCAB = 5000, USABLE = 4900, TOP = 20 };
    static float logits[VOCAB];
    static struct entry e[VOCAB];
    struct random random;
    random_seed(&random, 21);
    for (size_t i = 0; i < VOCAB; i++) logits[i] = 3 * gaussian(&random);
    logits[17] = NAN;
    logits[40] = logits[30]; /* a tie somewhere */
    struct sampler_options options = plain_options();
    options.temperature = 1.0f;
    size_t count = reference(e, &options, logits, USABLE);
    options.temperature = 0.5f; /* has no effect on logprobs */
    options.top_k = 2;
    struct sampler *sampler = open_sampler(&options, VOCAB, USABLE);
    mf_logprob top[TOP];
    assert_int_equal(sampler_logprobs(sampler, top, TOP, logits), TOP);
    for (size_t i = 0; i < TOP; i++) {
        assert_int_equal(top[i].token, e[i].id);
        assert_true(fabs((double)top[i].logprob - log(e[i].p)) < 1e-5);
    }
    for (size_t i = 0; i < count; i += 97)
        assert_true(fabs((double)sampler_logprob_of(sampler, logits, e[i].id) - log(e[i].p)) <
                    1e-5);
    assert_true(sampler_logprob_of(sampler, logits, 17) == -INFINITY);
    assert_true(sampler_logprob_of(sampler, logits, USABLE) == -INFINITY);
    sampler_free(sampler);
}

static void wrong_options_are_refused(void **state)
{
    (void)state;
    struct sampler *sampler;
    mf_error why;
    struct sampler_options options = plain_options();
#define REFUSED(field, value, sentence)                                                            \
    do {                                                                                           \
        options = plain_options();                                                                 \
        options.field = value;                                                                     \
        assert_int_equal(sampler_new(&sampler, &allocator_heap, &options, 10, 10, &why),           \
                         MF_ERR_ARGUMENT);                                                         \
        assert_null(sampler);                                                                      \
        assert_non_null(strstr(why.text, sentence));                                               \
    } while (0)
    REFUSED(temperature, -1.0f, "temperature is -1");
    REFUSED(temperature, NAN, "temperature is");
    REFUSED(temperature, INFINITY, "temperature is inf");
    REFUSED(top_k, -1, "top_k is -1");
    REFUSED(top_p, 1.5f, "top_p is 1.5");
    REFUSED(min_p, NAN, "min_p");
    REFUSED(repetition_penalty, 0.0f, "repetition_penalty is 0");
    REFUSED(dry_base, 0.5f, "dry_base");
    options = plain_options();
    mf_logit_bias bias = { 10, 1.0f };
    options.biases = &bias;
    options.bias_count = 1;
    assert_int_equal(sampler_new(&sampler, &allocator_heap, &options, 10, 10, &why),
                     MF_ERR_ARGUMENT);
    assert_non_null(strstr(why.text, "token 10"));
    options = plain_options();
    assert_int_equal(sampler_new(&sampler, &allocator_heap, &options, 10, 11, &why),
                     MF_ERR_ARGUMENT);
    sampler_free(NULL);
}

/* ------------------------------------------------------------------- memory */

static void nothing_is_allocated_after_opening(void **state)
{
    (void)state;
    enum { VOCAB = 20000 };
    static float logits[VOCAB];
    struct failing_allocator heap;
    failing_allocator_init(&heap);
    struct random random;
    random_seed(&random, 1);
    struct sampler_options options = plain_options();
    options.top_k = 50;
    options.top_p = 0.9f;
    options.typical_p = 0.9f;
    options.dry_multiplier = 0.8f;
    struct sampler *sampler;
    assert_int_equal(sampler_new(&sampler, &heap.allocator, &options, VOCAB, VOCAB, NULL), MF_OK);
    uint64_t calls = heap.calls;
    for (size_t i = 0; i < 50; i++) {
        for (size_t j = 0; j < VOCAB; j++) logits[j] = gaussian(&random);
        sampler_accept(sampler, sampler_pick(sampler, logits));
        mf_logprob top[5];
        sampler_logprobs(sampler, top, 5, logits);
    }
    sampler_reset(sampler);
    assert_int_equal(heap.calls, calls);
    sampler_free(sampler);
    assert_int_equal(heap.live_bytes, 0);

    for (uint64_t nth = 1; nth <= calls; nth++) {
        failing_allocator_arm(&heap, nth);
        assert_int_equal(sampler_new(&sampler, &heap.allocator, &options, VOCAB, VOCAB, NULL),
                         MF_ERR_MEMORY);
        assert_true(failing_allocator_disarm(&heap));
        assert_null(sampler);
        assert_int_equal(heap.live_bytes, 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(filters_give_the_reference_distribution),
        cmocka_unit_test(filters_keep_exactly_the_reference_set),
        cmocka_unit_test(ties_go_to_the_lower_id),
        cmocka_unit_test(small_temperature_is_greedy),
        cmocka_unit_test(same_seed_same_tokens),
        cmocka_unit_test(the_generator_is_the_published_one),
        cmocka_unit_test(nan_and_infinite_logits_are_never_picked),
        cmocka_unit_test(a_mask_is_obeyed),
        cmocka_unit_test(biases_and_penalties_shift_logits),
        cmocka_unit_test(penalties_are_the_plain_formulas),
        cmocka_unit_test(dry_matches_the_slow_way),
        cmocka_unit_test(logprobs_are_those_of_the_model),
        cmocka_unit_test(wrong_options_are_refused),
        cmocka_unit_test(nothing_is_allocated_after_opening),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
