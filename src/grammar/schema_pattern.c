/* Regular expressions of JSON Schema (those of ECMAScript, with the u flag), as far as they
 * describe a regular set of strings: no lookaround, no back references, no word boundaries.
 *
 * They are read into a small tree that knows how many characters each part can have, so that
 * minLength and maxLength can be worked into its repetitions. */
#include "grammar/schema_internal.h"

#include "base/array.h"

#include <ctype.h>

enum {
    PATTERN_DEPTH_LIMIT = 40,
    PATTERN_PART_LIMIT = 4096,
    CLASS_RANGE_LIMIT = 512,
    REPEAT_COUNT_LIMIT = 10000,
};

enum part_kind { PART_SET, PART_SEQUENCE, PART_CHOICE, PART_REPEAT };

struct part {
    enum part_kind kind;
    uint32_t least, most; /* characters; REPEAT_ANY: no limit */
    const struct code_range *ranges;
    size_t range_count;
    struct part **items; /* of a sequence or choice; items[0] of a repetition */
    size_t item_count;
    uint32_t repeat_least, repeat_most;
    bool from_start, to_end; /* of an alternative at the top: anchored */
};

struct reader {
    struct schema_compiler *compiler;
    const char *text;
    size_t length, at;
    size_t part_count;
    unsigned depth;
};

static struct part *refuse(struct reader *r, const char *problem)
{
    schema_fail(r->compiler, MF_ERR_UNSUPPORTED, "pattern \"%.80s\", character %zu: %s", r->text,
                r->at + 1, problem);
    return NULL;
}

static void *take(struct reader *r, size_t count, size_t size)
{
    struct grammar_builder *b = r->compiler->builder;
    void *memory = arena_take(&b->arena, count, size);
    if (!memory) builder_fail(b, MF_ERR_MEMORY, "out of memory for the schema");
    return memory;
}

static struct part *part_new(struct reader *r, enum part_kind kind)
{
    if (++r->part_count > PATTERN_PART_LIMIT) return refuse(r, "the pattern is too long");
    struct part *part = take(r, 1, sizeof *part);
    if (part) part->kind = kind;
    return part;
}

static uint32_t add_lengths(uint32_t a, uint32_t b)
{
    return a > REPEAT_ANY - b ? REPEAT_ANY : a + b;
}

static uint32_t multiply_lengths(uint32_t a, uint32_t b)
{
    uint64_t product = (uint64_t)a * b;
    return product > REPEAT_ANY ? REPEAT_ANY : (uint32_t)product;
}

/* The lengths of a part from those of its items. */
static void measure(struct part *part)
{
    part->least = part->kind == PART_CHOICE ? REPEAT_ANY : 0;
    part->most = 0;
    for (size_t i = 0; i < part->item_count; i++) {
        const struct part *item = part->items[i];
        if (part->kind == PART_SEQUENCE) {
            part->least = add_lengths(part->least, item->least);
            part->most = add_lengths(part->most, item->most);
        } else if (part->kind == PART_CHOICE) {
            if (item->least < part->least) part->least = item->least;
            if (item->most > part->most) part->most = item->most;
        } else {
            part->least = multiply_lengths(part->repeat_least, item->least);
            part->most = item->most == 0 ? 0 : multiply_lengths(part->repeat_most, item->most);
        }
    }
}

/* -------------------------------------------------------------------- sets */

static const struct code_range digit_codes[] = { { '0', '9' } };
static const struct code_range word_codes[] = {
    { '0', '9' }, { 'A', 'Z' }, { '_', '_' }, { 'a', 'z' }
};
static const struct code_range space_codes[] = {
    { '\t', '\r' },     { ' ', ' ' },       { 0xa0, 0xa0 },     { 0x1680, 0x1680 },
    { 0x2000, 0x200a }, { 0x2028, 0x2029 }, { 0x202f, 0x202f }, { 0x205f, 0x205f },
    { 0x3000, 0x3000 }, { 0xfeff, 0xfeff },
};
static const struct code_range line_codes[] = { { '\n', '\n' },
                                                { '\r', '\r' },
                                                { 0x2028, 0x2029 } };

