/* cache.c: the prefix cache of a model, and what sequences find in it. */
#include "api/handles.h"

#include "base/status.h"

#include <stdio.h>

#define SAME(place) _Static_assert((int)MF_PLACE_##place == (int)PREFIX_##place, "the same places")
_Static_assert((int)MF_PLACE_NONE == (int)PREFIX_NO_PLACE, "the same places");
SAME(HEAD);
SAME(BREAKPOINT);
SAME(PROMPT_END);
SAME(JUNCTION);
SAME(LAST_USER);
SAME(ANSWER_END);
SAME(NET);
_Static_assert((int)MF_RESUME_EMPTY == (int)PREFIX_EMPTY, "the same reasons");
_Static_assert((int)MF_RESUME_ENDS == (int)PREFIX_ENDS, "the same reasons");
_Static_assert((int)MF_RESUME_DIFFERS == (int)PREFIX_DIFFERS, "the same reasons");
_Static_assert((int)MF_RESUME_GENERATED == (int)PREFIX_GENERATED, "the same reasons");
_Static_assert((int)MF_RESUME_WHOLE == (int)PREFIX_WHOLE, "the same reasons");

#define DISK_BYTES ((uint64_t)20 << 30)

/* Everything that changes the bytes of a page or of a recurrent state. */
struct cache_identity {
    struct snapshot_identity made;
    uint64_t page_bytes, window_page_bytes, recurrent_bytes;
    uint32_t cached_layers, window_layers, recurrent_layers, kv_format, page_tokens, reserved;
};

static mf_status open_root(mf_model *model, mf_error *why)
{
    const struct state_shape *shape = &model->room.pool.shape;
    struct cache_identity identity = { .page_bytes = shape->page_bytes,
                                       .window_page_bytes = shape->window_page_bytes,
                                       .recurrent_bytes = shape->recurrent_bytes,
                                       .cached_layers = shape->cached_layers,
                                       .window_layers = shape->window_layers,
                                       .recurrent_layers = shape->recurrent_layers,
                                       .kv_format = shape->format,
                                       .page_tokens = KV_PAGE_TOKENS };
    mf_status status = api_identify(&identity.made, model, why);
    if (status != MF_OK) return status;
    return cache_store_root(&model->disk.root, model->disk.store, &identity, sizeof identity,
                            mf_model_name(model), why);
}

static mf_status open_directory(mf_model *model, const mf_model_options *options, mf_error *why)
{
    struct state_pool *pool = &model->room.pool;
    bool held;
    struct cache_store_options own = { .directory = options->cache_directory,
                                       .limit_bytes = options->cache_disk_bytes
                                                          ? options->cache_disk_bytes
                                                          : DISK_BYTES,
                                       .allocator = &model->engine->allocator };
    if (pool->shape.cached_layers == 0) return MF_OK; /* pages are what files hang from */
    model->disk.pool = pool;
    mf_status status = cache_store_open(&model->disk.store, &held, &own, why);
    if (status == MF_OK && held)
        log_note(&model->engine->logger, MF_LOG_WARNING,
                 "the cache directory %.256s is in use by another process: the cache is in memory "
                 "only",
                 options->cache_directory);
    return status == MF_OK && !held ? open_root(model, why) : status;
}

mf_status api_open_cache(mf_model *model, const mf_model_options *options, mf_error *why)
{
    const char *name = options->cache ? options->cache : "off";
    struct prefix_options own = { .exact = strcmp(name, "exact") == 0,
                                  .limit_bytes = options->cache_bytes };
    struct state_pool *pool = &model->room.pool;
    mf_status status = MF_OK;
    if (strcmp(name, "off") == 0) {
        if (!options->cache_directory) return MF_OK;
        return fail(why, MF_ERR_ARGUMENT, "a cache directory needs a cache: exact or reuse");
    }
    if (!own.exact && strcmp(name, "reuse") != 0)
        return fail(why, MF_ERR_ARGUMENT,
                    "the cache \"%.32s\" is not known; there are exact, reuse and off", name);
    model->cache_bytes = options->cache_bytes;
    state_pool_set_limit(pool, state_pool_sizes(pool).limit_bytes + model->cache_bytes);
    if (options->cache_directory) status = open_directory(model, options, why);
    if (status != MF_OK) return status;
    own.disk = model->disk.store ? &model->disk : NULL;
    return prefix_tree_new(&model->prefixes, pool, &own, why);
}

/* The store first: what it writes are blocks of the pool. */
void api_close_cache(mf_model *model)
{
    cache_store_close(model->disk.store);
    prefix_tree_free(model->prefixes);
}

