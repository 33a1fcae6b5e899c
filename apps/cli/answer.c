#include "answer.h"

#include "streams.h"

#include "common/clock.h"
#include "common/error.h"

#include <stdlib.h>

const char *const reasoning_views[] = { "show", "fold", "hide", NULL };

enum reasoning_view reasoning_view_named(const char *name, const struct terminal *terminal)
{
    if (!name) return terminal->out ? REASONING_SHOW : REASONING_HIDE;
    for (size_t i = 0; reasoning_views[i]; i++) {
        if (strcmp(name, reasoning_views[i]) == 0) return (enum reasoning_view)i;
    }
    return REASONING_SHOW;
}

/* ----------------------------------------------------------------- showing */

static void show_text(struct answer *answer, const char *text, size_t length)
{
    if (length == 0 || answer->options.silent) return;
    shown_write(&answer->shown, text, length);
    answer->line_open = text[length - 1] != '\n';
}

static void set_style(struct answer *answer, enum style style)
{
    const char *escape = terminal_style(answer->options.terminal->colour_out, style);

    if (answer->options.silent) return;
    shown_flush(&answer->shown);
    output_write(escape, strlen(escape));
}

static void end_line(struct answer *answer)
{
    if (answer->line_open) show_text(answer, "\n", 1);
}

static void begin_reasoning(struct answer *answer)
{
    answer->reasoning_started = clock_seconds();
    if (answer->options.view == REASONING_HIDE) return;
    set_style(answer, STYLE_DIM);
    if (answer->options.view == REASONING_FOLD && answer->options.terminal->out) {
        show_text(answer, "thinking …", strlen("thinking …"));
        shown_flush(&answer->shown);
    }
}

static void end_reasoning(struct answer *answer)
{
    char line[64];
    int length;

    if (answer->options.view == REASONING_HIDE) return;
    if (answer->options.view == REASONING_FOLD) {
        if (answer->options.terminal->out && !answer->options.silent) {
            shown_flush(&answer->shown);
            output_write("\r\033[K", 4);
        }
        length = snprintf(line, sizeof line, "thought for %.1f s",
                          clock_seconds() - answer->reasoning_started);
        show_text(answer, line, (size_t)length);
    }
    end_line(answer);
    set_style(answer, STYLE_PLAIN);
    show_text(answer, "\n", 1); /* an empty line sets the answer apart */
}

/* Parts follow each other in any order; each begins on a line of its own. */
static void enter_part(struct answer *answer, enum answer_part part)
{
    if (answer->part == part && part != PART_CALL) return;
    if (answer->part == PART_REASONING) end_reasoning(answer);
    if (part == PART_CALL || answer->part == PART_CALL) end_line(answer);
    answer->part = part;
    if (part == PART_REASONING) begin_reasoning(answer);
}

/* All of them, on one line however the model wrote them. */
static void show_arguments(struct answer *answer, const char *text, size_t length)
{
    json_t *arguments = json_loadb(text, length, JSON_ALLOW_NUL, NULL);
    char *line = arguments ? json_dumps(arguments, JSON_REAL_PRECISION(15)) : NULL;

    if (line) {
        show_text(answer, line, strlen(line));
    } else {
        show_text(answer, text, length);
    }
    free(line);
    json_decref(arguments);
}

static void show_call(struct answer *answer, const mf_event *event)
{
    switch (event->kind) {
    case MF_EVENT_CALL_BEGIN:
        enter_part(answer, PART_CALL);
        set_style(answer, STYLE_WARM);
        show_text(answer, "→ ", strlen("→ "));
        show_text(answer, event->text, event->length);
        show_text(answer, " ", 1);
        break;
    case MF_EVENT_CALL_ARGUMENTS:
        show_arguments(answer, event->text, event->length);
        break;
    default:
        set_style(answer, STYLE_PLAIN);
        end_line(answer);
        break;
    }
}

/* ------------------------------------------------------------- remembering */

static bool keep(struct byte_list *list, const char *text, size_t length)
{
    return length == 0 || byte_list_append(list, text, length, NULL) == MF_OK;
}

/* {"id":…,"type":"function","function":{"name":…,"arguments":{…}}} */
static bool keep_call(struct answer *answer)
{
    const struct byte_list *text = &answer->call_arguments;
    json_t *arguments = json_loadb(text->bytes, text->count, 0, NULL);
    json_t *call;

    if (!arguments) { /* a number that is too large: nearly it is better than none */
        arguments =
            json_loadb(text->bytes, text->count, JSON_DECODE_INT_AS_REAL | JSON_ALLOW_NUL, NULL);
    }
    if (!arguments) arguments = json_stringn(text->bytes, text->count);
    call = json_pack("{s:s*,s:s,s:{s:s,s:o}}", "id", answer->call_id.bytes, "type", "function",
                     "function", "name", answer->call_name.bytes, "arguments", arguments);
    if (!answer->calls) answer->calls = json_array();
    return json_array_append_new(answer->calls, call) == 0;
}

