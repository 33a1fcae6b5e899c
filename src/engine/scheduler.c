#include "engine/scheduler.h"

#include <math.h>

#define DEFAULT_GAP_SECONDS 0.150

/* Part of the deadline that a plan may fill: predictions are medians, and half of the steps take
 * longer.  At a boundary only a layer and a decode step are uncertain. */
#define PLAN_MARGIN  0.85
#define PAUSE_MARGIN 0.90

/* A gap may exceed the deadline by the first factor where a prompt gains the second one. */
#define TOLERANCE      1.2
#define TOLERANCE_GAIN 1.5

/* A prompt computes for this many decode steps between two pauses, where the deadline allows. */
#define PAUSE_SHARE 15.0

/* This part of the time of prompts goes to the one that has waited longest. */
#define WAITING_SHARE 0.125

/* Among more decode rows than a step can hold, a background one counts as one that began to wait
 * so much later. */
#define BACKGROUND_SECONDS 2.0

/* Clients whose times differ by less are equal. */
#define CLIENT_QUANTUM_SECONDS 1.0

/* Part of the deadline up to which a step is short. */
#define SHORT_STEP 0.5

/* A step beside decode rows must be this much faster to be preferred to one with pauses, in which
 * the decoders get their tokens sooner. */
#define BESIDE_ADVANTAGE 1.1

/* Where nothing is known yet. */
#define UNKNOWN_DECODE_SECONDS 0.020
#define UNKNOWN_UNEVENNESS     1.3

void scheduler_init(struct scheduler *s, const struct scheduler_options *options)
{
    *s = (struct scheduler){ .options = *options };
    if (!(s->options.max_gap_seconds > 0)) s->options.max_gap_seconds = DEFAULT_GAP_SECONDS;
}

/* ---------------------------------------------------------------- prediction */

static double decode_seconds(const struct scheduler *s, uint32_t rows)
{
    if (rows == 0) return 0;
    if (curve_most_rows(&s->decode) == 0) return UNKNOWN_DECODE_SECONDS * (1 + rows / 8.0);
    return curve_total(&s->decode, rows) +
           curve_total(&s->decode_bytes, rows) * learned_value(&s->wait_per_byte, 0);
}

static double prompt_seconds(const struct scheduler *s, uint32_t rows)
{
    if (rows == 0) return 0;
    if (curve_most_rows(&s->prompt) == 0) return decode_seconds(s, 1) * (1 + rows / 4.0);
    return curve_total(&s->prompt, rows) +
           curve_total(&s->prompt_bytes, rows) * learned_value(&s->wait_per_byte, 0);
}

double scheduler_predict(const struct scheduler *s, uint32_t decode_rows, uint32_t prompt_rows)
{
    return decode_seconds(s, decode_rows) + prompt_seconds(s, prompt_rows);
}

double scheduler_deadline(const struct scheduler *s, uint32_t decode_rows)
{
    return fmax(s->options.max_gap_seconds, 2 * decode_seconds(s, decode_rows));
}

/* -------------------------------------------------------------------- clients */

/* A client has its place near that of its hash; where all are taken, the one that was seen last
 * the longest time ago makes room. */
static uint32_t account_of(struct scheduler *s, uint64_t client)
{
    enum { PLACES = 8 };
    uint32_t first = (uint32_t)((client * 0x9e3779b97f4a7c15u) >> 32) % SCHEDULE_CLIENTS;
    uint32_t oldest = first;
    for (uint32_t i = 0; i < PLACES; i++) {
        uint32_t at = (first + i) % SCHEDULE_CLIENTS;
        const struct schedule_client *found = &s->clients[at];
        if (found->last_plan > 0 && found->client == client) return at;
        if (found->last_plan < s->clients[oldest].last_plan) oldest = at;
    }
    s->clients[oldest] = (struct schedule_client){ .client = client };
    return oldest;
}

