#include "bench/stall.h"

#include "common/basics.h"
#include "common/clock.h"
#include "common/error.h"

#include <pthread.h>
#include <stdlib.h>

struct stall {
    const struct stall_plan *plan;
    struct stall_figures *figures;
    mf_scheduler *scheduler;
    int32_t *prompt;
};

/* ------------------------------------------------------------- generating */

/* The request that generates: when its tokens came. */
struct generator {
    mf_request *request;
    pthread_mutex_t lock;
    pthread_cond_t advanced;
    size_t tokens;
    bool ended;
    double last;                   /* when the last token came */
    bool beside;                   /* a prompt is read now … */
    bool read;                     /* … or was until the next token */
    double leads[STALL_LEAD];      /* gaps without a prompt */
    struct stall_figures *figures; /* … and with one */
};

static bool take_token(void *user, const mf_request_token *token)
{
    struct generator *g = user;
    double now = clock_seconds();
    (void)token;
    pthread_mutex_lock(&g->lock);
    double gap = now - g->last;
    if (g->tokens > 0 && g->tokens <= STALL_LEAD) g->leads[g->tokens - 1] = gap;
    if (g->beside && g->figures->gap_count < STALL_GAPS_MAX)
        g->figures->gaps[g->figures->gap_count++] = gap;
    g->last = now;
    if (g->read) g->beside = false;
    g->tokens++;
    pthread_cond_signal(&g->advanced);
    pthread_mutex_unlock(&g->lock);
    return true;
}

static void set_beside(struct generator *g, bool beside)
{
    pthread_mutex_lock(&g->lock);
    if (beside) g->beside = true;
    g->read = !beside;
    pthread_mutex_unlock(&g->lock);
}

/* The prompt has been read; the gap that this falls into is the last one beside it. */
static bool note_prompt(void *user, const mf_request_token *token)
{
    (void)token;
    if (user) set_beside(user, false);
    return true;
}

static void note_end(void *user, const mf_request_result *result)
{
    struct generator *g = user;
    (void)result;
    pthread_mutex_lock(&g->lock);
    g->ended = true;
    pthread_cond_signal(&g->advanced);
    pthread_mutex_unlock(&g->lock);
}

static mf_status begin_generator(struct generator *g, const struct stall_plan *plan,
                                 mf_scheduler *scheduler, mf_error *why)
{
    mf_request_options options = MF_REQUEST_OPTIONS_INIT;
    options.tokens = plan->ids;
    options.token_count = min_size(16, plan->id_count);
    options.max_tokens = plan->answer;
    options.ignore_end = true;
    options.client = 1;
    options.token = take_token;
    options.ended = note_end;
    options.user = g;
    mf_status status = mf_request_submit(&g->request, scheduler, &options, why);
    if (status != MF_OK) return status;
    pthread_mutex_lock(&g->lock);
    while (g->tokens <= STALL_LEAD && !g->ended) pthread_cond_wait(&g->advanced, &g->lock);
    pthread_mutex_unlock(&g->lock);
    return MF_OK;
}

/* What went wrong with it, if anything did; that it is cancelled is right. */
static mf_status end_generator(struct generator *g, mf_error *why)
{
    if (!g->request) return MF_OK;
    mf_request_cancel(g->request);
    mf_status status = mf_request_wait(g->request, NULL, why);
    mf_request_close(g->request);
    return status == MF_ERR_CANCELLED ? MF_OK : status;
}

/* ---------------------------------------------------------------- reading */

/* Reads the prompt once, beside `g` where that is not NULL, and adds what it took. */
static mf_status read_prompt(double *seconds, struct stall *stall, struct generator *g,
                             mf_error *why)
{
    mf_request *request;
    mf_request_result result = MF_REQUEST_RESULT_INIT;
    mf_request_options options = MF_REQUEST_OPTIONS_INIT;
    options.tokens = stall->prompt;
    options.token_count = stall->plan->prompt;
    options.max_tokens = 1;
    options.ignore_end = true;
    options.client = 2;
    options.token = note_prompt;
    options.user = g;
    if (g) set_beside(g, true);
    mf_status status = mf_request_submit(&request, stall->scheduler, &options, why);
    if (status != MF_OK) return status;
    status = mf_request_wait(request, &result, why);
    mf_request_close(request);
    *seconds += result.wait_seconds + result.prompt_seconds;
    return status;
}

