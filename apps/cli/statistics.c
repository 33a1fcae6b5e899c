#include "statistics.h"

#include "common/basics.h"
#include "moeflux_tools.h"

#include <jansson.h>

double rate_per_second(uint64_t count, double seconds)
{
    return seconds > 0 ? (double)count / seconds : 0;
}

/* Percent of expert uses that needed no read; 100 when there were none. */
static double hit_percent(const mf_model_statistics *stats)
{
    uint64_t uses = stats->expert_hits + stats->expert_misses;

    return uses ? 100.0 * (double)stats->expert_hits / (double)uses : 100.0;
}

void statistics_print_line(const struct run_statistics *stats, size_t answer_tokens,
                           const struct terminal *terminal)
{
    const mf_sequence_statistics *sequence = &stats->sequence;

    fprintf(stderr, "%s%llu prompt tokens at %.0f/s, %llu tokens at %.0f/s",
            terminal_style(terminal->colour_err, STYLE_DIM),
            (unsigned long long)sequence->prompt_tokens,
            rate_per_second(sequence->prompt_tokens, sequence->prompt_seconds),
            (unsigned long long)answer_tokens,
            rate_per_second(sequence->decode_tokens, sequence->decode_seconds));
    if (stats->model.expert_hits + stats->model.expert_misses > 0) {
        fprintf(stderr, ", experts %.1f%% from memory", hit_percent(&stats->model));
    }
    fprintf(stderr, "%s\n", terminal_style(terminal->colour_err, STYLE_PLAIN));
}

void statistics_read(struct run_statistics *out, const struct opened *opened)
{
    *out = (struct run_statistics){ MF_SEQUENCE_STATISTICS_INIT, MF_MODEL_STATISTICS_INIT };
    mf_sequence_stats(opened->sequence, &out->sequence, NULL);
    mf_model_stats(opened->model, &out->model, NULL);
}

void statistics_reset(const struct opened *opened)
{
    mf_sequence_reset_stats(opened->sequence);
    mf_model_reset_stats(opened->model);
}

static void print_speed(const char *name, uint64_t tokens, double seconds)
{
    fprintf(stderr, "  %-16s %8llu tokens  %8.3f s  %8.1f tokens/s\n", name,
            (unsigned long long)tokens, seconds, rate_per_second(tokens, seconds));
}

static double percent_of(double part, double total)
{
    return total > 0 ? 100.0 * part / total : 0.0;
}

/* Stages are measured with --stats from the start, not when a chat asks for them. */
static bool has_stages(const mf_sequence_statistics *stats)
{
    double sum = 0;

    for (int stage = 0; stage < MF_STAGE_COUNT; stage++) {
        sum += stats->prompt_stage_seconds[stage] + stats->decode_stage_seconds[stage];
    }
    return sum > 0;
}

/* A line for each stage that took time: its share of the prompts' time and of decode's. */
static void print_stages(const mf_sequence_statistics *stats, const char *bold, const char *plain)
{
    double prompt_left = stats->prompt_seconds, decode_left = stats->decode_seconds;

    fprintf(stderr, "%stime%s\n", bold, plain);
    fprintf(stderr, "  %-18s %10s %7s   %10s %7s\n", "", "prompt s", "", "generate s", "");
    for (int stage = 0; stage <= MF_STAGE_COUNT; stage++) {
        bool rest = stage == MF_STAGE_COUNT;
        double prompt = rest ? prompt_left : stats->prompt_stage_seconds[stage];
        double decode = rest ? decode_left : stats->decode_stage_seconds[stage];
        prompt_left -= prompt;
        decode_left -= decode;
        if (prompt <= 0 && decode <= 0) continue;
        fprintf(stderr, "  %-18s %10.3f %6.1f%%   %10.3f %6.1f%%\n",
                rest ? "other" : mf_stage_name((mf_stage)stage), prompt,
                percent_of(prompt, stats->prompt_seconds), decode,
                percent_of(decode, stats->decode_seconds));
    }
}

