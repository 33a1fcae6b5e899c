#include "plan/report.h"

#include "cli/shown.h"
#include "cli/terminal.h"
#include "common/basics.h"

#include <math.h>
#include <stdio.h>
#include <time.h>

/* -------------------------------------------------------------------- text */

/* "12.3 s", "4.1 ms", "0.2 µs" */
static const char *time_text(double seconds, char *out, size_t capacity)
{
    const struct {
        double unit;
        const char *name;
    } units[] = { { 1, "s" }, { 1e-3, "ms" }, { 1e-6, "µs" } };
    size_t i = 0;
    while (i + 1 < COUNT_OF(units) && seconds < units[i].unit) i++;
    double value = seconds / units[i].unit;
    snprintf(out, capacity, "%.*f %s", value < 10 ? 1 : 0, value, units[i].name);
    return out;
}

static const char *rate_text(double rate, char *out, size_t capacity)
{
    snprintf(out, capacity, "%.*f", rate < 10 ? 1 : 0, rate);
    return out;
}

static void print_memory(const mf_plan *p, bool streamed)
{
    char size[32], all[32];
    printf("  in memory    %s of weights that every token uses\n",
           size_text(p->weight_bytes, size, sizeof size));
    printf("               %s for the buffers of a step, ",
           size_text(p->engine_bytes + p->table_bytes, size, sizeof size));
    printf("%s for %u positions of context\n", size_text(p->sequence_bytes, size, sizeof size),
           p->context_length);
    printf("               %s of experts: %llu of %llu%s\n",
           size_text(p->expert_bytes, size, sizeof size), (unsigned long long)p->experts_in_memory,
           (unsigned long long)p->expert_count,
           strcmp(p->expert_mode, "mapped") == 0 ? ", in the page cache (mapped)" : "");
    if (!streamed || p->experts_in_memory == 0) return;
    double other = (double)(p->expert_count - p->experts_in_memory);
    double bytes = other * (double)p->expert_bytes / (double)p->experts_in_memory;
    printf("  on disk      the other experts, %s, are read when a token needs them\n",
           size_text((uint64_t)bytes, all, sizeof all));
}

static void print_hits(const struct planned *p)
{
    char low[32], high[32];
    const struct forecast *least = &p->least, *most = &p->most;
    if (p->replayed) {
        printf(
            "               the cache has %.0f %% of the experts on the recorded routes, %s come "
            "from disk\n",
            100 * least->hits, size_text((uint64_t)least->disk_bytes, low, sizeof low));
        return;
    }
    printf(
        "               %.0f %% of the chosen experts are in memory where every one is as likely, "
        "about\n               %.0f %% with a trained router: %s … %s come from disk\n",
        100 * least->hits, 100 * most->hits, size_text((uint64_t)most->disk_bytes, low, sizeof low),
        size_text((uint64_t)least->disk_bytes, high, sizeof high));
}

/* Where the time goes, "5 ms weights of every token + 70 ms disk, experts (8 ms) meanwhile …". */
static void print_parts(const struct forecast *f, const char *state)
{
    char dense[32], experts[32], disk[32], last[32], layers[32], context[32];
    printf("               %s weights of every token + ", time_text(f->dense, dense, sizeof dense));
    if (f->disk > 0)
        printf("%s disk, experts (%s) meanwhile", time_text(f->disk, disk, sizeof disk),
               time_text(f->experts, experts, sizeof experts));
    else
        printf("%s experts", time_text(f->experts, experts, sizeof experts));
    if (f->last > 0) printf(" but for %s", time_text(f->last, last, sizeof last));
    printf(" + %s %s + %s beside\n", time_text(f->state, context, sizeof context), state,
           time_text(f->layers, layers, sizeof layers));
}

static void print_generating(const struct planned *p, double position)
{
    char low[32], high[32], size[32], experts[32];
    const struct forecast *f = &p->least;
    double chosen = p->placement.streamed && f->hits < 1 ? f->disk_bytes / (1 - f->hits) : 0;
    printf("  generating   %s", rate_text(f->tokens_per_second, low, sizeof low));
    if (p->most.tokens_per_second > 1.02 * f->tokens_per_second)
        printf(" … %s", rate_text(p->most.tokens_per_second, high, sizeof high));
    printf(" tokens/s after %.0f others; bound by %s\n", position, forecast_bound_name(f->bound));
    printf("               a token reads %s of weights",
           size_text((uint64_t)f->weight_bytes, size, sizeof size));
    if (chosen > 0)
        printf(", %s of them experts", size_text((uint64_t)chosen, experts, sizeof experts));
    printf("\n");
    if (p->placement.streamed) print_hits(p);
    print_parts(f, "context");
}

