/* job.h: a graph that is being queued, for the files that turn ops into launches.
 *
 *     execute.c   every op by itself
 *     fused.c     ops of generated rows that are done in one launch */
#ifndef BACKEND_CUDA_JOB_H
#define BACKEND_CUDA_JOB_H

#include "backend/cuda/device.h"

struct job {
    struct cuda_backend *b;
    const struct graph *graph;
    const struct frame *frame;
    const struct op *op;
    size_t next;                /* op of the graph that is queued after this one */
    bool repeats;               /* the step does (struct step_frame) */
    struct cuda_rows rows;      /* on the device; 0 rows: the frame has none */
    uint32_t last_position;     /* of the step */
    const float *route_weights; /* of the frame's routes, on the device */
    mf_status status;
    mf_error *why;
};

static inline float *job_rows(const struct job *job, buffer which)
{
    return which.id == NO_BUFFER.id ? NULL : job->frame->buffers[which.id];
}

static inline uint32_t job_width(const struct job *job, buffer which)
{
    return job->graph->buffers[which.id].width;
}

static inline uint32_t job_row_count(const struct job *job)
{
    return (uint32_t)job->frame->row_count;
}

/* A weight on the device.  After an error, without values. */
struct cuda_weight job_weight(struct job *job, enum weight_id id);
/* NULL: the op has none, or it failed. */
const float *job_vector(struct job *job, enum weight_id id);
struct cuda_rope job_rope(struct job *job, const struct rope_shape *shape);

/* For steps that repeat.  False: the next ops are no such group, and nothing was done. */
bool cuda_norm_and_project(struct job *job);
bool cuda_project_group(struct job *job);
bool cuda_heads_group(struct job *job);

#endif
