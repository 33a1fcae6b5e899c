/* drift.c: how far the tuned arithmetic is from the reference in f32, on the model in the repository
 * and its held-out text (docs/numerics.md).
 *
 *     drift prompt N [KV [BACKEND]]    N windows of 512 tokens as prompts
 *     drift decode N [KV [BACKEND]]    the same, half of each window as a prompt, then token by token
 *
 * KV: the type of keys and values, else f16.  BACKEND: in place of the tuned one; with `reference`
 * the type alone is judged.
 *
 * KL is of the tuned distribution from the reference's, averaged over positions. */
#include "support/test.h"

#include "base/file.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { WINDOW = 512 };

static struct limits {
    const char *name;
    double kl, agreement, perplexity; /* the last one relative, of eight windows and more */
} const all_limits[][2] = { { { "prompt", 3e-3, 0.98, 0.003 }, { "decode", 1e-3, 0.99, 0.003 } },
                            /* with q8 */
                            { { "prompt", 4e-3, 0.975, 0.005 }, { "decode", 2e-3, 0.98, 0.005 } } };

/* Of the type of keys and values alone. */
static struct {
    const char *kv_type;
    double kl, agreement;
} const type_limits[] = { { "f32", 0, 1 }, { "f16", 1e-4, 0.998 }, { "q8", 1e-3, 0.98 } };

static const char *kv_type = "f16", *backend_name = "cpu";
static bool decode;
static size_t window_count;

/* One backend's way to the model. */
struct side {
    mf_engine *engine;
    mf_model *model;
    mf_sequence *sequence;
    float *logits; /* [WINDOW][vocabulary] of the present window */
    size_t vocab_size;
};

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

static void side_open(struct side *side, const char *backend, const char *kv)
{
    char path[PATH_CAPACITY];
    mf_error why = { 0 };
    mf_engine_options engine = { .struct_size = sizeof engine,
                                 .thread_count = 2,
                                 .backend = backend };
    mf_model_options model = { .struct_size = sizeof model, .kv_type = kv };
    mf_sequence_options options = { .struct_size = sizeof options, .context_length = WINDOW };
    must(mf_engine_open(&side->engine, &engine, &why), &why);
    must(
        mf_model_open(&side->model, side->engine, source_path(path, "models/pebble"), &model, &why),
        &why);
    must(mf_sequence_open(&side->sequence, side->model, &options, &why), &why);
    side->vocab_size = mf_model_vocab_size(side->model);
    side->logits = malloc(WINDOW * side->vocab_size * sizeof(float));
    assert_non_null(side->logits);
}

static void side_close(struct side *side)
{
    free(side->logits);
    mf_sequence_close(side->sequence);
    mf_model_close(side->model);
    mf_engine_close(side->engine);
}

static void keep(void *user, size_t index, const float *logits)
{
    struct side *side = user;
    memcpy(side->logits + index * side->vocab_size, logits, side->vocab_size * sizeof(float));
}

static void side_run(struct side *side, const int32_t *ids)
{
    mf_error why = { 0 };
    size_t prompt = decode ? WINDOW / 2 : WINDOW;
    mf_sequence_clear(side->sequence);
    must(mf_sequence_feed_each(side->sequence, MF_PHASE_PROMPT, ids, prompt, keep, side, &why),
         &why);
    for (size_t i = prompt; i < WINDOW; i++) {
        must(mf_sequence_feed(side->sequence, MF_PHASE_GENERATED, ids + i, 1, &why), &why);
        keep(side, i, mf_sequence_logits(side->sequence));
    }
}

struct drift {
    double kl, worst_kl, agreeing, nll[2];
    size_t positions;
};

/* ln Σ e^x, and where the greatest x is. */
static double log_sum(const float *x, size_t n, size_t *greatest)
{
    double sum = 0;
    *greatest = 0;
    for (size_t i = 1; i < n; i++)
        if (x[i] > x[*greatest]) *greatest = i;
    for (size_t i = 0; i < n; i++) sum += exp((double)x[i] - (double)x[*greatest]);
    return log(sum) + (double)x[*greatest];
}

