/* template and parse: conversations to prompts, answers to their parts. */
#include "program.h"

#include <stdio.h>
#include <string.h>

#define HELLO "{\"messages\":[{\"role\":\"user\",\"content\":\"Hi\"}]"
#define TURN  "<|im_start|>user\nHi<|im_end|>\n"

static void expect_output(struct run run, int code, const char *out)
{
    if (run.code != code) fail_msg("status %d: %s", run.code, run.err);
    assert_string_equal(run.out, out);
    run_free(&run);
}

static void a_conversation_becomes_the_model_s_prompt(void **state)
{
    (void)state;
    expect_output(PROGRAM(HELLO "}", "template"), 0, TURN "<|im_start|>assistant\n");
    expect_output(PROGRAM(HELLO "}", "template", "--no-generation-prompt"), 0, TURN);
    expect_output(PROGRAM(HELLO ",\"add_generation_prompt\":false}", "template"), 0, TURN);
    expect_output(PROGRAM(HELLO ",\"enable_thinking\":false}", "template"), 0,
                  TURN "<|im_start|>assistant\n<think>\n\n</think>\n\n");
}

static void lines_of_json_are_answered(void **state)
{
    (void)state;
    expect_output(PROGRAM(HELLO ",\"kwargs\":{\"enable_thinking\":false}}\n" HELLO
                                ",\"add_generation_prompt\":false}\n"
                                "{\"template\":\"{{ a + 1 }}\",\"context\":{\"a\":2}}\n"
                                "{\"template\":\"{{ raise_exception('no') }}\"}\n",
                          "template", "--jsonl"),
                  0,
                  "{\"text\":\"<|im_start|>user\\nHi<|im_end|>\\n<|im_start|>assistant\\n"
                  "<think>\\n\\n</think>\\n\\n\"}\n"
                  "{\"text\":\"<|im_start|>user\\nHi<|im_end|>\\n\"}\n"
                  "{\"text\":\"3\"}\n"
                  "{\"error\":{\"kind\":\"raise_exception\",\"message\":\"no\"}}\n");
    struct run run = PROGRAM("{\"template\":\"{% if %}\"}\n", "template", "--jsonl");
    assert_int_equal(run.code, 0);
    assert_contains(run.out, "{\"error\":{\"kind\":\"syntax_error\",\"message\":\"");
    run_free(&run);
}

static void a_template_file_needs_no_model(void **state)
{
    (void)state;
    expect_output(shell_run("f=$(mktemp); printf '%s' '{{ bos_token }}{{ messages[0].content }}"
                            "{{ eos_token }}{{ x }}' > $f;"
                            "echo '" HELLO
                            ",\"x\":1}' | $MOEFLUX template --template $f --bos '<s>'"
                            " --eos '</s>'; rm $f"),
                  0, "<s>Hi</s>1");
}

/* Reasoning, calls and their results in the words of the model's template, as the server gives them;
 * a file gets what is on stdin. */
static void the_model_s_template_gets_its_own_words(void **state)
{
    (void)state;
    static const char setup[] =
        "d=$(mktemp -d); cp $SOURCE/tests/fixtures/templates/harmony.jinja "
        "$d/chat_template.jinja; printf '%s' '{\"messages\":["
        "{\"role\":\"assistant\",\"content\":\"Wait.\",\"reasoning_content\":\"two\",\"tool_"
        "calls\":["
        "{\"function\":{\"name\":\"f\",\"arguments\":{}}},"
        "{\"function\":{\"name\":\"g\",\"arguments\":{}}}]}]}' > $d/in;";
    char command[2048];
    snprintf(command, sizeof command, "%s $MOEFLUX template -m $d < $d/in; rm -r $d", setup);
    struct run run = shell_run(command);
    if (run.code != 0) fail_msg("%s", run.err);
    assert_contains(run.out, "<|channel|>analysis<|message|>two\n\nWait.<|end|>");
    assert_contains(run.out, "to=functions.g<|channel|>");
    run_free(&run);
    snprintf(command, sizeof command, "%s $MOEFLUX template -m $d --jsonl < $d/in; rm -r $d",
             setup);
    run = shell_run(command);
    assert_contains(run.out, "<|channel|>analysis<|message|>two\\n\\nWait.<|end|>");
    run_free(&run);
    snprintf(command, sizeof command,
             "%s $MOEFLUX template --template $d/chat_template.jinja < $d/in; rm -r $d", setup);
    run = shell_run(command);
    assert_contains(run.out, "<|channel|>analysis<|message|>Wait.<|end|>");
    assert_null(strstr(run.out, "functions.g"));
    run_free(&run);
}

