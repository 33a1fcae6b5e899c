/* moeflux.h: run mixture-of-experts language models that are bigger than memory.
 *
 *     mf_engine      threads, kernels, allocator, files: one per process is usual
 *       └ mf_model   weights, tokenizer, configuration of one checkpoint
 *           ├ mf_sequence     one sequence: its position, KV and recurrent state
 *           ├ mf_text         tokenizer, chat template, special tokens, generation defaults
 *           ├ mf_sampler      the next token of a row of logits
 *           ├ mf_constraint   the form of an answer: grammar, JSON schema, tool calls
 *           └ mf_scheduler    answers to many requests at a time
 *     mf_prompt, mf_detokenizer, mf_stops, mf_parser: messages to tokens, tokens to messages
 *
 * Lifetimes: close in the reverse order of opening.  Every pointer that a call
 * returns is borrowed from the object it was asked of, unless the function's
 * name ends in _new or _dup.
 * Threads:   an engine and its models may be shared; a sequence has one owner at
 *            a time.  Calls on sequences of one engine are serialised by it.
 *            The library's own threads block signals: handlers of the program
 *            run on the program's threads alone.  They do not survive a fork:
 *            the child opens an engine of its own.
 * Callbacks: run in the thread that called the library, inside of that call, and
 *            call nothing of the same engine.
 * Errors:    MF_OK or a negative status; `why` (may be NULL) receives one
 *            sentence.  The library never prints, exits or reads the environment.
 * NULL:      an argument that is not said to be optional is refused; a function
 *            without a status does nothing, and returns NULL, 0, false or -1.
 *            Where a call fills in a length or a count, that pointer is optional.
 */
#ifndef MOEFLUX_H
#define MOEFLUX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define MF_PRINTF(format_index, first) __attribute__((format(printf, format_index, first)))
#define MF_API                         __attribute__((visibility("default")))
#else
#define MF_API
#define MF_PRINTF(format_index, first)
#endif

/* ------------------------------------------------------------------ errors */

/* name, value, what it means */
#define MF_STATUS_LIST(X)                                                                          \
    X(MF_OK, 0, "done")                                                                            \
    X(MF_ERR_ARGUMENT, -1, "wrong argument")                                                       \
    X(MF_ERR_MEMORY, -2, "out of memory")                                                          \
    X(MF_ERR_IO, -3, "a file could not be read")                                                   \
    X(MF_ERR_FORMAT, -4, "malformed file")                                                         \
    X(MF_ERR_UNSUPPORTED, -5, "not supported")                                                     \
    X(MF_ERR_MISMATCH, -6, "the files do not fit together")                                        \
    X(MF_ERR_CONTEXT_FULL, -7, "the context is full")                                              \
    X(MF_ERR_BUFFER_SIZE, -8, "wrong buffer size")                                                 \
    X(MF_ERR_CANNOT_TRUNCATE, -9, "the state cannot be cut back to this position")                 \
    X(MF_ERR_TEMPLATE, -10, "the chat template failed")                                            \
    X(MF_ERR_GRAMMAR, -11, "malformed grammar or schema")                                          \
    X(MF_ERR_CANCELLED, -12, "cancelled")                                                          \
    X(MF_ERR_NOT_FINITE, -13, "a weight or a result is not a number")                              \
    X(MF_ERR_POOL_FULL, -14, "the memory for sequences is full")                                   \
    X(MF_ERR_NO_CHECKPOINT, -15, "there is no checkpoint at this position")                        \
    X(MF_ERR_BUSY, -16, "too many requests wait")                                                  \
    X(MF_ERR_DEVICE, -17, "a device is missing or has failed")

typedef enum mf_status {
#define MF_STATUS_ENUM(name, value, text) name = value,
    MF_STATUS_LIST(MF_STATUS_ENUM)
#undef MF_STATUS_ENUM
} mf_status;

typedef struct mf_error {
    mf_status status;
    char text[512];  /* one sentence: what is wrong, where, what was expected */
    char origin[64]; /* source file and line that found it */
} mf_error;

/* "MF_ERR_IO", and "a file could not be read". */
MF_API const char *mf_status_name(mf_status status);
MF_API const char *mf_status_text(mf_status status);

/* --------------------------------------------------------------- struct sizes
 * Structs of options and of statistics begin with their size as the caller's compiler sees it, so
 * that they can grow: the library takes the fields that the caller has, the others are 0, and
 * statistics are filled as far as the caller's struct goes.  Begin with the type's initialiser:
 *
 *     mf_model_options options = MF_MODEL_OPTIONS_INIT;
 *     options.memory_bytes = UINT64_C(8) << 30;
 *
 * A struct_size of 0 is MF_ERR_ARGUMENT.  Options that are all 0 but for their size are the
 * defaults; so is a NULL pointer to options. */
#ifdef __cplusplus
extern "C++" {
template <typename type> inline type mf_sized()
{
    type sized = type();
    sized.struct_size = sizeof(type);
    return sized;
}
}
#define MF_SIZED(type) mf_sized<type>()
#else
#define MF_SIZED(type)                                                                             \
    {                                                                                              \
        .struct_size = sizeof(type)                                                                \
    }
#endif

/* ------------------------------------------------- what the caller provides */

/* Memory.  `alignment` is a power of two; NULL means there is none left.  Both must be callable
 * from several threads. */
typedef struct mf_allocator {
    void *user;
    void *(*allocate)(void *user, size_t bytes, size_t alignment);
    void (*release)(void *user, void *pointer, size_t bytes);
} mf_allocator;

/* Files, read only.  Functions return 0 (or a count) when done, else a negative
 * errno value.  All must be callable from several threads. */
typedef struct mf_files {
    void *user;
    int (*open)(void *user, const char *path, void **handle, uint64_t *size);
    /* Up to `count` bytes from `offset`; how many were read, 0 at the end. */
    int64_t (*read)(void *user, void *handle, uint64_t offset, void *out, size_t count);
    void (*close)(void *user, void *handle);
    /* Calls `entry` with every file name in `directory`, in any order. */
    int (*list)(void *user, const char *directory, void (*entry)(void *context, const char *name),
                void *context);
    /* May be NULL: the descriptor of a regular file behind a handle, or -1.  With it
     * the kernel's own queue can be used, and reads can pass by the page cache. */
    int (*descriptor)(void *user, void *handle);
} mf_files;

typedef enum mf_log_level { MF_LOG_DEBUG, MF_LOG_INFO, MF_LOG_WARNING } mf_log_level;
typedef void (*mf_log_function)(void *user, mf_log_level level, const char *text);

/* ---------------------------------------------------------------- profiles */

/* Where the time of a step goes. */
#define MF_STAGE_LIST(X)                                                                           \
    X(EMBEDDING, "embedding")                                                                      \
    X(ATTENTION, "attention")                                                                      \
    X(LATENT_ATTENTION, "latent attention")                                                        \
    X(DELTA, "delta net")                                                                          \
    X(ROUTER, "router")                                                                            \
    X(PREDICTION, "prediction") /* the next router applied early, to read ahead */                 \
    X(EXPERT_WAIT, "expert wait")                                                                  \
    X(EXPERTS, "experts")                                                                          \
    X(SHARED_EXPERT, "shared expert")                                                              \
    X(EXPERT_SUM, "expert sum")                                                                    \
    X(DENSE, "dense feed-forward")                                                                 \
    X(HEAD, "head")

typedef enum mf_stage {
#define MF_STAGE_ENUM(name, text) MF_STAGE_##name,
    MF_STAGE_LIST(MF_STAGE_ENUM)
#undef MF_STAGE_ENUM
        MF_STAGE_COUNT
} mf_stage;

MF_API const char *mf_stage_name(mf_stage stage); /* "attention" */

