/* Any bytes as a grammar: refused, or compiled; then an answer is generated with it, its masks
 * are compared with single tokens, and it must close at its limit. */
#include "grammar/matcher.h"
#include "sampling/random.h"
#include "support/grammar_vocabulary_fixture.h"
#include "support/one_call.h"

#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct test_vocabulary vocabulary;

static void require(bool holds, const char *what)
{
    if (holds) return;
    fprintf(stderr, "fuzz_grammar: %s\n", what);
    abort();
}

static bool has_bit(const uint64_t *mask, int32_t token)
{
    return mask[token / 64] >> (token % 64) & 1;
}

/* A few tokens at random: what the mask allows is allowed.  (The mask of a grammar with very
 * many readings may be incomplete; unit/grammar.c holds ordinary ones to the whole.) */
static void check_mask(struct grammar_matcher *matcher, struct random *random)
{
    for (int i = 0; i < 8; i++) {
        int32_t token = (int32_t)(random_next(random) % vocabulary.count);
        if (has_bit(matcher_mask(matcher), token))
            require(matcher_allows(matcher, token), "the mask allows what is not allowed");
    }
}

static int32_t random_allowed(struct grammar_matcher *matcher, struct random *random)
{
    const uint64_t *mask = matcher_mask(matcher);
    int32_t start = (int32_t)(random_next(random) % vocabulary.count);
    for (size_t i = 0; i < vocabulary.count; i++) {
        int32_t token = (int32_t)(((size_t)start + i) % vocabulary.count);
        if (has_bit(mask, token)) return token;
    }
    return -1;
}

static void generate(struct grammar_matcher *matcher, struct random *random)
{
    for (int i = 0; i < 16 && !matcher_is_finished(matcher); i++) {
        check_mask(matcher, random);
        int32_t token = random_allowed(matcher, random);
        if (token < 0) break;
        require(matcher_accept(matcher, token), "a token of the mask was refused");
    }
    /* And now the shortest way, as long as it is one that a test can wait for. */
    static char text[1 << 10];
    size_t length = matcher_closing_text(matcher, text, sizeof text);
    if (length > sizeof text) return;
    require(matcher_accept_bytes(matcher, text, length), "the shortest way was refused");
    require(matcher_is_complete(matcher), "the shortest way does not end");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (!vocabulary.vocabulary) test_vocabulary_init(&vocabulary, 700, 1);
    struct grammar *grammar;
    struct grammar_matcher *matcher;
    mf_error why;
    if (grammar_parse_new(&grammar, &allocator_heap, (const char *)data, size, &why) != MF_OK)
        return 0;
    if (grammar_matcher_new(&matcher, &allocator_heap, grammar, vocabulary.vocabulary, &why) ==
        MF_OK) {
        struct random random;
        random_seed(&random, size);
        generate(matcher, &random);
        grammar_matcher_free(matcher);
    }
    grammar_free(grammar);
    return 0;
}
