/* The stages of a call: each reads on from parser->at as far as it can. */
#include "base/status.h"
#include "chat/output_internal.h"

#include <stdlib.h>

/* Longer names and keys are no names, and nothing waits longer for what follows a tag. */
enum { NAME_LIMIT = 256, WHITE_LIMIT = 256 };

static char byte_at(const struct output_parser *parser, size_t offset)
{
    return parser->buffer.data[offset];
}

bool output_skip_white(struct output_parser *parser)
{
    while (parser->at < parser->buffer.length && output_is_white(byte_at(parser, parser->at)))
        parser->at++;
    return parser->at < parser->buffer.length;
}

/* `literal` at the present place, which moves past it if it is there. */
static enum output_match take(struct output_parser *parser, const char *literal)
{
    enum output_match match = output_match(parser, parser->at, literal);
    if (match == MATCH_YES) parser->at += strlen(literal);
    return match;
}

/* ------------------------------------------------------------------ events */

/* CALL_BEGIN, once: the name is known. */
static void announce(struct output_parser *parser)
{
    if (parser->announced) return;
    parser->announced = true;
    output_send(parser, &(struct output_event){ .kind = OUTPUT_CALL_BEGIN,
                                                .text = parser->name.data,
                                                .length = parser->name.count,
                                                .id = parser->id.count ? parser->id.data : NULL,
                                                .id_length = parser->id.count,
                                                .call = parser->call });
}

static void send_arguments(struct output_parser *parser, size_t length)
{
    if (length <= parser->sent) return;
    output_send(parser, &(struct output_event){ .kind = OUTPUT_CALL_ARGUMENTS,
                                                .text = parser->arguments.data + parser->sent,
                                                .length = length - parser->sent,
                                                .call = parser->call });
    parser->sent = length;
}

void output_call_stream(struct output_parser *parser)
{
    if (!parser->options.stream_calls) return;
    announce(parser);
    send_arguments(parser,
                   output_whole_characters(parser->arguments.data, parser->arguments.count));
}

void output_call_reset(struct output_parser *parser)
{
    parser->announced = parser->name_on_line = parser->fence_seen = false;
    parser->sent = parser->parameters = 0;
    parser->name.count = parser->id.count = parser->arguments.count = 0;
    parser->json = (struct json_reader){ 0 };
    parser->name_value = parser->arguments_value = parser->key = (struct output_span){ 0 };
}

enum output_progress output_call_complete(struct output_parser *parser)
{
    announce(parser);
    send_arguments(parser, parser->arguments.count);
    output_send(parser, &(struct output_event){ .kind = OUTPUT_CALL_END, .call = parser->call });
    output_call_reset(parser);
    output_consume(parser, parser->at);
    output_begin_content(parser);
    parser->call++;
    parser->section_open = parser->family->section_begin != NULL;
    parser->stage = parser->section_open       ? STAGE_BETWEEN
                    : parser->family->channels ? STAGE_HEADER
                                               : STAGE_TEXT;
    return PROGRESS_ON;
}

/* ------------------------------------------------------------------ opening */

/* Behind call_begin. */
static void begin_call(struct output_parser *parser)
{
    parser->origin = parser->mode;
    parser->body = parser->at;
    parser->name_on_line = !parser->family->name_end;
    parser->stage = parser->family->body == BODY_CALL ? STAGE_JSON : STAGE_NAME;
}

void output_call_open(struct output_parser *parser, const char *opener)
{
    output_call_reset(parser);
    parser->at = strlen(opener);
    parser->origin = parser->mode;
    if (opener == parser->family->section_begin)
        parser->stage = STAGE_OPEN;
    else
        begin_call(parser);
}

static enum output_progress step_open(struct output_parser *parser)
{
    if (!output_skip_white(parser)) return PROGRESS_WAIT;
    enum output_match match = take(parser, parser->family->call_begin);
    if (match == MATCH_PART) return PROGRESS_WAIT;
    if (match == MATCH_NO) return PROGRESS_BAD;
    begin_call(parser);
    return PROGRESS_ON;
}