typedef enum mf_trace_kind {
    MF_TRACE_SPAN,       /* an operation or a stage, on one worker */
    MF_TRACE_READ_BEGIN, /* of an expert; the end has the same layer and detail */
    MF_TRACE_READ_END,
    MF_TRACE_COUNTER /* from begin_ns on, `name` is `value` */
} mf_trace_kind;

typedef struct mf_trace_event {
    mf_trace_kind kind;
    uint32_t worker;
    const char *name;  /* static string */
    uint64_t begin_ns; /* CLOCK_MONOTONIC */
    union {
        uint64_t end_ns; /* of a span */
        uint64_t value;  /* of a counter */
    };
    int32_t layer;   /* -1: none */
    uint32_t detail; /* of a read the expert's id, of a stage its rows or experts */
    mf_stage stage;  /* that a span belongs to; MF_STAGE_COUNT: none */
} mf_trace_event;

/* Called between steps by the thread that feeds, with events that are borrowed for the
 * call: those of one worker after those of another, each in the order of their ends. */
typedef void (*mf_trace_function)(void *user, const mf_trace_event *events, size_t count);

/* ------------------------------------------------------------------ engine */

typedef struct mf_engine mf_engine;

typedef struct mf_engine_options {
    size_t struct_size;
    uint32_t thread_count; /* 0: one for every CPU this process may use; no more are used */
    const char *backend;   /* "reference", "cpu", "cuda"; NULL: cpu */
    const char
        *kernels; /* a kernel set by name, as in "avx2"; of cuda "f32": prompts without tensor
                              cores; NULL: the best one here */
    mf_log_function log; /* NULL: notes are dropped */
    void *log_user;
    const mf_allocator *allocator; /* NULL: the C heap; copied */
    const mf_files *files;         /* NULL: POSIX; copied */
    bool profile;                  /* statistics have times by stage */
    mf_trace_function trace;       /* NULL: no events; else `profile` is true, too */
    void *trace_user;
    uint64_t device_bytes; /* that the process may take of a device's memory, its context
                                      included; 0: what is free */
} mf_engine_options;
#define MF_ENGINE_OPTIONS_INIT MF_SIZED(mf_engine_options)

/* `options` may be NULL. */
MF_API mf_status mf_engine_open(mf_engine **out, const mf_engine_options *options, mf_error *why);
MF_API void mf_engine_close(mf_engine *engine); /* NULL is legal, as in every close */

/* Threads that compute, the caller's among them. */
MF_API uint32_t mf_engine_thread_count(const mf_engine *engine);

/* The name of the kernel set in use, as in "avx512"; borrowed. */
MF_API const char *mf_engine_kernels(const mf_engine *engine);

/* Hands over the events that `trace` has not had yet, as closing does. */
MF_API void mf_engine_flush_trace(mf_engine *engine);

/* "0.2.0" */
MF_API const char *mf_version(void);

/* ------------------------------------------------------------------- model */

typedef struct mf_model mf_model;

/* Choices by name: NULL is the default, a name that is not known is refused with those that are. */
typedef struct mf_model_options {
    size_t struct_size;
    uint64_t memory_bytes;      /* weights, engine room, sequences and experts, and the page cache
                                   that reading them fills, stay below it; 0: what is free now */
    uint32_t context_length;    /* positions of the longest sequence, at most the model's limit;
                                   0: 4096, or fewer where little memory is left */
    uint32_t chunk_rows;        /* prompt rows in one step, at most; 0: as the memory suggests */
    uint32_t experts_per_token; /* 0, or more than the model has: as the model says */
    const char *expert_mode;    /* "resident": all in memory of their own, or the model is refused;
                                   "mapped": in the page cache, as the file lies there (if another
                                   process truncates the file, this one may be killed);
                                   NULL: resident, mapped or streamed, as the memory allows */
    const char *read_ahead;     /* of experts before they are asked for: "never", "always"; NULL:
                                   while it saves time.  It changes no result */
    const char *reader;         /* of experts: "io_uring", "threads"; NULL: io_uring for direct
                                   reads */
    bool skip_checksums;        /* of the experts of a packed model, as they arrive */
    uint32_t sequences;         /* as long as context_length that there is memory for, at least; any
                                   number of shorter ones may share it; 0: 1 */
    const char *cache;          /* of beginnings of texts (mf_sequence_resume): "exact", "reuse";
                                   NULL or "off": none */
    uint64_t cache_bytes;       /* that it may take, which the pool has more; 0: what sequences
                                   leave of the pool */
    const char *cache_directory; /* it is written there, too, and found again by later processes;
                                   NULL: memory only.  Where another process uses the directory: a
                                   warning, and memory only */
    uint64_t cache_disk_bytes;   /* that the directory may take; 0: 20 GiB */
    const char *kv_type; /* how keys and values are stored: "f32", "f16", or "q8", bytes with a
                                   scale for 32 of them; NULL: f16, in the reference f32.  It changes
                                   results (docs/numerics.md) */
    bool
        stretch_context; /* context_length may be above the model's limit, where answers get worse */
} mf_model_options;
#define MF_MODEL_OPTIONS_INIT MF_SIZED(mf_model_options)

/* The path of the model that `name` means: `name` itself where there is such a file or directory,
 * else org/name in the Hugging Face cache `cache` (NULL: none), the directory that holds
 * models--org--name.  A directory with one GGUF model becomes the path of that file.  Nothing is
 * downloaded, and no environment variable (HF_HUB_CACHE, HF_HOME, …) is read.  `files` NULL: POSIX.
 * `out` is NUL-terminated; a `capacity` of 4096 always suffices. */
MF_API mf_status mf_model_find(char *out, size_t capacity, const char *name, const char *cache,
                               const mf_files *files, mf_error *why);

/* `path`: a checkpoint directory (safetensors of Hugging Face or MLX), a GGUF file under any name
 * or a directory with one, the first one of a split checkpoint, or what `moeflux convert` has made
 * of these.  Everything is bound and checked here: a file
 * that does not fit is refused with the tensor or field, found and expected. */
MF_API mf_status mf_model_open(mf_model **out, mf_engine *engine, const char *path,
                               const mf_model_options *options, mf_error *why);
MF_API void mf_model_close(mf_model *model);

MF_API uint32_t mf_model_vocab_size(const mf_model *model);
MF_API uint32_t mf_model_context_length(const mf_model *model); /* the model's own limit */
MF_API const char *mf_model_name(const mf_model *model);        /* the directory's name */
MF_API const char *mf_model_family(const mf_model *model);      /* "qwen3_5_moe" */
MF_API int32_t mf_model_eos(const mf_model *model);             /* the first end token, or -1 */
MF_API bool mf_model_is_end(const mf_model *model, int32_t token);
MF_API mf_engine *mf_model_engine(const mf_model *model);

/* ----------------------------------------------------------------- sequence */

typedef struct mf_sequence mf_sequence;

typedef struct mf_sequence_options {
    size_t struct_size;
    uint32_t context_length; /* positions; 0: as the model's options say, which is the most */
    uint32_t chunk_rows;     /* prompt rows in one step; 0, or more than the model's: as those */
} mf_sequence_options;
#define MF_SEQUENCE_OPTIONS_INIT MF_SIZED(mf_sequence_options)

/* An empty sequence takes next to no memory.  As it grows, its keys and values and its recurrent
 * state come from a pool that all sequences of the model share (mf_model_options.sequences), and
 * go back to it when it is cut or closed.  A feed that finds too little there fails with
 * MF_ERR_POOL_FULL. */
MF_API mf_status mf_sequence_open(mf_sequence **out, mf_model *model,
                                  const mf_sequence_options *options, mf_error *why);
MF_API void mf_sequence_close(mf_sequence *sequence);

/* Another sequence with the same tokens, state, checkpoints and logits.  The memory is shared until
 * one of the two goes on. */
