/* builder.h: builds a grammar from rules and expressions.
 *
 * Rules hold expressions; an expression is a tree of literals, character classes,
 * sequences, choices, repetitions and references to rules.  The text parser and the JSON
 * Schema compiler build these trees, grammar_new turns them into an automaton.
 *
 *     struct grammar_builder *b;                      the sticky first error stays in b:
 *     grammar_builder_new(&b, allocator, why);        every function takes NULL for a part
 *     uint32_t root = builder_add_rule(b, "root");    that could not be made, so that a
 *     builder_define(b, root, expression_repeat(b,    recipe needs no checks and asks
 *         expression_text(b, "ab"), 1, REPEAT_ANY));  once, at the end
 *     grammar_new(&grammar, b, root, why);
 *     grammar_builder_free(b);
 *
 * Grammars and schemas are untrusted input: depth, sizes and counts are bounded here.
 *
 * Lifetimes: expressions live as long as the builder.  Threads: one owner. */
#ifndef GRAMMAR_BUILDER_H
#define GRAMMAR_BUILDER_H

#include "base/arena.h"
#include "grammar/code_ranges.h"

enum {
    GRAMMAR_RULE_LIMIT = 1 << 16,
    GRAMMAR_NODE_LIMIT = 1 << 19,  /* of the automaton: about one per byte or repetition */
    GRAMMAR_NESTING_LIMIT = 128,   /* of expressions in a rule */
    GRAMMAR_REPEAT_LIMIT = 100000, /* of a counted repetition */
};

#define REPEAT_ANY UINT32_MAX
#define RULE_NONE  UINT32_MAX

enum expression_kind {
    EXPRESSION_LITERAL, /* bytes; none of them: the empty text */
    EXPRESSION_CLASS,   /* one character of a set, in UTF-8 */
    EXPRESSION_SEQUENCE,
    EXPRESSION_CHOICE,
    EXPRESSION_REPEAT,
    EXPRESSION_RULE,
};

struct expression {
    enum expression_kind kind;
    uint32_t depth; /* of the tree below, without rules */
    uint32_t size;  /* nodes it will take, a reference counted as one; saturates */
    union {
        struct {
            const uint8_t *bytes;
            size_t length;
        } literal;
        struct {
            const struct code_range *ranges;
            size_t count;
        } set;
        struct {
            const struct expression *const *items;
            size_t count;
        } list; /* sequence, choice */
        struct {
            const struct expression *item;
            uint32_t least, most;
        } repeat;
        uint32_t rule;
    };
};

struct builder_rule {
    const char *name;              /* for messages; NULL: made by the builder */
    const struct expression *body; /* NULL: not defined yet */
    bool keep;                     /* never copied into its callers */
};

struct grammar_builder {
    struct arena arena;
    struct builder_rule *rules; /* [rule_count] */
    uint32_t rule_count;
    size_t rule_capacity;
    mf_error error; /* the first one; status MF_OK: none */
};

mf_status grammar_builder_new(struct grammar_builder **out, const mf_allocator *allocator,
                              mf_error *why);
void grammar_builder_free(struct grammar_builder *builder);

/* Records an error unless there is one already; returns NULL, for use in expressions. */
const struct expression *builder_fail(struct grammar_builder *builder, mf_status status,
                                      const char *format, ...) MF_PRINTF(3, 4);
bool builder_failed(const struct grammar_builder *builder);

/* A rule without a body; `name` is copied and may be NULL.  RULE_NONE after a failure. */
uint32_t builder_add_rule(struct grammar_builder *builder, const char *name);
void builder_define(struct grammar_builder *builder, uint32_t rule, const struct expression *body);

const struct expression *expression_empty(struct grammar_builder *builder);
const struct expression *expression_literal(struct grammar_builder *builder, const void *bytes,
                                            size_t length);
const struct expression *expression_text(struct grammar_builder *builder, const char *text);
/* One character of the ranges, which may be in any order and must not be empty. */
const struct expression *expression_class(struct grammar_builder *builder,
                                          const struct code_range *ranges, size_t count);
const struct expression *expression_sequence(struct grammar_builder *builder,
                                             const struct expression *const *items, size_t count);
const struct expression *expression_choice(struct grammar_builder *builder,
                                           const struct expression *const *items, size_t count);
const struct expression *expression_repeat(struct grammar_builder *builder,
                                           const struct expression *item, uint32_t least,
                                           uint32_t most);
const struct expression *expression_rule(struct grammar_builder *builder, uint32_t rule);

/* A choice of literals, built as a prefix tree, so that matching does not slow down with their
 * number.  Sorts the array by bytes. */
struct literal_text {
    const char *bytes;
    size_t length;
};
const struct expression *expression_literals(struct grammar_builder *builder,
                                             struct literal_text *texts, size_t count);

/* UTF-8 text up to the first occurrence of one of some literals, that literal, and what follows it.
 * With `may_stop` the text may also end without a literal. */
struct text_end {
    const char *literal;
    const struct expression *then; /* what follows the literal; NULL: it must not occur */
};
const struct expression *expression_text_until(struct grammar_builder *builder,
                                               const struct text_end *ends, size_t count,
                                               bool may_stop);

/* SEQUENCE(b, x, y, z), CHOICE(b, x, y) */
#define SEQUENCE(b, ...)                                                                           \
    expression_sequence((b), (const struct expression *[]){ __VA_ARGS__ },                         \
                        COUNT_OF(((const struct expression *[]){ __VA_ARGS__ })))
#define CHOICE(b, ...)                                                                             \
    expression_choice((b), (const struct expression *[]){ __VA_ARGS__ },                           \
                      COUNT_OF(((const struct expression *[]){ __VA_ARGS__ })))

#endif
