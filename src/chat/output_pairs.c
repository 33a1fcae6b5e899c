/* Gemma 4: arguments that are nearly JSON.
 *
 *     call:f{city:<|"|>Oslo<|"|>,days:3,tags:[<|"|>a<|"|>],on:true}
 *            └ key, bare           └ JSON       strings have no escapes
 *
 * JSON is taken as well: keys and strings in its quotes.  A value without quotes that is no JSON is
 * a string; None, True and False are read as Python's.  A marker other than the quote ends the
 * call: it is none. */
#include "chat/output_internal.h"

enum { KEY_LIMIT = 256 };

static bool in_object(const struct output_parser *parser)
{
    size_t top = parser->depth - 1;
    return parser->objects[top / 64] >> top % 64 & 1;
}

static void write(struct output_parser *parser, const char *text)
{
    output_add(parser, &parser->arguments, text, strlen(text));
}

/* False: containers are nested too deep. */
static bool open_container(struct output_parser *parser, bool object)
{
    size_t top = parser->depth;
    uint64_t bit = UINT64_C(1) << top % 64;
    if (top == JSON_READER_DEPTH) return false;
    parser->objects[top / 64] &= ~bit;
    if (object) parser->objects[top / 64] |= bit;
    parser->depth++;
    parser->pairs = object ? PAIRS_KEY : PAIRS_ITEM;
    write(parser, object ? "{" : "[");
    return true;
}

void output_pairs_begin(struct output_parser *parser)
{
    parser->depth = parser->scanned = 0;
    open_container(parser, true);
    parser->stage = STAGE_PAIRS;
}

static enum output_progress close_container(struct output_parser *parser)
{
    write(parser, in_object(parser) ? "}" : "]");
    parser->at++;
    parser->pairs = PAIRS_COMMA;
    if (--parser->depth == 0) parser->stage = STAGE_JSON_END;
    output_call_stream(parser);
    return PROGRESS_ON;
}

/* ------------------------------------------------------------------ words */

enum word_kind { WORD_IN_MARKS, WORD_IN_QUOTES, WORD_BARE };

struct word {
    enum word_kind kind;
    struct output_span span; /* of its text */
    size_t behind;           /* where it ends, with its quotes */
};

/* More is needed, and the text up to `scanned` need not be looked at again. */
static enum output_progress wait_from(struct output_parser *parser, size_t scanned)
{
    parser->scanned = scanned;
    return PROGRESS_WAIT;
}

/* What stands at `at`: a marker, or what may become one? */
static enum output_match marker_at(const struct output_parser *parser, size_t at)
{
    if (parser->buffer.data[at] != '<') return MATCH_NO;
    enum output_match match = output_marker(parser, at, NULL);
    return match == MATCH_PART && parser->finishing && !parser->cut ? MATCH_NO : match;
}

/* Text up to the family's quote. */
static enum output_progress read_marked(struct output_parser *parser, struct word *word)
{
    const char *quote = parser->family->quote, *marker = NULL;
    size_t begin = parser->at + strlen(quote), at;
    enum output_match match =
        output_find_marker(parser, &at, max_size(begin, parser->scanned), &marker);
    if (match != MATCH_YES) return wait_from(parser, at);
    if (strcmp(marker, quote) != 0) return PROGRESS_BAD;
    *word = (struct word){ WORD_IN_MARKS, { begin, at }, at + strlen(quote) };
    return PROGRESS_ON;
}

/* A JSON string, with its quotes. */
static enum output_progress read_quoted(struct output_parser *parser, struct word *word)
{
    const char *data = parser->buffer.data;
    size_t length = parser->buffer.length, end = max_size(parser->at + 1, parser->scanned);
    for (; end < length && data[end] != '"'; end++) {
        enum output_match match = marker_at(parser, end);
        if (match == MATCH_YES) return PROGRESS_BAD;
        if (match == MATCH_PART || (data[end] == '\\' && end + 1 == length))
            return wait_from(parser, end);
        end += data[end] == '\\';
    }
    if (end >= length) return wait_from(parser, end);
    *word = (struct word){ WORD_IN_QUOTES, { parser->at, end + 1 }, end + 1 };
    return json_is_value(data + parser->at, end + 1 - parser->at) ? PROGRESS_ON : PROGRESS_BAD;
}

/* Anything up to one of `ends`. */
static enum output_progress read_bare(struct output_parser *parser, struct word *word,
                                      const char *ends)
{
    const char *data = parser->buffer.data;
    size_t length = parser->buffer.length, end = max_size(parser->at, parser->scanned);
    for (; end < length && !(data[end] && strchr(ends, data[end])); end++) {
        enum output_match match = marker_at(parser, end);
        if (match == MATCH_YES || (data[end] && strchr("{[\"", data[end]))) return PROGRESS_BAD;
        if (match == MATCH_PART) return wait_from(parser, end);
    }
    if (end == length) return wait_from(parser, end);
    *word = (struct word){ WORD_BARE, { parser->at, end }, end };
    while (word->span.end > word->span.start && output_is_white(data[word->span.end - 1]))
        word->span.end--;
    return word->span.end > word->span.start ? PROGRESS_ON : PROGRESS_BAD;
}