MF_API mf_status mf_sequence_fork(mf_sequence **out, const mf_sequence *sequence, mf_error *why);

/* Where tokens come from.  It chooses the arithmetic (docs/numerics.md): prompts are multiplied
 * many rows at a time, generated tokens read the weights as they lie in memory.  A row's bits
 * depend on its position and on the phases of the tokens up to it, not on how they were fed. */
typedef enum mf_phase { MF_PHASE_PROMPT, MF_PHASE_GENERATED } mf_phase;

/* Evaluate `count` tokens at the current position; the last one's logits become
 * readable.  `tokens` is borrowed for the call; `count` may be 0.  After a
 * failure the sequence is as it was before the call, and usable. */
MF_API mf_status mf_sequence_feed(mf_sequence *sequence, mf_phase phase, const int32_t *tokens,
                                  size_t count, mf_error *why);

/* Tokens of one sequence, to be evaluated together with those of others. */
typedef struct mf_part {
    mf_sequence *sequence;
    mf_phase phase;
    const int32_t *tokens;
    size_t count;
    mf_status status; /* out: of this part */
    mf_error *why;    /* out, after a failure; may be NULL, or the same for all */
} mf_part;

/* As mf_sequence_feed for each of the parts, whose sequences are different ones of `model`, in steps
 * that they share: an expert that several of them need is read once.  A sequence's bits are the
 * same as if it were fed alone.  A part that fails fails alone, with its own status and sentence; the
 * call returns the status of the first that did.  `why` tells of wrong arguments, for which no part
 * is evaluated. */
MF_API mf_status mf_model_step(mf_model *model, mf_part *parts, size_t count, mf_error *why);

/* Ends the feed that is under way before its next layer with MF_ERR_CANCELLED, or, when there is
 * none, the next one before it begins.  That feed clears the request.  From any thread and from signal
 * handlers. */
MF_API void mf_sequence_cancel(mf_sequence *sequence);

/* Calls `each` while the sequence is fed, between layers and between chunks, in the thread that
 * feeds: `done` of `total` tokens of that feed.  It may call mf_sequence_cancel and nothing else of
 * the engine.  Pass NULL to unsubscribe. */
typedef void (*mf_progress_function)(void *user, size_t done, size_t total);
MF_API void mf_sequence_watch_progress(mf_sequence *sequence, mf_progress_function each,
                                       void *user);

/* As mf_sequence_feed, handing over every position's logits in order: `index`
 * counts the tokens of this call, `logits` is borrowed for the callback. */
typedef void (*mf_logits_function)(void *user, size_t index, const float *logits);
MF_API mf_status mf_sequence_feed_each(mf_sequence *sequence, mf_phase phase, const int32_t *tokens,
                                       size_t count, mf_logits_function each, void *user,
                                       mf_error *why);

/* Borrowed, vocab_size floats, valid until the next feed or close; NULL before the first. */
MF_API const float *mf_sequence_logits(const mf_sequence *sequence);

MF_API mf_model *mf_sequence_model(const mf_sequence *sequence);

/* The ids of the tokens [first, first + count) that the sequence holds, and the phase of each;
 * either array may be NULL. */
MF_API mf_status mf_sequence_tokens(const mf_sequence *sequence, uint32_t first, uint32_t count,
                                    int32_t *ids, mf_phase *phases, mf_error *why);

/* How many tokens the sequence holds, and how many it can. */
MF_API uint32_t mf_sequence_position(const mf_sequence *sequence);
MF_API uint32_t mf_sequence_context_length(const mf_sequence *sequence);

/* Back to the empty sequence. */
MF_API void mf_sequence_clear(mf_sequence *sequence);

/* Keeps what recurrent layers, or layers that see a window of positions, know at the present position, so that the sequence can be cut back
 * to it later.  Models without such layers need no checkpoints: theirs cost nothing. */
MF_API mf_status mf_sequence_checkpoint(mf_sequence *sequence, mf_error *why);
/* Gives up the checkpoint at `position`, if there is one. */
MF_API void mf_sequence_forget(mf_sequence *sequence, uint32_t position);

/* Keep the first `position` tokens, and the checkpoints up to there.  Recurrent layers hold no
 * history: on a model that has them, only 0, the present position and those of checkpoints can be
 * reached.  Where `reached` is NULL, another position is MF_ERR_CANNOT_TRUNCATE and changes
 * nothing; else the sequence goes to the nearest one before, *reached, and the caller feeds the
 * tokens from there on again. */
MF_API mf_status mf_sequence_truncate(mf_sequence *sequence, uint32_t position, uint32_t *reached,
                                      mf_error *why);

/* A snapshot: all of a sequence (tokens, state, the last logits) as bytes, exact at its position,
 * to be continued by the same model in this process or another.  Checkpoints are not in it. */
MF_API uint64_t mf_sequence_snapshot_bytes(const mf_sequence *sequence);
MF_API mf_status mf_sequence_save(const mf_sequence *sequence, void *out, size_t capacity,
                                  size_t *written, mf_error *why);

/* In place of what the sequence holds.  Everything is checked first, and after a failure the
 * sequence is as it was.  MF_ERR_FORMAT: not a snapshot, or damaged; MF_ERR_UNSUPPORTED: of another
 * version; MF_ERR_MISMATCH: of another model, kernel set or backend; MF_ERR_CONTEXT_FULL,
 * MF_ERR_POOL_FULL: it does not fit. */
MF_API mf_status mf_sequence_load(mf_sequence *sequence, const void *bytes, size_t count,
                                  mf_error *why);

/* The same with a file, which is replaced as a whole or not at all. */
MF_API mf_status mf_sequence_save_file(const mf_sequence *sequence, const char *path,
                                       mf_error *why);
MF_API mf_status mf_sequence_load_file(mf_sequence *sequence, const char *path, mf_error *why);

/* The prefix cache (mf_model_options.cache) keeps beginnings of texts for sequences of the same
 * model that begin in the same way.  What it keeps it shares with them: nothing is copied.
 *
 *     mf_sequence_resume ── mf_sequence_feed … mf_sequence_keep … ── generate ── mf_sequence_keep
 *
 * A model without recurrent layers and windows resumes at any token, one with them where a
 * checkpoint was left.
 * "exact" resumes only what prompts have made, so that all bits are those of a run without a cache;
 * "reuse" takes what was generated, too, where a prompt has the same ids: the state is the model's
 * own history, and differs from that of a prompt by rounding (docs/numerics.md).
 *
 * Places at which a checkpoint is of use later.  Those up to MF_PLACE_JUNCTION are always left, the
 * others where they save enough. */
typedef enum mf_place {
    MF_PLACE_NONE,       /* keep what was computed, without a checkpoint */
    MF_PLACE_HEAD,       /* end of tools and leading system messages: what all sessions share */
    MF_PLACE_BREAKPOINT, /* asked for by the author of the prompt */
    MF_PLACE_PROMPT_END, /* before the tokens that only open the answer */
    MF_PLACE_JUNCTION,   /* where mf_sequence_resume says so */
    MF_PLACE_LAST_USER,  /* start of the last user message */
    MF_PLACE_ANSWER_END, /* end of an answer, or where it begins to call a tool */
    MF_PLACE_NET         /* now and then in a long text: every 4,096 tokens of a prompt and every
                            1,024 generated ones */
} mf_place;

/* Where the tokens of a request cease to be those of the cache. */
typedef enum mf_resume_reason {
    MF_RESUME_EMPTY,     /* it keeps nothing */
    MF_RESUME_ENDS,      /* what it keeps ends there */
    MF_RESUME_DIFFERS,   /* another token follows */
    MF_RESUME_GENERATED, /* the same token follows, but was generated, and the cache is "exact" */
    MF_RESUME_WHOLE,     /* they are all there */
    MF_RESUME_OFF        /* the model was opened without a cache */
} mf_resume_reason;

