/* scheduler: on a simulated machine with noise, in virtual time, generating sequences keep their
 * deadline, prompts lose little, and every job gets its turn. */
#include "support/test.h"

#include "engine/scheduler.h"

#include <math.h>
#include <stdlib.h>

/* -------------------------------------------------------- a machine, simulated */

struct machine {
    const char *name;
    uint32_t layer_count, chunk_rows;
    double decode_fixed, decode_row; /* seconds of a decode step */
    double prompt_fixed, prompt_row; /* seconds of a prompt step; fixed: reading every expert */
    double depth;                    /* how much more a row costs for each token before it */
    double wait_share;               /* of a step: waits for the disk */
    double max_gap;                  /* option; 0: the default */
    double prompt_loss;              /* of its speed beside a generating sequence, at most */
};

static const struct machine fast = {
    "fast", 8, 512, 0.002, 0.0005, 0.010, 0.0005, 1e-5, 0, 0, 0.15
};
static const struct machine medium = { "medium", 8,    512, 0.016, 0.002, 0.25,
                                       0.0023,   1e-5, 0,   0.5,   0.15 };
static const struct machine slow = { "slow", 48, 512, 0.1, 0.01, 1.0, 0.01, 1e-5, 0, 0, 0.7 };
static const struct machine streamed = {
    "streamed", 48, 512, 0.2, 0.05, 8, 0.005, 0, 0.6, 0, 0.65
};

struct job {
    struct schedule_job job;
    double arrival;
    uint32_t prompt, generate; /* tokens */
    uint32_t prompt_done, generated;
    double first_token, end; /* when */
    double computed;         /* seconds of machine time */
};

enum { JOBS_MAX = 256, GAPS_MAX = 65536 };

struct simulation {
    const struct machine *machine;
    struct scheduler scheduler;
    uint64_t random;
    double noise; /* 0: none */
    double now;
    struct job jobs[JOBS_MAX];
    size_t job_count;
    struct schedule_job listed[JOBS_MAX];
    size_t listed_jobs[JOBS_MAX], listed_count;
    size_t steps, pauses;
};

static struct simulation sim;

/* Between tokens of interactive jobs, in parts of the deadline. */
static double gaps[GAPS_MAX];
static size_t gap_count;

static double uniform(void)
{
    sim.random = sim.random * 6364136223846793005u + 1442695040888963407u;
    return (double)(sim.random >> 11) / 9007199254740992.0;
}

/* Mostly within ± noise; now and then a layer takes half as long again. */
static double noisy(double seconds)
{
    if (sim.noise == 0) return seconds;
    seconds *= 1 + sim.noise * (uniform() + uniform() - 1);
    return uniform() < 0.005 ? 1.5 * seconds : seconds;
}

static void begin(const struct machine *machine, uint32_t pause_rows, double noise)
{
    struct scheduler_options options = { .max_gap_seconds = machine->max_gap,
                                         .chunk_rows = machine->chunk_rows,
                                         .span_limit = 64,
                                         .pause_rows = pause_rows,
                                         .layer_count = machine->layer_count };
    sim = (struct simulation){ .machine = machine, .random = 77, .noise = noise, .now = 1000 };
    scheduler_init(&sim.scheduler, &options);
    gap_count = 0;
}

static struct job *add(double arrival, uint32_t prompt, uint32_t generate, uint64_t client,
                       bool background)
{
    struct job *job = &sim.jobs[sim.job_count++];
    *job = (struct job){ .job = { .client = client, .background = background, .since = arrival },
                         .arrival = arrival,
                         .prompt = prompt,
                         .generate = generate };
    return job;
}

static bool runs(const struct job *job)
{
    return job->arrival <= sim.now && job->end == 0;
}

static void list_jobs(void)
{
    sim.listed_count = 0;
    for (size_t i = 0; i < sim.job_count; i++) {
        struct job *job = &sim.jobs[i];
        if (!runs(job)) continue;
        job->job.prompt_left = job->prompt - job->prompt_done;
        sim.listed_jobs[sim.listed_count] = i;
        sim.listed[sim.listed_count++] = job->job;
    }
}

