/* --routes and simulate: a trace is recorded whole or not at all, replayed in a table, as
 * JSON and as a plot, and everything else is refused. */
#include "program.h"

#include <jansson.h>
#include <math.h>
#include <string.h>

static const char *trace_path(void)
{
    return source_path("tests/fixtures/pebble/heldout.routes");
}

static double number_of(const json_t *object, const char *name)
{
    const json_t *value = json_object_get(object, name);
    assert_true(json_is_number(value));
    return json_number_value(value);
}

static void a_table_shows_every_policy(void **state)
{
    struct run run = PROGRAM(NULL, "simulate", trace_path(), "--memory", "50%,25%", "--step", "8",
                             "--disk", "100MB/s");
    (void)state;
    assert_int_equal(run.code, 0);
    assert_string_equal(run.err, "");
    assert_contains(run.out, "pebble: 552 tokens, 8 layers of 64 experts, 8 per token");
    assert_contains(run.out, "0.10 GB/s from disk; 8 ms per token");
    assert_contains(run.out, "128 of 512 (25%)        belady     62.0%    100%     656 KiB");
    assert_contains(run.out, "moeflux    36.9%     59%     1.1 MiB");
    assert_contains(run.out, "256 of 512 (50%)");
    const char *quarter = strstr(run.out, "(25%)"), *half = strstr(run.out, "(50%)");
    assert_true(quarter && half && quarter < half); /* the smallest first */
    run_free(&run);
}

static void json_says_the_same(void **state)
{
    struct run run = PROGRAM(NULL, "simulate", trace_path(), "--memory=25%", "--json", "--step",
                             "8", "--disk", "0.1GB/s");
    json_t *root = json_loads(run.out, 0, NULL);
    (void)state;
    assert_int_equal(run.code, 0);
    assert_non_null(root);
    const json_t *results = json_object_get(root, "results");
    assert_int_equal(json_array_size(results), 5);
    const json_t *belady = json_array_get(results, 0);
    assert_string_equal(json_string_value(json_object_get(belady, "policy")), "belady");
    assert_true(number_of(belady, "hits") == 21907);
    double per_token = number_of(belady, "bytes_per_token");
    assert_true(fabs(number_of(belady, "tokens_per_second") - 1 / 0.008) < 1e-6);
    assert_true(fabs(number_of(belady, "tokens_per_second_in_turn") -
                     1 / (0.008 + per_token / 1e8)) < 1e-6);
    json_decref(root);
    run_free(&run);
}

static void plot_is_an_svg_file(void **state)
{
    char line[512];
    snprintf(line, sizeof line,
             "set -e; d=$(mktemp -d); trap 'rm -r $d' EXIT; cd $d;"
             "$MOEFLUX simulate %s --memory 25%%,50%% --plot a.svg > table;"
             "$MOEFLUX simulate %s --memory 60M,60M --plot b.svg > table;"
             "grep -c '<svg xmlns' a.svg b.svg; grep -c '</svg>' a.svg b.svg;"
             "grep -c 'polyline class=\"line p1\"' a.svg; ! grep -i -e nan -e inf a.svg b.svg; ls",
             trace_path(), trace_path());
    struct run run = shell_run(line);
    (void)state;
    assert_int_equal(run.code, 0);
    assert_string_equal(run.out, "a.svg:1\nb.svg:1\na.svg:1\nb.svg:1\n3\na.svg\nb.svg\ntable\n");
    run_free(&run);
}

