/* Conversations in the form of families with channels of their own: what templates write of an answer,
 * the parser reads back; dates come from the clock that is given; answers end at the right tokens. */
#include "support/memory_files.h"
#include "support/one_call.h"
#include "support/test.h"
#include "support/tiny_model.h"

#include "api/handles.h"
#include "base/file.h"
#include "base/json.h"
#include "chat/conversation.h"
#include "chat/model_text.h"
#include "chat/output_family.h"
#include "model/config.h"

#include <stdio.h>
#include <stdlib.h>

static mf_error why;
static char *sources[2];
static struct chat_template *templates[2];
static const char *const names[] = { "harmony", "gemma4" };

/* 4 July 2025, 12:00 UTC */
static int64_t noon = 1751630400;

static json_t *json_of(const char *text)
{
    json_t *value = json_loads(text, JSON_DECODE_ANY, NULL);
    if (!value) fail_msg("%s", text);
    return value;
}

static char *render(size_t which, const json_t *messages, bool opens)
{
    struct jinja_options options = { .now = jinja_clock_local, .user = &noon };
    struct jinja_error detail;
    json_t *adapted;
    char *text;
    size_t length;
    assert_int_equal(conversation_adapt_new(&adapted, messages, sources[which], &why), MF_OK);
    json_t *context = json_pack("{s:o,s:b,s:s,s:b}", "messages", adapted, "add_generation_prompt",
                                opens, "bos_token", "<bos>", "enable_thinking", 1);
    if (chat_template_render_with_new(&text, &length, templates[which], context, &options, &detail,
                                      &why) != MF_OK)
        fail_msg("%s", why.text);
    jinja_error_clear(&detail);
    json_decref(context);
    return text;
}

/* ------------------------------------------------------------------ there and back */

/* An answer as the parser gives it, in the form of a message. */
static json_t *parsed(const char *family_name, const char *text)
{
    struct output_message message = { 0 };
    struct output_options options = { .family = output_family_find(family_name),
                                      .sink = output_message_sink,
                                      .user = &message };
    struct output_parser *parser;
    char *line;
    assert_int_equal(output_parser_new(&parser, &options, &why), MF_OK);
    assert_int_equal(output_parser_feed(parser, text, strlen(text), &why), MF_OK);
    assert_int_equal(output_parser_finish(parser, &why), MF_OK);
    output_parser_free(parser);
    assert_int_equal(output_message_json_new(&line, &message, &why), MF_OK);
    json_t *found = json_of(line), *calls = json_object_get(found, "tool_calls"), *call;
    json_t *out =
        json_pack("{s:s,s:O}", "role", "assistant", "content", json_object_get(found, "content"));
    if (json_string_length(json_object_get(found, "reasoning")))
        json_object_set(out, "reasoning_content", json_object_get(found, "reasoning"));
    size_t i;
    json_array_foreach(calls, i, call)
    {
        json_t *function = json_deep_copy(call), *list = json_object_get(out, "tool_calls");
        if (!list) {
            list = json_array();
            json_object_set_new(out, "tool_calls", list);
        }
        json_object_del(function, "id");
        json_array_append_new(list, json_pack("{s:o}", "function", function));
    }
    free(line);
    json_decref(found);
    output_message_clear(&message);
    return out;
}

/* The last message is an answer: what a template adds for it is read back as that message. */
static void check_round(size_t which, const json_t *messages)
{
    json_t *before = json_copy((json_t *)(uintptr_t)messages);
    size_t last = json_array_size(messages) - 1;
    json_array_remove(before, last);
    char *prompt = render(which, before, true), *whole = render(which, messages, false);
    if (strncmp(prompt, whole, strlen(prompt)) != 0)
        fail_msg("the prompt is no beginning of the history:\n%s\n---\n%s", prompt, whole);
    json_t *found = parsed(names[which], whole + strlen(prompt));
    if (!json_equal(found, json_array_get(messages, last)))
        fail_msg("%s\n  read as %s\n  was     %s", whole, json_dumps(found, 0),
                 json_dumps(json_array_get(messages, last), 0));
    json_decref(found);
    json_decref(before);
    free(prompt);
    free(whole);
}

