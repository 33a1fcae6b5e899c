#include "bench/report.h"

#include "common/basics.h"

static struct spread test_spread(const struct bench_test *test)
{
    return spread_of(test->rates, test->rounds_done);
}

static double middle_position(const struct bench_test *test)
{
    return test->depth + test->tokens / 2.0;
}

/* Each round against the bandwidth just before it; without a probe against the best. */
static struct bench_share decode_share(const struct bench_report *report,
                                       const struct bench_test *test)
{
    double bytes = workload_decode_bytes(report->workload, middle_position(test));
    struct bench_share out = { .of = "memory", .limit = report->ceilings.memory_bytes / bytes };
    if (out.limit > 0) out.share = test_spread(test).median / out.limit;
    if (!(test->memory[0] > 0)) return out;
    double shares[ROUNDS_MAX];
    size_t rounds = min_size(test->rounds_done, ROUNDS_MAX);
    for (size_t i = 0; i < rounds; i++) shares[i] = test->rates[i] * bytes / test->memory[i];
    out.limit = spread_of(test->memory, rounds).median / bytes;
    out.share = spread_of(shares, rounds).median;
    return out;
}

struct bench_share bench_share_of(const struct bench_report *report, const struct bench_test *test)
{
    const mf_ceilings *c = &report->ceilings;
    if (test->kind == BENCH_DECODE) return decode_share(report, test);
    struct bench_share out = { .of = ceilings_matrix_name(c) };
    out.limit = ceilings_matrix_flops(c) * test->tokens /
                workload_prefill_flops(report->workload, test->depth, test->tokens);
    if (out.limit > 0) out.share = test_spread(test).median / out.limit;
    return out;
}

static double disk_rate(const struct bench_test *test)
{
    return test->seconds > 0 ? (double)test->bytes_read / test->seconds : 0;
}

/* ------------------------------------------------------------------- table */

static const char *const kind_names[] = { [BENCH_PREFILL] = "prefill", [BENCH_DECODE] = "decode" };

/* As many digits as a reader wants to see. */
static int digits_of(double rate)
{
    return rate < 10 ? 2 : rate < 1000 ? 1 : 0;
}

static void print_test(const struct bench_report *report, const struct bench_test *test, FILE *out)
{
    struct spread spread = test_spread(test);
    struct bench_share share = bench_share_of(report, test);
    const mf_ceilings *c = &report->ceilings;
    char name[32], range[48];
    snprintf(name, sizeof name, "%s %u", kind_names[test->kind], test->tokens);
    snprintf(range, sizeof range, "%.*f … %.*f", digits_of(spread.low), spread.low,
             digits_of(spread.high), spread.high);
    int pad = 18 + (int)strlen("…") - 1; /* that one is three bytes and one column */
    fprintf(out, "%-14s %7u %10.*f   %-*s", name, test->depth, digits_of(spread.median),
            spread.median, share.limit > 0 ? pad : 0, range);
    if (share.limit > 0)
        fprintf(out, " %5.1f %% of %.*f (%s)", 100 * share.share, digits_of(share.limit),
                share.limit, share.of);
    if (c->disk_bytes > 0) /* only measured where experts are streamed */
        fprintf(out, "; %.0f %% of the disk", 100 * disk_rate(test) / c->disk_bytes);
    fputc('\n', out);
}

/* Where the experts of a test came from. */
static void print_sources(const struct bench_test *test, FILE *out)
{
    char name[32];
    double uses = (double)(test->expert_hits + test->expert_misses);
    if (uses == 0) return;
    snprintf(name, sizeof name, "%s %u", kind_names[test->kind], test->tokens);
    fprintf(out, "%-14s %7u   %5.1f %%   %7.1f %%   %6.1f %%   %8.2f GB\n", name, test->depth,
            100 * (double)(test->expert_hits - test->expert_ahead_hits) / uses,
            100 * (double)test->expert_ahead_hits / uses, 100 * (double)test->expert_misses / uses,
            (double)test->bytes_read * 1e-9);
}

/* Only where something was read: else all were in memory. */
static void print_experts(const struct bench_report *report, FILE *out)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < report->plan->test_count; i++)
        bytes += report->plan->tests[i].bytes_read;
    if (bytes == 0) return;
    fprintf(out, "\n%-14s %7s %9s %11s %10s %13s\n", "experts", "depth", "cached", "read ahead",
            "on demand", "bytes read");
    for (size_t i = 0; i < report->plan->test_count; i++)
        print_sources(&report->plan->tests[i], out);
}

