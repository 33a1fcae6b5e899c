/* split: patterns mean what their authors meant, and by hand is the same as by PCRE2. */
#include "support/test.h"
#include "support/random_text.h"

#include "tokenizer/split.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static mf_error why;

static void must(mf_status status)
{
    if (status != MF_OK) fail_msg("%s (%s)", why.text, why.origin);
}

/* The pieces of a text, written with | between them. */
struct pieces {
    char text[4096];
    size_t length;
};

static mf_status add_piece(void *context, const char *piece, size_t length, mf_error *error)
{
    struct pieces *pieces = context;
    (void)error;
    assert_true(length > 0);
    assert_true(pieces->length + length + 2 < sizeof pieces->text);
    if (pieces->length) pieces->text[pieces->length++] = '|';
    memcpy(pieces->text + pieces->length, piece, length);
    pieces->length += length;
    pieces->text[pieces->length] = '\0';
    return MF_OK;
}

static void split_with(struct pieces *out, const char *pattern, enum split_keep keep, bool by_hand,
                       const char *text)
{
    struct splitter splitter = { 0 };
    out->length = 0;
    out->text[0] = '\0';
    must(splitter_add(&splitter, pattern, keep, by_hand, "test", &why));
    must(splitter_run(&splitter, text, strlen(text), add_piece, out, &why));
    splitter_free(&splitter);
}

static void assert_split(const char *pattern, const char *text, const char *wanted)
{
    struct pieces pieces;
    split_with(&pieces, pattern, SPLIT_KEEP_ALL, false, text);
    assert_string_equal(pieces.text, wanted);
    split_with(&pieces, pattern, SPLIT_KEEP_ALL, true, text);
    assert_string_equal(pieces.text, wanted);
}

/* --------------------------------------------------------------------- meanings */

/* U+180E was a space until Unicode 6.3; to PCRE2 10.42 it is one still. */
static void mongolian_vowel_separator_is_no_space(void **state)
{
    (void)state;
    assert_split("\\s+", "a \u180E b", "a| |\u180E| |b");
    assert_split("[\\s]+", "a \u180E b", "a| |\u180E| |b");
    assert_split("[^\\s]+", "a \u180E b", "a| |\u180E| |b");
    assert_split("\\S+", "a \u180E b", "a| |\u180E| |b");
    assert_split("[\\S]+", "a \u180E b", "a| |\u180E| |b");
    assert_split("[\\Sb ]+", "a\u180E\tb c", "a\u180E|\t|b c");
    assert_split(split_qwen2, "a \u180Eb", "a| \u180E|b");
}

static void white_space_is_unicodes(void **state)
{
    (void)state;
    static const uint32_t spaces[] = { 9,      10,     11,     12,     13,     0x20,
                                       0x85,   0xA0,   0x1680, 0x2000, 0x200A, 0x2028,
                                       0x2029, 0x202F, 0x205F, 0x3000 };
    static const uint32_t others[] = { 8, 14, 0x1F, 0x84, 0x180E, 0x200B, 0x2060, 0xFEFF };
    for (size_t i = 0; i < COUNT_OF(spaces) + COUNT_OF(others); i++) {
        bool space = i < COUNT_OF(spaces);
        uint32_t character = space ? spaces[i] : others[i - COUNT_OF(spaces)];
        char text[UTF8_MAX + 2] = "x", wanted[UTF8_MAX + 3];
        text[1 + utf8_encode(text + 1, character)] = '\0';
        snprintf(wanted, sizeof wanted, space ? "x|%s" : "%s", text + space);
        assert_int_equal(character_is_space(character), space);
        assert_split("\\s", text, wanted);
        assert_split("[\\s]", text, wanted);
        assert_split("[^\\S]", text, wanted);
    }
}

