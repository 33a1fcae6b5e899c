/* Grammars: what they accept, what the compiler refuses and where, masks against trying every
 * token, and answers that close at the limit. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "base/arena.h"
#include "grammar/code_ranges.h"
#include "grammar/matcher.h"
#include "sampling/random.h"
#include "sampling/sampler.h"
#include "support/failing_allocator.h"
#include "support/grammar_vocabulary_fixture.h"
#include "support/one_call.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static struct test_vocabulary vocabulary;

static const char json_grammar[] =
    "root   ::= object\n"
    "value  ::= object | array | string | number | (\"true\" | \"false\" | \"null\") ws\n"
    "object ::= \"{\" ws (string \":\" ws value (\",\" ws string \":\" ws value)*)? \"}\" ws\n"
    "array  ::= \"[\" ws (value (\",\" ws value)*)? \"]\" ws\n"
    "string ::= \"\\\"\" ([^\"\\\\\\x00-\\x1f] | \"\\\\\" ([\"\\\\/bfnrt] | \"u\" "
    "[0-9a-fA-F]{4}))* "
    "\"\\\"\" ws\n"
    "number ::= \"-\"? (\"0\" | [1-9] [0-9]*) (\".\" [0-9]+)? ([eE] [-+]? [0-9]+)? ws\n"
    "ws     ::= [ \\t\\n]*\n";

static struct grammar *parse(const char *text)
{
    struct grammar *grammar;
    mf_error why;
    if (grammar_parse_new(&grammar, &allocator_heap, text, strlen(text), &why) != MF_OK)
        fail_msg("%s: %s", text, why.text);
    return grammar;
}

static struct grammar_matcher *open_matcher(const struct grammar *grammar)
{
    struct grammar_matcher *matcher;
    mf_error why;
    if (grammar_matcher_new(&matcher, &allocator_heap, grammar, vocabulary.vocabulary, &why))
        fail_msg("%s", why.text);
    return matcher;
}

static bool accepts(struct grammar_matcher *matcher, const char *text, size_t length)
{
    matcher_reset(matcher);
    return matcher_accept_bytes(matcher, text, length) && matcher_is_complete(matcher);
}

/* ------------------------------------------------------------------- tables */