typedef struct mf_resumed {
    size_t struct_size;
    uint32_t matched;  /* tokens that the cache knows */
    uint32_t resumed;  /* tokens that the sequence holds now */
    uint32_t replayed; /* the others of `matched`: no checkpoint lies nearer */
    uint32_t junction; /* feed the prompt up to this position first, then mf_sequence_keep with
                          MF_PLACE_JUNCTION: others begin in the same way; 0: no such position */
    mf_resume_reason reason; /* why not more than `matched` */
} mf_resumed;
#define MF_RESUMED_INIT MF_SIZED(mf_resumed)

/* Makes the sequence hold the longest beginning of a prompt that the cache has, in place of what it
 * held; at least the last token is left to be fed, for its logits.  `out` may be NULL.  After a
 * failure the sequence is empty. */
MF_API mf_status mf_sequence_resume(mf_sequence *sequence, const int32_t *tokens, size_t count,
                                    mf_resumed *out, mf_error *why);

/* Keeps what the sequence holds for others, and leaves a checkpoint if `place` says so.  Where the
 * cache is too small or there is none, nothing is kept, and that is no error. */
MF_API mf_status mf_sequence_keep(const mf_sequence *sequence, mf_place place, mf_error *why);

/* What was found, as a sentence: "768 tokens are resumed: token 812 differs; …".  `out` is
 * NUL-terminated; a `capacity` of 256 always suffices. */
MF_API void mf_resumed_explain(char *out, size_t capacity, const mf_resumed *resumed);

/* What a layer's router chose for the rows of a step; everything is borrowed for the call. */
typedef struct mf_routes {
    uint32_t layer;
    uint32_t row_count;      /* tokens that are computed at once */
    uint32_t per_row;        /* experts per token */
    const int32_t *tokens;   /* [row_count] */
    const uint32_t *experts; /* [row_count][per_row] in ascending order */
    const float *weights;    /* [row_count][per_row] */
    uint32_t position;       /* of the first row in its sequence */
} mf_routes;

/* Calls `each` for every layer that has experts, in order, while the sequence computes, in
 * the thread that feeds it; it may use nothing of the engine.  A step that fails is seen up
 * to where it failed.  Pass NULL to unsubscribe. */
typedef void (*mf_routes_function)(void *user, const mf_routes *routes);
MF_API void mf_sequence_watch_routes(mf_sequence *sequence, mf_routes_function each, void *user);

/* -------------------------------------------------------------------- text */

/* What a checkpoint says about text: tokenizer, special tokens, chat template, generation
 * defaults.  Each file is read once, at open.  Immutable: any number of threads may use it. */
typedef struct mf_text mf_text;

/* Of an open model; borrowed from it. */
MF_API const mf_text *mf_model_text(const mf_model *model);

/* Without the weights: a directory with just a tokenizer or a chat template, or a GGUF file
 * without tensors, is enough.  `files` NULL: POSIX; else it must outlive the call only. */
MF_API mf_status mf_text_open(mf_text **out, const char *path, const mf_files *files,
                              mf_error *why);
MF_API void mf_text_close(mf_text *text); /* not for the text of a model */

/* How a text's added tokens ("<|im_end|>", "<think>") are read. */
typedef enum mf_special {
    MF_SPECIAL_PARSE,   /* every one is recognised */
    MF_SPECIAL_AS_TEXT, /* those marked special are plain text */
    MF_SPECIAL_NONE     /* none is recognised: for text that is not trusted */
} mf_special;

/* Token ids of `length` bytes; no BOS is added.  *count is how many there are, also when
 * `capacity` is too small (then MF_ERR_BUFFER_SIZE and `out` is untouched; `out` may be NULL with
 * capacity 0 to ask).  Without a tokenizer: MF_ERR_UNSUPPORTED. */
MF_API mf_status mf_text_tokenize(const mf_text *text, int32_t *out, size_t capacity, size_t *count,
                                  const char *bytes, size_t length, mf_special special,
                                  mf_error *why);

/* The highest token id + 1; 0: the checkpoint has no tokenizer.  A model's vocab_size may be
 * larger: the ids above mean nothing and are never sampled. */
MF_API size_t mf_text_token_count(const mf_text *text);

/* The bytes of one token, borrowed, not terminated; NULL when the id has none.  One token may be a
 * part of a UTF-8 character: mf_detokenizer joins them. */
MF_API const char *mf_text_token_bytes(const mf_text *text, int32_t token, size_t *length);

/* As the tokenizer's file writes it ("Ġthe"), terminated; NULL when the id has none. */
MF_API const char *mf_text_token_name(const mf_text *text, int32_t token);

/* The id of a token by that name ("<|im_end|>"); -1: there is none. */
MF_API int32_t mf_text_find_token(const mf_text *text, const char *name);

/* Marked special: control tokens that a reader does not see. */
MF_API bool mf_text_is_special(const mf_text *text, int32_t token);

/* The id that stands before every prompt, or -1; and the texts that chat templates know as
 * bos_token and eos_token, NULL where the checkpoint names none. */
MF_API int32_t mf_text_bos(const mf_text *text);
MF_API const char *mf_text_bos_token(const mf_text *text);
MF_API const char *mf_text_eos_token(const mf_text *text);

/* The syntax in which the model writes reasoning and tool calls, as its chat template shows: the
 * name of a family for mf_parser_options and mf_constraint_options. */
MF_API const char *mf_text_family(const mf_text *text);

/* Family number `index` of all; NULL behind the last. */
MF_API const char *mf_family_name(size_t index);

/* ----------------------------------------------------------- chat rendering */

/* A chat template: Jinja, as Hugging Face transformers sets it up.  A template cannot read files
 * and its output, memory, steps and nesting are bounded.  Immutable: any number of threads may
 * render at once. */
typedef struct mf_template mf_template;

/* The checkpoint's own, borrowed; MF_OK and NULL: it has none.  MF_ERR_TEMPLATE: it cannot be
 * parsed. */
MF_API mf_status mf_text_template(const mf_template **out, const mf_text *text, mf_error *why);

/* One of the caller's; `name` stands in messages and may be NULL. */
MF_API mf_status mf_template_open(mf_template **out, const char *source, size_t length,
                                  const char *name, mf_error *why);
MF_API void mf_template_close(mf_template *chat); /* not for the template of a text */

/* The template as it was written, borrowed, terminated. */
MF_API const char *mf_template_source(const mf_template *chat);

/* What went wrong with a rendering. */
typedef struct mf_template_problem {
    size_t struct_size;
    const char *kind; /* "raise_exception", "undefined_error", …; static text */
    uint32_t line, column;
    char message[1024]; /* without the position */
} mf_template_problem;
#define MF_TEMPLATE_PROBLEM_INIT MF_SIZED(mf_template_problem)

/* A rendered conversation. */
typedef struct mf_prompt mf_prompt;

/* Renders with `variables`, the text of a JSON object (messages, tools, add_generation_prompt,
 * bos_token, …).  A checkpoint's template gets the messages in its own words, as mf_chat_render gives
 * them; one of mf_template_open gets them as they are.  strftime_now gives the machine's local time.
 * The prompt has no tokens.
 * `problem` may be NULL; it is filled after MF_ERR_TEMPLATE. */
MF_API mf_status mf_template_render(mf_prompt **out, const mf_template *chat, const char *variables,
                                    mf_template_problem *problem, mf_error *why);

