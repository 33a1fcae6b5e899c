/* generate, logits and perplexity: the shape of their output, and what they refuse. */
#include "program.h"

#include "base/common.h"

#include <jansson.h>
#include <math.h>
#include <string.h>

#define STORY "4500,692,258,547,471,311,258,498"

static void generate_prints_ids_or_text(void **state)
{
    struct run ids = PROGRAM(NULL, "generate", "--tokens", STORY, "-n", "4", "--ids");
    struct run text = PROGRAM(NULL, "generate", "--tokens", STORY, "-n", "4");
    struct run words = PROGRAM(NULL, "generate", "-p", "Once upon a time there was a little", "-n",
                               "4", "--temp=0");
    struct run none = PROGRAM(NULL, "generate", "--tokens", STORY, "-n", "0", "--ids");

    (void)state;
    assert_string_equal(ids.out, "644,477,311,1083\n");
    assert_string_equal(text.out, " boy who was called\n");
    assert_string_equal(words.out, text.out);
    assert_string_equal(none.out, "\n");
    assert_string_equal(ids.err, "");
    run_free(&ids);
    run_free(&text);
    run_free(&words);
    run_free(&none);
}

static void a_seed_gives_the_same_text(void **state)
{
    struct run first = PROGRAM(NULL, "generate", "--tokens", STORY, "-n", "32", "--temp", "1.2",
                               "--seed", "7", "--ids");
    struct run again = PROGRAM(NULL, "generate", "--tokens", STORY, "-n", "32", "--temp", "1.2",
                               "--seed", "7", "--ids", "-t", "1");
    struct run other = PROGRAM(NULL, "generate", "--tokens", STORY, "-n", "32", "--temp", "1.2",
                               "--seed", "8", "--ids");

    (void)state;
    assert_int_equal(first.code, 0);
    assert_string_equal(first.out, again.out); /* whatever the number of threads */
    assert_string_not_equal(first.out, other.out);
    run_free(&first);
    run_free(&again);
    run_free(&other);
}

static void an_end_token_ends_it_unless_ignored(void **state)
{
    /* <|im_start|>user … "What is the capital of Japan?" … ends after a short answer. */
    const char *line =
        "ids=$(printf '<|im_start|>user\\nWhat is the capital of Japan?<|im_end|>\\n"
        "<|im_start|>assistant\\n<think>\\n\\n</think>\\n\\n' | $MOEFLUX tokenize);"
        "$MOEFLUX generate --tokens $ids -n 40 --ids | tr , '\\n' | grep -cw 8183;"
        "$MOEFLUX generate --tokens $ids -n 40 --ids --ignore-eos | tr , '\\n' | wc -l";
    struct run run = shell_run(line);

    (void)state;
    assert_string_equal(run.out, "0\n40\n");
    run_free(&run);
}

static void wrong_prompts_are_refused(void **state)
{
    struct run run = PROGRAM(NULL, "generate");

    (void)state;
    assert_refused(&run, 2, "either with --tokens or with -p");
    run = PROGRAM(NULL, "generate", "--tokens", "1", "-p", "x");
    assert_refused(&run, 2, "either with --tokens or with -p");
    run = PROGRAM(NULL, "generate", "--tokens", "");
    assert_refused(&run, 2, "the list of token ids is empty");
    run = PROGRAM(NULL, "generate", "-p", "");
    assert_refused(&run, 1, "the prompt is empty");
    run = PROGRAM(NULL, "generate", "--tokens", "8192");
    assert_refused(&run, 1, "the model has no token 8192: its ids end at 8191");
    run = PROGRAM(NULL, "generate", "--tokens", "1", "-n", "-1");
    assert_refused(&run, 2, "\"-1\" is not a whole number");
    run = PROGRAM(NULL, "generate", "--tokens", STORY, "-c", "4");
    assert_refused(&run, 1, "the prompt has 8 tokens, and the context has room for 4");
    run = PROGRAM(NULL, "logits");
    assert_refused(&run, 2, "--tokens is missing");
    run = PROGRAM(NULL, "logits", "--tokens", "9999999");
    assert_refused(&run, 1, "the model has no token 9999999");
    run = PROGRAM(NULL, "logits", "--tokens", STORY, "--all", "-c", "4");
    assert_refused(&run, 1, "context");
    run = PROGRAM(NULL, "perplexity");
    assert_refused(&run, 2, "which text?");
    run = PROGRAM(NULL, "perplexity", "/nonexistent");
    assert_refused(&run, 1, "/nonexistent cannot be opened: No such file");
    run = PROGRAM("", "perplexity", "-");
    assert_refused(&run, 1, "the text has 0 tokens, at least 2 are needed");
    run = PROGRAM("a b", "perplexity", "-", "-c", "16");
    assert_refused(&run, 2, "a window of 512 does not fit in a context of 16");
}