static void texts_are_accepted_or_not(void **state)
{
    (void)state;
    static const struct {
        const char *grammar;
        const char *yes[8], *no[8];
    } cases[] = {
        { "root ::= \"abc\"", { "abc" }, { "", "ab", "abcd", "abd" } },
        { "root ::= \"\"", { "" }, { "a" } },
        { "root ::= \"a\" | \"bc\" | \"\"", { "a", "bc", "" }, { "b", "abc" } },
        { "root ::= [a-c]+", { "a", "abcabc" }, { "", "d", "abd" } },
        { "root ::= [^a-c]", { "d", "\xc3\xa9", "\xf0\x9f\x98\x80", "\n" }, { "a", "\xff", "dd" } },
        { "root ::= .",
          { "x", "\xe4\xb8\xad", "\xf4\x8f\xbf\xbf" },
          { "\xed\xa0\x80", "\xc0\x80", "\xf4\x90\x80\x80", "\xe4\xb8", "\x80" } },
        { "root ::= [\xc3\xa0-\xc3\xbf]", { "\xc3\xa9" }, { "e", "\xc3\x9f", "\xc3" } },
        { "root ::= [\\u4e00-\\u9fff]{2}",
          { "\xe4\xb8\xad\xe6\x96\x87" },
          { "\xe4\xb8\xad", "ab", "\xe4\xb8\xad\xe6\x96\x87\xe4\xb8\xad" } },
        { "root ::= \"\\x41\\u00e9\\U0001f600\\n\\\"\\\\\"",
          { "A\xc3\xa9\xf0\x9f\x98\x80\n\"\\" },
          { "A" } },
        { "root ::= [\\]\\-^x]+", { "]-^x" }, { "\\" } },
        { "root ::= [a-]+", { "a-a" }, { "b" } },
        { "root ::= \"a\"{3}", { "aaa" }, { "aa", "aaaa" } },
        { "root ::= \"a\"{2,}", { "aa", "aaaaa" }, { "a", "" } },
        { "root ::= \"a\"{2,4}", { "aa", "aaa", "aaaa" }, { "a", "aaaaa" } },
        { "root ::= \"a\"{,2} \"b\"", { "b", "ab", "aab" }, { "aaab", "aa" } },
        { "root ::= (\"a\" | \"b\")* \"c\"?", { "", "abba", "abc", "c" }, { "cc", "ca" } },
        { "root ::= ((\"a\"*)*)* \"b\"", { "b", "aaab" }, { "a" } },
        { "root ::= ((\"a\"+)+)? \"b\"", { "b", "aaab" }, { "a" } },
        { "root ::= (\"a\"?){2,3} \"b\"", { "b", "ab", "aaab" }, { "aaaab" } },
        { "root ::= (\"a\"{1,2}){2,3}", { "aa", "aaa", "aaaaaa" }, { "a", "aaaaaaa" } },
        { "root ::= (\"a\"{2,3}){2}", { "aaaa", "aaaaa", "aaaaaa" }, { "aaa", "aaaaaaa" } },
        { "root ::= (\"a\"{2}){0,2}", { "", "aa", "aaaa" }, { "a", "aaa" } },
        { "root ::= x y # comment\nx ::= \"1\"\n  | \"2\"\ny ::= x | \"3\"",
          { "11", "23" },
          { "31", "1" } },
        { "root ::= \"(\" root \")\" | \"x\"", { "x", "((x))" }, { "((x)", "()" } },
        { "root ::= a\na ::= \"x\" a | \"x\"", { "x", "xxxx" }, { "" } },
        { "root ::= e\ne ::= t (\"+\" t)*\nt ::= [0-9] | \"(\" e \")\"",
          { "1+2", "(1+(2))+3" },
          { "1+", "(1" } },
        /* nothing follows the same from both: the set of places is kept apart by stacks */
        { "root ::= \"a\" root \"b\" | \"a\" root \"c\" | \"\"",
          { "", "ab", "aabc", "aaaacbcb" },
          { "a", "abb", "aab" } },
        { json_grammar,
          { "{}", "{\"a\":1}", "{ \"a\" : [1, -2.5e3, \"x\\n\\u00e9\"] }", "{\"\":null}" },
          { "{", "{\"a\"}", "{\"a\":01}", "{\"a\":1,}", "{\"a\":\"\n\"}", "[]" } },
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct grammar *grammar = parse(cases[i].grammar);
        struct grammar_matcher *matcher = open_matcher(grammar);
        for (size_t j = 0; cases[i].yes[j]; j++)
            if (!accepts(matcher, cases[i].yes[j], strlen(cases[i].yes[j])))
                fail_msg("%s should accept \"%s\"", cases[i].grammar, cases[i].yes[j]);
        for (size_t j = 0; cases[i].no[j]; j++)
            if (accepts(matcher, cases[i].no[j], strlen(cases[i].no[j])))
                fail_msg("%s should not accept \"%s\"", cases[i].grammar, cases[i].no[j]);
        grammar_matcher_free(matcher);
        grammar_free(grammar);
    }
}

