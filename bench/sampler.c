/* How long a pick takes on a vocabulary of 250,000: `build/bench/bench_sampler`.
 *
 * CSV on stdout: case, microseconds per pick (best, median and worst of the rounds). */
#include "base/arena.h"
#include "sampling/random.h"
#include "sampling/sampler.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { VOCAB = 250000, ROWS = 8, ROUNDS = 200 };

static double now_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t); /* not the wait for a busy machine */
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Logits as a model gives them: a broad bell and a few tokens far above it. */
static void fill_row(float *row, struct random *random)
{
    for (size_t i = 0; i < VOCAB; i++) {
        double u = random_unit(random) + 0x1p-60, v = random_unit(random);
        row[i] = (float)(sqrt(-2 * log(u)) * cos(6.283185307179586 * v)) * 2.0f;
    }
    for (size_t i = 0; i < 40; i++) row[random_next(random) % VOCAB] = 18.0f - 0.25f * (float)i;
}

static void time_case(const char *name, const struct sampler_options *options, const float *rows)
{
    struct sampler *sampler;
    mf_error why;
    if (sampler_new(&sampler, &allocator_heap, options, VOCAB, VOCAB, &why) != MF_OK) {
        fprintf(stderr, "%s: %s\n", name, why.text);
        exit(1);
    }
    double times[ROUNDS];
    for (size_t i = 0; i < ROUNDS; i++) {
        double start = now_us();
        sampler_accept(sampler, sampler_pick(sampler, rows + (i % ROWS) * VOCAB));
        times[i] = now_us() - start;
    }
    qsort(times, ROUNDS, sizeof times[0], ascending);
    printf("%s,%.0f,%.0f,%.0f\n", name, times[0], times[ROUNDS / 2], times[ROUNDS - 1]);
    sampler_free(sampler);
}

int main(void)
{
    float *rows = malloc((size_t)ROWS * VOCAB * sizeof *rows);
    if (!rows) return 1;
    struct random random;
    random_seed(&random, 1);
    for (size_t i = 0; i < ROWS; i++) fill_row(rows + i * VOCAB, &random);

    struct sampler_options base;
    sampler_options_default(&base);
    printf("case,best_us,median_us,worst_us\n");
    struct sampler_options o = base;
    o.temperature = 0.0f;
    time_case("greedy", &o, rows);
    time_case("temperature 1", &base, rows);
    o = base;
    o.top_k = 20;
    o.top_p = 0.9f;
    time_case("top-k 20 top-p 0.9", &o, rows);
    o.top_k = 0;
    time_case("top-p 0.9", &o, rows);
    o.min_p = 0.05f;
    o.typical_p = 0.9f;
    time_case("typical 0.9 top-p 0.9 min-p 0.05", &o, rows);
    o = base;
    o.top_k = 40;
    o.repetition_penalty = 1.1f;
    o.dry_multiplier = 0.8f;
    o.penalty_window = 4096;
    time_case("top-k 40 with penalties and DRY", &o, rows);
    o = base;
    o.temperature = 100.0f;
    o.top_p = 0.5f;
    time_case("flat top-p 0.5", &o, rows);
    free(rows);
    return 0;
}
