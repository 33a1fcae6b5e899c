#include "files/read_pace.h"

enum {
    WINDOW_READS = 64,    /* that make a measurement */
    WINDOWS_BETWEEN = 16, /* measurements at home from one probe to the next */
    ALONE_MAX = 256       /* reads for which a probe waits for enough others */
};

/* More depth must give this much more; less depth may cost this much. */
static const double worth_more = 1.15, worth_less = 0.95;

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
    out->windows = WINDOWS_BETWEEN; /* the first probe comes at once */
}

static void start_window(struct read_pace *p, uint32_t level)
{
    p->level = level;
    p->bytes = 0;
    p->seconds = 0;
    p->reads = p->alone = 0;
}

static void begin_probe(struct read_pace *p)
{
    if (p->home == p->level_min) p->probe_up = true;
    if (p->home == p->level_max) p->probe_up = false;
    p->level = p->probe_up ? p->home + 1 : p->home - 1;
    p->windows = 0;
}

/* Home again: what did the probe give? */
static void judge_probe(struct read_pace *p, double rate_after)
{
    double home = (p->rate_before + rate_after) / 2;
    bool win = p->rate_probe > (p->probe_up ? worth_more : worth_less) * home;
    p->rate_probe = 0;
    if (win) p->windows = WINDOWS_BETWEEN; /* the same way again, at once */
    if (win && p->won) p->home = p->level = p->probe_up ? p->home + 1 : p->home - 1;
    if (!win) p->probe_up = !p->probe_up;
    p->won = win && !p->won;
}

/* So deep it never gets. */
static void give_up(struct read_pace *p)
{
    if (p->level != p->home) p->probe_up = !p->probe_up;
    p->won = false;
    start_window(p, p->home);
}

/* Fewer under way would say nothing about this depth. */
static uint32_t enough_beside(const struct read_pace *p)
{
    uint32_t home = 1u << p->home;
    return p->level > p->home ? home + home / 4 : read_pace_depth(p) / 2;
}

static void end_window(struct read_pace *p)
{
    double rate = p->bytes / (p->seconds > 0 ? p->seconds : 1e-9);
    if (p->level != p->home) {
        p->rate_probe = rate;
        start_window(p, p->home);
        return;
    }
    if (p->rate_probe > 0) judge_probe(p, rate);
    start_window(p, p->home);
    p->rate_before = rate;
    if (++p->windows > WINDOWS_BETWEEN) begin_probe(p);
}

void read_pace_note(struct read_pace *p, uint64_t bytes, double seconds, uint32_t beside)
{
    if (p->level_min == p->level_max) return;
    if (beside < enough_beside(p)) {
        if (++p->alone == ALONE_MAX) give_up(p);
        return;
    }
    p->bytes += (double)(beside + 1) * (double)bytes;
    p->seconds += seconds;
    if (++p->reads == WINDOW_READS) end_window(p);
}