static void errors_name_line_and_column(void **state)
{
    (void)state;
    static const struct {
        const char *grammar, *error;
    } cases[] = {
        { "", "no rule named root" },
        { "foo ::= \"a\"", "no rule named root" },
        { "root ::= \"a\n", "line 1, column 10: this text has no end" },
        { "root ::= \"a\"\n  [b", "line 2, column 3: this class has no end" },
        { "root ::= (\"a\"", "line 1, column 10: this parenthesis is not closed" },
        { "root ::= \"a\" )", "line 1, column 14: a rule" },
        { "root ::= foo\nx ::= foo", "line 1, column 10: this rule is not defined" },
        { "root ::= \"a\"\nroot ::= \"b\"", "line 2, column 1: this rule is defined twice" },
        { "root = \"a\"", "line 1, column 1: \"::=\" was expected" },
        { "root ::= \"\\q\"", "line 1, column 11: this escape" },
        { "root ::= \"\\u12g4\"", "line 1, column 15: a hexadecimal digit" },
        { "root ::= \"\\ud800\"", "column 13: there is no such character" },
        { "root ::= \"\\U00110000\"", "column 13: there is no such character" },
        { "root ::= \"\xc3\xa9\xff\"", "line 1, column 12: this is not UTF-8" },
        { "root ::= [z-a]", "line 1, column 11: this range is empty" },
        { "root ::= []", "this class matches no character" },
        { "root ::= [^\\x00-\\U0010ffff]", "matches no character" },
        { "root ::= \"a\"{3,2}", "line 1, column 13: {3}, {2,}" },
        { "root ::= \"a\"{}", "line 1, column 13: {3}" },
        { "root ::= \"a\"{999999}", "more than 100000" },
        { "root ::= *", "line 1, column 10: a rule" },
        { "root ::= root \"a\" | \"b\"", "rule root begins with itself" },
        { "root ::= \"x\"? y\ny ::= z | \"q\"\nz ::= \"\" root", "begins with itself" },
        { "root ::= \"a\" root", "ever ends" },
        { "root ::= \"a\" b\nb ::= b2 \"c\"\nb2 ::= \"(\" b \")\"", "ever ends" },
        { "root ::= \"a\"{90000} \"b\"{90000} \"c\"{90000} \"d\"{90000} \"e\"{90000} \"f\"{90000}",
          "too large" },
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct grammar *grammar;
        mf_error why = { 0 };
        mf_status status = grammar_parse_new(&grammar, &allocator_heap, cases[i].grammar,
                                             strlen(cases[i].grammar), &why);
        if (status != MF_ERR_GRAMMAR || !strstr(why.text, cases[i].error))
            fail_msg("%s: status %d, \"%s\" does not say \"%s\"", cases[i].grammar, status,
                     why.text, cases[i].error);
        assert_null(grammar);
    }
}

static void nesting_and_sizes_are_bounded(void **state)
{
    (void)state;
    enum { DEEP = 100000 };
    static char text[2 * DEEP + 64];
    struct grammar *grammar;
    mf_error why;
    strcpy(text, "root ::= ");
    memset(text + 9, '(', DEEP);
    assert_int_equal(grammar_parse_new(&grammar, &allocator_heap, text, 9 + DEEP, &why),
                     MF_ERR_GRAMMAR);
    assert_non_null(strstr(why.text, "nested too deep"));

    /* Repetitions of nothing, of repetitions of nothing: they end, soon. */
    grammar = parse("root ::= (((x{100000}){100000}){100000}){100000} \"a\"\nx ::= \"\"");
    struct grammar_matcher *matcher;
    mf_status status =
        grammar_matcher_new(&matcher, &allocator_heap, grammar, vocabulary.vocabulary, &why);
    assert_int_equal(status, MF_ERR_GRAMMAR);
    assert_null(matcher);
    grammar_free(grammar);
    grammar = parse("root ::= (x{20}){100} \"a\"\nx ::= \"\" | \"b\"{0,3} y\ny ::= \"\" | \"c\"");
    matcher = open_matcher(grammar);
    assert_true(accepts(matcher, "a", 1));
    assert_true(accepts(matcher, "bbbcba", 6));
    grammar_matcher_free(matcher);
    grammar_free(grammar);

    /* A long chain of rules, each the beginning of the next. */
    size_t length = 0;
    static char chain[800000];
    for (int i = 0; i < 10000; i++)
        length +=
            (size_t)sprintf(chain + length, "%s%d ::= \"\" r%d \"aaaaaaaaaaaaaaaaaaaaaaaa\"\n",
                            i ? "r" : "root ::= r0\nr", i, i + 1);
    length += (size_t)sprintf(chain + length, "r10000 ::= \"b\"\n");
    assert_int_equal(grammar_parse_new(&grammar, &allocator_heap, chain, length, &why),
                     MF_ERR_GRAMMAR);
    assert_non_null(strstr(why.text, "deep"));
}

