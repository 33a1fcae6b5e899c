/* grammar_vocabulary_fixture.h: a made-up vocabulary for grammar tests.
 *
 * Ids 0-255 are the single bytes; then come pieces of JSON, words, characters cut in the
 * middle and characters joined across boundaries, random strings over a small alphabet up
 * to `count`; the last id is the end token. */
#ifndef SUPPORT_GRAMMAR_VOCABULARY_FIXTURE_H
#define SUPPORT_GRAMMAR_VOCABULARY_FIXTURE_H

#include "grammar/matcher.h"
#include "grammar/vocabulary.h"
#include "sampling/random.h"

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

/* A token that the matcher allows, other than the end token, at random; -1: there is none. */
int32_t test_vocabulary_draw(const struct test_vocabulary *fixture, struct grammar_matcher *matcher,
                             struct random *random);

/* Up to `count` such tokens, and then the shortest way to the end: the text into out[capacity] and
 * its length.  0: it would be too long; aborts where the matcher refuses what it allowed. */
size_t test_vocabulary_write(const struct test_vocabulary *fixture, struct grammar_matcher *matcher,
                             struct random *random, size_t count, char *out, size_t capacity);

#endif
