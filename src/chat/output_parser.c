#include "chat/output_parser.h"

#include "base/status.h"
#include "chat/output_internal.h"

#include <stdlib.h>

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

enum output_match output_marker(const struct output_parser *parser, size_t offset,
                                const char **which)
{
    const char *const *markers = parser->family->markers;
    enum output_match best = MATCH_NO;
    for (; markers && *markers && best != MATCH_YES; markers++) {
        enum output_match match = output_match(parser, offset, *markers);
        if (match == MATCH_YES && which) *which = *markers;
        if (match > best) best = match;
    }
    return best;
}

enum output_match output_find_marker(const struct output_parser *parser, size_t *at, size_t offset,
                                     const char **which)
{
    size_t length = parser->buffer.length;
    for (; offset < length; offset++) {
        const char *tag = memchr(parser->buffer.data + offset, '<', length - offset);
        if (!tag) break;
        offset = (size_t)(tag - parser->buffer.data);
        enum output_match match = output_marker(parser, offset, which);
        if (match == MATCH_NO || (match == MATCH_PART && parser->finishing && !parser->cut))
            continue;
        *at = offset;
        return match;
    }
    *at = length;
    return MATCH_NO;
}

bool output_is_white(char c)
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
    parser->said[parser->mode] = true;
    output_send(parser,
                &(struct output_event){ .kind = reasoning ? OUTPUT_REASONING : OUTPUT_CONTENT,
                                        .text = data,
                                        .length = length });
    if (reasoning)
        parser->reasoned = true;
    else
        parser->begun = true;
}

