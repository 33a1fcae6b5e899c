/* store_ahead.c: read-ahead.
 *
 * Decode: the experts of a token are predicted by the router, ranked, and read if their rank has
 * been right often enough (prefetch.h).  Prompts: a chunk uses nearly all experts of a layer; those
 * that the last chunk used, or at first all of them, are read in file order while the layer before
 * computes. */
#include "experts/store_internal.h"

#include "base/clock.h"

/* ------------------------------------------------------------------- judging */

/* Compares the predictions for this layer with the request. */
static void judge_predictions(struct expert_store *store, const struct expert_request *request)
{
    size_t kept = 0;
    for (size_t i = 0; i < store->prediction_count; i++) {
        struct prediction prediction = store->predictions[i];
        uint32_t layer = layer_of(store, prediction.place);
        if (layer > request->layer) store->predictions[kept++] = prediction;
        if (layer != request->layer) continue;
        bool right = request->uses[prediction.place % store->experts] > 0;
        prefetch_learn(&store->prefetch, prediction.reach, prediction.rank, right);
        store->counters.predictions++;
        store->counters.predictions_right += right;
    }
    store->prediction_count = kept;
}

static bool has_empty_slots(const struct expert_store *store)
{
    for (size_t c = 0; c < store->placement.plan.class_count; c++)
        if (store->empty_count[c] > 0) return true;
    return false;
}

/* A token counts if every slot has been read into before: first reads wait for memory, whether
 * they are ahead or not. */
static void begin_token(struct expert_store *store)
{
    struct read_activity activity;
    async_reader_activity(store->reader, &activity);
    prefetch_depth(&store->prefetch, activity.depth);
    prefetch_token(&store->prefetch);
    store->token_counts = !has_empty_slots(store);
}

/* Accounts the time of the visit that ends; visits of prompts do not count. */
static void judge_time(struct expert_store *store, const struct expert_request *request, double now)
{
    bool decode = request->rows <= EXPERT_DECODE_ROWS_MAX && store->visit_rows == request->rows;
    if (!decode || request->layer <= store->visit_layer)
        begin_token(store);
    else if (store->token_counts)
        prefetch_visit(&store->prefetch, now - store->visit_at,
                       store->counters.wait_seconds - store->waited_then,
                       store->counters.predict_seconds - store->predicted_then);
}

static void remember_prompt(struct expert_store *store, const struct expert_request *request)
{
    uint8_t *uses = store->prompt_uses + place_of(store, request->layer, 0);
    if (request->rows <= EXPERT_DECODE_ROWS_MAX) return;
    store->prompt_rows[request->layer] = request->rows;
    for (uint32_t e = 0; e < store->experts; e++) uses[e] = request->uses[e] > 0;
}

void ahead_judge(struct expert_store *store, const struct expert_request *request, double now)
{
    judge_time(store, request, now);
    judge_predictions(store, request);
    remember_prompt(store, request);
    store->ahead_layer = NO_LAYER;
    store->coming.count = store->coming.next = 0;
}

/* ------------------------------------------------------------------- a token */

/* Nothing is missing, or read-ahead is disabled. */
static bool is_idle(const struct expert_store *store)
{
    bool complete =
        store->placement.plan.resident && store->present == store->placement.plan.slot_count;
    return complete || store->options.ahead == AHEAD_NEVER;
}

bool ahead_is_on(const struct expert_store *store)
{
    return !is_idle(store) && (store->options.ahead == AHEAD_ALWAYS || store->prefetch.on);
}

uint32_t expert_store_predictable_ranks(struct expert_store *store, uint32_t reach)
{
    store->asked_at = clock_now(store->options.clock);
    return ahead_is_on(store) ? prefetch_ranks(&store->prefetch, reach) : 0;
}

/* The index with the next smaller weight after `last` (equal weights in order); `count`: none.
 * NaN weights are skipped. */
