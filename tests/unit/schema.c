/* JSON Schema to grammar: texts that must and must not be possible, and what is refused.
 * (tests/schema checks the other direction: whatever is generated validates.) */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "grammar/matcher.h"
#include "grammar/schema.h"
#include "support/grammar_vocabulary_fixture.h"
#include "support/one_call.h"

#include <stdio.h>
#include <stdlib.h>

static struct test_vocabulary vocabulary;

struct schema_case {
    const char *schema;
    const char *yes[10], *no[12];
};

static bool accepts(struct grammar_matcher *matcher, const char *text)
{
    matcher_reset(matcher);
    return matcher_accept_bytes(matcher, text, strlen(text)) && matcher_is_complete(matcher);
}

static void check_cases(const struct schema_case *cases, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        struct grammar *grammar;
        struct grammar_matcher *matcher;
        mf_error why;
        const char *schema = cases[i].schema;
        if (json_schema_parse_new(&grammar, &allocator_heap, schema, strlen(schema), NULL, &why))
            fail_msg("%s: %s", schema, why.text);
        if (grammar_matcher_new(&matcher, &allocator_heap, grammar, vocabulary.vocabulary, &why))
            fail_msg("%s: %s", schema, why.text);
        for (size_t j = 0; cases[i].yes[j]; j++)
            if (!accepts(matcher, cases[i].yes[j]))
                fail_msg("%s should allow %s", schema, cases[i].yes[j]);
        for (size_t j = 0; cases[i].no[j]; j++)
            if (accepts(matcher, cases[i].no[j]))
                fail_msg("%s should not allow %s", schema, cases[i].no[j]);
        grammar_matcher_free(matcher);
        grammar_free(grammar);
    }
}

static void simple_types_accept_their_values_only(void **state)
{
    (void)state;
    static const struct schema_case cases[] = {
        { "{\"type\":\"null\"}", { "null" }, { "nul", "0", "" } },
        { "{\"type\":\"boolean\"}", { "true", "false" }, { "null", "True" } },
        { "{\"type\":\"integer\"}",
          { "0", "-5", "123456789012345" },
          { "01", "1.0", "+1", "1234567890123456", "-", "" } },
        { "{\"type\":\"number\"}",
          { "0", "-1.5", "1e5", "2.5E-07" },
          { "1.", ".5", "1e999", "NaN" } },
        { "{\"type\":\"string\"}",
          { "\"\"", "\"a\xc3\xa9\xf0\x9f\x98\x80\"", "\"\\n\\u00e9\\\"\\/\"",
            "\"\\ud83d\\ude00\"" },
          { "\"", "\"\n\"", "\"\\x\"", "\"\\ud83d\"", "\"\\ude00\"", "\"\\u0000\"", "\"\xff\"",
            "\"\xc3\"", "a" } },
        { "{\"type\":[\"string\",\"null\"]}", { "\"x\"", "null" }, { "1" } },
        { "{\"type\":\"string\",\"nullable\":true}", { "\"x\"", "null" }, { "1" } },
        { "true", { "1", "[{\"a\":[]}]", "\"x\"", "null" }, { "[", "" } },
        { "{}", { "{\"a\": [1, 2]}", "true" }, { "{a:1}" } },
        { "{\"title\":\"x\",\"description\":\"y\"}", { "1", "\"s\"" }, { "" } },
        { "{\"const\":{\"a\":[1,2.5,\"x\"]}}", { "{\"a\":[1,2.5,\"x\"]}" }, { "{\"a\":[1]}" } },
        { "{\"enum\":[\"red\",\"green\",1,null,0.1]}",
          { "\"red\"", "\"green\"", "1", "null", "0.1" },
          { "\"re\"", "\"redd\"", "2" } },
        { "{\"enum\":[1,\"a\",null],\"type\":\"string\"}", { "\"a\"" }, { "1", "null" } },
        { "{\"minLength\":2}", { "\"ab\"" }, { "1", "\"a\"" } },
    };
    check_cases(cases, COUNT_OF(cases));
}

