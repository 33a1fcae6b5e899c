/* The form of answers in families whose special tokens are never text: Harmony, Gemma 4. */
#include "support/test.h"

#include "chat/constraint.h"
#include "chat/output_family.h"
#include "grammar/matcher.h"
#include "support/grammar_vocabulary_fixture.h"

#include <jansson.h>

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
static struct test_vocabulary vocabulary;

struct form {
    struct grammar *grammar;
    struct grammar_matcher *matcher;
};

static struct form open_form(const struct answer_form *wanted)
{
    struct form form;
    mf_error why;
    if (answer_grammar_new(&form.grammar, &allocator_heap, wanted, &why) != MF_OK ||
        grammar_matcher_new(&form.matcher, &allocator_heap, form.grammar, vocabulary.vocabulary,
                            &why) != MF_OK)
        fail_msg("%s: %s", wanted->family->name, why.text);
    return form;
}

static void close_form(struct form *form)
{
    grammar_matcher_free(form->matcher);
    grammar_free(form->grammar);
}

static bool begins(struct form *form, const char *text)
{
    matcher_reset(form->matcher);
    return matcher_accept_bytes(form->matcher, text, strlen(text));
}

static bool accepts(struct form *form, const char *text)
{
    return begins(form, text) && matcher_is_complete(form->matcher);
}

struct answer_case {
    const char *family, *text;
};

static void families_accept_their_own_calls(void **state)
{
    (void)state;
    static const struct answer_case cases[] = {
        { "harmony", "<|channel|>final<|message|>Hi. <|x|>" },
        { "harmony", "<|channel|>commentary to=functions.now <|constrain|>json<|message|>{}" },
        { "harmony", " to=functions.now<|channel|>commentary json<|message|>{}" },
        { "harmony",
          "<|channel|>commentary<|message|>I look.<|end|><|start|>assistant<|channel|>commentary "
          "to=functions.get_weather <|constrain|>json<|message|>{\"city\":\"<b>\\u003c|end|>\","
          "\"unit\":\"kelvin\",\"days\":14}" },
        { "gemma4", "<|tool_call>call:now{}<tool_call|>" },
        { "gemma4",
          "Hm.<|tool_call>call:get_weather{city:<|\"|>a \"<b>\"\n<|x|><|\"|>,unit:<|\"|>kelvin"
          "<|\"|>,days:14}<tool_call|><|tool_call>call:now{}<tool_call|>" },
        { "gemma4",
          "<|tool_call>call:store{id:<|\"|>beef<|\"|>,color:<|\"|>dark red<|\"|>,on:true,note:null,"
          "items:[<|\"|>a<|\"|>,<|\"|><|\"|>]}<tool_call|>" },
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct answer_form wanted = { .family = output_family_find(cases[i].family),
                                      .tools = tools };
        struct form form = open_form(&wanted);
        if (!accepts(&form, cases[i].text)) fail_msg("%s: %s", cases[i].family, cases[i].text);
        close_form(&form);
    }
}

static void what_breaks_a_schema_or_holds_a_marker_is_impossible(void **state)
{
    (void)state;
    static const struct answer_case cases[] = {
        { "harmony", "Hi." },
        { "harmony", "<|channel|>secret" },
        { "harmony", "<|channel|>final<|message|>Hi.<|start|>" },
        { "harmony", "<|channel|>commentary to=functions.nothing" },
        { "harmony", "<|channel|>commentary to=functions.now<|message|>{\"x\"" },
        { "harmony", "<|channel|>commentary to=functions.now<|message|>{}<" },
        { "harmony", "<|channel|>commentary to=functions.get_weather<|message|>{\"city\":\"<|" },
        { "harmony", "<|channel|>commentary to=functions.get_weather<|message|>{\"city\":\"a\"}" },
        { "gemma4", "<|tool_call>call:nothing{" },
        { "gemma4", "<|tool_call>now{" },
        { "gemma4", "<|tool_call>call:now{x" },
        { "gemma4", "<|tool_call>call:get_weather{city:\"" },
        { "gemma4", "<|tool_call>call:get_weather{city:<|\"|>a<|\"|>}" },
        { "gemma4", "<|tool_call>call:get_weather{city:<|\"|>a<|\"|>,days:15" },
        { "gemma4", "<|tool_call>call:get_weather{city:<|\"|>a<tool_call|>" },
        { "gemma4", "Hi.<|turn>" },
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct answer_form wanted = { .family = output_family_find(cases[i].family),
                                      .tools = tools };
        struct form form = open_form(&wanted);
        if (begins(&form, cases[i].text)) fail_msg("%s: %s", cases[i].family, cases[i].text);
        close_form(&form);
    }
}

