/* prefix_tree.c: the tree itself, and what a request finds in it. */
#include "state/prefix_node.h"

#include "base/status.h"
#include "state/prefix_disk.h"

mf_status prefix_tree_new(struct prefix_tree **out, struct state_pool *pool,
                          const struct prefix_options *options, mf_error *why)
{
    const mf_allocator *allocator = pool->allocator;
    struct prefix_tree *tree = allocator->allocate(allocator->user, sizeof *tree, CACHE_LINE);
    *out = NULL;
    if (!tree) return fail_memory(why, sizeof *tree);
    *tree = (struct prefix_tree){ .pool = pool, .options = *options };
    if (tree->options.limit_bytes == 0) tree->options.limit_bytes = UINT64_MAX;
    pthread_mutex_init(&tree->lock, NULL);
    state_pool_set_reclaim(pool, prefix_reclaim, tree);
    *out = tree;
    return MF_OK;
}

void prefix_tree_clear(struct prefix_tree *tree)
{
    pthread_mutex_lock(&tree->lock);
    while (tree->leaves) prefix_drop_node(tree, tree->leaves);
    pthread_mutex_unlock(&tree->lock);
}

void prefix_tree_free(struct prefix_tree *tree)
{
    if (!tree) return;
    const mf_allocator *allocator = tree->pool->allocator;
    state_pool_set_reclaim(tree->pool, NULL, NULL);
    prefix_tree_clear(tree);
    pthread_mutex_destroy(&tree->lock);
    allocator->release(allocator->user, tree, sizeof *tree);
}

struct prefix_statistics prefix_tree_statistics(struct prefix_tree *tree)
{
    pthread_mutex_lock(&tree->lock);
    struct prefix_statistics statistics = tree->statistics;
    pthread_mutex_unlock(&tree->lock);
    return statistics;
}

uint64_t prefix_tree_unshared_bytes(struct prefix_tree *tree)
{
    uint64_t bytes = 0;
    pthread_mutex_lock(&tree->lock);
    for (const struct prefix_node *node = tree->root.first_child; node;) {
        bytes += state_pool_unshared_bytes(tree->pool, BLOCK_PAGE, node->page);
        if (node->first_child) {
            node = node->first_child;
            continue;
        }
        while (node && !node->next) node = node->parent;
        if (node) node = node->next;
    }
    for (const struct prefix_checkpoint *c = tree->checkpoints; c; c = c->next_of_tree)
        bytes += state_pool_unshared_bytes(tree->pool, BLOCK_RECURRENT, c->recurrent);
    pthread_mutex_unlock(&tree->lock);
    return bytes;
}

void prefix_tree_reset_statistics(struct prefix_tree *tree)
{
    pthread_mutex_lock(&tree->lock);
    struct prefix_statistics *statistics = &tree->statistics;
    *statistics = (struct prefix_statistics){ .bytes = statistics->bytes,
                                              .nodes = statistics->nodes,
                                              .pages = statistics->pages,
                                              .checkpoints = statistics->checkpoints };
    pthread_mutex_unlock(&tree->lock);
}

/* -------------------------------------------------------------------- lookup */

/* What a request asks for, and the best that was found so far. */
struct lookup {
    const struct prefix_tree *tree;
    const int32_t *tokens;
    uint32_t count;
    struct prefix_node *deepest; /* node of the longest match; NULL: none */
    struct prefix_match match;
    struct prefix_node *resume;           /* node to resume in; NULL: none */
    struct prefix_checkpoint *checkpoint; /* of it; NULL: no recurrent layers */
};

/* How many tokens of the node the request continues with, and why no more. */
static uint32_t match_node(enum prefix_reason *reason, const struct lookup *lookup,
                           const struct prefix_node *node)
{
    uint32_t most = (uint32_t)min_size(node->count, lookup->count - node->first), i;
    const int32_t *tokens = lookup->tokens + node->first;
    *reason = node->first + most == lookup->count ? PREFIX_WHOLE : PREFIX_ENDS;
    for (i = 0; i < most; i++) {
        uint32_t token = node->tokens[i];
        if ((token & ~TOKEN_GENERATED) != (uint32_t)tokens[i]) {
            *reason = PREFIX_DIFFERS;
            break;
        }
        if (lookup->tree->options.exact && (token & TOKEN_GENERATED)) {
            *reason = PREFIX_GENERATED;
            break;
        }
    }
    return i;
}

/* Where the request can be resumed within the first `matched` tokens of the node. */
static void note_resume(struct lookup *lookup, struct prefix_node *node, uint32_t matched)
{
    uint32_t usable = (uint32_t)min_size(matched, prefix_filled(lookup->tree, node));
    uint32_t end = node->first + usable;
    if (!prefix_needs_checkpoints(lookup->tree)) {
        if (end <= lookup->match.resumed) return;
        lookup->match.resumed = end;
        lookup->resume = node;
        return;
    }
    for (struct prefix_checkpoint *c = node->checkpoints; c; c = c->next) {
        if (c->position > end) continue;
        if (c->position > lookup->match.resumed) {
            lookup->match.resumed = c->position;
            lookup->resume = node;
            lookup->checkpoint = c;
        }
        return;
    }
}

/* True: all of the node's tokens match, and the request goes on. */
static bool visit(struct lookup *lookup, struct prefix_node *node)
{
    struct prefix_match *match = &lookup->match;
    enum prefix_reason reason;
    uint32_t matched = match_node(&reason, lookup, node), end = node->first + matched;
    if (end > match->matched) {
        match->matched = end;
        match->reason = reason;
        lookup->deepest = node;
    } else if (end == match->matched && reason > match->reason) {
        match->reason = reason; /* two ways end here: the one that says more */
    }
    if (matched > 0) note_resume(lookup, node, matched);
    return matched == node->count && end < lookup->count;
}

