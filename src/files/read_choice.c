#include "files/read_choice.h"

enum { PHASE_SKIPPED = 16, PHASE_READS = 48 };

/* The second way must be better by this.  It has no other merit, and a disk that others use gives
 * much more at one moment than at the next. */
static const double worth_changing = 1.4;

void read_choice_init(struct read_choice *out, uint32_t ways)
{
    *out = (struct read_choice){ .phase = ways < CHOICE_WAYS ? CHOICE_PHASES : 0 };
}

static double rate_of(const struct read_choice *c, uint32_t way)
{
    return (double)c->bytes[way] / (c->seconds[way] > 0 ? c->seconds[way] : 1e-9);
}

void read_choice_note(struct read_choice *c, uint64_t bytes, double seconds)
{
    if (read_choice_is_over(c)) return;
    c->reads++;
    if (c->reads == PHASE_SKIPPED) {
        c->bytes_before = bytes;
        c->seconds_before = seconds;
    }
    if (c->reads < PHASE_SKIPPED + PHASE_READS) return;
    c->bytes[c->active] += bytes - c->bytes_before;
    c->seconds[c->active] += seconds - c->seconds_before;
    c->reads = 0;
    c->active = ++c->phase % CHOICE_WAYS;
    if (read_choice_is_over(c)) c->active = rate_of(c, 1) > worth_changing * rate_of(c, 0);
}