/* ------------------------------------------------------------------ UTF-8 */

static void runs_cover_a_range_exactly(void **state)
{
    (void)state;
    static const struct code_range ranges[] = {
        { 0, 0x7f },      { 0, CODE_LAST },       { 0x80, 0x7ff },     { 0x41, 0x3b1 },
        { 0x7fe, 0x801 }, { 0xd7f0, 0xe010 },     { 0xfffe, 0x10001 }, { 0x12345, 0x54321 },
        { 0x3b1, 0x3b1 }, { 0x10000, CODE_LAST },
    };
    for (size_t i = 0; i < COUNT_OF(ranges); i++) {
        char text[64];
        snprintf(text, sizeof text, "root ::= [\\U%08x-\\U%08x]", ranges[i].first, ranges[i].last);
        struct grammar *grammar = parse(text);
        struct grammar_matcher *matcher = open_matcher(grammar);
        for (uint32_t code = 0; code <= CODE_LAST; code += code < 0x11000 ? 1 : 61) {
            if (code >= CODE_SURROGATE_FIRST && code <= CODE_SURROGATE_LAST) continue;
            uint8_t bytes[4];
            size_t length = code_encode(bytes, code);
            bool inside = code >= ranges[i].first && code <= ranges[i].last;
            assert_int_equal(accepts(matcher, (const char *)bytes, length), inside);
        }
        grammar_matcher_free(matcher);
        grammar_free(grammar);
    }
}

/* ------------------------------------------------------------------- masks */

static const char *const mask_grammars[] = {
    json_grammar,
    "root ::= .*",
    "root ::= line+\nline ::= [^\\n]+ \"\\n\"",
    "root ::= [a-z]{3,40} (\" \" [a-z]{1,8}){0,5} \".\"",
    "root ::= \"[\" item (\",\" item)* \"]\"\nitem ::= root | [0-9]+ | \"\\\"\" [^\"]{0,20} "
    "\"\\\"\"",
    "root ::= \"{\" root \"}\" | \"[\" root \"]\" | \"{\" root \"]\" | \"\"",
    "root ::= (\"abc\" | \"ab\" | \"a\" | \"zzz\" [\\u0080-\\U0010ffff]*)+",
    /* counted, longer than a token: copies that are taken for one */
    "root ::= \"\\\"\" [^\"]{30,70} \"\\\"\"",
    "root ::= (word \",\"){0,60} word\nword ::= [a-c]{1,24} | (\"0\" | \"1\"?){0,40}",
    "root ::= (\"a\" | \"bc\" | [0-9] \".\"){25,} ((\"z\"{20,30} | \"-\"){18,33} \"e\"){0,20}",
    "root ::= item{20,40}\nitem ::= \"[\" item \"]\" | \"\\\"\" [^\"]* \"\\\"\" | [0-9a-z]",
};

/* At random points of random texts: the mask is what trying every token says. */
static void masks_agree_with_trying_every_token(void **state)
{
    (void)state;
    struct random random;
    random_seed(&random, 31);
    for (size_t g = 0; g < COUNT_OF(mask_grammars); g++) {
        struct grammar *grammar = parse(mask_grammars[g]);
        struct grammar_matcher *matcher = open_matcher(grammar);
        for (int step = 0; step < 300; step++) {
            const uint64_t *mask = matcher_mask(matcher);
            int32_t allowed[4096];
            size_t count = 0;
            for (int32_t token = 0; (size_t)token < vocabulary.count; token++) {
                bool bit = mask[token / 64] >> (token % 64) & 1;
                if (bit != matcher_allows(matcher, token))
                    fail_msg("%s: step %d, token %d \"%.*s\": mask says %d", mask_grammars[g], step,
                             token, (int)vocabulary.lengths[token], vocabulary.texts[token], bit);
                if (bit && token != vocabulary.end_token) allowed[count++] = token;
            }
            if (count == 0 || step % 60 == 59) {
                assert_true(count > 0 || matcher_is_finished(matcher));
                matcher_reset(matcher);
                continue;
            }
            assert_true(matcher_accept(matcher, allowed[random_next(&random) % count]));
        }
        grammar_matcher_free(matcher);
        grammar_free(grammar);
    }
}

