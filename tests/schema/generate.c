/* Writes texts that the grammars of schemas.json allow: one JSON object per line,
 * {"schema": index, "limit": tokens, "text": …}, for an independent validator to judge.
 *
 *     generate schemas.json COUNT SEED
 *
 * Each text is made of random allowed tokens of a made-up vocabulary, through the sampler at
 * temperature 1.5 and with a random limit of tokens near which it must close. */
#include "base/arena.h"
#include "base/json.h"
#include "engine/grammar_matcher.h"
#include "engine/json_schema.h"
#include "engine/random.h"
#include "engine/sampler.h"
#include "support/grammar_vocabulary_fixture.h"

#include <stdio.h>
#include <stdlib.h>

enum { TOKENS = 6000, TEXT_BYTES = 1 << 16, ROWS = 32 };

struct generator {
    struct test_vocabulary vocabulary;
    struct sampler *sampler;
    struct random random;
    float (*rows)[TOKENS]; /* [ROWS] */
    char text[TEXT_BYTES];
    size_t length;
};

static void stop(const char *what, const mf_error *why)
{
    fprintf(stderr, "%s: %s\n", what, why ? why->text : "failed");
    exit(1);
}

/* One text of at most `limit` tokens into generator->text. */
static void generate(struct generator *g, struct grammar_matcher *matcher, size_t limit)
{
    matcher_reset(matcher);
    g->length = 0;
    for (size_t left = limit; left > 0 && !matcher_is_finished(matcher); left--) {
        const float *logits = g->rows[random_next(&g->random) % ROWS];
        int32_t token = matcher_pick(matcher, g->sampler, logits, left);
        if (token < 0 || !matcher_accept(matcher, token)) stop("no token fits", NULL);
        if (token == g->vocabulary.end_token) break;
        size_t length = g->vocabulary.lengths[token];
        if (g->length + length > TEXT_BYTES) stop("a text is too long", NULL);
        memcpy(g->text + g->length, g->vocabulary.texts[token], length);
        g->length += length;
    }
    if (!matcher_is_complete(matcher)) stop("a text did not close at its limit", NULL);
}

static void write_text(const struct generator *g, size_t schema, size_t limit)
{
    json_t *text = json_stringn(g->text, g->length); /* refuses what is not UTF-8 */
    if (!text) stop("a text is not UTF-8", NULL);
    json_t *line =
        json_pack("{s:i,s:i,s:o}", "schema", (int)schema, "limit", (int)limit, "text", text);
    if (!line || json_dumpf(line, stdout, JSON_COMPACT) != 0) stop("writing", NULL);
    putchar('\n');
    json_decref(line);
}

static void generate_all(struct generator *g, const json_t *schema, size_t index, size_t count)
{
    struct grammar *grammar;
    struct grammar_matcher *matcher;
    mf_error why;
    char name[32];
    snprintf(name, sizeof name, "schema %zu", index);
    if (json_schema_grammar_new(&grammar, &allocator_heap, schema, NULL, &why) != MF_OK)
        stop(name, &why);
    if (grammar_matcher_new(&matcher, &allocator_heap, grammar, g->vocabulary.vocabulary, &why))
        stop(name, &why);
    size_t shortest = matcher_closing_tokens(matcher);
    for (size_t i = 0; i < count; i++) {
        /* The tightest limits most often; some with much room. */
        size_t room = i % 4 == 3 ? 400 : i % 4 * 20;
        size_t limit = shortest + (room ? random_next(&g->random) % room : 0);
        generate(g, matcher, limit);
        write_text(g, index, limit);
    }
    grammar_matcher_free(matcher);
    grammar_free(grammar);
}

int main(int argument_count, char **arguments)
{
    if (argument_count != 4) {
        fprintf(stderr, "usage: generate schemas.json COUNT SEED\n");
        return 2;
    }
    json_error_t problem;
    json_t *schemas = json_load_file(arguments[1], 0, &problem);
    if (!json_is_array(schemas)) stop(arguments[1], NULL);
    struct generator *g = calloc(1, sizeof *g);
    if (!g) return 1;
    random_seed(&g->random, strtoull(arguments[3], NULL, 10));
    test_vocabulary_init(&g->vocabulary, TOKENS, 3);
    g->rows = calloc(ROWS, sizeof *g->rows);
    for (size_t row = 0; row < ROWS; row++)
        for (size_t i = 0; i < TOKENS; i++) g->rows[row][i] = 6.0f * (float)random_unit(&g->random);
    struct sampler_options options;
    mf_error why;
    sampler_options_default(&options);
    options.temperature = 1.5f;
    options.seed = random_next(&g->random);
    if (sampler_new(&g->sampler, &allocator_heap, &options, TOKENS, TOKENS, &why) != MF_OK)
        stop("sampler", &why);
    for (size_t i = 0; i < json_array_size(schemas); i++)
        generate_all(g, json_array_get(schemas, i), i, strtoull(arguments[2], NULL, 10));
    sampler_free(g->sampler);
    test_vocabulary_release(&g->vocabulary);
    free(g->rows);
    free(g);
    json_decref(schemas);
    return 0;
}
