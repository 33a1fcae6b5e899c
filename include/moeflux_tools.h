/* moeflux_tools.h: around running a model: what a checkpoint is, what would fit where,
 * conversion, cache directories, simulation of expert caches, and what the machine can do at most.
 *
 * No promise of stability: names and fields may change with every version.  What programs
 * build on is in moeflux.h.
 *
 * Structs: begin with `struct_size` and have an initialiser (MF_SIMULATION_OPTIONS_INIT), so
 *          that they can grow; a function that fills one writes no more than struct_size says.
 * Threads: objects of this header have one owner each; different ones may be used at a time.
 * Errors and lifetimes: as in moeflux.h. */
#ifndef MOEFLUX_TOOLS_H
#define MOEFLUX_TOOLS_H

#include "moeflux.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ------------------------------------------------------------- checkpoints */

/* Sizes of a model.  A size that its family does not have is 0. */
typedef struct mf_model_shape {
    size_t struct_size;
    uint32_t layer_count, attention_layers, latent_layers, delta_layers, expert_layers;
    uint32_t vocab_size, context_length, width;
    uint32_t heads, kv_heads, head_width;
    uint32_t nope_width, rotary_width, value_width, latent_width; /* of latent attention */
    uint32_t delta_key_heads, delta_key_width, delta_value_heads, delta_value_width;
    uint32_t experts, experts_per_token, expert_width; /* experts: of one layer */
    uint32_t shared_width;                             /* of the shared expert */
    uint32_t dense_width;                              /* of layers without experts */
    /* Of layers whose attention sees the last `window` positions, its own included. */
    uint32_t window_layers, window, window_kv_heads, window_head_width;
} mf_model_shape;

#define MF_MODEL_SHAPE_INIT MF_SIZED(mf_model_shape)

MF_API mf_status mf_model_get_shape(mf_model_shape *out, const mf_model *model, mf_error *why);

/* What tensors are for: suffix, name. */
#define MF_TENSOR_CLASS_LIST(X)                                                                    \
    X(EMBEDDING, "embedding")                                                                      \
    X(ATTENTION, "attention")                                                                      \
    X(DELTA, "delta nets")                                                                         \
    X(ROUTERS, "routers")                                                                          \
    X(SHARED, "shared experts")                                                                    \
    X(DENSE, "dense layers")                                                                       \
    X(NORMS, "norms")                                                                              \
    X(HEAD, "head")                                                                                \
    X(EXPERTS, "experts")                                                                          \
    X(EXTRA, "vision, prediction") /* known and not used */                                        \
    X(UNKNOWN, "unknown")

typedef enum mf_tensor_class {
#define MF_TENSOR_CLASS_ENUM(suffix, name) MF_TENSORS_##suffix,
    MF_TENSOR_CLASS_LIST(MF_TENSOR_CLASS_ENUM)
#undef MF_TENSOR_CLASS_ENUM
        MF_TENSOR_CLASS_COUNT
} mf_tensor_class;

MF_API const char *mf_tensor_class_name(mf_tensor_class tensor_class);

/* Formats of numbers have indices from 0 to mf_format_count() - 1; the last one stands for those
 * that are not known.  NULL: no such index. */
MF_API uint32_t mf_format_count(void);
MF_API const char *mf_format_name(uint32_t format);

/* A checkpoint, described from its headers: no weight is read.  One that cannot be run is
 * described as far as it goes, with the reason. */
typedef struct mf_description mf_description;

typedef struct mf_description_info {
    size_t struct_size;
    const char *path, *name; /* name: the last part of the path */
    const char *layout;      /* "safetensors", "GGUF", "packed", "ancestors" */
    const char *family;      /* as the checkpoint calls itself where it is not supported */
    bool supported;
    const char *problem; /* why not; else NULL */
    uint64_t file_count, tensor_count, bytes;
    uint64_t parameters, expert_parameters;
    uint64_t active_parameters; /* that one token uses */
    /* What one token reads of weights and adds to the state. */
    uint64_t token_resident_bytes, token_expert_bytes, token_state_bytes;
    /* Of the packed layout what it was made from; else NULL. */
    const char *packed_layout, *packed_name, *packed_kind, *packed_fingerprint;
    const char *packed_experts, *packed_rest;
    uint64_t header_bytes; /* of the first file: what lies before its tensors; 0: it has none */
} mf_description_info;
#define MF_DESCRIPTION_INFO_INIT MF_SIZED(mf_description_info)

