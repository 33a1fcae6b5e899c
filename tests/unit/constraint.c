/* The form of whole answers: what each family's grammar allows is what its parser reads back, calls
 * keep to the schemas of their tools, and every answer closes at its limit. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "base/arena.h"
#include "chat/constraint.h"
#include "grammar/matcher.h"
#include "sampling/random.h"
#include "sampling/sampler.h"
#include "chat/output_family.h"
#include "support/failing_allocator.h"

#include <stdio.h>
#include <stdlib.h>

static const char tools_text[] =
    "[{\"type\": \"function\", \"function\": {\"name\": \"get_weather\", \"parameters\": {"
    "  \"type\": \"object\", \"properties\": {"
    "    \"city\": {\"type\": \"string\"},"
    "    \"unit\": {\"type\": \"string\", \"enum\": [\"celsius\", \"kelvin\"]},"
    "    \"days\": {\"type\": \"integer\", \"minimum\": 1, \"maximum\": 14}},"
    "  \"required\": [\"city\", \"days\"]}}},"
    " {\"name\": \"now\"},"
    " {\"name\": \"store\", \"parameters\": {\"type\": \"object\", \"properties\": {"
    "    \"id\": {\"type\": \"string\", \"pattern\": \"^[a-f0-9]{4}$\"},"
    "    \"color\": {\"$ref\": \"#/$defs/color\"},"
    "    \"on\": {\"type\": \"boolean\"},"
    "    \"note\": {\"type\": [\"string\", \"null\"]},"
    "    \"items\": {\"type\": \"array\", \"items\": {\"type\": \"string\"}, \"maxItems\": 3}},"
    "  \"required\": [\"id\", \"color\", \"on\", \"note\", \"items\"],"
    "  \"$defs\": {\"color\": {\"enum\": [\"red\", \"dark red\"]}}}}]";

static json_t *tools;

static const struct output_family *family_of(const char *name)
{
    const struct output_family *family = output_family_find(name);
    assert_non_null(family);
    return family;
}

/* ---------------------------------------------------------------- vocabulary */

/* Bytes, the tags of all families whole and in two halves, and words. */
struct word {
    char bytes[48];
    size_t length;
};
enum { WORDS = 2048 };
static struct word words[WORDS];
static size_t word_count;
static struct grammar_vocabulary *vocabulary;
static int32_t end_token;

static void add_word(const char *bytes, size_t length)
{
    if (!bytes || length == 0 || word_count == WORDS || length > sizeof words[0].bytes) return;
    memcpy(words[word_count].bytes, bytes, length);
    words[word_count++].length = length;
}

static void add_tag(const char *tag)
{
    if (!tag) return;
    size_t length = strlen(tag), half = length / 2;
    add_word(tag, length);
    add_word(tag, half);
    add_word(tag + half, length - half);
}

static const char *bytes_of(void *user, int32_t id, size_t *length)
{
    (void)user;
    if ((size_t)id >= word_count) return NULL;
    *length = words[id].length;
    return words[id].bytes;
}

static int make_vocabulary(void **state)
{
    static const char *const more[] = {
        "<think>",
        "</think>",
        "\n\n",
        "{\"name\": \"",
        "\", \"arguments\": {",
        "}}",
        "\": \"",
        "red",
        "dark",
        " red",
        "celsius",
        "Paris",
        "14",
        "true",
        "null",
        "[\"",
        "\"]",
        "</",
        "<",
        "/>",
        "functions.",
        "city",
        "days",
        "weather",
        "get_",
        "now",
        ":0<",
        "assistant",
        "analysis",
        "commentary",
        "final",
        " to=",
        "json",
        "thought\n",
        "call:",
        "call:now{",
        "\xe4\xb8\xad",
    };
    (void)state;
    for (unsigned byte = 0; byte < 256; byte++) add_word((char[]){ (char)byte }, 1);
    for (size_t i = 0; i < COUNT_OF(more); i++) add_word(more[i], strlen(more[i]));
    for (size_t i = 0; output_family_at(i); i++) {
        const struct output_family *f = output_family_at(i);
        const char *tags[] = { f->section_begin, f->section_end,     f->call_begin,
                               f->call_end,      f->parameter_begin, f->key_end,
                               f->value_begin,   f->value_end,       f->name_end };
        for (size_t j = 0; j < COUNT_OF(tags); j++) add_tag(tags[j]);
        for (size_t j = 0; f->markers && f->markers[j]; j++) add_tag(f->markers[j]);
    }
    end_token = (int32_t)word_count;
    struct vocabulary_source source = { word_count + 1, bytes_of, NULL, &end_token, 1 };
    json_error_t problem;
    tools = json_loads(tools_text, 0, &problem);
    assert_non_null(tools);
    return grammar_vocabulary_new(&vocabulary, &allocator_heap, &source, NULL) == MF_OK ? 0 : -1;
}

