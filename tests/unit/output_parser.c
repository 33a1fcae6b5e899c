/* model/output_parser: what outputs mean, in which events, whatever the pieces. */
#include "support/test.h"

#include "base/json.h"
#include "base/status.h"
#include "chat/output_json.h"
#include "chat/output_parser.h"

#include <stdio.h>
#include <stdlib.h>

static mf_error why;
static json_t *tools;

static const char declared[] =
    "[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"parameters\":{\"type\":\"object\","
    "\"properties\":{\"s\":{\"type\":\"string\"},\"n\":{\"type\":\"integer\"},"
    "\"b\":{\"type\":\"boolean\"},\"o\":{\"type\":\"object\"},"
    "\"u\":{\"type\":[\"string\",\"null\"]},\"e\":{\"enum\":[\"1\",\"2\"]},"
    "\"a\":{\"anyOf\":[{\"type\":\"number\"},{\"type\":\"string\"}]}}}}},"
    "{\"name\":\"flat\",\"parameters\":{\"properties\":{\"s\":{\"type\":\"string\"}}}}]";

/* ------------------------------------------------------------------ traces of events */

/* "R(text)C(text)B(name)A(text)E D", texts of one kind joined. */
struct trace {
    char text[8192];
    size_t length;
    char last;
    size_t events;
};

static void put(struct trace *trace, const char *data, size_t length)
{
    assert_true(trace->length + length < sizeof trace->text);
    if (length) memcpy(trace->text + trace->length, data, length);
    trace->length += length;
    trace->text[trace->length] = '\0';
}

static mf_status record(void *user, const struct output_event *event, mf_error *error)
{
    (void)error;
    struct trace *trace = user;
    char kind = "RCBAED"[event->kind];
    bool joined = kind == trace->last && (kind == 'R' || kind == 'C' || kind == 'A');
    if (joined)
        trace->length--; /* its ")" */
    else
        put(trace, &kind, 1);
    if (!joined && kind != 'E' && kind != 'D') put(trace, "(", 1);
    put(trace, event->text, event->length);
    if (event->id) {
        put(trace, " #", 2);
        put(trace, event->id, event->id_length);
    }
    if (kind != 'E' && kind != 'D') put(trace, ")", 1);
    trace->last = kind;
    trace->events++;
    return MF_OK;
}

struct feeding {
    const char *family;
    bool opens;
    bool stream;
    bool unfinished;
    bool cut;
    size_t chunk; /* 0: whole */
};

static void feed(struct trace *trace, const struct feeding *how, const char *text)
{
    *trace = (struct trace){ 0 };
    struct output_options options = { .family = output_family_find(how->family),
                                      .tools = tools,
                                      .prompt_opens_reasoning = how->opens,
                                      .stream_calls = how->stream,
                                      .sink = record,
                                      .user = trace };
    struct output_parser *parser;
    assert_non_null(options.family);
    assert_int_equal(output_parser_new(&parser, &options, &why), MF_OK);
    size_t left = strlen(text);
    while (left) {
        size_t size = min_size(left, how->chunk ? how->chunk : left);
        assert_int_equal(output_parser_feed(parser, text, size, &why), MF_OK);
        text += size;
        left -= size;
    }
    if (how->cut)
        assert_int_equal(output_parser_cut(parser, &why), MF_OK);
    else if (!how->unfinished)
        assert_int_equal(output_parser_finish(parser, &why), MF_OK);
    output_parser_free(parser);
}

static void assert_trace(const char *family, bool opens, const char *text, const char *expected)
{
    struct trace trace;
    for (size_t chunk = 0; chunk < 6; chunk++) {
        struct feeding how = { .family = family, .opens = opens, .chunk = chunk };
        feed(&trace, &how, text);
        if (strcmp(trace.text, expected) != 0)
            fail_msg("%s, pieces of %zu:\n%s\n  gives    %s\n  expected %s", family, chunk, text,
                     trace.text, expected);
    }
}

/* ------------------------------------------------------------------ text and reasoning */

