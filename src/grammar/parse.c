/* The GBNF-like notation of grammar.h, by recursive descent. */
#include "grammar/grammar.h"
#include "grammar/builder.h"

#include "base/array.h"
#include "base/status.h"

#include <ctype.h>
#include <stdlib.h>

enum {
    NAME_LIMIT = 128,
    ITEM_LIMIT = 1 << 16, /* of a sequence or choice */
    RANGE_LIMIT = 4096,   /* of a class */
};

struct parser {
    struct grammar_builder *builder;
    const char *text;
    size_t length, at;
    unsigned depth;
    uint32_t *buckets; /* [bucket_count]: hash of a name → rule + 1 */
    size_t bucket_count;
    size_t *first_use;                    /* [length + 1]: where a rule is first named */
    struct code_range *ranges, *inverted; /* [RANGE_LIMIT + 4]: the class being read */
    struct arena scratch;                 /* for lists while they grow */
};

/* An error at position `at`, as line and column (in characters, from 1). */
static const struct expression *fail_at(struct parser *p, size_t at, const char *problem)
{
    size_t line = 1, column = 1;
    for (size_t i = 0; i < at && i < p->length; i++) {
        if (p->text[i] == '\n') {
            line++;
            column = 1;
        } else if (((uint8_t)p->text[i] & 0xc0) != 0x80) {
            column++;
        }
    }
    return builder_fail(p->builder, MF_ERR_GRAMMAR, "grammar: line %zu, column %zu: %s", line,
                        column, problem);
}

static bool refuse_at(struct parser *p, size_t at, const char *problem)
{
    fail_at(p, at, problem);
    return false;
}

/* ------------------------------------------------------------------ tokens */

static int peek(const struct parser *p)
{
    return p->at < p->length ? (uint8_t)p->text[p->at] : -1;
}

static bool take(struct parser *p, char byte)
{
    if (peek(p) != (uint8_t)byte) return false;
    p->at++;
    return true;
}

static void skip_space(struct parser *p)
{
    bool comment = false;
    for (; p->at < p->length; p->at++) {
        char c = p->text[p->at];
        if (c == '\n') comment = false;
        if (c == '#') comment = true;
        if (!comment && c != ' ' && c != '\t' && c != '\n' && c != '\r') return;
    }
}

static bool is_name_byte(int c)
{
    return c == '-' || c == '_' || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
           (c >= '0' && c <= '9');
}

static size_t name_length(const struct parser *p)
{
    size_t n = 0;
    while (p->at + n < p->length && is_name_byte((uint8_t)p->text[p->at + n])) n++;
    return n;
}

/* Whether a rule begins here: a name, then "::=". */
static bool at_definition(const struct parser *p)
{
    struct parser ahead = *p;
    size_t n = name_length(&ahead);
    if (n == 0) return false;
    ahead.at += n;
    skip_space(&ahead);
    return ahead.length - ahead.at >= 3 && memcmp(ahead.text + ahead.at, "::=", 3) == 0;
}

/* The rule of this name, made when it is new; RULE_NONE after an error. */
static uint32_t find_rule(struct parser *p, size_t length)
{
    if (length > NAME_LIMIT) {
        fail_at(p, p->at, "this name is longer than 128 bytes");
        return RULE_NONE;
    }
    char name[NAME_LIMIT + 1];
    memcpy(name, p->text + p->at, length);
    name[length] = '\0';
    uint64_t hash = 14695981039346656037u;
    for (size_t i = 0; i < length; i++) hash = (hash ^ (uint8_t)name[i]) * 1099511628211u;
    size_t bucket = hash % p->bucket_count;
    for (; p->buckets[bucket]; bucket = (bucket + 1) % p->bucket_count) {
        uint32_t rule = p->buckets[bucket] - 1;
        if (strcmp(p->builder->rules[rule].name, name) == 0) return rule;
    }
    uint32_t rule = builder_add_rule(p->builder, name);
    if (rule == RULE_NONE) return rule;
    p->first_use[rule] = p->at;
    p->buckets[bucket] = rule + 1;
    return rule;
}

/* -------------------------------------------------------------- characters */

static bool take_hex(struct parser *p, int digits, uint32_t *code)
{
    uint32_t value = 0;
    for (int i = 0; i < digits; i++) {
        int c = peek(p);
        if (c < 0 || !isxdigit(c)) return refuse_at(p, p->at, "a hexadecimal digit was expected");
        value = value * 16 + (uint32_t)(c <= '9' ? c - '0' : (c | 0x20) - 'a' + 10);
        p->at++;
    }
    if (value > CODE_LAST || (value >= CODE_SURROGATE_FIRST && value <= CODE_SURROGATE_LAST))
        return refuse_at(p, p->at - (size_t)digits, "there is no such character");
    *code = value;
    return true;
}

