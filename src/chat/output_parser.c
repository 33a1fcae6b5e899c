#include "chat/output_parser.h"

#include "base/status.h"
#include "chat/output_internal.h"

#include <stdlib.h>

static const char think_begin[] = OUTPUT_THINK_BEGIN, think_end[] = OUTPUT_THINK_END;

/* ------------------------------------------------------------------ shared helpers */

void output_fail(struct output_parser *parser, mf_status status)
{
    if (parser->status == MF_OK) parser->status = status;
}

void output_add(struct output_parser *parser, struct byte_buffer *text, const char *data,
                size_t length)
{
    if (!byte_buffer_append(text, data, length))
        output_fail(parser, byte_buffer_status(text, parser->why));
}

void output_send(struct output_parser *parser, const struct output_event *event)
{
    if (parser->status != MF_OK) return;
    output_fail(parser, parser->options.sink(parser->options.user, event, parser->why));
}

enum output_match output_match(const struct output_parser *parser, size_t offset,
                               const char *literal)
{
    size_t length = strlen(literal), left = parser->buffer.length - offset;
    if (memcmp(parser->buffer.data + offset, literal, min_size(length, left)) != 0) return MATCH_NO;
    return left >= length ? MATCH_YES : MATCH_PART;
}

static bool is_white(char c)
{
    return c == ' ' || c == '\n' || c == '\t' || c == '\r';
}

void output_consume(struct output_parser *parser, size_t count)
{
    parser->at = 0;
    if (!count) return; /* there may be no buffer yet */
    parser->consumed += count;
    parser->buffer.data += count;
    parser->buffer.length -= count;
}

/* The buffer is what of the storage was not consumed. */
static void find_buffer(struct output_parser *parser)
{
    parser->buffer.data = parser->storage.data + parser->consumed;
    parser->buffer.length = parser->storage.count - parser->consumed;
}

/* Gives the consumed storage back to new text: once for each feeding. */
static void tidy(struct output_parser *parser)
{
    if (!parser->consumed) return;
    memmove(parser->storage.data, parser->buffer.data, parser->buffer.length);
    parser->storage.count = parser->buffer.length;
    parser->consumed = 0;
    find_buffer(parser);
}

/* ------------------------------------------------------------------ text */

static void send_text(struct output_parser *parser, const char *data, size_t length)
{
    bool reasoning = parser->mode == MODE_REASONING;
    if (!length) return;
    output_send(parser,
                &(struct output_event){ .kind = reasoning ? OUTPUT_REASONING : OUTPUT_CONTENT,
                                        .text = data,
                                        .length = length });
    if (reasoning)
        parser->reasoned = true;
    else
        parser->begun = true;
}

/* Text for the present mode: white space at its end waits for what follows. */
static void add_text(struct output_parser *parser, const char *data, size_t length)
{
    size_t start = 0, end = length;
    while (parser->trim && start < end && is_white(data[start])) start++;
    while (end > start && is_white(data[end - 1])) end--;
    if (end > start) {
        parser->trim = false;
        if (parser->space.count) { /* one event for both */
            output_add(parser, &parser->space, data + start, end - start);
            send_text(parser, parser->space.data, parser->space.count);
            parser->space.count = 0;
        } else {
            send_text(parser, data + start, end - start);
        }
    }
    output_add(parser, &parser->space, data + end, length - end);
}

/* Markup: the white space before it and after it is not text. */
static void drop_space(struct output_parser *parser)
{
    parser->space.count = 0;
    parser->trim = true;
}

size_t output_whole_characters(const char *data, size_t length)
{
    for (size_t back = 1; back <= 3 && back <= length; back++) {
        unsigned char byte = (unsigned char)data[length - back];
        if ((byte & 0xC0) == 0x80) continue;
        size_t size = byte >= 0xF0 ? 4 : byte >= 0xE0 ? 3 : byte >= 0xC0 ? 2 : 1;
        return size > back ? length - back : length;
    }
    return length;
}

/* Does <think> mean something here?  Before content it does; and a model may open again, once,
 * what the prompt has opened. */
static bool may_open_reasoning(const struct output_parser *parser)
{
    if (parser->mode == MODE_CONTENT) return !parser->begun;
    return parser->opened_by_prompt && !parser->reasoned;
}

/* The markup that means something at this point of the text, NULL behind the last. */
static void active_markup(const struct output_parser *parser, const char *out[8])
{
    const struct output_family *family = parser->family;
    bool reasoning = parser->mode == MODE_REASONING;
    size_t count = 0;
    if (reasoning || parser->left_open) out[count++] = think_end;
    if (parser->section_open) {
        out[count++] = family->section_end;
        out[count++] = family->call_begin;
    }
    if (may_open_reasoning(parser)) out[count++] = think_begin;
    if (!reasoning || family->call_ends_reasoning) {
        if (family->section_begin) out[count++] = family->section_begin;
        if (family->call_begin && (!family->section_begin || family->bare_calls))
            out[count++] = family->call_begin;
    }
    out[count] = NULL;
}

/* The first markup in the buffer (NULL: none) and, in *text, the bytes of text before it.  What
 * may yet become markup, or is half a character, does not count as text. */
