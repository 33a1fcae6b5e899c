/* grammar.h: context-free grammars, compiled to pushdown automata over bytes.
 *
 * A grammar is a set of rules in a GBNF-like notation:
 *
 *     root   ::= "[" ws (item ("," ws item)*)? "]"      # a comment
 *     item   ::= [a-z_] [a-z0-9_]{0,30} | number
 *     number ::= "-"? ("0" | [1-9] [0-9]*)
 *     ws     ::= [ \t\n]*
 *
 *   "text"        its characters; \n \r \t \\ \" \xHH \uHHHH \UHHHHHHHH
 *   [a-z]  [^"]   one character of (not of) a set; the same escapes, and \] \- \^ \[
 *   .             any character
 *   x y   x | y   one after the other; one or the other, the bar binds least
 *   (x)           grouping
 *   x* x+ x?      any number, at least one, at most one
 *   x{3} x{2,} x{2,5} x{,5}
 *
 * A rule extends to the next "name ::="; the start rule is `root`.  Characters are Unicode and
 * match their UTF-8 bytes, so every text of a grammar is valid UTF-8.  Left recursion, direct or
 * indirect, is refused, and so is a grammar without a finite text.
 *
 * Each rule is compiled to a graph of nodes; a call pushes the node to return to:
 *
 *     BYTES  a = set of bytes, b = next        CALL  a = rule, b = next
 *     SPLIT  a or b, without reading           END   back to the caller
 *
 * `cost` of a node is the smallest number of bytes from it to the END of its rule.  Branch `a` of a
 * SPLIT is the cheaper one, so that following `a` completes a text (matcher.h).
 *
 * Lifetimes: immutable once made.  Threads: shared freely. */
#ifndef GRAMMAR_GRAMMAR_H
#define GRAMMAR_GRAMMAR_H

#include "base/arena.h"

struct grammar_builder;

enum { GRAMMAR_TEXT_LIMIT = 1 << 20, GRAMMAR_DEPTH_LIMIT = 512 };

#define GRAMMAR_COST_NEVER UINT32_MAX /* no text leads to the end */

enum grammar_node_kind { NODE_END, NODE_BYTES, NODE_CALL, NODE_SPLIT };

struct grammar_node {
    uint8_t kind;
    bool in_loop;    /* its rule repeats something or calls itself: see mask.c */
    uint16_t height; /* nested calls of the shortest completion */
    uint32_t a, b;
    uint32_t cost;
};

/* The copies of x in a counted repetition x{0,900}.  They follow each other in `nodes`, last copy
 * first, and differ only in the number of copies after them.  Copies with more copies after them
 * than a token has bytes allow the same tokens: mask.c computes one of them for all. */
struct grammar_copies {
    uint32_t first;  /* node of the last copy */
    uint32_t stride; /* nodes of each */
    uint32_t count;
};

struct grammar {
    struct arena arena;
    struct grammar_node *nodes; /* [node_count] */
    uint32_t *rule_starts;      /* [rule_count]: node */
    uint32_t node_count, rule_count;
    uint32_t start;                /* node */
    struct grammar_copies *copies; /* [copies_count]: those inside of others come first */
    uint32_t copies_count;

    /* Bytes that no set tells apart form a class; tables have a column per class. */
    uint8_t byte_class[256];
    uint32_t class_count, set_count;
    uint64_t (*set_classes)[4]; /* [set_count]: the classes in a set, as bits */
    uint8_t *set_example;       /* [set_count]: the byte that a shortest completion takes */
};

/* Adds the rules of a grammar text to an empty builder.  Returns the rule `root`; RULE_NONE, with
 * the builder's error set, after a failure. */
uint32_t grammar_add_rules(struct grammar_builder *builder, const char *text, size_t length);

/* Compiles the builder's rules with start rule `root`; returns the builder's sticky error if there
 * is one. */
mf_status grammar_new(struct grammar **out, struct grammar_builder *builder, uint32_t root,
                      mf_error *why);
void grammar_free(struct grammar *grammar);

static inline bool grammar_set_has(const struct grammar *grammar, uint32_t set, uint32_t class)
{
    return grammar->set_classes[set][class / 64] >> (class % 64) & 1;
}

#endif
