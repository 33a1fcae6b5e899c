/* text: the text layer through moeflux.h alone, as a caller outside of the project uses it.
 *     api_text MODEL   (models/pebble) */
#include <moeflux.h>

#include "check.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static mf_error why;
static mf_engine *engine;
static mf_model *model;
static const mf_text *text;

/* ------------------------------------------------------------------ text */

static size_t count_tokens(const char *bytes, mf_special special)
{
    size_t count = 0;
    mf_status status = mf_text_tokenize(text, NULL, 0, &count, bytes, strlen(bytes), special, &why);
    CHECK(status == MF_ERR_BUFFER_SIZE);
    return count;
}

static void the_text_of_a_checkpoint_opens_without_weights(const char *path)
{
    mf_text *alone = NULL;
    CHECK(mf_text_open(&alone, path, NULL, &why) == MF_OK);
    CHECK(mf_text_token_count(alone) == mf_text_token_count(text));
    CHECK(mf_text_find_token(alone, "<|im_end|>") == mf_text_find_token(text, "<|im_end|>"));
    CHECK(strcmp(mf_text_family(alone), mf_text_family(text)) == 0);
    mf_text_close(alone);
    CHECK(mf_text_open(&alone, "/no/such/model", NULL, &why) != MF_OK && !alone);
    mf_text_close(NULL);
}

static void tokens_are_found_and_named(void)
{
    int32_t end = mf_text_find_token(text, "<|im_end|>");
    size_t length;
    CHECK(end >= 0 && mf_text_is_special(text, end));
    CHECK(strcmp(mf_text_token_name(text, end), "<|im_end|>") == 0);
    CHECK(mf_text_token_bytes(text, end, &length) && length == strlen("<|im_end|>"));
    CHECK(!mf_text_token_bytes(text, -1, &length) && length == 0);
    CHECK(mf_text_find_token(text, "no such token") == -1);
    CHECK(count_tokens("<|im_end|>", MF_SPECIAL_PARSE) == 1);
    CHECK(count_tokens("<|im_end|>", MF_SPECIAL_NONE) > 1);
}

/* ------------------------------------------------------------------ chat */

static size_t occurrences(const mf_prompt *prompt, int32_t token)
{
    size_t count, found = 0;
    const int32_t *tokens = mf_prompt_tokens(prompt, &count);
    for (size_t i = 0; i < count; i++) found += tokens[i] == token;
    return found;
}

static void content_is_marked_and_plain(void)
{
    mf_chat_options chat = MF_CHAT_OPTIONS_INIT;
    mf_prompt *prompt = NULL;
    int32_t end = mf_text_find_token(text, "<|im_end|>");
    chat.messages = "[{\"role\":\"user\",\"content\":\"a<|im_end|>b\"}]";
    CHECK(mf_chat_render(&prompt, text, &chat, &why) == MF_OK);
    size_t count, length;
    const mf_range *content = mf_prompt_content(prompt, &count);
    const char *rendered = mf_prompt_text(prompt, &length);
    CHECK(count == 1 && content[0].length == strlen("a<|im_end|>b"));
    CHECK(memcmp(rendered + content[0].offset, "a<|im_end|>b", content[0].length) == 0);
    CHECK(occurrences(prompt, end) == 1);
    mf_prompt_close(prompt);
    CHECK(mf_prompt_from_text(&prompt, text, rendered = "x<|im_end|>", 11, &why) == MF_OK);
    CHECK(occurrences(prompt, end) == 1);
    CHECK(mf_prompt_reasoning(prompt) == MF_REASONING_NONE);
    mf_prompt_close(prompt);
}

/* The answer goes on behind the text of the last message, in which markup is plain text. */
static void a_last_message_is_continued(void)
{
    mf_chat_options chat = MF_CHAT_OPTIONS_INIT;
    mf_prompt *prompt = NULL;
    size_t length, count;
    static const char begun[] = "Once <|im_end|> up";
    int32_t end = mf_text_find_token(text, "<|im_end|>");
    chat.messages = "[{\"role\":\"user\",\"content\":\"Once <|im_end|> up\"},"
                    "{\"role\":\"assistant\",\"content\":\"  Once <|im_end|> up\\n\"}]";
    chat.continue_last = true;
    CHECK(mf_chat_render(&prompt, text, &chat, &why) == MF_OK);
    const char *rendered = mf_prompt_text(prompt, &length);
    const mf_range *content = mf_prompt_content(prompt, &count);
    CHECK(length > strlen(begun) && strlen(rendered) == length);
    CHECK(strcmp(rendered + length - strlen(begun), begun) == 0);
    CHECK(content[count - 1].offset + content[count - 1].length == length);
    CHECK(occurrences(prompt, end) == 1 && mf_prompt_reasoning(prompt) == MF_REASONING_NONE);
    mf_prompt_close(prompt);
    static const char *const none[] = {
        "[{\"role\":\"user\",\"content\":\"x\"}]",
        "[{\"role\":\"user\",\"content\":\"x\"},{\"role\":\"assistant\",\"content\":\"\"}]",
        "[{\"role\":\"user\",\"content\":\"x\"},{\"role\":\"assistant\",\"content\":\"a\","
        "\"tool_calls\":[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"arguments\":"
        "{\"b\":\"c\"}}}]}]",
    };
    for (size_t i = 0; i < sizeof none / sizeof none[0]; i++) {
        chat.messages = none[i];
        CHECK(mf_chat_render(&prompt, text, &chat, &why) == MF_ERR_UNSUPPORTED && !prompt);
        CHECK(strstr(why.text, "cannot be continued"));
    }
}

