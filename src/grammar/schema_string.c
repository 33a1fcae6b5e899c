#include "grammar/schema_internal.h"

#include <stdio.h>
#include <stdlib.h>

/* ------------------------------------------------------------- characters */

/* What needs no backslash in a JSON string. */
static const struct code_range plain[] = {
    { 0x20, 0x21 },
    { 0x23, 0x5b },
    { 0x5d, CODE_SURROGATE_FIRST - 1 },
    { CODE_SURROGATE_LAST + 1, CODE_LAST },
};

/* The same without "<", which may begin a tag; it can be written \\u003c. */
static const struct code_range tagless[] = {
    { 0x20, 0x21 },
    { 0x23, 0x3b },
    { 0x3d, 0x5b },
    { 0x5d, CODE_SURROGATE_FIRST - 1 },
    { CODE_SURROGATE_LAST + 1, CODE_LAST },
};

/* What stands for itself where there are no escapes. */
static const struct code_range unquoted[] = {
    { 1, 0x3b },
    { 0x3d, CODE_SURROGATE_FIRST - 1 },
    { CODE_SURROGATE_LAST + 1, CODE_LAST },
};

/* What free keys are made of where they have no quotes. */
static const struct code_range bare[] = { { '0', '9' }, { 'A', 'Z' }, { '_', '_' }, { 'a', 'z' } };

static const struct code_range *plain_set(const struct schema_compiler *c, size_t *count)
{
    *count = c->unquoted         ? COUNT_OF(unquoted)
             : c->options.barred ? COUNT_OF(tagless)
                                 : COUNT_OF(plain);
    return c->unquoted ? unquoted : c->options.barred ? tagless : plain;
}

static const struct expression *plain_character(struct schema_compiler *c)
{
    size_t count;
    const struct code_range *set = plain_set(c, &count);
    return expression_class(c->builder, set, count);
}

static const struct code_range any_hex[] = { { '0', '9' }, { 'A', 'F' }, { 'a', 'f' } };

static const struct expression *hex_digits(struct grammar_builder *b, uint32_t count)
{
    return expression_repeat(b, expression_class(b, any_hex, COUNT_OF(any_hex)), count, count);
}

/* \uXXXX for every character but NUL: one unit outside the surrogates, or a whole pair. */
static const struct expression *unicode_escape(struct grammar_builder *b)
{
    static const struct code_range not_zero[] = { { '1', '9' }, { 'A', 'F' }, { 'a', 'f' } };
    static const struct code_range not_zero_not_d[] = {
        { '1', '9' }, { 'A', 'C' }, { 'E', 'F' }, { 'a', 'c' }, { 'e', 'f' },
    };
    static const struct code_range d[] = { { 'D', 'D' }, { 'd', 'd' } };
    static const struct code_range low_octal[] = { { '0', '7' } };
    static const struct code_range high[] = { { '8', '9' }, { 'A', 'B' }, { 'a', 'b' } };
    static const struct code_range low[] = { { 'C', 'F' }, { 'c', 'f' } };
    const struct expression *x1 = expression_class(b, not_zero, COUNT_OF(not_zero));
    const struct expression *letter_d = expression_class(b, d, COUNT_OF(d));
    const struct expression *from_1000 = SEQUENCE(
        b, expression_class(b, not_zero_not_d, COUNT_OF(not_zero_not_d)), hex_digits(b, 3));
    const struct expression *below_1000 =
        SEQUENCE(b, expression_text(b, "0"),
                 CHOICE(b, SEQUENCE(b, x1, hex_digits(b, 2)),
                        SEQUENCE(b, expression_text(b, "0"),
                                 CHOICE(b, SEQUENCE(b, x1, hex_digits(b, 1)),
                                        SEQUENCE(b, expression_text(b, "0"), x1)))));
    const struct expression *below_surrogates =
        SEQUENCE(b, letter_d, expression_class(b, low_octal, 1), hex_digits(b, 2));
    const struct expression *pair =
        SEQUENCE(b, letter_d, expression_class(b, high, COUNT_OF(high)), hex_digits(b, 2),
                 expression_text(b, "\\u"), letter_d, expression_class(b, low, COUNT_OF(low)),
                 hex_digits(b, 2));
    return SEQUENCE(b, expression_text(b, "u"),
                    CHOICE(b, from_1000, below_1000, below_surrogates, pair));
}