/* The set of \d \w \s \D \W \S into out (room for 16); 0: the letter names none. */
static size_t named_set(struct code_range *out, char letter)
{
    const struct code_range *set = NULL;
    size_t count = 0;
    if (letter == 'd' || letter == 'D') set = digit_codes, count = COUNT_OF(digit_codes);
    if (letter == 'w' || letter == 'W') set = word_codes, count = COUNT_OF(word_codes);
    if (letter == 's' || letter == 'S') set = space_codes, count = COUNT_OF(space_codes);
    if (!set) return 0;
    if (letter >= 'A' && letter <= 'Z') return code_ranges_invert(out, set, count);
    memcpy(out, set, count * sizeof *out);
    return count;
}

static struct part *set_part(struct reader *r, const struct code_range *ranges, size_t count,
                             bool inverted)
{
    struct part *part = part_new(r, PART_SET);
    struct code_range *copy = part ? take(r, count + 3, sizeof *copy) : NULL;
    struct code_range *set = copy && inverted ? take(r, count + 3, sizeof *set) : copy;
    if (!set) return NULL;
    memcpy(copy, ranges, count * sizeof *copy);
    count = code_ranges_normalise(copy, count);
    part->range_count = inverted ? code_ranges_invert(set, copy, count) : count;
    part->ranges = set;
    part->least = part->most = 1;
    return part;
}

static bool take_hex(struct reader *r, size_t digits, uint32_t *code)
{
    uint32_t value = 0;
    for (size_t i = 0; i < digits; i++, r->at++) {
        int c = r->at < r->length ? (uint8_t)r->text[r->at] : 0;
        if (!isxdigit(c)) return refuse(r, "a hexadecimal digit was expected") != NULL;
        value = value * 16 + (uint32_t)(c <= '9' ? c - '0' : (c | 0x20) - 'a' + 10);
    }
    *code = value;
    return true;
}

/* \u{1f600}: after the brace. */
static bool take_braced_hex(struct reader *r, uint32_t *code)
{
    size_t digits = 0;
    while (r->at + digits < r->length && isxdigit((uint8_t)r->text[r->at + digits])) digits++;
    if (digits == 0 || digits > 6) return refuse(r, "1 to 6 digits were expected") != NULL;
    if (!take_hex(r, digits, code)) return false;
    if (r->at == r->length || r->text[r->at] != '}') return refuse(r, "no }") != NULL;
    r->at++;
    return *code <= CODE_LAST || refuse(r, "there is no such character") != NULL;
}

/* \ud83d\ude00: after the first one, which is a high surrogate. */
static bool take_low_surrogate(struct reader *r, uint32_t *code)
{
    uint32_t low;
    if (r->length - r->at < 6 || memcmp(r->text + r->at, "\\u", 2) != 0)
        return refuse(r, "half a surrogate pair") != NULL;
    r->at += 2;
    if (!take_hex(r, 4, &low)) return false;
    if (low < 0xdc00 || low > 0xdfff) return refuse(r, "half a surrogate pair") != NULL;
    *code = 0x10000 + ((*code - 0xd800) << 10) + (low - 0xdc00);
    return true;
}

static bool take_unicode_escape(struct reader *r, uint32_t *code)
{
    if (r->at < r->length && r->text[r->at] == '{') {
        r->at++;
        return take_braced_hex(r, code);
    }
    if (!take_hex(r, 4, code)) return false;
    if (*code >= 0xdc00 && *code <= 0xdfff) return refuse(r, "half a surrogate pair") != NULL;
    return *code < 0xd800 || *code > 0xdbff || take_low_surrogate(r, code);
}

/* The character of an escape, after the backslash. */
static bool take_escaped(struct reader *r, uint32_t *code)
{
    static const char from[] = "tnrfv0", to[] = "\t\n\r\f\v\0";
    char c = r->text[r->at];
    const char *found = memchr(from, c, sizeof from - 1);
    bool octal = c == '0' && r->at + 1 < r->length && isdigit((uint8_t)r->text[r->at + 1]);
    if (octal || (isalnum((uint8_t)c) && !found && c != 'x' && c != 'u' && c != 'c'))
        return refuse(r, "this escape is not supported") != NULL;
    r->at++;
    if (c == 'x') return take_hex(r, 2, code);
    if (c == 'u') return take_unicode_escape(r, code);
    if (c == 'c') {
        if (r->at == r->length || !isalpha((uint8_t)r->text[r->at]))
            return refuse(r, "a letter was expected") != NULL;
        *code = (uint32_t)r->text[r->at++] & 0x1f;
        return true;
    }
    *code = found ? (uint8_t)to[found - from] : (uint8_t)c;
    if (*code < 0x80) return true;
    r->at--; /* a backslash before a character above ASCII stands for nothing */
    return refuse(r, "this escape is not supported") != NULL;
}