static void numbers_keep_to_their_bounds(void **state)
{
    (void)state;
    static const struct schema_case cases[] = {
        { "{\"type\":\"integer\",\"minimum\":18,\"maximum\":120}",
          { "18", "19", "99", "100", "120" },
          { "17", "121", "8", "180", "-18", "1000", "018" } },
        { "{\"type\":\"integer\",\"minimum\":-5,\"maximum\":12}",
          { "-5", "-1", "0", "12" },
          { "-6", "13", "-0", "-12" } },
        { "{\"type\":\"integer\",\"exclusiveMinimum\":0}", { "1", "999" }, { "0", "-1" } },
        { "{\"type\":\"integer\",\"exclusiveMaximum\":0}", { "-1", "-999" }, { "0", "1" } },
        { "{\"type\":\"integer\",\"minimum\":0.5,\"maximum\":2.5}", { "1", "2" }, { "0", "3" } },
        { "{\"type\":\"integer\",\"minimum\":2,\"exclusiveMaximum\":true,\"maximum\":4}",
          { "2", "3" },
          { "4", "1" } },
        { "{\"type\":\"integer\",\"multipleOf\":7,\"minimum\":0,\"maximum\":1000}",
          { "0", "7", "14", "994" },
          { "1", "8", "1001", "70000" } },
        { "{\"type\":\"integer\",\"multipleOf\":0.5}", { "1", "3", "-2" }, { "1.5" } },
        { "{\"type\":\"number\",\"multipleOf\":0.25,\"minimum\":-1,\"maximum\":1}",
          { "0.25", "-0.75", "1.00", "0.00", "-1.00" },
          { "0.3", "1.25", "-1.25", "0.26", "-0.00" } },
        { "{\"type\":\"number\",\"minimum\":0,\"maximum\":1}",
          { "0", "1", "0.5", "0.000001", "1.0", "0.999999" },
          { "1.1", "-0.1", "1.000001", "2", "-0" } },
        { "{\"type\":\"number\",\"exclusiveMinimum\":0,\"exclusiveMaximum\":1}",
          { "0.5", "0.000001" },
          { "0", "1", "0.0", "1.0", "0.000000" } },
        { "{\"type\":\"number\",\"minimum\":-2.5,\"maximum\":3.75}",
          { "-2.5", "-2.4999", "3.75", "3.7", "0", "-0.5", "3" },
          { "-2.6", "3.76", "3.8", "-3", "4", "-2.51" } },
        { "{\"type\":\"number\",\"minimum\":1.25,\"maximum\":1.5}",
          { "1.25", "1.5", "1.3", "1.4999", "1.50" },
          { "1.2", "1.51", "1", "2", "1.24" } },
        { "{\"type\":\"number\",\"maximum\":-10.5}", { "-10.5", "-11", "-999" }, { "-10.4", "0" } },
        { "{\"type\":\"number\",\"minimum\":1000000000000}",
          { "1000000000000", "999999999999999" },
          { "999999999999" } },
        { "{\"type\":\"number\",\"minimum\":0,\"maximum\":1e300}", { "5", "0.5" }, { "-1" } },
    };
    check_cases(cases, COUNT_OF(cases));
}

/* Every bound, inclusive or not, against arithmetic: exhaustively over small numbers. */
static void number_bounds_are_exact(void **state)
{
    (void)state;
    static const double bounds[] = {
        -12, -9.5, -1, -0.25, 0, 0.25, 0.5, 1, 9.75, 10, 11, 99.5, 100
    };
    for (size_t i = 0; i < COUNT_OF(bounds); i++)
        for (size_t j = i; j < COUNT_OF(bounds); j++)
            for (int kind = 0; kind < 8; kind++) {
                bool low_out = kind & 1, high_out = kind & 2, whole = kind & 4;
                char schema[200];
                snprintf(schema, sizeof schema, "{\"type\":\"%s\",\"%s\":%.17g,\"%s\":%.17g}",
                         whole ? "integer" : "number", low_out ? "exclusiveMinimum" : "minimum",
                         bounds[i], high_out ? "exclusiveMaximum" : "maximum", bounds[j]);
                struct grammar *grammar;
                struct grammar_matcher *matcher = NULL;
                mf_error why;
                mf_status status = json_schema_parse_new(&grammar, &allocator_heap, schema,
                                                         strlen(schema), NULL, &why);
                if (status == MF_OK)
                    assert_int_equal(grammar_matcher_new(&matcher, &allocator_heap, grammar,
                                                         vocabulary.vocabulary, NULL),
                                     MF_OK);
                else
                    assert_non_null(strstr(why.text, "ever ends"));
                for (int quarter = -60; quarter <= 420; quarter++) {
                    double x = quarter / 4.0;
                    char text[32];
                    snprintf(text, sizeof text, "%.*f", quarter % 4 ? 2 : 0, x);
                    if (strcmp(text, "-0") == 0) continue;
                    bool inside = (low_out ? x > bounds[i] : x >= bounds[i]) &&
                                  (high_out ? x < bounds[j] : x <= bounds[j]);
                    if (whole && quarter % 4) inside = false;
                    bool allowed = matcher && accepts(matcher, text);
                    if (allowed != inside) fail_msg("%s: %s is %d", schema, text, allowed);
                }
                grammar_matcher_free(matcher);
                grammar_free(grammar);
            }
}