typedef struct mf_chat_options {
    size_t struct_size;
    const char *messages;      /* JSON array of {"role":…,"content":…,…}; required */
    const char *tools;         /* JSON array of what the model may call; NULL: none */
    const char *variables;     /* JSON object of further variables of the template, such as
                                  {"enable_thinking":false}; NULL: none */
    bool no_generation_prompt; /* do not open the assistant's turn at the end */
    bool find_places;          /* for mf_prompt_places; renders up to three times more */
    int64_t now;        /* seconds since 1970: the time that strftime_now formats, local; 0: of
                                  the machine's clock */
    bool continue_last; /* the last message is the assistant's, and its content a text that the
                                  answer continues: the prompt ends where that text ends, without
                                  white space.  MF_ERR_UNSUPPORTED: the template writes something
                                  else there */
} mf_chat_options;
#define MF_CHAT_OPTIONS_INIT MF_SIZED(mf_chat_options)

/* Renders a conversation with the checkpoint's template and tokenises it, with BOS where the model
 * wants one.  Added tokens are recognised in the template's own text only: what messages, tools and
 * variables bring is content, and "<|im_end|>" in it is plain text.  Reasoning of earlier answers is
 * `reasoning_content` of their messages, whatever the template calls it.
 * MF_ERR_TEMPLATE: the template failed; MF_ERR_FORMAT: not JSON; MF_ERR_UNSUPPORTED: the checkpoint
 * has no template or no tokenizer. */
MF_API mf_status mf_chat_render(mf_prompt **out, const mf_text *text,
                                const mf_chat_options *options, mf_error *why);

/* A text to continue as it is, without a template: every added token is recognised, and BOS stands
 * before it where the model wants one. */
MF_API mf_status mf_prompt_from_text(mf_prompt **out, const mf_text *text, const char *bytes,
                                     size_t length, mf_error *why);
MF_API void mf_prompt_close(mf_prompt *prompt);

/* Bytes of a text. */
typedef struct mf_range {
    size_t offset, length;
} mf_range;

/* All borrowed from the prompt.  The text is terminated.  `content` is what messages, tools and
 * variables brought, in ascending order; the rest is the template's own text. */
MF_API const char *mf_prompt_text(const mf_prompt *prompt, size_t *length);
MF_API const mf_range *mf_prompt_content(const mf_prompt *prompt, size_t *count);
MF_API const int32_t *mf_prompt_tokens(const mf_prompt *prompt, size_t *count);

/* Where a checkpoint of the prefix cache is of use, in ascending order: where the messages that all
 * conversations share end, where the last user message begins, and where the messages end.  None
 * without mf_chat_options.find_places. */
typedef struct mf_prompt_place {
    uint32_t position; /* tokens before it */
    mf_place place;
} mf_prompt_place;
MF_API const mf_prompt_place *mf_prompt_places(const mf_prompt *prompt, size_t *count);

/* Where the prompt leaves the model. */
typedef enum mf_reasoning {
    MF_REASONING_NONE, /* the prompt has closed it, or the model knows none */
    MF_REASONING_MAY,  /* the model opens it itself, or not */
    MF_REASONING_OPEN  /* the prompt ends inside of it */
} mf_reasoning;
MF_API mf_reasoning mf_prompt_reasoning(const mf_prompt *prompt);

/* ------------------------------------------------------------------ sampler */

/* From a row of logits to the next token:
 *
 *     biases ─ penalties ─ temperature ─ top-k ─ typical ─ top-p ─ min-p ─ draw
 *
 * The same options, logits and history give the same tokens on every machine.  A sampler has one
 * owner at a time. */
typedef struct mf_sampler mf_sampler;

typedef struct mf_logit_bias {
    int32_t token;
    float bias; /* added to the logit; -INFINITY: never this token */
} mf_logit_bias;

typedef struct mf_sampler_options {
    size_t struct_size;
    float temperature; /* 0: always the most likely token */
    uint32_t top_k;    /* the k best; 0: off */
    float top_p;       /* the fewest best that together reach this probability; 0 or 1: off */
    float min_p;       /* those at least this fraction of the best one's probability; 0: off */
    float typical_p;   /* the fewest nearest to the expected surprise that reach it; 0 or 1: off */
    uint64_t seed;     /* same seed, same text */

    /* Penalties look at the last penalty_window accepted tokens; 0: 1024. */
    uint32_t penalty_window;
    float repetition_penalty; /* prompt and answer: positive logits divided, others multiplied;
                                 0 or 1: off */
    float frequency_penalty;  /* answer: subtracted for each occurrence; 0: off */
    float presence_penalty;   /* answer: subtracted once if the token occurred; 0: off */

    /* DRY: a token that would lengthen a repetition of the last n >= dry_allowed_length tokens
     * loses dry_multiplier * dry_base^(n - dry_allowed_length). */
    float dry_multiplier;        /* 0: off */
    float dry_base;              /* 0: 1.75 */
    uint32_t dry_allowed_length; /* 0: 2 */
    const int32_t *dry_breakers; /* a repetition never reaches across these tokens */
    size_t dry_breaker_count;

    const mf_logit_bias *biases;
    size_t bias_count;
} mf_sampler_options;
#define MF_SAMPLER_OPTIONS_INIT MF_SIZED(mf_sampler_options)

/* How the checkpoint wants tokens to be drawn (generation_config.json, GGUF metadata); where it
 * does not say: temperature 0.7, top-k 40, top-p 0.9. */
MF_API mf_status mf_text_sampling(const mf_text *text, mf_sampler_options *out, mf_error *why);

/* `options` NULL: greedy.  Arrays are copied. */
MF_API mf_status mf_sampler_open(mf_sampler **out, const mf_model *model,
                                 const mf_sampler_options *options, mf_error *why);
MF_API void mf_sampler_close(mf_sampler *sampler);

/* The next token for a row of vocab_size logits; -1: they allow none, or are NULL.  The history is
 * not changed. */
MF_API int32_t mf_sampler_pick(mf_sampler *sampler, const float *logits);

/* The history that penalties look at: the prompt (repetition and DRY only), and each token that was
 * taken. */
MF_API void mf_sampler_accept_prompt(mf_sampler *sampler, const int32_t *tokens, size_t count);
MF_API void mf_sampler_accept(mf_sampler *sampler, int32_t token);
MF_API void mf_sampler_reset(mf_sampler *sampler); /* as just opened: no history, at its seed */

typedef struct mf_logprob {
    int32_t token;
    float logprob; /* natural logarithm; -INFINITY: the token cannot occur */
} mf_logprob;

/* The model's own distribution, before biases, penalties and filters: the `count` most probable
 * tokens into out[count], best first.  Returns how many were written. */
MF_API size_t mf_sampler_logprobs(mf_sampler *sampler, mf_logprob *out, size_t count,
                                  const float *logits);
MF_API float mf_sampler_logprob_of(mf_sampler *sampler, const float *logits, int32_t token);

/* --------------------------------------------------------------- constraint */

/* The form of an answer: a grammar, a JSON schema, or tool calls with arguments that the tools'
 * schemas accept.  One owner at a time; the model must outlive it. */
typedef struct mf_constraint mf_constraint;

typedef struct mf_constraint_options {
    size_t struct_size;
    const char *grammar;     /* the content is a text of this grammar (GBNF) … */
    const char *json_schema; /* … or JSON that this schema accepts; at most one of the two */
    const char *tools;       /* JSON array of the tools that may be called */
    const char *tool_choice; /* NULL or "auto", "required", "none", or a tool's name */
    bool one_call;           /* at most one call */
    const char *family;      /* syntax of reasoning and calls; NULL: mf_text_family */
    mf_reasoning reasoning;  /* of the prompt; reasoning itself is free text */
    /* One sentence for each part of the schema that is not kept exactly; NULL: not wanted. */
    void (*note)(void *user, const char *sentence);
    void *note_user;
} mf_constraint_options;
#define MF_CONSTRAINT_OPTIONS_INIT MF_SIZED(mf_constraint_options)

