/* golden.c: a family against the numbers of Hugging Face transformers.
 *
 *     golden CASE [all|cuda]     a folder with a tiny checkpoint and golden.{json,safetensors}
 *
 * Checked for the case: logits of every prompt and of every position of the detail
 * prompt, hidden states after every layer, experts chosen, 24 greedy tokens, and
 * that a prompt gives the same in one chunk, in small ones and token by token.  The chunks
 * before greedy tokens change no bit (phases.c), so those are generated once; `all` (make soak)
 * generates them after every size of chunks.  `cuda`: on a device, with prompts and keys and values in
 * f32, too.
 *
 * Where the reference itself is undecided between two experts (a gap below 1e-4),
 * the reference's choice is fed: another one would move logits by whole units. */
#include "support/test.h"

#include "api/handles.h"
#include "base/json.h"
#include "base/status.h"
#include "checkpoint/safetensors.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* Of the largest logit, and of the largest number of a hidden state. */
#define LOGIT_TOLERANCE  2e-4
#define HIDDEN_TOLERANCE 1e-4
#define ROUTER_GAP       1e-4

enum { GREEDY_TOKENS = 24 };

struct golden {
    char path[PATH_CAPACITY];
    json_t *json;
    struct tensor_directory tensors;
    mf_engine *engine;
    mf_model *model;
    /* what is being compared, for messages and for the observer */
    const int32_t *router_ids;  /* [moe layers][rows][k] */
    const float *router_logits; /* [moe layers][rows][experts] */
    const float *hidden;        /* [layers + 1][rows][width] */
    bool all;                   /* the long form */
    const char *backend;
    size_t detail_rows;
    size_t first_row; /* of the current step in the detail prompt */
    size_t swapped;   /* rows whose experts were taken from the reference */
    double hidden_error;
};

static struct golden golden;

static void must(mf_status status, const mf_error *why)
{
    if (status != MF_OK) fail_msg("%s (%s)", why->text, why->origin);
}

/* The whole of a golden tensor, to be freed. */
static void *golden_tensor(const char *name)
{
    mf_error why = { 0 };
    const struct tensor *t = tensor_find(&golden.tensors, name);
    if (!t) fail_msg("golden.safetensors has no %s", name);
    void *data = malloc(t->bytes + 1);
    must(tensor_read(&golden.tensors, t, data, &why), &why);
    return data;
}

static int32_t *prompt_ids(size_t index, size_t *count)
{
    const json_t *ids =
        json_object_get(json_array_get(json_object_get(golden.json, "prompts"), index), "ids");
    *count = json_array_size(ids);
    int32_t *out = malloc((*count + 1) * sizeof *out);
    for (size_t i = 0; i < *count; i++)
        out[i] = (int32_t)json_integer_value(json_array_get(ids, i));
    return out;
}

static size_t detail_prompt(void)
{
    return (size_t)json_integer_value(json_object_get(golden.json, "detail_prompt"));
}

static mf_sequence *open_sequence(uint32_t chunk_rows)
{
    mf_error why = { 0 };
    mf_sequence *sequence;
    mf_sequence_options options = { .struct_size = sizeof options,
                                    .context_length = 1024,
                                    .chunk_rows = chunk_rows };
    must(mf_sequence_open(&sequence, golden.model, &options, &why), &why);
    return sequence;
}

static double largest(const float *values, size_t count)
{
    double most = 0;
    for (size_t i = 0; i < count; i++) most = fmax(most, fabs((double)values[i]));
    return most;
}

static double largest_difference(const float *a, const float *b, size_t count)
{
    double most = 0;
    for (size_t i = 0; i < count; i++) {
        double difference = fabs((double)a[i] - (double)b[i]);
        if (!(difference <= most)) most = difference; /* a NaN is kept */
    }
    return most;
}

static void check_logits(const float *found, const float *expected, size_t count, const char *what)
{
    double error = largest_difference(found, expected, count), scale = largest(expected, count);
    print_message("    %-28s %.1e of %.3g\n", what, error, scale);
    if (!(error <= LOGIT_TOLERANCE * scale))
        fail_msg("%s: off by %g, %g is allowed", what, error, LOGIT_TOLERANCE * scale);
}