static void a_full_context_ends_the_text(void **state)
{
    struct run run = PROGRAM(NULL, "generate", "--tokens", STORY, "-n", "99", "-c", "10", "--ids");

    (void)state;
    assert_int_equal(run.code, 0);
    assert_string_equal(run.out, "644,477,311\n");
    assert_contains(run.err, "the context is full after 3 tokens");
    run_free(&run);
}

static void logits_are_a_line_of_json_per_position(void **state)
{
    struct run last = PROGRAM(NULL, "logits", "--tokens", "4500,692,258");
    struct run all = PROGRAM(NULL, "logits", "--tokens", "4500,692,258", "--all");
    size_t lines = 0;

    (void)state;
    assert_memory_equal(last.out, "{\"n_vocab\":8192,\"top\":[[", 24);
    for (const char *at = all.out; *at; at++) lines += *at == '\n';
    assert_int_equal(lines, 3);
    assert_string_equal(all.out + all.out_length - last.out_length, last.out);
    run_free(&last);
    run_free(&all);
}

static void raw_logits_are_written_whole_or_not_at_all(void **state)
{
    struct run run = shell_run("set -e; d=$(mktemp -d); trap 'rm -r $d' EXIT; cd $d;"
                               "$MOEFLUX logits --tokens 4500,692,258 -o last.f32;"
                               "$MOEFLUX logits --tokens 4500,692,258 --all -o all.f32;"
                               "$MOEFLUX logits --tokens 4500,692,258 -o - > pipe.f32;"
                               "wc -c < last.f32; wc -c < all.f32; cmp last.f32 pipe.f32;"
                               "tail -c 32768 all.f32 | cmp - last.f32;"
                               "! $MOEFLUX logits --tokens 9999 -o last.f32 2> /dev/null;"
                               "wc -c < last.f32; ls;"
                               "! $MOEFLUX logits --tokens 1 -o missing/last.f32 2>&1;"
                               "! $MOEFLUX logits --tokens 1 -o /dev/full 2>&1;"
                               "! $MOEFLUX logits --tokens 1 -o - 2>&1 > /dev/full");

    (void)state;
    assert_int_equal(run.code, 0);
    assert_string_equal(run.out,
                        "32768\n98304\n32768\nall.f32\nlast.f32\npipe.f32\n"
                        "moeflux: missing/last.f32 cannot be written: No such file or directory\n"
                        "moeflux: /dev/full cannot be written: No space left on device\n"
                        "moeflux: standard output cannot be written: No space left on device\n");
    run_free(&run);
}

static void perplexity_counts_predicted_tokens(void **state)
{
    struct run run =
        PROGRAM("Once upon a time there was a little", "perplexity", "-", "--window", "4");
    unsigned tokens;
    double nll, perplexity;

    (void)state;
    assert_int_equal(run.code, 0);
    assert_int_equal(
        sscanf(run.out, "tokens %u\nnll %lf\nperplexity %lf\n", &tokens, &nll, &perplexity), 3);
    assert_int_equal(tokens, 7);
    assert_true(fabs(exp(nll) - perplexity) < 1e-3 * perplexity && perplexity > 1);
    run_free(&run);
}

