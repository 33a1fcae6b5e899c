/* --trace and --stats: a file that others can read, and where the time went. */
#include "program.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

#define STORY "4500,692,258,547,471,311,258,498"

static void a_trace_can_be_read_by_others(void **state)
{
    struct run run =
        shell_run("set -e; d=$(mktemp -d); trap 'rm -r $d' EXIT; cd $d;"
                  "$MOEFLUX generate --tokens " STORY " -n 5 --ids -t 2 --trace t.json; ls;"
                  "python3 $SOURCE/tests/cli/check_trace.py t.json");

    (void)state;
    assert_string_equal(run.err, "");
    assert_int_equal(run.code, 0);
    /* the prompt and four of the five tokens are fed; 8 layers, 2 of them attend, 2 workers */
    assert_contains(run.out, "t.json\nworkers 2\ntokens 4\nprompts 1\nlayers 40\nattends 20\n");
    assert_contains(run.out, "counters yes\ndropped 0\n");
    assert_null(strstr(run.out, "reads 0\n"));
    run_free(&run);
}

static void streamed_experts_are_traced(void **state)
{
    struct run run =
        shell_run("set -e; d=$(mktemp -d); trap 'rm -r $d' EXIT; cd $d;"
                  "$MOEFLUX bench -p 8 -n 8 -r 2 -t 1 -c 128 --memory 20M --no-ceilings"
                  " --trace t.json > table; python3 $SOURCE/tests/cli/check_trace.py t.json");

    (void)state;
    assert_string_equal(run.err, "");
    assert_contains(run.out, "workers 1\ntokens 24\nprompts 3\n");
    run_free(&run);
}

static void a_trace_that_cannot_be_written_is_a_failure(void **state)
{
    struct run run = PROGRAM(NULL, "generate", "--tokens", STORY, "-n", "2", "--trace", "/no/t");

    (void)state;
    assert_refused(&run, 1, "/no/t cannot be written: No such file");
    run = PROGRAM(NULL, "generate", "--tokens", STORY, "-n", "2", "--ids", "--trace", "/dev/full");
    assert_int_equal(run.code, 1);
    assert_string_equal(run.out, "644,477\n");
    assert_string_equal(run.err, "moeflux: /dev/full cannot be written: No space left on device\n");
    run_free(&run);
    run = shell_run("d=$(mktemp -d); $MOEFLUX generate --tokens 99999 --trace $d/t 2>&1; ls $d;"
                    "rm -r $d");
    assert_contains(run.out, "the model has no token 99999");
    assert_null(strstr(run.out, "\nt")); /* nothing ran: nothing stays */
    run_free(&run);
}

static void statistics_tell_where_the_time_went(void **state)
{
    struct run run = PROGRAM(NULL, "generate", "--tokens", STORY, "-n", "4", "--ids", "--stats");
    const char *const stages[] = { "attention", "delta net",     "router", "expert wait",
                                   "experts",   "shared expert", "head" };

    (void)state;
    assert_string_equal(run.out, "644,477,311,1083\n");
    for (size_t i = 0; i < sizeof stages / sizeof stages[0]; i++) {
        char line[32];
        snprintf(line, sizeof line, "\n  %-18s ", stages[i]);
        assert_contains(run.err, line);
    }
    assert_null(strstr(run.err, "latent attention"));
    run_free(&run);
}

static void statistics_as_json_have_stages(void **state)
{
    struct run run = PROGRAM(NULL, "generate", "--tokens", STORY, "-n", "4", "--stats-json");
    json_t *stats = json_loads(run.err, 0, NULL);

    (void)state;
    for (int i = 0; i < 2; i++) {
        const json_t *phase = json_object_get(stats, i ? "decode" : "prompt");
        const json_t *stages = json_object_get(phase, "stages"), *seconds;
        double sum = 0;
        const char *name;
        json_object_foreach((json_t *)(uintptr_t)stages, name, seconds)
        {
            sum += json_real_value(seconds);
        }
        assert_true(json_real_value(json_object_get(stages, "delta net")) > 0);
        assert_null(json_object_get(stages, "dense feed-forward"));
        assert_true(sum > 0 && sum <= json_real_value(json_object_get(phase, "seconds")));
    }
    json_decref(stats);
    run_free(&run);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_trace_can_be_read_by_others),
        cmocka_unit_test(streamed_experts_are_traced),
        cmocka_unit_test(a_trace_that_cannot_be_written_is_a_failure),
        cmocka_unit_test(statistics_tell_where_the_time_went),
        cmocka_unit_test(statistics_as_json_have_stages),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