/* A long text with ever new stacks fills the tables many times over. */
static void tables_are_emptied_when_full(void **state)
{
    (void)state;
    struct random random;
    random_seed(&random, 5);
    struct grammar *grammar = parse(
        "root ::= node*\nnode ::= \"a\" node \"b\" | \"c\" node \"d\" | \"e\" | \"f\" node \"g\"");
    struct grammar_matcher *matcher = open_matcher(grammar);
    for (int round = 0; round < 1500; round++) {
        static const char opens[] = "acf", closes[] = "bdg";
        char open[60];
        for (size_t depth = 0; depth < sizeof open; depth++) {
            size_t kind = random_next(&random) % 3;
            assert_true(matcher_accept_bytes(matcher, &opens[kind], 1));
            open[depth] = closes[kind];
        }
        assert_true(matcher_accept_bytes(matcher, "e", 1));
        for (size_t depth = sizeof open; depth-- > 0;) {
            assert_false(matcher_accept_bytes(matcher, "e", 1));
            assert_false(matcher_accept_bytes(matcher, open[depth] == 'b' ? "d" : "b", 1));
            if (depth == 30 && round % 100 == 0) {
                const uint64_t *mask = matcher_mask(matcher);
                for (int32_t token = 0; token < 256; token++)
                    assert_int_equal(mask[token / 64] >> (token % 64) & 1, token == open[depth]);
            }
            assert_true(matcher_accept_bytes(matcher, &open[depth], 1));
        }
    }
    grammar_matcher_free(matcher);
    grammar_free(grammar);
}

/* ----------------------------------------------------------------- closing */

static void closing_text_is_the_shortest(void **state)
{
    (void)state;
    static const struct {
        const char *grammar, *given, *closing;
    } cases[] = {
        { "root ::= \"a\"* \"b\"", "aa", "b" },
        { json_grammar, "", "{}" },
        { json_grammar, "{\"a\":[[1,", "0]]}" },
        { json_grammar, "{\"a", "\":0}" },
        { json_grammar, "{\"a\":\"\\u0", "aaa\"}" },
        { "root ::= \"long text\" | \"short\" \"er\"?", "", "short" },
        { "root ::= a b\na ::= b b | \"xyz\"\nb ::= \"1\" | \"2\" a", "", "111" },
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct grammar *grammar = parse(cases[i].grammar);
        struct grammar_matcher *matcher = open_matcher(grammar);
        assert_true(matcher_accept_bytes(matcher, cases[i].given, strlen(cases[i].given)));
        char text[64] = { 0 };
        size_t length = matcher_closing_text(matcher, text, sizeof text - 1);
        assert_string_equal(text, cases[i].closing);
        assert_int_equal(length, strlen(cases[i].closing));
        assert_true(matcher_closing_tokens(matcher) <= length);
        assert_true(matcher_accept_bytes(matcher, text, length));
        assert_true(matcher_is_complete(matcher));
        grammar_matcher_free(matcher);
        grammar_free(grammar);
    }
}

static void random_logits(float *logits, size_t count, struct random *random)
{
    for (size_t i = 0; i < count; i++) logits[i] = 8.0f * (float)random_unit(random);
}

