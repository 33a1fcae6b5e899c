/* Writes texts that the grammars of schemas.json allow: one JSON object per line,
 * {"schema": index, "limit": tokens, "text": …}, for an independent validator to judge.
 *
 *     generate schemas.json COUNT SEED
 *
 * Schemas of objects are also the parameters of a tool: its calls, in the syntax of every family,
 * go through the output parser, and the text is the arguments that it gives.
 *
 * Each text is made of random allowed tokens of a made-up vocabulary, through the sampler at
 * temperature 1.5 and with a random limit of tokens near which it must close. */
#include "base/arena.h"
#include "base/json.h"
#include "chat/constraint.h"
#include "grammar/matcher.h"
#include "grammar/schema.h"
#include "sampling/random.h"
#include "sampling/sampler.h"
#include "chat/output_family.h"
#include "support/grammar_vocabulary_fixture.h"
#include "support/one_call.h"

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

static void write_text(const char *bytes, size_t length, size_t schema, size_t limit)
{
    json_t *text = json_stringn(bytes, length); /* refuses what is not UTF-8 */
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
        write_text(g->text, g->length, index, limit);
    }
    grammar_matcher_free(matcher);
    grammar_free(grammar);
}

/* The arguments of the calls in generator->text. */
static void write_calls(const struct generator *g, const struct answer_form *form, size_t schema,
                        size_t limit)
{
    struct output_message message = { 0 };
    struct output_options options = {
        .family = form->family,
        .tools = form->tools,
        .sink = output_message_sink,
        .user = &message,
    };
    struct output_parser *parser;
    mf_error why;
    if (output_parser_new(&parser, &options, &why) != MF_OK ||
        output_parser_feed(parser, g->text, g->length, &why) != MF_OK ||
        output_parser_finish(parser, &why) != MF_OK)
        stop(form->family->name, &why);
    if (message.call_count == 0 || message.content.data) stop("a call was not read back", NULL);
    for (size_t i = 0; i < message.call_count; i++) {
        const struct output_call *call = &message.calls[i];
        if (!call->complete || strcmp(call->name, "f") != 0) stop("not the tool", NULL);
        write_text(call->arguments.data, call->arguments.count, schema, limit);
    }
    output_parser_free(parser);
    output_message_clear(&message);
}

/* What a tag per parameter cannot keep: see answer_grammar.h. */
static bool counts_properties(const json_t *schema)
{
    return json_object_get(schema, "minProperties") || json_object_get(schema, "maxProperties");
}

static void generate_calls(struct generator *g, const json_t *schema, size_t index, size_t count)
{
    const char *type = json_string_value(json_object_get(schema, "type"));
    mf_error why;
    if (!type || strcmp(type, "object") != 0) return;
    json_t *tools = json_pack("[{s:s,s:O}]", "name", "f", "parameters", schema);
    for (size_t i = 1; output_family_at(i); i++) { /* the first knows no calls */
        struct answer_form form = {
            .family = output_family_at(i),
            .tools = tools,
            .choice = TOOL_CHOICE_REQUIRED,
        };
        struct grammar *grammar;
        struct grammar_matcher *matcher = NULL;
        if (form.family->body == BODY_PARAMETERS && counts_properties(schema)) continue;
        if (answer_grammar_new(&grammar, &allocator_heap, &form, &why) != MF_OK ||
            grammar_matcher_new(&matcher, &allocator_heap, grammar, g->vocabulary.vocabulary, &why))
            stop(form.family->name, &why);
        size_t shortest = matcher_closing_tokens(matcher);
        for (size_t j = 0; j < count; j++) {
            size_t limit = shortest + random_next(&g->random) % (j % 2 ? 40 : 300);
            generate(g, matcher, limit);
            write_calls(g, &form, index, limit);
        }
        grammar_matcher_free(matcher);
        grammar_free(grammar);
    }
    json_decref(tools);
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
    size_t count = strtoull(arguments[2], NULL, 10);
    for (size_t i = 0; i < json_array_size(schemas); i++) {
        generate_all(g, json_array_get(schemas, i), i, count);
        generate_calls(g, json_array_get(schemas, i), i, count / 4);
    }
    sampler_free(g->sampler);
    test_vocabulary_release(&g->vocabulary);
    free(g->rows);
    free(g);
    json_decref(schemas);
    return 0;
}
