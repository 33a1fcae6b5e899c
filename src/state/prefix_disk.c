#include "state/prefix_disk.h"

#include "base/array.h"

#include <stdlib.h>

/* ------------------------------------------------------------------- keeping */

/* A block that the store borrows. */
struct loan {
    struct state_pool *pool;
    enum block_kind kind;
    void *block;
};

static void end_copy(void *user, mf_status status)
{
    (void)status;
    free(user);
}

/* Of a block that the store's thread cannot read. */
static enum cache_put put_copy(struct prefix_disk *disk, const struct cache_record *record,
                               const void *block)
{
    uint8_t *copy = malloc(record->bytes);
    if (!copy) return CACHE_PUT_REFUSED;
    enum cache_put result = CACHE_PUT_REFUSED;
    if (state_pool_read(disk->pool, copy, block, record->bytes, NULL) == MF_OK)
        result = cache_store_put(disk->store, record, copy, end_copy, copy);
    if (result != CACHE_PUT_QUEUED) free(copy);
    return result;
}

static void end_loan(void *user, mf_status status)
{
    struct loan *loan = user;
    (void)status; /* what was not written is computed again one day */
    state_pool_drop(loan->pool, loan->kind, loan->block);
    free(loan);
}

/* False: the record is not there and will not be. */
static bool put(struct prefix_disk *disk, const struct cache_record *record, enum block_kind kind,
                void *block)
{
    struct loan *loan;
    if (cache_store_has(disk->store, &record->key)) return true;
    if (disk->pool->memory) return put_copy(disk, record, block) != CACHE_PUT_REFUSED;
    loan = malloc(sizeof *loan);
    if (!loan) return false;
    *loan = (struct loan){ disk->pool, kind, state_pool_share(disk->pool, kind, block) };
    enum cache_put result = cache_store_put(disk->store, record, block, end_loan, loan);
    if (result != CACHE_PUT_QUEUED) end_loan(loan, MF_OK);
    return result != CACHE_PUT_REFUSED;
}

/* A page that has become longer replaces the one that it continues. */
struct shorter {
    const struct cache_record *page;
    struct cache_key key;
    bool found;
};

static void find_shorter(void *user, const struct cache_record *record)
{
    struct shorter *shorter = user;
    const struct cache_record *page = shorter->page;
    if (record->kind != CACHE_PAGE || record->count >= page->count ||
        memcmp(record->tokens, page->tokens, record->count * sizeof *page->tokens) != 0)
        return;
    shorter->key = record->key;
    shorter->found = true;
}

static bool put_page(struct prefix_disk *disk, const struct cache_record *page, void *block)
{
    struct shorter shorter = { .page = page };
    if (!put(disk, page, BLOCK_PAGE, block)) return false;
    cache_store_children(disk->store, &page->parent, find_shorter, &shorter);
    if (shorter.found) cache_store_drop(disk->store, &shorter.key);
    return true;
}

/* The pages of a window one behind the other, zeros where it has fewer than it can have. */
static void put_windows(struct prefix_disk *disk, const struct cache_record *record,
                        const struct window_table *table)
{
    size_t bytes = disk->pool->shape.window_page_bytes;
    uint8_t *copy;
    if (cache_store_has(disk->store, &record->key)) return;
    copy = calloc(1, record->bytes);
    if (!copy) return;
    mf_status status = MF_OK;
    for (uint32_t i = 0; i < table->count && status == MF_OK; i++)
        status = state_pool_read(disk->pool, copy + i * bytes, table->pages[i], bytes, NULL);
    if (status != MF_OK ||
        cache_store_put(disk->store, record, copy, end_copy, copy) != CACHE_PUT_QUEUED)
        free(copy);
}

static void put_state(struct prefix_disk *disk, const struct cache_record *record, void *kept)
{
    if (disk->pool->shape.window_layers > 0)
        put_windows(disk, record, kept);
    else
        put(disk, record, BLOCK_RECURRENT, kept);
}

static struct cache_record describe(const struct prefix_disk *disk, enum cache_kind kind,
                                    const struct cache_key *parent, const uint32_t *tokens,
                                    uint32_t first, uint32_t count)
{
    const struct state_shape *shape = &disk->pool->shape;
    struct cache_record record = { .kind = kind,
                                   .root = disk->root,
                                   .parent = *parent,
                                   .first = first,
                                   .count = count,
                                   .tokens = tokens + first,
                                   .bytes = kind == CACHE_PAGE ? shape->page_bytes
                                                               : state_kept_bytes(shape) };
    record.key = cache_store_key(disk->store, kind, parent, record.tokens, count);
    return record;
}

