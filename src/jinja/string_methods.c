/* Python's str methods. */
#include "jinja/run.h"
#include "base/unicode.h"

/* ------------------------------------------------------------------ strip, case */

static struct jinja_value strip_side(struct jinja_run *run, struct jinja_value self,
                                     const struct jinja_arguments *given, enum jinja_side side)
{
    const struct jinja_string *set =
        jinja_given(given->bound[0]) ? jinja_argument_string(run, given->bound[0]) : NULL;
    return jinja_strip(run, self.string, set, side);
}

JINJA_BUILTIN(method_strip)
{
    return strip_side(run, self, given, JINJA_BOTH);
}

JINJA_BUILTIN(method_lstrip)
{
    return strip_side(run, self, given, JINJA_LEFT);
}

JINJA_BUILTIN(method_rstrip)
{
    return strip_side(run, self, given, JINJA_RIGHT);
}

JINJA_BUILTIN(method_upper)
{
    return jinja_convert_case(run, self.string, UNICODE_UPPER);
}

JINJA_BUILTIN(method_lower)
{
    return jinja_convert_case(run, self.string, UNICODE_LOWER);
}

JINJA_BUILTIN(method_capitalize)
{
    return jinja_capitalise(run, self.string);
}

/* Each letter after one that has no case begins a word. */
JINJA_BUILTIN(method_title)
{
    struct jinja_builder builder = { .run = run, .markup = jinja_marks_cover(run, self.string) };
    char out[UNICODE_CASE_BYTES];
    bool inside = false;
    const struct jinja_string *text = self.string;
    for (size_t offset = 0, bytes; offset < text->length && !run->failed; offset += bytes) {
        uint32_t c = unicode_decode(text->data + offset, &bytes);
        enum unicode_case to = inside ? UNICODE_LOWER : UNICODE_TITLE;
        jinja_add(&builder, out, unicode_to_case(out, c, to));
        inside = unicode_is_cased(c);
    }
    return jinja_built(&builder);
}

/* ------------------------------------------------------------------ searching */

/* The part of the text between the optional arguments start and end. */
static struct jinja_value part_between(struct jinja_run *run, struct jinja_value self,
                                       struct jinja_value start, struct jinja_value end)
{
    struct jinja_value bounds[3] = { jinja_given(start) ? start : jinja_none(),
                                     jinja_given(end) ? end : jinja_none(), jinja_none() };
    return jinja_slice(run, self, bounds);
}

/* Code points before the part that `start` begins. */
static int64_t skipped_by(struct jinja_run *run, struct jinja_value self, struct jinja_value start)
{
    int64_t length = (int64_t)self.string->characters;
    int64_t skipped = jinja_given(start) ? jinja_argument_int(run, start, 0) : 0;
    if (skipped < 0) skipped = skipped + length < 0 ? 0 : skipped + length;
    return skipped;
}

/* There is no memrmem: every place is tried, and paid for.  `wanted` is not longer than `text`. */
static const char *last_match(struct jinja_run *run, const struct jinja_string *text,
                              const struct jinja_string *wanted)
{
    uint64_t work;
    if (!checked_multiply(&work, text->length, wanted->length + 1)) work = UINT64_MAX;
    if (!jinja_charge(run, work)) return NULL;
    for (size_t at = text->length - wanted->length + 1; at-- > 0;)
        if (memcmp(text->data + at, wanted->data, wanted->length) == 0) return text->data + at;
    return NULL;
}

/* Where the text holds the first argument, in code points; -1: nowhere. */
static int64_t find_in(struct jinja_run *run, struct jinja_value self,
                       const struct jinja_arguments *given, bool from_right)
{
    const struct jinja_string *wanted = jinja_argument_string(run, given->bound[0]);
    struct jinja_value part = part_between(run, self, given->bound[1], given->bound[2]);
    int64_t skipped = skipped_by(run, self, given->bound[1]);
    if (run->failed || skipped > (int64_t)self.string->characters) return -1;
    const struct jinja_string *text = part.string;
    if (wanted->length > text->length || !jinja_charge(run, text->length)) return -1;
    const char *found = from_right ? last_match(run, text, wanted)
                                   : memmem(text->data, text->length, wanted->data, wanted->length);
    if (!found) return -1;
    return skipped + (int64_t)unicode_count(text->data, (size_t)(found - text->data));
}

JINJA_BUILTIN(method_find)
{
    return jinja_int(find_in(run, self, given, false));
}

JINJA_BUILTIN(method_rfind)
{
    return jinja_int(find_in(run, self, given, true));
}

static struct jinja_value found_or_raise(struct jinja_run *run, int64_t found)
{
    if (found < 0) return jinja_raise(run, JINJA_ERROR_VALUE, "substring not found");
    return jinja_int(found);
}

JINJA_BUILTIN(method_index)
{
    return found_or_raise(run, find_in(run, self, given, false));
}