/* A client that had nothing to do saves no time up for later. */
static void open_accounts(struct scheduler *s, struct schedule_job *jobs, size_t count)
{
    double least = 0;
    s->plan_count++;
    for (size_t i = 0; i < count; i++) {
        jobs[i].account = account_of(s, jobs[i].client);
        struct schedule_client *client = &s->clients[jobs[i].account];
        if (client->last_plan + 1 < s->plan_count)
            client->served_seconds = fmax(client->served_seconds, s->floor_seconds);
        client->last_plan = s->plan_count;
        if (i == 0 || client->served_seconds < least) least = client->served_seconds;
    }
    if (count > 0) s->floor_seconds = fmax(s->floor_seconds, least);
}

/* What each job has in the step is charged to its client. */
static void charge(struct scheduler *s, const struct schedule_job *jobs, size_t count)
{
    uint32_t decode_rows = 0, prompt_rows = 0;
    for (size_t i = 0; i < count; i++)
        *(jobs[i].prompt_left > 0 ? &prompt_rows : &decode_rows) += jobs[i].rows;
    double decode = decode_rows ? decode_seconds(s, decode_rows) / decode_rows : 0;
    double prompt = prompt_rows ? prompt_seconds(s, prompt_rows) / prompt_rows : 0;
    for (size_t i = 0; i < count; i++)
        s->clients[jobs[i].account].served_seconds +=
            jobs[i].rows * (jobs[i].prompt_left > 0 ? prompt : decode);
}

/* --------------------------------------------------------------- decode rows */

static double decode_rank(const struct schedule_job *job)
{
    return job->since + (job->background ? BACKGROUND_SECONDS : 0);
}

/* The job of a row that there is no room for: one of those that waited least, another one in
 * each step. */
static struct schedule_job *last_decode_row(const struct scheduler *s, struct schedule_job *jobs,
                                            size_t count)
{
    struct schedule_job *last = NULL;
    for (size_t i = 0; i < count; i++) {
        struct schedule_job *job = &jobs[(i + s->turn) % count];
        if (job->prompt_left > 0 || job->rows == 0) continue;
        if (!last || decode_rank(job) > decode_rank(last)) last = job;
    }
    return last;
}

/* Gives a row to each decode job, to those that have waited longest if there are too many.
 * Returns how many have one. */
static uint32_t choose_decode_rows(struct scheduler *s, struct schedule_job *jobs, size_t count,
                                   uint32_t limit)
{
    uint32_t chosen = 0, wanted;
    for (size_t i = 0; i < count; i++)
        if (jobs[i].prompt_left == 0) chosen += jobs[i].rows = 1;
    for (wanted = chosen; chosen > limit; chosen--) last_decode_row(s, jobs, count)->rows = 0;
    if (wanted > chosen) s->turn += wanted - chosen;
    return chosen;
}

/* How long the decode jobs that have a deadline have waited; below 0: there is none. */
static double longest_wait(const struct schedule_job *jobs, size_t count, double now)
{
    double longest = -1;
    for (size_t i = 0; i < count; i++)
        if (jobs[i].prompt_left == 0 && !jobs[i].background)
            longest = fmax(longest, fmax(now - jobs[i].since, 0));
    return longest;
}

/* --------------------------------------------------------------- prompt rows */

static bool goes_before(const struct scheduler *s, const struct schedule_job *a,
                        const struct schedule_job *b)
{
    if (a->background != b->background) return b->background;
    double more = s->clients[b->account].served_seconds - s->clients[a->account].served_seconds;
    if (more > CLIENT_QUANTUM_SECONDS || more < -CLIENT_QUANTUM_SECONDS) return more > 0;
    if (a->prompt_left != b->prompt_left) return a->prompt_left < b->prompt_left;
    return a->since < b->since;
}

/* The next prompt in order, or the one that has waited longest; NULL: none is left. */
static struct schedule_job *next_prompt(const struct scheduler *s, struct schedule_job *jobs,
                                        size_t count, bool waiting)
{
    struct schedule_job *next = NULL;
    for (size_t i = 0; i < count; i++) {
        struct schedule_job *job = &jobs[i];
        if (job->prompt_left == 0 || job->rows > 0) continue;
        if (!next || (waiting ? job->since < next->since : goes_before(s, job, next))) next = job;
    }
    return next;
}