static void strings_keep_to_length_pattern_and_format(void **state)
{
    (void)state;
    static const struct schema_case cases[] = {
        { "{\"type\":\"string\",\"minLength\":2,\"maxLength\":4}",
          { "\"ab\"", "\"abcd\"", "\"\xc3\xa9\xc3\xa9\"", "\"\\n\\u0041x\"",
            "\"\\ud83d\\ude00x\"" },
          { "\"a\"", "\"abcde\"", "\"\xc3\xa9\"" } },
        { "{\"type\":\"string\",\"pattern\":\"^[A-Z]{2}-[0-9]+$\"}",
          { "\"AB-1\"", "\"ZZ-0042\"" },
          { "\"A-1\"", "\"AB-\"", "\"xAB-1\"", "\"AB-1x\"" } },
        { "{\"type\":\"string\",\"pattern\":\"foo\"}",
          { "\"foo\"", "\"a foo b\"",
            "\"\xc3\xa9"
            "foo\"" },
          { "\"fo\"", "\"\"" } },
        { "{\"type\":\"string\",\"pattern\":\"^a|b$\"}",
          { "\"ax\"", "\"xb\"" },
          { "\"xa\"", "\"bx\"" } },
        { "{\"type\":\"string\",\"pattern\":\"^(foo|ba[rz])?\\\\d{2,3}\\\\s\\\\w*$\"}",
          { "\"foo12 x_9\"", "\"123 \"", "\"baz00\\ty\"" },
          { "\"bar1 x\"", "\"12x\"" } },
        { "{\"type\":\"string\",\"pattern\":\"^[^a-z\\\"\\\\\\\\]+$\"}",
          { "\"ABC\"", "\"\xe4\xb8\xad\"", "\"\\n\"" },
          { "\"aBC\"", "\"\\\"\"", "\"\\\\\"" } },
        { "{\"type\":\"string\",\"pattern\":\"^\\\"\\\\\\\\$\"}", { "\"\\\"\\\\\"" }, { "\"\"" } },
        { "{\"type\":\"string\",\"pattern\":\"^\\\\u00e9\\\\x41\\\\u{1f600}.$\"}",
          { "\"\xc3\xa9"
            "A\xf0\x9f\x98\x80"
            "x\"" },
          { "\"eA\"" } },
        { "{\"type\":\"string\",\"pattern\":\"^[a-z][a-z0-9]*$\",\"minLength\":3,\"maxLength\":5}",
          { "\"abc\"", "\"a1234\"" },
          { "\"ab\"", "\"abcdef\"", "\"1ab\"" } },
        { "{\"type\":\"string\",\"pattern\":\"^\\\\+?[0-9]{3,}$\",\"maxLength\":6}",
          { "\"123\"", "\"+123\"" },
          { "\"1234567\"", "\"12\"" } },
        { "{\"type\":\"string\",\"format\":\"date\"}",
          { "\"2024-02-28\"", "\"1999-12-31\"" },
          { "\"2024-13-01\"", "\"2024-04-31\"", "\"2024-02-30\"", "\"24-01-01\"" } },
        { "{\"type\":\"string\",\"format\":\"date-time\"}",
          { "\"2024-02-28T23:59:59Z\"", "\"2024-02-28T01:02:03.5+02:00\"" },
          { "\"2024-02-28 01:02:03Z\"", "\"2024-02-28T25:00:00Z\"" } },
        { "{\"type\":\"string\",\"format\":\"uuid\"}",
          { "\"123e4567-e89b-12d3-a456-426614174000\"" },
          { "\"123e4567\"" } },
        { "{\"type\":\"string\",\"format\":\"ipv4\"}",
          { "\"192.168.0.1\"", "\"255.255.255.255\"" },
          { "\"256.0.0.1\"", "\"1.2.3\"" } },
        { "{\"type\":\"string\",\"format\":\"email\"}", { "\"a.b@example.org\"" }, { "\"a@b\"" } },
        { "{\"type\":\"string\",\"format\":\"unheard-of\"}", { "\"anything\"" }, { "1" } },
    };
    check_cases(cases, COUNT_OF(cases));
}