static void reasoning_is_told_from_content(void **state)
{
    (void)state;
    assert_trace("think", false, "Hi", "C(Hi)");
    assert_trace("think", false, "", "");
    assert_trace("think", false, "<think>\na\n</think>\n\nb", "R(a)C(b)");
    assert_trace("think", false, " \n<think>a b\n\nc</think>d", "R(a b\n\nc)C(d)");
    assert_trace("think", true, "a</think>b", "R(a)C(b)");
    assert_trace("think", true, "a", "R(a)");
    assert_trace("think", true, "a \n", "R(a)");
    assert_trace("think", false, "a <think>b</think>", "C(a <think>b</think>)");
    assert_trace("think", false, "<think></think><think>x</think>y", "R(x)C(y)");
    assert_trace("think", true, "<think>a</think>b", "R(a)C(b)"); /* opened twice */
    assert_trace("think", true, "<think><think>a</think>b", "R(<think>a)C(b)");
    assert_trace("think", true, "a<think>b</think>c", "R(a<think>b)C(c)");
    assert_trace("think", false, "<thin", "C(<thin)");
    assert_trace("think", true, "a</thin", "R(a</thin)");
    assert_trace("think", false, "<tool_call>{}</tool_call>", "C(<tool_call>{}</tool_call>)");
}

static void white_space_of_plain_content_is_kept(void **state)
{
    (void)state;
    assert_trace("hermes", false, "  a\n\n b \n", "C(  a\n\n b \n)");
    assert_trace("hermes", false, " \n ", "C( \n )");
}

static void possible_markup_is_held_back(void **state)
{
    (void)state;
    static const struct {
        const char *family;
        bool opens;
        const char *text, *expected;
    } cases[] = {
        { "hermes", false, "a <tool_c", "C(a)" },
        { "hermes", false, "a <tool_x", "C(a <tool_x)" },
        { "hermes", true, "a</th", "R(a)" },
        { "hermes", false, "a \n", "C(a)" },
        { "hermes", false, "<tool_call>{\"name\":\"f\",\"arguments\":{}}", "" },
        { "kimi_k2", false, "a<|tool_call", "C(a)" },
        { "hermes", false, "caf\xC3", "C(caf)" },
        { "hermes", false, "x\xF0\x9F\x98", "C(x)" },
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct trace trace;
        struct feeding how = { .family = cases[i].family,
                               .opens = cases[i].opens,
                               .unfinished = true };
        feed(&trace, &how, cases[i].text);
        assert_string_equal(trace.text, cases[i].expected);
    }
}

/* ------------------------------------------------------------------ families */