static void answers_are_rendered_and_read_back(void **state)
{
    (void)state;
    static const char *const answers[] = {
        "{'role':'assistant','content':'Four.'}",
        "{'role':'assistant','content':'Zeile 1\\n\\n* 中文 <b> {x: 1}'}",
        "{'role':'assistant','content':'','tool_calls':[{'function':{'name':'now','arguments':{}}}]"
        "}",
        "{'role':'assistant','content':'','reasoning_content':'Look it up.\\nNow.','tool_calls':"
        "[{'function':{'name':'get_weather','arguments':{'city':'Oslo','days':3,'x':-1.5,'on':true,"
        "'none':null,'list':['a',1,[],{}],'object':{'k':{'l':'m'}},'text':'a\\nb \\'c\\' {d: "
        "e}'}}}]}",
        "{'role':'assistant','content':'Four.','reasoning_content':'Easy.'}",
    };
    for (size_t which = 0; which < 2; which++) {
        for (size_t i = 0; i < COUNT_OF(answers); i++) {
            char text[1024];
            snprintf(text, sizeof text, "[{'role':'user','content':'And?'},%s]", answers[i]);
            for (char *c = text; *c; c++)
                if (*c == '\'') *c = '"';
            json_t *messages = json_of(text);
            check_round(which, messages);
            json_decref(messages);
        }
    }
}

/* ------------------------------------------------------------------ history */

static void assert_history(size_t which, const char *messages, const char *const *there,
                           const char *const *absent)
{
    json_t *list = json_of(messages);
    char *text = render(which, list, true);
    for (; *there; there++)
        if (!strstr(text, *there)) fail_msg("%s is missing:\n%s", *there, text);
    for (; *absent; absent++)
        if (strstr(text, *absent)) fail_msg("%s is there:\n%s", *absent, text);
    free(text);
    json_decref(list);
}

static void harmony_has_its_date_and_its_history(void **state)
{
    (void)state;
    assert_history(
        0,
        "[{\"role\":\"system\",\"content\":\"Be brief.\"},"
        "{\"role\":\"user\",\"content\":\"Hi\"},"
        "{\"role\":\"assistant\",\"content\":\"Hello.\",\"reasoning_content\":\"old\"},"
        "{\"role\":\"user\",\"content\":\"And?\"},"
        "{\"role\":\"assistant\",\"content\":\"Wait.\",\"reasoning_content\":\"new\","
        "\"tool_calls\":[{\"id\":\"1\",\"function\":{\"name\":\"f\",\"arguments\":{}}}]},"
        "{\"role\":\"tool\",\"tool_call_id\":\"1\",\"content\":\"7\"}]",
        (const char *const[]){
            "\nCurrent date: 2025-07-04\n",
            "<|start|>developer<|message|># Instructions\n\nBe brief.\n\n<|end|>",
            "<|start|>assistant<|channel|>final<|message|>Hello.<|end|>",
            "<|start|>assistant<|channel|>analysis<|message|>new\n\nWait.<|end|>"
            "<|start|>assistant to=functions.f<|channel|>commentary json<|message|>{}"
            "<|call|><|start|>functions.f to=assistant<|channel|>commentary<|message|>"
            "\"7\"<|end|><|start|>assistant",
            NULL },
        (const char *const[]){ "<|return|>", "old", NULL });
    /* its own word for reasoning, of which nothing but "" means nothing */
    static const char *const own[] = { "\"thinking\":\"new\"",
                                       "\"thinking\":\"\",\"reasoning_content\":\"new\"",
                                       "\"thinking\":\"new\",\"reasoning_content\":\"old\"" };
    for (size_t i = 0; i < COUNT_OF(own); i++) {
        char text[256];
        json_t *found;
        snprintf(text, sizeof text, "[{\"role\":\"assistant\",\"content\":\"Hi\",%s}]", own[i]);
        json_t *messages = json_of(text);
        assert_int_equal(conversation_adapt_new(&found, messages, sources[0], &why), MF_OK);
        const json_t *thinking = json_object_get(json_array_get(found, 0), "thinking");
        assert_string_equal(json_string_value(thinking), "new");
        json_decref(found);
        json_decref(messages);
    }
}