/* Each step saves a part of its time up for the prompt that has waited longest, which goes first
 * when that is enough for it. */
static bool is_turn_of_waiting(struct scheduler *s, struct schedule_job *jobs, size_t count,
                               uint32_t rows)
{
    const struct schedule_job *first = next_prompt(s, jobs, count, false);
    const struct schedule_job *waiting = next_prompt(s, jobs, count, true);
    if (!first || first == waiting) return false;
    double seconds = prompt_seconds(s, rows);
    s->waiting_seconds += WAITING_SHARE * seconds;
    if (s->waiting_seconds < seconds) return false;
    s->waiting_seconds = 0;
    return true;
}

/* Deals `rows` out to the prompts in their order.  Returns how many were taken. */
static uint32_t choose_prompt_rows(struct scheduler *s, struct schedule_job *jobs, size_t count,
                                   uint32_t rows)
{
    uint32_t left = rows, parts = s->options.span_limit;
    if (rows == 0) return 0;
    bool waiting = is_turn_of_waiting(s, jobs, count, rows);
    for (size_t i = 0; i < count; i++) parts -= jobs[i].rows > 0;
    for (; parts > 0; parts--, waiting = false) {
        struct schedule_job *next = next_prompt(s, jobs, count, waiting);
        if (!next) break;
        uint32_t take = next->prompt_left;
        if (take > left) take = left >= SCHEDULE_GRAIN ? left - left % SCHEDULE_GRAIN : left;
        next->rows = take;
        left -= take;
        if (left < SCHEDULE_GRAIN) break;
    }
    return rows - left;
}

/* What the deadline leaves for prompt rows. */
struct prompt_room {
    uint32_t decode_rows;
    uint32_t available; /* rows of all prompts */
    uint32_t capacity;  /* of a step */
    uint32_t known;     /* rows beyond which no prediction is made */
    double deadline;
};

/* Twice what was seen, but not less than a few grains. */
static uint32_t known_rows(const struct scheduler *s)
{
    return (uint32_t)max_size(2 * (size_t)curve_most_rows(&s->prompt), 4 * SCHEDULE_GRAIN);
}

static uint32_t round_rows(uint32_t rows, uint32_t available)
{
    return rows >= available ? available : rows - rows % SCHEDULE_GRAIN;
}

/* The most rows beside the decode rows that are predicted to end within `seconds`; 0: none. */
static uint32_t rows_beside(const struct scheduler *s, const struct prompt_room *room,
                            double seconds)
{
    uint32_t most = (uint32_t)min_size(room->known, room->capacity - room->decode_rows);
    uint32_t rows = round_rows(most, room->available);
    while (rows > 0 && scheduler_predict(s, room->decode_rows, rows) > seconds)
        rows = (rows - 1) - (rows - 1) % SCHEDULE_GRAIN;
    return rows;
}

/* Prompt rows per second of a step in which decode rows run at layer boundaries; 0: a layer and a
 * decode step take longer than `limit`. */
static double rate_with_pauses(const struct scheduler *s, const struct prompt_room *room,
                               uint32_t rows, double limit)
{
    double seconds = prompt_seconds(s, rows), decode = decode_seconds(s, room->decode_rows);
    double layer = seconds / s->options.layer_count;
    double longest = layer * learned_value(&s->unevenness, UNKNOWN_UNEVENNESS);
    if (longest + decode > limit) return 0;
    double rest = PAUSE_MARGIN * room->deadline - decode - longest;
    double layers = rest > 0 ? 1 + floor(rest / layer) : 1;
    layers = fmin(layers, fmax(round(PAUSE_SHARE * decode / layer), 1));
    return rows / (seconds * (1 + decode / (layers * layer)));
}

