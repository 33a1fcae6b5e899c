/* analysis.h: whole-grammar analysis: shortest completions, depth, loops. */
#ifndef GRAMMAR_ANALYSIS_H
#define GRAMMAR_ANALYSIS_H

#include "grammar/grammar.h"
#include "grammar/builder.h"

/* Maps compiled rules to those of the builder. */
struct grammar_origin {
    const struct builder_rule *rules;
    const uint32_t *emitted;    /* [rule_count]: index in `rules` */
    const uint32_t *first_node; /* [rule_count + 1] */
};

/* Fills cost, height and in_loop of all nodes and swaps the branches of every SPLIT so that `a`
 * completes in the fewest bytes.  Refuses left recursion, a grammar without a finite text, and one
 * whose shortest text needs more than half of GRAMMAR_DEPTH_LIMIT calls. */
mf_status grammar_analyse(struct grammar *grammar, struct arena *scratch,
                          const struct grammar_origin *origin, mf_error *why);

#endif