/* -------------------------------------------------------------- observing */

static void see_hidden(void *user, int layer, const float *x, size_t rows)
{
    (void)user;
    size_t width = golden.model->model.config.width;
    const float *expected =
        golden.hidden + ((size_t)(layer + 1) * golden.detail_rows + golden.first_row) * width;
    double error = largest_difference(x, expected, rows * width) / largest(expected, rows * width);
    if (!(error <= golden.hidden_error)) golden.hidden_error = error;
}

/* Distance between the last expert taken and the first left out, in the reference. */
static double reference_gap(const float *logits, size_t experts, const int32_t *ids, size_t k)
{
    double taken = INFINITY, left = -INFINITY;
    for (size_t e = 0; e < experts; e++) {
        bool is_taken = false;
        for (size_t i = 0; i < k; i++) is_taken |= ids[i] == (int32_t)e;
        if (is_taken)
            taken = fmin(taken, logits[e]);
        else
            left = fmax(left, logits[e]);
    }
    return taken - left;
}

static int compare_ids(const void *a, const void *b)
{
    return *(const int32_t *)a < *(const int32_t *)b ? -1
                                                     : *(const int32_t *)a > *(const int32_t *)b;
}

/* Which row of the router tensors is this layer? */
static size_t router_row(uint32_t layer)
{
    const json_t *layers = json_object_get(golden.json, "router_layers");
    for (size_t i = 0; i < json_array_size(layers); i++)
        if (json_integer_value(json_array_get(layers, i)) == layer) return i;
    fail_msg("the reference has no router in layer %u", layer);
    return 0;
}

static void see_routes(void *user, uint32_t layer, struct routes *routes, size_t rows)
{
    (void)user;
    size_t k = routes->per_row, experts = golden.model->model.config.experts;
    for (size_t r = 0; r < rows; r++) {
        size_t row = router_row(layer) * golden.detail_rows + golden.first_row + r;
        int32_t expected[64];
        memcpy(expected, golden.router_ids + row * k, k * sizeof *expected);
        qsort(expected, k, sizeof *expected, compare_ids);
        uint32_t *found = routes->experts + r * k;
        if (memcmp(expected, found, k * sizeof *expected) == 0) continue;
        double gap = reference_gap(golden.router_logits + row * experts, experts, expected, k);
        if (gap >= ROUTER_GAP)
            fail_msg("layer %u, row %zu: other experts than the reference, whose gap is %g", layer,
                     golden.first_row + r, gap);
        for (size_t i = 0; i < k; i++) found[i] = (uint32_t)expected[i];
        golden.swapped++;
    }
}

static const struct observer observing = { .hidden = see_hidden, .routes = see_routes };

/* ------------------------------------------------------------------- tests */

struct gathered {
    float *logits; /* [rows][vocabulary] */
    size_t vocab_size;
};

static void gather(void *user, size_t index, const float *logits)
{
    struct gathered *g = user;
    memcpy(g->logits + index * g->vocab_size, logits, g->vocab_size * sizeof(float));
}

/* All positions' logits of the detail prompt, fed `feed` tokens at a time. */
static float *detail_logits(size_t feed, size_t *rows)
{
    mf_error why = { 0 };
    size_t vocab_size = mf_model_vocab_size(golden.model);
    int32_t *ids = prompt_ids(detail_prompt(), rows);
    struct gathered g = { malloc(*rows * vocab_size * sizeof(float)), vocab_size };
    float *all = g.logits;
    mf_sequence *sequence = open_sequence((uint32_t)feed);
    sequence->sequence.observer = &observing;
    for (size_t done = 0; done < *rows; done += feed) {
        size_t count = *rows - done < feed ? *rows - done : feed;
        golden.first_row = done;
        g.logits = all + done * vocab_size;
        must(mf_sequence_feed_each(sequence, MF_PHASE_PROMPT, ids + done, count, gather, &g, &why),
             &why);
    }
    mf_sequence_close(sequence);
    free(ids);
    return all;
}