/* A backslash and what may follow it. */
static const struct expression *any_escape(struct grammar_builder *b)
{
    static const struct code_range short_escapes[] = {
        { '"', '"' }, { '/', '/' }, { '\\', '\\' }, { 'b', 'b' },
        { 'f', 'f' }, { 'n', 'n' }, { 'r', 'r' },   { 't', 't' },
    };
    return SEQUENCE(
        b, expression_text(b, "\\"),
        CHOICE(b, expression_class(b, short_escapes, COUNT_OF(short_escapes)), unicode_escape(b)));
}

static const struct expression *any_character(struct schema_compiler *c)
{
    struct grammar_builder *b = c->builder;
    if (c->unquoted) return plain_character(c);
    uint32_t *rule = &c->shared[SHARED_CHARACTER];
    if (*rule == RULE_NONE) {
        *rule = builder_add_rule(b, "json-character");
        builder_define(b, *rule, CHOICE(b, plain_character(c), any_escape(b)));
    }
    return expression_rule(b, *rule);
}

/* How a character that needs a backslash is written. */
static const struct expression *escaped(struct grammar_builder *b, uint32_t code)
{
    static const char codes[] = "\"\\\b\f\n\r\t", letters[] = "\"\\bfnrt";
    const char *found = code ? memchr(codes, (int)code, sizeof codes - 1) : NULL;
    char text[8];
    if (found)
        snprintf(text, sizeof text, "\\%c", letters[found - codes]);
    else
        snprintf(text, sizeof text, "\\u%04x", code);
    return expression_text(b, text);
}

const struct expression *schema_character(struct schema_compiler *c,
                                          const struct code_range *ranges, size_t count)
{
    struct grammar_builder *b = c->builder;
    const struct expression *items[40];
    size_t item_count = 0, set_count;
    const struct code_range *set = plain_set(c, &set_count);
    struct code_range *raw = arena_take(&b->arena, count + set_count, sizeof *raw);
    if (!raw) return builder_fail(b, MF_ERR_MEMORY, "out of memory for the schema");
    size_t raw_count = code_ranges_intersect(raw, ranges, count, set, set_count);
    if (raw_count) items[item_count++] = expression_class(b, raw, raw_count);
    /* Control characters without a short form are offered only where there is nothing else. */
    for (uint32_t code = 1; code <= '\\' && !c->unquoted; code++) {
        bool common = code == '"' || code == '\\' || code == '\n' || code == '\t' || code == '\r' ||
                      (code == '<' && c->options.barred);
        if (code >= 0x20 && !common) continue;
        if (!common && raw_count) continue;
        for (size_t i = 0; i < count; i++)
            if (code >= ranges[i].first && code <= ranges[i].last)
                items[item_count++] = escaped(b, code);
    }
    if (item_count == 0) return schema_shared(c, SHARED_NEVER);
    return expression_choice(b, items, item_count);
}

/* ----------------------------------------------------------------- strings */

const struct expression *schema_in_quotes(struct schema_compiler *c, const struct expression *x)
{
    struct grammar_builder *b = c->builder;
    const char *quote = c->options.quote ? c->options.quote : "\"";
    return SEQUENCE(b, expression_text(b, quote), x, expression_text(b, quote));
}

/* Formats as patterns: each matches only texts that a validator accepts, not all of them.  Where a
 * validator does not count, neither do they: a loop is one state, a count many. */
#define DATE                                                                                       \
    "[0-9]{4}-((0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01])|(0[469]|11)-(0[1-9]|[12][0-9]|30)|"       \
    "02-(0[1-9]|1[0-9]|2[0-8]))"
#define TIME                                                                                       \
    "([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\\.[0-9]{1,6})?(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9]" \
    ")"
#define OCTET "(25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"
#define LABEL "[a-z0-9]([a-z0-9-]{0,30}[a-z0-9])?"
#define WORDS "[a-z0-9]+(-[a-z0-9]+)*"
#define URI   "https?://" WORDS "(\\." WORDS ")*(/[A-Za-z0-9._~-]*)*(\\?[A-Za-z0-9._~=&-]*)?"

static const struct {
    const char *name, *pattern;
} formats[] = {
    { "date", "^" DATE "$" },
    { "time", "^" TIME "$" },
    { "date-time", "^" DATE "T" TIME "$" },
    { "duration", "^P([0-9]{1,4}[YMWD]|T[0-9]{1,4}[HMS]|[0-9]{1,4}DT[0-9]{1,4}[HMS])$" },
    { "uuid", "^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$" },
    { "email", "^[A-Za-z0-9_+-]+(\\.[A-Za-z0-9_+-]+)*@(" WORDS "\\.)+[a-z]{2,10}$" },
    { "ipv4", "^(" OCTET "\\.){3}" OCTET "$" },
    { "ipv6", "^([0-9a-f]{1,4}:){7}[0-9a-f]{1,4}$" },
    { "hostname", "^" LABEL "(\\." LABEL "){0,4}$" },
    { "uri", "^" URI "$" },
    { "uri-reference", "^" URI "$" },
};