static void objects_keep_to_their_properties(void **state)
{
    (void)state;
    static const struct schema_case cases[] = {
        { "{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"integer\"},\"b\":{\"type\":"
          "\"null\"},"
          "\"c\":{\"type\":\"boolean\"}},\"required\":[\"b\"]}",
          { "{\"b\":null}", "{\"a\":1,\"b\":null}", "{ \"a\": 1, \"b\": null, \"c\": true }",
            "{\n  \"b\": null,\n  \"c\": false\n}" },
          { "{}", "{\"a\":1}", "{\"b\":null,\"a\":1}", "{\"b\":null,}", "{\"b\":null,\"d\":1}",
            "{\"a\":1 \"b\":null}" } },
        { "{\"type\":\"object\",\"properties\":{\"a\":{},\"b\":{}}}",
          { "{}", "{\"a\":1}", "{\"b\":[]}", "{\"a\":{},\"b\":\"x\"}" },
          { "{,\"b\":1}", "{\"b\":1,\"b\":1}", "{\"z\":1}" } },
        { "{\"type\":\"object\"}", { "{}", "{\"x\":{\"y\":1},\"z\":[]}" }, { "[]", "{\"x\"}" } },
        { "{\"type\":\"object\",\"additionalProperties\":{\"type\":\"integer\"}}",
          { "{}", "{\"x\":1,\"y\":2}" },
          { "{\"x\":\"s\"}" } },
        { "{\"type\":\"object\",\"properties\":{\"abc\":{\"type\":\"null\"},\"ab\":{\"type\":"
          "\"null\"},"
          "\"x\":{\"type\":\"null\"}},\"additionalProperties\":{\"type\":\"integer\"}}",
          { "{\"abc\":null}", "{\"a\":1}", "{\"abd\":1}", "{\"abcd\":1}", "{\"\":1}",
            "{\"x\":null,\"xx\":1,\"y\":2}" },
          { "{\"abc\":1}", "{\"ab\":1}", "{\"x\":1}", "{\"\\u0061b\":1}", "{\"a\":null}" } },
        { "{\"type\":\"object\",\"additionalProperties\":false}", { "{}" }, { "{\"a\":1}" } },
        { "{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"null\"}},\"required\":[\"a\","
          "\"z\"]}",
          { "{\"a\":null,\"z\":1}" },
          { "{\"a\":null}" } },
        { "{\"properties\":{\"a\":false,\"b\":{\"type\":\"null\"}}}",
          { "{}", "{\"b\":null}" },
          { "{\"a\":1}" } },
        { "{\"type\":\"object\",\"properties\":{\"a\":{\"const\":1},\"b\":{\"const\":2},\"c\":{"
          "\"const\":3}},"
          "\"minProperties\":2}",
          { "{\"a\":1,\"b\":2}", "{\"b\":2,\"c\":3}", "{\"a\":1,\"b\":2,\"c\":3}" },
          { "{}", "{\"a\":1}", "{\"c\":3}" } },
        { "{\"type\":\"object\",\"properties\":{\"a\":{\"const\":1},\"b\":{\"const\":2},\"c\":{"
          "\"const\":3}},"
          "\"maxProperties\":1}",
          { "{}", "{\"a\":1}", "{\"c\":3}" },
          { "{\"a\":1,\"b\":2}" } },
        { "{\"type\":\"object\",\"minProperties\":1,\"maxProperties\":2}",
          { "{\"a\":1}", "{\"a\":1,\"b\":2}" },
          { "{}", "{\"a\":1,\"b\":2,\"c\":3}" } },
        { "{\"type\":\"object\",\"patternProperties\":{\"^k_\":{\"type\":\"integer\"}},"
          "\"additionalProperties\":false}",
          { "{}", "{\"k_a\":1,\"k_\":2}" },
          { "{\"a\":1}", "{\"k_a\":\"x\"}" } },
        { "{\"type\":\"object\",\"propertyNames\":{\"maxLength\":2}}",
          { "{\"ab\":1}" },
          { "{\"abc\":1}" } },
        { "{\"type\":\"object\",\"properties\":{\"a\\\"\\n\":{\"type\":\"null\"}}}",
          { "{\"a\\\"\\n\":null}" },
          { "{\"a\":null}" } },
    };
    check_cases(cases, COUNT_OF(cases));
}

