/* pebble.c: the model in the repository against Hugging Face transformers in float32
 * (tests/fixtures/pebble/golden.json).
 *
 *     pebble             greedy continuations and first logits of all prompts
 *     pebble heldout     perplexity of the held-out text, within 0.5%
 */
#include "support/test.h"

#include "base/file.h"
#include "base/json.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* Of the largest logit, as in golden.c. */
#define LOGIT_TOLERANCE      2e-4
#define PERPLEXITY_TOLERANCE 0.005

static mf_engine *engine;
static mf_model *model;
static json_t *golden; /* of the 4-bit model */
static json_t *file;

static void must(mf_status status, const mf_error *why)
{
    if (status != MF_OK) fail_msg("%s (%s)", why->text, why->origin);
}

static char *source_path(char out[PATH_CAPACITY], const char *inner)
{
    const char *source = getenv("MOEFLUX_SOURCE");
    snprintf(out, PATH_CAPACITY, "%s/%s", source ? source : ".", inner);
    return out;
}

static int open_pebble(void **state)
{
    (void)state;
    char path[PATH_CAPACITY];
    mf_error why = { 0 };
    must(json_read_file_new(&file, &files_posix,
                            source_path(path, "tests/fixtures/pebble/golden.json"), 1 << 20, &why),
         &why);
    golden = json_object_get(json_object_get(file, "models"), "mlx4");
    assert_non_null(golden);
    mf_engine_options options = { .struct_size = sizeof options,
                                  .thread_count = 2,
                                  .backend = "reference" };
    must(mf_engine_open(&engine, &options, &why), &why);
    must(mf_model_open(&model, engine, source_path(path, "models/pebble"), NULL, &why), &why);
    return 0;
}

static int close_pebble(void **state)
{
    (void)state;
    mf_model_close(model);
    mf_engine_close(engine);
    json_decref(file);
    return 0;
}

static mf_sequence *open_sequence(void)
{
    mf_error why = { 0 };
    mf_sequence *sequence;
    mf_sequence_options options = { .struct_size = sizeof options, .context_length = 1024 };
    must(mf_sequence_open(&sequence, model, &options, &why), &why);
    return sequence;
}

static int32_t number_at(const json_t *array, size_t index)
{
    const json_t *value = json_array_get(array, index);
    assert_true(json_is_integer(value));
    return (int32_t)json_integer_value(value);
}

/* The prompt's text gives the prompt's ids; they are the caller's to free. */
static int32_t *prompt_ids(const json_t *prompt, size_t *count)
{
    mf_error why = { 0 };
    const char *text = json_string_value(json_object_get(prompt, "text"));
    const json_t *ids = json_object_get(prompt, "ids");
    int32_t *found = malloc((json_array_size(ids) + 1) * sizeof *found);
    assert_true(text && found);
    must(mf_text_tokenize(mf_model_text(model), found, json_array_size(ids), count, text,
                          strlen(text), MF_SPECIAL_PARSE, &why),
         &why);
    assert_int_equal(*count, json_array_size(ids));
    for (size_t i = 0; i < *count; i++) assert_int_equal(found[i], number_at(ids, i));
    return found;
}

static void check_top(const float *logits, const json_t *top)
{
    double most = 0;
    for (uint32_t i = 0; i < mf_model_vocab_size(model); i++)
        most = fmax(most, fabs((double)logits[i]));
    assert_true(json_array_size(top) == 10);
    for (size_t i = 0; i < json_array_size(top); i++) {
        const json_t *pair = json_array_get(top, i);
        int32_t id = number_at(pair, 0);
        double expected = json_number_value(json_array_get(pair, 1));
        double error = fabs((double)logits[id] - expected);
        if (!(error <= LOGIT_TOLERANCE * most))
            fail_msg("logit %d is %g, %g was expected", id, (double)logits[id], expected);
    }
}