/* Again and again for a while; `rate`: tokens of the prompt per second. */
static mf_status read_prompts(double *rate, struct stall *stall, struct generator *g, mf_error *why)
{
    double begin = clock_seconds(), seconds = 0;
    size_t tokens = 0;
    mf_status status;
    do {
        status = read_prompt(&seconds, stall, g, why);
        tokens += stall->plan->prompt;
    } while (status == MF_OK && clock_seconds() - begin < STALL_SECONDS);
    *rate = seconds > 0 ? (double)tokens / seconds : 0;
    return status;
}

/* ------------------------------------------------------------------ rounds */

/* Not `measured`: a round that warms up. */
static mf_status run_round(struct stall *stall, size_t round, bool measured, mf_error *why)
{
    struct stall_figures *figures = stall->figures;
    struct generator g = { .figures = figures };
    double alone, beside = 0;
    mf_status status = read_prompts(&alone, stall, NULL, why);
    if (status != MF_OK) return status;
    pthread_mutex_init(&g.lock, NULL);
    pthread_cond_init(&g.advanced, NULL);
    status = begin_generator(&g, stall->plan, stall->scheduler, why);
    if (status == MF_OK) status = read_prompts(&beside, stall, &g, why);
    if (status == MF_OK)
        status = end_generator(&g, why);
    else
        mf_request_close(g.request);
    pthread_cond_destroy(&g.advanced);
    pthread_mutex_destroy(&g.lock);
    if (!measured) figures->gap_count = 0;
    if (!measured || status != MF_OK) return status;
    figures->alone[round] = alone;
    figures->beside[round] = beside;
    figures->step_seconds = spread_of(g.leads, STALL_LEAD).median;
    return MF_OK;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void judge_gaps(struct stall_figures *figures, const struct stall_plan *plan)
{
    double limit = plan->max_gap_seconds > 0 ? plan->max_gap_seconds : 0.150;
    double twice = 2 * figures->step_seconds;
    figures->deadline_seconds = limit > twice ? limit : twice;
    qsort(figures->gaps, figures->gap_count, sizeof *figures->gaps, compare);
    for (size_t i = 0; i < figures->gap_count; i++) {
        figures->late += figures->gaps[i] > 1.25 * figures->deadline_seconds;
        figures->much_late += figures->gaps[i] > 2 * figures->deadline_seconds;
    }
}

static mf_status run_rounds(struct stall *stall, void (*watcher)(void *user, size_t round),
                            void *user, mf_error *why)
{
    mf_status status = MF_OK;
    if (stall->plan->warm_up) status = run_round(stall, 0, false, why);
    for (size_t round = 0; round < stall->plan->rounds && status == MF_OK; round++) {
        if (watcher) watcher(user, round);
        status = run_round(stall, round, true, why);
    }
    if (status == MF_OK) judge_gaps(stall->figures, stall->plan);
    return status;
}

mf_status stall_run(struct stall_figures *out, const struct stall_plan *plan, mf_model *model,
                    void (*watcher)(void *user, size_t round), void *user, mf_error *why)
{
    struct stall stall = { .plan = plan, .figures = out };
    mf_scheduler_options options = MF_SCHEDULER_OPTIONS_INIT;
    *out = (struct stall_figures){ .alone = calloc(plan->rounds, sizeof(double)),
                                   .beside = calloc(plan->rounds, sizeof(double)),
                                   .gaps = calloc(STALL_GAPS_MAX, sizeof(double)) };
    stall.prompt = calloc(plan->prompt, sizeof *stall.prompt);
    mf_status status = MF_OK;
    if (!out->alone || !out->beside || !out->gaps || !stall.prompt)
        status = fail_memory(why, STALL_GAPS_MAX * sizeof(double));
    for (size_t i = 0; status == MF_OK && i < plan->prompt; i++)
        stall.prompt[i] = plan->ids[i % plan->id_count];
    options.max_gap_seconds = plan->max_gap_seconds;
    if (status == MF_OK) status = mf_scheduler_open(&stall.scheduler, model, &options, why);
    if (status == MF_OK) status = run_rounds(&stall, watcher, user, why);
    mf_scheduler_close(stall.scheduler);
    free(stall.prompt);
    if (status != MF_OK) stall_figures_free(out);
    return status;
}

void stall_figures_free(struct stall_figures *figures)
{
    free(figures->alone);
    free(figures->beside);
    free(figures->gaps);
    *figures = (struct stall_figures){ 0 };
}

/* ------------------------------------------------------------------ report */

static double gap_at(const struct stall_figures *figures, double share)
{
    if (figures->gap_count == 0) return 0;
    return figures->gaps[(size_t)(share * (double)(figures->gap_count - 1))];
}

static double loss_of(const struct stall_report *report, struct spread *alone,
                      struct spread *beside)
{
    *alone = spread_of(report->figures->alone, report->plan->rounds);
    *beside = spread_of(report->figures->beside, report->plan->rounds);
    return alone->median > 0 ? 1 - beside->median / alone->median : 0;
}

void stall_print(const struct stall_report *report, FILE *out)
{
    const struct stall_figures *figures = report->figures;
    struct spread alone, beside;
    double loss = loss_of(report, &alone, &beside), count = (double)figures->gap_count;
    mf_model_statistics stats = MF_MODEL_STATISTICS_INIT;
    mf_model_stats(report->model, &stats, NULL);
    fprintf(out, "model              %s, experts %s\n", mf_model_name(report->model),
            stats.expert_mode);
    fprintf(out, "kernels            %s, %u threads\n", report->kernels, report->threads);
    fprintf(out, "\na prompt of %u tokens beside a sequence that generates\n",
            report->plan->prompt);
    fprintf(out, "prompt alone       %.1f tokens/s (%.1f … %.1f)\n", alone.median, alone.low,
            alone.high);
    fprintf(out, "prompt beside      %.1f tokens/s (%.1f … %.1f), %.1f %% less\n", beside.median,
            beside.low, beside.high, 100 * loss);
    fprintf(out, "step alone         %.1f ms, deadline of a gap %.0f ms\n",
            1e3 * figures->step_seconds, 1e3 * figures->deadline_seconds);
    fprintf(out, "gaps               p50 %.1f, p99 %.1f, max %.1f ms\n", 1e3 * gap_at(figures, 0.5),
            1e3 * gap_at(figures, 0.99), 1e3 * gap_at(figures, 1));
    fprintf(out, "late               %.2f %% of %zu above 1.25 deadlines, %zu above 2\n",
            count > 0 ? 100 * (double)figures->late / count : 0, figures->gap_count,
            figures->much_late);
}

json_t *stall_json_new(const struct stall_report *report)
{
    const struct stall_figures *figures = report->figures;
    struct spread alone, beside;
    double loss = loss_of(report, &alone, &beside);
    json_t *gaps =
        json_pack("{s:I,s:f,s:f,s:f,s:I,s:I}", "count", (json_int_t)figures->gap_count,
                  "p50_seconds", gap_at(figures, 0.5), "p99_seconds", gap_at(figures, 0.99),
                  "max_seconds", gap_at(figures, 1), "late", (json_int_t)figures->late, "much_late",
                  (json_int_t)figures->much_late);
    return json_pack("{s:s,s:s,s:s,s:I,s:I,s:f,s:f,s:f,s:f,s:f,s:o}", "version", mf_version(),
                     "model", mf_model_name(report->model), "kernels", report->kernels, "threads",
                     (json_int_t)report->threads, "prompt", (json_int_t)report->plan->prompt,
                     "alone_tokens_per_second", alone.median, "beside_tokens_per_second",
                     beside.median, "prompt_loss", loss, "step_seconds", figures->step_seconds,
                     "deadline_seconds", figures->deadline_seconds, "gaps", gaps);
}
