/* tokenize and detokenize on Pebble: formats, modes, refusals. */
#include "program.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void expect_output(struct run run, const char *out)
{
    if (run.code != 0) fail_msg("status %d: %s", run.code, run.err);
    assert_string_equal(run.out, out);
    assert_string_equal(run.err, "");
    run_free(&run);
}

static void text_becomes_ids_on_one_line(void **state)
{
    (void)state;
    expect_output(PROGRAM("Once upon a time there was a little", "tokenize"),
                  "4500,692,258,547,471,311,258,498\n");
    expect_output(PROGRAM("", "tokenize"), "\n");
}

static void special_tokens_can_be_plain_text(void **state)
{
    struct run parsed = PROGRAM("<|im_end|>", "tokenize");
    struct run plain = PROGRAM("<|im_end|>", "tokenize", "--no-special");

    (void)state;
    assert_string_equal(parsed.out, "8183\n");
    assert_non_null(strchr(plain.out, ','));
    run_free(&parsed);
    run_free(&plain);
}

static void ids_become_the_exact_bytes(void **state)
{
    (void)state;
    expect_output(PROGRAM(NULL, "detokenize", "--tokens", "4500,692,258,547"), "Once upon a time");
    expect_output(PROGRAM(NULL, "detokenize", "--tokens=4500, 692 ,258"), "Once upon a");
    expect_output(PROGRAM("4500,692\n", "detokenize"), "Once upon");
    expect_output(shell_run("printf 'G\\303\\274te, \\377\\001!' | $MOEFLUX tokenize |"
                            " $MOEFLUX detokenize"),
                  "G\303\274te, \377\001!");
}

static void lines_of_json_are_answered_in_order(void **state)
{
    struct run run = PROGRAM("{\"text\":\"Once upon\"}\n\n{\"hex\":\"3c7c696d5f656e647c3e\"}\n"
                             "{\"text\":\"<|im_end|>\",\"special\":\"parse\"}",
                             "tokenize", "--jsonl");

    (void)state;
    assert_int_equal(run.code, 0);
    assert_string_equal(run.out, "{\"ids\":[4500,692],\"tokens\":[\"Once\",\"Ġupon\"]}\n"
                                 "{\"ids\":[8183],\"tokens\":[\"<|im_end|>\"]}\n"
                                 "{\"ids\":[8183],\"tokens\":[\"<|im_end|>\"]}\n");
    run_free(&run);
    /* All of Pebble's added tokens are special: both modes leave plain text. */
    expect_output(PROGRAM("{\"text\":\"<|im_end|>\",\"special\":\"no-special\"}\n"
                          "{\"text\":\"<|im_end|>\",\"special\":\"plain\"}\n",
                          "tokenize", "--jsonl"),
                  "{\"ids\":[347,293,416,348],\"tokens\":[\"<|\",\"im\",\"_end\",\"|>\"]}\n"
                  "{\"ids\":[347,293,416,348],\"tokens\":[\"<|\",\"im\",\"_end\",\"|>\"]}\n");
    expect_output(PROGRAM("{\"ids\":[4500,692]}\n{\"ids\":[]}\n", "detokenize", "--jsonl"),
                  "{\"hex\":\"4f6e63652075706f6e\"}\n{\"hex\":\"\"}\n");
}

/* U+0085 and U+2028 end a line for some readers: they are never printed as they are. */
static void an_answer_holds_no_character_that_ends_a_line(void **state)
{
    struct run run = shell_run("printf '%s\n' '{\"messages\":[{\"role\":\"user\","
                               "\"content\":\"a\\u0085b\\u2028c\\u2029\"}]}' |"
                               "$MOEFLUX template --jsonl --no-generation-prompt");

    (void)state;
    expect_output(run, "{\"text\":\"<|im_start|>user\\na\\u0085b\\u2028c\\u2029<|im_end|>\\n\"}\n");
}

/* A line that cannot be answered keeps its place, and the status says so. */
static void wrong_lines_keep_their_place(void **state)
{
    struct run run = PROGRAM("{\"text\":\n[]\n{}\n{\"hex\":\"0\"}\n{\"hex\":\"zz\"}\n"
                             "{\"text\":\"a\",\"special\":\"all\"}\n{\"text\":\"Once\"}\n",
                             "tokenize", "--jsonl");
    size_t errors = 0;

    (void)state;
    assert_int_equal(run.code, 1);
    for (const char *at = run.out; (at = strstr(at, "{\"error\":{\"kind\":\"MF_ERR_")); at++)
        errors++;
    assert_int_equal(errors, 6);
    assert_contains(run.out, "\n{\"ids\":[4500],\"tokens\":[\"Once\"]}\n");
    run_free(&run);
    run = PROGRAM("{\"ids\":[-1]}\n{\"ids\":[9000]}\n{\"ids\":7}\n{\"ids\":[1.5]}\n", "detokenize",
                  "--jsonl");
    assert_int_equal(run.code, 1);
    assert_contains(run.out, "no token 9000");
    run_free(&run);
}

