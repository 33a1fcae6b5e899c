/* How a filter cuts without sorting.
 *
 * A float's bits, mapped so that they compare like the float, are a 32-bit key.  The cut
 * of "the k best" or "the best that reach probability p" is found from the top digit down:
 * add up the candidates (1 each, or their weights) per value of the leading 11 bits, walk
 * from the highest bucket until the limit is reached, then look only into that bucket with
 * the next 11 bits, and at last with the remaining 10.  What is left is one score and how
 * many of its equals are kept.  Three linear passes, no worst case, exact.
 *
 * Top-k over a large row needs even less: the row is cut into blocks of 64, and the k-th
 * best block maximum is a lower bound of the k-th best score, because k blocks hold one at
 * least as good.  Only scores above the bound become candidates. */
#include "sampling/sampler.h"

#include "base/arena.h"
#include "base/status.h"
#include "sampling/random.h"
#include "sampling/token_history.h"

#include <float.h>
#include <math.h>

enum { BLOCK = 64, BUCKETS = 2048, VOCAB_LIMIT = 1 << 24, WINDOW_LIMIT = 1 << 20 };

/* Candidates in ascending id.  Arrays have room for one past `count` of the full row. */
struct candidates {
    size_t count;
    int32_t *ids;
    float *scores;
    float *weights; /* exp((score - best) / temperature) */
    float *ranks;   /* what the current filter orders by */
};

struct sampler {
    struct arena arena;
    struct sampler_options options;
    size_t vocab_size, usable, block_count;
    struct random random;
    struct token_history history;
    struct candidates candidates;
    float *scores;        /* [block_count * BLOCK], -inf where nothing may be picked */
    float *block_best;    /* [block_count] */
    double *block_weight; /* [block_count] */
    double *buckets;      /* [BUCKETS] */
};

void sampler_options_default(struct sampler_options *options)
{
    *options = (struct sampler_options){
        .temperature = 1.0f,
        .top_p = 1.0f,
        .typical_p = 1.0f,
        .penalty_window = 1024,
        .repetition_penalty = 1.0f,
        .dry_base = 1.75f,
        .dry_allowed_length = 2,
    };
}

/* ------------------------------------------------------------------ opening */

static mf_status check_range(const char *name, double value, double low, double high, mf_error *why)
{
    if (value >= low && value <= high) return MF_OK; /* false for NaN */
    return fail(why, MF_ERR_ARGUMENT, "%s is %g, from %g to %g was expected", name, value, low,
                high);
}

static mf_status check_tokens(const struct sampler_options *o, size_t vocab_size, mf_error *why)
{
    for (size_t i = 0; i < o->bias_count; i++) {
        const mf_logit_bias *bias = &o->biases[i];
        if (bias->token < 0 || (size_t)bias->token >= vocab_size)
            return fail(why, MF_ERR_ARGUMENT, "logit bias for token %d: ids are below %zu",
                        bias->token, vocab_size);
        if (isnan(bias->bias) || bias->bias == INFINITY)
            return fail(why, MF_ERR_ARGUMENT, "logit bias for token %d is %g, not a usable number",
                        bias->token, (double)bias->bias);
    }
    for (size_t i = 0; i < o->dry_breaker_count; i++)
        if (o->dry_breakers[i] < 0 || (size_t)o->dry_breakers[i] >= vocab_size)
            return fail(why, MF_ERR_ARGUMENT, "DRY breaker %d: ids are below %zu",
                        o->dry_breakers[i], vocab_size);
    return MF_OK;
}

