/* device.h: the plugin's inside.
 *
 *     execute.c   a graph: every op becomes a launch, or with others a part of one (fused.c)
 *     experts.c   the experts of a batch: copied to the device where they are missing, then launched
 *     copies.c    what lies on the device of the host's weights and experts
 *     steps.c     what all graphs of a step read of the host, in one block; steps that are repeated
 *     staging.c   other small arrays on their way to the device
 *     states.c    pages and recurrent states
 *
 * One stream: what is queued runs in order, so that memory may be written again, or given back with
 * cudaFreeAsync, as soon as the last launch that reads it is queued.
 *
 * Errors: the first failure of a launch or a copy is kept until the call in which it happens, or is
 * found, returns it.  That step is lost, and the next one may succeed: what was to be copied counts as
 * not copied.  A device that is lost fails every call from then on.
 *
 * Threads: as backend.h says.  The memory of states (states.c) is used on any thread, with a stream of
 * its own. */
#ifndef BACKEND_CUDA_DEVICE_H
#define BACKEND_CUDA_DEVICE_H

#include "backend/cuda/cuda.h"
#include "backend/cuda/launch.h"
#include "base/status.h"

#include <cuda_runtime_api.h>
#include <stdatomic.h>

/* -------------------------------------------------------------------------------------- copies */

/* What a copy is made of: an address of the host, or an expert of a layer. */
struct copy_key {
    const void *owner;
    uint64_t number;
};

struct copy {
    struct copy_key key;
    void *memory; /* on the device */
    size_t bytes;
    struct cuda_expert expert;  /* of an expert: its arrays in `memory` */
    struct copy *newer, *older; /* experts, by their last use */
    uint64_t launch;            /* which used it last */
    bool held;                  /* until everything is forgotten: it is not in that order */
};

/* Hash table with open addressing. */
struct copies {
    struct copy **places;
    size_t count, room; /* room is a power of two */
};

/* ------------------------------------------------------------------------------------- staging */

/* Arrays are added on the host, then sent in one copy. */
struct staged {
    uint8_t *host, *device;
    size_t bytes, capacity;
    cudaEvent_t sent; /* after which `host` may be written again, and all that reads `device` … */
};

enum { STAGED_COUNT = 8 };

/* --------------------------------------------------------------------------------------- steps */

/* The rows of a step and the spans of all its layers, in a block that keeps its address. */
struct step_block {
    uint8_t *host, *device;
    size_t bytes, capacity;
    struct cuda_rows rows; /* on the device; `spans` are those of layer 0 */
    uint32_t last_position;
};

/* A step that repeats is queued launch by launch twice: the first time everything that it needs gets
 * onto the device, the second time it is recorded.  From then on it is replayed:
 *
 *     seen 0 ── plain ──▶ seen 1 ── recorded, replayed ──▶ recording ── replayed ──▶ …
 *
 * A recording has addresses in it: it is dropped when memory that it may use is given back. */
struct replay {
    const void *owner;
    unsigned seen;
    cudaGraphExec_t recording;
};

enum { STEP_KINDS = 2, REPLAY_ROWS_MAX = 64 }; /* a step, and one nested in it */

/* ------------------------------------------------------------------------------------- backend */

struct cuda_backend {
    struct backend base;
    const mf_allocator *allocator;
    struct state_memory states;
    cudaStream_t stream, state_stream;
    bool exact;                   /* prompts in f32, too */
    cudaError_t failed;           /* the first error */
    uint64_t device_bytes;        /* limit of what is allocated here */
    _Atomic uint64_t taken_bytes; /* of it */
    _Atomic uint64_t state_bytes; /* of these, pages and recurrent states */
    struct copies weights, experts;
    struct copies tables; /* of layers whose experts are held: [experts] struct cuda_expert */
    struct copy *newest, *oldest; /* of the experts */
    uint64_t launch;              /* number of the launch that experts are gathered for */
    cudaEvent_t copied;           /* behind the last copy of an expert */
    bool copies;                  /* some are queued that the host has not waited for */
    struct staged staged[STAGED_COUNT];
    size_t next_staged;
    struct step_block steps[STEP_KINDS];
    struct replay replays[STEP_KINDS][REPLAY_ROWS_MAX + 1]; /* by rows */
    struct replay *recorded; /* the one that is being recorded; NULL: none */
    /* Grow with the largest step. */
    float *scratch;
    size_t scratch_floats;
    float *attend_scratch;
    size_t attend_bytes;
    void *routes, *host_routes;       /* [pairs] ids, then [pairs] weights */
    size_t routes_bytes, route_pairs; /* of the last step */
    void *buckets;                    /* of run_held_experts: slots, then pairs */
    size_t buckets_bytes;
};

