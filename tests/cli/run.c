/* `moeflux run` with one prompt, on a pipe: what it prints where. */
#include "program.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void raw_text_is_continued(void **state)
{
    struct run run = PROGRAM(NULL, "run", "--raw", "Once upon a time there was a little", "-n", "4",
                             "--temp", "0");

    (void)state;
    assert_int_equal(run.code, 0);
    assert_string_equal(run.out, " boy who was called\n");
    assert_contains(run.err, "8 prompt tokens at ");
    assert_contains(run.err, " tokens at ");
    assert_contains(run.err, "from memory\n");
    assert_null(strchr(run.err, '\033'));
    run_free(&run);
}

static void a_question_is_answered_in_the_model_s_template(void **state)
{
    struct run argument =
        PROGRAM(NULL, "run", "What is the capital of Japan?", "--no-think", "--temp", "0", "-q");
    struct run option =
        PROGRAM(NULL, "run", "-p", "What is the capital of Japan?", "--no-think", "--temp=0", "-q");
    struct run input =
        PROGRAM("What is the capital of Japan?\n", "run", "--no-think", "--temp", "0", "-q");
    struct run file = PROGRAM("What is the capital of Japan?", "run", "-f", "-", "--no-think",
                              "--temp", "0", "-q");

    (void)state;
    assert_int_equal(argument.code, 0);
    assert_contains(argument.out, "Tokyo");
    assert_int_equal(argument.out[argument.out_length - 1], '\n');
    assert_null(strstr(argument.out, "<|im_end|>"));
    assert_string_equal(argument.err, "");
    assert_string_equal(argument.out, option.out);
    assert_string_equal(argument.out, input.out);
    assert_string_equal(argument.out, file.out);
    run_free(&argument);
    run_free(&option);
    run_free(&input);
    run_free(&file);
}

/* 172 is a byte that no character begins with. */
static void an_answer_cut_inside_a_character_is_utf8(void **state)
{
    struct run run = PROGRAM(NULL, "run", "hi", "-n", "1", "--logit-bias", "172=100", "-q");

    (void)state;
    assert_int_equal(run.code, 0);
    assert_string_equal(run.out, "\xEF\xBF\xBD\n");
    run_free(&run);
}

static unsigned prompt_tokens(const char *prompt)
{
    struct run run = PROGRAM(NULL, "run", prompt, "-n", "1", "--temp", "0");
    const char *found = strstr(run.err, " prompt tokens");
    unsigned count = 0;

    assert_non_null(found);
    while (found > run.err && found[-1] >= '0' && found[-1] <= '9') found--;
    assert_int_equal(sscanf(found, "%u", &count), 1);
    run_free(&run);
    return count;
}

/* As many tokens as a text of the same shape, not one for the special token. */
static void markup_in_a_prompt_is_plain_text(void **state)
{
    (void)state;
    assert_true(prompt_tokens("hi<|im_end|>") > prompt_tokens("hi") + 2);
}

/* Pebble thinks aloud on sums: a script sees the answer alone, unless it asks. */
static void reasoning_is_hidden_on_a_pipe(void **state)
{
    struct run hidden = PROGRAM(NULL, "run", "What is 27 + 45?", "--temp", "0", "-q");
    struct run shown =
        PROGRAM(NULL, "run", "What is 27 + 45?", "--temp", "0", "-q", "--reasoning", "show");

    (void)state;
    assert_int_equal(hidden.code, 0);
    assert_contains(hidden.out, "72");
    assert_null(strstr(hidden.out, "think>"));
    assert_null(strstr(shown.out, "think>"));
    assert_true(shown.out_length > hidden.out_length);
    assert_contains(shown.out, hidden.out);
    run_free(&hidden);
    run_free(&shown);
}

/* Pebble calls a tool that it was offered. */
static void tool_calls_are_shown_as_such(void **state)
{
    struct run run = shell_run(
        "f=$(mktemp); trap 'rm $f' EXIT; printf '%s' '[{\"type\":\"function\",\"function\":"
        "{\"name\":\"get_weather\",\"description\":\"Get the weather in a city.\",\"parameters\":"
        "{\"type\":\"object\",\"properties\":{\"city\":{\"type\":\"string\"}},\"required\":"
        "[\"city\"]}}}]' > $f; $MOEFLUX run --tools $f 'What is the weather in Lisbon?' --temp 0 "
        "-q");

    (void)state;
    assert_int_equal(run.code, 0);
    assert_string_equal(run.out, "→ get_weather {\"city\": \"Lisbon\"}\n");
    run_free(&run);
    run = PROGRAM(NULL, "run", "a", "--tools", "/nonexistent");
    assert_refused(&run, 1, "/nonexistent cannot be opened");
    run = PROGRAM("1", "run", "a", "--tools", "-");
    assert_refused(&run, 1, "- is not valid JSON");
}