static void intersections_of_classes_are_matched(void **state)
{
    (void)state;
    assert_split("[a-z&&[^aeiou]]+", "street", "str|ee|t");
    assert_split("[a-z&&[aeiou]]+", "street", "str|ee|t");
    assert_split("[a-z&&aeiou]+", "street", "str|ee|t");
    assert_split("[^a-z&&[aeiou]]+", "street", "str|ee|t");
    assert_split("[a-z&&[^aeiou]&&[^t]]+", "street", "s|t|r|eet");
    assert_split("[a[st]]+", "a street", "a| |st|ree|t");
    assert_split("[e[^a-z]]+", "a street", "a| |str|ee|t");
    assert_split("[^e[^a-z]]+", "a street", "a| |str|ee|t");
    assert_split("[[st]]+", "a street", "a |st|ree|t");
    assert_split("[a&]+", "b&a", "b|&a");
    assert_split("[]a]+", "b]a", "b|]a");
    /* Kimi: Han characters are no part of words. */
    assert_split(split_kimi, "Hello世界ok", "Hello|世界|ok");
    assert_split(split_kimi, "日本語のテキスト", "日本語|のテキスト");
}

/* PCRE2 takes a script's name for all characters that are used with it. */
static void script_class_matches_only_its_characters(void **state)
{
    (void)state;
    assert_split("\\p{Han}+", "世、界。", "世|、|界|。");
    assert_split("[\\p{Han}]+", "世、界。", "世|、|界|。");
    assert_split("\\P{Han}+", "世、界。", "世|、|界|。");
    assert_split("\\p{^Han}+", "世、界。", "世|、|界|。");
    assert_split("\\p{Hiragana}+", "ひー、", "ひ|ー、");
}

static void gaps_and_matches_can_be_dropped(void **state)
{
    (void)state;
    struct pieces pieces;
    split_with(&pieces, ",", SPLIT_DROP_MATCHES, true, "a,b,,c");
    assert_string_equal(pieces.text, "a|b|c");
    split_with(&pieces, "[a-z]+", SPLIT_DROP_GAPS, true, "ab,cd");
    assert_string_equal(pieces.text, "ab|cd");
    split_with(&pieces, split_qwen2, SPLIT_DROP_GAPS, true, "ab cd");
    assert_string_equal(pieces.text, "ab| cd");
    assert_split("x*", "axxb", "a|xx|b"); /* empty matches cut nothing */
    assert_split("^", "ab", "ab");
    assert_split("b$", "ab\nb", "a|b|\n|b"); /* $ holds at every line */
    assert_split("(?=b)\\K", "ab", "ab");
}

static void lookahead_stops_at_the_end_of_a_piece(void **state)
{
    (void)state;
    struct splitter splitter = { 0 };
    struct pieces pieces = { 0 };
    static const char *const steps[] = { split_number3, split_cjk, split_deepseek_v3 };
    for (size_t i = 0; i < COUNT_OF(steps); i++)
        must(splitter_add(&splitter, steps[i], SPLIT_KEEP_ALL, true, "test", &why));
    static const char text[] = "in  2024,  上海 has 24870900";
    must(splitter_run(&splitter, text, strlen(text), add_piece, &pieces, &why));
    assert_string_equal(pieces.text, "in|  |202|4|,|  |上海| has| |248|709|00");
    splitter_free(&splitter);
}

static void assert_refused(const char *pattern, const char *reason)
{
    struct splitter splitter = { 0 };
    mf_status status = splitter_add(&splitter, pattern, SPLIT_KEEP_ALL, true, "the file", &why);
    assert_int_equal(status, MF_ERR_UNSUPPORTED);
    if (!strstr(why.text, reason) || !strstr(why.text, "the file"))
        fail_msg("\"%s\" says nothing of \"%s\"", why.text, reason);
    splitter_free(&splitter);
}

