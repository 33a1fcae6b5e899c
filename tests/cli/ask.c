/* `moeflux run` with arguments as people type them: which word is the model, what is piped in
 * beside a prompt, where an answer was cut, one JSON object instead of text. */
#include "program.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void a_first_argument_that_is_a_model_is_the_model(void **state)
{
    (void)state;
    struct run run = PROGRAM(NULL, "run", source_path("models/pebble"), "--no-think", "--temp", "0",
                             "-q", "What is the capital of Japan?");
    assert_int_equal(run.code, 0);
    assert_contains(run.out, "Tokyo");
    run_free(&run);
    run = shell_run("set -e; d=$(mktemp -d); trap 'rm -r $d' EXIT;"
                    "r=$d/models--org--pebble/snapshots/only; mkdir -p $r;"
                    "ln -s $SOURCE/models/pebble/* $r/;"
                    "HF_HUB_CACHE=$d $MOEFLUX run org/pebble --no-think --temp 0 -q "
                    "'What is the capital of Japan?' < /dev/null");
    assert_int_equal(run.code, 0);
    assert_contains(run.out, "Tokyo");
    run_free(&run);
}

static void a_model_that_is_not_there_is_not_taken_for_a_prompt(void **state)
{
    static const struct {
        const char *word, *sentence;
    } cases[] = {
        { "nothing.gguf", "nothing.gguf does not exist" },
        { "some/model", "`moeflux pull some/model` downloads it" },
        { "qwen3:30b", "a name in ollama's library" },
        { "hf.co/org/name", "`moeflux pull org/name`" },
    };
    (void)state;
    setenv("HF_HUB_CACHE", "/nonexistent", 1);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct run run = PROGRAM(NULL, "run", cases[i].word);
        assert_int_equal(run.code, 1);
        assert_string_equal(run.out, "");
        assert_contains(run.err, cases[i].sentence);
        assert_contains(run.err, "-p gives a prompt that looks like one");
        run_free(&run);
    }
    struct run run = PROGRAM(NULL, "run", "-p", "and/or", "-n", "2", "--temp", "0");
    assert_int_equal(run.code, 0);
    run_free(&run);
}

static void several_words_are_one_prompt(void **state)
{
    (void)state;
    struct run joined = PROGRAM(NULL, "run", "--json", "--temp", "0", "-n", "2", "hello world");
    struct run words = PROGRAM(NULL, "run", "--json", "--temp", "0", "-n", "2", "hello", "world");
    assert_int_equal(words.code, 0);
    assert_string_equal(words.out, joined.out);
    run_free(&joined);
    run_free(&words);
}

/* The number at a/b of the only object that the run printed. */
static long number_at(const struct run *run, const char *a, const char *b)
{
    json_t *object = json_loads(run->out, 0, NULL);
    if (!object) fail_msg("this is not JSON: %s", run->out);
    long number = (long)json_integer_value(json_object_get(json_object_get(object, a), b));
    json_decref(object);
    return number;
}

static void piped_text_follows_the_prompt(void **state)
{
    (void)state;
    struct run alone = PROGRAM(NULL, "run", "--json", "-n", "1", "Summarise:\n\nOnce upon a time");
    struct run piped = PROGRAM("Once upon a time\n", "run", "--json", "-n", "1", "Summarise:");
    struct run empty = PROGRAM("", "run", "--json", "-n", "1", "Summarise:");
    assert_int_equal(number_at(&piped, "usage", "prompt_tokens"),
                     number_at(&alone, "usage", "prompt_tokens"));
    assert_true(number_at(&empty, "usage", "prompt_tokens") <
                number_at(&piped, "usage", "prompt_tokens"));
    run_free(&alone);
    run_free(&piped);
    run_free(&empty);
}

static void an_answer_that_was_cut_is_marked_and_counted(void **state)
{
    (void)state;
    struct run run = PROGRAM(NULL, "run", "-n", "3", "hi"); /* all of it hidden reasoning */
    assert_int_equal(run.code, 0);
    assert_contains(run.err, "[stopped after 3 tokens: -n]");
    assert_contains(run.err, ", 3 tokens at ");
    run_free(&run);
    run = PROGRAM(NULL, "run", "--raw", "-n", "2", "Once");
    assert_contains(run.err, "1 prompt tokens at ");
    run_free(&run);
    run = PROGRAM(NULL, "run", "--no-think", "--temp", "0", "What is the capital of Japan?");
    assert_null(strstr(run.err, "stopped after"));
    run_free(&run);
}

static void an_answer_can_be_one_json_object(void **state)
{
    (void)state;
    struct run run = PROGRAM(NULL, "run", "--json", "--temp", "0", "-q", "What is 27 + 45?");
    json_t *object = json_loads(run.out, 0, NULL);
    assert_int_equal(run.code, 0);
    assert_non_null(object);
    assert_contains(json_string_value(json_object_get(object, "content")), "27 + 45 = 72");
    assert_non_null(json_string_value(json_object_get(object, "reasoning")));
    assert_string_equal(json_string_value(json_object_get(object, "finish_reason")), "stop");
    long prompt = number_at(&run, "usage", "prompt_tokens");
    long answer = number_at(&run, "usage", "completion_tokens");
    assert_true(prompt > 0 && answer > 0);
    assert_int_equal(number_at(&run, "usage", "total_tokens"), prompt + answer);
    json_decref(object);
    run_free(&run);
    run = PROGRAM(NULL, "run", "--json", "--temp", "0", "-q", "-n", "3", "What is 27 + 45?");
    assert_contains(run.out, "\"finish_reason\":\"length\"");
    run_free(&run);
}

static void the_version_is_a_command_too(void **state)
{
    (void)state;
    struct run option = PROGRAM(NULL, "--version"), command = PROGRAM(NULL, "version");
    assert_int_equal(command.code, 0);
    assert_string_equal(command.out, option.out);
    run_free(&option);
    run_free(&command);
}

static void a_program_without_its_model_says_where_it_looked(void **state)
{
    (void)state;
    struct run run = shell_run("d=$(mktemp -d); cp $MOEFLUX $d/moeflux; $d/moeflux run hi; c=$?;"
                               "rm -r $d; exit $c");
    assert_int_equal(run.code, 1);
    assert_contains(run.err, "the embedded model Pebble is not where this program looks for it");
    assert_contains(run.err, "../share/moeflux/models/pebble");
    run_free(&run);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_first_argument_that_is_a_model_is_the_model),
        cmocka_unit_test(a_model_that_is_not_there_is_not_taken_for_a_prompt),
        cmocka_unit_test(several_words_are_one_prompt),
        cmocka_unit_test(piped_text_follows_the_prompt),
        cmocka_unit_test(an_answer_that_was_cut_is_marked_and_counted),
        cmocka_unit_test(an_answer_can_be_one_json_object),
        cmocka_unit_test(the_version_is_a_command_too),
        cmocka_unit_test(a_program_without_its_model_says_where_it_looked),
    };
    return cmocka_run_group_tests_name("ask", tests, NULL, NULL);
}