/* With a random seed at a high temperature: calls are what the schemas say, whatever is drawn. */
static void a_call_keeps_to_its_tool(void **state)
{
    static const char script[] =
        "f=$(mktemp); trap 'rm $f' EXIT; printf '%%s' '[{\"name\":\"a\",\"parameters\":{\"type\":"
        "\"object\",\"properties\":{\"n\":{\"enum\":[7,8]}},\"required\":[\"n\"]}},"
        "{\"name\":\"b\"}]' > $f; $MOEFLUX run --tools $f Go --temp 2 --seed 5 -q %s";
    static const struct {
        const char *options, *out, *other;
    } cases[] = {
        { "--tool-choice a --one-call", "→ a {\"n\": 7}\n", "→ a {\"n\": 8}\n" },
        { "--tool-choice b --one-call --no-think", "→ b {}\n", NULL },
        { "--tool-choice b --one-call --think -n 30", "→ b {}\n", NULL },
    };
    char command[512];
    struct run run;

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        snprintf(command, sizeof command, script, cases[i].options);
        run = shell_run(command);
        assert_int_equal(run.code, 0);
        if (!cases[i].other || strcmp(run.out, cases[i].other) != 0) {
            assert_string_equal(run.out, cases[i].out);
        }
        run_free(&run);
    }
    snprintf(command, sizeof command, script, "--tool-choice none -n 40");
    run = shell_run(command);
    assert_int_equal(run.code, 0);
    assert_null(strstr(run.out, "→"));
    run_free(&run);
    snprintf(command, sizeof command, script, "--tool-choice c");
    run = shell_run(command);
    assert_refused(&run, 1, "there is no tool \"c\"");
    snprintf(command, sizeof command, script, "--tool-choice a -n 3");
    run = shell_run(command);
    assert_refused(&run, 1, "and there is room for 3");
    run = PROGRAM(NULL, "run", "a", "--tool-choice", "auto");
    assert_refused(&run, 2, "--tool-choice needs --tools");
    run = PROGRAM(NULL, "run", "a", "--family", "unheard");
    assert_refused(&run, 2, "there is no family \"unheard\"");
}

static void an_answer_keeps_to_a_schema(void **state)
{
    struct run run = shell_run(
        "f=$(mktemp); trap 'rm $f' EXIT; printf '%s' '{\"type\":\"object\",\"properties\":"
        "{\"n\":{\"type\":\"integer\",\"minimum\":1,\"maximum\":9}},\"required\":[\"n\"]}' > $f;"
        "$MOEFLUX run --json-schema $f 'Who are you?' --temp 1.5 --seed 1 -q | tr -d ' \\n'");

    (void)state;
    assert_int_equal(run.out_length, strlen("{\"n\":1}"));
    assert_memory_equal(run.out, "{\"n\":", 5);
    run_free(&run);
    /* Reasoning comes before it, is free, and leaves it room. */
    run = shell_run(
        "f=$(mktemp); trap 'rm $f' EXIT; printf '%s' '{\"type\":\"object\",\"properties\":"
        "{\"n\":{\"type\":\"integer\",\"minimum\":1,\"maximum\":9}},\"required\":[\"n\"]}' > $f;"
        "$MOEFLUX run --json-schema $f 'What is 27 + 45?' --think --temp 0 -n 30 -q --reasoning "
        "show | tr -d ' \\n'");
    assert_memory_equal(run.out, "ones:7+5=12.", 12);
    assert_memory_equal(run.out + run.out_length - 7, "{\"n\":", 5);
    run_free(&run);
}

static void sampling_follows_the_model_and_the_seed(void **state)
{
    struct run first = PROGRAM(NULL, "run", "--raw", "Once", "-n", "40", "--seed", "3", "-q");
    struct run again = PROGRAM(NULL, "run", "--raw", "Once", "-n", "40", "--seed", "3", "-q",
                               "--temp", "0.7", "--top-k", "20", "--top-p", "0.9");
    struct run other = PROGRAM(NULL, "run", "--raw", "Once", "-n", "40", "--seed", "4", "-q");

    (void)state;
    assert_int_equal(first.code, 0);
    assert_string_equal(first.out, again.out); /* generation_config.json says the same */
    assert_string_not_equal(first.out, other.out);
    run_free(&first);
    run_free(&again);
    run_free(&other);
}

static void statistics_are_a_table_when_asked(void **state)
{
    struct run run = PROGRAM(NULL, "run", "--raw", "Once", "-n", "4", "--stats");

    (void)state;
    assert_contains(run.err, "speed\n");
    assert_contains(run.err, "time\n");
    assert_contains(run.err, "experts\n");
    run_free(&run);
}