MF_API mf_status mf_description_open(mf_description **out, const char *path, mf_error *why);
MF_API void mf_description_close(mf_description *description);

/* Texts are borrowed from the description. */
MF_API mf_status mf_description_get(mf_description_info *out, const mf_description *description,
                                    mf_error *why);

/* All 0 where the model is not supported. */
MF_API mf_status mf_description_get_shape(mf_model_shape *out, const mf_description *description,
                                          mf_error *why);

/* Whether all its files can be read past the page cache. */
MF_API bool mf_description_is_direct(const mf_description *description);

/* Scales and biases of a matrix are bytes of it, not tensors.  `rows` of matrices: 0 of tensors that
 * the model does not use. */
typedef struct mf_tensor_sum {
    uint64_t tensors, parameters, bytes, rows;
} mf_tensor_sum;

/* Over the class and the format; -1: over all of them. */
MF_API mf_tensor_sum mf_description_sum(const mf_description *description, int tensor_class,
                                        int format);

/* The tensors that no weight was made from: name, format, and the shape as text ("[4, 32]").
 * False: there are no more than `index`. */
typedef struct mf_tensor_info {
    const char *name, *format;
    char shape[128];
} mf_tensor_info;
MF_API bool mf_description_unknown(const mf_description *description, size_t index,
                                   mf_tensor_info *out);

/* -------------------------------------------------------------------- plan */

typedef struct mf_plan_options {
    size_t struct_size;
    uint64_t memory_bytes;   /* 0: what is free now */
    uint32_t context_length; /* of the sequence; 0: as mf_model_open has it */
    uint32_t chunk_rows;     /* 0: as mf_model_open has it */
    uint32_t thread_count;   /* of the engine; 0: one for every CPU this process may use */
    const char *kv_type;     /* as in mf_model_options */
} mf_plan_options;
#define MF_PLAN_OPTIONS_INIT MF_SIZED(mf_plan_options)

/* What a run with one sequence would hold in memory, computed from sizes: mf_model_statistics of
 * that run says the same. */
typedef struct mf_plan {
    size_t struct_size;
    bool fits;
    char problem[512]; /* why not */
    uint64_t memory_bytes;
    uint32_t context_length;
    uint64_t weight_bytes;   /* used by every token */
    uint64_t engine_bytes;   /* buffers of a step, shared by all sequences */
    uint64_t sequence_bytes; /* one sequence of context_length positions, with two checkpoints */
    uint64_t table_bytes;    /* of the expert cache's policy */
    uint64_t expert_bytes;   /* slots for experts */
    uint64_t experts_in_memory, expert_count;
    char expert_mode[16];    /* "resident", "mapped", "streamed" */
    uint64_t position_bytes; /* that a token adds to its sequence's keys and values */
    uint32_t chunk_rows;     /* of a prompt in one step, at most */
} mf_plan;
#define MF_PLAN_INIT MF_SIZED(mf_plan)

/* Reads headers, no weights; a plan that does not fit is no failure.  `options` may be NULL. */
MF_API mf_status mf_model_plan(mf_plan *out, const char *path, const mf_plan_options *options,
                               mf_error *why);

/* -------------------------------------------------------------- conversion */

typedef enum mf_convert_stage { MF_CONVERT_WRITING, MF_CONVERT_VERIFYING } mf_convert_stage;

typedef struct mf_convert_options {
    size_t struct_size;
    const char *experts;   /* "q8", "q4", "q3", "q2"; NULL: as they are */
    const char *rest;      /* the other matrices: "bf16", "q8"; NULL: as they are */
    uint32_t thread_count; /* 0: one for every core */
    bool verify;           /* read all of it again and compare it with the source */
    mf_log_function log;
    void *log_user;
    /* Bytes done and in all; may be NULL. */
    void (*progress)(void *user, mf_convert_stage stage, uint64_t done, uint64_t total);
    void *progress_user;
} mf_convert_options;
#define MF_CONVERT_OPTIONS_INIT MF_SIZED(mf_convert_options)

typedef struct mf_convert_result {
    size_t struct_size;
    bool exact;       /* no number was rounded: the same logits, to the bit */
    bool already;     /* the target was there, made from this source with these options */
    bool resumed;     /* an earlier call had begun */
    bool interrupted; /* after a failure: what was done is kept, the next call continues it */
    uint64_t source_bytes, resident_bytes, expert_bytes; /* of what the model uses */
    uint64_t experts, expert_layers;
    uint64_t requantised, kept; /* matrices that were asked to change: did, did not */
} mf_convert_result;
#define MF_CONVERT_RESULT_INIT MF_SIZED(mf_convert_result)