/* Every answer closes within its limit, for every limit that holds the shortest one. */
static void answers_close_at_the_limit(void **state)
{
    (void)state;
    float *logits = calloc(vocabulary.count, sizeof *logits);
    struct random random;
    random_seed(&random, 77);
    struct sampler_options options;
    sampler_options_default(&options);
    options.temperature = 1.5f;
    struct sampler *sampler;
    assert_int_equal(
        sampler_new(&sampler, &allocator_heap, &options, vocabulary.count, vocabulary.count, NULL),
        MF_OK);
    for (size_t g = 0; g < COUNT_OF(mask_grammars); g++) {
        struct grammar *grammar = parse(mask_grammars[g]);
        struct grammar_matcher *matcher = open_matcher(grammar);
        size_t shortest = matcher_closing_tokens(matcher);
        for (size_t limit = shortest; limit < shortest + 30; limit++) {
            char text[1024];
            size_t length = 0;
            matcher_reset(matcher);
            for (size_t left = limit; left > 0 && !matcher_is_finished(matcher); left--) {
                random_logits(logits, vocabulary.count, &random);
                int32_t token = matcher_pick(matcher, sampler, logits, left);
                assert_true(token >= 0);
                assert_true(matcher_accept(matcher, token));
                if (token == vocabulary.end_token) break;
                memcpy(text + length, vocabulary.texts[token], vocabulary.lengths[token]);
                length += vocabulary.lengths[token];
            }
            assert_true(matcher_is_complete(matcher));
            assert_true(accepts(matcher, text, length));
        }
        grammar_matcher_free(matcher);
        grammar_free(grammar);
    }
    sampler_free(sampler);
    free(logits);
}

/* 5000 levels are refused, and what was opened can be closed. */
static void depth_is_bounded_and_closes(void **state)
{
    (void)state;
    struct grammar *grammar = parse("root ::= \"[\" root* \"]\"");
    struct grammar_matcher *matcher = open_matcher(grammar);
    size_t depth = 0;
    while (depth < 5000 && matcher_accept_bytes(matcher, "[", 1)) {
        depth++;
        if (depth % 50 == 0) {
            const uint64_t *mask = matcher_mask(matcher);
            bool bit = mask['[' / 64] >> ('[' % 64) & 1;
            assert_int_equal(bit, matcher_allows(matcher, '['));
        }
    }
    assert_true(depth > 200 && depth < 5000);
    assert_int_equal(matcher_closing_tokens(matcher) <= depth, 1);
    for (size_t i = 0; i < depth; i++) assert_true(matcher_accept_bytes(matcher, "]", 1));
    assert_true(matcher_is_finished(matcher));
    grammar_matcher_free(matcher);
    grammar_free(grammar);
}

static void end_tokens_come_when_complete(void **state)
{
    (void)state;
    struct grammar *grammar = parse("root ::= [0-9]+");
    struct grammar_matcher *matcher = open_matcher(grammar);
    int32_t end = vocabulary.end_token;
    assert_false(matcher_allows(matcher, end));
    assert_false(matcher_accept(matcher, end));
    assert_true(matcher_accept_bytes(matcher, "7", 1));
    assert_true(matcher_mask(matcher)[end / 64] >> (end % 64) & 1);
    assert_true(matcher_is_complete(matcher));
    assert_false(matcher_is_finished(matcher));
    assert_true(matcher_accept(matcher, end));
    assert_true(matcher_is_finished(matcher));
    assert_false(matcher_allows(matcher, '7'));
    matcher_reset(matcher);
    assert_false(matcher_accept_bytes(matcher, "<|end|>", 7));
    grammar_matcher_free(matcher);
    grammar_free(grammar);
}

/* ------------------------------------------------------------------- memory */

static void few_states_take_memory_at_opening_only(void **state)
{
    (void)state;
    struct failing_allocator heap;
    failing_allocator_init(&heap);
    struct grammar *grammar = NULL;
    for (uint64_t nth = 1;; nth++) {
        failing_allocator_arm(&heap, nth);
        mf_status status =
            grammar_parse_new(&grammar, &heap.allocator, json_grammar, strlen(json_grammar), NULL);
        bool fired = failing_allocator_disarm(&heap);
        assert_int_equal(status, fired ? MF_ERR_MEMORY : MF_OK);
        if (!fired) break;
        assert_null(grammar);
        assert_int_equal(heap.live_bytes, 0);
    }
    struct grammar_matcher *matcher = NULL;
    for (uint64_t nth = 1;; nth++) {
        failing_allocator_arm(&heap, nth);
        mf_status status =
            grammar_matcher_new(&matcher, &heap.allocator, grammar, vocabulary.vocabulary, NULL);
        bool fired = failing_allocator_disarm(&heap);
        assert_int_equal(status, fired ? MF_ERR_MEMORY : MF_OK);
        if (!fired) break;
        assert_null(matcher);
    }
    uint64_t calls = heap.calls;
    assert_true(matcher_accept_bytes(matcher, "{\"a\":[", 6));
    matcher_mask(matcher);
    matcher_closing_tokens(matcher);
    matcher_reset(matcher);
    assert_int_equal(heap.calls, calls);
    grammar_matcher_free(matcher);
    grammar_free(grammar);
    assert_int_equal(heap.live_bytes, 0);
}