static bool take_character(struct reader *r, uint32_t *code)
{
    if (r->text[r->at] == '\\') {
        if (++r->at == r->length) return refuse(r, "the pattern ends here") != NULL;
        return take_escaped(r, code);
    }
    size_t n = code_decode(code, r->text + r->at, r->length - r->at);
    if (n == 0) return refuse(r, "this is not UTF-8") != NULL;
    r->at += n;
    return true;
}

/* One member of a class: a named set, a character or a range, appended to ranges. */
static bool take_member(struct reader *r, struct code_range *ranges, size_t *count)
{
    if (r->text[r->at] == '\\' && r->at + 1 < r->length) {
        size_t named = named_set(ranges + *count, r->text[r->at + 1]);
        if (named) {
            r->at += 2;
            *count += named;
            return true;
        }
        if (r->text[r->at + 1] == 'b') { /* in a class: backspace */
            r->at += 2;
            ranges[(*count)++] = (struct code_range){ '\b', '\b' };
            return true;
        }
    }
    struct code_range range;
    if (!take_character(r, &range.first)) return false;
    range.last = range.first;
    bool is_range = r->at + 1 < r->length && r->text[r->at] == '-' && r->text[r->at + 1] != ']';
    if (is_range) {
        r->at++;
        struct code_range ignored[16];
        bool named = r->text[r->at] == '\\' && r->at + 1 < r->length &&
                     named_set(ignored, r->text[r->at + 1]);
        if (named || !take_character(r, &range.last)) return refuse(r, "a wrong range") != NULL;
        if (range.last < range.first) return refuse(r, "an empty range") != NULL;
    }
    ranges[(*count)++] = range;
    return true;
}

static struct part *read_class(struct reader *r)
{
    struct code_range ranges[CLASS_RANGE_LIMIT + 16];
    size_t count = 0;
    bool inverted = r->at < r->length && r->text[r->at] == '^';
    r->at += inverted;
    while (r->at < r->length && r->text[r->at] != ']') {
        if (count > CLASS_RANGE_LIMIT) return refuse(r, "too long a class");
        if (!take_member(r, ranges, &count)) return NULL;
    }
    if (r->at == r->length) return refuse(r, "a class without its end");
    r->at++;
    return set_part(r, ranges, count, inverted);
}

/* ------------------------------------------------------------------- parts */

static struct part *read_choice(struct reader *r, bool top);

/* After "(". */
static struct part *read_group(struct reader *r)
{
    if (r->at + 1 < r->length && r->text[r->at] == '?') {
        char kind = r->text[r->at + 1];
        bool named = kind == '<' && r->at + 2 < r->length && r->text[r->at + 2] != '=' &&
                     r->text[r->at + 2] != '!';
        if (kind != ':' && !named) return refuse(r, "lookaround and flags are not supported");
        r->at += 2;
        while (named && r->at < r->length && r->text[r->at - 1] != '>') r->at++;
    }
    if (++r->depth > PATTERN_DEPTH_LIMIT) return refuse(r, "nested too deep");
    struct part *inside = read_choice(r, false);
    r->depth--;
    if (!inside) return NULL;
    if (r->at == r->length) return refuse(r, "a parenthesis that is not closed");
    r->at++;
    return inside;
}

static struct part *read_atom(struct reader *r)
{
    char c = r->text[r->at];
    if (c == '[' || c == '(' || c == '.') r->at++;
    if (c == '[') return read_class(r);
    if (c == '(') return read_group(r);
    if (c == '.') return set_part(r, line_codes, COUNT_OF(line_codes), true);
    if (c == '^' || c == '$') return refuse(r, "anchors are supported at the ends only");
    if (c == '*' || c == '+' || c == '?' || c == '{') return refuse(r, "nothing to repeat");
    struct code_range ranges[16];
    if (c == '\\' && r->at + 1 < r->length) {
        size_t count = named_set(ranges, r->text[r->at + 1]);
        if (count) {
            r->at += 2;
            return set_part(r, ranges, count, false);
        }
    }
    if (!take_character(r, &ranges[0].first)) return NULL;
    ranges[0].last = ranges[0].first;
    return set_part(r, ranges, 1, false);
}