/* The pattern that a string must match, from `pattern` or `format`; NULL: none. */
static const char *pattern_of(struct schema_compiler *c, const json_t *schema)
{
    const json_t *pattern = json_object_get(schema, "pattern");
    const json_t *format = json_object_get(schema, "format");
    if (pattern && !json_is_string(pattern)) {
        schema_fail(c, MF_ERR_GRAMMAR, "pattern is %s, a string was expected", json_kind(pattern));
        return NULL;
    }
    if (pattern && strlen(json_string_value(pattern)) != json_string_length(pattern)) {
        schema_fail(c, MF_ERR_UNSUPPORTED, "pattern contains a NUL");
        return NULL;
    }
    const char *from_format = NULL;
    if (json_is_string(format)) {
        const char *name = json_string_value(format);
        for (size_t i = 0; i < COUNT_OF(formats); i++)
            if (strcmp(formats[i].name, name) == 0) from_format = formats[i].pattern;
        if (!from_format) schema_note(c, "format \"%.60s\" is not checked", name);
    }
    if (pattern && from_format)
        schema_leave_out(c, "format", "it cannot be kept together with pattern");
    return pattern ? json_string_value(pattern) : from_format;
}

const struct expression *schema_string_inside(struct schema_compiler *c, const json_t *schema,
                                              const struct expression *free_text)
{
    struct grammar_builder *b = c->builder;
    uint32_t least, most;
    if (!schema_count(c, &least, schema, "minLength", 0)) return NULL;
    if (!schema_count(c, &most, schema, "maxLength", REPEAT_ANY)) return NULL;
    const char *pattern = pattern_of(c, schema);
    if (builder_failed(b)) return NULL;
    if (most < least) return schema_shared(c, SHARED_NEVER);
    if (pattern) {
        bool kept_lengths = true;
        const struct expression *inside = schema_pattern(c, pattern, least, most, &kept_lengths);
        if (!kept_lengths)
            schema_leave_out(c, "minLength/maxLength", "they cannot be kept with this pattern");
        return inside;
    }
    if (least == 0 && most == REPEAT_ANY) return free_text;
    return expression_repeat(b, any_character(c), least, most);
}

const struct expression *schema_string(struct schema_compiler *c, const json_t *schema)
{
    const struct expression *any = schema_shared(c, SHARED_STRING);
    const struct expression *inside = schema_string_inside(c, schema, any);
    return inside == any ? any : schema_in_quotes(c, inside);
}

/* Characters of which no two are "<" and what is barred behind it: there comes another one, or an
 * escape. */
static const struct expression *tagless_characters(struct schema_compiler *c)
{
    uint32_t barred = (uint8_t)c->options.barred;
    const struct code_range free[] = { { 0, barred - 1 }, { barred + 1, CODE_LAST } };
    struct code_range after[COUNT_OF(tagless) + COUNT_OF(free)];
    size_t count = code_ranges_intersect(after, tagless, COUNT_OF(tagless), free, COUNT_OF(free));
    struct grammar_builder *b = c->builder;
    const struct expression *open = expression_text(b, "<");
    const struct expression *opened =
        SEQUENCE(b, expression_repeat(b, open, 1, REPEAT_ANY),
                 CHOICE(b, expression_class(b, after, count), any_escape(b)));
    return SEQUENCE(b, expression_repeat(b, CHOICE(b, any_character(c), opened), 0, REPEAT_ANY),
                    expression_repeat(b, open, 0, REPEAT_ANY));
}

/* Text up to the quote, with it. */
static const struct expression *marked_characters(struct schema_compiler *c)
{
    enum { NEVER_MAX = 24 };
    struct text_end ends[NEVER_MAX + 1] = { { c->options.quote, expression_empty(c->builder) } };
    size_t count = 1;
    for (const char *const *never = c->options.never; never && *never && count <= NEVER_MAX;
         never++)
        if (strcmp(*never, c->options.quote) != 0)
            ends[count++] = (struct text_end){ *never, NULL };
    return expression_text_until(c->builder, ends, count, false);
}