static void arrays_keep_to_their_items(void **state)
{
    (void)state;
    static const struct schema_case cases[] = {
        { "{\"type\":\"array\",\"items\":{\"type\":\"integer\"},\"minItems\":1,\"maxItems\":3}",
          { "[1]", "[1,2]", "[ 1, 2, 3 ]" },
          { "[]", "[1,2,3,4]", "[1,]", "[\"a\"]" } },
        { "{\"type\":\"array\"}", { "[]", "[1,\"a\",[null]]" }, { "[1" } },
        { "{\"type\":\"array\",\"maxItems\":0}", { "[]" }, { "[1]" } },
        { "{\"type\":\"array\",\"maxItems\":1e300}", { "[]", "[1,2]" }, { "[1" } },
        { "{\"type\":\"array\",\"items\":false}", { "[]" }, { "[1]" } },
        { "{\"type\":\"array\",\"prefixItems\":[{\"type\":\"integer\"},{\"type\":\"string\"}],"
          "\"items\":false}",
          { "[]", "[1]", "[1,\"a\"]" },
          { "[\"a\"]", "[1,\"a\",2]" } },
        { "{\"type\":\"array\",\"prefixItems\":[{\"const\":1},{\"const\":2}],\"items\":{\"const\":"
          "3},"
          "\"minItems\":2,\"maxItems\":4}",
          { "[1,2]", "[1,2,3]", "[1,2,3,3]" },
          { "[1]", "[1,2,3,3,3]", "[1,3]" } },
        { "{\"type\":\"array\",\"items\":[{\"const\":1},{\"const\":2}],\"additionalItems\":false,"
          "\"minItems\":2}",
          { "[1,2]" },
          { "[1]", "[1,2,3]" } },
        { "{\"type\":\"array\",\"prefixItems\":[{\"const\":1}],\"minItems\":3}",
          { "[1,\"x\",{}]" },
          { "[1]" } },
        { "{\"items\":{\"items\":{\"type\":\"null\"}}}", { "[[null],[]]" }, { "[1]" } },
    };
    check_cases(cases, COUNT_OF(cases));
}