static bool keep_event(struct answer *answer, const mf_event *event)
{
    switch (event->kind) {
    case MF_EVENT_REASONING:
        return keep(&answer->reasoning, event->text, event->length);
    case MF_EVENT_CONTENT:
        return keep(&answer->content, event->text, event->length);
    case MF_EVENT_CALL_BEGIN:
        byte_list_free(&answer->call_name);
        byte_list_free(&answer->call_id);
        byte_list_free(&answer->call_arguments);
        return keep(&answer->call_name, event->text, event->length) &&
               keep(&answer->call_id, event->id, event->id_length);
    case MF_EVENT_CALL_ARGUMENTS:
        return keep(&answer->call_arguments, event->text, event->length);
    case MF_EVENT_CALL_END:
        return keep_call(answer);
    default:
        return true;
    }
}

mf_status answer_message_append(const struct answer *answer, json_t *messages, mf_error *why)
{
    const struct byte_list *content = &answer->content, *reasoning = &answer->reasoning;
    json_t *message = json_pack("{s:s,s:s%}", "role", "assistant", "content",
                                content->bytes ? content->bytes : "", content->count);

    if (!message) return fail_memory(why, content->count);
    if (reasoning->count > 0) {
        json_object_set_new(message, "reasoning_content",
                            json_stringn(reasoning->bytes, reasoning->count));
    }
    if (answer->calls) json_object_set(message, "tool_calls", answer->calls);
    json_array_append_new(messages, message);
    return MF_OK;
}

/* ----------------------------------------------------------------- feeding */

/* Called by the parser. */
static bool show_event(void *user, const mf_event *event)
{
    struct answer *answer = user;

    if (event->kind == MF_EVENT_REASONING) {
        enter_part(answer, PART_REASONING);
        if (answer->options.view == REASONING_SHOW) show_text(answer, event->text, event->length);
    } else if (event->kind == MF_EVENT_CONTENT) {
        enter_part(answer, PART_CONTENT);
        show_text(answer, event->text, event->length);
    } else {
        show_call(answer, event);
    }
    return keep_event(answer, event);
}

mf_status answer_begin(struct answer *out, const struct answer_options *options, mf_error *why)
{
    mf_detokenizer_options text = MF_DETOKENIZER_OPTIONS_INIT;
    mf_parser_options parser = MF_PARSER_OPTIONS_INIT;
    mf_status status;

    *out = (struct answer){ .options = *options };
    shown_begin(&out->shown, options->terminal->out, terminal_width());
    text.family = options->family;
    parser.family = options->family;
    parser.tools = options->tools;
    parser.reasoning = options->reasoning;
    parser.each = show_event;
    parser.user = out;
    status = mf_detokenizer_open(&out->detokenizer, options->text, &text, why);
    if (status == MF_OK && options->family) status = mf_parser_open(&out->parser, &parser, why);
    return status;
}

/* Whole characters; raw text is content as it is. */
static void take_text(void *user, const char *text, size_t length)
{
    struct answer *answer = user;
    mf_event event = { .kind = MF_EVENT_CONTENT, .text = text, .length = length };

    if (length == 0 || answer->failed) return;
    answer->failed = answer->parser ? mf_parser_feed(answer->parser, text, length, NULL) != MF_OK
                                    : !show_event(answer, &event);
}

bool answer_push(struct answer *answer, int32_t token)
{
    size_t length;
    const char *text = mf_detokenizer_push(answer->detokenizer, token, &length);

    if (answer->options.stops) {
        answer->stopped = mf_stops_feed(answer->options.stops, text, length, take_text, answer);
    } else {
        take_text(answer, text, length);
    }
    return !answer->stopped && !answer->failed && !output_is_lost();
}

void answer_end(struct answer *answer)
{
    size_t length;
    const char *text = mf_detokenizer_flush(answer->detokenizer, &length);

    if (answer->options.stops) {
        if (!answer->stopped) {
            mf_stops_feed(answer->options.stops, text, length, take_text, answer);
        }
        mf_stops_finish(answer->options.stops, take_text, answer);
    } else {
        take_text(answer, text, length);
    }
    if (answer->parser) mf_parser_finish(answer->parser, NULL);
    enter_part(answer, PART_NONE); /* leaves the reasoning, if the answer ended in it */
    end_line(answer);
    shown_flush(&answer->shown);
}

void answer_free(struct answer *answer)
{
    mf_parser_close(answer->parser);
    mf_detokenizer_close(answer->detokenizer);
    byte_list_free(&answer->reasoning);
    byte_list_free(&answer->content);
    byte_list_free(&answer->call_name);
    byte_list_free(&answer->call_id);
    byte_list_free(&answer->call_arguments);
    json_decref(answer->calls);
    *answer = (struct answer){ 0 };
}
