/* backend.h: interface between the engine and the code that computes (cpu/).
 *
 * A backend executes graphs (graph.h) on frames.  A frame is the data of one step: its rows, the
 * memory of its buffers, the weights of the current layer and the state of the rows' sequences.
 * State and experts are passed as views (pointers, strides, block table), filled by src/state and
 * src/experts.
 *
 * Threads: one execute at a time; the engine serialises its sequences. */
#ifndef BACKEND_BACKEND_H
#define BACKEND_BACKEND_H

#include "backend/graph.h"
#include "base/thread_pool.h"
#include "base/trace.h"
#include "kernels/attention/attention.h"
#include "kernels/kernels.h"

/* Tokens per page of a key/value cache. */
enum { KV_PAGE_TOKENS = 64 };

/* Number format of a KV cache.  Default: f32 in the reference, f16 in tuned arithmetic. */
enum kv_format { KV_DEFAULT, KV_F32, KV_F16, KV_Q8 };

/* One sequence's cache in one layer.  Position p is in pages[p / 64]; the layer's keys and values
 * are at offsets that are the same in every page, one head after the other:
 *                        f32                       f16, q8
 *     full attention     keys [64][head_width]     [head_width][64]
 *                        values [64][head_width]
 *     latent attention   one head of keys [64][latent | rope]; no values
 * f16 and q8 keys are stored by channel, positions next to each other, and a head in q8 has its
 * scales behind its numbers (kernels/attention/attention.h). */
struct kv_view {
    uint8_t *const *pages; /* block table of the sequence */
    size_t keys, values;   /* offsets of the layer's in a page */
    enum kv_format format;
};

/* The view's keys (or values) in the page that holds `position`. */
static inline void *kv_page(const struct kv_view *kv, size_t keys_or_values, size_t position)
{
    return kv->pages[position / KV_PAGE_TOKENS] + keys_or_values;
}

/* Bytes of one head's keys, or values, in a page. */
static inline size_t kv_head_bytes(enum kv_format format, size_t width)
{
    size_t number = format == KV_F32 ? sizeof(float) : format == KV_F16 ? sizeof(uint16_t) : 1;
    size_t scales = format == KV_Q8 ? q8_groups(width) * sizeof(uint16_t) : 0;
    return KV_PAGE_TOKENS * (width * number + scales);
}

/* One sequence's recurrent state in one layer: read from _in, written to _out,
 * which may be the same.  conv: [taps - 1][channels], oldest first.
 * delta: [value_heads][value_width][key_width].
 * open: tuned arithmetic only: the rows of an incomplete chunk; delta is then the state before
 * that chunk (kernels/delta/delta.h).  delta_open_floats numbers:
 *     keys [key_heads][16][key_width], changes u [value_heads][16][padded values],
 *     decays [value_heads][16] */
struct recurrent_view {
    const float *conv_in;
    float *conv_out;
    const float *delta_in;
    float *delta_out;
    const float *open_in; /* NULL: no memory for chunks, rows are computed one by one */
    float *open_out;
};

/* Consecutive rows of a step that continue one sequence. */
struct span {
    uint32_t first_row, row_count;
    bool decode;                     /* a generated token: decode arithmetic; else a prompt's */
    uint32_t position;               /* of first_row in its sequence */
    uint32_t run_start;              /* all rows from there to `position` are prompt rows */
    struct kv_view kv;               /* of the current layer */
    struct recurrent_view recurrent; /* of the current layer */
};

struct row {
    uint32_t span;     /* index into spans */
    uint32_t position; /* in its sequence */
};

/* The experts of each row in ascending id, which is the order of their sum. */
struct routes {
    uint32_t *experts; /* [rows][per_row] */
    float *weights;    /* [rows][per_row] */
    uint32_t per_row;
};

/* A step as a whole, for a device: its rows, and the state of its sequences in every layer.  It lies
 * still until `finish`. */
struct step_frame {
    const void *owner; /* tells the buffers of the step from others */
    bool nested;       /* between two layers of another step */
    bool repeats;      /* generated rows, one in each span, whose experts are held and whose routes
                          stay on the device: the next step of as many rows is the same work */
    size_t row_count, span_count, layer_count;
    uint32_t context; /* positions of the longest sequence */
    const int32_t *tokens;
    const struct row *rows;
    const struct span *spans; /* [layer_count][span_count] */
};

struct frame {
    const struct step_frame *step; /* that it is a part of; NULL: of none, or not on a device */
    uint32_t layer;                /* in the step */
    size_t row_count;
    const int32_t *tokens;  /* [row_count] */
    const struct row *rows; /* [row_count] */
    const struct span *spans;
    size_t span_count;
    const struct weight *weights; /* [WEIGHT_COUNT] of the layer, or of the model */
    float *const *buffers;        /* address of each of the graph's buffers */
    struct routes *routes;
};

/* The three matrices of one expert, in a leased slot, and numbers that are added to their products:
 * a column of as many rows, or no values. */
struct expert_view {
    struct weight gate, up, down;
    struct weight gate_addends, up_addends, down_addends;
};

/* One expert and the pairs routed to it: pair = row x per_row + index of the choice. */
struct expert_work {
    const struct expert_view *view;
    uint32_t expert; /* its id in the layer */
    const uint32_t *pairs;
    size_t pair_count;
};