static double decode_time(uint32_t rows)
{
    return rows ? sim.machine->decode_fixed + sim.machine->decode_row * rows : 0;
}

/* Of the prompt rows of the step that is listed. */
static double prompt_time(void)
{
    double seconds = 0;
    for (size_t i = 0; i < sim.listed_count; i++) {
        const struct job *job = &sim.jobs[sim.listed_jobs[i]];
        if (sim.listed[i].prompt_left > 0)
            seconds += sim.machine->prompt_row * sim.listed[i].rows *
                       (1 + sim.machine->depth * job->prompt_done);
    }
    /* Few rows do not choose every expert. */
    return seconds > 0 ? seconds + sim.machine->prompt_fixed *
                                       (1 - exp(-seconds / sim.machine->prompt_row / 16))
                       : 0;
}

static void keep_gap(const struct job *job)
{
    uint32_t decoders = 0;
    for (size_t i = 0; i < sim.listed_count; i++) decoders += sim.listed[i].prompt_left == 0;
    double deadline = scheduler_deadline(&sim.scheduler, decoders);
    if (job->generated < 8 || job->job.background || gap_count == GAPS_MAX) return;
    gaps[gap_count++] = (sim.now - job->job.since) / deadline;
}

/* The listed jobs with rows are done with a step that took `seconds`. */
static void advance(double seconds)
{
    uint32_t rows = 0;
    for (size_t i = 0; i < sim.listed_count; i++) rows += sim.listed[i].rows;
    for (size_t i = 0; i < sim.listed_count; i++) {
        const struct schedule_job *done = &sim.listed[i];
        struct job *job = &sim.jobs[sim.listed_jobs[i]];
        if (done->rows == 0) continue;
        job->computed += seconds * done->rows / rows;
        if (done->prompt_left > 0) {
            job->prompt_done += done->rows;
        } else {
            if (job->generated > 0) keep_gap(job);
            if (job->generated++ == 0) job->first_token = sim.now;
        }
        job->job.since = sim.now;
        if (job->prompt_done == job->prompt && job->generated >= job->generate) job->end = sim.now;
    }
}

static struct schedule_step step_of(uint32_t decode_rows, uint32_t prompt_rows, double seconds)
{
    return (struct schedule_step){ .decode_rows = decode_rows,
                                   .prompt_rows = prompt_rows,
                                   .seconds = seconds,
                                   .wait_seconds = seconds * sim.machine->wait_share,
                                   .expert_bytes =
                                       (uint64_t)(seconds * sim.machine->wait_share * 3e9) };
}

static void run_pause(void)
{
    uint32_t rows = 0;
    for (size_t i = 0; i < sim.listed_count; i++) {
        assert_true(sim.listed[i].prompt_left == 0 || sim.listed[i].rows == 0);
        rows += sim.listed[i].rows;
    }
    assert_in_range(rows, 1, sim.scheduler.options.pause_rows);
    double seconds = noisy(decode_time(rows));
    sim.now += seconds;
    sim.pauses++;
    advance(seconds);
    struct schedule_step step = step_of(rows, 0, seconds);
    step.in_pause = true;
    scheduler_step_done(&sim.scheduler, &step);
}

/* A prompt step of uneven layers, with pauses. */
static void run_pausable(const struct schedule_plan *plan)
{
    static struct schedule_job prompts[JOBS_MAX];
    static size_t prompt_jobs[JOBS_MAX];
    uint32_t layers = sim.machine->layer_count;
    size_t prompt_count = 0;
    double total = prompt_time(), begin = sim.now, own = 0;
    for (size_t i = 0; i < sim.listed_count; i++) {
        if (sim.listed[i].rows == 0) continue;
        prompts[prompt_count] = sim.listed[i];
        prompt_jobs[prompt_count++] = sim.listed_jobs[i];
    }
    for (uint32_t layer = 0; layer < layers; layer++) {
        list_jobs();
        if (scheduler_pause(&sim.scheduler, sim.listed, sim.listed_count, sim.now)) run_pause();
        double seconds = noisy(total / layers * (layer % 4 == 3 ? 1.3 : 0.9));
        sim.now += seconds;
        own += seconds;
    }
    memcpy(sim.listed, prompts, prompt_count * sizeof *prompts);
    memcpy(sim.listed_jobs, prompt_jobs, prompt_count * sizeof *prompt_jobs);
    sim.listed_count = prompt_count;
    advance(own);
    struct schedule_step step = step_of(0, plan->prompt_rows, sim.now - begin);
    scheduler_step_done(&sim.scheduler, &step);
}

