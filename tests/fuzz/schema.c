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

static void generate(struct grammar_matcher *matcher, struct random *random)
{
    static char text[1 << 16];
    size_t length = test_vocabulary_write(&vocabulary, matcher, random, 60, text, sizeof text);
    json_error_t problem;
    if (length == 0) return;
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
