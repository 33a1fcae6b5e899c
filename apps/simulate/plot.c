/* plot.c: the report as an SVG, for light pages and for dark ones.
 *
 *     hits                          tokens/s
 *       │        ◦── belady            │
 *       │    ●──● moeflux              │        ●
 *       │  ●                           │   ●
 *       └──┴──┴──┴── memory            └──┴──┴──┴── memory
 *
 * Colours are those of Okabe and Ito, distinguishable with colour blindness; every
 * policy has a mark of its own besides. */
#include "simulate/report.h"

#include "cli/terminal.h"
#include "common/svg.h"

#include <math.h>

enum { WIDTH = 960, HEIGHT = 440, PANEL_WIDTH = 372, PANEL_HEIGHT = 264, PANEL_TOP = 112 };

enum mark { MARK_CIRCLE, MARK_RING, MARK_SQUARE, MARK_DIAMOND, MARK_TRIANGLE };

static const struct {
    const char *class;
    const char *meaning;
    enum mark mark;
} looks[MF_CACHE_POLICY_COUNT] = {
    [MF_CACHE_BELADY] = { "p0", "belady: knows the future", MARK_RING },
    [MF_CACHE_MOEFLUX] = { "p1", "moeflux", MARK_CIRCLE },
    [MF_CACHE_LFU] = { "p2", "lfu, aged", MARK_SQUARE },
    [MF_CACHE_LRU] = { "p3", "lru", MARK_DIAMOND },
    [MF_CACHE_S3_FIFO] = { "p4", "s3-fifo", MARK_TRIANGLE },
};

/* No variables: not every viewer knows them. */
static const char style[] =
    "<style>\n"
    ".paper{fill:#ffffff}.ink{fill:#1f2328}.soft{fill:#59636e}\n"
    ".axis{stroke:#59636e}.grid{stroke:#e3e7eb}.line{fill:none;stroke-width:1.6}\n"
    ".p0{stroke:#7d8590;fill:#7d8590}.p1{stroke:#0072b2;fill:#0072b2}\n"
    ".p2{stroke:#009e73;fill:#009e73}.p3{stroke:#d55e00;fill:#d55e00}\n"
    ".p4{stroke:#b25d91;fill:#b25d91}\n"
    ".line.p0{stroke-dasharray:5 4}.line.p1{stroke-width:3}.line{fill:none}\n"
    ".mark{stroke-width:1.6}.ring{fill:#ffffff}\n"
    "@media (prefers-color-scheme: dark){\n"
    ".paper,.ring{fill:#0d1117}.ink{fill:#f0f6fc}.soft{fill:#9198a1}\n"
    ".axis{stroke:#9198a1}.grid{stroke:#262c36}\n"
    ".p1{stroke:#56b4e9;fill:#56b4e9}.p2{stroke:#2ec99b;fill:#2ec99b}\n"
    ".p3{stroke:#f0883e;fill:#f0883e}.p4{stroke:#dd9bc3;fill:#dd9bc3}\n"
    ".ring{fill:#0d1117}.line{fill:none}}\n"
    "</style>\n";

#define AXIS "class=\"axis\""
#define GRID "class=\"grid\""

struct panel {
    const struct simulate_report *report;
    FILE *out;
    bool hits; /* else tokens per second */
    double left;
    double first, widest, highest; /* values at the left, the right and the upper edge */
    double step;                   /* between labels of the upright axis */
};

/* ------------------------------------------------------------------ scales */

/* Where all sizes are memory, memory; else the share of experts that is kept. */
static bool shows_memory(const struct simulate_report *report)
{
    for (size_t i = 0; i < report->size_count; i++) {
        if (report->sizes[i].memory_bytes == 0) return false;
    }
    return true;
}

static double size_value(const struct simulate_report *report, size_t index)
{
    const struct simulated_size *size = &report->sizes[index];
    const mf_simulation_result *result = &size->results[MF_CACHE_MOEFLUX];

    if (shows_memory(report)) return (double)size->memory_bytes;
    return 100.0 * (double)result->slots / (double)result->experts;
}