/* MF_ERR_GRAMMAR: the grammar or a schema is malformed or cannot be kept; the text says where.
 * Options without grammar, schema and tools are MF_ERR_ARGUMENT. */
MF_API mf_status mf_constraint_open(mf_constraint **out, const mf_model *model,
                                    const mf_constraint_options *options, mf_error *why);
MF_API void mf_constraint_close(mf_constraint *constraint);

/* The next token that the constraint allows, of a row of logits.  `remaining` (at least 1) is how
 * many tokens may still come, this one included; SIZE_MAX: no limit.  An answer always closes
 * within the limit if mf_constraint_closing_tokens is at most that at its beginning.
 * -1: the answer is finished, or no token continues it.  Nothing is accepted. */
MF_API int32_t mf_constraint_pick(mf_constraint *constraint, mf_sampler *sampler,
                                  const float *logits, size_t remaining);

/* Takes a token; false: it is not allowed here, and nothing changes. */
MF_API bool mf_constraint_accept(mf_constraint *constraint, int32_t token);

/* The answer so far is complete; and: nothing can follow it. */
MF_API bool mf_constraint_is_complete(const mf_constraint *constraint);
MF_API bool mf_constraint_is_finished(const mf_constraint *constraint);

/* An upper bound on the tokens that the shortest way to the end takes. */
MF_API size_t mf_constraint_closing_tokens(mf_constraint *constraint);
MF_API void mf_constraint_reset(mf_constraint *constraint); /* before the first token again */

/* -------------------------------------------------------------- detokenizer */

/* Tokens in, whole UTF-8 characters out: a character that a token leaves open waits for the next
 * one.  The output is always valid UTF-8: bytes that belong to no character become U+FFFD, also
 * what is still open at the end.  One owner at a time; the text must outlive it. */
typedef struct mf_detokenizer mf_detokenizer;

typedef struct mf_detokenizer_options {
    size_t struct_size;
    bool show_special;  /* special tokens give their text; else they give nothing … */
    const char *family; /* … but for markup that the output parser of this family reads; NULL: no
                           family */
} mf_detokenizer_options;
#define MF_DETOKENIZER_OPTIONS_INIT MF_SIZED(mf_detokenizer_options)

MF_API mf_status mf_detokenizer_open(mf_detokenizer **out, const mf_text *text,
                                     const mf_detokenizer_options *options, mf_error *why);
MF_API void mf_detokenizer_close(mf_detokenizer *detokenizer);

/* What the token makes ready: *length bytes, may be 0; borrowed until the next call.  flush, at the
 * end: U+FFFD if a character is still open, else nothing; then it is ready for another text. */
MF_API const char *mf_detokenizer_push(mf_detokenizer *detokenizer, int32_t token, size_t *length);
MF_API const char *mf_detokenizer_flush(mf_detokenizer *detokenizer, size_t *length);

/* ------------------------------------------------------------- stop strings */

/* Ends an answer at a given text, wherever the tokens cut it: text passes through, except for a
 * tail that may be the beginning of a stop string.  One owner at a time. */
typedef struct mf_stops mf_stops;
typedef void (*mf_text_function)(void *user, const char *text, size_t length);

/* `count` terminated strings, copied; at most 64, none of them empty or above 4096 bytes. */
MF_API mf_status mf_stops_open(mf_stops **out, const char *const *strings, size_t count,
                               mf_error *why);
MF_API void mf_stops_close(mf_stops *stops);

/* Hands on what cannot belong to a stop string, in up to two calls of `emit`.  True: one is
 * complete; the text before it was handed on, and further text is dropped. */
MF_API bool mf_stops_feed(mf_stops *stops, const char *text, size_t length, mf_text_function emit,
                          void *user);

/* The text has ended: hands on what was held back.  Ready for another text. */
MF_API void mf_stops_finish(mf_stops *stops, mf_text_function emit, void *user);

MF_API const char *mf_stops_found(const mf_stops *stops); /* NULL: none was found */

/* ------------------------------------------------------------ output parser */

/* What a model writes, taken apart: text in pieces of any size goes in, typed events come out.
 * Markup never shows up in reasoning or content, except a call that turned out not to be one: then
 * all of its text does.  One owner at a time. */
typedef struct mf_parser mf_parser;

typedef enum mf_event_kind {
    MF_EVENT_REASONING,      /* text */
    MF_EVENT_CONTENT,        /* text */
    MF_EVENT_CALL_BEGIN,     /* text is the function's name */
    MF_EVENT_CALL_ARGUMENTS, /* text is a piece of the arguments, a JSON object in all */
    MF_EVENT_CALL_END,       /* the call is complete */
    MF_EVENT_CALL_DROPPED    /* the call that began is none; its text comes as text */
} mf_event_kind;

typedef struct mf_event {
    mf_event_kind kind;
    const char *text; /* not terminated */
    size_t length;
    const char *id; /* CALL_BEGIN: the id that the model itself gave, or NULL */
    size_t id_length;
    size_t call; /* CALL_…: its number, from 0 */
} mf_event;

/* Everything is borrowed for the call.  False ends the feeding with MF_ERR_CANCELLED. */
typedef bool (*mf_event_function)(void *user, const mf_event *event);

typedef struct mf_parser_options {
    size_t struct_size;
    const char *family;     /* NULL: "think", which knows reasoning and no calls */
    const char *tools;      /* JSON array, for the types of parameters; NULL: none */
    mf_reasoning reasoning; /* of the prompt */
    bool stream_calls; /* CALL_BEGIN and CALL_ARGUMENTS come while the call is being written, and
                              may be followed by CALL_DROPPED; else when it is complete */
    mf_event_function each; /* NULL: events are only collected, see mf_parser_message */
    void *user;
} mf_parser_options;
#define MF_PARSER_OPTIONS_INIT MF_SIZED(mf_parser_options)

MF_API mf_status mf_parser_open(mf_parser **out, const mf_parser_options *options, mf_error *why);
MF_API void mf_parser_close(mf_parser *parser);

/* Takes the next piece.  After an error the parser can only be closed. */
MF_API mf_status mf_parser_feed(mf_parser *parser, const char *text, size_t length, mf_error *why);

/* The output is over: what waited is released.  Call it once, last. */
MF_API mf_status mf_parser_finish(mf_parser *parser, mf_error *why);

/* The same where a limit has ended the output: a call that has begun is left out instead of becoming
 * text; one that was told of has no CALL_END. */
MF_API mf_status mf_parser_cut(mf_parser *parser, mf_error *why);

/* The events put together, as JSON on one line, borrowed until the next call:
 *     {"reasoning":…,"content":…,"tool_calls":[{"name":…,"arguments":{…},"id":…}]}
 * of the calls that are complete; arguments are as the model wrote them. */
MF_API mf_status mf_parser_message(const char **out, mf_parser *parser, mf_error *why);

/* -------------------------------------------------------------- statistics */

/* Room for stages that later versions add. */
enum { MF_STAGE_CAPACITY = 32 };

/* Of one sequence, since it was opened or reset. */
typedef struct mf_sequence_statistics {
    size_t struct_size;
    uint64_t prompt_tokens; /* fed as MF_PHASE_PROMPT */
    uint64_t decode_tokens; /* fed as MF_PHASE_GENERATED */
    double prompt_seconds;
    double decode_seconds;
    double attention_seconds;   /* the half of a layer before routing */
    double expert_seconds;      /* routed experts, and the half of a layer after routing */
    double expert_wait_seconds; /* for experts, while nothing could be computed */
    double head_seconds;        /* final norm and output matrix */
    /* by mf_stage, in prompts and in decode; all 0 unless the engine's `profile` is on */
    double prompt_stage_seconds[MF_STAGE_CAPACITY];
    double decode_stage_seconds[MF_STAGE_CAPACITY];
} mf_sequence_statistics;
#define MF_SEQUENCE_STATISTICS_INIT MF_SIZED(mf_sequence_statistics)