static void a_grammar_is_kept_and_closed(void **state)
{
    struct run run = shell_run(
        "f=$(mktemp); trap 'rm $f' EXIT; printf 'root ::= \"<\" [a-z ]+ \">\"' > $f;"
        "for n in 3 9 30; do $MOEFLUX generate -p Once -n $n --temp 1.5 --seed $n --grammar $f;"
        "done | grep -cx '<[a-z ]*>'; $MOEFLUX generate -p Once -n 1 --grammar $f 2>&1;"
        "printf 'root ::= (' > $f; $MOEFLUX generate -p Once --grammar $f 2>&1");

    (void)state;
    assert_memory_equal(run.out, "3\nmoeflux: the shortest text of the grammar has up to 3 tokens,",
                        63);
    assert_contains(run.out, "line 1");
    run_free(&run);
}

/* Against the logits themselves: the same tokens, and the same distances between them. */
static void logprobs_are_those_of_the_logits(void **state)
{
    struct run run =
        PROGRAM(NULL, "generate", "--tokens", STORY, "-n", "1", "--logprobs", "10", "--temp", "2");
    struct run logits = PROGRAM(NULL, "logits", "--tokens", STORY);
    json_t *out = json_loads(run.out, 0, NULL), *row = json_loads(logits.out, 0, NULL);
    const json_t *found = json_object_get(out, "top"), *top = json_object_get(row, "top");
    double sum = 0;

    (void)state;
    assert_int_equal(json_array_size(found), 10);
    for (size_t i = 0; i < 10; i++) {
        const json_t *a = json_array_get(found, i), *b = json_array_get(top, i);
        double shift = json_number_value(json_array_get(json_array_get(top, 0), 1)) -
                       json_number_value(json_array_get(json_array_get(found, 0), 1));
        double logprob = json_number_value(json_array_get(a, 1));
        assert_int_equal(json_integer_value(json_array_get(a, 0)),
                         json_integer_value(json_array_get(b, 0)));
        assert_true(fabs(json_number_value(json_array_get(b, 1)) - logprob - shift) < 1e-4);
        sum += exp(logprob);
    }
    assert_true(sum > 0.3 && sum < 1);
    assert_true(json_number_value(json_object_get(out, "logprob")) < 0);
    json_decref(out);
    json_decref(row);
    run_free(&run);
    run_free(&logits);
    run = PROGRAM(NULL, "generate", "--tokens", STORY, "--logprobs", "0");
    assert_refused(&run, 2, "--logprobs: 0 is outside 1");
}

static void biases_shift_what_is_drawn(void **state)
{
    struct run run = PROGRAM(NULL, "generate", "--tokens", STORY, "-n", "2", "--ids",
                             "--logit-bias", "644=-inf", "--logit-bias=11=1000");

    (void)state;
    assert_string_equal(run.out, "11,11\n");
    run_free(&run);
    run = PROGRAM(NULL, "generate", "--tokens", STORY, "-n", "1", "--ids", "--logit-bias",
                  "644=-inf");
    assert_string_equal(run.out, "615\n");
    run_free(&run);
    run = PROGRAM(NULL, "generate", "--tokens", STORY, "--logit-bias", "644");
    assert_refused(&run, 2, "\"644\" is not a token's id and a number");
    run = PROGRAM(NULL, "generate", "--tokens", STORY, "--logit-bias", "8192=1");
    assert_refused(&run, 1, "the model has no token 8192");
}