/* After a call of a section: another one, the section's end, or text. */
static enum output_progress step_between(struct output_parser *parser)
{
    const struct output_family *family = parser->family;
    bool more = output_skip_white(parser);
    if (!more && !parser->finishing) return PROGRESS_WAIT;
    output_consume(parser, parser->at);
    enum output_match call = more ? output_match(parser, 0, family->call_begin) : MATCH_NO;
    enum output_match end = more ? output_match(parser, 0, family->section_end) : MATCH_NO;
    if (call == MATCH_YES) {
        parser->at = strlen(family->call_begin);
        begin_call(parser);
        return PROGRESS_ON;
    }
    if ((call == MATCH_PART || end == MATCH_PART) && !parser->finishing) return PROGRESS_WAIT;
    parser->stage = STAGE_TEXT; /* which knows the section's end too */
    return PROGRESS_ON;
}

/* ------------------------------------------------------------------ name */

static bool is_name_byte(char c)
{
    bool letter = (c | 0x20) >= 'a' && (c | 0x20) <= 'z';
    return letter || (c >= '0' && c <= '9') || (unsigned char)c >= 0x80 ||
           (c && strchr("_.-:/@$", c));
}

bool output_is_name_text(const char *text, size_t length)
{
    for (size_t i = 0; i < length; i++)
        if (!is_name_byte(text[i])) return false;
    return length > 0 && length < NAME_LIMIT - 16; /* a family may put something around it */
}

bool output_is_name(const char *name)
{
    return output_is_name_text(name, strlen(name));
}

static struct output_span trim(const struct output_parser *parser, struct output_span span)
{
    while (span.start < span.end && output_is_white(byte_at(parser, span.start))) span.start++;
    while (span.end > span.start && output_is_white(byte_at(parser, span.end - 1))) span.end--;
    return span;
}

/* The name without what may stand before it. */
static struct output_span leave_out(const struct output_parser *parser, struct output_span span,
                                    const char *name_begin)
{
    size_t size = name_begin ? strlen(name_begin) : 0;
    if (!size || span.end - span.start < size ||
        memcmp(parser->buffer.data + span.start, name_begin, size) != 0)
        return span;
    span.start += size;
    return trim(parser, span);
}

/* functions.NAME:7 is the id of a call of NAME. */
static void take_numbered_name(struct output_parser *parser, const char *text, size_t length)
{
    static const char prefix[] = "functions.";
    size_t size = sizeof prefix - 1, end = length;
    output_add(parser, &parser->id, text, length);
    while (end > 0 && text[end - 1] >= '0' && text[end - 1] <= '9') end--;
    if (end > 1 && end < length && text[end - 1] == ':') length = end - 1;
    if (length > size && memcmp(text, prefix, size) == 0) {
        text += size;
        length -= size;
    }
    output_add(parser, &parser->name, text, length);
}

/* The name lies in `span`; the body follows. */
static enum output_progress take_name(struct output_parser *parser, struct output_span span)
{
    const struct output_family *family = parser->family;
    span = leave_out(parser, trim(parser, span), family->name_begin);
    const char *text = parser->buffer.data + span.start;
    size_t length = span.end - span.start;
    if (!length) return PROGRESS_BAD;
    if (family->fenced_arguments && !parser->name_on_line && length == 8 &&
        memcmp(text, "function", 8) == 0) {
        parser->name_on_line = true; /* that was the kind of tool; now its name */
        parser->body = parser->at;
        return PROGRESS_ON;
    }
    if (family->numbered_names)
        take_numbered_name(parser, text, length);
    else
        output_add(parser, &parser->name, text, length);
    parser->body = parser->at;
    parser->stage = family->body == BODY_ARGUMENTS ? STAGE_JSON : STAGE_PARAMETER;
    if (family->body == BODY_PAIRS) output_pairs_begin(parser);
    return PROGRESS_ON;
}