static void print_prompt(const struct planned *p, double rows)
{
    char rate[32], time[32], size[32];
    const struct forecast *f = &p->prompt;
    printf("  a prompt     of %.0f tokens: %s tokens/s, %s; bound by %s\n", rows,
           rate_text(f->tokens_per_second, rate, sizeof rate),
           time_text(f->seconds, time, sizeof time), forecast_bound_name(f->bound));
    if (f->disk_bytes > 0)
        printf("               %s of experts come from disk\n",
               size_text((uint64_t)f->disk_bytes, size, sizeof size));
    print_parts(f, "attention");
}

static void print_planned(const struct planned *p, const struct plan_report *report)
{
    char text[32];
    const mf_plan *plan = &p->plan;
    printf("with %s of memory\n", size_text(plan->memory_bytes, text, sizeof text));
    if (!plan->fits) {
        printf("  not possible: %s\n", plan->problem);
        return;
    }
    print_memory(plan, p->placement.streamed);
    print_generating(p, report->wishes->position);
    print_prompt(p, report->wishes->prompt_rows);
    if (p->opening_seconds > 0)
        printf("  opening      %s, where nothing of the files is in the page cache\n",
               time_text(p->opening_seconds, text, sizeof text));
    if (p->placement.streamed && !report->disk_known)
        printf("  the speed of the disk is not known: it counts as unlimited here\n");
}

static void print_row(const struct plan_row *row)
{
    char size[32], low[32], high[32], prompt[32];
    const struct estimate *e = &row->estimate;
    visible_printf(stdout, "  %-14s %10s  ", row->label, size_text(row->bytes, size, sizeof size));
    if (!row->runs) {
        printf("moeflux does not run it\n");
    } else if (!e->fits) {
        printf("does not fit\n");
    } else {
        printf("%3.0f %%  %s%s%s generating, %s prompt%s\n", 100 * e->share,
               rate_text(e->least.tokens_per_second, low, sizeof low), e->streamed ? " … " : "",
               e->streamed ? rate_text(e->most.tokens_per_second, high, sizeof high) : "",
               rate_text(e->prompt.tokens_per_second, prompt, sizeof prompt),
               row->chosen ? "  <- the one above" : "");
    }
}

static void print_rows(const struct plan_report *report)
{
    char size[32];
    if (!report->rows) return;
    printf("quantisations, estimated from their sizes with %s of memory: experts in memory, "
           "tokens/s\n",
           size_text(report->plans[0].plan.memory_bytes, size, sizeof size));
    for (size_t i = 0; i < report->row_count; i++) print_row(&report->rows[i]);
    printf("read from the hub: %s of headers; nothing was downloaded\n",
           size_text(report->transferred, size, sizeof size));
}

/* Rates of a busy machine stay until they are measured again. */
static void print_moment(const struct plan_report *report)
{
    char moment[32] = "at an unknown time";
    time_t seconds = (time_t)report->measured;
    struct tm date;
    if (seconds > 0 && localtime_r(&seconds, &date))
        strftime(moment, sizeof moment, "%Y-%m-%d %H:%M", &date);
    printf("               measured %s", moment);
    if (report->load >= 0.5 * report->threads)
        printf(" with other work (load %.1f), so perhaps too low", report->load);
    printf("; --measure does it again\n");
}

void plan_print(const struct plan_report *report)
{
    char size[32];
    const mf_description_info *info = report->info;
    const struct machine_rates *rates = report->rates;
    visible_printf(stdout, "model          %s (%s)\n", info->name, info->family);
    printf("disk           %s in %llu %s %s\n", size_text(info->bytes, size, sizeof size),
           (unsigned long long)info->file_count, info->layout,
           info->file_count == 1 ? "file" : "files");
    visible_printf(stdout, "machine        %s\n", report->machine);
    printf("               memory %.1f GB/s, products %.2f TFLOP/s", rates->memory_bytes * 1e-9,
           rates->matrix_flops * 1e-12);
    if (report->disk_known) printf(", disk %.2f GB/s", rates->disk_bytes * 1e-9);
    printf("\n");
    print_moment(report);
    for (size_t i = 0; i < report->wishes->size_count; i++)
        print_planned(&report->plans[i], report);
    print_rows(report);
}

/* -------------------------------------------------------------------- JSON */

