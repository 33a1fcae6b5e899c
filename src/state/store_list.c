/* store_list.c: the records of a store in the order of their texts, for people. */
#include "state/store_internal.h"

struct walk {
    const struct cache_store *store;
    const char *label;
    cache_list_function function;
    void *user;
};

static void show(const struct walk *walk, const struct entry *entry, uint32_t depth)
{
    struct cache_listed listed = { .label = walk->label,
                                   .record = &entry->record,
                                   .depth = depth,
                                   .file_bytes = entry_file_bytes(entry),
                                   .missing = walk->store->look_only && !entry->found };
    walk->function(walk->user, &listed);
}

/* The first page among its siblings that the checkpoint lies in; NULL: none is there. */
static const struct entry *home_of(const struct entry *checkpoint)
{
    const struct entry *page = checkpoint->parent->children;
    while (page && !entry_lies_in(checkpoint, page)) page = page->next;
    return page;
}

static void show_checkpoints(const struct walk *walk, const struct entry *parent,
                             const struct entry *page, uint32_t depth)
{
    for (const struct entry *entry = parent->children; entry; entry = entry->next)
        if (entry->record.kind == CACHE_CHECKPOINT && entry->state == ENTRY_STORED &&
            home_of(entry) == page)
            show(walk, entry, depth);
}

/* The pages below `top`; the walk goes down and back by links, because texts are long. */
static void walk_tree(const struct walk *walk, const struct entry *top)
{
    uint32_t depth = 0;
    show_checkpoints(walk, top, NULL, 0);
    for (const struct entry *entry = top->children; entry;) {
        bool page = entry->record.kind == CACHE_PAGE && entry->state == ENTRY_STORED;
        if (page) {
            show(walk, entry, depth);
            show_checkpoints(walk, entry->parent, entry, depth + 1);
            show_checkpoints(walk, entry, NULL, depth + 1);
        }
        if (page && entry->children) {
            entry = entry->children;
            depth++;
            continue;
        }
        while (!entry->next && entry->parent != top) {
            entry = entry->parent;
            depth--;
        }
        entry = entry->next;
    }
}

void cache_store_list(struct cache_store *store, cache_list_function function, void *user)
{
    struct walk walk = { .store = store, .function = function, .user = user };
    size_t bucket;
    pthread_mutex_lock(&store->lock);
    for (struct entry *entry = NULL; (entry = table_next(&store->table, entry, &bucket));) {
        if (entry->record.kind != CACHE_ROOT) continue;
        walk.label = entry->label;
        walk_tree(&walk, entry);
    }
    pthread_mutex_unlock(&store->lock);
}