/* The checkpoint `source` into the packed layout at `target`, which appears when it is complete.
 * `out` and `options` may be NULL; *out is filled after a failure, too. */
MF_API mf_status mf_convert(mf_convert_result *out, const char *source, const char *target,
                            const mf_convert_options *options, mf_error *why);

/* --------------------------------------------------------- cache directories */

/* A page or a checkpoint in a cache directory.  Texts are borrowed for the call. */
typedef struct mf_cached_file {
    const char *model; /* "": not known */
    char root[33];     /* of the model with all that changes its states, in hexadecimal digits */
    char key[33];      /* the file's name without its ending */
    bool checkpoint;
    uint32_t depth;           /* pages before it */
    uint32_t position, count; /* of its first token, and how many it has; a checkpoint is of
                               * position + count */
    uint64_t bytes;           /* of the file, in whole blocks */
    double hits;              /* with a half-life of 6 hours */
    double age_seconds;       /* since it was used last */
    const char *problem;      /* "missing", "damaged"; NULL: none, or it was not read */
} mf_cached_file;

/* Files in the order of their texts: a page, the checkpoints in it, the pages that continue it. */
typedef void (*mf_cached_file_function)(void *user, const mf_cached_file *file);

typedef struct mf_cache_summary {
    size_t struct_size;
    uint64_t bytes; /* of the directory, in whole blocks */
    uint64_t pages, checkpoints;
    uint64_t strangers; /* files that no record names */
    uint64_t missing;   /* records without a file */
    uint64_t damaged;   /* of the files that were read */
    uint64_t evicted;   /* files that were removed for the limit */
    uint64_t bytes_before;
} mf_cache_summary;
#define MF_CACHE_SUMMARY_INIT MF_SIZED(mf_cache_summary)

/* What is in the directory, without reading its files, and after reading all of them.  Nothing is
 * changed.  `out` and `function` may be NULL.  MF_ERR_IO: another process has it open, too;
 * MF_ERR_MISMATCH: it is no cache directory. */
MF_API mf_status mf_cache_list(mf_cache_summary *out, const char *directory,
                               mf_cached_file_function function, void *user, mf_error *why);
MF_API mf_status mf_cache_verify(mf_cache_summary *out, const char *directory,
                                 mf_cached_file_function function, void *user, mf_error *why);

/* Removes what is damaged, missing or not known, and the least valuable files until the directory
 * takes at most `limit_bytes` (0: no limit).  `out` may be NULL. */
MF_API mf_status mf_cache_collect(mf_cache_summary *out, const char *directory,
                                  uint64_t limit_bytes, mf_error *why);

/* -------------------------------------------------------------- simulation */

/* Records what every router of a sequence chooses, as a trace: bytes for `write`, in order.
 * False from `write`: it could not, and nothing more is written. */
typedef struct mf_route_recorder mf_route_recorder;
typedef bool (*mf_write_function)(void *user, const void *bytes, size_t count);

/* The recorder takes the place of mf_sequence_watch_routes until it is closed; it is closed
 * before the sequence. */
MF_API mf_status mf_route_recorder_open(mf_route_recorder **out, mf_sequence *sequence,
                                        mf_write_function write, void *user, mf_error *why);
/* A recorder without a sequence: the caller adds every layer of every step, in order. */
MF_API mf_status mf_route_recorder_open_for(mf_route_recorder **out, const mf_model *model,
                                            mf_write_function write, void *user, mf_error *why);
MF_API void mf_route_recorder_add(mf_route_recorder *recorder, const mf_routes *routes);
/* Writes the end of the trace; what went wrong before is said here. */
MF_API mf_status mf_route_recorder_finish(mf_route_recorder *recorder, mf_error *why);
MF_API void mf_route_recorder_close(mf_route_recorder *recorder);

typedef struct mf_route_trace mf_route_trace;

typedef struct mf_route_trace_info {
    size_t struct_size;
    const char *model;
    uint64_t token_count;
    uint32_t layer_count, expert_layers, experts, experts_per_token;
    uint64_t largest_expert_bytes;
    uint64_t all_slots_bytes; /* of slots for every expert */
    double step_seconds;      /* of a token that waits for no read; 0: unknown */
} mf_route_trace_info;
#define MF_ROUTE_TRACE_INFO_INIT MF_SIZED(mf_route_trace_info)

