/* router_ties.c FILE LOGITS: single prompts on which another engine computes something else.
 *
 * LOGITS has the other engine's last logits of 20 prompts on the GGUF file (gguf_peer.py).  It
 * rounds activations, and where two experts are nearly equal it may take the other one.  So a
 * prompt whose logits are not close must have such ties: exchanging the last expert taken with
 * the first left out, in layers where the two are nearly equal for the last token, must give the
 * other engine's logits.  Anything else is a bug. */
#include "api/handles.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { PROMPTS = 20, TOKENS_MAX = 4 + 3 * PROMPTS, LAYERS_MAX = 8, EXPERTS_MAX = 64 };

#define CLOSE 0.999 /* cosine */
#define TIE   0.02  /* between two experts, in logits (or scores, where those are sigmoids) */

struct search {
    mf_model *model;
    mf_sequence *sequence;
    size_t last_row;
    unsigned exchanged;      /* a bit for every layer */
    double gaps[LAYERS_MAX]; /* of the last token, as found; infinite: no experts */
};

static struct search search;

static void must(mf_status status, const mf_error *why)
{
    if (status == MF_OK) return;
    fprintf(stderr, "%s\n", why->text);
    exit(1);
}

/* ------------------------------------------------------------------- routing */

/* What the router chooses by, and what the weights are made of. */
static void score_experts(double *choice, double *scores, uint32_t layer)
{
    const struct forward *f = &search.sequence->model->room.forward;
    const struct model_config *c = f->config;
    const struct weight *weights = f->weights->layers[layer].weights;
    const float *x = f->shared[SHARED_ROUTED] + search.last_row * c->width;
    float *row = malloc(c->width * sizeof *row);
    double sum = 0;
    if (!row) abort();
    for (uint32_t e = 0; e < c->experts; e++) {
        weight_dequantise_row(row, &weights[WEIGHT_ROUTER], e);
        choice[e] = 0;
        for (uint32_t i = 0; i < c->width; i++) choice[e] += (double)row[i] * (double)x[i];
        scores[e] = exp(choice[e]);
        sum += scores[e];
        if (c->router != ROUTER_SIGMOID) continue;
        scores[e] = 1 / (1 + exp(-choice[e]));
        choice[e] = scores[e] + (double)weight_vector(&weights[WEIGHT_ROUTER_BIAS])[e];
    }
    for (uint32_t e = 0; e < c->experts && c->router != ROUTER_SIGMOID; e++) scores[e] /= sum;
    free(row);
}

static bool is_chosen(const uint32_t *ids, uint32_t count, uint32_t expert)
{
    for (uint32_t i = 0; i < count; i++)
        if (ids[i] == expert) return true;
    return false;
}

/* The last taken and the first left out; how far they are apart. */
static double find_pair(uint32_t *taken, uint32_t *left, const double *choice, const uint32_t *ids,
                        uint32_t per_row)
{
    double lowest = INFINITY, highest = -INFINITY;
    for (uint32_t e = 0; e < search.model->model.config.experts; e++) {
        bool chosen = is_chosen(ids, per_row, e);
        if (chosen && choice[e] < lowest) lowest = choice[ *taken = e];
        if (!chosen && choice[e] > highest) highest = choice[ *left = e];
    }
    return lowest - highest;
}

static int compare_ids(const void *a, const void *b)
{
    const uint32_t *left = a, *right = b;
    return *left < *right ? -1 : *left > *right;
}

static void exchange(uint32_t *ids, float *weights, const double *scores, uint32_t taken,
                     uint32_t left)
{
    const struct model_config *c = &search.model->model.config;
    double sum = 0;
    for (uint32_t i = 0; i < c->experts_per_token; i++)
        if (ids[i] == taken) ids[i] = left;
    qsort(ids, c->experts_per_token, sizeof *ids, compare_ids);
    for (uint32_t i = 0; i < c->experts_per_token; i++) sum += scores[ids[i]];
    for (uint32_t i = 0; i < c->experts_per_token; i++)
        weights[i] = (float)((c->renormalise ? scores[ids[i]] / sum : scores[ids[i]]) *
                             (double)c->routed_scale);
}