/* Calls made together, which the model itself does not do. */
static void calls_made_together_follow_one_another_in_harmony(void **state)
{
    (void)state;
    assert_history(
        0,
        "[{\"role\":\"user\",\"content\":\"Hi\"},{\"role\":\"assistant\",\"content\":null,"
        "\"reasoning_content\":\"two\",\"tool_calls\":["
        "{\"id\":\"1\",\"function\":{\"name\":\"f\",\"arguments\":{\"a\":1}}},"
        "{\"id\":\"2\",\"function\":{\"name\":\"g\",\"arguments\":{}}}]},"
        "{\"role\":\"tool\",\"tool_call_id\":\"2\",\"content\":\"of g\"},"
        "{\"role\":\"tool\",\"tool_call_id\":\"1\",\"content\":\"of f\"}]",
        (const char *const[]){
            "<|channel|>analysis<|message|>two<|end|><|start|>assistant to=functions.f"
            "<|channel|>commentary json<|message|>{\"a\": 1}<|call|>"
            "<|start|>functions.f to=assistant<|channel|>commentary<|message|>\"of f\"<|end|>"
            "<|start|>assistant to=functions.g<|channel|>commentary json<|message|>{}<|call|>"
            "<|start|>functions.g to=assistant<|channel|>commentary<|message|>\"of g\"<|end|>"
            "<|start|>assistant",
            NULL },
        (const char *const[]){ NULL });
}

static void arguments_in_a_string_are_no_string_in_harmony(void **state)
{
    (void)state;
    static const struct {
        const char *arguments, *rendered;
    } cases[] = {
        { "\"{\\\"city\\\":\\\"Oslo\\\",\\\"n\\\":[1,null]}\"",
          "{\"city\": \"Oslo\", \"n\": [1, null]}" },
        { "{\"city\":\"Oslo\"}", "{\"city\": \"Oslo\"}" },
        { "\"\"", "{}" },
        { "\" \\n\"", "{}" },
        { "\"[1]\"", "\"[1]\"" },
        { "\"{Oslo\"", "\"{Oslo\"" },
        { "\"{\\\"a\\\":1,\\\"a\\\":2}\"", "\"{\\\"a\\\":1,\\\"a\\\":2}\"" },
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        char messages[512], call[256];
        snprintf(messages, sizeof messages,
                 "[{\"role\":\"assistant\",\"tool_calls\":[{\"type\":\"function\",\"id\":\"1\","
                 "\"function\":{\"name\":\"f\",\"arguments\":%s}}]}]",
                 cases[i].arguments);
        snprintf(call, sizeof call,
                 "<|start|>assistant to=functions.f<|channel|>commentary json<|message|>%s<|call|>",
                 cases[i].rendered);
        assert_history(0, messages, (const char *const[]){ call, NULL },
                       (const char *const[]){ NULL });
    }
    /* nor in a call that is its own function; the caller's messages stay as they are */
    json_t *found, *messages = json_of("[{\"role\":\"assistant\",\"tool_calls\":"
                                       "[{\"name\":\"f\",\"arguments\":\"{}\"}]}]");
    json_t *before = json_deep_copy(messages);
    assert_int_equal(conversation_adapt_new(&found, messages, sources[0], &why), MF_OK);
    const json_t *calls = json_object_get(json_array_get(found, 0), "tool_calls");
    assert_true(json_is_object(json_object_get(json_array_get(calls, 0), "arguments")));
    assert_true(json_equal(messages, before));
    json_decref(found);
    json_decref(before);
    json_decref(messages);
}

/* What `message`, with two calls, thinks before the first one, as the template gets it. */
static json_t *thinking_of(const char *message, const char **content)
{
    char text[1024];
    json_t *found;
    snprintf(text, sizeof text, "[{\"role\":\"assistant\",\"tool_calls\":[{},{}],%s}]", message);
    json_t *messages = json_loads(text, JSON_ALLOW_NUL, NULL);
    assert_non_null(messages);
    assert_int_equal(conversation_adapt_new(&found, messages, sources[0], &why), MF_OK);
    assert_int_equal(json_array_size(found), 2);
    json_t *first = json_array_get(found, 0), *second = json_array_get(found, 1);
    json_t *thinking = json_incref(json_object_get(first, "thinking"));
    *content = json_is_string(json_object_get(first, "content")) ? "text" : "other";
    assert_null(json_object_get(first, "reasoning_content"));
    assert_string_equal(json_string_value(json_object_get(second, "thinking")), "");
    assert_string_equal(json_string_value(json_object_get(second, "content")), "");
    json_decref(found);
    json_decref(messages);
    return thinking;
}

