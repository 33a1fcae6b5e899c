/* bench: which tests are run, that the figures fit together, and what is refused. */
#include "program.h"

#include <jansson.h>
#include <math.h>
#include <string.h>

static json_t *bench_json(const char *const *words)
{
    struct run run = program_run(NULL, words);
    json_t *out = json_loads(run.out, 0, NULL);

    if (run.code != 0 || !out) fail_msg("status %d: %s%s", run.code, run.out, run.err);
    assert_string_equal(run.err, "");
    assert_ptr_equal(strchr(run.out, '\n'), run.out + run.out_length - 1); /* one line */
    run_free(&run);
    return out;
}
#define BENCH(...) bench_json((const char *const[]){ "bench", "--json", __VA_ARGS__, NULL })

static double number(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);

    if (!json_is_number(value)) fail_msg("%s is no number", key);
    return json_number_value(value);
}

static void check_test(const json_t *test, const char *kind, double tokens, double depth)
{
    const json_t *speed = json_object_get(test, "tokens_per_second");
    double low = number(speed, "min"), median = number(speed, "median"),
           high = number(speed, "max");

    assert_string_equal(json_string_value(json_object_get(test, "kind")), kind);
    assert_true(number(test, "tokens") == tokens);
    assert_true(number(test, "depth") == depth);
    assert_true(0 < low && low <= median && median <= high);
    number(test, strcmp(kind, "decode") == 0 ? "bytes_per_token" : "flops");
    number(test, "expert_hits");
    number(test, "expert_misses");
    number(test, "expert_bytes_read");
}

static void every_number_runs_at_every_depth(void **state)
{
    json_t *out = BENCH("-p", "16,8", "-n", "2", "-d", "64,0", "-r", "3", "--no-ceilings");
    const json_t *tests = json_object_get(out, "tests");

    (void)state;
    assert_int_equal(json_array_size(tests), 6);
    for (size_t i = 0; i < 2; i++) {
        double depth = i == 0 ? 0 : 64;
        check_test(json_array_get(tests, 3 * i), "prefill", 8, depth);
        check_test(json_array_get(tests, 3 * i + 1), "prefill", 16, depth);
        check_test(json_array_get(tests, 3 * i + 2), "decode", 2, depth);
    }
    assert_int_equal(json_array_size(json_object_get(json_array_get(tests, 0), "rounds")), 3);
    assert_null(json_object_get(out, "ceilings"));
    assert_null(json_object_get(json_array_get(tests, 0), "share_of_ceiling"));
    /* the fields of the first version */
    assert_true(number(json_object_get(out, "prefill_tokens_per_second"), "tokens") == 8);
    assert_true(number(json_object_get(out, "decode_tokens_per_second"), "median") > 0);
    assert_true(number(out, "expert_hits") > 0);
    json_decref(out);
}

/* What one token needs, against what `inspect` counts in the file: the embedding is the head,
 * so all that is resident is read, and 8 of 64 experts; vectors have become f32. */
static void the_work_of_a_token_is_counted(void **state)
{
    json_t *out = BENCH("-p", "0", "-n", "1", "-r", "1", "--no-ceilings", "-d", "0,1000");
    struct run run = PROGRAM(NULL, "inspect", "--json");
    json_t *inspected = json_loads(run.out, 0, NULL);
    const json_t *parameters = json_object_get(inspected, "parameters");
    const json_t *tests = json_object_get(out, "tests");
    double weights = number(json_object_get(inspected, "bytes_per_token"), "total");
    double flops = 2 * number(parameters, "active");
    double near = number(json_array_get(tests, 0), "bytes_per_token");
    double far = number(json_array_get(tests, 1), "bytes_per_token");

    (void)state;
    assert_true(fabs(number(out, "weight_bytes_per_token") / weights - 1) < 0.01);
    /* two layers of full attention keep [2 heads][64] keys and values of each position */
    assert_true(far - near == 1000 * 2 * 2 * 2 * 64 * 4 || far - near == 1000 * 2 * 2 * 2 * 64 * 2);
    /* without the head's 8192 x 256, with the states of six delta nets */
    assert_true(fabs(number(out, "flops_per_prompt_token") / (flops - 2 * 8192 * 256) - 1) < 0.05);
    json_decref(out);
    json_decref(inspected);
    run_free(&run);
}