void prefix_disk_keep(struct prefix_disk *disk, const struct sequence *sequence, uint32_t count,
                      void *kept, enum prefix_place place)
{
    struct cache_key parent = disk->root;
    for (uint32_t first = 0; first < count; first += KV_PAGE_TOKENS) {
        uint32_t used = (uint32_t)min_size(KV_PAGE_TOKENS, count - first);
        struct cache_record page =
            describe(disk, CACHE_PAGE, &parent, sequence->tokens, first, used);
        if (!put_page(disk, &page, sequence->pages[first / KV_PAGE_TOKENS])) return;
        if (kept && first + used == sequence->position) {
            struct cache_record state =
                describe(disk, CACHE_CHECKPOINT, &parent, sequence->tokens, first, used);
            state.place = place;
            put_state(disk, &state, kept);
        }
        parent = page.key;
    }
}

bool prefix_disk_wait(const struct prefix_disk *disk)
{
    if (cache_store_statistics(disk->store).queued_bytes == 0) return false;
    cache_store_flush(disk->store);
    return true;
}

void prefix_disk_touch(const struct prefix_disk *disk, const struct sequence *sequence)
{
    bool kept = state_is_kept(&disk->pool->shape);
    struct cache_key parent = disk->root;
    for (uint32_t first = 0; first < sequence->position; first += KV_PAGE_TOKENS) {
        uint32_t used = (uint32_t)min_size(KV_PAGE_TOKENS, sequence->position - first);
        bool last = first + used == sequence->position;
        struct cache_record record = describe(disk, last && kept ? CACHE_CHECKPOINT : CACHE_PAGE,
                                              &parent, sequence->tokens, first, used);
        if (last) cache_store_touch(disk->store, &record.key);
        parent = record.key;
    }
}

/* ------------------------------------------------------------------- looking */

/* A page that the request begins with or ends in. */
struct step {
    struct cache_key key;
    size_t parent; /* index of the step above; NO_STEP: the root */
    uint32_t first, count, matched;
    uint32_t tokens[CACHE_TOKENS_MAX];
};

#define NO_STEP SIZE_MAX

/* Where a request can be resumed. */
struct place_on_disk {
    uint32_t position;
    size_t step;                              /* its last page */
    struct cache_key checkpoint;              /* where one is needed … */
    uint32_t tokens[CACHE_TOKENS_MAX], count; /* … of that page up to the position */
    enum prefix_place place;
};

struct search {
    const int32_t *tokens;
    uint32_t count;
    bool exact, needs_checkpoints;
    struct step *steps;
    size_t step_count, room;
    size_t parent;                  /* the step whose children are visited */
    struct place_on_disk states[8]; /* checkpoints among them: the page is still to be found */
    size_t state_count;
    struct place_on_disk best;
    bool failed;
};

static uint32_t count_matching(const struct search *search, const struct cache_record *record)
{
    uint32_t i = 0;
    for (; i < record->count && record->first + i < search->count; i++) {
        uint32_t token = record->tokens[i], wanted = (uint32_t)search->tokens[record->first + i];
        if (!search->exact) token &= ~TOKEN_GENERATED;
        if (token != wanted) break;
    }
    return i;
}

static void visit_child(void *user, const struct cache_record *record)
{
    struct search *search = user;
    uint32_t matched = count_matching(search, record);
    if (record->kind == CACHE_CHECKPOINT) {
        if (matched < record->count || search->state_count == COUNT_OF(search->states)) return;
        struct place_on_disk *state = &search->states[search->state_count++];
        *state = (struct place_on_disk){ .position = record->first + record->count,
                                         .step = NO_STEP,
                                         .checkpoint = record->key,
                                         .count = record->count,
                                         .place = (enum prefix_place)record->place };
        memcpy(state->tokens, record->tokens, record->count * sizeof *state->tokens);
        return;
    }
    search->failed |=
        ARRAY_RESERVE(search->steps, search->room, search->step_count + 1, NULL, NULL) != MF_OK;
    if (matched == 0 || search->failed) return;
    struct step *step = &search->steps[search->step_count];
    *step = (struct step){ .key = record->key,
                           .parent = search->parent,
                           .first = record->first,
                           .count = record->count,
                           .matched = matched };
    memcpy(step->tokens, record->tokens, record->count * sizeof *step->tokens);
    if (!search->needs_checkpoints && step->first + matched > search->best.position)
        search->best =
            (struct place_on_disk){ .position = step->first + matched, .step = search->step_count };
    search->step_count++;
}

