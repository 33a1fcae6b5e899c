#include "grammar/builder.h"

#include "base/array.h"
#include "base/status.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

mf_status grammar_builder_new(struct grammar_builder **out, const mf_allocator *allocator,
                              mf_error *why)
{
    struct arena arena;
    arena_init(&arena, allocator);
    *out = ARENA_NEW(&arena, struct grammar_builder, 1);
    if (!*out) return fail_memory(why, sizeof **out);
    (*out)->arena = arena;
    return MF_OK;
}

void grammar_builder_free(struct grammar_builder *builder)
{
    if (!builder) return;
    struct arena arena = builder->arena; /* it holds the builder itself */
    arena_free(&arena);
}

const struct expression *builder_fail(struct grammar_builder *builder, mf_status status,
                                      const char *format, ...)
{
    if (builder_failed(builder)) return NULL;
    va_list arguments;
    va_start(arguments, format);
    char text[sizeof builder->error.text];
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    fail(&builder->error, status, "%s", text);
    return NULL;
}

bool builder_failed(const struct grammar_builder *builder)
{
    return builder->error.status != MF_OK;
}

static void *take(struct grammar_builder *builder, size_t count, size_t size)
{
    void *memory = arena_take(&builder->arena, count, size);
    if (!memory) builder_fail(builder, MF_ERR_MEMORY, "out of memory for the grammar");
    return memory;
}

/* ------------------------------------------------------------------- rules */

uint32_t builder_add_rule(struct grammar_builder *builder, const char *name)
{
    if (builder_failed(builder)) return RULE_NONE;
    if (builder->rule_count == GRAMMAR_RULE_LIMIT) {
        builder_fail(builder, MF_ERR_GRAMMAR, "the grammar has more than %d rules",
                     GRAMMAR_RULE_LIMIT);
        return RULE_NONE;
    }
    mf_allocator memory = arena_allocator(&builder->arena);
    struct builder_rule rule = { 0 };
    if (name) rule.name = arena_text(&builder->arena, name, strlen(name));
    if ((name && !rule.name) || ARRAY_RESERVE(builder->rules, builder->rule_capacity,
                                              builder->rule_count + 1, &memory, NULL) != MF_OK) {
        builder_fail(builder, MF_ERR_MEMORY, "out of memory for the grammar");
        return RULE_NONE;
    }
    builder->rules[builder->rule_count] = rule;
    return builder->rule_count++;
}

void builder_define(struct grammar_builder *builder, uint32_t rule, const struct expression *body)
{
    if (rule < builder->rule_count) builder->rules[rule].body = body;
}

/* ------------------------------------------------------------- expressions */

static uint32_t saturate(uint64_t size)
{
    return size < UINT32_MAX ? (uint32_t)size : UINT32_MAX;
}

static struct expression *expression_new(struct grammar_builder *builder, enum expression_kind kind)
{
    if (builder_failed(builder)) return NULL;
    struct expression *expression = take(builder, 1, sizeof *expression);
    if (expression) expression->kind = kind;
    return expression;
}

/* The last step of every constructor: refuses what is too deep. */
static const struct expression *finish(struct grammar_builder *builder,
                                       const struct expression *expression)
{
    if (expression->depth > GRAMMAR_NESTING_LIMIT)
        return builder_fail(builder, MF_ERR_GRAMMAR, "the grammar nests deeper than %d levels",
                            GRAMMAR_NESTING_LIMIT);
    return expression;
}

const struct expression *expression_literal(struct grammar_builder *builder, const void *bytes,
                                            size_t length)
{
    struct expression *expression = expression_new(builder, EXPRESSION_LITERAL);
    if (!expression) return NULL;
    uint8_t *copy = take(builder, length, 1);
    if (!copy) return NULL;
    if (length) memcpy(copy, bytes, length);
    expression->literal.bytes = copy;
    expression->literal.length = length;
    expression->size = saturate(length);
    return expression;
}

const struct expression *expression_text(struct grammar_builder *builder, const char *text)
{
    return expression_literal(builder, text, strlen(text));
}

const struct expression *expression_empty(struct grammar_builder *builder)
{
    return expression_literal(builder, "", 0);
}