/* The body of SHARED_STRING. */
const struct expression *schema_any_string(struct schema_compiler *c)
{
    if (c->options.quote)
        return SEQUENCE(c->builder, expression_text(c->builder, c->options.quote),
                        marked_characters(c));
    if (c->options.barred) return schema_in_quotes(c, tagless_characters(c));
    return schema_in_quotes(c, expression_repeat(c->builder, any_character(c), 0, REPEAT_ANY));
}

/* --------------------------------------------------------------- other keys */

/* Names as they are excluded: those that need an escape cannot come up and are left out. */
struct key_set {
    const char **names; /* sorted */
    size_t count;
};

static int by_text(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static bool is_plain(const struct schema_compiler *c, const char *name)
{
    for (; *name; name++) {
        if ((uint8_t)*name < 0x20 || *name == '"' || *name == '\\') return false;
        if (*name == '<' && c->options.barred) return false;
        if (c->options.quote && !schema_is_bare_key(name)) return false;
    }
    return true;
}

static const struct code_range *key_set(const struct schema_compiler *c, size_t *count)
{
    *count = COUNT_OF(bare);
    return c->options.quote ? bare : plain_set(c, count);
}

static const struct expression *key_characters(struct schema_compiler *c, uint32_t least)
{
    size_t count;
    const struct code_range *set = key_set(c, &count);
    return expression_repeat(c->builder, expression_class(c->builder, set, count), least,
                             REPEAT_ANY);
}

/* What may follow the first `done` bytes that all names[0..count) share, so that the whole is
 * none of them: another character and then anything, or one of theirs and so on; or the end,
 * unless one of them ends here. */
static const struct expression *differ(struct schema_compiler *c, const char *const *names,
                                       size_t count, size_t done, unsigned depth)
{
    enum { DEPTH_LIMIT = 48, BRANCH_LIMIT = 256 };
    struct grammar_builder *b = c->builder;
    const struct expression *items[BRANCH_LIMIT + 2];
    struct code_range taken[BRANCH_LIMIT + 1], free_codes[BRANCH_LIMIT + 3];
    struct code_range others[BRANCH_LIMIT + 3 + COUNT_OF(tagless)];
    size_t item_count = 0, taken_count = 0, at = 0, set_count;
    const struct code_range *set = key_set(c, &set_count);
    if (names[0][done] == '\0')
        at = 1;
    else if (done > 0 || !c->options.quote)
        items[item_count++] = expression_empty(b);
    while (at < count) {
        uint32_t code = 0;
        size_t n = code_decode(&code, names[at] + done, strlen(names[at] + done));
        size_t end = at + 1;
        while (end < count && n && memcmp(names[end] + done, names[at] + done, n) == 0) end++;
        if (n == 0 || taken_count == BRANCH_LIMIT)
            return schema_fail(c, MF_ERR_GRAMMAR, "too many names for additionalProperties");
        taken[taken_count++] = (struct code_range){ code, code };
        if (depth < DEPTH_LIMIT) { /* deeper, names that begin like these are not offered */
            uint32_t rule = builder_add_rule(b, NULL);
            builder_define(b, rule, differ(c, names + at, end - at, done + n, depth + 1));
            items[item_count++] =
                SEQUENCE(b, expression_literal(b, names[at] + done, n), expression_rule(b, rule));
        }
        at = end;
    }
    taken_count = code_ranges_normalise(taken, taken_count);
    size_t free_count = code_ranges_invert(free_codes, taken, taken_count);
    free_count = code_ranges_intersect(others, free_codes, free_count, set, set_count);
    items[item_count++] =
        SEQUENCE(b, expression_class(b, others, free_count), key_characters(c, 0));
    return expression_choice(b, items, item_count);
}

const struct expression *schema_other_key(struct schema_compiler *c, const json_t *names)
{
    struct grammar_builder *b = c->builder;
    size_t total = json_object_size(names), count = 0;
    const char **sorted = arena_take(&b->arena, total + 1, sizeof *sorted);
    if (!sorted) return builder_fail(b, MF_ERR_MEMORY, "out of memory for the schema");
    const char *name;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)names, name, value)
    {
        if (is_plain(c, name)) sorted[count++] = name;
    }
    if (count == 0 && c->options.quote) return key_characters(c, 1);
    if (count == 0) return schema_in_quotes(c, key_characters(c, 0));
    qsort(sorted, count, sizeof *sorted, by_text);
    const struct expression *key = differ(c, sorted, count, 0, 0);
    return c->options.quote ? key : schema_in_quotes(c, key);
}