static bool take_number(struct reader *r, uint32_t *number)
{
    size_t start = r->at;
    *number = 0;
    for (; r->at < r->length && isdigit((uint8_t)r->text[r->at]); r->at++) {
        *number = *number * 10 + (uint32_t)(r->text[r->at] - '0');
        if (*number > REPEAT_COUNT_LIMIT) return refuse(r, "too large a repetition") != NULL;
    }
    return r->at > start;
}

/* A quantifier, if there is one; false after an error. */
static bool take_quantifier(struct reader *r, uint32_t *least, uint32_t *most)
{
    *least = *most = 1;
    if (r->at == r->length) return true;
    char c = r->text[r->at];
    if (c != '*' && c != '+' && c != '?' && c != '{') return true;
    r->at++;
    if (c == '*' || c == '?') *least = 0;
    if (c == '*' || c == '+') *most = REPEAT_ANY;
    if (c == '{') {
        bool good = take_number(r, least);
        *most = *least;
        if (good && r->at < r->length && r->text[r->at] == ',') {
            r->at++;
            if (!take_number(r, most)) *most = REPEAT_ANY;
        }
        good = good && r->at < r->length && r->text[r->at] == '}' && *most >= *least;
        if (!good) return refuse(r, "a wrong repetition") != NULL;
        r->at++;
    }
    if (r->at < r->length && r->text[r->at] == '?') r->at++; /* lazy: the same strings */
    return !builder_failed(r->compiler->builder);
}

static struct part *repeated(struct reader *r, struct part *item, uint32_t least, uint32_t most)
{
    if (!item || (least == 1 && most == 1)) return item;
    struct part *part = part_new(r, PART_REPEAT);
    if (!part) return NULL;
    part->items = take(r, 1, sizeof *part->items);
    if (!part->items) return NULL;
    part->items[0] = item;
    part->item_count = 1;
    part->repeat_least = least;
    part->repeat_most = most;
    measure(part);
    return part;
}

static bool append(struct reader *r, struct part *list, size_t *capacity, struct part *item)
{
    if (!item) return false;
    mf_allocator memory = arena_allocator(&r->compiler->builder->arena);
    if (ARRAY_RESERVE(list->items, *capacity, list->item_count + 1, &memory, NULL) != MF_OK) {
        builder_fail(r->compiler->builder, MF_ERR_MEMORY, "out of memory for the schema");
        return false;
    }
    list->items[list->item_count++] = item;
    return true;
}

static struct part *read_sequence(struct reader *r, bool top)
{
    struct part *sequence = part_new(r, PART_SEQUENCE);
    size_t capacity = 0;
    if (!sequence) return NULL;
    if (top && r->at < r->length && r->text[r->at] == '^') {
        sequence->from_start = true;
        r->at++;
    }
    while (r->at < r->length && r->text[r->at] != '|' && r->text[r->at] != ')') {
        bool last = r->at + 1 == r->length || r->text[r->at + 1] == '|';
        if (top && r->text[r->at] == '$' && last) {
            sequence->to_end = true;
            r->at++;
            break;
        }
        struct part *atom = read_atom(r);
        uint32_t least, most;
        if (!atom || !take_quantifier(r, &least, &most)) return NULL;
        if (!append(r, sequence, &capacity, repeated(r, atom, least, most))) return NULL;
    }
    measure(sequence);
    return sequence;
}

static struct part *read_choice(struct reader *r, bool top)
{
    struct part *choice = part_new(r, PART_CHOICE);
    size_t capacity = 0;
    if (!choice) return NULL;
    for (;;) {
        if (!append(r, choice, &capacity, read_sequence(r, top))) return NULL;
        if (r->at == r->length || r->text[r->at] != '|') break;
        r->at++;
    }
    if (top && r->at < r->length) return refuse(r, "a parenthesis that was not opened");
    measure(choice);
    return choice;
}

/* ----------------------------------------------------------------- lengths */

static bool is_free_repeat(const struct part *part)
{
    return part->kind == PART_REPEAT && part->items[0]->least == 1 && part->items[0]->most == 1;
}

/* Works 'at most `most` characters' into a sequence: what may be longer than its least shares the
 * room evenly, repetitions of single characters are shortened, other parts must fit. */
