/* forecast: every number here was worked out by hand from the sizes beside it. */
#include "support/test.h"

#include "plan/planned.h"

#include <math.h>
#include <string.h>

/* Two formats: 0 reads 10 bytes per second, 1 reads 20; products take 100 operations per second with
 * one row for each matrix, 200 with 4, 400 with 16, 800 with 64. */
static const struct machine_rates machine = {
    .memory_bytes = 40,
    .disk_bytes = 5,
    .matrix_flops = 1000,
    .layer_seconds = 0.5,
    .formats = { [0] = { .decode_bytes = 10,
                         .prompt_rows = { 1, 4, 16, 64 },
                         .prompt_flops = { 100, 200, 400, 800 } },
                 [1] = { .decode_bytes = 20,
                         .prompt_rows = { 1, 4, 16, 64 },
                         .prompt_flops = { 100, 200, 400, 800 } } },
};

/* Two layers of 8 experts, 2 for a token. */
static const struct model_costs model = {
    .dense = { [0] = { 30, 60, 0 }, [1] = { 20, 20, 0 } },
    .head = { [1] = { 40, 80, 0 } },
    .experts = { [0] = { 50, 100, 0 } },
    .layers = 2,
    .expert_layers = 2,
    .experts_per_layer = 8,
    .experts_per_token = 2,
    .position_bytes = 4,
    .state_bytes = 8,
    .pair_flops = 7,
    .other_flops = 14,
};

static const struct placement resident = { .in_memory = 16, .count = 16, .chunk_rows = 64 };
static const struct placement streamed = {
    .streamed = true, .in_memory = 4, .count = 16, .chunk_rows = 64
};

static void assert_near(double found, double expected)
{
    if (fabs(found - expected) > 1e-9 * fmax(1, fabs(expected)))
        fail_msg("%.12g instead of %.12g", found, expected);
}

static void a_token_in_memory(void **state)
{
    struct forecast f = forecast_token(&model, &machine, &resident, 10, 0.25);
    (void)state;
    assert_near(f.dense, 3 + 1 + 2);           /* 30/10 + 20/20, head 40/20 */
    assert_near(f.experts, 5);                 /* 50/10 */
    assert_near(f.state, (8.0 + 10 * 4) / 40); /* at the memory's rate */
    assert_near(f.layers, 2 * 0.5);
    assert_near(f.disk, 0);
    assert_near(f.hits, 1); /* nothing is streamed: 0.25 is not used */
    assert_near(f.weight_bytes, 140);
    assert_near(f.seconds, 6 + 5 + 1.2 + 1);
    assert_near(f.tokens_per_second, 1 / 13.2);
}

static void a_streamed_token_waits_for_the_disk_or_for_experts(void **state)
{
    struct forecast f = forecast_token(&model, &machine, &streamed, 0, 0.2);
    (void)state;
    assert_near(f.disk_bytes, 40); /* 0.8 of 50 */
    assert_near(f.disk, 8);   /* more than the 5 of the experts, which are computed meanwhile */
    assert_near(f.last, 2.5); /* but for one of the two of each layer */
    assert_near(f.seconds, 6 + 0.2 + 1 + 8 + 2.5);
    assert_int_equal(f.bound, BOUND_DISK);
    f = forecast_token(&model, &machine, &streamed, 0, 0.9);
    assert_near(f.disk, 1);
    assert_near(f.last, 0.5); /* a tenth is read, less than one in each layer */
    assert_near(f.seconds, 6 + 0.2 + 1 + 5);
    assert_int_not_equal(f.bound, BOUND_DISK);
}

static void what_a_token_is_bound_by(void **state)
{
    struct machine_rates rates = machine;
    (void)state;
    /* 140 bytes in 11 seconds are 12.7 of the memory's 40 per second. */
    assert_int_equal(forecast_token(&model, &rates, &resident, 0, 1).bound, BOUND_ARITHMETIC);
    rates.memory_bytes = 20;
    assert_int_equal(forecast_token(&model, &rates, &resident, 0, 1).bound, BOUND_MEMORY);
    rates.layer_seconds = 10;
    assert_int_equal(forecast_token(&model, &rates, &resident, 0, 1).bound, BOUND_LAYERS);
    assert_string_equal(forecast_bound_name(BOUND_DISK), "disk");
}