static double result_value(const struct panel *panel, size_t index, int policy)
{
    const mf_simulation_result *result = &panel->report->sizes[index].results[policy];

    return panel->hits ? simulated_hits(result) : simulated_rate(panel->report, result, true);
}

/* Memory begins at 0, unless most of the axis would be empty. */
static void choose_scales(struct panel *panel)
{
    size_t last = panel->report->size_count - 1; /* they are sorted */
    double highest = 0, smallest = size_value(panel->report, 0);

    panel->widest = size_value(panel->report, last);
    if (smallest < panel->widest && smallest > panel->widest / 3) {
        panel->first = fmax(0, smallest - (panel->widest - smallest) / 12);
    }
    for (size_t i = 0; i <= last; i++) {
        for (int p = 0; p < MF_CACHE_POLICY_COUNT; p++) {
            highest = fmax(highest, result_value(panel, i, p));
        }
    }
    if (!(highest > 0)) highest = 1;
    panel->step = panel->hits ? 20 : svg_nice_step(highest);
    panel->highest = panel->hits ? 100 : panel->step * ceil(highest * 1.02 / panel->step);
}

static double place_x(const struct panel *panel, double value)
{
    return panel->left +
           (PANEL_WIDTH - 16) * (value - panel->first) / (panel->widest - panel->first);
}

static double place_y(const struct panel *panel, double value)
{
    return PANEL_TOP + PANEL_HEIGHT * (1 - value / panel->highest);
}

/* ----------------------------------------------------------------- drawing */

static void draw_mark(FILE *out, double x, double y, int policy)
{
    const char *class = looks[policy].class;

    switch (looks[policy].mark) {
    case MARK_CIRCLE:
        fprintf(out, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"4.5\" class=\"mark %s\"/>\n", x, y,
                class);
        break;
    case MARK_RING:
        fprintf(out, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"3.5\" class=\"mark %s ring\"/>\n", x, y,
                class);
        break;
    case MARK_SQUARE:
        fprintf(out, "<rect x=\"%.1f\" y=\"%.1f\" width=\"6\" height=\"6\" class=\"mark %s\"/>\n",
                x - 3, y - 3, class);
        break;
    case MARK_DIAMOND:
        fprintf(out, "<path d=\"M%.1f %.1fl4 4l-4 4l-4 -4z\" class=\"mark %s\"/>\n", x, y - 4,
                class);
        break;
    case MARK_TRIANGLE:
        fprintf(out, "<path d=\"M%.1f %.1fl4 7h-8z\" class=\"mark %s\"/>\n", x, y - 4, class);
        break;
    }
}

static void draw_upright_axis(const struct panel *panel)
{
    int digits = panel->step < 0.1 ? 2 : panel->step < 1 ? 1 : 0;

    for (int i = 0; i * panel->step <= panel->highest * 1.0001; i++) {
        double y = place_y(panel, i * panel->step);
        svg_line(panel->out, panel->left, y, panel->left + PANEL_WIDTH, y, i ? GRID : AXIS);
        fprintf(panel->out,
                "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"end\" class=\"soft\">%.*f%s</text>\n",
                panel->left - 9, y + 4, digits, i * panel->step, panel->hits ? "%" : "");
    }
    svg_line(panel->out, panel->left, PANEL_TOP, panel->left, PANEL_TOP + PANEL_HEIGHT, AXIS);
}

