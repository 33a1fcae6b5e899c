/* read_ahead.c: how much of what a layer will choose does its router know one layer before?
 *
 * Pebble reads its held-out text token by token.  When a layer has chosen, the next one's
 * router is applied to the state at hand, as the engine does when it predicts; as many
 * experts as that layer will have must contain at least 70% of them. */
#include "support/test.h"

#include "api/handles.h"

#include <stdio.h>
#include <stdlib.h>

enum { TOKENS = 200, PER_TOKEN_MAX = 16 };

static struct forward *forward;
static float *scratch; /* the recipe's own, for the step's is in use */
static uint32_t predicted[PER_TOKEN_MAX];
static bool known; /* `predicted` is for the layer that comes next */
static uint64_t chosen, foreseen;

static void must(mf_status status, const mf_error *why)
{
    if (status != MF_OK) fail_msg("%s (%s)", why->text, why->origin);
}

static void predict(uint32_t layer)
{
    const struct recipe *recipe = &forward->recipes.predict;
    float *buffers[GRAPH_BUFFERS_MAX], weights[PER_TOKEN_MAX];
    mf_error why = { 0 };
    struct routes routes = { predicted, weights, forward->config->experts_per_token };
    buffers_place(buffers, &recipe->plan, &recipe->graph, forward->shared, scratch,
                  forward->row_capacity);
    struct frame frame = { .row_count = 1,
                           .rows = forward->rows,
                           .spans = forward->spans,
                           .span_count = 1,
                           .slots = forward->weights->layers[layer].slots,
                           .buffers = buffers,
                           .routes = &routes };
    struct backend *backend = forward->backend;
    must(backend->functions->execute(backend, &recipe->graph, &frame, &why), &why);
}

static void see_routes(void *user, uint32_t layer, struct routes *routes, size_t rows)
{
    (void)user;
    assert_int_equal(rows, 1);
    for (uint32_t i = 0; known && i < routes->per_row; i++)
        for (uint32_t j = 0; j < routes->per_row; j++)
            foreseen += routes->experts[i] == predicted[j];
    chosen += known ? routes->per_row : 0;
    known = layer + 1 < forward->config->layer_count;
    if (known) predict(layer + 1);
}

static void the_next_router_knows_most(void **state)
{
    (void)state;
    const struct observer looking_on = { .routes = see_routes };
    const char *source = getenv("MOEFLUX_SOURCE");
    char path[PATH_CAPACITY], *text;
    size_t length, count;
    mf_engine *engine;
    mf_model *model;
    mf_session *session;
    mf_session_options options = { .context_length = TOKENS, .chunk_rows = 1 };
    mf_error why = { 0 };
    snprintf(path, sizeof path, "%s/models/pebble", source);
    must(mf_engine_open(&engine, NULL, &why), &why);
    must(mf_model_open(&model, engine, path, NULL, &why), &why);
    must(mf_session_open(&session, model, &options, &why), &why);
    snprintf(path, sizeof path, "%s/tests/fixtures/pebble/heldout.txt", source);
    must(file_read_whole_new(&text, &length, &files_posix, path, 1 << 20, &why), &why);
    int32_t *ids = calloc(length + 1, sizeof *ids);
    must(mf_model_tokenize(model, ids, length, &count, text, length, MF_SPECIAL_PARSE, &why), &why);
    assert_true(count > TOKENS);
    forward = &session->session.forward;
    scratch = calloc(forward->row_capacity * forward->recipes.scratch_width + 1, sizeof *scratch);
    forward->observer = &looking_on;
    for (size_t i = 0; i < TOKENS; i++) must(mf_session_feed(session, &ids[i], 1, &why), &why);
    double recall = (double)foreseen / (double)chosen;
    print_message("    %.1f%% of %llu choices\n", 100 * recall, (unsigned long long)chosen);
    assert_true(recall >= 0.70);
    free(scratch);
    free(ids);
    free(text);
    mf_session_close(session);
    mf_model_close(model);
    mf_engine_close(engine);
}

int main(void)
{
    if (!getenv("MOEFLUX_SOURCE")) {
        fprintf(stderr, "SKIPPED: needs MOEFLUX_SOURCE\n");
        return EXIT_SKIPPED;
    }
    const struct CMUnitTest tests[] = { cmocka_unit_test(the_next_router_knows_most) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
