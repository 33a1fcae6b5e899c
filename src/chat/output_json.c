#include "chat/output_json.h"

enum {
    STATE_VALUE, /* a value must come */
    STATE_FIRST_ITEM,
    STATE_FIRST_KEY,
    STATE_KEY,
    STATE_COLON,
    STATE_AFTER, /* a value is complete */
    STATE_STRING,
    STATE_ESCAPE,
    STATE_HEX,
    STATE_LITERAL,
    STATE_MINUS,
    STATE_ZERO,
    STATE_DIGITS,
    STATE_POINT,
    STATE_FRACTION,
    STATE_EXPONENT,
    STATE_EXPONENT_SIGN,
    STATE_EXPONENT_DIGITS,
};

static bool is_white(char c)
{
    return c == ' ' || c == '\n' || c == '\t' || c == '\r';
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool in_object(const struct json_reader *reader)
{
    size_t top = reader->depth - 1;
    return reader->depth && (reader->objects[top / 64] >> (top % 64) & 1);
}

/* A value is complete: what may come now? */
static enum json_progress value_done(struct json_reader *reader)
{
    reader->state = STATE_AFTER;
    if (reader->depth == 1) reader->event = JSON_VALUE_END;
    return reader->depth ? JSON_MORE : JSON_DONE;
}

static enum json_progress open_container(struct json_reader *reader, bool object)
{
    if (reader->depth == JSON_READER_DEPTH) return JSON_BAD;
    uint64_t bit = (uint64_t)1 << (reader->depth % 64);
    uint64_t *word = &reader->objects[reader->depth / 64];
    *word = object ? *word | bit : *word & ~bit;
    reader->depth++;
    reader->state = object ? STATE_FIRST_KEY : STATE_FIRST_ITEM;
    return JSON_MORE;
}

static enum json_progress close_container(struct json_reader *reader, char c)
{
    if (!reader->depth || in_object(reader) != (c == '}')) return JSON_BAD;
    reader->depth--;
    return value_done(reader);
}

static enum json_progress begin_literal(struct json_reader *reader, const char *literal)
{
    reader->literal = literal;
    reader->count = 1;
    reader->state = STATE_LITERAL;
    return JSON_MORE;
}

static enum json_progress begin_value(struct json_reader *reader, char c)
{
    if (reader->depth == 1) reader->event = JSON_VALUE_BEGIN;
    switch (c) {
    case '{':
    case '[':
        return open_container(reader, c == '{');
    case '"':
        reader->state = STATE_STRING;
        reader->is_key = false;
        return JSON_MORE;
    case 't':
        return begin_literal(reader, "true");
    case 'f':
        return begin_literal(reader, "false");
    case 'n':
        return begin_literal(reader, "null");
    case '-':
        reader->state = STATE_MINUS;
        return JSON_MORE;
    default:
        if (!is_digit(c)) return JSON_BAD;
        reader->state = (unsigned char)(c == '0' ? STATE_ZERO : STATE_DIGITS);
        return JSON_MORE;
    }
}

static enum json_progress begin_key(struct json_reader *reader, char c)
{
    if (c != '"') return JSON_BAD;
    if (reader->depth == 1) reader->event = JSON_KEY_BEGIN;
    reader->state = STATE_STRING;
    reader->is_key = true;
    return JSON_MORE;
}

static enum json_progress feed_string(struct json_reader *reader, char c)
{
    if ((unsigned char)c < 0x20) return JSON_BAD;
    if (c == '\\') reader->state = STATE_ESCAPE;
    if (c != '"') return JSON_MORE;
    if (!reader->is_key) return value_done(reader);
    if (reader->depth == 1) reader->event = JSON_KEY_END;
    reader->state = STATE_COLON;
    return JSON_MORE;
}

static enum json_progress feed_escape(struct json_reader *reader, char c)
{
    if (reader->state == STATE_HEX) {
        bool hexadecimal = is_digit(c) || ((c | 0x20) >= 'a' && (c | 0x20) <= 'f');
        if (!hexadecimal) return JSON_BAD;
        if (--reader->count == 0) reader->state = STATE_STRING;
        return JSON_MORE;
    }
    reader->state = STATE_STRING;
    if (c == 'u') {
        reader->state = STATE_HEX;
        reader->count = 4;
        return JSON_MORE;
    }
    return c && strchr("\"\\/bfnrt", c) ? JSON_MORE : JSON_BAD;
}

static enum json_progress feed_literal(struct json_reader *reader, char c)
{
    if (c != reader->literal[reader->count]) return JSON_BAD;
    reader->count++;
    return reader->literal[reader->count] ? JSON_MORE : value_done(reader);
}

/* Between values. */
static enum json_progress feed_after(struct json_reader *reader, char c)
{
    if (is_white(c)) return JSON_MORE;
    if (c == '}' || c == ']') return close_container(reader, c);
    if (c != ',' || !reader->depth) return JSON_BAD;
    reader->state = (unsigned char)(in_object(reader) ? STATE_KEY : STATE_VALUE);
    return JSON_MORE;
}

/* The state after `c` inside of a number; STATE_AFTER: the number ended before it. */
static int next_in_number(int state, char c)
{
    switch (state) {
    case STATE_MINUS:
        return c == '0' ? STATE_ZERO : is_digit(c) ? STATE_DIGITS : -1;
    case STATE_POINT:
        return is_digit(c) ? STATE_FRACTION : -1;
    case STATE_EXPONENT:
        if (c == '+' || c == '-') return STATE_EXPONENT_SIGN;
        return is_digit(c) ? STATE_EXPONENT_DIGITS : -1;
    case STATE_EXPONENT_SIGN:
        return is_digit(c) ? STATE_EXPONENT_DIGITS : -1;
    default:
        break;
    }
    if (is_digit(c) && state != STATE_ZERO) return state;
    if (c == '.' && (state == STATE_ZERO || state == STATE_DIGITS)) return STATE_POINT;
    if ((c | 0x20) == 'e' && state != STATE_EXPONENT_DIGITS) return STATE_EXPONENT;
    return STATE_AFTER;
}

static enum json_progress feed_number(struct json_reader *reader, char c)
{
    int next = next_in_number(reader->state, c);
    if (next < 0) return JSON_BAD;
    reader->state = (unsigned char)next;
    return next == STATE_AFTER ? feed_after(reader, c) : JSON_MORE;
}

enum json_progress json_reader_feed(struct json_reader *reader, char c)
{
    reader->event = JSON_NOTHING;
    switch (reader->state) {
    case STATE_STRING:
        return feed_string(reader, c);
    case STATE_ESCAPE:
    case STATE_HEX:
        return feed_escape(reader, c);
    case STATE_LITERAL:
        return feed_literal(reader, c);
    case STATE_AFTER:
        return feed_after(reader, c);
    case STATE_VALUE:
    case STATE_FIRST_ITEM:
    case STATE_FIRST_KEY:
    case STATE_KEY:
    case STATE_COLON:
        break;
    default:
        return feed_number(reader, c);
    }
    if (is_white(c)) return JSON_MORE;
    if (reader->state == STATE_COLON) {
        reader->state = STATE_VALUE;
        return c == ':' ? JSON_MORE : JSON_BAD;
    }
    bool may_close = reader->state == STATE_FIRST_ITEM || reader->state == STATE_FIRST_KEY;
    if (may_close && (c == '}' || c == ']')) return close_container(reader, c);
    if (reader->state == STATE_FIRST_KEY || reader->state == STATE_KEY) return begin_key(reader, c);
    return begin_value(reader, c);
}

bool json_is_value(const char *text, size_t length)
{
    struct json_reader reader = { 0 };
    enum json_progress progress = JSON_MORE;
    size_t i = 0;
    while (i < length && progress == JSON_MORE) progress = json_reader_feed(&reader, text[i++]);
    /* A bare number has no end of its own: white space shows whether it was one. */
    if (progress == JSON_MORE && reader.state >= STATE_MINUS)
        progress = json_reader_feed(&reader, ' ');
    if (progress == JSON_MORE) return !reader.depth && reader.state == STATE_AFTER;
    while (i < length && is_white(text[i])) i++;
    return progress == JSON_DONE && i == length;
}
