#include "convert/requantise.h"

static const char *const names[QUANTISATION_COUNT] = {
#define QUANTISATION_NAME(id, name) name,
    QUANTISATION_LIST(QUANTISATION_NAME)
#undef QUANTISATION_NAME
};

const char *quantisation_name(enum quantisation quantisation)
{
    return names[quantisation];
}

enum quantisation quantisation_find(const char *name)
{
    int i = 0;
    while (i < QUANTISATION_COUNT && strcmp(names[i], name) != 0) i++;
    return (enum quantisation)i;
}

static const struct target {
    enum format format;
    uint32_t groups[2]; /* numbers that share a scale: the first that divides a row */
} targets[QUANTISATION_COUNT] = {
    [QUANTISE_BF16] = { FORMAT_BF16, { 1, 1 } },    [QUANTISE_Q8] = { FORMAT_Q8_0, { 32, 32 } },
    [QUANTISE_Q4] = { FORMAT_AFFINE4, { 64, 32 } }, [QUANTISE_Q3] = { FORMAT_AFFINE3, { 64, 32 } },
    [QUANTISE_Q2] = { FORMAT_AFFINE2, { 64, 32 } },
};

static bool is_affine(enum format format)
{
    return format >= FORMAT_AFFINE2 && format <= FORMAT_AFFINE8;
}

/* Bits of `rows` rows, scales and biases included. */
static uint64_t bits_of(const struct weight *w, uint64_t rows)
{
    uint64_t scales = w->scale_row_bytes * (is_affine(w->format) ? 2 : 1);
    uint64_t shared = w->group_rows ? w->group_rows : 1;
    return 8 * (rows * w->row_bytes + rows * scales / shared);
}

enum requantise_answer requantise_plan(struct weight *out, const struct weight *from,
                                       enum quantisation to)
{
    enum { ROWS = 1 << 12 }; /* many, so that the bits of shared scales average out */
    const struct target *target = &targets[to];
    uint64_t row_bytes;
    if (to == QUANTISE_KEEP) return REQUANTISE_SMALL;
    uint32_t group = target->groups[from->cols % target->groups[0] != 0];
    if (from->cols % group != 0) return REQUANTISE_UNFIT;
    if (!format_row_bytes(&row_bytes, target->format, from->cols)) return REQUANTISE_UNFIT;
    *out = (struct weight){
        .format = target->format, .rows = from->rows, .cols = from->cols, .row_bytes = row_bytes
    };
    if (is_affine(target->format)) {
        out->scale_format = FORMAT_BF16;
        out->group_rows = 1;
        out->group_cols = group;
        out->scale_row_bytes = from->cols / group * 2;
    }
    return bits_of(from, ROWS) > bits_of(out, ROWS) ? REQUANTISE_CHANGE : REQUANTISE_SMALL;
}

bool requantise_is_same(const struct weight *a, const struct weight *b)
{
    return a->format == b->format && a->scale_format == b->scale_format &&
           a->group_rows == b->group_rows && a->group_cols == b->group_cols;
}

struct job {
    const struct weight *to, *from;
    float *scratch;
};

static void run(void *argument, struct worker worker)
{
    const struct job *job = argument;
    const struct weight *to = job->to;
    float *numbers = job->scratch + worker.index * to->cols;
    struct share share = worker_share(worker, to->rows, 1);
    for (size_t row = share.begin; row < share.end; row++) {
        struct quantised_row out = { .values = (uint8_t *)to->values + row * to->row_bytes };
        if (to->scale_row_bytes) {
            out.scales = (uint8_t *)to->scales + row * to->scale_row_bytes;
            out.biases = (uint8_t *)to->biases + row * to->scale_row_bytes;
        }
        weight_dequantise_row(numbers, job->from, row);
        if (is_affine(to->format))
            quantise_affine_closest(out, to, numbers);
        else
            format_info(to->format)->quantise(out, to, numbers);
    }
}

void requantise_rows(const struct weight *to, const struct weight *from, float *scratch,
                     struct thread_pool *pool)
{
    struct job job = { to, from, scratch };
    thread_pool_run(pool, run, &job);
}