static int free_vocabulary(void **state)
{
    (void)state;
    grammar_vocabulary_free(vocabulary);
    json_decref(tools);
    return 0;
}

/* ------------------------------------------------------------------ matchers */

struct form {
    struct grammar *grammar;
    struct grammar_matcher *matcher;
};

static struct form open_form(const struct answer_form *wanted)
{
    struct form form;
    mf_error why;
    if (answer_grammar_new(&form.grammar, &allocator_heap, wanted, &why) != MF_OK)
        fail_msg("%s: %s", wanted->family->name, why.text);
    if (grammar_matcher_new(&form.matcher, &allocator_heap, form.grammar, vocabulary, &why))
        fail_msg("%s: %s", wanted->family->name, why.text);
    return form;
}

static void close_form(struct form *form)
{
    grammar_matcher_free(form->matcher);
    grammar_free(form->grammar);
}

static bool accepts(struct form *form, const char *text)
{
    matcher_reset(form->matcher);
    return matcher_accept_bytes(form->matcher, text, strlen(text)) &&
           matcher_is_complete(form->matcher);
}

/* -------------------------------------------------------------------- tables */

/* As the families' templates write them. */
static void every_family_accepts_its_own_calls(void **state)
{
    (void)state;
    static const struct {
        const char *family, *text;
    } cases[] = {
        { "hermes", "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": "
                    "\"Paris\", \"days\": 3}}\n</tool_call>" },
        { "hermes", "I look.\n<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>\n"
                    "<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>" },
        { "qwen3_coder",
          "<tool_call>\n<function=get_weather>\n<parameter=city>\nParis\n</parameter>\n"
          "<parameter=days>\n3\n</parameter>\n</function>\n</tool_call>" },
        { "qwen3_5", "<function=now>\n</function>\n</tool_call>" },
        { "qwen3_5",
          "x < y, <b>\n\n<tool_call>\n<function=store>\n<parameter=id>\nbeef\n</parameter>\n"
          "<parameter=color>\ndark red\n</parameter>\n<parameter=on>\nTrue\n</parameter>\n"
          "<parameter=note>\n<a></a>\n\n</parameter>\n<parameter=items>\n[\"<b>\", \"<\\/b>\"]\n"
          "</parameter>\n</function>\n</tool_call>" },
        { "deepseek_v3", "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>now\n"
                         "```json\n{}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>" },
        { "deepseek_v3_1",
          "Hm.<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>now<｜tool▁sep｜>{}<｜tool▁call▁end｜>"
          "<｜tool▁call▁begin｜>get_weather<｜tool▁sep｜>{\"city\": \"a\", \"unit\": \"kelvin\", "
          "\"days\": 14}<｜tool▁call▁end｜><｜tool▁calls▁end｜>" },
        { "deepseek_v3_2",
          "<｜DSML｜function_calls>\n<｜DSML｜invoke name=\"get_weather\">\n"
          "<｜DSML｜parameter name=\"city\" string=\"true\">Paris</｜DSML｜parameter>\n"
          "<｜DSML｜parameter name=\"days\" string=\"false\">3</｜DSML｜parameter>\n"
          "</｜DSML｜invoke>\n</｜DSML｜function_calls>" },
        { "kimi_k2", "<|tool_calls_section_begin|><|tool_call_begin|>functions.now:12"
                     "<|tool_call_argument_begin|>{}<|tool_call_end|><|tool_calls_section_end|>" },
        { "glm_4_6", "<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>Paris"
                     "</arg_value>\n<arg_key>days</arg_key>\n<arg_value>7</arg_value>\n"
                     "</tool_call>" },
        { "minimax_m2",
          "<minimax:tool_call>\n<invoke name=\"get_weather\">\n<parameter name=\"city\">Paris"
          "</parameter>\n<parameter name=\"days\">7</parameter>\n</invoke>\n"
          "</minimax:tool_call>" },
        { "glm_4_6", "<tool_call>get_weather<arg_key>city</arg_key><arg_value>Paris</arg_value>"
                     "<arg_key>days</arg_key><arg_value>7</arg_value></tool_call>" },
        { "glm_4_6", "<tool_call>now</tool_call>" },
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct answer_form wanted = { .family = family_of(cases[i].family), .tools = tools };
        struct form form = open_form(&wanted);
        if (!accepts(&form, cases[i].text)) fail_msg("%s: %s", cases[i].family, cases[i].text);
        close_form(&form);
    }
}