/* The rows of the fastest step with pauses. */
static uint32_t fastest_with_pauses(double *rate, const struct scheduler *s,
                                    const struct prompt_room *room, double limit)
{
    uint32_t best = (uint32_t)min_size(SCHEDULE_GRAIN, room->available);
    *rate = 0;
    uint32_t most = (uint32_t)min_size(room->known, room->capacity);
    for (uint32_t rows = round_rows(most, room->available); rows > 0;
         rows = (rows - 1) - (rows - 1) % SCHEDULE_GRAIN) {
        double found = rate_with_pauses(s, room, rows, limit);
        if (found > *rate) {
            *rate = found;
            best = rows;
        }
    }
    return best;
}

/* A layer reads nearly all of its experts for few rows as for many.  Where that alone fills the
 * deadline, a little more time makes a prompt many times faster. */
static uint32_t rows_with_pauses(double *rate, const struct scheduler *s,
                                 const struct prompt_room *room)
{
    double longer;
    uint32_t rows = fastest_with_pauses(rate, s, room, room->deadline);
    uint32_t more = fastest_with_pauses(&longer, s, room, TOLERANCE * room->deadline);
    if (longer <= TOLERANCE_GAIN * *rate) return rows;
    *rate = longer;
    return more;
}

/* How many prompt rows the step has, and whether they go without the decode rows, with pauses. */
static uint32_t fit_prompt_rows(struct scheduler *s, const struct prompt_room *room, double waited,
                                bool *pausable)
{
    double seconds = PLAN_MARGIN * room->deadline;
    uint32_t most = rows_beside(s, room, seconds);
    uint32_t now = rows_beside(s, room, seconds - waited);
    /* What is left of a prompt goes beside the decode rows where that is no long step. */
    bool is_short = scheduler_predict(s, room->decode_rows, now) <= SHORT_STEP * room->deadline;
    if (now >= room->available && is_short) return now;
    if (s->options.pause_rows > 0) {
        double rate, beside = most / scheduler_predict(s, room->decode_rows, most);
        uint32_t paused = rows_with_pauses(&rate, s, room);
        *pausable = most == 0 || beside < BESIDE_ADVANTAGE * rate;
        if (*pausable) return paused;
    }
    /* Decode rows that have waited for long run at once; the prompt's turn is after them. */
    if (now < most / 2 && !s->prompts_passed) return 0;
    return now > 0 ? now : (uint32_t)min_size(SCHEDULE_GRAIN, room->available);
}

/* ----------------------------------------------------------------------- plan */

static void begin_step(struct scheduler *s)
{
    s->layer_predicted = s->layer_longest = s->boundary = 0;
    s->paused_seconds = s->paused_wait_seconds = 0;
    s->paused_bytes = 0;
}

/* Rows of all prompts, as far as a step could hold them. */
static uint32_t count_prompt_rows(const struct scheduler *s, const struct schedule_job *jobs,
                                  size_t count)
{
    size_t rows = 0;
    for (size_t i = 0; i < count; i++) rows += jobs[i].prompt_left;
    return (uint32_t)min_size(rows, s->options.chunk_rows);
}

static void clear_decode_rows(struct schedule_job *jobs, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (jobs[i].prompt_left == 0) jobs[i].rows = 0;
}

void scheduler_plan(struct schedule_plan *out, struct scheduler *s, struct schedule_job *jobs,
                    size_t count, double now)
{
    struct prompt_room room = { .available = count_prompt_rows(s, jobs, count),
                                .capacity = s->options.chunk_rows,
                                .known = known_rows(s) };
    uint32_t parts = s->options.span_limit, rows = s->options.chunk_rows;
    *out = (struct schedule_plan){ 0 };
    begin_step(s);
    open_accounts(s, jobs, count);
    for (size_t i = 0; i < count; i++) jobs[i].rows = 0;
    if (room.available > 0 && parts > 1) parts--;
    if (room.available > 0 && rows > 1) rows -= (uint32_t)min_size(SCHEDULE_GRAIN, rows - 1);
    out->decode_rows = room.decode_rows =
        choose_decode_rows(s, jobs, count, (uint32_t)min_size(parts, rows));
    double waited = longest_wait(jobs, count, now);
    if (waited >= 0)
        out->deadline_seconds = room.deadline = scheduler_deadline(s, room.decode_rows);
    if (room.available > 0) {
        uint32_t fit = (uint32_t)min_size(room.available, room.capacity - room.decode_rows);
        if (waited >= 0) fit = fit_prompt_rows(s, &room, waited, &out->pausable);
        if (out->pausable) clear_decode_rows(jobs, count);
        if (out->pausable) out->decode_rows = 0;
        out->prompt_rows = choose_prompt_rows(s, jobs, count, fit);
        s->prompts_passed = fit == 0;
    }
    if (out->pausable)
        s->layer_predicted = prompt_seconds(s, out->prompt_rows) / s->options.layer_count;
    out->predicted_seconds = scheduler_predict(s, out->decode_rows, out->prompt_rows);
    charge(s, jobs, count);
}

