#include "io/read_choice.h"

enum { PHASE_SKIPPED = 16, AGAIN_AT_FIRST = 4 };

void read_choice_init(struct read_choice *out, const struct read_choice_rule *rule)
{
    *out = (struct read_choice){ .phase = rule ? 0 : CHOICE_PHASES };
    if (!rule) return;
    out->rule = *rule;
    out->again = rule->again / AGAIN_AT_FIRST;
}

static double rate_of(const struct read_choice *c, uint32_t way)
{
    return (double)c->bytes[way] / (c->seconds[way] > 0 ? c->seconds[way] : 1e-9);
}

/* The last two phases once more; then it lasts twice as long until the next time. */
static void begin_again(struct read_choice *c)
{
    for (uint32_t way = 0; way < CHOICE_WAYS; way++) {
        c->bytes[way] /= 2;
        c->seconds[way] /= 2;
    }
    c->phase = CHOICE_PHASES - CHOICE_WAYS;
    c->again = c->again < c->rule.again / 2 ? 2 * c->again : c->rule.again;
    c->active = 0;
    c->reads = 0;
}

void read_choice_note(struct read_choice *c, uint64_t bytes, double seconds)
{
    if (read_choice_is_over(c)) {
        if (c->again > 0 && ++c->reads >= c->again) begin_again(c);
        return;
    }
    uint32_t skipped = PHASE_SKIPPED + (c->phase == 0 ? c->rule.lead : 0);
    c->reads++;
    if (c->reads == skipped) {
        c->bytes_before = bytes;
        c->seconds_before = seconds;
    }
    if (c->reads < skipped + c->rule.phase_reads) return;
    c->bytes[c->active] += bytes - c->bytes_before;
    c->seconds[c->active] += seconds - c->seconds_before;
    c->reads = 0;
    c->active = ++c->phase % CHOICE_WAYS;
    if (read_choice_is_over(c)) c->active = rate_of(c, 1) > c->rule.worth * rate_of(c, 0);
}
