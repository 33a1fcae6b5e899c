#include "simulate/report.h"

#include "cli/terminal.h"

double simulated_hits(const mf_simulation_result *result)
{
    return result->uses ? 100.0 * (double)result->hits / (double)result->uses : 100.0;
}

static double bytes_per_token(const mf_simulation_result *result)
{
    return result->tokens ? (double)result->bytes_read / (double)result->tokens : 0;
}

double simulated_rate(const struct simulate_report *report, const mf_simulation_result *result,
                      bool at_once)
{
    double reading = bytes_per_token(result) / report->disk_rate;
    double seconds = at_once ? (reading > report->step_seconds ? reading : report->step_seconds)
                             : reading + report->step_seconds;

    return seconds > 0 ? 1 / seconds : 0;
}

/* ------------------------------------------------------------------- table */

static void print_head(const struct simulate_report *report, FILE *out)
{
    const mf_route_trace_info *trace = &report->trace;
    char one[32], all[32];

    fprintf(out, "%s: %llu tokens, %u layers of %u experts, %u per token\n", trace->model,
            (unsigned long long)trace->token_count, trace->expert_layers, trace->experts,
            trace->experts_per_token);
    fprintf(out, "experts of up to %s, all of them in %s\n",
            size_text(trace->largest_expert_bytes, one, sizeof one),
            size_text(trace->all_slots_bytes, all, sizeof all));
    if (report->rows == 1) {
        fputs("replayed one token at a time", out);
    } else if (report->rows > 1) {
        fprintf(out, "replayed %u tokens at a time", report->rows);
    } else {
        fputs("replayed as recorded", out);
    }
    fprintf(out, "; %.2f GB/s from disk", 1e-9 * report->disk_rate);
    if (report->step_seconds > 0) {
        fprintf(out, "; %.3g ms per token without waiting", 1e3 * report->step_seconds);
    }
    fputs("\n\n", out);
}

/* Three digits, and no more of them behind the point. */
static const char *rate_text(double rate, char *out, size_t capacity)
{
    snprintf(out, capacity, "%.*f", rate < 10 ? 2 : rate < 100 ? 1 : 0, rate);
    return out;
}

static void print_size(const struct simulate_report *report, const struct simulated_size *size,
                       FILE *out)
{
    const mf_simulation_result *belady = &size->results[MF_CACHE_BELADY];
    char memory[32] = "", kept[64], text[32];

    if (size->memory_bytes) size_text(size->memory_bytes, memory, sizeof memory);
    snprintf(kept, sizeof kept, "%llu of %llu (%.0f%%)", (unsigned long long)belady->slots,
             (unsigned long long)belady->experts,
             100.0 * (double)belady->slots / (double)belady->experts);
    for (int i = 0; i < MF_CACHE_POLICY_COUNT; i++) {
        const mf_simulation_result *result = &size->results[i];
        fprintf(out, "%-9s  %-22s  %-8s  %5.1f%%  %5.0f%%  %10s", i ? "" : memory, i ? "" : kept,
                mf_cache_policy_name((mf_cache_policy)i), simulated_hits(result),
                belady->hits ? 100.0 * (double)result->hits / (double)belady->hits : 100.0,
                size_text((uint64_t)bytes_per_token(result), text, sizeof text));
        fprintf(out, "  %8s", rate_text(simulated_rate(report, result, true), text, sizeof text));
        if (report->step_seconds > 0) {
            fprintf(out, "  %8s",
                    rate_text(simulated_rate(report, result, false), text, sizeof text));
        }
        fputc('\n', out);
    }
}

void simulate_print_table(const struct simulate_report *report, FILE *out)
{
    print_head(report, out);
    fprintf(out, "%-9s  %-22s  %-8s  %6s  %6s  %10s  %8s%s\n", "memory", "experts kept", "policy",
            "hits", "belady", "read/token", "tokens/s",
            report->step_seconds > 0 ? "   in turn" : "");
    for (size_t i = 0; i < report->size_count; i++) {
        if (i > 0) fputc('\n', out);
        print_size(report, &report->sizes[i], out);
    }
}

/* -------------------------------------------------------------------- JSON */

static json_t *result_json_new(const struct simulate_report *report,
                               const struct simulated_size *size, mf_cache_policy policy)
{
    const mf_simulation_result *result = &size->results[policy];

    return json_pack("{s:I,s:I,s:I,s:I,s:s,s:I,s:I,s:f,s:I,s:f,s:f,s:f}", "memory_bytes",
                     (json_int_t)size->memory_bytes, "slot_bytes", (json_int_t)size->slot_bytes,
                     "slots", (json_int_t)result->slots, "experts", (json_int_t)result->experts,
                     "policy", mf_cache_policy_name(policy), "uses", (json_int_t)result->uses,
                     "hits", (json_int_t)result->hits, "hit_rate", simulated_hits(result) / 100,
                     "bytes_read", (json_int_t)result->bytes_read, "bytes_per_token",
                     bytes_per_token(result), "tokens_per_second",
                     simulated_rate(report, result, true), "tokens_per_second_in_turn",
                     simulated_rate(report, result, false));
}

json_t *simulate_json_new(const struct simulate_report *report)
{
    const mf_route_trace_info *trace = &report->trace;
    json_t *results = json_array();

    for (size_t i = 0; i < report->size_count; i++) {
        for (int p = 0; p < MF_CACHE_POLICY_COUNT; p++) {
            json_array_append_new(results,
                                  result_json_new(report, &report->sizes[i], (mf_cache_policy)p));
        }
    }
    return json_pack("{s:s,s:I,s:I,s:I,s:I,s:I,s:f,s:f,s:o}", "model", trace->model, "tokens",
                     (json_int_t)trace->token_count, "layers", (json_int_t)trace->layer_count,
                     "experts", (json_int_t)trace->experts, "experts_per_token",
                     (json_int_t)trace->experts_per_token, "rows", (json_int_t)report->rows,
                     "disk_bytes_per_second", report->disk_rate, "step_seconds",
                     report->step_seconds, "results", results);
}