static json_t *forecast_json_new(const struct forecast *f)
{
    return json_pack("{s:f,s:f,s:s,s:f,s:f,s:f,s:{s:f,s:f,s:f,s:f,s:f,s:f}}", "tokens_per_second",
                     f->tokens_per_second, "seconds", f->seconds, "bound",
                     forecast_bound_name(f->bound), "hit_rate", f->hits, "disk_bytes",
                     f->disk_bytes, "weight_bytes", f->weight_bytes, "parts", "dense_seconds",
                     f->dense, "experts_seconds", f->experts, "disk_seconds", f->disk,
                     "experts_after_disk_seconds", f->last, "context_seconds", f->state,
                     "layers_seconds", f->layers);
}

static json_t *planned_json_new(const struct planned *p, const struct plan_wishes *wishes)
{
    const mf_plan *plan = &p->plan;
    json_t *out = json_pack("{s:I,s:b}", "memory_bytes", (json_int_t)plan->memory_bytes, "fits",
                            (int)plan->fits);
    if (!plan->fits) {
        json_object_set_new(out, "problem", json_string(plan->problem));
        return out;
    }
    json_t *memory = json_pack(
        "{s:I,s:I,s:I,s:I,s:I,s:I,s:I}", "weights", (json_int_t)plan->weight_bytes, "engine",
        (json_int_t)plan->engine_bytes, "sequence", (json_int_t)plan->sequence_bytes, "tables",
        (json_int_t)plan->table_bytes, "experts", (json_int_t)plan->expert_bytes,
        "experts_in_memory", (json_int_t)plan->experts_in_memory, "experts_in_all",
        (json_int_t)plan->expert_count);
    json_object_set_new(out, "memory", memory);
    json_object_set_new(out, "context", json_integer(plan->context_length));
    json_object_set_new(out, "expert_mode", json_string(plan->expert_mode));
    json_object_set_new(out, "generate",
                        json_pack("{s:f,s:b,s:o,s:o}", "position", wishes->position,
                                  "recorded_routes", (int)p->replayed, "least",
                                  forecast_json_new(&p->least), "most",
                                  forecast_json_new(&p->most)));
    json_t *prompt = forecast_json_new(&p->prompt);
    json_object_set_new(prompt, "tokens", json_real(wishes->prompt_rows));
    json_object_set_new(out, "prompt", prompt);
    json_object_set_new(out, "opening_seconds", json_real(p->opening_seconds));
    return out;
}

static json_t *row_json_new(const struct plan_row *row)
{
    const struct estimate *e = &row->estimate;
    json_t *out = json_pack("{s:s,s:I,s:b,s:b,s:b}", "label", row->label, "bytes",
                            (json_int_t)row->bytes, "runs", (int)row->runs, "fits",
                            (int)(row->runs && e->fits), "planned", (int)row->chosen);
    if (!row->runs || !e->fits) return out;
    json_object_set_new(out, "experts_in_memory", json_real(e->share));
    json_object_set_new(out, "generate",
                        json_pack("{s:f,s:f}", "least_tokens_per_second",
                                  e->least.tokens_per_second, "most_tokens_per_second",
                                  e->most.tokens_per_second));
    json_object_set_new(out, "prompt_tokens_per_second", json_real(e->prompt.tokens_per_second));
    return out;
}

static void add_rows(json_t *out, const struct plan_report *report)
{
    if (!report->rows) return;
    json_t *rows = json_array();
    for (size_t i = 0; i < report->row_count; i++)
        json_array_append_new(rows, row_json_new(&report->rows[i]));
    json_object_set_new(out, "quantisations", rows);
    json_object_set_new(out, "header_bytes_read", json_integer((json_int_t)report->transferred));
}

json_t *plan_json_new(const struct plan_report *report)
{
    const mf_description_info *info = report->info;
    const struct machine_rates *rates = report->rates;
    json_t *plans = json_array();
    for (size_t i = 0; i < report->wishes->size_count; i++)
        json_array_append_new(plans, planned_json_new(&report->plans[i], report->wishes));
    json_t *machine = json_pack("{s:s,s:f,s:f,s:f}", "name", report->machine,
                                "memory_bytes_per_second", rates->memory_bytes, "matrix_flops",
                                rates->matrix_flops, "layer_seconds", rates->layer_seconds);
    json_object_set_new(machine, "measured", json_integer((json_int_t)report->measured));
    json_object_set_new(machine, "load", json_real(report->load));
    if (report->disk_known)
        json_object_set_new(machine, "disk_bytes_per_second", json_real(rates->disk_bytes));
    json_t *out =
        json_pack("{s:s,s:s,s:s,s:I,s:I,s:o,s:o}", "name", info->name, "path", info->path, "family",
                  info->family, "files", (json_int_t)info->file_count, "disk_bytes",
                  (json_int_t)info->bytes, "machine", machine, "plans", plans);
    add_rows(out, report);
    return out;
}
