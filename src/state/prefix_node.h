/* prefix_node.h: what the files of the prefix cache share: its nodes, their lists, and eviction.
 *
 *     prefix_tree.c    lookup
 *     prefix_keep.c    what a sequence adds
 *     prefix_evict.c   what goes
 *     prefix_check.c   invariants, for tests
 *
 * All functions here are called with the tree's lock held. */
#ifndef STATE_PREFIX_NODE_H
#define STATE_PREFIX_NODE_H

#include "state/prefix.h"

/* How often, and when last, a part of the tree has served a request. */
struct prefix_use {
    double hits; /* at the time `at`; they fade with age */
    double at;   /* seconds */
};

struct prefix_checkpoint {
    struct prefix_node *node;
    struct prefix_checkpoint *next; /* of the node, by position, descending */
    struct prefix_checkpoint *previous_of_tree, *next_of_tree;
    uint32_t position; /* first < position <= first + filled, of the node */
    enum prefix_place place;
    struct prefix_use use;
    void *recurrent; /* or the table of a window */
};

struct prefix_node {
    struct prefix_node *parent, *first_child, *previous, *next; /* siblings */
    struct prefix_node *previous_leaf, *next_leaf; /* of the tree, where there is no child */
    struct prefix_checkpoint *checkpoints;
    struct prefix_use use;
    void *page;                      /* NULL: none is kept */
    uint32_t first;                  /* position of tokens[0]: a multiple of 64 */
    uint32_t count;                  /* tokens; less than 64: a leaf */
    uint32_t filled;                 /* of them, those that the page holds */
    uint32_t asked;                  /* of them, the most that a request has begun with */
    uint32_t paged_children;         /* children with a page */
    bool pinned;                     /* on the path that is being kept: its page stays */
    uint32_t tokens[KV_PAGE_TOKENS]; /* with TOKEN_GENERATED */
};

struct prefix_tree {
    struct state_pool *pool;
    struct prefix_options options;
    pthread_mutex_t lock;    /* of all that follows; taken before the pool's */
    struct prefix_node root; /* without tokens */
    struct prefix_node *leaves;
    struct prefix_checkpoint *checkpoints;
    uint64_t table_bytes; /* of nodes and checkpoints; the rest of statistics.bytes is blocks */
    struct prefix_statistics statistics;
};

/* Whether only checkpoints can be resumed. */
static inline bool prefix_needs_checkpoints(const struct prefix_tree *tree)
{
    return state_is_kept(&tree->pool->shape);
}

/* What a checkpoint counts for: windows with all their pages, also where others hold them, too. */
static inline uint64_t prefix_checkpoint_bytes(const struct prefix_tree *tree)
{
    const struct state_shape *shape = &tree->pool->shape;
    uint64_t windows = shape->window_layers > 0 ? shape->window_pages : 0;
    return state_block_bytes(shape, BLOCK_RECURRENT) +
           windows * state_block_bytes(shape, BLOCK_WINDOW);
}

static inline bool prefix_has_pages(const struct prefix_tree *tree)
{
    return tree->pool->shape.cached_layers > 0;
}

/* The part of the node that can be resumed, as far as pages decide it. */
static inline uint32_t prefix_filled(const struct prefix_tree *tree, const struct prefix_node *node)
{
    return prefix_has_pages(tree) ? node->filled : node->count;
}

/* The nearest checkpoint before this one on its path; NULL: none. */
struct prefix_checkpoint *prefix_checkpoint_before(const struct prefix_checkpoint *checkpoint);

/* prefix_tree_keep without the disk; without the lock. */
mf_status prefix_keep_in_memory(struct prefix_tree *tree, const struct sequence *sequence,
                                enum prefix_place place, mf_error *why);

/* One use more, now. */
void prefix_use_again(struct prefix_use *use, double now);

/* ------------------------------------------------------------------ eviction */

/* Evicts until `bytes` more are within the limit; false: they never will be. */
bool prefix_make_room(struct prefix_tree *tree, uint64_t bytes);

/* For the pool, of the tree `user`: drops blocks that no sequence holds, up to `bytes` of them. */
uint64_t prefix_reclaim(void *user, uint64_t bytes);

void prefix_drop_checkpoint(struct prefix_tree *tree, struct prefix_checkpoint *checkpoint);
void prefix_drop_page(struct prefix_tree *tree, struct prefix_node *node);

/* Of a leaf, with its page and checkpoints. */
void prefix_drop_node(struct prefix_tree *tree, struct prefix_node *node);

/* With recurrent layers: drops the pages from the node upwards that no checkpoint needs. */
void prefix_drop_dead(struct prefix_tree *tree, struct prefix_node *node);

/* Adds the node as a leaf, or takes it out of the leaves. */
void prefix_link_leaf(struct prefix_tree *tree, struct prefix_node *node);
void prefix_unlink_leaf(struct prefix_tree *tree, struct prefix_node *node);

#endif
