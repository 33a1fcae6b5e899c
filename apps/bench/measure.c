#include "bench/measure.h"

#include "common/basics.h"
#include "common/clock.h"
#include "common/error.h"
#include "moeflux_tools.h"

#include <stdio.h>
#include <stdlib.h>

/* -------------------------------------------------------------------- plan */

static int compare_tests(const void *a, const void *b)
{
    const struct bench_test *x = a, *y = b;
    if (x->depth != y->depth) return x->depth < y->depth ? -1 : 1;
    if (x->kind != y->kind) return x->kind < y->kind ? -1 : 1;
    return (x->tokens > y->tokens) - (x->tokens < y->tokens);
}

static mf_status add_tests(struct bench_plan *plan, enum bench_kind kind, const uint64_t *tokens,
                           size_t count, uint32_t depth, mf_error *why)
{
    for (size_t i = 0; i < count; i++) {
        if (tokens[i] == 0) continue;
        struct bench_test *test = &plan->tests[plan->test_count];
        *test = (struct bench_test){ .kind = kind, .tokens = (uint32_t)tokens[i], .depth = depth };
        test->rates = calloc(2 * plan->rounds, sizeof *test->rates);
        if (!test->rates) return fail_memory(why, 2 * plan->rounds * sizeof *test->rates);
        test->memory = test->rates + plan->rounds;
        plan->test_count++;
    }
    return MF_OK;
}

/* Positions that the tests of one depth reach, warm-up included. */
static uint64_t room_at(const struct bench_wishes *wishes, uint64_t depth)
{
    uint64_t longest = 0, drift = 0;
    for (size_t i = 0; i < wishes->prompt_count; i++)
        longest = max_size(longest, wishes->prompts[i]);
    for (size_t i = 0; i < wishes->count_count; i++) {
        longest = max_size(longest, wishes->counts[i]);
        drift += wishes->counts[i] * (wishes->rounds + 1);
    }
    return depth + longest + (wishes->recurrent && depth > 0 ? drift : 0);
}

mf_status bench_plan_make(struct bench_plan *out, const struct bench_wishes *wishes, mf_error *why)
{
    *out = (struct bench_plan){ .rounds = wishes->rounds, .warm_up = wishes->warm_up };
    size_t most = (wishes->prompt_count + wishes->count_count) * wishes->depth_count;
    out->tests = calloc(most + 1, sizeof *out->tests);
    if (!out->tests) return fail_memory(why, most * sizeof *out->tests);
    mf_status status = MF_OK;
    for (size_t i = 0; i < wishes->depth_count && status == MF_OK; i++) {
        uint32_t depth = (uint32_t)wishes->depths[i];
        status = add_tests(out, BENCH_PREFILL, wishes->prompts, wishes->prompt_count, depth, why);
        if (status == MF_OK)
            status = add_tests(out, BENCH_DECODE, wishes->counts, wishes->count_count, depth, why);
        out->longest = max_size(out->longest, room_at(wishes, depth));
    }
    if (status == MF_OK)
        qsort(out->tests, out->test_count, sizeof *out->tests, compare_tests);
    else
        bench_plan_free(out);
    return status;
}

void bench_plan_free(struct bench_plan *plan)
{
    for (size_t i = 0; i < plan->test_count; i++) free(plan->tests[i].rates);
    free(plan->tests);
    *plan = (struct bench_plan){ 0 };
}

/* ----------------------------------------------------------------- running */

struct runner {
    struct bench_plan *plan;
    mf_sequence *sequence;
    size_t next_token; /* of the plan's tokens */
    size_t done;
    bench_watcher watcher;
    void *user;
};

static void tell(const struct runner *r, int what, const struct bench_test *test)
{
    if (!r->watcher) return;
    struct bench_moment moment = { .what = what,
                                   .test = test,
                                   .position = (uint32_t)mf_sequence_position(r->sequence),
                                   .done = r->done };
    r->watcher(r->user, &moment);
}

const char *bench_test_name(const struct bench_test *test, char *out, size_t capacity)
{
    const char *kind = test->kind == BENCH_PREFILL ? "prefill" : "decode";
    if (test->depth > 0)
        snprintf(out, capacity, "%s %u at %u", kind, test->tokens, test->depth);
    else
        snprintf(out, capacity, "%s %u", kind, test->tokens);
    return out;
}

static int32_t take_token(struct runner *r)
{
    return r->plan->tokens[r->next_token++ % r->plan->token_count];
}

static void take_tokens(struct runner *r, int32_t *out, size_t count)
{
    for (size_t i = 0; i < count; i++) out[i] = take_token(r);
}

static mf_status run_prefill(struct runner *r, uint32_t count, double *seconds, mf_error *why)
{
    int32_t *tokens = malloc(count * sizeof *tokens);
    if (!tokens) return fail_memory(why, count * sizeof *tokens);
    take_tokens(r, tokens, count);
    double begin = clock_seconds();
    mf_status status = mf_sequence_rehearse(r->sequence, tokens, count, why);
    *seconds = clock_seconds() - begin;
    free(tokens);
    return status;
}