/* In the order of the numbers: where each use of an expert found it. */
static void print_experts(const mf_model_statistics *stats)
{
    char size[32];
    uint64_t late = stats->expert_ahead_late;

    fprintf(stderr, "  %-16s %8s, %llu of %llu fit in %s\n", "mode", stats->expert_mode,
            (unsigned long long)stats->expert_slots, (unsigned long long)stats->experts_total,
            size_text(stats->expert_slot_bytes, size, sizeof size));
    fprintf(stderr,
            "  %-16s %8llu from the cache, %llu read ahead in time, %llu late, %llu on "
            "demand: %.1f%% hits\n",
            "used", (unsigned long long)(stats->expert_hits - stats->expert_ahead_hits),
            (unsigned long long)stats->expert_ahead_hits, (unsigned long long)late,
            (unsigned long long)(stats->expert_misses - late), hit_percent(stats));
    fprintf(stderr, "  %-16s %8llu, %llu of them unused (%s), now %s\n", "read ahead",
            (unsigned long long)stats->expert_ahead_reads,
            (unsigned long long)stats->expert_ahead_wasted,
            size_text(stats->expert_wasted_bytes, size, sizeof size),
            stats->expert_ahead ? "on" : "off");
    fprintf(stderr, "  %-16s %8llu times, %llu evicted\n", "waited",
            (unsigned long long)stats->expert_waits, (unsigned long long)stats->expert_evictions);
    fprintf(stderr, "  %-16s %8llu of %llu\n", "in memory now",
            (unsigned long long)stats->experts_present, (unsigned long long)stats->experts_total);
}

static void print_disk(const mf_model_statistics *stats)
{
    char size[32];

    fprintf(stderr, "  %-16s %8s, up to %u at a time%s%s\n", "read by", stats->expert_reader,
            stats->disk_depth, stats->expert_direct ? ", past the page cache" : "",
            stats->disk_staged ? ", through buffers" : "");
    fprintf(stderr, "  %-16s %8llu, %llu of them repeated\n", "reads",
            (unsigned long long)stats->disk_reads, (unsigned long long)stats->disk_retries);
    fprintf(stderr, "  %-16s %8s in %.3f s: %.0f MB/s\n", "bytes",
            size_text(stats->disk_bytes, size, sizeof size), stats->disk_seconds,
            1e-6 * rate_per_second(stats->disk_bytes, stats->disk_seconds));
}

static void print_table(const struct run_statistics *stats, const struct terminal *terminal)
{
    const char *bold = terminal_style(terminal->colour_err, STYLE_BOLD);
    const char *plain = terminal_style(terminal->colour_err, STYLE_PLAIN);
    const mf_sequence_statistics *sequence = &stats->sequence;

    fprintf(stderr, "%sspeed%s\n", bold, plain);
    print_speed("prompt", sequence->prompt_tokens, sequence->prompt_seconds);
    print_speed("generated", sequence->decode_tokens, sequence->decode_seconds);
    if (has_stages(sequence)) print_stages(sequence, bold, plain);
    fprintf(stderr, "%sexperts%s\n", bold, plain);
    print_experts(&stats->model);
    fprintf(stderr, "%sdisk%s\n", bold, plain);
    print_disk(&stats->model);
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
    enum { FRAME = 32 }; /* what stands around the row */
    size_t room = terminal->err ? max_size(terminal_width(), FRAME + 8) - FRAME : MAP_COLUMNS;
    uint32_t columns = (uint32_t)min_size(experts, min_size(room, MAP_COLUMNS));
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
    mf_model_shape shape = MF_MODEL_SHAPE_INIT;

    mf_model_get_shape(&shape, model, NULL);
    fprintf(stderr, "%sexperts that were used%s\n",
            terminal_style(terminal->colour_err, STYLE_BOLD),
            terminal_style(terminal->colour_err, STYLE_PLAIN));
    for (uint32_t layer = 0; layer < shape.layer_count; layer++) {
        const uint64_t *uses = mf_model_expert_uses(model, layer);
        uint32_t used = 0;
        for (uint32_t i = 0; uses && i < shape.experts; i++) used += uses[i] > 0;
        if (used == 0) continue;
        fprintf(stderr, "  layer %-3u %4u of %u  |", layer, used, shape.experts);
        print_map_row(uses, shape.experts, terminal);
        fputs("|\n", stderr);
    }
}

