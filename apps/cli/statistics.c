#include "statistics.h"

#include "api/handles.h"

double rate_per_second(uint64_t count, double seconds)
{
    return seconds > 0 ? (double)count / seconds : 0;
}

/* Percent of expert uses that needed no read; 100 when there were none. */
static double hit_percent(const mf_stats *stats)
{
    uint64_t uses = stats->expert_hits + stats->expert_misses;

    return uses ? 100.0 * (double)stats->expert_hits / (double)uses : 100.0;
}

void statistics_print_line(const mf_stats *stats, const struct terminal *terminal)
{
    fprintf(stderr, "%s%llu prompt tokens at %.0f/s, %llu tokens at %.0f/s",
            terminal_style(terminal->colour_err, STYLE_DIM),
            (unsigned long long)stats->prompt_tokens,
            rate_per_second(stats->prompt_tokens, stats->prompt_seconds),
            (unsigned long long)stats->decode_tokens,
            rate_per_second(stats->decode_tokens, stats->decode_seconds));
    if (stats->expert_hits + stats->expert_misses > 0) {
        fprintf(stderr, ", experts %.1f%% from memory", hit_percent(stats));
    }
    fprintf(stderr, "%s\n", terminal_style(terminal->colour_err, STYLE_PLAIN));
}

static void print_speed(const char *name, uint64_t tokens, double seconds)
{
    fprintf(stderr, "  %-16s %8llu tokens  %8.3f s  %8.1f tokens/s\n", name,
            (unsigned long long)tokens, seconds, rate_per_second(tokens, seconds));
}

static void print_share(const char *name, double seconds, double total)
{
    fprintf(stderr, "  %-16s %8.3f s  %5.1f%%\n", name, seconds,
            total > 0 ? 100.0 * seconds / total : 0.0);
}

static void print_table(const mf_stats *stats, const struct terminal *terminal)
{
    const char *bold = terminal_style(terminal->colour_err, STYLE_BOLD);
    const char *plain = terminal_style(terminal->colour_err, STYLE_PLAIN);
    double total = stats->prompt_seconds + stats->decode_seconds;
    double known = stats->attention_seconds + stats->expert_wait_seconds + stats->expert_seconds +
                   stats->head_seconds;
    char size[32];

    fprintf(stderr, "%sspeed%s\n", bold, plain);
    print_speed("prompt", stats->prompt_tokens, stats->prompt_seconds);
    print_speed("generated", stats->decode_tokens, stats->decode_seconds);
    fprintf(stderr, "%stime%s\n", bold, plain);
    print_share("attention", stats->attention_seconds, total);
    print_share("expert wait", stats->expert_wait_seconds, total);
    print_share("experts", stats->expert_seconds, total);
    print_share("head", stats->head_seconds, total);
    print_share("other", total > known ? total - known : 0.0, total);
    fprintf(stderr, "%sexperts%s\n", bold, plain);
    fprintf(stderr, "  %-16s %8s, %llu of %llu fit in %s; read by %s%s\n", "mode",
            stats->expert_mode, (unsigned long long)stats->expert_slots,
            (unsigned long long)stats->experts_total,
            size_text(stats->expert_slot_bytes, size, sizeof size), stats->expert_reader,
            stats->expert_direct ? ", past the page cache" : "");
    fprintf(stderr, "  %-16s %8llu from memory, %llu read: %.1f%% hits\n", "used",
            (unsigned long long)stats->expert_hits, (unsigned long long)stats->expert_misses,
            hit_percent(stats));
    fprintf(stderr, "  %-16s %8s\n", "bytes read",
            size_text(stats->expert_bytes_read, size, sizeof size));
    fprintf(stderr, "  %-16s %8llu of %llu in time, %llu late, %llu wasted\n", "read ahead",
            (unsigned long long)stats->expert_ahead_hits,
            (unsigned long long)stats->expert_ahead_reads,
            (unsigned long long)stats->expert_ahead_late,
            (unsigned long long)stats->expert_ahead_wasted);
    fprintf(stderr, "  %-16s %8llu of %llu\n", "in memory now",
            (unsigned long long)stats->experts_present, (unsigned long long)stats->experts_total);
}

/* ------------------------------------------------------------- expert map */

enum { MAP_COLUMNS = 64 };

/* Uses of the experts that share a column of the map. */
static uint64_t column_uses(const uint64_t *uses, uint32_t experts, uint32_t columns,
                            uint32_t column)
{
    uint64_t sum = 0;
    uint32_t first = (uint32_t)((uint64_t)column * experts / columns);
    uint32_t end = (uint32_t)((uint64_t)(column + 1) * experts / columns);

    for (uint32_t i = first; i < end; i++) sum += uses[i];
    return sum;
}

/* One character per expert (or neighbours, where there are many): the more it was used
 * against the busiest of its layer, the taller. */
static void print_map_row(const uint64_t *uses, uint32_t experts, const struct terminal *terminal)
{
    static const char *const blocks[] = { " ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█" };
    static const char *const letters[] = { " ", ".", ":", "-", "=", "+", "*", "#", "@" };
    const char *const *marks = terminal->utf8 ? blocks : letters;
    uint32_t columns = experts < MAP_COLUMNS ? experts : MAP_COLUMNS;
    uint64_t largest = 1;

    for (uint32_t c = 0; c < columns; c++) {
        uint64_t sum = column_uses(uses, experts, columns, c);
        if (sum > largest) largest = sum;
    }
    for (uint32_t c = 0; c < columns; c++) {
        uint64_t sum = column_uses(uses, experts, columns, c);
        fputs(marks[(sum * 8 + largest - 1) / largest], stderr);
    }
}

static void print_map(const mf_model *model, const struct terminal *terminal)
{
    const struct model_config *config = &model->model.config;

    for (uint32_t layer = 0; layer < config->layer_count; layer++) {
        const uint64_t *uses = expert_store_uses(model->experts, layer);
        uint32_t used = 0;
        for (uint32_t i = 0; uses && i < config->experts; i++) used += uses[i] > 0;
        if (used == 0) continue;
        fprintf(stderr, "  layer %-3u %4u of %u  |", layer, used, config->experts);
        print_map_row(uses, config->experts, terminal);
        fputs("|\n", stderr);
    }
}

void statistics_print(const struct opened *opened)
{
    struct terminal terminal;
    mf_stats stats;

    terminal_probe(&terminal);
    mf_session_stats(opened->session, &stats);
    print_table(&stats, &terminal);
    print_map(opened->model, &terminal);
}