static void no_text_before_a_call_is_lost_in_harmony(void **state)
{
    (void)state;
    static const struct {
        const char *message, *thinking;
        size_t length;
    } cases[] = {
        { "'content':null", "", 0 },
        { "'content':'c'", "c", 1 },
        { "'thinking':'t','content':''", "t", 1 },
        { "'thinking':'t','content':'c'", "t\n\nc", 4 },
        { "'thinking':'t','reasoning_content':'r'", "t", 1 },
        { "'thinking':'','reasoning_content':'r','content':'c'", "r\n\nc", 4 },
        { "'thinking':null,'reasoning_content':'r'", "r", 1 },
        { "'content':[{'type':'text','text':'a'},'b',{'type':'text','text':'c'}]", "a\nb\nc", 5 },
        { "'reasoning_content':'r','content':[{'type':'text','text':'a'}]", "r\n\na", 4 },
        { "'reasoning_content':'r','content':[]", "r", 1 },
        { "'reasoning_content':'r\\u0000s','content':'a\\u0000b'", "r\0s\n\na\0b", 8 },
    };
    const char *content;
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        char message[256];
        snprintf(message, sizeof message, "%s", cases[i].message);
        for (char *c = message; *c; c++)
            if (*c == '\'') *c = '"';
        json_t *found = thinking_of(message, &content);
        if (json_string_length(found) != cases[i].length ||
            memcmp(json_string_value(found), cases[i].thinking, cases[i].length) != 0)
            fail_msg("%s is thought as \"%s\"", message, json_string_value(found));
        assert_string_equal(content, "text");
        json_decref(found);
    }
    /* what is no text stays, and the template says so */
    json_t *found = thinking_of("\"thinking\":\"t\",\"content\":[{\"type\":\"image\"}]", &content);
    assert_string_equal(json_string_value(found), "t");
    assert_string_equal(content, "other");
    json_decref(found);
}

/* Each call is answered once before any is answered twice. */
static void results_belong_to_calls_by_id_and_then_in_order(void **state)
{
    (void)state;
    static const struct {
        const char *calls[3], *results[4]; /* ids; NULL: no message, "-": a message without */
        const char *names;                 /* of the calls of the results */
    } cases[] = {
        { { "", "", "" }, { "", "", "" }, "abc" },
        { { "-", "-", "-" }, { "-", "-", "-" }, "abc" },
        { { "", "", "" }, { "-", "" }, "ab" },
        { { "1", "1", "1" }, { "1", "1", "1" }, "abc" },
        { { "1", "2", "1" }, { "1", "1", "2" }, "acb" },
        { { "1", "2", "3" }, { "", "1", "" }, "bac" },
        { { "1", "2", "3" }, { "3", "x", "y" }, "cab" },
        { { "1", "2", "3" }, { "2", "2" }, "bb" },
        { { "1", "2" }, { "2", "-", "-", "-" }, "babb" },
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        json_t *calls = json_array(), *messages = json_array(), *found;
        json_array_append_new(messages,
                              json_pack("{s:s,s:o}", "role", "assistant", "tool_calls", calls));
        for (int c = 0; c < 3 && cases[i].calls[c]; c++) {
            json_t *call = json_pack("{s:s,s:{s:s%}}", "id", cases[i].calls[c], "function", "name",
                                     &"abc"[c], (size_t)1);
            if (cases[i].calls[c][0] == '-') json_object_del(call, "id");
            json_array_append_new(calls, call);
        }
        for (int r = 0; r < 4 && cases[i].results[r]; r++) {
            json_t *result = json_pack("{s:s,s:s,s:i}", "role", "tool", "tool_call_id",
                                       cases[i].results[r], "content", r);
            if (cases[i].results[r][0] == '-') json_object_del(result, "tool_call_id");
            json_array_append_new(messages, result);
        }
        assert_int_equal(conversation_adapt_new(&found, messages, "'<|channel>'", &why), MF_OK);
        const json_t *list = json_object_get(json_array_get(found, 0), "tool_responses");
        assert_int_equal(json_array_size(found), 1);
        assert_int_equal(json_array_size(list), strlen(cases[i].names));
        for (size_t r = 0; r < json_array_size(list); r++) {
            const json_t *one = json_array_get(list, r);
            const char *name = json_string_value(json_object_get(one, "name"));
            assert_int_equal(json_integer_value(json_object_get(one, "response")), r);
            if (name[0] != cases[i].names[r])
                fail_msg("case %zu: result %zu is of %s, %s were expected", i, r, name,
                         cases[i].names);
        }
        json_decref(found);
        json_decref(messages);
    }
}