const struct expression *expression_class(struct grammar_builder *builder,
                                          const struct code_range *ranges, size_t count)
{
    struct expression *expression = expression_new(builder, EXPRESSION_CLASS);
    if (!expression) return NULL;
    struct code_range *copy = take(builder, count + 1, sizeof *copy);
    if (!copy) return NULL;
    if (count) memcpy(copy, ranges, count * sizeof *copy);
    count = code_ranges_normalise(copy, count);
    if (count == 0)
        return builder_fail(builder, MF_ERR_GRAMMAR, "a character class matches no character");
    expression->set.ranges = copy;
    expression->set.count = count;
    /* One range above ASCII can take a dozen nodes, many share them. */
    expression->size = copy[count - 1].last < 0x80 ? 1 : saturate(8 + 4 * (uint64_t)count);
    return expression;
}

static const struct expression *expression_list(struct grammar_builder *builder,
                                                enum expression_kind kind,
                                                const struct expression *const *items, size_t count)
{
    if (count == 1) return items[0];
    struct expression *expression = expression_new(builder, kind);
    if (!expression) return NULL;
    const struct expression **copy = take(builder, count, sizeof *copy);
    if (!copy) return NULL;
    uint64_t size = kind == EXPRESSION_CHOICE ? count : 0;
    for (size_t i = 0; i < count; i++) {
        if (!items[i]) return builder_fail(builder, MF_ERR_GRAMMAR, "a part of a rule is missing");
        copy[i] = items[i];
        size += items[i]->size;
        if (items[i]->depth + 1 > expression->depth) expression->depth = items[i]->depth + 1;
    }
    expression->list.items = copy;
    expression->list.count = count;
    expression->size = saturate(size);
    return finish(builder, expression);
}

const struct expression *expression_sequence(struct grammar_builder *builder,
                                             const struct expression *const *items, size_t count)
{
    if (count == 0) return expression_empty(builder);
    return expression_list(builder, EXPRESSION_SEQUENCE, items, count);
}

const struct expression *expression_choice(struct grammar_builder *builder,
                                           const struct expression *const *items, size_t count)
{
    if (count == 0) return builder_fail(builder, MF_ERR_GRAMMAR, "a choice of nothing");
    return expression_list(builder, EXPRESSION_CHOICE, items, count);
}

/* A long repetition of a large item calls it as a rule instead of copying it. */
static const struct expression *as_rule(struct grammar_builder *builder,
                                        const struct expression *item)
{
    uint32_t rule = builder_add_rule(builder, NULL);
    if (rule == RULE_NONE) return NULL;
    builder_define(builder, rule, item);
    builder->rules[rule].keep = true;
    return expression_rule(builder, rule);
}

const struct expression *expression_repeat(struct grammar_builder *builder,
                                           const struct expression *item, uint32_t least,
                                           uint32_t most)
{
    enum { COPIED_NODES_LIMIT = 2048 };
    if (!item || builder_failed(builder)) return NULL;
    bool open = most == REPEAT_ANY;
    if (least > GRAMMAR_REPEAT_LIMIT || (!open && most > GRAMMAR_REPEAT_LIMIT))
        return builder_fail(builder, MF_ERR_GRAMMAR, "a repetition of more than %d times",
                            GRAMMAR_REPEAT_LIMIT);
    if (!open && most < least)
        return builder_fail(builder, MF_ERR_GRAMMAR, "a repetition of at least %u and at most %u",
                            least, most);
    if (item->size == 0 || (!open && most == 0)) return expression_empty(builder);
    if (least == 1 && most == 1) return item;
    if (item->kind == EXPRESSION_REPEAT && item->repeat.least <= 1) {
        /* (x{a,b}){c,d} is x{ac,bd} when a is 0 or 1: no number between is left out.  Without
         * this, (((x+)+)+)+ can be read in more ways than there are atoms. */
        uint64_t inner = item->repeat.most;
        bool both_open = open || inner == REPEAT_ANY;
        if (both_open || inner * most <= GRAMMAR_REPEAT_LIMIT)
            return expression_repeat(builder, item->repeat.item, item->repeat.least * least,
                                     both_open ? REPEAT_ANY : (uint32_t)inner * most);
    }

    uint64_t copies = open ? (uint64_t)least + 1 : most;
    if (item->size > 2 && copies > 1 && copies * item->size > COPIED_NODES_LIMIT) {
        item = as_rule(builder, item);
        if (!item) return NULL;
    }
    struct expression *expression = expression_new(builder, EXPRESSION_REPEAT);
    if (!expression) return NULL;
    expression->repeat.item = item;
    expression->repeat.least = least;
    expression->repeat.most = most;
    expression->depth = item->depth + 1;
    expression->size = saturate(copies * ((uint64_t)item->size + 1));
    return finish(builder, expression);
}