static void every_family_reads_its_calls(void **state)
{
    (void)state;
    assert_trace("hermes", false,
                 "Look.\n<tool_call>\n{\"name\": \"f\", \"arguments\": {\"s\": \"</tool_call>\"}}\n"
                 "</tool_call>\n<tool_call>{\"arguments\": {}, \"name\": \"g\"}</tool_call>",
                 "C(Look.)B(f)A({\"s\": \"</tool_call>\"})EB(g)A({})E");
    assert_trace("hermes", false, "<tool_call>{\"name\":\"f\",\"arguments\":\" {\\\"n\\\":1}\\n\"}",
                 "B(f)A({\"n\":1})E");
    assert_trace("hermes", false, "<tool_call>{\"name\":\"f\",\"arguments\":\"\\n \"}",
                 "C(<tool_call>{\"name\":\"f\",\"arguments\":\"\\n \"})");
    assert_trace("hermes", false, "<tool_call>{\"name\":\"f\",\"arguments\":null}</tool_call>",
                 "B(f)A({})E");
    assert_trace("qwen3_coder", false,
                 "<tool_call>\n<function=f>\n<parameter=s>\n1\n</parameter>\n<parameter=n>\n2\n"
                 "</parameter>\n</function>\n<function=g>\n</function>\n</tool_call>\nEnd",
                 "B(f)A({\"s\": \"1\", \"n\": 2})EB(g)A({})EC(End)");
    assert_trace("qwen3_5", true,
                 "Hm.\n</think>\n\n<function=f>\n<parameter=b>\nTrue\n</parameter>\n</function>",
                 "R(Hm.)B(f)A({\"b\": true})E");
    assert_trace(
        "deepseek_v3", false,
        "a<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n```json\n"
        "{\"n\": 1}\n```<｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>function<｜tool▁sep｜>g\n"
        "```json\n{}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
        "C(a)B(f)A({\"n\": 1})EB(g)A({})E");
    assert_trace(
        "deepseek_v3_1", false,
        "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f<｜tool▁sep｜>{\"n\": 1}<｜tool▁call▁end｜>"
        "<｜tool▁call▁begin｜>g<｜tool▁sep｜>{}<｜tool▁call▁end｜><｜tool▁calls▁end｜>x",
        "B(f)A({\"n\": 1})EB(g)A({})EC(x)");
    assert_trace("deepseek_v3_2", false,
                 "<｜DSML｜function_calls>\n<｜DSML｜invoke name=\"f\">\n"
                 "<｜DSML｜parameter name=\"n\" string=\"true\">1</｜DSML｜parameter>\n"
                 "<｜DSML｜parameter name=\"s\" string=\"false\">[1]</｜DSML｜parameter>\n"
                 "</｜DSML｜invoke>\n</｜DSML｜function_calls>",
                 "B(f)A({\"n\": \"1\", \"s\": [1]})E");
    assert_trace(
        "kimi_k2", false,
        "<|tool_calls_section_begin|><|tool_call_begin|>functions.a.b:10"
        "<|tool_call_argument_begin|>{\"x\": 1}<|tool_call_end|><|tool_calls_section_end|>",
        "B(a.b #functions.a.b:10)A({\"x\": 1})E");
    assert_trace(
        "kimi_k2", false,
        "Hi<|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{}<|tool_call_end|>",
        "C(Hi)B(f #functions.f:0)A({})E");
    assert_trace("glm_4_6", false,
                 "<tool_call>f\n<arg_key>n</arg_key>\n<arg_value>7</arg_value>\n</tool_call>\n"
                 "<tool_call>g</tool_call>",
                 "B(f)A({\"n\": 7})EB(g)A({})E");
    assert_trace("minimax_m2", true,
                 "P\n</think>\n\n<minimax:tool_call>\n<invoke name=\"f\">\n"
                 "<parameter name=\"s\">a\n<b></parameter>\n</invoke>\n</minimax:tool_call>\nDone.",
                 "R(P)B(f)A({\"s\": \"a\\n<b>\"})EC(Done.)");
    assert_trace("minimax_m2", true,
                 "P\n<minimax:tool_call>\n<invoke name=\"f\">\n</invoke>\n<invoke name=\"g\">\n"
                 "</invoke>\n</minimax:tool_call>\n</think>\n\nDone.",
                 "R(P)B(f)A({})EB(g)A({})EC(Done.)");
    assert_trace("minimax_m2", false, "<invoke name=\"f\">\n</invoke>", "B(f)A({})E");
}

static void schemas_decide_what_parameters_are(void **state)
{
    (void)state;
    static const char *const cases[][3] = {
        { "s", "3", "\"3\"" },
        { "s", "a\"\\\tb", "\"a\\\"\\\\\\tb\"" },
        { "n", " 3 ", "3" },
        { "n", "three", "\"three\"" },
        { "n", "123456789012345678901234567890", "123456789012345678901234567890" },
        { "b", "True", "true" },
        { "b", "false", "false" },
        { "b", "yes", "\"yes\"" },
        { "o", "{\"a\": [1, 2]}", "{\"a\": [1, 2]}" },
        { "o", "{\"a\": }", "\"{\\\"a\\\": }\"" },
        { "u", "null", "null" },
        { "u", "5", "\"5\"" },
        { "e", "1", "\"1\"" },
        { "a", "1.5", "\"1.5\"" },
        { "undeclared", "1.5", "1.5" },
        { "undeclared", "True", "\"True\"" },
        { "undeclared", "-", "\"-\"" },
        { "undeclared", "", "\"\"" },
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        char text[512], expected[512];
        snprintf(text, sizeof text,
                 "<tool_call>f\n<arg_key>%s</arg_key>\n<arg_value>%s</arg_value>\n</tool_call>",
                 cases[i][0], cases[i][1]);
        snprintf(expected, sizeof expected, "B(f)A({\"%s\": %s})E", cases[i][0], cases[i][2]);
        assert_trace("glm_4_6", false, text, expected);
    }
    assert_trace("glm_4_6", false,
                 "<tool_call>flat<arg_key>s</arg_key><arg_value>1</arg_value></tool_call>",
                 "B(flat)A({\"s\": \"1\"})E");
}