static void check_plan(const struct schedule_plan *plan)
{
    uint32_t rows = 0, decode = 0, parts = 0, cut = 0;
    for (size_t i = 0; i < sim.listed_count; i++) {
        const struct schedule_job *job = &sim.listed[i];
        parts += job->rows > 0;
        rows += job->rows;
        if (job->prompt_left == 0) decode += job->rows;
        if (job->prompt_left == 0) assert_in_range(job->rows, 0, 1);
        if (job->prompt_left > 0) assert_in_range(job->rows, 0, job->prompt_left);
        if (job->prompt_left > job->rows && job->rows % SCHEDULE_GRAIN != 0) cut++;
    }
    assert_in_range(rows, 1, sim.machine->chunk_rows);
    assert_in_range(parts, 1, sim.scheduler.options.span_limit);
    assert_int_equal(decode, plan->decode_rows);
    assert_int_equal(rows - decode, plan->prompt_rows);
    assert_int_equal(cut, 0);
    if (plan->pausable) assert_int_equal(decode, 0);
}

/* False: nothing is left to do. */
static bool run_step(void)
{
    struct schedule_plan plan;
    list_jobs();
    if (sim.listed_count == 0) {
        double next = HUGE_VAL;
        for (size_t i = 0; i < sim.job_count; i++)
            if (sim.jobs[i].end == 0) next = fmin(next, sim.jobs[i].arrival);
        if (next == HUGE_VAL) return false;
        sim.now = next;
        return true;
    }
    scheduler_plan(&plan, &sim.scheduler, sim.listed, sim.listed_count, sim.now);
    check_plan(&plan);
    sim.steps++;
    if (plan.pausable) {
        run_pausable(&plan);
        return true;
    }
    double seconds = noisy(decode_time(plan.decode_rows) + prompt_time());
    sim.now += seconds;
    advance(seconds);
    struct schedule_step step = step_of(plan.decode_rows, plan.prompt_rows, seconds);
    scheduler_step_done(&sim.scheduler, &step);
    return true;
}