/* A label under every size that has room beside the one before. */
static void draw_lying_axis(const struct panel *panel)
{
    const double bottom = PANEL_TOP + PANEL_HEIGHT, room = 52;
    bool memory = shows_memory(panel->report);
    double last = panel->left - room;

    for (size_t i = 0; i < panel->report->size_count; i++) {
        double value = size_value(panel->report, i), x = place_x(panel, value);
        char label[32];
        svg_line(panel->out, x, bottom, x, bottom + 5, AXIS);
        if (x - last < room) continue;
        last = x;
        if (memory) {
            size_text((uint64_t)value, label, sizeof label);
        } else {
            snprintf(label, sizeof label, "%.0f%%", value);
        }
        fprintf(panel->out,
                "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\" class=\"soft\">%s</text>\n", x,
                bottom + 20, label);
    }
    fprintf(panel->out,
            "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\" class=\"ink\">%s</text>\n",
            panel->left + PANEL_WIDTH / 2.0, bottom + 42,
            memory ? "memory for weights and caches" : "experts kept in memory");
}

static void draw_policy(const struct panel *panel, int policy)
{
    size_t count = panel->report->size_count;

    fprintf(panel->out, "<polyline class=\"line %s\" points=\"", looks[policy].class);
    for (size_t i = 0; i < count; i++) {
        fprintf(panel->out, "%.1f,%.1f ", place_x(panel, size_value(panel->report, i)),
                place_y(panel, result_value(panel, i, policy)));
    }
    fputs("\"/>\n", panel->out);
    for (size_t i = 0; i < count; i++) {
        double value = result_value(panel, i, policy);
        double x = place_x(panel, size_value(panel->report, i)), y = place_y(panel, value);
        fprintf(panel->out, "<g><title>%s: %.*f%s</title>\n", looks[policy].meaning,
                panel->hits || value < 100 ? 1 : 0, value, panel->hits ? "% hits" : " tokens/s");
        draw_mark(panel->out, x, y, policy);
        fputs("</g>\n", panel->out);
    }
}

static void draw_panel(struct panel *panel, const char *title)
{
    choose_scales(panel);
    fprintf(panel->out, "<text x=\"%.1f\" y=\"%d\" font-weight=\"600\" class=\"ink\">%s</text>\n",
            panel->left, PANEL_TOP - 16, title);
    draw_upright_axis(panel);
    draw_lying_axis(panel);
    for (int p = MF_CACHE_POLICY_COUNT - 1; p >= 0; p--) { /* moeflux and the bound lie on top */
        if (p != MF_CACHE_MOEFLUX) draw_policy(panel, p);
    }
    draw_policy(panel, MF_CACHE_MOEFLUX);
}

static void draw_legend(FILE *out)
{
    double x = 30;

    for (int p = 0; p < MF_CACHE_POLICY_COUNT; p++) {
        fprintf(out, "<polyline class=\"line %s\" points=\"%.1f,66 %.1f,66\"/>\n", looks[p].class,
                x, x + 26);
        draw_mark(out, x + 13, 66, p);
        fprintf(out, "<text x=\"%.1f\" y=\"70\" class=\"ink\">%s</text>\n", x + 34,
                looks[p].meaning);
        x += 66 + 6.2 * (double)strlen(looks[p].meaning);
    }
}

void simulate_write_plot(const struct simulate_report *report, FILE *out)
{
    const mf_route_trace_info *trace = &report->trace;
    struct panel hits = { .report = report, .out = out, .hits = true, .left = 76 };
    struct panel rates = { .report = report, .out = out, .left = 560 };

    svg_begin(out, WIDTH, HEIGHT, style);
    fputs("<text x=\"30\" y=\"34\" font-size=\"16\" font-weight=\"600\" class=\"ink\">", out);
    svg_write_text(out, trace->model);
    fprintf(out,
            "<tspan dx=\"14\" font-size=\"12\" font-weight=\"400\" class=\"soft\">%llu tokens, %u "
            "experts in a layer, %u per token; %.2f GB/s from disk",
            (unsigned long long)trace->token_count, trace->experts, trace->experts_per_token,
            1e-9 * report->disk_rate);
    if (report->step_seconds > 0) {
        fprintf(out, ", %.3g ms per token without waiting", 1e3 * report->step_seconds);
    }
    fputs("</tspan></text>\n", out);
    draw_legend(out);
    draw_panel(&hits, "experts found in memory");
    draw_panel(&rates, "tokens per second, at most");
    svg_end(out);
}