/* `bytes` is borrowed until close.  Everything is checked here. */
MF_API mf_status mf_route_trace_open(mf_route_trace **out, const void *bytes, size_t count,
                                     mf_error *why);
MF_API void mf_route_trace_close(mf_route_trace *trace);
MF_API mf_status mf_route_trace_get(mf_route_trace_info *out, const mf_route_trace *trace,
                                    mf_error *why);

/* Belady's policy knows the future: no other has more hits.  "moeflux" is the library's own. */
#define MF_CACHE_POLICY_LIST(X)                                                                    \
    X(BELADY, "belady")                                                                            \
    X(MOEFLUX, "moeflux")                                                                          \
    X(LFU, "lfu")                                                                                  \
    X(LRU, "lru")                                                                                  \
    X(S3_FIFO, "s3-fifo")

typedef enum mf_cache_policy {
#define MF_CACHE_POLICY_ENUM(suffix, name) MF_CACHE_##suffix,
    MF_CACHE_POLICY_LIST(MF_CACHE_POLICY_ENUM)
#undef MF_CACHE_POLICY_ENUM
        MF_CACHE_POLICY_COUNT
} mf_cache_policy;

MF_API const char *mf_cache_policy_name(mf_cache_policy policy);

typedef struct mf_simulation_options {
    size_t struct_size;
    mf_cache_policy policy;
    uint64_t memory_bytes; /* of everything, as in mf_model_options; 0: slot_bytes counts */
    uint64_t slot_bytes;   /* of the slots for experts */
    uint32_t rows;         /* tokens of a step; 0: as they were recorded */
} mf_simulation_options;
#define MF_SIMULATION_OPTIONS_INIT MF_SIZED(mf_simulation_options)

typedef struct mf_simulation_result {
    size_t struct_size;
    uint64_t slot_bytes;
    uint64_t slots, experts; /* in memory; of the model */
    uint64_t tokens;
    uint64_t uses, hits; /* experts that steps asked for; that were in memory then */
    uint64_t bytes_read;
} mf_simulation_result;
#define MF_SIMULATION_RESULT_INIT MF_SIZED(mf_simulation_result)

/* Replays a trace against a cache.  MF_ERR_MEMORY: it holds less than one token needs. */
MF_API mf_status mf_simulate(mf_simulation_result *out, const mf_route_trace *trace,
                             const mf_simulation_options *options, mf_error *why);

/* -------------------------------------------------------------- measurement */

/* What this machine can do at most, measured and not looked up; per second, 0: not measured or
 * not there.  Measuring again only raises a figure: other load can slow an attempt down,
 * nothing can speed it up. */
typedef struct mf_ceilings {
    size_t struct_size;
    uint32_t thread_count;
    const char *instruction_set; /* of the f32 loop: "avx512" */
    double memory_bytes;         /* read from a buffer far beyond the caches */
    double f32_flops;            /* multiply-adds on registers count two */
    double bf16_flops;           /* in vectors */
    double amx_bf16_flops, amx_int8_ops;
    double disk_bytes; /* reads at scattered places of a model's files */
    bool disk_direct;  /* the file system let them pass by the page cache */
} mf_ceilings;
#define MF_CEILINGS_INIT MF_SIZED(mf_ceilings)

/* Takes about a second; thread_count 0: one for every core. */
MF_API mf_status mf_ceilings_measure(mf_ceilings *ceilings, uint32_t thread_count, mf_error *why);

/* The disk that the model's files lie on, where its experts are streamed; else does nothing. */
MF_API mf_status mf_ceilings_measure_disk(mf_ceilings *ceilings, const mf_model *model,
                                          mf_error *why);

/* The same of a file, at least a MiB long, and of the files that a description lists. */
MF_API mf_status mf_ceilings_measure_file(mf_ceilings *ceilings, const char *path, mf_error *why);
MF_API mf_status mf_ceilings_measure_files(mf_ceilings *ceilings, const mf_description *description,
                                           mf_error *why);

/* How fast an engine computes with weights of a format, measured on wide experts (rows of 2048
 * numbers, a hidden row of 768) and on narrow ones, because a row takes time of its own; per
 * second, 0: not measured.  Measuring again only raises a figure. */