static void count_disk(mf_model_statistics *out, const mf_model *model)
{
    if (!model->disk.store) return;
    struct cache_store_statistics statistics = cache_store_statistics(model->disk.store);
    out->cache_disk_bytes = statistics.directory_bytes;
    out->cache_disk_files = statistics.records;
    out->cache_disk_read_bytes = statistics.bytes_read;
    out->cache_disk_written_bytes = statistics.bytes_written;
    out->cache_disk_damaged = statistics.damaged;
}

void api_count_cache(mf_model_statistics *out, const mf_model *model)
{
    if (!model->prefixes) return;
    struct prefix_statistics statistics = prefix_tree_statistics(model->prefixes);
    out->cache_bytes = statistics.bytes;
    out->cache_pages = statistics.pages;
    out->cache_checkpoints = statistics.checkpoints;
    out->cache_requests = statistics.lookups;
    out->cache_asked_tokens = statistics.asked_tokens;
    out->cache_matched_tokens = statistics.matched_tokens;
    out->cache_resumed_tokens = statistics.resumed_tokens;
    out->cache_pages_evicted = statistics.pages_evicted;
    out->cache_checkpoints_evicted = statistics.checkpoints_evicted;
    count_disk(out, model);
}

mf_resumed api_resumed(const struct prefix_match *match, const struct prefix_tree *tree)
{
    return (mf_resumed){ .struct_size = sizeof(mf_resumed),
                         .matched = match->matched,
                         .resumed = match->resumed,
                         .replayed = match->matched - match->resumed,
                         .junction = match->junction,
                         .reason = tree ? (mf_resume_reason)match->reason : MF_RESUME_OFF };
}

mf_status mf_sequence_resume(mf_sequence *sequence, const int32_t *tokens, size_t count,
                             mf_resumed *out, mf_error *why)
{
    if (!sequence) return api_missing(why, "sequence");
    if (!tokens && count > 0) return api_missing(why, "tokens");
    struct engine_sequence *own = &sequence->sequence;
    struct prefix_tree *tree = sequence->model->prefixes;
    struct prefix_match match = { 0 };
    uint32_t most = (uint32_t)min_size(count > 0 ? count - 1 : 0, own->state.capacity);
    mf_status status = MF_OK;
    engine_sequence_clear(own);
    if (tree) status = prefix_tree_resume(&match, tree, &own->state, tokens, most, why);
    if (status != MF_OK || !out) return status;
    mf_resumed resumed = api_resumed(&match, tree);
    status = api_statistics_out(out, &resumed, sizeof resumed, "MF_RESUMED_INIT", why);
    if (status != MF_OK) engine_sequence_clear(own);
    return status;
}

mf_status mf_sequence_keep(const mf_sequence *sequence, mf_place place, mf_error *why)
{
    if (!sequence) return api_missing(why, "sequence");
    if (place < MF_PLACE_NONE || place > MF_PLACE_NET)
        return fail(why, MF_ERR_ARGUMENT, "the place is %d, which is none", (int)place);
    struct prefix_tree *tree = sequence->model->prefixes;
    const struct sequence *state = &sequence->sequence.state;
    return tree ? prefix_tree_keep(tree, state, (enum prefix_place)place, why) : MF_OK;
}

void mf_resumed_explain(char *out, size_t capacity, const mf_resumed *resumed)
{
    char ends[96] = "", replayed[96] = "";
    if (!out || capacity == 0) return;
    out[0] = '\0';
    if (!resumed) return;
    switch (resumed->reason) {
    case MF_RESUME_OFF:
        snprintf(out, capacity, "the model has no prefix cache");
        return;
    case MF_RESUME_EMPTY:
        snprintf(out, capacity, "the prefix cache is empty");
        return;
    case MF_RESUME_ENDS:
        snprintf(ends, sizeof ends, "what is kept ends at token %u", resumed->matched);
        break;
    case MF_RESUME_DIFFERS:
        snprintf(ends, sizeof ends, "token %u differs", resumed->matched);
        break;
    case MF_RESUME_GENERATED:
        snprintf(ends, sizeof ends, "token %u was generated, and the cache is exact",
                 resumed->matched);
        break;
    case MF_RESUME_WHOLE:
        snprintf(ends, sizeof ends, "the prompt is known");
        break;
    }
    if (resumed->replayed > 0)
        snprintf(replayed, sizeof replayed, "; %u are replayed, because no checkpoint lies nearer",
                 resumed->replayed);
    snprintf(out, capacity, "%u tokens are resumed: %s%s", resumed->resumed, ends, replayed);
}