static void a_call_that_breaks_its_schema_is_impossible(void **state)
{
    (void)state;
    static const struct {
        const char *family, *text;
    } cases[] = {
        { "hermes", "<tool_call>\n{\"name\": \"nothing\", \"arguments\": {}}\n</tool_call>" },
        { "hermes", "<tool_call>\n{\"name\": \"now\", \"arguments\": {\"x\": 1}}\n</tool_call>" },
        { "hermes", "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"a\"}}" },
        { "hermes", "<tool_call>\nno" },
        { "hermes", "<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>\nText" },
        { "qwen3_5", "<tool_call>\n<function=get_weather>\n<parameter=days>\n3\n</parameter>" },
        { "qwen3_5", "<function=get_weather>\n<parameter=city>\nP</parameter>\n" },
        { "qwen3_5", "<function=store>\n<parameter=id>\nxyz" },
        { "qwen3_5", "<function=store>\n<parameter=id>\nbeef\n</parameter>\n<parameter=color>\nb" },
        { "glm_4_6", "<tool_call>get_weather\n<arg_key>days" },
        { "glm_4_6", "<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>Paris"
                     "</arg_value>\n<arg_key>days</arg_key>\n<arg_value>15" },
        { "kimi_k2", "<|tool_calls_section_begin|><|tool_call_begin|>now" },
        { "deepseek_v3_1", "<｜tool▁calls▁begin｜>now" },
        { "deepseek_v3_2", "<｜DSML｜function_calls>\n<｜DSML｜invoke name=\"get_weather\">\n"
                           "<｜DSML｜parameter name=\"city\" string=\"false\">" },
        { "minimax_m2", "<minimax:tool_call>\n<invoke name=\"now\">\n<parameter" },
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct answer_form wanted = { .family = family_of(cases[i].family), .tools = tools };
        struct form form = open_form(&wanted);
        const char *text = cases[i].text;
        assert_false(accepts(&form, text));
        matcher_reset(form.matcher);
        assert_false(matcher_accept_bytes(form.matcher, text, strlen(text)));
        close_form(&form);
    }
}

/* What else a schema allows beside an object, arguments are none of it. */
static void arguments_are_objects(void **state)
{
    (void)state;
    static const char *const schemas[] = {
        "{\"type\": [\"string\", \"object\", \"null\"]}",
        "{\"type\": \"object\", \"nullable\": true}",
        "{\"enum\": [null, \"\", {\"x\": 1}]}",
        "{\"anyOf\": [{\"type\": \"string\"}, {\"nullable\": true}, {}]}",
        "{\"allOf\": [{\"nullable\": true}]}",
        "{\"$ref\": \"#/$defs/any\", \"$defs\": {\"any\": {\"nullable\": true}}}",
    };
    static const char before[] = "<tool_call>{\"name\": \"f\", \"arguments\": ";
    for (size_t i = 0; i < COUNT_OF(schemas); i++) {
        json_t *list = json_pack("[{s:s,s:o}]", "name", "f", "parameters",
                                 json_loads(schemas[i], JSON_DECODE_ANY, NULL));
        struct answer_form wanted = { .family = family_of("hermes"), .tools = list };
        struct form form = open_form(&wanted);
        if (!accepts(&form, "<tool_call>{\"name\": \"f\", \"arguments\": {\"x\":1}}</tool_call>"))
            fail_msg("%s: no object", schemas[i]);
        for (const char *c = "\"[n1tf"; *c; c++) {
            matcher_reset(form.matcher);
            assert_true(matcher_accept_bytes(form.matcher, before, sizeof before - 1));
            if (matcher_accept_bytes(form.matcher, c, 1)) fail_msg("%s: %c", schemas[i], *c);
        }
        close_form(&form);
        json_decref(list);
    }
}

