/* prefix_keep.c: what a sequence adds to the prefix cache. */
#include "state/prefix_node.h"

#include "base/status.h"
#include "state/prefix_disk.h"

/* A request of fewer tokens than SHORT_TOKENS behind the last checkpoint is short; a checkpoint
 * that saves fewer than LEAST_TOKENS is not worth its memory. */
enum { SHORT_TOKENS = 256, LEAST_TOKENS = 64 };

/* A sequence on its way into the tree. */
struct keeping {
    struct prefix_tree *tree;
    const struct sequence *sequence;
    uint32_t count;  /* of its tokens that are kept */
    bool pages;      /* and their pages */
    bool checkpoint; /* and its state */
    void *state;     /* a reference to it; NULL: it is not to be kept */
    double now;
};

/* ------------------------------------------------------------------- the path */

static uint32_t common_tokens(const struct prefix_node *node, const uint32_t *tokens,
                              uint32_t count)
{
    uint32_t most = (uint32_t)min_size(node->count, count), i = 0;
    while (i < most && node->tokens[i] == tokens[i]) i++;
    return i;
}

static bool has_checkpoint(const struct prefix_node *node, uint32_t position)
{
    const struct prefix_checkpoint *c = node->checkpoints;
    while (c && c->position > position) c = c->next;
    return c && c->position == position;
}

/* A child that begins with these tokens, or that they begin with.  Of several that go on in
 * different ways, one with a checkpoint there. */
static struct prefix_node *find_child(const struct prefix_node *parent, const uint32_t *tokens,
                                      uint32_t count)
{
    struct prefix_node *found = NULL;
    for (struct prefix_node *node = parent->first_child; node; node = node->next) {
        if (common_tokens(node, tokens, count) != min_size(node->count, count)) continue;
        if (has_checkpoint(node, node->first + count)) return node;
        if (!found) found = node;
    }
    return found;
}

/* What the tree knows of the way to the sequence's position, before it is added. */
struct survey {
    uint32_t asked;           /* how far requests have begun in the same way */
    uint32_t head;            /* position of the last PREFIX_HEAD */
    uint32_t last_checkpoint; /* before the position; 0: none */
};

static struct survey survey_path(const struct keeping *keeping)
{
    const struct sequence *sequence = keeping->sequence;
    struct survey survey = { 0 };
    const struct prefix_node *node = &keeping->tree->root;
    for (uint32_t first = 0; first < keeping->count; first += KV_PAGE_TOKENS) {
        uint32_t count = (uint32_t)min_size(KV_PAGE_TOKENS, keeping->count - first);
        node = find_child(node, sequence->tokens + first, count);
        if (!node) break;
        if (node->asked > 0) survey.asked = first + (uint32_t)min_size(node->asked, count);
        for (const struct prefix_checkpoint *c = node->checkpoints; c; c = c->next) {
            if (c->position >= sequence->position) continue;
            survey.last_checkpoint = (uint32_t)max_size(survey.last_checkpoint, c->position);
            if (c->place == PREFIX_HEAD) survey.head = (uint32_t)max_size(survey.head, c->position);
        }
    }
    return survey;
}

/* Whether a checkpoint pays.  The beginning of a short request must have been asked for before,
 * further than the head that all requests share. */
static bool pays(const struct keeping *keeping, enum prefix_place place)
{
    if (place == PREFIX_NO_PLACE) return false;
    if (place < PREFIX_LAST_USER) return true;
    struct survey survey = survey_path(keeping);
    uint32_t saved = keeping->sequence->position - survey.last_checkpoint;
    return saved >= SHORT_TOKENS || (saved >= LEAST_TOKENS && survey.asked > survey.head);
}

/* ---------------------------------------------------------------------- nodes */

static mf_status allocate(void **out, struct prefix_tree *tree, size_t bytes, mf_error *why)
{
    const mf_allocator *allocator = tree->pool->allocator;
    *out = allocator->allocate(allocator->user, bytes, CACHE_LINE);
    if (!*out) return fail_memory(why, bytes);
    memset(*out, 0, bytes);
    tree->table_bytes += bytes;
    tree->statistics.bytes += bytes;
    return MF_OK;
}

static mf_status add_child(struct prefix_node **out, struct keeping *keeping,
                           struct prefix_node *parent, mf_error *why)
{
    struct prefix_tree *tree = keeping->tree;
    void *memory;
    mf_status status = allocate(&memory, tree, sizeof **out, why);
    if (status != MF_OK) return status;
    struct prefix_node *node = memory;
    node->parent = parent;
    node->first = parent->first + parent->count;
    node->next = parent->first_child;
    if (node->next)
        node->next->previous = node;
    else
        prefix_unlink_leaf(tree, parent);
    parent->first_child = node;
    prefix_link_leaf(tree, node);
    tree->statistics.nodes++;
    *out = node;
    return MF_OK;
}