static void results_are_embedded_where_templates_want_that(void **state)
{
    (void)state;
    static const char plain[] = "'<|channel>' {% if m.role == 'tool' %}", old[] = "'<|channel>'";
    json_t *messages = json_of(
        "[{\"role\":\"assistant\",\"content\":\"\",\"tool_calls\":["
        "{\"id\":\"1\",\"function\":{\"name\":\"f\"}},{\"id\":\"2\",\"function\":{\"name\":"
        "\"g\"}}]},{\"role\":\"tool\",\"tool_call_id\":\"2\",\"content\":\"of g\"},"
        "{\"role\":\"tool\",\"content\":\"of what\"},{\"role\":\"user\",\"content\":\"x\"}]");
    json_t *found;
    assert_int_equal(conversation_adapt_new(&found, messages, plain, &why), MF_OK);
    assert_ptr_equal(found, messages);
    json_decref(found);
    assert_int_equal(conversation_adapt_new(&found, messages, old, &why), MF_OK);
    json_t *wanted = json_of("[{\"name\":\"g\",\"response\":\"of g\"},"
                             "{\"name\":\"f\",\"response\":\"of what\"}]");
    assert_int_equal(json_array_size(found), 2);
    assert_true(json_equal(json_object_get(json_array_get(found, 0), "tool_responses"), wanted));
    assert_null(json_object_get(json_array_get(messages, 0), "tool_responses"));
    json_decref(wanted);
    json_decref(found);
    json_decref(messages);
}

/* ------------------------------------------------------------------ a checkpoint */

static const char tokenizer_json[] =
    "{\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"use_regex\":false},"
    "\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1,\"<\":2,\"|\":3,\"ï\":4,\"¿\":5,\"½\":"
    "6},\"merges\":[]},"
    "\"added_tokens\":["
    "{\"id\":10,\"content\":\"<|start|>\",\"special\":true},"
    "{\"id\":11,\"content\":\"<|end|>\",\"special\":true},"
    "{\"id\":12,\"content\":\"<|call|>\",\"special\":true},"
    "{\"id\":13,\"content\":\"<|return|>\",\"special\":true}]}";

static void the_template_says_where_answers_end(void **state)
{
    (void)state;
    struct memory_files files;
    struct model_text text;
    struct model_text_ends ends;
    memory_files_init(&files);
    memory_files_put(&files, "m/tokenizer.json", tokenizer_json, strlen(tokenizer_json));
    struct model_text_source source = { .files = &files.files, .directory = "m" };
    assert_int_equal(model_text_open(&text, &source, &why), MF_OK);
    model_text_find_ends(&ends, &text);
    assert_int_equal(ends.count, 0);
    assert_int_equal(ends.no_end, -1);
    model_text_clear(&text);

    memory_files_put(&files, "m/chat_template.jinja", sources[0], strlen(sources[0]));
    assert_int_equal(model_text_open(&text, &source, &why), MF_OK);
    model_text_find_ends(&ends, &text);
    assert_int_equal(ends.count, 2); /* there is no <|endoftext|> */
    assert_int_equal(ends.tokens[0], 13);
    assert_int_equal(ends.tokens[1], 12);
    assert_int_equal(ends.no_end, 11);
    model_text_clear(&text);
}

static void an_end_token_can_be_taken_back(void **state)
{
    (void)state;
    struct model_config config = { .vocab_size = 20 };
    for (int32_t id = 10; id < 14; id++)
        assert_int_equal(config_add_end_token(&config, id, "a list", &why), MF_OK);
    config_remove_end_token(&config, -1);
    assert_int_equal(config.end_token_count, 4);
    config_remove_end_token(&config, 11);
    assert_int_equal(config.end_token_count, 3);
    assert_int_equal(config.end_tokens[0], 10);
    assert_int_equal(config.end_tokens[1], 12);
    assert_int_equal(config.end_tokens[2], 13);
}

