/* plot.c: the report as an SVG: tokens per second over depth.
 *
 *     tokens/s
 *       │ - - - - - - - - -   ceiling (dashed, in the colour of its series)
 *       │   ┬
 *       │   ●────●            median, with the slowest and fastest round
 *       │   ┴
 *       └───┴────┴──── tokens in the context
 *
 * Depths stand side by side, not to scale: 0 and 64 and 8192 are all to be seen. */
#include "bench/report.h"

#include "common/basics.h"
#include "common/svg.h"

#include <math.h>

enum { WIDTH = 960, HEIGHT = 460, SERIES_MAX = 16, DEPTHS_MAX = 16 };

struct panel {
    const struct bench_report *report;
    enum bench_kind kind;
    FILE *out;
    double left, top, width, height; /* of the area inside the axes */
    double highest;                  /* tokens/s at its upper edge */
    double step;                     /* between labels of the axis */
    uint32_t depths[DEPTHS_MAX];
    size_t depth_count;
    uint32_t series[SERIES_MAX]; /* tokens of the tests */
    size_t series_count;
    bool ceiling_above; /* too far to be drawn */
};

/* Distinguishable with colour blindness, too. */
static const char *const colours[] = { "#0072b2", "#d55e00", "#009e73", "#cc79a7",
                                       "#e69f00", "#56b4e9", "#5c3c92", "#666666" };

/* ------------------------------------------------------------------ scales */

static void add_value(uint32_t *list, size_t *count, size_t limit, uint32_t value)
{
    for (size_t i = 0; i < *count; i++)
        if (list[i] == value) return;
    if (*count < limit) list[(*count)++] = value;
}

static const struct bench_test *find_test(const struct panel *panel, uint32_t tokens,
                                          uint32_t depth)
{
    const struct bench_plan *plan = panel->report->plan;
    for (size_t i = 0; i < plan->test_count; i++) {
        const struct bench_test *test = &plan->tests[i];
        if (test->kind == panel->kind && test->tokens == tokens && test->depth == depth)
            return test;
    }
    return NULL;
}

/* Values and, unless it is far above all of them, the ceiling fit in. */
static void choose_scales(struct panel *panel)
{
    const struct bench_plan *plan = panel->report->plan;
    double ceiling = 0, highest = 0;
    for (size_t i = 0; i < plan->test_count; i++) {
        const struct bench_test *test = &plan->tests[i];
        if (test->kind != panel->kind) continue;
        add_value(panel->depths, &panel->depth_count, DEPTHS_MAX, test->depth);
        add_value(panel->series, &panel->series_count, SERIES_MAX, test->tokens);
        highest = fmax(highest, spread_of(test->rates, test->rounds_done).high);
        ceiling = fmax(ceiling, bench_share_of(panel->report, test).limit);
    }
    panel->ceiling_above = ceiling > 3 * highest;
    if (!panel->ceiling_above) highest = fmax(highest, ceiling);
    if (!(highest > 0)) highest = 1;
    panel->step = svg_nice_step(highest);
    panel->highest = panel->step * ceil(highest * 1.02 / panel->step);
}

static double place_x(const struct panel *panel, size_t depth)
{
    return panel->left + panel->width * ((double)depth + 0.5) / (double)panel->depth_count;
}

/* Series stand a little beside each other, so that their whiskers do. */
static double place_point(const struct panel *panel, size_t depth, size_t series)
{
    return place_x(panel, depth) + 12 * ((double)series - ((double)panel->series_count - 1) / 2);
}

static double place_y(const struct panel *panel, double rate)
{
    return panel->top + panel->height * (1 - rate / panel->highest);
}

/* ------------------------------------------------------------------- drawing */

static void draw_axes(const struct panel *panel)
{
    double right = panel->left + panel->width, bottom = panel->top + panel->height;
    int digits = panel->step < 1 ? 1 : 0;
    for (int i = 0; i * panel->step <= panel->highest * 1.0001; i++) {
        double y = place_y(panel, i * panel->step);
        svg_line(panel->out, panel->left, y, right, y,
                 i ? "stroke=\"#e4e4e4\"" : "stroke=\"#444\"");
        fprintf(panel->out,
                "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"end\" fill=\"#444\">%.*f</text>\n",
                panel->left - 8, y + 4, digits, i * panel->step);
    }
    svg_line(panel->out, panel->left, panel->top, panel->left, bottom, "stroke=\"#444\"");
    for (size_t i = 0; i < panel->depth_count; i++) {
        double x = place_x(panel, i);
        svg_line(panel->out, x, bottom, x, bottom + 5, "stroke=\"#444\"");
        fprintf(panel->out,
                "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\" fill=\"#444\">%u</text>\n", x,
                bottom + 20, panel->depths[i]);
    }
    fprintf(panel->out,
            "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\" fill=\"#444\">tokens in the "
            "context</text>\n",
            panel->left + panel->width / 2, bottom + 42);
    fprintf(panel->out,
            "<text transform=\"translate(%.1f %.1f) rotate(-90)\" text-anchor=\"middle\" "
            "fill=\"#444\">tokens/s</text>\n",
            panel->left - 48, panel->top + panel->height / 2);
}

