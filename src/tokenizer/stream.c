#include "base/utf8.h"
#include "tokenizer/tokenizer.h"

/* How many bytes at the end of `text` begin a character that they do not finish. */
static size_t open_tail(const uint8_t *text, size_t length)
{
    for (size_t back = 1; back < UTF8_MAX && back <= length; back++) {
        uint8_t lead = text[length - back];
        if ((lead & 0xC0) == 0x80) continue; /* a later byte of a character */
        if (utf8_length(lead) <= back) return 0;
        return back == 1 || utf8_second_fits(lead, text[length - back + 1]) ? back : 0;
    }
    return 0;
}

size_t token_stream_push(struct token_stream *stream, const struct tokenizer *tokenizer, int32_t id,
                         char *out, size_t capacity)
{
    size_t length;
    const char *bytes = tokenizer_token_bytes(tokenizer, id, &length);
    if (!bytes || length == 0 || stream->held_count + length > capacity) return 0;
    memcpy(out, stream->held, stream->held_count);
    memcpy(out + stream->held_count, bytes, length);
    length += stream->held_count;

    size_t held = open_tail((const uint8_t *)out, length);
    memcpy(stream->held, out + length - held, held);
    stream->held_count = (uint8_t)held;
    return length - held;
}

size_t token_stream_flush(struct token_stream *stream, char *out, size_t capacity)
{
    size_t count = min_size(stream->held_count, capacity);
    memcpy(out, stream->held, count);
    stream->held_count = 0;
    return count;
}