enum { LONG_TEXT = 9000 };

/* Accepts a text with a state for each byte; masks are those of a matcher that has seen nothing else. */
static void accept_long_text(struct grammar_matcher *matcher, const struct grammar *grammar)
{
    struct grammar_matcher *other = open_matcher(grammar);
    size_t mask_bytes = vocabulary.vocabulary->mask_words * sizeof(uint64_t);
    char text[LONG_TEXT];
    memset(text, 'a', sizeof text);
    matcher_reset(matcher);
    for (size_t i = 0; i < LONG_TEXT; i++) {
        assert_true(matcher_accept_bytes(matcher, "a", 1));
        if (i % 500 != 0) continue;
        matcher_reset(other);
        assert_true(matcher_accept_bytes(other, text, i + 1));
        assert_memory_equal(matcher_mask(matcher), matcher_mask(other), mask_bytes);
    }
    assert_false(matcher_accept_bytes(matcher, "a", 1));
    assert_true(matcher_accept_bytes(matcher, "!", 1) && matcher_is_finished(matcher));
    grammar_matcher_free(other);
}

/* Tables begin small and grow; where there is no memory for that, states are dropped and computed
 * again. */
static void many_states_let_tables_grow(void **state)
{
    (void)state;
    char text[64];
    struct failing_allocator heap;
    struct grammar_matcher *matcher;
    snprintf(text, sizeof text, "root ::= [a-z]{0,%d} \"!\"", LONG_TEXT);
    struct grammar *grammar = parse(text);
    failing_allocator_init(&heap);
    assert_int_equal(
        grammar_matcher_new(&matcher, &heap.allocator, grammar, vocabulary.vocabulary, NULL),
        MF_OK);
    uint64_t first = heap.live_bytes, calls = heap.calls;
    assert_in_range(first, 1, 3 << 20);
    heap.limit_bytes = first;
    accept_long_text(matcher, grammar);
    assert_int_equal(heap.live_bytes, first);
    assert_true(heap.calls > calls);
    heap.limit_bytes = 0;
    accept_long_text(matcher, grammar);
    assert_in_range(heap.live_bytes, 2 * first, 32 << 20);
    grammar_matcher_free(matcher);
    assert_int_equal(heap.live_bytes, 0);
    grammar_free(grammar);
}

static int make_vocabulary(void **state)
{
    (void)state;
    test_vocabulary_init(&vocabulary, 4000, 1);
    return 0;
}

static int free_vocabulary(void **state)
{
    (void)state;
    test_vocabulary_release(&vocabulary);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(texts_are_accepted_or_not),
        cmocka_unit_test(errors_name_line_and_column),
        cmocka_unit_test(nesting_and_sizes_are_bounded),
        cmocka_unit_test(runs_cover_a_range_exactly),
        cmocka_unit_test(masks_agree_with_trying_every_token),
        cmocka_unit_test(tables_are_emptied_when_full),
        cmocka_unit_test(closing_text_is_the_shortest),
        cmocka_unit_test(answers_close_at_the_limit),
        cmocka_unit_test(depth_is_bounded_and_closes),
        cmocka_unit_test(end_tokens_come_when_complete),
        cmocka_unit_test(few_states_take_memory_at_opening_only),
        cmocka_unit_test(many_states_let_tables_grow),
    };
    return cmocka_run_group_tests(tests, make_vocabulary, free_vocabulary);
}