#define GLM(inner) "<tool_call>f\n" inner "</tool_call>"
#define A          "<arg_key>a</arg_key>\n<arg_value>1</arg_value>\n"
#define B          "<arg_key>b</arg_key>\n<arg_value>2</arg_value>\n"
#define C          "<arg_key>c</arg_key>\n<arg_value>3</arg_value>\n"

/* minProperties and maxProperties hold where every parameter has a tag of its own. */
static void parameters_are_counted(void **state)
{
    (void)state;
    static const struct {
        const char *limits, *good[4], *bad[4];
    } cases[] = {
        { "\"minProperties\": 1", { GLM(A), GLM(B C), GLM(A B C) }, { GLM("") } },
        { "\"maxProperties\": 2", { GLM(""), GLM(C), GLM(A C) }, { GLM(A B C) } },
        { "\"minProperties\": 2, \"maxProperties\": 2",
          { GLM(A B), GLM(A C), GLM(B C) },
          { GLM(""), GLM(B), GLM(A B C) } },
        { "\"maxProperties\": 2, \"required\": [\"c\"]",
          { GLM(C), GLM(A C), GLM(B C) },
          { GLM(A B), GLM(A B C), GLM("") } },
        { "\"minProperties\": 3.0", { GLM(A B C) }, { GLM(A B), GLM(B C) } },
        { "\"required\": [\"d\", \"d\"]",
          { GLM("<arg_key>d</arg_key>\n<arg_value>x</arg_value>\n") },
          { GLM(A), GLM("") } },
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        char text[512];
        snprintf(
            text, sizeof text,
            "[{\"name\": \"f\", \"parameters\": {\"properties\": {\"a\": {\"type\": \"integer\"}, "
            "\"b\": {\"type\": \"integer\"}, \"c\": {\"type\": \"integer\"}}, %s}}]",
            cases[i].limits);
        json_t *list = json_loads(text, 0, NULL);
        assert_non_null(list);
        struct answer_form wanted = { .family = family_of("glm_4_6"),
                                      .tools = list,
                                      .choice = TOOL_CHOICE_REQUIRED };
        struct form form = open_form(&wanted);
        for (size_t j = 0; j < 4 && cases[i].good[j]; j++)
            if (!accepts(&form, cases[i].good[j]))
                fail_msg("%s: %s is refused", cases[i].limits, cases[i].good[j]);
        for (size_t j = 0; j < 4 && cases[i].bad[j]; j++)
            if (accepts(&form, cases[i].bad[j]))
                fail_msg("%s: %s is possible", cases[i].limits, cases[i].bad[j]);
        close_form(&form);
        json_decref(list);
    }
}

static void count_note(void *user, const char *sentence)
{
    int *count = user;
    if (strstr(sentence, "tool \"f\": oneOf of its parameters is not kept")) ++*count;
}

static void schemas_that_tags_cannot_enforce_are_noted(void **state)
{
    (void)state;
    int notes = 0;
    json_t *list = json_loads("[{\"name\": \"f\", \"parameters\": {\"properties\": {\"a\": {}}, "
                              "\"oneOf\": [{\"required\": [\"a\"]}]}}]",
                              0, NULL);
    struct answer_form wanted = { .family = family_of("qwen3_5"),
                                  .tools = list,
                                  .schema_options = { .note = count_note, .user = &notes } };
    struct form form = open_form(&wanted);
    assert_int_equal(notes, 1);
    close_form(&form);
    json_decref(list);
}