struct layer_weights;

struct expert_batch {
    const struct layer_weights *layer; /* model/weights.h; NULL: experts of no model */
    const struct expert_work *works;
    size_t work_count;
    size_t row_count;       /* of the step */
    const struct row *rows; /* [row_count] */
    const struct span *spans;
    uint32_t per_row;
    enum activation activation;
    const float *routed; /* [rows][width] */
    float *hidden;       /* [pairs][expert width], scratch */
    float *answers;      /* [pairs][width] result: the expert's output for each pair */
};

/* Upper bounds of the sizes of a model's steps. */
struct backend_sizes {
    size_t row_count;
    size_t matrix_cols; /* of the longest matrix row */
    size_t context;     /* positions */
    size_t experts, experts_per_row;
    size_t width, expert_width;         /* of what experts read, and of their hidden rows */
    size_t heads, kv_heads, head_width; /* of full attention, 0: none */
    size_t delta_key_heads, delta_value_heads, delta_keys, delta_values; /* 0: no delta nets */
    struct {
        size_t heads, latent, nope, rope, values;
    } latent; /* attention, 0: none */
};

struct backend;

struct backend_functions {
    const char *name;
    void (*free)(struct backend *backend);
    /* Bytes that `reserve` allocates for these sizes. */
    size_t (*reserve_bytes)(const struct backend *backend, const struct backend_sizes *sizes);
    /* Allocates scratch for steps of up to these sizes; call before the first of them. */
    mf_status (*reserve)(struct backend *backend, const struct backend_sizes *sizes, mf_error *why);
    mf_status (*execute)(struct backend *backend, const struct graph *graph,
                         const struct frame *frame, mf_error *why);
    /* Computes batch->answers. */
    mf_status (*run_experts)(struct backend *backend, const struct expert_batch *batch,
                             mf_error *why);

    /* The rest is NULL where graphs compute in plain memory, as on the CPU.
     *
     * A device has memory of its own, in which the buffers of a step lie: the host passes addresses
     * in it around, and reads and writes it with `copy` only.  What a device computes is queued;
     * routes are there when `execute` returns, all else after `copy` or `finish`. */
    void *(*allocate)(struct backend *backend, size_t bytes);
    void (*release)(struct backend *backend, void *memory, size_t bytes);
    /* In either direction, behind what is queued; done on return. */
    mf_status (*copy)(struct backend *backend, void *to, const void *from, size_t bytes,
                      mf_error *why);
    /* Waits for all that is queued, and says what went wrong with it.  `whole`: all graphs of a step
     * that was begun have been executed. */
    mf_status (*finish)(struct backend *backend, bool whole, mf_error *why);
    /* Tells of a step, before its graphs.  *replayed: it was queued as a whole, and its graphs must
     * not run. */
    mf_status (*begin_step)(struct backend *backend, const struct step_frame *step, bool *replayed,
                            mf_error *why);
    /* Bytes of its memory that are free. */
    uint64_t (*free_bytes)(const struct backend *backend);
    /* Keeps these of the `total` experts of a layer until `forget`. */
    mf_status (*hold_experts)(struct backend *backend, const struct layer_weights *layer,
                              const struct expert_work *works, size_t count, size_t total,
                              mf_error *why);
    /* run_experts with the experts that the last routes on the device name, of a layer whose experts
     * are held, for a step that repeats.  The batch has no works. */
    mf_status (*run_held_experts)(struct backend *backend, const struct expert_batch *batch,
                                  mf_error *why);
    /* Drops its copies of weights and experts: a model is about to be closed. */
    void (*forget)(struct backend *backend);
    /* Makes memory of the host, which stays where it is until `unpin`, quick to copy from.  False: it
     * cannot, and copies are slower. */
    bool (*pin)(struct backend *backend, void *memory, size_t bytes);
    void (*unpin)(struct backend *backend, void *memory);
};

/* Memory of a device for pages and recurrent states, which the host reaches with `copy` and `clear`
 * only.  Both are done on return; false: the device failed.  Threads: any. */
struct state_memory {
    void *(*allocate)(void *user, size_t bytes);
    void (*release)(void *user, void *memory, size_t bytes);
    bool (*copy)(void *user, void *to, const void *from, size_t bytes); /* in either direction */
    bool (*clear)(void *user, void *memory, size_t bytes);
    void *user;
};

struct backend {
    const struct backend_functions *functions;
    const struct state_memory *state_memory; /* NULL: that of the host */
    enum kv_format kv_format;                /* that KV_DEFAULT means */
    bool has_open_rows;    /* it keeps rows of incomplete delta chunks (struct recurrent_view) */
    struct tracer *tracer; /* borrowed; NULL: no tracing */
};

/* The CPU backend with one kernel set; pool and allocator are borrowed.  `exact`: the reference, the
 * plain f32 arithmetic that defines the result; else tuned arithmetic. */
mf_status backend_cpu_new(struct backend **out, const mf_allocator *allocator,
                          struct thread_pool *pool, const struct kernels *kernels, bool exact,
                          mf_error *why);

/* Whether the buffers of a step lie in memory of a device. */
static inline bool backend_is_device(const struct backend *backend)
{
    return backend->functions->allocate != NULL;
}

#endif
