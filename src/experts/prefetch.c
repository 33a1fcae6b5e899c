#include "experts/prefetch.h"

enum {
    BLOCK_TOKENS = 2,   /* at one level, within a trial */
    STEADY_MIN = 16,    /* tokens */
    STEADY_MAX = 1024,  /* a trial then costs nothing that could be measured */
    RANKS_TO_LEARN = 4, /* beyond those that are trusted */
};

/* To go up, a level must be cheaper by this; to go down it may be dearer by this. */
static const double gain_up = 0.95, gain_down = 1.02;

/* Waiting must be this share of the time, or there is nothing to win. */
static const double waiting_min = 0.04;

static const float trust[PREFETCH_LEVELS] = { 2.0f, 0.5f, 0.25f, 0.1f, 0.025f };
static const float trust_min = 0.01f;
static const float learning_rate = 1.0f / 64;

/* Before anything is known: the router's first choices are mostly right, as many again
 * are now and then. */
static const float first_choices = 0.75f, next_choices = 0.3f, others = 0.05f;

static void begin_trial(struct prefetch *p)
{
    bool up = p->home == 0 ? true : p->home == PREFETCH_LEVELS - 1 ? false : p->try_up;
    p->other = up ? p->home + 1 : p->home - 1;
    p->try_up = !up;
    p->in_trial = true;
    p->tokens = 0;
    p->at_home.count = p->at_other.count = 0;
}

void prefetch_init(struct prefetch *out, uint32_t visits_per_token, uint32_t per_token)
{
    *out = (struct prefetch){ .visits_per_token = visits_per_token, .steady_tokens = STEADY_MIN };
    for (uint32_t i = 0; i < PREFETCH_RANKS; i++)
        out->right[i] = i < per_token ? first_choices : i < 2 * per_token ? next_choices : others;
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

static void end_trial(struct prefetch *p)
{
    bool up = p->other > p->home;
    bool cheaper = median(&p->at_other) < (up ? gain_up : gain_down) * median(&p->at_home);
    if (!cheaper) {
        if (p->steady_tokens < STEADY_MAX) p->steady_tokens *= 2;
        begin_steady(p);
        return;
    }
    p->home = p->level = p->other;
    p->steady_tokens = STEADY_MIN;
    p->try_up = up; /* perhaps further that way */
    if (p->home == 0)
        begin_steady(p);
    else
        begin_trial(p);
}

static void trial_token(struct prefetch *p)
{
    struct prefetch_costs *costs = p->level == p->home ? &p->at_home : &p->at_other;
    if (costs->count < PREFETCH_TRIAL) costs->seconds[costs->count++] = p->cost;
    p->tokens++;
    p->level = p->tokens / BLOCK_TOKENS % 2 == 0 ? p->home : p->other;
    if (p->tokens == 2 * PREFETCH_TRIAL) end_trial(p);
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

void prefetch_learn(struct prefetch *p, uint32_t rank, bool needed)
{
    if (rank >= PREFETCH_RANKS) return;
    p->right[rank] += learning_rate * ((needed ? 1.0f : 0.0f) - p->right[rank]);
    if (p->right[rank] < trust_min) p->right[rank] = trust_min;
}

bool prefetch_trusts(const struct prefetch *p, uint32_t rank, uint32_t level)
{
    return rank < PREFETCH_RANKS && p->right[rank] >= trust[level];
}

uint32_t prefetch_ranks(const struct prefetch *p, uint32_t level)
{
    uint32_t ranks = PREFETCH_RANKS;
    if (level == 0) return 0;
    while (ranks > 0 && !prefetch_trusts(p, ranks - 1, level)) ranks--;
    return (uint32_t)min_size(ranks + RANKS_TO_LEARN, PREFETCH_RANKS);
}

float prefetch_distance(const struct prefetch *p, uint32_t rank)
{
    return 1.0f + (1.0f / p->right[rank] - 1.0f) * (float)p->visits_per_token;
}
