/* prefix_check.c: the invariants of the prefix cache. */
#include "state/prefix_node.h"

/* What the statistics must be. */
struct sums {
    uint32_t nodes, pages, checkpoints, leaves;
    uint64_t table_bytes;
};

static bool check_checkpoints(struct sums *sums, const struct prefix_tree *tree,
                              const struct prefix_node *node)
{
    uint32_t below = node->first + prefix_filled(tree, node) + 1;
    bool fits = prefix_needs_checkpoints(tree) || !node->checkpoints;
    for (const struct prefix_checkpoint *c = node->checkpoints; c; c = c->next) {
        fits = fits && c->node == node && c->recurrent && c->position > node->first &&
               c->position < below;
        below = c->position;
        sums->checkpoints++;
        sums->table_bytes += sizeof *c;
    }
    return fits;
}

/* No sibling is the beginning of another; the links lead back. */
static bool check_siblings(const struct prefix_node *node)
{
    for (const struct prefix_node *other = node->next; other; other = other->next) {
        size_t count = min_size(node->count, other->count);
        if (memcmp(node->tokens, other->tokens, count * sizeof *node->tokens) == 0) return false;
    }
    return node->previous ? node->previous->next == node : node->parent->first_child == node;
}

static bool check_page(struct sums *sums, const struct prefix_tree *tree,
                       const struct prefix_node *node)
{
    bool needed = !prefix_needs_checkpoints(tree) || node->checkpoints || node->paged_children > 0;
    uint32_t paged = 0;
    for (const struct prefix_node *child = node->first_child; child; child = child->next)
        paged += child->page != NULL;
    sums->pages += node->page != NULL;
    return paged == node->paged_children && (node->page != NULL) == (node->filled > 0) &&
           (node->page != NULL) == (prefix_has_pages(tree) && needed) &&
           node->filled <= node->count && (paged == 0 || node->filled == KV_PAGE_TOKENS);
}

static bool check_node(struct sums *sums, const struct prefix_tree *tree,
                       const struct prefix_node *node)
{
    sums->nodes++;
    sums->leaves += !node->first_child;
    sums->table_bytes += sizeof *node;
    return node->count > 0 && node->count <= KV_PAGE_TOKENS && !node->pinned &&
           node->first == node->parent->first + node->parent->count &&
           (!node->first_child || node->count == KV_PAGE_TOKENS) && node->asked <= node->count &&
           check_siblings(node) && check_page(sums, tree, node) &&
           check_checkpoints(sums, tree, node);
}

/* Every leaf and every checkpoint is in the list of the tree. */
static bool check_lists(const struct prefix_tree *tree, const struct sums *sums)
{
    uint32_t leaves = 0, checkpoints = 0;
    for (const struct prefix_node *node = tree->leaves; node; node = node->next_leaf)
        leaves += !node->first_child;
    for (const struct prefix_checkpoint *c = tree->checkpoints; c; c = c->next_of_tree)
        checkpoints += !c->next_of_tree || c->next_of_tree->previous_of_tree == c;
    return leaves == sums->leaves && checkpoints == sums->checkpoints;
}

static bool check_sums(const struct prefix_tree *tree, const struct sums *sums)
{
    const struct prefix_statistics *statistics = &tree->statistics;
    uint64_t pages = state_block_bytes(&tree->pool->shape, BLOCK_PAGE) * sums->pages;
    uint64_t states = prefix_checkpoint_bytes(tree) * sums->checkpoints;
    return statistics->nodes == sums->nodes && statistics->pages == sums->pages &&
           statistics->checkpoints == sums->checkpoints && tree->table_bytes == sums->table_bytes &&
           statistics->bytes == pages + states + sums->table_bytes &&
           statistics->bytes <= tree->options.limit_bytes;
}

bool prefix_tree_check_invariants(struct prefix_tree *tree)
{
    struct sums sums = { 0 };
    bool holds = true;
    pthread_mutex_lock(&tree->lock);
    const struct prefix_node *node = tree->root.first_child;
    while (node && holds) {
        holds = check_node(&sums, tree, node);
        if (node->first_child) {
            node = node->first_child;
            continue;
        }
        while (node && !node->next) node = node->parent;
        if (node) node = node->next;
    }
    holds = holds && check_lists(tree, &sums) && check_sums(tree, &sums);
    pthread_mutex_unlock(&tree->lock);
    return holds;
}