static void compare_position(struct drift *d, const float *expected, const float *found, size_t n,
                             int32_t next)
{
    size_t best[2];
    double total[2] = { log_sum(expected, n, &best[0]), log_sum(found, n, &best[1]) }, kl = 0;
    for (size_t i = 0; i < n; i++) {
        double p = (double)expected[i] - total[0], q = (double)found[i] - total[1];
        kl += exp(p) * (p - q);
    }
    d->kl += kl;
    d->worst_kl = fmax(d->worst_kl, kl);
    d->agreeing += best[0] == best[1];
    d->nll[0] += total[0] - (double)expected[next];
    d->nll[1] += total[1] - (double)found[next];
    d->positions++;
}

static int32_t *heldout_ids(const struct side *side, size_t *count)
{
    char path[PATH_CAPACITY], *text;
    size_t length;
    mf_error why = { 0 };
    must(file_read_whole_new(&text, &length, &files_posix,
                             source_path(path, "tests/fixtures/pebble/heldout.txt"), 1 << 20, &why),
         &why);
    int32_t *ids = malloc(length * sizeof *ids);
    assert_non_null(ids);
    must(mf_text_tokenize(mf_model_text(side->model), ids, length, count, text, length,
                          MF_SPECIAL_PARSE, &why),
         &why);
    free(text);
    return ids;
}

static void tuned_stays_near_the_reference(void **state)
{
    (void)state;
    struct side reference = { 0 }, tuned = { 0 };
    struct drift d = { 0 };
    size_t count;
    const struct limits *limits = all_limits[strcmp(kv_type, "q8") == 0];
    side_open(&reference, "reference", "f32");
    side_open(&tuned, backend_name, kv_type);
    int32_t *ids = heldout_ids(&reference, &count);
    for (size_t w = 0; w < window_count && (w + 1) * WINDOW < count; w++) {
        const int32_t *window = ids + w * WINDOW;
        side_run(&reference, window);
        side_run(&tuned, window);
        for (size_t i = decode ? WINDOW / 2 : 0; i < WINDOW; i++)
            compare_position(&d, reference.logits + i * reference.vocab_size,
                             tuned.logits + i * tuned.vocab_size, tuned.vocab_size, window[i + 1]);
    }
    double n = (double)d.positions, perplexity = exp((d.nll[1] - d.nll[0]) / n) - 1.0;
    print_message("    %s, %s with %s, %zu positions: KL %.2e (worst %.2e), top-1 %.2f%%, "
                  "perplexity %+.3f%%\n",
                  limits[decode].name, backend_name, kv_type, d.positions, d.kl / n, d.worst_kl,
                  100 * d.agreeing / n, 100 * perplexity);
    assert_true(d.kl / n <= limits[decode].kl);
    assert_true(d.agreeing / n >= limits[decode].agreement);
    if (window_count >= 8) assert_true(fabs(perplexity) <= limits[decode].perplexity);
    for (size_t i = 0; i < COUNT_OF(type_limits); i++) {
        if (strcmp(backend_name, "reference") != 0 || strcmp(kv_type, type_limits[i].kv_type) != 0)
            continue;
        assert_true(d.kl / n <= type_limits[i].kl);
        assert_true(d.agreeing / n >= type_limits[i].agreement);
    }
    free(ids);
    side_close(&reference);
    side_close(&tuned);
}

int main(int count, char **arguments)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(tuned_stays_near_the_reference) };
    if (count < 3 || count > 5) return 2;
    decode = strcmp(arguments[1], "decode") == 0;
    window_count = (size_t)atoi(arguments[2]);
    if (count > 3) kv_type = arguments[3];
    if (count > 4) backend_name = arguments[4];
    return cmocka_run_group_tests(tests, NULL, NULL);
}
