/* examples/hello.c, run as its comment says: it must write Pebble's story. */
#include "support/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *program;

/* What a shell line prints, at most a page; its exit status in *code. */
static void run_line(char *out, size_t capacity, int *code, const char *line)
{
    FILE *pipe = popen(line, "r");
    size_t length;

    assert_non_null(pipe);
    length = fread(out, 1, capacity - 1, pipe);
    out[length] = '\0';
    *code = pclose(pipe);
}

static void hello_prints_the_expected_story(void **state)
{
    char line[4096], out[4096];
    int code;

    (void)state;
    snprintf(line, sizeof line, "'%s' '%s/models/pebble' 'Once upon a time there was a little'",
             program, getenv("MOEFLUX_SOURCE"));
    run_line(out, sizeof out, &code, line);
    assert_int_equal(code, 0);
    assert_memory_equal(out, "Once upon a time there was a little boy who was called", 53);
    assert_true(strlen(out) > 120);
}

static void hello_takes_an_empty_prompt(void **state)
{
    char line[4096], out[4096];
    int code;

    (void)state;
    snprintf(line, sizeof line, "'%s' '%s/models/pebble' ''", program, getenv("MOEFLUX_SOURCE"));
    run_line(out, sizeof out, &code, line);
    assert_int_equal(code, 0);
    assert_string_equal(out, "\n");
}

static void hello_says_what_is_wrong(void **state)
{
    char line[4096], out[4096];
    int code;

    (void)state;
    snprintf(line, sizeof line, "'%s' /nonexistent 'Once' 2>&1", program);
    run_line(out, sizeof out, &code, line);
    assert_int_not_equal(code, 0);
    assert_non_null(strstr(out, "hello: /nonexistent"));
    snprintf(line, sizeof line, "'%s' 2>&1", program);
    run_line(out, sizeof out, &code, line);
    assert_non_null(strstr(out, "usage: hello"));
}

int main(int count, char **words)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hello_prints_the_expected_story),
        cmocka_unit_test(hello_takes_an_empty_prompt),
        cmocka_unit_test(hello_says_what_is_wrong),
    };

    if (count != 2) return 2;
    program = words[1];
    return cmocka_run_group_tests(tests, NULL, NULL);
}