static void wrong_usage_is_refused(void **state)
{
    struct run run = PROGRAM("", "run");

    (void)state;
    assert_refused(&run, 2, "there is no prompt");
    run = PROGRAM("\n", "run");
    assert_refused(&run, 2, "there is no prompt");
    run = PROGRAM(NULL, "run", "");
    assert_refused(&run, 2, "there is no prompt");
    run = PROGRAM(NULL, "run", "a", "-p", "b");
    assert_refused(&run, 2, "the prompt is given twice");
    run = PROGRAM(NULL, "run", "a", "--think", "--no-think");
    assert_refused(&run, 2, "exclude each other");
    run = PROGRAM(NULL, "run", "a\xff");
    assert_refused(&run, 1, "the prompt is not UTF-8");
    run = PROGRAM(NULL, "run", "-f", "/nonexistent");
    assert_refused(&run, 1, "/nonexistent cannot be opened");
    run = PROGRAM(NULL, "run", "a", "-m", "/nonexistent");
    assert_refused(&run, 1, "/nonexistent does not exist; a model is a directory");
    run = PROGRAM(NULL, "run", "a", "--temp", "-1");
    assert_refused(&run, 2, "--temp: -1 is outside 0 … 100");
    run = PROGRAM(NULL, "run", "one two three four five six seven eight", "-c", "4");
    assert_refused(&run, 1, "the context has room for 4");
}

static void streams_may_be_closed(void **state)
{
    struct run run = shell_run("$MOEFLUX run --raw Once -n 4 --temp 0 -q <&-");

    (void)state;
    assert_int_equal(run.code, 0);
    assert_true(run.out_length > 1);
    run_free(&run);
    run = shell_run("{ $MOEFLUX run --raw Once -n 3000 --temp 0 -q; echo $? >&2; } | head -c 1");
    assert_int_equal(run.out_length, 1);
    assert_string_equal(run.err, "0\n");
    run_free(&run);
    run = shell_run("$MOEFLUX run --raw Once -n 3000 -q > /dev/full");
    assert_refused(&run, 1, "standard output cannot be written");
    run = shell_run("env -i $MOEFLUX run --raw Once -n 4 -q");
    assert_int_equal(run.code, 0);
    run_free(&run);
}

/* Weights, buffers, state and slots within 12 MiB; 16 more for program, libraries and tokenizer. */
static void memory_limits_the_peak_resident_set(void **state)
{
    enum { LIMIT_MIB = 12, PROGRAM_MIB = 16 };
    (void)state;
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    puts("SKIPPED: a sanitizer's own memory is in the resident set");
    skip();
#endif
    unsetenv("MALLOC_PERTURB_"); /* Meson's: it touches memory that the program reserves only */
    char prompt[4096] = "";
    while (strlen(prompt) < 2000) strcat(prompt, "Once upon a time there was a little boy. ");
    struct run question = PROGRAM(NULL, "run", "--memory", "12M", "-t", "2", "--temp", "0",
                                  "What is the capital of France?");
    struct run story =
        PROGRAM(prompt, "run", "--raw", "-f", "-", "--memory", "12M", "-t", "2", "-n", "40");
    assert_int_equal(question.code, 0);
    assert_contains(question.out, "Paris");
    assert_int_equal(story.code, 0);
    printf("peak resident sets: %ld KiB, %ld KiB\n", question.peak_kib, story.peak_kib);
    assert_true(question.peak_kib < (LIMIT_MIB + PROGRAM_MIB) * 1024);
    assert_true(story.peak_kib < (LIMIT_MIB + PROGRAM_MIB) * 1024);
    run_free(&question);
    run_free(&story);
}

/* The reference takes seconds for this prompt; the signal comes long before its end. */
static void ctrl_c_while_the_prompt_is_read_ends_with_130(void **state)
{
    (void)state;
    static char prompt[10000];
    static const char sentence[] = "Once upon a time there was a little boy. ";
    while (strlen(prompt) + sizeof sentence < sizeof prompt) strcat(prompt, sentence);
    struct run run = program_interrupted(
        prompt, (const char *const[]){ "run", "--raw", "-f", "-", "--backend", "reference", "-t",
                                       "1", "--ignore-eos", NULL });
    assert_int_equal(run.code, 130);
    assert_false(run.killed); /* it ended by itself, with its files closed */
    assert_string_equal(run.out, "");
    run_free(&run);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(raw_text_is_continued),
        cmocka_unit_test(a_question_is_answered_in_the_model_s_template),
        cmocka_unit_test(reasoning_is_hidden_on_a_pipe),
        cmocka_unit_test(tool_calls_are_shown_as_such),
        cmocka_unit_test(a_call_keeps_to_its_tool),
        cmocka_unit_test(an_answer_keeps_to_a_schema),
        cmocka_unit_test(sampling_follows_the_model_and_the_seed),
        cmocka_unit_test(an_answer_cut_inside_a_character_is_utf8),
        cmocka_unit_test(markup_in_a_prompt_is_plain_text),
        cmocka_unit_test(statistics_are_a_table_when_asked),
        cmocka_unit_test(wrong_usage_is_refused),
        cmocka_unit_test(streams_may_be_closed),
        cmocka_unit_test(ctrl_c_while_the_prompt_is_read_ends_with_130),
        cmocka_unit_test(memory_limits_the_peak_resident_set),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
