#include "experts/prefetch.h"

enum {
    TRIAL_TOKENS = 4,  /* of one phase */
    TRIAL_PHASES = 4,  /* home, other, home, other */
    STEADY_MIN = 16,   /* tokens */
    STEADY_MAX = 1024, /* a trial then costs nothing that could be measured */
};

/* To go up, a level must be cheaper by this; to go down it may be dearer by this. */
static const double gain_up = 0.95, gain_down = 1.02;

static const float trust[PREFETCH_LEVELS] = { 2.0f, 0.5f, 0.25f, 0.125f };
static const float trust_at_first = 0.6f, trust_min = 0.01f;
static const float learning_rate = 1.0f / 64;

static void begin_trial_phase(struct prefetch *p, uint32_t phase)
{
    p->trial_phase = phase;
    p->level = phase % 2 == 1 ? p->home : p->other;
    p->visits_left = TRIAL_TOKENS * p->visits_per_token;
}

static void begin_trial(struct prefetch *p)
{
    bool up = p->home == 0 ? true : p->home == PREFETCH_LEVELS - 1 ? false : p->try_up;
    p->other = up ? p->home + 1 : p->home - 1;
    p->try_up = !up;
    p->home_seconds = p->other_seconds = 0;
    begin_trial_phase(p, 1);
}

void prefetch_init(struct prefetch *out, uint32_t visits_per_token)
{
    *out = (struct prefetch){ .visits_per_token = visits_per_token ? visits_per_token : 1,
                              .steady_tokens = STEADY_MIN };
    for (size_t i = 0; i < PREFETCH_RANKS; i++) out->right[i] = trust_at_first;
    begin_trial(out);
}

static void end_trial(struct prefetch *p)
{
    bool up = p->other > p->home;
    if (p->other_seconds < (up ? gain_up : gain_down) * p->home_seconds) {
        p->home = p->other;
        p->try_up = up; /* perhaps further that way */
        p->steady_tokens = STEADY_MIN;
    } else if (p->steady_tokens < STEADY_MAX) {
        p->steady_tokens *= 2;
    }
    p->level = p->home;
    p->trial_phase = 0;
    p->visits_left = p->steady_tokens * p->visits_per_token;
}

void prefetch_visit(struct prefetch *p, double seconds)
{
    if (p->trial_phase > 0)
        *(p->level == p->home ? &p->home_seconds : &p->other_seconds) += seconds;
    if (--p->visits_left > 0) return;
    if (p->trial_phase == 0)
        begin_trial(p);
    else if (p->trial_phase < TRIAL_PHASES)
        begin_trial_phase(p, p->trial_phase + 1);
    else
        end_trial(p);
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

float prefetch_distance(const struct prefetch *p, uint32_t rank)
{
    return 1.0f + (1.0f / p->right[rank] - 1.0f) * (float)p->visits_per_token;
}
