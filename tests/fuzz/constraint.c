/* Any bytes as the schema of a tool's parameters: refused, or a grammar for answers in the syntax of
 * some family; what is then generated is read back by the parser as a call of that tool. */
#include "chat/constraint.h"
#include "grammar/matcher.h"
#include "sampling/random.h"
#include "chat/output_family.h"
#include "support/grammar_vocabulary_fixture.h"

#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct test_vocabulary vocabulary;
static char text[1 << 16];
static size_t length;

static void require(bool holds, const char *what, const struct answer_form *form)
{
    if (holds) return;
    fprintf(stderr, "fuzz_answer_grammar: %s: %s: %.*s\n", form->family->name, what, (int)length,
            text);
    abort();
}

static void read_back(const struct answer_form *form, size_t step)
{
    struct output_message message = { 0 };
    struct output_options options = {
        .family = form->family,
        .tools = form->tools,
        .prompt_opens_reasoning = form->reasoning == ANSWER_OPENS_REASONING,
        .sink = output_message_sink,
        .user = &message,
    };
    struct output_parser *parser;
    if (output_parser_new(&parser, &options, NULL) != MF_OK) return;
    for (size_t at = 0; at < length; at += step)
        require(output_parser_feed(parser, text + at, min_size(step, length - at), NULL) == MF_OK,
                "the parser failed", form);
    output_parser_finish(parser, NULL);
    require(message.call_count > 0, "no call", form);
    for (size_t i = 0; i < message.call_count; i++) {
        const struct output_call *call = &message.calls[i];
        json_t *arguments =
            json_loadb(call->arguments.data, call->arguments.count, JSON_ALLOW_NUL, NULL);
        require(call->complete && strcmp(call->name, "tool") == 0, "not the tool", form);
        require(json_is_object(arguments), "no object", form);
        json_decref(arguments);
    }
    require(!message.content.data, "left over", form);
    output_parser_free(parser);
    output_message_clear(&message);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (!vocabulary.vocabulary) test_vocabulary_init(&vocabulary, 700, 1);
    /* Inputs below 30 are older than the families from 10 on. */
    enum { FIRST = 10, ALL = 12 };
    if (size < 2) return 0;
    size_t index = data[0] < 3 * FIRST ? data[0] % FIRST : data[0] % ALL;
    size_t reasoning = data[0] < 3 * FIRST ? data[0] / FIRST : data[0] / ALL % 3;
    if (index == 0) return 0; /* family 0 knows no calls */
    struct answer_form form = {
        .family = output_family_at(index),
        .reasoning = (enum answer_reasoning)reasoning,
        .choice = TOOL_CHOICE_REQUIRED,
    };
    json_t *schema = json_loadb((const char *)data + 1, size - 1, JSON_DECODE_ANY, NULL);
    if (!schema) return 0;
    json_t *tools = json_pack("[{s:s,s:O}]", "name", "tool", "parameters", schema);
    struct grammar *grammar;
    struct grammar_matcher *matcher = NULL;
    form.tools = tools;
    if (answer_grammar_new(&grammar, &allocator_heap, &form, NULL) == MF_OK &&
        grammar_matcher_new(&matcher, &allocator_heap, grammar, vocabulary.vocabulary, NULL) ==
            MF_OK) {
        struct random random;
        random_seed(&random, size);
        length = test_vocabulary_write(&vocabulary, matcher, &random, 60, text, sizeof text);
        if (length > 0) {
            read_back(&form, SIZE_MAX);
            read_back(&form, 1);
        }
    }
    grammar_matcher_free(matcher);
    grammar_free(grammar);
    json_decref(tools);
    json_decref(schema);
    return 0;
}