/* The sequence's page, where it holds more of the node than the tree's. */
static void keep_page(struct keeping *keeping, struct prefix_node *node, uint32_t count)
{
    struct prefix_tree *tree = keeping->tree;
    uint64_t bytes = state_block_bytes(&tree->pool->shape, BLOCK_PAGE);
    void *page = keeping->sequence->pages[node->first / KV_PAGE_TOKENS];
    state_pool_share(tree->pool, BLOCK_PAGE, page);
    if (node->page) {
        state_pool_drop(tree->pool, BLOCK_PAGE, node->page);
    } else {
        tree->statistics.bytes += bytes;
        tree->statistics.pages++;
        node->parent->paged_children++;
    }
    node->page = page;
    node->filled = count;
}

/* Bytes that keeping `count` tokens in the node adds; NULL: in a new one. */
static uint64_t bytes_for(const struct keeping *keeping, const struct prefix_node *node)
{
    uint64_t bytes = node ? 0 : sizeof *node;
    if (keeping->pages && !(node && node->page))
        bytes += state_block_bytes(&keeping->tree->pool->shape, BLOCK_PAGE);
    return bytes;
}

/* The next node of the path; *out is NULL where the limit does not allow it. */
static mf_status keep_node(struct prefix_node **out, struct keeping *keeping,
                           struct prefix_node *parent, mf_error *why)
{
    uint32_t first = parent->first + parent->count;
    uint32_t count = (uint32_t)min_size(KV_PAGE_TOKENS, keeping->count - first);
    const uint32_t *tokens = keeping->sequence->tokens + first;
    struct prefix_node *node = find_child(parent, tokens, count);
    mf_status status = MF_OK;
    *out = NULL;
    if (node) node->pinned = true; /* before room is made */
    if (!prefix_make_room(keeping->tree, bytes_for(keeping, node))) {
        if (node) node->pinned = false;
        return MF_OK;
    }
    if (!node) status = add_child(&node, keeping, parent, why);
    if (status != MF_OK) return status;
    node->pinned = true;
    if (count > node->count) {
        memcpy(node->tokens + node->count, tokens + node->count,
               (count - node->count) * sizeof *tokens);
        node->count = count;
        node->use.at = keeping->now;
    }
    if (keeping->pages && count > node->filled) keep_page(keeping, node, count);
    *out = node;
    return MF_OK;
}

/* Returns the last node of the path that was kept, which may be the root; all are pinned. */
static struct prefix_node *keep_path(struct keeping *keeping, mf_status *status, mf_error *why)
{
    struct prefix_node *node = &keeping->tree->root, *next = node;
    while (next && node->first + node->count < keeping->count) {
        *status = keep_node(&next, keeping, node, why);
        if (*status == MF_OK && next) node = next;
        if (*status != MF_OK) break;
    }
    return node;
}

static void unpin(struct prefix_node *node)
{
    for (; node; node = node->parent) node->pinned = false;
}

/* ---------------------------------------------------------------- checkpoints */

/* The safety net lies thinly: of three neighbours on the path the middle one, if it is of the net,
 * goes where the gap is then not longer than the way from there to the tip.  So distances double
 * backwards. */
static void thin_net(struct prefix_tree *tree, const struct prefix_checkpoint *tip)
{
    const struct prefix_checkpoint *newer = tip, *older;
    struct prefix_checkpoint *middle;
    while ((middle = prefix_checkpoint_before(newer)) &&
           (older = prefix_checkpoint_before(middle))) {
        bool near_enough = newer->position - older->position <= tip->position - newer->position;
        if (middle->place == PREFIX_NET && near_enough)
            prefix_drop_checkpoint(tree, middle); /* its page is needed further down */
        else
            newer = middle;
    }
}

static mf_status keep_checkpoint(struct keeping *keeping, struct prefix_node *node,
                                 enum prefix_place place, mf_error *why)
{
    struct prefix_tree *tree = keeping->tree;
    uint64_t block = prefix_checkpoint_bytes(tree);
    uint32_t position = keeping->sequence->position;
    struct prefix_checkpoint **at = &node->checkpoints, *checkpoint;
    for (; *at && (*at)->position >= position; at = &(*at)->next) {
        if ((*at)->position > position) continue;
        if (place < (*at)->place) (*at)->place = place;
        return MF_OK;
    }
    if (!prefix_make_room(tree, block + sizeof *checkpoint)) {
        tree->statistics.refused++;
        return MF_OK;
    }
    void *memory;
    mf_status status = allocate(&memory, tree, sizeof *checkpoint, why);
    if (status != MF_OK) return status;
    checkpoint = memory;
    *checkpoint = (struct prefix_checkpoint){ .node = node,
                                              .next_of_tree = tree->checkpoints,
                                              .position = position,
                                              .place = place,
                                              .use = { .at = keeping->now } };
    checkpoint->recurrent = state_pool_share(tree->pool, BLOCK_RECURRENT, keeping->state);
    if (tree->checkpoints) tree->checkpoints->previous_of_tree = checkpoint;
    tree->checkpoints = checkpoint;
    /* Room was made meanwhile, perhaps with a neighbour. */
    for (at = &node->checkpoints; *at && (*at)->position > position;) at = &(*at)->next;
    checkpoint->next = *at;
    *at = checkpoint;
    tree->statistics.bytes += block;
    tree->statistics.checkpoints++;
    tree->statistics.checkpoints_kept++;
    if (place == PREFIX_NET) thin_net(tree, checkpoint);
    return MF_OK;
}