static const struct schema_case combination_cases[] = {
    { "{\"anyOf\":[{\"type\":\"integer\"},{\"type\":\"string\",\"maxLength\":1}]}",
      { "1", "\"a\"" },
      { "\"ab\"", "null" } },
    { "{\"type\":\"object\",\"properties\":{\"k\":{\"type\":\"string\"}},\"required\":[\"k\"],"
      "\"anyOf\":[{\"properties\":{\"k\":{\"const\":\"a\"},\"n\":{\"type\":\"integer\"}},"
      "\"required\":[\"n\"]},"
      "{\"properties\":{\"k\":{\"const\":\"b\"}}}]}",
      { "{\"k\":\"a\",\"n\":1}", "{\"k\":\"b\"}" },
      { "{\"k\":\"a\"}", "{\"k\":\"c\"}", "{\"k\":\"b\",\"n\":1}" } },
    { "{\"allOf\":[{\"type\":\"integer\",\"minimum\":3},{\"maximum\":5},{\"multipleOf\":2}]}",
      { "4" },
      { "3", "5", "6" } },
    { "{\"allOf\":[{\"multipleOf\":4},{\"multipleOf\":6}],\"type\":\"integer\"}",
      { "12", "0", "-24" },
      { "4", "6", "8" } },
    { "{\"allOf\":[{\"properties\":{\"a\":{\"type\":\"integer\"}},\"required\":[\"a\"]},"
      "{\"properties\":{\"a\":{\"minimum\":5},\"b\":{\"type\":\"null\"}},\"required\":[\"b\"]}]"
      "}",
      { "{\"a\":5,\"b\":null}" },
      { "{\"a\":4,\"b\":null}", "{\"a\":5}" } },
    { "{\"allOf\":[{\"enum\":[1,2,3]},{\"enum\":[2,3,4]}],\"anyOf\":[{\"minimum\":3},{"
      "\"const\":4}]}",
      { "3" },
      { "1", "2", "4" } },
    { "{\"allOf\":[{\"type\":[\"string\",\"integer\"]},{\"type\":[\"number\",\"null\"]}]}",
      { "1" },
      { "\"a\"", "null", "1.5" } },
    { "{\"allOf\":[{\"properties\":{\"a\":{}},\"additionalProperties\":false},{\"properties\":{"
      "\"b\":{}}}]}",
      { "{}", "{\"a\":1}" },
      { "{\"b\":1}" } },
    { "{\"$ref\":\"#/$defs/x\",\"$defs\":{\"x\":{\"type\":\"null\"}}}", { "null" }, { "1" } },
    { "{\"$ref\":\"#/$defs/a~1b%25\",\"minimum\":2,\"$defs\":{\"a/"
      "b%\":{\"type\":\"integer\",\"maximum\":3}}}",
      { "2", "3" },
      { "1", "4" } },
    { "{\"type\":\"object\",\"properties\":{\"v\":{\"type\":\"integer\"},\"next\":{\"anyOf\":[{"
      "\"$ref\":\"#\"},"
      "{\"type\":\"null\"}]}},\"required\":[\"v\",\"next\"],\"additionalProperties\":false}",
      { "{\"v\":1,\"next\":null}", "{\"v\":1,\"next\":{\"v\":2,\"next\":null}}" },
      { "{\"v\":1}", "{\"v\":1,\"next\":{}}" } },
    { "{\"$defs\":{\"tree\":{\"type\":\"object\",\"properties\":{\"kids\":{\"type\":\"array\","
      "\"items\":"
      "{\"$ref\":\"#/$defs/tree\"}}},\"required\":[\"kids\"]}},\"$ref\":\"#/$defs/tree\"}",
      { "{\"kids\":[]}", "{\"kids\":[{\"kids\":[]},{\"kids\":[{\"kids\":[]}]}]}" },
      { "{\"kids\":[1]}" } },
    { "{\"oneOf\":[{\"type\":\"string\"},{\"type\":\"integer\"}]}", { "\"a\"", "1" }, { "null" } },
    { "{\"anyOf\":[false,{\"const\":1}]}", { "1" }, { "2" } },
    { "{\"$defs\":{\"a\":{\"allOf\":[{\"$ref\":\"#/$defs/"
      "b\"},{\"required\":[\"x\"]}]},\"b\":{\"type\":\"object\","
      "\"properties\":{\"x\":{\"anyOf\":[{\"$ref\":\"#/$defs/a\"},{\"type\":\"null\"}]}}}},"
      "\"$ref\":\"#/$defs/a\"}",
      { "{\"x\":null}", "{\"x\":{\"x\":null}}" },
      { "{}", "{\"x\":{}}" } },
};

static void combined_schemas_hold_together(void **state)
{
    (void)state;
    check_cases(combination_cases, COUNT_OF(combination_cases));
}

