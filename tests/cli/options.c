/* The option parser by itself: what it takes, what it refuses, what it suggests. */
#include "support/test.h"

#include "../../apps/cli/options.h"

#include <stdlib.h>
#include <string.h>

struct settings {
    bool flag;
    const char *text;
    const char *choice;
    struct maybe_count count, size;
    struct count_list list;
    struct text_list texts;
    struct inner {
        struct maybe_real real;
    } inner;
};

static const char *const colours[] = { "red", "green", NULL };
static const struct option outer_options[] = {
    { 'f', "flag", OPTION_FLAG, offsetof(struct settings, flag), NULL, .help = "a flag" },
    { 't', "text", OPTION_TEXT, offsetof(struct settings, text), "TEXT", .help = "a text" },
    { 0, "colour", OPTION_CHOICE, offsetof(struct settings, choice), "NAME", .help = "one of two",
      .choices = colours },
    { 'n', "count", OPTION_COUNT, offsetof(struct settings, count), "N", .help = "a count",
      .low = 1, .high = 9 },
    { 0, "memory", OPTION_SIZE, offsetof(struct settings, size), "SIZE", .help = "a size" },
    { 's', "stop", OPTION_TEXTS, offsetof(struct settings, texts), "TEXT", .help = "some texts" },
    { 'd', "depths", OPTION_COUNTS, offsetof(struct settings, list), "N,N", .help = "some counts",
      .low = 0, .high = 99 },
};
static const struct option inner_options[] = {
    { 0, "temp", OPTION_REAL, offsetof(struct inner, real), "X", .help = "a number", .low = 0,
      .high = 2 },
};
static const struct option_group groups[] = {
    { "outer", outer_options, COUNT_OF(outer_options), 0 },
    { "inner", inner_options, COUNT_OF(inner_options), offsetof(struct settings, inner) },
};

struct outcome {
    enum parse_result result;
    struct settings settings;
    struct arguments arguments;
    mf_error why;
    char *words[16];
};

static void parse(struct outcome *out, const char *const *words)
{
    size_t count = 0;

    memset(out, 0, sizeof *out);
    for (; words[count]; count++) out->words[count] = (char *)(uintptr_t)words[count];
    out->result = options_parse(&out->settings, &out->arguments, groups, COUNT_OF(groups),
                                out->words, count, &out->why);
}
#define PARSE(out, ...) parse((out), (const char *const[]){ __VA_ARGS__, NULL })

static void expect_refusal(const char *sentence, const char *const *words)
{
    struct outcome outcome;

    parse(&outcome, words);
    assert_int_equal(outcome.result, PARSE_FAILED);
    assert_string_equal(outcome.why.text, sentence);
}
#define REFUSED(sentence, ...)                                                                     \
    expect_refusal((sentence), (const char *const[]){ __VA_ARGS__, NULL })

static void lists_are_read(void **state)
{
    struct outcome o;

    (void)state;
    PARSE(&o, "-d", "7");
    assert_int_equal(o.settings.list.count, 1);
    assert_int_equal(o.settings.list.values[0], 7);
    PARSE(&o, "--depths=3,0,99");
    assert_int_equal(o.result, PARSE_DONE);
    assert_int_equal(o.settings.list.count, 3);
    assert_int_equal(o.settings.list.values[0], 3);
    assert_int_equal(o.settings.list.values[1], 0);
    assert_int_equal(o.settings.list.values[2], 99);
    REFUSED("-d (--depths): \"\" is not a whole number of 0 or more", "-d", "1,");
    REFUSED("-d (--depths): \"x\" is not a whole number of 0 or more", "-d", "1,x,3");
    REFUSED("-d (--depths): 100 is outside 0 … 99", "-d", "1,100");
    REFUSED("-d (--depths): more than 16 numbers", "-d", "1,2,3,4,5,6,7,8,9,1,2,3,4,5,6,7,8");
}

static void texts_are_collected(void **state)
{
    struct outcome o;

    (void)state;
    PARSE(&o, "-s", "a", "--stop=", "--stop", "-s=b");
    assert_int_equal(o.result, PARSE_DONE);
    assert_int_equal(o.settings.texts.count, 3);
    assert_string_equal(o.settings.texts.values[0], "a");
    assert_string_equal(o.settings.texts.values[1], "");
    assert_string_equal(o.settings.texts.values[2], "-s=b");
}

