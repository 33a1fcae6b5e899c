/* Harmony: an answer is a list of messages, each with its role, recipient and channel.
 *
 *     <|start|>ROLE to=RECIPIENT<|channel|>CHANNEL to=RECIPIENT <|constrain|>TYPE<|message|>TEXT<|end|>
 *     ───────── ────────────────────────── header ─────────────────────────────────────── text, or a
 *                                                                                         call's JSON
 *
 * The prompt ends behind the first role.  `analysis` is reasoning, the other channels are content,
 * a message to a tool is a call, and one of any role but `assistant` (a result, a user) is left out.
 *
 * A header is read strictly; where it stops being one, text begins.  So an answer without any
 * markup is content, and one whose <|message|> is missing is not lost.  Any marker ends a text,
 * wherever it stands: also inside of a call's JSON, where its text can be written \u003c. */
#include "chat/output_internal.h"

enum { HEADER_LIMIT = 256 }; /* bytes; longer ones are none */

/* ------------------------------------------------------------------ headers */

enum word_wanted { WANT_ROLE, WANT_CHANNEL, WANT_ANY };

struct header {
    enum word_wanted wanted;
    struct output_span role, channel, recipient;
    bool has_channel, may_have_type; /* the latter once */
    size_t text;                     /* where text begins: behind what was understood */
};

enum header_end {
    HEADER_WAITS,  /* it goes on */
    HEADER_TEXT,   /* text follows, at header.text */
    HEADER_NOTHING /* a message without text: the next marker follows, at parser->at */
};

static bool is_text_of(const struct output_parser *parser, struct output_span span,
                       const char *text)
{
    size_t length = strlen(text);
    return span.end - span.start == length &&
           memcmp(parser->buffer.data + span.start, text, length) == 0;
}

static bool begins_with(const struct output_parser *parser, struct output_span span,
                        const char *text)
{
    size_t length = strlen(text);
    return span.end - span.start >= length &&
           memcmp(parser->buffer.data + span.start, text, length) == 0;
}

/* False: there is no such word in a header. */
static bool take_word(const struct output_parser *parser, struct header *header,
                      struct output_span word)
{
    static const char to[] = "to=";
    bool named = output_is_name_text(parser->buffer.data + word.start, word.end - word.start);
    bool answers = parser->header == HEADER_ANSWER && !header->has_channel;
    if (begins_with(parser, word, to) && header->wanted != WANT_CHANNEL) {
        word.start += sizeof to - 1;
        if (!output_is_name_text(parser->buffer.data + word.start, word.end - word.start))
            return false;
        header->recipient = word;
        header->may_have_type = true;
    } else if (header->wanted == WANT_ROLE) {
        header->role = word;
    } else if (!named) {
        return false;
    } else if (header->wanted == WANT_CHANNEL) {
        header->channel = word;
    } else if (answers && !header->role.end && is_text_of(parser, word, "assistant")) {
        header->role = word;
    } else if (header->may_have_type) {
        header->may_have_type = false;
        return true; /* it is not needed: if this is no header after all, it is text */
    } else {
        return false;
    }
    header->wanted = WANT_ANY;
    header->text = word.end;
    return true;
}

/* The word at parser->at, which moves behind it. */
static enum header_end step_word(struct output_parser *parser, struct header *header, bool *taken)
{
    const char *data = parser->buffer.data;
    struct output_span word = { parser->at, parser->at };
    while (word.end < parser->buffer.length && data[word.end] != '<' &&
           !output_is_white(data[word.end]))
        word.end++;
    *taken = false;
    if (word.end > HEADER_LIMIT) return HEADER_TEXT;
    if (word.end == parser->buffer.length && !parser->finishing) return HEADER_WAITS;
    *taken = take_word(parser, header, word);
    parser->at = word.end;
    return HEADER_TEXT;
}

/* The marker at parser->at, which moves behind it if it belongs to a header. */
static enum header_end step_marker(struct output_parser *parser, struct header *header, bool *taken)
{
    const char *marker = NULL;
    enum output_match match = output_marker(parser, parser->at, &marker);
    *taken = false;
    if (match == MATCH_PART && (!parser->finishing || parser->cut)) return HEADER_WAITS;
    if (match != MATCH_YES) return HEADER_TEXT;
    bool channel = strcmp(marker, "<|channel|>") == 0, message = strcmp(marker, "<|message|>") == 0;
    if (!channel && !message && strcmp(marker, "<|constrain|>") != 0) return HEADER_NOTHING;
    parser->at += strlen(marker);
    *taken = !message;
    header->text = parser->at;
    header->may_have_type = true;
    if (channel) {
        header->has_channel = true;
        header->channel = (struct output_span){ 0 };
        header->wanted = WANT_CHANNEL;
    }
    return HEADER_TEXT;
}