/* Free text stays free: only the whole of an opener means something. */
static void text_is_free_until_an_opener(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "",
        "a < b",
        "<",
        "<<<",
        "<tool",
        "<tool_cal l>",
        "</think> <think>",
        "<<tool_cal<tool_call ",
        "\xe4\xb8\xad\n<\n",
        "</tool_call>",
        "{\"name\": \"now\"}",
        "<think>",
    };
    struct answer_form wanted = { .family = family_of("hermes"), .tools = tools };
    for (int choice = TOOL_CHOICE_AUTO; choice <= TOOL_CHOICE_NONE; choice++) {
        wanted.choice = (enum tool_choice)choice;
        struct form form = open_form(&wanted);
        bool free = choice != TOOL_CHOICE_REQUIRED;
        for (size_t i = 0; i < COUNT_OF(texts); i++)
            if (accepts(&form, texts[i]) != free) fail_msg("choice %d: %s", choice, texts[i]);
        matcher_reset(form.matcher);
        static const char opener[] = "<<tool_call>";
        assert_true(matcher_accept_bytes(form.matcher, opener + 1, 10) || choice);
        matcher_reset(form.matcher);
        bool opens = matcher_accept_bytes(form.matcher, opener, sizeof opener - 1);
        assert_int_equal(opens, choice == TOOL_CHOICE_AUTO);
        assert_false(matcher_accept_bytes(form.matcher, "\xff", 1));
        close_form(&form);
    }
}

static void reasoning_stands_where_it_may(void **state)
{
    (void)state;
    static const char call[] = "<tool_call>\n<function=now>\n</function>\n</tool_call>";
    static const struct {
        enum answer_reasoning reasoning;
        const char *before;
        bool required, accepted;
    } cases[] = {
        { ANSWER_NO_REASONING, "", true, true },
        { ANSWER_NO_REASONING, "<think>\nhm\n</think>\n\n", true, false },
        { ANSWER_MAY_REASON, "", true, true },
        { ANSWER_MAY_REASON, "<think>\nhm\n</think>\n\n", true, true },
        { ANSWER_MAY_REASON, "hm\n</think>\n\n", true, false },
        { ANSWER_OPENS_REASONING, "hm\n</think>\n\n", true, true },
        { ANSWER_OPENS_REASONING, "hm ", true, true }, /* qwen3_5: a call ends reasoning */
        { ANSWER_OPENS_REASONING, "hm\n</think>\n\nText ", true, false },
        { ANSWER_OPENS_REASONING, "hm\n</think>\n\nText ", false, true },
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct answer_form wanted = {
            .family = family_of("qwen3_5"),
            .tools = tools,
            .reasoning = cases[i].reasoning,
            .choice = cases[i].required ? TOOL_CHOICE_REQUIRED : TOOL_CHOICE_AUTO,
        };
        struct form form = open_form(&wanted);
        char text[256];
        snprintf(text, sizeof text, "%s%s", cases[i].before, call);
        if (accepts(&form, text) != cases[i].accepted) fail_msg("case %zu", i);
        close_form(&form);
    }
}

static void content_keeps_to_a_schema_after_reasoning(void **state)
{
    (void)state;
    json_t *schema = json_loads("{\"enum\": [1, 2]}", 0, NULL);
    struct answer_form wanted = {
        .family = family_of("think"),
        .reasoning = ANSWER_OPENS_REASONING,
        .schema = schema,
    };
    struct form form = open_form(&wanted);
    assert_true(accepts(&form, "So it is 3 {</think>\n\n1"));
    assert_false(accepts(&form, "So it is 3"));
    assert_false(accepts(&form, "</think>3"));
    close_form(&form);

    wanted.family = family_of("hermes");
    wanted.tools = tools;
    wanted.reasoning = ANSWER_NO_REASONING;
    form = open_form(&wanted);
    assert_true(accepts(&form, "2"));
    assert_true(accepts(&form, "<tool_call>{\"name\": \"now\", \"arguments\": {}}</tool_call>"));
    assert_false(accepts(&form, "text"));
    close_form(&form);
    json_decref(schema);
}

static void calls_are_counted_and_chosen(void **state)
{
    (void)state;
    static const char now[] = "<tool_call>{\"name\": \"now\", \"arguments\": {}}</tool_call>";
    char two[256];
    snprintf(two, sizeof two, "%s\n%s", now, now);
    struct answer_form wanted = { .family = family_of("hermes"), .tools = tools, .one_call = true };
    struct form form = open_form(&wanted);
    assert_true(accepts(&form, now));
    assert_true(matcher_is_finished(form.matcher));
    assert_false(accepts(&form, two));
    close_form(&form);

    wanted.one_call = false;
    wanted.only_tool = "store";
    wanted.choice = TOOL_CHOICE_REQUIRED;
    form = open_form(&wanted);
    assert_false(accepts(&form, now));
    close_form(&form);
}