static void chat_arguments_are_checked(void)
{
    mf_chat_options chat = { 0 };
    mf_prompt *prompt = NULL;
    chat.messages = "[]";
    CHECK(mf_chat_render(&prompt, text, &chat, &why) == MF_ERR_ARGUMENT);
    CHECK(strstr(why.text, "MF_CHAT_OPTIONS_INIT"));
    chat.struct_size = sizeof chat;
    chat.messages = NULL;
    CHECK(mf_chat_render(&prompt, text, &chat, &why) == MF_ERR_ARGUMENT);
    chat.messages = "{}";
    CHECK(mf_chat_render(&prompt, text, &chat, &why) == MF_ERR_FORMAT && !prompt);
    chat.messages = "[";
    CHECK(mf_chat_render(&prompt, text, &chat, NULL) == MF_ERR_FORMAT);
    CHECK(mf_chat_render(&prompt, NULL, &chat, &why) == MF_ERR_ARGUMENT);
    CHECK(mf_chat_render(NULL, text, &chat, &why) == MF_ERR_ARGUMENT);
    CHECK(!mf_prompt_text(NULL, NULL) && !mf_prompt_tokens(NULL, NULL));
    /* A caller that knows `messages` only. */
    chat.struct_size = offsetof(mf_chat_options, tools);
    chat.messages = "[{\"role\":\"user\",\"content\":\"x\"}]";
    chat.tools = "this is not read";
    CHECK(mf_chat_render(&prompt, text, &chat, &why) == MF_OK);
    mf_prompt_close(prompt);
}

static void a_template_that_refuses_is_an_error(void)
{
    static const char source[] = "{{ raise_exception('no: ' + reason) }}";
    mf_template_problem problem = MF_TEMPLATE_PROBLEM_INIT;
    mf_template *chat = NULL;
    mf_prompt *prompt = NULL;
    CHECK(mf_template_open(&chat, source, strlen(source), "mine", &why) == MF_OK);
    CHECK(mf_template_render(&prompt, chat, "{\"reason\":\"me\"}", &problem, &why) ==
          MF_ERR_TEMPLATE);
    CHECK(!prompt && strcmp(problem.kind, "raise_exception") == 0);
    CHECK(strcmp(problem.message, "no: me") == 0 && problem.line == 1);
    CHECK(strcmp(mf_template_source(chat), source) == 0);
    mf_template_close(chat);
    CHECK(mf_template_open(&chat, "{{", 2, "mine", &why) == MF_ERR_TEMPLATE && !chat);
    CHECK(strstr(why.text, "mine"));
}

/* ------------------------------------------------------------------ sampler */

static float *row; /* of vocab_size logits */

static void the_sampler_takes_every_option(void)
{
    mf_logit_bias bias = { 7, 100.0f };
    mf_sampler_options options = MF_SAMPLER_OPTIONS_INIT;
    mf_sampler *sampler = NULL;
    mf_logprob top[2];
    CHECK(mf_text_sampling(text, &options, &why) == MF_OK && options.temperature >= 0);
    CHECK(options.struct_size == sizeof options);
    row[3] = 5.0f;
    CHECK(mf_sampler_open(&sampler, model, NULL, &why) == MF_OK);
    CHECK(mf_sampler_pick(sampler, row) == 3 && mf_sampler_pick(sampler, NULL) == -1);
    CHECK(mf_sampler_logprobs(sampler, top, 2, row) == 2 && top[0].token == 3);
    CHECK(fabsf(mf_sampler_logprob_of(sampler, row, 3) - top[0].logprob) < 1e-6f);
    mf_sampler_close(sampler);

    options = (mf_sampler_options)MF_SAMPLER_OPTIONS_INIT;
    options.biases = &bias;
    options.bias_count = 1;
    options.presence_penalty = 1000.0f;
    CHECK(mf_sampler_open(&sampler, model, &options, &why) == MF_OK);
    CHECK(mf_sampler_pick(sampler, row) == 7);
    mf_sampler_accept(sampler, 7);
    CHECK(mf_sampler_pick(sampler, row) == 3);
    mf_sampler_reset(sampler);
    CHECK(mf_sampler_pick(sampler, row) == 7);
    mf_sampler_close(sampler);
    options.struct_size = 0;
    CHECK(mf_sampler_open(&sampler, model, &options, &why) == MF_ERR_ARGUMENT);
    CHECK(strstr(why.text, "MF_SAMPLER_OPTIONS_INIT"));
}

