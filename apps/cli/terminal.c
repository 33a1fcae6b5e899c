#include "terminal.h"

#include "options.h"

#include "common/clock.h"

#include <langinfo.h>
#include <locale.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <unistd.h>

static bool has_text(const char *value)
{
    return value && *value;
}

static bool locale_is_utf8(void)
{
    const char *names[] = { "LC_ALL", "LC_CTYPE", "LANG" };

    for (size_t i = 0; i < COUNT_OF(names); i++) {
        const char *value = getenv(names[i]);
        if (!has_text(value)) continue;
        return strstr(value, "UTF-8") || strstr(value, "utf8") || strstr(value, "utf-8");
    }
    return false;
}

void terminal_set_locale(void)
{
    if (setlocale(LC_CTYPE, "") && strcmp(nl_langinfo(CODESET), "UTF-8") == 0) return;
    setlocale(LC_CTYPE, "C.UTF-8");
}

void terminal_probe(struct terminal *out)
{
    const char *term = getenv("TERM");
    bool plain = has_text(getenv("NO_COLOR")) || !has_text(term) || strcmp(term, "dumb") == 0;

    *out = (struct terminal){
        .out = isatty(STDOUT_FILENO),
        .err = isatty(STDERR_FILENO),
        .in = isatty(STDIN_FILENO),
        .utf8 = locale_is_utf8(),
    };
    out->colour_out = out->out && !plain;
    out->colour_err = out->err && !plain;
}

bool terminal_ask(void)
{
    char answer[64];

    fputs(" [y/N] ", stderr);
    fflush(stderr);
    return fgets(answer, sizeof answer, stdin) && (answer[0] == 'y' || answer[0] == 'Y');
}

unsigned terminal_width(void)
{
    enum { NARROWEST = 20, WIDEST = 1000 };
    const char *columns = getenv("COLUMNS");
    struct winsize size;
    uint64_t count;
    const int streams[] = { STDERR_FILENO, STDOUT_FILENO };

    for (size_t i = 0; i < COUNT_OF(streams); i++) {
        if (ioctl(streams[i], TIOCGWINSZ, &size) == 0 && size.ws_col >= NARROWEST) {
            return size.ws_col;
        }
    }
    if (columns && parse_count(&count, columns) && count >= NARROWEST && count <= WIDEST) {
        return (unsigned)count;
    }
    return 80;
}

const char *terminal_style(bool colour, enum style style)
{
    static const char *const escapes[STYLE_COUNT] = {
        [STYLE_PLAIN] = "\033[0m", [STYLE_BOLD] = "\033[1m",  [STYLE_DIM] = "\033[2m",
        [STYLE_GOOD] = "\033[32m", [STYLE_WARM] = "\033[33m", [STYLE_BAD] = "\033[31m",
    };

    return colour ? escapes[style] : "";
}

void progress_begin(struct progress *progress, const struct terminal *terminal, const char *label,
                    const char *unit, uint64_t total)
{
    *progress = (struct progress){
        .terminal = terminal,
        .label = label,
        .unit = unit,
        .total = total,
        .started = clock_seconds(),
    };
}

static void draw_bar(const struct progress *progress, uint64_t done, unsigned cells)
{
    const char *full = progress->terminal->utf8 ? "█" : "#";
    const char *empty = progress->terminal->utf8 ? "░" : "-";
    unsigned filled = progress->total ? (unsigned)(done * cells / progress->total) : 0;

    for (unsigned i = 0; i < cells; i++) fputs(i < filled ? full : empty, stderr);
}

void progress_update(struct progress *progress, uint64_t done)
{
    const double wait_seconds = 0.25, interval_seconds = 0.1;
    double now = clock_seconds();
    double elapsed = now - progress->started;
    unsigned width;
    char head[96], tail[64];
    int used;

    /* What is done at once needs no bar. */
    if (!progress->terminal->err || elapsed < wait_seconds) return;
    if (progress->drawn > 0 && now - progress->drawn < interval_seconds) return;
    progress->drawn = now;
    width = terminal_width();
    used = snprintf(head, sizeof head, "%s %llu/%llu ", progress->label, (unsigned long long)done,
                    (unsigned long long)progress->total);
    used += snprintf(tail, sizeof tail, " %.0f %s/s", (double)done / elapsed, progress->unit);
    fprintf(stderr, "\r%s%s", terminal_style(progress->terminal->colour_err, STYLE_DIM), head);
    if (width > (unsigned)used + 12) {
        draw_bar(progress, done, (unsigned)min_size(width - (unsigned)used - 2, 40));
    }
    fprintf(stderr, "%s%s", tail, terminal_style(progress->terminal->colour_err, STYLE_PLAIN));
    fputs("\033[K", stderr);
    fflush(stderr);
}