/* Of a model's experts and of the disk, since it was opened or reset: all sequences together. */
typedef struct mf_model_statistics {
    size_t struct_size;
    const char *expert_mode;   /* "resident": a slot for every expert; "streamed": fewer;
                                   "mapped": none, they are used as the page cache has them */
    const char *expert_reader; /* "io_uring", "threads" */
    bool expert_direct;        /* reads pass by the page cache */
    uint64_t experts_present;  /* of experts_total, in memory now */
    uint64_t experts_total;
    uint64_t expert_slots;      /* experts that fit in memory */
    uint64_t expert_slot_bytes; /* of all of them */
    /* What the model holds besides: */
    uint64_t weight_bytes;   /* used by every token */
    uint64_t room_bytes;     /* buffers of a step, shared by all sequences */
    uint64_t sequence_bytes; /* state of all open sequences */
    uint64_t policy_bytes;   /* tables of the expert cache; 0: nothing can be evicted */
    uint64_t expert_hits;    /* expert was in memory */
    uint64_t expert_misses;
    uint64_t expert_bytes_read; /* all of them, also those that were read ahead in vain */
    uint64_t expert_waits;      /* times that nothing could be computed, … */
    double expert_wait_seconds; /* … and how long */
    uint64_t expert_evictions;
    uint64_t expert_ahead_reads;  /* experts read before they were asked for, … */
    uint64_t expert_ahead_hits;   /* … in time (counted among the hits), … */
    uint64_t expert_ahead_late;   /* … still under way then (counted among the misses), … */
    uint64_t expert_ahead_wasted; /* … or given up without having been used */
    uint64_t expert_ahead_bytes, expert_wasted_bytes;
    bool expert_ahead;           /* experts are read ahead now */
    uint64_t expert_predictions; /* of experts that were not in memory, … */
    uint64_t expert_predictions_right;
    double expert_predict_seconds; /* … and what they took */
    uint64_t disk_reads;           /* operations … */
    uint64_t disk_retries;         /* … that had to be tried twice */
    uint64_t disk_bytes;
    double disk_seconds; /* in which at least one read was under way */
    uint32_t disk_depth; /* reads that are under way at a time, at most */
    bool disk_staged;    /* they pass through buffers, because that is faster here */
    /* The pool that sequences share: how much they may hold together, and what they hold. */
    uint64_t pool_bytes;
    uint32_t pool_pages;  /* of 64 positions */
    uint32_t pool_states; /* of recurrent layers, with those of checkpoints; tables of windows */
    /* The prefix cache: what it holds of the pool and of tables, … */
    uint64_t cache_bytes;
    uint32_t cache_pages, cache_checkpoints;
    /* … and what requests have found: of `asked` tokens `matched` were known and `resumed` taken
     * over; the others of `matched` were replayed. */
    uint64_t cache_requests;
    uint64_t cache_asked_tokens, cache_matched_tokens, cache_resumed_tokens;
    uint64_t cache_pages_evicted, cache_checkpoints_evicted;
    /* Its directory: bytes and files there now, bytes read and written so far, and files that were
     * damaged and removed. */
    uint64_t cache_disk_bytes, cache_disk_files;
    uint64_t cache_disk_read_bytes, cache_disk_written_bytes, cache_disk_damaged;
} mf_model_statistics;
#define MF_MODEL_STATISTICS_INIT MF_SIZED(mf_model_statistics)

MF_API mf_status mf_sequence_stats(const mf_sequence *sequence, mf_sequence_statistics *out,
                                   mf_error *why);
MF_API void mf_sequence_reset_stats(mf_sequence *sequence);
/* From any thread; waits for no step.  While one runs, the figures of experts and disk are those of
 * the last layer that began, or of one up to a millisecond before. */
MF_API mf_status mf_model_stats(const mf_model *model, mf_model_statistics *out, mf_error *why);
MF_API void mf_model_reset_stats(mf_model *model);

/* --------------------------------------------------------- watching experts */

/* The map of a model's experts has a row for each layer that has any. */
typedef struct mf_experts {
    size_t struct_size;
    uint32_t layer_count;  /* of the model */
    uint32_t row_count;    /* layers that have experts … */
    uint32_t expert_count; /* … of each of those layers */
    uint32_t experts_per_token;
    const uint32_t *rows;  /* [row_count] the numbers of those layers; borrowed from the model */
    uint64_t expert_bytes; /* of an expert in the files, on average */
    size_t map_bytes;      /* for mf_model_experts_present */
} mf_experts;
#define MF_EXPERTS_INIT MF_SIZED(mf_experts)

MF_API mf_status mf_model_experts(const mf_model *model, mf_experts *out, mf_error *why);

/* A bit for each expert that is in memory, row by row, bit 0 of byte 0 first.  From any thread;
 * waits for nothing. */
MF_API mf_status mf_model_experts_present(const mf_model *model, uint8_t *out, size_t capacity,
                                          mf_error *why);

/* What becomes of an expert. */
typedef enum mf_expert_kind {
    MF_EXPERT_HIT,     /* a step asks for it: it was in memory, … */
    MF_EXPERT_AHEAD,   /* … because it had been read ahead, the first time that it is used, … */
    MF_EXPERT_LATE,    /* … its read-ahead was under way, … */
    MF_EXPERT_DEMAND,  /* … it had to be read */
    MF_EXPERT_EVICTED, /* it makes room for another one */
    MF_EXPERT_WASTED   /* it was read ahead, and is given up without having been used */
} mf_expert_kind;

enum { MF_EXPERT_KIND_CAPACITY = 8 }; /* room for kinds that later versions add */

typedef struct mf_expert_event {
    uint16_t layer, expert;
    uint16_t kind; /* mf_expert_kind */
} mf_expert_event;

/* What has happened since the last batch; borrowed for the call.  The totals, by kind, are those of
 * mf_model_statistics at that moment: a batch's events are what they have grown by. */
typedef struct mf_expert_batch {
    const mf_expert_event *events;
    size_t count;
    uint64_t totals[MF_EXPERT_KIND_CAPACITY];
    uint64_t bytes_read, bytes_ahead, bytes_wasted; /* totals, too */
    uint64_t present;                               /* experts in memory */
    double seconds; /* of the step that has ended; 0: none has, it goes on */
    uint32_t prompt_rows, decode_rows;
    const double *stage_seconds; /* [MF_STAGE_COUNT] of that step; NULL: none has ended */
} mf_expert_batch;

/* Called in the thread that computes, when a step ends, and within long ones; it may use nothing
 * of the engine. */
typedef void (*mf_experts_function)(void *user, const mf_expert_batch *batch);

/* From the next layer on, `each` is told of all experts that steps use, first with a batch that has
 * no events.  One watcher for each model: another one replaces it, and NULL ends the watching, without
 * which nothing is recorded.  From any thread; waits for no step, but for a call that is under way. */
MF_API mf_status mf_model_watch_experts(mf_model *model, mf_experts_function each, void *user,
                                        mf_error *why);

/* ---------------------------------------------------------------- requests */

/* Answers to many prompts at a time.  A scheduler has a thread that reads prompts and generates
 * tokens in steps that all requests share:
 *
 *     submit ─▶ waiting ─▶ reading (prompt) ─▶ answering ─▶ ended
 *                               ◀─ parked ─▶                  one call of `ended`, the last
 *
 * A request's tokens and text are the same alone or beside others.  While the scheduler is open,
 * sequences of the model may be used beside it; their calls wait for steps of the scheduler. */
typedef struct mf_scheduler mf_scheduler;