static mf_status check_options(const struct sampler_options *o, size_t vocab_size, mf_error *why)
{
    const struct {
        const char *name;
        double value, low, high;
    } ranges[] = {
        { "temperature", o->temperature, 0, 1e6 },
        { "top_k", o->top_k, 0, INT32_MAX },
        { "top_p", o->top_p, 0, 1 },
        { "min_p", o->min_p, 0, 1 },
        { "typical_p", o->typical_p, 0, 1 },
        { "penalty_window", o->penalty_window, 0, WINDOW_LIMIT },
        { "repetition_penalty", o->repetition_penalty, 1e-3, 1e3 },
        { "frequency_penalty", o->frequency_penalty, -1e3, 1e3 },
        { "presence_penalty", o->presence_penalty, -1e3, 1e3 },
        { "dry_multiplier", o->dry_multiplier, 0, 1e3 },
        { "dry_base", o->dry_base, 1, 1e3 },
        { "dry_allowed_length", o->dry_allowed_length, 1, WINDOW_LIMIT },
    };
    mf_status status = MF_OK;
    for (size_t i = 0; i < COUNT_OF(ranges) && status == MF_OK; i++)
        status = check_range(ranges[i].name, ranges[i].value, ranges[i].low, ranges[i].high, why);
    return status == MF_OK ? check_tokens(o, vocab_size, why) : status;
}

static bool penalties_wanted(const struct sampler_options *o)
{
    return o->repetition_penalty != 1.0f || o->frequency_penalty != 0.0f ||
           o->presence_penalty != 0.0f || o->dry_multiplier != 0.0f;
}

static mf_status take_memory(struct sampler *s, mf_error *why)
{
    const struct sampler_options *o = &s->options;
    size_t room = s->usable + 1;
    s->candidates.ids = ARENA_NEW(&s->arena, int32_t, room);
    s->candidates.scores = ARENA_NEW(&s->arena, float, room);
    s->candidates.weights = ARENA_NEW(&s->arena, float, room);
    s->candidates.ranks = ARENA_NEW(&s->arena, float, room);
    s->scores = ARENA_NEW(&s->arena, float, s->block_count *BLOCK);
    s->block_best = ARENA_NEW(&s->arena, float, s->block_count);
    s->block_weight = ARENA_NEW(&s->arena, double, s->block_count);
    s->buckets = ARENA_NEW(&s->arena, double, BUCKETS);
    mf_logit_bias *biases = ARENA_NEW(&s->arena, mf_logit_bias, o->bias_count);
    bool complete = s->candidates.ids && s->candidates.scores && s->candidates.weights &&
                    s->candidates.ranks && s->scores && s->block_best && s->block_weight &&
                    s->buckets && biases;
    if (!complete) return fail_memory(why, room * 20);
    if (o->bias_count) memcpy(biases, o->biases, o->bias_count * sizeof *biases);
    s->options.biases = biases;

    size_t window = penalties_wanted(o) ? (size_t)o->penalty_window : 0;
    mf_status status = token_history_init(&s->history, &s->arena, window, s->vocab_size, why);
    if (status == MF_OK && window > 0)
        for (size_t i = 0; i < o->dry_breaker_count; i++)
            s->history.breaks[o->dry_breakers[i]] = true;
    s->options.dry_breakers = NULL; /* kept in the history, by token */
    s->options.dry_breaker_count = 0;
    return status;
}

mf_status sampler_new(struct sampler **out, const mf_allocator *allocator,
                      const struct sampler_options *options, size_t vocab_size, size_t usable,
                      mf_error *why)
{
    *out = NULL;
    if (vocab_size == 0 || vocab_size > VOCAB_LIMIT || usable == 0 || usable > vocab_size)
        return fail(why, MF_ERR_ARGUMENT, "a vocabulary of %zu tokens with %zu usable ones",
                    vocab_size, usable);
    mf_status status = check_options(options, vocab_size, why);
    if (status != MF_OK) return status;

    struct arena arena;
    arena_init(&arena, allocator);
    struct sampler *sampler = ARENA_NEW(&arena, struct sampler, 1);
    if (!sampler) return fail_memory(why, sizeof *sampler);
    *sampler = (struct sampler){
        .arena = arena,
        .options = *options,
        .vocab_size = vocab_size,
        .usable = usable,
        .block_count = TOKEN_MASK_WORDS(usable),
    };
    random_seed(&sampler->random, options->seed);
    status = take_memory(sampler, why);
    if (status != MF_OK) {
        sampler_free(sampler);
        return status;
    }
    *out = sampler;
    return MF_OK;
}

