/* moeflux.h: run mixture-of-experts language models that are bigger than memory.
 *
 *     mf_engine      threads, kernels, allocator, files: one per process is usual
 *       └ mf_model   weights, tokenizer, configuration of one checkpoint
 *           └ mf_session   one sequence: its position, KV and recurrent state
 *
 * Lifetimes: close in the reverse order of opening.  Every pointer that a call
 * returns is borrowed from the object it was asked of, unless the function's
 * name ends in _new or _dup.
 * Threads:   an engine and its models may be shared; a session has one owner at
 *            a time.  Calls on sessions of one engine are serialised by it.
 * Errors:    MF_OK or a negative status; `why` (may be NULL) receives one
 *            sentence.  The library never prints, exits or reads the environment.
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
#else
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
    X(MF_ERR_CANCELLED, -12, "cancelled")

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
const char *mf_status_name(mf_status status);
const char *mf_status_text(mf_status status);

/* ------------------------------------------------- what the caller provides */

/* Memory.  `alignment` is a power of two; NULL means there is none left. */
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
} mf_files;

typedef enum mf_log_level { MF_LOG_DEBUG, MF_LOG_INFO, MF_LOG_WARNING } mf_log_level;
typedef void (*mf_log_function)(void *user, mf_log_level level, const char *text);

#ifdef __cplusplus
}
#endif
#endif