static void wrong_conversations_are_refused(void **state)
{
    struct run run = PROGRAM("", "template");

    (void)state;
    assert_refused(&run, 1, "the conversation is not valid JSON");
    run = PROGRAM("[]", "template");
    assert_refused(&run, 1, "the conversation is an array");
    run = PROGRAM("{}", "template", "--template", "/nonexistent");
    assert_refused(&run, 1, "/nonexistent cannot be opened");
    run = shell_run("f=$(mktemp); printf '{{ raise_exception(\"not so\") }}' > $f;"
                    "echo '{}' | $MOEFLUX template --template $f; code=$?; rm $f; exit $code");
    assert_refused(&run, 1, "not so");
}

static void answer_is_split_into_parts(void **state)
{
    (void)state;
    expect_output(PROGRAM("<think>\nhm\n</think>\n\nYes.", "parse", "--family", "hermes"), 0,
                  "{\"reasoning\":\"hm\",\"content\":\"Yes.\",\"tool_calls\":[]}\n");
    for (int chunk = 1; chunk <= 3; chunk++) {
        char bytes[8];
        snprintf(bytes, sizeof bytes, "%d", chunk);
        expect_output(PROGRAM("<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": 1}}\n"
                              "</tool_call>",
                              "parse", "--family", "hermes", "--chunk", bytes),
                      0,
                      "{\"reasoning\":\"\",\"content\":\"\",\"tool_calls\":"
                      "[{\"name\":\"f\",\"arguments\":{\"a\":1}}]}\n");
    }
    expect_output(PROGRAM("{\"family\":\"hermes\",\"prompt_opens_think\":true,\"final\":true,"
                          "\"output\":\"hm</think>Yes.\"}\n"
                          "{\"family\":\"hermes\",\"final\":false,\"output\":\"Yes.<tool_\"}\n",
                          "parse", "--jsonl"),
                  0,
                  "{\"reasoning\":\"hm\",\"content\":\"Yes.\",\"tool_calls\":[]}\n"
                  "{\"reasoning\":\"\",\"content\":\"Yes.\",\"tool_calls\":[]}\n");
}

static void channels_are_split_into_parts(void **state)
{
    (void)state;
    static const char parts[] = "{\"reasoning\":\"hm\",\"content\":\"Yes.\",\"tool_calls\":"
                                "[{\"name\":\"f\",\"arguments\":{\"a\":\"b\"}}]}\n";
    expect_output(PROGRAM("<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>"
                          "commentary<|message|>Yes.<|end|><|start|>assistant to=functions.f"
                          "<|channel|>commentary json<|message|>{\"a\": \"b\"}<|call|>",
                          "parse", "--family", "harmony", "--chunk", "1"),
                  0, parts);
    expect_output(PROGRAM("<|channel>thought\nhm<channel|>Yes.<|tool_call>call:f{a:<|\"|>b<|\"|>}"
                          "<tool_call|>",
                          "parse", "--family", "gemma4", "--chunk", "2"),
                  0, parts);
    expect_output(PROGRAM("hm<|end|><|start|>assistant<|channel|>final<|message|>Yes.<|return|>",
                          "parse", "--family", "harmony", "--prompt-opens-think"),
                  0, "{\"reasoning\":\"hm\",\"content\":\"Yes.\",\"tool_calls\":[]}\n");
}

static void wrong_families_are_refused(void **state)
{
    struct run run = PROGRAM("x", "parse");

    (void)state;
    assert_refused(&run, 2, "--family is missing");
    run = PROGRAM("x", "parse", "--family", "hermse");
    assert_refused(&run, 2, "did you mean hermes?");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_conversation_becomes_the_model_s_prompt),
        cmocka_unit_test(lines_of_json_are_answered),
        cmocka_unit_test(a_template_file_needs_no_model),
        cmocka_unit_test(the_model_s_template_gets_its_own_words),
        cmocka_unit_test(wrong_conversations_are_refused),
        cmocka_unit_test(answer_is_split_into_parts),
        cmocka_unit_test(channels_are_split_into_parts),
        cmocka_unit_test(wrong_families_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