void sampler_free(struct sampler *sampler)
{
    if (!sampler) return;
    struct arena arena = sampler->arena; /* the sampler itself lies in it */
    arena_free(&arena);
}

/* ------------------------------------------------------------------ history */

void sampler_accept_prompt(struct sampler *sampler, const int32_t *tokens, size_t count)
{
    for (size_t i = 0; i < count; i++) token_history_push(&sampler->history, tokens[i], false);
}

void sampler_accept(struct sampler *sampler, int32_t token)
{
    token_history_push(&sampler->history, token, true);
}

void sampler_reset(struct sampler *sampler)
{
    token_history_clear(&sampler->history);
    random_seed(&sampler->random, sampler->options.seed);
}

/* ------------------------------------------------------------- the scores */

/* NaN → -inf, +inf → the largest float, and -0 → 0 so that they compare as equals by bits.
 * On the bits and without a branch, because the compiler then uses vectors. */
static inline float clean(float x)
{
    enum { INFINITE = 0x7f800000, NEGATIVE_INFINITE = (int32_t)0xff800000u };
    int32_t bits;
    memcpy(&bits, &x, sizeof bits);
    int32_t magnitude = bits & 0x7fffffff;
    bits = magnitude > INFINITE ? NEGATIVE_INFINITE : bits;
    bits = bits == INFINITE ? INFINITE - 1 : bits;
    bits = magnitude == 0 ? 0 : bits;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static void copy_block(float *out, const float *logits, size_t count, uint64_t allowed)
{
    for (size_t i = 0; i < count; i++) out[i] = clean(logits[i]);
    if (allowed == UINT64_MAX) return;
    for (size_t i = 0; i < count; i++)
        if (!(allowed >> i & 1)) out[i] = -INFINITY;
}

static void load_scores(struct sampler *s, const float *logits, const uint64_t *allowed)
{
    for (size_t block = 0; block < s->block_count; block++) {
        size_t first = block * BLOCK;
        size_t count = min_size(BLOCK, s->usable - first);
        float *out = s->scores + first;
        uint64_t bits = allowed ? allowed[block] : UINT64_MAX;
        if (bits && count) copy_block(out, logits + first, count, bits);
        for (size_t i = bits ? count : 0; i < BLOCK; i++) out[i] = -INFINITY;
    }
}

static void apply_counts(struct sampler *s)
{
    const struct sampler_options *o = &s->options;
    const struct token_history *history = &s->history;
    for (size_t i = 0; i < history->distinct_count; i++) {
        int32_t token = history->distinct[i];
        if ((size_t)token >= s->usable) continue;
        float score = s->scores[token];
        score = score > 0.0f ? score / o->repetition_penalty : score * o->repetition_penalty;
        uint32_t generated = history->generated[token];
        if (generated) score -= o->presence_penalty + (float)generated * o->frequency_penalty;
        s->scores[token] = clean(score);
    }
}

static void apply_biases_and_penalties(struct sampler *s)
{
    const struct sampler_options *o = &s->options;
    for (size_t i = 0; i < o->bias_count; i++) {
        if ((size_t)o->biases[i].token >= s->usable) continue;
        float *score = &s->scores[o->biases[i].token];
        *score = clean(*score + o->biases[i].bias);
    }
    if (s->history.length == 0) return;
    apply_counts(s);
    if (o->dry_multiplier == 0.0f) return;
    struct dry_options dry = { o->dry_multiplier, o->dry_base, (size_t)o->dry_allowed_length };
    token_history_apply_dry(&s->history, s->scores, s->usable, &dry);
}

/* Signed order of the result = order of the floats, and the same again turns it back.  Integer
 * comparisons, unlike those of floats, are vectorised without further permission. */
static inline int32_t ordered_bits(int32_t bits)
{
    return bits ^ (int32_t)((uint32_t)(bits >> 31) >> 1);
}

static float block_maximum(const float *x)
{
    int32_t best = INT32_MIN;
    for (size_t i = 0; i < BLOCK; i++) {
        int32_t bits;
        memcpy(&bits, &x[i], sizeof bits);
        bits = ordered_bits(bits);
        best = bits > best ? bits : best;
    }
    best = ordered_bits(best);
    float maximum;
    memcpy(&maximum, &best, sizeof maximum);
    return maximum;
}

/* Fills block_best; the best score of the row. */
static float find_maxima(struct sampler *s)
{
    float best = -INFINITY;
    for (size_t block = 0; block < s->block_count; block++) {
        float maximum = block_maximum(s->scores + block * BLOCK);
        s->block_best[block] = maximum;
        if (maximum > best) best = maximum;
    }
    return best;
}

static int32_t first_with_score(const struct sampler *s, float score)
{
    size_t block = 0;
    while (s->block_best[block] != score) block++;
    size_t i = block * BLOCK;
    while (s->scores[i] != score) i++;
    return (int32_t)i;
}

/* ----------------------------------------------------------------- the cut */

/* Unsigned order of keys = order of floats; no NaN and no -0 here. */
static uint32_t key_of(float x)
{
    int32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return (uint32_t)ordered_bits(bits) ^ 0x80000000u;
}

static float float_of_key(uint32_t key)
{
    int32_t bits = ordered_bits((int32_t)(key ^ 0x80000000u));
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* Everything above `key` is kept, and the first `ties` of those equal to it. */
struct cut {
    uint32_t key;
    size_t ties;
};

struct search {
    const float *ranks;   /* [count]: what is ordered by, best first */
    const float *amounts; /* [count]: what is added up; NULL: 1 each */
    size_t count;
    double limit;  /* keep the best until their amounts reach this */
    double before; /* amount above the part of the keys looked at */
    double *buckets;
};

static double amount_of(const struct search *search, size_t i)
{
    return search->amounts ? (double)search->amounts[i] : 1.0;
}

/* One digit: among keys that begin with `prefix` (the bits from `shift + width` up), the
 * digit in which the limit is reached, from above.  `before` grows by what lies above it. */
static uint32_t find_digit(struct search *search, uint64_t prefix, int shift, int width)
{
    uint32_t digits = 1u << width;
    double *buckets = search->buckets;
    memset(buckets, 0, digits * sizeof *buckets);
    for (size_t i = 0; i < search->count; i++) {
        uint64_t key = key_of(search->ranks[i]);
        if (key >> (shift + width) == prefix)
            buckets[key >> shift & (digits - 1)] += amount_of(search, i);
    }
    /* Rounding may leave the sum of all below the limit: then the lowest digit in use. */
    uint32_t found = 0;
    double sum = search->before;
    for (uint32_t digit = digits; digit-- > 0;) {
        if (buckets[digit] == 0.0) continue;
        found = digit;
        search->before = sum;
        sum += buckets[digit];
        if (sum >= search->limit) break;
    }
    return found;
}

static struct cut find_cut(struct search *search)
{
    search->before = 0.0;
    uint32_t high = find_digit(search, 0, 21, 11);
    uint32_t middle = find_digit(search, high, 10, 11);
    uint32_t prefix = high << 11 | middle;
    struct cut cut = { .key = prefix << 10 | find_digit(search, prefix, 0, 10) };
    for (size_t i = 0; i < search->count && (cut.ties == 0 || search->before < search->limit);
         i++) {
        if (key_of(search->ranks[i]) != cut.key) continue;
        search->before += amount_of(search, i);
        cut.ties++;
    }
    return cut;
}

static void keep_above_cut(struct candidates *c, const float *ranks, struct cut cut)
{
    size_t kept = 0, ties = 0;
    for (size_t i = 0; i < c->count; i++) {
        uint32_t key = key_of(ranks[i]);
        if (key < cut.key || (key == cut.key && ties++ >= cut.ties)) continue;
        c->ids[kept] = c->ids[i];
        c->scores[kept] = c->scores[i];
        c->weights[kept] = c->weights[i];
        kept++;
    }
    c->count = kept;
}

/* -------------------------------------------------------------- candidates */

/* The scores at or above `bound` (finite) become the candidates. */
static void gather(struct sampler *s, float bound)
{
    struct candidates *c = &s->candidates;
    size_t count = 0;
    for (size_t block = 0; block < s->block_count; block++) {
        if (s->block_best[block] < bound) continue;
        size_t end = min_size((block + 1) * BLOCK, s->usable);
        for (size_t i = block * BLOCK; i < end; i++) { /* no branch: written, kept or not */
            c->ids[count] = (int32_t)i;
            c->scores[count] = s->scores[i];
            count += s->scores[i] >= bound;
        }
    }
    c->count = count;
}

/* The `k` best possible ones, exactly, become the candidates. */
static void gather_best(struct sampler *s, size_t k)
{
    struct search blocks = {
        .ranks = s->block_best, .count = s->block_count, .limit = (double)k, .buckets = s->buckets
    };
    float bound = -FLT_MAX;
    if (k < s->block_count) {
        bound = float_of_key(find_cut(&blocks).key);
        if (bound < -FLT_MAX) bound = -FLT_MAX;
    }
    gather(s, bound);
    struct candidates *c = &s->candidates;
    if (c->count <= k) return;
    struct search search = {
        .ranks = c->scores, .count = c->count, .limit = (double)k, .buckets = s->buckets
    };
    keep_above_cut(c, c->scores, find_cut(&search));
}

/* Below minus this a weight is 0 and the token cannot be drawn. */
static const float exp_reach = 87.0f;

/* exp(x) for x ≤ 0, about 1 ulp.  x = n ln 2 + r, then a polynomial in |r| ≤ ln 2 / 2 and n
 * added to the exponent.  Plain arithmetic in a fixed order: the same bits everywhere.  The
 * range is checked on the bits, which the compiler can do in vectors. */
static inline float exp_negative(float x)
{
    const int32_t reach_bits = 0x42ae0000; /* 87.0f */
    int32_t bits;
    memcpy(&bits, &x, sizeof bits);
    bits &= 0x7fffffff;
    int32_t inside = bits <= reach_bits ? -1 : 0;
    bits = (bits & inside) | (reach_bits & ~inside);
    float magnitude;
    memcpy(&magnitude, &bits, sizeof magnitude);

    int32_t n = (int32_t)(magnitude * -1.44269504f - 0.5f);
    float r = (float)n * -0.693359375f - magnitude; /* ln 2 in two parts, the first one short */
    r = r + (float)n * 2.12194440e-4f;
    float p = 1.9875691500e-4f;
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * (r * r) + r + 1.0f;
    memcpy(&bits, &p, sizeof bits);
    bits = (int32_t)((uint32_t)bits + ((uint32_t)n << 23)) & inside;
    memcpy(&p, &bits, sizeof p);
    return p;
}

/* out[i] = exp((scores[i] - best) / temperature). */
static void weigh(float *restrict out, const float *restrict scores, size_t count, float best,
                  float temperature)
{
    for (size_t i = 0; i < count; i++) out[i] = exp_negative((scores[i] - best) / temperature);
}

/* Sums of weights per block of the row, without keeping the weights; their sum. */
static double weigh_row(struct sampler *s, float best, float temperature)
{
    double total = 0.0;
    for (size_t block = 0; block < s->block_count; block++) {
        float weights[BLOCK];
        double lanes[4] = { 0.0 };
        weigh(weights, s->scores + block * BLOCK, BLOCK, best, temperature);
        for (size_t i = 0; i < BLOCK; i += 4)
            for (size_t l = 0; l < 4; l++) lanes[l] += (double)weights[i + l];
        s->block_weight[block] = (lanes[0] + lanes[1]) + (lanes[2] + lanes[3]);
        total += s->block_weight[block];
    }
    return total;
}

static double total_weight(const struct candidates *c)
{
    double total = 0.0;
    for (size_t i = 0; i < c->count; i++) total += (double)c->weights[i];
    return total;
}

/* ----------------------------------------------------------------- filters */

/* Keeps the best by `ranks` until their weights reach `limit`. */
static void keep_by_mass(struct sampler *s, const float *ranks, double limit)
{
    struct candidates *c = &s->candidates;
    struct search search = {
        .ranks = ranks,
        .amounts = c->weights,
        .count = c->count,
        .limit = limit,
        .buckets = s->buckets,
    };
    keep_above_cut(c, ranks, find_cut(&search));
}

/* Locally typical sampling: nearest to the expected surprise first.  With p = w / Z and
 * x = ln w, a token's surprise less the expected one is (ln Z - x) - (ln Z - Σ p x): no
 * logarithm is needed. */
static void filter_typical(struct sampler *s, float best)
{
    struct candidates *c = &s->candidates;
    double total = total_weight(c), mean = 0.0;
    for (size_t i = 0; i < c->count; i++) {
        c->ranks[i] = (c->scores[i] - best) / s->options.temperature;
        if (c->weights[i] > 0.0f) mean += (double)c->weights[i] / total * (double)c->ranks[i];
    }
    for (size_t i = 0; i < c->count; i++)
        c->ranks[i] = (float)-fabs((double)c->ranks[i] - mean) + 0.0f;
    keep_by_mass(s, c->ranks, (double)s->options.typical_p * total);
}

static void filter_min_p(struct candidates *c, float min_p)
{
    float best = 0.0f;
    for (size_t i = 0; i < c->count; i++)
        if (c->weights[i] > best) best = c->weights[i];
    size_t kept = 0;
    for (size_t i = 0; i < c->count; i++) {
        if (c->weights[i] < best * min_p) continue;
        c->ids[kept] = c->ids[i];
        c->weights[kept] = c->weights[i];
        kept++;
    }
    c->count = kept;
}

/* The index at which the running sum of weights passes `target`; rounding may leave the last. */
static size_t find_weight(const float *weights, size_t count, double target)
{
    double sum = 0.0;
    for (size_t i = 0; i + 1 < count; i++) {
        sum += (double)weights[i];
        if (sum > target) return i;
    }
    return count - 1;
}

static int32_t draw(struct sampler *s)
{
    const struct candidates *c = &s->candidates;
    double target = random_unit(&s->random) * total_weight(c);
    return c->ids[find_weight(c->weights, c->count, target)];
}

/* The same over the whole row: first the block, then the token in it. */
static int32_t draw_from_row(struct sampler *s, float best, double total)
{
    double target = random_unit(&s->random) * total;
    size_t last = 0;
    for (size_t block = 0; block < s->block_count; block++) {
        if (s->block_weight[block] == 0.0) continue;
        last = block;
        if (s->block_weight[block] > target) break;
        target -= s->block_weight[block];
    }
    float weights[BLOCK];
    weigh(weights, s->scores + last * BLOCK, BLOCK, best, s->options.temperature);
    size_t count = BLOCK;
    while (weights[count - 1] == 0.0f) count--;
    return (int32_t)(last * BLOCK + find_weight(weights, count, target));
}

/* 0 and 1 both mean that a probability filter is off. */
static bool is_cut(float probability)
{
    return probability > 0.0f && probability < 1.0f;
}

/* How far below the best a score may lie and still pass top-p and min-p, in units of the
 * temperature.  Tokens lighter than (1 - top_p) Z / usable weigh less than (1 - top_p) Z all
 * together, so the others reach top_p without them.  The margin covers the rounding of exp. */
static float filter_reach(const struct sampler *s, double total)
{
    const struct sampler_options *o = &s->options;
    double lightest = 0.0;
    if (is_cut(o->top_p)) lightest = (1.0 - (double)o->top_p) * total / (double)s->usable;
    if ((double)o->min_p > lightest) lightest = (double)o->min_p;
    if (lightest <= 0.0) return exp_reach;
    double reach = 0.1 - log(lightest);
    return reach < (double)exp_reach ? (float)reach : exp_reach;
}

/* The scores within `reach` temperatures of the best become the candidates. */
static void gather_within(struct sampler *s, float best, float reach)
{
    float bound = best - reach * s->options.temperature;
    gather(s, bound > -FLT_MAX ? bound : -FLT_MAX);
}

/* Fills the candidates and their weights as far as top-k and the reach of the later filters
 * allow; *total is the weight of all that top-k left. */
static void choose_candidates(struct sampler *s, float best, double *total)
{
    struct candidates *c = &s->candidates;
    float temperature = s->options.temperature;
    bool typical = is_cut(s->options.typical_p);
    if (s->options.top_k > 0)
        gather_best(s, (size_t)s->options.top_k);
    else if (typical)
        gather_within(s, best, exp_reach);
    else
        gather_within(s, best, filter_reach(s, *total));
    weigh(c->weights, c->scores, c->count, best, temperature);
    if (s->options.top_k > 0 || typical) *total = total_weight(c);
}

int32_t sampler_pick_allowed(struct sampler *sampler, const float *logits, const uint64_t *allowed)
{
    const struct sampler_options *o = &sampler->options;
    load_scores(sampler, logits, allowed);
    apply_biases_and_penalties(sampler);
    float best = find_maxima(sampler);
    if (best == -INFINITY) return -1;
    if (o->temperature == 0.0f || o->top_k == 1) return first_with_score(sampler, best);

    double total = o->top_k > 0 ? 0.0 : weigh_row(sampler, best, o->temperature);
    bool filtered = o->top_k > 0 || is_cut(o->typical_p) || is_cut(o->top_p) || o->min_p > 0.0f;
    if (!filtered) return draw_from_row(sampler, best, total);

    choose_candidates(sampler, best, &total);
    if (is_cut(o->typical_p)) {
        filter_typical(sampler, best);
        total = total_weight(&sampler->candidates);
    }
    if (is_cut(o->top_p))
        keep_by_mass(sampler, sampler->candidates.scores, (double)o->top_p * total);
    if (o->min_p > 0.0f) filter_min_p(&sampler->candidates, o->min_p);
    return draw(sampler);
}

int32_t sampler_pick(struct sampler *sampler, const float *logits)
{
    return sampler_pick_allowed(sampler, logits, NULL);
}

/* ---------------------------------------------------------------- logprobs */

/* ln Σ exp(logit) of the loaded scores; -inf when no token is possible. */
static double log_total(struct sampler *s)
{
    float best = find_maxima(s);
    if (best == -INFINITY) return (double)-INFINITY;
    return (double)best + log(weigh_row(s, best, 1.0f));
}

size_t sampler_logprobs(struct sampler *sampler, mf_logprob *out, size_t count, const float *logits)
{
    load_scores(sampler, logits, NULL);
    double total = log_total(sampler);
    if (count == 0 || total == (double)-INFINITY) return 0;
    gather_best(sampler, count);

    const struct candidates *c = &sampler->candidates;
    for (size_t i = 0; i < c->count; i++) { /* insertion: ids ascend, equals stay in order */
        mf_logprob entry = { c->ids[i], (float)((double)c->scores[i] - total) };
        size_t at = i;
        for (; at > 0 && out[at - 1].logprob < entry.logprob; at--) out[at] = out[at - 1];
        out[at] = entry;
    }
    return c->count;
}

float sampler_logprob_of(struct sampler *sampler, const float *logits, int32_t token)
{
    load_scores(sampler, logits, NULL);
    double total = log_total(sampler);
    if (token < 0 || (size_t)token >= sampler->usable || total == (double)-INFINITY)
        return -INFINITY;
    return (float)((double)sampler->scores[token] - total);
}