static void impossible_and_unsupported_schemas_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *schema, *error;
    } cases[] = {
        { "false", "ever ends" },
        { "{\"type\":\"integer\",\"minimum\":5,\"maximum\":4}", "ever ends" },
        { "{\"type\":\"integer\",\"minimum\":0.2,\"maximum\":0.8}", "ever ends" },
        { "{\"enum\":[]}", "ever ends" },
        { "{\"enum\":[1],\"type\":\"string\"}", "ever ends" },
        { "{\"type\":\"string\",\"minLength\":3,\"maxLength\":2}", "ever ends" },
        { "{\"type\":\"string\",\"pattern\":\"^abc$\",\"maxLength\":2}", "ever ends" },
        { "{\"required\":[\"a\"],\"properties\":{\"a\":false}}", "ever ends" },
        { "{\"allOf\":[{\"type\":\"string\"},{\"type\":\"null\"}]}", "ever ends" },
        { "{\"properties\":{\"self\":{\"$ref\":\"#\"}},\"required\":[\"self\"]}", "ever ends" },
        { "{\"$ref\":\"#\"}", "begins with itself" },
        { "1", "a schema is a whole number" },
        { "{\"type\":\"strin\"}", "type \"strin\" is not known" },
        { "{\"properties\":{\"a\":{\"properties\":{\"b\":{\"type\":3}}}}}",
          "schema at #/properties/a/properties/b: type" },
        { "{\"not\":{}}", "not is not supported" },
        { "{\"properties\":{\"a\":{\"if\":{}}}}", "schema at #/properties/a: if is not supported" },
        { "{\"type\":\"array\",\"uniqueItems\":true}", "uniqueItems is not supported" },
        { "{\"$ref\":\"http://example.org/x\"}", "leads out of the schema" },
        { "{\"$ref\":\"#/$defs/none\"}", "leads nowhere" },
        { "{\"type\":\"string\",\"pattern\":\"(?=a)\"}", "lookaround" },
        { "{\"type\":\"string\",\"pattern\":\"(a\"}", "not closed" },
        { "{\"type\":\"string\",\"pattern\":\"a)\"}", "not opened" },
        { "{\"type\":\"string\",\"pattern\":\"[b-a]\"}", "an empty range" },
        { "{\"type\":\"string\",\"pattern\":\"(a)\\\\1\"}", "this escape is not supported" },
        { "{\"type\":\"string\",\"pattern\":\"a^b\"}", "anchors are supported at the ends only" },
        { "{\"type\":\"string\",\"pattern\":\"*\"}", "nothing to repeat" },
        { "{\"minItems\":-1}", "minItems is not a count" },
        { "{\"minimum\":\"x\"}", "minimum is a string" },
        { "{\"anyOf\":[]}", "anyOf with 0 branches" },
        { "{\"type\":\"object\",\"minProperties\":3}", "minProperties is not supported" },
        { "{", "schema is not valid JSON" },
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct grammar *grammar;
        mf_error why = { 0 };
        mf_status status = json_schema_parse_new(&grammar, &allocator_heap, cases[i].schema,
                                                 strlen(cases[i].schema), NULL, &why);
        if (status == MF_OK || !strstr(why.text, cases[i].error))
            fail_msg("%s: status %d, \"%s\" does not say \"%s\"", cases[i].schema, status, why.text,
                     cases[i].error);
        assert_null(grammar);
    }
}

struct notes {
    char text[2048];
};

static void take_note(void *user, const char *sentence)
{
    struct notes *notes = user;
    assert_true(strlen(notes->text) + strlen(sentence) + 2 < sizeof notes->text);
    strcat(notes->text, sentence);
    strcat(notes->text, "\n");
}

