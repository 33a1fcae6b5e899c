/* many_report.c: sequences in shared steps as a table, JSON and a plot. */
#include "bench/many.h"

#include "common/basics.h"
#include "common/svg.h"

#include <math.h>

static struct spread spread_of_test(const struct many_test *test)
{
    return spread_of(test->rates, test->rounds_done);
}

static double bytes_per_token(const struct many_test *test)
{
    double tokens = (double)test->steps * test->sequences;
    return tokens > 0 ? (double)test->bytes_read / tokens : 0;
}

/* Of the time: nothing could be computed because experts were being read. */
static double waiting_share(const struct many_test *test)
{
    return test->seconds > 0 ? test->wait_seconds / test->seconds : 0;
}

void many_print_table(const struct many_report *report, FILE *out)
{
    const struct many_plan *plan = report->plan;
    mf_model_statistics stats = MF_MODEL_STATISTICS_INIT;
    mf_model_stats(report->model, &stats, NULL);
    fprintf(out, "model              %s, experts %s\n", mf_model_name(report->model),
            stats.expert_mode);
    fprintf(out, "kernels            %s, %u threads\n", report->kernels, report->threads);
    if (report->ceilings.thread_count > 0) {
        char text[256];
        ceilings_describe(&report->ceilings, text, sizeof text);
        fprintf(out, "machine            %s\n", text);
    }
    fprintf(out, "\n%u tokens for each sequence, %u deep\n", plan->tokens, plan->depth);
    fprintf(out,
            "sequences   tokens/s   slowest … fastest   each    experts  read/token  waiting   "
            "bound\n");
    for (size_t i = 0; i < plan->test_count; i++) {
        const struct many_test *test = &plan->tests[i];
        struct spread spread = spread_of_test(test);
        struct many_bound bound = many_bound(plan, test, report->model, &report->ceilings);
        fprintf(out, "%9u %10.1f   %7.1f … %-7.1f %7.2f %10.1f %8.2f MB %6.0f %%", test->sequences,
                spread.median, spread.low, spread.high, spread.median / test->sequences,
                test->union_experts, bytes_per_token(test) / 1e6, 100 * waiting_share(test));
        if (bound.rate > 0)
            fprintf(out, "   %3.0f %% of %.3g (%s)", 100 * spread.median / bound.rate, bound.rate,
                    bound.of);
        fputc('\n', out);
    }
}

json_t *many_json_new(const struct many_report *report)
{
    const struct many_plan *plan = report->plan;
    json_t *tests = json_array();
    for (size_t i = 0; i < plan->test_count; i++) {
        const struct many_test *test = &plan->tests[i];
        struct spread spread = spread_of_test(test);
        struct many_bound bound = many_bound(plan, test, report->model, &report->ceilings);
        json_array_append_new(
            tests,
            json_pack("{s:I,s:{s:f,s:f,s:f},s:f,s:f,s:f,s:f,s:f,s:f,s:f,s:s}", "sequences",
                      (json_int_t)test->sequences, "tokens_per_second", "median", spread.median,
                      "min", spread.low, "max", spread.high, "union_experts", test->union_experts,
                      "bytes_read_per_token", bytes_per_token(test), "share_of_bytes_wasted",
                      test->bytes_read ? (double)test->bytes_wasted / (double)test->bytes_read : 0,
                      "share_of_time_waiting", waiting_share(test), "disk_bytes_per_second",
                      spread_of(test->disk, test->rounds_done).median, "step_bytes",
                      bound.step_bytes, "bound_tokens_per_second", bound.rate, "bound", bound.of));
    }
    return json_pack("{s:s,s:s,s:s,s:I,s:I,s:I,s:o}", "version", mf_version(), "model",
                     mf_model_name(report->model), "kernels", report->kernels, "threads",
                     (json_int_t)report->threads, "tokens", (json_int_t)plan->tokens, "depth",
                     (json_int_t)plan->depth, "tests", tests);
}

/* --------------------------------------------------------------------- plot */

enum { WIDTH = 640, HEIGHT = 420, LEFT = 80, TOP = 40, RIGHT = 30, BOTTOM = 70 };

struct scale {
    double highest, step;
    size_t columns;
};

static double place_x(const struct scale *scale, size_t i)
{
    return LEFT + (WIDTH - LEFT - RIGHT) * ((double)i + 0.5) / (double)scale->columns;
}

static double place_y(const struct scale *scale, double rate)
{
    return TOP + (HEIGHT - TOP - BOTTOM) * (1 - fmin(rate / scale->highest, 1));
}

static void draw_axes(const struct many_report *report, const struct scale *scale, FILE *out)
{
    char text[64];
    for (int i = 0; i * scale->step <= scale->highest * 1.0001; i++) {
        double y = place_y(scale, i * scale->step);
        svg_line(out, LEFT, y, WIDTH - RIGHT, y, i ? "stroke=\"#e4e4e4\"" : "stroke=\"#444\"");
        snprintf(text, sizeof text, "%g", i * scale->step);
        svg_label(out, LEFT - 8, y + 4, "end", "fill=\"#444\"", text);
    }
    for (size_t i = 0; i < scale->columns; i++) {
        snprintf(text, sizeof text, "%u", report->plan->tests[i].sequences);
        svg_label(out, place_x(scale, i), HEIGHT - BOTTOM + 20, "middle", "fill=\"#444\"", text);
    }
    svg_label(out, (LEFT + WIDTH - RIGHT) / 2.0, HEIGHT - 22, "middle", "fill=\"#444\"",
              "sequences that generate together");
    snprintf(text, sizeof text, "tokens/s of all sequences: measured ●, bound - -");
    svg_label(out, LEFT, TOP - 16, "start", "fill=\"#222\"", text);
}

void many_write_plot(const struct many_report *report, FILE *out)
{
    const struct many_plan *plan = report->plan;
    struct scale scale = { .columns = plan->test_count };
    for (size_t i = 0; i < plan->test_count; i++) {
        double bound = many_bound(plan, &plan->tests[i], report->model, &report->ceilings).rate;
        scale.highest = fmax(scale.highest, spread_of_test(&plan->tests[i]).high);
        scale.highest = fmax(scale.highest, fmin(bound, 3 * scale.highest));
    }
    scale.step = svg_nice_step(scale.highest);
    scale.highest = scale.step * ceil(scale.highest * 1.02 / scale.step);
    svg_begin(out, WIDTH, HEIGHT, NULL);
    draw_axes(report, &scale, out);
    for (int bounds = 1; bounds >= 0; bounds--) {
        fprintf(out, "<polyline fill=\"none\" stroke=\"#0072b2\" %s points=\"",
                bounds ? "stroke-dasharray=\"5 4\" opacity=\"0.7\"" : "stroke-width=\"2\"");
        for (size_t i = 0; i < plan->test_count; i++) {
            const struct many_test *test = &plan->tests[i];
            double rate = bounds ? many_bound(plan, test, report->model, &report->ceilings).rate
                                 : spread_of_test(test).median;
            if (rate > 0) fprintf(out, "%.1f,%.1f ", place_x(&scale, i), place_y(&scale, rate));
        }
        fputs("\"/>\n", out);
    }
    for (size_t i = 0; i < plan->test_count; i++) {
        struct spread spread = spread_of_test(&plan->tests[i]);
        double x = place_x(&scale, i);
        svg_line(out, x, place_y(&scale, spread.low), x, place_y(&scale, spread.high),
                 "stroke=\"#0072b2\"");
        svg_circle(out, x, place_y(&scale, spread.median), 4, "fill=\"#0072b2\"");
    }
    svg_end(out);
}
