#include "experts/prefetch.h"

enum {
    BLOCK_TOKENS = 2,   /* at one level, within a trial */
    STEADY_MIN = 32,    /* tokens */
    STEADY_MAX = 4096,  /* a trial then costs nothing that could be measured */
    RANKS_TO_LEARN = 4, /* beyond those that are trusted */
};

/* To go up, a level must be cheaper by this; to go down it may be dearer by this. */
static const double gain_up = 0.95, gain_down = 1.02;

/* Waiting must be this share of the time, or there is nothing to win. */
static const double waiting_min = 0.04;

static const float trust[PREFETCH_LEVELS] = { 2.0f, 0.5f, 0.25f, 0.1f };
static const uint32_t reach_of[PREFETCH_LEVELS] = { 0, 1, 2, 2 };
/* What is said earlier must be surer: a wrong read takes a slot, and the next visit will
 * say it better. */
static const float doubt[PREFETCH_REACH] = { 1.0f, 1.5f };

static const float trust_min = 0.01f;
static const float learning_rate = 1.0f / 64;

/* Before anything is known: the router's first choices are mostly right, as many again
 * are now and then. */
static const float first_choices = 0.75f, next_choices = 0.3f, others = 0.05f;

static void begin_trial(struct prefetch *p)
{
    bool all = p->trials == 0 || (p->home == 0 && p->trials % 2 == 0);
    p->trials++;
    p->in_trial = true;
    p->tokens = p->other_count = 0;
    for (uint32_t l = 0; l < PREFETCH_LEVELS; l++) {
        p->costs[l].count = 0;
        bool near = l + 1 == p->home || l == p->home + 1;
        if (l != p->home && (all || near)) p->others[p->other_count++] = l;
    }
}

void prefetch_init(struct prefetch *out, uint32_t visits_per_token, uint32_t per_token)
{
    *out = (struct prefetch){ .visits_per_token = visits_per_token, .steady_tokens = STEADY_MIN };
    for (uint32_t r = 0; r < PREFETCH_REACH; r++)
        for (uint32_t i = 0; i < PREFETCH_RANKS; i++)
            out->right[r][i] = i < per_token       ? first_choices
                               : i < 2 * per_token ? next_choices
                                                   : others;
    if (visits_per_token < 2) return;
    out->level = out->home = 1;
    begin_trial(out);
}

static double median(struct prefetch_costs *costs)
{
    double *s = costs->seconds;
    for (uint32_t i = 1; i < costs->count; i++) {
        double one = s[i];
        uint32_t at = i;
        for (; at > 0 && s[at - 1] > one; at--) s[at] = s[at - 1];
        s[at] = one;
    }
    return (s[(costs->count - 1) / 2] + s[costs->count / 2]) / 2;
}

static void begin_steady(struct prefetch *p)
{
    p->in_trial = false;
    p->tokens = 0;
    p->level = p->home;
    p->steady_seconds = p->steady_waiting = 0;
}

/* The cheapest level; one that differs from home must make up for the doubt. */
static uint32_t cheapest(struct prefetch *p)
{
    uint32_t best = p->home;
    double least = median(&p->costs[p->home]);
    for (uint32_t i = 0; i < p->other_count; i++) {
        uint32_t l = p->others[i];
        double cost = median(&p->costs[l]) / (l > p->home ? gain_up : gain_down);
        if (cost < least) {
            least = cost;
            best = l;
        }
    }
    return best;
}

static void end_trial(struct prefetch *p)
{
    uint32_t best = cheapest(p);
    if (best != p->home)
        p->steady_tokens = STEADY_MIN;
    else if (p->steady_tokens < STEADY_MAX)
        p->steady_tokens *= 2;
    p->home = best;
    begin_steady(p);
}

/* Every second block is spent at home, the others at each other level in turn. */
static uint32_t level_of_block(const struct prefetch *p, uint32_t block)
{
    return block % 2 == 0 ? p->home : p->others[block / 2 % p->other_count];
}

static void trial_token(struct prefetch *p)
{
    struct prefetch_costs *costs = &p->costs[p->level];
    if (costs->count < COUNT_OF(costs->seconds)) costs->seconds[costs->count++] = p->cost;
    p->level = level_of_block(p, ++p->tokens / BLOCK_TOKENS);
    if (p->tokens == 2 * PREFETCH_TRIAL * p->other_count) end_trial(p);
}

static void steady_token(struct prefetch *p)
{
    if (++p->tokens < p->steady_tokens) return;
    bool hopeless = p->home == 0 && p->steady_waiting < waiting_min * p->steady_seconds;
    if (hopeless)
        begin_steady(p);
    else
        begin_trial(p);
}

void prefetch_visit(struct prefetch *p, double seconds, double waiting, double predicting)
{
    p->cost += waiting + predicting;
    p->steady_seconds += seconds;
    p->steady_waiting += waiting;
    if (++p->visits + 1 != p->visits_per_token) return;
    if (p->in_trial)
        trial_token(p);
    else
        steady_token(p);
}

void prefetch_token(struct prefetch *p)
{
    p->visits = 0;
    p->cost = 0;
}

void prefetch_learn(struct prefetch *p, uint32_t reach, uint32_t rank, bool needed)
{
    if (rank >= PREFETCH_RANKS || reach > PREFETCH_REACH) return;
    float *right = &p->right[reach - 1][rank];
    *right += learning_rate * ((needed ? 1.0f : 0.0f) - *right);
    if (*right < trust_min) *right = trust_min;
}

bool prefetch_trusts(const struct prefetch *p, uint32_t reach, uint32_t rank, uint32_t level)
{
    return rank < PREFETCH_RANKS && reach <= reach_of[level] &&
           p->right[reach - 1][rank] >= trust[level] * doubt[reach - 1];
}

uint32_t prefetch_ranks(const struct prefetch *p, uint32_t reach, uint32_t level)
{
    uint32_t ranks = PREFETCH_RANKS;
    if (reach > reach_of[level]) return 0;
    while (ranks > 0 && !prefetch_trusts(p, reach, ranks - 1, level)) ranks--;
    return (uint32_t)min_size(ranks + RANKS_TO_LEARN, PREFETCH_RANKS);
}

float prefetch_distance(const struct prefetch *p, uint32_t reach, uint32_t rank)
{
    float right = p->right[reach - 1][rank];
    return (float)reach + (1.0f / right - 1.0f) * (float)p->visits_per_token;
}
