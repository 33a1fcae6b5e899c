#include "answer.h"

#include "streams.h"

#include "common/clock.h"

#include "base/status.h"
#include "chat/output_family.h"

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
    if (length == 0) return;
    output_write(text, length);
    answer->line_open = text[length - 1] != '\n';
}

static void set_style(const struct answer *answer, enum style style)
{
    const char *escape = terminal_style(answer->options.terminal->colour_out, style);

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
    }
}

static void end_reasoning(struct answer *answer)
{
    char line[64];
    int length;

    if (answer->options.view == REASONING_HIDE) return;
    if (answer->options.view == REASONING_FOLD) {
        length = snprintf(line, sizeof line, "%sthought for %.1f s",
                          answer->options.terminal->out ? "\r\033[K" : "",
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

static void show_call(struct answer *answer, const struct output_event *event)
{
    switch (event->kind) {
    case OUTPUT_CALL_BEGIN:
        enter_part(answer, PART_CALL);
        set_style(answer, STYLE_WARM);
        show_text(answer, "→ ", strlen("→ "));
        show_text(answer, event->text, event->length);
        show_text(answer, " ", 1);
        break;
    case OUTPUT_CALL_ARGUMENTS:
        show_arguments(answer, event->text, event->length);
        break;
    default:
        set_style(answer, STYLE_PLAIN);
        end_line(answer);
        break;
    }
}

/* The sink of the parser. */
static mf_status show_event(void *user, const struct output_event *event, mf_error *why)
{
    struct answer *answer = user;

    if (event->kind == OUTPUT_REASONING) {
        enter_part(answer, PART_REASONING);
        if (answer->options.view == REASONING_SHOW) show_text(answer, event->text, event->length);
    } else if (event->kind == OUTPUT_CONTENT) {
        enter_part(answer, PART_CONTENT);
        show_text(answer, event->text, event->length);
    } else {
        show_call(answer, event);
    }
    return output_message_sink(&answer->message, event, why);
}

/* ----------------------------------------------------------------- feeding */

static mf_status open_parser(struct answer *answer, mf_error *why)
{
    const struct answer_options *options = &answer->options;
    struct output_options settings = {
        .family = options->family,
        .tools = options->tools,
        .prompt_opens_reasoning =
            output_prompt_opens_reasoning(options->prompt, options->prompt_length),
        .sink = show_event,
        .user = answer,
    };

    return output_parser_new(&answer->parser, &settings, why);
}

mf_status answer_begin(struct answer *out, const struct answer_options *options, mf_error *why)
{
    *out = (struct answer){
        .options = *options,
        .buffer_capacity = token_stream_capacity(options->tokenizer),
    };
    if (options->stops) stop_strings_reset(options->stops);
    out->buffer = malloc(out->buffer_capacity);
    if (!out->buffer) return fail_memory(why, out->buffer_capacity);
    return options->family ? open_parser(out, why) : MF_OK;
}

/* Whole characters; raw text is content as it is. */
static void take_text(void *user, const char *text, size_t length)
{
    struct answer *answer = user;
    struct output_event event = { .kind = OUTPUT_CONTENT, .text = text, .length = length };
    mf_status status;

    if (length == 0 || answer->failed) return;
    status = answer->parser ? output_parser_feed(answer->parser, text, length, NULL)
                            : show_event(answer, &event, NULL);
    answer->failed = status != MF_OK;
}

/* Markup of the family goes to the parser; other special tokens are not shown. */
static bool is_shown(const struct answer *answer, int32_t token)
{
    const struct tokenizer *tokenizer = answer->options.tokenizer;
    const struct output_family *family = answer->options.family;
    size_t length;
    const char *bytes = tokenizer_token_bytes(tokenizer, token, &length);

    if (!bytes || !tokenizer_is_special(tokenizer, token)) return true;
    return family && output_family_has_markup(family, bytes, length);
}

bool answer_push(struct answer *answer, int32_t token)
{
    if (!is_shown(answer, token)) return !output_is_lost();
    size_t length = token_stream_push(&answer->stream, answer->options.tokenizer, token,
                                      answer->buffer, answer->buffer_capacity);

    if (answer->options.stops) {
        answer->stopped =
            stop_strings_feed(answer->options.stops, answer->buffer, length, take_text, answer);
    } else {
        take_text(answer, answer->buffer, length);
    }
    return !answer->stopped && !answer->failed && !output_is_lost();
}

void answer_end(struct answer *answer)
{
    size_t length = token_stream_flush(&answer->stream, answer->buffer, answer->buffer_capacity);

    if (answer->options.stops) {
        if (!answer->stopped) {
            stop_strings_feed(answer->options.stops, answer->buffer, length, take_text, answer);
        }
        stop_strings_finish(answer->options.stops, take_text, answer);
    } else {
        take_text(answer, answer->buffer, length);
    }
    if (answer->parser) output_parser_finish(answer->parser, NULL);
    enter_part(answer, PART_NONE); /* leaves the reasoning, if the answer ended in it */
    end_line(answer);
}

void answer_free(struct answer *answer)
{
    output_parser_free(answer->parser);
    output_message_clear(&answer->message);
    free(answer->buffer);
    *answer = (struct answer){ 0 };
}

/* ------------------------------------------------------------- remembering */

/* As the OpenAI interface has them, which is what templates expect. */
static json_t *calls_json_new(const struct output_message *message)
{
    json_t *calls = json_array();

    for (size_t i = 0; i < message->call_count; i++) {
        const struct output_call *call = &message->calls[i];
        if (!call->complete) continue;
        json_t *arguments = json_loadb(call->arguments, call->arguments_length, 0, NULL);
        if (!arguments) { /* a number that is too large: nearly it is better than none */
            arguments = json_loadb(call->arguments, call->arguments_length,
                                   JSON_DECODE_INT_AS_REAL | JSON_ALLOW_NUL, NULL);
        }
        if (!arguments) arguments = json_stringn(call->arguments, call->arguments_length);
        json_array_append_new(calls, json_pack("{s:s*,s:s,s:{s:s,s:o}}", "id", call->id, "type",
                                               "function", "function", "name", call->name,
                                               "arguments", arguments));
    }
    return calls;
}

mf_status answer_message_append(const struct answer *answer, json_t *messages, mf_error *why)
{
    const struct output_message *said = &answer->message;
    json_t *message = json_pack("{s:s,s:s%}", "role", "assistant", "content",
                                said->content ? said->content : "", said->content_length);

    if (!message) return fail(why, MF_ERR_FORMAT, "the answer is not UTF-8");
    if (said->reasoning) {
        json_object_set_new(message, "reasoning_content",
                            json_stringn(said->reasoning, said->reasoning_length));
    }
    if (said->call_count > 0) json_object_set_new(message, "tool_calls", calls_json_new(said));
    json_array_append_new(messages, message);
    return MF_OK;
}