static void impossible_forms_are_refused(void **state)
{
    (void)state;
    struct {
        const char *family, *tools, *only, *message;
        enum tool_choice choice;
    } cases[] = {
        { "hermes", "[{\"name\": \"a\"}]", "b", "no tool \"b\"", TOOL_CHOICE_AUTO },
        { "hermes", "[{\"description\": \"a\"}]", NULL, "tool 1 has no name", TOOL_CHOICE_AUTO },
        { "hermes", "[]", NULL, "there are no tools", TOOL_CHOICE_REQUIRED },
        { "think", "[{\"name\": \"a\"}]", NULL, "knows no tool calls", TOOL_CHOICE_REQUIRED },
        { "glm_4_6", "[{\"name\": \"a b\"}]", NULL, "cannot be called", TOOL_CHOICE_AUTO },
        { "hermes", "[{\"name\": \"f\", \"parameters\": {\"properties\": {\"x\": {\"type\": 3}}}}]",
          NULL, "tool \"f\"", TOOL_CHOICE_AUTO },
        { "qwen3_5",
          "[{\"name\": \"f\", \"parameters\": {\"properties\": {\"x>\": {}}, \"required\": "
          "[\"x>\"]}}]",
          NULL, "cannot be written", TOOL_CHOICE_AUTO },
        { "deepseek_v3", "[{\"name\": \"f\", \"parameters\": {\"type\": \"string\"}}]", NULL,
          "tool \"f\": its parameters are of type \"string\", \"object\"", TOOL_CHOICE_AUTO },
        { "qwen3_5", "[{\"name\": \"f\", \"parameters\": {\"type\": [\"array\", 3]}}]", NULL,
          "tool \"f\": its parameters are of type [\"array\",3],", TOOL_CHOICE_AUTO },
        { "hermes", "[{\"name\": \"f\", \"parameters\": \"none\"}]", NULL,
          "tool \"f\": its parameters are a string", TOOL_CHOICE_AUTO },
        { "kimi_k2", "[{\"name\": \"f\", \"parameters\": {\"const\": \"none\"}}]", NULL,
          "no arguments satisfy", TOOL_CHOICE_REQUIRED },
        { "qwen3_5",
          "[{\"name\": \"f\", \"parameters\": {\"properties\": {\"x\": {}}, \"minProperties\": "
          "2}}]",
          NULL, "leave no call possible", TOOL_CHOICE_AUTO },
        { "qwen3_5", "[{\"name\": \"f\", \"parameters\": {\"minProperties\": 2}}]", NULL,
          "tool \"f\": minProperties is more than 1", TOOL_CHOICE_AUTO },
        { "qwen3_5", "[{\"name\": \"f\", \"parameters\": {\"maxProperties\": -1}}]", NULL,
          "tool \"f\": maxProperties is not a count", TOOL_CHOICE_AUTO },
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        json_t *list = json_loads(cases[i].tools, 0, NULL);
        struct answer_form wanted = {
            .family = family_of(cases[i].family),
            .tools = list,
            .only_tool = cases[i].only,
            .choice = cases[i].choice,
        };
        struct grammar *grammar;
        mf_error why = { 0 };
        assert_int_not_equal(answer_grammar_new(&grammar, &allocator_heap, &wanted, &why), MF_OK);
        assert_null(grammar);
        if (!strstr(why.text, cases[i].message)) fail_msg("case %zu: %s", i, why.text);
        json_decref(list);
    }
}

static void a_schema_that_nothing_satisfies_is_refused(void **state)
{
    (void)state;
    json_t *schema = json_pack("{s:[]}", "enum");
    struct answer_form wanted = { .family = family_of("hermes"), .schema = schema };
    struct grammar *grammar;
    mf_error why = { 0 };
    mf_status status = answer_grammar_new(&grammar, &allocator_heap, &wanted, &why);
    assert_int_equal(status, MF_ERR_GRAMMAR);
    assert_string_equal(why.text, "schema: no value satisfies it");
    json_decref(schema);
}

/* ------------------------------------------------------------- random answers */

struct answer_text {
    char bytes[1 << 16];
    size_t length;
};