static void hits_are_a_share_or_more(void **state)
{
    (void)state;
    assert_near(forecast_least_hits(&resident), 1);
    assert_near(forecast_usual_hits(&resident), 1);
    assert_near(forecast_least_hits(&streamed), 0.25);
    assert_near(forecast_usual_hits(&streamed), pow(0.25, 0.7)); /* 0.379 */
    struct placement none = { .streamed = true, .count = 16 };
    assert_near(forecast_usual_hits(&none), 0);
}

/* A token misses an expert with 3/4, two tokens with 9/16. */
static void experts_that_some_rows_use(void **state)
{
    (void)state;
    assert_near(forecast_experts_used(&model, 1), 2);
    assert_near(forecast_experts_used(&model, 2), 3.5);
    assert_true(forecast_experts_used(&model, 1000) <= 8);
}

/* Rows for each number: 3584 / 4718592 of wide experts, 1 / 256 of narrow ones. */
static void narrow_matrices_take_longer(void **state)
{
    struct machine_rates rates = machine;
    struct model_costs costs = model;
    struct weight_share *experts = &costs.experts[0];
    (void)state;
    *experts = (struct weight_share){ .bytes = 50, .parameters = 4718592, .rows = 3584 };
    assert_near(forecast_narrow_share(experts), 0);
    experts->rows = 2000; /* longer rows than the measured ones */
    assert_near(forecast_narrow_share(experts), 0);
    experts->rows = 4718592.0 / 256;
    assert_near(forecast_narrow_share(experts), 1);
    experts->rows = 3584 + 2 * (4718592.0 / 256 - 3584);
    assert_near(forecast_narrow_share(experts), 2);
    assert_near(forecast_token(&costs, &rates, &resident, 0, 1).experts, 5); /* not measured */
    rates.formats[0].narrow_decode_bytes = 4;
    assert_near(forecast_token(&costs, &rates, &resident, 0, 1).experts, 5 + 2 * (12.5 - 5));
    rates.formats[0].narrow_decode_bytes = 20; /* no gain of narrow ones is counted */
    assert_near(forecast_token(&costs, &rates, &resident, 0, 1).experts, 5);

    double wide = forecast_prompt(&costs, &rates, &resident, 2).experts;
    for (int i = 0; i < MF_RATE_POINTS; i++)
        rates.formats[0].narrow_prompt_flops[i] = rates.formats[0].prompt_flops[i] / 4;
    assert_near(forecast_narrow_flops(&rates.formats[0], 2), 150 / 4.0);
    assert_near(forecast_prompt(&costs, &rates, &resident, 2).experts, wide + 2 * 3 * wide);
}

static void rates_between_the_points(void **state)
{
    const mf_format_rates *rates = &machine.formats[0];
    (void)state;
    assert_near(forecast_prompt_flops(rates, 0.5), 100);
    assert_near(forecast_prompt_flops(rates, 1), 100);
    assert_near(forecast_prompt_flops(rates, 2), 150); /* half of the way by logarithm */
    assert_near(forecast_prompt_flops(rates, 4), 200);
    assert_near(forecast_prompt_flops(rates, 32), 600);
    assert_near(forecast_prompt_flops(rates, 64), 800);
    assert_near(forecast_prompt_flops(rates, 1e6), 800);
}

/* Two rows use 3.5 of the 8 experts in each layer, with 2 x 2 / 3.5 rows each. */
static void a_prompt_in_memory(void **state)
{
    struct forecast f = forecast_prompt(&model, &machine, &resident, 2);
    double rate = 100 + 100 * log(4 / 3.5) / log(4);
    (void)state;
    assert_near(f.dense, 2 * 80 * 2 / 150.0 + 2); /* products of two rows; the head for one */
    assert_near(f.experts, 2 * 100 * 2 / rate);
    assert_near(f.state, (2 * 1.5 * 7 + 2 * 14) / (0.35 * 1000)); /* 1 + 2 pairs */
    assert_near(f.layers, 1);
    assert_near(f.disk, 0);
    assert_near(f.seconds, f.dense + f.experts + f.state + f.layers);
    assert_near(f.tokens_per_second, 2 / f.seconds);
    assert_near(f.weight_bytes, 50 + 40 + 25 * 3.5);
}

/* A quarter of the 3.5 experts of 25 bytes is in memory. */
static void a_streamed_prompt_reads_the_others(void **state)
{
    struct forecast f = forecast_prompt(&model, &machine, &streamed, 2);
    (void)state;
    assert_near(f.disk_bytes, 0.75 * 3.5 * 25);
    assert_near(f.disk, f.disk_bytes / 5);
    assert_near(f.seconds, f.dense + f.state + f.layers + fmax(f.disk, f.experts));
    assert_int_equal(f.bound, BOUND_DISK);
}