enum { MF_RATE_POINTS = 4 };
enum { MF_RATE_WIDTH = 2048, MF_RATE_HIDDEN = 768, MF_RATE_NARROW = 256 /* both */ };
typedef struct mf_format_rates {
    size_t struct_size;
    double decode_bytes;                /* of weights that one generated row is multiplied with */
    double prompt_rows[MF_RATE_POINTS]; /* rows of a prompt for each expert, ascending, … */
    double
        prompt_flops[MF_RATE_POINTS]; /* … and operations with that many; a multiply-add is two */
    double narrow_decode_bytes, narrow_prompt_flops[MF_RATE_POINTS]; /* of narrow experts */
} mf_format_rates;
#define MF_FORMAT_RATES_INIT MF_SIZED(mf_format_rates)

/* Half a second on a fast machine, and a quarter of a GiB.  MF_ERR_ARGUMENT: nothing computes
 * with the format. */
MF_API mf_status mf_format_rates_measure(mf_format_rates *rates, mf_engine *engine, uint32_t format,
                                         mf_error *why);

/* Seconds of a layer of one row beside its products: barriers and small operations. */
MF_API mf_status mf_layer_seconds_measure(double *seconds, mf_engine *engine, mf_error *why);

/* The memory alone, again and again while other work is timed: on a shared machine its bandwidth
 * of one minute says little about the next. */
typedef struct mf_memory_probe mf_memory_probe;

/* *out is NULL where too little memory is free for it; that is no failure. */
MF_API mf_status mf_memory_probe_open(mf_memory_probe **out, uint32_t thread_count, mf_error *why);
MF_API void mf_memory_probe_close(mf_memory_probe *probe);
MF_API double mf_memory_probe_rate(mf_memory_probe *probe); /* bytes per second now */

/* What there is to do for a token, counted from the shapes of the weights. */
typedef struct mf_workload {
    size_t struct_size;
    uint64_t weight_bytes;         /* read for one generated token */
    uint64_t state_position_bytes; /* read for each position before it */
    uint64_t state_fixed_bytes;    /* read and written at any position */
    double token_flops;            /* of the layers' matrices and recurrent states */
    double head_flops;
    double pair_flops; /* of attention, for one token and one position */
} mf_workload;
#define MF_WORKLOAD_INIT MF_SIZED(mf_workload)

MF_API mf_status mf_model_workload(mf_workload *out, const mf_model *model, mf_error *why);

/* The same from the headers alone, weights as they are stored.  `kv_type` as in mf_model_options; MF_ERR_UNSUPPORTED: the
 * model cannot be run. */
MF_API mf_status mf_description_workload(mf_workload *out, const mf_description *description,
                                         const char *kv_type, mf_error *why);

/* Kernel set `index` that runs on this machine, the best one first; NULL: there are no more. */
MF_API const char *mf_kernel_set_at(uint32_t index);

/* What this process may use of the machine. */
typedef struct mf_machine_limits {
    size_t struct_size;
    uint32_t cores;        /* of its affinity */
    double cpu_quota;      /* of its control groups, in CPUs; 0: none */
    uint64_t memory_bytes; /* likewise; 0: none */
} mf_machine_limits;
#define MF_MACHINE_LIMITS_INIT MF_SIZED(mf_machine_limits)
MF_API mf_status mf_machine_get_limits(mf_machine_limits *out, mf_error *why);

/* The device that the backend "cuda" computes on. */
typedef struct mf_device_description {
    size_t struct_size;
    char name[256];          /* "NVIDIA H200" */
    int32_t major, minor;    /* its compute capability */
    int32_t driver, runtime; /* versions of CUDA, as in 13000 for 13.0 */
    uint64_t total_bytes, free_bytes;
} mf_device_description;
#define MF_DEVICE_DESCRIPTION_INIT MF_SIZED(mf_device_description)

/* MF_ERR_DEVICE: there is none that can be used; the text says why. */
MF_API mf_status mf_device_describe(mf_device_description *out, mf_error *why);

/* Whether the library was built with io_uring; the system may refuse it all the same. */
MF_API bool mf_built_with_io_uring(void);

/* Threads of an engine whose options leave the number open: one for every core that this process
 * may use. */
MF_API uint32_t mf_default_thread_count(void);

/* Evaluates a prompt and leaves the sequence as it was, recurrent state included: for timing. */
MF_API mf_status mf_sequence_rehearse(mf_sequence *sequence, const int32_t *tokens, size_t count,
                                      mf_error *why);

/* How often each expert of a layer was asked for since the statistics were reset: borrowed,
 * [experts]; NULL: the layer has none. */
MF_API const uint64_t *mf_model_expert_uses(const mf_model *model, uint32_t layer);

#ifdef __cplusplus
}
#endif
#endif