static void unsupported_patterns_are_refused(void **state)
{
    (void)state;
    assert_refused("(a", "cannot be used");
    assert_refused("\\", "backslash");
    assert_refused("[a", "not closed");
    assert_refused("[a&&]", "nothing on one side");
    assert_refused("[]", "not closed");
    assert_refused("[a[b]", "not closed");
    assert_refused("[[:alpha:]]", "[:name:]");
    assert_refused("\\h+", "\\h");
    assert_refused("\\Qa+\\E", "\\Q");
    assert_refused("\\p{Han", "braces");
    assert_refused("\\p{NoSuchThing}", "cannot be used");
    assert_refused("[[[[[[[[[[a]]]]]]]]]]", "too deep");
}

static mf_status count_piece(void *context, const char *piece, size_t length, mf_error *error)
{
    (void)piece;
    (void)length;
    (void)error;
    ++*(size_t *)context;
    return MF_OK;
}

/* A pattern with exponential cost is stopped with an error. */
static void a_costly_pattern_is_stopped(void **state)
{
    (void)state;
    struct splitter splitter = { 0 };
    char text[64];
    size_t count = 0;
    memset(text, 'a', sizeof text);
    must(splitter_add(&splitter, "(a+a+)+b|(?:a|a)*c", SPLIT_KEEP_ALL, true, "test", &why));
    mf_status status = splitter_run(&splitter, text, sizeof text, count_piece, &count, &why);
    assert_int_equal(status, MF_ERR_UNSUPPORTED);
    assert_non_null(strstr(why.text, "too costly"));
    splitter_free(&splitter);
}

/* Groups need stack in proportion to the text: more than PCRE2 starts with. */
static void a_group_may_match_a_long_text(void **state)
{
    (void)state;
    enum { LENGTH = 20000 };
    struct splitter splitter = { 0 };
    size_t count = 0;
    char *text = malloc(LENGTH);
    assert_non_null(text);
    memset(text, 'a', LENGTH);
    must(splitter_add(&splitter, "(?:[a-z&&[^b]])+(?:x|)", SPLIT_KEEP_ALL, true, "test", &why));
    must(splitter_run(&splitter, text, LENGTH, count_piece, &count, &why));
    assert_int_equal(count, 1);
    splitter_free(&splitter);
    free(text);
}

/* ---------------------------------------------------------- by hand and by PCRE2 */

struct ends {
    size_t at[1024], count, total;
};

static mf_status add_end(void *context, const char *piece, size_t length, mf_error *error)
{
    struct ends *ends = context;
    (void)piece;
    (void)error;
    assert_true(length > 0 && ends->count < COUNT_OF(ends->at));
    ends->total += length;
    ends->at[ends->count++] = ends->total;
    return MF_OK;
}

static void compare_ways(const char *pattern, bool broken, unsigned rounds)
{
    enum { CHARACTERS = 48 };
    struct splitter by_hand = { 0 }, by_pcre2 = { 0 };
    struct random_text random = { 20260101 };
    must(splitter_add(&by_hand, pattern, SPLIT_KEEP_ALL, true, "test", &why));
    must(splitter_add(&by_pcre2, pattern, SPLIT_KEEP_ALL, false, "test", &why));
    assert_true(by_hand.steps[0].next && !by_pcre2.steps[0].next);
    for (unsigned i = 0; i < rounds; i++) {
        char text[CHARACTERS * UTF8_MAX];
        size_t length = random_string(text, &random, CHARACTERS, broken);
        struct ends a = { .count = 0 }, b = { .count = 0 };
        must(splitter_run(&by_hand, text, length, add_end, &a, &why));
        must(splitter_run(&by_pcre2, text, length, add_end, &b, &why));
        bool same = a.count == b.count && memcmp(a.at, b.at, a.count * sizeof a.at[0]) == 0;
        assert_int_equal(a.total, length);
        if (same) continue;
        for (size_t k = 0; k < length; k++) print_error("%02x", (uint8_t)text[k]);
        size_t k = 0;
        while (a.at[k] == b.at[k]) k++;
        fail_msg("\n%s: piece %zu ends at %zu, by PCRE2 at %zu", pattern, k, a.at[k], b.at[k]);
    }
    splitter_free(&by_hand);
    splitter_free(&by_pcre2);
}