static void shares_are_of_measured_ceilings(void **state)
{
    json_t *out = BENCH("-p", "32", "-n", "4", "-r", "1", "-t", "1");
    const json_t *ceilings = json_object_get(out, "ceilings");
    const json_t *prefill = json_array_get(json_object_get(out, "tests"), 0);
    const json_t *decode = json_array_get(json_object_get(out, "tests"), 1);
    double memory = number(ceilings, "memory_bytes_per_second");
    double rate = number(json_object_get(decode, "tokens_per_second"), "median");
    const json_t *matrix = json_object_get(ceilings, "amx_bf16_flops");
    if (!matrix) matrix = json_object_get(ceilings, "bf16_flops");
    double peak = fmax(matrix ? json_number_value(matrix) : 0, number(ceilings, "f32_flops"));

    (void)state;
    assert_true(number(ceilings, "threads") == 1 && number(out, "threads") == 1);
    assert_true(memory > 1e8 && memory < 1e13);
    assert_true(number(ceilings, "f32_flops") > 1e8 && number(ceilings, "f32_flops") < 1e15);
    const json_t *probed = json_object_get(decode, "memory_bytes_per_second");
    assert_int_equal(json_array_size(probed), 1); /* a round, and the bandwidth just before it */
    double just_before = json_number_value(json_array_get(probed, 0));
    assert_true(just_before > memory / 1000 && just_before < 1e13);
    assert_true(fabs(number(decode, "share_of_ceiling") /
                         (rate * number(decode, "bytes_per_token") / just_before) -
                     1) < 1e-6);
    assert_string_equal(json_string_value(json_object_get(decode, "ceiling")), "memory");
    rate = number(json_object_get(prefill, "tokens_per_second"), "median") / 32;
    assert_true(
        fabs(number(prefill, "share_of_ceiling") / (rate * number(prefill, "flops") / peak) - 1) <
        1e-6);
    assert_null(json_object_get(ceilings, "disk_bytes_per_second")); /* everything is in memory */
    json_decref(out);
}

static void streamed_experts_are_held_against_the_disk(void **state)
{
    json_t *out = BENCH("-p", "16", "-n", "2", "-r", "1", "--memory", "20M", "-c", "64");
    const json_t *tests = json_object_get(out, "tests");

    (void)state;
    assert_string_equal(json_string_value(json_object_get(out, "expert_mode")), "streamed");
    assert_true(number(json_object_get(out, "ceilings"), "disk_bytes_per_second") > 0);
    assert_true(number(json_array_get(tests, 1), "expert_bytes_read") > 0);
    assert_true(number(json_array_get(tests, 1), "share_of_disk") > 0);
    json_decref(out);
}

static void a_table_has_a_line_for_each_test(void **state)
{
    struct run run =
        PROGRAM(NULL, "bench", "-p", "32", "-n", "4", "-r", "1", "--no-ceilings", "--stats");

    (void)state;
    assert_int_equal(run.code, 0);
    assert_contains(run.out, "model          pebble (qwen3_5_moe), experts resident\n");
    assert_contains(run.out, "\nprefill 32           0 ");
    assert_contains(run.out, "\ndecode 4             0 ");
    assert_contains(run.err, "% hits");
    run_free(&run);
}

static void a_text_can_be_fed(void **state)
{
    struct run run = shell_run(
        "set -e; d=$(mktemp -d); trap 'rm -r $d' EXIT; cd $d; echo Once upon a time > t; : > e;"
        "$MOEFLUX bench --text t -p 8 -n 2 -r 1 --no-ceilings | sed -n '/^test/,/^$/p' |"
        "grep -c '^prefill\\|^decode';" /* a table of reads may follow */
        "! $MOEFLUX bench --text e --no-ceilings 2>&1");

    (void)state;
    assert_string_equal(run.out, "2\nmoeflux: e has no tokens\n");
    run_free(&run);
}