static void values_on_lines_end_with_their_line(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        { "\n a \n\n", " a \\n" },
        { "\n\n", "" },
        { "\n", "" },
        { "", "" },
        { "x", "x" },
        { "\nx", "x" }, /* the newline before the tag was forgotten */
        { "\nx = '</parameter>' + y\n", "x = '</parameter>' + y" },
        { "\n</function> <parameter=q>\n", "</function> <parameter=q>" },
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        char text[512], expected[512];
        snprintf(text, sizeof text,
                 "<tool_call>\n<function=f>\n<parameter=s>%s</parameter>\n<parameter=n>\n1\n"
                 "</parameter>\n</function>\n</tool_call>",
                 cases[i][0]);
        snprintf(expected, sizeof expected, "B(f)A({\"s\": \"%s\", \"n\": 1})E", cases[i][1]);
        assert_trace("qwen3_coder", false, text, expected);
    }
}

/* ------------------------------------------------------------------ what is no call */

static void malformed_calls_are_content_and_complete(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        { "hermes", "Use `<tool_call>` tags." },
        { "hermes", "<tool_call></tool_call>" },
        { "hermes", "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": 1,}}\n</tool_call>" },
        { "hermes", "<tool_call>{\"name\": 5, \"arguments\": {}}</tool_call>" },
        { "hermes", "<tool_call>{\"name\": \"f\", \"arguments\": [1]}</tool_call>" },
        { "hermes", "<tool_call>{\"name\": \"f\", \"arguments\": \"no\"}</tool_call>" },
        { "hermes", "<tool_call>{\"name\": \"f\"} and more</tool_call>" },
        { "hermes", "a <tool_call>\n{\"name\": \"f\", \"argum" },
        { "qwen3_coder", "<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool_call>" },
        { "qwen3_coder", "Write <function=name> and so on." },
        { "qwen3_coder", "<tool_call>\n<function=f>\n<parameter=s>\nx\n</function>\n</tool_call>" },
        { "qwen3_coder", "<tool_call>\n<function=f>\ntext\n</function>\n</tool_call>" },
        { "qwen3_coder", "<tool_call>\n<function=f>\n<parameter=s>\nx" },
        { "deepseek_v3_1", "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f<｜tool▁sep｜>{\"a" },
        { "deepseek_v3_1", "<｜tool▁calls▁begin｜><｜tool▁calls▁end｜>" },
        { "deepseek_v3_2", "<｜DSML｜function_calls>\n<｜DSML｜invoke name=\"f\">\n"
                           "<｜DSML｜parameter name=\"s\">x</｜DSML｜parameter>\n" },
        { "kimi_k2", "<|tool_calls_section_begin|><|tool_call_begin|>functions.f:0"
                     "<|tool_call_argument_begin|>no<|tool_call_end|><|tool_calls_section_end|>" },
        { "glm_4_6", "<tool_call>f\n<arg_key>s</arg_key>\n</tool_call>" },
        { "glm_4_6", "The <tool_call> tag." },
        { "minimax_m2", "<minimax:tool_call>\n<invoke name=\"f\">\n<parameter name=\"s\">x\n"
                        "</invoke>\n</minimax:tool_call>" },
        { "minimax_m2", "<invoke name=\"f\">\n" },
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        char expected[1024];
        snprintf(expected, sizeof expected, "C(%s)", cases[i][1]);
        assert_trace(cases[i][0], false, cases[i][1], expected);
    }
}

static void a_good_call_follows_a_bad_one(void **state)
{
    (void)state;
    assert_trace("hermes", false,
                 "<tool_call>{\"name\": <tool_call>\n{\"name\": \"f\"}\n</tool_call>",
                 "C(<tool_call>{\"name\":)B(f)A({})E");
    assert_trace("hermes", false,
                 "<tool_call>{\"name\":\"f\"}\n<tool_call>{\"name\":\"g\"}\n</tool_call>",
                 "B(f)A({})EB(g)A({})E");
    assert_trace("qwen3_coder", false,
                 "<tool_call>\n<function=f>\n<parameter=s>\nx\n</function>\n</tool_call>\n"
                 "<tool_call>\n<function=g>\n</function>\n</tool_call>",
                 "C(<tool_call>\n<function=f>\n<parameter=s>\nx\n</function>\n</tool_call>)"
                 "B(g)A({})E");
    assert_trace("kimi_k2", false,
                 "<|tool_calls_section_begin|><|tool_call_begin|>f:0<|tool_call_argument_begin|>{}"
                 "<|tool_call_end|><|tool_call_begin|>g:1<|tool_call_argument_begin|>[1]"
                 "<|tool_call_end|><|tool_calls_section_end|>",
                 "B(f #f:0)A({})EC(<|tool_call_begin|>g:1<|tool_call_argument_begin|>[1]"
                 "<|tool_call_end|>)");
}

