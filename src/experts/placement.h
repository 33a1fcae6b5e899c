/* placement.h: where experts are kept and how they are read, computed from sizes: for an expert
 * store that is opened, and for a memory plan that opens none.
 *
 *     layers' arrays ─ alignment of the reads ─▶ bytes of a slot ─ budget ─▶ slot plan ─▶ mode
 *
 * A store is opened with a budget, and limited to a smaller one for its tables:
 *
 *     expert_placement_make      the mode, the slots that memory is taken for
 *     expert_placement_limit     the slots in use; classes and memory stay
 *     expert_placement_stream    resident experts become streamed ones, in the same memory
 *
 * Nothing but alignments is asked of the files.  Threads: one owner. */
#ifndef EXPERTS_PLACEMENT_H
#define EXPERTS_PLACEMENT_H

#include "base/arena.h"
#include "base/file.h"
#include "checkpoint/tensor_directory.h"
#include "experts/mode.h"
#include "experts/slot_plan.h"
#include "model/weights.h"

/* How the experts are read. */
enum expert_reading {
    READING_KEPT,    /* resident: once, through the page cache, which may hold them already */
    READING_MAPPED,  /* mapped: threads fault the pages in */
    READING_DIRECT,  /* streamed: with O_DIRECT, past the page cache */
    READING_UNCACHED /* streamed, but too small for direct reads: through the page cache, whose
                        pages are dropped after the read */
};

enum expert_mode_choice { MODE_BY_SIZE, MODE_RESIDENT, MODE_MAPPED };

struct expert_needs {
    const struct tensor_directory *directory;
    const struct layer_weights *layers;
    const struct model_config *config;
    uint64_t budget_bytes;        /* for slots and buffers of reads */
    bool hard_limit;              /* the budget includes the page cache that reads fill */
    enum expert_mode_choice mode; /* refused if the budget is too small for it */
};

struct expert_placement {
    struct expert_needs needs;
    enum expert_mode mode;
    enum expert_reading reading;
    size_t *direct_alignments; /* [files] of direct reads; 1: the file cannot be read so */
    const size_t *alignments;  /* [files] of the reads; NULL: reads need none */
    uint64_t *layer_bytes;     /* [layers] of a slot */
    struct slot_plan plan;
    uint64_t memory_bytes; /* of the first plan; later ones take no more */
    size_t stage_count;    /* staging buffers of the reader (io/read_stage.h), … */
    uint64_t stage_bytes;  /* … of this size each */
};

/* A budget below what one token needs in one layer, and two experts more, is refused.  Arrays come
 * from `arena`. */
mf_status expert_placement_make(struct expert_placement *out, const struct expert_needs *needs,
                                struct arena *arena, mf_error *why);

/* Fewer slots, or more again, up to the memory.  Too small a budget is refused and changes
 * nothing.  A mapped placement has no slots to limit. */
mf_status expert_placement_limit(struct expert_placement *placement, uint64_t budget_bytes,
                                 mf_error *why);

/* After a limit: a resident placement has become too small for all experts, and the page cache
 * counts: experts are to be streamed, in the memory that there is. */
bool expert_placement_must_stream(const struct expert_placement *placement);
mf_status expert_placement_stream(struct expert_placement *placement, uint64_t budget_bytes,
                                  mf_error *why);

/* The same plan for reads through the page cache, where direct ones cannot be had. */
mf_status expert_placement_avoid_direct(struct expert_placement *placement, uint64_t budget_bytes,
                                        mf_error *why);

/* "streamed" also where a resident placement has been limited. */
const char *expert_placement_mode_name(const struct expert_placement *placement);

/* Bytes of the cache policy's tables: only where something can be evicted, else 0. */
uint64_t expert_placement_policy_bytes(const struct expert_placement *placement);

#endif