void bench_print_table(const struct bench_report *report, FILE *out)
{
    char ceilings[256];
    const mf_workload *w = report->workload;
    fprintf(out, "model          %s (%s), experts %s\n", report->model, report->family,
            report->expert_mode);
    fprintf(out, "computed by    %u thread%s, kernels for %s\n", report->threads,
            report->threads == 1 ? "" : "s", report->kernels);
    if (report->ceilings.f32_flops > 0) {
        ceilings_describe(&report->ceilings, ceilings, sizeof ceilings);
        fprintf(out, "machine        %s\n", ceilings);
    }
    fprintf(out, "a token        reads %.3f GB of weights, computes %.2f GFLOP in a prompt\n",
            (double)w->weight_bytes * 1e-9, w->token_flops * 1e-9);
    fprintf(out, "\n%-14s %7s %10s   %-18s %s\n", "test", "depth", "tokens/s", "slowest … fastest",
            "share of the ceiling");
    for (size_t i = 0; i < report->plan->test_count; i++)
        print_test(report, &report->plan->tests[i], out);
    print_experts(report, out);
}

/* -------------------------------------------------------------------- JSON */

static json_t *test_json_new(const struct bench_report *report, const struct bench_test *test)
{
    struct spread spread = test_spread(test);
    struct bench_share share = bench_share_of(report, test);
    json_t *rates = json_array();
    for (size_t i = 0; i < test->rounds_done; i++)
        json_array_append_new(rates, json_real(test->rates[i]));
    json_t *out = json_pack(
        "{s:s,s:I,s:I,s:{s:f,s:f,s:f},s:o,s:I,s:I,s:I,s:I}", "kind", kind_names[test->kind],
        "tokens", (json_int_t)test->tokens, "depth", (json_int_t)test->depth, "tokens_per_second",
        "median", spread.median, "min", spread.low, "max", spread.high, "rounds", rates,
        "expert_hits", (json_int_t)test->expert_hits, "expert_ahead_hits",
        (json_int_t)test->expert_ahead_hits, "expert_misses", (json_int_t)test->expert_misses,
        "expert_bytes_read", (json_int_t)test->bytes_read);
    if (test->kind == BENCH_DECODE && test->memory[0] > 0) {
        json_t *memory = json_array();
        for (size_t i = 0; i < test->rounds_done; i++)
            json_array_append_new(memory, json_real(test->memory[i]));
        json_object_set_new(out, "memory_bytes_per_second", memory);
    }
    if (test->kind == BENCH_DECODE)
        json_object_set_new(
            out, "bytes_per_token",
            json_real(workload_decode_bytes(report->workload, middle_position(test))));
    else
        json_object_set_new(
            out, "flops",
            json_real(workload_prefill_flops(report->workload, test->depth, test->tokens)));
    if (share.limit > 0) {
        json_object_set_new(out, "ceiling", json_string(share.of));
        json_object_set_new(out, "ceiling_tokens_per_second", json_real(share.limit));
        json_object_set_new(out, "share_of_ceiling", json_real(share.share));
    }
    if (report->ceilings.disk_bytes > 0)
        json_object_set_new(out, "share_of_disk",
                            json_real(disk_rate(test) / report->ceilings.disk_bytes));
    return out;
}

/* The first test of each kind stands also where the first version of this format had it. */
static void add_first(json_t *out, const struct bench_report *report, enum bench_kind kind,
                      const char *name)
{
    for (size_t i = 0; i < report->plan->test_count; i++) {
        const struct bench_test *test = &report->plan->tests[i];
        if (test->kind != kind) continue;
        struct spread spread = test_spread(test);
        json_object_set_new(out, name,
                            json_pack("{s:I,s:f,s:f,s:f}", "tokens", (json_int_t)test->tokens,
                                      "median", spread.median, "min", spread.low, "max",
                                      spread.high));
        return;
    }
}

json_t *bench_json_new(const struct bench_report *report)
{
    const mf_workload *w = report->workload;
    json_t *tests = json_array();
    json_int_t hits = 0, misses = 0, bytes = 0;
    for (size_t i = 0; i < report->plan->test_count; i++) {
        const struct bench_test *test = &report->plan->tests[i];
        json_array_append_new(tests, test_json_new(report, test));
        hits += (json_int_t)test->expert_hits;
        misses += (json_int_t)test->expert_misses;
        bytes += (json_int_t)test->bytes_read;
    }
    json_t *out = json_pack(
        "{s:s,s:s,s:s,s:I,s:s,s:s,s:I,s:I,s:I,s:I,s:f,s:o}", "version", mf_version(), "model",
        report->model, "family", report->family, "threads", (json_int_t)report->threads, "kernels",
        report->kernels, "expert_mode", report->expert_mode, "expert_hits", hits, "expert_misses",
        misses, "expert_bytes_read", bytes, "weight_bytes_per_token", (json_int_t)w->weight_bytes,
        "flops_per_prompt_token", w->token_flops, "tests", tests);
    add_first(out, report, BENCH_PREFILL, "prefill_tokens_per_second");
    add_first(out, report, BENCH_DECODE, "decode_tokens_per_second");
    if (report->ceilings.f32_flops > 0)
        json_object_set_new(out, "ceilings", ceilings_json_new(&report->ceilings));
    return out;
}