static void calls_in_reasoning_end_it_where_models_do_that(void **state)
{
    (void)state;
    assert_trace("qwen3_5", true,
                 "I call\n<tool_call>\n<function=f>\n</function>\n</tool_call>\nnow",
                 "R(I call)B(f)A({})EC(now)");
    /* its end tag may still come, and is markup */
    assert_trace("qwen3_5", true,
                 "r<tool_call>\n<function=f>\n</function>\n</tool_call>\n</think>\n\nc",
                 "R(r)B(f)A({})EC(c)");
    assert_trace("qwen3_5", true, "I could write <tool_call> here.</think>c",
                 "R(I could write <tool_call> here.)C(c)");
    assert_trace("hermes", true, "r <tool_call>\n{\"name\": \"f\"}\n</tool_call>\n</think>c",
                 "R(r <tool_call>\n{\"name\": \"f\"}\n</tool_call>)C(c)");
}

/* ------------------------------------------------------------------ streaming */

static void arguments_come_while_they_are_written(void **state)
{
    (void)state;
    struct trace trace;
    struct feeding how = { .family = "hermes", .stream = true, .unfinished = true, .chunk = 3 };
    feed(&trace, &how, "x\n<tool_call>\n{\"name\": \"f\", \"arguments\": {\"s\": \"long te");
    assert_string_equal(trace.text, "C(x)B(f)A({\"s\": \"long te)");
    assert_true(trace.events > 4);
    how.family = "qwen3_coder";
    feed(&trace, &how, "<tool_call>\n<function=f>\n<parameter=s>\nx\n</parameter>\n<par");
    assert_string_equal(trace.text, "B(f)A({\"s\": \"x\")");
    how.stream = false;
    feed(&trace, &how, "<tool_call>\n<function=f>\n<parameter=s>\nx\n</parameter>\n</func");
    assert_string_equal(trace.text, "");
}

static void a_streamed_call_that_is_none_is_dropped(void **state)
{
    (void)state;
    struct trace trace;
    struct feeding how = { .family = "hermes", .stream = true };
    feed(&trace, &how, "<tool_call>{\"name\":\"f\",\"arguments\":{\"a\":1,}}</tool_call>");
    assert_string_equal(trace.text,
                        "C(<tool_call>{\"name\":\"f\",\"arguments\":{\"a\":1,}}</tool_call>)");
    how.chunk = 1; /* the white space before it is text again too */
    feed(&trace, &how, "x\n<tool_call>{\"name\":\"f\",\"arguments\":{\"a\":1,}}</tool_call>");
    assert_string_equal(trace.text, "C(x)B(f)A({\"a\":1,)DC(\n<tool_call>{\"name\":\"f\","
                                    "\"arguments\":{\"a\":1,}}</tool_call>)");
}

/* Wherever a limit ends the output: no markup becomes text, and text stays. */
static void a_cut_output_shows_no_markup(void **state)
{
    (void)state;
    static const char *const outputs[][2] = {
        { "hermes", "<think>why</think>Look: 1<2<tool_call>\n{\"name\": \"f\", \"arguments\": "
                    "{\"x\": 1}}\n</tool_call>\n<tool_call>\n{\"name\": \"f\"}</tool_call>" },
        { "qwen3_coder", "Look: 1<2<tool_call>\n<function=f>\n<parameter=s>\nx y\n</parameter>\n"
                         "</function>\n</tool_call>" },
        { "qwen3_5", "Look: 1<2<tool_call>\n<function=f>\n<parameter=s>\nx y\n</parameter>\n"
                     "</function>\n</tool_call>" },
        { "glm_4_6", "Look: 1<2<tool_call>f\n<arg_key>s</arg_key>\n<arg_value>x</arg_value>\n"
                     "</tool_call>" },
    };
    for (size_t i = 0; i < COUNT_OF(outputs); i++) {
        char text[256];
        for (size_t length = strlen(outputs[i][1]); length > 0; length--)
            for (int stream = 0; stream < 2; stream++) {
                struct trace trace;
                struct feeding how = { .family = outputs[i][0], .stream = stream, .cut = true };
                snprintf(text, sizeof text, "%.*s", (int)length, outputs[i][1]);
                feed(&trace, &how, text);
                const char *tag = strchr(trace.text, '<');
                assert_true(!tag || (tag > trace.text && tag[-1] == '1' && !strchr(tag + 1, '<')));
                assert_null(strchr(trace.text, 'D'));
                assert_true(length < strlen("<think>why</think>Look:") ||
                            strstr(trace.text, "Look:"));
            }
    }
}

