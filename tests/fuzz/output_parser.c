/* Any bytes as a model's output.  The first byte chooses the family, the second whether the prompt
 * opened reasoning and how the pieces are cut.  In pieces it must mean what it means as a whole,
 * with calls streamed or held; complete calls must have JSON objects as arguments. */
#include "base/json.h"
#include "chat/output_json.h"
#include "chat/output_parser.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char declared[] =
    "[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"parameters\":{\"properties\":"
    "{\"s\":{\"type\":\"string\"},\"n\":{\"type\":\"integer\"},\"b\":{\"type\":\"boolean\"},"
    "\"u\":{\"type\":[\"string\",\"null\"]},\"a\":{\"anyOf\":[{\"type\":\"number\"}]}}}}}]";

struct cut {
    unsigned state; /* 0: one piece */
};

static size_t next_piece(struct cut *cut, size_t left)
{
    if (!cut->state) return left;
    cut->state = cut->state * 1103515245u + 12345u;
    size_t size = 1 + (cut->state >> 16) % 7;
    return size < left ? size : left;
}

static void parse(struct output_message *out, struct output_options options, const char *text,
                  size_t length, unsigned seed)
{
    struct output_parser *parser;
    struct cut cut = { seed };
    options.sink = output_message_sink;
    options.user = out;
    if (output_parser_new(&parser, &options, NULL) != MF_OK) abort();
    for (size_t size; length; text += size, length -= size) {
        size = next_piece(&cut, length);
        if (output_parser_feed(parser, text, size, NULL) != MF_OK) abort();
    }
    if (output_parser_finish(parser, NULL) != MF_OK) abort();
    output_parser_free(parser);
}

static bool same(const struct byte_buffer *a, const struct byte_buffer *b)
{
    return a->count == b->count && (!a->count || memcmp(a->data, b->data, a->count) == 0);
}

static void compare(const struct output_message *a, const struct output_message *b)
{
    if (!same(&a->reasoning, &b->reasoning)) abort();
    if (!same(&a->content, &b->content)) abort();
    if (a->call_count != b->call_count) abort();
    for (size_t i = 0; i < a->call_count; i++) {
        const struct output_call *x = &a->calls[i], *y = &b->calls[i];
        if (strcmp(x->name, y->name) != 0 || !x->complete || !y->complete) abort();
        if (!same(&x->arguments, &y->arguments)) abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 2) return 0;
    json_t *tools = NULL;
    json_parse_new(&tools, declared, sizeof declared - 1, "tools", NULL);
    const struct output_family *family = output_family_at(data[0] % 16);
    struct output_options options = { .family = family ? family : output_family_at(0),
                                      .tools = tools,
                                      .prompt_opens_reasoning = data[1] & 1 };
    struct output_message whole = { 0 }, held = { 0 }, streamed = { 0 };
    const char *text = (const char *)data + 2;
    parse(&whole, options, text, size - 2, 0);
    parse(&held, options, text, size - 2, 1u + data[1]);
    options.stream_calls = true;
    parse(&streamed, options, text, size - 2, 300u + data[1]);
    compare(&whole, &held);
    compare(&whole, &streamed);
    char *json;
    if (output_message_json_new(&json, &whole, NULL) != MF_OK) abort();
    if (!json_is_value(json, strlen(json))) abort();
    for (size_t i = 0; i < whole.call_count; i++)
        if (whole.calls[i].arguments.data[0] != '{') abort();
    free(json);
    output_message_clear(&whole);
    output_message_clear(&held);
    output_message_clear(&streamed);
    json_decref(tools);
    return 0;
}