/* " boy who was called": the stop strings lie across tokens. */
static void stop_strings_end_the_text_before_them(void **state)
{
    struct run run = PROGRAM(NULL, "generate", "--tokens", STORY, "-n", "9", "--stop", "o was c");

    (void)state;
    assert_string_equal(run.out, " boy wh\n");
    run_free(&run);
    run = PROGRAM(NULL, "generate", "--tokens", STORY, "-n", "3", "--stop", "was called");
    assert_string_equal(run.out, " boy who was\n"); /* what waited is not lost */
    run_free(&run);
    run = PROGRAM(NULL, "generate", "--tokens", STORY, "-n", "9", "--ids", "--stop", "zz", "--stop",
                  "who w");
    assert_string_equal(run.out, "644,477,311\n");
    run_free(&run);
    run = PROGRAM(NULL, "run", "--raw", "Once upon a time there was a little", "-n", "9", "--temp",
                  "0", "-q", "--stop", "o was");
    assert_string_equal(run.out, " boy wh\n");
    run_free(&run);
    run = PROGRAM(NULL, "generate", "--tokens", STORY, "--stop", "");
    assert_int_equal(run.code, 1);
    run_free(&run);
}

/* From the shortest answer on every limit gives a whole one; below it there is none. */
static void every_limit_closes_the_answer(void **state)
{
    struct run run = shell_run(
        "f=$(mktemp); trap 'rm $f' EXIT; printf '%s' '{\"type\":\"object\",\"properties\":{\"a\":"
        "{\"type\":\"array\",\"items\":{\"type\":\"string\"},\"minItems\":1},\"b\":{\"type\":"
        "\"number\"}},\"required\":[\"a\",\"b\"]}' > $f; for n in 0 1 4 9 12 14 15 16 17 18 19 20 "
        "23; do "
        "$MOEFLUX generate -p Once -n $n --temp 1.5 --seed $n --json-schema $f 2>&1 | "
        "tr -d '\\n' | grep -qE '^([{].*\"a\".*[]].*\"b\".*[}]|moeflux: the shortest text of the "
        "grammar has up to ([0-9]+) tokens, and there is room for '$n')$' || echo $n; "
        "done; $MOEFLUX generate -p Once -n 39 --json-schema $f > /dev/null");

    (void)state;
    assert_int_equal(run.code, 0);
    assert_string_equal(run.out, "");
    run_free(&run);
}

static void inspect_describes_the_model(void **state)
{
    struct run table = PROGRAM(NULL, "inspect");
    struct run run = PROGRAM(NULL, "inspect", source_path("models/pebble"), "--json", "--memory",
                             "80M", "-c", "512");
    json_t *out = json_loads(run.out, 0, NULL);
    const json_t *parameters = json_object_get(out, "parameters");
    const json_t *placement = json_object_get(out, "placement");
    json_int_t resident = json_integer_value(json_object_get(placement, "resident_bytes"));

    (void)state;
    assert_contains(table.out, "family      qwen3_5_moe\n");
    assert_contains(table.out, "30.3 million, 25.2 million in experts, 8.3 million per token\n");
    assert_contains(table.out, "512 of 512\n");
    assert_contains(table.out, "\n  weights ");
    assert_contains(table.out, "\n  engine room ");
    assert_contains(table.out, "\n  a sequence ");
    assert_string_equal(json_string_value(json_object_get(out, "family")), "qwen3_5_moe");
    assert_int_equal(json_integer_value(json_object_get(parameters, "experts")),
                     8 * 64 * 3 * 256 * 64);
    assert_true(json_is_true(json_object_get(placement, "fits")));
    assert_string_equal(json_string_value(json_object_get(placement, "expert_mode")), "resident");
    assert_true(resident > 0 && resident < 8 << 20);
    json_decref(out);
    run_free(&table);
    run_free(&run);
    run = PROGRAM(NULL, "inspect", "--memory", "4M");
    assert_contains(run.out, "this is not possible: the weights that every token uses take");
    run_free(&run);
    run = PROGRAM(NULL, "inspect", "-c", "100000");
    assert_contains(run.out, "this is not possible: a context of 100000 was asked for, the model "
                             "goes to 4096 positions");
    assert_null(strstr(run.out, "not enough"));
    run_free(&run);
    run = PROGRAM(NULL, "inspect", "a", "-m", "b");
    assert_refused(&run, 2, "the model is named twice");
    run = PROGRAM(NULL, "inspect", "/nonexistent");
    assert_refused(&run, 1, "/nonexistent does not exist");
    run = PROGRAM(NULL, "inspect", source_path("tests"));
    assert_refused(&run, 1, "has no model*.safetensors and no GGUF file");
}

