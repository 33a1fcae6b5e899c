/* route_trace.h: a file with the experts that each token was routed to.
 *
 * The simulation replays it to compare cache policies without the model (simulation.h).  All
 * numbers are little-endian:
 *
 *     at        bytes
 *     0         8          "mfroutes"
 *     8         4          version, 1
 *     12        4          where the steps begin: 112 + 16 x layers
 *     16        4          layers
 *     20        4          experts of a layer
 *     24        4          experts per token and layer, k
 *     28        4          bytes of an expert's id: 1 for up to 256 experts, else 2
 *     32        8          bytes of the weights that are always in memory
 *     40        8          bytes of engine room, sequence and policy tables
 *     48        64         the model's name, UTF-8, filled up with NUL
 *     112       8, 8       for every layer: bytes of an expert, bytes of a slot for it;
 *                          0, 0: the layer has no experts
 *
 *     of every step, one after another
 *               4          rows, that is tokens, at least 1
 *               4 x rows   their ids
 *                          and for every layer that has experts, in order
 *               rows x k x (1 or 2)   ids of the experts, ascending
 *               rows x k x 2          their weights, bf16
 *
 *     at the end
 *               4          0
 *               4          0
 *               8          rows of all steps
 *               8          nanoseconds of a token alone that waits for no read; 0: unknown
 *               8          XXH3 of everything before it
 *
 * A step is what the engine computed at once: a chunk of a prompt, or one token.  With k = 8 and
 * up to 256 experts a token takes 24 bytes per layer.  A trace holds the token ids, so the text
 * can be recovered from it with the model's tokenizer.
 *
 * A trace without its end is refused.  The program writes to a temporary name and renames the file
 * after the end, so an interrupted recording leaves no file.
 *
 * Threads: any number may read a trace; a writer has one owner. */
#ifndef EXPERTS_ROUTE_TRACE_H
#define EXPERTS_ROUTE_TRACE_H

#include "base/arena.h"
#include "base/checksum.h"

enum { ROUTE_NAME_BYTES = 64 };

struct route_shape {
    uint32_t layers, experts; /* experts per layer */
    uint32_t per_token;
    uint64_t resident_bytes, working_bytes;
    char name[ROUTE_NAME_BYTES];  /* NUL-terminated; longer names are cut */
    const uint64_t *expert_bytes; /* [layers]; 0: no experts */
    const uint64_t *slot_bytes;   /* [layers] */
};

/* ----------------------------------------------------------------- reading */

struct route_step {
    uint32_t rows;
    size_t first_row; /* number of rows in all steps before */
    size_t at;        /* offset of its first token id in the file */
};

struct route_trace {
    struct route_shape shape;
    const uint8_t *bytes; /* the caller's */
    struct arena arena;
    uint32_t *order; /* [layers] index among the layers with experts; NO_ORDER: has none */
    uint32_t id_bytes;
    struct route_step *steps;
    size_t step_count, row_count;
    double step_seconds; /* of a token alone that waits for no read; 0: unknown */
};

#define NO_ORDER UINT32_MAX

/* Checks the whole file: in an accepted trace expert ids are in range and occur once per row and
 * layer, and weights are finite.  `bytes` is borrowed until free.  After a failure there is nothing
 * to free. */
mf_status route_trace_open(struct route_trace *out, const mf_allocator *allocator,
                           const void *bytes, size_t count, mf_error *why);
void route_trace_free(struct route_trace *trace);

/* Choice k, from 0, of a row in a layer that has experts: the expert's id and its weight. */
uint32_t route_trace_expert(const struct route_trace *trace, const struct route_step *step,
                            uint32_t layer, uint32_t row, uint32_t k);
float route_trace_weight(const struct route_trace *trace, const struct route_step *step,
                         uint32_t layer, uint32_t row, uint32_t k);

/* ----------------------------------------------------------------- writing */

/* Receives the file's bytes in order; returns false if it cannot store them. */
typedef bool (*route_sink)(void *user, const void *bytes, size_t count);

struct route_writer {
    const mf_allocator *allocator;
    struct route_shape shape; /* its arrays are borrowed */
    route_sink sink;
    void *user;
    struct checksum checksum;
    uint32_t id_bytes;
    uint8_t *step; /* the step being written, in the format of the file */
    size_t step_capacity, step_used;
    uint32_t next_layer, rows;
    uint64_t row_count;
    mf_status status; /* the first error; nothing is written after it */
};

/* Writes the head.  Call route_writer_free afterwards, also after a failure. */
mf_status route_writer_open(struct route_writer *out, const mf_allocator *allocator,
                            const struct route_shape *shape, route_sink sink, void *user,
                            mf_error *why);
void route_writer_free(struct route_writer *writer);

/* The choices of one step in one layer. */
struct route_choice {
    uint32_t layer, rows;
    const int32_t *tokens;   /* [rows] */
    const uint32_t *experts; /* [rows][per_token] */
    const float *weights;    /* [rows][per_token] */
};

/* Adds a layer of a step; call in the order of layers.  A step is written after its last layer; a
 * step that ends before it is discarded.  Errors are kept for route_writer_end. */
void route_writer_add(struct route_writer *writer, const struct route_choice *choice);

/* Writes the end of the file; returns the first error of the writer. */
mf_status route_writer_end(struct route_writer *writer, double step_seconds, mf_error *why);

#endif