static void by_hand_is_the_same_as_by_pcre2(void **state)
{
    (void)state;
    size_t i = 0;
    for (; split_known_pattern(i); i++) {
        compare_ways(split_known_pattern(i), false, 20000);
        compare_ways(split_known_pattern(i), true, 10000);
    }
    assert_int_equal(i, 11);
}

/* ------------------------------------------------------------------------- time */

static double time_split(const struct splitter *splitter, const char *text, size_t length)
{
    double best = 1e9;
    for (int i = 0; i < 3; i++) {
        struct timespec a, b;
        size_t count = 0;
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &a);
        must(splitter_run(splitter, text, length, count_piece, &count, &why));
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &b);
        double taken = (double)(b.tv_sec - a.tv_sec) + (double)(b.tv_nsec - a.tv_nsec) * 1e-9;
        best = taken < best ? taken : best;
    }
    return best;
}

/* Of whole units, and a run of them that ends before the text does. */
static double time_units(const struct splitter *splitter, char *text, size_t bytes, size_t unit)
{
    size_t end = bytes / unit * unit - unit;
    char kept = text[end];
    text[end] = 'x';
    double seconds = time_split(splitter, text, end + 1);
    text[end] = kept;
    return seconds;
}

/* Four times the text takes about four times as long, sixteen would be quadratic. */
static void assert_linear(const char *pattern)
{
    enum { SMALL = 1 << 16, LARGE = 4 * SMALL };
    static const char *const units[] = { "a",    " ",   "A",   "1",    "\n",           "あ",
                                         "世",   "'",   "!",   "\xFF", "\u0301",       "A\u0301",
                                         " \n ", "aA!", "世A", "😀",    "\u200B\u200B", "  x" };
    struct splitter splitter = { 0 };
    char *text = malloc(LARGE);
    assert_non_null(text);
    must(splitter_add(&splitter, pattern, SPLIT_KEEP_ALL, true, "test", &why));
    for (size_t i = 0; i < COUNT_OF(units); i++) {
        size_t unit = strlen(units[i]);
        for (size_t at = 0; at < LARGE; at++) text[at] = units[i][at % unit];
        double small = time_units(&splitter, text, SMALL, unit);
        double large = time_units(&splitter, text, LARGE, unit);
        if (large > 10 * small + 0.005)
            fail_msg("%s on \"%s\": %d bytes take %.1f ms, %d take %.1f", pattern, units[i], SMALL,
                     small * 1e3, LARGE, large * 1e3);
    }
    splitter_free(&splitter);
    free(text);
}

static void known_patterns_take_linear_time(void **state)
{
    (void)state;
    for (size_t i = 0; split_known_pattern(i); i++) assert_linear(split_known_pattern(i));
    assert_linear("\\s+$"); /* by PCRE2, of DeepSeek LLM */
    assert_linear("\\s?\\p{L}+");
    assert_linear("\\s?\\p{P}+");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(mongolian_vowel_separator_is_no_space),
        cmocka_unit_test(white_space_is_unicodes),
        cmocka_unit_test(intersections_of_classes_are_matched),
        cmocka_unit_test(script_class_matches_only_its_characters),
        cmocka_unit_test(gaps_and_matches_can_be_dropped),
        cmocka_unit_test(lookahead_stops_at_the_end_of_a_piece),
        cmocka_unit_test(unsupported_patterns_are_refused),
        cmocka_unit_test(a_costly_pattern_is_stopped),
        cmocka_unit_test(a_group_may_match_a_long_text),
        cmocka_unit_test(by_hand_is_the_same_as_by_pcre2),
        cmocka_unit_test(known_patterns_take_linear_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