/* A step: rows of requests through all layers. */
typedef struct mf_step_report {
    uint32_t prompt_rows, decode_rows;
    uint64_t experts;            /* different ones that each layer used, of all layers together */
    double seconds;              /* without steps in its pauses */
    double expert_wait_seconds;  /* of them, while nothing could be computed */
    const double *stage_seconds; /* [MF_STAGE_COUNT]; all 0 unless the engine's `profile` is on */
} mf_step_report;

typedef struct mf_scheduler_options {
    size_t struct_size;
    uint32_t parallel; /* requests that are read or answered at a time, at most 64; 0: as many as
                          mf_model_options.sequences */
    uint32_t waiting;  /* requests that may wait for that, a further one is refused with
                          MF_ERR_BUSY; 0: any number */
    double max_gap_seconds;     /* between two tokens of an answer, while prompts are read beside
                                   it; 0: 0.15, or two steps without prompts where those are longer */
    const char *park_directory; /* for the state of requests that must make room for others; NULL:
                                   it stays in memory */
    /* Told of each step, in the scheduler's thread; it may use nothing of the engine.  May be NULL. */
    void (*step)(void *user, const mf_step_report *report);
    void *step_user;
} mf_scheduler_options;
#define MF_SCHEDULER_OPTIONS_INIT MF_SIZED(mf_scheduler_options)

MF_API mf_status mf_scheduler_open(mf_scheduler **out, mf_model *model,
                                   const mf_scheduler_options *options, mf_error *why);

/* Cancels what is not ended, and waits for that.  Requests are closed before or afterwards. */
MF_API void mf_scheduler_close(mf_scheduler *scheduler);

/* Room for ways to end that later versions add. */
enum { MF_FINISH_CAPACITY = 8 };

typedef struct mf_scheduler_statistics {
    size_t struct_size;
    /* Now.  These and all of `ended` are the requests that were submitted. */
    uint32_t running, waiting_interactive, waiting_background;
    uint32_t parked; /* wait for the memory that others have got */
    uint64_t submitted;
    uint64_t ended[MF_FINISH_CAPACITY]; /* by mf_finish */
    /* Not submitted: too many waited, the prompt was too long, anything else. */
    uint64_t refused_busy, refused_large, refused_wrong;
    uint64_t parked_times;
    uint64_t steps, decode_rows, prompt_rows;
    double step_seconds; /* a step's pauses are not in it, but the steps in them are */
    uint32_t last_decode_rows, last_prompt_rows; /* of the last step */
    double last_step_seconds;
} mf_scheduler_statistics;
#define MF_SCHEDULER_STATISTICS_INIT MF_SIZED(mf_scheduler_statistics)

/* Since it was opened; from any thread, waits for no step. */
MF_API mf_status mf_scheduler_stats(const mf_scheduler *scheduler, mf_scheduler_statistics *out,
                                    mf_error *why);

typedef struct mf_request mf_request;

/* Background requests get what interactive ones leave, and a small share in any case. */
typedef enum mf_priority { MF_PRIORITY_INTERACTIVE, MF_PRIORITY_BACKGROUND } mf_priority;

typedef enum mf_finish {
    MF_FINISH_NONE,      /* it has not ended */
    MF_FINISH_END,       /* the model ended its answer, or its form is complete */
    MF_FINISH_STOP,      /* a stop string */
    MF_FINISH_LENGTH,    /* max_tokens, or the context is full */
    MF_FINISH_CANCELLED, /* by mf_request_cancel, or by a callback */
    MF_FINISH_FAILED     /* the result's `error` says why */
} mf_finish;

typedef struct mf_request_token {
    int32_t token;
    float logprob;              /* as mf_sampler_logprob_of; 0 where logprobs are not asked for */
    const mf_logprob *logprobs; /* [logprob_count], best first */
    size_t logprob_count;
} mf_request_token;

/* How a request went. */
typedef struct mf_request_result {
    size_t struct_size;
    mf_finish finish;
    mf_error error;         /* status MF_OK unless it failed or was cancelled */
    const char *stop;       /* the stop string that was found, or NULL; borrowed from the request */
    uint32_t prompt_tokens; /* of the prompt, … */
    uint32_t answer_tokens;
    double wait_seconds;   /* from submit until its first step */
    double prompt_seconds; /* from then until the first token */
    double answer_seconds; /* from then until the end */
    uint32_t parked;       /* times that it made room for others */
    mf_resumed cached;     /* what it found in the prefix cache */
} mf_request_result;
#define MF_REQUEST_RESULT_INIT MF_SIZED(mf_request_result)

/* Everything is copied, but for `user`. */
typedef struct mf_request_options {
    size_t struct_size;
    const mf_prompt *prompt; /* of mf_chat_render or mf_prompt_from_text … */
    const int32_t *tokens;   /* … or ids */
    size_t token_count;
    uint32_t max_tokens;                     /* of the answer; 0: as the context allows */
    bool ignore_end;                         /* go on after tokens that end an answer */
    const mf_sampler_options *sampling;      /* NULL: greedy */
    const mf_constraint_options *constraint; /* NULL: any answer */
    const char *const *stops;
    size_t stop_count;
    const char *family;          /* of the output parser; NULL: the whole answer is content */
    const char *tools;           /* JSON array, for the parser */
    bool stream_calls;           /* see mf_parser_options */
    uint32_t logprobs;           /* most probable tokens that `token` is told of, at most 20 … */
    bool token_logprobs;         /* … and the probability of the one that was taken */
    const uint32_t *breakpoints; /* positions of the prompt at which the prefix cache keeps its
                                    state, besides those of mf_prompt_places */
    size_t breakpoint_count;     /* at most 4 */
    mf_priority priority;
    uint64_t client; /* requests with the same number share one part of the time */
    /* Called in the scheduler's thread, in this order and never two at a time; each may be NULL.
     * They may submit and cancel requests, and call nothing else of the engine. */
    mf_progress_function progress; /* `done` of `total` tokens of the prompt, at first those that
                                      come from the cache, as the first step begins */
    bool (*token)(void *user, const mf_request_token *token); /* false: cancels */
    mf_event_function event; /* the answer's parts; false: cancels */
    void (*ended)(void *user, const mf_request_result *result);
    void *user;
    mf_routes_function routes; /* of this request's rows, in the scheduler's thread, too */
    /* Of each token of the prompt but the first, which nothing predicts: how probable it was, told as
     * `token` is of the answer's.  Nothing of the prompt comes from the prefix cache then.  After a
     * step that failed for lack of memory a token may be told again. */
    void (*prompt_token)(void *user, size_t position, const mf_request_token *token);
} mf_request_options;
#define MF_REQUEST_OPTIONS_INIT MF_SIZED(mf_request_options)

/* What cannot be answered is refused here, with a sentence: a prompt that is empty or longer than
 * the context or that the memory for sequences does not hold, options that are wrong.
 * MF_ERR_BUSY: too many requests wait. */
MF_API mf_status mf_request_submit(mf_request **out, mf_scheduler *scheduler,
                                   const mf_request_options *options, mf_error *why);

/* Ends the request, from any thread: within one layer if it computes, after the present step if it
 * waits.  Its memory is free when it has ended. */
MF_API void mf_request_cancel(mf_request *request);

/* Waits until the request has ended, and returns its own status: MF_OK, MF_ERR_CANCELLED, or why it
 * failed.  Not in a callback.  `out` may be NULL. */
MF_API mf_status mf_request_wait(mf_request *request, mf_request_result *out, mf_error *why);

/* The answer, as mf_parser_message gives it, when the request has ended; borrowed from it. */
MF_API mf_status mf_request_message(const char **out, mf_request *request, mf_error *why);

/* Cancels, waits and releases; not in a callback. */
MF_API void mf_request_close(mf_request *request);

#ifdef __cplusplus
}
#endif
#endif