/* --------------------------------------------------------------------- keeping */

/* Tokens up to the first generated one. */
static uint32_t prompt_length(const struct sequence *sequence)
{
    uint32_t i = 0;
    while (i < sequence->position && !(sequence->tokens[i] & TOKEN_GENERATED)) i++;
    return i;
}

/* The bytes of the whole path with its checkpoint are within the limit. */
static bool can_fit(const struct keeping *keeping)
{
    const struct state_shape *shape = &keeping->tree->pool->shape;
    uint64_t page = shape->cached_layers > 0 ? state_block_bytes(shape, BLOCK_PAGE) : 0;
    uint64_t path = state_pages_for(keeping->count) * (page + sizeof(struct prefix_node));
    return path + prefix_checkpoint_bytes(keeping->tree) + sizeof(struct prefix_checkpoint) <=
           keeping->tree->options.limit_bytes;
}

/* Under the lock. */
static mf_status keep(struct keeping *keeping, enum prefix_place place, mf_error *why)
{
    struct prefix_tree *tree = keeping->tree;
    const struct sequence *sequence = keeping->sequence;
    bool needed = prefix_needs_checkpoints(tree), checkpoint = needed && keeping->state;
    mf_status status = MF_OK;
    keeping->count = sequence->position;
    if (tree->options.exact) {
        /* What follows a generated token serves no request; its own page says why. */
        uint32_t prompt = prompt_length(sequence);
        checkpoint &= prompt == sequence->position;
        keeping->count =
            (uint32_t)min_size(sequence->position, align_up((uint64_t)prompt + 1, KV_PAGE_TOKENS));
    }
    checkpoint = checkpoint && pays(keeping, place);
    if (checkpoint && !can_fit(keeping)) {
        tree->statistics.refused++;
        checkpoint = false;
    }
    keeping->checkpoint = checkpoint;
    keeping->pages = prefix_has_pages(tree) && (checkpoint || !needed);
    struct prefix_node *last = keep_path(keeping, &status, why);
    if (status == MF_OK && checkpoint) {
        if (last->first + last->count >= sequence->position)
            status = keep_checkpoint(keeping, last, place, why);
        else
            tree->statistics.refused++;
    }
    unpin(last);
    if (needed) prefix_drop_dead(tree, last);
    return status;
}

/* Takes the lock; *keeping says what came of it. */
static mf_status keep_locked(struct keeping *keeping, struct prefix_tree *tree,
                             const struct sequence *sequence, enum prefix_place place,
                             mf_error *why)
{
    *keeping = (struct keeping){ .tree = tree, .sequence = sequence };
    /* Before the lock, because it may take a block from the pool; without it only tokens are kept. */
    if (place != PREFIX_NO_PLACE) sequence_state(&keeping->state, sequence, NULL);
    pthread_mutex_lock(&tree->lock);
    keeping->now = clock_now(tree->options.clock);
    mf_status status = keep(keeping, place, why);
    pthread_mutex_unlock(&tree->lock);
    return status;
}

mf_status prefix_keep_in_memory(struct prefix_tree *tree, const struct sequence *sequence,
                                enum prefix_place place, mf_error *why)
{
    struct keeping keeping;
    mf_status status = keep_locked(&keeping, tree, sequence, place, why);
    state_pool_drop(tree->pool, BLOCK_RECURRENT, keeping.state);
    return status;
}

mf_status prefix_tree_keep(struct prefix_tree *tree, const struct sequence *sequence,
                           enum prefix_place place, mf_error *why)
{
    struct keeping keeping;
    if (sequence->position == 0) return MF_OK;
    mf_status status = keep_locked(&keeping, tree, sequence, place, why);
    if (status == MF_OK && tree->options.disk && keeping.pages)
        prefix_disk_keep(tree->options.disk, sequence, keeping.count,
                         keeping.checkpoint ? keeping.state : NULL, place);
    state_pool_drop(tree->pool, BLOCK_RECURRENT, keeping.state);
    return status;
}
