/* prefix_evict.c: what goes when the prefix cache is full.
 *
 *     value = expected reuse × tokens saved over the next cheaper ancestor ÷ bytes
 *
 * Expected reuse is the number of hits, and one for hope, with a half-life.  Tokens stand for the
 * time of their prefill: of one model, each costs about the same.  Everything fades at the same
 * rate, so the order does not depend on the present time, and is computed with logarithms.
 *
 * With recurrent layers or windows a checkpoint is evicted, and with it the pages that only it needed;
 * without, the page of a leaf.  Tokens without a page go when tables take too much. */
#include "state/prefix_node.h"

#include "state/prefix_disk.h"

#include <math.h>

/* Seconds after which a hit counts half. */
static const double HALF_LIFE = 6 * 3600;

/* The part of the limit that tables may have before tokens without a page go first. */
enum { TABLE_SHARE = 16 };

void prefix_use_again(struct prefix_use *use, double now)
{
    use->hits = use->hits * exp2((use->at - now) / HALF_LIFE) + 1;
    use->at = now;
}

/* The logarithm of the value, but for what all have in common. */
static double log_value(const struct prefix_use *use, uint32_t tokens, uint64_t bytes)
{
    return log2((use->hits + 1) * (double)tokens / (double)bytes) + use->at / HALF_LIFE;
}

/* --------------------------------------------------------------------- lists */

void prefix_link_leaf(struct prefix_tree *tree, struct prefix_node *node)
{
    if (node == &tree->root) return;
    node->previous_leaf = NULL;
    node->next_leaf = tree->leaves;
    if (tree->leaves) tree->leaves->previous_leaf = node;
    tree->leaves = node;
}

void prefix_unlink_leaf(struct prefix_tree *tree, struct prefix_node *node)
{
    if (node == &tree->root) return;
    if (node->next_leaf) node->next_leaf->previous_leaf = node->previous_leaf;
    if (node->previous_leaf)
        node->previous_leaf->next_leaf = node->next_leaf;
    else
        tree->leaves = node->next_leaf;
    node->previous_leaf = node->next_leaf = NULL;
}

static void release(struct prefix_tree *tree, void *memory, size_t bytes)
{
    const mf_allocator *allocator = tree->pool->allocator;
    allocator->release(allocator->user, memory, bytes);
    tree->table_bytes -= bytes;
    tree->statistics.bytes -= bytes;
}

/* -------------------------------------------------------------------- drops */

void prefix_drop_page(struct prefix_tree *tree, struct prefix_node *node)
{
    if (!node->page) return;
    tree->statistics.bytes -= state_block_bytes(&tree->pool->shape, BLOCK_PAGE);
    state_pool_drop(tree->pool, BLOCK_PAGE, node->page);
    node->page = NULL;
    node->filled = 0;
    node->parent->paged_children--;
    tree->statistics.pages--;
}

void prefix_drop_checkpoint(struct prefix_tree *tree, struct prefix_checkpoint *checkpoint)
{
    struct prefix_checkpoint **at = &checkpoint->node->checkpoints;
    while (*at != checkpoint) at = &(*at)->next;
    *at = checkpoint->next;
    if (checkpoint->next_of_tree)
        checkpoint->next_of_tree->previous_of_tree = checkpoint->previous_of_tree;
    if (checkpoint->previous_of_tree)
        checkpoint->previous_of_tree->next_of_tree = checkpoint->next_of_tree;
    else
        tree->checkpoints = checkpoint->next_of_tree;
    tree->statistics.bytes -= prefix_checkpoint_bytes(tree);
    state_pool_drop(tree->pool, BLOCK_RECURRENT, checkpoint->recurrent);
    tree->statistics.checkpoints--;
    release(tree, checkpoint, sizeof *checkpoint);
}

void prefix_drop_node(struct prefix_tree *tree, struct prefix_node *node)
{
    struct prefix_node *parent = node->parent;
    while (node->checkpoints) prefix_drop_checkpoint(tree, node->checkpoints);
    prefix_drop_page(tree, node);
    if (node->next) node->next->previous = node->previous;
    if (node->previous)
        node->previous->next = node->next;
    else
        parent->first_child = node->next;
    prefix_unlink_leaf(tree, node);
    if (!parent->first_child) prefix_link_leaf(tree, parent);
    tree->statistics.nodes--;
    release(tree, node, sizeof *node);
}

/* Whether only the checkpoint `but` needs the page; NULL: none. */
static bool is_dead_without(const struct prefix_node *node, const struct prefix_checkpoint *but)
{
    bool other = node->checkpoints && (node->checkpoints != but || node->checkpoints->next);
    return node->page && !node->pinned && !other && node->paged_children == 0;
}

void prefix_drop_dead(struct prefix_tree *tree, struct prefix_node *node)
{
    while (node != &tree->root && !node->page) node = node->parent;
    for (; node != &tree->root && is_dead_without(node, NULL); node = node->parent) {
        prefix_drop_page(tree, node);
        tree->statistics.pages_evicted++;
    }
}

/* ------------------------------------------------------------------- values */

/* What evicting something gives back, and what it is worth. */
struct gain {
    uint64_t bytes;
    uint64_t unshared_bytes; /* that no sequence holds */
    double log_value;
};

