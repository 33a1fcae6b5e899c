/* `moeflux selftest`: checks that a checkpoint is read correctly and that the tuned kernels agree
 * with the reference.
 *
 * Not every published checkpoint can be part of the tests; this command checks one on the
 * user's machine.  The report is made to be pasted into a bug report. */
#include "command.h"
#include "opened.h"
#include "selftest.h"

#include "common/basics.h"
#include "common/error.h"
#include "moeflux_tools.h"

#include <math.h>
#include <stdlib.h>

/* What any language model of our families has seen much like before. */
static const char text[] =
    "The river rises in the hills above the town and runs for forty miles to the sea. In spring, "
    "when the snow melts, it is deep and fast; by the end of summer a child can walk across it. "
    "People have lived along its banks for thousands of years. They built their houses from its "
    "stones, watered their fields from its streams, and told their children stories about the "
    "old woman who was said to live under the bridge. On market days the boats came up with the "
    "tide, carrying salt, cloth and news from other places, and went down again in the evening "
    "with cheese, apples and wool. Today there is a railway, and most of the boats are gone, but "
    "the river is still there, and so is the bridge.";

struct selftest_settings {
    struct common_settings common;
};

enum { TOKENS_MAX = sizeof text + 8 };

struct selftest {
    struct opened opened;
    mf_model_shape shape;
    int32_t tokens[TOKENS_MAX];
    size_t token_count;
    bool has_tokenizer;
    struct selftest_figures figures;
    unsigned problems;
};

static void problem(struct selftest *test, const char *sentence)
{
    printf("  PROBLEM: %s\n", sentence);
    test->problems++;
}

/* ------------------------------------------------------------------- parts */

static void report_binding(struct selftest *test)
{
    const mf_model_shape *shape = &test->shape;
    const struct selftest_figures *figures = &test->figures;
    selftest_count_binding(&test->figures, test->opened.model);
    printf("model       %s\n", mf_model_name(test->opened.model));
    printf("family      %s: %u layers, width %u, %u experts, %u per token\n",
           mf_model_family(test->opened.model), shape->layer_count, shape->width, shape->experts,
           shape->experts_per_token);
    printf("binding     every weight is bound: %zu tensors used, %zu not needed, in %zu files\n",
           figures->tensors_used, figures->tensors_not_needed, figures->file_count);
}

static void report_router(struct selftest *test)
{
    const mf_model_shape *c = &test->shape;
    size_t used = 0, layers = 0;
    double greatest = 0;
    for (uint32_t layer = 0; layer < c->layer_count; layer++) {
        uint64_t total = 0, most = 0;
        for (uint32_t e = 0; e < c->experts; e++) {
            uint64_t uses = test->figures.uses[(size_t)layer * c->experts + e];
            used += uses > 0;
            total += uses;
            if (uses > most) most = uses;
        }
        if (total == 0) continue;
        layers++;
        greatest = fmax(greatest, (double)most * c->experts_per_token / (double)total);
    }
    printf(
        "router      %zu layers, %.0f%% of the experts used, the busiest by %.0f%% of the tokens\n",
        layers, layers ? 100.0 * (double)used / ((double)layers * c->experts) : 0, 100 * greatest);
    if (test->figures.weight_not_finite) problem(test, "router weights are not numbers");
    if (test->figures.weight_error > 1e-3) problem(test, "the weights of a token do not add up");
    if (layers && used <= (size_t)c->experts_per_token * layers &&
        c->experts > c->experts_per_token)
        problem(test, "every token goes to the same experts");
}

static void report_operations(struct selftest *test)
{
    const struct selftest_figures *figures = &test->figures;
    printf("operations  reference against %s, largest error relative to the largest result\n",
           mf_engine_kernels(test->opened.engine));
    for (size_t i = 0; i < figures->operation_count; i++) {
        const struct selftest_operation *kind = &figures->operations[i];
        printf("  %-18s %6llu runs  %.1e\n", kind->name, (unsigned long long)kind->runs,
               kind->largest_error);
        if (kind->not_finite) problem(test, "it gives numbers that are not finite");
        if (kind->largest_error > kind->tolerance) problem(test, "the two disagree");
    }
    printf("  %llu of %llu rows were routed to other experts\n",
           (unsigned long long)figures->routes_different,
           (unsigned long long)figures->routes_compared);
}

/* -------------------------------------------------------------- perplexity */

struct score {
    const int32_t *targets;
    size_t count, vocab_size;
    double sum;
};

