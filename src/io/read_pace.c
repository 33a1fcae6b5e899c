#include "io/read_pace.h"

enum {
    WINDOW_READS = 64,    /* reads per window */
    WINDOWS_BETWEEN = 16, /* windows at the home level between two probes */
    ALONE_MAX = 256       /* reads that do not count before a window is given up */
};

/* A larger depth replaces the current one if its rate is 15 % higher, a smaller one if its rate is
 * at most 5 % lower: of equal rates the smaller depth has the lower latency. */
static const double ratio_up = 1.15, ratio_down = 0.95;

static uint32_t level_of(uint32_t depth)
{
    uint32_t level = 0;
    while (1u << (level + 1) <= depth && level + 1 < PACE_LEVELS) level++;
    return level;
}

void read_pace_init(struct read_pace *out, uint32_t least, uint32_t depth, uint32_t most)
{
    *out = (struct read_pace){ .level_min = level_of(least),
                               .level_max = level_of(most),
                               .probe_up = true };
    out->level = out->home = level_of(depth);
    out->windows = WINDOWS_BETWEEN; /* the first probe starts at once */
}

static void start_window(struct read_pace *p, uint32_t level)
{
    p->level = level;
    p->bytes = 0;
    p->seconds = 0;
    p->reads = p->alone = 0;
}

/* Probes the next larger or smaller depth, in turns where the limits allow both. */
static void begin_probe(struct read_pace *p)
{
    bool up = p->probe_up;
    if (p->home == p->level_max) up = false;
    if (p->home == p->level_min) up = true;
    p->level = up ? p->home + 1 : p->home - 1;
    p->probe_up = !up;
    p->windows = 0;
}

static void end_probe(struct read_pace *p)
{
    bool up = p->level > p->home;
    bool better = p->rates[p->level] > (up ? ratio_up : ratio_down) * p->rates[p->home];
    if (better) { /* continue in this direction, after one window */
        p->home = p->level;
        p->probe_up = up;
        p->windows = WINDOWS_BETWEEN - 1;
    }
    p->level = p->home;
}

/* The number of other reads in flight that makes a read representative of the measured depth. */
static uint32_t enough_beside(const struct read_pace *p)
{
    uint32_t home = 1u << p->home;
    return p->level > p->home ? home + home / 4 : read_pace_depth(p) / 2;
}

void read_pace_note(struct read_pace *p, uint64_t bytes, double seconds, uint32_t beside)
{
    if (p->level_min == p->level_max) return;
    if (beside < enough_beside(p)) {
        if (++p->alone == ALONE_MAX) start_window(p, p->home);
        return;
    }
    p->bytes += (double)(beside + 1) * (double)bytes;
    p->seconds += seconds;
    if (++p->reads < WINDOW_READS) return;
    double rate = p->bytes / (p->seconds > 0 ? p->seconds : 1e-9);
    double *known = &p->rates[p->level];
    *known = *known > 0 ? (*known + rate) / 2 : rate;
    start_window(p, p->level);
    if (p->level != p->home)
        end_probe(p);
    else if (++p->windows > WINDOWS_BETWEEN)
        begin_probe(p);
}
