/* What string methods and text filters share: stripping, replacing, cases, lines. */
#include "jinja/run.h"
#include "base/unicode.h"

static bool in_set(uint32_t c, const struct jinja_string *set)
{
    if (!set) return unicode_is_white(c);
    for (size_t offset = 0, bytes; offset < set->length; offset += bytes)
        if (unicode_decode(set->data + offset, &bytes) == c) return true;
    return false;
}

struct jinja_value jinja_strip(struct jinja_run *run, const struct jinja_string *text,
                               const struct jinja_string *set, enum jinja_side side)
{
    size_t start = 0, end = text->length, bytes;
    while (side & JINJA_LEFT && start < end &&
           in_set(unicode_decode(text->data + start, &bytes), set))
        start += bytes;
    while (side & JINJA_RIGHT && end > start) {
        size_t last = end - 1;
        while (last > start && unicode_is_continuation(text->data[last])) last--;
        if (!in_set(unicode_decode(text->data + last, &bytes), set)) break;
        end = last;
    }
    size_t looked_at = start + (text->length - end);
    jinja_charge(run, looked_at * (set ? 1 + set->length : 1));
    return jinja_string_view(run, text->data + start, end - start);
}

struct jinja_value jinja_replace(struct jinja_run *run, const struct jinja_string *text,
                                 const struct jinja_string *old, const struct jinja_string *new,
                                 int64_t limit)
{
    struct jinja_builder builder = { .run = run };
    size_t offset = 0;
    if (!jinja_charge(run, text->length)) return jinja_none();
    if (!old->length) { /* before every character, and at the end */
        for (; limit != 0 && !run->failed; limit--) {
            size_t bytes = 0;
            jinja_add_string(&builder, new);
            if (offset == text->length) break;
            unicode_decode(text->data + offset, &bytes);
            jinja_add(&builder, text->data + offset, bytes);
            offset += bytes;
        }
    }
    while (old->length && limit != 0 && !run->failed) {
        const char *found =
            memmem(text->data + offset, text->length - offset, old->data, old->length);
        if (!found) break;
        size_t at = (size_t)(found - text->data);
        jinja_add(&builder, text->data + offset, at - offset);
        jinja_add_string(&builder, new);
        offset = at + old->length;
        limit--;
    }
    jinja_add(&builder, text->data + offset, text->length - offset);
    return jinja_built(&builder);
}

struct jinja_value jinja_convert_case(struct jinja_run *run, const struct jinja_string *text,
                                      int to_case)
{
    struct jinja_builder builder = { .run = run, .markup = jinja_marks_cover(run, text) };
    char out[UNICODE_CASE_BYTES];
    for (size_t offset = 0, bytes; offset < text->length && !run->failed; offset += bytes) {
        uint32_t c = unicode_decode(text->data + offset, &bytes);
        jinja_add(&builder, out, unicode_to_case(out, c, (enum unicode_case)to_case));
    }
    return jinja_built(&builder);
}

struct jinja_value jinja_capitalise(struct jinja_run *run, const struct jinja_string *text)
{
    struct jinja_builder builder = { .run = run, .markup = jinja_marks_cover(run, text) };
    char out[UNICODE_CASE_BYTES];
    for (size_t offset = 0, bytes; offset < text->length && !run->failed; offset += bytes) {
        uint32_t c = unicode_decode(text->data + offset, &bytes);
        enum unicode_case to = offset ? UNICODE_LOWER : UNICODE_TITLE;
        jinja_add(&builder, out, unicode_to_case(out, c, to));
    }
    return jinja_built(&builder);
}

/* What ends a line for str.splitlines. */
static bool ends_line(uint32_t c)
{
    return (c >= '\n' && c <= '\r') || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 ||
           c == 0x2029;
}

struct jinja_value jinja_split_lines(struct jinja_run *run, const struct jinja_string *text,
                                     bool keep_ends)
{
    struct jinja_value lines = jinja_sequence(run, JINJA_LIST, 0);
    size_t start = 0, offset = 0, bytes;
    while (offset < text->length && !run->failed) {
        uint32_t c = unicode_decode(text->data + offset, &bytes);
        size_t end = offset;
        offset += bytes;
        if (!ends_line(c)) continue;
        if (c == '\r' && offset < text->length && text->data[offset] == '\n') offset++;
        jinja_append(
            run, lines.sequence,
            jinja_string_view(run, text->data + start, (keep_ends ? offset : end) - start));
        start = offset;
    }
    if (start < text->length && !run->failed)
        jinja_append(run, lines.sequence,
                     jinja_string_view(run, text->data + start, text->length - start));
    return lines;
}

struct jinja_value jinja_join(struct jinja_run *run, const struct jinja_string *separator,
                              const struct jinja_sequence *items, bool only_strings)
{
    struct jinja_builder builder = { .run = run };
    for (size_t i = 0; i < items->count && !run->failed; i++) {
        if (i) jinja_add_string(&builder, separator);
        if (only_strings && items->items[i].kind != JINJA_STRING)
            return jinja_raise(run, JINJA_ERROR_TYPE,
                               "sequence item %zu: expected str instance, %s found", i,
                               jinja_type_name(items->items[i].kind));
        jinja_add_value(&builder, items->items[i]);
    }
    return jinja_built(&builder);
}