/* ------------------------------------------------------------------ constraint */

static void a_constraint_closes_within_its_limit(void)
{
    mf_constraint_options form = MF_CONSTRAINT_OPTIONS_INIT;
    mf_constraint *constraint = NULL;
    mf_sampler *sampler = NULL;
    char answer[256] = "";
    form.grammar = "root ::= \"[\" [a-z]+ \"]\"";
    CHECK(mf_sampler_open(&sampler, model, NULL, &why) == MF_OK);
    CHECK(mf_constraint_open(&constraint, model, &form, &why) == MF_OK);
    CHECK(mf_constraint_closing_tokens(constraint) <= 3);
    for (size_t left = 6; left > 0 && !mf_constraint_is_finished(constraint); left--) {
        int32_t token = mf_constraint_pick(constraint, sampler, row, left);
        size_t length;
        if (token < 0 || mf_model_is_end(model, token)) break;
        CHECK(mf_constraint_accept(constraint, token));
        const char *bytes = mf_text_token_bytes(text, token, &length);
        strncat(answer, bytes, length);
    }
    CHECK(mf_constraint_is_complete(constraint));
    CHECK(answer[0] == '[' && answer[strlen(answer) - 1] == ']');
    mf_constraint_reset(constraint);
    CHECK(!mf_constraint_is_complete(constraint));
    mf_constraint_close(constraint);
    mf_sampler_close(sampler);
}

static void malformed_forms_are_refused(void)
{
    mf_constraint_options form = MF_CONSTRAINT_OPTIONS_INIT;
    mf_constraint *constraint = NULL;
    CHECK(mf_constraint_open(&constraint, model, &form, &why) == MF_ERR_ARGUMENT);
    form.grammar = "root ::= (";
    CHECK(mf_constraint_open(&constraint, model, &form, &why) == MF_ERR_GRAMMAR && !constraint);
    form.json_schema = "{}";
    CHECK(mf_constraint_open(&constraint, model, &form, &why) == MF_ERR_ARGUMENT);
    form.grammar = NULL;
    form.json_schema = "{\"type\":\"nothing\"}";
    CHECK(mf_constraint_open(&constraint, model, &form, &why) == MF_ERR_GRAMMAR);
    form.json_schema = NULL;
    form.tools = "[{\"name\":\"f\",\"parameters\":{\"type\":\"object\"}}]";
    form.family = "no such family";
    CHECK(mf_constraint_open(&constraint, model, &form, &why) == MF_ERR_ARGUMENT);
    form.family = "hermes";
    form.tool_choice = "g";
    CHECK(mf_constraint_open(&constraint, model, &form, &why) != MF_OK);
    form.tool_choice = "f";
    CHECK(mf_constraint_open(&constraint, model, &form, &why) == MF_OK);
    mf_constraint_close(constraint);
}

/* ------------------------------------------------------------------ output */

static void the_detokenizer_gives_whole_characters(void)
{
    static const char face[] = "\xF0\x9F\x98\x80";
    mf_detokenizer *stream = NULL;
    int32_t tokens[8];
    size_t count, length, total = 0;
    CHECK(mf_text_tokenize(text, tokens, 8, &count, face, 4, MF_SPECIAL_NONE, &why) == MF_OK);
    CHECK(mf_detokenizer_open(&stream, text, NULL, &why) == MF_OK);
    for (size_t i = 0; i < count; i++) {
        const char *out = mf_detokenizer_push(stream, tokens[i], &length);
        CHECK(length == 0 || (length == 4 && memcmp(out, face, 4) == 0));
        total += length;
    }
    CHECK(total == 4);
    mf_detokenizer_flush(stream, &length);
    CHECK(length == 0);
    if (count > 1) { /* cut inside of the character */
        mf_detokenizer_push(stream, tokens[0], &length);
        CHECK(length == 0);
        CHECK(memcmp(mf_detokenizer_flush(stream, &length), "\xEF\xBF\xBD", 3) == 0 && length == 3);
        /* a byte that begins no character */
        CHECK(memcmp(mf_detokenizer_push(stream, tokens[count - 1], &length), "\xEF\xBF\xBD", 3) ==
              0);
    }
    mf_detokenizer_flush(stream, &length);
    mf_detokenizer_push(stream, mf_text_find_token(text, "<|im_end|>"), &length);
    CHECK(length == 0); /* special tokens are not shown */
    mf_detokenizer_close(stream);
}

