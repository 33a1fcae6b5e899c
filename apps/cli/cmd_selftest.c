/* `moeflux selftest`: is this checkpoint read right, and do the fast kernels agree?
 *
 * Not every published checkpoint can be part of the tests; this command checks one on the
 * user's machine.  The report is made to be pasted into a bug report. */
#include "command.h"
#include "opened.h"

#include "api/handles.h"
#include "backend/compare.h"
#include "base/status.h"

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

/* Operations may differ by rounding only; a wrong kernel is off by far more.  Products and
 * attention over prompts round to the 8 bits of bf16. */
#define OP_TOLERANCE   1e-3
#define BF16_TOLERANCE 2e-2

enum { COMPARED_ROWS = 48, DECODED_ROWS = 4 };

struct selftest_settings {
    struct common_settings common;
};

struct selftest {
    struct opened opened;
    struct token_list tokens;
    uint64_t *uses; /* [layers][experts] how often an expert was chosen */
    uint64_t rows;  /* routed, over all layers */
    double weight_error;
    bool weight_not_finite;
    unsigned problems;
};

static void problem(struct selftest *test, const char *sentence)
{
    printf("  PROBLEM: %s\n", sentence);
    test->problems++;
}

static const struct model_config *config_of(const struct selftest *test)
{
    return &test->opened.model->model.config;
}

/* ------------------------------------------------------------------- parts */

static void report_binding(const struct selftest *test)
{
    const struct model *m = &test->opened.model->model;
    size_t used = 0;
    for (size_t i = 0; i < m->directory.count; i++) used += m->directory.tensors[i].used;
    printf("model       %s\n", m->name);
    printf("family      %s: %u layers, width %u, %u experts, %u per token\n",
           mf_model_family(test->opened.model), m->config.layer_count, m->config.width,
           m->config.experts, m->config.experts_per_token);
    printf("binding     every weight is bound: %zu tensors used, %zu not needed, in %zu files\n",
           used, m->weights.ignored_count, m->directory.file_count);
}

static void see_routes(void *user, uint32_t layer, struct routes *routes, size_t rows)
{
    struct selftest *test = user;
    const struct model_config *c = config_of(test);
    for (size_t r = 0; r < rows; r++) {
        double sum = 0;
        for (uint32_t i = 0; i < routes->per_row; i++) {
            size_t pair = r * routes->per_row + i;
            test->uses[(size_t)layer * c->experts + routes->experts[pair]]++;
            sum += (double)routes->weights[pair];
        }
        if (!isfinite(sum)) test->weight_not_finite = true;
        double wanted = (double)c->routed_scale;
        if (c->renormalise) test->weight_error = fmax(test->weight_error, fabs(sum / wanted - 1));
        test->rows++;
    }
}