static void see_routes(void *user, uint32_t layer, struct routes *routes, size_t rows)
{
    (void)user;
    (void)rows;
    double choice[EXPERTS_MAX], scores[EXPERTS_MAX];
    size_t first = search.last_row * routes->per_row;
    uint32_t taken = 0, left = 0;
    score_experts(choice, scores, layer);
    search.gaps[layer] = find_pair(&taken, &left, choice, routes->experts + first, routes->per_row);
    if (search.exchanged >> layer & 1)
        exchange(routes->experts + first, routes->weights + first, scores, taken, left);
}

static const struct observer observing = { .routes = see_routes };

/* ------------------------------------------------------------------- prompts */

static double cosine(const float *a, const float *b, size_t count)
{
    double dot = 0, aa = 0, bb = 0;
    for (size_t i = 0; i < count; i++) {
        dot += (double)a[i] * (double)b[i];
        aa += (double)a[i] * (double)a[i];
        bb += (double)b[i] * (double)b[i];
    }
    return dot / sqrt(aa * bb);
}

/* Cosine with the expected logits, with the experts of some layers exchanged. */
static double run(const int32_t *ids, size_t count, unsigned exchanged, const float *expected)
{
    mf_error why = { 0 };
    mf_sequence_options options = { .struct_size = sizeof options,
                                    .context_length = TOKENS_MAX,
                                    .chunk_rows = TOKENS_MAX };
    must(mf_sequence_open(&search.sequence, search.model, &options, &why), &why);
    search.sequence->sequence.observer = &observing;
    search.last_row = count - 1;
    search.exchanged = exchanged;
    for (size_t i = 0; i < LAYERS_MAX; i++) search.gaps[i] = INFINITY;
    must(mf_sequence_feed(search.sequence, MF_PHASE_PROMPT, ids, count, &why), &why);
    double found =
        cosine(mf_sequence_logits(search.sequence), expected, mf_model_vocab_size(search.model));
    mf_sequence_close(search.sequence);
    return found;
}

/* Whether exchanging ties, and nothing but ties, makes the logits close. */
static bool explain(const int32_t *ids, size_t count, const float *expected)
{
    uint32_t layers = search.model->model.config.layer_count;
    for (unsigned mask = 1; mask < 1u << layers; mask++) {
        double found = run(ids, count, mask, expected);
        bool ties = true;
        for (uint32_t i = 0; i < layers; i++)
            if (mask >> i & 1 && !(search.gaps[i] <= TIE)) ties = false;
        if (!ties || found < CLOSE) continue;
        printf("    %.6f with the other expert of a tie", found);
        for (uint32_t i = 0; i < layers; i++)
            if (mask >> i & 1) printf(", layer %u: %.4f apart", i, search.gaps[i]);
        printf("\n");
        return true;
    }
    return false;
}

static int check_prompts(FILE *logits)
{
    size_t vocab_size = mf_model_vocab_size(search.model);
    float *expected = malloc(vocab_size * sizeof *expected);
    uint32_t state = 12345;
    int unexplained = 0;
    for (size_t p = 0; p < PROMPTS && expected; p++) {
        int32_t ids[TOKENS_MAX];
        size_t count = 4 + 3 * p;
        for (size_t i = 0; i < count; i++) {
            state = state * 1664525u + 1013904223u;
            ids[i] = (int32_t)((state >> 8) % 500);
        }
        if (fread(expected, sizeof *expected, vocab_size, logits) != vocab_size) abort();
        double found = run(ids, count, 0, expected);
        if (found >= CLOSE) continue;
        printf("prompt %zu of %zu tokens: cosine %.6f\n", p, count, found);
        if (explain(ids, count, expected)) continue;
        printf("    and no tie between experts explains it\n");
        unexplained++;
    }
    free(expected);
    return unexplained;
}

int main(int count, char **arguments)
{
    mf_error why = { 0 };
    mf_engine *engine;
    mf_engine_options options = { .struct_size = sizeof options,
                                  .backend = "reference",
                                  .thread_count = 2 };
    if (count != 3) return 2;
    FILE *logits = fopen(arguments[2], "rb");
    if (!logits) {
        perror(arguments[2]);
        return 1;
    }
    must(mf_engine_open(&engine, &options, &why), &why);
    must(mf_model_open(&search.model, engine, arguments[1], NULL, &why), &why);
    const struct model_config *c = &search.model->model.config;
    int unexplained =
        c->layer_count <= LAYERS_MAX && c->experts <= EXPERTS_MAX ? check_prompts(logits) : 1;
    mf_model_close(search.model);
    mf_engine_close(engine);
    fclose(logits);
    return unexplained > 0;
}