/* MF_OK, or what has failed since the last time. */
mf_status cuda_check(struct cuda_backend *b, mf_error *why);

/* After memory of the device could not be taken: what has failed, or that none is left. */
mf_status cuda_fail_memory(mf_error *why, struct cuda_backend *b, size_t bytes);

/* Keeps the first error; false: there is one. */
bool cuda_note(struct cuda_backend *b, cudaError_t error);

/* Counts bytes against the limit; false: they are too many.  Threads: any. */
bool cuda_count_bytes(struct cuda_backend *b, size_t bytes);

/* Memory of the device; NULL: none is left, and nothing has failed. */
void *cuda_take(struct cuda_backend *b, size_t bytes);
void cuda_give(struct cuda_backend *b, void *memory, size_t bytes);

/* At least `bytes` in *memory, whose content is lost when it grows.  False: out of memory. */
bool cuda_grow(struct cuda_backend *b, void **memory, size_t *capacity, size_t bytes);

/* The next block, empty, with room for `bytes` in arrays of `count`; NULL: an error was noted. */
struct staged *cuda_stage(struct cuda_backend *b, size_t bytes, size_t count);
/* Copies an array to the block; returns where it will be on the device. */
void *staged_add(struct staged *staged, const void *array, size_t bytes);
/* Room for an array that is written in place, before the block is sent: `*device` is its address
 * there. */
void *staged_room(struct staged *staged, size_t bytes, void **device);
void cuda_send(struct cuda_backend *b, struct staged *staged);
void cuda_free_staged(struct cuda_backend *b);

/* The weight with its arrays on the device; copied there at its first use.  A weight without values
 * stays without. */
mf_status cuda_weight_on_device(struct cuda_weight *out, struct cuda_backend *b,
                                const struct weight *weight, mf_error *why);
/* The same for any array of the host, whose address tells it from all others. */
mf_status cuda_array_on_device(const void **out, struct cuda_backend *b, const void *array,
                               size_t bytes, mf_error *why);

/* An expert, copied if it is not there; the least recently used ones make room.  *out is NULL where
 * experts of the present launch would have to go. */
mf_status cuda_expert_on_device(const struct cuda_expert **out, struct cuda_backend *b,
                                const void *layer, const struct expert_work *work, mf_error *why);
/* Waits until copies of experts have read the host's memory, not for the launches behind them. */
void cuda_wait_for_copies(struct cuda_backend *b);
void cuda_forget(struct cuda_backend *b);
mf_status cuda_hold_experts(struct backend *backend, const struct layer_weights *layer,
                            const struct expert_work *works, size_t count, size_t total,
                            mf_error *why);
/* NULL: the layer's experts are not held. */
const struct cuda_expert *cuda_held_experts(const struct cuda_backend *b, const void *layer,
                                            uint32_t *count);

mf_status cuda_begin_step(struct backend *backend, const struct step_frame *step, bool *replayed,
                          mf_error *why);
/* Ends a recording and queues it; drops it where the step is not whole. */
void cuda_end_step(struct cuda_backend *b, bool whole);
void cuda_drop_replays(struct cuda_backend *b);
void cuda_free_steps(struct cuda_backend *b);

/* The memory of pages and recurrent states. */
void cuda_begin_states(struct cuda_backend *b);
void cuda_end_states(struct cuda_backend *b);
/* The rows of a frame that is part of a step. */
struct cuda_rows cuda_step_rows(const struct cuda_backend *b, const struct frame *frame);

mf_status cuda_execute(struct backend *backend, const struct graph *graph,
                       const struct frame *frame, mf_error *why);
mf_status cuda_run_expert_batch(struct backend *backend, const struct expert_batch *batch,
                                mf_error *why);
mf_status cuda_run_held_experts(struct backend *backend, const struct expert_batch *batch,
                                mf_error *why);

#endif