/* `begin` and then `part` again and again: half of it at once, the rest in bytes.  Returns the bytes
 * fed. */
static size_t parse_long(struct output_message *message, const char *family, const char *begin,
                         const char *part)
{
    enum { REPEAT = 100 * 1000 };
    struct output_options options = { .family = output_family_find(family),
                                      .sink = output_message_sink,
                                      .user = message };
    size_t length = strlen(part), used = strlen(begin);
    char *text = malloc(length * REPEAT + used + 1);
    struct output_parser *parser;
    assert_non_null(text);
    memcpy(text, begin, used);
    for (size_t j = 0; j < REPEAT; j++, used += length) memcpy(text + used, part, length);
    assert_int_equal(output_parser_new(&parser, &options, &why), MF_OK);
    assert_int_equal(output_parser_feed(parser, text, used / 2, &why), MF_OK);
    for (size_t j = used / 2; j < used; j++)
        assert_int_equal(output_parser_feed(parser, text + j, 1, &why), MF_OK);
    assert_int_equal(output_parser_finish(parser, &why), MF_OK);
    output_parser_free(parser);
    free(text);
    return used;
}

static void a_long_output_takes_linear_time(void **state)
{
    (void)state;
    static const char *const parts[][3] = {
        { "hermes", "", "<tool_call>" },
        { "hermes", "", "<think>" },
        { "qwen3_coder", "<function=f>\n<parameter=s>\n", "<function=f>\n<parameter=s>\n" },
        { "qwen3_coder", "<function=f>\n<parameter=s>\n", "</function> " },
        { "glm_4_6", "", "<tool_call>a " },
        { "kimi_k2", "", "<|tool_call" },
    };
    for (size_t i = 0; i < COUNT_OF(parts); i++) {
        struct output_message message = { 0 };
        size_t used = parse_long(&message, parts[i][0], parts[i][1], parts[i][2]);
        assert_int_equal(message.call_count, 0);
        assert_true(message.content.count + message.reasoning.count + 16 > used);
        output_message_clear(&message);
    }
}

/* The same where markers are never text. */
static void a_long_output_of_markers_takes_linear_time(void **state)
{
    (void)state;
    static const char *const parts[][3] = {
        { "harmony", "", "<|start|>" },
        { "harmony", "", "<|channel|>a " },
        { "harmony", "", "to=a " },
        { "harmony", "<|channel|>", "          " },
        { "harmony", "<|channel|>analysis<|message|>", "<|mess" },
        { "harmony", "", "<|channel|>commentary to=functions.f<|message|>{\"a\":" },
        { "harmony", "<|channel|>commentary to=functions.f<|message|>{\"a\":\"", "<|b" },
        { "gemma4", "", "<|tool_call>call:f{a:" },
        { "gemma4", "<|tool_call>call:f{a:<|\"|>", "abc <|" },
        { "gemma4", "<|tool_call>call:f{a:\"", "abc \\\"<|" },
        { "gemma4", "<|tool_call>call:f{a:", "abc <|" },
        { "gemma4", "<|tool_call>call:f{a:[1", ",2, 3 " },
        { "gemma4", "<|tool_call>call:f{", "a:1," },
        { "gemma4", "<|tool_call>call:f{a:", "{a:" },
        { "gemma4", "", "<|channel>thought\n" },
        { "gemma4", "", "<|turn>model <|\"|>" },
    };
    for (size_t i = 0; i < COUNT_OF(parts); i++) {
        struct output_message message = { 0 };
        parse_long(&message, parts[i][0], parts[i][1], parts[i][2]);
        assert_int_equal(message.call_count, 0);
        output_message_clear(&message);
    }
}

static mf_status refuse(void *user, const struct output_event *event, mf_error *error)
{
    (void)event;
    size_t *left = user;
    if ((*left)--) return MF_OK;
    return fail(error, MF_ERR_CANCELLED, "enough");
}

