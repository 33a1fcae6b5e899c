/* ops_experts.c: the router's choice of experts, and the weighted sum of their outputs. */
#include "backend/cpu/cpu.h"

#include "kernels/scalar_math.h"
#include "model/weights.h"

#include <math.h>

/* ------------------------------------------------------------------ router */

/* Whether a > b; NaN is below every number. */
static bool is_better(float a, float b)
{
    return a > b || (b != b && a == a);
}

/* The `count` most probable experts; of equal ones the lower id. */
static void choose_best(uint32_t *experts, uint32_t count, const float *probability, uint32_t total)
{
    uint32_t chosen = 0;
    for (uint32_t id = 0; id < total; id++) {
        float mine = probability[id];
        if (chosen == count && !is_better(mine, probability[experts[count - 1]])) continue;
        uint32_t at = chosen < count ? chosen++ : count - 1;
        for (; at > 0 && is_better(mine, probability[experts[at - 1]]); at--)
            experts[at] = experts[at - 1];
        experts[at] = id;
    }
}

static void sort_ascending(uint32_t *experts, uint32_t count)
{
    for (uint32_t i = 1; i < count; i++) {
        uint32_t id = experts[i], j = i;
        for (; j > 0 && experts[j - 1] > id; j--) experts[j] = experts[j - 1];
        experts[j] = id;
    }
}

/* A group's score: its best expert, or with a bias the sum of its two best. */
static float score_group(const float *choice, uint32_t count, bool two)
{
    float best = -INFINITY, second = -INFINITY;
    for (uint32_t i = 0; i < count; i++) {
        if (choice[i] > best) {
            second = best;
            best = choice[i];
        } else if (choice[i] > second) {
            second = choice[i];
        }
    }
    return two ? best + second : best;
}

/* Sets the choice of all experts outside the best groups to -INFINITY. */
static void keep_best_groups(float *choice, uint32_t total, const struct router_shape *shape)
{
    uint32_t size = total / shape->groups;
    for (uint32_t dropped = shape->groups - shape->top_groups; dropped > 0; dropped--) {
        uint32_t worst = shape->groups;
        float worst_score = 0.0f;
        for (uint32_t g = 0; g < shape->groups; g++) {
            if (choice[g * size] == -INFINITY) continue; /* dropped already */
            float score = score_group(choice + g * size, size, shape->sigmoid);
            if (worst == shape->groups || score <= worst_score) {
                worst = g; /* of equal groups the later one is dropped */
                worst_score = score;
            }
        }
        if (worst == shape->groups) return;
        for (uint32_t i = 0; i < size; i++) choice[worst * size + i] = -INFINITY;
    }
}

static void route_row(const struct cpu_job *job, float *scores, uint32_t *experts, float *weights)
{
    const struct router_shape *shape = &job->op->router;
    uint32_t total = job_width(job, job->op->a), per_row = job->frame->routes->per_row;
    float *choice = job->scratch;
    if (shape->sigmoid) {
        const float *bias = weight_vector(job_weight(job, WEIGHT_ROUTER_BIAS));
        for (uint32_t i = 0; i < total; i++) {
            scores[i] = (float)scalar_sigmoid((double)scores[i]);
            choice[i] = scores[i] + bias[i];
        }
    } else {
        job->kernels->softmax(scores, total);
        memcpy(choice, scores, total * sizeof *choice);
    }
    if (shape->groups > 1) keep_best_groups(choice, total, shape);
    choose_best(experts, per_row, choice, total);
    sort_ascending(experts, per_row);

    float sum = 0.0f;
    for (uint32_t i = 0; i < per_row; i++) sum += scores[experts[i]];
    if (shape->sigmoid) sum += 1e-20f; /* all scores may be 0 */
    for (uint32_t i = 0; i < per_row; i++)
        weights[i] =
            (shape->renormalise ? scores[experts[i]] / sum : scores[experts[i]]) * shape->scale;
    if (!shape->scaled) return;
    const float *scales = weight_vector(job_weight(job, WEIGHT_EXPERT_SCALE));
    for (uint32_t i = 0; i < per_row; i++) weights[i] *= scales[experts[i]];
}

void cpu_route(const struct cpu_job *job)
{
    struct routes *routes = job->frame->routes;
    struct share rows = worker_share(job->worker, job->frame->row_count, 1);
    for (size_t r = rows.begin; r < rows.end; r++)
        route_row(job, job_row(job, job->op->a, r), routes->experts + r * routes->per_row,
                  routes->weights + r * routes->per_row);
}

/* x += Σ weight·expert of row r, in ascending id. */
static void add_experts(const struct cpu_job *job, float *x, buffer experts, size_t r)
{
    const struct routes *routes = job->frame->routes;
    size_t width = job_width(job, job->op->out);
    const float *answers = job_row(job, experts, r);
    for (uint32_t i = 0; i < routes->per_row; i++)
        job->kernels->add_scaled(x, answers + i * width, routes->weights[r * routes->per_row + i],
                                 width);
}

void cpu_sum_experts(const struct cpu_job *job)
{
    const struct op *op = job->op;
    struct share rows = worker_share(job->worker, job->frame->row_count, 1);
    for (size_t r = rows.begin; r < rows.end; r++) {
        float *x = job_row(job, op->out, r);
        memset(x, 0, job_width(job, op->out) * sizeof *x);
        add_experts(job, x, op->a, r);
    }
}

void cpu_combine(const struct cpu_job *job)
{
    const struct op *op = job->op;
    size_t width = job_width(job, op->out);
    struct share rows = worker_share(job->worker, job->frame->row_count, 1);
    for (size_t r = rows.begin; r < rows.end; r++) {
        float *x = job_row(job, op->out, r);
        add_experts(job, x, op->c, r);
        if (op->a.id == NO_BUFFER.id) continue;
        bool scaled = op->b.id != NO_BUFFER.id;
        float scale = scaled ? (float)scalar_sigmoid((double)job_row(job, op->b, r)[0]) : 1.0f;
        job->kernels->add_scaled(x, job_row(job, op->a, r), scale, width);
    }
}
