/* delta: the tuned kernels of kernels/delta.h against the same in double, position by
 * position, for every kernel set and for shapes that are and are not multiples of anything.
 * All of them are f32: results are within 1e-5 of the largest. */
#include "support/test.h"

#include "kernels/kernels.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define BOUND 1e-5

static struct machine machine;
static uint64_t random_state = 1;

static float next(void)
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (float)((double)(random_state >> 40) * 0x1p-23 - 1.0);
}

static float *new_row(size_t count, float size)
{
    float *row = aligned_alloc(CACHE_LINE, align_up((count + 1) * sizeof(float), CACHE_LINE));
    assert_non_null(row);
    for (size_t i = 0; i < count; i++) row[i] = size * next();
    return row;
}

static void check_near(const char *what, const char *set, const float *found,
                       const double *expected, size_t count)
{
    double most = 1e-3, error = 0;
    for (size_t i = 0; i < count; i++) {
        double difference = fabs((double)found[i] - expected[i]);
        most = fmax(most, fabs(expected[i]));
        error = difference <= error ? error : difference; /* NaN wins */
    }
    if (!(error <= BOUND * most)) fail_msg("%s, %s: off by %g of %g", what, set, error, most);
}

/* --------------------------------------------------------------------- a chunk */

/* One head's chunk of `rows`; everything a kernel reads or writes. */
struct scene {
    size_t keys, values, padded, rows;
    float *k, *q, *v; /* [16][keys], [16][padded] */
    float *state;     /* [values][keys] before the chunk */
    float decay[DELTA_CHUNK], strength[DELTA_CHUNK];
    double *expected_out;   /* [16][values] */
    double *expected_state; /* [values][keys] behind it */
    float *transposed, *kk, *qk, *u, *out, *lanes_state, *scratch, *found_state;
};

/* S ← γS; S ← S + β(v - S·k) kᵀ; out = S·q */
static void run_double(struct scene *s)
{
    for (size_t i = 0; i < s->values * s->keys; i++) s->expected_state[i] = (double)s->state[i];
    for (size_t t = 0; t < s->rows; t++)
        for (size_t v = 0; v < s->values; v++) {
            double *row = s->expected_state + v * s->keys, recalled = 0, out = 0;
            const float *k = s->k + t * s->keys, *q = s->q + t * s->keys;
            for (size_t c = 0; c < s->keys; c++) {
                row[c] *= (double)s->decay[t];
                recalled += row[c] * (double)k[c];
            }
            double change = (double)s->strength[t] * ((double)s->v[t * s->padded + v] - recalled);
            for (size_t c = 0; c < s->keys; c++) {
                row[c] += change * (double)k[c];
                out += row[c] * (double)q[c];
            }
            s->expected_out[t * s->values + v] = out;
        }
}

static void scene_make(struct scene *s, size_t keys, size_t values, size_t rows)
{
    size_t padded = delta_padded(values), n = DELTA_CHUNK;
    *s = (struct scene){ .keys = keys, .values = values, .padded = padded, .rows = rows };
    float unit = (float)(1.5 / sqrt((double)keys)); /* keys have a length of about 1 */
    s->k = new_row(n * keys, unit);
    s->q = new_row(n * keys, unit);
    s->v = new_row(n * padded, 1.0f);
    s->state = new_row(values * keys, 1.0f);
    s->transposed = new_row(n * keys, NAN);
    s->kk = new_row(n * n, NAN);
    s->qk = new_row(n * n, NAN);
    s->u = new_row(n * padded, NAN);
    s->out = new_row(n * padded, NAN);
    s->lanes_state = new_row(keys * padded, NAN);
    s->scratch = new_row(2 * n * padded, NAN);
    s->found_state = new_row(values * keys, NAN);
    s->expected_out = calloc(n * values, sizeof(double));
    s->expected_state = calloc(values * keys, sizeof(double));
    assert_true(s->expected_out && s->expected_state);
    for (size_t t = 0; t < n; t++) {
        for (size_t v = values; v < padded; v++) s->v[t * padded + v] = 0.0f;
        s->decay[t] = t % 5 == 3 ? 1e-4f : 0.75f + 0.25f * next();
        s->strength[t] = 0.5f + 0.5f * next();
    }
    run_double(s);
}