static void wrong_lists_are_refused(void **state)
{
    static const struct {
        const char *list;
        const char *sentence;
    } cases[] = {
        { "", "the list of token ids is empty" },
        { " ", "the list of token ids is empty" },
        { "1,,2", "empty place" },
        { "1,2,", "empty place" },
        { "1;2", "\"1;2\" is not a token id" },
        { "-1", "\"-1\" is not a token id" },
        { "1,x", "\"x\" is not a token id" },
        { "2147483648", "is not a token id" },
        { "99999999999999999999", "is not a token id" },
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct run run = PROGRAM(NULL, "detokenize", "--tokens", cases[i].list);
        assert_refused(&run, 2, cases[i].sentence);
    }
    struct run run = PROGRAM(NULL, "detokenize", "--tokens", "8192");
    assert_refused(&run, 1, "no token 8192: its ids end at 81");
    run = PROGRAM("", "detokenize");
    assert_refused(&run, 2, "the list of token ids is empty");
}

static void models_are_found(void **state)
{
    struct run run = PROGRAM(NULL, "tokenize", "-m", "/nonexistent");

    (void)state;
    assert_refused(&run, 1,
                   "/nonexistent does not exist; a model is a directory, a GGUF file, or org/name");
    run = PROGRAM(NULL, "tokenize", "-m", "");
    assert_refused(&run, 1, "the model's name is empty");
    run = PROGRAM(NULL, "tokenize", "-m", "/dev/null");
    assert_refused(&run, 1, "/dev/null is a pipe, a socket or a device");
    run = shell_run("HF_HUB_CACHE=/nonexistent exec $MOEFLUX tokenize -m some/model");
    assert_refused(&run, 1, "some/model is neither a directory nor in the Hugging Face cache");
    run = shell_run("env -i $MOEFLUX tokenize -m some/model");
    assert_refused(&run, 1, "no Hugging Face cache is known");
    /* With just a tokenizer.json; in the cache, by its main branch; in each of its places. */
    expect_output(
        shell_run("set -e; d=$(mktemp -d); trap 'rm -r $d' EXIT; r=$d/hub/models--org--pebble;"
                  "mkdir -p $r/refs $r/snapshots/abc $r/snapshots/def; printf abc > $r/refs/main;"
                  "ln -s $SOURCE/models/pebble/tokenizer.json $r/snapshots/abc/; cd $d;"
                  "printf Once | $MOEFLUX tokenize -m $r/snapshots/abc;"
                  "printf Once | HF_HUB_CACHE=$d/hub $MOEFLUX tokenize -m org/pebble;"
                  "printf Once | HF_HUB_CACHE= HF_HOME=$d $MOEFLUX tokenize -m org/pebble;"
                  "mkdir -p .cache/huggingface; mv hub .cache/huggingface;"
                  "printf Once | env -i HOME=$d $MOEFLUX tokenize -m org/pebble;"
                  "rm -r $d/.cache/huggingface/hub/models--org--pebble/refs;"
                  "HOME=$d env -u HF_HOME -u XDG_CACHE_HOME -u HF_HUB_CACHE"
                  " $MOEFLUX tokenize -m org/pebble 2>&1 || true"),
        "4500\n4500\n4500\n4500\n"
        "moeflux: org/pebble is in the Hugging Face cache, but without a main snapshot; "
        "`moeflux pull org/pebble` completes it\n");
}

static void model_with_only_a_vocabulary_tokenizes(void **state)
{
    const char *fixtures = getenv("MOEFLUX_FIXTURES");
    char path[4096];

    (void)state;
    if (!fixtures) {
        print_error("SKIPPED: MOEFLUX_FIXTURES is not set\n");
        skip();
    }
    snprintf(path, sizeof path, "%s/tokenizers/gpt-2/ggml-vocab-gpt-2.gguf", fixtures);
    expect_output(PROGRAM("Hello World", "tokenize", "-m", path), "15496,2159\n");
    expect_output(PROGRAM(NULL, "detokenize", "-m", path, "--tokens", "15496,2159"), "Hello World");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(text_becomes_ids_on_one_line),
        cmocka_unit_test(special_tokens_can_be_plain_text),
        cmocka_unit_test(ids_become_the_exact_bytes),
        cmocka_unit_test(lines_of_json_are_answered_in_order),
        cmocka_unit_test(an_answer_holds_no_character_that_ends_a_line),
        cmocka_unit_test(wrong_lines_keep_their_place),
        cmocka_unit_test(wrong_lists_are_refused),
        cmocka_unit_test(models_are_found),
        cmocka_unit_test(model_with_only_a_vocabulary_tokenizes),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