static void recorded_routes_are_replayed(void **state)
{
    struct run run = shell_run(
        "set -e; d=$(mktemp -d); trap 'rm -r $d' EXIT; cd $d;"
        "$MOEFLUX generate -p 'The old king' -n 12 --routes g > /dev/null;"
        "$MOEFLUX run -q --raw 'The old king' -n 12 --routes r > /dev/null;"
        "echo 'The old king was very old indeed.' | $MOEFLUX perplexity - --routes p > /dev/null;"
        "$MOEFLUX bench -p 8 -n 4 -r 1 --no-ceilings --no-warm-up --routes b > /dev/null;"
        "for i in g r p b; do $MOEFLUX simulate $i | head -n 1; done; ls");
    (void)state;
    assert_int_equal(run.code, 0);
    assert_string_equal(run.err, "");
    assert_contains(run.out, "pebble: 14 tokens"); /* the last token is not fed */
    assert_contains(run.out, "b\ng\np\nr\n");      /* and no other file */
    run_free(&run);
}

static void a_failure_leaves_no_trace(void **state)
{
    struct run run =
        shell_run("set -e; d=$(mktemp -d); trap 'rm -r $d' EXIT; cd $d;"
                  "! $MOEFLUX generate --tokens 99999 -n 2 --routes g 2>&1;"
                  "! $MOEFLUX generate --tokens 1 -n 2 --routes missing/g 2>&1 > /dev/null;"
                  "! $MOEFLUX generate --tokens 1 -n 2 --routes /dev/full 2>&1 > /dev/null; ls");
    (void)state;
    assert_int_equal(run.code, 0);
    assert_contains(run.out, "no token 99999");
    assert_contains(run.out, "missing/g cannot be written: No such file");
    assert_contains(run.out, "cannot be written");
    assert_null(strstr(run.out, "\ng\n"));
    run_free(&run);
}

static void wrong_options_are_refused(void **state)
{
    struct run run = PROGRAM(NULL, "simulate");
    (void)state;
    assert_refused(&run, 2, "which trace?");
    run = PROGRAM(NULL, "simulate", "/nonexistent");
    assert_refused(&run, 1, "/nonexistent cannot be opened");
    run = PROGRAM("no trace at all", "simulate", "-");
    assert_refused(&run, 1, "standard input: this is not a trace of routes");
    run = PROGRAM(NULL, "simulate", trace_path(), "--disk", "fast");
    assert_refused(&run, 2, "\"fast\" is not a rate with a unit, such as 3GB/s");
    run = PROGRAM(NULL, "simulate", trace_path(), "--disk", "3");
    assert_refused(&run, 2, "\"3\" is not a rate with a unit");
    run = PROGRAM(NULL, "simulate", trace_path(), "--disk", "0GB/s");
    assert_refused(&run, 2, "is not a rate");
    run = PROGRAM(NULL, "simulate", trace_path(), "--memory", "8G,huge");
    assert_refused(&run, 2, "\"huge\" is neither a size such as 8G nor a share such as 25%");
    run = PROGRAM(NULL, "simulate", trace_path(), "--memory", "101%");
    assert_refused(&run, 2, "\"101%\" is neither");
    run = PROGRAM(NULL, "simulate", trace_path(), "--memory=");
    assert_refused(&run, 2, "there is no size");
    run = PROGRAM(NULL, "simulate", trace_path(), "--memory", "1M");
    assert_refused(&run, 1, "0.00 MiB are left for experts; 10 of them");
    run = PROGRAM(NULL, "simulate", trace_path(), "--threads", "2");
    assert_refused(&run, 2, "there is no option --threads");
}

/* One of two sizes is too small: the other is shown. */
static void small_sizes_are_left_out(void **state)
{
    struct run run = PROGRAM(NULL, "simulate", trace_path(), "--memory", "1M,25%");
    (void)state;
    assert_int_equal(run.code, 0);
    assert_contains(run.err, "note: 0.00 MiB are left for experts");
    assert_contains(run.out, "128 of 512 (25%)");
    run_free(&run);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_table_shows_every_policy),
        cmocka_unit_test(json_says_the_same),
        cmocka_unit_test(plot_is_an_svg_file),
        cmocka_unit_test(recorded_routes_are_replayed),
        cmocka_unit_test(a_failure_leaves_no_trace),
        cmocka_unit_test(wrong_options_are_refused),
        cmocka_unit_test(small_sizes_are_left_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