static void an_error_of_the_sink_ends_the_feeding(void **state)
{
    (void)state;
    for (size_t allowed = 0; allowed < 4; allowed++) {
        size_t left = allowed;
        struct output_options options = { .family = output_family_find("hermes"),
                                          .sink = refuse,
                                          .user = &left };
        struct output_parser *parser;
        assert_int_equal(output_parser_new(&parser, &options, &why), MF_OK);
        const char *text = "x<tool_call>{\"name\":\"f\"}</tool_call>";
        assert_int_equal(output_parser_feed(parser, text, strlen(text), &why), MF_ERR_CANCELLED);
        assert_string_equal(why.text, "enough");
        assert_int_equal(output_parser_finish(parser, &why), MF_ERR_CANCELLED);
        output_parser_free(parser);
    }
    output_parser_free(NULL);
}

/* ------------------------------------------------------------------ families and prompts */

static void families_are_found_in_templates(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        { "{{ messages }}", "think" },
        { "'<think>'", "think" },
        { "<tools> <tool_call>\\n{\"name\": <think>", "hermes" },
        { "<tool_call>\n<function=x>", "qwen3_coder" },
        { "<tool_call>\n<function=x> <think>", "qwen3_5" },
        { "<｜tool▁calls▁begin｜> ```json", "deepseek_v3" },
        { "<｜tool▁calls▁begin｜>", "deepseek_v3_1" },
        { "dsml_token = '｜DSML｜'", "deepseek_v3_2" },
        { "<|tool_calls_section_begin|>", "kimi_k2" },
        { "<tool_call>{f}\n<arg_key>", "glm_4_6" },
        { "<minimax:tool_call>", "minimax_m2" },
        { "'<|start|>assistant<|channel|>final<|message|>'", "harmony" },
        { "'<|channel>thought\n' '<|tool_call>call:'", "gemma4" },
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++)
        assert_string_equal(output_family_name(output_family_detect(cases[i][0])), cases[i][1]);
    assert_null(output_family_find("nobody"));
    for (size_t i = 0; output_family_at(i); i++)
        assert_ptr_equal(output_family_find(output_family_name(output_family_at(i))),
                         output_family_at(i));
}

static void prompts_tell_whether_they_open_reasoning(void **state)
{
    (void)state;
    static const struct {
        const char *family, *prompt;
        bool open, closed;
    } cases[] = {
        { "think", "<think>", true, false },
        { "think", "a<think>\n", true, false },
        { "qwen3_5", "x\n<think>\n\n ", true, false },
        { "think", "", false, false },
        { "think", "think>", false, false },
        { "hermes", "<think>\n\n</think>\n\n", false, true },
        { "think", "<think> a", false, false },
        { "glm_4_6", "<|assistant|></think>", false, true },
        { "harmony", "<|start|>assistant", false, false },
        { "harmony", "Hi.<|end|>", false, false },
        { "harmony", "<|start|>assistant<|channel|>analysis<|message|>", true, false },
        { "harmony", "<|start|>assistant<|channel|>final<|message|>", false, false },
        { "gemma4", "<|turn>model\n", false, false },
        { "gemma4", "<|turn>model\n<|channel>thought\n", true, false },
        { "gemma4", "<|turn>model\n<|channel>thought\n<channel|>", false, true },
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        const struct output_family *family = output_family_find(cases[i].family);
        const char *prompt = cases[i].prompt;
        if (output_prompt_opens_reasoning(family, prompt, strlen(prompt)) != cases[i].open ||
            output_prompt_closes_reasoning(family, prompt, strlen(prompt)) != cases[i].closed)
            fail_msg("%s: %s", cases[i].family, prompt);
    }
}

/* ------------------------------------------------------------------ JSON */