static enum output_progress step_name(struct output_parser *parser)
{
    for (; parser->at < parser->buffer.length; parser->at++) {
        struct output_span span = { parser->body, parser->at };
        char c = byte_at(parser, parser->at);
        bool some = trim(parser, span).start < parser->at;
        if (parser->name_on_line) {
            if (c == '<' || (some && output_is_white(c))) return take_name(parser, span);
        } else {
            enum output_match match = take(parser, parser->family->name_end);
            if (match == MATCH_YES) return take_name(parser, span);
            if (match == MATCH_PART) return PROGRESS_WAIT;
        }
        bool inside =
            some && parser->at > parser->body && output_is_white(byte_at(parser, parser->at - 1));
        if (!output_is_white(c) && (!is_name_byte(c) || inside)) return PROGRESS_BAD;
        if (parser->at - parser->body > NAME_LIMIT) return PROGRESS_BAD;
    }
    return PROGRESS_WAIT;
}

/* ------------------------------------------------------------------ JSON */

static bool is_key(const struct output_parser *parser, const char *name)
{
    size_t length = strlen(name);
    struct output_span key = parser->key;
    return key.end - key.start == length + 2 &&
           memcmp(parser->buffer.data + key.start + 1, name, length) == 0;
}

/* Where the value of the present key is remembered; NULL: it does not matter. */
static struct output_span *span_of_key(struct output_parser *parser)
{
    if (is_key(parser, "name")) return &parser->name_value;
    if (is_key(parser, "arguments") || is_key(parser, "parameters"))
        return &parser->arguments_value;
    return NULL;
}

static void note_event(struct output_parser *parser)
{
    struct output_span *span;
    switch (parser->json.event) {
    case JSON_KEY_BEGIN:
        parser->key.start = parser->at;
        break;
    case JSON_KEY_END:
        parser->key.end = parser->at + 1;
        break;
    case JSON_VALUE_BEGIN:
        span = span_of_key(parser);
        if (span && !span->start) span->start = parser->at; /* of two, the first counts */
        break;
    case JSON_VALUE_END:
        span = span_of_key(parser);
        if (span && !span->end) span->end = parser->at + 1;
        break;
    default:
        break;
    }
}