static void prompts_continue_as_the_reference(void **state)
{
    (void)state;
    const json_t *prompts = json_object_get(golden, "prompts");
    mf_sampler *sampler;
    mf_error why = { 0 };
    must(mf_sampler_open(&sampler, model, NULL, &why), &why);
    assert_true(json_array_size(prompts) > 0);
    for (size_t p = 0; p < json_array_size(prompts); p++) {
        const json_t *prompt = json_array_get(prompts, p);
        const json_t *greedy = json_object_get(prompt, "greedy");
        size_t count;
        int32_t *ids = prompt_ids(prompt, &count);
        mf_sequence *sequence = open_sequence();
        must(mf_sequence_feed(sequence, MF_PHASE_PROMPT, ids, count, &why), &why);
        check_top(mf_sequence_logits(sequence), json_object_get(prompt, "first_top10"));
        for (size_t i = 0; i < json_array_size(greedy); i++) {
            int32_t token = mf_sampler_pick(sampler, mf_sequence_logits(sequence));
            if (token != number_at(greedy, i))
                fail_msg("prompt %zu: token %zu is %d, %d was expected", p, i, token,
                         number_at(greedy, i));
            must(mf_sequence_feed(sequence, MF_PHASE_GENERATED, &token, 1, &why), &why);
        }
        mf_sequence_close(sequence);
        free(ids);
    }
    mf_sampler_close(sampler);
}

/* --------------------------------------------------------------- perplexity */

struct scored {
    const int32_t *next; /* what follows each token fed */
    uint32_t vocab_size;
    double nll;
};

static void score(void *user, size_t index, const float *logits)
{
    struct scored *s = user;
    double most = -INFINITY, sum = 0;
    for (uint32_t i = 0; i < s->vocab_size; i++) most = fmax(most, (double)logits[i]);
    for (uint32_t i = 0; i < s->vocab_size; i++) sum += exp((double)logits[i] - most);
    s->nll += most + log(sum) - (double)logits[s->next[index]];
}

static void heldout_perplexity_is_the_reference(void **state)
{
    (void)state;
    char path[PATH_CAPACITY], *text;
    size_t length, count;
    mf_error why = { 0 };
    must(file_read_whole_new(&text, &length, &files_posix,
                             source_path(path, "tests/fixtures/pebble/heldout.txt"), 1 << 20, &why),
         &why);
    int32_t *ids = malloc(length * sizeof *ids);
    assert_non_null(ids);
    must(mf_text_tokenize(mf_model_text(model), ids, length, &count, text, length, MF_SPECIAL_PARSE,
                          &why),
         &why);
    assert_int_equal(count, json_integer_value(json_object_get(golden, "heldout_tokens")));
    size_t window = (size_t)json_integer_value(json_object_get(file, "window"));
    struct scored scored = { .vocab_size = mf_model_vocab_size(model) };
    mf_sequence *sequence = open_sequence();
    for (size_t at = 0; at + 1 < count; at += window) {
        size_t rows = count - 1 - at < window ? count - 1 - at : window;
        scored.next = ids + at + 1;
        mf_sequence_clear(sequence);
        must(mf_sequence_feed_each(sequence, MF_PHASE_PROMPT, ids + at, rows, score, &scored, &why),
             &why);
    }
    double found = exp(scored.nll / (double)(count - 1));
    double expected = json_number_value(json_object_get(golden, "perplexity"));
    print_message("    perplexity %.4f, %.4f was expected\n", found, expected);
    assert_true(fabs(found / expected - 1.0) <= PERPLEXITY_TOLERANCE);
    mf_sequence_close(sequence);
    free(ids);
    free(text);
}

int main(int count, char **arguments)
{
    const struct CMUnitTest prompts[] = { cmocka_unit_test(prompts_continue_as_the_reference) };
    const struct CMUnitTest heldout[] = { cmocka_unit_test(heldout_perplexity_is_the_reference) };
    if (count == 2 && strcmp(arguments[1], "heldout") == 0)
        return cmocka_run_group_tests(heldout, open_pebble, close_pebble);
    return cmocka_run_group_tests(prompts, open_pebble, close_pebble);
}