static void ignored_keywords_are_noted(void **state)
{
    (void)state;
    static const struct {
        const char *schema, *note;
    } cases[] = {
        { "{\"not\":{},\"type\":\"null\"}", "schema at #: not is not kept" },
        { "{\"properties\":{\"t\":{\"type\":\"array\",\"uniqueItems\":true}}}",
          "schema at #/properties/t: uniqueItems" },
        { "{\"type\":\"string\",\"format\":\"color\"}", "format \"color\" is not checked" },
        { "{\"x-thing\":1}", "keyword \"x-thing\" is not known" },
        { "{\"oneOf\":[{\"type\":\"integer\"},{\"type\":\"number\"}]}",
          "branches 0 and 1 may overlap" },
        { "{\"oneOf\":[{\"properties\":{\"a\":{}}},{\"properties\":{\"b\":{}}}]}", "may overlap" },
        { "{\"oneOf\":[{\"properties\":{\"a\":{}},\"required\":[\"a\"]},{\"properties\":{\"b\":{}},"
          "\"required\":[\"b\"]}]}",
          NULL },
        { "{\"oneOf\":[{\"properties\":{\"k\":{\"const\":1}},\"required\":[\"k\"]},"
          "{\"properties\":{\"k\":{\"const\":2}},\"required\":[\"k\"]}]}",
          NULL },
        { "{\"type\":\"string\",\"title\":\"t\",\"default\":\"d\",\"examples\":[]}", NULL },
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct notes notes = { "" };
        struct json_schema_options options = { .lenient = true, .note = take_note, .user = &notes };
        struct grammar *grammar;
        mf_error why;
        if (json_schema_parse_new(&grammar, &allocator_heap, cases[i].schema,
                                  strlen(cases[i].schema), &options, &why) != MF_OK)
            fail_msg("%s: %s", cases[i].schema, why.text);
        bool good = cases[i].note ? strstr(notes.text, cases[i].note) != NULL : !notes.text[0];
        if (!good) fail_msg("%s: noted \"%s\"", cases[i].schema, notes.text);
        grammar_free(grammar);
    }
}

/* Large and twisted schemas end: with a grammar or an error, soon. */
static void sizes_are_bounded(void **state)
{
    (void)state;
    struct grammar *grammar;
    mf_error why;
    enum { DEEP = 1500 };
    static char text[DEEP * 12 + 10];
    size_t length = 0;
    for (int i = 0; i < DEEP; i++) length += (size_t)sprintf(text + length, "{\"items\":");
    length += (size_t)sprintf(text + length, "true");
    for (int i = 0; i < DEEP; i++) text[length++] = '}';
    assert_int_equal(json_schema_parse_new(&grammar, &allocator_heap, text, length, NULL, &why),
                     MF_ERR_GRAMMAR);
    assert_non_null(strstr(why.text, "deep"));

    /* Each definition refers twice to the next: 2^40 if they were followed one by one. */
    static char doubling[8192];
    length = (size_t)sprintf(doubling, "{\"$ref\":\"#/$defs/d0\",\"$defs\":{");
    for (int i = 0; i < 40; i++)
        length += (size_t)sprintf(
            doubling + length,
            "\"d%d\":{\"allOf\":[{\"$ref\":\"#/$defs/d%d\"},{\"$ref\":\"#/$defs/d%d\"}]},", i,
            i + 1, i + 1);
    length += (size_t)sprintf(doubling + length, "\"d40\":{\"type\":\"null\"}}}");
    mf_status status =
        json_schema_parse_new(&grammar, &allocator_heap, doubling, length, NULL, &why);
    assert_int_equal(status, MF_ERR_GRAMMAR);

    /* A thousand choices that begin alike, and one string of 100,000. */
    static char choices[64000];
    length = (size_t)sprintf(choices, "{\"enum\":[\"x\"");
    for (int i = 0; i < 3000; i++) length += (size_t)sprintf(choices + length, ",\"common-%d\"", i);
    strcpy(choices + length, "]}");
    const struct schema_case cases[] = {
        { choices, { "\"common-0\"", "\"common-2999\"" }, { "\"common-3000\"", "\"common-\"" } },
        { "{\"type\":\"string\",\"maxLength\":100000}", { "\"abc\"" }, { "\"" } },
    };
    check_cases(cases, COUNT_OF(cases));
}

static int make_vocabulary(void **state)
{
    (void)state;
    test_vocabulary_init(&vocabulary, 500, 1);
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
        cmocka_unit_test(simple_types_accept_their_values_only),
        cmocka_unit_test(numbers_keep_to_their_bounds),
        cmocka_unit_test(number_bounds_are_exact),
        cmocka_unit_test(strings_keep_to_length_pattern_and_format),
        cmocka_unit_test(objects_keep_to_their_properties),
        cmocka_unit_test(arrays_keep_to_their_items),
        cmocka_unit_test(combined_schemas_hold_together),
        cmocka_unit_test(impossible_and_unsupported_schemas_are_refused),
        cmocka_unit_test(ignored_keywords_are_noted),
        cmocka_unit_test(sizes_are_bounded),
    };
    return cmocka_run_group_tests(tests, make_vocabulary, free_vocabulary);
}