static void write_answer(struct answer_text *out, struct form *form, struct sampler *sampler,
                         struct random *random, size_t limit)
{
    static float logits[WORDS + 1];
    matcher_reset(form->matcher);
    out->length = 0;
    for (size_t left = limit; left > 0 && !matcher_is_finished(form->matcher); left--) {
        for (size_t i = 0; i <= word_count; i++) logits[i] = (float)random_unit(random);
        /* Tags often, so that calls begin and end by themselves; bytes seldom. */
        for (size_t i = 0; i < 256; i++) logits[i] -= 3;
        int32_t token = matcher_pick(form->matcher, sampler, logits, left);
        assert_true(token >= 0);
        assert_true(matcher_accept(form->matcher, token));
        if (token == end_token) break;
        assert_true(out->length + words[token].length < sizeof out->bytes);
        memcpy(out->bytes + out->length, words[token].bytes, words[token].length);
        out->length += words[token].length;
    }
    assert_true(matcher_is_complete(form->matcher));
}

static void parse_answer(struct output_message *out, const struct answer_form *form,
                         const struct answer_text *text, size_t step)
{
    struct output_options options = {
        .family = form->family,
        .tools = tools,
        .prompt_opens_reasoning = form->reasoning == ANSWER_OPENS_REASONING,
        .sink = output_message_sink,
        .user = out,
    };
    struct output_parser *parser;
    *out = (struct output_message){ 0 };
    assert_int_equal(output_parser_new(&parser, &options, NULL), MF_OK);
    for (size_t at = 0; at < text->length; at += step)
        assert_int_equal(
            output_parser_feed(parser, text->bytes + at, min_size(step, text->length - at), NULL),
            MF_OK);
    assert_int_equal(output_parser_finish(parser, NULL), MF_OK);
    output_parser_free(parser);
}

static bool is_among(const json_t *value, const char *const *texts)
{
    for (; *texts; texts++)
        if (json_is_string(value) && strcmp(json_string_value(value), *texts) == 0) return true;
    return false;
}

/* By hand, not by the compiler of schemas. */
static bool arguments_fit(const char *name, const json_t *arguments)
{
    static const char *const units[] = { "celsius", "kelvin", NULL };
    static const char *const colors[] = { "red", "dark red", NULL };
    size_t size = json_object_size(arguments);
    if (strcmp(name, "now") == 0) return size == 0;
    if (strcmp(name, "get_weather") == 0) {
        const json_t *unit = json_object_get(arguments, "unit");
        const json_t *days = json_object_get(arguments, "days");
        json_int_t count = json_integer_value(days);
        return size == 2 + (unit != NULL) && json_is_string(json_object_get(arguments, "city")) &&
               (!unit || is_among(unit, units)) && json_is_integer(days) && count >= 1 &&
               count <= 14;
    }
    const json_t *id = json_object_get(arguments, "id"), *note = json_object_get(arguments, "note");
    const json_t *items = json_object_get(arguments, "items");
    for (size_t i = 0; i < json_array_size(items); i++)
        if (!json_is_string(json_array_get(items, i))) return false;
    return strcmp(name, "store") == 0 && size == 5 && json_string_length(id) == 4 &&
           strspn(json_string_value(id), "0123456789abcdef") == 4 &&
           is_among(json_object_get(arguments, "color"), colors) &&
           json_is_boolean(json_object_get(arguments, "on")) &&
           (json_is_string(note) || json_is_null(note)) && json_is_array(items) &&
           json_array_size(items) <= 3;
}

static bool same_text(const char *a, const char *b)
{
    return (!a && !b) || (a && b && strcmp(a, b) == 0);
}