/* A JSON string's text, decoded; the caller owns it (json_decref).  NULL: it is no string. */
static json_t *decode_string(const struct output_parser *parser, struct output_span span)
{
    json_t *value = json_loadb(parser->buffer.data + span.start, span.end - span.start,
                               JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
    if (json_is_string(value)) return value;
    json_decref(value);
    return NULL;
}

/* The name of a BODY_CALL, when its value is complete. */
static void learn_name(struct output_parser *parser)
{
    if (!parser->name_value.end || parser->name.count) return;
    json_t *name = decode_string(parser, parser->name_value);
    const char *text = json_string_value(name);
    if (text && strlen(text) == json_string_length(name)) /* a NUL is in no name */
        output_add(parser, &parser->name, text, strlen(text));
    json_decref(name);
}

/* Arguments that are written down as they come: an object. */
static void learn_arguments(struct output_parser *parser, struct output_span span)
{
    size_t known = span.start + parser->arguments.count;
    if (!parser->name.count || byte_at(parser, span.start) != '{' || span.end <= known) return;
    output_add(parser, &parser->arguments, parser->buffer.data + known, span.end - known);
    output_call_stream(parser);
}

static void learn(struct output_parser *parser)
{
    struct output_span span = { parser->body, parser->at };
    if (parser->family->body == BODY_CALL) {
        learn_name(parser);
        span = parser->arguments_value;
        if (!span.start) return;
        if (!span.end) span.end = parser->at;
    }
    if (span.start < span.end) learn_arguments(parser, span);
}

/* The object of a BODY_CALL is complete: what it says must make a call. */
static enum output_progress check_call(struct output_parser *parser)
{
    struct output_span span = parser->arguments_value;
    if (!parser->name.count) return PROGRESS_BAD;
    if (parser->arguments.count) return PROGRESS_ON; /* an object: learned */
    const char *text = parser->buffer.data + span.start;
    if (!span.start || (span.end == span.start + 4 && memcmp(text, "null", 4) == 0)) {
        output_add(parser, &parser->arguments, "{}", 2);
        return PROGRESS_ON;
    }
    json_t *inner = span.end ? decode_string(parser, span) : NULL; /* an object in a string */
    const char *object = json_string_value(inner);
    size_t length = json_string_length(inner);
    for (; length && output_is_white(*object); length--) object++;
    while (length && output_is_white(object[length - 1])) length--;
    bool good = length && *object == '{' && json_is_value(object, length);
    if (good) output_add(parser, &parser->arguments, object, length);
    json_decref(inner);
    return good ? PROGRESS_ON : PROGRESS_BAD;
}

/* A marker at the present place, or the beginning of one that may become whole. */
static enum output_match marker_here(const struct output_parser *parser)
{
    if (!parser->family->markers || byte_at(parser, parser->at) != '<') return MATCH_NO;
    enum output_match match = output_marker(parser, parser->at, NULL);
    return match == MATCH_PART && parser->finishing && !parser->cut ? MATCH_NO : match;
}

/* Does a message end where its arguments should begin? */
static bool says_nothing(const struct output_parser *parser)
{
    if (parser->at == parser->buffer.length) return parser->finishing && !parser->cut;
    return marker_here(parser) == MATCH_YES;
}

static enum output_progress step_json(struct output_parser *parser)
{
    if (!parser->json.depth) { /* before the object */
        bool more = output_skip_white(parser);
        if (parser->family->channels && says_nothing(parser)) {
            output_add(parser, &parser->arguments, "{}", 2);
            return output_call_complete(parser);
        }
        if (!more || marker_here(parser) == MATCH_PART) return PROGRESS_WAIT;
        if (parser->name_on_line && !parser->fence_seen) {
            enum output_match match = take(parser, "```json");
            parser->fence_seen = match == MATCH_YES;
            if (match != MATCH_NO) return match == MATCH_YES ? PROGRESS_ON : PROGRESS_WAIT;
        }
        if (byte_at(parser, parser->at) != '{') return PROGRESS_BAD;
        parser->body = parser->at;
    }
    enum json_progress progress = JSON_MORE;
    while (parser->at < parser->buffer.length && progress == JSON_MORE) {
        enum output_match match = marker_here(parser);
        if (match == MATCH_YES) return PROGRESS_BAD;
        if (match == MATCH_PART) break;
        progress = json_reader_feed(&parser->json, byte_at(parser, parser->at));
        if (progress == JSON_BAD) return PROGRESS_BAD;
        note_event(parser);
        parser->at++;
    }
    learn(parser);
    if (progress == JSON_MORE) return PROGRESS_WAIT;
    parser->stage = STAGE_JSON_END;
    return parser->family->body == BODY_CALL ? check_call(parser) : PROGRESS_ON;
}

/* The object is whole: call_end follows, or what shows that it was forgotten. */
static enum output_progress step_json_end(struct output_parser *parser)
{
    const struct output_family *family = parser->family;
    if (!output_skip_white(parser))
        return parser->finishing ? output_call_complete(parser) : PROGRESS_WAIT;
    if (parser->fence_seen) {
        enum output_match fence = take(parser, "```");
        if (fence == MATCH_PART && !parser->finishing) return PROGRESS_WAIT;
        if (fence == MATCH_YES) {
            parser->fence_seen = false;
            return PROGRESS_ON;
        }
    }
    enum output_match match = take(parser, family->call_end);
    if (match == MATCH_YES) return output_call_complete(parser);
    enum output_match marker = output_marker(parser, parser->at, NULL);
    if ((match == MATCH_PART || marker == MATCH_PART) && parser->finishing) {
        parser->at = parser->buffer.length;
        return output_call_complete(parser);
    }
    const char *const next[] = { family->call_begin, family->section_end };
    for (size_t i = 0; i < COUNT_OF(next); i++) {
        enum output_match found = next[i] ? output_match(parser, parser->at, next[i]) : MATCH_NO;
        if (found == MATCH_YES) return output_call_complete(parser);
        if (found == MATCH_PART) match = MATCH_PART;
    }
    if (marker == MATCH_YES) return output_call_complete(parser);
    return match == MATCH_PART || marker == MATCH_PART ? PROGRESS_WAIT : PROGRESS_BAD;
}

/* ------------------------------------------------------------------ parameters */

static enum output_progress step_parameter(struct output_parser *parser)
{
    const struct output_family *family = parser->family;
    if (!output_skip_white(parser)) return PROGRESS_WAIT;
    enum output_match more = take(parser, family->parameter_begin);
    if (more == MATCH_YES) {
        output_call_stream(parser);
        parser->body = parser->at;
        parser->stage = STAGE_KEY;
        return PROGRESS_ON;
    }
    enum output_match end = take(parser, family->call_end);
    if (end == MATCH_YES) {
        output_add(parser, &parser->arguments, "{}", parser->parameters ? 0 : 2);
        output_add(parser, &parser->arguments, "}", parser->parameters ? 1 : 0);
        return output_call_complete(parser);
    }
    return more == MATCH_PART || end == MATCH_PART ? PROGRESS_WAIT : PROGRESS_BAD;
}

static enum output_progress step_key(struct output_parser *parser)
{
    const struct output_family *family = parser->family;
    for (; parser->at < parser->buffer.length; parser->at++) {
        struct output_span span = { parser->body, parser->at };
        enum output_match match = take(parser, family->key_end);
        if (match == MATCH_PART) return PROGRESS_WAIT;
        if (match == MATCH_YES) {
            parser->key = trim(parser, span);
            parser->value = parser->at;
            parser->stage = family->says_strings  ? STAGE_SAYS_STRING
                            : family->value_begin ? STAGE_VALUE_BEGIN
                                                  : STAGE_VALUE;
            return parser->key.end > parser->key.start ? PROGRESS_ON : PROGRESS_BAD;
        }
        char c = byte_at(parser, parser->at);
        if (c == '<' || c == '\n' || parser->at - parser->body > NAME_LIMIT) return PROGRESS_BAD;
    }
    return PROGRESS_WAIT;
}

static enum output_progress step_says_string(struct output_parser *parser)
{
    if (parser->at == parser->buffer.length) return PROGRESS_WAIT;
    enum output_match yes = take(parser, "true\">");
    enum output_match no = yes == MATCH_NO ? take(parser, "false\">") : MATCH_NO;
    if (yes == MATCH_PART || no == MATCH_PART) return PROGRESS_WAIT;
    if (yes == MATCH_NO && no == MATCH_NO) return PROGRESS_BAD;
    parser->is_string = yes == MATCH_YES;
    parser->value = parser->at;
    parser->stage = STAGE_VALUE;
    return PROGRESS_ON;
}

static enum output_progress step_value_begin(struct output_parser *parser)
{
    if (!output_skip_white(parser)) return PROGRESS_WAIT;
    enum output_match match = take(parser, parser->family->value_begin);
    if (match != MATCH_YES) return match == MATCH_PART ? PROGRESS_WAIT : PROGRESS_BAD;
    parser->value = parser->at;
    parser->stage = STAGE_VALUE;
    return PROGRESS_ON;
}

/* The offset of `literal` at or behind `from`; the buffer's length: it is not there. */
static size_t find(const struct output_parser *parser, size_t from, const char *literal)
{
    const char *data = parser->buffer.data;
    size_t length = parser->buffer.length;
    if (from >= length) return length;
    const char *found = memmem(data + from, length - from, literal, strlen(literal));
    return found ? (size_t)(found - data) : length;
}

/* What follows `offset`, a little white space skipped: one of two literals? */
static enum output_match follows(const struct output_parser *parser, size_t offset, const char *a,
                                 const char *b)
{
    size_t limit = min_size(parser->buffer.length, offset + WHITE_LIMIT);
    while (offset < limit && output_is_white(byte_at(parser, offset))) offset++;
    if (offset == parser->buffer.length) return MATCH_PART;
    enum output_match first = output_match(parser, offset, a);
    enum output_match second = b ? output_match(parser, offset, b) : MATCH_NO;
    return first > second ? first : second;
}

/* Adds the parameter whose value lies in `span`. */
static void add_parameter(struct output_parser *parser, struct output_span span)
{
    struct byte_buffer *out = &parser->arguments;
    const char *data = parser->buffer.data;
    struct output_span key = parser->key;
    if (parser->family->lines_around_values) {
        if (span.start < span.end && data[span.start] == '\n') span.start++;
        if (span.start < span.end && data[span.end - 1] == '\n') span.end--;
    }
    size_t length = span.end - span.start;
    byte_buffer_append_text(out, parser->parameters ? ", " : "{");
    output_add_quoted(out, data + key.start, key.end - key.start);
    byte_buffer_append_text(out, ": ");
    if (parser->family->says_strings && parser->is_string) {
        output_add_quoted(out, data + span.start, length);
    } else {
        const json_t *parameters = NULL;
        if (!parser->family->says_strings)
            parameters = output_tool_parameters(parser->options.tools, parser->name.data,
                                                parser->name.count);
        const json_t *schema = json_object_getn(json_object_get(parameters, "properties"),
                                                data + key.start, key.end - key.start);
        output_value_add(out, parameters, schema, data + span.start, length);
    }
    if (out->failed) output_fail(parser, byte_buffer_status(out, parser->why));
    parser->parameters++;
}

/* Does the value end at the value_end at `offset`?  A value on lines of its own ends with its
 * line; value_end in the middle of one must be followed by what can follow a parameter. */
static enum output_match ends_value(const struct output_parser *parser, size_t offset)
{
    const struct output_family *family = parser->family;
    bool on_lines = family->lines_around_values && byte_at(parser, parser->value) == '\n';
    if (!on_lines || byte_at(parser, offset - 1) == '\n') return MATCH_YES;
    return follows(parser, offset + strlen(family->value_end), family->parameter_begin,
                   family->call_end);
}

/* A value that runs into the end of call and section was never closed: the offset of that end
 * before `end`, or `end`.  *match: PART, it cannot be said yet whether it is one. */
static size_t find_unclosed(const struct output_parser *parser, size_t end,
                            enum output_match *match)
{
    const struct output_family *family = parser->family;
    *match = MATCH_NO;
    if (!family->section_end) return end;
    size_t call_end = find(parser, parser->at, family->call_end);
    for (; call_end < end; call_end = find(parser, call_end + 1, family->call_end)) {
        size_t behind = call_end + strlen(family->call_end);
        *match = follows(parser, behind, family->section_end, NULL);
        if (*match != MATCH_NO) return call_end;
    }
    return end;
}

static enum output_progress step_value(struct output_parser *parser)
{
    const struct output_family *family = parser->family;
    enum output_match match;
    size_t end = find(parser, parser->at, family->value_end);
    size_t unclosed = find_unclosed(parser, end, &match);
    if (match == MATCH_YES) {
        parser->at = unclosed + strlen(family->call_end);
        return PROGRESS_BAD;
    }
    if (end == parser->buffer.length) {
        /* What may be the beginning of an end is looked at again, the rest only once. */
        size_t keep = max_size(strlen(family->value_end), strlen(family->call_end));
        size_t seen = end > keep ? end - keep : 0;
        parser->at = max_size(parser->at, max_size(parser->value, min_size(seen, unclosed)));
        return PROGRESS_WAIT;
    }
    match = ends_value(parser, end);
    if (match == MATCH_PART && !parser->finishing) {
        parser->at = end;
        return PROGRESS_WAIT;
    }
    if (match == MATCH_NO) {
        parser->at = end + 1;
        return PROGRESS_ON;
    }
    add_parameter(parser, (struct output_span){ parser->value, end });
    parser->at = end + strlen(family->value_end);
    parser->stage = STAGE_PARAMETER;
    output_call_stream(parser);
    return PROGRESS_ON;
}

enum output_progress output_call_step(struct output_parser *parser)
{
    switch (parser->stage) {
    case STAGE_OPEN:
        return step_open(parser);
    case STAGE_NAME:
        return step_name(parser);
    case STAGE_JSON:
        return step_json(parser);
    case STAGE_JSON_END:
        return step_json_end(parser);
    case STAGE_PAIRS:
        return output_pairs_step(parser);
    case STAGE_PARAMETER:
        return step_parameter(parser);
    case STAGE_KEY:
        return step_key(parser);
    case STAGE_SAYS_STRING:
        return step_says_string(parser);
    case STAGE_VALUE_BEGIN:
        return step_value_begin(parser);
    case STAGE_VALUE:
        return step_value(parser);
    default:
        return step_between(parser);
    }
}
