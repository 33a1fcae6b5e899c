/* Standard streams that are closed, full, or go away. */
#include "program.h"

#include <string.h>

static void expect(const char *line, int code, const char *out, const char *err)
{
    struct run run = shell_run(line);

    if (run.code != code) fail_msg("%s: status %d, %s", line, run.code, run.err);
    assert_string_equal(run.out, out);
    if (*err) {
        assert_contains(run.err, err);
    } else {
        assert_string_equal(run.err, "");
    }
    run_free(&run);
}

static void closed_pipe_ends_the_program_quietly(void **state)
{
    (void)state;
    expect("{ $MOEFLUX help tokenize; echo $? >&2; } | true", 0, "", "0\n");
    expect("{ yes '{\"text\":\"a\"}' | $MOEFLUX tokenize --jsonl; echo $? >&2; } | head -n 1", 0,
           "{\"ids\":[64],\"tokens\":[\"a\"]}\n", "0\n");
}

static void lost_output_is_a_failure(void **state)
{
    (void)state;
    expect("$MOEFLUX --version > /dev/full", 1, "",
           "moeflux: standard output cannot be written: No space left on device\n");
    expect("$MOEFLUX --version >&-", 1, "", "standard output cannot be written");
    expect("printf Once | $MOEFLUX tokenize > /dev/full", 1, "", "cannot be written");
    expect("yes '{\"text\":\"a\"}' | $MOEFLUX tokenize --jsonl > /dev/full", 1, "",
           "cannot be written");
}

static void closed_streams_are_harmless(void **state)
{
    (void)state;
    expect("$MOEFLUX detokenize --tokens 4500 <&-", 0, "Once", "");
    expect("$MOEFLUX detokenize --tokens 4500 2>&-", 0, "Once", "");
    expect("$MOEFLUX detokenize --tokens 4500 <&- 2>&-", 0, "Once", "");
    expect("$MOEFLUX tokenize <&-", 1, "", "moeflux: standard input cannot be read");
    expect("$MOEFLUX nonsense <&- >&- 2>&-", 2, "", "");
    expect("$MOEFLUX tokenize < /", 1, "", "standard input cannot be read: Is a directory");
}

static void an_empty_environment_is_enough(void **state)
{
    (void)state;
    expect("env -i $MOEFLUX detokenize --tokens 4500", 0, "Once", "");
    expect("cd / && env -i $MOEFLUX detokenize --tokens 4500", 0, "Once", "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(closed_pipe_ends_the_program_quietly),
        cmocka_unit_test(lost_output_is_a_failure),
        cmocka_unit_test(closed_streams_are_harmless),
        cmocka_unit_test(an_empty_environment_is_enough),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