/* Visits all nodes that the request passes: it may take several ways, because a generated token
 * and one of a prompt are different ones, and siblings may begin with the same tokens. */
static void find(struct lookup *lookup, struct prefix_tree *tree)
{
    struct prefix_node *node = lookup->count > 0 ? tree->root.first_child : NULL;
    while (node) {
        if (visit(lookup, node) && node->first_child) {
            node = node->first_child;
            continue;
        }
        while (node && !node->next) node = node->parent;
        if (node) node = node->next;
    }
}

/* ------------------------------------------------------------------- resuming */

/* Fills in the tokens and pages of the path to the node of the lookup. */
static mf_status adopt(struct sequence *sequence, const struct lookup *lookup, mf_error *why)
{
    struct state_pool *pool = sequence->pool;
    const struct prefix_checkpoint *checkpoint = lookup->checkpoint;
    uint32_t count = lookup->match.resumed;
    mf_status status = sequence_make_tables(sequence, count, why);
    if (status != MF_OK) return status;
    for (const struct prefix_node *node = lookup->resume; node->parent; node = node->parent) {
        size_t used = min_size(node->count, count - node->first);
        memcpy(sequence->tokens + node->first, node->tokens, used * sizeof *node->tokens);
        if (node->page)
            sequence->pages[node->first / KV_PAGE_TOKENS] =
                state_pool_share(pool, BLOCK_PAGE, node->page);
    }
    sequence->page_count = prefix_has_pages(lookup->tree) ? state_pages_for(count) : 0;
    void *kept = checkpoint ? checkpoint->recurrent : NULL;
    status = sequence_adopt(sequence, count, state_pool_share(pool, BLOCK_RECURRENT, kept), why);
    if (status != MF_OK) sequence_abandon(sequence);
    return status;
}

/* A stretch that a second request begins with, too long to be replayed again and again. */
static void choose_junction(struct prefix_match *match, const struct prefix_tree *tree)
{
    if (prefix_needs_checkpoints(tree) && match->matched >= match->resumed + KV_PAGE_TOKENS)
        match->junction = match->matched;
}

/* Remembers what was asked for, and refreshes what has served: no ancestor of it. */
static void count_lookup(struct prefix_tree *tree, const struct lookup *lookup)
{
    struct prefix_statistics *statistics = &tree->statistics;
    double now = clock_now(tree->options.clock);
    uint32_t matched = lookup->match.matched;
    for (struct prefix_node *node = lookup->deepest; node && node->parent; node = node->parent)
        node->asked = (uint32_t)max_size(node->asked, min_size(node->count, matched - node->first));
    if (lookup->checkpoint)
        prefix_use_again(&lookup->checkpoint->use, now);
    else if (lookup->resume)
        prefix_use_again(&lookup->resume->use, now);
    if (lookup->deepest) lookup->deepest->use.at = now; /* of tokens without a page */
    statistics->lookups++;
    statistics->asked_tokens += lookup->count;
    statistics->matched_tokens += matched;
    statistics->resumed_tokens += lookup->match.resumed;
}

/* Reads into the tree what only the disk has of the request. */
static void read_from_disk(struct prefix_tree *tree, const struct lookup *request)
{
    const struct prefix_disk *disk = tree->options.disk;
    struct lookup known = *request;
    struct sequence sequence;
    enum prefix_place place;
    pthread_mutex_lock(&tree->lock);
    find(&known, tree);
    pthread_mutex_unlock(&tree->lock);
    if (known.match.resumed == request->count) return;
    sequence_init(&sequence, tree->pool, request->count);
    if (prefix_disk_load(&sequence, &place, disk, request->tokens, request->count,
                         known.match.resumed, tree->options.exact)) {
        /* It paid once: it is not asked again whether it does. */
        if (place == PREFIX_NO_PLACE || place > PREFIX_JUNCTION) place = PREFIX_JUNCTION;
        prefix_keep_in_memory(tree, &sequence, place, NULL);
    }
    sequence_free(&sequence);
}

mf_status prefix_tree_resume(struct prefix_match *out, struct prefix_tree *tree,
                             struct sequence *sequence, const int32_t *tokens, uint32_t count,
                             mf_error *why)
{
    struct lookup lookup = { .tree = tree,
                             .tokens = tokens,
                             .count = (uint32_t)min_size(count, sequence->capacity) };
    mf_status status = MF_OK;
    *out = (struct prefix_match){ 0 };
    if (lookup.count == 0) lookup.match.reason = PREFIX_WHOLE;
    if (sequence->position > 0)
        return fail(why, MF_ERR_ARGUMENT, "the sequence holds %u tokens, and must be empty",
                    sequence->position);
    sequence_clear(sequence); /* also of a checkpoint at its beginning */
    if (tree->options.disk && lookup.count > 0) read_from_disk(tree, &lookup);
    pthread_mutex_lock(&tree->lock);
    find(&lookup, tree);
    if (lookup.resume) status = adopt(sequence, &lookup, why);
    if (status == MF_OK) {
        choose_junction(&lookup.match, tree);
        count_lookup(tree, &lookup);
        *out = lookup.match;
    }
    pthread_mutex_unlock(&tree->lock);
    if (status == MF_OK && tree->options.disk && sequence->position > 0)
        prefix_disk_touch(tree->options.disk, sequence);
    return status;
}
