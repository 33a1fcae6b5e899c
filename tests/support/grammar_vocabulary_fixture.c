#include "support/grammar_vocabulary_fixture.h"

#include "sampling/random.h"

#include <stdio.h>
#include <stdlib.h>

static const char *const pieces[] = {
    "{\"",   "\":",   "\": ",     "\",",      "\", \"",       "\"}",
    "}}",    "]}",    "},",       "},{",      "[{",           "[[",
    "]]",    "[]",    "{}",       "[\"",      "\"]",          "null",
    "true",  "false", "tr",       "ue",       "fal",          "se",
    "nu",    "ll",    "name",     "age",      " the",         "and",
    "ing",   " a",    "12",       "123",      "0.",           ".5",
    "-1",    "00",    "e+",       "E-",       "\\n",          "\\\"",
    "\\u",   "\\u00", "\\\\",     "\xc3\xa9", "\xe4\xb8\xad", "\xf0\x9f\x98\x80",
    "a\xc3", "\xa9z", "\xe4\xb8", "\xad\"",   "\xf0\x9f",     "\x98\x80",
    "  ",    "\n  ",  "\n    ",   ": ",       ", ",           ",\n",
    "abc\"", "x\":",  "-0",       "10",       "99",           "2024",
    "-01",   "T12:",  "@",        ".com",
};

static void random_piece(struct test_vocabulary *fixture, size_t id, struct random *random)
{
    static const char alphabet[] = "abcdefgz019-+.eE\"\\{}[]:, \n\tu_/\xc3\xa9\xe4\xb8\xad";
    size_t length = 2 + random_next(random) % 7;
    for (size_t i = 0; i < length; i++)
        fixture->texts[id][i] = alphabet[random_next(random) % (sizeof alphabet - 1)];
    fixture->lengths[id] = length;
}

static const char *bytes_of(void *user, int32_t id, size_t *length)
{
    const struct test_vocabulary *fixture = user;
    *length = fixture->lengths[id];
    return fixture->texts[id];
}

void test_vocabulary_init(struct test_vocabulary *fixture, size_t count, uint64_t seed)
{
    *fixture = (struct test_vocabulary){ .count = count, .end_token = (int32_t)count - 1 };
    fixture->texts = calloc(count, sizeof *fixture->texts);
    fixture->lengths = calloc(count, sizeof *fixture->lengths);
    struct random random;
    random_seed(&random, seed);
    size_t id = 0;
    for (; id < 256; id++) {
        fixture->texts[id][0] = (char)id;
        fixture->lengths[id] = 1;
    }
    for (size_t i = 0; i < COUNT_OF(pieces); i++, id++) {
        fixture->lengths[id] = strlen(pieces[i]);
        memcpy(fixture->texts[id], pieces[i], fixture->lengths[id]);
    }
    for (; id < count; id++) random_piece(fixture, id, &random);
    memcpy(fixture->texts[count - 1], "<|end|>", 7);
    fixture->lengths[count - 1] = 7;

    struct vocabulary_source source = {
        .token_count = count,
        .bytes = bytes_of,
        .user = fixture,
        .end_tokens = &fixture->end_token,
        .end_count = 1,
    };
    mf_error why;
    if (grammar_vocabulary_new(&fixture->vocabulary, &allocator_heap, &source, &why) != MF_OK) {
        fprintf(stderr, "test vocabulary: %s\n", why.text);
        abort();
    }
}

void test_vocabulary_release(struct test_vocabulary *fixture)
{
    grammar_vocabulary_free(fixture->vocabulary);
    free(fixture->texts);
    free(fixture->lengths);
}

int32_t test_vocabulary_draw(const struct test_vocabulary *fixture, struct grammar_matcher *matcher,
                             struct random *random)
{
    const uint64_t *mask = matcher_mask(matcher);
    size_t start = random_next(random) % fixture->count;
    for (size_t i = 0; i < fixture->count; i++) {
        int32_t token = (int32_t)((start + i) % fixture->count);
        if (token != fixture->end_token && (mask[token / 64] >> (token % 64) & 1)) return token;
    }
    return -1;
}

static void require(bool holds, const char *what, const char *text, size_t length)
{
    if (holds) return;
    fprintf(stderr, "%s: %.*s\n", what, (int)length, text);
    abort();
}

size_t test_vocabulary_write(const struct test_vocabulary *fixture, struct grammar_matcher *matcher,
                             struct random *random, size_t count, char *out, size_t capacity)
{
    size_t length = 0;
    for (size_t i = 0; i < count && capacity - length > sizeof *fixture->texts; i++) {
        int32_t token = test_vocabulary_draw(fixture, matcher, random);
        if (token < 0) break;
        require(matcher_accept(matcher, token), "a token was refused after", out, length);
        memcpy(out + length, fixture->texts[token], fixture->lengths[token]);
        length += fixture->lengths[token];
    }
    size_t rest = matcher_closing_text(matcher, out + length, capacity - length);
    if (rest > capacity - length) return 0;
    require(matcher_accept_bytes(matcher, out + length, rest), "not closed", out, length + rest);
    require(matcher_is_complete(matcher), "not complete", out, length + rest);
    return length + rest;
}
