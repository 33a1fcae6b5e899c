/* grammar.h: which texts are allowed, as an automaton over bytes.
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
 * A rule runs to the next "name ::="; the text starts at `root`.  Characters are Unicode
 * and match their UTF-8 bytes: what a grammar allows is valid UTF-8, always.  A rule that
 * begins with itself (directly or not) is refused, and so is a grammar that cannot end.
 *
 * Compiled, it is a graph of nodes per rule (a pushdown automaton: a call remembers where
 * to go on):
 *
 *     BYTES  a = set of bytes, b = next        CALL  a = rule, b = next
 *     SPLIT  a or b, without reading           END   back to the caller
 *
 * Every node knows `cost`, the fewest bytes that lead from it to the END of its rule, and
 * a SPLIT has the way of the fewest bytes as its `a`: an answer can always be closed by
 * taking `a` (matcher.h).
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
    uint16_t height; /* calls deep that the way of the fewest bytes goes */
    uint32_t a, b;
    uint32_t cost;
};

/* A counted repetition x{0,900}: its copies, the last one first, lie behind each other in `nodes`
 * and differ only in how many follow.  Between two that are followed by more copies than a token
 * has bytes, no token can tell: mask.c looks at one for all. */
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

/* The rules of a notation in a builder that has none yet; the rule `root`, or RULE_NONE and the
 * builder's error. */
uint32_t grammar_add_rules(struct grammar_builder *builder, const char *text, size_t length);

/* Compiles what was built, beginning at rule `root`; reports the builder's sticky error. */
mf_status grammar_new(struct grammar **out, struct grammar_builder *builder, uint32_t root,
                      mf_error *why);
void grammar_free(struct grammar *grammar);

static inline bool grammar_set_has(const struct grammar *grammar, uint32_t set, uint32_t class)
{
    return grammar->set_classes[set][class / 64] >> (class % 64) & 1;
}

#endif