static void report_router(struct selftest *test)
{
    const struct model_config *c = config_of(test);
    size_t used = 0, layers = 0;
    double greatest = 0;
    for (uint32_t layer = 0; layer < c->layer_count; layer++) {
        uint64_t total = 0, most = 0;
        for (uint32_t e = 0; e < c->experts; e++) {
            uint64_t uses = test->uses[(size_t)layer * c->experts + e];
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
    if (test->weight_not_finite) problem(test, "router weights are not numbers");
    if (test->weight_error > 1e-3) problem(test, "the weights of a token do not add up");
    if (layers && used <= (size_t)c->experts_per_token * layers &&
        c->experts > c->experts_per_token)
        problem(test, "every token goes to the same experts");
}

/* OP_KINDS stands for the experts. */
static double tolerance_of(size_t kind)
{
    bool rounded = kind == OP_PROJECT || kind == OP_ADD_PROJECT || kind == OP_ATTEND ||
                   kind == OP_LATENT_ATTEND || kind == OP_KINDS;
    return rounded ? BF16_TOLERANCE : OP_TOLERANCE;
}

static void report_operations(struct selftest *test, const struct compare_backend *compare)
{
    printf("operations  reference against %s, largest error relative to the largest result\n",
           mf_engine_kernels(test->opened.engine));
    for (size_t i = 0; i < COMPARE_KINDS; i++) {
        const struct comparison *kind = &compare->kinds[i];
        if (kind->runs == 0) continue;
        printf("  %-18s %6llu runs  %.1e\n", compare_kind_name(i), (unsigned long long)kind->runs,
               kind->largest_error);
        if (kind->not_finite) problem(test, "it gives numbers that are not finite");
        if (kind->largest_error > tolerance_of(i)) problem(test, "the two disagree");
    }
    printf("  %llu of %llu rows were routed to other experts\n",
           (unsigned long long)compare->routes_different,
           (unsigned long long)compare->routes_compared);
}

/* Some rows as a prompt, then a few as generated ones: both kinds of arithmetic. */
static mf_status feed_both_ways(struct session *session, const struct token_list *tokens,
                                mf_error *why)
{
    size_t prompt = min_size(COMPARED_ROWS, tokens->count / 2 + 1);
    mf_status status = session_feed(
        session, &(struct session_feed){ MF_PHASE_PROMPT, tokens->ids, prompt, NULL, NULL }, why);
    for (size_t i = prompt; i < tokens->count && i < prompt + DECODED_ROWS && status == MF_OK; i++)
        status = session_feed(
            session, &(struct session_feed){ MF_PHASE_GENERATED, tokens->ids + i, 1, NULL, NULL },
            why);
    return status;
}

static mf_status compare_with(struct selftest *test, struct compare_backend *compare, mf_error *why)
{
    mf_model *model = test->opened.model;
    struct forward_parts parts = { .config = &model->model.config,
                                   .weights = &model->model.weights,
                                   .experts = model->experts,
                                   .backend = &compare->base };
    struct session_sizes sizes = { COMPARED_ROWS + DECODED_ROWS, COMPARED_ROWS };
    struct observer observer = { .user = test, .routes = see_routes };
    struct session session;
    mf_status status = session_init(&session, &test->opened.engine->allocator, &parts, sizes, why);
    if (status != MF_OK) return status;
    session.forward.observer = &observer;
    status = feed_both_ways(&session, &test->tokens, why);
    session_free(&session);
    return status;
}

/* Room for the buffers of any operation: three of the widest. */
static size_t widest_operation(const struct model_config *c)
{
    size_t wide =
        max_size((size_t)c->experts_per_token * c->width, 2 * (size_t)c->heads * c->head_width);
    wide = max_size(wide, max_size(c->dense_width, c->experts));
    wide = max_size(wide, (size_t)c->heads * c->value_width);
    if (c->delta_taps) wide = max_size(wide, config_delta_channels(c));
    return 3 * COMPARED_ROWS * wide + 2 * (size_t)c->vocab_size;
}

static mf_status compare_operations(struct selftest *test, mf_error *why)
{
    mf_engine *engine = test->opened.engine;
    const mf_allocator *allocator = &engine->allocator;
    struct backend *reference = NULL, *tested = NULL;
    struct compare_backend compare = { 0 };
    mf_status status = backend_cpu_new(&reference, allocator, engine->pool,
                                       kernels_select(&engine->machine, "generic"), true, why);
    if (status == MF_OK)
        status =
            backend_cpu_new(&tested, allocator, engine->pool, engine->kernels, engine->exact, why);
    if (status == MF_OK)
        status = compare_backend_init(&compare, allocator, reference, tested,
                                      widest_operation(config_of(test)), why);
    if (status == MF_OK) {
        status = compare_with(test, &compare, why);
        if (status == MF_OK) report_operations(test, &compare);
        compare_backend_free(&compare);
    }
    if (reference) reference->functions->free(reference);
    if (tested) tested->functions->free(tested);
    return status;
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
    const struct token_list *tokens = &test->tokens;
    struct score score = { .targets = tokens->ids + 1,
                           .count = tokens->count - 1,
                           .vocab_size = config_of(test)->vocab_size };
    mf_status status = mf_sequence_feed_each(test->opened.session, MF_PHASE_PROMPT, tokens->ids,
                                             tokens->count, add_position, &score, why);
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
    if (test->opened.model->text.tokenizer)
        return opened_tokenize(&test->tokens, &test->opened, text, sizeof text - 1, why);
    mf_status status = MF_OK;
    uint32_t vocab_size = config_of(test)->vocab_size;
    for (uint32_t i = 0; i < COMPARED_ROWS + DECODED_ROWS && status == MF_OK; i++)
        status = token_list_append(&test->tokens, (int32_t)(i * 7919u % vocab_size), why);
    return status;
}

static mf_status selftest(struct selftest *test, mf_error *why)
{
    const struct model_config *c = config_of(test);
    test->uses = calloc((size_t)c->layer_count * c->experts, sizeof *test->uses);
    if (!test->uses) return fail_memory(why, (size_t)c->layer_count * c->experts);
    report_binding(test);
    mf_status status = make_tokens(test, why);
    if (status == MF_OK) status = compare_operations(test, why);
    if (status == MF_OK) report_router(test);
    if (status == MF_OK && test->opened.model->text.tokenizer)
        status = report_perplexity(test, why);
    else if (status == MF_OK)
        printf("perplexity  not measured: the checkpoint has no tokenizer\n");
    return status;
}

static int run(const void *settings_, const struct arguments *arguments)
{
    struct selftest_settings settings = *(const struct selftest_settings *)settings_;
    struct selftest test = { 0 };
    mf_error why = { .text = "" };
    int code = EXIT_DONE;
    if (arguments->count > 0) settings.common.model = arguments->values[0];
    if (opened_open(&test.opened, &settings.common, &why) != MF_OK ||
        selftest(&test, &why) != MF_OK)
        code = report(&why);
    if (code == EXIT_DONE) {
        printf("program     moeflux %s\n", mf_version());
        printf("verdict     %s\n",
               test.problems ? "there are problems, see above" : "this checkpoint is read right");
        if (test.problems) code = EXIT_FAILED;
    }
    free(test.uses);
    token_list_free(&test.tokens);
    opened_close(&test.opened);
    return code;
}

const struct command command_selftest = {
    .name = "selftest",
    .summary = "is this checkpoint read right?",
    .arguments = "[MODEL]",
    .argument_limit = 1,
    .notes = "Binds every tensor, runs each operation on the plain kernels and on this machine's\n"
             "best ones and compares, looks at the routers, and measures the perplexity of a\n"
             "short built-in text. The report can be pasted into a bug report.",
    .examples = "  moeflux selftest\n"
                "  moeflux selftest Qwen/Qwen3-30B-A3B\n",
    .settings_bytes = sizeof(struct selftest_settings),
    .run = run,
};