static bool shorten(struct part *sequence, uint32_t most)
{
    uint32_t room = most - sequence->least;
    size_t variable = 0;
    for (size_t i = 0; i < sequence->item_count; i++)
        variable += sequence->items[i]->most > sequence->items[i]->least;
    for (size_t i = 0; i < sequence->item_count; i++) {
        struct part *item = sequence->items[i];
        if (item->most == item->least || variable == 0) continue;
        uint32_t share = room / (uint32_t)variable--;
        uint32_t wish = item->most == REPEAT_ANY ? REPEAT_ANY : item->most - item->least;
        if (wish > share) {
            if (!is_free_repeat(item)) return false;
            item->repeat_most = item->repeat_least + share;
            measure(item);
            wish = share;
        }
        room -= wish;
    }
    measure(sequence);
    return sequence->most <= most;
}

static bool lengthen(struct part *sequence, uint32_t least)
{
    uint32_t missing = least - sequence->least;
    for (size_t i = 0; i < sequence->item_count && missing; i++) {
        struct part *item = sequence->items[i];
        if (!is_free_repeat(item)) continue;
        uint32_t more = item->most == REPEAT_ANY ? REPEAT_ANY : item->most - item->least;
        if (more > missing) more = missing;
        item->repeat_least += more;
        measure(item);
        missing -= more;
    }
    measure(sequence);
    return missing == 0;
}

/* ---------------------------------------------------------------- emission */

static const struct expression *emit(struct schema_compiler *c, const struct part *part)
{
    struct grammar_builder *b = c->builder;
    if (part->kind == PART_SET) return schema_character(c, part->ranges, part->range_count);
    if (part->kind == PART_REPEAT)
        return expression_repeat(b, emit(c, part->items[0]), part->repeat_least, part->repeat_most);
    const struct expression **items = arena_take(&b->arena, part->item_count + 1, sizeof *items);
    if (!items) return builder_fail(b, MF_ERR_MEMORY, "out of memory for the schema");
    for (size_t i = 0; i < part->item_count; i++) items[i] = emit(c, part->items[i]);
    return part->kind == PART_SEQUENCE ? expression_sequence(b, items, part->item_count)
                                       : expression_choice(b, items, part->item_count);
}

/* `x` → x with anything before or after it, where it is not anchored. */
static bool open_ends(struct reader *r, struct part *sequence, bool with_start)
{
    static const struct code_range any[] = { { 0, CODE_LAST } };
    size_t count = sequence->item_count;
    struct part **items = take(r, count + 2, sizeof *items);
    if (!items) return false;
    size_t at = 0;
    if (!sequence->from_start && with_start)
        items[at++] = repeated(r, set_part(r, any, 1, false), 0, REPEAT_ANY);
    if (count) memcpy(items + at, sequence->items, count * sizeof *items);
    at += count;
    if (!sequence->to_end) items[at++] = repeated(r, set_part(r, any, 1, false), 0, REPEAT_ANY);
    for (size_t i = 0; i < at; i++)
        if (!items[i]) return false;
    sequence->items = items;
    sequence->item_count = at;
    measure(sequence);
    return true;
}

static bool keep_lengths(struct part *sequence, uint32_t least, uint32_t most)
{
    bool kept = true;
    if (most != REPEAT_ANY && sequence->most > most) kept = shorten(sequence, most);
    if (kept && sequence->least < least) kept = lengthen(sequence, least);
    return kept;
}

const struct expression *schema_pattern(struct schema_compiler *c, const char *pattern,
                                        uint32_t least, uint32_t most, bool *kept_lengths)
{
    struct reader r = { .compiler = c, .text = pattern, .length = strlen(pattern) };
    struct part *choice = read_choice(&r, true);
    if (!choice) return NULL;
    bool bounded = least > 0 || most != REPEAT_ANY;
    size_t kept = 0;
    for (size_t i = 0; i < choice->item_count; i++) {
        struct part *sequence = choice->items[i];
        /* With lengths, nothing before an unanchored pattern: there is more room behind it. */
        if (!open_ends(&r, sequence, !bounded || sequence->to_end)) return NULL;
        bool impossible = sequence->least > most || sequence->most < least;
        if (impossible) continue;
        if (bounded && !keep_lengths(sequence, least, most)) *kept_lengths = false;
        choice->items[kept++] = sequence;
    }
    choice->item_count = kept;
    if (kept == 0) return schema_shared(c, SHARED_NEVER);
    return emit(c, choice);
}