static void every_layer_of_the_detail_prompt_agrees(void **state)
{
    (void)state;
    static const size_t feeds[] = { 64, 7, 1 };
    float *expected = golden_tensor("logits_all");
    for (size_t i = 0; i < COUNT_OF(feeds); i++) {
        size_t rows;
        char what[64];
        golden.hidden_error = 0;
        golden.swapped = 0;
        float *found = detail_logits(feeds[i], &rows);
        snprintf(what, sizeof what, "detail prompt by %zu", feeds[i]);
        check_logits(found, expected, rows * mf_model_vocab_size(golden.model), what);
        print_message("    %-28s %.1e relative, %zu routes fed\n", "hidden states",
                      golden.hidden_error, golden.swapped);
        if (!(golden.hidden_error <= HIDDEN_TOLERANCE))
            fail_msg("hidden states are off by %g, %g is allowed", golden.hidden_error,
                     HIDDEN_TOLERANCE);
        free(found);
    }
    free(expected);
}

/* Prefill in chunks of `chunk` rows, then `greedy_count` greedy tokens one by one. */
static void check_prompt(size_t index, uint32_t chunk, const float *expected, size_t greedy_count)
{
    mf_error why = { 0 };
    size_t count, vocab_size = mf_model_vocab_size(golden.model);
    int32_t *ids = prompt_ids(index, &count);
    const json_t *prompt = json_array_get(json_object_get(golden.json, "prompts"), index);
    const json_t *greedy = json_object_get(prompt, "greedy");
    mf_sequence *sequence = open_sequence(chunk);
    must(mf_sequence_feed(sequence, MF_PHASE_PROMPT, ids, count, &why), &why);
    char what[64];
    snprintf(what, sizeof what, "%zu tokens in chunks of %u", count, chunk);
    check_logits(mf_sequence_logits(sequence), expected + index * vocab_size, vocab_size, what);

    mf_sampler *sampler;
    must(mf_sampler_open(&sampler, golden.model, NULL, &why), &why);
    for (size_t i = 0; i < greedy_count; i++) {
        int32_t token = mf_sampler_pick(sampler, mf_sequence_logits(sequence));
        assert_int_equal(token, json_integer_value(json_array_get(greedy, i)));
        must(mf_sequence_feed(sequence, MF_PHASE_GENERATED, &token, 1, &why), &why);
    }
    mf_sampler_close(sampler);
    mf_sequence_close(sequence);
    free(ids);
}

static void prompts_agree_in_any_chunks(void **state)
{
    (void)state;
    float *expected = golden_tensor("logits_last");
    size_t count = json_array_size(json_object_get(golden.json, "prompts"));
    for (size_t p = 0; p < count; p++) {
        check_prompt(p, 512, expected, GREEDY_TOKENS);
        check_prompt(p, 7, expected, golden.all ? GREEDY_TOKENS : 0);
        if (!golden.all) continue;
        check_prompt(p, 64, expected, GREEDY_TOKENS);
        check_prompt(p, 1, expected, GREEDY_TOKENS);
    }
    free(expected);
}

/* A prompt that crosses chunks and pages, at once and token by token. */
static void a_long_prompt_agrees_with_decode(void **state)
{
    (void)state;
    enum { LONGEST = 600 };
    uint32_t length = golden.all ? LONGEST : 300, chunk = golden.all ? 512 : 128;
    mf_error why = { 0 };
    uint32_t vocab_size = mf_model_vocab_size(golden.model);
    int32_t ids[LONGEST];
    for (uint32_t i = 0; i < length; i++) ids[i] = (int32_t)((i * i * 31 + i * 7) % vocab_size);
    mf_sequence *at_once = open_sequence(chunk), *one_by_one = open_sequence(chunk);
    must(mf_sequence_feed(at_once, MF_PHASE_PROMPT, ids, length, &why), &why);
    for (size_t i = 0; i < length; i++)
        must(mf_sequence_feed(one_by_one, MF_PHASE_GENERATED, ids + i, 1, &why), &why);
    check_logits(mf_sequence_logits(one_by_one), mf_sequence_logits(at_once), vocab_size,
                 "all tokens one by one");
    mf_sequence_close(at_once);
    mf_sequence_close(one_by_one);
}

