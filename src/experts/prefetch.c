#include "experts/prefetch.h"

enum {
    BLOCK_TOKENS = 2,   /* in one state, within a trial */
    STEADY_MIN = 32,    /* tokens */
    STEADY_MAX = 4096,  /* the cost of a trial is then below what can be measured */
    RANKS_TO_LEARN = 4, /* beyond the trusted ones */
};

/* Switching on must save 5 %; switching off may cost 2 %. */
static const double gain_on = 0.95, gain_off = 1.02;

/* Share of the time spent waiting below which there is nothing to gain. */
static const double waiting_min = 0.04;

/* Bounds of the share of right predictions that is worth a read. */
static const float trust_min = 0.2f, trust_max = 0.5f;

/* The threshold at a depth of 1; between the bounds, at depths of 12 to 30, it falls as 1 / depth.
 * Measured with tests/golden/read_ahead. */
static const float depth_cost = 6.0f;

/* An early mistake takes a slot, and the next visit predicts better. */
static const float doubt[PREFETCH_REACH] = { 1.0f, 2.0f };

static const float right_min = 0.01f;
static const float learning_rate = 1.0f / 64;

/* Estimates at the start: for the router's first choices, as many again, and the rest. */
static const float first_choices = 0.75f, next_choices = 0.3f, others = 0.05f;

static void begin_trial(struct prefetch *p)
{
    p->in_trial = true;
    p->tokens = 0;
    p->cost_counts[false] = p->cost_counts[true] = 0;
}

void prefetch_init(struct prefetch *out, uint32_t visits_per_token, uint32_t per_token)
{
    *out = (struct prefetch){ .visits_per_token = visits_per_token,
                              .steady_tokens = STEADY_MIN,
                              .trust = trust_max };
    for (uint32_t r = 0; r < PREFETCH_REACH; r++)
        for (uint32_t i = 0; i < PREFETCH_RANKS; i++)
            out->right[r][i] = i < per_token       ? first_choices
                               : i < 2 * per_token ? next_choices
                                                   : others;
    if (visits_per_token < 2) return;
    out->on = out->home = true;
    begin_trial(out);
}

static double median(double *seconds, uint32_t count)
{
    for (uint32_t i = 1; i < count; i++) {
        double one = seconds[i];
        uint32_t at = i;
        for (; at > 0 && seconds[at - 1] > one; at--) seconds[at] = seconds[at - 1];
        seconds[at] = one;
    }
    return (seconds[(count - 1) / 2] + seconds[count / 2]) / 2;
}

static void begin_steady(struct prefetch *p)
{
    p->in_trial = false;
    p->tokens = 0;
    p->on = p->home;
    p->steady_seconds = p->steady_waiting = 0;
}

static void end_trial(struct prefetch *p)
{
    double off = median(p->costs[false], p->cost_counts[false]);
    double on = median(p->costs[true], p->cost_counts[true]);
    bool best = p->home ? off >= gain_off * on : on < gain_on * off;
    if (best != p->home)
        p->steady_tokens = STEADY_MIN;
    else if (p->steady_tokens < STEADY_MAX)
        p->steady_tokens *= 2;
    p->home = best;
    begin_steady(p);
}

static void trial_token(struct prefetch *p)
{
    p->costs[p->on][p->cost_counts[p->on]++] = p->cost;
    p->on = (++p->tokens / BLOCK_TOKENS) % 2 == 0 ? p->home : !p->home;
    if (p->tokens == 2 * PREFETCH_TRIAL) end_trial(p);
}

static void steady_token(struct prefetch *p)
{
    if (++p->tokens < p->steady_tokens) return;
    bool hopeless = !p->home && p->steady_waiting < waiting_min * p->steady_seconds;
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
    if (*right < right_min) *right = right_min;
}

void prefetch_depth(struct prefetch *p, uint32_t depth)
{
    float share = depth_cost / (float)depth;
    p->trust = share < trust_min ? trust_min : share > trust_max ? trust_max : share;
}

bool prefetch_trusts(const struct prefetch *p, uint32_t reach, uint32_t rank)
{
    return rank < PREFETCH_RANKS && reach <= PREFETCH_REACH &&
           p->right[reach - 1][rank] >= p->trust * doubt[reach - 1];
}

uint32_t prefetch_ranks(const struct prefetch *p, uint32_t reach)
{
    uint32_t ranks = PREFETCH_RANKS;
    if (reach > PREFETCH_REACH) return 0;
    while (ranks > 0 && !prefetch_trusts(p, reach, ranks - 1)) ranks--;
    return (uint32_t)min_size(ranks + RANKS_TO_LEARN, PREFETCH_RANKS);
}

float prefetch_distance(const struct prefetch *p, uint32_t reach, uint32_t rank)
{
    float right = p->right[reach - 1][rank];
    return (float)reach + (1.0f / right - 1.0f) * (float)p->visits_per_token;
}