static void add_position(void *user, size_t index, const float *logits)
{
    struct score *score = user;
    if (index >= score->count) return;
    double largest = (double)logits[0], sum = 0;
    for (size_t i = 1; i < score->vocab_size; i++) largest = fmax(largest, (double)logits[i]);
    for (size_t i = 0; i < score->vocab_size; i++) sum += exp((double)logits[i] - largest);
    score->sum += log(sum) + largest - (double)logits[score->targets[index]];
}

static mf_status report_perplexity(struct selftest *test, mf_error *why)
{
    struct score score = { .targets = test->tokens + 1,
                           .count = test->token_count - 1,
                           .vocab_size = mf_model_vocab_size(test->opened.model) };
    mf_status status = mf_sequence_feed_each(test->opened.sequence, MF_PHASE_PROMPT, test->tokens,
                                             test->token_count, add_position, &score, why);
    if (status != MF_OK) return status;
    double perplexity = exp(score.sum / (double)score.count);
    printf("perplexity  %.2f over %zu tokens of plain English\n", perplexity, score.count);
    if (!isfinite(perplexity)) problem(test, "the logits are not numbers");
    /* Guessing blindly would give the size of the vocabulary. */
    if (perplexity > (double)score.vocab_size / 10)
        problem(test, "this is close to guessing: weights, their order or the tokenizer are off, "
                      "or the model is not trained");
    return MF_OK;
}

/* Without a tokenizer any ids will do for comparing operations. */
static mf_status make_tokens(struct selftest *test, mf_error *why)
{
    mf_status status =
        mf_text_tokenize(mf_model_text(test->opened.model), test->tokens, TOKENS_MAX,
                         &test->token_count, text, sizeof text - 1, MF_SPECIAL_PARSE, why);
    test->has_tokenizer = status != MF_ERR_UNSUPPORTED;
    if (test->has_tokenizer) return status;
    test->token_count = SELFTEST_PROMPT_ROWS + SELFTEST_DECODED_ROWS;
    for (uint32_t i = 0; i < test->token_count; i++)
        test->tokens[i] = (int32_t)(i * 7919u % mf_model_vocab_size(test->opened.model));
    return MF_OK;
}

static mf_status selftest(struct selftest *test, mf_error *why)
{
    mf_model *model = test->opened.model;
    mf_model_get_shape(&test->shape, model, NULL);
    size_t experts = (size_t)test->shape.layer_count * test->shape.experts;
    test->figures.uses = calloc(experts, sizeof *test->figures.uses);
    if (!test->figures.uses) return fail_memory(why, experts * sizeof *test->figures.uses);
    report_binding(test);
    mf_status status = make_tokens(test, why);
    if (status == MF_OK)
        status = selftest_compare(&test->figures, model, test->tokens, test->token_count, why);
    if (status != MF_OK) return status;
    report_operations(test);
    report_router(test);
    if (test->has_tokenizer) return report_perplexity(test, why);
    printf("perplexity  not measured: the checkpoint has no tokenizer\n");
    return MF_OK;
}

static int run(const void *settings_, const struct arguments *arguments)
{
    struct selftest_settings settings = *(const struct selftest_settings *)settings_;
    struct selftest test = { .shape = MF_MODEL_SHAPE_INIT };
    mf_error why = { .text = "" };
    int code = EXIT_DONE;
    if (arguments->count > 0) settings.common.model = arguments->values[0];
    if (opened_open(&test.opened, &settings.common, &why) != MF_OK ||
        selftest(&test, &why) != MF_OK)
        code = report(&why);
    if (code == EXIT_DONE) {
        printf("program     moeflux %s\n", mf_version());
        printf("verdict     %s\n", test.problems ? "there are problems, see above"
                                                 : "this checkpoint is read correctly");
        if (test.problems) code = EXIT_FAILED;
    }
    free(test.figures.uses);
    opened_close(&test.opened);
    return code;
}

const struct command command_selftest = {
    .name = "selftest",
    .summary = "check that a checkpoint is read correctly",
    .arguments = "[MODEL]",
    .argument_limit = 1,
    .notes = "Binds every tensor, compares each operation on the reference and on the tuned\n"
             "kernels, checks the routers, and measures the perplexity of a short built-in\n"
             "text. The report can be pasted into a bug report.",
    .examples = "  moeflux selftest\n"
                "  moeflux selftest Qwen/Qwen3-30B-A3B\n",
    .settings_bytes = sizeof(struct selftest_settings),
    .run = run,
};