/* Pieces of one row: each pays for the layers, each row reads its own experts, and the second one
 * looks at the first. */
static void a_prompt_in_pieces(void **state)
{
    struct placement placement = streamed;
    placement.chunk_rows = 1;
    struct forecast f = forecast_prompt(&model, &machine, &placement, 2);
    (void)state;
    assert_near(f.layers, 2);
    assert_near(f.disk_bytes, 2 * 0.75 * 50);
    assert_near(f.state, (3 * 7 + 2 * 14) / 350.0);
    assert_near(f.dense, 2 * 80 * 2 / 100.0 + 2);
    assert_near(f.seconds, f.dense + f.state + 2 + f.disk);
}

static void formats_without_rates_count_as_memory_and_peak(void **state)
{
    struct machine_rates rates = machine;
    (void)state;
    memset(rates.formats, 0, sizeof rates.formats);
    assert_near(forecast_token(&model, &rates, &resident, 0, 1).experts, 50.0 / 40);
    assert_near(forecast_prompt(&model, &rates, &resident, 2).experts, 400.0 / 1000);
}

static void an_unknown_disk_costs_nothing(void **state)
{
    struct machine_rates rates = machine;
    rates.disk_bytes = 0;
    struct forecast f = forecast_token(&model, &rates, &streamed, 0, 0.2);
    (void)state;
    assert_near(f.disk, 0);
    assert_near(f.disk_bytes, 40);
}

/* Half of the bytes: of 1000 a 64th is kept back, weights take 200, the others 585, and 199.4 are left
 * for all experts, 100 (the 2 of 8 that a token uses are 25). */
static void another_quantisation_is_scaled(void **state)
{
    struct planned known = { .plan = { .memory_bytes = 1000,
                                       .weight_bytes = 400,
                                       .engine_bytes = 500,
                                       .sequence_bytes = 80,
                                       .table_bytes = 5,
                                       .chunk_rows = 64 } };
    struct plan_wishes wishes = { .prompt_rows = 2, .position = 10 };
    struct model_costs half = model;
    struct estimate found;
    (void)state;
    for (size_t f = 0; f < 2; f++) {
        half.dense[f].bytes /= 2;
        half.head[f].bytes /= 2;
        half.experts[f].bytes /= 2;
    }
    estimate_make(&found, &known, &model, &machine, &wishes, 0.5);
    assert_true(found.fits && !found.streamed);
    assert_near(found.share, 1);
    assert_near(found.least.seconds, forecast_token(&half, &machine, &resident, 10, 1).seconds);
    assert_near(found.prompt.seconds, forecast_prompt(&half, &machine, &resident, 2).seconds);
    known.plan.engine_bytes += 149;
    estimate_make(&found, &known, &model, &machine, &wishes, 0.5);
    assert_true(found.fits && found.streamed);
    assert_near(found.share, (1000 - 1000 / 64.0 - 200 - 649 - 80 - 5) / 100);
    assert_near(found.least.hits, found.share);
    assert_near(found.most.hits, pow(found.share, 0.7));
    assert_near(found.least.disk_bytes, (1 - found.share) * 25);
    known.plan.engine_bytes += 45; /* less than 4 experts of 6.25 bytes are left */
    estimate_make(&found, &known, &model, &machine, &wishes, 0.5);
    assert_false(found.fits);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_token_in_memory),
        cmocka_unit_test(a_streamed_token_waits_for_the_disk_or_for_experts),
        cmocka_unit_test(what_a_token_is_bound_by),
        cmocka_unit_test(hits_are_a_share_or_more),
        cmocka_unit_test(experts_that_some_rows_use),
        cmocka_unit_test(narrow_matrices_take_longer),
        cmocka_unit_test(rates_between_the_points),
        cmocka_unit_test(a_prompt_in_memory),
        cmocka_unit_test(a_streamed_prompt_reads_the_others),
        cmocka_unit_test(a_prompt_in_pieces),
        cmocka_unit_test(formats_without_rates_count_as_memory_and_peak),
        cmocka_unit_test(an_unknown_disk_costs_nothing),
        cmocka_unit_test(another_quantisation_is_scaled),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