static void json_is_distinguished_from_text(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "{}",          "[]",
        "{\"a\":1}",   " [ 1 , -2.5e+3 , true,false,null,\"x\\u00e9\\n\" ] ",
        "0",           "-0",
        "1.5",         "1e5",
        "\"\"",        "null",
        "[[],{}]",     "{\"a\":{\"b\":[{}]}}",
        "12 ",         "",
        " ",           "{",
        "}",           "[1,]",
        "{\"a\":1,}",  "{a:1}",
        "{\"a\" 1}",   "01",
        "1.",          ".5",
        "1e",          "--1",
        "+1",          "tru",
        "truex",       "nul",
        "\"a",         "\"\\x\"",
        "\"\\u12g4\"", "\"\n\"",
        "[1 2]",       "1 2",
        "{}{}",        "[}",
        "{]",          "'a'",
        "NaN",         "{\"a\"}",
        "{\"a\":}",    "{,}",
        "[,]",         "1e+",
        "-",
    };
    for (size_t i = 0; i < COUNT_OF(texts); i++) {
        json_t *value = json_loads(texts[i], JSON_DECODE_ANY, NULL);
        if (json_is_value(texts[i], strlen(texts[i])) != (value != NULL))
            fail_msg("%s is %sJSON", texts[i], value ? "" : "not ");
        json_decref(value);
    }
    char deep[2 * JSON_READER_DEPTH + 2];
    memset(deep, '[', JSON_READER_DEPTH);
    memset(deep + JSON_READER_DEPTH, ']', JSON_READER_DEPTH);
    assert_true(json_is_value(deep, 2 * JSON_READER_DEPTH));
    memset(deep, '[', JSON_READER_DEPTH + 1);
    memset(deep + JSON_READER_DEPTH + 1, ']', JSON_READER_DEPTH + 1);
    assert_false(json_is_value(deep, 2 * JSON_READER_DEPTH + 2));
}

static void messages_are_collected(void **state)
{
    (void)state;
    struct output_message message = { 0 };
    struct output_options options = { .family = output_family_find("kimi_k2"),
                                      .stream_calls = true,
                                      .sink = output_message_sink,
                                      .user = &message };
    struct output_parser *parser;
    const char *text = "<think>r</think>c\xFF<|tool_call_begin|>functions.f:0"
                       "<|tool_call_argument_begin|>{\"a\":\n 12345678901234567890123 , \"\\\\\":"
                       "\"\\\" "
                       "\\ud800\"}<|tool_call_end|><|tool_call_begin|>functions.g:1<|tool_call_"
                       "argument_begin|>{\"b";
    assert_int_equal(output_parser_new(&parser, &options, &why), MF_OK);
    assert_int_equal(output_parser_feed(parser, text, strlen(text), &why), MF_OK);
    assert_int_equal(message.call_count, 2);
    assert_true(message.calls[0].complete && !message.calls[1].complete);
    char *found;
    assert_int_equal(output_message_json_new(&found, &message, &why), MF_OK);
    assert_string_equal(found, "{\"reasoning\":\"r\",\"content\":\"c\xEF\xBF\xBD\",\"tool_calls\":"
                               "[{\"name\":\"f\",\"arguments\":{\"a\":12345678901234567890123,"
                               "\"\\\\\":\"\\\" \\ud800\"},\"id\":\"functions.f:0\"}]}");
    free(found);
    output_parser_free(parser);
    output_message_clear(&message);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reasoning_is_told_from_content),
        cmocka_unit_test(white_space_of_plain_content_is_kept),
        cmocka_unit_test(possible_markup_is_held_back),
        cmocka_unit_test(every_family_reads_its_calls),
        cmocka_unit_test(schemas_decide_what_parameters_are),
        cmocka_unit_test(values_on_lines_end_with_their_line),
        cmocka_unit_test(malformed_calls_are_content_and_complete),
        cmocka_unit_test(a_good_call_follows_a_bad_one),
        cmocka_unit_test(calls_in_reasoning_end_it_where_models_do_that),
        cmocka_unit_test(arguments_come_while_they_are_written),
        cmocka_unit_test(a_streamed_call_that_is_none_is_dropped),
        cmocka_unit_test(a_cut_output_shows_no_markup),
        cmocka_unit_test(a_long_output_takes_linear_time),
        cmocka_unit_test(a_long_output_of_markers_takes_linear_time),
        cmocka_unit_test(an_error_of_the_sink_ends_the_feeding),
        cmocka_unit_test(families_are_found_in_templates),
        cmocka_unit_test(prompts_tell_whether_they_open_reasoning),
        cmocka_unit_test(json_is_distinguished_from_text),
        cmocka_unit_test(messages_are_collected),
    };
    if (json_parse_new(&tools, declared, sizeof declared - 1, "tools", &why) != MF_OK) return 1;
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    json_decref(tools);
    return failed;
}
