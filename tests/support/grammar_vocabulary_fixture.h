/* grammar_vocabulary_fixture.h: a made-up vocabulary for grammar tests.
 *
 * Ids 0-255 are the single bytes; then come pieces of JSON, words, characters cut in the
 * middle and characters joined across boundaries, random strings over a small alphabet up
 * to `count`; the last id is the end token. */
#ifndef SUPPORT_GRAMMAR_VOCABULARY_FIXTURE_H
#define SUPPORT_GRAMMAR_VOCABULARY_FIXTURE_H

#include "grammar/vocabulary.h"

struct test_vocabulary {
    struct grammar_vocabulary *vocabulary;
    char (*texts)[16]; /* [count] */
    size_t *lengths;   /* [count] */
    size_t count;
    int32_t end_token;
};

/* `count` ≥ 400 tokens, the same for the same seed. */
void test_vocabulary_init(struct test_vocabulary *fixture, size_t count, uint64_t seed);
void test_vocabulary_release(struct test_vocabulary *fixture);

#endif