static void scene_free(struct scene *s)
{
    float *rows[] = { s->k,  s->q, s->v,   s->state,       s->transposed, s->kk,
                      s->qk, s->u, s->out, s->lanes_state, s->scratch,    s->found_state };
    for (size_t i = 0; i < COUNT_OF(rows); i++) free(rows[i]);
    free(s->expected_out);
    free(s->expected_state);
}

/* The chunk in pieces of `piece` rows. */
static void run_pieces(struct scene *s, const struct kernels *k, size_t piece)
{
    struct delta_keys keys = {
        .k = s->k, .q = s->q, .keys = s->keys, .transposed = s->transposed, .kk = s->kk, .qk = s->qk
    };
    struct delta_chunk chunk = { .keys = &keys,
                                 .padded = s->padded,
                                 .decay = s->decay,
                                 .strength = s->strength,
                                 .v = s->v,
                                 .u = s->u,
                                 .out = s->out,
                                 .state = s->lanes_state,
                                 .scratch = s->scratch };
    k->delta->load_state(s->lanes_state, s->state, s->keys, s->values);
    for (keys.first = 0; keys.first < s->rows; keys.first = keys.end) {
        keys.end = min_size(keys.first + piece, s->rows);
        k->delta->multiply_keys(&keys);
        k->delta->rows(&chunk);
    }
    k->delta->close(&chunk);
    k->delta->store_state(s->found_state, s->lanes_state, s->keys, s->values);
}

static void check_chunk(struct scene *s, const struct kernels *k)
{
    char what[80];
    size_t bytes = DELTA_CHUNK * s->padded * sizeof(float), n = s->values * s->keys;
    float *out = new_row(DELTA_CHUNK * s->padded, 0), *state = new_row(n, 0);
    snprintf(what, sizeof what, "%zu rows, %zu keys, %zu values", s->rows, s->keys, s->values);
    run_pieces(s, k, DELTA_CHUNK);
    for (size_t t = 0; t < s->rows; t++)
        check_near(what, k->name, s->out + t * s->padded, s->expected_out + t * s->values,
                   s->values);
    check_near(what, k->name, s->found_state, s->expected_state, n);
    memcpy(out, s->out, bytes);
    memcpy(state, s->found_state, n * sizeof(float));
    for (size_t piece = 1; piece < DELTA_CHUNK; piece += 2) {
        memset(s->u, 0xff, bytes);
        run_pieces(s, k, piece);
        assert_memory_equal(s->out, out, s->rows * s->padded * sizeof(float));
        assert_memory_equal(s->found_state, state, n * sizeof(float));
    }
    free(out);
    free(state);
}

static const size_t shapes[][2] = { { 128, 128 }, { 32, 32 }, { 64, 128 }, { 9, 7 },
                                    { 1, 1 },     { 17, 33 }, { 256, 48 } };

static void chunks_are_near_double_and_can_be_cut(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(shapes); i++)
        for (size_t rows = 1; rows <= DELTA_CHUNK; rows += 5) {
            struct scene s;
            scene_make(&s, shapes[i][0], shapes[i][1], rows);
            for (size_t j = 0; kernels_at(&machine, j); j++)
                check_chunk(&s, kernels_at(&machine, j));
            scene_free(&s);
        }
}

/* ---------------------------------------------------------------- one position */

static void steps_are_near_double(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(shapes); i++) {
        struct scene s;
        scene_make(&s, shapes[i][0], shapes[i][1], 1);
        for (size_t j = 0; kernels_at(&machine, j); j++) {
            const struct kernels *k = kernels_at(&machine, j);
            struct delta_step step = { .out = s.out,
                                       .state_out = s.found_state,
                                       .state_in = s.state,
                                       .q = s.q,
                                       .k = s.k,
                                       .v = s.v,
                                       .decay = s.decay[0],
                                       .strength = s.strength[0],
                                       .keys = s.keys,
                                       .values = s.values };
            float *in_place = new_row(s.values * s.keys, 0), *again = new_row(s.values, 0);
            k->delta->step(&step);
            check_near("a step", k->name, s.out, s.expected_out, s.values);
            check_near("its state", k->name, s.found_state, s.expected_state, s.values * s.keys);
            memcpy(in_place, s.state, s.values * s.keys * sizeof(float));
            step.state_in = step.state_out = in_place;
            step.out = again;
            k->delta->step(&step);
            assert_memory_equal(again, s.out, s.values * sizeof(float));
            assert_memory_equal(in_place, s.found_state, s.values * s.keys * sizeof(float));
            free(in_place);
            free(again);
        }
        scene_free(&s);
    }
}

