/* latent.h: declarations shared by the two tuned forms of latent attention (ops_expand.c,
 * ops_absorb.c). */
#ifndef BACKEND_CPU_LATENT_H
#define BACKEND_CPU_LATENT_H

#include "backend/cpu/cpu.h"

/* The matrices of a head inside the layer's weights: Wk is nope rows of kv_b, or latent rows of
 * k_b. */
struct latent_weights {
    const struct weight *keys, *values;
    uint64_t first_key, first_value; /* rows */
    bool by_latent;                  /* Wk is stored [latent][nope] */
};

struct latent_weights cpu_latent_weights(const struct cpu_job *job, uint32_t head);

/* The page that holds `position`, as f16 [64][latent | rope]; one that is not in f16 is converted in
 * `memory`. */
const uint16_t *cpu_latent_page(const struct cpu_job *job, const struct kv_view *kv,
                                size_t position, uint16_t *memory);

/* ops_expand.c: all rows of a prompt's span */
void cpu_latent_expand(const struct cpu_job *job, const struct span *span);
size_t cpu_expand_scratch(const struct backend_sizes *sizes); /* floats per worker */
size_t cpu_expand_shared(const struct backend_sizes *sizes, const struct kernels *kernels);

/* ops_absorb.c: all generated rows of the frame */
void cpu_latent_absorb(const struct cpu_job *job);
size_t cpu_absorb_scratch(const struct backend_sizes *sizes);
size_t cpu_absorb_shared(const struct backend_sizes *sizes);

#endif