/* -------------------------------------------------------------------- JSON */

static json_t *experts_json_new(const mf_model_statistics *s)
{
    return json_pack(
        "{s:s,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:b,s:I,s:I,s:f,s:f}", "mode",
        s->expert_mode, "slots", (json_int_t)s->expert_slots, "slot_bytes",
        (json_int_t)s->expert_slot_bytes, "total", (json_int_t)s->experts_total, "present",
        (json_int_t)s->experts_present, "hits_cache",
        (json_int_t)(s->expert_hits - s->expert_ahead_hits), "hits_ahead",
        (json_int_t)s->expert_ahead_hits, "late_ahead", (json_int_t)s->expert_ahead_late,
        "misses_demand", (json_int_t)(s->expert_misses - s->expert_ahead_late), "evictions",
        (json_int_t)s->expert_evictions, "bytes_read", (json_int_t)s->expert_bytes_read,
        "ahead_reads", (json_int_t)s->expert_ahead_reads, "ahead_bytes",
        (json_int_t)s->expert_ahead_bytes, "ahead_wasted", (json_int_t)s->expert_ahead_wasted,
        "ahead_wasted_bytes", (json_int_t)s->expert_wasted_bytes, "ahead_on", (int)s->expert_ahead,
        "predictions", (json_int_t)s->expert_predictions, "predictions_right",
        (json_int_t)s->expert_predictions_right, "predict_seconds", s->expert_predict_seconds,
        "wait_seconds", s->expert_wait_seconds);
}

/* {"attention":…,"delta net":…}: seconds of the stages that took any. */
static json_t *stages_json_new(const double *seconds)
{
    json_t *out = json_object();

    for (int stage = 0; stage < MF_STAGE_COUNT; stage++) {
        if (seconds[stage] <= 0) continue;
        json_object_set_new(out, mf_stage_name((mf_stage)stage), json_real(seconds[stage]));
    }
    return out;
}

static json_t *stats_json_new(const struct run_statistics *stats)
{
    const mf_sequence_statistics *s = &stats->sequence;
    const mf_model_statistics *m = &stats->model;

    return json_pack("{s:{s:I,s:f,s:o},s:{s:I,s:f,s:o},s:{s:f,s:f,s:f,s:f},s:o,s:{s:s,s:b,s:b,s:i,"
                     "s:I,s:I,s:I,s:f}}",
                     "prompt", "tokens", (json_int_t)s->prompt_tokens, "seconds", s->prompt_seconds,
                     "stages", stages_json_new(s->prompt_stage_seconds), "decode", "tokens",
                     (json_int_t)s->decode_tokens, "seconds", s->decode_seconds, "stages",
                     stages_json_new(s->decode_stage_seconds), "seconds", "attention",
                     s->attention_seconds, "expert_wait", s->expert_wait_seconds, "experts",
                     s->expert_seconds, "head", s->head_seconds, "experts", experts_json_new(m),
                     "disk", "reader", m->expert_reader, "direct", (int)m->expert_direct, "staged",
                     (int)m->disk_staged, "depth", (int)m->disk_depth, "reads",
                     (json_int_t)m->disk_reads, "retries", (json_int_t)m->disk_retries, "bytes",
                     (json_int_t)m->disk_bytes, "seconds", m->disk_seconds);
}

void statistics_print(const struct opened *opened)
{
    struct terminal terminal;
    struct run_statistics stats;

    terminal_probe(&terminal);
    statistics_read(&stats, opened);
    print_table(&stats, &terminal);
    print_map(opened->model, &terminal);
}

void statistics_report(const struct opened *opened, const struct common_settings *settings)
{
    if (settings->stats) statistics_print(opened);
    if (!settings->stats_json) return;
    struct run_statistics stats;
    statistics_read(&stats, opened);
    json_t *line = stats_json_new(&stats);
    json_dumpf(line, stderr, JSON_COMPACT);
    fputc('\n', stderr);
    json_decref(line);
}
