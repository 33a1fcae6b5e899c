/* prefix_bench.h: a prefix cache without a model: what is computed is a tag.
 *
 * A sequence "computes" a token by writing into its pages, and its recurrent state, a hash of all
 * tokens with their phases up to there, in steps of at most PREFIX_BENCH_STEP tokens; before it
 * reads the tags of the window, if there is one.  prefix_bench_verify compares these with the tokens that a
 * sequence says it holds, so that a page or state of another text is found at once. */
#ifndef SUPPORT_PREFIX_BENCH_H
#define SUPPORT_PREFIX_BENCH_H

#include "base/arena.h"
#include "state/prefix.h"
#include "support/failing_allocator.h"
#include "support/far_memory.h"
#include "support/random_text.h"

struct prefix_bench {
    struct failing_allocator heap;
    struct arena arena;
    struct model_config config;
    struct state_pool pool;
    struct far_memory far;
    bool is_far;
    struct prefix_tree *tree;
    struct clock clock;
    double seconds; /* what the clock shows */
};

enum { PREFIX_BENCH_STEP = 96 };

struct prefix_bench_options {
    bool recurrent;  /* every second layer; else all layers have attention */
    uint32_t window; /* of every second layer, in positions; 0: none has one */
    bool exact;
    bool no_tree;
    bool far;                         /* the pool's memory is a device's */
    uint64_t limit_bytes, pool_bytes; /* 0: none */
};

void prefix_bench_open(struct prefix_bench *bench, const struct prefix_bench_options *options);
/* All sequences are freed; fails the test where a block was lost. */
void prefix_bench_close(struct prefix_bench *bench);

/* Bytes of a page, and of what a checkpoint keeps. */
uint64_t prefix_bench_page(const struct prefix_bench *bench);
uint64_t prefix_bench_state(const struct prefix_bench *bench);

/* Feeds tokens in one phase; MF_ERR_POOL_FULL leaves the sequence as it was. */
mf_status prefix_bench_feed(struct sequence *sequence, const int32_t *tokens, uint32_t count,
                            bool generated);

/* Whether pages and state are those of the sequence's tokens. */
bool prefix_bench_verify(const struct sequence *sequence);

#endif