/* Calls are whole and fit; fed byte by byte they are the same. */
static void check_answer(const struct answer_form *form, const struct answer_text *text)
{
    struct output_message whole, bytes;
    parse_answer(&whole, form, text, SIZE_MAX);
    parse_answer(&bytes, form, text, 1);
    if (form->choice == TOOL_CHOICE_REQUIRED && whole.call_count == 0)
        fail_msg("%s: no call in %.*s", form->family->name, (int)text->length, text->bytes);
    if (form->choice == TOOL_CHOICE_NONE) assert_int_equal(whole.call_count, 0);
    assert_int_equal(whole.call_count, bytes.call_count);
    for (size_t i = 0; i < whole.call_count; i++) {
        const struct output_call *call = &whole.calls[i];
        json_t *arguments = json_loads(call->arguments.data, 0, NULL);
        if (!call->complete || !arguments_fit(call->name, arguments) ||
            !same_text(call->arguments.data, bytes.calls[i].arguments.data))
            fail_msg("%s: %s %s in %.*s", form->family->name, call->name, call->arguments.data,
                     (int)text->length, text->bytes);
        json_decref(arguments);
    }
    /* Nothing of a call is left over as text. */
    const struct output_family *family = form->family;
    const char *const begin[] = { family->section_begin ? family->section_begin
                                                        : family->call_begin,
                                  NULL };
    const char *const *left = family->markers ? family->markers : begin;
    for (; whole.content.data && *left; left++)
        if (strstr(whole.content.data, *left))
            fail_msg("%s: %s is left of %.*s", family->name, *left, (int)text->length, text->bytes);
    assert_true(same_text(whole.content.data, bytes.content.data));
    assert_true(same_text(whole.reasoning.data, bytes.reasoning.data));
    output_message_clear(&whole);
    output_message_clear(&bytes);
}

static void random_answers_are_read_back_as_meant(void **state)
{
    (void)state;
    static struct answer_text text;
    struct random random;
    struct sampler *sampler;
    struct sampler_options options;
    sampler_options_default(&options);
    options.temperature = 0.3f;
    random_seed(&random, 5);
    assert_int_equal(
        sampler_new(&sampler, &allocator_heap, &options, word_count + 1, word_count + 1, NULL),
        MF_OK);
    for (size_t f = 0; output_family_at(f); f++) {
        const struct output_family *family = output_family_at(f);
        if (family->body == BODY_NONE) continue;
        for (int kind = 0; kind < 9; kind++) {
            struct answer_form wanted = {
                .family = family,
                .tools = tools,
                .reasoning = (enum answer_reasoning)(kind % 3),
                .choice = (enum tool_choice)(kind / 3),
            };
            struct form form = open_form(&wanted);
            size_t shortest = matcher_closing_tokens(form.matcher);
            for (size_t round = 0; round < 30; round++) {
                size_t room = round % 3 == 2 ? 300 : round % 3 * 30;
                size_t limit = shortest + (room ? random_next(&random) % room : 0);
                write_answer(&text, &form, sampler, &random, limit);
                check_answer(&wanted, &text);
            }
            close_form(&form);
        }
    }
    sampler_free(sampler);
}

/* ------------------------------------------------------------------- failures */

static void running_out_of_memory_is_reported(void **state)
{
    (void)state;
    struct failing_allocator heap;
    struct answer_form wanted = { .family = family_of("qwen3_5"), .tools = tools };
    failing_allocator_init(&heap);
    for (uint64_t nth = 1;; nth++) {
        struct grammar *grammar;
        failing_allocator_arm(&heap, nth);
        mf_status status = answer_grammar_new(&grammar, &heap.allocator, &wanted, NULL);
        bool fired = failing_allocator_disarm(&heap);
        assert_int_equal(status, fired ? MF_ERR_MEMORY : MF_OK);
        grammar_free(grammar);
        assert_int_equal(heap.live_bytes, 0);
        if (!fired) break;
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_family_accepts_its_own_calls),
        cmocka_unit_test(a_call_that_breaks_its_schema_is_impossible),
        cmocka_unit_test(arguments_are_objects),
        cmocka_unit_test(parameters_are_counted),
        cmocka_unit_test(schemas_that_tags_cannot_enforce_are_noted),
        cmocka_unit_test(text_is_free_until_an_opener),
        cmocka_unit_test(reasoning_stands_where_it_may),
        cmocka_unit_test(content_keeps_to_a_schema_after_reasoning),
        cmocka_unit_test(calls_are_counted_and_chosen),
        cmocka_unit_test(impossible_forms_are_refused),
        cmocka_unit_test(a_schema_that_nothing_satisfies_is_refused),
        cmocka_unit_test(random_answers_are_read_back_as_meant),
        cmocka_unit_test(running_out_of_memory_is_reported),
    };
    return cmocka_run_group_tests(tests, make_vocabulary, free_vocabulary);
}