static const char *find_markup(const struct output_parser *parser, size_t *text)
{
    const char *data = parser->buffer.data, *active[8];
    size_t length = parser->buffer.length;
    active_markup(parser, active);
    for (size_t offset = 0; offset < length; offset++) {
        const char *tag = memchr(data + offset, '<', length - offset);
        if (!tag) break;
        offset = (size_t)(tag - data);
        for (size_t i = 0; active[i]; i++) {
            enum output_match match = output_match(parser, offset, active[i]);
            if (match == MATCH_NO || (match == MATCH_PART && parser->finishing && !parser->cut))
                continue;
            *text = offset;
            return match == MATCH_YES ? active[i] : NULL;
        }
    }
    *text = parser->finishing ? length : output_whole_characters(data, length);
    return NULL;
}

static void set_mode(struct output_parser *parser, enum output_mode mode)
{
    parser->mode = mode;
    parser->opened_by_prompt = false;
    parser->reasoned = false;
    parser->left_open = false;
    drop_space(parser);
}

void output_begin_content(struct output_parser *parser)
{
    bool left_open = parser->left_open || parser->mode == MODE_REASONING;
    set_mode(parser, MODE_CONTENT);
    parser->left_open = left_open;
    parser->begun = true;
}

static enum output_progress step_text(struct output_parser *parser)
{
    size_t length;
    const char *markup = find_markup(parser, &length);
    if (length) add_text(parser, parser->buffer.data, length);
    if (!markup) {
        output_consume(parser, length);
        return PROGRESS_WAIT;
    }
    /* The text before it, if it was any, may have decided that <think> means nothing. */
    if (markup == think_begin && !may_open_reasoning(parser)) {
        output_consume(parser, length);
        add_text(parser, think_begin, sizeof think_begin - 1);
        output_consume(parser, sizeof think_begin - 1);
        return PROGRESS_ON;
    }
    output_consume(parser, length);
    if (markup == think_begin || markup == think_end) {
        set_mode(parser, markup == think_begin ? MODE_REASONING : MODE_CONTENT);
        output_consume(parser, strlen(markup));
    } else if (markup == parser->family->section_end) {
        parser->section_open = false;
        drop_space(parser);
        output_consume(parser, strlen(markup));
    } else {
        output_call_open(parser, markup);
    }
    return PROGRESS_ON;
}

/* ------------------------------------------------------------------ calls that are none */

/* What was read of the call is text, from its opener on; the rest is looked at again. */
static void give_back(struct output_parser *parser, size_t length)
{
    if (parser->cut) { /* it would have become one */
        output_call_reset(parser);
        parser->stage = STAGE_TEXT;
        output_consume(parser, parser->buffer.length);
        return;
    }
    if (parser->announced)
        output_send(parser,
                    &(struct output_event){ .kind = OUTPUT_CALL_DROPPED, .call = parser->call });
    output_call_reset(parser);
    parser->stage = STAGE_TEXT;
    parser->mode = parser->origin;
    add_text(parser, parser->buffer.data, length);
    output_consume(parser, length);
}

/* ------------------------------------------------------------------ the parser */

mf_status output_parser_new(struct output_parser **out, const struct output_options *options,
                            mf_error *why)
{
    *out = NULL;
    if (!options->family || !options->sink)
        return fail(why, MF_ERR_ARGUMENT, "an output parser needs a family and a sink");
    struct output_parser *parser = calloc(1, sizeof *parser);
    if (!parser) return fail_memory(why, sizeof *parser);
    parser->options = *options;
    parser->family = options->family;
    if (options->prompt_opens_reasoning) set_mode(parser, MODE_REASONING);
    parser->opened_by_prompt = options->prompt_opens_reasoning;
    *out = parser;
    return MF_OK;
}

void output_parser_free(struct output_parser *parser)
{
    if (!parser) return;
    byte_buffer_free(&parser->storage);
    byte_buffer_free(&parser->space);
    byte_buffer_free(&parser->name);
    byte_buffer_free(&parser->id);
    byte_buffer_free(&parser->arguments);
    free(parser);
}

static void run(struct output_parser *parser)
{
    enum output_progress progress = PROGRESS_ON;
    while (parser->status == MF_OK && progress != PROGRESS_WAIT) {
        if (parser->stage == STAGE_TEXT) {
            progress = step_text(parser);
            continue;
        }
        progress = output_call_step(parser);
        if (progress == PROGRESS_BAD) give_back(parser, parser->at);
    }
}

mf_status output_parser_feed(struct output_parser *parser, const char *text, size_t length,
                             mf_error *why)
{
    parser->why = why;
    output_add(parser, &parser->storage, text, length);
    if (parser->storage.count) {
        find_buffer(parser);
        run(parser);
        tidy(parser);
    }
    return parser->status;
}

static mf_status finish(struct output_parser *parser, bool cut, mf_error *why)
{
    parser->why = why;
    parser->finishing = true;
    parser->cut = cut;
    run(parser);
    /* Whatever still waits for more has waited in vain. */
    if (parser->stage != STAGE_TEXT && parser->status == MF_OK) {
        give_back(parser, parser->buffer.length);
        run(parser);
    }
    if (parser->space.count && parser->mode == MODE_CONTENT && !parser->trim)
        send_text(parser, parser->space.data, parser->space.count);
    parser->space.count = 0;
    return parser->status;
}

mf_status output_parser_finish(struct output_parser *parser, mf_error *why)
{
    return finish(parser, false, why);
}

mf_status output_parser_cut(struct output_parser *parser, mf_error *why)
{
    return finish(parser, true, why);
}