static void statistics_go_to_stderr(void **state)
{
    struct run run = PROGRAM(NULL, "generate", "--tokens", STORY, "-n", "4", "--ids", "--stats");

    (void)state;
    assert_string_equal(run.out, "644,477,311,1083\n");
    assert_contains(run.err, "tokens/s");
    assert_contains(run.err, "% hits");
    run_free(&run);
}

/* Each use of an expert is counted once, by where it was found. */
static void statistics_are_numbers_too(void **state)
{
    (void)state;
    static const char *const modes[] = { "resident", "mapped" };
    for (size_t i = 0; i < COUNT_OF(modes); i++) {
        struct run run = PROGRAM(NULL, "generate", "--tokens", "1,2,3", "-n", "5", "--ids",
                                 "--expert-mode", modes[i], "--stats-json");
        json_t *stats = json_loads(run.err, 0, NULL);
        const json_t *experts = json_object_get(stats, "experts");
        static const char *const sources[] = { "hits_cache", "hits_ahead", "late_ahead",
                                               "misses_demand" };
        json_int_t uses = 0;
        for (size_t s = 0; s < COUNT_OF(sources); s++)
            uses += json_integer_value(json_object_get(experts, sources[s]));
        assert_true(uses >= 4 * 8 * 8 && uses <= 7 * 8 * 8);
        assert_string_equal(json_string_value(json_object_get(experts, "mode")), modes[i]);
        assert_true(json_integer_value(json_object_get(json_object_get(stats, "disk"), "bytes")) >
                    0);
        json_decref(stats);
        run_free(&run);
    }
}

/* A model with delta nets and attention; and one with latent attention. */
static void selftest_finds_sound_models_sound(void **state)
{
    static const char *const models[] = { "models/pebble",
                                          "tests/fixtures/golden/deepseek_v3_mlx4" };
    (void)state;
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        struct run run = PROGRAM(NULL, "selftest", source_path(models[i]));
        assert_int_equal(run.code, 0);
        assert_contains(run.out, "verdict     this checkpoint is read correctly\n");
        assert_null(strstr(run.out, "PROBLEM"));
        run_free(&run);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(generate_prints_ids_or_text),
        cmocka_unit_test(a_seed_gives_the_same_text),
        cmocka_unit_test(an_end_token_ends_it_unless_ignored),
        cmocka_unit_test(wrong_prompts_are_refused),
        cmocka_unit_test(a_full_context_ends_the_text),
        cmocka_unit_test(logits_are_a_line_of_json_per_position),
        cmocka_unit_test(raw_logits_are_written_whole_or_not_at_all),
        cmocka_unit_test(perplexity_counts_predicted_tokens),
        cmocka_unit_test(a_grammar_is_kept_and_closed),
        cmocka_unit_test(logprobs_are_those_of_the_logits),
        cmocka_unit_test(biases_shift_what_is_drawn),
        cmocka_unit_test(stop_strings_end_the_text_before_them),
        cmocka_unit_test(every_limit_closes_the_answer),
        cmocka_unit_test(inspect_describes_the_model),
        cmocka_unit_test(statistics_go_to_stderr),
        cmocka_unit_test(statistics_are_numbers_too),
        cmocka_unit_test(selftest_finds_sound_models_sound),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