void progress_say(struct progress *progress, const char *what, uint64_t done)
{
    double now = clock_seconds(), elapsed = now - progress->started;
    unsigned left, used, width = terminal_width();
    char tail[32] = "";

    if (!progress->terminal->err) return;
    progress->drawn = now;
    if (done > 0 && done < progress->total) {
        left = (unsigned)(elapsed * (double)(progress->total - done) / (double)done + 0.5);
        snprintf(tail, sizeof tail, " about %u:%02u left", left / 60, left % 60);
    }
    used = (unsigned)(strlen(what) + strlen(tail) + 2);
    fprintf(stderr, "\r%s%s ", terminal_style(progress->terminal->colour_err, STYLE_DIM), what);
    if (progress->total > 0 && width > used + 10) {
        draw_bar(progress, done, (unsigned)min_size(width - used, 30));
    }
    fprintf(stderr, "%s%s\033[K", tail,
            terminal_style(progress->terminal->colour_err, STYLE_PLAIN));
    fflush(stderr);
}

/* Averages over some seconds: a rate that jumps says nothing. */
static void count_rate(struct progress *progress, uint64_t done, double now)
{
    const double interval = 0.5, share = 0.2;
    double elapsed = now - progress->counted;

    if (progress->counted > 0 && elapsed < interval) return;
    if (progress->counted > 0 && done >= progress->counted_done) {
        double rate = (double)(done - progress->counted_done) / elapsed;
        progress->rate += (rate - progress->rate) * (progress->rate > 0 ? share : 1);
    }
    progress->counted = now;
    progress->counted_done = done;
}

void progress_transfer(struct progress *progress, uint64_t done)
{
    const double interval_seconds = 0.1, longest = 99 * 3600;
    double now = clock_seconds();
    char have[32], all[32], rate[32], head[160], tail[96] = "";

    if (!progress->terminal->err || now - progress->drawn < interval_seconds) return;
    progress->drawn = now;
    count_rate(progress, done, now);
    size_text(done, have, sizeof have);
    size_text(progress->total, all, sizeof all);
    double left = progress->rate > 0 ? (double)(progress->total - done) / progress->rate : longest;
    if (done >= progress->total) {
        snprintf(tail, sizeof tail, " comparing checksums");
    } else if (left < longest) {
        unsigned seconds = (unsigned)left;
        snprintf(tail, sizeof tail, " %s/s, %u:%02u left",
                 size_text((uint64_t)progress->rate, rate, sizeof rate), seconds / 60,
                 seconds % 60);
    }
    int used = snprintf(head, sizeof head, "%.64s %s of %s ", progress->label, have, all);
    unsigned width = terminal_width();
    fprintf(stderr, "\r%s%s", terminal_style(progress->terminal->colour_err, STYLE_DIM), head);
    used += (int)strlen(tail) + 1;
    if (progress->total > 0 && width > (unsigned)used + 10)
        draw_bar(progress, done, (unsigned)min_size(width - (unsigned)used, 30));
    fprintf(stderr, "%s%s\033[K", tail,
            terminal_style(progress->terminal->colour_err, STYLE_PLAIN));
    fflush(stderr);
}

void progress_end(struct progress *progress)
{
    if (progress->drawn > 0) fputs("\r\033[K", stderr);
    progress->drawn = 0;
}

const char *size_text(uint64_t bytes, char *out, size_t capacity)
{
    static const char *const units[] = { "bytes", "KiB", "MiB", "GiB", "TiB" };
    double value = (double)bytes;
    size_t unit = 0;

    while (value >= 1024 && unit + 1 < COUNT_OF(units)) {
        value /= 1024;
        unit++;
    }
    snprintf(out, capacity, unit > 0 && value < 100 ? "%.1f %s" : "%.0f %s", value, units[unit]);
    return out;
}