/* The page has the tokens of the checkpoint, and in the same phases. */
static bool is_page_of(const struct step *step, const struct place_on_disk *state)
{
    return step->count >= state->count &&
           memcmp(step->tokens, state->tokens, state->count * sizeof *state->tokens) == 0;
}

/* The page of each checkpoint is one of the steps from `from` on. */
static void find_pages(struct search *search, size_t from)
{
    for (size_t i = 0; i < search->state_count; i++) {
        struct place_on_disk *state = &search->states[i];
        for (size_t s = from; s < search->step_count && state->step == NO_STEP; s++)
            if (is_page_of(&search->steps[s], state)) state->step = s;
        if (state->step != NO_STEP && state->position > search->best.position)
            search->best = *state;
    }
    search->state_count = 0;
}

/* From the root down; several ways may match where tokens of prompts and generated ones are the
 * same to the request. */
static void search_store(struct search *search, const struct prefix_disk *disk)
{
    search->parent = NO_STEP;
    cache_store_children(disk->store, &disk->root, visit_child, search);
    find_pages(search, 0);
    for (size_t i = 0; i < search->step_count && !search->failed; i++) {
        if (search->steps[i].matched < KV_PAGE_TOKENS) continue;
        size_t from = search->step_count;
        struct cache_key key = search->steps[i].key; /* steps may move */
        search->parent = i;
        cache_store_children(disk->store, &key, visit_child, search);
        find_pages(search, from);
    }
}

/* ------------------------------------------------------------------- loading */

/* A page or a recurrent state. */
static bool read_block(void *block, size_t bytes, const struct prefix_disk *disk,
                       const struct cache_key *key)
{
    if (!disk->pool->memory) return cache_store_get(block, bytes, disk->store, key);
    void *copy = malloc(bytes);
    bool right = copy && cache_store_get(copy, bytes, disk->store, key) &&
                 state_pool_write(disk->pool, block, copy, bytes, NULL) == MF_OK;
    free(copy);
    return right;
}

static bool read_windows(struct window_pages *window, const struct prefix_disk *disk,
                         const struct cache_key *key)
{
    const struct state_shape *shape = &disk->pool->shape;
    size_t bytes = shape->window_page_bytes, all = state_kept_bytes(shape);
    uint8_t *copy = malloc(all);
    bool right = copy && cache_store_get(copy, all, disk->store, key);
    for (uint32_t i = window->first; right && i < window->end; i++)
        right = state_pool_write(disk->pool, window->pages[i], copy + (i - window->first) * bytes,
                                 bytes, NULL) == MF_OK;
    free(copy);
    return right;
}

static bool read_state(struct sequence *sequence, const struct prefix_disk *disk,
                       const struct cache_key *key)
{
    if (disk->pool->shape.window_layers > 0) return read_windows(&sequence->window, disk, key);
    return read_block(sequence->next, state_kept_bytes(&disk->pool->shape), disk, key);
}

static bool read_place(struct sequence *sequence, const struct prefix_disk *disk,
                       const struct search *search)
{
    const struct state_shape *shape = &disk->pool->shape;
    const struct place_on_disk *best = &search->best;
    uint32_t *tokens = calloc(best->position, sizeof *tokens);
    bool right = tokens && sequence_hold(sequence, best->position, NULL) == MF_OK;
    for (size_t i = best->step; right && i != NO_STEP; i = search->steps[i].parent) {
        const struct step *step = &search->steps[i];
        size_t used = min_size(step->count, best->position - step->first);
        memcpy(tokens + step->first, step->tokens, used * sizeof *tokens);
        right = read_block(sequence->pages[step->first / KV_PAGE_TOKENS], shape->page_bytes, disk,
                           &step->key);
    }
    if (right && search->needs_checkpoints) right = read_state(sequence, disk, &best->checkpoint);
    if (right)
        sequence_restore(sequence, tokens, best->position);
    else
        sequence_abandon(sequence);
    free(tokens);
    return right;
}

bool prefix_disk_load(struct sequence *sequence, enum prefix_place *place,
                      const struct prefix_disk *disk, const int32_t *tokens, uint32_t count,
                      uint32_t known, bool exact)
{
    /* A file that cannot be read is gone at the next attempt, or still being written. */
    for (int attempt = 0; attempt < 3; attempt++) {
        struct search search = { .tokens = tokens,
                                 .count = count,
                                 .exact = exact,
                                 .needs_checkpoints = state_is_kept(&disk->pool->shape) };
        search_store(&search, disk);
        bool more = !search.failed && search.best.position > known;
        bool loaded = more && read_place(sequence, disk, &search);
        *place = search.best.place;
        free(search.steps);
        if (loaded || !more) return loaded;
    }
    return false;
}