void output_add_text(struct output_parser *parser, const char *data, size_t length)
{
    size_t start = 0, end = length;
    if (parser->mode == MODE_FOREIGN) return;
    while (parser->trim && start < end && output_is_white(data[start])) start++;
    while (end > start && output_is_white(data[end - 1])) end--;
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

void output_leave_out_marker(struct output_parser *parser)
{
    if (!parser->trim && !parser->space.count) output_add(parser, &parser->space, " ", 1);
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
    if (parser->family->markers) return true;
    if (parser->mode == MODE_CONTENT) return !parser->begun;
    return parser->opened_by_prompt && !parser->reasoned;
}

enum { ACTIVE_MARKUP = 12 };

/* The markup that means something at this point of the text, NULL behind the last. */
static void active_markup(const struct output_parser *parser, const char *out[ACTIVE_MARKUP])
{
    const struct output_family *family = parser->family;
    bool reasoning = parser->mode == MODE_REASONING, foreign = parser->mode == MODE_FOREIGN;
    size_t count = 0;
    if (reasoning || parser->left_open) out[count++] = family->reasoning_end;
    if (parser->section_open) {
        out[count++] = family->section_end;
        out[count++] = family->call_begin;
    }
    if (!foreign && may_open_reasoning(parser)) out[count++] = family->reasoning_begin;
    if (!foreign && (!reasoning || family->call_ends_reasoning)) {
        if (family->section_begin) out[count++] = family->section_begin;
        if (family->call_begin && (!family->section_begin || family->bare_calls))
            out[count++] = family->call_begin;
    }
    if (family->result_begin) out[count++] = foreign ? family->result_end : family->result_begin;
    if (family->turn_begin) {
        out[count++] = family->turn_begin;
        out[count++] = family->turn_end;
    }
    out[count] = NULL;
}

/* Markup in the text; `means` false: a marker that means nothing where it stands. */
struct markup {
    const char *text;
    bool means;
};

/* What stands at `offset`, if it is whole. */
static enum output_match match_markup(const struct output_parser *parser, size_t offset,
                                      const char *const *active, struct markup *markup)
{
    for (; *active; active++) {
        enum output_match match = output_match(parser, offset, *active);
        if (match == MATCH_PART && parser->finishing && !parser->cut) match = MATCH_NO;
        if (match == MATCH_NO) continue;
        *markup = (struct markup){ *active, true };
        return match;
    }
    markup->means = false;
    enum output_match match = output_marker(parser, offset, &markup->text);
    return match == MATCH_PART && parser->finishing && !parser->cut ? MATCH_NO : match;
}

/* The first markup in the buffer (false: none) and, in *text, the bytes of text before it.  What
 * may yet become markup, or is half a character, does not count as text. */
static bool find_markup(const struct output_parser *parser, struct markup *markup, size_t *text)
{
    const char *data = parser->buffer.data, *active[ACTIVE_MARKUP];
    size_t length = parser->buffer.length;
    active_markup(parser, active);
    for (size_t offset = 0; offset < length; offset++) {
        const char *tag = memchr(data + offset, '<', length - offset);
        if (!tag) break;
        offset = (size_t)(tag - data);
        enum output_match match = match_markup(parser, offset, active, markup);
        if (match == MATCH_NO) continue;
        *text = offset;
        return match == MATCH_YES;
    }
    *text = parser->finishing ? length : output_whole_characters(data, length);
    return false;
}

void output_set_mode(struct output_parser *parser, enum output_mode mode)
{
    parser->mode = mode;
    parser->opened_by_prompt = false;
    parser->reasoned = false;
    parser->left_open = false;
    parser->named = NULL;
    drop_space(parser);
    if (parser->family->markers && parser->said[mode])
        output_add(parser, &parser->space, "\n\n", 2);
}

void output_begin_content(struct output_parser *parser)
{
    bool left_open = parser->left_open || parser->mode == MODE_REASONING;
    output_set_mode(parser, MODE_CONTENT);
    parser->left_open = left_open;
    parser->begun = true;
}

/* The word that may stand behind the beginning of reasoning or of a turn. */
static enum output_progress step_named(struct output_parser *parser)
{
    const char *name = parser->named;
    bool turn = name == parser->family->turn_role;
    if (!output_skip_white(parser)) return PROGRESS_WAIT;
    enum output_match match = output_match(parser, parser->at, name);
    size_t end = min_size(parser->at + strlen(name), parser->buffer.length);
    bool more = end < parser->buffer.length;
    if (match == MATCH_PART || (match == MATCH_YES && !more)) {
        if (!parser->finishing) return PROGRESS_WAIT;
        match = MATCH_YES;
    } else if (match == MATCH_YES && !output_is_white(parser->buffer.data[end]) &&
               parser->buffer.data[end] != '<') {
        match = MATCH_NO; /* a longer word */
    }
    parser->named = NULL;
    if (turn && match == MATCH_YES) output_set_mode(parser, MODE_CONTENT);
    output_consume(parser, match == MATCH_YES ? end : 0);
    return PROGRESS_ON;
}

/* What the markup, which is behind the buffer's start, makes of the text. */
static void take_markup(struct output_parser *parser, const char *markup)
{
    const struct output_family *family = parser->family;
    output_consume(parser, strlen(markup));
    if (markup == family->reasoning_begin) {
        output_set_mode(parser, MODE_REASONING);
        parser->named = family->reasoning_name;
    } else if (markup == family->reasoning_end || markup == family->result_end ||
               markup == family->turn_end) {
        output_set_mode(parser, MODE_CONTENT);
    } else if (markup == family->section_end) {
        parser->section_open = false;
        drop_space(parser);
    } else if (markup == family->result_begin || markup == family->turn_begin) {
        output_set_mode(parser, MODE_FOREIGN);
        if (markup == family->turn_begin) parser->named = family->turn_role;
    }
}

static bool opens_call(const struct output_family *family, const char *markup)
{
    return markup == family->section_begin || markup == family->call_begin;
}

static enum output_progress step_text(struct output_parser *parser)
{
    size_t length;
    if (parser->named) return step_named(parser);
    struct markup markup = { 0 };
    bool found = find_markup(parser, &markup, &length);
    const char *begin = parser->family->reasoning_begin;
    if (length) output_add_text(parser, parser->buffer.data, length);
    output_consume(parser, length);
    if (!found) return PROGRESS_WAIT;
    /* The text before it, if it was any, may have decided that <think> means nothing. */
    if (!markup.means) {
        output_leave_out_marker(parser);
        output_consume(parser, strlen(markup.text));
    } else if (markup.text == begin && !may_open_reasoning(parser)) {
        output_add_text(parser, begin, strlen(begin));
        output_consume(parser, strlen(begin));
    } else if (opens_call(parser->family, markup.text)) {
        output_call_open(parser, markup.text);
    } else {
        take_markup(parser, markup.text);
    }
    return PROGRESS_ON;
}

/* ------------------------------------------------------------------ calls that are none */

/* What was read of the call is text, from its opener on; the rest is looked at again.  In a family
 * with markers all of it is, and the opener is gone. */
static void give_back(struct output_parser *parser, size_t length)
{
    const struct output_family *family = parser->family;
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
    if (family->markers) {
        length = family->channels ? 0 : strlen(family->call_begin);
        if (length) output_leave_out_marker(parser);
    } else {
        output_add_text(parser, parser->buffer.data, length);
    }
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
    if (options->family->channels) parser->stage = STAGE_HEADER;
    if (options->prompt_opens_reasoning) {
        output_set_mode(parser, MODE_REASONING);
        parser->stage = STAGE_TEXT;
    }
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

static enum output_progress step(struct output_parser *parser)
{
    if (parser->stage == STAGE_HEADER) return output_header_step(parser);
    if (parser->stage == STAGE_TEXT)
        return parser->family->channels ? output_channel_step(parser) : step_text(parser);
    enum output_progress progress = output_call_step(parser);
    if (progress == PROGRESS_BAD) give_back(parser, parser->at);
    return progress;
}

static void run(struct output_parser *parser)
{
    enum output_progress progress = PROGRESS_ON;
    while (parser->status == MF_OK && progress != PROGRESS_WAIT) progress = step(parser);
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