/* Medians as a line, or ceilings as a dashed one. */
static void draw_curve(const struct panel *panel, size_t series, bool ceiling, const char *colour)
{
    FILE *out = panel->out;
    fprintf(out, "<polyline fill=\"none\" stroke=\"%s\" %s points=\"", colour,
            ceiling ? "stroke-dasharray=\"5 4\" opacity=\"0.7\"" : "stroke-width=\"2\"");
    for (size_t i = 0; i < panel->depth_count; i++) {
        const struct bench_test *test = find_test(panel, panel->series[series], panel->depths[i]);
        if (!test) continue;
        double x = place_point(panel, i, series), half = 24;
        double median = spread_of(test->rates, test->rounds_done).median;
        double limit = bench_share_of(panel->report, test).limit;
        if (!ceiling)
            fprintf(out, "%.1f,%.1f ", x, place_y(panel, median));
        else if (limit > 0) /* to both sides, so that one depth alone is a line, too */
            fprintf(out, "%.1f,%.1f %.1f,%.1f ", x - half, place_y(panel, limit), x + half,
                    place_y(panel, limit));
    }
    fputs("\"/>\n", out);
}

static void draw_point(const struct panel *panel, const struct bench_test *test, double x,
                       const char *colour)
{
    struct spread s = spread_of(test->rates, test->rounds_done);
    double low = place_y(panel, s.low), high = place_y(panel, s.high);
    char style[48];
    snprintf(style, sizeof style, "stroke=\"%s\"", colour);
    svg_line(panel->out, x, low, x, high, style);
    svg_line(panel->out, x - 5, low, x + 5, low, style);
    svg_line(panel->out, x - 5, high, x + 5, high, style);
    fprintf(panel->out, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"4\" fill=\"%s\"/>\n", x,
            place_y(panel, s.median), colour);
    fprintf(panel->out,
            "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\" fill=\"%s\" stroke=\"white\" "
            "stroke-width=\"3\" paint-order=\"stroke\">%.*f</text>\n",
            x, high - 8, colour, s.median < 100 ? 1 : 0, s.median);
}

static void draw_series(const struct panel *panel, size_t series)
{
    const char *colour = colours[series % COUNT_OF(colours)];
    draw_curve(panel, series, false, colour);
    bool ceiling = panel->report->ceilings.f32_flops > 0 && !panel->ceiling_above;
    if (ceiling) draw_curve(panel, series, true, colour);
    for (size_t i = 0; i < panel->depth_count; i++) {
        const struct bench_test *test = find_test(panel, panel->series[series], panel->depths[i]);
        if (test) draw_point(panel, test, place_point(panel, i, series), colour);
    }
}

static void draw_legend(const struct panel *panel)
{
    FILE *out = panel->out;
    double x = panel->left, y = panel->top - 14;
    for (size_t i = 0; i < panel->series_count; i++) {
        fprintf(out, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"4\" fill=\"%s\"/>\n", x + 4, y - 4,
                colours[i % COUNT_OF(colours)]);
        fprintf(out, "<text x=\"%.1f\" y=\"%.1f\" fill=\"#222\">%u tokens</text>\n", x + 14, y,
                panel->series[i]);
        x += 104;
    }
    if (panel->report->ceilings.f32_flops <= 0) return;
    if (panel->ceiling_above) {
        fprintf(out, "<text x=\"%.1f\" y=\"%.1f\" fill=\"#777\">ceiling above the plot</text>\n",
                x + 4, y);
        return;
    }
    svg_line(out, x, y - 4, x + 24, y - 4, "stroke=\"#777\" stroke-dasharray=\"5 4\"");
    fprintf(out, "<text x=\"%.1f\" y=\"%.1f\" fill=\"#777\">ceiling: %s</text>\n", x + 32, y,
            panel->kind == BENCH_DECODE ? "memory"
                                        : ceilings_matrix_name(&panel->report->ceilings));
}

static void draw_panel(struct panel *panel, const char *title)
{
    choose_scales(panel);
    if (panel->series_count == 0) return;
    fprintf(panel->out,
            "<text x=\"%.1f\" y=\"%.1f\" font-weight=\"bold\" fill=\"#222\">%s</text>\n",
            panel->left, panel->top - 38, title);
    draw_legend(panel);
    draw_axes(panel);
    for (size_t i = 0; i < panel->series_count; i++) draw_series(panel, i);
}

void bench_write_plot(const struct bench_report *report, FILE *out)
{
    struct panel panel = { .report = report, .out = out, .top = 118, .width = 380, .height = 264 };
    struct panel prefill = panel, decode = panel;
    char ceilings[256];
    prefill.kind = BENCH_PREFILL;
    prefill.left = 76;
    decode.kind = BENCH_DECODE;
    decode.left = 556;
    svg_begin(out, WIDTH, HEIGHT, NULL);
    fputs("<text x=\"20\" y=\"30\" font-size=\"16\" font-weight=\"bold\" fill=\"#222\">", out);
    svg_write_text(out, report->model);
    fprintf(out, "</text>\n<text x=\"20\" y=\"50\" fill=\"#444\">%u thread%s, kernels for %s",
            report->threads, report->threads == 1 ? "" : "s", report->kernels);
    if (report->ceilings.f32_flops > 0) {
        ceilings_describe(&report->ceilings, ceilings, sizeof ceilings);
        fputs("; ", out);
        svg_write_text(out, ceilings);
    }
    fputs("</text>\n", out);
    draw_panel(&prefill, "prefill");
    draw_panel(&decode, "decode");
    svg_end(out);
}