static void gain_page(struct gain *gain, struct state_pool *pool, void *page)
{
    gain->bytes += state_block_bytes(&pool->shape, BLOCK_PAGE);
    gain->unshared_bytes += state_pool_unshared_bytes(pool, BLOCK_PAGE, page);
}

struct prefix_checkpoint *prefix_checkpoint_before(const struct prefix_checkpoint *checkpoint)
{
    if (checkpoint->next) return checkpoint->next;
    const struct prefix_node *node = checkpoint->node->parent;
    while (node && !node->checkpoints) node = node->parent;
    return node ? node->checkpoints : NULL;
}

static struct gain gain_of_checkpoint(const struct prefix_tree *tree,
                                      const struct prefix_checkpoint *checkpoint)
{
    struct gain gain = { 0 };
    const struct prefix_node *node = checkpoint->node;
    gain.bytes = prefix_checkpoint_bytes(tree);
    gain.unshared_bytes =
        state_pool_unshared_bytes(tree->pool, BLOCK_RECURRENT, checkpoint->recurrent);
    if (is_dead_without(node, checkpoint)) {
        /* From here upwards every page has the one below as its only child with a page. */
        do {
            gain_page(&gain, tree->pool, node->page);
            node = node->parent;
        } while (node != &tree->root && !node->pinned && !node->checkpoints &&
                 node->paged_children == 1);
    }
    const struct prefix_checkpoint *before = prefix_checkpoint_before(checkpoint);
    uint32_t saved = checkpoint->position - (before ? before->position : 0);
    gain.log_value = log_value(&checkpoint->use, saved, gain.bytes);
    return gain;
}

static uint64_t evict_checkpoint(struct prefix_tree *tree, bool unshared)
{
    struct prefix_checkpoint *worst = NULL;
    struct gain least = { 0 };
    for (struct prefix_checkpoint *c = tree->checkpoints; c; c = c->next_of_tree) {
        struct gain gain = gain_of_checkpoint(tree, c);
        if (unshared && gain.unshared_bytes == 0) continue;
        if (worst && gain.log_value >= least.log_value) continue;
        worst = c;
        least = gain;
    }
    if (!worst) return 0;
    struct prefix_node *node = worst->node;
    prefix_drop_checkpoint(tree, worst);
    prefix_drop_dead(tree, node);
    tree->statistics.checkpoints_evicted++;
    return unshared ? least.unshared_bytes : least.bytes;
}

static uint64_t evict_leaf(struct prefix_tree *tree, bool unshared)
{
    struct prefix_node *worst = NULL;
    struct gain least = { 0 };
    for (struct prefix_node *node = tree->leaves; node; node = node->next_leaf) {
        struct gain gain = { 0 };
        if (node->pinned) continue;
        gain_page(&gain, tree->pool, node->page);
        gain.log_value = log_value(&node->use, node->count, gain.bytes);
        if (unshared && gain.unshared_bytes == 0) continue;
        if (worst && gain.log_value >= least.log_value) continue;
        worst = node;
        least = gain;
    }
    if (!worst) return 0;
    prefix_drop_node(tree, worst);
    tree->statistics.pages_evicted++;
    return unshared ? least.unshared_bytes : least.bytes;
}

/* Forgets the tokens that were of use longest ago, where they are all that a leaf has. */
static bool evict_tokens(struct prefix_tree *tree)
{
    struct prefix_node *oldest = NULL;
    for (struct prefix_node *node = tree->leaves; node; node = node->next_leaf) {
        if (node->page || node->checkpoints || node->pinned) continue;
        if (!oldest || node->use.at < oldest->use.at) oldest = node;
    }
    if (oldest) prefix_drop_node(tree, oldest);
    return oldest != NULL;
}

/* The bytes given back; 0: nothing can go. */
static uint64_t evict_blocks(struct prefix_tree *tree, bool unshared)
{
    return prefix_needs_checkpoints(tree) ? evict_checkpoint(tree, unshared)
                                          : evict_leaf(tree, unshared);
}

bool prefix_make_room(struct prefix_tree *tree, uint64_t bytes)
{
    uint64_t limit = tree->options.limit_bytes;
    uint64_t tables = min_size(limit, state_pool_sizes(tree->pool).limit_bytes) / TABLE_SHARE;
    if (bytes > limit) return false;
    while (tree->table_bytes > tables && evict_tokens(tree)) {
    }
    while (tree->statistics.bytes > limit - bytes)
        if (!evict_blocks(tree, false) && !evict_tokens(tree)) return false;
    return true;
}

static uint64_t evict_unshared(struct prefix_tree *tree, uint64_t bytes)
{
    uint64_t given = 0, more = 1;
    pthread_mutex_lock(&tree->lock);
    for (; given < bytes && more > 0; given += more) more = evict_blocks(tree, true);
    pthread_mutex_unlock(&tree->lock);
    return given;
}

uint64_t prefix_reclaim(void *user, uint64_t bytes)
{
    struct prefix_tree *tree = user;
    uint64_t given = evict_unshared(tree, bytes);
    /* Blocks that are being written are shared until that is done; those that the tree has dropped
     * meanwhile are free then. */
    if (given == 0 && tree->options.disk && prefix_disk_wait(tree->options.disk))
        given = max_size(evict_unshared(tree, bytes), 1);
    return given;
}