static void every_spelling_is_read(void **state)
{
    struct outcome o;

    (void)state;
    PARSE(&o, "-f", "--text", "a b", "first", "--count=3", "--memory", "8G", "--temp=0.5",
          "second");
    assert_int_equal(o.result, PARSE_DONE);
    assert_true(o.settings.flag);
    assert_string_equal(o.settings.text, "a b");
    assert_int_equal(o.settings.count.value, 3);
    assert_int_equal(o.settings.size.value, 8ULL << 30);
    assert_true(o.settings.inner.real.given && o.settings.inner.real.value == 0.5);
    assert_int_equal(o.arguments.count, 2);
    assert_string_equal(o.arguments.values[0], "first");
    assert_string_equal(o.arguments.values[1], "second");

    PARSE(&o, "-n4", "-t", "--", "--colour", "green");
    assert_int_equal(o.settings.count.value, 4);
    assert_string_equal(o.settings.text, "--");
    assert_string_equal(o.settings.choice, "green");
    PARSE(&o, "-n=5", "-t=x");
    assert_int_equal(o.settings.count.value, 5);
    assert_string_equal(o.settings.text, "x");
}

static void two_dashes_end_the_options(void **state)
{
    struct outcome o;

    (void)state;
    PARSE(&o, "-", "--", "--flag", "--", "-n");
    assert_int_equal(o.result, PARSE_DONE);
    assert_false(o.settings.flag);
    assert_int_equal(o.arguments.count, 4);
    assert_string_equal(o.arguments.values[0], "-");
    assert_string_equal(o.arguments.values[1], "--flag");
    assert_string_equal(o.arguments.values[2], "--");
}

static void help_and_version_end_the_parsing(void **state)
{
    struct outcome o;

    (void)state;
    PARSE(&o, "-f", "--help", "--nonsense");
    assert_int_equal(o.result, PARSE_HELP);
    PARSE(&o, "-h");
    assert_int_equal(o.result, PARSE_HELP);
    PARSE(&o, "--version");
    assert_int_equal(o.result, PARSE_VERSION);
    PARSE(&o, "--", "--help");
    assert_int_equal(o.result, PARSE_DONE);
}

static void wrong_options_are_refused_in_a_sentence(void **state)
{
    (void)state;
    REFUSED("there is no option --txet; did you mean --text?", "--txet");
    REFUSED("there is no option --temperature; did you mean --temp?", "--temperature=1");
    REFUSED("there is no option -temp; did you mean --temp?", "-temp", "1");
    REFUSED("there is no option --xyzzy", "--xyzzy");
    REFUSED("there is no option -x", "-x");
    REFUSED("-n (--count) needs a value: N", "-n");
    REFUSED("-t (--text) needs a value (TEXT), and --flag is an option", "-t", "--flag");
    REFUSED("-f (--flag) takes no value", "--flag=yes");
    REFUSED("-n (--count): \"-3\" is not a whole number of 0 or more", "-n", "-3");
    REFUSED("-n (--count): \"\" is not a whole number of 0 or more", "--count=");
    REFUSED("-n (--count): \"3x\" is not a whole number of 0 or more", "-n", "3x");
    REFUSED("-n (--count): 10 is outside 1 … 9", "-n", "10");
    REFUSED("-n (--count): \"99999999999999999999\" is not a whole number of 0 or more", "-n",
            "99999999999999999999");
    REFUSED("--temp: \"nan\" is not a number", "--temp", "nan");
    REFUSED("--temp: 3 is outside 0 … 2", "--temp", "3");
    REFUSED("--memory: \"8X\" is not a size such as 8G or 512M", "--memory", "8X");
    REFUSED("--colour: \"gren\" is not one of red, green; did you mean green?", "--colour", "gren");
    REFUSED("--colour: \"blue\" is not one of red, green", "--colour", "blue");
}