static void run_all(void)
{
    for (size_t i = 0; i < 1000000; i++)
        if (!run_step()) return;
    fail_msg("%s", "the jobs do not end");
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The gaps of the run: 99 of 100 at most 1.25 times the deadline, none above twice. */
static void check_gaps(void)
{
    assert_true(gap_count > 20);
    qsort(gaps, gap_count, sizeof *gaps, compare);
    double p99 = gaps[(gap_count - 1) * 99 / 100], worst = gaps[gap_count - 1];
    if (p99 > 1.25 || worst > 2)
        fail_msg("%s: gaps of %.2f (p99), %.2f (max) deadlines", sim.machine->name, p99, worst);
}

/* -------------------------------------------------------------------- deadline */

static double prompt_seconds_of(const struct machine *machine, uint32_t pause_rows, bool beside)
{
    begin(machine, pause_rows, 0.2);
    if (beside) {
        add(sim.now, 16, 1000000, 1, false);
        while (sim.jobs[0].generated < 20) run_step();
    } else {
        add(sim.now, 4096, 1, 1, false);
        while (sim.jobs[0].end == 0) run_step();
    }
    const struct job *prompt = add(sim.now, 12000, 1, 2, false);
    while (prompt->end == 0) run_step();
    return prompt->end - prompt->arrival;
}

static void check_machine(const struct machine *machine, uint32_t pause_rows, double loss_allowed)
{
    double alone = prompt_seconds_of(machine, pause_rows, false);
    double beside = prompt_seconds_of(machine, pause_rows, true);
    double loss = 1 - alone / beside;
    print_message("%s, pauses of %u: %.1f s alone, %.1f s beside, %zu gaps, %zu pauses\n",
                  machine->name, pause_rows, alone, beside, gap_count, sim.pauses);
    check_gaps();
    if (loss > loss_allowed) fail_msg("%s: the prompt loses %.0f %%", machine->name, 100 * loss);
}

static void gaps_hold_beside_a_long_prompt(void **state)
{
    (void)state;
    static const struct machine *const machines[] = { &fast, &medium, &slow, &streamed };
    for (size_t i = 0; i < COUNT_OF(machines); i++)
        check_machine(machines[i], 16, machines[i]->prompt_loss);
}

static void gaps_hold_without_pauses(void **state)
{
    (void)state;
    check_machine(&fast, 0, 0.25);
    check_machine(&medium, 0, 0.7);
}

static void many_decoders_keep_their_gaps(void **state)
{
    (void)state;
    begin(&medium, 64, 0.2);
    for (uint64_t i = 0; i < 24; i++) add(sim.now, 32, 400, i, false);
    add(sim.now + 5, 8000, 1, 99, false);
    run_all();
    check_gaps();
}

static void decoders_in_pauses_get_a_sixteenth_of_the_time(void **state)
{
    (void)state;
    begin(&fast, 16, 0);
    add(sim.now, 16, 1000000, 1, false);
    while (sim.jobs[0].generated < 20) run_step();
    const struct job *prompt = add(sim.now, 8192, 1, 2, false);
    uint32_t before = sim.jobs[0].generated;
    while (prompt->end == 0) run_step();
    double tokens = sim.jobs[0].generated - before;
    double share = tokens * decode_time(1) / (prompt->end - prompt->arrival);
    assert_true(share > 0.04 && share < 0.08);
}

static void without_decoders_a_prompt_fills_the_step(void **state)
{
    (void)state;
    struct schedule_plan plan;
    begin(&medium, 16, 0);
    struct schedule_job jobs[] = { { .client = 1, .prompt_left = 5000, .since = sim.now } };
    scheduler_plan(&plan, &sim.scheduler, jobs, 1, sim.now);
    assert_int_equal(jobs[0].rows, 512);
    assert_false(plan.pausable);
    assert_true(plan.deadline_seconds == 0);
}

static void background_decoders_have_no_deadline(void **state)
{
    (void)state;
    struct schedule_plan plan;
    begin(&medium, 16, 0);
    struct schedule_job jobs[] = {
        { .client = 1, .prompt_left = 5000, .since = sim.now },
        { .client = 2, .since = sim.now, .background = true },
        { .client = 2, .since = sim.now, .background = true },
    };
    scheduler_plan(&plan, &sim.scheduler, jobs, 3, sim.now);
    assert_int_equal(plan.decode_rows, 2);
    assert_int_equal(plan.prompt_rows, 496);
    assert_true(plan.deadline_seconds == 0);
}

/* ----------------------------------------------------------------------- order */

static void short_prompts_share_a_step(void **state)
{
    (void)state;
    struct schedule_plan plan;
    begin(&medium, 16, 0);
    struct schedule_job jobs[] = {
        { .client = 1, .prompt_left = 5000, .since = sim.now },
        { .client = 2, .prompt_left = 40, .since = sim.now },
        { .client = 3, .prompt_left = 25, .since = sim.now },
    };
    scheduler_plan(&plan, &sim.scheduler, jobs, 3, sim.now);
    assert_int_equal(jobs[1].rows, 40);
    assert_int_equal(jobs[2].rows, 25);
    assert_int_equal(jobs[0].rows, (512 - 65) / SCHEDULE_GRAIN * SCHEDULE_GRAIN);
}

static void helper_calls_pass_long_prompts(void **state)
{
    (void)state;
    begin(&medium, 16, 0.1);
    const struct job *long_prompt = add(sim.now, 16000, 10, 1, false);
    for (int i = 0; i < 10; i++) add(sim.now + 1 + i, 60, 4, 1, false);
    run_all();
    for (size_t i = 1; i < sim.job_count; i++) {
        assert_true(sim.jobs[i].end < long_prompt->first_token);
        assert_true(sim.jobs[i].end - sim.jobs[i].arrival < 6);
    }
}

static void background_waits_and_does_not_starve(void **state)
{
    (void)state;
    begin(&fast, 16, 0.1);
    const struct job *background = add(sim.now, 2000, 4, 9, true);
    for (int i = 0; i < 200; i++) add(sim.now + 1.5 * i, 3000, 1, (uint64_t)i % 3, false);
    while (background->end == 0) run_step();
    size_t before = 0;
    for (size_t i = 1; i < sim.job_count; i++) before += sim.jobs[i].end > 0;
    assert_in_range(before, 4, 50); /* most of them go first, but not all */
}

static void a_long_prompt_does_not_starve_among_short_ones(void **state)
{
    (void)state;
    begin(&fast, 16, 0.1);
    const struct job *long_prompt = add(sim.now, 3000, 4, 1, false);
    for (int i = 0; i < 250; i++) add(sim.now + 1.1 * i, 2500, 1, 1, false);
    while (long_prompt->prompt_done < 512) run_step();
    assert_true(sim.now - long_prompt->arrival < 40);
}

/* One client has eight prompts at a time, the other one. */
static void clients_share_the_time(void **state)
{
    (void)state;
    begin(&medium, 16, 0.1);
    for (int i = 0; i < 8; i++) add(sim.now, 40000, 1, 1, false);
    add(sim.now, 40000, 1, 2, false);
    double end = sim.now + 60, first = 0;
    while (sim.now < end) run_step();
    for (size_t i = 0; i < 8; i++) first += sim.jobs[i].computed;
    assert_true(fabs(first - sim.jobs[8].computed) < 6);
}

static void an_idle_client_saves_nothing_up(void **state)
{
    (void)state;
    begin(&medium, 16, 0.1);
    add(sim.now, 100000, 1, 1, false);
    add(sim.now + 60, 40000, 1, 2, false);
    while (sim.now < sim.jobs[1].arrival) run_step();
    double before = sim.jobs[0].computed, begins = sim.now;
    while (sim.now < begins + 30) run_step();
    assert_true(sim.jobs[0].computed - before > 10);
    assert_true(sim.jobs[1].computed > 10);
}

static void decode_rows_beyond_the_limit_take_turns(void **state)
{
    (void)state;
    begin(&medium, 64, 0.1);
    for (uint64_t i = 0; i < 100; i++) add(sim.now, 1, 1000000, i, false);
    for (int i = 0; i < 400; i++) run_step();
    uint32_t least = UINT32_MAX, most = 0;
    for (size_t i = 0; i < sim.job_count; i++) {
        if (sim.jobs[i].generated < least) least = sim.jobs[i].generated;
        if (sim.jobs[i].generated > most) most = sim.jobs[i].generated;
    }
    assert_true(least > 200);
    assert_in_range(most - least, 0, 8);
}

/* ------------------------------------------------------------------------ cost */

static void outliers_do_not_shift_a_prediction(void **state)
{
    (void)state;
    begin(&medium, 16, 0);
    for (int i = 0; i < 20; i++) {
        struct schedule_step step = step_of(1, 0, i % 5 == 0 ? 0.5 : 0.018);
        scheduler_step_done(&sim.scheduler, &step);
    }
    assert_true(fabs(scheduler_predict(&sim.scheduler, 1, 0) - 0.018) < 1e-9);
}

static void a_first_slow_step_is_forgotten(void **state)
{
    (void)state;
    begin(&medium, 16, 0);
    struct schedule_step cold = step_of(1, 0, 3), warm = step_of(1, 0, 0.02);
    scheduler_step_done(&sim.scheduler, &cold);
    scheduler_step_done(&sim.scheduler, &warm);
    assert_true(scheduler_predict(&sim.scheduler, 1, 0) < 0.021);
    assert_true(scheduler_deadline(&sim.scheduler, 1) < 0.51);
}

static void a_lone_step_longer_than_the_gap_doubles_it(void **state)
{
    (void)state;
    begin(&slow, 16, 0);
    struct schedule_step step = step_of(1, 0, 0.4);
    scheduler_step_done(&sim.scheduler, &step);
    assert_true(fabs(scheduler_deadline(&sim.scheduler, 1) - 0.8) < 1e-9);
}

static void reads_are_predicted_from_their_bytes(void **state)
{
    (void)state;
    begin(&fast, 16, 0);
    /* 1 ms of computing for a row, 2 ms of waiting for each megabyte, ever more of them. */
    for (uint32_t i = 1; i <= 9; i++) {
        struct schedule_step step = { .prompt_rows = 64,
                                      .seconds = 0.064 + 0.002 * i,
                                      .wait_seconds = 0.002 * i,
                                      .expert_bytes = (uint64_t)i * 1000000 };
        scheduler_step_done(&sim.scheduler, &step);
    }
    assert_true(fabs(scheduler_predict(&sim.scheduler, 0, 64) - 0.074) < 1e-6);
}

static void pauses_do_not_count_as_the_prompt(void **state)
{
    (void)state;
    begin(&medium, 16, 0);
    struct schedule_plan plan;
    struct schedule_job jobs[] = { { .client = 1, .prompt_left = 512, .since = sim.now } };
    scheduler_plan(&plan, &sim.scheduler, jobs, 1, sim.now);
    struct schedule_step pause = { .decode_rows = 1, .in_pause = true, .seconds = 0.3 };
    scheduler_step_done(&sim.scheduler, &pause);
    scheduler_step_done(&sim.scheduler,
                        &(struct schedule_step){ .prompt_rows = 512, .seconds = 1.3 });
    assert_true(fabs(scheduler_predict(&sim.scheduler, 0, 512) - 1.0) < 1e-9);
    assert_true(fabs(scheduler_predict(&sim.scheduler, 1, 0) - 0.3) < 1e-9);
}

/* -------------------------------------------------------------------- property */

static void random_arrivals_all_end_and_keep_their_gaps(void **state)
{
    (void)state;
    static const struct machine *const machines[] = { &fast, &medium, &slow };
    for (uint32_t seed = 0; seed < 60; seed++) {
        size_t kept = gap_count;
        begin(machines[seed % 3], seed % 4 == 0 ? 0 : 32, 0.2);
        gap_count = seed > 0 ? kept : 0;
        sim.random += (uint64_t)seed << 20;
        double at = sim.now;
        size_t count = 8 + (size_t)(40 * uniform());
        for (size_t i = 0; i < count; i++) {
            uint32_t prompt = 1 + (uint32_t)(exp(uniform() * 8));
            uint32_t generate = 1 + (uint32_t)(60 * uniform());
            at += 2 * uniform();
            add(at, prompt, generate, (uint64_t)(5 * uniform()), uniform() < 0.3);
        }
        run_all();
        for (size_t i = 0; i < sim.job_count; i++) {
            assert_int_equal(sim.jobs[i].prompt_done, sim.jobs[i].prompt);
            assert_int_equal(sim.jobs[i].generated, sim.jobs[i].generate);
        }
        /* The slow machine has no step that is short enough without pauses. */
        if (sim.scheduler.options.pause_rows == 0) gap_count = kept;
    }
    check_gaps();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gaps_hold_beside_a_long_prompt),
        cmocka_unit_test(gaps_hold_without_pauses),
        cmocka_unit_test(many_decoders_keep_their_gaps),
        cmocka_unit_test(decoders_in_pauses_get_a_sixteenth_of_the_time),
        cmocka_unit_test(without_decoders_a_prompt_fills_the_step),
        cmocka_unit_test(background_decoders_have_no_deadline),
        cmocka_unit_test(short_prompts_share_a_step),
        cmocka_unit_test(helper_calls_pass_long_prompts),
        cmocka_unit_test(background_waits_and_does_not_starve),
        cmocka_unit_test(a_long_prompt_does_not_starve_among_short_ones),
        cmocka_unit_test(clients_share_the_time),
        cmocka_unit_test(an_idle_client_saves_nothing_up),
        cmocka_unit_test(decode_rows_beyond_the_limit_take_turns),
        cmocka_unit_test(outliers_do_not_shift_a_prediction),
        cmocka_unit_test(a_first_slow_step_is_forgotten),
        cmocka_unit_test(a_lone_step_longer_than_the_gap_doubles_it),
        cmocka_unit_test(reads_are_predicted_from_their_bytes),
        cmocka_unit_test(pauses_do_not_count_as_the_prompt),
        cmocka_unit_test(random_arrivals_all_end_and_keep_their_gaps),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