static mf_status run_decode(struct runner *r, uint32_t count, double *seconds, mf_error *why)
{
    mf_status status = MF_OK;
    double begin = clock_seconds();
    for (uint32_t i = 0; i < count && status == MF_OK; i++) {
        int32_t token = take_token(r);
        status = mf_sequence_feed(r->sequence, MF_PHASE_GENERATED, &token, 1, why);
    }
    *seconds = clock_seconds() - begin;
    return status;
}

/* To the test's depth; a state that cannot be cut back begins again. */
static mf_status go_to_depth(struct runner *r, const struct bench_test *test, mf_error *why)
{
    enum { CHUNK = 1 << 11 }; /* so that a watcher hears of it */
    uint32_t depth = test->depth;
    if (mf_sequence_position(r->sequence) > depth &&
        mf_sequence_truncate(r->sequence, depth, NULL, NULL) != MF_OK)
        mf_sequence_clear(r->sequence);
    mf_status status = MF_OK;
    while (status == MF_OK && mf_sequence_position(r->sequence) < depth) {
        size_t missing = depth - mf_sequence_position(r->sequence);
        size_t count = min_size(missing, CHUNK);
        int32_t *tokens = malloc(count * sizeof *tokens);
        if (!tokens) return fail_memory(why, count * sizeof *tokens);
        take_tokens(r, tokens, count);
        tell(r, BENCH_FILLING, test);
        status = mf_sequence_feed(r->sequence, MF_PHASE_PROMPT, tokens, count, why);
        free(tokens);
    }
    return status;
}

static mf_status run_once(struct runner *r, const struct bench_test *test, double *seconds,
                          mf_error *why)
{
    if (test->kind == BENCH_PREFILL) return run_prefill(r, test->tokens, seconds, why);
    mf_status status = run_decode(r, test->tokens, seconds, why);
    /* Back to the depth, or to the very start; a recurrent state stays where it is. */
    if (status == MF_OK) mf_sequence_truncate(r->sequence, test->depth, NULL, NULL);
    return status;
}

static mf_status run_round(struct runner *r, struct bench_test *test, mf_error *why)
{
    mf_model_statistics before = MF_MODEL_STATISTICS_INIT, after = before;
    double seconds;
    tell(r, BENCH_TIMING, test);
    if (r->plan->probe && test->kind == BENCH_DECODE)
        test->memory[test->rounds_done] = r->plan->probe(r->plan->probe_user);
    mf_model_stats(mf_sequence_model(r->sequence), &before, NULL);
    mf_status status = run_once(r, test, &seconds, why);
    if (status != MF_OK) return status;
    mf_model_stats(mf_sequence_model(r->sequence), &after, NULL);
    test->rates[test->rounds_done++] = seconds > 0 ? test->tokens / seconds : 0;
    test->seconds += seconds;
    test->expert_hits += after.expert_hits - before.expert_hits;
    test->expert_ahead_hits += after.expert_ahead_hits - before.expert_ahead_hits;
    test->expert_misses += after.expert_misses - before.expert_misses;
    test->bytes_read += after.expert_bytes_read - before.expert_bytes_read;
    r->done++;
    return MF_OK;
}

/* Tests [first, end) have the same depth. */
static mf_status run_depth(struct runner *r, size_t first, size_t end, mf_error *why)
{
    struct bench_plan *plan = r->plan;
    double ignored;
    mf_status status = go_to_depth(r, &plan->tests[first], why);
    for (size_t i = first; i < end && plan->warm_up && status == MF_OK; i++) {
        tell(r, BENCH_WARMING_UP, &plan->tests[i]);
        status = run_once(r, &plan->tests[i], &ignored, why);
    }
    for (size_t round = 0; round < plan->rounds && status == MF_OK; round++)
        for (size_t i = first; i < end && status == MF_OK; i++)
            status = run_round(r, &plan->tests[i], why);
    return status;
}

mf_status bench_plan_run(struct bench_plan *plan, mf_sequence *sequence, bench_watcher watcher,
                         void *user, mf_error *why)
{
    struct runner r = { .plan = plan, .sequence = sequence, .watcher = watcher, .user = user };
    mf_status status = MF_OK;
    mf_sequence_clear(sequence);
    for (size_t first = 0, end; first < plan->test_count && status == MF_OK; first = end) {
        for (end = first + 1; end < plan->test_count; end++)
            if (plan->tests[end].depth != plan->tests[first].depth) break;
        status = run_depth(&r, first, end, why);
    }
    return status;
}

/* ------------------------------------------------------------------ spread */

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

struct spread spread_of(const double *values, size_t count)
{
    double sorted[ROUNDS_MAX];
    count = min_size(count, COUNT_OF(sorted));
    memcpy(sorted, values, count * sizeof *sorted);
    qsort(sorted, count, sizeof *sorted, compare_doubles);
    size_t last = count - 1;
    return (struct spread){ .median = (sorted[last / 2] + sorted[last - last / 2]) / 2,
                            .low = sorted[0],
                            .high = sorted[last] };
}