static enum header_end read_header(struct output_parser *parser, struct header *header)
{
    enum header_end end;
    bool taken;
    *header = (struct header){ .wanted = parser->header == HEADER_ROLE ? WANT_ROLE : WANT_ANY };
    parser->at = 0;
    do {
        bool more = output_skip_white(parser);
        if (parser->at > HEADER_LIMIT) return HEADER_TEXT;
        if (!more) return HEADER_WAITS;
        end = parser->buffer.data[parser->at] == '<' ? step_marker(parser, header, &taken)
                                                     : step_word(parser, header, &taken);
    } while (taken);
    return end;
}

/* ------------------------------------------------------------------ messages */

/* Is this message not the model's own?  Behind <|start|> stands `assistant`, or no role at all: the
 * names of tools and of other speakers are no closed list, and neither is what is no name. */
static bool is_foreign(const struct output_parser *parser, const struct header *header)
{
    if (parser->header != HEADER_ROLE) return parser->header == HEADER_FOREIGN;
    if (header->role.end) return !is_text_of(parser, header->role, "assistant");
    return !header->text; /* nothing of a header follows */
}

/* The name of the tool that is called; an empty span: none is. */
static struct output_span called(const struct output_parser *parser, const struct header *header)
{
    static const char space[] = "functions.";
    static const char *const no_tools[] = { "assistant", "user", "all", space };
    struct output_span name = header->recipient;
    for (size_t i = 0; i < COUNT_OF(no_tools); i++)
        if (is_text_of(parser, name, no_tools[i])) return (struct output_span){ 0 };
    if (begins_with(parser, name, space)) name.start += sizeof space - 1;
    return name;
}

/* The header is over, its text follows. */
static void begin_message(struct output_parser *parser, const struct header *header)
{
    bool reasoning = is_text_of(parser, header->channel, "analysis");
    bool foreign = is_foreign(parser, header);
    struct output_span name = called(parser, header);
    output_set_mode(parser, foreign ? MODE_FOREIGN : reasoning ? MODE_REASONING : MODE_CONTENT);
    if (!header->text) parser->trim = false; /* no header at all: text as it is */
    parser->stage = STAGE_TEXT;
    output_call_reset(parser);
    if (!foreign && name.end > name.start) {
        output_add(parser, &parser->name, parser->buffer.data + name.start, name.end - name.start);
        parser->origin = parser->mode;
        parser->stage = STAGE_JSON;
    }
    output_consume(parser, header->text);
}

enum output_progress output_header_step(struct output_parser *parser)
{
    struct header header;
    enum header_end end = read_header(parser, &header);
    if (end == HEADER_WAITS && !parser->finishing) return PROGRESS_WAIT;
    if (end == HEADER_TEXT) {
        begin_message(parser, &header);
        return PROGRESS_ON;
    }
    output_set_mode(parser, MODE_CONTENT);
    parser->stage = STAGE_TEXT;
    output_consume(parser, end == HEADER_NOTHING ? parser->at : parser->buffer.length);
    return PROGRESS_ON;
}

/* The marker at the buffer's start. */
static void take_marker(struct output_parser *parser, const char *marker)
{
    static const char *const stray[] = { "<|message|>", "<|constrain|>" };
    bool channel = strcmp(marker, "<|channel|>") == 0, start = strcmp(marker, "<|start|>") == 0;
    bool foreign = channel && parser->mode == MODE_FOREIGN;
    if (!channel) output_consume(parser, strlen(marker));
    for (size_t i = 0; i < COUNT_OF(stray); i++)
        if (strcmp(marker, stray[i]) == 0) {
            output_leave_out_marker(parser);
            return;
        }
    output_set_mode(parser, MODE_CONTENT);
    parser->stage = STAGE_HEADER;
    parser->header = start ? HEADER_ROLE : foreign ? HEADER_FOREIGN : HEADER_ANSWER;
}

enum output_progress output_channel_step(struct output_parser *parser)
{
    size_t length;
    const char *marker = NULL;
    enum output_match match = output_find_marker(parser, &length, 0, &marker);
    if (match == MATCH_NO && !parser->finishing)
        length = output_whole_characters(parser->buffer.data, length);
    if (length) output_add_text(parser, parser->buffer.data, length);
    output_consume(parser, length);
    if (match != MATCH_YES) return PROGRESS_WAIT;
    take_marker(parser, marker);
    return PROGRESS_ON;
}