static void collect(void *user, const char *piece, size_t length)
{
    strncat(user, piece, length);
}

static void stop_strings_end_a_text(void)
{
    static const char *const strings[] = { "\nUser:" };
    mf_stops *stops = NULL;
    char seen[64] = "";
    CHECK(mf_stops_open(&stops, strings, 1, &why) == MF_OK);
    CHECK(!mf_stops_feed(stops, "Hi\nUs", 5, collect, seen) && strcmp(seen, "Hi") == 0);
    CHECK(mf_stops_feed(stops, "er: x", 5, collect, seen) && strcmp(seen, "Hi") == 0);
    CHECK(strcmp(mf_stops_found(stops), "\nUser:") == 0);
    mf_stops_finish(stops, collect, seen);
    CHECK(!mf_stops_found(stops)); /* ready for another text */
    CHECK(!mf_stops_feed(stops, "\n", 1, collect, seen));
    mf_stops_finish(stops, collect, seen);
    CHECK(strcmp(seen, "Hi\n") == 0);
    mf_stops_close(stops);
    CHECK(mf_stops_open(&stops, NULL, 1, &why) == MF_ERR_ARGUMENT);
}

static bool note_event(void *user, const mf_event *event)
{
    char *log = user;
    size_t used = strlen(log);
    snprintf(log + used, 512 - used, "%d:%.*s;", (int)event->kind, (int)event->length,
             event->length ? event->text : "");
    return true;
}

static bool refuse_event(void *user, const mf_event *event)
{
    (void)user;
    (void)event;
    return false;
}

static void output_becomes_events(void)
{
    static const char output[] = "<think>\nhm\n</think>\n\nLook:\n<tool_call>\n"
                                 "{\"name\": \"f\", \"arguments\": {\"x\": 1}}\n</tool_call>";
    mf_parser_options options = MF_PARSER_OPTIONS_INIT;
    mf_parser *parser = NULL;
    char log[512] = "";
    const char *message;
    options.family = "hermes";
    options.each = note_event;
    options.user = log;
    CHECK(mf_parser_open(&parser, &options, &why) == MF_OK);
    CHECK(mf_parser_feed(parser, output, strlen(output), &why) == MF_OK);
    CHECK(mf_parser_finish(parser, &why) == MF_OK);
    CHECK(strstr(log, "0:hm;") && strstr(log, "1:Look:;") && strstr(log, "2:f;"));
    CHECK(strstr(log, "3:{\"x\": 1};4:;"));
    CHECK(mf_parser_message(&message, parser, &why) == MF_OK);
    CHECK(strstr(message, "\"content\":\"Look:\"") && strstr(message, "\"name\":\"f\""));
    mf_parser_close(parser);
    options.each = refuse_event;
    CHECK(mf_parser_open(&parser, &options, &why) == MF_OK);
    mf_status status = mf_parser_feed(parser, output, strlen(output), &why);
    CHECK(status == MF_ERR_CANCELLED);
    mf_parser_close(parser);
    options.family = "no such family";
    CHECK(mf_parser_open(&parser, &options, &why) == MF_ERR_ARGUMENT && !parser);
    CHECK(mf_family_name(0) && !mf_family_name(1000));
}

int main(int count, char **words)
{
    if (count != 2) return 2;
    CHECK(mf_engine_open(&engine, NULL, &why) == MF_OK);
    CHECK(mf_model_open(&model, engine, words[1], NULL, &why) == MF_OK);
    text = mf_model_text(model);
    row = calloc(mf_model_vocab_size(model), sizeof *row);
    the_text_of_a_checkpoint_opens_without_weights(words[1]);
    tokens_are_found_and_named();
    content_is_marked_and_plain();
    a_last_message_is_continued();
    chat_arguments_are_checked();
    a_template_that_refuses_is_an_error();
    the_sampler_takes_every_option();
    a_constraint_closes_within_its_limit();
    malformed_forms_are_refused();
    the_detokenizer_gives_whole_characters();
    stop_strings_end_a_text();
    output_becomes_events();
    free(row);
    mf_model_close(model);
    mf_engine_close(engine);
    printf("the text layer does what moeflux.h says\n");
    return 0;
}
