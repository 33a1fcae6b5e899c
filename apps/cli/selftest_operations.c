/* selftest_operations.c: reaches inside the library, because a backend that computes everything
 * twice and compares is no part of its interface. */
#include "selftest.h"

#include "api/handles.h"
#include "backend/compare.h"
#include "base/status.h"

#include <math.h>

/* Operations may differ by rounding only; a wrong kernel is off by far more.  Products and
 * attention over prompts round to the 8 bits of bf16. */
#define OP_TOLERANCE   1e-3
#define BF16_TOLERANCE 2e-2

_Static_assert((int)COMPARE_KINDS <= (int)SELFTEST_KINDS_MAX, "a place for every kind");

/* One comparison. */
struct compared {
    struct selftest_figures *figures;
    const struct model_config *config;
    const struct weights *weights;
};

void selftest_count_binding(struct selftest_figures *figures, const mf_model *model)
{
    const struct tensor_directory *directory = &model->model.directory;
    figures->tensors_used = 0;
    for (size_t i = 0; i < directory->count; i++)
        figures->tensors_used += directory->tensors[i].used;
    figures->tensors_not_needed = model->model.weights.ignored_count;
    figures->file_count = directory->file_count;
}

static void see_routes(void *user, uint32_t layer, struct routes *routes, size_t rows)
{
    const struct compared *compared = user;
    struct selftest_figures *figures = compared->figures;
    const struct model_config *c = compared->config;
    const struct weight *scales =
        &compared->weights->layers[layer].weights[WEIGHT_EXPERT_SCALE]; /* of some families */
    for (size_t r = 0; r < rows; r++) {
        double sum = 0;
        for (uint32_t i = 0; i < routes->per_row; i++) {
            size_t pair = r * routes->per_row + i;
            figures->uses[(size_t)layer * c->experts + routes->experts[pair]]++;
            float scale = scales->values ? weight_vector(scales)[routes->experts[pair]] : 1.0f;
            sum += (double)routes->weights[pair] / (double)scale;
        }
        if (!isfinite(sum)) figures->weight_not_finite = true;
        double wanted = (double)c->routed_scale;
        if (c->renormalise)
            figures->weight_error = fmax(figures->weight_error, fabs(sum / wanted - 1));
    }
}

/* OP_KINDS stands for the experts. */
static double tolerance_of(size_t kind)
{
    bool rounded = kind == OP_PROJECT || kind == OP_ADD_PROJECT || kind == OP_ATTEND ||
                   kind == OP_LATENT_ATTEND || kind == OP_KINDS;
    return rounded ? BF16_TOLERANCE : OP_TOLERANCE;
}

static void take_figures(struct selftest_figures *figures, const struct compare_backend *compare)
{
    for (size_t i = 0; i < COMPARE_KINDS; i++) {
        const struct comparison *kind = &compare->kinds[i];
        if (kind->runs == 0) continue;
        figures->operations[figures->operation_count++] =
            (struct selftest_operation){ .name = compare_kind_name(i),
                                         .runs = kind->runs,
                                         .largest_error = kind->largest_error,
                                         .tolerance = tolerance_of(i),
                                         .not_finite = kind->not_finite };
    }
    figures->routes_compared = compare->routes_compared;
    figures->routes_different = compare->routes_different;
}

/* Some rows as a prompt, then a few as generated ones: both kinds of arithmetic. */
static mf_status feed_both_ways(struct engine_sequence *sequence, const int32_t *tokens,
                                size_t count, mf_error *why)
{
    size_t prompt = min_size(SELFTEST_PROMPT_ROWS, count / 2 + 1);
    struct feed feed = { .sequence = sequence, .tokens = tokens, .count = prompt, .why = why };
    engine_feed(&feed, 1);
    for (size_t i = prompt; i < count && i < prompt + SELFTEST_DECODED_ROWS; i++) {
        if (feed.status != MF_OK) break;
        feed = (struct feed){ .sequence = sequence,
                              .phase = MF_PHASE_GENERATED,
                              .tokens = tokens + i,
                              .count = 1,
                              .why = why };
        engine_feed(&feed, 1);
    }
    return feed.status;
}

static mf_status compare_with(struct compare_backend *compare, struct selftest_figures *figures,
                              mf_model *model, const int32_t *tokens, size_t count, mf_error *why)
{
    struct forward_parts parts = { .allocator = &model->engine->allocator,
                                   .config = &model->model.config,
                                   .weights = &model->model.weights,
                                   .experts = model->experts,
                                   .backend = &compare->base };
    struct engine_room_sizes sizes = { SELFTEST_PROMPT_ROWS + SELFTEST_DECODED_ROWS,
                                       SELFTEST_PROMPT_ROWS, 1 };
    struct compared compared = { figures, &model->model.config, &model->model.weights };
    struct observer observer = { .user = &compared, .routes = see_routes };
    struct engine_room room = { 0 };
    struct engine_sequence sequence = { 0 };
    mf_status status = engine_room_init(&room, &parts, sizes, why);
    if (status == MF_OK) {
        engine_sequence_init(&sequence, &room, sizes);
        sequence.observer = &observer;
        status = feed_both_ways(&sequence, tokens, count, why);
        engine_sequence_free(&sequence);
    }
    engine_room_free(&room);
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
    return 3 * SELFTEST_PROMPT_ROWS * wide + 2 * (size_t)c->vocab_size;
}

mf_status selftest_compare(struct selftest_figures *figures, mf_model *model, const int32_t *tokens,
                           size_t count, mf_error *why)
{
    mf_engine *engine = model->engine;
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
                                      widest_operation(&model->model.config), why);
    if (status == MF_OK) {
        status = compare_with(&compare, figures, model, tokens, count, why);
        if (status == MF_OK) take_figures(figures, &compare);
        compare_backend_free(&compare);
    }
    if (reference) reference->functions->free(reference);
    if (tested) tested->functions->free(tested);
    return status;
}