/* In a step of several sequences an expert that two of them choose counts once. */
static void sequences_share_steps(void **state)
{
    (void)state;
    json_t *out = BENCH("--sequences", "1,3", "-n", "4", "-d", "20", "-r", "2", "--no-ceilings");
    const json_t *tests = json_object_get(out, "tests");
    assert_int_equal(json_array_size(tests), 2);
    for (size_t i = 0; i < 2; i++) {
        const json_t *test = json_array_get(tests, i), *rate;
        double experts = number(test, "union_experts");
        rate = json_object_get(test, "tokens_per_second");
        assert_true(number(test, "sequences") == (i ? 3 : 1));
        assert_true(0 < number(rate, "min") && number(rate, "min") <= number(rate, "max"));
        assert_true(i ? experts > 8 && experts < 24 : experts == 8);
    }
    json_decref(out);
    struct run run = PROGRAM(NULL, "bench", "--sequences", "2", "-n", "0");
    assert_refused(&run, 2, "nothing to measure");
    run = PROGRAM(NULL, "bench", "--sequences", "2", "-n", "2", "-r", "1", "--no-ceilings");
    assert_contains(run.out, "sequences   tokens/s");
    run_free(&run);
}

/* How long the gaps are depends on the machine; that they are counted does not. */
static void a_prompt_beside_a_sequence_that_generates_is_measured(void **state)
{
    (void)state;
    json_t *out = BENCH("--stall", "-p", "300", "-r", "1", "--no-warm-up", "--max-gap", "200");
    const json_t *gaps = json_object_get(out, "gaps");
    assert_true(number(out, "prompt") == 300);
    assert_true(number(out, "alone_tokens_per_second") > 0);
    assert_true(number(out, "beside_tokens_per_second") > 0);
    assert_true(number(out, "step_seconds") > 0);
    assert_true(number(out, "deadline_seconds") >= 0.2);
    assert_true(number(gaps, "count") > 0);
    assert_true(0 < number(gaps, "p50_seconds"));
    assert_true(number(gaps, "p50_seconds") <= number(gaps, "p99_seconds"));
    assert_true(number(gaps, "p99_seconds") <= number(gaps, "max_seconds"));
    json_decref(out);
    struct run run = PROGRAM(NULL, "bench", "--stall", "-p", "64", "-r", "1", "--no-warm-up");
    assert_contains(run.out, "above 1.25 deadlines");
    run_free(&run);
    run = PROGRAM(NULL, "bench", "--max-gap", "5");
    assert_refused(&run, 2, "--max-gap belongs to --stall");
    run = PROGRAM(NULL, "bench", "--stall", "-p", "0");
    assert_refused(&run, 2, "nothing to measure");
    run = PROGRAM(NULL, "bench", "--stall", "--sequences", "2");
    assert_refused(&run, 2, "--stall is a measurement of its own");
}

static void wrong_tests_are_refused(void **state)
{
    struct run run = PROGRAM(NULL, "bench", "-p", "0", "-n", "0");

    (void)state;
    assert_refused(&run, 2, "-p 0 and -n 0 leave nothing to measure");
    run = PROGRAM(NULL, "bench", "-p", "512,1");
    assert_refused(&run, 2, "-p 1: a prompt has two tokens at least");
    run = PROGRAM(NULL, "bench", "-d", "10,x");
    assert_refused(&run, 2, "\"x\" is not a whole number");
    run = PROGRAM(NULL, "bench", "-r", "0");
    assert_refused(&run, 2, "0 is outside 1 … 1000");
    run = PROGRAM(NULL, "bench", "-d", "9999", "--no-ceilings");
    assert_refused(&run, 1, "the model goes to 4096 positions");
    run = PROGRAM(NULL, "bench", "-d", "100", "-c", "32", "--no-ceilings");
    assert_refused(&run, 1, "the context holds 32");
    run = PROGRAM(NULL, "bench", "--text", "/nonexistent", "--no-ceilings");
    assert_refused(&run, 1, "/nonexistent cannot be opened");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_number_runs_at_every_depth),
        cmocka_unit_test(the_work_of_a_token_is_counted),
        cmocka_unit_test(shares_are_of_measured_ceilings),
        cmocka_unit_test(streamed_experts_are_held_against_the_disk),
        cmocka_unit_test(a_table_has_a_line_for_each_test),
        cmocka_unit_test(a_text_can_be_fed),
        cmocka_unit_test(sequences_share_steps),
        cmocka_unit_test(a_prompt_beside_a_sequence_that_generates_is_measured),
        cmocka_unit_test(wrong_tests_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
