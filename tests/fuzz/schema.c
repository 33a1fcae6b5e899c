/* Any bytes as a JSON Schema: refused, or compiled; what is then generated must be JSON. */
#include "grammar/matcher.h"
#include "grammar/schema.h"
#include "sampling/random.h"
#include "support/grammar_vocabulary_fixture.h"
#include "support/one_call.h"

#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct test_vocabulary vocabulary;

static void require(bool holds, const char *what, const char *text, size_t length)
{
    if (holds) return;
    fprintf(stderr, "fuzz_json_schema: %s: %.*s\n", what, (int)length, text);
    abort();
}

static int32_t random_allowed(struct grammar_matcher *matcher, struct random *random)
{
    const uint64_t *mask = matcher_mask(matcher);
    int32_t start = (int32_t)(random_next(random) % vocabulary.count);
    for (size_t i = 0; i < vocabulary.count; i++) {
        int32_t token = (int32_t)(((size_t)start + i) % vocabulary.count);
        if (token != vocabulary.end_token && (mask[token / 64] >> (token % 64) & 1)) return token;
    }
    return -1;
}

static void generate(struct grammar_matcher *matcher, struct random *random)
{
    static char text[1 << 16];
    size_t length = 0;
    for (int i = 0; i < 60; i++) {
        int32_t token = random_allowed(matcher, random);
        if (token < 0) break;
        require(matcher_accept(matcher, token), "a token was refused after", text, length);
        memcpy(text + length, vocabulary.texts[token], vocabulary.lengths[token]);
        length += vocabulary.lengths[token];
    }
    size_t rest = matcher_closing_text(matcher, text + length, sizeof text - length);
    if (rest > sizeof text - length) return;
    require(matcher_accept_bytes(matcher, text + length, rest), "not closed", text, length + rest);
    length += rest;
    json_error_t problem;
    json_t *value = json_loadb(text, length, JSON_DECODE_ANY, &problem);
    require(value != NULL, problem.text, text, length);
    json_decref(value);
}

static void ignore(void *user, const char *sentence)
{
    (void)user;
    (void)sentence;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (!vocabulary.vocabulary) test_vocabulary_init(&vocabulary, 700, 1);
    struct grammar *grammar;
    struct grammar_matcher *matcher;
    struct json_schema_options options = { .lenient = size % 2, .note = ignore };
    if (json_schema_parse_new(&grammar, &allocator_heap, (const char *)data, size, &options, NULL))
        return 0;
    if (grammar_matcher_new(&matcher, &allocator_heap, grammar, vocabulary.vocabulary, NULL) ==
        MF_OK) {
        struct random random;
        random_seed(&random, size);
        generate(matcher, &random);
        grammar_matcher_free(matcher);
    }
    grammar_free(grammar);
    return 0;
}