/* ------------------------------------------------------------------- set-up */

static bool is_case(const char *root, const char *below, const char *name)
{
    char config[PATH_CAPACITY + 16];
    if (!root) return false;
    snprintf(golden.path, sizeof golden.path, "%s/%s/%s", root, below, name);
    snprintf(config, sizeof config, "%s/config.json", golden.path);
    return access(config, R_OK) == 0;
}

static bool find_case(const char *name)
{
    const char *fixtures = getenv("MOEFLUX_FIXTURES");
    return is_case(getenv("MOEFLUX_SOURCE"), "tests/fixtures/golden", name) ||
           is_case(fixtures, "golden", name) || is_case(fixtures, "golden2", name);
}

/* The stored results lie beside the model: in these files they are the directory's only one. */
static int open_results(void *user, const char *path, void **handle, uint64_t *size)
{
    char results[PATH_CAPACITY + 32];
    const char *name = strrchr(path, '/');
    if (!name || strcmp(name, "/model.safetensors") != 0) return -ENOENT;
    snprintf(results, sizeof results, "%s/golden.safetensors", golden.path);
    return files_posix.open(user, results, handle, size);
}

static int set_up(void **state)
{
    (void)state;
    mf_error why = { 0 };
    char path[PATH_CAPACITY];
    must(path_join(path, sizeof path, golden.path, "golden.json", &why), &why);
    must(json_read_file_new(&golden.json, &files_posix, path, 64 << 20, &why), &why);
    tensor_directory_init(&golden.tensors, &allocator_heap);
    static mf_files results;
    results = files_posix;
    results.open = open_results;
    must(safetensors_open(&golden.tensors, &results, golden.path, &why), &why);

    mf_engine_options options = { .struct_size = sizeof options,
                                  .backend = golden.backend,
                                  .kernels = strcmp(golden.backend, "cuda") == 0 ? "f32" : NULL,
                                  .thread_count = 2 };
    mf_model_options model = { .struct_size = sizeof model, .kv_type = "f32" };
    must(mf_engine_open(&golden.engine, &options, &why), &why);
    must(mf_model_open(&golden.model, golden.engine, golden.path, &model, &why), &why);
    golden.router_ids = golden_tensor("router_ids");
    golden.router_logits = golden_tensor("router_logits");
    golden.hidden = golden_tensor("hidden");
    golden.detail_rows = (size_t)tensor_find(&golden.tensors, "hidden")->shape[1];
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    free((void *)golden.router_ids);
    free((void *)golden.router_logits);
    free((void *)golden.hidden);
    mf_model_close(golden.model);
    mf_engine_close(golden.engine);
    tensor_directory_free(&golden.tensors);
    json_decref(golden.json);
    return 0;
}

int main(int count, char **arguments)
{
    golden.all = count == 3 && strcmp(arguments[2], "all") == 0;
    golden.backend = count == 3 && strcmp(arguments[2], "cuda") == 0 ? "cuda" : "reference";
    if (count < 2 || !find_case(arguments[1])) {
        fprintf(stderr,
                "SKIPPED: golden case %s is neither in tests/fixtures/golden nor in "
                "golden and golden2 of $MOEFLUX_FIXTURES\n",
                count >= 2 ? arguments[1] : "(none given)");
        return EXIT_SKIPPED;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_layer_of_the_detail_prompt_agrees),
        cmocka_unit_test(prompts_agree_in_any_chunks),
        cmocka_unit_test(a_long_prompt_agrees_with_decode),
    };
    return cmocka_run_group_tests_name(arguments[1], tests, set_up, tear_down);
}