static void reasoning_stands_where_it_may_in_channels(void **state)
{
    (void)state;
    static const struct {
        enum answer_reasoning reasoning;
        enum tool_choice choice;
        const char *text;
        bool accepted;
    } cases[] = {
#define CALL " to=functions.now<|channel|>commentary json<|message|>{}"
#define NEXT "<|end|><|start|>assistant"
        { ANSWER_NO_REASONING, TOOL_CHOICE_AUTO, "<|channel|>final<|message|>x", true },
        { ANSWER_NO_REASONING, TOOL_CHOICE_AUTO, "<|channel|>analysis", false },
        { ANSWER_MAY_REASON, TOOL_CHOICE_AUTO, "<|channel|>analysis<|message|>r", true },
        { ANSWER_MAY_REASON, TOOL_CHOICE_AUTO,
          "<|channel|>analysis<|message|>r" NEXT "<|channel|>final<|message|>x", true },
        { ANSWER_MAY_REASON, TOOL_CHOICE_AUTO, "<|channel|>analysis<|message|>r" NEXT CALL, true },
        { ANSWER_MAY_REASON, TOOL_CHOICE_REQUIRED, "<|channel|>analysis<|message|>r" NEXT CALL,
          true },
        { ANSWER_MAY_REASON, TOOL_CHOICE_REQUIRED, "<|channel|>analysis<|message|>r", false },
        { ANSWER_MAY_REASON, TOOL_CHOICE_REQUIRED, CALL, true },
        { ANSWER_MAY_REASON, TOOL_CHOICE_REQUIRED, "<|channel|>final<|message|>", false },
        { ANSWER_MAY_REASON, TOOL_CHOICE_REQUIRED, "<|channel|>commentary<|message|>", false },
        { ANSWER_MAY_REASON, TOOL_CHOICE_NONE, CALL, false },
        { ANSWER_OPENS_REASONING, TOOL_CHOICE_REQUIRED, "r" NEXT CALL, true },
        { ANSWER_OPENS_REASONING, TOOL_CHOICE_REQUIRED, CALL, false },
#undef CALL
#undef NEXT
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct answer_form wanted = { .family = output_family_find("harmony"),
                                      .tools = tools,
                                      .reasoning = cases[i].reasoning,
                                      .choice = cases[i].choice };
        struct form form = open_form(&wanted);
        if (accepts(&form, cases[i].text) != cases[i].accepted) fail_msg("case %zu", i);
        close_form(&form);
    }
}

static void content_keeps_to_a_schema(void **state)
{
    (void)state;
    json_t *schema = json_loads("{\"enum\": [1, 2]}", 0, NULL);
    struct answer_form wanted = { .schema = schema, .tools = tools };
    struct form form;

    wanted.family = output_family_find("harmony");
    form = open_form(&wanted);
    assert_true(accepts(&form, "<|channel|>final<|message|>2"));
    assert_true(accepts(&form, "<|channel|>final <|constrain|>json<|message|>2"));
    assert_true(accepts(&form, " to=functions.now<|message|>{}"));
    assert_false(accepts(&form, "<|channel|>final<|message|>3"));
    assert_false(accepts(&form, "<|channel|>final<|message|>"));
    close_form(&form);

    wanted.family = output_family_find("gemma4");
    form = open_form(&wanted);
    assert_true(accepts(&form, "2"));
    assert_true(accepts(&form, "<|tool_call>call:now{}<tool_call|>"));
    assert_false(accepts(&form, "text"));
    close_form(&form);
    json_decref(schema);
}

/* What a schema fixes is written as the family writes values. */
static void schemas_are_kept_without_quotes(void **state)
{
    (void)state;
    static const struct {
        const char *properties, *good[3], *bad[3];
    } cases[] = {
        { "{\"a\":{\"const\":{\"x y\":[1,\"b\",{},[]],\"z\":null}}}",
          { "{a:{<|\"|>x y<|\"|>:[1,<|\"|>b<|\"|>,{},[]],z:null}}", "{}" },
          { "{a:{\"x" } },
        { "{\"a b\":{\"type\":\"string\",\"minLength\":2}}",
          { "{<|\"|>a b<|\"|>:<|\"|>\"\n<|\"|>}" },
          { "{a", "{<|\"|>a b<|\"|>:<|\"|>x<|\"|>" } },
        { "{\"a\":{\"type\":\"string\",\"pattern\":\"^[<a]b$\"}}",
          { "{a:<|\"|>ab<|\"|>}" },
          { "{a:<|\"|><" } },
        { "{\"a\":{\"type\":\"object\",\"properties\":{\"x\":{\"type\":\"integer\"}},"
          "\"additionalProperties\":{\"type\":\"boolean\"}}}",
          { "{a:{x:1,y:true}}", "{a:{}}", "{a:{xy_1:false}}" },
          { "{a:{y:1", "{a:{x:t", "{a:{:" } },
        { "{\"a\":{\"anyOf\":[{\"type\":\"number\"},{\"type\":\"string\"}]}}",
          { "{a:1.5}", "{a:<|\"|>1.5<|\"|>}" },
          { "{a:t" } },
        { "{\"a\":{}}", { "{a:{b:{c:[true,<|\"|>d<|\"|>]}}}" }, { "{a:b", "{a:{}{" } },
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        json_t *list = json_pack("[{s:s,s:{s:o}}]", "name", "f", "parameters", "properties",
                                 json_loads(cases[i].properties, 0, NULL));
        struct answer_form wanted = { .family = output_family_find("gemma4"), .tools = list };
        struct form form = open_form(&wanted);
        char text[256];
        for (size_t j = 0; j < 3 && cases[i].good[j]; j++) {
            snprintf(text, sizeof text, "<|tool_call>call:f%s<tool_call|>", cases[i].good[j]);
            if (!accepts(&form, text)) fail_msg("%s is refused", text);
        }
        for (size_t j = 0; j < 3 && cases[i].bad[j]; j++) {
            snprintf(text, sizeof text, "<|tool_call>call:f%s", cases[i].bad[j]);
            if (begins(&form, text)) fail_msg("%s is possible", text);
        }
        close_form(&form);
        json_decref(list);
    }
}

int main(void)
{
    test_vocabulary_init(&vocabulary, 700, 1);
    tools = json_loads(tools_text, 0, NULL);
    if (!tools) return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(families_accept_their_own_calls),
        cmocka_unit_test(what_breaks_a_schema_or_holds_a_marker_is_impossible),
        cmocka_unit_test(reasoning_stands_where_it_may_in_channels),
        cmocka_unit_test(content_keeps_to_a_schema),
        cmocka_unit_test(schemas_are_kept_without_quotes),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    test_vocabulary_release(&vocabulary);
    json_decref(tools);
    return failed;
}