const struct expression *expression_rule(struct grammar_builder *builder, uint32_t rule)
{
    if (rule == RULE_NONE) return NULL;
    struct expression *expression = expression_new(builder, EXPRESSION_RULE);
    if (!expression) return NULL;
    expression->rule = rule;
    expression->size = 1;
    return expression;
}

/* ---------------------------------------------------------- sets of literals */

static int by_bytes(const void *a, const void *b)
{
    const struct literal_text *x = a, *y = b;
    int order = memcmp(x->bytes, y->bytes, min_size(x->length, y->length));
    if (order) return order;
    return (x->length > y->length) - (x->length < y->length);
}

static size_t common_beginning(const struct literal_text *a, const struct literal_text *b)
{
    size_t n = 0;
    while (n < a->length && n < b->length && a->bytes[n] == b->bytes[n]) n++;
    return n;
}

static const struct expression *plain_choice(struct grammar_builder *builder,
                                             const struct literal_text *texts, size_t count,
                                             size_t done)
{
    const struct expression **items = take(builder, count, sizeof *items);
    if (!items) return NULL;
    for (size_t i = 0; i < count; i++)
        items[i] = expression_literal(builder, texts[i].bytes + done, texts[i].length - done);
    return expression_choice(builder, items, count);
}

/* texts[0..count) are sorted and agree in their first `done` bytes.  A group with the same next
 * byte becomes its common beginning followed by a rule for the rest: rules, so that the depth of
 * expressions stays small whatever the texts are. */
static const struct expression *literal_tree(struct grammar_builder *builder,
                                             const struct literal_text *texts, size_t count,
                                             size_t done, unsigned depth)
{
    enum { TREE_DEPTH_LIMIT = 64 }; /* of this recursion */
    if (count == 1)
        return expression_literal(builder, texts[0].bytes + done, texts[0].length - done);
    if (depth > TREE_DEPTH_LIMIT) return plain_choice(builder, texts, count, done);
    const struct expression *items[257];
    size_t item_count = 0;
    for (size_t i = 0; i < count;) {
        if (texts[i].length == done) { /* equal texts, sorted first */
            if (i == 0) items[item_count++] = expression_empty(builder);
            i++;
            continue;
        }
        size_t end = i + 1;
        while (end < count && texts[end].bytes[done] == texts[i].bytes[done]) end++;
        size_t common = common_beginning(&texts[i], &texts[end - 1]);
        const struct expression *rest =
            literal_tree(builder, texts + i, end - i, common, depth + 1);
        if (rest && rest->depth > 2) {
            uint32_t rule = builder_add_rule(builder, NULL);
            builder_define(builder, rule, rest);
            rest = expression_rule(builder, rule);
        }
        items[item_count++] = SEQUENCE(
            builder, expression_literal(builder, texts[i].bytes + done, common - done), rest);
        i = end;
    }
    return expression_choice(builder, items, item_count);
}

const struct expression *expression_literals(struct grammar_builder *builder,
                                             struct literal_text *texts, size_t count)
{
    if (count == 0) return builder_fail(builder, MF_ERR_GRAMMAR, "a choice of nothing");
    qsort(texts, count, sizeof *texts, by_bytes);
    size_t kept = 1;
    for (size_t i = 1; i < count; i++)
        if (by_bytes(&texts[kept - 1], &texts[i]) != 0) texts[kept++] = texts[i];
    return literal_tree(builder, texts, kept, 0, 0);
}