/* After a backslash. */
static bool take_escape(struct parser *p, uint32_t *code)
{
    static const char from[] = "nrt\\\"'[]-^", to[] = "\n\r\t\\\"'[]-^";
    int c = peek(p);
    const char *found = c > 0 ? strchr(from, c) : NULL;
    if (!found && c != 'x' && c != 'u' && c != 'U')
        return refuse_at(p, p->at - 1, "this escape is not known");
    p->at++;
    if (!found) return take_hex(p, c == 'x' ? 2 : c == 'u' ? 4 : 8, code);
    *code = (uint8_t)to[found - from];
    return true;
}

/* A character of a literal or class; false at an error. */
static bool take_character(struct parser *p, uint32_t *code)
{
    if (take(p, '\\')) return take_escape(p, code);
    size_t n = code_decode(code, p->text + p->at, p->length - p->at);
    if (n == 0)
        return refuse_at(p, p->at,
                         p->at < p->length ? "this is not UTF-8" : "the grammar ends here");
    p->at += n;
    return true;
}

static const struct expression *parse_literal(struct parser *p)
{
    size_t start = p->at++;
    /* What an escape stands for is never longer than the escape: the text's length is enough. */
    size_t end = p->at;
    while (end < p->length && p->text[end] != '"') end += p->text[end] == '\\' ? 2 : 1;
    if (end >= p->length) return fail_at(p, start, "this text has no end");
    uint8_t *bytes = ARENA_NEW(&p->scratch, uint8_t, end - start + 4);
    if (!bytes) return builder_fail(p->builder, MF_ERR_MEMORY, "out of memory for the grammar");
    size_t length = 0;
    while (!take(p, '"')) {
        uint32_t code;
        if (!take_character(p, &code)) return NULL;
        length += code_encode(bytes + length, code);
    }
    return expression_literal(p->builder, bytes, length);
}

/* The ranges of a class up to its "]"; false at an error. */
static bool parse_ranges(struct parser *p, size_t start, struct code_range *ranges, size_t *count)
{
    while (!take(p, ']')) {
        if (p->at >= p->length) return refuse_at(p, start, "this class has no end");
        if (*count == RANGE_LIMIT) return refuse_at(p, p->at, "this class has too many parts");
        struct code_range range;
        size_t at = p->at;
        if (!take_character(p, &range.first)) return false;
        range.last = range.first;
        bool is_range = peek(p) == '-' && p->at + 1 < p->length && p->text[p->at + 1] != ']';
        if (is_range) {
            p->at++;
            if (!take_character(p, &range.last)) return false;
        }
        if (range.last < range.first) return refuse_at(p, at, "this range is empty");
        ranges[(*count)++] = range;
    }
    return true;
}

static const struct expression *parse_class(struct parser *p)
{
    size_t start = p->at++, count = 0;
    bool inverted = take(p, '^');
    struct code_range *ranges = p->ranges;
    if (!parse_ranges(p, start, ranges, &count)) return NULL;
    if (inverted) {
        count = code_ranges_normalise(ranges, count);
        count = code_ranges_invert(p->inverted, ranges, count);
        ranges = p->inverted;
    }
    if (count == 0) return fail_at(p, start, "this class matches no character");
    return expression_class(p->builder, ranges, count);
}

/* ------------------------------------------------------------- expressions */

/* A list that grows; items stay in the parser's scratch. */
struct item_list {
    const struct expression **items;
    size_t count, capacity;
};

static bool append(struct parser *p, struct item_list *list, const struct expression *item)
{
    if (!item) return false;
    if (list->count == ITEM_LIMIT) return refuse_at(p, p->at, "this rule has too many parts");
    mf_allocator scratch = arena_allocator(&p->scratch);
    if (ARRAY_RESERVE(list->items, list->capacity, list->count + 1, &scratch, NULL) != MF_OK) {
        builder_fail(p->builder, MF_ERR_MEMORY, "out of memory for the grammar");
        return false;
    }
    list->items[list->count++] = item;
    return true;
}

static bool take_number(struct parser *p, uint32_t *number)
{
    uint32_t value = 0;
    size_t start = p->at;
    for (; peek(p) >= '0' && peek(p) <= '9'; p->at++) {
        value = value * 10 + (uint32_t)(peek(p) - '0');
        if (value > GRAMMAR_REPEAT_LIMIT)
            return refuse_at(p, start, "a repetition of more than 100000 times");
    }
    *number = value;
    return p->at > start;
}

/* {3} {2,} {2,5} {,5}, after the brace. */
static bool parse_counts(struct parser *p, size_t start, uint32_t *least, uint32_t *most)
{
    skip_space(p);
    bool has_least = take_number(p, least);
    if (!has_least) *least = 0;
    skip_space(p);
    bool comma = take(p, ',');
    skip_space(p);
    *most = *least;
    if (comma && !take_number(p, most)) *most = REPEAT_ANY;
    skip_space(p);
    if (builder_failed(p->builder)) return false;
    if (!take(p, '}') || (!has_least && (!comma || *most == REPEAT_ANY)) || *most < *least)
        return refuse_at(p, start, "{3}, {2,}, {2,5} or {,5} was expected");
    return true;
}