JINJA_BUILTIN(method_count)
{
    const struct jinja_string *wanted = jinja_argument_string(run, given->bound[0]);
    struct jinja_value part = part_between(run, self, given->bound[1], given->bound[2]);
    if (run->failed || !jinja_charge(run, part.string->length)) return jinja_failed();
    const char *at = part.string->data, *end = at + part.string->length, *found;
    int64_t count = 0;
    if (!wanted->length) return jinja_int((int64_t)part.string->characters + 1);
    while ((found = memmem(at, (size_t)(end - at), wanted->data, wanted->length))) {
        count++;
        at = found + wanted->length;
    }
    return jinja_int(count);
}

static bool has_affix(const struct jinja_string *text, const struct jinja_string *affix, bool end)
{
    if (affix->length > text->length) return false;
    const char *at = end ? text->data + text->length - affix->length : text->data;
    return affix->length == 0 || memcmp(at, affix->data, affix->length) == 0;
}

/* startswith and endswith: the affix may be a tuple of several. */
static struct jinja_value match_affix(struct jinja_run *run, struct jinja_value self,
                                      const struct jinja_arguments *given, bool end)
{
    struct jinja_value affix = given->bound[0];
    struct jinja_value part = part_between(run, self, given->bound[1], given->bound[2]);
    if (run->failed) return jinja_failed();
    if (affix.kind != JINJA_TUPLE) {
        const struct jinja_string *one = jinja_argument_string(run, affix);
        return jinja_bool(!run->failed && has_affix(part.string, one, end));
    }
    bool matches = false;
    for (size_t i = 0; i < affix.sequence->count && !matches && !run->failed; i++)
        matches = has_affix(part.string, jinja_argument_string(run, affix.sequence->items[i]), end);
    return jinja_bool(matches);
}

JINJA_BUILTIN(method_startswith)
{
    return match_affix(run, self, given, false);
}

JINJA_BUILTIN(method_endswith)
{
    return match_affix(run, self, given, true);
}

JINJA_BUILTIN(method_removeprefix)
{
    const struct jinja_string *affix = jinja_argument_string(run, given->bound[0]);
    if (run->failed || !has_affix(self.string, affix, false)) return self;
    return jinja_string_view(run, self.string->data + affix->length,
                             self.string->length - affix->length);
}

JINJA_BUILTIN(method_removesuffix)
{
    const struct jinja_string *affix = jinja_argument_string(run, given->bound[0]);
    if (run->failed || !has_affix(self.string, affix, true)) return self;
    return jinja_string_view(run, self.string->data, self.string->length - affix->length);
}

/* ------------------------------------------------------------------ taking apart */

static void append_part(struct jinja_run *run, struct jinja_sequence *parts, const char *start,
                        const char *end)
{
    jinja_append(run, parts, jinja_string_view(run, start, (size_t)(end - start)));
}

static void split_at(struct jinja_run *run, struct jinja_sequence *parts,
                     const struct jinja_string *text, const struct jinja_string *separator,
                     int64_t limit)
{
    const char *at = text->data, *end = at + text->length, *found;
    while (limit != 0 && !run->failed &&
           (found = memmem(at, (size_t)(end - at), separator->data, separator->length))) {
        append_part(run, parts, at, found);
        at = found + separator->length;
        limit--;
    }
    append_part(run, parts, at, end);
}

static void split_white(struct jinja_run *run, struct jinja_sequence *parts,
                        const struct jinja_string *text, int64_t limit)
{
    const char *at = text->data, *end = at + text->length;
    for (;;) {
        at += unicode_white_prefix(at, (size_t)(end - at));
        if (at == end || run->failed) return;
        if (limit-- == 0) {
            append_part(run, parts, at, end); /* what is left, white space at its end too */
            return;
        }
        const char *stop = at;
        size_t bytes;
        while (stop < end && !unicode_is_white(unicode_decode(stop, &bytes))) stop += bytes;
        append_part(run, parts, at, stop);
        at = stop;
    }
}

/* From the right the parts are found last to first. */
static void reverse(struct jinja_sequence *parts)
{
    for (size_t i = 0; i < parts->count / 2; i++) {
        struct jinja_value other = parts->items[parts->count - 1 - i];
        parts->items[parts->count - 1 - i] = parts->items[i];
        parts->items[i] = other;
    }
}

static void rsplit_at(struct jinja_run *run, struct jinja_sequence *parts, struct jinja_string rest,
                      const struct jinja_string *separator, int64_t limit)
{
    while (limit != 0 && !run->failed && rest.length >= separator->length) {
        const char *found = last_match(run, &rest, separator);
        if (!found) break;
        append_part(run, parts, found + separator->length, rest.data + rest.length);
        rest.length = (size_t)(found - rest.data);
        limit--;
    }
    append_part(run, parts, rest.data, rest.data + rest.length);
    reverse(parts);
}