/* ------------------------------------------------------- convolution and gates */

static void check_conv(const struct kernels *k, size_t channels, size_t taps, size_t rows)
{
    enum { ROWS_MAX = 40 };
    const float *x[ROWS_MAX];
    float *out[ROWS_MAX], *memory = new_row((rows + taps - 1) * channels, 3.0f);
    float *w = new_row(channels * taps, 2.0f), *results = new_row(rows * channels, NAN);
    size_t begin = channels > 20 ? 3 : 0;
    double *expected = calloc(channels, sizeof *expected);
    assert_non_null(expected);
    for (size_t i = 0; i < rows + taps - 1; i++) x[i] = memory + i * channels;
    for (size_t i = 0; i < rows; i++) out[i] = results + i * channels;
    k->delta->conv(&(struct delta_conv){ out, x, w, rows, taps, begin, channels });
    for (size_t t = 0; t < rows; t++) {
        for (size_t c = begin; c < channels; c++) {
            double sum = 0;
            for (size_t j = 0; j < taps; j++) sum += (double)w[c * taps + j] * (double)x[t + j][c];
            expected[c] = sum / (1.0 + exp(-sum));
        }
        check_near("conv", k->name, out[t] + begin, expected + begin, channels - begin);
        for (size_t c = 0; c < begin; c++) assert_true(isnan(out[t][c]));
    }
    free(memory);
    free(w);
    free(results);
    free(expected);
}

static void convolutions_are_near_double(void **state)
{
    (void)state;
    static const size_t channels[] = { 1, 16, 64, 131 }, taps[] = { 1, 3, 4 }, rows[] = { 1, 2, 9 };
    for (size_t j = 0; kernels_at(&machine, j); j++)
        for (size_t a = 0; a < COUNT_OF(channels); a++)
            for (size_t b = 0; b < COUNT_OF(taps); b++)
                for (size_t c = 0; c < COUNT_OF(rows); c++)
                    check_conv(kernels_at(&machine, j), channels[a], taps[b], rows[c]);
}

/* Relative to each number: decays near 1 and near 0 both matter.  What is rounded in the
 * exponent is a relative error behind it. */
static void check_gate(const char *what, const char *set, float found, double expected)
{
    double error = fabs((double)found - expected);
    if (!(error <= (1e-6 + 1.2e-7 * fabs(log(expected))) * expected + 1e-37))
        fail_msg("%s, %s: %g, %g was expected", what, set, (double)found, expected);
}

static void gates_are_near_double(void **state)
{
    (void)state;
    enum { COUNT = 330 };
    float a[COUNT], b[COUNT], log_decay[COUNT], bias[COUNT], decay[COUNT], strength[COUNT + 1];
    for (size_t i = 0; i < COUNT; i++) {
        a[i] = i < 160 ? (float)i - 80.0f : 8.0f * next();
        b[i] = i < 200 ? 100.0f - (float)i : 8.0f * next();
        bias[i] = 3.0f * next();
        log_decay[i] = i % 3 ? -1.0f - next() : -16.0f * (1.0f + next());
    }
    for (size_t j = 0; kernels_at(&machine, j); j++) {
        const struct kernels *k = kernels_at(&machine, j);
        for (size_t n = 1; n <= COUNT; n += 47) {
            strength[n] = 7.0f;
            k->delta->gates(&(struct delta_gates){ decay, strength, a, b, log_decay, bias, n });
            assert_true(strength[n] == 7.0f);
            for (size_t i = 0; i < n; i++) {
                double x = (double)(a[i] + bias[i]);
                double exponent = (double)log_decay[i] * (x > 30 ? x : log1p(exp(x)));
                if (exponent > -20) check_gate("decay", k->name, decay[i], exp(exponent));
                if (exponent <= -20) assert_true(decay[i] >= 0 && decay[i] < 1e-8f);
                check_gate("strength", k->name, strength[i], 1.0 / (1.0 + exp(-(double)b[i])));
            }
        }
    }
}

int main(void)
{
    machine_probe(&machine);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(chunks_are_near_double_and_can_be_cut),
        cmocka_unit_test(steps_are_near_double),
        cmocka_unit_test(convolutions_are_near_double),
        cmocka_unit_test(gates_are_near_double),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