/* ---------------------------------------------------------------------- pause */

bool scheduler_pause(struct scheduler *s, struct schedule_job *jobs, size_t count, double now)
{
    double waited = longest_wait(jobs, count, now);
    if (s->boundary > 0) s->layer_longest = fmax(s->layer_longest, now - s->boundary);
    s->boundary = now;
    if (waited < 0 || s->options.pause_rows == 0) return false;
    for (size_t i = 0; i < count; i++) jobs[i].rows = 0;
    uint32_t rows = choose_decode_rows(s, jobs, count, s->options.pause_rows);
    double decode = decode_seconds(s, rows), layer = fmax(s->layer_predicted, s->layer_longest);
    bool late = waited + layer + decode > PAUSE_MARGIN * scheduler_deadline(s, rows);
    if (!late && waited + layer / 2 < PAUSE_SHARE * decode) {
        clear_decode_rows(jobs, count);
        return false;
    }
    for (size_t i = 0; i < count; i++) jobs[i].account = account_of(s, jobs[i].client);
    charge(s, jobs, count);
    return true;
}

/* ---------------------------------------------------------------------- learn */

static void learn_decode(struct scheduler *s, const struct schedule_step *step)
{
    curve_add(&s->decode, step->decode_rows, fmax(step->seconds - step->wait_seconds, 0));
    curve_add(&s->decode_bytes, step->decode_rows, (double)step->expert_bytes);
}

/* What the decode rows would have taken alone is not the prompt's; where they shared more than
 * that, a quarter of the step is. */
static void learn_prompt(struct scheduler *s, const struct schedule_step *step)
{
    double seconds = step->seconds - step->wait_seconds, bytes = (double)step->expert_bytes;
    if (step->decode_rows > 0 && curve_most_rows(&s->decode) > 0) {
        seconds = fmax(seconds - curve_total(&s->decode, step->decode_rows), seconds / 4);
        bytes = fmax(bytes - curve_total(&s->decode_bytes, step->decode_rows), bytes / 4);
    }
    curve_add(&s->prompt, step->prompt_rows, fmax(seconds, 0));
    curve_add(&s->prompt_bytes, step->prompt_rows, bytes);
}

void scheduler_step_done(struct scheduler *s, const struct schedule_step *step)
{
    struct schedule_step own = *step;
    if (step->in_pause) {
        s->boundary += step->seconds;
        s->paused_seconds += step->seconds;
        s->paused_wait_seconds += step->wait_seconds;
        s->paused_bytes += step->expert_bytes;
    } else {
        own.seconds -= s->paused_seconds;
        own.wait_seconds -= s->paused_wait_seconds;
        own.expert_bytes -= s->paused_bytes;
    }
    if (own.expert_bytes > 0)
        learned_add(&s->wait_per_byte, own.wait_seconds / (double)own.expert_bytes);
    if (own.prompt_rows > 0)
        learn_prompt(s, &own);
    else if (own.decode_rows > 0)
        learn_decode(s, &own);
    if (!step->in_pause && s->layer_longest > 0 && own.seconds > 0)
        learned_add(&s->unevenness,
                    fmax(s->layer_longest * s->options.layer_count / own.seconds, 1));
}