static void sizes_are_binary_and_strict(void **state)
{
    static const struct {
        const char *text;
        uint64_t bytes;
    } good[] = {
        { "0", 0 },           { "4096", 4096 },       { "1K", 1024 },         { "8G", 8ULL << 30 },
        { "8g", 8ULL << 30 }, { "8GiB", 8ULL << 30 }, { "1.5M", 3ULL << 19 }, { "2T", 2ULL << 40 },
        { "7B", 7 },
    };
    static const char *const bad[] = { "",    "G",   "-1", "1 G",          "1..5G", ".",  "8GG",
                                       "1e3", "0x1", "+1", "99999999999T", "1.5X",  "8Gi" };
    uint64_t bytes;

    (void)state;
    for (size_t i = 0; i < COUNT_OF(good); i++) {
        assert_true(parse_size(&bytes, good[i].text));
        assert_int_equal(bytes, good[i].bytes);
    }
    for (size_t i = 0; i < COUNT_OF(bad); i++) {
        if (parse_size(&bytes, bad[i])) fail_msg("\"%s\" was taken as a size", bad[i]);
    }
}

static void numbers_are_strict(void **state)
{
    static const char *const bad[] = {
        "", " 1", "1 ", "inf", "-inf", "nan", "0x10", "1e999", "--1"
    };
    double real;

    (void)state;
    for (size_t i = 0; i < COUNT_OF(bad); i++) {
        if (parse_real(&real, bad[i])) fail_msg("\"%s\" was taken as a number", bad[i]);
    }
    assert_true(parse_real(&real, "-1.25e1") && real == -12.5);
    assert_true(parse_real(&real, ".5") && real == 0.5);
}

static void distance_counts_letters(void **state)
{
    char long_name[200];

    (void)state;
    assert_int_equal(edit_distance("", ""), 0);
    assert_int_equal(edit_distance("abc", ""), 3);
    assert_int_equal(edit_distance("kitten", "sitting"), 3);
    assert_int_equal(edit_distance("form", "from"), 1);
    memset(long_name, 'a', sizeof long_name - 1);
    long_name[sizeof long_name - 1] = '\0';
    assert_int_equal(edit_distance(long_name, "a"), sizeof long_name - 1);
}

static void rates_need_a_unit(void **state)
{
    double rate = 0;

    (void)state;
    assert_true(parse_rate(&rate, "3GB/s") && rate == 3e9);
    assert_true(parse_rate(&rate, "1.5MiB") && rate == 1.5 * 1024 * 1024);
    assert_true(parse_rate(&rate, "200B/s") && rate == 200);
    assert_false(parse_rate(&rate, "3"));
    assert_false(parse_rate(&rate, "3/s"));
    assert_false(parse_rate(&rate, "0GB/s"));
    assert_false(parse_rate(&rate, "GB/s"));
}

/* Meanings begin in the same column, whatever the letters of a value are. */
static void help_columns_count_characters(void **state)
{
    static const struct option options[] = {
        { 'a', "alpha", OPTION_COUNTS, 0, "N,…", .help = "first" },
        { 'b', "beta", OPTION_COUNTS, 0, "N,N", .help = "second" },
    };
    const struct option_group group = { "list", options, COUNT_OF(options), 0 };
    char *text = NULL;
    size_t length = 0;
    FILE *out = open_memstream(&text, &length);

    (void)state;
    assert_non_null(out);
    options_print(out, &group, 80);
    fclose(out);
    assert_string_equal(text, "list:\n"
                              "  -a, --alpha N,…          first\n"
                              "  -b, --beta N,N           second\n");
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(texts_are_collected),
        cmocka_unit_test(every_spelling_is_read),
        cmocka_unit_test(lists_are_read),
        cmocka_unit_test(two_dashes_end_the_options),
        cmocka_unit_test(help_and_version_end_the_parsing),
        cmocka_unit_test(wrong_options_are_refused_in_a_sentence),
        cmocka_unit_test(sizes_are_binary_and_strict),
        cmocka_unit_test(numbers_are_strict),
        cmocka_unit_test(distance_counts_letters),
        cmocka_unit_test(rates_need_a_unit),
        cmocka_unit_test(help_columns_count_characters),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