static void rsplit_white(struct jinja_run *run, struct jinja_sequence *parts,
                         const struct jinja_string *text, int64_t limit)
{
    size_t end = text->length;
    for (;;) {
        end = unicode_strip_end(text->data, end);
        if (!end || run->failed) break;
        if (limit-- == 0) {
            append_part(run, parts, text->data, text->data + end); /* with its leading blanks */
            break;
        }
        size_t start = end;
        while (start > 0) {
            size_t last = start - 1, bytes;
            while (last > 0 && unicode_is_continuation(text->data[last])) last--;
            if (unicode_is_white(unicode_decode(text->data + last, &bytes))) break;
            start = last;
        }
        append_part(run, parts, text->data + start, text->data + end);
        end = start;
    }
    reverse(parts);
}

static struct jinja_value split(struct jinja_run *run, struct jinja_value self,
                                const struct jinja_arguments *given, bool from_right)
{
    int64_t limit = jinja_argument_int(run, given->bound[1], -1);
    struct jinja_value parts = jinja_sequence(run, JINJA_LIST, 0);
    if (run->failed || !jinja_charge(run, self.string->length)) return jinja_failed();
    if (!jinja_given(given->bound[0])) {
        if (from_right)
            rsplit_white(run, parts.sequence, self.string, limit);
        else
            split_white(run, parts.sequence, self.string, limit);
        return parts;
    }
    const struct jinja_string *separator = jinja_argument_string(run, given->bound[0]);
    if (run->failed) return jinja_failed();
    if (!separator->length) return jinja_raise(run, JINJA_ERROR_VALUE, "empty separator");
    if (from_right)
        rsplit_at(run, parts.sequence, *self.string, separator, limit);
    else
        split_at(run, parts.sequence, self.string, separator, limit);
    return parts;
}

JINJA_BUILTIN(method_split)
{
    return split(run, self, given, false);
}

JINJA_BUILTIN(method_rsplit)
{
    return split(run, self, given, true);
}

JINJA_BUILTIN(method_splitlines)
{
    return jinja_split_lines(run, self.string, jinja_argument_truth(given->bound[0], false));
}

static struct jinja_value partition(struct jinja_run *run, struct jinja_value self,
                                    const struct jinja_arguments *given, bool from_right)
{
    const struct jinja_string *text = self.string;
    const struct jinja_string *separator = jinja_argument_string(run, given->bound[0]);
    struct jinja_value parts = jinja_sequence(run, JINJA_TUPLE, 3);
    const char *found = NULL, *end = text->data + text->length;
    if (run->failed || !jinja_charge(run, text->length)) return jinja_failed();
    if (!separator->length) return jinja_raise(run, JINJA_ERROR_VALUE, "empty separator");
    if (separator->length <= text->length)
        found = from_right ? last_match(run, text, separator)
                           : memmem(text->data, text->length, separator->data, separator->length);
    if (found) {
        append_part(run, parts.sequence, text->data, found);
        append_part(run, parts.sequence, found, found + separator->length);
        append_part(run, parts.sequence, found + separator->length, end);
        return parts;
    }
    if (!from_right) append_part(run, parts.sequence, text->data, end);
    append_part(run, parts.sequence, "", "");
    append_part(run, parts.sequence, "", "");
    if (from_right) append_part(run, parts.sequence, text->data, end);
    return parts;
}

JINJA_BUILTIN(method_partition)
{
    return partition(run, self, given, false);
}

JINJA_BUILTIN(method_rpartition)
{
    return partition(run, self, given, true);
}

/* ------------------------------------------------------------------ putting together */

JINJA_BUILTIN(method_replace)
{
    const struct jinja_string *old = jinja_argument_string(run, given->bound[0]);
    const struct jinja_string *new = jinja_argument_string(run, given->bound[1]);
    int64_t limit = jinja_argument_int(run, given->bound[2], -1);
    return run->failed ? jinja_failed() : jinja_replace(run, self.string, old, new, limit);
}

JINJA_BUILTIN(method_join)
{
    struct jinja_sequence *items = jinja_iterate(run, given->bound[0]);
    return items ? jinja_join(run, self.string, items, true) : jinja_failed();
}

JINJA_BUILTIN(method_format)
{
    return jinja_format_braces(run, self.string, given);
}

const struct jinja_builtin jinja_string_methods[] = {
    { "strip", "chars?", method_strip },
    { "lstrip", "chars?", method_lstrip },
    { "rstrip", "chars?", method_rstrip },
    { "split", "sep? maxsplit?", method_split },
    { "rsplit", "sep? maxsplit?", method_rsplit },
    { "splitlines", "keepends?", method_splitlines },
    { "startswith", "prefix start? end?", method_startswith },
    { "endswith", "suffix start? end?", method_endswith },
    { "replace", "old new count?", method_replace },
    { "join", "iterable", method_join },
    { "upper", "", method_upper },
    { "lower", "", method_lower },
    { "title", "", method_title },
    { "capitalize", "", method_capitalize },
    { "find", "sub start? end?", method_find },
    { "rfind", "sub start? end?", method_rfind },
    { "index", "sub start? end?", method_index },
    { "count", "sub start? end?", method_count },
    { "removeprefix", "prefix", method_removeprefix },
    { "removesuffix", "suffix", method_removesuffix },
    { "partition", "sep", method_partition },
    { "rpartition", "sep", method_rpartition },
    { "format", "*", method_format },
    { 0 },
};