static size_t next_surest(const float *weights, size_t count, size_t last)
{
    size_t best = count;
    for (size_t i = 0; i < count; i++) {
        bool after = last == count || weights[i] < weights[last] ||
                     (i > last && weights[i] == weights[last]);
        if (after && weights[i] == weights[i] && (best == count || weights[i] > weights[best]))
            best = i;
    }
    return best;
}

static bool is_known(const struct expert_store *store, size_t first, uint32_t place)
{
    if (store->slot_of[place] != NO_SLOT) return true;
    for (size_t i = first; i < store->prediction_count; i++)
        if (store->predictions[i].place == place) return true;
    return false;
}

/* Appends the predictions that are not in memory, ranked. */
static void rank_predictions(struct expert_store *store, uint32_t layer, uint32_t reach,
                             const uint32_t *experts, const float *weights, size_t count)
{
    size_t at = count, first = store->prediction_count;
    for (uint32_t rank = 0; rank < PREFETCH_RANKS; rank++) {
        at = next_surest(weights, count, at);
        if (at == count || store->prediction_count == PREDICTIONS) return;
        uint32_t place = place_of(store, layer, experts[at]);
        if (!is_known(store, first, place))
            store->predictions[store->prediction_count++] =
                (struct prediction){ place, (uint16_t)reach, (uint16_t)rank };
    }
}

void expert_store_predict(struct expert_store *store, uint32_t layer, uint32_t reach,
                          const uint32_t *experts, const float *weights, size_t count)
{
    struct async_read *reads = NULL, **end = &reads;
    bool on = ahead_is_on(store);
    size_t first = store->prediction_count;
    rank_predictions(store, layer, reach, experts, weights, count);
    const struct slot_class *class =
        &store->placement.plan.classes[class_of(store, place_of(store, layer, 0))];
    size_t expected = slots_expected(store, class);
    slots_begin_taking(store);
    /* Half of the slots remain for what is asked for: an expert that was read ahead stays until
     * its visit, so that no step reads it twice. */
    for (size_t i = first; i < store->prediction_count && 2 * expected < class->count; i++) {
        const struct prediction *prediction = &store->predictions[i];
        if (!on || !prefetch_trusts(&store->prefetch, reach, prediction->rank)) continue;
        float distance = prefetch_distance(&store->prefetch, reach, prediction->rank);
        if (!reading_begin(store, end, prediction->place, distance, true)) break;
        store->slots[store->slot_of[prediction->place]].expected = store->visit + reach;
        expected++;
        while (*end) end = &(*end)->next;
    }
    async_reader_submit(store->reader, reads);
    store->counters.predict_seconds += clock_now(store->options.clock) - store->asked_at;
}

/* ------------------------------------------------------------------ a prompt */

/* Whether `rows` rows use more than half of a layer's experts, if they choose evenly. */
static bool want_most(const struct expert_store *store, uint32_t rows)
{
    float left = 1.0f, per_token = (float)store->options.config->experts_per_token;
    for (uint32_t i = 0; i < rows && left > 0.5f; i++)
        left -= left * per_token / (float)store->experts;
    return left <= 0.5f;
}

void expert_store_predict_rows(struct expert_store *store, uint32_t layer, uint32_t rows)
{
    if (is_idle(store)) return;
    if (rows <= EXPERT_DECODE_ROWS_MAX || !want_most(store, rows)) return;
    bool known = store->prompt_rows[layer] >= rows / 2;
    store->ahead_layer = layer;
    store->coming.count = store->coming.next = 0;
    for (uint32_t e = 0; e < store->experts; e++) {
        uint32_t place = place_of(store, layer, e);
        if (store->slot_of[place] != NO_SLOT) continue;
        if (!known || store->prompt_uses[place]) reading_add(store, &store->coming, place);
    }
    ahead_continue(store);
}

void ahead_continue(struct expert_store *store)
{
    if (store->missing.next < store->missing.count) return;
    reading_begin_list(store, &store->coming, 1.0f, true);
}