/* The word at parser->at, which moves behind it. */
static enum output_progress read_word(struct output_parser *parser, struct word *word,
                                      const char *ends)
{
    enum output_match quote = output_match(parser, parser->at, parser->family->quote);
    enum output_progress progress;
    if (quote == MATCH_PART) return PROGRESS_WAIT;
    if (quote == MATCH_YES)
        progress = read_marked(parser, word);
    else if (parser->buffer.data[parser->at] == '"')
        progress = read_quoted(parser, word);
    else
        progress = read_bare(parser, word, ends);
    if (progress != PROGRESS_ON) return progress;
    parser->at = word->behind;
    parser->scanned = 0;
    return PROGRESS_ON;
}

/* ------------------------------------------------------------------ keys and values */

static void write_text(struct output_parser *parser, const struct word *word)
{
    const char *text = parser->buffer.data + word->span.start;
    size_t length = word->span.end - word->span.start;
    if (word->kind == WORD_IN_QUOTES)
        output_add(parser, &parser->arguments, text, length);
    else
        output_add_quoted(&parser->arguments, text, length);
}

static enum output_progress step_key(struct output_parser *parser)
{
    struct word word;
    enum output_progress progress = read_word(parser, &word, ":,{}[]\n");
    if (progress != PROGRESS_ON) {
        bool endless = progress == PROGRESS_WAIT && parser->buffer.length - parser->at > KEY_LIMIT;
        return endless ? PROGRESS_BAD : progress;
    }
    if (word.span.end - word.span.start > KEY_LIMIT) return PROGRESS_BAD;
    write_text(parser, &word);
    write(parser, ": ");
    parser->key = word.span;
    parser->is_string = word.kind != WORD_IN_QUOTES; /* the key can be looked up as it is */
    parser->pairs = PAIRS_COLON;
    return PROGRESS_ON;
}

/* The schema of the present key, if it is one of the tool's own parameters. */
static const json_t *schema_of_key(const struct output_parser *parser, const json_t *parameters)
{
    if (parser->depth != 1 || !parser->is_string) return NULL;
    return json_object_getn(json_object_get(parameters, "properties"),
                            parser->buffer.data + parser->key.start,
                            parser->key.end - parser->key.start);
}

/* What a text without quotes may be in JSON, "string": nothing. */
static const char *type_of(const char *text, size_t length)
{
    if (!json_is_value(text, length)) return "string";
    if (*text == 't' || *text == 'f') return "boolean";
    return *text == 'n' ? "null" : "number";
}

static void write_bare(struct output_parser *parser, const struct word *word)
{
    static const char *const python[][2] = { { "None", "null" },
                                             { "True", "true" },
                                             { "False", "false" } };
    const json_t *parameters =
        output_tool_parameters(parser->options.tools, parser->name.data, parser->name.count);
    const json_t *schema = schema_of_key(parser, parameters);
    const char *text = parser->buffer.data + word->span.start, *json = text;
    size_t length = word->span.end - word->span.start, json_length = length;
    for (size_t i = 0; i < COUNT_OF(python); i++) {
        if (length != strlen(python[i][0]) || memcmp(text, python[i][0], length) != 0) continue;
        json = python[i][1];
        json_length = strlen(json);
    }
    const char *type = type_of(json, json_length);
    bool number = strcmp(type, "number") == 0;
    /* Where a string is declared it is one, unless what it looks like is declared, too. */
    bool string = strcmp(type, "string") == 0 ||
                  (output_schema_declares(parameters, schema, "string") &&
                   !output_schema_declares(parameters, schema, type) &&
                   !(number && output_schema_declares(parameters, schema, "integer")));
    if (string)
        output_add_quoted(&parser->arguments, text, length);
    else
        output_add(parser, &parser->arguments, json, json_length);
}

static enum output_progress step_value(struct output_parser *parser)
{
    struct word word;
    char c = parser->buffer.data[parser->at];
    if (c == '{' || c == '[') {
        parser->at++;
        return open_container(parser, c == '{') ? PROGRESS_ON : PROGRESS_BAD;
    }
    enum output_progress progress = read_word(parser, &word, ",}]");
    if (progress != PROGRESS_ON) return progress;
    if (word.kind == WORD_BARE)
        write_bare(parser, &word);
    else
        write_text(parser, &word);
    parser->pairs = PAIRS_COMMA;
    output_call_stream(parser);
    return PROGRESS_ON;
}

static enum output_progress step_comma(struct output_parser *parser, char c)
{
    if (c == (in_object(parser) ? '}' : ']')) return close_container(parser);
    if (c != ',') return PROGRESS_BAD;
    write(parser, ", ");
    parser->at++;
    parser->pairs = in_object(parser) ? PAIRS_NEXT_KEY : PAIRS_VALUE;
    return PROGRESS_ON;
}

enum output_progress output_pairs_step(struct output_parser *parser)
{
    if (!output_skip_white(parser)) return PROGRESS_WAIT;
    char c = parser->buffer.data[parser->at];
    if (parser->arguments.failed)
        output_fail(parser, byte_buffer_status(&parser->arguments, parser->why));
    switch (parser->pairs) {
    case PAIRS_KEY:
        return c == '}' ? close_container(parser) : step_key(parser);
    case PAIRS_NEXT_KEY:
        return step_key(parser);
    case PAIRS_COLON:
        parser->pairs = PAIRS_VALUE;
        parser->at++;
        return c == ':' ? PROGRESS_ON : PROGRESS_BAD;
    case PAIRS_ITEM:
        return c == ']' ? close_container(parser) : step_value(parser);
    case PAIRS_VALUE:
        return step_value(parser);
    default:
        return step_comma(parser, c);
    }
}