/* A list of the checkpoint names <|end|>, and not <|call|>. */
static void a_model_of_the_syntax_ends_where_it_should(void **state)
{
    (void)state;
    struct tiny_model tiny;
    mf_engine_options options = MF_ENGINE_OPTIONS_INIT;
    mf_engine *engine;
    mf_model *model;
    tiny_model_init(&tiny, &tiny_odd);
    json_object_set_new(tiny_model_sizes(&tiny), "eos_token_id", json_pack("[i,i]", 11, 13));
    tiny_model_write(&tiny);
    memory_files_put(&tiny.files, TINY_PATH "/tokenizer.json", tokenizer_json,
                     strlen(tokenizer_json));
    memory_files_put(&tiny.files, TINY_PATH "/chat_template.jinja", sources[0], strlen(sources[0]));
    options.files = &tiny.files.files;
    options.thread_count = 1;
    if (mf_engine_open(&engine, &options, &why) != MF_OK ||
        mf_model_open(&model, engine, TINY_PATH, NULL, &why) != MF_OK)
        fail_msg("%s", why.text);
    for (int32_t id = 10; id < 14; id++)
        assert_int_equal(mf_model_is_end(model, id), id == 12 || id == 13);
    mf_model_close(model);
    mf_engine_close(engine);
    tiny_model_free(&tiny);
}

/* Through the library: its clock, its reasoning, its tokens. */
static void the_library_renders_with_the_time_it_is_given(void **state)
{
    (void)state;
    static const char template[] = "{{ strftime_now('%Y-%m-%d') }}"
                                   "{% for m in messages %}{{ m.thinking }}{% endfor %}"
                                   "<|start|>a{# <|channel|> <|message|> #}";
    struct memory_files files;
    mf_text *text;
    mf_prompt *prompt;
    memory_files_init(&files);
    memory_files_put(&files, "m/config.json", "{}", 2);
    memory_files_put(&files, "m/tokenizer.json", tokenizer_json, strlen(tokenizer_json));
    memory_files_put(&files, "m/chat_template.jinja", template, strlen(template));
    if (mf_text_open(&text, "m", &files.files, &why) != MF_OK) fail_msg("%s", why.text);
    assert_string_equal(mf_text_family(text), "harmony");
    mf_chat_options options = MF_CHAT_OPTIONS_INIT;
    options.messages = "[{\"role\":\"assistant\",\"reasoning_content\":\"b\"}]";
    options.now = noon;
    if (mf_chat_render(&prompt, text, &options, &why) != MF_OK) fail_msg("%s", why.text);
    assert_string_equal(mf_prompt_text(prompt, NULL), "2025-07-04b<|start|>a");
    assert_int_equal(mf_prompt_reasoning(prompt), MF_REASONING_MAY);
    mf_prompt_close(prompt);
    options.now = 0;
    options.variables = "{\"enable_thinking\":false}";
    assert_int_equal(mf_chat_render(&prompt, text, &options, &why), MF_OK);
    assert_true(strcmp(mf_prompt_text(prompt, NULL), "2026") > 0);
    assert_int_equal(mf_prompt_reasoning(prompt), MF_REASONING_NONE);
    mf_prompt_close(prompt);
    mf_text_close(text);
}

int main(void)
{
    for (size_t i = 0; i < 2; i++) {
        char path[PATH_CAPACITY];
        size_t length;
        snprintf(path, sizeof path, "%s/tests/fixtures/templates/%s.jinja",
                 getenv("MOEFLUX_SOURCE"), names[i]);
        if (file_read_whole_new(&sources[i], &length, &files_posix, path, 1 << 20, &why) != MF_OK ||
            chat_template_parse_new(&templates[i], sources[i], length, names[i], &why) != MF_OK) {
            fprintf(stderr, "%s\n", why.text);
            return 1;
        }
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(answers_are_rendered_and_read_back),
        cmocka_unit_test(harmony_has_its_date_and_its_history),
        cmocka_unit_test(calls_made_together_follow_one_another_in_harmony),
        cmocka_unit_test(arguments_in_a_string_are_no_string_in_harmony),
        cmocka_unit_test(no_text_before_a_call_is_lost_in_harmony),
        cmocka_unit_test(results_belong_to_calls_by_id_and_then_in_order),
        cmocka_unit_test(results_are_embedded_where_templates_want_that),
        cmocka_unit_test(the_template_says_where_answers_end),
        cmocka_unit_test(an_end_token_can_be_taken_back),
        cmocka_unit_test(a_model_of_the_syntax_ends_where_it_should),
        cmocka_unit_test(the_library_renders_with_the_time_it_is_given),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    for (size_t i = 0; i < 2; i++) {
        chat_template_free(templates[i]);
        free(sources[i]);
    }
    return failed;
}