static const struct expression *parse_suffixes(struct parser *p, const struct expression *item)
{
    while (item) {
        skip_space(p);
        size_t start = p->at;
        uint32_t least = 0, most = REPEAT_ANY;
        if (take(p, '+'))
            least = 1;
        else if (take(p, '?'))
            most = 1;
        else if (take(p, '{')) {
            if (!parse_counts(p, start, &least, &most)) return NULL;
        } else if (!take(p, '*'))
            return item;
        item = expression_repeat(p->builder, item, least, most);
    }
    return NULL;
}

static const struct expression *parse_choice(struct parser *p);

static const struct expression *parse_group(struct parser *p)
{
    size_t start = p->at++;
    if (++p->depth > GRAMMAR_NESTING_LIMIT / 2) return fail_at(p, start, "nested too deep");
    const struct expression *inside = parse_choice(p);
    p->depth--;
    if (inside && !take(p, ')')) return fail_at(p, start, "this parenthesis is not closed");
    return inside;
}

/* One item, or NULL: at the end of a sequence (no error noted) or at an error. */
static const struct expression *parse_item(struct parser *p)
{
    static const struct code_range any[] = { { 0, CODE_LAST } };
    int c = peek(p);
    if (c == '"') return parse_literal(p);
    if (c == '[') return parse_class(p);
    if (c == '(') return parse_group(p);
    if (c == '.') {
        p->at++;
        return expression_class(p->builder, any, 1);
    }
    size_t n = name_length(p);
    if (n == 0 || at_definition(p)) return NULL;
    uint32_t rule = find_rule(p, n);
    p->at += n;
    return expression_rule(p->builder, rule);
}

static const struct expression *parse_sequence(struct parser *p)
{
    struct item_list list = { 0 };
    for (;;) {
        skip_space(p);
        const struct expression *item = parse_item(p);
        if (!item && !builder_failed(p->builder)) break;
        if (!append(p, &list, parse_suffixes(p, item))) return NULL;
    }
    return expression_sequence(p->builder, list.items, list.count);
}

static const struct expression *parse_choice(struct parser *p)
{
    struct item_list list = { 0 };
    do {
        if (!append(p, &list, parse_sequence(p))) return NULL;
        skip_space(p);
    } while (take(p, '|'));
    return expression_choice(p->builder, list.items, list.count);
}

/* ------------------------------------------------------------------- rules */

static void parse_definition(struct parser *p)
{
    size_t start = p->at;
    if (!at_definition(p)) {
        fail_at(p, start,
                name_length(p) ? "\"::=\" was expected after this name"
                               : "a rule, name ::= …, was expected");
        return;
    }
    size_t n = name_length(p);
    uint32_t rule = find_rule(p, n);
    if (rule == RULE_NONE) return;
    if (p->builder->rules[rule].body) {
        fail_at(p, start, "this rule is defined twice");
        return;
    }
    p->at += n;
    skip_space(p);
    p->at += 3;
    builder_define(p->builder, rule, parse_choice(p));
}

static uint32_t parse_rules(struct parser *p)
{
    skip_space(p);
    while (p->at < p->length && !builder_failed(p->builder)) {
        parse_definition(p);
        skip_space(p);
    }
    uint32_t root = RULE_NONE;
    for (uint32_t i = 0; i < p->builder->rule_count && !builder_failed(p->builder); i++) {
        const struct builder_rule *rule = &p->builder->rules[i];
        if (!rule->name) continue;
        if (!rule->body) fail_at(p, p->first_use[i], "this rule is not defined anywhere");
        if (strcmp(rule->name, "root") == 0) root = i;
    }
    if (root == RULE_NONE)
        builder_fail(p->builder, MF_ERR_GRAMMAR, "grammar: there is no rule named root");
    return root;
}

uint32_t grammar_add_rules(struct grammar_builder *builder, const char *text, size_t length)
{
    struct parser p = { .builder = builder, .text = text, .length = length };
    uint32_t root = RULE_NONE;
    if (length > GRAMMAR_TEXT_LIMIT) {
        builder_fail(builder, MF_ERR_GRAMMAR, "grammar: %zu bytes, at most %d", length,
                     GRAMMAR_TEXT_LIMIT);
        return RULE_NONE;
    }
    arena_init(&p.scratch, builder->arena.allocator);
    /* Every rule, named or made for a repetition, takes a byte of the text or more. */
    p.bucket_count = 2 * length + 16;
    p.buckets = ARENA_NEW(&p.scratch, uint32_t, p.bucket_count);
    p.first_use = ARENA_NEW(&p.scratch, size_t, length + 1);
    p.ranges = ARENA_NEW(&p.scratch, struct code_range, RANGE_LIMIT + 4);
    p.inverted = ARENA_NEW(&p.scratch, struct code_range, RANGE_LIMIT + 4);
    if (!p.buckets || !p.first_use || !p.ranges || !p.inverted)
        builder_fail(builder, MF_ERR_MEMORY, "out of memory for the grammar");
    else
        root = parse_rules(&p);
    arena_free(&p.scratch);
    return builder_failed(builder) ? RULE_NONE : root;
}
