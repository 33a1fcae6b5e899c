/* forward.h: one step of a model: some rows of some sequences through all layers.
 *
 *     tokens ─ start ─▶ x ─┬─ before ─ routes ─ experts (leased) ─ after ─┬─▶ head ─▶ logits
 *                          └──────────────── once per layer ──────────────┘
 *
 * A forward owns the scratch of a step, sized once for the largest; nothing is
 * allocated afterwards.  Rows of one step may belong to several sequences.
 *
 * Threads: one step at a time. */
#ifndef ENGINE_FORWARD_H
#define ENGINE_FORWARD_H

#include "backend/backend.h"
#include "engine/layer.h"
#include "experts/store.h"
#include "model/weights.h"
#include "state/sequence.h"

#include <stdatomic.h>

/* Rows whose logits are computed together. */
enum { LOGIT_ROWS = 16, SPANS_MAX = 64 };

/* Experts predicted for a row: up to this many times the number that it will use. */
enum { PREDICTED_SHARE = 3 };

/* Observes a step (tests, dumps); every function may be NULL. */
struct observer {
    void *user;
    /* The residual stream [rows][width]: after the embedding (layer -1), after each layer. */
    void (*hidden)(void *user, int layer, const float *x, size_t rows);
    /* After routing and before the experts run: may read the routes and replace them. */
    void (*routes)(void *user, uint32_t layer, struct routes *routes, size_t rows);
};

/* Told of the layers of a step. */
struct step_watch {
    void *user;
    /* Layer `layer` is about to begin. */
    void (*layer)(void *user, uint32_t layer);
    /* Before that, and before it is asked whether a part was cancelled: may run steps of a nested
     * forward.  True: some have run.  NULL: the step does not pause. */
    bool (*pause)(void *user);
};

struct forward_times {
    double mixer_seconds, expert_seconds, head_seconds;
    double wait_seconds;                  /* of expert_seconds: nothing could be computed */
    uint64_t stage_ticks[MF_STAGE_COUNT]; /* with a tracer */
};

struct forward {
    const struct model_config *config;
    const struct weights *weights;
    struct expert_store *experts;
    struct backend *backend;
    struct recipes recipes;
    size_t row_capacity;
    uint32_t context;                /* positions of the longest sequence */
    const struct observer *observer; /* NULL: none */
    const struct step_watch *watch;  /* NULL: none */
    struct forward_times times;      /* of the steps since it was zeroed */

    /* Buffers of graphs; on a device they lie in one block of its memory. */
    void *device_memory;
    size_t device_bytes;
    float *shared[SHARED_COUNT]; /* [row_capacity][width]; logits [LOGIT_ROWS][vocabulary] */
    float *scratch;              /* [row_capacity][scratch_width] */
    float *gathered;             /* [LOGIT_ROWS][width] rows whose logits are wanted */
    float *expert_hidden;        /* [row_capacity][experts per token][expert width] */

    struct span *layer_spans; /* on a device: [layers][spans] of a step */
    struct step_frame frame;  /* of the present step; no rows: none is under way, or on no device */
    const struct forward *outer;                    /* of a nested one, else NULL */
    enum { HELD_UNKNOWN, HELD_NOT, HELD_ALL } held; /* experts, by the device */
    float *host_logits; /* on a device: copies for the host, like SHARED_LOGITS … */
    float *host_x;      /* … and like SHARED_X */
    struct routes routes;
    struct routes predicted;     /* of a layer that comes later */
    struct row *rows;            /* [row_capacity] */
    int32_t *tokens;             /* [row_capacity] */
    struct span *spans;          /* [SPANS_MAX] */
    uint32_t *bucket_ends;       /* [experts + 1] */
    uint32_t *pairs;             /* [row_capacity x experts per token], by expert */
    uint32_t *used_experts;      /* [experts] */
    uint32_t *expert_uses;       /* [experts] pairs of each */
    struct expert_lease *leases; /* [experts] */
    struct expert_work *works;   /* [experts] */
};

/* What one sequence adds to a step; room must have been reserved. */
struct step_part {
    struct sequence *sequence;
    const int32_t *tokens;
    uint32_t count;
    bool decode; /* generated tokens: decode arithmetic, however many rows a step has */
    const atomic_bool *cancel; /* true: its result is not wanted any more; NULL: it always is */
    bool cancelled;            /* out: `cancel` was seen */
};

/* What a forward works with; all borrowed, all outlive it. */
struct forward_parts {
    const mf_allocator *allocator;
    const struct model_config *config;
    const struct weights *weights;
    struct expert_store *experts;
    struct backend *backend;
    enum kv_format kv_format;
};

/* The format of the sequences' caches. */
static inline enum kv_format forward_kv_format(const struct forward_parts *parts)
{
    return parts->kv_format == KV_DEFAULT ? parts->backend->kv_format : parts->kv_format;
}

/* What forward_init takes, of the arena (each request in whole cache lines) and of the backend. */
struct forward_bytes {
    uint64_t arena, backend;
};
mf_status forward_bytes(struct forward_bytes *out, const struct forward_parts *parts,
                        size_t row_capacity, size_t context, mf_error *why);

/* Ready for steps of up to `row_capacity` rows over contexts of up to `context`;
 * memory comes from `arena`. */
mf_status forward_init(struct forward *forward, const struct forward_parts *parts,
                       struct arena *arena, size_t row_capacity, size_t context, mf_error *why);

/* Gives memory of a device back; a zeroed one is legal. */
void forward_free(struct forward *forward);

/* A forward for steps of up to `row_capacity` rows, at most the outer's, that run while a step of
 * `outer` stands between two layers.  It has its own residual stream, angles, rows and spans; all
 * else is outer's memory, which holds nothing that outlives a layer.  It must not run inside
 * forward_logits, nor outlive `outer`. */
uint64_t forward_nested_bytes(const struct forward_parts *parts,
                              size_t row_capacity); /* of the arena */
mf_status forward_nest(struct forward **out, const struct forward *outer, struct arena *arena,
                       size_t row_capacity, mf_error *why);

/* Runs the parts' tokens through all layers and advances the sequences' pending positions, but for
 * those of cancelled parts.  MF_ERR_CANCELLED: all were.  After a failure, and where a part was
 * cancelled, the sequences must be abandoned. */
mf_status forward_step(struct forward *forward, struct step_part *parts, size_t part_count,
                       mf_error *why);

/* One layer of a step, for probes: x (SHARED_X) goes through layer `layer`, with rows, spans and
 * the layer's state in the spans set by the caller. */
mf_status forward_layer(struct forward *forward, uint32_t layer, size_t row_count,
                        size_t span_count, mf_error *why);

/* Its half after routing: x += what the experts of `routes` and the shared one make of
 * SHARED_ROUTED. */
mf_status forward_experts(struct forward *forward, uint32_t layer, size_t row_count, mf_error *why);

/* Logits of `count` ≤ LOGIT_ROWS rows of the last step: [count][vocabulary], borrowed until the
 * next call. */
mf_status forward_logits(const float **out, struct forward *forward, const uint32_t *rows,
                         size_t count, mf_error *why);

#endif
