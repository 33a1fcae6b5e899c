/* parser.c: mf_parser_*: a model's output to typed events. */
#include "api/handles.h"

#include "base/status.h"
#include "chat/output_parser.h"

#include <stdlib.h>

struct mf_parser {
    struct output_parser *parser;
    struct output_message message;
    json_t *tools;
    mf_event_function each;
    void *user;
    char *json; /* of mf_parser_message */
};

static mf_status pass_event(void *user, const struct output_event *event, mf_error *why)
{
    static const mf_event_kind kinds[] = {
        [OUTPUT_REASONING] = MF_EVENT_REASONING,
        [OUTPUT_CONTENT] = MF_EVENT_CONTENT,
        [OUTPUT_CALL_BEGIN] = MF_EVENT_CALL_BEGIN,
        [OUTPUT_CALL_ARGUMENTS] = MF_EVENT_CALL_ARGUMENTS,
        [OUTPUT_CALL_END] = MF_EVENT_CALL_END,
        [OUTPUT_CALL_DROPPED] = MF_EVENT_CALL_DROPPED,
    };
    mf_parser *parser = user;
    mf_event seen = { .kind = kinds[event->kind],
                      .text = event->text,
                      .length = event->length,
                      .id = event->id,
                      .id_length = event->id_length,
                      .call = event->call };
    mf_status status = output_message_sink(&parser->message, event, why);
    if (status != MF_OK || !parser->each || parser->each(parser->user, &seen)) return status;
    return fail(why, MF_ERR_CANCELLED, "the event function ended the parsing");
}

mf_status mf_parser_open(mf_parser **out, const mf_parser_options *options, mf_error *why)
{
    mf_parser_options own;
    struct output_options settings = { 0 };
    if (!out) return api_missing(why, "out");
    *out = NULL;
    mf_status status = api_options_in(&own, sizeof own, options, "MF_PARSER_OPTIONS_INIT", why);
    if (status == MF_OK)
        status = api_find_family(&settings.family, own.family ? own.family : "think", why);
    if (status != MF_OK) return status;
    mf_parser *parser = calloc(1, sizeof *parser);
    if (!parser) return fail_memory(why, sizeof *parser);
    parser->each = own.each;
    parser->user = own.user;
    status = api_parse_array_new(&parser->tools, own.tools, "tools", why);
    settings.tools = parser->tools;
    settings.prompt_opens_reasoning = own.reasoning == MF_REASONING_OPEN;
    settings.stream_calls = own.stream_calls;
    settings.sink = pass_event;
    settings.user = parser;
    if (status == MF_OK) status = output_parser_new(&parser->parser, &settings, why);
    if (status == MF_OK)
        *out = parser;
    else
        mf_parser_close(parser);
    return status;
}

void mf_parser_close(mf_parser *parser)
{
    if (!parser) return;
    output_parser_free(parser->parser);
    output_message_clear(&parser->message);
    json_decref(parser->tools);
    free(parser->json);
    free(parser);
}

mf_status mf_parser_feed(mf_parser *parser, const char *text, size_t length, mf_error *why)
{
    if (!parser) return api_missing(why, "parser");
    if (!text && length > 0) return api_missing(why, "text");
    return length ? output_parser_feed(parser->parser, text, length, why) : MF_OK;
}

mf_status mf_parser_finish(mf_parser *parser, mf_error *why)
{
    if (!parser) return api_missing(why, "parser");
    return output_parser_finish(parser->parser, why);
}

mf_status mf_parser_cut(mf_parser *parser, mf_error *why)
{
    if (!parser) return api_missing(why, "parser");
    return output_parser_cut(parser->parser, why);
}

mf_status mf_parser_message(const char **out, mf_parser *parser, mf_error *why)
{
    if (!out) return api_missing(why, "out");
    *out = NULL;
    if (!parser) return api_missing(why, "parser");
    free(parser->json);
    parser->json = NULL;
    mf_status status = output_message_json_new(&parser->json, &parser->message, why);
    *out = parser->json;
    return status;
}
