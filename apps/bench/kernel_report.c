/* kernel_report.c: figures of kernels as a table and as JSON. */
#include "bench/kernel_bench.h"

/* 0: not a question that this case answers. */
static double memory_share(const struct kernel_figure *figure, const mf_ceilings *c)
{
    bool asked = figure->large && c->memory_bytes > 0;
    return asked ? figure->bytes_per_second / c->memory_bytes : 0;
}

/* Of the matrix unit where the operation uses it, else of multiply-adds in f32. */
static double peak_share(const struct kernel_figure *figure, const mf_ceilings *c)
{
    double peak = figure->on_matrix ? ceilings_matrix_flops(c) : c->f32_flops;
    return peak > 0 ? figure->flops / peak : 0;
}

static const char *peak_name(const struct kernel_figure *figure)
{
    return figure->on_matrix ? "bf16" : "f32";
}

static void print_number(FILE *out, double value, int width, int digits)
{
    if (value > 0)
        fprintf(out, " %*.*f", width, digits, value);
    else
        fprintf(out, " %*s", width, "");
}

/* "4096 x 2048 for 16", "128, 8 heads at 8192" */
static void describe_shape(char *out, size_t capacity, const struct kernel_figure *figure)
{
    if (figure->depth > 0 && figure->activations > figure->heads)
        snprintf(out, capacity, "%zu, %zu rows at %zu", figure->cols, figure->activations,
                 figure->depth);
    else if (figure->depth > 0)
        snprintf(out, capacity, "%zu, %zu heads at %zu", figure->cols, figure->heads,
                 figure->depth);
    else if (figure->activations > 1)
        snprintf(out, capacity, "%zu x %zu for %zu", figure->rows, figure->cols,
                 figure->activations);
    else
        snprintf(out, capacity, "%zu x %zu", figure->rows, figure->cols);
}

void kernel_figure_print(const struct kernel_figure *figure, const mf_ceilings *c, FILE *out)
{
    char shape[64];
    if (!figure) {
        fprintf(out, "%-18s %-13s %-22s %-11s %8s %9s %9s %11s\n", "operation", "format", "shape",
                "set", "GB/s", "of memory", "GFLOP/s", "of peak");
        return;
    }
    describe_shape(shape, sizeof shape, figure);
    fprintf(out, "%-18s %-13s %-22s %-11s", figure->operation, figure->format, shape, figure->set);
    print_number(out, figure->bytes_per_second * 1e-9, 8, 2);
    print_number(out, 100 * memory_share(figure, c), 7, 1);
    fputs(memory_share(figure, c) > 0 ? " %" : "  ", out);
    print_number(out, figure->flops * 1e-9, 9, 2);
    if (peak_share(figure, c) > 0) {
        print_number(out, 100 * peak_share(figure, c), 5, 1);
        fprintf(out, " %% %s", peak_name(figure));
    }
    fputc('\n', out);
}

json_t *kernel_figure_json_new(const struct kernel_figure *figure, const mf_ceilings *c)
{
    json_t *out =
        json_pack("{s:s,s:s,s:I,s:I,s:I,s:s,s:f}", "operation", figure->operation, "format",
                  figure->format, "rows", (json_int_t)figure->rows, "cols",
                  (json_int_t)figure->cols, "activations", (json_int_t)figure->activations, "set",
                  figure->set, "bytes_per_second", figure->bytes_per_second);
    if (figure->depth > 0) {
        json_object_set_new(out, "heads", json_integer((json_int_t)figure->heads));
        json_object_set_new(out, "depth", json_integer((json_int_t)figure->depth));
    }
    if (figure->flops > 0) json_object_set_new(out, "flops", json_real(figure->flops));
    if (memory_share(figure, c) > 0)
        json_object_set_new(out, "share_of_memory", json_real(memory_share(figure, c)));
    if (peak_share(figure, c) > 0) {
        json_object_set_new(out, "share_of_peak", json_real(peak_share(figure, c)));
        json_object_set_new(out, "peak", json_string(peak_name(figure)));
    }
    return out;
}
