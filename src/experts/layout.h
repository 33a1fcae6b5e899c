/* layout.h: the layout of an expert in its slot, and the reads that fill it.
 *
 *     file   …│gate│…………│up│down│…        three arrays, two of them side by side
 *             ▼    ▼    ▼        ▼
 *     slot   [·gate·····|·up│down·······]  two reads, each extended to the
 *                                          alignment of direct reads
 *
 * Arrays that are close in one file share a read, because an operation costs as much time as
 * about 50 KB.  The position of an array in the slot follows from its offset in the file, so it has
 * no alignment: kernels load from any address. */
#ifndef EXPERTS_LAYOUT_H
#define EXPERTS_LAYOUT_H

#include "backend/backend.h"
#include "io/file_map.h"
#include "model/weights.h"

/* Of each matrix: values, scales, biases, addends. */
enum { EXPERT_ARRAYS = EXPERT_MATRIX_ARRAYS * EXPERT_PARTS };

/* Direct reads begin at multiples of this in a slot, which is a multiple of their own alignment. */
enum { SLOT_ALIGNMENT = 4096 };

struct expert_piece {
    uint32_t file;
    uint64_t offset;      /* in the file */
    size_t count, needed; /* aligned; up to the last byte of the last array */
    size_t at;            /* in the slot */
};

struct expert_layout {
    struct expert_piece pieces[EXPERT_ARRAYS];
    size_t piece_count;
    size_t arrays[EXPERT_ARRAYS]; /* where each begins in the slot */
    size_t bytes;                 /* of the slot */
    uint64_t array_bytes;         /* of the expert itself */
};

/* A pure function of its arguments.  alignments: [files] of the reads; NULL: they need none. */
void expert_layout_make(struct expert_layout *out, const struct layer_weights *layer,
                        uint32_t expert, const size_t *alignments);

/* The expert in a slot of that layout. */
struct expert_view expert_layout_view(const struct expert_layout *layout,
                                      const struct layer_weights *layer, const uint8_t *slot);

/* The checksum of the packed layout: over the expert's arrays in order. */
uint64_t expert_layout_checksum(const struct layer_weights *layer, const struct expert_view *view);

/* The expert in its mapped files. */
struct expert_view expert_layout_view_mapped(const struct layer_weights *layer, uint32_t expert,
                                             const struct file_map *maps);

#endif
