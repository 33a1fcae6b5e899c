/* Filters on text.  Most convert another value to text first, as Jinja does (text_of); indent,
 * truncate and urlencode raise a type error instead.  The table at the end names the parameters:
 * given->bound[i] is the i-th of them (builtins.h). */
#include "jinja/run.h"
#include "base/unicode.h"

#include <stdio.h>

/* str(value); NULL after an error. */
static const struct jinja_string *text_of(struct jinja_run *run, struct jinja_value value)
{
    struct jinja_value text = jinja_str(run, value);
    return run->failed ? NULL : text.string;
}

/* ------------------------------------------------------------------ cases */

JINJA_BUILTIN(filter_upper)
{
    const struct jinja_string *text = text_of(run, self);
    return text ? jinja_convert_case(run, text, UNICODE_UPPER) : jinja_failed();
}

JINJA_BUILTIN(filter_lower)
{
    const struct jinja_string *text = text_of(run, self);
    return text ? jinja_convert_case(run, text, UNICODE_LOWER) : jinja_failed();
}

JINJA_BUILTIN(filter_capitalize)
{
    const struct jinja_string *text = text_of(run, self);
    return text ? jinja_capitalise(run, text) : jinja_failed();
}

/* A word begins after white space or one of - ( { [ <; str.title begins one after any character
 * that is not a letter. */
JINJA_BUILTIN(filter_title)
{
    const struct jinja_string *text = text_of(run, self);
    struct jinja_builder builder = { .run = run, .markup = text && jinja_marks_cover(run, text) };
    char out[UNICODE_CASE_BYTES];
    bool begins = true;
    for (size_t offset = 0, bytes; text && offset < text->length && !run->failed; offset += bytes) {
        uint32_t c = unicode_decode(text->data + offset, &bytes);
        enum unicode_case to = begins ? UNICODE_UPPER : UNICODE_LOWER;
        jinja_add(&builder, out, unicode_to_case(out, c, to));
        begins = unicode_is_white(c) || (c && c < 0x80 && strchr("-({[<", (int)c));
    }
    return jinja_built(&builder);
}

/* ------------------------------------------------------------------ layout */

JINJA_BUILTIN(filter_trim)
{
    const struct jinja_string *text = text_of(run, self);
    const struct jinja_string *set =
        jinja_given(given->bound[0]) ? jinja_argument_string(run, given->bound[0]) : NULL;
    return text ? jinja_strip(run, text, set, JINJA_BOTH) : jinja_failed();
}

JINJA_BUILTIN(filter_replace)
{
    const struct jinja_string *text = text_of(run, self);
    const struct jinja_string *old = text_of(run, given->bound[0]);
    const struct jinja_string *new = text_of(run, given->bound[1]);
    int64_t limit =
        jinja_given(given->bound[2]) ? jinja_argument_int(run, given->bound[2], -1) : -1;
    return run->failed ? jinja_failed() : jinja_replace(run, text, old, new, limit);
}

JINJA_BUILTIN(filter_indent)
{
    const struct jinja_string *text = jinja_argument_string(run, self);
    bool first = jinja_argument_truth(given->bound[1], false);
    bool blank = jinja_argument_truth(given->bound[2], false);
    struct jinja_builder spaces = { .run = run }, builder = { .run = run };
    if (given->bound[0].kind == JINJA_STRING) {
        jinja_add_string(&spaces, given->bound[0].string);
    } else {
        int64_t width = jinja_argument_int(run, given->bound[0], 4);
        jinja_add_repeated(&spaces, ' ', width > 0 ? (size_t)width : 0);
    }
    /* Like Jinja, append a newline before splitting: text that ends in one then has an empty last
     * line. */
    static const struct jinja_string newline = { "\n", 1, 1 };
    struct jinja_value ended = jinja_concatenate(run, text, &newline);
    if (run->failed) return jinja_failed();
    struct jinja_value lines = jinja_split_lines(run, ended.string, false);
    for (size_t i = 0; !run->failed && i < lines.sequence->count; i++) {
        const struct jinja_string *line = lines.sequence->items[i].string;
        if (i) jinja_add_text(&builder, "\n");
        if (i ? blank || line->length : first) jinja_add(&builder, spaces.data, spaces.length);
        jinja_add_string(&builder, line);
    }
    return jinja_built(&builder);
}

/* Counts the matches of \w+, as Jinja does. */
JINJA_BUILTIN(filter_wordcount)
{
    const struct jinja_string *text = text_of(run, self);
    int64_t words = 0;
    bool inside = false;
    for (size_t offset = 0, bytes; text && offset < text->length; offset += bytes) {
        uint32_t c = unicode_decode(text->data + offset, &bytes);
        bool word = c == '_' || unicode_is_alphabetic(c) || unicode_is_numeric(c);
        words += word && !inside;
        inside = word;
    }
    return jinja_int(words);
}

/* ------------------------------------------------------------------ encodings */

/* Unlike Jinja's Markup, a string does not record that it was escaped: escaping twice escapes
 * twice, and `forceescape` is the same filter. */
JINJA_BUILTIN(filter_escape)
{
    const struct jinja_string *text = text_of(run, self);
    struct jinja_builder builder = { .run = run };
    for (size_t i = 0; text && i < text->length && !run->failed; i++) {
        switch (text->data[i]) {
        case '&':
            jinja_add_text(&builder, "&amp;");
            break;
        case '<':
            jinja_add_text(&builder, "&lt;");
            break;
        case '>':
            jinja_add_text(&builder, "&gt;");
            break;
        case '\'':
            jinja_add_text(&builder, "&#39;");
            break;
        case '"':
            jinja_add_text(&builder, "&#34;");
            break;
        default:
            jinja_add(&builder, &text->data[i], 1);
        }
    }
    return jinja_built(&builder);
}

const struct jinja_builtin jinja_filters_text[] = {
    { "upper", "", filter_upper },
    { "lower", "", filter_lower },
    { "capitalize", "", filter_capitalize },
    { "title", "", filter_title },
    { "trim", "chars?", filter_trim },
    { "replace", "old new count?", filter_replace },
    { "indent", "width? first? blank?", filter_indent },
    { "wordcount", "", filter_wordcount },
    { "escape", "", filter_escape },
    { "e", "", filter_escape },
    { 0 },
};
